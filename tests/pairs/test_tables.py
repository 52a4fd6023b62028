"""The file of tables: read as it was written, no other file taken for one."""

import importlib.resources

import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax.checkpoints import CheckpointError, load_weights, save_weights
from spec_jax.data.samples import load_samples
from spec_jax.data.vocabulary import (
    EOS_ID,
    SentencePieceVocabulary,
    train_vocabulary,
)
from spec_jax.drafts.ngram import bigram_logits
from spec_jax.pairs import load_tables, save_tables
from spec_jax.training.tables import count_tables

SHIPPED = importlib.resources.files("spec_jax") / "pretrained"


@pytest.fixture
def written(tmp_path):
    vocabulary = SentencePieceVocabulary(SHIPPED / "vocabulary.model")
    tables = count_tables([[5, 6, 5, 1]], vocabulary.vocab_size, successors=3)
    file = tmp_path / "ngram.safetensors"
    save_tables(file, tables, vocabulary)
    return file, tables, vocabulary


def test_a_file_is_read_as_it_was_written(written):
    file, tables, vocabulary = written
    for loaded in (load_tables(file), load_tables(file, vocabulary)):
        assert sorted(loaded) == sorted(tables)
        for name, value in tables.items():
            assert loaded[name].dtype == value.dtype
            np.testing.assert_array_equal(loaded[name], value)
    assert tables["successors"].dtype == np.uint16


def test_another_vocabulary_is_refused(written, tmp_path):
    file, tables, _ = written
    texts = [row["en"] for row in load_samples("translation")]
    other = train_vocabulary(texts, tmp_path / "other.model", 520)
    with pytest.raises(ValueError, match="another vocabulary"):
        load_tables(file, other)
    save_tables(file, tables)
    with pytest.raises(ValueError, match="of 4096 tokens"):
        load_tables(file, other)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no file"):
        load_tables(tmp_path / "none")
    with pytest.raises(CheckpointError, match="holds no n-gram tables"):
        load_tables(SHIPPED / "draft" / "params.safetensors")
    text = tmp_path / "text"
    text.write_text("no tables")
    with pytest.raises(CheckpointError, match="cut or damaged"):
        load_tables(text)


def test_a_cut_file_is_refused(written):
    file, _, _ = written
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="cut or damaged"):
        load_tables(file)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda t: t.pop("rest"), "want rest, shares"),
        (lambda t: t.update(unigram=t["unigram"][:-1]), r"unigram and rest \[v\]"),
        (lambda t: t.update(shares=t["shares"][:, :1]), "successors and shares"),
        (lambda t: t.update(unigram=t["unigram"][:, None]), "got .*4096, 1"),
        (lambda t: t.update(successors=t["shares"]), "integers, got float16"),
        (lambda t: t["successors"].fill(7), "to differ"),
        (lambda t: t["successors"].__setitem__((0, 0), 4096), r"in \[0, 4096\)"),
        (lambda t: t["unigram"].__setitem__(3, 0.5), "unigram to sum to 1"),
        (lambda t: t["unigram"].__setitem__(3, np.nan), "positive unigram"),
        (lambda t: t["shares"].__setitem__((9, 0), 0.5), "row to sum to 1"),
        (lambda t: t["shares"].__setitem__((9, 0), -0.5), "no negative share"),
        (lambda t: t["rest"].__setitem__(9, 0), "positive unigram and rest"),
    ],
)
def test_wrong_tables_are_refused(written, damage, said):
    file, _, _ = written
    tables = {name: np.array(x) for name, x in load_weights(file).items()}
    damage(tables)
    save_weights(file, tables, {"format": "ngram"})
    with pytest.raises(CheckpointError, match=said):
        load_tables(file)


def test_the_shipped_tables():
    """They belong to the shipped vocabulary, and know some German."""
    vocabulary = SentencePieceVocabulary(SHIPPED / "vocabulary.model")
    file = SHIPPED / "ngram.safetensors"
    tables = load_tables(file, vocabulary)
    assert file.stat().st_size < 400_000
    tokens = jnp.arange(vocabulary.vocab_size)[None]
    rows = np.exp(np.asarray(bigram_logits(tables, tokens), np.float64))[0]
    np.testing.assert_allclose(rows.sum(1), 1, atol=1e-6)
    likely, by_unigram = [], []
    for sample in load_samples("translation")[:20]:
        text = vocabulary.encode(sample["de"])
        likely += [rows[a, b] for a, b in zip([0, *text], [*text, EOS_ID])]
        by_unigram += [float(tables["unigram"][b]) for b in [*text, EOS_ID]]
    assert np.log(likely).mean() > np.log(by_unigram).mean() + 1
