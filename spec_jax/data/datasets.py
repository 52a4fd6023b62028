"""What is decoded and scored: the examples of a task, wherever they come from."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Scores = dict[str, float | str]
"""Figures of a task's metrics by name, and signatures that say how they were taken."""


@dataclasses.dataclass(frozen=True)
class TaskExample:
    """One example of a task.

    Attributes:
      index: in the split; a row's draws depend on it, never on a batch.
      inputs: encoder tokens, end of sequence included, uncut.
      target: what the task's metrics compare a prediction with.
      fields: what is written beside a prediction: plain values under seqio's names,
        `inputs_pretokenized` and, where there is one, `targets_pretokenized`.
    """

    index: int
    inputs: tuple[int, ...]
    target: Any
    fields: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class TaskData:
    """Examples of a task, and how outputs are scored.

    Attributes:
      name: of the task; it names files too.
      examples: in the split's order.
      max_input_length: encoder tokens; longer inputs are to be cut.
      max_target_length: decoder tokens, end of sequence included.
      score: figures for the predicted texts of all examples, in their order.
    """

    name: str
    examples: tuple[TaskExample, ...]
    max_input_length: int
    max_target_length: int
    score: Callable[[Sequence[str]], Scores]
