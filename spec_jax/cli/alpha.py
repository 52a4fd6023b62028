"""`spec-jax alpha`: the paper's Table 3 for a target and its drafts."""

import dataclasses
import gc
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from spec_jax.cli.decoding import fastest_dtypes
from spec_jax.cli.evaluate import NAME_LENGTH, load_tasks
from spec_jax.cli.runtime import limit_cpu_threads, start_backend
from spec_jax.cli.settings import check_pairs, once, require
from spec_jax.cli.task_source import TaskSource
from spec_jax.cli.terminal import make_console
from spec_jax.cli.texts import check_writable, write_whole
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.datasets import TaskData
from spec_jax.experiments.alpha_record import (
    AlphaRecord,
    AlphaSettings,
    TargetOutputs,
    measure_alphas,
    outputs_head,
    run_name,
    target_outputs,
)
from spec_jax.experiments.journal import Journal, digest, digest_of_parameters
from spec_jax.experiments.programs import forget_programs
from spec_jax.experiments.record import append_record, read_records
from spec_jax.pairs import DRAFTS, Pair
from spec_jax.reports.alpha import markdown

RECORDS, OUTPUTS = "alpha.jsonl", "outputs"
"""In the output folder: the lines, and what the target generated for them."""
OTHERS = tuple(name for name in DRAFTS if name != "model")
"""Drafts that a pair has beside its model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlphaRun:
    """Of which drafts, on what, and where it goes.

    Attributes:
      pairs: what loads a pair in a dtype, by the name of its draft; one target.
      drafts: further ones, of `OTHERS`, from the first pair.
      settings: of every measurement.
      output_dir: for alpha.jsonl, table.md, config.gin and the outputs.
      tasks: each is measured at each temperature.
      temperatures: see `tasks`.
      dtype: of parameters and activations; None is the fastest here.

    Raises:
      ValueError: if there is no pair or temperature, or a value is wrong.
    """

    pairs: dict
    settings: AlphaSettings
    output_dir: str
    tasks: TaskSource
    drafts: tuple[str, ...] = ()
    temperatures: tuple[float, ...] = (0.0, 1.0)
    dtype: str | None = None

    def __post_init__(self):
        check_pairs(self.pairs)
        once(self, "drafts", "temperatures")
        for name in self.drafts:
            require(
                name in OTHERS,
                f"want DRAFTS of {', '.join(OTHERS)} beside those of PAIRS, got "
                f"{name!r}",
            )
            require(
                name not in self.pairs,
                f"want each draft once, got {name!r} in PAIRS and in DRAFTS",
            )
        require(bool(self.temperatures), "want at least one of TEMPERATURES, got none")
        require(bool(self.output_dir), "want a folder in EVAL_OUTPUT_DIR, got none")
        for temperature in self.temperatures:
            SamplingPolicy(temperature=temperature)

    @property
    def load_pair(self) -> Callable[..., Pair]:
        """The last pair, which a dry run counts: by custom the one of most memory."""
        return [*self.pairs.values()][-1]

    @property
    def rows(self) -> int:
        """Of the calls that decide how many threads there are."""
        return self.settings.batch

    def decode_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, padded input length, most new tokens) of every program."""
        settings = self.settings
        return self.tasks.decode_shapes(settings.input_lengths, (settings.batch,))


def main(invocation) -> None:
    """Runs the command; lines that are there are not measured again."""
    run: AlphaRun = invocation.settings
    records = measure(run, invocation)
    finish(run, markdown(records), (RECORDS, OUTPUTS + "/"))


def finish(run: AlphaRun, text: str, names: tuple[str, ...]) -> None:
    """Writes the table, prints it, and says what else is there."""
    folder = pathlib.Path(run.output_dir)
    write_whole(folder / "table.md", text)
    console = make_console()
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        console.print(text, soft_wrap=True, markup=False)
    console.print(f"written to {folder}: {', '.join(names)}, table.md, config.gin")


