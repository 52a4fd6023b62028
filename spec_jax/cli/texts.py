"""Texts in, from arguments, a file or stdin, and results out to files."""

import json
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from spec_jax.cli.errors import UsageError


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


def check_writable(path: str | pathlib.Path) -> None:
    """Makes the folder of a file to come, and finds out early if it cannot be.

    Raises:
      UsageError: if the file could not be written.
    """
    path = pathlib.Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {path}: no permission")


def write_whole(path: str | pathlib.Path, content: str | Iterable[str]) -> None:
    """Writes a file under another name and renames it: whole, or not there at all.

    Raises:
      UsageError: if it cannot be written.
    """
    path = pathlib.Path(path)
    check_writable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines([content] if isinstance(content, str) else content)
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def json_line(row: dict) -> str:
    """A row of a JSON Lines file."""
    return json.dumps(row, ensure_ascii=False) + "\n"
