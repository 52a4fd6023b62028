"""Tables of n-grams for drafts, counted from texts."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

from spec_jax.data.examples import ExampleMaker, TextTask, tokenize
from spec_jax.data.vocabulary import PAD_ID, Vocabulary
from spec_jax.drafts.ngram import of_others

SUCCESSORS = 16
"""Successors kept of each token."""
PRIOR = 0.5
"""Occurrences that every token is taken to have had besides those that were counted."""
DISCOUNT = 0.5
"""What is taken from every count of a pair and left to tokens not seen in its place."""


def target_sequences(
    rows: Sequence[dict], task: TextTask, vocabulary: Vocabulary
) -> list[tuple[int, ...]]:
    """What the decoder says in training: targets and end of sequence.

    Args:
      rows: of a corpus; those too long for the task are left out, as in training.
      task: whose targets they are.
      vocabulary: of the models.
    """
    make = ExampleMaker(vocabulary).example
    examples = (make(row) for row in tokenize(rows, task, vocabulary))
    return [example.targets for example in examples if example is not None]


def count_tables(
    sequences: Iterable[Sequence[int] | Int[np.ndarray, "_"]],
    vocab_size: int,
    *,
    successors: int = SUCCESSORS,
    start_id: int = PAD_ID,
) -> dict[str, np.ndarray]:
    """Counts what follows what.

    The unigram law is (count + 1/2) / (total + v/2). The share of a successor is
    (count - 1/2) / (count of the token before), rounded down to float16. What a row
    lacks to 1 is spread over all other tokens by the unigram law.

    Args:
      sequences: what the decoder says, with end of sequence and without start.
      vocab_size: v; every id is below it.
      successors: k, how many of the likeliest successors of a token are kept; at
        most v - 1.
      start_id: the decoder's first token, before every sequence.

    Returns:
      `Tables`, as NumPy arrays.

    Raises:
      ValueError: if there is no token, or one outside the vocabulary.

    Reference: Ney, Essen, Kneser 1994, https://doi.org/10.1006/csla.1994.1001: absolute
    discounting.
    """
    rows = [np.asarray(sequence, np.int64) for sequence in sequences]
    after = np.concatenate([*rows, np.zeros(0, np.int64)])
    if not after.size:
        raise ValueError("want sequences with tokens, got none")
    if after.min() < 0 or max(after.max(), start_id) >= vocab_size:
        raise ValueError(
            f"want ids in [0, {vocab_size}), got {after.min()} to {after.max()} and "
            f"the start {start_id}"
        )
    before = np.concatenate([np.append(start_id, row)[:-1] for row in rows])
    unigram = np.bincount(after, minlength=vocab_size) + PRIOR
    unigram = (unigram / unigram.sum()).astype(np.float32)

    pairs, counts = np.unique(before * vocab_size + after, return_counts=True)
    first, second = np.divmod(pairs, vocab_size)
    order = np.lexsort((second, -counts, first))
    first, second, counts = first[order], second[order], counts[order]
    # The place of a pair among those of its first token.
    rank = np.arange(len(first)) - np.searchsorted(first, first)
    shape = (vocab_size, min(successors, vocab_size - 1))
    kept = rank < shape[1]
    first, second, counts, rank = (x[kept] for x in (first, second, counts, rank))
    total = np.bincount(before, minlength=vocab_size)

    shares = np.zeros(shape, np.float16)
    shares[first, rank] = _rounded_down((counts - DISCOUNT) / total[first])
    ids = np.full(shape, -1, np.int64)
    ids[first, rank] = second
    _fill(ids, np.argsort(-unigram, kind="stable"))
    width = np.uint16 if vocab_size <= 2**16 else np.int32
    tables = {"unigram": unigram, "successors": ids.astype(width), "shares": shares}
    others = of_others(tables)
    missing = 1.0 - shares.astype(np.float64).sum(1)
    return {**tables, "rest": (missing / others).astype(np.float32)}


def _rounded_down(values: Float[np.ndarray, "n"]) -> np.ndarray:
    """float16, never more than the values."""
    half = values.astype(np.float16)
    return np.where(half > values, np.nextafter(half, np.float16(0)), half)


def _fill(ids: Int[np.ndarray, "v k"], common: Int[np.ndarray, "v"]) -> None:
    """Puts common tokens where a token has few successors: those of a row differ."""
    width = ids.shape[1]
    for row in ids:
        seen = set(row[row >= 0].tolist())
        if len(seen) < width:
            unseen = (x for x in common[: 2 * width].tolist() if x not in seen)
            row[len(seen) :] = list(itertools.islice(unseen, width - len(seen)))
