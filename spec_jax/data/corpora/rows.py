"""The rows of the corpora, and files of them."""

import dataclasses
import gzip
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar


@dataclasses.dataclass(frozen=True)
class Pair:
    """An English text and its German translation.

    Attributes:
      src: the source, e.g. "lohelp".
      group: the page or source package; no group is in two splits.
      kind: what the text is in its document: "sent", "item", "h2", ...
      en: the English text.
      de: the German text.
    """

    src: str
    group: str
    kind: str
    en: str
    de: str


@dataclasses.dataclass(frozen=True)
class Summary:
    """A text and its summary.

    Attributes:
      group: the source package; no group is in two splits.
      document: paragraphs, one a line.
      summary: one line.
    """

    group: str
    document: str
    summary: str


Row = TypeVar("Row", Pair, Summary)


def write_rows(path: Path, rows: Iterable[Pair] | Iterable[Summary]) -> None:
    """Writes one JSON object a line, gzipped, whole or not at all.

    Equal rows give equal bytes: the gzip header holds neither time nor name.

    Args:
      path: the file, replaced if it is there.
      rows: its rows.
    """
    partial = path.with_name(path.name + ".partial")
    with (
        partial.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
    ):
        for row in rows:
            line = json.dumps(dataclasses.asdict(row), ensure_ascii=False)
            packed.write(line.encode() + b"\n")
    os.replace(partial, path)


def read_rows(path: Path, row_type: type[Row]) -> list[Row]:
    """Reads what `write_rows` wrote.

    Args:
      path: the file.
      row_type: `Pair` or `Summary`.

    Returns:
      The rows, in the file's order.
    """
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [row_type(**json.loads(line)) for line in lines]


def write_json(path: Path, content: object) -> None:
    """Writes a JSON file for people to read, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    text = json.dumps(content, indent=2, ensure_ascii=False)
    partial.write_text(text + "\n", encoding="utf-8")
    os.replace(partial, path)
