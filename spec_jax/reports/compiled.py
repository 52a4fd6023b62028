"""A picture of Table 2 by programs that were compiled for a chip, and the paper's."""

from collections.abc import Sequence

from spec_jax.reports.axes import SIZE, WIDTH, Scale, key, round_up, ticks
from spec_jax.reports.compile import Prediction, predictions
from spec_jax.reports.drawing import Box, Drawing, Label, Line, Marker
from spec_jax.reports.figures import Picture, Styles, slug
from spec_jax.reports.results import Results

CAPTION = (
    "The paper's alpha and gamma, costs of the compiled programs. Bars end where the "
    "chip's peak does, markers where the compiler's cycles are counted too. Diamonds: "
    "what the paper measured."
)
_LEFT, _TOP, _HEIGHT = 92.0, 26.0, 22.0


def by_compiler(results: Results, style: Styles) -> list[Picture]:
    """A picture for each chip and task."""
    every = predictions(results.compiled)
    places = dict.fromkeys((one.chips, one.row.task) for one in every)
    return [
        Picture(
            f"compiled-{slug(chips)}-{slug(task)}",
            f"{task} on TPU {chips}",
            CAPTION,
            _speeds(
                f"Table 2 compiled for TPU {chips}, {task}",
                [o for o in every if (o.chips, o.row.task) == (chips, task)],
                style,
            ),
        )
        for chips, task in places
    ]


def _speeds(title: str, chosen: Sequence[Prediction], style: Styles) -> Drawing:
    peak = {one.row: one for one in chosen if one.by == "peak"}
    likely = {one.row: one for one in chosen if one.by == "likely"}
    high = round_up(max(max(one.speed, one.row.speed) for one in chosen))
    scale = Scale(0, high, _LEFT + 10, WIDTH - 52)
    shapes: list = []
    y, last = _TOP, None
    bottom = _TOP + _HEIGHT * (len(peak) + len({row.temperature for row in peak}))
    for value in ticks(0, high, 6):
        line = ((scale(value), _TOP), (scale(value), bottom))
        shapes.append(Line(line, "ink" if value == 1 else "grid", 1))
        x = scale(value)
        shapes.append(Label(x, bottom + 16, f"{value:g}×", "muted", "middle", SIZE - 1))
    x = scale(1)
    shapes.append(Label(x, _TOP - 8, "plain decoding", "ink", "middle", SIZE - 1))
    for row in sorted(peak, key=lambda row: row.temperature):
        if row.temperature != last:
            head = f"T = {row.temperature:g}"
            shapes.append(Label(8, y + 16, head, "ink", size=SIZE, bold=True))
            y, last = y + _HEIGHT, row.temperature
        middle, name = y + _HEIGHT / 2, f"{row.draft}, γ {row.gamma}"
        shapes.append(Label(_LEFT, middle + 4, name, "ink", "end", SIZE))
        role, at = style.role(row.draft), peak[row]
        said = f"{name}, by the chip's peak: {at.speed:.1f}, c {at.c:.3f}"
        width = scale(at.speed) - scale(0)
        shapes.append(Box(scale(0), middle - 4, width, 8, role, 0.35, said))
        known = f"the paper measured {row.speed:g}"
        x = scale(row.speed)
        shapes.append(Marker(x, middle, "diamond", "muted", False, 6, known))
        if row in likely:
            at = likely[row]
            said = f"{name}, with the compiler's cycles: {at.speed:.1f}, c {at.c:.3f}"
            marker = {**style(row.draft), "size": 4.5, "tip": said}
            shapes.append(Marker(scale(at.speed), middle, **marker))
        value = f"{at.speed:.1f}×"
        shapes.append(
            Label(WIDTH - 6, middle + 4, value, "ink", "end", SIZE, bold=True)
        )
        y += _HEIGHT
    paper = {"shape": "diamond", "role": "muted", "filled": False}
    legend = [*style.legend([row.draft for row in peak]), (paper, "paper, measured")]
    below = key(legend, 8, bottom + 40, WIDTH - 8)
    end = max(shape.y for shape in below) + 14
    return Drawing(WIDTH, end, (*shapes, *below), title)
