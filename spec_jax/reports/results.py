"""Result files read back: every known form of line, and what was passed over."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from spec_jax.experiments.alpha_record import AlphaRecord
from spec_jax.experiments.choice import Choice
from spec_jax.experiments.compare import CompareRecord
from spec_jax.experiments.record import JsonLine, Record
from spec_jax.experiments.rules import BlockGain, BranchGain
from spec_jax.experiments.sweep import SweepRecord
from spec_jax.experiments.tpu_compile import CompileRecord
from spec_jax.experiments.trace import TraceRecord
from spec_jax.reports.tables import filters

KINDS: dict[str, type[JsonLine]] = {
    "alpha": AlphaRecord,
    "choice": Choice,
    "trace": TraceRecord,
    "compile": CompileRecord,
}
"""Forms of line that say what they are."""
FORMS: dict[str, type[JsonLine]] = {
    "speedup_formula": Record,
    "modelled": SweepRecord,
    "slowest": CompareRecord,
    "block": BlockGain,
    "branches": BranchGain,
}
"""Those that do not, by a field that no other has."""


@dataclasses.dataclass(frozen=True)
class Results:
    """Lines by form, oldest first.

    Attributes:
      records: of `evaluate` and `table2`.
      alphas: of `alpha` and `lenience`.
      choices: of `choose-gamma` and `table2`.
      traces: of `trace`.
      sweeps: of `sweep`.
      compiled: of `compile`.
      others: of forms that no table or picture is made of.
      files: that lines were read from.
      notes: what was passed over, a sentence each.
    """

    records: tuple[Record, ...] = ()
    alphas: tuple[AlphaRecord, ...] = ()
    choices: tuple[Choice, ...] = ()
    traces: tuple[TraceRecord, ...] = ()
    sweeps: tuple[SweepRecord, ...] = ()
    compiled: tuple[CompileRecord, ...] = ()
    others: tuple[JsonLine, ...] = ()
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_results(paths: Sequence[str | pathlib.Path]) -> Results:
    """Reads files, and of folders every *.jsonl with known lines.

    A file that is named has to be known; in a folder a foreign one becomes a note, as
    half a line does, which a kill leaves.

    Raises:
      ValueError: if there is nothing to read, or a line of a known file is wrong.
    """
    lines: list[JsonLine] = []
    files: list[str] = []
    notes: list[str] = []
    for path, named in _files(paths):
        found, said = _read(path, named)
        lines += found
        notes += said
        if found and str(path) not in files:
            files.append(str(path))
    if not lines:
        where = ", ".join(map(str, paths))
        raise ValueError(f"want result lines, got none in {where}: {_MAKE}")
    shown = {
        "records": Record,
        "alphas": AlphaRecord,
        "choices": Choice,
        "traces": TraceRecord,
        "sweeps": SweepRecord,
        "compiled": CompileRecord,
    }
    by_form = {
        name: tuple(line for line in lines if type(line) is form)
        for name, form in shown.items()
    }
    others = tuple(line for line in lines if type(line) not in shown.values())
    for form in dict.fromkeys(type(line).__name__ for line in others):
        count = sum(type(line).__name__ == form for line in others)
        notes.append(
            f"{count} lines of the form {form} are in no table here; "
            "`spec-jax sweep` and `spec-jax compare` print theirs"
        )
    return Results(**by_form, others=others, files=tuple(files), notes=tuple(notes))


_MAKE = "`spec-jax evaluate` makes some"


def _files(paths) -> list[tuple[pathlib.Path, bool]]:
    """(file, whether it was named itself), each once."""
    found: dict[pathlib.Path, bool] = {}
    for given in paths:
        path = pathlib.Path(given)
        if path.is_dir():
            inside = sorted(path.glob("*.jsonl"))
            if not inside:
                raise ValueError(f"want *.jsonl files in {path}, got none: {_MAKE}")
            for file in inside:
                found.setdefault(file, False)
        else:
            found[path] = True
    # By another name it is the same file, and measured once.
    real: dict[pathlib.Path, tuple[pathlib.Path, bool]] = {}
    for path, named in found.items():
        before = real.setdefault(path.resolve(), (path, named))
        real[path.resolve()] = (before[0], before[1] or named)
    return list(real.values())


def _read(path: pathlib.Path, named: bool) -> tuple[list[JsonLine], list[str]]:
    """A file's lines and notes.

    Raises:
      ValueError: see `read_results`.
    """
    try:
        texts = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ValueError(f"cannot read {path}: {reason}") from None
    lines: list[JsonLine] = []
    cut: list[str] = []  # what a kill leaves, before the lines of the next run
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        place = f"{path}, line {number}"
        try:
            fields = json.loads(text)
        except json.JSONDecodeError:
            if text.startswith("{"):
                cut.append(f"{place} is cut off and was passed over")
                continue
            fields = None
        form = _form(fields)
        if form is None:
            said = f"{place}: want a line of spec_jax's results, got {text[:60]!r}"
            if named or lines:
                raise ValueError(f"{said}: {_MAKE}")
            return [], [f"{path} holds no lines of results and was passed over"]
        try:
            lines.append(form.from_json(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{place}: {error}") from None
    if not lines:
        if named:
            raise ValueError(f"want result lines in {path}, got none: {_MAKE}")
        return [], [f"{path} holds no whole line and was passed over"]
    return lines, cut


def _form(fields) -> type[JsonLine] | None:
    if not isinstance(fields, dict):
        return None
    if "kind" in fields:
        return KINDS.get(fields["kind"]) if isinstance(fields["kind"], str) else None
    return next((form for name, form in FORMS.items() if name in fields), None)


def draft_name(line) -> str:
    """How tables call a line's draft: its size, else its kind."""
    return getattr(line, "draft_name", "") or line.draft


@dataclasses.dataclass(frozen=True)
class Row:
    """What was measured several times under one setting.

    Attributes:
      record: the one with the median speed.
      times: how often it was measured.
      least: the least speed.
      most: the largest.
    """

    record: Record
    times: int
    least: float
    most: float


def rows(records: Sequence[Record]) -> list[Row]:
    """Records of one setting as one row, in the order in which they came."""
    groups: dict[tuple, list[Record]] = {}
    for record in records:
        groups.setdefault((*setting(record), *choice(record)), []).append(record)
    found = []
    for group in groups.values():
        group.sort(key=lambda record: record.speedup)
        speeds = [record.speedup for record in group]
        middle = group[(len(group) - 1) // 2]
        found.append(Row(middle, len(group), speeds[0], speeds[-1]))
    return found


def setting(record: Record) -> tuple:
    """What a table's rows share: pair, machine, jax."""
    jax = record.versions.get("jax", "?")
    return (record.pair, record.device, record.cpu_threads, jax)


def choice(record: Record) -> tuple:
    """What tells the rows of a table apart."""
    return (
        record.task,
        draft_name(record),
        record.temperature,
        record.gamma,
        record.batch,
        record.rule,
        record.lenience,
        record.lengths,
        record.dtype,
        record.plain_dtype,
        record.num_examples,
        filters(record.policy),
    )
