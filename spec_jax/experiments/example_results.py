"""What was measured of one example: a line of a journal, and figures from many."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from spec_jax.data.datasets import TaskData
from spec_jax.decoding.stats import Statistics
from spec_jax.experiments.alpha import Alpha, mean_acceptance
from spec_jax.experiments.journal import json_line
from spec_jax.experiments.outputs import Decoded
from spec_jax.experiments.record import Difference

WAYS = ("plain", "speculative")
"""Ways of decoding that every example has."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleResult:
    """One example, decoded in every way.

    Attributes:
      index: of the example in its task.
      batch: number of the batch that it was decoded in.
      tokens: new tokens by way of decoding, EOS counted.
      betas: see `alpha.acceptances`, at each of plain decoding's tokens.
      histogram: see `Statistics`, of speculative decoding.
      residual_fallbacks: see `Statistics`.
      difference: where speculative decoding first left plain decoding in one dtype;
        None where it did not, or where draws decide.
      seconds: of its whole batch, by way, one for each repeat.
      compile_seconds: of the calls before that compiled; in a batch's first example.
    """

    index: int
    batch: int
    tokens: dict[str, list[int]]
    betas: list[float]
    histogram: list[list[int]]
    residual_fallbacks: int
    difference: Difference | None
    seconds: dict[str, list[float]]
    compile_seconds: float = 0.0

    def line(self) -> dict[str, Any]:
        """As JSON holds it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Self:
        """What `line` gave.

        Raises:
          ValueError: if it is no such line.
        """
        try:
            at = line["difference"]
            difference = None if at is None else Difference(**at)
            result = cls(**{**line, "difference": difference})
            ways = [np.asarray(result.tokens[way], np.int32) for way in WAYS]
            whole = [x.ndim for x in ways] == [1, 1] and result.stats.steps >= 0
            if not whole or len(result.betas) != len(ways[0]):
                raise ValueError("its figures do not fit each other")
            return result
        except (TypeError, KeyError, AttributeError, ValueError, IndexError) as error:
            raise ValueError(f"no result of an example: {error!r}") from None

    @property
    def stats(self) -> Statistics:
        """Of speculative decoding, one row."""
        return Statistics(
            np.array([self.histogram], np.int32),
            np.array([len(self.tokens["speculative"])], np.int32),
            np.array([self.residual_fallbacks], np.int32),
        )


def decoded_by(results: Sequence[ExampleResult], way: str) -> Decoded:
    """What one way of decoding gave for all examples.

    Args:
      results: of all examples.
      way: a name in their tokens.
    """
    decoded = Decoded()
    for result in results:
        decoded.tokens[result.index] = np.array(result.tokens[way], np.int32)
    if way == "speculative":
        decoded.stats = [result.stats for result in results]
    timed = {r.batch: tuple(r.seconds[way]) for r in results if way in r.seconds}
    decoded.seconds = [timed[batch] for batch in sorted(timed)]
    return decoded


def alpha_of(results: Sequence[ExampleResult]) -> Alpha:
    """alpha over all examples."""
    betas = [np.array(result.betas, np.float64) for result in results]
    return mean_acceptance(betas, [len(row) for row in betas])


def predictions(
    data: TaskData, results: Sequence[ExampleResult], way: str, vocabulary: Any
) -> Iterator[dict[str, Any]]:
    """Examples and outputs in the form of seqio's inference files, in order.

    Args:
      data: of the task.
      results: of all its examples.
      way: a name in their tokens.
      vocabulary: of the models.
    """
    tokens = {result.index: result.tokens[way] for result in results}
    for example in data.examples:
        yield {
            "input": {**example.fields, "inputs": list(example.inputs)},
            "target": _shown(example.target),
            "prediction": vocabulary.decode(tokens[example.index]),
            "prediction_tokens": tokens[example.index],
        }


def _shown(target: Any) -> Any:
    """A target as a line can hold it: as text, where JSON has no such thing."""
    try:
        json_line({"target": target})
    except ValueError:
        return str(target)
    return target


def row_of(statistics: Statistics, row: int) -> tuple[list[list[int]], int]:
    """A row's histogram and fallbacks, as a journal has them."""
    one = jax.tree.map(np.asarray, statistics.row(row))
    return one.histogram[0].tolist(), int(one.residual_fallbacks_by_row[0])
