"""What is decoded and scored: the examples of a task, wherever they come from."""

import csv
import dataclasses
import gzip
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spec_jax.data import metrics as scoring
from spec_jax.data.examples import (
    MAX_INPUT_LENGTH,
    TASKS,
    TextTask,
    corpus_path,
    encode_input,
    get_task,
    read_rows,
)
from spec_jax.data.samples import load_samples

Scores = dict[str, float | str]
"""Figures of a task's metrics by name, and signatures that say how they were taken."""
SAMPLES = {"ende": "translation", "summarize": "summarization"}
"""Which committed samples stand in for a task's corpus."""
TASK_METRICS = {"bleu": ("bleu", "chrf"), "rouge": ("rouge",)}
"""Of a shipped corpus, by what it is mainly scored by."""
LENGTHS = {"inputs": 512, "targets": 128}
"""Most tokens of a user's file, where TASK_FEATURE_LENGTHS does not say."""


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskFile:
    """A user's own examples: `input TAB target` a line, or JSON lines.

    Attributes:
      path: of a .tsv or .jsonl file, either with .gz behind it.
      prefix: goes before every input.
      inputs: the field of a JSON line with the input text.
      targets: the field with the reference text.
      metrics: names of `data.metrics.METRICS`.

    Raises:
      ValueError: for another ending, or an unknown metric.
    """

    path: str
    prefix: str = ""
    inputs: str = "inputs"
    targets: str = "targets"
    metrics: tuple[str, ...] = ("bleu",)

    def __post_init__(self):
        if self.kind not in (".tsv", ".jsonl"):
            raise ValueError(f"want a .tsv or .jsonl file of examples, got {self.path}")
        scoring.check_names(self.metrics)

    @property
    def kind(self) -> str:
        """'.tsv' or '.jsonl', where it is one of them."""
        return pathlib.PurePath(self.path.removesuffix(".gz")).suffix

    @property
    def task(self) -> TextTask:
        """Where the texts stand in a row."""
        return TextTask(
            name=pathlib.PurePath(self.path.removesuffix(".gz")).stem,
            prefix=self.prefix,
            inputs=self.inputs,
            targets=self.targets,
            metric=self.metrics[0],
            corpus="",
            max_target_length=LENGTHS["targets"],
        )

    def rows(self, task: TextTask | None = None) -> list[dict]:
        """Its rows.

        Args:
          task: for messages; None is one called like the file.

        Raises:
          ValueError: if it cannot be read, or a line is none; it is named.
        """
        if self.kind == ".jsonl":
            return read_rows(self.path, task or self.task)
        return _read_tsv(self.path, self.inputs, self.targets)


def load_task(
    name: str,
    vocabulary: Any,
    *,
    split: str = "test",
    data_dir: str | None = None,
    num_examples: int | None = None,
    feature_lengths: Mapping[str, int] | None = None,
    file: TaskFile | None = None,
    module: str | None = None,
) -> list[TaskData]:
    """The examples of a task.

    `ende` and `summarize` are the shipped corpora; with `file` any other name calls
    a user's own. Everything else is asked of seqio's registry, also a mixture, whose
    tasks come one by one.

    Args:
      name: of the task or mixture.
      vocabulary: of the models.
      split: of the task; the committed samples and a file have but one.
      data_dir: where `spec-jax data debian` wrote, or TFDS did; None: the committed
        samples, and TFDS's own folder.
      num_examples: the first ones; None takes all.
      feature_lengths: most tokens of 'inputs' and 'targets'; None is the task's own.
      file: the examples themselves.
      module: imported first: it may register tasks.

    Returns:
      The data of each task.

    Raises:
      ValueError: if there is no such task, file, split or example.
    """
    check_lengths(feature_lengths)
    if file is not None:
        lengths = {**LENGTHS, **(feature_lengths or {})}
        task = dataclasses.replace(file.task, name=name)
        rows = file.rows(task)[:num_examples]
        return [_of_rows(task, rows, vocabulary, lengths, file.metrics)]
    if name in TASKS and module is None:
        task = get_task(name)
        lengths = {"inputs": MAX_INPUT_LENGTH, "targets": task.max_target_length}
        rows = _task_rows(task, split, data_dir)[:num_examples]
        lengths |= feature_lengths or {}
        return [_of_rows(task, rows, vocabulary, lengths, TASK_METRICS[task.metric])]
    from spec_jax.data import tasks  # seqio and TensorFlow, only where they are meant

    return tasks.load_seqio_task(
        name,
        vocabulary,
        split=split,
        num_examples=num_examples,
        feature_lengths=feature_lengths,
        module=module,
        data_dir=data_dir,
    )


