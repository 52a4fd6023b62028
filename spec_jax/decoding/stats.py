"""What a generation did: sums carried in the state, and the rates from them."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from spec_jax.base import pytree


@pytree
class Statistics:
    """Counts for each row, and rates over all rows.

    A step counts for a row while the row is not done. Counts end where a row
    ends: drafted tokens past an EOS, a stop sequence or the row's limit are
    neither drafted nor accepted here. A rate without a case is NaN.

    steps: target runs after the prompt's.
    emitted: committed tokens, EOS counted.
    drafted: drafted tokens that the target judged.
    accepted: of those, the ones it kept.
    steps_without_drafts: steps in which nothing was drafted.
    residual_fallbacks: corrections drawn from p because max(p - q, 0) was zero.
    accepted_per_drafted: accepted / drafted.
    tokens_per_target_run: emitted / steps.
    acceptance_by_position: [i]: of the steps that drafted more than i tokens, the
      share that accepted more than i.
    conditional_acceptance_by_position: [i]: the same share, of the steps that also
      accepted the i tokens before.

    Attributes:
      histogram: [row, d, a]: steps with d drafted and a accepted tokens.
      emitted_by_row: committed tokens.
      residual_fallbacks_by_row: corrections drawn from p.

    Example: three steps at gamma 3 that accepted 3, 0 and 1 tokens.
      >>> stats = Statistics.zeros(1, 3)
      >>> for kept in (3, 0, 1):
      ...     stats = stats.add(*(jnp.array([x]) for x in (3, kept, kept + 1, False)))
      >>> round(stats.accepted_per_drafted, 3), round(stats.tokens_per_target_run, 3)
      (0.444, 2.333)
      >>> stats.conditional_acceptance_by_position.round(3).tolist()
      [0.667, 0.5, 1.0]
    """

    histogram: Int[Array, "b n n"]
    emitted_by_row: Int[Array, "b"]
    residual_fallbacks_by_row: Int[Array, "b"]

    @classmethod
    def zeros(cls, batch: int, gamma: int) -> "Statistics":
        """No steps yet."""
        count = jnp.zeros((batch,), jnp.int32)
        shape = (batch, gamma + 1, gamma + 1)
        return cls(jnp.zeros(shape, jnp.int32), count, count)

    def add(
        self,
        drafted: Int[Array, "b"],
        accepted: Int[Array, "b"],
        emitted: Int[Array, "b"],
        fallback: Bool[Array, "b"],
    ) -> "Statistics":
        """Counts one step; rows that emitted nothing were done before it."""
        index = jnp.arange(self.histogram.shape[1])
        at_drafted = index[:, None] == drafted[:, None, None]
        at_accepted = index == accepted[:, None, None]
        ran = (emitted > 0)[:, None, None]
        return Statistics(
            self.histogram + (at_drafted & at_accepted & ran).astype(jnp.int32),
            self.emitted_by_row + emitted,
            self.residual_fallbacks_by_row + fallback.astype(jnp.int32),
        )

    def row(self, index: int) -> "Statistics":
        """The statistics of one row alone."""
        return jax.tree.map(lambda x: x[index : index + 1], self)

    def _counts(self) -> np.ndarray:
        """The histogram over all rows, in 64 bits."""
        return np.asarray(self.histogram).sum(0, dtype=np.int64)

    @property
    def steps(self) -> int:
        """Target runs after the prompt's."""
        return int(self._counts().sum())

    @property
    def emitted(self) -> int:
        """Committed tokens."""
        return int(np.asarray(self.emitted_by_row).sum(dtype=np.int64))

    @property
    def drafted(self) -> int:
        """Drafted tokens that the target judged."""
        counts = self._counts()
        return int(counts.sum(1) @ np.arange(len(counts)))

    @property
    def accepted(self) -> int:
        """Drafted tokens that the target kept."""
        counts = self._counts()
        return int(counts.sum(0) @ np.arange(len(counts)))

    @property
    def steps_without_drafts(self) -> int:
        """Steps in which nothing was drafted."""
        return int(self._counts()[0].sum())

    @property
    def residual_fallbacks(self) -> int:
        """Corrections drawn from p because the residual was empty."""
        return int(np.asarray(self.residual_fallbacks_by_row).sum(dtype=np.int64))

    @property
    def accepted_per_drafted(self) -> float:
        """accepted / drafted."""
        return _ratio(self.accepted, self.drafted)

    @property
    def tokens_per_target_run(self) -> float:
        """emitted / steps."""
        return _ratio(self.emitted, self.steps)

    @property
    def acceptance_by_position(self) -> np.ndarray:
        """[i]: of the steps that drafted more than i, the share that kept them."""
        counts = self._counts()
        gamma = len(counts) - 1
        return np.array(
            [
                _ratio(counts[i + 1 :, i + 1 :].sum(), counts[i + 1 :].sum())
                for i in range(gamma)
            ]
        )

    @property
    def conditional_acceptance_by_position(self) -> np.ndarray:
        """[i]: the same among steps that kept the i tokens before."""
        counts = self._counts()
        gamma = len(counts) - 1
        return np.array(
            [
                _ratio(counts[i + 1 :, i + 1 :].sum(), counts[i + 1 :, i:].sum())
                for i in range(gamma)
            ]
        )


def _ratio(part: int | np.integer, whole: int | np.integer) -> float:
    return float(part / whole) if whole else float("nan")
