"""What any target decodes with: its own policy, and a draft chosen by name."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from spec_jax.base import Decoder, DraftSource
from spec_jax.core.rules import AnyRule, TokenRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.decoding.speculative import Speculative
from spec_jax.drafts import FixedLength, LengthPolicy
from spec_jax.pairs.choices import draft_params, make_draft, noise_of
from spec_jax.pairs.folders import resolve
from spec_jax.pairs.tables import load_tables
from spec_jax.partitioning import ShardedDecoder, place, replicated


class Drafting:
    """A target with its draft, as both kinds of pair are one.

    Attributes:
      name: how reports call it.
      target: the model whose distribution the output follows.
      draft: the small model; None where there is none.
      params: {"target": ..., "draft": ...}: what algorithms take, the draft's being
        those of `source`.
      vocabulary: of all.
      tables: where the counts of token pairs are, for drafts that are tables.
      source: where proposals come from, one of `choices.DRAFTS`.
      eos_id: ends a row.
      pad_id: fills rows.
      stop: other tokens that end a row, and sequences of them.
      one_line: whether texts have no line breaks.
    """

    name: str
    target: Decoder
    draft: Decoder | None
    params: dict[str, Any]
    vocabulary: Any
    tables: str | None
    source: str
    eos_id: int | None
    pad_id: int
    stop: Sequence[Sequence[int]] = ()
    one_line: bool

    @property
    def dtype(self) -> np.dtype:
        """Of the target's parameters and activations."""
        return self.target.config.dtype

    @property
    def draft_dtype(self) -> np.dtype | None:
        """Of the small model's; None where there is none."""
        return None if self.draft is None else self.draft.config.dtype

    @property
    def vocab_size(self) -> int:
        """Ids that are ever emitted: the vocabulary's."""
        return self.vocabulary.vocab_size

    def encode(self, text: str) -> tuple[int, ...]:
        """What the model is given for a text."""
        raise NotImplementedError

    def cut(self, tokens: tuple[int, ...], limit: int) -> tuple[int, ...]:
        """The same in at most `limit` tokens."""
        raise NotImplementedError

    def arguments(self, rows: Sequence[Sequence[int]], length: int) -> dict[str, Any]:
        """inputs, prompt and prompt_length of encoded rows, padded to a length."""
        raise NotImplementedError

    def text(self, tokens: Sequence[int]) -> str:
        """The text of new tokens."""
        raise NotImplementedError

    def policy(self, temperature: float = 0.0, **fields) -> SamplingPolicy:
        """A policy that never emits an id the vocabulary does not have."""
        return self._limited(SamplingPolicy(temperature=temperature, **fields))

    def using(self, source: str) -> "Drafting":
        """The same target with proposals from elsewhere.

        Args:
          source: one of `choices.DRAFTS`.

        Raises:
          ValueError: if the name is unknown, or there is no small model, or there are
            no tables, for one that wants it.
        """
        if source == self.source:
            return self
        model = self.params.get("draft")
        if self.source == "chain":
            model = model["model"]
        elif self.source != "model":
            model = None
        if source in ("model", "chain") and model is None:
            raise ValueError(
                f"the draft {source!r} wants a small model, {self.name} "
                + ("has none" if self.draft is None else f"uses {self.source!r} now")
            )
        tables = None
        if source in ("unigram", "bigram", "chain"):
            if self.tables is None:
                raise ValueError(
                    f"the draft {source!r} wants tables, {self.name} has none: "
                    "`spec-jax data ngram` counts them, TABLES names them"
                )
            tables = load_tables(resolve(self.tables), self.vocabulary)
            if isinstance(self.target, ShardedDecoder):  # every device has them whole
                whole = replicated(self.target.mesh)
                tables = place(jax.tree.map(np.asarray, tables), whole)
        params = {
            "target": self.params["target"],
            "draft": draft_params(source, model, tables),
        }
        return dataclasses.replace(self, params=params, source=source)

    def draft_source(
        self,
        gamma: int,
        policy: SamplingPolicy,
        lengths: LengthPolicy | None = None,
        rule: AnyRule | None = None,
    ) -> DraftSource:
        """Where proposals come from; they are drawn as the rule wants it."""
        return make_draft(
            self.source,
            self.draft,
            self.vocab_size,
            gamma,
            self._limited(policy),
            lengths or FixedLength(),
            noise_of(rule),
            self.eos_id,
        )

    def speculative(
        self,
        gamma: int,
        policy: SamplingPolicy,
        rule: AnyRule | None = None,
        lengths: LengthPolicy | None = None,
        **fields,
    ) -> Speculative:
        """Speculative decoding with the draft that is used."""
        return Speculative(
            self.target,
            self.draft_source(gamma, policy, lengths, rule),
            self._limited(policy),
            rule or TokenRule(),
            **self._endings(fields),
        )

    def autoregressive(
        self, policy: SamplingPolicy, rule: AnyRule | None = None, **fields
    ) -> Autoregressive:
        """Plain decoding by the target alone, with the noise that a rule repeats."""
        return Autoregressive(
            self.target,
            self._limited(policy),
            noise=noise_of(rule),
            **self._endings(fields),
        )

    def _endings(self, fields: dict[str, Any]) -> dict[str, Any]:
        stop = (*self.stop, *fields.get("stop", ()))
        own = {"eos_id": self.eos_id, "pad_id": self.pad_id}
        return own | fields | {"stop": stop}

    def _limited(self, policy: SamplingPolicy) -> SamplingPolicy:
        """The policy, kept from ids of the tables that the vocabulary lacks."""
        if policy.vocab_limit is not None:
            return policy
        return dataclasses.replace(policy, vocab_limit=self.vocab_size)
