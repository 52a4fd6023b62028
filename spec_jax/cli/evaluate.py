"""`spec-jax evaluate`: the paper's Table 2 for a pair."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from spec_jax.adapters import t5x_installed
from spec_jax.cli.configuration import unlocked
from spec_jax.cli.decoding import load_both
from spec_jax.cli.errors import UsageError
from spec_jax.cli.hosts import check_same, is_writer, own_path, wait_for_all
from spec_jax.cli.runtime import limit_cpu_threads, start_backend
from spec_jax.cli.settings import once, require
from spec_jax.cli.task_source import TaskSource
from spec_jax.cli.terminal import make_console, plural
from spec_jax.cli.texts import check_writable, write_whole
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.datasets import TaskData
from spec_jax.experiments.evaluate import (
    EvaluateSettings,
    evaluate,
    kept_results,
    run_head,
    scores_of,
)
from spec_jax.experiments.example_results import predictions
from spec_jax.experiments.journal import Journal, digest, json_line
from spec_jax.experiments.outputs import Way
from spec_jax.experiments.programs import forget_programs
from spec_jax.experiments.record import (
    Record,
    append_record,
    read_records,
    today,
)
from spec_jax.pairs import Pair
from spec_jax.partitioning import ShardedDecoder
from spec_jax.reports import tables

RESULTS, EXAMPLES, PREDICTIONS = "results.jsonl", "examples", "inference_eval"
"""In the output folder: records, what they are made of, and predictions."""
NAME_LENGTH = 80
"""Letters of a task's name in those of files."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateRun:
    """What to measure, and where it goes.

    Attributes:
      load_pair: loads the pair in a dtype.
      settings: of every measurement; its temperature is replaced.
      output_dir: for results.jsonl, table.md, config.gin and the examples.
      tasks: each is measured at each temperature.
      temperatures: see `tasks`.
      gammas: each is measured, in place of that of the settings; None: that one.
      t5x_baseline: whether t5x's own sampling is timed too; None: where t5x is
        installed.
      dtype: of speculative decoding; None is the fastest here.
      plain_dtype: of plain decoding; None is the fastest here.

    Raises:
      ValueError: if there is no temperature, or a value is out of range.
    """

    load_pair: Callable[..., Pair]
    settings: EvaluateSettings
    output_dir: str
    tasks: TaskSource
    temperatures: tuple[float, ...] = (0.0, 1.0)
    gammas: tuple[int, ...] | None = None
    t5x_baseline: bool | None = None
    dtype: str | None = None
    plain_dtype: str | None = None

    def __post_init__(self):
        require(bool(self.temperatures), "want at least one of TEMPERATURES, got none")
        require(bool(self.output_dir), "want a folder in EVAL_OUTPUT_DIR, got none")
        for temperature in self.temperatures:
            SamplingPolicy(temperature=temperature)
        once(self, "temperatures", "gammas")
        if self.gammas is not None:
            require(bool(self.gammas), "want at least one of GAMMAS, got none")
            for gamma in self.gammas:
                dataclasses.replace(self.settings, gamma=gamma)

    @property
    def gamma(self) -> int:
        """The most drafted tokens of any step."""
        return max(self.gammas or (self.settings.gamma,))

    def decode_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, padded input length, most new tokens) of every program."""
        settings = self.settings
        return self.tasks.decode_shapes(settings.input_lengths, (settings.batch,))


@dataclasses.dataclass(frozen=True)
class Place:
    """Where results go, and the configuration that stands beside them.

    Attributes:
      folder: the output folder.
      config: of the run, as a gin file.
    """

    folder: pathlib.Path
    config: str

    def begin(self) -> None:
        """Writes the configuration, when it is known that nothing is in the way."""
        write_whole(self.folder / "config.gin", self.config)


@dataclasses.dataclass(frozen=True)
class Work:
    """What becomes one record.

    Attributes:
      name: in progress and messages.
      data: of the task.
      settings: of the measurement.
      draft_name: how tables call the draft; '' is its kind.
    """

    name: str
    data: TaskData
    settings: EvaluateSettings
    draft_name: str = ""


def main(invocation) -> None:
    """Runs the command; what a killed run measured is not measured again."""
    run: EvaluateRun = invocation.settings
    own = own_path(run.output_dir, "EVAL_OUTPUT_DIR")
    run = dataclasses.replace(run, output_dir=own)
    folder = pathlib.Path(run.output_dir)
    check_writable(os.path.join(run.output_dir, RESULTS), appended=True)
    check_baseline(run)
    limit_cpu_threads(invocation.flags.cpu_threads, run.settings.batch)
    start_backend()
    tasks = load_tasks(run)
    with make_console(stderr=True).status("loading the pair"):
        pairs = load_pairs(run)
    wait_for_all("read the weights")
    tasks = tasks or run.tasks.load(pairs[0].vocabulary)
    if not is_writer():
        tasks = [dataclasses.replace(data, score=lambda texts: {}) for data in tasks]
    work = [
        Work(
            f"{data.name}, T = {temperature:g}"
            + (f", gamma {gamma}" if run.gammas else ""),
            data,
            dataclasses.replace(run.settings, temperature=temperature, gamma=gamma),
        )
        for data in tasks
        for temperature in run.temperatures
        for gamma in run.gammas or (run.settings.gamma,)
    ]
    kept_records(folder / RESULTS)
    # Not before: only then is it known which pair that is.
    place = Place(folder, invocation.operative_config())
    records = measure(run, pairs, work, place)
    if not is_writer():
        return
    text = tables.markdown(records)
    write_whole(folder / "table.md", text)
    console = make_console()
    if console.is_terminal:
        console.print(results_table(records))
        print_notes(console, records)
    else:
        console.print(text, soft_wrap=True, markup=False)
    console.print(
        f"written to {folder}: {RESULTS}, table.md, config.gin, {PREDICTIONS}/"
    )


def load_tasks(run: Any) -> list[TaskData]:
    """The examples of a run's tasks, before any weights are read.

    Empty where that cannot be: the vocabulary comes with the weights.
    """
    with make_console(stderr=True).status("reading the tasks"):
        vocabulary = run.load_pair(abstract=True).vocabulary
        return [] if vocabulary is None else run.tasks.load(vocabulary)


def load_pairs(run: Any) -> tuple[Pair, Pair]:
    """The pair for speculative and for plain decoding, which may be the same."""
    settings = run.settings
    return load_both(
        run.load_pair, run.dtype, run.plain_dtype, getattr(settings, "batch", 1)
    )


def measure(
    run: Any, pairs: tuple[Pair, Pair], work: Sequence[Work], place: Place
) -> list[Record]:
    """Measures one after another; what is measured is written at once."""
    console = make_console(stderr=True)
    records = []
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}", style="dim"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as bar:
        for one in work:
            data, settings = one.data, one.settings
            shown = bar.add_task(one.name, total=None, doing="")

            def progress(done, total, doing, shown=shown):
                bar.update(shown, completed=done, total=total, doing=doing)

            def say(text, name=one.name):
                console.print(f"{name}: {text}", markup=False, soft_wrap=True)

            baseline = t5x_baseline(run, pairs[1], settings, data)
            record = measure_one(
                pairs,
                data,
                settings,
                baseline,
                place,
                progress,
                say,
                one.draft_name,
            )
            records.append(record)
            forget_programs()
            if not console.is_terminal:
                say(f"{record.speedup:.2f} times as fast")
    return records


def measure_one(
    pairs: tuple[Pair, Pair],
    data: TaskData,
    settings: EvaluateSettings,
    baseline: Way | None,
    place: Place,
    progress: Callable[[int, int, str], None],
    say: Callable[[str], None],
    draft_name: str = "",
) -> Record:
    """One task at one temperature: examples, predictions, and the record.

    Args:
      pairs: for speculative and for plain decoding.
      data: of the task.
      settings: with the temperature.
      baseline: see `evaluate`.
      place: where it goes.
      progress: see `evaluate`.
      say: told what is there already.
      draft_name: see `Work`.
    """
    folder, (pair, plain_pair) = place.folder, pairs
    head = run_head(pair, plain_pair, data, settings, baseline and "t5x")
    if draft_name:  # two names may be one model, which is measured for each
        head["draft_name"] = draft_name
    check_same(head)
    name = f"{data.name[:NAME_LENGTH]}-T{settings.temperature:g}-{digest(head)}"
    with Journal(folder / EXAMPLES / f"{name}.jsonl", head) as journal:
        kept = sorted(kept_results(journal), key=lambda result: result.index)
        place.begin()
        count = len(data.examples)
        if kept:
            say(f"{len(kept)} of {count} examples are there: {journal.path}")
        else:
            say(plural(count, "example"))
        known = [r for r in kept_records(folder / RESULTS) if r.run == name]
        if known and len(kept) == count:
            results = kept
            scores = scores_of(results, data, pair.vocabulary)
            if scores == known[-1].metrics:
                return known[-1]
            # The task's metrics are others now; nothing is decoded for them.
            record = dataclasses.replace(known[-1], metrics=scores, date=today())
        else:
            record, results = evaluate(
                pair,
                plain_pair,
                data,
                settings,
                progress,
                journal=journal,
                baseline=baseline,
            )
        for way in ("plain", "speculative"):
            lines = predictions(data, results, way, pair.vocabulary)
            path = folder / PREDICTIONS / f"{name}-{way}.jsonl"
            write_whole(path, map(json_line, lines))
        record = dataclasses.replace(record, run=name, draft_name=draft_name)
        # Last: it says that all the rest is there.
        append_record(folder / RESULTS, record)
        return record


def kept_records(path: pathlib.Path) -> list[Record]:
    """What runs before this one have measured; half a line that a kill left is none.

    Raises:
      ValueError: if a whole line is no record.
    """
    return read_records(path, half_lines=True) if path.exists() else []


def check_baseline(run: Any) -> None:
    """Raises UsageError if t5x's sampling is wanted where t5x is not installed."""
    if run.t5x_baseline and not t5x_installed():
        raise UsageError(
            "T5X_BASELINE wants t5x, which is not installed: install it from "
            "https://github.com/google-research/t5x"
        )


