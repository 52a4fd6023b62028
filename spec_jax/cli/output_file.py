"""A file of outputs: there when it is whole, gone on with after a kill."""

import contextlib
import functools
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from spec_jax.cli.terminal import make_console, plural
from spec_jax.cli.texts import check_writable, is_device, write_whole
from spec_jax.experiments.journal import Journal, digest, json_line

Batches = Callable[[int], Iterator[list[dict[str, Any]]]]
"""Given how many lines are there already, makes the others, batch by batch."""


def write_resumable(
    path: str | os.PathLike, head: Mapping[str, Any], batches: Batches, total: int
) -> None:
    """Writes JSON lines; what a killed run has made of the same file is kept.

    Until the file is whole its lines stand in a hidden one beside it, whose name
    tells runs of other settings apart.

    Args:
      path: of the file. A device or a pipe gets lines as they come.
      head: what must be the same for lines to be of one run.
      batches: makes the lines.
      total: how many there will be.

    Raises:
      UsageError: if the file cannot be written, or another run writes it now.
    """
    check_writable(path)
    if is_device(path):
        write_whole(path, (json_line(x) for lines in batches(0) for x in lines))
        return
    final = pathlib.Path(os.path.realpath(path))
    part = final.with_name(f".{final.name}.{digest(head)}.partial")
    with Journal(part, head) as journal:
        if journal.lines:
            count = len(journal.lines)
            print(f"{count} of {total} outputs are there already", file=sys.stderr)
        with _progress(total, len(journal.lines)) as advance:
            for lines in batches(len(journal.lines)):
                journal.append(lines)
                advance(len(lines))
        write_whole(final, map(json_line, journal.lines))
        part.unlink(missing_ok=True)
    print(f"{plural(total, 'output')} written to {path}", file=sys.stderr)


@contextlib.contextmanager
def _progress(total: int, done: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; the function that it gives moves it on."""
    console = make_console(stderr=True)
    with Progress(
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield functools.partial(bar.advance, task)
