"""Which rows the paper's Table 2 has, with which gamma, and which draft is best."""

import dataclasses
import math
import pathlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from spec_jax.core import paper
from spec_jax.data.datasets import TaskData
from spec_jax.experiments.choice import Choice, choose
from spec_jax.experiments.evaluate import EvaluateSettings, run_head
from spec_jax.experiments.journal import digest
from spec_jax.experiments.record import Record, append_record, read_records
from spec_jax.pairs import Pair

PAPER, BEST = "paper", "best"
"""Gammas by name: that of the paper's row, or the fastest for what was measured."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A pair that is loaded once, and the rows that it has.

    Attributes:
      load: loads it in a dtype.
      tasks: names of them.
      drafts: kinds of draft, of `pairs.DRAFTS`, by the name in the table.
    """

    load: Callable[..., Pair]
    tasks: tuple[str, ...]
    drafts: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowChoice(Choice):
    """The choice of a row's gamma.

    Attributes:
      run: fingerprint of all that decides it; '' where it was chosen elsewhere.
    """

    run: str = ""


def sources(
    pairs: Mapping[str, Callable[..., Pair]],
    drafts: Sequence[str],
    tasks: Sequence[str],
) -> tuple[Source, ...]:
    """The pairs in the order in which they are loaded.

    Args:
      pairs: what loads a pair, by the name of its draft, or by TASK/NAME where the
        models are fine-tuned on that task.
      drafts: further kinds, measured with the first pair of each task.
      tasks: all of them.

    Raises:
      ValueError: if a pair's task is not among them, or a task has no pair.

    Example:
      >>> small, large = sources({"small": min, "large": max}, ["lookup"], ["ende"])
      >>> small.drafts, large.drafts
      ({'small': 'model', 'lookup': 'lookup'}, {'large': 'model'})
    """
    found: list[Source] = []
    for key, load in pairs.items():
        task, _, name = key.rpartition("/")
        if task and task not in tasks:
            raise ValueError(
                f"want PAIRS of the tasks {', '.join(tasks)}, got one of {task!r}"
            )
        its = (task,) if task else tuple(tasks)
        found.append(Source(load, its, {name: "model"}))
    seen: set[str] = set()
    for number, source in enumerate(found):
        new = tuple(task for task in source.tasks if task not in seen)
        seen.update(new)
        if new == source.tasks:
            more = {kind: kind for kind in drafts}
            found[number] = dataclasses.replace(source, drafts=source.drafts | more)
    if missing := [task for task in tasks if task not in seen]:
        raise ValueError(f"want a pair for each task, got none for {missing[0]!r}")
    return tuple(found)


def gamma_of_paper(task: str, draft_name: str, temperature: float) -> int:
    """The gamma of a row that the paper has.

    Raises:
      ValueError: if it has none.
    """
    row = paper.table2_row(task, draft_name, temperature)
    if row is None:
        raise ValueError(
            "GAMMA='paper' wants rows that the paper has: EnDe or CNN/DM with small, "
            f"base, large at T = 0 or 1; got {task}, {draft_name}, T = "
            f"{temperature:g}; give GAMMA='best' or a number"
        )
    return row.gamma


def choose_gamma(
    pairs: tuple[Pair, Pair],
    data: TaskData,
    settings: EvaluateSettings,
    draft_name: str,
    path: pathlib.Path,
    gammas: Sequence[int],
    begin: Callable[[str], None] = lambda text: None,
) -> RowChoice:
    """The choice for a row: the one that is in the file, or a new one, kept there.

    Args:
      pairs: for speculative and for plain decoding.
      data: the texts to choose on.
      settings: of the row, whatever its gamma.
      draft_name: how the table calls its draft.
      path: of the JSON lines.
      gammas: to choose from.
      begin: told what begins.
    """
    at_least = dataclasses.replace(settings, gamma=1)
    head = run_head(*pairs, data, at_least)
    run = digest(head | {"draft_name": draft_name, "gammas": list(gammas)})
    for known in kept_choices(path):
        if known.run == run:
            return known
    made = choose(
        *pairs, data, settings, gammas=gammas, draft_name=draft_name, begin=begin
    )
    fields = {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
    choice = RowChoice(**fields, run=run)
    append_record(path, choice)
    return choice


def kept_choices(path: pathlib.Path) -> list[RowChoice]:
    """Choices of runs before this one; half a line that a kill left is none.

    Raises:
      ValueError: if a whole line is none.
    """
    return read_records(path, RowChoice, half_lines=True) if path.exists() else []


def fastest(records: Sequence[Record]) -> str:
    """The draft whose speeds have the largest geometric mean.

    Args:
      records: the same rows of each draft; of one batch size.

    Raises:
      ValueError: if there is none.
    """
    if not records:
        raise ValueError("want records to find the fastest draft of, got none")
    logs: dict[str, list[float]] = defaultdict(list)
    for record in records:
        logs[record.draft_name].append(math.log(record.speedup))
    return max(logs, key=lambda name: sum(logs[name]) / len(logs[name]))
