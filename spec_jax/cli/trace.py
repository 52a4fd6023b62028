"""`spec-jax trace`: what each run of the target brings, and what takes how long."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spec_jax.base import Algorithm
from spec_jax.cli.decoding import (
    Row,
    arguments,
    check_draft,
    decode_batch,
    load_both,
    lossy,
    shown,
)
from spec_jax.cli.demo import MOST_RUNS, in_one_shape
from spec_jax.cli.own_texts import OwnTexts, read_own_texts
from spec_jax.cli.settings import once, positive, require
from spec_jax.cli.terminal import make_console, shows_color
from spec_jax.cli.texts import write_whole
from spec_jax.core.rules import AnyRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.decoding.loop import trace
from spec_jax.experiments.clock import Timing, time_call, time_in_turns
from spec_jax.experiments.record import (
    cpu_threads,
    describe_device,
    today,
    versions,
)
from spec_jax.experiments.trace import PLAIN, Part, Step, TraceRecord, part_times
from spec_jax.pairs import Pair
from spec_jax.reports.trace import TargetRun, figure, legend, run_texts, target_runs


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceSettings(OwnTexts):
    """What is watched.

    Attributes:
      policy: of target and draft.
      gammas: each text is decoded with each, and plainly.
      draft: where proposals come from.
      rule: how they are judged; None: the token rule.
      repeats: timed calls of each text and way.

    Raises:
      ValueError: if a value is out of range.
    """

    policy: SamplingPolicy
    gammas: tuple[int, ...] = (7, 3)
    draft: str = "model"
    rule: AnyRule | None = None
    repeats: int = 5

    def __post_init__(self):
        super().__post_init__()
        check_draft(self.draft)
        require(
            bool(self.gammas) and min(self.gammas) >= 1,
            f"want GAMMAS of at least one number, each >= 1, got {self.gammas}",
        )
        once(self, "gammas")
        positive(self, "repeats")

    @property
    def most(self) -> int:
        """The largest gamma."""
        return max(self.gammas)


def main(invocation) -> None:
    """Runs the command."""
    settings: TraceSettings = invocation.settings
    path = invocation.flags.output_file
    records = measure(settings, read_own_texts(invocation))
    console = make_console()
    if said := lossy(settings.rule):
        console.print(said, style="yellow")
    for name, figures in records.figures.items():
        print_figure(console, name, figures, records.pieces)
    console.print(times_table(records.lines))
    console.print(notes(records.lines), style="dim", markup=False, soft_wrap=True)
    if path is not None:
        write_whole(path, (record.to_json() + "\n" for record in records.lines))


@dataclasses.dataclass(frozen=True)
class Watched:
    """What was found.

    Attributes:
      lines: for each text one with each gamma, and plain decoding's.
      figures: the runs of each text with the first gamma.
      pieces: the vocabulary's.
    """

    lines: list[TraceRecord]
    figures: dict[str, list[TargetRun]]
    pieces: Sequence[str]


def measure(settings: TraceSettings, texts: Sequence[str]) -> Watched:
    """Decodes the texts in every way, watched and then timed."""
    with make_console(stderr=True).status("loading the models") as status:
        loaded, plain_pair = load_both(
            settings.load_pair, settings.dtype, settings.plain_dtype
        )
        pair = loaded.using(settings.draft)
        rows = in_one_shape(settings.encode(texts, pair))
        policy, rule = settings.policy, settings.rule
        ways: dict[int, tuple[Algorithm, Pair]] = {
            gamma: (pair.speculative(gamma, policy, rule), pair)
            for gamma in settings.gammas
        }
        ways[PLAIN] = plain_pair.autoregressive(policy, rule), plain_pair
        status.update("compiling")
        given = arguments(pair, rows[:1], settings.seed, 1, settings.output_limit)
        both = pair, plain_pair, settings.gammas, policy, rule
        times = part_times(*both, given, settings.output_limit)
        lines, figures = [], {}
        for row, source in zip(rows, texts, strict=True):
            number = row.example + 1
            status.update(f"text {number} of {len(texts)}")
            for gamma, (timing, runs) in watch(ways, row, settings).items():
                line = record(settings, ways[gamma], gamma, timing, runs)
                line = functools.partial(line, source=source, number=number)
                lines.append(line(times=times[gamma]))
                if gamma == settings.gammas[0]:
                    figures[f"{number}  {source}"] = runs
    return Watched(lines, figures, pair.vocabulary.pieces)


def watch(
    ways: dict[int, tuple[Algorithm, Pair]], row: Row, settings: TraceSettings
) -> dict[int, tuple[Timing, list[TargetRun]]]:
    """A text's whole decodes, timed in turn, and what each run of the target did."""
    limit = settings.output_limit
    calls = {
        str(gamma): functools.partial(
            decode_batch, *way, [row], settings.seed, 1, limit
        )
        for gamma, way in ways.items()
    }
    for call in calls.values() if not row.example else ():
        time_call(call)  # compiles
    timings = time_in_turns(calls, settings.repeats)
    found = {}
    for gamma, (algorithm, pair) in ways.items():
        given = arguments(pair, [row], settings.seed, 1, limit)
        _, infos = trace(algorithm, pair.params, **given)
        runs = target_runs(jax.tree.map(np.asarray, infos))
        found[gamma] = timings[str(gamma)], runs
    return found


