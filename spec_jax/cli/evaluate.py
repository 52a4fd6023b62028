"""`spec-jax evaluate`: the paper's Table 2 for a pair."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from spec_jax.cli.decoding import fastest_dtypes
from spec_jax.cli.errors import UsageError
from spec_jax.cli.runtime import limit_cpu_threads, start_backend
from spec_jax.cli.settings import require
from spec_jax.cli.terminal import make_console
from spec_jax.cli.texts import check_writable, write_whole
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.examples import TextTask, corpus_path, get_task, read_rows
from spec_jax.data.samples import load_samples
from spec_jax.experiments.evaluate import EvaluateSettings, evaluate
from spec_jax.experiments.record import Record, append_record
from spec_jax.pairs import Pair
from spec_jax.reports import tables

SAMPLES = {"ende": "translation", "summarize": "summarization"}
"""Which committed samples stand in for a task's corpus."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateRun:
    """What to measure, and where it goes.

    Attributes:
      load_pair: loads the pair in a dtype.
      settings: of every measurement; its temperature is replaced.
      tasks: each is measured at each temperature.
      temperatures: see `tasks`.
      data_dir: where `spec-jax data debian` wrote; None takes the committed samples.
      split: which part of the corpora.
      output_dir: for results.jsonl, table.md and config.gin.
      dtype: of speculative decoding; None is the fastest here.
      plain_dtype: of plain decoding; None is the fastest here.

    Raises:
      ValueError: if there is no task or temperature, or a value is out of range.
    """

    load_pair: Callable[..., Pair]
    settings: EvaluateSettings
    output_dir: str
    tasks: tuple[str, ...] = ("ende", "summarize")
    temperatures: tuple[float, ...] = (0.0, 1.0)
    data_dir: str | None = None
    split: str = "test"
    dtype: str | None = None
    plain_dtype: str | None = None

    def __post_init__(self):
        require(bool(self.tasks), "want at least one of the TASKS, got none")
        require(bool(self.temperatures), "want at least one of TEMPERATURES, got none")
        for name in self.tasks:
            get_task(name)
        for temperature in self.temperatures:
            SamplingPolicy(temperature=temperature)


def main(invocation) -> None:
    """Runs the command."""
    run: EvaluateRun = invocation.settings
    folder = pathlib.Path(run.output_dir)
    check_writable(os.path.join(run.output_dir, "results.jsonl"), appended=True)
    work = [
        (get_task(name), rows, dataclasses.replace(run.settings, temperature=t))
        for name in run.tasks
        for rows in [task_rows(run, get_task(name))]
        for t in run.temperatures
    ]
    limit_cpu_threads(invocation.flags.cpu_threads, run.settings.batch)
    start_backend()
    with make_console(stderr=True).status("loading the pair"):
        pairs = load_pairs(run)
    # Not before: only then is it known which pair that is.
    write_whole(folder / "config.gin", invocation.operative_config())
    records = measure(*pairs, work, folder)
    text = tables.markdown(records)
    write_whole(folder / "table.md", text)
    console = make_console()
    console.print(results_table(records))
    print_notes(console, records)
    console.print(f"\n{text}", soft_wrap=True, markup=False)
    console.print(f"written to {folder}: results.jsonl, table.md, config.gin")


def task_rows(run: EvaluateRun, task: TextTask) -> list[dict]:
    """The rows of a task, from the corpora or the committed samples.

    Raises:
      UsageError: if the corpora are not there.
    """
    if run.data_dir is None:
        if task.name not in SAMPLES:
            raise UsageError(f"there are no samples of {task.name}: give DATA_DIR")
        return load_samples(SAMPLES[task.name])
    path = corpus_path(run.data_dir, task, run.split)
    if not path.exists():
        raise UsageError(
            f"no {path}; {_splits(run.data_dir, task)}"
            f"`spec-jax data debian --output_dir={run.data_dir}` makes "
            "train, validation and test"
        )
    return read_rows(path, task)


def _splits(data_dir: str, task: TextTask) -> str:
    """What there is, for a message."""
    files = corpus_path(data_dir, task, "*")
    names = sorted(path.name.split(".")[1] for path in files.parent.glob(files.name))
    return f"there are the splits {', '.join(names)}; " if names else ""


def load_pairs(run: EvaluateRun) -> tuple[Pair, Pair]:
    """The pair for speculative and for plain decoding, which may be the same."""
    dtype, plain_dtype = fastest_dtypes(run.dtype, run.plain_dtype)
    pair = run.load_pair(dtype=dtype)
    return pair, pair if plain_dtype == dtype else run.load_pair(dtype=plain_dtype)


def measure(pair: Pair, plain_pair: Pair, work, folder: pathlib.Path) -> list[Record]:
    """Measures one after another; each record is written as soon as it is there."""
    console = make_console(stderr=True)
    records = []
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}", style="dim"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as bar:
        for task, rows, settings in work:
            name = f"{task.name}, T = {settings.temperature:g}"
            shown = bar.add_task(name, total=None, doing="")

            def progress(done, total, doing, shown=shown):
                bar.update(shown, completed=done, total=total, doing=doing)

            record = evaluate(pair, plain_pair, task, rows, settings, progress)
            append_record(folder / "results.jsonl", record)
            records.append(record)
            if not console.is_terminal:
                console.print(f"{name}: {record.speedup:.2f} times as fast")
    return records


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
    for record in records:
        for warning in record.warnings:
            name = f"{record.task}, T = {record.temperature:g}"
            console.print(f"warning, {name}: {warning}", style="yellow", markup=False)
