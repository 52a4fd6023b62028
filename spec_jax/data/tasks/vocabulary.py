"""A vocabulary of ours as seqio's, and whether a task's is the models'."""

import pathlib
from typing import Any

import numpy as np

from spec_jax.data import vocabulary as vocabularies
from spec_jax.data.tasks.libraries import seqio, tf
from spec_jax.data.tasks.messages import one_line

T5_VOCABULARY = "gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"
"""The vocabulary of T5, as t5x's gin files have it."""
PROBES = (
    "translate English to German: That is good.",
    "summarize: Größe 3.14 €, «ça va»? don't (I) [see] 50%",
    "naïve 日本語 \N{SLIGHTLY SMILING FACE} <extra> x^2_i",
)
"""Two vocabularies that give these the same tokens are taken to be the same."""


class _Vocabulary(seqio.Vocabulary):
    """A vocabulary of ours that has no counterpart in seqio, for seqio."""

    def __init__(self, ours: vocabularies.Vocabulary):
        super().__init__()
        self.ours = ours

    eos_id = vocabularies.EOS_ID
    unk_id = vocabularies.UNK_ID
    bos_id = None

    @property
    def _base_vocab_size(self) -> int:
        return self.ours.vocab_size

    def _encode(self, s: str) -> list[int]:
        return self.ours.encode(s)

    def _decode(self, ids) -> str:
        return self.ours.decode(ids)

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor:
        def encode(text):
            text = np.asarray(text, object).item()  # an array of one, or bytes
            return np.array(self.ours.encode(tf.compat.as_text(text)), np.int32)

        ids = tf.numpy_function(encode, [s], tf.int32)
        ids.set_shape([None])
        return ids

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        def decode(rows):
            flat = rows.reshape(-1, rows.shape[-1])
            texts = [self.ours.decode(row.tolist()).encode() for row in flat]
            return np.array(texts, object).reshape(rows.shape[:-1])

        texts = tf.numpy_function(decode, [ids], tf.string)
        texts.set_shape(ids.shape[:-1])
        return texts

    def __eq__(self, other) -> bool:
        return isinstance(other, _Vocabulary) and self.ours == other.ours

    def __hash__(self) -> int:
        return hash(self.ours)

    def __str__(self) -> str:
        return str(self.ours)


def as_seqio(vocabulary: Any) -> seqio.Vocabulary:
    """A vocabulary for seqio that gives exactly the same token ids.

    Args:
      vocabulary: a SentencePiece model's path (also gs://), 'bytes', a vocabulary of
        `spec_jax.data`, or seqio's, which is returned as it is.

    Returns:
      seqio's own class where it has one, so that it equals what t5x's gin files make.

    Raises:
      ValueError: if there is no such file; one in a bucket is opened later.
    """
    if isinstance(vocabulary, seqio.Vocabulary):
        return vocabulary
    if isinstance(vocabulary, str | pathlib.Path):
        if "://" in str(vocabulary):
            return seqio.SentencePieceVocabulary(str(vocabulary))
        if str(vocabulary) == vocabularies.BYTES:
            return seqio.ByteVocabulary()
        vocabulary = vocabularies.SentencePieceVocabulary(vocabulary)
    if isinstance(vocabulary, vocabularies.ByteVocabulary):
        return seqio.ByteVocabulary(vocabulary.extra_ids)
    from_file = isinstance(vocabulary, vocabularies.SentencePieceVocabulary)
    if from_file and pathlib.Path(vocabulary.path).is_file():
        return seqio.SentencePieceVocabulary(vocabulary.path, vocabulary.extra_ids)
    return _Vocabulary(vocabulary)


def check_vocabulary(task: seqio.Task, vocabulary: seqio.Vocabulary) -> None:
    """Raises ValueError unless the task's tokens are the models'."""
    for key in ("inputs", "targets"):
        if key not in task.output_features:
            continue
        theirs = task.output_features[key].vocabulary
        with one_line(f"cannot read the vocabulary of the task {task.name}"):
            if theirs == vocabulary:
                continue
            sizes = _sizes(theirs), _sizes(vocabulary)
            ids = [(theirs.encode(text), vocabulary.encode(text)) for text in PROBES]
        begin = f"the task {task.name} has another vocabulary than the models: its"
        if not set(sizes[0]) & set(sizes[1]):
            raise ValueError(
                f"{begin} {key} have {sizes[0][0]} ids, theirs {sizes[1][0]}"
            )
        for text, (got, wanted) in zip(PROBES, ids, strict=True):
            if list(got) != list(wanted):
                raise ValueError(
                    f"{begin} {key} make {list(got)[:6]} ... of {text!r}, theirs "
                    f"{list(wanted)[:6]} ..."
                )


def _sizes(vocabulary: seqio.Vocabulary) -> tuple[int, ...]:
    """With sentinels and without: no text has them."""
    size = vocabulary.vocab_size
    return tuple(dict.fromkeys((size, size - vocabulary.extra_ids)))
