"""`spec-jax generate`: text in, text out."""

import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from spec_jax.cli.decoding import (
    INPUT_LENGTHS,
    Row,
    check_draft,
    check_lengths,
    decode_batch,
    encode_text,
    load_speculative,
    lossy,
    shown,
    stream_text,
)
from spec_jax.cli.errors import UsageError
from spec_jax.cli.evaluate import load_tasks
from spec_jax.cli.hosts import are_several, check_same, own_path, wait_for_all
from spec_jax.cli.output_file import write_resumable
from spec_jax.cli.runtime import limit_cpu_threads, start_backend
from spec_jax.cli.settings import positive
from spec_jax.cli.task_source import TaskSource
from spec_jax.cli.texts import check_writable, read_texts, write_whole
from spec_jax.core.rules import AnyRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.batches import round_up
from spec_jax.data.datasets import TaskData, check_ids
from spec_jax.decoding.speculative import Speculative
from spec_jax.drafts import LengthPolicy
from spec_jax.experiments.journal import digest_of_parameters, digest_of_texts
from spec_jax.experiments.record import versions
from spec_jax.pairs import Drafting


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateSettings:
    """How texts are decoded.

    Attributes:
      load_pair: loads the pair in a dtype.
      policy: of target and draft.
      tasks: the task gives prefix and longest output, or the examples themselves.
      gamma: drafted tokens for one run of the target.
      seed: with a text's number and an output's it decides the draws.
      num_return_sequences: outputs of each text.
      max_input_length: encoder tokens; None is the task's.
      max_new_tokens: of an output; None is the task's.
      batch_size: rows decoded together.
      truncate: whether longer texts are cut; otherwise they are an error. Examples
        of a task always are, and counted.
      output_dir: a folder for the outputs and the configuration; None: no files.
      dtype: of parameters and activations; None is the fastest here.
      draft: where proposals come from.
      rule: how they are judged; None: the token rule.
      lengths: how many of them a step has; None: gamma.

    Raises:
      ValueError: if a value is out of range.
    """

    load_pair: Callable[..., Drafting]
    policy: SamplingPolicy
    tasks: TaskSource
    gamma: int = 4
    seed: int = 0
    num_return_sequences: int = 1
    max_input_length: int | None = None
    max_new_tokens: int | None = None
    batch_size: int = 8
    truncate: bool = False
    output_dir: str | None = None
    dtype: str | None = None
    draft: str = "model"
    rule: AnyRule | None = None
    lengths: LengthPolicy | None = None

    def __post_init__(self):
        check_draft(self.draft)
        positive(
            self,
            "gamma",
            "num_return_sequences",
            "max_new_tokens",
            "batch_size",
        )
        check_lengths(self.input_limit, self.max_new_tokens)

    @property
    def input_limit(self) -> int:
        """Most tokens of a text."""
        return self.max_input_length or max(n for n, _ in self.tasks.lengths())

    @property
    def output_limit(self) -> int:
        """Most new tokens."""
        return self.max_new_tokens or max(n for _, n in self.tasks.lengths())

    def decode_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, padded input length, most new tokens) of the largest program."""
        length = round_up(self.input_limit, INPUT_LENGTHS)
        return ((self.batch_size, length, self.output_limit),)


@dataclasses.dataclass(frozen=True)
class Item:
    """One text to decode.

    Attributes:
      fields: what is written beside its output, under seqio's names.
      tokens: what the model is given; none for a blank text.
    """

    fields: dict[str, Any]
    tokens: tuple[int, ...]


def main(invocation) -> None:
    """Runs the command."""
    flags = invocation.flags
    flags.output_file = own_path(flags.output_file, "--output_file")
    settings: GenerateSettings = invocation.settings
    folder = own_path(settings.output_dir, "INFER_OUTPUT_DIR")
    settings = dataclasses.replace(settings, output_dir=folder)
    path = output_path(settings, flags.output_file)
    if path is not None:
        check_writable(path)
    given = bool(invocation.arguments or flags.input_file)
    if settings.tasks.split is not None and not given:
        decode_examples(invocation, settings, path)
        return
    _ = settings.tasks.text_prefix
    texts = read_texts(invocation.arguments, flags.input_file)
    if given or not sys.stdin.isatty():
        texts = list(texts)
        check_some(texts)
        rows = settings.num_return_sequences * len(texts)
        limit_cpu_threads(flags.cpu_threads, min(settings.batch_size, rows))
    elif are_several():
        raise UsageError("several hosts want texts as arguments or in --input_file")
    else:
        # Typed by hand: each is answered before the next is read.
        settings = dataclasses.replace(settings, batch_size=1)
        limit_cpu_threads(flags.cpu_threads, batch=1)
    start_backend()
    generator = Generator(settings)
    warn_if_lossy(settings)
    if path is None and not are_several():
        print_outputs(generator, texts)
        return
    texts = list(texts)
    check_some(texts)
    items = [generator.item(number, text) for number, text in enumerate(texts)]
    if path is None:
        print_whole(generator, items)
    else:
        write_outputs(invocation, generator, items, path)


def decode_examples(invocation, settings: GenerateSettings, path: str | None) -> None:
    """Decodes the examples of a task, which are cut where they are too long."""
    rows = settings.batch_size
    limit_cpu_threads(invocation.flags.cpu_threads, rows)
    start_backend()
    tasks = load_tasks(settings)
    generator = Generator(settings)
    warn_if_lossy(settings)
    tasks = tasks or settings.tasks.load(generator.pair.vocabulary)
    if path is not None and len(tasks) > 1 and invocation.flags.output_file:
        raise UsageError(
            f"want one task for --output_file, got {len(tasks)}: INFER_OUTPUT_DIR "
            "gets a file for each"
        )
    for data in tasks:
        check_ids(data, generator.pair.target.vocab_size)
        longest = min(data.max_input_length, INPUT_LENGTHS[-1])
        one = dataclasses.replace(
            settings,
            max_input_length=settings.max_input_length or longest,
            max_new_tokens=settings.max_new_tokens or data.max_target_length,
        )
        own = generator.with_settings(one)
        items = own.items(data)
        if path is None:
            print_whole(own, items)
        else:
            file = invocation.flags.output_file or output_path(settings, None, data)
            write_outputs(invocation, own, items, file)


def write_outputs(invocation, generator: "Generator", items, path: str) -> None:
    """Writes a file of outputs, and beside it the configuration where there is one."""
    settings = generator.settings
    head = generator.head(items)
    check_same(head)
    write_resumable(
        path,
        head,
        lambda done: generator.json_lines(items, done),
        len(items) * settings.num_return_sequences,
    )
    if settings.output_dir is not None:
        config = os.path.join(settings.output_dir, "config.gin")
        write_whole(config, invocation.operative_config())


def warn_if_lossy(settings: GenerateSettings) -> None:
    """Says on stderr where outputs will not follow the target."""
    if said := lossy(settings.rule):
        print(said, file=sys.stderr)


def check_some(texts: Sequence[str]) -> None:
    """Raises UsageError where there is nothing to decode."""
    if not any(text.strip() for text in texts):
        raise UsageError(
            "no text: give texts as arguments, by --input_file or on stdin"
        )


def output_path(
    settings: GenerateSettings, output_file: str | None, data: TaskData | None = None
) -> str | None:
    """The file to write, named as t5x names it in a folder; None is the screen.

    Raises:
      UsageError: if both a file and a folder are given.
    """
    if output_file is not None:
        if settings.output_dir is not None:
            raise UsageError("give --output_file or INFER_OUTPUT_DIR, not both")
        return output_file
    if settings.output_dir is not None:
        task = settings.tasks.names[0] if data is None else data.name
        name = f"{task}-predict.jsonl-00000-of-00001"
        return os.path.join(settings.output_dir, name)
    return None


def print_outputs(generator: "Generator", texts: Iterable[str]) -> None:
    """Prints an output a line, word by word where one row is decoded to a terminal.

    Outputs of a decoder-only model keep their line breaks.
    """
    settings = generator.settings
    items = (generator.item(number, text) for number, text in enumerate(texts))
    if settings.num_return_sequences == 1 and sys.stdout.isatty():
        first = list(itertools.islice(items, 2))
        items = itertools.chain(first, items)
        if len(first) == 1 or settings.batch_size == 1:
            for number, item in enumerate(items):
                for piece in generator.stream(number, item):
                    print(piece, end="", flush=True)
                print(flush=True)
            return
    for _, _, prediction in generator.outputs(items):
        print(prediction, flush=True)


def print_whole(generator: "Generator", items: Sequence[Item]) -> None:
    """Prints an output a line, batch by batch: so do hosts, whatever they print to."""
    if are_several():
        check_same(generator.head(items))
    for _, _, prediction in generator.outputs(items):
        print(prediction, flush=True)


class Generator:
    """A pair, ready to decode texts.

    Args:
      settings: how.
      pair: None loads it.
    """

    def __init__(self, settings: GenerateSettings, pair: Drafting | None = None):
        self.settings = settings
        if pair is None:
            pair = load_speculative(
                settings.load_pair, settings.dtype, settings.batch_size
            )
            wait_for_all("read the weights")
        self.pair = pair.using(settings.draft)
        self.algorithm: Speculative = self.pair.speculative(
            settings.gamma, settings.policy, settings.rule, settings.lengths
        )

    def with_settings(self, settings: GenerateSettings) -> "Generator":
        """The same pair with other limits."""
        return Generator(settings, self.pair)

    def item(self, number: int, text: str) -> Item:
        """What is decoded for a text.

        Raises:
          UsageError: if it is too long.
        """
        settings = self.settings
        whole = settings.tasks.text_prefix + text
        tokens: tuple[int, ...] = ()
        if text.strip():
            tokens = encode_text(
                whole,
                f"text {number + 1}",
                self.pair,
                settings.input_limit,
                settings.truncate,
            )
        return Item({"inputs_pretokenized": whole}, tokens)

    def items(self, data: TaskData) -> list[Item]:
        """What is decoded for a task; says on stderr how many inputs were cut."""
        limit = self.settings.input_limit
        cut = sum(len(example.inputs) > limit for example in data.examples)
        if cut:
            count = len(data.examples)
            print(
                f"{data.name}: {cut} of {count} inputs were cut at {limit} tokens",
                file=sys.stderr,
            )
        return [
            Item(dict(example.fields), self.pair.cut(example.inputs, limit))
            for example in data.examples
        ]

    def head(self, items: Sequence[Item]) -> dict[str, Any]:
        """What must be the same for outputs to be of one run."""
        names = (field.name for field in dataclasses.fields(self.settings))
        settings = {
            name: repr(getattr(self.settings, name))
            for name in names
            if name not in ("load_pair", "output_dir")
        }
        return {
            "settings": settings,
            "pair": self.pair.name,
            "dtype": self.pair.dtype.name,
            "parameters": digest_of_parameters(self.pair.params),
            "inputs": digest_of_texts(str(item.tokens) for item in items),
            "versions": versions(),
        }

    def stream(self, number: int, item: Item) -> Iterator[str]:
        """The output of one text in pieces; nothing for a blank one."""
        if item.tokens:
            settings = self.settings
            row = Row(number, 0, item.tokens)
            yield from stream_text(
                self.algorithm, self.pair, row, settings.seed, settings.output_limit
            )

    def outputs(self, items: Iterable[Item]) -> Iterator[tuple[int, int, str]]:
        """(text's number, output's number, output) in order, batch by batch.

        A blank text has blank outputs.
        """
        for batch in self.batches(items):
            yield from batch

    def batches(
        self, items: Iterable[Item], done: int = 0
    ) -> Iterator[list[tuple[int, int, str]]]:
        """The same in lists, one for each batch.

        Args:
          items: of the texts.
          done: outputs, from the first on, that are not wanted. Batches hold the same
            rows without them, so that the others come out as they would have.
        """
        wanted = self.settings.num_return_sequences
        rows = (
            Row(i, j, item.tokens)
            for i, item in enumerate(items)
            for j in range(wanted)
        )
        size, at, full = self.settings.batch_size, 0, False
        while chunk := list(itertools.islice(rows, size)):
            # The last batch of several keeps their shape.
            full = full or len(chunk) == size
            new = chunk[max(done - at, 0) :]
            at += len(chunk)
            if new:
                predictions = self._decode(chunk, size if full else len(chunk))
                yield [
                    (row.example, row.output, predictions[row.example, row.output])
                    for row in new
                ]

    def json_lines(
        self, items: Sequence[Item], done: int = 0
    ) -> Iterator[list[dict[str, Any]]]:
        """Outputs as t5x's `infer` writes them; the output's number if there are more.

        Args:
          items: of the texts.
          done: see `batches`.
        """
        for batch in self.batches(items, done):
            lines = []
            for example, output, prediction in batch:
                line = {"inputs": items[example].fields, "prediction": prediction}
                if self.settings.num_return_sequences > 1:
                    line["output"] = output
                lines.append(line)
            yield lines

    def _decode(self, chunk: Sequence[Row], size: int) -> dict[tuple[int, int], str]:
        found = {(row.example, row.output): "" for row in chunk}
        rows = [row for row in chunk if row.tokens]
        if not rows:
            return found
        settings = self.settings
        out = decode_batch(
            self.algorithm,
            self.pair,
            rows,
            settings.seed,
            size,
            settings.output_limit,
        )
        tokens, lengths = np.asarray(out.tokens), np.asarray(out.lengths)
        for i, row in enumerate(rows):
            new = tokens[i, : lengths[i]].tolist()
            found[row.example, row.output] = shown(self.pair, new)
        return found
