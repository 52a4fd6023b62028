"""A T5 target and a T5 draft that share a vocabulary, loaded and ready to decode."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from spec_jax.data.batches import pad
from spec_jax.data.vocabulary import BYTES, EOS_ID, PAD_ID, Vocabulary
from spec_jax.models.t5 import T5Config, T5Decoder
from spec_jax.pairs.drafting import Drafting
from spec_jax.pairs.folders import PACKAGE, cast, load_model, resolve
from spec_jax.pairs.vocabularies import open_vocabulary, pair_vocabulary
from spec_jax.partitioning import Partitioner, ShardedDecoder

START_ID = PAD_ID
"""T5's decoder starts from the padding id."""


@dataclasses.dataclass(frozen=True)
class Pair(Drafting):
    """A target and a draft over one vocabulary.

    Attributes:
      name: how reports call it.
      target: the model whose distribution the output follows.
      draft: the small model.
      params: {"target": ..., "draft": ...}, each in its model's dtype. Of an abstract
        pair their jax.ShapeDtypeStruct.
      vocabulary: of both; an abstract pair may have none.
      tables: where the counts of token pairs are, for drafts that are tables.
      source: where proposals come from, one of `choices.DRAFTS`.
    """

    name: str
    target: T5Decoder | ShardedDecoder
    draft: T5Decoder | ShardedDecoder
    params: dict[str, Any] = dataclasses.field(repr=False)
    vocabulary: Vocabulary | None
    tables: str | None = None
    source: str = "model"

    eos_id: ClassVar[int] = EOS_ID
    pad_id: ClassVar[int] = PAD_ID
    one_line: ClassVar[bool] = True

    def astype(self, dtype) -> "Pair":
        """The same pair with parameters and activations in another dtype.

        Raises:
          ValueError: for float16 with T5 1.1, or after `using`.
        """
        target, draft = (
            _with_dtype(model, dtype) for model in (self.target, self.draft)
        )
        if self.source != "model":
            raise ValueError(
                f"want the pair as it was loaded, got one of {self.source}"
            )
        params = cast(self.params, target.config.dtype)  # the draft's is the same now
        return dataclasses.replace(self, target=target, draft=draft, params=params)

    @property
    def vocab_size(self) -> int:
        """Ids that are ever emitted; without a vocabulary those of both tables."""
        if self.vocabulary is not None:
            return self.vocabulary.vocab_size
        return min(model.config.vocab_size for model in (self.target, self.draft))

    def encode(self, text: str) -> tuple[int, ...]:
        """The encoder's input for a text, prefix included."""
        return (*self._of_text().encode(text), EOS_ID)

    def cut(self, tokens: tuple[int, ...], limit: int) -> tuple[int, ...]:
        """An input of at most `limit` tokens; it still ends with EOS."""
        return tokens if len(tokens) <= limit else (*tokens[: limit - 1], EOS_ID)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of new tokens."""
        return self._of_text().decode(tokens)

    def _of_text(self) -> Vocabulary:
        if self.vocabulary is None:
            raise ValueError(
                f"the pair {self.name} was made without a vocabulary, which text "
                "needs: give load_pair.vocabulary"
            )
        return self.vocabulary

    def arguments(
        self, rows: Sequence[Sequence[int]], length: int
    ) -> dict[str, np.ndarray]:
        """What `generate` takes for encoded rows, padded to a length."""
        return {
            "inputs": pad(rows, length, len(rows)),
            "prompt": np.full((len(rows), 1), START_ID, np.int32),
        }


def load_pair(
    target: str,
    draft: str,
    vocabulary: str | None = None,
    *,
    target_config: T5Config | None = None,
    draft_config: T5Config | None = None,
    dtype: Any = "bfloat16",
    draft_dtype: Any = None,
    tables: str | None = None,
    name: str | None = None,
    extra_ids: int | None = None,
    abstract: bool = False,
    partitioner: Partitioner | None = None,
) -> Pair:
    """Loads a pair from checkpoints of any kind that `load_params` reads.

    Args:
      target: path of the target's checkpoint, or of the run that trained it; see
        `resolve`.
      draft: of the draft's.
      vocabulary: of a SentencePiece model or a tokenizer.json, or 'bytes' for ByT5;
        see `open_vocabulary`. None takes what lies beside the target, or else beside
        the draft; see `find_vocabulary`.
      target_config: its shape; None reads it from the folder or, where that holds
        none, as t5x's, off its arrays; see `read_model_config`.
      draft_config: the draft's.
      dtype: of parameters and activations.
      draft_dtype: the draft's, where it is another one: a draft decodes one token at
        a time, its target several, and that may be fast in another dtype.
      tables: of token pairs, for drafts that read them; see `Pair.using`.
      name: for reports; by default from the paths.
      extra_ids: sentinels beyond the pieces of the vocabulary's file; see
        `open_vocabulary`.
      abstract: loads no parameters, and needs no file where a config is given: the
        pair has their shapes, and the vocabulary if that is there.
      partitioner: divides both models over the devices of a mesh; None, or one
        without partitions, keeps them on the default device.

    Returns:
      The pair, its parameters on the default device.

    Raises:
      ValueError: if a file is missing or damaged, or the two tables cannot belong
        to the vocabulary; it is said which of the two models is meant.
    """
    pieces = _vocabulary(target, draft, vocabulary, extra_ids, abstract)
    big, big_params = load_model(
        target, pieces, target_config, dtype, "target", abstract, partitioner
    )
    small, small_params = load_model(
        draft,
        pieces,
        draft_config,
        draft_dtype or dtype,
        "draft",
        abstract,
        partitioner,
    )
    return Pair(
        name or f"{_short(target)}+{_short(draft)}",
        big,
        small,
        {"target": big_params, "draft": small_params},
        pieces,
        tables,
    )


def shipped_pair(dtype: Any = "bfloat16") -> Pair:
    """The pair that comes with the package: English to German, and summaries."""
    return load_pair(
        PACKAGE + "pretrained/target",
        PACKAGE + "pretrained/draft",
        PACKAGE + "pretrained/vocabulary.model",
        dtype=dtype,
        tables=PACKAGE + "pretrained/ngram.safetensors",
        name="shipped",
    )


def _with_dtype(decoder: T5Decoder | ShardedDecoder, dtype):
    if isinstance(decoder, ShardedDecoder):
        inner = _with_dtype(decoder.decoder, dtype)
        return dataclasses.replace(decoder, decoder=inner)
    return T5Decoder(dataclasses.replace(decoder.config, dtype=dtype))


def _vocabulary(
    target: str, draft: str, path: str | None, extra_ids: int | None, abstract: bool
) -> Vocabulary | None:
    """The vocabulary; for an abstract pair only if it lies on this machine."""
    if path is None:
        return pair_vocabulary(target, draft, extra_ids, local=abstract)
    if abstract and path != BYTES and not os.path.exists(resolve(path)):
        return None
    return open_vocabulary(path, extra_ids)


def _short(path: str) -> str:
    return pathlib.PurePosixPath(str(path)).name
