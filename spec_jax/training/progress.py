"""Progress of a long training: a bar on a terminal, lines elsewhere."""

import sys

import rich.console
import rich.progress


class Progress:
    """Shows how far `total` steps are done, and the newest figures beside it.

    Args:
      total: steps in all.
      start: steps done by earlier runs.
    """

    def __init__(self, total: int, start: int = 0):
        self._console = rich.console.Console(file=sys.stderr)
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("training"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("training", total=total, completed=start)

    def __enter__(self):
        self._bar.start()
        return self

    def __exit__(self, *_):
        self._bar.stop()

    def advance(self) -> None:
        self._bar.advance(self._task)

    def show(self, record: dict) -> None:
        """Prints a record's figures on a line of their own."""
        figures = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in record.items()
        )
        self._bar.console.print(figures, highlight=False, soft_wrap=True)
