"""Gathering the translation pairs of one source from texts that correspond."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from spec_jax.data.corpora.cleaning import (
    comparison_key,
    lengths_agree,
    split_sentences,
    why_rejected,
)
from spec_jax.data.corpora.rows import Pair


class Unit(NamedTuple):
    """A piece of a document: a heading, a paragraph, an item of a list."""

    kind: str
    text: str


class PairCollector:
    """The pairs of one source, with a count of what was dropped and why.

    Attributes:
      pairs: the pairs so far, in the order found.
      dropped: how often each reason for dropping a text was met.
    """

    def __init__(self, src: str):
        self.src = src
        self.pairs: list[Pair] = []
        self.dropped: Counter[str] = Counter()

    def add(self, group: str, kind: str, english: str, german: str) -> None:
        """Keeps one pair if it passes the checks."""
        reason = why_rejected(english, german)
        if reason:
            self.dropped[reason] += 1
        else:
            self.pairs.append(Pair(self.src, group, kind, english, german))

    def add_text(self, group: str, kind: str, english: str, german: str) -> None:
        """Keeps a text as its sentences where they correspond, as a whole otherwise.

        The whole must pass the checks as well: a text that fails them is often not
        a translation of the other, whatever its sentences look like one by one.
        """
        reason = why_rejected(english, german)
        if reason:
            self.dropped[reason] += 1
            return
        sentences = matching_sentences(english, german)
        if sentences:
            for pair in sentences:
                self.add(group, "sent", *pair)
        else:
            self.pairs.append(Pair(self.src, group, kind, english, german))

    def add_units(
        self, group: str, english: Sequence[Unit], german: Sequence[Unit]
    ) -> None:
        """Keeps the texts of two documents whose kinds of units are the same."""
        if [unit.kind for unit in english] != [unit.kind for unit in german]:
            self.dropped["structure_differs"] += 1
            return
        for ours, theirs in zip(english, german):
            self.add_text(group, ours.kind, ours.text, theirs.text)

    def distinct(self) -> list[Pair]:
        """The first of every set of pairs that are copies of each other."""
        return distinct_pairs(self.pairs)


def matching_sentences(english: str, german: str) -> list[tuple[str, str]]:
    """Splits both texts into sentences, if these correspond one by one.

    Args:
      english: a paragraph.
      german: its translation.

    Returns:
      Two or more pairs of sentences; none where the numbers of sentences differ,
      where some pair's lengths do not agree, and where there is only one sentence.
    """
    ours, theirs = split_sentences(english), split_sentences(german)
    if len(ours) != len(theirs) or len(ours) < 2:
        return []
    pairs = list(zip(ours, theirs))
    return pairs if all(lengths_agree(*pair) for pair in pairs) else []


def distinct_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """The first of every set of pairs that differ in case and punctuation only."""
    first: dict[tuple[str, str], Pair] = {}
    for pair in pairs:
        first.setdefault((comparison_key(pair.en), comparison_key(pair.de)), pair)
    return list(first.values())
