"""From logits to probabilities.

The transforms agree with t5x's `temperature_sample` (google-research/t5x,
decoding.py): temperature before the filters, ties kept by top-k and top-p, any
temperature up to 1e-4 is argmax.
"""

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from spec_jax.base import Sampling
from spec_jax.core.draws import first_argmax
from spec_jax.core.filters import keep_min_p, keep_top_k, keep_top_p
from spec_jax.core.row_values import BIAS, RANGES, row_bias, row_values

GREEDY_TEMPERATURE = 1e-4
"""Temperatures up to this are argmax, as in t5x."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingPolicy:
    """The one function from logits to probabilities; static and hashable.

    In this order: vocabulary limit, bans, bias, repetition penalty; then
    temperature; then top-k, top-p and min-p, each on what the one before it left.
    What is off is not compiled in; a key of `sampling` turns its transform on,
    with a value for each row (logit_bias: a row of v values, -inf bans).

    Attributes:
      temperature: divides the logits; up to 1e-4 it means argmax.
      top_k: keep the k likeliest tokens and ties with the last; 0 keeps all.
      top_p: keep the smallest set of the likeliest tokens with at least this
        probability, and ties with its last; 1 keeps all.
      min_p: keep tokens with at least this share of the largest probability; 0
        keeps all.
      vocab_limit: the number of ids that the tokenizer has. Later columns of the
        logits are padding and cut off, so models of differently padded tables
        share one v.
      banned: ids that are never emitted.
      logit_bias: {id: what is added to its logit}, or such pairs.
      repetition_penalty: divides the positive and multiplies the negative logits
        of tokens that the decoder has seen, its prompt included; 1 is off.

    Raises:
      ValueError: if a field is out of range.

    Reference: the penalty is that of Keskar et al. 2019,
    https://arxiv.org/abs/1909.05858, section 4.1, as Hugging Face applies it.

    Example:
      >>> policy = SamplingPolicy(temperature=2.0, top_p=0.8)
      >>> [round(float(x), 4) for x in policy.probs(jnp.array([3.0, 1.0, 0.0]))]
      [0.7311, 0.2689, 0.0]
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    vocab_limit: int | None = None
    banned: Sequence[int] = ()
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] = ()
    repetition_penalty: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "banned", tuple(self.banned))
        object.__setattr__(self, BIAS, _as_pairs(self.logit_bias))
        for name, (wanted, lies_in) in RANGES.items():
            value = getattr(self, name)
            if np.ndim(value):
                raise ValueError(
                    f"want one {name}, got shape {np.shape(value)}; values for each "
                    "row go into `sampling`"
                )
            if not lies_in(value):
                raise ValueError(f"want {name} {wanted}, got {value}")
        if self.vocab_limit is not None and self.vocab_limit < 1:
            raise ValueError(f"want vocab_limit >= 1, got {self.vocab_limit}")
        if any(token < 0 for token in self.banned):
            raise ValueError(f"want banned ids >= 0, got {self.banned}")

    def is_greedy(self, sampling: Sampling | None = None) -> bool:
        """Whether every row is argmax, known at trace time."""
        static = sampling is None or "temperature" not in sampling
        return static and self.temperature <= GREEDY_TEMPERATURE

    def greedy(
        self,
        logits: Float[Array, "*b v"],
        sampling: Sampling | None = None,
        history: Bool[Array, "*b w"] | None = None,
    ) -> Int[Array, "*b"]:
        """The likeliest token, the first of equals; no softmax is computed.

        Columns past vocab_limit are masked, not cut off: where the vocabulary is
        divided over devices a cut would move all of it, a mask moves nothing.
        """
        size = logits.shape[-1]
        if self.vocab_limit in (None, size) or BIAS in (sampling or {}):
            return first_argmax(self._adjusted(logits, sampling, history))
        # The same checks; nothing is computed.
        jax.eval_shape(self._adjusted, logits, sampling, history)
        if history is not None:
            added = [(0, 0)] * (history.ndim - 1) + [(0, size - self.vocab_limit)]
            history = jnp.pad(history, added)
        whole = dataclasses.replace(self, vocab_limit=None)
        adjusted = whole._adjusted(logits, sampling, history)
        exists = np.arange(size) < self.vocab_limit
        token = first_argmax(jnp.where(exists, adjusted, -jnp.inf))
        return jnp.minimum(token, self.vocab_limit - 1)  # of a row with a NaN

    def probs(
        self,
        logits: Float[Array, "*b v"],
        sampling: Sampling | None = None,
        history: Bool[Array, "*b w"] | None = None,
    ) -> Float[Array, "*b w"]:
        """The distribution that this policy draws from.

        Args:
          logits: any float dtype, cast to float32 before anything else.
          sampling: values of the b rows (the first axis) instead of the fields.
          history: which tokens came before each position, from `history`.

        Returns:
          float32, w = vocab_limit columns if that is set, else v. Argmax rows
          are one-hot.

        Raises:
          ValueError: if `sampling` has an unknown name or a wrong shape, the
            logits have fewer columns than the tokenizer has ids, or a penalty
            lacks its history.
        """
        logits = self._adjusted(logits, sampling, history)
        if self.is_greedy(sampling):
            return _one_hot(first_argmax(logits), logits.shape[-1])
        values = row_values(sampling, logits)
        temperature = values.get("temperature", self.temperature)
        scaled = logits / jnp.maximum(temperature, GREEDY_TEMPERATURE)
        if self.top_k or "top_k" in values:
            scaled = keep_top_k(scaled, values.get("top_k", self.top_k))
        if self.top_p < 1 or "top_p" in values:
            scaled = keep_top_p(scaled, values.get("top_p", self.top_p))
        if self.min_p or "min_p" in values:
            scaled = keep_min_p(scaled, values.get("min_p", self.min_p))
        probs = jax.nn.softmax(scaled)
        if "temperature" in values:
            greedy = _one_hot(first_argmax(logits), logits.shape[-1])
            probs = jnp.where(temperature <= GREEDY_TEMPERATURE, greedy, probs)
        return probs

    def history(
        self,
        tokens: Int[Array, "b l"],
        length: Int[Array, "b"],
        drafted: Int[Array, "b g"],
        vocab_size: int,
        sampling: Sampling | None = None,
    ) -> Bool[Array, "b n w"] | None:
        """Which tokens came before each position of a block; None if it is not asked.

        Args:
          tokens: the rows' tokens, of which the first `length[i]` count.
          length: how many those are.
          drafted: g tokens after them: position i has also seen the first i.
          vocab_size: v, columns of the logits.
          sampling: as for `probs`.

        Returns:
          w = vocab_limit columns if that is set, else v; n = g + 1 positions.
        """
        if not self.uses_history(sampling):
            return None
        width = self.vocab_limit or vocab_size
        counts = jnp.arange(tokens.shape[1]) < length[:, None]
        rows = jnp.arange(tokens.shape[0])[:, None]
        seen = jnp.zeros((len(rows), width), bool).at[rows, tokens].max(counts)
        block = [seen]
        for i in range(drafted.shape[1]):
            block.append(block[-1] | (jnp.arange(width) == drafted[:, i, None]))
        return jnp.stack(block, axis=1)

    def uses_history(self, sampling: Sampling | None = None) -> bool:
        """Whether a transform asks for the tokens before, known at trace time."""
        name = "repetition_penalty"
        return self.repetition_penalty != 1 or name in (sampling or {})

    def _adjusted(
        self,
        logits: Float[Array, "*b v"],
        sampling: Sampling | None,
        history: Bool[Array, "*b w"] | None,
    ) -> Float[Array, "*b w"]:
        """float32 logits up to the temperature: limit, bans, bias, penalty."""
        logits = self._allowed(logits)
        if self.logit_bias:
            ids, biases = zip(*self.logit_bias)
            if max(ids) >= logits.shape[-1]:
                raise ValueError(
                    f"want logit_bias for ids below {logits.shape[-1]}, got {max(ids)}"
                )
            dense = np.zeros(logits.shape[-1], np.float32)
            dense[list(ids)] = biases
            dropped = [token for token in self.banned if token < len(dense)]
            if not np.isfinite(np.delete(dense, dropped)).any():
                raise ValueError("want a token that neither ban nor bias excludes")
            logits = logits + dense
        if BIAS in (sampling or {}):
            logits = logits + row_bias(sampling[BIAS], logits)
        if self.uses_history(sampling):
            if history is None:
                raise ValueError(
                    "want the tokens before each position for repetition_penalty, got "
                    "none: pass history=policy.history(...)"
                )
            penalty = row_values(sampling, logits).get(
                "repetition_penalty", self.repetition_penalty
            )
            less = jnp.where(logits > 0, logits / penalty, logits * penalty)
            logits = jnp.where(history, less, logits)
        return logits

    def _allowed(self, logits: Float[Array, "*b v"]) -> Float[Array, "*b w"]:
        """float32 logits of the ids that exist, -inf where banned."""
        logits = logits.astype(jnp.float32)
        if self.vocab_limit is not None:
            if logits.shape[-1] < self.vocab_limit:
                raise ValueError(
                    f"want logits of at least vocab_limit = {self.vocab_limit} "
                    f"columns, got {logits.shape[-1]}: the model's table is "
                    "smaller than the tokenizer's"
                )
            logits = logits[..., : self.vocab_limit]
        if self.banned:
            allowed = ~np.isin(np.arange(logits.shape[-1]), self.banned)
            if not allowed.any():
                raise ValueError("want a token that is not banned, got none")
            logits = jnp.where(allowed, logits, -jnp.inf)
        return logits


def _one_hot(tokens: Int[Array, "*b"], size: int) -> Float[Array, "*b v"]:
    return jax.nn.one_hot(tokens, size, dtype=jnp.float32)


def token_logprobs(
    logits: Float[Array, "*b v"], tokens: Int[Array, "*b"]
) -> Float[Array, "*b"]:
    """The log-probability of each token under the raw logits, in float32."""
    logits = logits.astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def _as_pairs(bias) -> tuple[tuple[int, float], ...]:
    """A bias as a hashable value, by id."""
    pairs = bias.items() if isinstance(bias, Mapping) else bias
    try:
        pairs = sorted((operator.index(token), float(value)) for token, value in pairs)
    except (TypeError, ValueError):
        raise ValueError(
            f"want logit_bias as {{id: bias}}, such as {{5: -2.0}}, got {bias!r}"
        ) from None
    ids = [token for token, _ in pairs]
    if len(set(ids)) < len(ids) or any(token < 0 for token in ids):
        raise ValueError(f"want logit_bias for different ids >= 0, got {ids}")
    if any(math.isnan(value) or value == math.inf for _, value in pairs):
        raise ValueError(f"want each logit_bias a number below infinity, got {pairs}")
    return tuple(pairs)
