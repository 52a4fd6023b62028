"""Pairs from German manual pages and the English pages they translate.

The German pages are made from the English ones message by message, so both have the
same sections and paragraphs as long as they are of the same version. A page is read
as sections of units; a section is used where its units are of the same kinds in both.
"""

import gzip
import re
from collections import Counter
from pathlib import Path

from spec_jax.data.corpora.alignment import PairCollector, Unit
from spec_jax.data.corpora.cleaning import normalize_space
from spec_jax.data.corpora.roff import parse_arguments, plain_text

Section = list[Unit]

_REQUEST = re.compile(r"^[.']\s*([A-Za-z]{1,3}\d?)\b\s*(.*)$")
_COMMENT = ('.\\"', "'\\\"", '\\"')
_ONE_FONT = frozenset({"B", "I", "SM", "SB", "R"})
_TWO_FONTS = frozenset({"BR", "RB", "BI", "IB", "IR", "RI"})
_PARAGRAPH = frozenset({"PP", "P", "LP", "br", "sp", "HP", "RS", "RE", "in", "ti"})
_VERBATIM_BEGIN = frozenset({"nf", "EX", "TS", "EQ", "DS"})
_VERBATIM_END = frozenset({"fi", "EE", "TE", "EN", "DE"})
_DEFINITION = frozenset({"de", "ig"})  # up to a line of two dots

_NOT_TRANSLATED = ("tag", "verbatim")
# Sections of names, addresses and syntax, by their English or German heading.
_UNUSED_SECTIONS = re.compile(
    r"ÜBERSETZUNG|SYNOPSIS|ÜBERSICHT|COLOPHON|KOLOPHON|COPYRIGHT|LICENSE|LIZENZ"
    r"|AUTHORS?|AUTOR(EN)?|SEE ALSO|SIEHE AUCH"
)


