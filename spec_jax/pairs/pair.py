"""A target and a draft that share a vocabulary, loaded and ready to decode."""

import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np

from spec_jax.base import DraftSource, Noise
from spec_jax.core.rules import AnyRule, TokenRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.vocabulary import EOS_ID, PAD_ID, SentencePieceVocabulary
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.decoding.speculative import Speculative
from spec_jax.drafts import FixedLength, LengthPolicy
from spec_jax.models.t5 import T5Config, T5Decoder
from spec_jax.pairs.choices import draft_params, make_draft, noise_of
from spec_jax.pairs.folders import PACKAGE, load_model, resolve
from spec_jax.pairs.tables import load_tables

START_ID = PAD_ID
"""T5's decoder starts from the padding id."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A target and a draft over one vocabulary.

    Attributes:
      name: how reports call it.
      target: the model whose distribution the output follows.
      draft: the small model.
      params: {"target": ..., "draft": ...}; models are in `dtype`.
      vocabulary: of both.
      tables: where the counts of token pairs are, for drafts that are tables.
      source: where proposals come from, one of `choices.DRAFTS`.
    """

    name: str
    target: T5Decoder
    draft: T5Decoder
    params: dict[str, Any]
    vocabulary: SentencePieceVocabulary
    tables: str | None = None
    source: str = "model"

    @property
    def dtype(self) -> np.dtype:
        """Of the target's parameters and activations."""
        return self.target.config.dtype

    def policy(self, temperature: float = 0.0, **fields) -> SamplingPolicy:
        """A policy that never emits an id the vocabulary does not have."""
        return self._limited(SamplingPolicy(temperature=temperature, **fields))

    def using(self, source: str) -> "Pair":
        """The same target with proposals from elsewhere than the small model.

        Args:
          source: one of `choices.DRAFTS`.

        Raises:
          ValueError: if the name is unknown, this pair uses another source already,
            or it has no tables for one that reads them.
        """
        if source == self.source:
            return self
        if self.source != "model":
            raise ValueError(
                f"want the pair as it was loaded, got one of {self.source}"
            )
        tables = None
        if source in ("unigram", "bigram", "chain"):
            if self.tables is None:
                raise ValueError(
                    f"the draft {source!r} wants tables, the pair {self.name} has "
                    "none: `spec-jax data ngram` counts them, load_pair.tables names "
                    "them"
                )
            tables = load_tables(resolve(self.tables), self.vocabulary)
        draft = draft_params(source, self.params["draft"], tables)
        params = {"target": self.params["target"], "draft": draft}
        return dataclasses.replace(self, params=params, source=source)

    def draft_source(
        self,
        gamma: int,
        policy: SamplingPolicy,
        lengths: LengthPolicy | None = None,
        noise: Noise = "uniform",
    ) -> DraftSource:
        """Where proposals come from."""
        return make_draft(
            self.source,
            self.draft,
            self.vocabulary.vocab_size,
            gamma,
            self._limited(policy),
            lengths or FixedLength(),
            noise,
            EOS_ID,
        )

    def speculative(
        self,
        gamma: int,
        policy: SamplingPolicy,
        rule: AnyRule | None = None,
        lengths: LengthPolicy | None = None,
        **fields,
    ) -> Speculative:
        """Speculative decoding; the draft draws as the rule wants it to."""
        return Speculative(
            self.target,
            self.draft_source(gamma, policy, lengths, noise_of(rule)),
            self._limited(policy),
            rule or TokenRule(),
            eos_id=EOS_ID,
            pad_id=PAD_ID,
            **fields,
        )

    def autoregressive(
        self, policy: SamplingPolicy, rule: AnyRule | None = None, **fields
    ) -> Autoregressive:
        """Plain decoding by the target alone, with the noise that a rule repeats."""
        return Autoregressive(
            self.target,
            self._limited(policy),
            noise=noise_of(rule),
            eos_id=EOS_ID,
            pad_id=PAD_ID,
            **fields,
        )

    def astype(self, dtype) -> "Pair":
        """The same pair with parameters and activations in another dtype.

        Raises:
          ValueError: for float16 with T5 1.1, or after `using`.
        """
        target, draft = (
            T5Decoder(dataclasses.replace(model.config, dtype=dtype))
            for model in (self.target, self.draft)
        )
        if self.source != "model":
            raise ValueError(
                f"want the pair as it was loaded, got one of {self.source}"
            )
        cast = jax.tree.map(lambda x: x.astype(target.config.dtype), self.params)
        return dataclasses.replace(self, target=target, draft=draft, params=cast)

    def _limited(self, policy: SamplingPolicy) -> SamplingPolicy:
        """The policy, kept from ids of the tables that the vocabulary lacks."""
        if policy.vocab_limit is not None:
            return policy
        return dataclasses.replace(policy, vocab_limit=self.vocabulary.vocab_size)


def load_pair(
    target: str,
    draft: str,
    vocabulary: str,
    *,
    target_config: T5Config | None = None,
    draft_config: T5Config | None = None,
    dtype: Any = "bfloat16",
    tables: str | None = None,
    name: str | None = None,
) -> Pair:
    """Loads a pair from checkpoints of any kind that `load_params` reads.

    Args:
      target: path of the target's checkpoint, or of the run that trained it; see
        `resolve`.
      draft: of the draft's.
      vocabulary: of a SentencePiece model.
      target_config: its shape; None reads it from the folder, which t5x's
        checkpoints do not hold.
      draft_config: the draft's.
      dtype: of parameters and activations.
      tables: of token pairs, for drafts that read them; see `Pair.using`.
      name: for reports; by default from the paths.

    Returns:
      The pair, its parameters on the default device.

    Raises:
      ValueError: if a file is missing or damaged, or the two tables cannot belong
        to the vocabulary; it is said which of the two models is meant.
    """
    pieces = SentencePieceVocabulary(resolve(vocabulary))
    big, big_params = load_model(target, pieces, target_config, dtype)
    small, small_params = load_model(draft, pieces, draft_config, dtype, "draft")
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


def _short(path: str) -> str:
    return pathlib.PurePosixPath(str(path)).name