def record(
    settings: TraceSettings,
    way: tuple[Algorithm, Pair],
    gamma: int,
    timing: Timing,
    runs: Sequence[TargetRun],
) -> Callable[..., TraceRecord]:
    """A line without its text and the times of its parts."""
    _, pair = way
    output = [token for run in runs for token in (*run.accepted, *run.chosen)]
    rule = type(settings.rule).__name__.removesuffix("Rule").lower()
    return functools.partial(
        TraceRecord,
        task=settings.task,
        pair=pair.name,
        draft="plain" if gamma == PLAIN else settings.draft,
        rule="" if gamma == PLAIN else rule,
        gamma=gamma,
        temperature=settings.policy.temperature,
        dtype=pair.dtype.name,
        output=shown(pair, output),
        tokens=len(output),
        runs=len(runs),
        steps=steps_of(runs, pair.vocabulary.pieces),
        seconds=timing.median,
        repeats=settings.repeats,
        seed=settings.seed,
        device=describe_device(),
        cpu_threads=cpu_threads(),
        versions=versions(),
        date=today(),
    )


def steps_of(runs: Sequence[TargetRun], pieces: Sequence[str]) -> tuple[Step, ...]:
    """The runs as text.

    Args:
      runs: of one row.
      pieces: the vocabulary's pieces.
    """
    steps = []
    for run, texts in zip(runs, run_texts(runs, pieces), strict=True):
        own = "correction" if run.rejected else "bonus" if run.num_drafted else "target"
        parts = []
        for kind, status in (
            ("accepted", "accepted"),
            ("rejected", "rejected"),
            ("chosen", own),
        ):
            text = "".join(text for name, text in texts if name == kind)
            if tokens := len(getattr(run, kind)):
                parts.append(Part(status, text, tokens))
        steps.append(Step(run.num_drafted, tuple(parts)))
    return tuple(steps)


def print_figure(
    console: Console, name: str, runs: Sequence[TargetRun], pieces: Sequence[str]
) -> None:
    """Prints a text and its figure."""
    color = shows_color(console)
    console.print(Text(name, "bold"))
    lines = figure(runs, pieces, console.width, color)
    for line in (legend(color), *lines[:MOST_RUNS]):
        console.print(line)
    if len(lines) > MOST_RUNS:
        console.print(f"... and {len(lines) - MOST_RUNS} more runs", style="dim")
    console.print()


def times_table(lines: Sequence[TraceRecord]) -> Table:
    """A row for each text and way: its runs, and milliseconds of the parts."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for name in (
        "text",
        "gamma",
        "tokens",
        "runs",
        "target's start",
        "draft's",
        "draft call",
        "target call",
        "all",
    ):
        table.add_column(name, justify="right")
    for line in lines:
        times = dataclasses.astuple(line.times)
        table.add_row(
            str(line.number),
            "plain" if line.gamma == PLAIN else str(line.gamma),
            str(line.tokens),
            str(line.runs),
            *(f"{1e3 * seconds:.2f}" if seconds else "" for seconds in times),
            f"{1e3 * line.seconds:.1f} ms",
        )
    return table


def notes(lines: Sequence[TraceRecord]) -> str:
    """How it was measured."""
    first, *_, plain = lines
    return (
        f"{first.pair}, draft {first.draft}, T = {first.temperature:g}; milliseconds, "
        f"medians of {first.repeats} repeats, those of parts by loops of their own; a "
        "start is an encoder and its caches, once for a text; a run is gamma draft "
        f"calls and a target call; plain in {plain.dtype}, others in {first.dtype}; "
        f"{first.device}, threads: {first.cpu_threads}"
    )
