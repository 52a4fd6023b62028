"""Finding texts that are nearly copies of others, by the word 3-grams they share."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spec_jax.data.corpora.cleaning import comparison_key

_SIZE = 3  # words a shingle


class Overlap(NamedTuple):
    """How much of a text is found in another, both from 0 to 1.

    Attributes:
      containment: the share of the text's shingles that the other has too.
      jaccard: shingles in both, by shingles in either.
    """

    containment: float
    jaccard: float


def shingles(text: str) -> set[int]:
    """The hashed word 3-grams of a text; of a shorter one, all its words at once."""
    words = comparison_key(text).split()
    count = max(len(words) - _SIZE + 1, min(len(words), 1))
    return {_hash(" ".join(words[i : i + _SIZE])) for i in range(count)}


def _hash(text: str) -> int:
    # Not the built-in hash, which is another one in every process.
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


class NearCopyIndex:
    """Texts to compare new texts with, growing one by one.

    Args:
      most_texts: a shingle found in this many texts is not looked up in more of
        them; it is a phrase in common use, and no sign of a copy.
    """

    def __init__(self, most_texts: int = 400):
        self._most_texts = most_texts
        self._sizes: list[int] = []
        self._texts_with: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, text: str) -> None:
        """Puts a text into the index."""
        found = shingles(text)
        for shingle in found:
            texts = self._texts_with[shingle]
            if len(texts) < self._most_texts:
                texts.append(len(self._sizes))
        self._sizes.append(len(found))

    def nearest(self, text: str) -> Overlap:
        """The overlap of a text with the indexed text that is most like it."""
        wanted = shingles(text)
        shared: Counter[int] = Counter()
        for shingle in wanted:
            shared.update(self._texts_with.get(shingle, ()))
        overlaps = (
            Overlap(count / len(wanted), count / (len(wanted) + self._sizes[i] - count))
            for i, count in shared.items()
        )
        return max(overlaps, key=lambda o: o.jaccard, default=Overlap(0.0, 0.0))


def largest_overlaps(texts: Sequence[str], others: Iterable[str]) -> list[Overlap]:
    """The largest overlap of each text with any of many others, exactly.

    Args:
      texts: some thousands of texts, such as a test split.
      others: any number of texts, such as a train split.

    Returns:
      For each text the largest containment and the largest Jaccard overlap, which
      need not be with the same other text.
    """
    wanted = [shingles(text) for text in texts]
    anywhere: set[int] = set().union(*wanted)
    others_with: defaultdict[int, list[int]] = defaultdict(list)
    sizes = []
    for i, other in enumerate(others):
        found = shingles(other)
        sizes.append(len(found))
        for shingle in found & anywhere:
            others_with[shingle].append(i)
    return [_largest(own, others_with, sizes) for own in wanted]


def _largest(
    own: set[int], others_with: dict[int, list[int]], sizes: list[int]
) -> Overlap:
    shared: Counter[int] = Counter()
    for shingle in own:
        shared.update(others_with.get(shingle, ()))
    return Overlap(
        max((n / len(own) for n in shared.values()), default=0.0),
        max((n / (len(own) + sizes[i] - n) for i, n in shared.items()), default=0.0),
    )
