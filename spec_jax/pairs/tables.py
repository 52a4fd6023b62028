"""The file of an n-gram draft's tables, beside the models of a pair."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spec_jax.checkpoints import (
    CheckpointError,
    load_weights,
    save_weights,
    weights_metadata,
)
from spec_jax.data.vocabulary import Vocabulary
from spec_jax.drafts.ngram import Tables, of_others
from spec_jax.pairs.folders import FINGERPRINT

FORMAT, KIND = "format", "ngram"
"""Metadata of the file: what it is."""
NAMES = ("rest", "shares", "successors", "unigram")


def save_tables(
    file: str | os.PathLike,
    tables: Tables | dict[str, np.ndarray],
    vocabulary: Vocabulary | None = None,
) -> None:
    """Writes the file.

    Args:
      file: is replaced if it exists.
      tables: see `count_tables`.
      vocabulary: of their ids: no other will be taken with them.
    """
    metadata = {FORMAT: KIND}
    if vocabulary is not None:
        metadata[FINGERPRINT] = vocabulary.fingerprint
    save_weights(file, tables, metadata)


def load_tables(
    file: str | os.PathLike, vocabulary: Vocabulary | None = None
) -> Tables:
    """Reads what `save_tables` wrote.

    Args:
      file: its path.
      vocabulary: that the tables have to belong to; None takes any.

    Returns:
      The tables on the default device.

    Raises:
      CheckpointError: if the file is missing, damaged, or holds something else.
      ValueError: if the tables are of another vocabulary.
    """
    metadata = weights_metadata(file)
    if metadata.get(FORMAT) != KIND:
        raise CheckpointError(
            f"{file} holds no n-gram tables; `spec-jax data ngram` writes such files"
        )
    tables = load_weights(file)
    try:
        _check(tables)
    except ValueError as error:
        raise CheckpointError(f"{file} is no whole file of tables: {error}") from None
    if vocabulary is not None:
        theirs = metadata.get(FINGERPRINT, vocabulary.fingerprint)
        if theirs != vocabulary.fingerprint:
            raise ValueError(
                f"the tables in {file} are of another vocabulary (sha256 "
                f"{theirs[:12]}...) than {vocabulary.path} (sha256 "
                f"{vocabulary.fingerprint[:12]}...): count them again with "
                "`spec-jax data ngram`"
            )
        size = len(tables["unigram"])
        if size != vocabulary.vocab_size:
            raise ValueError(
                f"the tables in {file} are of {size} tokens, {vocabulary.path} has "
                f"{vocabulary.vocab_size}"
            )
    return jax.tree.map(jnp.asarray, tables)


def _check(tables: dict[str, Any]) -> None:
    """Raises ValueError if a dictionary is none of tables."""
    if sorted(tables) != list(NAMES):
        raise ValueError(f"want {', '.join(NAMES)}, got {sorted(tables)}")
    unigram, ids = tables["unigram"], tables["successors"]
    shares, rest = tables["shares"], tables["rest"]
    size, width = ids.shape if ids.ndim == 2 else (0, 0)
    shapes = [x.shape for x in (unigram, rest, ids, shares)]
    if not 0 < width < size or shapes != [(size,)] * 2 + [(size, width)] * 2:
        raise ValueError(
            "want unigram and rest [v], successors and shares [v, k], 0 < k < v, got "
            f"{shapes}"
        )
    if not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"want successors as integers, got {ids.dtype}")
    ordered = np.sort(ids.astype(np.int64), axis=1)
    if ordered.min() < 0 or ordered.max() >= len(unigram):
        raise ValueError(f"want successors in [0, {len(unigram)})")
    if (np.diff(ordered, axis=1) == 0).any():
        raise ValueError("want successors of a token to differ")
    if not (unigram > 0).all() or not (rest > 0).all() or not (shares >= 0).all():
        raise ValueError("want positive unigram and rest, and no negative share")
    rows = shares.astype(np.float64).sum(1) + rest * of_others(tables)
    for name, total in (("unigram", unigram.astype(np.float64).sum()), ("row", rows)):
        if not (np.abs(total - 1) < 1e-6).all():
            raise ValueError(f"want every {name} to sum to 1, got {total}")
