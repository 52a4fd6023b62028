"""SentencePiece vocabularies as T5 uses them."""

import pytest

from spec_jax.data.vocabulary import (
    EOS_ID,
    PAD_ID,
    SentencePieceVocabulary,
    train_vocabulary,
)
from spec_jax.pairs import resolve

SHIPPED = resolve("spec_jax://pretrained/vocabulary.model")


@pytest.fixture(scope="module")
def shipped():
    return SentencePieceVocabulary(SHIPPED)


@pytest.mark.parametrize(
    "text", ["This package contains the documentation.", "Größenänderung: 3 × 4 mm", ""]
)
def test_text_comes_back(shipped, text):
    assert shipped.decode(shipped.encode(text)) == text


def test_decoding_ends_at_end_of_sequence_and_drops_padding(shipped):
    ids = shipped.encode("The file")
    assert shipped.decode([PAD_ID, *ids, EOS_ID, *ids]) == "The file"


def test_rows_of_a_table_beyond_the_pieces_have_no_text(shipped):
    ids = shipped.encode("The file")
    text = shipped.decode([*ids, shipped.vocab_size + 3])
    assert text.startswith("The file") and text != "The file"


def test_vocabularies_are_equal_by_content(shipped, tmp_path):
    copy = tmp_path / "copy.model"
    with open(SHIPPED, "rb") as file:
        copy.write_bytes(file.read())
    assert SentencePieceVocabulary(copy) == shipped
    assert hash(SentencePieceVocabulary(copy)) == hash(shipped)


def test_training_is_repeatable_and_has_t5_s_ids(tmp_path):
    texts = [f"the quick brown fox number {i} jumps over it" for i in range(300)]
    first = train_vocabulary(texts, tmp_path / "a.model", vocab_size=320)
    second = train_vocabulary(texts, tmp_path / "b.model", vocab_size=320)
    assert first == second and first.vocab_size == 320
    assert first.pieces[PAD_ID] == "<pad>" and first.pieces[EOS_ID] == "</s>"
    # Byte fallback: what the training text never had is still not lost.
    assert first.decode(first.encode("fox Ω")) == "fox Ω"


@pytest.mark.parametrize("content", [None, b"no model at all"])
def test_a_file_that_is_no_vocabulary_is_named(tmp_path, content):
    path = tmp_path / "broken.model"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.model"):
        SentencePieceVocabulary(path)
