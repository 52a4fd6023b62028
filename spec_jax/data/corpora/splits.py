"""Dividing rows into train, validation and test without leaks between them.

A group (page or source package) lies in one split, the same for both tasks. Rows of
validation and test that are copies or near copies of training text are removed, not
moved: they may be near copies of other held-out rows as well.
"""

import random
import zlib
from collections import Counter
from collections.abc import Callable, Sequence

from spec_jax.data.corpora.alignment import distinct_pairs
from spec_jax.data.corpora.cleaning import comparison_key
from spec_jax.data.corpora.near_copies import (
    NearCopyIndex,
    Overlap,
    largest_overlaps,
)
from spec_jax.data.corpora.rows import Pair, Row, Summary

SPLITS = ("train", "validation", "test")
HELD_OUT = SPLITS[1:]

# Labels of an interface, and a few files that are long documents each.
TRAIN_ONLY = frozenset({"loui", "doc"})

_HELD_OUT_SHARE = 0.03  # of the groups, for each of the two splits
_MOST_WORDS = 200
_HEADINGS = frozenset({"h1", "h2", "h3", "SH", "SS"})
_SHUFFLE_SEED = 7


def split_of(group: str) -> str:
    """The split of a group, by a hash of its name.

    Adding or removing other groups never moves one.
    """
    position = zlib.crc32(b"v1" + group.encode()) / 2**32
    if position < _HELD_OUT_SHARE:
        return "test"
    return "validation" if position < 2 * _HELD_OUT_SHARE else "train"


def split_summaries(
    rows: Sequence[Summary],
) -> tuple[dict[str, list[Summary]], dict[str, int]]:
    """Divides summarization examples.

    Args:
      rows: the examples, distinct.

    Returns:
      The rows of each split in a shuffled order, and how many held-out rows were
      removed and why.
    """
    splits = _by_split(rows, split_of_row=lambda row: split_of(row.group))
    documents = [row.document for row in splits["train"]]
    synopses = {comparison_key(row.summary) for row in splits["train"]}
    kept = NearCopyIndex()
    removed: Counter[str] = Counter()
    for split in HELD_OUT:
        overlaps = largest_overlaps([r.document for r in splits[split]], documents)
        clean = []
        for row, overlap in zip(splits[split], overlaps):
            if comparison_key(row.summary) in synopses:
                removed[f"{split}:same_summary"] += 1
            elif _near_document(overlap) or _near_document(kept.nearest(row.document)):
                removed[f"{split}:near_copy"] += 1
            else:
                clean.append(row)
                kept.add(row.document)
                synopses.add(comparison_key(row.summary))
        splits[split] = clean
    return _shuffled(splits), dict(removed)


def _near_document(overlap: Overlap) -> bool:
    return overlap.jaccard >= 0.3 or overlap.containment >= 0.5


def split_pairs(
    pairs: Sequence[Pair], train_documents: Sequence[str]
) -> tuple[dict[str, list[Pair]], dict[str, int]]:
    """Divides translation pairs.

    Args:
      pairs: the pairs of all sources.
      train_documents: what a model trained on both tasks also reads: no held-out
        sentence may be found in one of these.

    Returns:
      The pairs of each split in a shuffled order, and how many held-out pairs were
      removed and why.
    """
    short = [pair for pair in pairs if len(pair.en.split()) <= _MOST_WORDS]
    splits = _by_split(
        distinct_pairs(short),
        split_of_row=lambda pair: (
            "train" if pair.src in TRAIN_ONLY else split_of(pair.group)
        ),
    )
    english = {comparison_key(pair.en) for pair in splits["train"]}
    german = {comparison_key(pair.de) for pair in splits["train"]}
    kept = NearCopyIndex()
    removed: Counter[str] = Counter()
    for split in HELD_OUT:
        candidates = [pair for pair in splits[split] if _worth_scoring(pair)]
        removed[f"{split}:short_or_heading"] = len(splits[split]) - len(candidates)
        copies = _copies_of_train(candidates, splits["train"], train_documents)
        clean = []
        for pair, is_copy in zip(candidates, copies):
            keys = comparison_key(pair.en), comparison_key(pair.de)
            if keys[0] in english or keys[1] in german:
                removed[f"{split}:copy"] += 1
            elif is_copy or _near_english(kept.nearest(pair.en)):
                removed[f"{split}:near_copy"] += 1
            else:
                clean.append(pair)
                kept.add(pair.en)
                english.add(keys[0])
                german.add(keys[1])
        splits[split] = clean
    return _shuffled(splits), dict(removed)


def _worth_scoring(pair: Pair) -> bool:
    return 5 <= len(pair.en.split()) <= 80 and pair.kind not in _HEADINGS


def _near_english(overlap: Overlap) -> bool:
    return overlap.jaccard >= 0.5 or overlap.containment >= 0.7


def _copies_of_train(
    pairs: Sequence[Pair], train: Sequence[Pair], train_documents: Sequence[str]
) -> list[bool]:
    """Which pairs nearly repeat a training pair's side, or part of a document."""
    english = [pair.en for pair in pairs]
    by_english = largest_overlaps(english, (pair.en for pair in train))
    by_german = largest_overlaps(
        [pair.de for pair in pairs], (pair.de for pair in train)
    )
    by_document = largest_overlaps(english, train_documents)
    return [
        _near_english(ours)
        or theirs.jaccard >= 0.6
        or theirs.containment >= 0.8
        or document.containment >= 0.7
        for ours, theirs, document in zip(by_english, by_german, by_document)
    ]


def _by_split(
    rows: Sequence[Row], split_of_row: Callable[[Row], str]
) -> dict[str, list[Row]]:
    splits: dict[str, list[Row]] = {split: [] for split in SPLITS}
    for row in rows:
        splits[split_of_row(row)].append(row)
    return splits


def _shuffled(splits: dict[str, list[Row]]) -> dict[str, list[Row]]:
    for rows in splits.values():
        random.Random(_SHUFFLE_SEED).shuffle(rows)
    return splits


def groups_in_two_splits(
    *tasks: dict[str, list[Pair]] | dict[str, list[Summary]],
) -> set[str]:
    """The groups that break the rule; there must be none.

    Args:
      tasks: the splits of each task, checked together: a model trained on both must
        not be scored on one with a group that it saw in the other.

    Returns:
      The groups found in two splits. Sources that are for training only have groups
      of their own.
    """
    seen: dict[str, str] = {}
    broken = set()
    for splits in tasks:
        for split, rows in splits.items():
            for row in rows:
                if seen.setdefault(row.group, split) != split:
                    broken.add(row.group)
    return broken
