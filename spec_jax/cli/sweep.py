"""`spec-jax sweep`: every draft, rule and length policy on one pair."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence

from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from spec_jax.cli.errors import UsageError
from spec_jax.cli.evaluate import load_pairs, load_tasks
from spec_jax.cli.runtime import limit_cpu_threads, start_backend
from spec_jax.cli.task_source import TaskSource
from spec_jax.cli.terminal import make_console
from spec_jax.cli.texts import check_writable, write_whole
from spec_jax.experiments.record import (
    JsonLine,
    append_record,
    cpu_threads,
    describe_device,
    read_records,
    versions,
)
from spec_jax.experiments.rules import BlockGain, BranchGain
from spec_jax.experiments.sweep import (
    SweepRecord,
    SweepSettings,
    combinations,
    rule_gains,
    sweep,
)
from spec_jax.pairs import Pair
from spec_jax.reports.sweep import markdown

RECORDS, BLOCKS, BRANCHES = "sweep.jsonl", "block.jsonl", "branches.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepRun:
    """What is swept, and where it goes.

    Attributes:
      load_pair: loads the pair in a dtype.
      settings: of the sweep.
      output_dir: for the records, sweep.md and config.gin.
      tasks: each is swept.
      dtype: of speculative decoding; None is the fastest here.
      plain_dtype: of plain decoding; None is the fastest here.
    """

    load_pair: Callable[..., Pair]
    settings: SweepSettings
    output_dir: str
    tasks: TaskSource
    dtype: str | None = None
    plain_dtype: str | None = None

    def decode_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, padded input length, most new tokens) of every program."""
        length = self.settings.input_length
        return tuple(sorted({(1, length, most) for _, most in self.tasks.lengths()}))


def main(invocation) -> None:
    """Runs the command; combinations that are in the file already are passed over."""
    run: SweepRun = invocation.settings
    folder = pathlib.Path(run.output_dir)
    for name in (RECORDS, BLOCKS, BRANCHES):
        check_writable(os.path.join(run.output_dir, name), appended=True)
    limit_cpu_threads(invocation.flags.cpu_threads, 1)
    start_backend()
    console = make_console(stderr=True)
    tasks = load_tasks(run)
    with console.status("loading the pair"):
        pairs = load_pairs(run)
    tasks = tasks or run.tasks.load(pairs[0].vocabulary)
    check_same(folder, invocation.operative_config(), pairs)
    write_whole(folder / "config.gin", invocation.operative_config())
    for data in tasks:
        _sweep(run, *pairs, data, folder, console)
        if not any(x.task == data.name for x in _kept(folder / BRANCHES, BranchGain)):
            with console.status(f"{data.name}: other rules on the same drafts"):
                blocks, branches = rule_gains(*pairs, data, run.settings)
            # The second file says that both are there.
            _add(folder / BLOCKS, data.name, blocks)
            _add(folder / BRANCHES, data.name, branches)
    text = markdown(
        _kept(folder / RECORDS, SweepRecord),
        _kept(folder / BLOCKS, BlockGain),
        _kept(folder / BRANCHES, BranchGain),
    )
    write_whole(folder / "sweep.md", text)
    make_console().print(Markdown(text))
    make_console().print(f"written to {folder}: {RECORDS}, sweep.md, config.gin")


def check_same(folder: pathlib.Path, config: str, pairs: Sequence[Pair]) -> None:
    """Sees to it that a folder's records were measured as new ones will be.

    Raises:
      UsageError: if the folder has records of another configuration or machine.
    """
    records = _kept(folder / RECORDS, SweepRecord)
    path = folder / "config.gin"
    theirs = path.read_text() if path.exists() else None
    now = (cpu_threads(), describe_device(), versions(), *(p.dtype.name for p in pairs))
    made = [
        (r.cpu_threads, r.device, r.versions, r.dtype, r.plain_dtype) for r in records
    ]
    if records and (theirs != config or any(one != now for one in made)):
        raise UsageError(
            f"{folder} has records of another configuration or machine, see its "
            "config.gin and records: give another EVAL_OUTPUT_DIR, or remove it"
        )


def _sweep(run, pair, plain_pair, data, folder, console) -> None:
    """Measures what is missing; each record is written as soon as it is there."""
    done = [record.cell for record in _kept(folder / RECORDS, SweepRecord)]
    cells = list(combinations(run.settings, data.name))
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as bar:
        shown = bar.add_task("", total=len(cells), completed=len(set(done) & {*cells}))

        def begin(cell):
            name, temperature, draft, rule, lengths = cell
            text = f"{name}, T = {temperature:g}: {draft}, {rule}, {lengths}"
            bar.update(shown, description=text)

        records = sweep(pair, plain_pair, data, run.settings, done, begin)
        for record in records:
            append_record(folder / RECORDS, record)
            bar.advance(shown)


def _add(path: pathlib.Path, task: str, gains: Sequence[JsonLine]) -> None:
    """Writes a file anew with a task's gains, in place of any it has of that task."""
    if gains:
        kept = [gain for gain in _kept(path, type(gains[0])) if gain.task != task]
        write_whole(path, (gain.to_json() + "\n" for gain in (*kept, *gains)))


def _kept(path: pathlib.Path, kind) -> list:
    """What a run before this one has measured."""
    return read_records(path, kind) if path.exists() else []
