"""The paper's tables as HTML: measured figures with the paper's under them."""

import dataclasses
import html
import re
from collections.abc import Sequence

from spec_jax.core import paper, theory
from spec_jax.experiments.alpha_record import AlphaRecord
from spec_jax.experiments.record import Record
from spec_jax.reports import tables
from spec_jax.reports.alpha import RULE
from spec_jax.reports.results import Results, Row, draft_name, rows, setting
from spec_jax.reports.table2 import expected
from spec_jax.reports.tables import counted, filters

_IN_COLUMNS = re.compile(r"\w+ rule; (lengths [^;]*; )?batch \d+; ")


@dataclasses.dataclass(frozen=True)
class Cell:
    """What stands in a place of a table.

    Attributes:
      text: measured.
      paper: the paper's figure, under it; '' where it has none.
      under: another text under it.
      strong: whether it is what one looks for.
    """

    text: str
    paper: str = ""
    under: str = ""
    strong: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that scrolls by itself where it is too wide.

    Attributes:
      heading: above it; '' for none.
      headers: of the columns.
      rows: of cells or texts; a text alone is the heading of the rows after it.
      texts: how many columns, from the left, are words and not figures.
      notes: below it.
    """

    heading: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell | str, ...] | str, ...]
    texts: int = 1
    notes: tuple[str, ...] = ()


def markup(table: Table) -> str:
    """A table as HTML."""
    name = table.heading or f"{table.headers[0]} and more"
    parts = [f"<h3>{html.escape(table.heading)}</h3>"] if table.heading else []
    # A region that scrolls must be reachable by keyboard, and so have a name.
    parts.append(
        f'<div class="scroll" tabindex="0" role="region" '
        f'aria-label="{html.escape(name)}"><table><thead><tr>'
    )
    for i, header in enumerate(table.headers):
        left = ' class="text"' if i < table.texts else ""
        parts.append(f'<th scope="col"{left}>{html.escape(header)}</th>')
    parts.append("</tr></thead><tbody>")
    for row in table.rows:
        if isinstance(row, str):
            parts.append(
                f'<tr class="group"><th scope="rowgroup" class="text" '
                f'colspan="{len(table.headers)}">{html.escape(row)}</th></tr>'
            )
            continue
        cells = []
        for i, cell in enumerate(row):
            cell = cell if isinstance(cell, Cell) else Cell(cell)
            kind = "text" if i < table.texts else ""
            body = html.escape(cell.text)
            if cell.strong:
                body = f"<strong>{body}</strong>"
            if cell.paper:
                body += f'<span class="paper">paper {html.escape(cell.paper)}</span>'
            if cell.under:
                body += f'<span class="paper">{html.escape(cell.under)}</span>'
            cells.append(
                f'<td class="{kind}">{body}</td>' if kind else f"<td>{body}</td>"
            )
        parts.append(f"<tr>{''.join(cells)}</tr>")
    parts.append("</tbody></table></div>")
    if table.notes:
        items = "".join(f"<li>{html.escape(note)}</li>" for note in table.notes)
        parts.append(f'<ul class="notes">{items}</ul>')
    return "".join(parts)


def table_1() -> Table:
    """Table 1 and what theory.py computes."""
    lines = []
    for row in paper.TABLE_1:
        lines.append(
            (
                f"{row.alpha:g}",
                f"{row.gamma}",
                Cell(
                    f"{theory.operations(row.alpha, row.gamma, 0.0):.2f}",
                    f"{row.operations:.2f}",
                ),
                Cell(
                    f"{theory.expected_tokens(row.alpha, row.gamma):.2f}",
                    f"{row.speed:.2f}",
                ),
            )
        )
    return Table(
        "Table 1: a draft that costs nothing",
        ("alpha", "gamma", "operations", "speed"),
        tuple(lines),
        0,
    )


def table_4() -> Table:
    """The paper's Tables 2 and 4, with the formula from the printed alpha and c."""
    lines = []
    for row in paper.TABLE_2:
        computed = theory.speedup(row.alpha, row.gamma, row.c)
        lines.append(
            (
                row.task,
                row.draft,
                f"{row.temperature:g}",
                f"{row.gamma}",
                f"{row.alpha:.2f}",
                f"{row.c:.2f}",
                f"{row.speed:.1f}",
                Cell(f"{computed:.2f}", f"{row.expected:.1f}"),
            )
        )
    return Table(
        "Tables 2 and 4: T5 1.1 XXL on a TPU v4, as printed",
        ("task", "draft", "T", "gamma", "alpha", "c", "speed", "expected"),
        tuple(lines),
        2,
        (
            "Expected: theorem 3.8 from the printed alpha and c, which are rounded; "
            "so it may differ by 0.07.",
        ),
    )


