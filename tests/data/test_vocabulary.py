"""SentencePiece and byte vocabularies as T5 uses them."""

import numpy as np
import pytest

from spec_jax.data.samples import load_samples
from spec_jax.data.vocabulary import (
    EOS_ID,
    PAD_ID,
    ByteVocabulary,
    SentencePieceVocabulary,
    Vocabulary,
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
    assert shipped.decode([*ids, -1]) == shipped.decode([*ids, -5000]) == text


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


def test_sentinels_are_appended_in_t5_s_order(shipped):
    longer = SentencePieceVocabulary(SHIPPED, extra_ids=100)
    size = shipped.vocab_size
    assert longer.vocab_size == size + 100 and longer.has_sentinels
    assert longer.encode("a <extra_id_0>")[-1] == size + 99
    assert longer.decode([size]).strip() == "<extra_id_99>"
    text = "The file has been moved."
    assert longer.encode(text) == shipped.encode(text)
    assert longer != shipped and longer.fingerprint != shipped.fingerprint
    assert not shipped.has_sentinels


def test_sentinels_that_the_file_holds_are_not_appended_again(tmp_path):
    """As cc_all.32000.100extra and mT5's files are."""
    file = tmp_path / "100extra.model"
    written = train_vocabulary(
        [f"the quick brown fox number {i} jumps over it" for i in range(300)],
        file,
        vocab_size=320,
    )
    longer = SentencePieceVocabulary(file, 3)
    file.write_bytes(longer._processor.serialized_model_proto())
    again = SentencePieceVocabulary(file)
    assert again.pieces == longer.pieces and again.has_sentinels
    assert again.vocab_size == written.vocab_size + 3
    with pytest.raises(ValueError, match="holds its sentinels: want extra_ids 0"):
        SentencePieceVocabulary(file, 3)


@pytest.mark.parametrize("make", [ByteVocabulary, SHIPPED])
def test_extra_ids_are_counted(make):
    make = (
        make
        if make is ByteVocabulary
        else lambda n: SentencePieceVocabulary(SHIPPED, n)
    )
    with pytest.raises(ValueError, match="extra_ids >= 0, got -1"):
        make(-1)


def test_bytes_come_back():
    vocabulary = ByteVocabulary()
    assert vocabulary.vocab_size == 259
    assert vocabulary.encode("aé") == [100, 0xC3 + 3, 0xA9 + 3]
    assert vocabulary.encode_batch(["a", ""]) == [[100], []]
    assert vocabulary.decode([PAD_ID, 100, 2, 258, 300, 101, EOS_ID, 102]) == "ab"
    assert vocabulary.pieces[100] == "a" and vocabulary.pieces[35] == "\u2581"
    assert vocabulary.pieces[13] == "<0x0A>" and len(vocabulary.pieces) == 259


def test_byte_vocabularies_are_equal_by_their_sentinels():
    longer = ByteVocabulary(extra_ids=125)
    assert longer.vocab_size == len(longer.pieces) == 384
    assert longer != ByteVocabulary() and longer == ByteVocabulary(125)
    assert hash(longer) == hash(ByteVocabulary(125))
    assert longer.fingerprint != ByteVocabulary().fingerprint


def test_every_kind_is_a_vocabulary(shipped):
    for one in (shipped, ByteVocabulary()):
        assert isinstance(one, Vocabulary)


@pytest.mark.parametrize("extra_ids", [0, 100])
@pytest.mark.parametrize("kind", ["sentencepiece", "bytes"])
def test_ids_and_texts_are_seqio_s(kind, extra_ids):
    seqio = pytest.importorskip("seqio")
    if kind == "bytes":
        ours, theirs = ByteVocabulary(extra_ids), seqio.ByteVocabulary(extra_ids)
    else:
        ours = SentencePieceVocabulary(SHIPPED, extra_ids)
        theirs = seqio.SentencePieceVocabulary(SHIPPED, extra_ids)
    assert ours.vocab_size == theirs.vocab_size
    texts = [text for row in load_samples("translation") for text in row.values()]
    texts += [
        "a <extra_id_0> b <extra_id_1>ly",
        " x  y\nz ",
        "</s> <pad>",
        "日本語 𝔘 é",
    ]
    for text in texts:
        assert ours.encode(text) == list(theirs.encode(text))
    rng = np.random.default_rng(0)
    for _ in range(200):
        ids = rng.integers(0, ours.vocab_size + 30, 12).tolist()
        assert ours.decode(ids) == theirs.decode(ids)
