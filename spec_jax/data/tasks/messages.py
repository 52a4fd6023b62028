"""What libraries and users' functions raise, in one line."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def one_line(doing: str) -> Iterator[None]:
    """Turns what libraries and users' functions raise into one line of ours."""
    try:
        yield
    except Exception as error:
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        raise ValueError(f"{doing}: {kind}{first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The first line of a message that is not empty."""
    return next((line for line in str(error).splitlines() if line.strip()), "no reason")
