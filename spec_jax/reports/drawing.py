"""Pictures as lists of shapes, and their SVG: one that is right in light and dark."""

import dataclasses
import html
from collections.abc import Sequence

LIGHT = {
    "ground": "#ffffff",
    "ink": "#1c2024",
    "muted": "#5c656e",
    "grid": "#dfe3e7",
    "s1": "#0072b2",
    "s2": "#c04f00",
    "s3": "#007a5a",
    "s4": "#9a4680",
    "s5": "#876800",
    "s6": "#3f4852",
}
"""Colours by role. s1 to s6 keep the hues of Okabe and Ito's set, which people with
any colour vision tell apart, darkened until text in them is readable."""
DARK = {
    "ground": "#15191d",
    "ink": "#e9edf0",
    "muted": "#a3adb6",
    "grid": "#343b42",
    "s1": "#56b4e9",
    "s2": "#ff8f4d",
    "s3": "#2fc79b",
    "s4": "#e3a0ca",
    "s5": "#e9c63b",
    "s6": "#c3ccd4",
}
SERIES = ("s1", "s2", "s3", "s4", "s5", "s6")
MARKERS = ("circle", "square", "up", "down", "right", "left")
"""One for each series, so that colour says nothing alone; 'diamond' is the paper's."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
MONO_WIDTH = 0.602
"""Of a letter of a monospaced font, in font sizes."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A line through points.

    Attributes:
      points: (x, y) from the top left corner.
      role: of its colour.
      width: in pixels.
      dash: lengths on and off; () is solid.
    """

    points: tuple[tuple[float, float], ...]
    role: str = "ink"
    width: float = 1.5
    dash: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Box:
    """A filled rectangle.

    Attributes:
      x: of the left edge.
      y: of the upper edge.
      width: in pixels.
      height: in pixels.
      role: of its colour.
      opacity: 0 to 1.
      tip: shown where a mouse rests on it; said elsewhere too.
    """

    x: float
    y: float
    width: float
    height: float
    role: str
    opacity: float = 1.0
    tip: str = ""


@dataclasses.dataclass(frozen=True)
class Marker:
    """A measured point.

    Attributes:
      x: of its middle.
      y: of its middle.
      shape: of `MARKERS`, or diamond.
      role: of its colour.
      filled: or an outline.
      size: half its width.
      tip: see `Box`.
    """

    x: float
    y: float
    shape: str = "circle"
    role: str = "s1"
    filled: bool = True
    size: float = 4.5
    tip: str = ""


@dataclasses.dataclass(frozen=True)
class Label:
    """A line of text.

    Attributes:
      x: of its anchor.
      y: of its base line.
      text: of it.
      role: of its colour.
      anchor: start, middle or end.
      size: of the font.
      bold: its weight.
      mono: whether all letters are as wide.
      turned: whether it reads upwards.
    """

    x: float
    y: float
    text: str
    role: str = "ink"
    anchor: str = "start"
    size: float = 12.0
    bold: bool = False
    mono: bool = False
    turned: bool = False


Shape = Line | Box | Marker | Label


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A picture.

    Attributes:
      width: in pixels.
      height: in pixels.
      shapes: the later ones lie above.
      title: what it is, for who cannot see it.
    """

    width: float
    height: float
    shapes: tuple[Shape, ...]
    title: str


def svg(drawing: Drawing, alone: bool = False) -> str:
    """A picture as SVG.

    Args:
      drawing: of it.
      alone: whether it is a file, which has its own colours, or part of a page that
        has `colors` in its style.
    """
    size = f'viewBox="0 0 {drawing.width:g} {drawing.height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"'
    if alone:
        head += f' width="{drawing.width:g}" height="{drawing.height:g}"'
    else:  # letters may grow a little, not become headlines
        head += f' style="max-width:{1.15 * drawing.width:.0f}px"'
    parts = [f"{head}>", f"<title>{html.escape(drawing.title)}</title>"]
    if alone:
        parts.append(f"<style>{colors(':root')}{rules()}</style>")
        parts.append('<rect width="100%" height="100%" class="f-ground"/>')
    parts += [_shape(shape) for shape in drawing.shapes]
    return "\n".join([*parts, "</svg>"]) + "\n"


