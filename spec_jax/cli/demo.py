"""`spec-jax demo`: the paper's Figure 1 in a terminal, and what it gains."""

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
    INPUT_LENGTHS,
    Row,
    arguments,
    check_draft,
    check_lengths,
    decode_batch,
    encode_text,
    load_both,
    lossy,
    one_line,
)
from spec_jax.cli.runtime import limit_cpu_threads, start_backend
from spec_jax.cli.settings import positive, require
from spec_jax.cli.terminal import draw_svg, make_console, shows_color
from spec_jax.cli.texts import check_writable, write_whole
from spec_jax.core.rules import AnyRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.batches import round_up
from spec_jax.data.examples import get_task
from spec_jax.data.samples import load_samples
from spec_jax.data.vocabulary import PAD_ID
from spec_jax.decoding.loop import trace
from spec_jax.drafts import LengthPolicy
from spec_jax.experiments.clock import time_in_turns
from spec_jax.pairs import Pair
from spec_jax.reports.trace import TargetRun, figure, legend, target_runs

SAMPLES = {"ende": ("translation", (34, 80)), "summarize": ("summarization", (9,))}
"""Which committed samples are shown of each task."""
INDENT = 3
MOST_RUNS = 48
"""Lines of a figure; an output that never ends would fill the screen."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """What to show.

    Attributes:
      load_pair: loads the pair in a dtype.
      policy: of target and draft.
      gamma: drafted tokens for one run of the target.
      seed: with a text's number it decides the draws.
      task: whose texts; None shows some of each.
      max_input_length: encoder tokens.
      max_new_tokens: of an output.
      repeats: timed runs of each text.
      dtype: of speculative decoding; None is the fastest here.
      plain_dtype: of plain decoding; None is the fastest here.
      draft: where proposals come from.
      rule: how they are judged; None: the token rule.
      lengths: how many of them a step has; None: gamma.
    """

    load_pair: Callable[..., Pair]
    policy: SamplingPolicy
    gamma: int = 4
    seed: int = 0
    task: str | None = None
    max_input_length: int = 256
    max_new_tokens: int = 128
    repeats: int = 5
    dtype: str | None = None
    plain_dtype: str | None = None
    draft: str = "model"
    rule: AnyRule | None = None
    lengths: LengthPolicy | None = None

    def __post_init__(self):
        check_draft(self.draft)
        positive(self, "gamma", "max_new_tokens", "repeats")
        check_lengths(self.max_input_length, self.max_new_tokens)
        if self.task is not None:
            get_task(self.task)

    def decode_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, input tokens, new tokens) of the largest text."""
        return (
            (1, round_up(self.max_input_length, INPUT_LENGTHS), self.max_new_tokens),
        )


@dataclasses.dataclass(frozen=True)
class DemoText:
    """A text to decode, and what it should become where that is known."""

    task: str
    source: str
    reference: str | None = None


@dataclasses.dataclass(frozen=True)
class Timed:
    """A text's figures."""

    tokens: int
    target_runs: int
    plain_tokens: int
    plain_seconds: float
    speculative_seconds: float

    @property
    def speed(self) -> float:
        """Seconds a token, plain over speculative; outputs may differ in length."""
        plain = self.plain_seconds / self.plain_tokens
        return plain / (self.speculative_seconds / self.tokens)


def main(invocation) -> None:
    """Runs the command."""
    settings: DemoSettings = invocation.settings
    limit_cpu_threads(invocation.flags.cpu_threads, batch=1)
    start_backend()
    texts = choose_texts(settings.task, invocation.arguments)
    picture = invocation.flags.svg_file
    if picture is not None:
        check_writable(picture)
    show = decode_texts(settings, texts)
    show(make_console())
    if picture is not None:
        write_whole(picture, draw_svg(show))


def choose_texts(task: str | None, given: Sequence[str]) -> list[DemoText]:
    """The given texts, or samples of the task, or of every task."""
    if given:
        return [DemoText(task or "ende", text) for text in given]
    texts = []
    for name in [task] if task else SAMPLES:
        kind, chosen = SAMPLES[name]
        rows, fields = load_samples(kind), get_task(name)
        for index in chosen:
            row = rows[index]
            texts.append(DemoText(name, row[fields.inputs], row[fields.targets]))
    return texts


def decode_texts(
    settings: DemoSettings, texts: Sequence[DemoText]
) -> Callable[[Console], None]:
    """Decodes the texts; returns what prints them: a figure each, then the table."""
    with make_console(stderr=True).status("loading the pair") as status:
        loaded, plain_pair = load_both(
            settings.load_pair, settings.dtype, settings.plain_dtype
        )
        pair = loaded.using(settings.draft)
        rows = in_one_shape(encode(texts, pair, settings))
        policy, rule = settings.policy, settings.rule
        speculative = pair.speculative(settings.gamma, policy, rule, settings.lengths)
        plain = plain_pair.autoregressive(policy, rule)
        ways = {
            "plain": (plain, plain_pair),
            "speculative": (speculative, pair),
        }
        status.update("compiling, once")
        runs = [watch(speculative, pair, row, settings) for row in rows]
        for way in ways.values():
            decode(*way, rows[0], settings)
        status.update("decoding")
        timed = [time_ways(ways, row, settings) for row in rows]

    def show(console: Console) -> None:
        print_heading(console, settings, pair)
        for number, (text, row_runs) in enumerate(zip(texts, runs, strict=True), 1):
            print_text(console, number, text, row_runs, pair)
        console.print(results_table(timed))
        console.print(
            f"Medians of {settings.repeats} runs; speculative in {pair.dtype}, plain "
            f"in {plain_pair.dtype}, {jax.devices()[0].platform}. "
            "`spec-jax evaluate` measures more texts.",
            style="dim",
        )

    return show


