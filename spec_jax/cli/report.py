"""`spec-jax report`: results as one page, and its pictures as files."""

import os
import pathlib

from spec_jax.cli.errors import UsageError
from spec_jax.cli.terminal import make_console, plural
from spec_jax.cli.texts import check_writable, whole_file, write_whole
from spec_jax.reports.drawing import svg
from spec_jax.reports.page import report
from spec_jax.reports.png import can_draw_png, png
from spec_jax.reports.results import read_results

PAGE, PICTURES = "report.html", "pictures"
"""In the output folder."""


def main(invocation) -> None:
    """Runs the command.

    Raises:
      UsageError: if no results are given or they cannot be read.
    """
    if not invocation.arguments:
        raise UsageError(
            f"want files or folders of results: {invocation.command.example}"
        )
    folder = pathlib.Path(invocation.flags.output_dir)
    check_writable(folder / PAGE)
    check_writable(folder / PICTURES / "any.svg")
    results = read_results([os.path.expanduser(path) for path in invocation.arguments])
    made = report(results)
    console = make_console(stderr=True)
    with_png = can_draw_png()
    with console.status("drawing"):
        for picture in made.pictures:
            path = folder / PICTURES / picture.name
            write_whole(f"{path}.svg", svg(picture.alone, alone=True))
            if with_png:
                with whole_file(f"{path}.png") as part:
                    part.write_bytes(png(picture.alone))
    # Last: where it is, all of it is.
    write_whole(folder / PAGE, made.html)
    for text in (*results.notes, *(f"left out, {text}" for text in made.absent)):
        console.print(f"note: {text}", markup=False, soft_wrap=True)
    if not with_png:
        console.print(
            "note: pictures are SVG alone; with matplotlib they are PNG too: "
            "pip install 'spec_jax[report]'",
            markup=False,
            soft_wrap=True,
        )
    print(
        f"{folder / PAGE}, with {plural(len(made.pictures), 'picture')} in "
        f"{folder / PICTURES}"
    )
