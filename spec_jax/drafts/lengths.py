"""How many tokens a step drafts: all, as many as pay, or while the draft is sure.

Whatever is decided depends on what is known already: earlier steps, and drafted tokens
that are kept. A token that is looked at and then dropped would change the output's
distribution.
"""

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from spec_jax.base import DraftSource


@runtime_checkable
class LengthPolicy(Protocol):
    """Decides how many tokens each row drafts, up to gamma.

    Attributes:
      needs_confidence: whether `stops` reads the tokens' probabilities.
    """

    needs_confidence: bool

    def init(self, batch: int) -> Any:
        """The state before the first step."""
        ...

    def most(self, state: Any, gamma: int) -> Int[Array, "b"]:
        """The most tokens to draft now, 0 .. gamma."""
        ...

    def stops(self, confidence: Float[Array, "b"]) -> Bool[Array, "b"]:
        """Whether to draft no further after a token, which is kept.

        Args:
          confidence: the draft model's probability of the token, at temperature 1
            and before any filter.
        """
        ...

    def observe(
        self, state: Any, drafted: Int[Array, "b"], accepted: Int[Array, "b"]
    ) -> Any:
        """The state after a step; rows that drafted nothing have 0 and 0.

        Its leaves begin with the axis of rows: it is kept for rows that stood still.
        """
        ...


@dataclasses.dataclass(frozen=True)
class FixedLength:
    """gamma tokens in every step; the base of other policies."""

    needs_confidence = False

    def init(self, batch):
        """See `LengthPolicy.init`."""
        return jnp.zeros((batch, 0))

    def most(self, state, gamma):
        """See `LengthPolicy.most`."""
        return jnp.full(state.shape[:1], gamma, jnp.int32)

    def stops(self, confidence):
        """See `LengthPolicy.stops`."""
        return jnp.zeros(confidence.shape, bool)

    def observe(self, state, drafted, accepted):
        """See `LengthPolicy.observe`."""
        del drafted, accepted
        return state


class Acceptances(NamedTuple):
    """Faded counts of drafted tokens that were judged one after another."""

    accepted: Float[Array, "b"]
    rejected: Float[Array, "b"]


@dataclasses.dataclass(frozen=True)
class OptimalLength(FixedLength):
    """The gamma of largest expected speed, from each row's running alpha.

    alpha is (accepted + weight alpha) / (accepted + rejected + weight), counts
    fading by `decay` a step, those without a draft too: a row that stopped drafting
    comes back to what it began with, and tries again. The speed is theorem 3.8's
    with the cost of verification: tokens / (gamma c + verify_cost), gamma = 0
    included.

    Attributes:
      c: time of one draft step over one plain target step.
      verify_cost: time of the target's call on a block over one plain step.
      alpha: what a row begins with.
      weight: how many tokens that counts for.
      decay: how much of the counts a step keeps.

    Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, section 3.5.
    """

    c: float
    verify_cost: float = 1.0
    alpha: float = 0.7
    weight: float = 2.0
    decay: float = 0.95

    def __post_init__(self):
        if not self.c > 0 or not self.verify_cost > 0 or not self.weight > 0:
            raise ValueError(
                "want c, verify_cost and weight > 0, got "
                f"{self.c}, {self.verify_cost} and {self.weight}"
            )
        if not 0 <= self.alpha <= 1 or not 0 <= self.decay <= 1:
            raise ValueError(
                f"want alpha and decay in [0, 1], got {self.alpha} and {self.decay}"
            )

    def init(self, batch):
        """See `LengthPolicy.init`."""
        none = jnp.zeros((batch,), jnp.float32)
        return Acceptances(none, none)

    def most(self, state, gamma):
        """See `LengthPolicy.most`."""
        total = state.accepted + state.rejected + self.weight
        alpha = (state.accepted + self.weight * self.alpha) / total
        count = jnp.arange(gamma + 1)
        tokens = jnp.cumsum(alpha[:, None] ** count, axis=1)
        speed = tokens / (count * self.c + self.verify_cost)
        return jnp.argmax(speed, axis=1).astype(jnp.int32)

    def observe(self, state, drafted, accepted):
        """See `LengthPolicy.observe`."""
        rejected = (accepted < drafted).astype(jnp.float32)
        return Acceptances(
            self.decay * state.accepted + accepted,
            self.decay * state.rejected + rejected,
        )


@dataclasses.dataclass(frozen=True)
class ConfidenceStop(FixedLength):
    """Drafts until a token that the draft itself gives less than a threshold.

    That token is kept: to drop it would favour tokens that the draft is sure of.

    Attributes:
      threshold: a probability; the last token of a draft is the first below it.
    """

    threshold: float = 0.4
    needs_confidence = True

    def __post_init__(self):
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"want threshold in [0, 1], got {self.threshold}")

    def stops(self, confidence):
        """See `LengthPolicy.stops`."""
        return confidence < self.threshold


class Progress(NamedTuple):
    """A length policy's state, and what the last proposal was.

    Attributes:
      policy: the policy's own.
      length: of the rows when they last drafted.
      count: how many tokens they drafted.
    """

    policy: Any
    length: Int[Array, "b"]
    count: Int[Array, "b"]


def begin(policy: LengthPolicy, batch: int) -> Progress:
    """Before the first proposal."""
    none = jnp.zeros((batch,), jnp.int32)
    return Progress(policy.init(batch), none, none)


def resume(policy: LengthPolicy, progress: Progress, length: Int[Array, "b"]) -> Any:
    """The policy's state now, from how far the rows came since they last drafted.

    Args:
      policy: the policy.
      progress: of the last proposal.
      length: of the rows now.
    """
    accepted = jnp.clip(length - progress.length - 1, 0, progress.count)
    state = policy.observe(progress.policy, progress.count, accepted)
    # Rows stand still when done, or go back in a draft of a draft: nothing is known.
    moved = length > progress.length

    def chosen(new, old):
        return jnp.where(moved.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(chosen, state, progress.policy)


def fixed_length(draft: DraftSource, gamma: int | None = None) -> DraftSource:
    """The same draft with gamma tokens in every step, for what is measured a token.

    Args:
      draft: any source that is a dataclass.
      gamma: another gamma; None keeps the draft's.
    """
    changes: dict[str, Any] = {} if gamma is None else {"gamma": gamma}
    if any(field.name == "lengths" for field in dataclasses.fields(draft)):
        changes["lengths"] = FixedLength()
    return dataclasses.replace(draft, **changes)