def encode(
    texts: Sequence[DemoText], pair: Pair, settings: DemoSettings
) -> list[tuple[int, ...]]:
    """The encoder's inputs.

    Raises:
      UsageError: if a text is empty or too long.
    """
    encoded = []
    for number, text in enumerate(texts, 1):
        require(bool(text.source.strip()), f"text {number} is empty")
        source = get_task(text.task).prefix + text.source
        limit = settings.max_input_length
        encoded.append(encode_text(source, f"text {number}", pair, limit))
    return encoded


def in_one_shape(encoded: Sequence[tuple[int, ...]]) -> list[Row]:
    """Rows padded to the longest one's shape, so that one program serves all."""
    longest = max(map(len, encoded))
    return [
        Row(i, 0, tokens + (PAD_ID,) * (longest - len(tokens)))
        for i, tokens in enumerate(encoded)
    ]


def watch(
    algorithm: Algorithm, pair: Pair, row: Row, settings: DemoSettings
) -> list[TargetRun]:
    """What each run of the target does to a text."""
    given = arguments(pair, [row], settings.seed, 1, settings.max_new_tokens)
    _, infos = trace(algorithm, pair.params, **given)
    return target_runs(jax.tree.map(np.asarray, infos))


def decode(algorithm: Algorithm, pair: Pair, row: Row, settings: DemoSettings):
    """A whole generation, waited for."""
    limit = settings.max_new_tokens
    out = decode_batch(algorithm, pair, [row], settings.seed, 1, limit)
    return jax.block_until_ready(out)


def time_ways(ways, row: Row, settings: DemoSettings) -> Timed:
    """Times both ways of decoding a text, in turn; medians of the repeats."""
    calls = {
        name: functools.partial(decode, *way, row, settings)
        for name, way in ways.items()
    }
    timings = time_in_turns(calls, settings.repeats)
    stats = timings["speculative"].result.stats
    return Timed(
        tokens=stats.emitted,
        target_runs=stats.steps,
        plain_tokens=timings["plain"].result.stats.emitted,
        plain_seconds=timings["plain"].median,
        speculative_seconds=timings["speculative"].median,
    )


def print_heading(console: Console, settings: DemoSettings, pair: Pair) -> None:
    """Says what is seen."""
    most = "one token" if settings.gamma == 1 else f"up to {settings.gamma} tokens"
    console.print(
        Text.assemble(
            ("Speculative decoding", "bold"),
            f" with the {pair.name} pair at temperature "
            f"{settings.policy.temperature:g}. Each line is one run of the target: the "
            f"draft has proposed {most}, the target keeps what it agrees with "
            "and adds one of its own. +n counts the tokens of the run.",
        )
    )
    if said := lossy(settings.rule):
        console.print(said, style="yellow")
    console.print(legend(shows_color(console)), end="\n\n")


def print_text(
    console: Console, number: int, text: DemoText, runs: Sequence[TargetRun], pair: Pair
) -> None:
    """Prints a text, its figure and what came out."""
    output = [token for run in runs for token in (*run.accepted, *run.chosen)]
    body = [Text(text.source, "bold")]
    shown = figure(
        runs, pair.vocabulary.pieces, console.width - INDENT, shows_color(console)
    )
    body += shown[:MOST_RUNS]
    if len(shown) > MOST_RUNS:
        body.append(Text(f"... and {len(shown) - MOST_RUNS} more runs", "dim"))
    body.append(Text(f"= {one_line(pair.vocabulary.decode(output))}"))
    if text.reference is not None:
        body.append(Text(f"reference: {text.reference}", "dim"))
    table = Table.grid()
    table.add_column(width=INDENT)
    table.add_column()
    for i, line in enumerate(body):
        table.add_row(Text("" if i else f"{number}", "bold"), line)
    console.print(table)
    console.print()


def results_table(timed: Sequence[Timed]) -> Table:
    """The figures of each text, and of all."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_footer=len(timed) > 1)
    total = Timed(
        *(
            sum(getattr(one, field.name) for one in timed)
            for field in dataclasses.fields(Timed)
        )
    )
    columns = [
        ("text", [str(i) for i in range(1, len(timed) + 1)], "all"),
        *(
            (name, [show(one) for one in timed], show(total))
            for name, show in (
                ("tokens", lambda t: f"{t.tokens}"),
                ("target runs", lambda t: f"{t.target_runs}"),
                ("tokens a run", lambda t: f"{t.tokens / t.target_runs:.2f}"),
                ("plain", lambda t: f"{1e3 * t.plain_seconds:.1f} ms"),
                ("speculative", lambda t: f"{1e3 * t.speculative_seconds:.1f} ms"),
                ("speed", lambda t: f"{t.speed:.2f}x"),
            )
        ),
    ]
    for name, _, footer in columns:
        table.add_column(name, footer=footer, justify="right")
    for cells in zip(*(cells for _, cells, _ in columns), strict=True):
        table.add_row(*cells)
    return table
