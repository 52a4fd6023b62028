"""Texts in, from arguments, a file or stdin, and results out to files."""

import contextlib
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from spec_jax.checkpoints.whole import partial, remove_left
from spec_jax.cli.errors import UsageError

# A Path has made one slash of two; one letter may be a drive.
_URL = re.compile(r"[A-Za-z][\w+.-]+:/")


def read_texts(arguments: Sequence[str], input_file: str | None) -> Iterator[str]:
    """Texts in order: the arguments, else the file's lines, else those of stdin.

    A blank line is a text too, so that output lines stay beside input lines.

    Raises:
      UsageError: arguments and a file are given, a file cannot be read, or text is
        not UTF-8.
    """
    if arguments and input_file:
        raise UsageError("give texts or --input_file, not both")
    if arguments:
        for number, text in enumerate(arguments, 1):
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:  # Python smuggles wrong bytes as surrogates
                raise UsageError(f"text {number} is not UTF-8") from None
            yield text
    elif input_file:
        try:
            with open(input_file, "rb") as file:
                yield from _lines(file, input_file)
        except OSError as error:
            raise UsageError(f"cannot read {input_file}: {error.strerror}") from None
    else:
        if sys.stdin.isatty():
            print("one text a line; Ctrl-D ends", file=sys.stderr)
        yield from _lines(sys.stdin.buffer, "stdin")


def _lines(file: BinaryIO, name: str) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{name}, line {number} is not UTF-8: byte 0x{line[error.start]:02x} "
                f"at column {error.start + 1}"
            ) from None
        yield text.rstrip("\r\n")


def check_writable(path: str | pathlib.Path, appended: bool = False) -> None:
    """Finds out early if a file cannot be written; makes nothing.

    Args:
      path: of the file to come.
      appended: whether lines are added to what is there.

    Raises:
      UsageError: if the file could not be written.
    """
    if _URL.match(str(path)):
        raise UsageError(f"cannot write {path}: want a local path, got a URL")
    if os.path.isdir(path):
        raise UsageError(f"cannot write {path}: it is a folder")
    folder = os.path.dirname(os.path.realpath(path))
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if is_device(path):
        allowed = os.access(path, os.W_OK)
    elif not os.path.isdir(folder):
        raise UsageError(f"cannot write {path}: {folder} is not a folder")
    else:
        allowed = os.access(folder, os.W_OK | os.X_OK)
        if appended and os.path.exists(path):
            allowed = allowed and os.access(path, os.W_OK)
    if not allowed:
        raise UsageError(f"cannot write {path}: no permission")


@contextlib.contextmanager
def whole_file(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """A path to write to; what is written there is then at `path`, whole or not at all.

    Folders are made. A link stays one: the file that it leads to is replaced. A
    device or a pipe, such as /dev/stdout, is written to as it is.

    Raises:
      UsageError: if it cannot be written.
    """
    check_writable(path)
    final = pathlib.Path(os.path.realpath(path))
    part = partial(final)
    try:
        if is_device(path):
            yield pathlib.Path(path)
            return
        final.parent.mkdir(parents=True, exist_ok=True)
        remove_left(final)
        try:
            yield part
            os.replace(part, final)
        finally:
            part.unlink(missing_ok=True)
    except BrokenPipeError:
        raise  # the reader has enough
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def write_whole(path: str | pathlib.Path, content: str | Iterable[str]) -> None:
    """Writes text to a file. See `whole_file`.

    Raises:
      UsageError: if it cannot be written.
    """
    lines = [content] if isinstance(content, str) else content
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        file.writelines(lines)


def is_device(path: str | pathlib.Path) -> bool:
    """Whether something other than a file is there, such as /dev/null or a pipe."""
    return os.path.exists(path) and not os.path.isfile(path)