def table_2(results: Results) -> list[Table]:
    """Measured rows, a table for each pair, machine and set of versions."""
    every = rows(results.records)
    found = []
    for place in dict.fromkeys(setting(row.record) for row in every):
        chosen = [row for row in every if setting(row.record) == place]
        chosen.sort(key=lambda row: _order(row.record))
        found.append(_table_2(chosen))
    return found


def _table_2(chosen: Sequence[Row]) -> Table:
    records = [row.record for row in chosen]
    plain = all(r.rule == "token" and r.lengths == "fixed" for r in records)
    with_t5x = any(r.baseline for r in records)
    headers = ["draft", "batch", "gamma", "speed"]
    headers += ["over t5x"] if with_t5x else []
    headers += [] if plain else ["rule"]
    headers += [
        "alpha",
        "c",
        "verify",
        "tokens/run",
        "expected",
        "formula",
        "identical",
        "plain, speculative",
    ]
    lines: list[tuple | str] = []
    for row in chosen:
        group = f"{row.record.task}, T = {row.record.temperature:g}"
        group += _after(filters(row.record.policy))
        if group not in lines:
            lines.append(group)
        lines.append(tuple(_cells(row, plain, with_t5x)))
    pair, device, threads, jax = setting(records[0])
    shown = "" if threads is None else f", {counted(threads, 'thread')}"
    return Table(
        f"{pair}, jax {jax}, {device}{shown}",
        tuple(headers),
        tuple(lines),
        1,
        _notes(records),
    )


def _after(text: str) -> str:
    """A text after others, where there is one."""
    return f", {text}" if text else ""


def _order(record: Record) -> tuple:
    """Rows that are compared stand together."""
    r = record
    kind = r.task, r.temperature, filters(r.policy)
    return *kind, r.batch, draft_name(r), r.gamma


def _notes(records: Sequence[Record]) -> tuple[str, ...]:
    """Those of the Markdown table; what the columns say is not said again."""
    notes = (note.removeprefix("- ") for note in tables.notes(records))
    shorter = (_IN_COLUMNS.sub("", note, count=1) for note in notes)
    return tuple(dict.fromkeys(shorter))


def _cells(row: Row, plain: bool, with_t5x: bool) -> list[Cell | str]:
    r = row.record
    known = paper.table2_row(r.task, draft_name(r), r.temperature)
    known = known if r.batch == 1 and r.lossless else None

    def printed(name, form):
        return format(getattr(known, name), form) if known else ""

    cells = dict(zip(tables.HEADERS, tables.rows([r])[0], strict=True))
    rule = r.rule if r.lenience is None else f"{r.rule} {r.lenience:g}"
    found: list[Cell | str] = [draft_name(r), f"{r.batch}"]
    found.append(Cell(cells["gamma"], printed("gamma", "d")))
    spread = f"{row.least:.2f} to {row.most:.2f}" if row.times > 1 else ""
    # The paper's is over t5x; that column has it where there is one.
    beside = "" if with_t5x else printed("speed", ".1f")
    if r.lenience is not None and r.batch == 1:
        place = r.task, draft_name(r), r.temperature, r.lenience
        lenient = paper.table5_speed(*place)
        beside = "" if lenient is None else f"{lenient:.1f}"
    found.append(Cell(cells["speed"], beside, spread, strong=True))
    if with_t5x:
        over = "-" if r.baseline is None else f"{r.baseline['speedup']:.2f}"
        found.append(Cell(over, printed("speed", ".1f")))
    if not plain:
        found.append(rule if r.lengths == "fixed" else f"{rule}, {r.lengths}")
    found += [
        Cell(cells["alpha"], printed("alpha", ".2f")),
        Cell(cells["c"], printed("c", ".2f")),
        cells["verify cost"],
        cells["tokens/run"],
        # The paper's, as its verification, costs one plain step.
        Cell(f"{expected(r):.2f}", printed("expected", ".1f")),
        cells["formula"],
        cells["identical"],
        Cell(cells["score plain"], under=cells["score spec"]),
    ]
    return found


def table_3(results: Results) -> list[Table]:
    """alpha by draft and temperature, a table for each way of measuring it."""
    groups = alphas_by_method([a for a in results.alphas if a.lenience == 1])
    return [_table_3(name, by_cell) for name, by_cell in groups.items()]


def alphas_by_method(lines: Sequence[AlphaRecord]) -> dict[str, dict]:
    """alpha by cell, the newest of each, and by what may not be mixed in a table.

    That is filters, dtype, machine and jax; a draft of several pairs is told apart by
    the pair's name.
    """
    several: dict[tuple, set[str]] = {}
    for line in lines:
        several.setdefault((line.task, line.draft_name), set()).add(line.pair)
    found: dict[str, dict] = {}
    for line in sorted(lines, key=lambda line: line.date):
        name = _after(filters(line.policy))
        jax = line.versions.get("jax", "?")
        name = f"{line.dtype}, jax {jax}, {line.device}{name}"
        draft = line.draft_name
        if len(several[line.task, draft]) > 1:
            draft += f", {line.pair}"
        cell = (line.task, draft, line.temperature, line.lenience)
        found.setdefault(name, {})[cell] = line
    return found


