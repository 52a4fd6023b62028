"""Text to examples: the two tasks, their prefixes, and joined neighbours."""

import dataclasses
import gzip
import json
import pathlib
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from spec_jax.data.vocabulary import EOS_ID, Vocabulary


@dataclasses.dataclass(frozen=True)
class TextTask:
    """A text-to-text task: T5's prefix, and where its texts stand in a row.

    Attributes:
      name: how reports call it.
      prefix: goes before every input.
      inputs: the row's field with the input text.
      targets: the row's field with the reference text.
      metric: 'bleu' or 'rouge'.
      corpus: files are named `<corpus>.<split>.jsonl.gz`.
      max_target_length: decoder tokens, end of sequence included.
    """

    name: str
    prefix: str
    inputs: str
    targets: str
    metric: str
    corpus: str
    max_target_length: int


TASKS = {
    task.name: task
    for task in (
        TextTask(
            name="ende",
            prefix="translate English to German: ",
            inputs="en",
            targets="de",
            metric="bleu",
            corpus="ende",
            max_target_length=128,
        ),
        TextTask(
            name="summarize",
            prefix="summarize: ",
            inputs="document",
            targets="summary",
            metric="rouge",
            corpus="summ",
            max_target_length=64,
        ),
    )
}
MAX_INPUT_LENGTH = 256


@dataclasses.dataclass(frozen=True)
class Example:
    """Token ids of one example; both end with end of sequence."""

    inputs: tuple[int, ...]
    targets: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class TokenRow:
    """A corpus row as token ids without prefix and end of sequence."""

    task: str
    group: str
    inputs: tuple[int, ...]
    targets: tuple[int, ...]


def get_task(name: str) -> TextTask:
    """The task of that name.

    Raises:
      ValueError: for an unknown name; the known ones are listed.
    """
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; the tasks are {sorted(TASKS)}")
    return TASKS[name]


def read_rows(path: str | pathlib.Path, task: TextTask | None = None) -> list[dict]:
    """Rows of a .jsonl or .jsonl.gz file.

    Args:
      path: of the file.
      task: whose texts the rows must have; None: any JSON.

    Raises:
      ValueError: if the file is missing, or a line is not JSON or lacks a text of the
        task; file and line are named.
    """
    path = pathlib.Path(path)
    opened = gzip.open if path.suffix == ".gz" else open
    rows = []
    number = 0
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            for line in file:
                number += 1
                if line.strip():
                    row = json.loads(line)
                    if task is not None:
                        _check_row(row, task)
                    rows.append(row)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot read {path}: {reason}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {number}: {error}") from None
    return rows


def _check_row(row, task: TextTask) -> None:
    """Raises ValueError if a row is none of the task's."""
    if not isinstance(row, dict):
        raise ValueError(f"want a JSON object, got {json.dumps(row)[:80]}")
    # Only training joins rows of a group, and only those of our corpora.
    groups = ("group",) if task.corpus else ()
    for field in (task.inputs, task.targets, *groups):
        value = row.get(field, "" if field == "group" else None)
        if not isinstance(value, str):
            raise ValueError(
                f"want text in the field {field!r} of the task {task.name}, got "
                f"{json.dumps(value)[:80]}"
            )
        if not value.isascii() and any("\ud800" <= x <= "\udfff" for x in value):
            raise ValueError(f"half a character (a surrogate) in the field {field!r}")


def corpus_path(data_dir: str | pathlib.Path, task: TextTask, split: str):
    """Where `spec-jax data debian` writes a task's split."""
    return pathlib.Path(data_dir) / f"{task.corpus}.{split}.jsonl.gz"


def tokenize(
    rows: Sequence[dict], task: TextTask, vocabulary: Vocabulary
) -> list[TokenRow]:
    """Token ids of a corpus's rows."""
    inputs = vocabulary.encode_batch([row[task.inputs] for row in rows])
    targets = vocabulary.encode_batch([row[task.targets] for row in rows])
    return [
        TokenRow(task.name, row.get("group", ""), tuple(i), tuple(t))
        for row, i, t in zip(rows, inputs, targets, strict=True)
    ]


def encode_input(text: str, task: TextTask, vocabulary: Vocabulary) -> list[int]:
    """Prefix, text, end of sequence: what the encoder reads, uncut."""
    return [*vocabulary.encode(task.prefix + text), EOS_ID]


def truncate(ids: Sequence[int], length: int) -> list[int]:
    """At most `length` ids, the last of them end of sequence."""
    return list(ids) if len(ids) <= length else [*ids[: length - 1], EOS_ID]


class ExampleMaker:
    """Turns token rows into examples, some of them paragraphs of neighbours.

    Args:
      vocabulary: for the prefixes.
      max_input_length: encoder tokens; longer documents are cut, longer
        translations are left out, since a cut one would teach to stop early.
    """

    def __init__(self, vocabulary, max_input_length: int = MAX_INPUT_LENGTH):
        self._prefix = {
            name: tuple(vocabulary.encode(task.prefix.strip()))
            for name, task in TASKS.items()
        }
        self._max_input_length = max_input_length

    def example(self, row: TokenRow) -> Example | None:
        """One row's example, or None where it does not fit."""
        task = TASKS[row.task]
        inputs = self._prefix[row.task] + row.inputs
        room = self._max_input_length - 1
        if task.metric == "bleu":
            longest = min(self._max_input_length, task.max_target_length)
            if len(inputs) >= longest:  # and end of sequence is to come
                return None
        if len(row.targets) >= task.max_target_length or not row.targets:
            return None
        return Example((*inputs[:room], EOS_ID), (*row.targets, EOS_ID))

    def epoch(
        self, rows: Sequence[TokenRow], rng: np.random.Generator, joined: float
    ) -> list[Example]:
        """All rows once: a share of the translations joined with neighbours.

        Args:
          rows: of both tasks.
          rng: decides which rows are joined; another epoch joins others.
          joined: share of the translations that stand in a paragraph.
        """
        pages: dict[str, list[TokenRow]] = {}
        examples = []
        for row in rows:
            if row.task == "ende" and rng.random() < joined:
                pages.setdefault(row.group, []).append(row)
            else:
                examples.append(self.example(row))
        for neighbours in pages.values():
            examples += [self.example(row) for row in self._join(neighbours)]
        return [example for example in examples if example is not None]

    def _join(self, neighbours: Sequence[TokenRow]) -> Iterator[TokenRow]:
        room = TASKS["ende"].max_target_length - 1
        inputs: tuple[int, ...] = ()
        targets: tuple[int, ...] = ()
        for row in neighbours:
            longest = max(
                len(inputs) + len(row.inputs) + len(self._prefix["ende"]),
                len(targets) + len(row.targets),
            )
            if inputs and longest > room:
                yield TokenRow("ende", row.group, inputs, targets)
                inputs, targets = (), ()
            inputs, targets = inputs + row.inputs, targets + row.targets
        if inputs:
            yield TokenRow("ende", neighbours[0].group, inputs, targets)