def measure(
    run: AlphaRun, invocation, leniences: tuple[float, ...] = (1.0,)
) -> list[AlphaRecord]:
    """The records of a run, of which the missing ones are measured and written.

    A pair is loaded after the one before it is freed. The first one's target decodes
    the tasks; its outputs are kept, so that the others need not.
    """
    folder = pathlib.Path(run.output_dir)
    check_writable(os.path.join(run.output_dir, RECORDS), appended=True)
    limit_cpu_threads(invocation.flags.cpu_threads, run.rows)
    start_backend()
    tasks = load_tasks(run)
    known = kept_records(folder / RECORDS)
    dtype, _ = fastest_dtypes(run.dtype, None)
    found = []
    for number, (name, load) in enumerate(run.pairs.items()):
        with make_console(stderr=True).status(f"loading the pair of {name}"):
            pair = load(dtype=dtype)
        tasks = tasks or run.tasks.load(pair.vocabulary)
        sources = {name: "model"}
        if number == 0:
            sources |= {draft: draft for draft in run.drafts}
        pairs = {draft: pair.using(source) for draft, source in sources.items()}
        if number == 0:
            # Not before: only now is it known which pair that is.
            write_whole(folder / "config.gin", invocation.operative_config())
        found += _measure_pair(run, pair, pairs, tasks, leniences, known, folder)
        del pair, pairs
        gc.collect()
    order = [*run.pairs, *run.drafts]
    return sorted(found, key=lambda record: order.index(record.draft_name))


def kept_records(path: pathlib.Path) -> list[AlphaRecord]:
    """Lines of runs before this one; half a line that a kill left is none.

    Raises:
      ValueError: if a whole line is no record.
    """
    return read_records(path, AlphaRecord, half_lines=True) if path.exists() else []


def _measure_pair(
    run: AlphaRun,
    pair: Pair,
    pairs: Mapping[str, Pair],
    tasks: list[TaskData],
    leniences: tuple[float, ...],
    known: list[AlphaRecord],
    folder: pathlib.Path,
) -> Iterator[AlphaRecord]:
    """The records of the drafts that one loaded pair has."""
    target = digest_of_parameters(pair.params["target"])
    console = make_console(stderr=True)
    total = run.settings.num_tokens
    for data in tasks:
        for temperature in run.temperatures:
            what = f"{data.name}, T = {temperature:g}"
            with progress_bar(console, f"{what}: the target", total) as progress:
                outputs = _outputs(run, pair, target, data, temperature, progress)
            for name, using in pairs.items():
                here = {
                    record.cell: record
                    for record in known
                    if record.run == run_name(using, outputs)
                }
                cells = [(data.name, name, temperature, one) for one in leniences]
                missing = tuple(cell[-1] for cell in cells if cell not in here)
                if missing:
                    with progress_bar(console, f"{what}: {name}", total) as progress:
                        new = measure_alphas(
                            using,
                            name,
                            data,
                            run.settings,
                            temperature,
                            outputs,
                            missing,
                            progress,
                        )
                    forget_programs()
                    for record in new:
                        append_record(folder / RECORDS, record)
                        here[record.cell] = record
                        if not console.is_terminal:
                            _say(console, record)
                yield from (here[cell] for cell in cells)


def _outputs(
    run, pair: Pair, target: str, data: TaskData, temperature: float, progress
) -> TargetOutputs:
    """What the target generates for a task; kept under its fingerprint."""
    head = outputs_head(pair, target, data, run.settings, temperature)
    name = f"{data.name[:NAME_LENGTH]}-T{temperature:g}-{digest(head)}.jsonl"
    with Journal(pathlib.Path(run.output_dir) / OUTPUTS / name, head) as journal:
        return target_outputs(
            pair, data, run.settings, temperature, head, journal, progress
        )


def _say(console: Console, record: AlphaRecord) -> None:
    lenience = "" if record.lenience == 1 else f", lenience {record.lenience:g}"
    console.print(
        f"{record.task}, T = {record.temperature:g}, {record.draft_name}{lenience}: "
        f"alpha {record.alpha:.3f}",
        markup=False,
        soft_wrap=True,
    )


@contextmanager
def progress_bar(console: Console, name: str, total: int) -> Iterator[Callable]:
    """A bar for a number of tokens; gives what tells it how far it is."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("tokens"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}", style="dim"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as bar:
        shown = bar.add_task(name, total=total, doing="")
        yield lambda done, doing: bar.update(shown, completed=done, doing=doing)
