"""Shapes, states and protocols that every room shares. Imports no other room.

Shape letters: b rows, t tokens in a call, g = gamma drafted tokens, n = g + 1
positions, l buffer length, v vocabulary.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import (
    Any,
    Literal,
    Protocol,
    TypeVar,
    dataclass_transform,
    runtime_checkable,
)

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

T = TypeVar("T")

Params = Any
"""A pytree of parameters, handed to the Decoder unread."""

Cache = Any
"""A pytree without an index: the loop owns positions."""

Inputs = Any
"""What the prompt side needs (T5: the encoder's tokens); None where nothing."""

Sampling = Mapping[str, Array | np.ndarray]
"""Per-row values: any of temperature, top_k, top_p, min_p, repetition_penalty, each
an array [b], and logit_bias [b, v]."""

Noise = Literal["uniform", "gumbel"] | None
"""How tokens are drawn: by uniforms of their step, by Gumbel noise of their position
that target and draft share, or not at all."""


@dataclass_transform(frozen_default=True)
def pytree(cls: type[T]) -> type[T]:
    """Makes a frozen dataclass whose fields are the children of a pytree.

    Unlike jax.tree_util.register_dataclass it rebuilds instances without their
    constructor: JAX puts placeholders of no shape into them, and batched or
    stacked arrays, which a type checker of constructors would refuse.
    """
    cls = dataclasses.dataclass(frozen=True)(cls)
    names = tuple(field.name for field in dataclasses.fields(cls))
    keys = tuple(jax.tree_util.GetAttrKey(name) for name in names)

    def flatten(self):
        return tuple(getattr(self, name) for name in names), None

    def flatten_with_keys(self):
        return tuple(zip(keys, flatten(self)[0])), None

    def unflatten(_, children):
        self = object.__new__(cls)
        for name, child in zip(names, children):
            object.__setattr__(self, name, child)
        return self

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


class StopReason(enum.IntEnum):
    """Why a row ended."""

    RUNNING = 0
    EOS = 1
    STOP = 2
    LENGTH = 3


@runtime_checkable
class Decoder(Protocol):
    """A language model as the loop sees it.

    Attributes:
      vocab_size: v, the width of its logits.
      max_length: the model's own limit of positions, None if it has none.
    """

    vocab_size: int
    max_length: int | None

    def init_cache(
        self, params: Params, inputs: Inputs, batch: int, max_length: int
    ) -> Cache:
        """Makes an empty cache; an encoder-decoder runs its encoder here, once.

        Args:
          params: the model's parameters.
          inputs: what the prompt side needs.
          batch: b, the number of rows.
          max_length: positions to make room for. It exceeds what is ever
            committed by the width of one call, also beyond the decoder's own
            `max_length`: nothing computed at such a position is used, it must
            only not fail.

        Returns:
          The cache.
        """
        ...

    def extend(
        self,
        params: Params,
        cache: Cache,
        tokens: Int[Array, "b t"],
        start: Int[Array, "b"],
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """Writes t tokens at positions start .. start + t - 1 of each row.

        Slots are overwritten, and those at or past start + t are never read, so
        calling again from an earlier `start` is the whole of a rollback.

        Returns:
          The logits after each token, and the cache.
        """
        ...


@pytree
class Proposal:
    """What a draft suggests next.

    Attributes:
      tokens: the suggested tokens.
      probs: exactly the distribution each token was drawn from; None where no
        token was drawn, which stands for one-hot rows without their cost.
      count: how many leading tokens of each row count, 0 .. g.
    """

    tokens: Int[Array, "b g"]
    probs: Float[Array, "b g v"] | None
    count: Int[Array, "b"]


@runtime_checkable
class DraftSource(Protocol):
    """Where proposals come from: a small model, n-grams, the prompt.

    Attributes:
      gamma: the most tokens proposed in a step (static).
      noise: how it draws; None where a proposal is no draw. See `Noise`.

    A source may say `has_cache = False`, if it keeps nothing of the tokens it has
    seen: `ChainDraft` reads that.
    """

    gamma: int
    noise: Noise

    def init(
        self,
        params: Params,
        inputs: Inputs,
        prompt: Int[Array, "b t"],
        prompt_length: Int[Array, "b"],
        max_length: int,
    ) -> Any:
        """Makes the draft's state; a model draft prefills the prompt here.

        Args:
          params: the draft's parameters, None where it has none.
          inputs: what the prompt side needs.
          prompt: left-aligned prompts.
          prompt_length: how much of each row is prompt.
          max_length: the most positions ever committed; scratch room past it is
            the draft's own affair.
        """
        ...

    def propose(
        self,
        params: Params,
        draft_state: Any,
        keys: Key[Array, "b g"],
        tokens: Int[Array, "b l"],
        length: Int[Array, "b"],
        sampling: Sampling | None = None,
    ) -> tuple[Proposal, Any]:
        """Proposes what follows `tokens[i, :length[i]]`; the rest is not read.

        A row's `length` grows by the accepted tokens and one, so a draft can tell
        from its last proposal how many were accepted.

        Args:
          params: as for `init`.
          draft_state: from `init`, or the last call.
          keys: of draw i of each row, used for nothing else: of its position
            length + i for a draft with Gumbel noise, else of the step.
          tokens: committed tokens.
          length: how many of them are final, at least 1.
          sampling: per-row values for the draft's policy.

        Returns:
          The proposal, and the state.
        """
        ...


@runtime_checkable
class Rule(Protocol):
    """A verification rule: two pure functions of one row, without random numbers.

    Attributes:
      lossless: whether the output follows the target's distribution exactly.
    """

    lossless: bool

    def accept_law(
        self,
        tokens: Int[Array, "g"],
        q: Float[Array, "g v"],
        p: Float[Array, "n v"],
    ) -> Float[Array, "n"]:
        """The probability of accepting exactly 0 .. g tokens; sums to 1."""
        ...

    def next_law(
        self,
        tokens: Int[Array, "g"],
        q: Float[Array, "g v"],
        p: Float[Array, "n v"],
        accepted: Int[Array, ""],
    ) -> Float[Array, "v"]:
        """The distribution of the token after `accepted` accepted ones."""
        ...


@pytree
class DecodeState:
    """Everything carried from step to step.

    `tokens[i, :length[i]]` is final and the rest is padding. The target's cache
    is right for positions below `length[i] - 1`: a step feeds the newest token.

    Attributes:
      tokens: prompt and committed tokens; longer than any row may grow.
      length: how many of them are final.
      prompt_length: how many of them are the prompt.
      limit: the length at which a row ends.
      stop_reason: a StopReason; RUNNING until the row is done.
      key: one key a row, never consumed: draws fold positions into it.
      target_cache: the target's cache.
      draft_state: the draft's state, None without a draft.
      stats: a decoding.stats.Statistics, sums over the steps so far.
      sampling: per-row values, None where the policy's own hold.
      logprobs: log-probabilities of committed tokens under the raw target;
        None where the algorithm does not ask for them.
      policy_logprobs: the same after the policy.
    """

    tokens: Int[Array, "b l"]
    length: Int[Array, "b"]
    prompt_length: Int[Array, "b"]
    limit: Int[Array, "b"]
    stop_reason: Int[Array, "b"]
    key: Key[Array, "b"]
    target_cache: Cache
    draft_state: Any
    stats: Any
    sampling: Sampling | None
    logprobs: Float[Array, "b l"] | None
    policy_logprobs: Float[Array, "b l"] | None

    @property
    def done(self) -> Bool[Array, "b"]:
        """Which rows have ended."""
        return self.stop_reason != StopReason.RUNNING


@pytree
class StepInfo:
    """What one step did, for pictures and tests; no later step needs it.

    Counts end where the row ends: tokens past an EOS were neither proposed nor
    accepted.

    Attributes:
      length: each row's length before the step.
      proposed: the drafted tokens.
      num_proposed: how many of them the target judged.
      num_accepted: how many of those it kept.
      emitted: accepted tokens, then the correction or the bonus token.
      num_emitted: how many of those were committed; 0 for a row that was done.
      residual_empty: where a correction fell back to p.
    """

    length: Int[Array, "b"]
    proposed: Int[Array, "b g"]
    num_proposed: Int[Array, "b"]
    num_accepted: Int[Array, "b"]
    emitted: Int[Array, "b n"]
    num_emitted: Int[Array, "b"]
    residual_empty: Bool[Array, "b"]


@runtime_checkable
class Algorithm(Protocol):
    """A way to decode: two pure functions of a static, hashable object.

    Implementations are frozen dataclasses: equal ones share one compiled
    program, and the repr of one is the record of a run.
    """

    def init(
        self,
        params: Params,
        inputs: Inputs,
        prompt: Int[Array, "b t"],
        prompt_length: Int[Array, "b"],
        key: Key[Array, "*rows"],
        limit: Int[Array, "b"],
        max_length: int,
        sampling: Sampling | None = None,
    ) -> DecodeState:
        """Makes the state before the first step.

        Args:
          params: {"target": ..., "draft": ...}.
          inputs: what the prompt side needs.
          prompt: the decoder's own prefix, left-aligned, at least one token.
          prompt_length: how much of each row is prompt, at least 1.
          key: one key (row i gets fold_in(key, i)) or one a row.
          limit: the most new tokens of each row.
          max_length: the most positions of any row, prompt included (static).
          sampling: per-row values for the policies.
        """
        ...

    def step(self, params: Params, state: DecodeState) -> tuple[DecodeState, StepInfo]:
        """Commits at least one token to every row that is not done."""
        ...
