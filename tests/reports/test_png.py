"""Pictures as PNG, where matplotlib is installed, and a word where it is not."""

import importlib.util
import struct

import pytest

from spec_jax.reports import png
from spec_jax.reports.drawing import MARKERS, Box, Drawing, Label, Line, Marker

SHAPES = (
    Line(((0, 0), (80, 40)), "s1", 1.5, (4, 3)),
    Box(10, 10, 30, 20, "s2", 0.5),
    *(Marker(10 + 12 * i, 30, shape, "s3") for i, shape in enumerate(MARKERS)),
    Marker(40, 10, "diamond", "s4", False),
    Label(5, 45, "γ costs $1 & $2", "ink", bold=True),
    Label(5, 45, "mono", "ink", mono=True),
)
DRAWING = Drawing(100, 50, SHAPES, "a test")


def test_every_shape_is_drawn():
    pytest.importorskip("matplotlib")
    data = png.png(DRAWING)
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (100 * png.SCALE, 50 * png.SCALE)
    # Nothing of the clock or of matplotlib's version is in it.
    assert png.png(DRAWING) == data and b"matplotlib" not in data
    for i in range(len(SHAPES)):
        fewer = SHAPES[:i] + SHAPES[i + 1 :]
        assert png.png(Drawing(100, 50, fewer, "a test")) != data, SHAPES[i]


def test_without_matplotlib_one_line_says_what_to_do(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "matplotlib" else find(name),
    )
    assert not png.can_draw_png()
    with pytest.raises(ValueError, match=r"pip install 'spec_jax\[report\]'"):
        png.png(DRAWING)
