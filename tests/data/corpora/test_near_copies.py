"""Overlap of texts by word 3-grams, with values counted by hand."""

import pytest

from spec_jax.data.corpora.near_copies import (
    NearCopyIndex,
    Overlap,
    largest_overlaps,
    shingles,
)


def test_shingles_are_three_words_each():
    assert len(shingles("one two three four five")) == 3
    assert len(shingles("one two")) == len(shingles("one")) == 1
    assert shingles("--") == set()
    assert shingles("One, two: three") == shingles("one two three")


def test_shingles_are_the_same_in_every_process():
    # Golden: the rows that are kept depend on it.
    assert shingles("One, two: three!") == {7274879177180986167}


def test_nearest_counts_shared_shingles():
    index = NearCopyIndex()
    index.add("a b c d e f")  # 4 shingles
    index.add("x y z")
    # "a b c d q": abc bcd cdq; two of three are shared, five in either.
    assert index.nearest("a b c d q") == pytest.approx((2 / 3, 2 / 5))
    assert index.nearest("u v w") == Overlap(0.0, 0.0)
    assert index.nearest("") == Overlap(0.0, 0.0)


def test_nearest_is_the_most_alike_and_not_the_longest():
    index = NearCopyIndex()
    index.add("a b c d and many other words that follow here")
    index.add("a b c d e")
    assert index.nearest("a b c d e") == Overlap(1.0, 1.0)


def test_phrases_in_common_use_are_no_sign_of_a_copy():
    index = NearCopyIndex(most_texts=2)
    for last in "pqrs":
        index.add(f"a b c {last}")
    assert index.nearest("a b c s").jaccard == pytest.approx(1 / 3)


def test_largest_overlaps_are_over_all_others():
    others = ["a b c d e f g h", "a b c", "x y z"]
    overlap, none = largest_overlaps(["a b c d", "nothing of the kind"], others)
    # Contained in the first; the second shares one of two.
    assert overlap == Overlap(1.0, 0.5)
    assert none == Overlap(0.0, 0.0)


def test_largest_overlaps_have_no_limit_of_common_phrases():
    others = [f"a b c word{'x' * i}" for i in range(1000)]
    assert largest_overlaps([others[-1]], others) == [Overlap(1.0, 1.0)]
