"""`spec-jax compare`: what each draft brings on one's own texts."""

import dataclasses
from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table

from spec_jax.cli.decoding import (
    INPUT_LENGTHS,
    check_draft,
    check_lengths,
    encode_text,
    load_both,
    lossy,
    padded_length,
)
from spec_jax.cli.generate import check_some
from spec_jax.cli.runtime import limit_cpu_threads, start_backend
from spec_jax.cli.settings import positive, require
from spec_jax.cli.terminal import make_console
from spec_jax.cli.texts import check_writable, read_texts, write_whole
from spec_jax.core.rules import AnyRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.batches import round_up
from spec_jax.data.examples import get_task
from spec_jax.drafts import LengthPolicy
from spec_jax.experiments.compare import PLAIN, CompareRecord, compare
from spec_jax.pairs import Drafting


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """What is compared.

    Attributes:
      load_pair: loads the models in a dtype.
      policy: of target and drafts.
      drafts: each is compared with plain decoding.
      task: gives the prefix and the longest output.
      prefix: goes before every text instead of the task's.
      gamma: drafted tokens for one run of the target.
      seed: with a text's number it decides the draws.
      max_input_length: tokens of a text, prefix included.
      max_new_tokens: of an output; None is the task's.
      repeats: timed calls of each text and way.
      dtype: of speculative decoding; None is the fastest here.
      plain_dtype: of plain decoding; None is the fastest here.
      rule: how proposals are judged; None: the token rule.
      lengths: how many a step has; None: gamma.

    Raises:
      ValueError: if a value is out of range.
    """

    load_pair: Callable[..., Drafting]
    policy: SamplingPolicy
    drafts: tuple[str, ...]
    task: str = "ende"
    prefix: str | None = None
    gamma: int = 4
    seed: int = 0
    max_input_length: int = 256
    max_new_tokens: int | None = None
    repeats: int = 3
    dtype: str | None = None
    plain_dtype: str | None = None
    rule: AnyRule | None = None
    lengths: LengthPolicy | None = None

    def __post_init__(self):
        get_task(self.task)
        require(bool(self.drafts), "want at least one of the DRAFTS, got none")
        for draft in self.drafts:
            check_draft(draft)
        positive(self, "gamma", "max_new_tokens", "repeats")
        check_lengths(self.max_input_length, self.max_new_tokens)

    @property
    def output_limit(self) -> int:
        """Most new tokens."""
        return self.max_new_tokens or get_task(self.task).max_target_length

    def decode_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, input tokens, new tokens) of the largest text."""
        length = round_up(self.max_input_length, INPUT_LENGTHS)
        return ((1, length, self.output_limit),)


def main(invocation) -> None:
    """Runs the command."""
    settings: CompareSettings = invocation.settings
    path = invocation.flags.output_file
    if path is not None:
        check_writable(path)
    texts = list(read_texts(invocation.arguments, invocation.flags.input_file))
    check_some(texts)
    limit_cpu_threads(invocation.flags.cpu_threads, batch=1)
    start_backend()
    records = measure(settings, [text for text in texts if text.strip()])
    console = make_console()
    console.print(results_table(records))
    console.print(notes(records), style="dim", markup=False)
    if said := lossy(settings.rule):
        console.print(said, style="yellow")
    if path is not None:
        write_whole(path, (record.to_json() + "\n" for record in records))


def measure(settings: CompareSettings, texts: Sequence[str]) -> list[CompareRecord]:
    """Loads the models and decodes the texts in every way."""
    task = get_task(settings.task)
    prefix = task.prefix if settings.prefix is None else settings.prefix
    with make_console(stderr=True).status("loading the models") as status:
        pair, plain = load_both(
            settings.load_pair, settings.dtype, settings.plain_dtype
        )
        limit = settings.max_input_length
        rows = [
            encode_text(prefix + text, f"text {number}", pair, limit)
            for number, text in enumerate(texts, 1)
        ]
        status.update("compiling")
        new_tokens = settings.output_limit
        return compare(
            pair,
            plain,
            rows,
            settings.drafts,
            settings.policy,
            gamma=settings.gamma,
            max_new_tokens=new_tokens,
            length=padded_length(pair, map(len, rows), new_tokens),
            rule=settings.rule,
            lengths=settings.lengths,
            repeats=settings.repeats,
            seed=settings.seed,
            begin=status.update,
        )


def results_table(records: Sequence[CompareRecord]) -> Table:
    """A row for each way."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for name in (
        "draft",
        "tok/s",
        "range",
        "speed",
        "tok/run",
        "accepted",
        "identical",
    ):
        table.add_column(name, justify="left" if name == "draft" else "right")
    for record in records:
        ratio, same = record.accepted_per_drafted, record.identical
        table.add_row(
            record.draft,
            f"{record.tokens_per_second:.1f}",
            f"{record.slowest:.1f}-{record.fastest:.1f}",
            f"{record.speedup:.2f}",
            f"{record.tokens_per_run:.2f}",
            "" if ratio is None else f"{ratio:.2f}",
            ""
            if same is None
            else f"{round(same * record.num_examples)}/{record.num_examples}",
            style=None if record.draft == PLAIN else "green" * (record.speedup > 1),
        )
    return table


def notes(records: Sequence[CompareRecord]) -> str:
    """How it was measured."""
    plain, *others = records
    return "; ".join(
        (
            f"{plain.pair}, {plain.num_examples} texts one at a time, {plain.tokens} "
            f"tokens, T = {plain.temperature:g}, gamma {plain.gamma}",
            f"medians of {plain.repeats} repeats",
            f"plain in {plain.dtype}, others in {others[0].dtype}",
            f"{plain.device}, threads: {plain.cpu_threads}",
        )
    )
