"""`spec-jax generate`: text in, text out."""

import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from spec_jax.cli.decoding import (
    Row,
    check_draft,
    check_lengths,
    decode_batch,
    encode_text,
    fastest_dtypes,
    lossy,
    shown,
    stream_text,
)
from spec_jax.cli.errors import UsageError
from spec_jax.cli.runtime import limit_cpu_threads, start_backend
from spec_jax.cli.settings import positive
from spec_jax.cli.texts import check_writable, json_line, read_texts, write_whole
from spec_jax.core.rules import AnyRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.examples import get_task
from spec_jax.decoding.speculative import Speculative
from spec_jax.drafts import LengthPolicy
from spec_jax.pairs import Drafting


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateSettings:
    """How texts are decoded.

    Attributes:
      load_pair: loads the pair in a dtype.
      policy: of target and draft.
      task: gives the prefix and the longest output.
      prefix: goes before every text instead of the task's.
      gamma: drafted tokens for one run of the target.
      seed: with a text's number and an output's it decides the draws.
      num_return_sequences: outputs of each text.
      max_input_length: encoder tokens.
      max_new_tokens: of an output; None is the task's.
      batch_size: rows decoded together.
      truncate: whether longer inputs are cut; otherwise they are an error.
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
    task: str = "ende"
    prefix: str | None = None
    gamma: int = 4
    seed: int = 0
    num_return_sequences: int = 1
    max_input_length: int = 256
    max_new_tokens: int | None = None
    batch_size: int = 8
    truncate: bool = False
    output_dir: str | None = None
    dtype: str | None = None
    draft: str = "model"
    rule: AnyRule | None = None
    lengths: LengthPolicy | None = None

    def __post_init__(self):
        get_task(self.task)
        check_draft(self.draft)
        positive(
            self,
            "gamma",
            "num_return_sequences",
            "max_new_tokens",
            "batch_size",
        )
        check_lengths(self.max_input_length, self.max_new_tokens)

    @property
    def actual_prefix(self) -> str:
        """What goes before every text."""
        return get_task(self.task).prefix if self.prefix is None else self.prefix

    @property
    def output_limit(self) -> int:
        """Most new tokens."""
        return self.max_new_tokens or get_task(self.task).max_target_length


def main(invocation) -> None:
    """Runs the command."""
    settings: GenerateSettings = invocation.settings
    flags = invocation.flags
    path = output_path(settings, flags.output_file)
    if path is not None:
        check_writable(path)
    texts = read_texts(invocation.arguments, flags.input_file)
    if not sys.stdin.isatty() or invocation.arguments or flags.input_file:
        texts = list(texts)
        check_some(texts)
        rows = settings.num_return_sequences * len(texts)
        limit_cpu_threads(flags.cpu_threads, min(settings.batch_size, rows))
    else:
        # Typed by hand: each is answered before the next is read.
        settings = dataclasses.replace(settings, batch_size=1)
        limit_cpu_threads(flags.cpu_threads, batch=1)
    start_backend()
    generator = Generator(settings)
    if said := lossy(settings.rule):
        print(said, file=sys.stderr)
    if path is None:
        print_outputs(generator, texts)
        return
    texts = list(texts)
    check_some(texts)
    write_whole(path, generator.json_lines(texts))
    if settings.output_dir is not None:
        config = os.path.join(settings.output_dir, "config.gin")
        write_whole(config, invocation.operative_config())


def check_some(texts: Sequence[str]) -> None:
    """Raises UsageError where there is nothing to decode."""
    if not any(text.strip() for text in texts):
        raise UsageError(
            "no text: give texts as arguments, by --input_file or on stdin"
        )


def output_path(settings: GenerateSettings, output_file: str | None) -> str | None:
    """The file to write, named as t5x names it in a folder; None is the screen.

    Raises:
      UsageError: if both a file and a folder are given.
    """
    if output_file is not None:
        if settings.output_dir is not None:
            raise UsageError("give --output_file or INFER_OUTPUT_DIR, not both")
        return output_file
    if settings.output_dir is not None:
        name = f"{settings.task}-predict.jsonl-00000-of-00001"
        return os.path.join(settings.output_dir, name)
    return None


def print_outputs(generator: "Generator", texts: Iterable[str]) -> None:
    """Prints an output a line, word by word where one row is decoded to a terminal.

    Outputs of a decoder-only model keep their line breaks.
    """
    settings = generator.settings
    if settings.num_return_sequences == 1 and sys.stdout.isatty():
        texts = iter(texts)
        first = list(itertools.islice(texts, 2))
        if len(first) == 1 or settings.batch_size == 1:
            for number, text in enumerate(itertools.chain(first, texts)):
                for piece in generator.stream(number, text):
                    print(piece, end="", flush=True)
                print(flush=True)
            return
        texts = itertools.chain(first, texts)
    for _, _, prediction in generator.outputs(texts):
        print(prediction, flush=True)


class Generator:
    """A pair, ready to decode texts.

    Args:
      settings: how.
    """

    def __init__(self, settings: GenerateSettings):
        self.settings = settings
        pair = settings.load_pair(dtype=fastest_dtypes(settings.dtype, None)[0])
        self.pair = pair.using(settings.draft)
        self.algorithm: Speculative = self.pair.speculative(
            settings.gamma, settings.policy, settings.rule, settings.lengths
        )

    def encode(self, number: int, text: str) -> tuple[int, ...]:
        """What the model is given for a text.

        Raises:
          UsageError: if it is too long.
        """
        settings = self.settings
        return encode_text(
            settings.actual_prefix + text,
            f"text {number + 1}",
            self.pair,
            settings.max_input_length,
            settings.truncate,
        )

    def stream(self, number: int, text: str) -> Iterator[str]:
        """The output of one text in pieces; nothing for a blank one."""
        if text.strip():
            row = Row(number, 0, self.encode(number, text))
            settings = self.settings
            yield from stream_text(
                self.algorithm, self.pair, row, settings.seed, settings.output_limit
            )

    def outputs(self, texts: Iterable[str]) -> Iterator[tuple[int, int, str]]:
        """(text's number, output's number, output) in order, batch by batch.

        A blank text has blank outputs.
        """
        wanted = self.settings.num_return_sequences
        rows = (
            (Row(i, j, self.encode(i, text) if text.strip() else ()))
            for i, text in enumerate(texts)
            for j in range(wanted)
        )
        size = self.settings.batch_size
        full = False
        while chunk := list(itertools.islice(rows, size)):
            # The last batch of several keeps their shape.
            full = full or len(chunk) == size
            predictions = self._decode(chunk, size if full else len(chunk))
            for row in chunk:
                prediction = predictions.get((row.example, row.output), "")
                yield row.example, row.output, prediction

    def json_lines(self, texts: Sequence[str]) -> Iterator[str]:
        """Outputs as t5x's `infer` writes them; the output's number if there are more.

        Raises:
          UsageError: at once, if any text is too long.
        """
        for number, text in enumerate(texts):
            self.encode(number, text)
        return self._json_lines(texts)

    def _json_lines(self, texts: Sequence[str]) -> Iterator[str]:
        prefix = self.settings.actual_prefix
        for example, output, prediction in self.outputs(texts):
            line = {
                "inputs": {"inputs_pretokenized": prefix + texts[example]},
                "prediction": prediction,
            }
            if self.settings.num_return_sequences > 1:
                line["output"] = output
            yield json_line(line)

    def _decode(self, chunk: Sequence[Row], size: int) -> dict[tuple[int, int], str]:
        rows = [row for row in chunk if row.tokens]
        if not rows:
            return {}
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
        return {
            (row.example, row.output): shown(
                self.pair, tokens[i, : lengths[i]].tolist()
            )
            for i, row in enumerate(rows)
        }
