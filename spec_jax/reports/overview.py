"""Every draft's speed over plain decoding, the formula's and the paper's beside it."""

from collections.abc import Sequence

from spec_jax.core import paper
from spec_jax.experiments.record import Record
from spec_jax.reports.axes import SIZE, WIDTH, Scale, key, round_up, ticks
from spec_jax.reports.drawing import (
    Box,
    Drawing,
    Label,
    Line,
    Marker,
    fitted,
    text_width,
)
from spec_jax.reports.figures import Picture, Styles, slug
from spec_jax.reports.results import Results, Row, choice, draft_name, rows


def overview(results: Results, style: Styles) -> list[Picture]:
    """Speed of every draft by its fastest gamma, batch 1, a picture for each task."""
    every = [row for row in rows(results.records) if row.record.batch == 1]
    found = []
    for task in sorted({row.record.task for row in every}):
        own = [row for row in every if row.record.task == task]
        records = [row.record for row in own]
        best: dict[tuple, Row] = {}
        for row in own:
            place = row.record.temperature, _name(row.record, records, gamma=False)
            if place not in best or row.record.speedup > best[place].record.speedup:
                best[place] = row
        chosen = sorted(
            best.values(), key=lambda r: (r.record.temperature, -r.record.speedup)
        )
        drawing = _speeds(task, chosen, records, style)
        found.append(Picture(f"speed-{slug(task)}", task, SPEEDS, drawing))
    return found


SPEEDS = (
    "Batch 1, each draft by its fastest gamma. Filled: tokens a second over plain "
    "decoding's, starts of texts included; a bar spans repeated runs. Rings: theorem "
    "3.8 with measured alpha, c and cost of verification. Diamonds: the paper's "
    "speed with T5-XXL on a TPU."
)


def _speeds(task, chosen: Sequence[Row], every: Sequence[Record], style) -> Drawing:
    """The rows of one task, by temperature."""
    records = [row.record for row in chosen]
    shown = [paper.table2_row(r.task, draft_name(r), r.temperature) for r in records]
    names = [fitted(_name(r, every), SIZE, 220) for r in records]
    largest = max(r.speedup_formula for r in records)
    largest = max([largest, 1.5, *(row.most for row in chosen)])
    high = round_up(max([largest, *(row.speed for row in shown if row)]))
    left = min(16 + max(text_width(name, SIZE) for name in names), 230.0)
    scale = Scale(0, high, left + 10, WIDTH - 62)
    top, height = 26.0, 25.0
    shapes: list = []
    y, last = top, None
    places = []
    for record in records:
        if record.temperature != last:
            places.append((y + 12, f"T = {record.temperature:g}"))
            y, last = y + height + 4, record.temperature
        places.append((y + 10, None))
        y += height
    for value in ticks(0, high, max(2, int((WIDTH - 72 - left) / 50))):
        x, one = scale(value), value == 1
        line = ((x, top), (x, y))
        shapes.append(Line(line, "ink" if one else "grid", 1.4 if one else 1))
        shapes.append(Label(x, y + 16, f"{value:g}×", "muted", "middle", SIZE - 1))
    shapes.append(Label(scale(1), top - 8, "plain decoding", "ink", "middle", SIZE - 1))
    at = iter(zip(chosen, records, shown, names, strict=True))
    for y_row, head in places:
        if head:
            shapes.append(Label(8, y_row + 4, head, "ink", size=SIZE, bold=True))
            continue
        row, record, known, name = next(at)
        role = style.role(draft_name(record))
        shapes.append(Label(left, y_row + 4, name, "ink", "end", SIZE))
        if row.most > row.least:
            width = scale(row.most) - scale(row.least)
            shapes.append(Box(scale(row.least), y_row - 2, width, 4, role, 0.45))
        tip = (
            f"{task}, {name}, T = {record.temperature:g}: {record.speedup:.2f} times "
            f"plain decoding, formula {record.speedup_formula:.2f}"
        )
        ring = scale(record.speedup_formula)
        shapes.append(Marker(ring, y_row, "circle", "muted", False, 4, tip))
        if known:
            said = f"paper: {known.speed:g} with T5-XXL"
            x = scale(known.speed)
            shapes.append(Marker(x, y_row, "diamond", "muted", False, 4, said))
        marker = {**style(draft_name(record)), "size": 5.5, "tip": tip}
        shapes.append(Marker(scale(record.speedup), y_row, **marker))
        value = f"{record.speedup:.2f}×"
        shapes.append(Label(WIDTH - 6, y_row + 4, value, "ink", "end", SIZE, bold=True))
    legend = style.legend([draft_name(r) for r in records])
    outline = {"role": "muted", "filled": False}
    legend.append(({"shape": "circle", **outline}, "formula"))
    if any(shown):
        legend.append(({"shape": "diamond", **outline}, "paper"))
    below = key(legend, 8, y + 40, WIDTH - 8)
    end = max(shape.y for shape in below) + 14
    title = f"Speed over plain decoding, {task}"
    return Drawing(WIDTH, end, (*shapes, *below), title)


def _name(record: Record, every: Sequence[Record], gamma: bool = True) -> str:
    """A row's name: its draft, gamma, and what it takes to tell it from others."""
    name = draft_name(record)
    if gamma:
        name += f", γ {record.gamma}"
    if record.rule != "token":
        name += f", {record.rule}"
        name += "" if record.lenience is None else f" {record.lenience:g}"
    if record.lengths != "fixed":
        name += f", {record.lengths}"
    others = [r for r in every if choice(r)[:8] == choice(record)[:8]]
    for told in (_jax, lambda r: r.pair, lambda r: r.dtype, lambda r: r.device):
        if len({told(r) for r in others}) > 1:
            name += f", {told(record)}"
            others = [r for r in others if told(r) == told(record)]
    return name


def _jax(record: Record) -> str:
    """The first two numbers of jax's version."""
    version = record.versions.get("jax", "?")
    return f"jax {'.'.join(version.split('.')[:2])}"
