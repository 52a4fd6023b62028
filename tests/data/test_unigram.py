"""T5's tokenizer.json against the SentencePiece model that it was made from."""

import json
import pathlib

import pytest

from spec_jax.data.samples import load_samples
from spec_jax.data.unigram import UnigramTokenizer
from spec_jax.data.vocabulary import (
    EOS_ID,
    PAD_ID,
    SentencePieceVocabulary,
    Vocabulary,
)
from spec_jax.pairs import resolve

SHIPPED = resolve("spec_jax://pretrained/vocabulary.model")
tokenizers = pytest.importorskip("tokenizers")


def convert(file: pathlib.Path, extra_ids: int = 100, old: bool = True) -> None:
    """Writes the shipped vocabulary as transformers writes a T5's.

    Args:
      file: the tokenizer.json.
      extra_ids: sentinels.
      old: as the public files of T5, which split at white space first.
    """
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(pathlib.Path(SHIPPED).read_bytes())
    normalizers, parts = tokenizers.normalizers, tokenizers.pre_tokenizers
    model = tokenizers.models.Unigram(
        [(piece.piece, piece.score) for piece in proto.pieces],
        unk_id=2,
        byte_fallback=True,
    )
    tokenizer = tokenizers.Tokenizer(model)
    steps = [normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)]
    if not old:
        spaces = tokenizers.Regex(" {2,}")
        steps += [normalizers.Strip(left=False), normalizers.Replace(spaces, "\u2581")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    splits = (
        [parts.WhitespaceSplit(), parts.Metaspace()] if old else [parts.Metaspace()]
    )
    tokenizer.pre_tokenizer = parts.Sequence(splits)
    tokenizer.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.ByteFallback(), tokenizers.decoders.Metaspace()]
    )
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=["$A", "</s>"], special_tokens=[("</s>", EOS_ID)]
    )
    sentinels = [f"<extra_id_{i}>" for i in reversed(range(extra_ids))]
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>", *sentinels])
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(file))


@pytest.fixture(scope="module", params=["old", "new"])
def tokenizer(tmp_path_factory, request):
    file = tmp_path_factory.mktemp(request.param) / "tokenizer.json"
    convert(file, old=request.param == "old")
    return UnigramTokenizer(file)


@pytest.fixture(scope="module")
def pieces():
    return SentencePieceVocabulary(SHIPPED, extra_ids=100)


def test_ids_and_texts_are_those_of_the_model_it_was_made_from(tokenizer, pieces):
    """End of sequence, which the file appends, and its padding are left out."""
    rows = load_samples("translation"), load_samples("summarization")
    fields = "en", "de", "document", "summary"
    texts = [
        row[field] for part in rows for row in part for field in fields if field in row
    ]
    texts += ["", " x  y\nz ", "日本語 é"]
    assert len(texts) > 500
    ids = tokenizer.encode_batch(texts)
    assert ids == pieces.encode_batch(texts)
    assert ids[0] == tokenizer.encode(texts[0])
    for row in ids:
        assert tokenizer.decode([PAD_ID, *row, EOS_ID, 300]) == pieces.decode(row)


def test_sentinels_are_in_the_file(tokenizer, pieces):
    assert tokenizer.vocab_size == pieces.vocab_size
    assert tokenizer.encode("<extra_id_0>")[-1] == pieces.vocab_size - 1
    bare = [piece.removeprefix("\u2581") for piece in pieces.pieces[-100:]]
    assert tokenizer.pieces[-100:] == bare
    assert tokenizer.pieces[:-100] == pieces.pieces[:-100]


def test_rows_of_a_table_beyond_the_pieces_have_no_text(tokenizer):
    assert tokenizer.decode([tokenizer.vocab_size + 9]) == "<unk>"


def test_tokenizers_are_equal_by_content(tokenizer, tmp_path):
    again = json.loads(pathlib.Path(tokenizer.path).read_text())
    copy = tmp_path / "copy.json"
    again["padding"] = None
    copy.write_text(json.dumps(again, indent=1))
    assert UnigramTokenizer(copy) == tokenizer
    assert hash(UnigramTokenizer(copy)) == hash(tokenizer)
    again["model"]["vocab"][300][1] -= 1.0
    copy.write_text(json.dumps(again))
    assert UnigramTokenizer(copy) != tokenizer
    assert isinstance(tokenizer, Vocabulary)


def test_what_is_no_t5_s_is_named(tmp_path):
    file = tmp_path / "tokenizer.json"
    with pytest.raises(ValueError, match=r"no tokenizer at .*tokenizer\.json"):
        UnigramTokenizer(file)
    for content in (b"{", b"\xff", b'{"model": {}}'):
        with pytest.raises(ValueError, match=r"tokenizer\.json is no tokenizer"):
            UnigramTokenizer(file, content)
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    with pytest.raises(ValueError, match="'Unigram', got 'BPE'"):
        UnigramTokenizer(file, made.to_str().encode())
    model = tokenizers.models.Unigram([("<unk>", 0.0), ("</s>", 0.0)], unk_id=0)
    made = tokenizers.Tokenizer(model)
    with pytest.raises(ValueError, match="this one has None and 1"):
        UnigramTokenizer(file, made.to_str().encode())
