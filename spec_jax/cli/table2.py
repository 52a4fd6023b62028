"""`spec-jax table2`: the paper's Table 2 for a target and its drafts."""

import dataclasses
import functools
import gc
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich import box
from rich.table import Table

from spec_jax.cli.decoding import check_draft, load_both
from spec_jax.cli.evaluate import (
    PREDICTIONS,
    RESULTS,
    Place,
    Work,
    check_baseline,
    kept_records,
    measure,
)
from spec_jax.cli.runtime import limit_cpu_threads, start_backend
from spec_jax.cli.settings import check_pairs, once, require
from spec_jax.cli.task_source import TaskSource
from spec_jax.cli.terminal import make_console
from spec_jax.cli.texts import check_writable, write_whole
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.datasets import TaskData
from spec_jax.experiments.evaluate import EvaluateSettings
from spec_jax.experiments.programs import forget_programs
from spec_jax.experiments.record import Record
from spec_jax.experiments.table2 import (
    BEST,
    PAPER,
    Source,
    choose_gamma,
    fastest,
    gamma_of_paper,
    kept_choices,
    sources,
)
from spec_jax.pairs import Pair
from spec_jax.reports import table2

CHOICES = "choices.jsonl"
"""In the output folder, where gammas are chosen."""
MOST_OF_PAPER = 7
"""The largest gamma of the paper's rows."""

