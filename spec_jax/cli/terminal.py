"""What commands print to: results on stdout, news on stderr."""

import io
import os
import sys
from collections.abc import Callable

from rich.console import Console

PLAIN_WIDTH = 100
"""Columns where the output is no terminal."""
SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font: {char_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}}
{styles}
</style>
<defs>
{lines}
</defs>
<rect width="{width}" height="{height}" rx="8" fill="#292929"/>
<g transform="translate({terminal_x}, 24)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""rich's template, without a window's frame and without a font from the network."""


class _Console(Console):
    """A console that leaves it to `main` how a closed pipe ends the program."""

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the error."""
        raise BrokenPipeError


def make_console(stderr: bool = False) -> Console:
    """A console that shows colour on a terminal only, and not with NO_COLOR."""
    file = sys.stderr if stderr else sys.stdout
    # rich takes 80 columns, or the terminal's of another stream, for a pipe.
    width = None
    if not file.isatty() and "COLUMNS" not in os.environ:
        width = PLAIN_WIDTH
    return _Console(file=file, highlight=False, width=width)


def draw_svg(show: Callable[[Console], None]) -> str:
    """What `show` prints, as a picture of a terminal in colour."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=PLAIN_WIDTH,
        color_system="truecolor",
        force_terminal=True,
        highlight=False,
        no_color=False,
    )
    show(console)
    return console.export_svg(code_format=SVG)


def shows_color(console: Console) -> bool:
    """Whether styles are visible."""
    return console.color_system is not None and not console.no_color


def plural(count: int, noun: str) -> str:
    """'1 text', '2 texts'."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
