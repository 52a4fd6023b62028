"""`spec-jax compare`: what each draft brings on one's own texts."""

import dataclasses
from collections.abc import Sequence

from rich import box
from rich.table import Table

from spec_jax.cli.decoding import (
    check_draft,
    load_both,
    lossy,
    padded_length,
)
from spec_jax.cli.own_texts import OwnTexts, read_own_texts
from spec_jax.cli.settings import positive, require
from spec_jax.cli.terminal import make_console
from spec_jax.cli.texts import write_whole
from spec_jax.core.rules import AnyRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.drafts import LengthPolicy
from spec_jax.experiments.compare import PLAIN, CompareRecord, compare


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareSettings(OwnTexts):
    """What is compared.

    Attributes:
      policy: of target and drafts.
      drafts: each is compared with plain decoding.
      gamma: drafted tokens for one run of the target.
      repeats: timed calls of each text and way.
      rule: how proposals are judged; None: the token rule.
      lengths: how many a step has; None: gamma.

    Raises:
      ValueError: if a value is out of range.
    """

    policy: SamplingPolicy
    drafts: tuple[str, ...]
    gamma: int = 4
    repeats: int = 3
    rule: AnyRule | None = None
    lengths: LengthPolicy | None = None

    def __post_init__(self):
        super().__post_init__()
        require(bool(self.drafts), "want at least one of the DRAFTS, got none")
        for draft in self.drafts:
            check_draft(draft)
        positive(self, "gamma", "repeats")


def main(invocation) -> None:
    """Runs the command."""
    settings: CompareSettings = invocation.settings
    path = invocation.flags.output_file
    records = measure(settings, read_own_texts(invocation))
    console = make_console()
    console.print(results_table(records))
    console.print(notes(records), style="dim", markup=False)
    if said := lossy(settings.rule):
        console.print(said, style="yellow")
    if path is not None:
        write_whole(path, (record.to_json() + "\n" for record in records))


def measure(settings: CompareSettings, texts: Sequence[str]) -> list[CompareRecord]:
    """Loads the models and decodes the texts in every way."""
    with make_console(stderr=True).status("loading the models") as status:
        pair, plain = load_both(
            settings.load_pair, settings.dtype, settings.plain_dtype
        )
        rows = settings.encode(texts, pair)
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
