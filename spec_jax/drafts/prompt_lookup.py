"""Proposals copied from the prompt side or the decoder's own history."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from spec_jax.base import Proposal


@dataclasses.dataclass(frozen=True)
class PromptLookupDraft:
    """Finds where the newest tokens occurred before and copies what followed.

    The longest match wins, the latest of equally long ones, and the decoder's history
    before the encoder's inputs: it is text of the target's own kind, whereas the inputs
    may be of another language. A proposal ends with what is known, before padding, or
    with an EOS that it copies; without a match it is empty. No token is drawn.

    Attributes:
      gamma: the most tokens proposed in a step.
      max_ngram: the most newest tokens to look for.
      min_ngram: the fewest.
      eos_id: copied, it ends a proposal; None: no such token.
      search_inputs: whether inputs are searched, where they are tokens [b, s].
      pad_id: no part of the inputs.

    Reference: Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding; Yang
    et al. 2023, https://arxiv.org/abs/2304.04487.
    """

    gamma: int
    max_ngram: int = 3
    min_ngram: int = 1
    eos_id: int | None = 1
    search_inputs: bool = True
    pad_id: int = 0
    noise: ClassVar[None] = None
    has_cache: ClassVar[bool] = False

    def __post_init__(self):
        if self.gamma < 1:
            raise ValueError(f"want gamma >= 1, got {self.gamma}")
        if not 1 <= self.min_ngram <= self.max_ngram:
            raise ValueError(
                "want 1 <= min_ngram <= max_ngram, got "
                f"{self.min_ngram} and {self.max_ngram}"
            )

    def init(self, params, inputs, prompt, prompt_length, max_length):
        """Keeps the inputs. See `DraftSource.init`."""
        del params, prompt_length, max_length
        shape, dtype = getattr(inputs, "shape", ()), getattr(inputs, "dtype", None)
        is_tokens = len(shape) == 2 and jnp.issubdtype(dtype, jnp.integer)
        if not self.search_inputs or not is_tokens:
            return jnp.zeros((prompt.shape[0], 0), jnp.int32)
        return jnp.asarray(inputs, jnp.int32)

    def propose(self, params, draft_state, keys, tokens, length, sampling=None):
        """See `DraftSource.propose`."""
        del params, keys, sampling
        inputs = draft_state
        newest = length[:, None] - 1 - jnp.arange(self.max_ngram)
        suffix = jnp.take_along_axis(tokens, jnp.maximum(newest, 0), 1)
        suffix = jnp.where(newest >= 0, suffix, -1)
        known = jnp.arange(tokens.shape[1]) < length[:, None]
        matched, drafted, count = self._copy(tokens, known, suffix)
        if inputs.shape[1]:
            in_inputs = self._copy(inputs, inputs != self.pad_id, suffix)
            wins = in_inputs[0] > matched
            drafted = jnp.where(wins[:, None], in_inputs[1], drafted)
            count = jnp.where(wins, in_inputs[2], count)
        return Proposal(drafted, None, count), draft_state

    def _copy(
        self,
        text: Int[Array, "b m"],
        known: Bool[Array, "b m"],
        suffix: Int[Array, "b k"],
    ) -> tuple[Int[Array, "b"], Int[Array, "b g"], Int[Array, "b"]]:
        """The longest match in one text: its length, what followed, how much.

        Args:
          text: where to search.
          known: which of it there is; the rest is neither matched nor copied.
          suffix: the newest tokens, the newest first, -1 before a row's beginning.
        """
        size = text.shape[1]
        usable = jnp.where(known, text, -2)
        # Place j ends a match if something known follows it.
        goes_on = jnp.pad(known[:, 1:], ((0, 0), (0, 1)))
        matched = jnp.zeros(text.shape, jnp.int32)
        for i in range(self.max_ngram):
            before = jnp.pad(usable, ((0, 0), (i, 0)), constant_values=-2)[:, :size]
            goes_on &= before == suffix[:, i, None]
            matched += goes_on
        matched = jnp.where(matched >= self.min_ngram, matched, 0)
        # One maximum finds the longest and, of equals, the latest.
        best = (matched * size + jnp.arange(size)).max(1)
        matched, place = best // size, best % size
        source = place[:, None] + 1 + jnp.arange(self.gamma)
        inside = jnp.minimum(source, size - 1)
        drafted = jnp.take_along_axis(text, inside, 1)
        copied = jnp.take_along_axis(known, inside, 1) & (source < size)
        copied &= matched[:, None] > 0
        if self.eos_id is not None:
            is_eos = (drafted == self.eos_id).astype(jnp.int32)
            copied &= jnp.cumsum(is_eos, axis=1) - is_eos == 0
        return matched, drafted, jnp.cumprod(copied, axis=1).sum(1).astype(jnp.int32)