def check_ids(data: TaskData, rows: int) -> None:
    """Sees to it that a model has every token of the inputs.

    Args:
      data: of a task.
      rows: of the model's table.

    Raises:
      ValueError: if an id is not in [0, rows).
    """
    for example in data.examples:
        for token in example.inputs:
            if not 0 <= token < rows:
                raise ValueError(
                    f"example {example.index} of the task {data.name} has the token "
                    f"{token}, the model's table has {rows} rows"
                )


def check_lengths(lengths: Mapping[str, int] | None) -> None:
    """Raises ValueError for feature lengths that are none."""
    if lengths is None:
        return
    whole = all(type(value) is int and value > 1 for value in lengths.values())
    if set(lengths) - set(LENGTHS) or not whole:
        raise ValueError(
            "want TASK_FEATURE_LENGTHS as {'inputs': 512, 'targets': 128}, whole "
            f"numbers above 1, got {dict(lengths)}"
        )


def _task_rows(task: TextTask, split: str, data_dir: str | None) -> list[dict]:
    """Rows of a shipped corpus, or the committed samples."""
    if data_dir is None:
        if split != "test":
            raise ValueError(
                f"the committed samples of {task.name} are of the split test, got "
                f"SPLIT {split!r}: give DATA_DIR for the others"
            )
        return load_samples(SAMPLES[task.name])
    path = corpus_path(data_dir, task, split)
    if not path.exists():
        raise ValueError(
            f"no {path}; {_splits(data_dir, task)}`spec-jax data debian "
            f"--output_dir={data_dir}` makes train, validation and test"
        )
    return read_rows(path, task)


def _splits(data_dir: str, task: TextTask) -> str:
    """What there is, for a message."""
    files = corpus_path(data_dir, task, "*")
    names = sorted(path.name.split(".")[1] for path in files.parent.glob(files.name))
    return f"there are the splits {', '.join(names)}; " if names else ""


def _of_rows(
    task: TextTask, rows: Sequence[dict], vocabulary, lengths, metrics
) -> TaskData:
    if not rows:
        raise ValueError(f"want at least one row of the task {task.name}, got none")
    references = [row[task.targets] for row in rows]
    examples = tuple(
        TaskExample(
            index,
            tuple(encode_input(row[task.inputs], task, vocabulary)),
            row[task.targets],
            {
                "inputs_pretokenized": task.prefix + row[task.inputs],
                "targets_pretokenized": row[task.targets],
            },
        )
        for index, row in enumerate(rows)
    )
    return TaskData(
        task.name,
        examples,
        lengths["inputs"],
        lengths["targets"],
        lambda texts: scoring.score(metrics, texts, references),
    )


def _read_tsv(path: str, inputs: str, targets: str) -> list[dict]:
    """Two columns a line; quotes mean nothing."""
    opened = gzip.open if path.endswith(".gz") else open
    rows, reader = [], None
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            for cells in reader:
                if not any(cells):
                    continue
                if len(cells) != 2:
                    raise ValueError(
                        "want an input, a tab and a target, got "
                        + ("no tab" if len(cells) < 2 else f"{len(cells)} columns")
                    )
                rows.append({inputs: cells[0], targets: cells[1]})
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot read {path}: {reason}") from None
    except (ValueError, csv.Error) as error:
        line = reader.line_num if reader else 0
        raise ValueError(f"{path}, line {line}: {error}") from None
    return rows
