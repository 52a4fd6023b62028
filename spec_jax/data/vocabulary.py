"""SentencePiece vocabularies with T5's special ids."""

import functools
import hashlib
import pathlib
from collections.abc import Iterable, Sequence

import sentencepiece

PAD_ID = 0
EOS_ID = 1
UNK_ID = 2


class SentencePieceVocabulary:
    """A SentencePiece model file as T5 uses it: pad 0, end of sequence 1, unknown 2.

    Two vocabularies are equal when their model files hold the same bytes.

    Args:
      path: the .model file.

    Raises:
      ValueError: if the file is missing, is no SentencePiece model, or has other
        special ids.
    """

    def __init__(self, path: str | pathlib.Path):
        self.path = str(path)
        try:
            model = pathlib.Path(path).read_bytes()
            self._processor = sentencepiece.SentencePieceProcessor()
            self._processor.LoadFromSerializedProto(model)
        except OSError as error:
            raise ValueError(
                f"no SentencePiece model at {path}: {error.strerror}"
            ) from None
        except RuntimeError:
            raise ValueError(f"{path} is not a SentencePiece model") from None
        self.fingerprint = hashlib.sha256(model).hexdigest()
        ids = (self._processor.pad_id(), self._processor.eos_id())
        if ids != (PAD_ID, EOS_ID):
            raise ValueError(
                f"{path}: a T5 vocabulary has pad id {PAD_ID} and end-of-sequence id "
                f"{EOS_ID}, this one has {ids[0]} and {ids[1]}"
            )

    @property
    def vocab_size(self) -> int:
        """Number of pieces; a model's table may have more rows."""
        return self._processor.vocab_size()

    def encode(self, text: str) -> list[int]:
        """Token ids, without end of sequence."""
        return self._processor.EncodeAsIds(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text, on all cores."""
        return self._processor.EncodeAsIds(list(texts))

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids up to the first end of sequence; padding is dropped."""
        kept = []
        for token in ids:
            if token == EOS_ID:
                break
            if token != PAD_ID:
                # Rows of the table beyond the pieces have no text.
                kept.append(int(token) if token < self.vocab_size else UNK_ID)
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
