"""Which tasks a run is on: what MIXTURE_OR_TASK_NAME and its like choose."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any

from spec_jax.cli.configuration import unlocked
from spec_jax.cli.errors import did_you_mean
from spec_jax.cli.settings import require
from spec_jax.data.datasets import LENGTHS, TaskData, TaskFile, check_lengths, load_task
from spec_jax.data.examples import MAX_INPUT_LENGTH, TASKS
from spec_jax.experiments.inputs import shapes_up_to


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSource:
    """Tasks, and where their examples are.

    Attributes:
      names: of shipped corpora, of tasks or mixtures in seqio's registry, or of
        `file`, which then is the only one; it is called like the file where no other
        name is given.
      module: imported first: it may register tasks.
      split: of the tasks; None where it is texts that are decoded.
      data_dir: where `spec-jax data debian` wrote, or TFDS did; None: the committed
        samples, and TFDS's own folder.
      num_examples: the first ones of each task, or of some in a dict by task; None
        takes all.
      feature_lengths: most tokens of 'inputs' and 'targets'; None is each task's own.
      file: examples of one's own, .tsv or .jsonl.
      prefix: goes before every input of the file, and before texts.
      fields: the fields of its JSON lines that hold inputs and targets.
      metrics: of the file.

    Raises:
      ValueError: if a value is out of range.
    """

    names: tuple[str, ...] = ("ende", "summarize")
    module: str | None = None
    split: str | None = "test"
    data_dir: str | None = None
    num_examples: int | dict | None = None
    feature_lengths: dict | None = None
    file: str | None = None
    prefix: str | None = None
    fields: tuple[str, ...] = ("inputs", "targets")
    metrics: tuple[str, ...] = ("bleu",)

    def __post_init__(self):
        require(bool(self.names), "want a task in MIXTURE_OR_TASK_NAME, got none")
        for name in self.names:
            require(
                bool(name) and "/" not in name and not name.startswith("."),
                f"want the name of a task in MIXTURE_OR_TASK_NAME, got {name!r}; "
                "TASK_FILE takes a file",
            )
        check_lengths(self.feature_lengths)
        require(
            len(set(self.fields)) == 2,
            f"want two TASK_FIELDS, of inputs and targets, got {self.fields}",
        )
        if self.file is not None:
            _ = self.task_file
            if set(self.names) <= set(TASKS):  # those of the run's own file
                names = (self.task_file.task.name,)
                object.__setattr__(self, "names", names)
            require(
                len(self.names) == 1,
                "want one name for TASK_FILE in MIXTURE_OR_TASK_NAME, got "
                + ", ".join(self.names),
            )
        self._check_num_examples()

    @property
    def task_file(self) -> TaskFile | None:
        """The file, described."""
        if self.file is None:
            return None
        inputs, targets = self.fields
        return TaskFile(
            path=os.path.expanduser(self.file),
            prefix=self.prefix or "",
            inputs=inputs,
            targets=targets,
            metrics=self.metrics,
        )

    def load(self, vocabulary: Any) -> list[TaskData]:
        """The examples of every task. See `load_task`."""
        by_name = self.load_by_name(vocabulary)
        return [data for several in by_name.values() for data in several]

    def load_by_name(self, vocabulary: Any) -> dict[str, list[TaskData]]:
        """The examples of every task by its name; a mixture's has several."""
        with unlocked():
            return {name: self._load(name, vocabulary) for name in self.names}

    def _load(self, name: str, vocabulary: Any) -> list[TaskData]:
        return load_task(
            name,
            vocabulary,
            split=self.split or "test",
            data_dir=self.data_dir,
            num_examples=self._num_examples(name),
            feature_lengths=self.feature_lengths,
            file=self.task_file,
            module=self.module,
        )

    def _num_examples(self, name: str) -> int | None:
        """Of one task."""
        if isinstance(self.num_examples, dict):
            return self.num_examples.get(name)
        return self.num_examples

    def _check_num_examples(self) -> None:
        """Raises ValueError for numbers below 1 and for tasks that are not read."""
        numbers = self.num_examples
        if isinstance(numbers, dict):
            strange = sorted(set(numbers) - set(self.names))
            require(
                not strange,
                f"want NUM_EXAMPLES of {', '.join(self.names)}, got that of "
                + ", ".join(strange),
            )
        else:
            numbers = {"": numbers}
        for number in numbers.values():
            require(
                number is None or (type(number) is int and number >= 1),
                f"want num_examples >= 1, got {number}",
            )

    @property
    def text_prefix(self) -> str:
        """What goes before a text of the task.

        Raises:
          ValueError: if the task is not known, or there are several.
        """
        if self.prefix is not None:
            return self.prefix
        if len(self.names) > 1:
            raise ValueError(
                "want one task for texts in MIXTURE_OR_TASK_NAME, got "
                + ", ".join(self.names)
            )
        name = self.names[0]
        if name not in TASKS:
            near = did_you_mean(name, TASKS)
            raise ValueError(
                f"unknown task {name!r}, whose texts have no PREFIX{near}: known are "
                f"{', '.join(TASKS)}; give PREFIX, which may be '', or SPLIT, which "
                "decodes the task's own examples"
            )
        return TASKS[name].prefix

    def decode_shapes(
        self, input_lengths: Sequence[int], batches: Iterable[int]
    ) -> tuple[tuple[int, int, int], ...]:
        """(rows, padded input length, most new tokens) of every program.

        Args:
          input_lengths: that inputs are padded to.
          batches: rows of calls.
        """
        shapes = {
            (batch, length, most)
            for longest, most in self.lengths()
            for length in shapes_up_to(input_lengths, longest)
            for batch in batches
        }
        return tuple(sorted(shapes))

    def lengths(self) -> list[tuple[int, int]]:
        """Most tokens of inputs and targets of each task, where they are known.

        Those of a task of seqio's that TASK_FEATURE_LENGTHS does not give are only
        known once its examples are read.
        """
        found = []
        for name in self.names:
            own = dict(LENGTHS)
            if self.file is None and name in TASKS:
                longest = TASKS[name].max_target_length
                own = {"inputs": MAX_INPUT_LENGTH, "targets": longest}
            own |= self.feature_lengths or {}
            found.append((own["inputs"], own["targets"]))
        return found
