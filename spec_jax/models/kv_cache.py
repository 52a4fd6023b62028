"""Keys and values at per-row positions: written over, sliced, never indexed.

A cache holds no position: its owner says where the tokens of a call stand, and
whatever was written at or past them is simply written over. Rows stand at
different positions.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from spec_jax.models.layouts import as_stored

# Up to this many rows are written one by one: a dynamic update of a slice happens
# in place, where the scatter that `vmap` makes of it copies on some backends.
_UNROLLED_ROWS = 8


def update_rows(
    cache: Float[Array, "b h l d"],
    new: Float[Array, "b h t d"],
    start: Int[Array, "b"],
) -> Float[Array, "b h l d"]:
    """Writes row i's t new entries over positions start[i] .. start[i] + t - 1.

    Args:
      cache: keys or values.
      new: the entries to write, cast to the cache's dtype.
      start: first position of each row; start + t must not pass the length l.

    Returns:
      The cache with the entries in place.
    """
    new = new.astype(cache.dtype)
    if cache.shape[0] <= _UNROLLED_ROWS:
        for row in range(cache.shape[0]):
            at = (row, 0, start[row], 0)
            cache = jax.lax.dynamic_update_slice(cache, new[row : row + 1], at)
        cache = as_stored(cache)
        # XLA's CPU backend writes one token twice, for attention and for the loop,
        # and copies the whole cache for each: a quarter of a plain step of our pair.
        return jax.lax.optimization_barrier(cache) if new.shape[2] == 1 else cache
    write = jax.vmap(lambda c, n, s: jax.lax.dynamic_update_slice(c, n, (0, s, 0)))
    return write(cache, new, start)


def slice_rows(
    table: Float[Array, "h m"], start: Int[Array, "b"], size: int
) -> Float[Array, "b h size"]:
    """Row i is table[:, start[i] : start[i] + size]."""
    if start.shape[0] <= _UNROLLED_ROWS:
        rows = [
            jax.lax.dynamic_slice(table, (0, start[row]), (table.shape[0], size))
            for row in range(start.shape[0])
        ]
        return jnp.stack(rows)
    return jax.vmap(
        lambda s: jax.lax.dynamic_slice(table, (0, s), (table.shape[0], size))
    )(start)
