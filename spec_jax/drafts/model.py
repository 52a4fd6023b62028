"""Proposals from a smaller language model."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spec_jax.base import Decoder, Noise, Proposal
from spec_jax.core.draws import draw, draw_gumbel, uniforms
from spec_jax.core.sampling import SamplingPolicy, token_logprobs
from spec_jax.drafts.lengths import FixedLength, LengthPolicy, Progress, begin, resume


class ModelDraftState(NamedTuple):
    """What a model draft carries from step to step."""

    cache: Any
    progress: Progress


@dataclasses.dataclass(frozen=True)
class ModelDraft:
    """Draws up to gamma tokens, one after another, from a draft model.

    After a full acceptance the newest drafted token was never fed to this model.
    So every step feeds the last two committed tokens first, also when it then
    proposes nothing, which writes the same values again where that was not the case:
    no branch, and rows need not agree. Drafting ends early when no row goes on. A
    row too long for the model proposes nothing and goes on without drafts.

    Attributes:
      decoder: the draft model.
      policy: what it draws from; any policy is lawful.
      gamma: the most tokens proposed in a step.
      lengths: how many of them a step proposes.
      noise: "uniform", or "gumbel" for `CoupledRule`.
    """

    decoder: Decoder
    policy: SamplingPolicy
    gamma: int
    lengths: LengthPolicy = dataclasses.field(default_factory=FixedLength)
    noise: Noise = "uniform"

    def __post_init__(self):
        if self.gamma < 1:
            raise ValueError(f"want gamma >= 1, got {self.gamma}")
        if self.noise not in ("uniform", "gumbel"):
            raise ValueError(f"want noise 'uniform' or 'gumbel', got {self.noise!r}")
        if self.decoder.max_length is not None and self.decoder.max_length < 2:
            raise ValueError(
                "want a draft decoder of max_length >= 2, got "
                f"{self.decoder.max_length}"
            )

    def init(self, params, inputs, prompt, prompt_length, max_length):
        """Prefills what the first step does not feed. See `DraftSource.init`."""
        del prompt_length  # what lies past it is overwritten before it is read
        batch, width = prompt.shape
        size = max(max_length, 2) + self.gamma
        if self.decoder.max_length is not None:
            size = min(size, self.decoder.max_length)
        cache = self.decoder.init_cache(params, inputs, batch, size)
        prefill = min(width - 2, size)
        if prefill > 0:
            start = jnp.zeros((batch,), jnp.int32)
            _, cache = self.decoder.extend(params, cache, prompt[:, :prefill], start)
        return ModelDraftState(cache, begin(self.lengths, batch))

    def propose(self, params, draft_state, keys, tokens, length, sampling=None):
        """See `DraftSource.propose`."""
        gamma, policy, lengths = self.gamma, self.policy, self.lengths
        size = self.decoder.max_length
        progress = resume(lengths, draft_state.progress, length)
        count = lengths.most(progress, gamma)
        if size is not None:
            # Token i is drawn after feeding position length - 1 + i.
            count = jnp.minimum(count, jnp.clip(size + 1 - length, 0, gamma))

        def place(position, width):
            """Keeps writes of rows that are out of room inside the cache."""
            return position if size is None else jnp.minimum(position, size - width)

        greedy = policy.is_greedy(sampling)
        noise = None if greedy or self.noise == "gumbel" else uniforms(keys, 2)

        def at(values, i):
            return jax.lax.dynamic_index_in_dim(values, i, 1, keepdims=False)

        def choose(i, logits, seen):
            """Token i, what it was drawn from, and the tokens seen then."""
            if greedy:
                token, probs = policy.greedy(logits, sampling, seen), None
            else:
                probs = policy.probs(logits, sampling, seen)
                if noise is None:
                    token = draw_gumbel(at(keys, i), probs)
                else:
                    token = jax.vmap(draw)(at(noise, i), probs)
            if seen is not None:
                seen |= jax.nn.one_hot(token, seen.shape[-1], dtype=bool)
            return token, probs, seen

        def keep(i, count, logits, token):
            """How many tokens the rows draft, after looking at token i."""
            if not lengths.needs_confidence:
                return count
            stops = lengths.stops(jnp.exp(token_logprobs(logits, token)))
            return jnp.where(stops, jnp.minimum(count, i + 1), count)

        start = jnp.maximum(length - 2, 0)
        last_two = jnp.take_along_axis(
            tokens, jnp.minimum(start[:, None] + jnp.arange(2), tokens.shape[1] - 1), 1
        )
        logits, cache = self.decoder.extend(
            params, draft_state.cache, last_two, place(start, 2)
        )
        is_single = (length == 1)[:, None]
        logits = jnp.where(is_single, logits[:, 0], logits[:, 1])
        nothing = jnp.zeros((*length.shape, 0), jnp.int32)
        seen = policy.history(tokens, length, nothing, logits.shape[-1], sampling)
        token, probs, seen = choose(0, logits, None if seen is None else seen[:, 0])
        count = keep(0, count, logits, token)

        drafted = jnp.zeros((*token.shape, gamma), jnp.int32)
        laws = None if greedy else jnp.zeros((token.shape[0], gamma, probs.shape[-1]))

        def put(values, value, i):
            if value is None:
                return None
            return jax.lax.dynamic_update_index_in_dim(values, value, i, 1)

        def feed_and_draw(carry):
            i, token, seen, count, cache, drafted, laws = carry
            logits, cache = self.decoder.extend(
                params, cache, token[:, None], place(length + i - 1, 1)
            )
            logits = logits[:, 0]
            token, probs, seen = choose(i, logits, seen)
            count = keep(i, count, logits, token)
            drafted, laws = put(drafted, token, i), put(laws, probs, i)
            return i + 1, token, seen, count, cache, drafted, laws

        carry = (1, token, seen, count, cache, put(drafted, token, 0))
        _, _, _, count, cache, drafted, laws = jax.lax.while_loop(
            lambda carry: carry[0] < carry[3].max(),
            feed_and_draw,
            (*carry, put(laws, probs, 0)),
        )
        state = ModelDraftState(cache, Progress(progress, length, count))
        return Proposal(drafted, laws, count), state