def _table_3(name: str, by_cell) -> Table:
    temperatures = sorted({a.temperature for a in by_cell.values()})
    lines = []
    for task, draft in sorted(
        dict.fromkeys(cell[:2] for cell in by_cell), key=lambda place: place[0]
    ):
        if task not in lines:
            lines.append(task)
        cells: list[Cell | str] = [draft]
        for t in temperatures:
            printed = paper.table3_alpha(task, draft.partition(", ")[0], t)
            cells.append(_alpha(by_cell.get((task, draft, t, 1.0)), printed))
        lines.append(tuple(cells))
    headers = ("draft", *(f"T = {t:g}" for t in temperatures))
    return Table(name, headers, tuple(lines), 1, _alpha_notes(by_cell))


def table_5(results: Results) -> list[Table]:
    """alpha by lenience, a table for each way of measuring it."""
    groups = alphas_by_method(results.alphas)
    return [
        _table_5(name, by_cell)
        for name, by_cell in groups.items()
        if any(cell[-1] < 1 for cell in by_cell)
    ]


def _table_5(name: str, by_cell) -> Table:
    leniences = sorted({cell[-1] for cell in by_cell}, reverse=True)
    lines = []
    places = [(task, t, draft) for task, draft, t, l in by_cell if l < 1]
    for task, t, draft in sorted(dict.fromkeys(places), key=lambda place: place[:2]):
        group = f"{task}, T = {t:g}"
        if group not in lines:
            lines.append(group)
        cells: list[Cell | str] = [draft]
        for l in leniences:
            printed = paper.table5_alpha(task, draft.partition(", ")[0], t, l)
            cells.append(_alpha(by_cell.get((task, draft, t, l)), printed))
        lines.append(tuple(cells))
    headers = ("draft", *(f"l = {l:g}" for l in leniences))
    notes = (
        RULE.removeprefix("- "),
        *_alpha_notes(by_cell),
    )
    return Table(name, headers, tuple(lines), 1, notes)


def _alpha(line, printed: float | None) -> Cell:
    if line is None:
        return Cell("-", "" if printed is None else f"{printed:.2f}")
    error = "" if line.alpha_stderr is None else f" ± {line.alpha_stderr:.3f}"
    return Cell(f"{line.alpha:.3f}{error}", "" if printed is None else f"{printed:.2f}")


def _alpha_notes(by_cell) -> tuple[str, ...]:
    lines = by_cell.values()
    tokens = [line.tokens for line in lines]
    pairs = ", ".join(dict.fromkeys(line.pair for line in lines))
    count = f"{min(tokens):,}"
    if max(tokens) > min(tokens):
        count += f" to {max(tokens):,}"
    return (f"On {count} tokens that the target generated; {pairs}.",)


def _choice_order(line) -> tuple:
    return line.task, line.temperature, filters(line.policy)


def choices(results: Results) -> Table | None:
    """What `choose-gamma` found."""
    if not results.choices:
        return None
    lines = []
    for c in sorted(results.choices, key=_choice_order):
        group = f"{c.task}, T = {c.temperature:g}" + _after(filters(c.policy))
        if group not in lines:
            lines.append(group)
        error = "" if c.alpha_stderr is None else f" ± {c.alpha_stderr:.3f}"
        interval = "-"
        if c.speed_low is not None:
            interval = f"{c.speed_low:.2f} to {c.speed_high:.2f}"
        verify = c.verify_costs[c.best]
        lines.append(
            (
                draft_name(c),
                f"{c.batch}",
                f"{c.gamma}" if c.gamma else f"none pays ({c.best})",
                Cell(f"{c.speeds[c.best]:.2f}", strong=True),
                interval,
                f"{c.alpha:.3f}{error}",
                f"{c.c:.3f}",
                f"{verify:.2f}",
            )
        )
    headers = (
        "draft",
        "batch",
        "gamma",
        "expected",
        "95% interval",
        "alpha",
        "c",
        "verify",
    )
    notes = (
        "Where none pays, the figures are of the gamma in brackets, the least slow.",
    )
    unpaid = any(not c.gamma for c in results.choices)
    return Table(
        "The gamma that pays", headers, tuple(lines), 1, notes if unpaid else ()
    )


def best(records: Sequence[Record]) -> list[Record]:
    """The fastest lossless row at batch 1 of each task and temperature."""
    found: dict[tuple, Record] = {}
    for row in rows([r for r in records if r.batch == 1 and r.lossless]):
        r = row.record
        place = (r.task, r.temperature, filters(r.policy))
        if place not in found or r.speedup > found[place].speedup:
            found[place] = r
    return list(found.values())
