"""Filters on scaled logits: what they drop becomes -inf, ties are kept."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def keep_top_k(
    logits: Float[Array, "*b v"], k: int | Int[Array, "*#b #v"]
) -> Float[Array, "*b v"]:
    """Keeps the k likeliest tokens and ties with the last; 0 keeps all."""
    size = logits.shape[-1]
    k = jnp.where(jnp.asarray(k) > 0, k, size)
    return _keep_likeliest(
        logits, lambda kept: kept.sum(-1, keepdims=True, dtype=jnp.int32) >= k
    )


def keep_top_p(
    logits: Float[Array, "*b v"], top_p: float | Float[Array, "*#b #v"]
) -> Float[Array, "*b v"]:
    """Keeps the fewest likeliest tokens with this probability, and ties."""
    probs = jax.nn.softmax(logits)
    # Rounded sums reach 1 before the last token does: off must mean off.
    wanted = jnp.where(jnp.asarray(top_p) >= 1, jnp.inf, top_p)
    return _keep_likeliest(
        logits,
        lambda kept: jnp.where(kept, probs, 0).sum(-1, keepdims=True) >= wanted,
    )


def keep_min_p(
    logits: Float[Array, "*b v"], min_p: float | Float[Array, "*#b #v"]
) -> Float[Array, "*b v"]:
    """Keeps tokens with at least this share of the largest probability."""
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
