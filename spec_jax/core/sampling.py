"""From logits to probabilities.

The transforms agree with t5x's `temperature_sample` (google-research/t5x,
decoding.py): temperature before the filters, ties kept by top-k and top-p, any
temperature up to 1e-4 is argmax.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from spec_jax.base import Sampling

GREEDY_TEMPERATURE = 1e-4
"""Temperatures up to this are argmax, as in t5x."""

_RANGES = {
    "temperature": (
        "finite and >= 0 (0 is argmax)",
        lambda x: np.isfinite(x) & (x >= 0),
    ),
    "top_k": (">= 0 and whole (0 is off)", lambda x: (x >= 0) & (x % 1 == 0)),
    "top_p": ("in (0, 1] (1 is off)", lambda x: (x > 0) & (x <= 1)),
    "min_p": ("in [0, 1] (0 is off)", lambda x: (x >= 0) & (x <= 1)),
}

ROW_VALUES = tuple(_RANGES)
"""What `sampling` may hold."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingPolicy:
    """The one function from logits to probabilities; static and hashable.

    In this order: vocabulary limit, bans; then temperature; then top-k, top-p
    and min-p, each on what the one before it left. What is off is not compiled
    in; a key of `sampling` turns its transform on, with a value for each row.

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

    Raises:
      ValueError: if a field is out of range.

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

    def __post_init__(self):
        object.__setattr__(self, "banned", tuple(self.banned))
        for name, (wanted, lies_in) in _RANGES.items():
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
        history: Int[Array, "b l"] | None = None,
    ) -> Int[Array, "*b"]:
        """The likeliest token, the first of equals; no softmax is computed."""
        return first_argmax(self._allowed(logits))

    def probs(
        self,
        logits: Float[Array, "*b v"],
        sampling: Sampling | None = None,
        history: Int[Array, "b l"] | None = None,
    ) -> Float[Array, "*b w"]:
        """The distribution that this policy draws from.

        Args:
          logits: any float dtype, cast to float32 before anything else.
          sampling: values of the b rows (the first axis) instead of the fields.
          history: the rows' earlier tokens, for transforms that need them; none
            of the present ones does.

        Returns:
          float32, w = vocab_limit columns if that is set, else v. Argmax rows
          are one-hot.

        Raises:
          ValueError: if `sampling` has an unknown name or a wrong shape, or the
            logits have fewer columns than the tokenizer has ids.
        """
        logits = self._allowed(logits)
        if self.is_greedy(sampling):
            return _one_hot(first_argmax(logits), logits.shape[-1])
        values = _row_values(sampling, logits)
        temperature = values.get("temperature", self.temperature)
        scaled = logits / jnp.maximum(temperature, GREEDY_TEMPERATURE)
        if self.top_k or "top_k" in values:
            scaled = _keep_top_k(scaled, values.get("top_k", self.top_k))
        if self.top_p < 1 or "top_p" in values:
            scaled = _keep_top_p(scaled, values.get("top_p", self.top_p))
        if self.min_p or "min_p" in values:
            scaled = _keep_min_p(scaled, values.get("min_p", self.min_p))
        probs = jax.nn.softmax(scaled)
        if "temperature" in values:
            greedy = _one_hot(first_argmax(logits), logits.shape[-1])
            probs = jnp.where(temperature <= GREEDY_TEMPERATURE, greedy, probs)
        return probs

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


def check_sampling(sampling: Sampling | None, batch: int) -> None:
    """Checks names, shapes and, outside of a traced function, ranges of row values.

    Raises:
      ValueError: for an unknown name, a shape that is not (b,), or a value that
        `SamplingPolicy` would not take as its field.
    """
    for name, value in (sampling or {}).items():
        if name not in ROW_VALUES:
            raise ValueError(f"want `sampling` to hold {ROW_VALUES}, got {name!r}")
        if jnp.shape(value) != (batch,):
            raise ValueError(
                f"want one {name} for each of {batch} rows, got shape "
                f"{jnp.shape(value)}"
            )
        if isinstance(value, jax.core.Tracer):
            continue
        wanted, lies_in = _RANGES[name]
        values = np.asarray(value)
        if not lies_in(values).all():
            raise ValueError(f"want every row's {name} {wanted}, got {values.tolist()}")


def _row_values(
    sampling: Sampling | None, logits: Float[Array, "*b v"]
) -> dict[str, Array]:
    """Per-row values, shaped to broadcast against the logits."""
    check_sampling(sampling, logits.shape[0])
    shape = (-1,) + (1,) * (logits.ndim - 1)
    return {name: jnp.reshape(x, shape) for name, x in (sampling or {}).items()}


def first_argmax(x: Float[Array, "*b v"]) -> Int[Array, "*b"]:
    """Like jnp.argmax over the last axis, v - 1 for a row with a NaN.

    Two plain reductions are vectorized; XLA's argmax on CPU is not, and takes 8
    times as long (65 against 8 microseconds for 5 rows of 4,096).
    """
    size = x.shape[-1]
    index = jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    is_largest = x == x.max(-1, keepdims=True)
    return jnp.where(is_largest, index, size - 1).min(-1)


def _one_hot(tokens: Int[Array, "*b"], size: int) -> Float[Array, "*b v"]:
    return jax.nn.one_hot(tokens, size, dtype=jnp.float32)


def _keep_top_k(
    logits: Float[Array, "*b v"], k: int | Int[Array, "*#b #v"]
) -> Float[Array, "*b v"]:
    size = logits.shape[-1]
    k = jnp.where(jnp.asarray(k) > 0, k, size)
    return _keep_likeliest(
        logits, lambda kept: kept.sum(-1, keepdims=True, dtype=jnp.int32) >= k
    )


def _keep_top_p(
    logits: Float[Array, "*b v"], top_p: float | Float[Array, "*#b #v"]
) -> Float[Array, "*b v"]:
    probs = jax.nn.softmax(logits)
    # Rounded sums reach 1 before the last token does: off must mean off.
    wanted = jnp.where(jnp.asarray(top_p) >= 1, jnp.inf, top_p)
    return _keep_likeliest(
        logits,
        lambda kept: jnp.where(kept, probs, 0).sum(-1, keepdims=True) >= wanted,
    )


def _keep_min_p(
    logits: Float[Array, "*b v"], min_p: float | Float[Array, "*#b #v"]
) -> Float[Array, "*b v"]:
    floor = logits.max(-1, keepdims=True) + jnp.log(jnp.asarray(min_p, jnp.float32))
    return jnp.where(logits >= floor, logits, -jnp.inf)


def _keep_likeliest(
    logits: Float[Array, "*b v"],
    enough: Callable[[Bool[Array, "*b v"]], Bool[Array, "*b 1"]],
) -> Float[Array, "*b v"]:
    """Masks all but the smallest set of likeliest tokens that is `enough`.

    Bisects the threshold over the 32 bits of a float, which needs no sort, keeps
    ties by construction, and takes values for each row. Keeps all where even
    that is not enough.
    """
    bits = jax.lax.bitcast_convert_type(logits, jnp.int32)
    bits = jnp.where(logits == 0, 0, bits)  # -0.0 ties with 0.0
    # Unsigned integers in the order of the floats.
    order = jnp.where(bits < 0, ~bits, bits ^ jnp.int32(-(2**31))).astype(jnp.uint32)

    def set_bit(i, threshold):
        higher = threshold | (jnp.uint32(1) << (31 - i).astype(jnp.uint32))
        return jnp.where(enough(order >= higher), higher, threshold)

    zero = jnp.zeros((*logits.shape[:-1], 1), jnp.uint32)
    threshold = jax.lax.fori_loop(0, 32, set_bit, zero)
    return jnp.where(order >= threshold, logits, -jnp.inf)


def token_logprobs(
    logits: Float[Array, "*b v"], tokens: Int[Array, "*b"]
) -> Float[Array, "*b"]:
    """The log-probability of each token under the raw logits, in float32."""
    logits = logits.astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)
