"""A chart's frame: scales, ticks, and curves that carry their names."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from spec_jax.reports.drawing import (
    Box,
    Drawing,
    Label,
    Line,
    Marker,
    fitted,
    text_width,
)

WIDTH, HEIGHT = 420.0, 320.0
"""Of a chart: a phone shows it whole, and its letters stay readable."""
SIZE = 13.0
"""Of letters."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """Values to pixels.

    Attributes:
      low: value at `start`.
      high: value at `end`.
      start: pixel.
      end: pixel.
      log: whether equal factors are equal lengths.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; values outside are put on the edge."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.log:
            value, low, high = map(math.log, (value, low, high))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


@dataclasses.dataclass(frozen=True)
class Chart:
    """A frame that shapes are put into.

    Attributes:
      x: of values from left to right.
      y: of values from bottom to top.
      x_ticks: values with a label.
      y_ticks: values with a label and a line.
      x_name: of the axis, with its unit.
      y_name: the same.
      title: of the drawing.
      height: of the drawing.
      tick_names: labels of x_ticks; () writes the values.
    """

    x: Scale
    y: Scale
    x_ticks: tuple[float, ...]
    y_ticks: tuple[float, ...]
    x_name: str
    y_name: str
    title: str
    height: float = HEIGHT
    tick_names: tuple[str, ...] = ()

    def frame(self) -> list:
        """The lines of the values, the ticks' and the axes' names."""
        left, right, bottom = self.x.start, self.x.end, self.y.start
        shapes: list = []
        for value in self.y_ticks:
            at = self.y(value)
            shapes.append(Line(((left, at), (right, at)), "grid", 1))
            name = f"{value:g}"
            shapes.append(Label(left - 6, at + 4, name, "muted", "end", SIZE - 1))
        names = self.tick_names or tuple(f"{value:g}" for value in self.x_ticks)
        for value, name in zip(self.x_ticks, names, strict=True):
            at = self.x(value)
            shapes.append(Line(((at, bottom), (at, bottom + 4)), "muted", 1))
            shapes.append(Label(at, bottom + 17, name, "muted", "middle", SIZE - 1))
        shapes.append(Line(((left, bottom), (right, bottom)), "muted", 1))
        middle = (left + right) / 2
        shapes.append(Label(middle, bottom + 35, self.x_name, "ink", "middle", SIZE))
        # Above the axis and level: nobody turns their head.
        shapes.append(Label(8, self.y.end - 14, self.y_name, "ink", "start", SIZE))
        return shapes

    def curve(self, points: Sequence[tuple[float, float]], role="s1", **options):
        """A line through values, broken off where it leaves the frame at the top."""
        top = self.y.high
        inside: list[tuple[float, float]] = []
        for (x, y), (x_next, y_next) in itertools.pairwise([*points, points[-1]]):
            if y <= top:
                inside.append((x, y))
            if (y - top) * (y_next - top) < 0:
                at = x + (top - y) / (y_next - y) * (x_next - x)
                inside.append((at, top))
        return Line(tuple((self.x(x), self.y(y)) for x, y in inside), role, **options)

    def point(self, x: float, y: float, **options) -> Marker:
        """A measured value."""
        return Marker(self.x(x), self.y(y), **options)

    def error(self, x: float, y: float, stderr: float | None, role: str) -> list:
        """A level bar of one standard error to each side of x."""
        if not stderr:
            return []
        ends = tuple((self.x(at), self.y(y)) for at in (x - stderr, x + stderr))
        return [Line(ends, role, 1.2)]

    def upright_error(self, x: float, y: float, stderr, role: str) -> list:
        """The same, upright, to each side of y."""
        if not stderr:
            return []
        ends = tuple((self.x(x), self.y(at)) for at in (y - stderr, y + stderr))
        return [Line(ends, role, 1.2)]

    def drawing(self, shapes: Sequence, legend: Sequence = ()) -> Drawing:
        """The chart with shapes in it, and a legend below."""
        below = key(legend, 8, self.y.start + 58, WIDTH - 8)
        last = max(
            (s.y for s in below if isinstance(s, Label)), default=self.y.start + 34
        )
        every = (*self.frame(), *shapes, *below)
        return Drawing(WIDTH, last + 12, every, self.title)


def chart(
    x: tuple[float, float],
    y: tuple[float, float],
    x_name: str,
    y_name: str,
    title: str,
    *,
    x_ticks: Sequence[float] | None = None,
    y_ticks: Sequence[float] | None = None,
    tick_names: Sequence[str] = (),
    x_log: bool = False,
    y_log: bool = False,
    height: float = HEIGHT,
    right: float = 16,
) -> Chart:
    """A frame for values between the given ends.

    Args:
      x: least and largest value.
      y: the same.
      x_name: of the axis.
      y_name: of the axis.
      title: of the drawing.
      x_ticks: None chooses round ones.
      y_ticks: the same.
      tick_names: labels of x_ticks.
      x_log: see `Scale`.
      y_log: see `Scale`.
      height: without a legend.
      right: pixels kept free for names at the ends of curves.
    """
    return Chart(
        Scale(*x, 40, WIDTH - right, x_log),
        Scale(*y, height - 50, 36, y_log),
        tuple(ticks(*x) if x_ticks is None else x_ticks),
        tuple(ticks(*y) if y_ticks is None else y_ticks),
        x_name,
        y_name,
        title,
        height,
        tuple(tick_names),
    )


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values between two ends."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def round_up(value: float) -> float:
    """The next tick at or above a value, as the end of an axis from 0."""
    step = ticks(0, value)[1]
    return math.ceil(value / step - 1e-9) * step


def key(entries: Sequence, x: float, y: float, right: float) -> list:
    """A legend: (marker's options or line's, name) one after another, in rows."""
    shapes: list = []
    left = x
    for options, name in entries:
        name = fitted(name, SIZE, 220)
        width = 26 + text_width(name, SIZE) + 10
        if x + width > right + 10 and x > left:
            x, y = left, y + 20
        kind = options.get("kind", "marker")
        rest = {name: value for name, value in options.items() if name != "kind"}
        if kind == "line":
            shapes.append(Line(((x, y), (x + 18, y)), **rest))
        elif kind == "box":
            shapes.append(Box(x, y - 6, 16, 12, **rest))
        else:
            shapes.append(Marker(x + 9, y, **rest))
        shapes.append(Label(x + 24, y + 4, name, "ink", "start", SIZE))
        x += width
    return shapes


def beside(places: Sequence[tuple[float, float]], names: Sequence[str]) -> list:
    """Small names at points, left out where there is no room.

    Args:
      places: pixels of the points.
      names: as many; '' for none.
    """
    size, high = 10.0, 9.0
    taken = [(x, y, 10.0) for x, y in places]  # middles and widths
    shapes: list = []
    for (x, y), name in zip(places, names, strict=True):
        if not name:
            continue
        wide = text_width(name, size)
        away = 8 + wide / 2
        for across, down in (
            *((away, 8), (away, -8), (-away, -8), (-away, 8)),
            *((away + 3, 0), (-away - 3, 0), (0, -12), (0, 14)),
        ):
            at, level = x + across, y + down
            if all(
                abs(at - a) > (wide + w) / 2 + 1 or abs(level - b) > high
                for a, b, w in taken
            ):
                taken.append((at, level, wide))
                shapes.append(Label(at, level + 3.5, name, "ink", "middle", size))
                break
    return shapes