def read_page(path: Path) -> list[Section] | None:
    """Reads a gzipped manual page.

    Args:
      path: a page written with the man macros.

    Returns:
      Its sections; None for a page of mdoc macros or one that includes another.
    """
    raw = gzip.decompress(path.read_bytes())
    try:
        return parse_page(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return parse_page(raw.decode("latin-1"))


def parse_page(source: str) -> list[Section] | None:
    """Divides a page into sections of units.

    Args:
      source: roff with the man macros.

    Returns:
      For each section its units: "SH" and "SS" headings, "tag" of a list entry,
      "item" for the first text after it, "p" for any other paragraph, and
      "verbatim" (without text) for an example or a table. None as in `read_page`.
    """
    if re.search(r"^\.(Sh|so) ", source, re.MULTILINE):
        return None
    reader = _PageReader()
    for line in source.replace("\\\n", "").split("\n"):
        if not line.startswith(_COMMENT):
            reader.read_line(line)
    reader.end_unit()
    return reader.sections


class _PageReader:
    """Collects text until the unit it belongs to ends."""

    def __init__(self):
        self.sections: list[Section] = []
        self._words: list[str] = []
        self._kind = "p"
        self._verbatim_depth = 0
        self._in_definition = False

    def read_line(self, line: str) -> None:
        if self._in_definition:
            self._in_definition = not line.startswith("..")
            return
        request = _REQUEST.match(line)
        if request:
            self._read_request(request[1], request[2])
        elif self._verbatim_depth:
            return
        elif not line.strip():
            self.end_unit()
        elif not line.startswith("."):
            self._words.append(plain_text(line))
            self._end_tag()

    def end_unit(self) -> None:
        """Keeps the text so far as one unit."""
        text = normalize_space(" ".join(self._words))
        self._words = []
        if text:
            self._append(self._kind, text)
            self._kind = "p"

    def _append(self, kind: str, text: str) -> None:
        if self.sections:  # what precedes the first heading is the title line
            self.sections[-1].append(Unit(kind, text))

    def _end_tag(self) -> None:
        """A tag is one line; the text after it is the entry's."""
        if self._kind == "tag" and self._words:
            self.end_unit()
            self._kind = "item"

    def _read_request(self, name: str, rest: str) -> None:
        if name in _DEFINITION:
            self.end_unit()
            self._in_definition = True
        elif name in _VERBATIM_BEGIN:
            self.end_unit()
            self._verbatim_depth += 1
        elif name in _VERBATIM_END:
            self._words = []
            self._verbatim_depth = max(0, self._verbatim_depth - 1)
            self._append("verbatim", "")
        elif self._verbatim_depth:
            return
        elif name in ("SH", "SS"):
            self._begin_section(name, rest)
        elif name in ("TP", "TQ"):
            self.end_unit()
            self._kind = "tag"
        elif name == "IP":
            self._begin_item(rest)
        elif name in _PARAGRAPH:
            self.end_unit()
        elif name in _ONE_FONT or name in _TWO_FONTS:
            between = " " if name in _ONE_FONT else ""
            words = [plain_text(word) for word in parse_arguments(rest)]
            if words:
                self._words.append(between.join(words))
            self._end_tag()
        elif name in ("UR", "MT"):
            self._words.append(plain_text(rest))
        elif name in ("UE", "ME") and rest and self._words:
            self._words[-1] += plain_text(rest)

    def _begin_section(self, name: str, rest: str) -> None:
        self.end_unit()
        if name == "SH":
            self.sections.append([])
        heading = normalize_space(plain_text(" ".join(parse_arguments(rest))))
        if heading:
            self._append(name, heading)
        else:  # on the next line
            self._kind = name

    def _begin_item(self, rest: str) -> None:
        self.end_unit()
        arguments = parse_arguments(rest)
        tag = normalize_space(plain_text(arguments[0])) if arguments else ""
        if len(tag) > 2:  # not a bullet or a number
            self._append("tag", tag)
        self._kind = "item"


def manual_page_pairs(manuals: Path) -> tuple[PairCollector, dict[str, int]]:
    """Aligns every German manual page that has an English one.

    Args:
      manuals: the folder with `man1`, ... and `de/man1`, ...

    Returns:
      The pairs, grouped by page, and how many pages were used, or why not.
    """
    collector, pages = PairCollector("man"), Counter()
    for german_path in sorted((manuals / "de").glob("man*/*.gz")):
        name = german_path.relative_to(manuals / "de")
        english_path = manuals / name
        if not english_path.exists():
            pages["no_english_page"] += 1
            continue
        pages[_add_page(collector, f"man/{name}", english_path, german_path)] += 1
    return collector, dict(pages)


def _add_page(collector: PairCollector, group: str, english: Path, german: Path) -> str:
    """Adds a page's pairs; returns what became of the page."""
    ours, theirs = read_page(english), read_page(german)
    if not ours or not theirs:
        return "not_in_man_macros"
    theirs = [s for s in theirs if not (s and s[0].text.startswith("ÜBERSETZUNG"))]
    if len(ours) != len(theirs):
        return "sections_differ"
    before = len(collector.pairs)
    for section, translated in zip(ours, theirs):
        if not section or not _UNUSED_SECTIONS.match(section[0].text):
            _add_section(collector, group, section, translated)
    return "used" if len(collector.pairs) > before else "nothing_usable"


def _add_section(
    collector: PairCollector, group: str, english: Section, german: Section
) -> None:
    if [unit.kind for unit in english] != [unit.kind for unit in german]:
        collector.dropped["structure_differs"] += 1
        return
    if _shifted(english, german):
        collector.dropped["lengths_differ"] += 1
        return
    for ours, theirs in zip(english, german):
        if ours.kind not in _NOT_TRANSLATED:
            collector.add_text(group, ours.kind, ours.text, theirs.text)


def _shifted(english: Section, german: Section) -> bool:
    """Whether the lengths say that units stand beside other units' translations."""
    disagreeing = sum(
        not 0.4 <= len(theirs.text) / len(ours.text) <= 3
        for ours, theirs in zip(english, german)
        if len(ours.text) > 30
    )
    return disagreeing > 0.15 * len(english) + 1