Tasks = Mapping[str, Sequence[TaskData]]
"""By the name that the run has; a mixture has several."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table2Run:
    """Of which drafts, on what, with which gamma, and where it goes.

    Attributes:
      pairs: see `sources`.
      settings: of every row; temperature, gamma, batch and draft are replaced.
      output_dir: for results.jsonl, table.md, config.gin, the examples, and the
        choices of gamma.
      tasks: each is measured at each temperature with each draft.
      drafts: see `sources`.
      temperatures: see `tasks`.
      gamma_is: 'paper', 'best', or a number of tokens.
      gammas: that 'best' chooses from.
      choice_examples: the first texts of each task, on which it does; None: all.
      batch_sizes: of further rows, for one draft; those of batch 1 are always there.
      batch_draft: that draft; None: the fastest at batch 1.
      t5x_baseline: see `EvaluateRun`.
      dtype: see `EvaluateRun`.
      plain_dtype: see `EvaluateRun`.

    Raises:
      ValueError: if a value is wrong.
    """

    pairs: dict
    settings: EvaluateSettings
    output_dir: str
    tasks: TaskSource
    drafts: tuple[str, ...] = ()
    temperatures: tuple[float, ...] = (0.0, 1.0)
    gamma_is: int | str = BEST
    gammas: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    choice_examples: int | None = 32
    batch_sizes: tuple[int, ...] = (2, 4, 8)
    batch_draft: str | None = None
    t5x_baseline: bool | None = None
    dtype: str | None = None
    plain_dtype: str | None = None

    def __post_init__(self):
        check_pairs(self.pairs)
        once(self, "drafts", "temperatures", "gammas", "batch_sizes")
        for name in self.drafts:
            check_draft(name)
            require(
                name != "model" and name not in self.names,
                f"want DRAFTS beside those of PAIRS, got {name!r}",
            )
        require(bool(self.temperatures), "want at least one of TEMPERATURES, got none")
        for temperature in self.temperatures:
            SamplingPolicy(temperature=temperature)
        by_name = self.gamma_is in (PAPER, BEST)
        require(
            by_name or (type(self.gamma_is) is int and self.gamma_is >= 1),
            f"want GAMMA 'paper', 'best' or a number >= 1, got {self.gamma_is!r}",
        )
        require(
            bool(self.gammas) and min(self.gammas) >= 1,
            f"want GAMMAS of 1 or more, got {self.gammas}",
        )
        require(
            self.choice_examples is None or self.choice_examples >= 1,
            f"want CHOICE_EXAMPLES >= 1, got {self.choice_examples}",
        )
        require(
            all(size >= 2 for size in self.batch_sizes),
            f"want BATCH_SIZES of 2 or more beside batch 1, got {self.batch_sizes}",
        )
        names = (*self.names, *self.drafts)
        require(
            self.batch_draft in (None, *names),
            f"want BATCH_DRAFT of {', '.join(names)}, got {self.batch_draft!r}",
        )
        require(bool(self.output_dir), "want a folder in EVAL_OUTPUT_DIR, got none")
        _ = self.sources

    @property
    def names(self) -> tuple[str, ...]:
        """Of the pairs' drafts."""
        return tuple(dict.fromkeys(key.rpartition("/")[2] for key in self.pairs))

    @functools.cached_property
    def sources(self) -> tuple[Source, ...]:
        """The pairs, and the rows of each."""
        return sources(self.pairs, self.drafts, self.tasks.names)

    @property
    def load_pair(self) -> Callable[..., Pair]:
        """The last pair, which a dry run counts: by custom the one of most memory."""
        return self.sources[-1].load

    @property
    def gamma(self) -> int:
        """The most drafted tokens of any step."""
        named = {PAPER: MOST_OF_PAPER, BEST: max(self.gammas)}
        return named.get(self.gamma_is, self.gamma_is)

    def decode_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, padded input length, most new tokens) of every program."""
        batches = (1, *self.batch_sizes)
        return self.tasks.decode_shapes(self.settings.input_lengths, batches)


def main(invocation) -> None:
    """Runs the command; rows and examples that are there are not measured again."""
    run: Table2Run = invocation.settings
    folder = pathlib.Path(run.output_dir)
    for name in (RESULTS, CHOICES):
        check_writable(os.path.join(run.output_dir, name), appended=True)
    check_baseline(run)
    limit_cpu_threads(invocation.flags.cpu_threads, 1)
    start_backend()
    tasks = _tasks_before_weights(run)
    kept_records(folder / RESULTS)
    kept_choices(folder / CHOICES)
    # Not before: then it is known that nothing is wrong with what is there.
    place = Place(folder, invocation.operative_config())
    records: list[Record] = []
    for source in run.sources:
        made, tasks = _measure_source(run, source, source.drafts, (1,), tasks, place)
        records += made
    if run.batch_sizes:
        best = run.batch_draft or fastest(records)
        for source in run.sources:
            if best in source.drafts:
                drafts = {best: source.drafts[best]}
                records += _measure_source(
                    run, source, drafts, run.batch_sizes, tasks, place
                )[0]
    finish(run, in_order(run, tasks, records))


def finish(run: Table2Run, records: Sequence[Record]) -> None:
    """Writes the table, prints it, and says what else is there."""
    folder = pathlib.Path(run.output_dir)
    text = table2.markdown(records)
    write_whole(folder / "table.md", text)
    console = make_console()
    if console.is_terminal:
        console.print(on_screen(records))
        for note in table2.notes(records):
            console.print(note, style="dim", markup=False)
    else:
        console.print(text, soft_wrap=True, markup=False)
    chosen = f", {CHOICES}" if run.gamma_is == BEST else ""
    console.print(
        f"written to {folder}: {RESULTS}{chosen}, table.md, config.gin, {PREDICTIONS}/"
    )


def in_order(run: Table2Run, tasks: Tasks, records: Sequence[Record]) -> list[Record]:
    """Records as the paper's table has its rows: by task, temperature, draft, batch."""
    names = [data.name for several in tasks.values() for data in several]
    drafts = [*run.names, *run.drafts]

    def place(record: Record):
        at = names.index(record.task), run.temperatures.index(record.temperature)
        return *at, drafts.index(record.draft_name), record.batch

    return sorted(records, key=place)


