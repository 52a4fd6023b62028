"""Tables: counted right, of what training sees."""

import importlib.resources

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax.data.examples import get_task
from spec_jax.data.vocabulary import (
    EOS_ID,
    SentencePieceVocabulary,
)
from spec_jax.drafts.ngram import bigram_logits
from spec_jax.training.tables import (
    count_tables,
    target_sequences,
)

SHIPPED = importlib.resources.files("spec_jax") / "pretrained"


def rows_of(tables):
    """Every row in float64."""
    tables = jax.tree.map(jnp.asarray, tables)
    tokens = jnp.arange(len(tables["unigram"]))[None]
    return np.exp(np.asarray(bigram_logits(tables, tokens), np.float64))[0]


def test_counts():
    """Start token, end of sequence, 1/2 added here and taken there."""
    tables = count_tables([[2, 3, 2, 1], [2, 2, 1]], 5, successors=2)
    np.testing.assert_allclose(
        tables["unigram"], np.array([0, 2, 4, 1, 0]) / 9.5 + 0.5 / 9.5, rtol=1e-6
    )
    rows = rows_of(tables)
    np.testing.assert_allclose(rows.sum(1), 1, atol=1e-6)
    assert rows[0, 2] == pytest.approx(0.75, abs=1e-3)  # twice of two: 1.5 / 2
    assert rows[2, 1] == pytest.approx(0.375, abs=1e-3)  # twice of four
    assert rows[2, 2] == pytest.approx(0.125, abs=1e-3)  # once; 3 is no successor kept
    others = rows[2, [0, 3, 4]]
    unigram = tables["unigram"][[0, 3, 4]]
    np.testing.assert_allclose(others, 0.5 * unigram / unigram.sum(), rtol=1e-3)
    for unseen in (1, 4):
        np.testing.assert_allclose(rows[unseen], tables["unigram"], rtol=1e-5)


def test_equals_counting_by_hand():
    """Random texts, pairs counted one by one, the likeliest kept."""
    rng = np.random.default_rng(0)
    texts = [rng.integers(1, 30, rng.integers(1, 20)) // 2 for _ in range(60)]
    counts = np.zeros((15, 15))
    for text in texts:
        for before, after in zip([0, *text[:-1]], text):
            counts[before, after] += 1
    tables = count_tables(texts, 15, successors=4)
    rows = rows_of(tables)
    for token in range(15):
        ids, shares = tables["successors"][token], tables["shares"][token]
        assert len(set(ids.tolist())) == 4
        kept = np.sort(counts[token])[::-1][:4]
        want = np.maximum(kept - 0.5, 0) / max(counts[token].sum(), 1)
        np.testing.assert_allclose(shares, want, rtol=1e-3)
        np.testing.assert_allclose(
            rows[token, ids[shares > 0]], shares[shares > 0], rtol=1e-5
        )
        assert (counts[token, ids[shares > 0]] == kept[shares > 0]).all()


def test_rows_are_distributions_with_every_token():
    rng = np.random.default_rng(1)
    texts = [rng.zipf(1.5, 50) % 400 for _ in range(100)]
    for successors in (1, 16, 1000):
        tables = count_tables(texts, 400, successors=successors)
        assert tables["shares"].shape == (400, min(successors, 399))
        rows = rows_of(tables)
        assert rows.min() > 0
        np.testing.assert_allclose(rows.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([], "got none"),
        ([[]], "got none"),
        ([[1, 5]], r"ids in \[0, 5\), got 1 to 5"),
        ([[-1, 2]], "got -1 to 2"),
    ],
)
def test_wrong_texts_raise(texts, said):
    with pytest.raises(ValueError, match=said):
        count_tables(texts, 5)


def test_targets_are_what_training_sees():
    """End of sequence at the end; what is empty or too long is left out."""
    vocabulary = SentencePieceVocabulary(SHIPPED / "vocabulary.model")
    rows = [
        {"en": "The file", "de": "Die Datei"},
        {"en": "The file", "de": "Datei " * 130},
        {"en": "The file", "de": ""},
    ]
    sequences = target_sequences(rows, get_task("ende"), vocabulary)
    assert sequences == [(*vocabulary.encode("Die Datei"), EOS_ID)]
