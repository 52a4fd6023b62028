"""Pairs and summaries from Debian's package descriptions and their translations.

The package indexes hold an English description of every package, and a German one
where volunteers translated it; the MD5 of the English text connects the two. The
synopsis of a description serves as the summary of the rest of it.
"""

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from spec_jax.data.corpora.alignment import PairCollector, Unit, matching_sentences
from spec_jax.data.corpora.cleaning import (
    comparison_key,
    normalize_space,
    split_sentences,
)
from spec_jax.data.corpora.near_copies import NearCopyIndex
from spec_jax.data.corpora.rows import Summary

_BULLET = re.compile(r"^\s*([*+\-o•·]|\d+[.)])\s+")
# A paragraph of this many source packages says nothing about any of them.
_BOILERPLATE_PACKAGES = 20
_MOST_WORDS = 400


@dataclasses.dataclass(frozen=True)
class Description:
    """A parsed package description.

    Attributes:
      synopsis: its first line.
      paragraphs: the units of each paragraph: "text", "bullet" or "verbatim".
    """

    synopsis: str
    paragraphs: tuple[tuple[Unit, ...], ...]


@dataclasses.dataclass(frozen=True)
class DescriptionIndex:
    """What the package indexes say of descriptions, each by its MD5.

    Attributes:
      english: the English text of each.
      german: the German text, where there is one.
      group: the source package it belongs to (the first by name, of several).
    """

    english: dict[str, str]
    german: dict[str, str]
    group: dict[str, str]


