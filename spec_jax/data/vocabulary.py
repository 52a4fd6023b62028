"""Vocabularies of T5 models: SentencePiece models, and bytes."""

import functools
import hashlib
import pathlib
import struct
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

import sentencepiece

PAD_ID = 0
EOS_ID = 1
UNK_ID = 2
NUM_SPECIAL = 3
BYTES = "bytes"
"""Names the vocabulary of ByT5, which is no file."""
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_USER_DEFINED = 4
"""A SentencePiece model's type for a piece that is found before any other."""


@runtime_checkable
class Vocabulary(Protocol):
    """Text to token ids and back, whatever kind of file says how.

    A T5's has padding as id 0 and end of sequence as id 1. Two vocabularies are equal
    when their fingerprints are.

    Attributes:
      path: of its file, for messages.
      fingerprint: tells its content from any other.
    """

    path: str
    fingerprint: str

    @property
    def vocab_size(self) -> int:
        """Number of ids; a model's table may have more rows."""
        ...

    @property
    def pieces(self) -> list[str]:
        """The text of each id, with U+2581 for a space."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids, without end of sequence."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids up to the first end of sequence; padding is dropped."""
        ...


class SentencePieceVocabulary:
    """A SentencePiece model file as T5 uses it: pad 0, end of sequence 1, unknown 2.

    T5's own models were trained to also emit 100 sentinels, `<extra_id_0>` and so on.
    The file of t5x's configs (`cc_all.32000.100extra`) and mT5's have them as pieces;
    Hugging Face's `spiece.model` and `cc_all.32000` end before them.

    Args:
      path: the .model file.
      extra_ids: sentinels to append to the file's pieces, the one numbered 0 last, as
        seqio's SentencePieceVocabulary(path, extra_ids) does.
      model: what the file holds, where it has been read already.

    Raises:
      ValueError: if the file is missing, is no SentencePiece model, or has other
        special ids; or it holds sentinels and more are wanted.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        extra_ids: int = 0,
        model: bytes | None = None,
    ):
        self.path = str(path)
        self.extra_ids = extra_ids
        if extra_ids < 0:
            raise ValueError(f"want extra_ids >= 0, got {extra_ids}")
        try:
            model = pathlib.Path(path).read_bytes() if model is None else model
            self._processor = sentencepiece.SentencePieceProcessor()
            self._processor.LoadFromSerializedProto(model)
        except OSError as error:
            raise ValueError(
                f"no SentencePiece model at {path}: {error.strerror}"
            ) from None
        except RuntimeError:
            raise ValueError(f"{path} is not a SentencePiece model") from None
        ids = (self._processor.pad_id(), self._processor.eos_id())
        if ids != (PAD_ID, EOS_ID):
            raise ValueError(
                f"{path}: a T5 vocabulary has pad id {PAD_ID} and end-of-sequence id "
                f"{EOS_ID}, this one has {ids[0]} and {ids[1]}"
            )
        if extra_ids:
            if self.has_sentinels:
                raise ValueError(
                    f"{path} holds its sentinels: want extra_ids 0, got {extra_ids}"
                )
            model += b"".join(map(_sentinel, reversed(range(extra_ids))))
            self._processor.LoadFromSerializedProto(model)
        self.fingerprint = hashlib.sha256(model).hexdigest()

    @property
    def vocab_size(self) -> int:
        """Number of pieces; a model's table may have more rows."""
        return self._processor.vocab_size()

    @property
    def has_sentinels(self) -> bool:
        """Whether `<extra_id_0>` is a piece."""
        spellings = ("<extra_id_0>", f"{SPACE}<extra_id_0>")
        return any(self._processor.PieceToId(one) != UNK_ID for one in spellings)

    def encode(self, text: str) -> list[int]:
        """Token ids, without end of sequence."""
        return self._processor.EncodeAsIds(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text, on all cores."""
        return self._processor.EncodeAsIds(list(texts))

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids up to the first end of sequence; padding is dropped."""
        # Rows of the table beyond the pieces, and what is no row, have no text.
        size = self.vocab_size
        kept = [i if 0 <= i < size else UNK_ID for i in until_end(ids)]
        return self._processor.DecodeIds(kept)

    @functools.cached_property
    def pieces(self) -> list[str]:
        """The text of each id, with U+2581 for a space."""
        return [self._processor.IdToPiece(i) for i in range(self.vocab_size)]

    def __eq__(self, other) -> bool:
        same_type = isinstance(other, SentencePieceVocabulary)
        return same_type and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"SentencePieceVocabulary({self.path!r}, {self.vocab_size} pieces)"


class ByteVocabulary:
    """ByT5's vocabulary: byte b of a text's UTF-8 is id b + 3.

    Args:
      extra_ids: sentinels after the bytes. t5x's configs of ByT5 have none; Hugging
        Face counts 125, which fills the 384 rows of the public models' tables.

    Reference: Xue et al. 2022, https://arxiv.org/abs/2105.13626, section 3.1.
    """

    path = BYTES

    def __init__(self, extra_ids: int = 0):
        if extra_ids < 0:
            raise ValueError(f"want extra_ids >= 0, got {extra_ids}")
        self.extra_ids = extra_ids
        self.fingerprint = hashlib.sha256(f"{BYTES}+{extra_ids}".encode()).hexdigest()

    @property
    def vocab_size(self) -> int:
        """Special ids, 256 bytes, and the sentinels."""
        return NUM_SPECIAL + 256 + self.extra_ids

    def encode(self, text: str) -> list[int]:
        """Token ids, without end of sequence."""
        return [NUM_SPECIAL + byte for byte in text.encode()]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids up to the first end of sequence.

        What is no byte is dropped, and so are bytes that make no character.
        """
        values = (i - NUM_SPECIAL for i in until_end(ids))
        return bytes(v for v in values if 0 <= v < 256).decode(errors="ignore")

    @functools.cached_property
    def pieces(self) -> list[str]:
        """The text of each id, with U+2581 for a space and `<0xNN>` for a byte."""
        ascii_text = [SPACE, *map(chr, range(0x21, 0x7F))]
        values = [f"<0x{byte:02X}>" for byte in range(256)]
        values[0x20:0x7F] = ascii_text
        extra = [f"<extra_id_{i}>" for i in reversed(range(self.extra_ids))]
        return ["<pad>", "</s>", "<unk>", *values, *extra]

    def __eq__(self, other) -> bool:
        return isinstance(other, ByteVocabulary) and self.extra_ids == other.extra_ids

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"ByteVocabulary({self.extra_ids})"


def until_end(ids: Iterable[int]) -> list[int]:
    """The ids before the first end of sequence, without padding."""
    kept = []
    for token in ids:
        if token == EOS_ID:
            break
        if token != PAD_ID:
            kept.append(int(token))
    return kept


def _sentinel(number: int) -> bytes:
    """A sentinel's piece, as it stands in the protocol buffer of a model.

    A model's pieces are a repeated field, so one that is appended is the last; doing
    it by hand needs no package for protocol buffers.
    """
    piece = f"{SPACE}<extra_id_{number}>".encode()
    entry = b"\x0a" + bytes([len(piece)]) + piece  # field 1, its text
    entry += b"\x15" + struct.pack("<f", 0.0)  # field 2, its score
    entry += b"\x18" + bytes([_USER_DEFINED])  # field 3, its type
    return b"\x0a" + bytes([len(entry)]) + entry


def train_vocabulary(
    texts: Iterable[str], path: str | pathlib.Path, vocab_size: int = 4096
) -> SentencePieceVocabulary:
    """Trains a unigram vocabulary with byte fallback on `texts` and writes it.

    Args:
      texts: training text alone, never held-out text.
      path: where the .model file goes.
      vocab_size: pieces, the special ids and 256 bytes included.

    Reference: Kudo and Richardson 2018, https://arxiv.org/abs/1808.06226.
    """
    import io

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type="unigram",
        vocab_size=vocab_size,
        character_coverage=0.9998,
        byte_fallback=True,
        pad_id=PAD_ID,
        eos_id=EOS_ID,
        unk_id=UNK_ID,
        bos_id=-1,
        max_sentence_length=20000,
        input_sentence_size=200_000,
        shuffle_input_sentence=True,
        minloglevel=1,
    )
    pathlib.Path(path).write_bytes(model.getvalue())
    return SentencePieceVocabulary(path)