def t5x_baseline(run: Any, pair: Pair, settings, data: TaskData) -> Way | None:
    """t5x's own sampling with a pair's target, or None.

    Raises:
      UsageError: if it is wanted with filters that t5x does not have, or on a mesh.
    """
    if run.t5x_baseline is False or not t5x_installed():
        return None
    if isinstance(pair.target, ShardedDecoder):
        if run.t5x_baseline:
            raise UsageError("T5X_BASELINE wants one device, got NUM_PARTITIONS")
        return None
    if settings.min_p or (settings.top_k and settings.top_p < 1):
        if run.t5x_baseline:
            raise UsageError(
                "T5X_BASELINE wants TOP_K or TOP_P, not both, and no MIN_P: t5x has no "
                "more"
            )
        return None
    with unlocked():
        from spec_jax.adapters.t5x import temperature_sample_decoder
    decoder = temperature_sample_decoder(
        pair.target.config,
        pair.params["target"],
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        max_new_tokens=data.max_target_length,
        vocab_limit=pair.vocabulary.vocab_size,
    )
    return lambda batch: decoder(batch.inputs, batch.keys[0])


def results_table(records: Sequence[Record]) -> Table:
    """The Markdown table's cells, a column for each run, so that it fits a screen."""
    table = Table(box=box.SIMPLE_HEAD, show_header=False, padding=(0, 1))
    table.add_column(style="bold", no_wrap=True)
    for _ in records:
        table.add_column(justify="right", overflow="fold")
    cells = zip(tables.HEADERS, *tables.rows(records), strict=True)
    for name, *values in cells:
        style = "bold green" if name == "speed" else None
        table.add_row(name, *values, style=style)
    return table


def print_notes(console: Console, records: Sequence[Record]) -> None:
    """Warnings, in a colour."""
    names = tables.run_names(records)
    for record, name in zip(records, names, strict=True):
        for warning in record.warnings:
            console.print(f"warning, {name}: {warning}", style="yellow", markup=False)
