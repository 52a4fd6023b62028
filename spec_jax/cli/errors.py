"""What a user did wrong, in one line."""

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """A command cannot do what it was asked to; the message is all a user sees."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """'; did you mean X?' for the nearest known name, or nothing."""
    by_folded = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[near[0]]}?" if near else ""


def one_line(error: BaseException) -> str:
    """An error's message without line breaks and without gin's trail of calls."""
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename else ""
        return f"{named}{error.strerror}"
    lines = (line.strip() for line in str(error).splitlines())
    kept = [line for line in lines if not line.startswith("In call to configurable")]
    return " ".join(" ".join(kept).split()) or type(error).__name__
