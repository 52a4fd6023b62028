"""What commands print to: results on stdout, news on stderr."""

import os
import sys

from rich.console import Console

PLAIN_WIDTH = 100
"""Columns where the output is no terminal."""


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


def shows_color(console: Console) -> bool:
    """Whether styles are visible."""
    return console.color_system is not None and not console.no_color


def plural(count: int, noun: str) -> str:
    """'1 text', '2 texts'."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
