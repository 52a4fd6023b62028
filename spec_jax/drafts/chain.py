"""Staged speculation: a draft drafts for the draft model."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from spec_jax.base import Decoder, DraftSource, Noise, Params, Proposal, Rule
from spec_jax.core.draws import DRAFT, VERIFY, draw_gumbel, step_keys
from spec_jax.core.rules import AnyRule, TokenRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.core.verification import verify, verify_choice


class ChainDraftState(NamedTuple):
    """What a chain carries from step to step."""

    cache: Any
    inner: Any


class Block(NamedTuple):
    """A proposal in the making.

    A row that is done and waits for others does its last round again, with the same
    keys: it changes nothing, also not in the inner draft's state.

    Attributes:
      tokens: committed and drafted tokens.
      probs: the model's distribution of each drafted one; None where it is greedy.
      begun: how many were drafted before the last round.
      drafted: how many are now.
      done: which rows need no further round.
    """

    tokens: Int[Array, "b l"]
    probs: Float[Array, "b g v"] | None
    begun: Int[Array, "b"]
    drafted: Int[Array, "b"]
    done: Bool[Array, "b"]


@dataclasses.dataclass(frozen=True)
class ChainDraft:
    """A model that itself decodes speculatively, with a cheaper draft.

    Its tokens follow its own distribution exactly, whatever the inner draft proposes,
    as those of `ModelDraft` do; an inner draft that is often right saves calls of the
    model. The model's cache is kept whole as there: each call feeds the last two tokens
    first. Parameters are {"model": ..., "inner": ...}.

    An inner draft with a cache is told of every token but one when the model accepts
    all that it proposed, the model's own token ends the block, and the large model adds
    another. So such a block ends one token early, unless the inner draft proposes
    more; the inner gamma should be the chain's. Drafts whose `has_cache` is False are
    spared that.

    Attributes:
      inner: drafts for the model.
      decoder: the model.
      policy: what its tokens are drawn from; any policy is lawful.
      gamma: the most tokens proposed in a step.
      rule: how the inner proposals are judged, not read where noise is "gumbel"; no
        rule that changes the distribution is taken.
      noise: "uniform", or "gumbel" for `CoupledRule` by the large model; the inner
        proposals are then judged by it too.

    Reference: Spector and Re 2023, https://arxiv.org/abs/2308.04623, section 3.2.
    """

    inner: DraftSource
    decoder: Decoder
    policy: SamplingPolicy
    gamma: int
    rule: AnyRule = dataclasses.field(default_factory=TokenRule)
    noise: Noise = "uniform"

    def __post_init__(self):
        if self.gamma < 1 or self.inner.gamma < 1:
            raise ValueError(
                f"want gamma >= 1, got {self.gamma} and {self.inner.gamma} of the "
                "inner draft"
            )
        if self.noise not in ("uniform", "gumbel"):
            raise ValueError(f"want noise 'uniform' or 'gumbel', got {self.noise!r}")
        if self.inner.noise not in (None, self.noise):
            raise ValueError(
                f"want an inner draft of noise={self.noise!r}, as the chain has, got "
                f"noise={self.inner.noise!r}"
            )
        if not isinstance(self.rule, Rule) or not self.rule.lossless:
            raise ValueError(
                f"want a lossless rule with laws, got {self.rule}: the proposal has to "
                "follow the model's own distribution; noise='gumbel' couples"
            )
        if self.decoder.max_length is not None and self.decoder.max_length < 2:
            raise ValueError(
                f"want a decoder of max_length >= 2, got {self.decoder.max_length}"
            )

    def init(self, params, inputs, prompt, prompt_length, max_length):
        """Prefills what the first step does not feed. See `DraftSource.init`."""
        batch, width = prompt.shape
        size = max(max_length, 2) + self.gamma
        if self.decoder.max_length is not None:
            size = min(size, self.decoder.max_length)
        # Inner proposals may lie past the model's last position; they are not kept.
        cache = self.decoder.init_cache(
            params["model"], inputs, batch, size + self.inner.gamma + 1
        )
        prefill = min(width - 2, size)
        if prefill > 0:
            start = jnp.zeros((batch,), jnp.int32)
            _, cache = self.decoder.extend(
                params["model"], cache, prompt[:, :prefill], start
            )
        inner = self.inner.init(
            params.get("inner"), inputs, prompt, prompt_length, max_length + self.gamma
        )
        return ChainDraftState(cache, inner)

    def propose(self, params, draft_state, keys, tokens, length, sampling=None):
        """See `DraftSource.propose`."""
        gamma, size, policy = self.gamma, self.decoder.max_length, self.policy
        batch = length.shape[0]
        most = jnp.full((batch,), gamma, jnp.int32)
        if size is not None:
            # Token i is drawn after feeding position length - 1 + i.
            most = jnp.clip(size + 1 - length, 0, gamma).astype(jnp.int32)
        probs = None
        if not policy.is_greedy(sampling):
            vocab_size = policy.vocab_limit or self.decoder.vocab_size
            probs = jnp.zeros((batch, gamma, vocab_size), jnp.float32)
        none = jnp.zeros_like(most)
        room = jnp.pad(tokens, ((0, 0), (0, gamma + self.inner.gamma)))
        block, state = jax.lax.while_loop(
            lambda carry: ~carry[0].done.all(),
            lambda carry: self._round(params, *carry, keys, length, most, sampling),
            (Block(room, probs, none, none, most == 0), draft_state),
        )
        place = length[:, None] + jnp.arange(gamma)
        drafted = jnp.take_along_axis(block.tokens, place, 1)
        return Proposal(drafted, block.probs, block.drafted), state

    def _round(self, params, block, state, keys, length, most, sampling):
        """One inner proposal and the model's verdict: more tokens for each row.

        Args:
          params: of the chain.
          block: what there is.
          state: of the chain.
          keys: of the chain's draws.
          length: of the committed tokens.
          most: how many drafted tokens each row wants.
          sampling: per-row values for the policies.

        Returns:
          Block and state.
        """
        policy = self.policy
        begun = jnp.where(block.done, block.begun, block.drafted)
        now = length + begun

        def keys_of(count):
            """The chain's keys from `begun` on; what lies past the last is not kept."""
            index = jnp.minimum(begun[:, None] + jnp.arange(count), self.gamma - 1)
            return jax.vmap(lambda keys, index: keys[index])(keys, index)

        # A round begins at another place than those before it: its key is fresh.
        key = keys_of(1)[:, 0]
        if self.noise == "gumbel":
            inner_keys = keys_of(self.inner.gamma)
        else:
            inner_keys = step_keys(key, now, DRAFT, self.inner.gamma)
        proposal, inner = self.inner.propose(
            params.get("inner"), state.inner, inner_keys, block.tokens, now, sampling
        )
        room = most - begun
        proposed = proposal.count
        proposal = dataclasses.replace(proposal, count=jnp.minimum(proposed, room))
        logits, cache = self._extend(
            params["model"],
            state.cache,
            _written(block.tokens, proposal.tokens, now, proposal.count),
            now,
        )

        history = policy.history(
            block.tokens, now, proposal.tokens, logits.shape[-1], sampling
        )
        if policy.is_greedy(sampling):
            probs = None
            choice = policy.greedy(logits, sampling, history)
            verdict = verify_choice(proposal, choice)
        else:
            probs = policy.probs(logits, sampling, history)
            if self.noise == "gumbel":
                choice = draw_gumbel(keys_of(self.inner.gamma + 1), probs)
                verdict = verify_choice(proposal, choice)
            else:
                verify_key = step_keys(key, now, VERIFY, 1)[:, 0]
                verdict = verify(self.rule, verify_key, proposal, probs)

        accepted = verdict.accepted
        more = jnp.minimum(accepted + 1, room)
        ends = more == room
        if getattr(self.inner, "has_cache", True):
            # The inner draft never fed its newest token, nor would it be told before
            # two others follow it.
            unfed = ends & (accepted == proposed) & (accepted > 0) & (accepted < room)
            more = jnp.where(unfed, accepted, more)
        slot = jnp.arange(self.inner.gamma + 1)
        emitted = jnp.where(
            slot < accepted[:, None],
            jnp.pad(proposal.tokens, ((0, 0), (0, 1))),
            verdict.token[:, None],
        )
        laws = (
            block.probs if probs is None else _written(block.probs, probs, begun, more)
        )
        tokens = _written(block.tokens, emitted, now, more)
        done = block.done | ends
        return (
            Block(tokens, laws, begun, begun + more, done),
            ChainDraftState(cache, inner),
        )

    def _extend(
        self,
        params: Params,
        cache: Any,
        tokens: Int[Array, "b l"],
        length: Int[Array, "b"],
    ) -> tuple[Float[Array, "b n v"], Any]:
        """Feeds the last two of `length` tokens and as many as the inner gamma after.

        Returns:
          The logits after the last one and those, and the cache.
        """
        start = jnp.maximum(length - 2, 0)
        index = start[:, None] + jnp.arange(self.inner.gamma + 2)
        window = jnp.take_along_axis(tokens, jnp.minimum(index, tokens.shape[1] - 1), 1)
        size = self.decoder.max_length
        if size is not None:
            # Writes of rows that are out of room stay inside the cache.
            start = jnp.minimum(start, size - 1)
        logits, cache = self.decoder.extend(params, cache, window, start)
        is_single = (length == 1)[:, None, None]
        return jnp.where(is_single, logits[:, :-1], logits[:, 1:]), cache


def _written(
    values: Shaped[Array, "b m *v"],
    new: Shaped[Array, "b k *v"],
    start: Int[Array, "b"],
    count: Int[Array, "b"],
) -> Shaped[Array, "b m *v"]:
    """`values` with the first `count[i]` of each row's `new` from `start[i]` on."""
    offset = jnp.arange(values.shape[1]) - start[:, None]
    inside = (offset >= 0) & (offset < count[:, None])
    offset = jnp.clip(offset, 0, new.shape[1] - 1)
    more = values.ndim - 2
    moved = jnp.take_along_axis(new, offset.reshape(*offset.shape, *(1,) * more), 1)
    return jnp.where(inside.reshape(*inside.shape, *(1,) * more), moved, values)