def headed(drawing: Drawing, text: str) -> Drawing:
    """A picture with a line above it that says what it shows."""
    high = 30.0
    moved: list[Shape] = [Label(8, 22, text, "ink", size=15, bold=True)]
    for shape in drawing.shapes:
        if isinstance(shape, Line):
            points = tuple((x, y + high) for x, y in shape.points)
            moved.append(dataclasses.replace(shape, points=points))
        else:
            moved.append(dataclasses.replace(shape, y=shape.y + high))
    width = max(drawing.width, text_width(text, 15) * 1.1 + 16)
    return Drawing(width, drawing.height + high, tuple(moved), drawing.title)


def colors(selector: str) -> str:
    """CSS variables with the colours, by what the reader prefers."""
    light, dark = (
        ";".join(f"--{role}:{color}" for role, color in palette.items())
        for palette in (LIGHT, DARK)
    )
    return (
        f"{selector}{{{light}}}"
        f"@media(prefers-color-scheme:dark){{{selector}{{{dark}}}}}"
    )


def rules() -> str:
    """CSS classes of the shapes."""
    found = [
        f".f-{role}{{fill:var(--{role})}}"
        f".l-{role}{{stroke:var(--{role});fill:none;stroke-linejoin:round}}"
        for role in LIGHT
    ]
    found.append(f"svg text{{font-family:{FONT}}}svg .mono{{font-family:{MONO}}}")
    return "".join(found)


def text_width(text: str, size: float) -> float:
    """About how wide a line of text comes out."""
    return 0.56 * size * len(text)


def fitted(text: str, size: float, width: float) -> str:
    """A text, cut where it would be wider than it may."""
    most = max(1, int(width / text_width("x", size)))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def marker_points(shape: str, x: float, y: float, size: float):
    """The corners of a marker that is no circle."""
    if shape == "square":
        corners = [(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)]
    elif shape == "diamond":
        corners = [(0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)]
    else:
        corners = [(0, -1.15), (1.15, 0.9), (-1.15, 0.9)]  # up
        if shape == "down":
            corners = [(-a, -b) for a, b in corners]
        elif shape == "right":
            corners = [(-b, a) for a, b in corners]
        elif shape == "left":
            corners = [(b, -a) for a, b in corners]
    return [(x + size * a, y + size * b) for a, b in corners]


def _shape(shape: Shape) -> str:
    if isinstance(shape, Line):
        dash = " ".join(f"{x:g}" for x in shape.dash)
        return (
            f'<polyline class="l-{shape.role}" stroke-width="{shape.width:g}" '
            + (f'stroke-dasharray="{dash}" ' if dash else "")
            + f'points="{_points(shape.points)}"/>'
        )
    if isinstance(shape, Box):
        fade = "" if shape.opacity == 1 else f' fill-opacity="{shape.opacity:g}"'
        return (
            f'<rect class="f-{shape.role}"{fade} x="{shape.x:.1f}" y="{shape.y:.1f}" '
            f'width="{shape.width:.1f}" height="{shape.height:.1f}">'
            f"{_tip(shape.tip)}</rect>"
        )
    if isinstance(shape, Label):
        return _label(shape)
    return _marker(shape)


def _marker(shape: Marker) -> str:
    if shape.filled:
        style = f'class="f-{shape.role}" stroke="var(--ground)" stroke-width="1"'
    else:
        style = f'class="l-{shape.role}" style="fill:var(--ground)" stroke-width="1.8"'
    if shape.shape == "circle":
        body = f'<circle cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.size:g}"/>'
    else:
        corners = marker_points(shape.shape, shape.x, shape.y, shape.size)
        body = f'<polygon points="{_points(corners)}"/>'
    return f"<g {style}>{_tip(shape.tip)}{body}</g>"


def _label(shape: Label) -> str:
    style = f'class="f-{shape.role}{" mono" if shape.mono else ""}"'
    if shape.anchor != "start":
        style += f' text-anchor="{shape.anchor}"'
    if shape.bold:
        style += ' font-weight="600"'
    if shape.turned:
        style += f' transform="rotate(-90 {shape.x:.1f} {shape.y:.1f})"'
    if shape.mono:  # the same place with any font
        length = MONO_WIDTH * shape.size * len(shape.text)
        style += f' textLength="{length:.1f}" style="white-space:pre"'
    return (
        f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size:g}" '
        f"{style}>{html.escape(shape.text)}</text>"
    )


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _tip(text: str) -> str:
    return f"<title>{html.escape(text)}</title>" if text else ""
