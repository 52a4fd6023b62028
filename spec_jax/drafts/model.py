"""Proposals from a smaller language model."""

import dataclasses

import jax
import jax.numpy as jnp

from spec_jax.base import Decoder, Proposal
from spec_jax.core.draws import draw, uniforms
from spec_jax.core.sampling import SamplingPolicy


@dataclasses.dataclass(frozen=True)
class ModelDraft:
    """Draws gamma tokens, one after another, from a draft model.

    After a full acceptance the newest drafted token was never fed to this model.
    So every step feeds the last two committed tokens first, which writes the same
    values again where that was not the case: no branch, and rows need not agree.
    A row too long for the model proposes nothing and goes on without drafts.

    Attributes:
      decoder: the draft model.
      policy: what it draws from; any policy is lawful.
      gamma: the most tokens proposed in a step.
    """

    decoder: Decoder
    policy: SamplingPolicy
    gamma: int

    def __post_init__(self):
        if self.gamma < 1:
            raise ValueError(f"want gamma >= 1, got {self.gamma}")
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
        return cache

    def propose(self, params, draft_state, keys, tokens, length, sampling=None):
        """See `DraftSource.propose`."""
        gamma = self.gamma
        greedy = self.policy.is_greedy(sampling)
        size = self.decoder.max_length
        count = jnp.full_like(length, gamma)
        if size is not None:
            # Token i is drawn after feeding position length - 1 + i.
            count = jnp.clip(size + 1 - length, 0, gamma)

        def place(position, width):
            """Keeps writes of rows that are out of room inside the cache."""
            return position if size is None else jnp.minimum(position, size - width)

        def choose(i, logits):
            if greedy:
                return self.policy.greedy(logits), None
            probs = self.policy.probs(logits, sampling)
            u = jax.lax.dynamic_index_in_dim(uniform, i, 1, keepdims=False)
            return jax.vmap(draw)(u, probs), probs

        uniform = None if greedy else uniforms(keys, 2)
        start = jnp.maximum(length - 2, 0)
        last_two = jnp.take_along_axis(
            tokens, jnp.minimum(start[:, None] + jnp.arange(2), tokens.shape[1] - 1), 1
        )
        logits, cache = self.decoder.extend(
            params, draft_state, last_two, place(start, 2)
        )
        is_single = (length == 1)[:, None]
        logits = jnp.where(is_single, logits[:, 0], logits[:, 1])
        token, probs = choose(0, logits)

        drafted = jnp.zeros((*token.shape, gamma), jnp.int32)
        laws = None if greedy else jnp.zeros((token.shape[0], gamma, probs.shape[-1]))

        def put(values, value, i):
            if value is None:
                return None
            return jax.lax.dynamic_update_index_in_dim(values, value, i, 1)

        def feed_and_draw(carry):
            i, token, cache, drafted, laws = carry
            logits, cache = self.decoder.extend(
                params, cache, token[:, None], place(length + i - 1, 1)
            )
            token, probs = choose(i, logits[:, 0])
            return i + 1, token, cache, put(drafted, token, i), put(laws, probs, i)

        most = count.max()
        carry = (1, token, cache, put(drafted, token, 0), put(laws, probs, 0))
        _, _, cache, drafted, laws = jax.lax.while_loop(
            lambda carry: carry[0] < most, feed_and_draw, carry
        )
        return Proposal(drafted, laws, count), cache