def on_screen(records: Sequence[Record]) -> Table:
    """The columns that a screen has room for; table.md has all."""
    shown = [table2.HEADERS.index(name) for name in table2.SHORT]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for name in table2.SHORT:
        left = name in ("task", "draft")
        style = "bold green" if name == "speed" else None
        table.add_column(name, justify="left" if left else "right", style=style)
    before = None
    for record, row in zip(records, table2.rows(records), strict=True):
        if before not in (None, record.task):
            table.add_section()
        before = record.task
        table.add_row(*(row[at] for at in shown))
    return table


def _tasks_before_weights(run: Table2Run) -> Tasks:
    """The examples; empty where the vocabulary comes with the weights."""
    with make_console(stderr=True).status("reading the tasks"):
        vocabulary = run.load_pair(abstract=True).vocabulary
        return {} if vocabulary is None else _load_tasks(run, vocabulary)


def _load_tasks(run: Table2Run, vocabulary) -> Tasks:
    """The examples of all tasks.

    Raises:
      ValueError: if the paper's gamma is wanted of a row that it does not have.
    """
    tasks = run.tasks.load_by_name(vocabulary)
    if run.gamma_is == PAPER:
        for source in run.sources:
            for data in _data(source, tasks):
                for name in source.drafts:
                    for temperature in run.temperatures:
                        gamma_of_paper(data.name, name, temperature)
    return tasks


def _data(source: Source, tasks: Tasks) -> Iterator[TaskData]:
    for name in source.tasks:
        yield from tasks[name]


def _measure_source(
    run: Table2Run,
    source: Source,
    drafts: Mapping[str, str],
    batches: Sequence[int],
    tasks: Tasks,
    place: Place,
) -> tuple[list[Record], Tasks]:
    """The rows of one pair, which is freed before another is loaded."""
    console = make_console(stderr=True)
    what = f"loading the pair of {', '.join(drafts)}"
    with console.status(what):
        pair, plain = load_both(source.load, run.dtype, run.plain_dtype, max(batches))
    tasks = tasks or _load_tasks(run, pair.vocabulary)
    for kind in drafts.values():
        pair.using(kind)  # what is missing is said before anything is measured
    pairs = pair, plain
    work = [
        _work(run, pairs, data, settings, name, place)
        for data in _data(source, tasks)
        for temperature in run.temperatures
        for name, kind in drafts.items()
        for batch in batches
        for settings in [
            dataclasses.replace(
                run.settings, temperature=temperature, batch=batch, draft=kind
            )
        ]
    ]
    records = measure(run, pairs, work, place)
    del pair, plain, pairs
    gc.collect()
    return records, tasks


def _work(
    run: Table2Run,
    pairs: tuple[Pair, Pair],
    data: TaskData,
    settings: EvaluateSettings,
    name: str,
    place: Place,
) -> Work:
    """A row with its gamma."""
    title = f"{data.name}, {name}, T = {settings.temperature:g}"
    if settings.batch > 1:
        title += f", batch {settings.batch}"
    gamma = run.gamma_is
    if gamma == PAPER:
        gamma = gamma_of_paper(data.name, name, settings.temperature)
    elif gamma == BEST:
        some = dataclasses.replace(data, examples=data.examples[: run.choice_examples])
        console = make_console(stderr=True)
        with console.status(f"{title}: choosing gamma") as status:
            choice = choose_gamma(
                pairs,
                some,
                settings,
                name,
                place.folder / CHOICES,
                run.gammas,
                lambda doing: status.update(f"{title}: choosing gamma, {doing}"),
            )
        forget_programs()
        # Where none pays, the row says how far from it the best one is.
        gamma = choice.best
        if not console.is_terminal:
            pays = "" if choice.gamma else ", though none pays"
            console.print(f"{title}: gamma {gamma} is best{pays}", soft_wrap=True)
    settings = dataclasses.replace(settings, gamma=gamma)
    return Work(f"{title}, gamma {gamma}", data, settings, name)
