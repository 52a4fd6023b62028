"""Pictures as PNG; alone knows matplotlib, which it imports when called."""

import importlib.util
import io

from spec_jax.reports.drawing import (
    LIGHT,
    Box,
    Drawing,
    Label,
    Line,
    Shape,
    marker_points,
)

SCALE = 2
"""Pixels of the file for one of the drawing."""
_POINTS = 72 / 100  # of a pixel, at the figure's 100 dots an inch


def can_draw_png() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def png(drawing: Drawing) -> bytes:
    """A picture as PNG, in light colours; without a date or a version in it.

    Raises:
      ValueError: where matplotlib is not installed.
    """
    if not can_draw_png():
        raise ValueError(
            "want matplotlib for PNG, which is not installed: "
            "pip install 'spec_jax[report]'"
        )
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(drawing.width / 100, drawing.height / 100), dpi=100)
    FigureCanvasAgg(figure)
    figure.set_facecolor(LIGHT["ground"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    for order, shape in enumerate(drawing.shapes):
        _draw(axes, shape, order)
    file = io.BytesIO()
    # Hinted letters are whole pixels wide, and lines of them too long or too short.
    with matplotlib.rc_context({"text.hinting": "none"}):
        options = {"dpi": 100 * SCALE, "metadata": {"Software": None}}
        figure.savefig(file, format="png", **options)
    return file.getvalue()


def _draw(axes, shape: Shape, order: int) -> None:
    from matplotlib import patches

    color = LIGHT[shape.role]
    if isinstance(shape, Line):
        if not shape.points:  # it lay outside its frame
            return
        xs, ys = zip(*shape.points, strict=True)
        width = shape.width * _POINTS
        style = (0, [x * _POINTS / width for x in shape.dash]) if shape.dash else "-"
        axes.plot(xs, ys, color=color, lw=width, ls=style, zorder=order)
    elif isinstance(shape, Box):
        corner = shape.x, shape.y
        axes.add_patch(
            patches.Rectangle(
                corner,
                shape.width,
                shape.height,
                facecolor=color,
                edgecolor="none",
                alpha=shape.opacity,
                zorder=order,
            )
        )
    elif isinstance(shape, Label):
        axes.text(
            shape.x,
            shape.y,
            # A dollar sign would begin a formula.
            shape.text.replace("$", r"\$"),
            color=color,
            size=shape.size * _POINTS,
            ha={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
            va="baseline",
            weight="bold" if shape.bold else "normal",
            family="DejaVu Sans Mono" if shape.mono else "DejaVu Sans",
            rotation=90 if shape.turned else 0,
            rotation_mode="anchor",
            zorder=order,
        )
    else:
        edge = LIGHT["ground"] if shape.filled else color
        style = {
            "facecolor": color if shape.filled else LIGHT["ground"],
            "edgecolor": edge,
            "lw": (1.0 if shape.filled else 1.8) * _POINTS,
            "zorder": order,
        }
        if shape.shape == "circle":
            axes.add_patch(patches.Circle((shape.x, shape.y), shape.size, **style))
        else:
            corners = marker_points(shape.shape, shape.x, shape.y, shape.size)
            axes.add_patch(patches.Polygon(corners, **style))