def read_stanzas(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Reads the paragraphs of a Debian control file.

    Args:
      lines: `Field: value` lines, continued by lines that begin with a space;
        an empty line ends a stanza.

    Yields:
      The fields of a stanza; continuation lines follow a line break, as they are.
    """
    stanza: dict[str, str] = {}
    field = None
    for line in lines:
        line = line.rstrip("\n")
        if not line:
            if stanza:
                yield stanza
            stanza, field = {}, None
        elif line[0] in " \t":
            if field:
                stanza[field] += "\n" + line
        else:
            field, _, value = line.partition(":")
            stanza[field] = value.strip()
    if stanza:
        yield stanza


def read_index(lists: Path) -> DescriptionIndex:
    """Reads the package indexes that `apt-get update` left in a folder.

    Args:
      lists: the folder with `*_Packages`, `*_Translation-en`, `*_Translation-de`.

    Returns:
      The descriptions.
    """
    source_of = {
        stanza["Package"]: stanza.get("Source", stanza["Package"]).split(" ")[0]
        for stanza in _stanzas_of(lists, "*Packages")
    }
    english: dict[str, str] = {}
    sources: defaultdict[str, set[str]] = defaultdict(set)
    for stanza in _stanzas_of(lists, "*Translation-en"):
        md5, package = stanza["Description-md5"], stanza["Package"]
        english[md5] = stanza["Description-en"]
        sources[md5].add(source_of.get(package, package))
    german = {
        # The replacement undoes a slip that some translations share.
        stanza["Description-md5"]: stanza["Description-de"].replace(
            "Libre0ffice", "LibreOffice"
        )
        for stanza in _stanzas_of(lists, "*Translation-de")
    }
    group = {md5: min(names) for md5, names in sources.items()}
    return DescriptionIndex(english, german, group)


def _stanzas_of(lists: Path, pattern: str) -> Iterator[dict[str, str]]:
    for path in sorted(lists.glob(pattern)):
        with path.open(encoding="utf-8") as lines:
            yield from read_stanzas(lines)


def parse_description(text: str) -> Description:
    """Divides a description into its synopsis and the units of its paragraphs.

    Args:
      text: the field's value: the synopsis, then lines that begin with a space. A
        line of " ." ends a paragraph; two spaces begin a verbatim line, or continue
        a bullet.

    Returns:
      The description, with its lines joined and white space normalised.
    """
    synopsis, *lines = text.split("\n")
    paragraphs: list[list[Unit]] = [[]]
    for line in lines:
        if line.strip() == ".":
            paragraphs.append([])
        else:
            _add_line(paragraphs[-1], line[1:])
    return Description(
        normalize_space(synopsis),
        tuple(
            tuple(Unit(unit.kind, normalize_space(unit.text)) for unit in paragraph)
            for paragraph in paragraphs
            if paragraph
        ),
    )


def _add_line(units: list[Unit], line: str) -> None:
    bullet = _BULLET.match(line)
    before = units[-1].kind if units else None
    if bullet:
        units.append(Unit("bullet", line[bullet.end() :]))
    elif line.startswith(" ") and before == "bullet":
        _continue_unit(units, line)
    elif line.startswith("  "):
        units.append(Unit("verbatim", line))
    elif before == "text":
        _continue_unit(units, line)
    else:
        units.append(Unit("text", line))


def _continue_unit(units: list[Unit], line: str) -> None:
    units[-1] = Unit(units[-1].kind, f"{units[-1].text} {line.strip()}")


def description_pairs(index: DescriptionIndex) -> PairCollector:
    """Aligns every description with its translation.

    Args:
      index: the descriptions.

    Returns:
      The pairs, grouped by source package.
    """
    collector = PairCollector("ddtp")
    for md5, text in index.german.items():
        if md5 not in index.english:
            collector.dropped["no_english"] += 1
            continue
        english, german = parse_description(index.english[md5]), parse_description(text)
        group = index.group[md5]
        collector.add(group, "short", english.synopsis, german.synopsis)
        if len(english.paragraphs) != len(german.paragraphs):
            collector.dropped["paragraphs_differ"] += 1
            continue
        for ours, theirs in zip(english.paragraphs, german.paragraphs):
            _add_paragraph(collector, group, ours, theirs)
    return collector


def _add_paragraph(
    collector: PairCollector,
    group: str,
    english: Sequence[Unit],
    german: Sequence[Unit],
) -> None:
    if [unit.kind for unit in english] != [unit.kind for unit in german]:
        collector.dropped["structure_differs"] += 1
        return
    for ours, theirs in zip(english, german):
        if ours.kind == "verbatim":
            continue
        # A paragraph may be translated in part only, with "<trans>" for the rest;
        # so its sentences are judged one by one.
        sentences = matching_sentences(ours.text, theirs.text)
        for pair in sentences:
            collector.add(group, "sent", *pair)
        if not sentences:
            kind = _paragraph_kind(ours, theirs)
            collector.add(group, kind, ours.text, theirs.text)


def _paragraph_kind(english: Unit, german: Unit) -> str:
    if english.kind == "bullet":
        return "bullet"
    single = len(split_sentences(english.text)) == len(split_sentences(german.text)) < 2
    return "para1" if single else "para"


def description_summaries(
    index: DescriptionIndex,
) -> tuple[list[Summary], dict[str, int]]:
    """Makes a summarization example of every description that is fit for it.

    Args:
      index: the descriptions.

    Returns:
      The examples, grouped by source package, and how many were dropped and why.
    """
    dropped: Counter[str] = Counter()
    rows = []
    for md5, text in index.english.items():
        description = parse_description(text)
        row = Summary(index.group[md5], _document(description), description.synopsis)
        reason = _why_no_summary(row)
        if reason:
            dropped[reason] += 1
        else:
            rows.append(row)
    distinct: dict[str, Summary] = {}
    for row in rows:
        distinct.setdefault(comparison_key(row.document), row)
    dropped["copy"] = len(rows) - len(distinct)
    kept = _without_near_copies(distinct.values())
    dropped["near_copy"] = len(distinct) - len(kept)
    return _without_boilerplate(kept, dropped), dict(dropped)


def _document(description: Description) -> str:
    """Everything but the synopsis and verbatim lines, one unit a line."""
    return "\n".join(
        ("- " if unit.kind == "bullet" else "") + unit.text
        for paragraph in description.paragraphs
        for unit in paragraph
        if unit.kind != "verbatim"
    )


def _why_no_summary(row: Summary) -> str | None:
    if len(row.summary) < 10 or len(row.document) < 80:
        return "too_short"
    lowered = row.summary.lower()
    if "transitional" in lowered or "dummy package" in lowered:
        return "transitional"
    return None


def _without_near_copies(rows: Iterable[Summary]) -> list[Summary]:
    index, kept = NearCopyIndex(), []
    for row in rows:
        if index.nearest(row.document).jaccard < 0.8:
            kept.append(row)
        index.add(row.document)
    return kept


def _without_boilerplate(
    rows: Sequence[Summary], dropped: Counter[str]
) -> list[Summary]:
    """Removes common paragraphs, then the rows that are too short or too easy."""
    groups_with: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        for paragraph in row.document.split("\n"):
            groups_with[comparison_key(paragraph)].add(row.group)
    kept = []
    for row in rows:
        document = "\n".join(
            paragraph
            for paragraph in row.document.split("\n")
            if len(groups_with[comparison_key(paragraph)]) < _BOILERPLATE_PACKAGES
        )
        shortened = Summary(row.group, document, row.summary)
        reason = _why_unfit(shortened, row.document)
        if reason:
            dropped[reason] += 1
        else:
            kept.append(shortened)
    return kept


def _why_unfit(row: Summary, whole_document: str) -> str | None:
    document_words, summary_words = len(row.document.split()), len(row.summary.split())
    if document_words < 15:
        return "short_document"
    if document_words > _MOST_WORDS:
        return "long_document"
    if document_words < 2 * summary_words:
        return "summary_as_long_as_half"
    if not 2 <= summary_words <= 20:
        return "summary_not_2_to_20_words"
    synopsis = comparison_key(row.summary)
    if len(synopsis.split()) > 3 and synopsis in comparison_key(whole_document):
        return "summary_copied"
    return None
