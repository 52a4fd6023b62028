"""Prints the table of docs/tpu.md on writing rows of a cache. Wants libtpu.

PYTHONPATH=. python tests/experiments/cache_updates.py
"""

import jax
import jax.numpy as jnp

from spec_jax.decoding.tpu import COMPILER_OPTIONS
from spec_jax.experiments.hlo import parse_module
from spec_jax.experiments.tpu_compile import topology_devices
from spec_jax.experiments.traffic import count_traffic
from spec_jax.models.attention import attend
from spec_jax.models.layouts import as_stored

HEADS, LENGTH, SIZE = 64, 136, 64


def each_row(cache, new, start):
    for row in range(cache.shape[0]):
        at = (row, 0, start[row], 0)
        cache = jax.lax.dynamic_update_slice(cache, new[row : row + 1], at)
    return cache


def mapped(cache, new, start):
    return jax.vmap(lambda c, n, s: jax.lax.dynamic_update_slice(c, n, (0, s, 0)))(
        cache, new, start
    )


def selected(cache, new, start):
    at = jnp.arange(LENGTH) - start[:, None]
    is_new = (at >= 0) & (at < new.shape[2])
    source = jnp.clip(at, 0, new.shape[2] - 1)[:, None, :, None]
    values = jnp.take_along_axis(new, source, 2)
    return jnp.where(is_new[:, None, :, None], values, cache)


def costs(write, rows, tokens):
    sharding = jax.sharding.SingleDeviceSharding(topology_devices("v4:2x2x1")[0])

    def shape(*sizes, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)

    def step(caches, new, start, query):
        key, value = (as_stored(write(cache, new, start)) for cache in caches)
        bias = jnp.zeros((1, 1, 1, LENGTH), jnp.float32)
        return (key, value), attend(query, key, value, bias)

    cache = shape(rows, HEADS, LENGTH, SIZE)
    new = shape(rows, HEADS, tokens, SIZE)
    arguments = (cache, cache), new, shape(rows, dtype=jnp.int32), new
    lowered = jax.jit(step, donate_argnums=0).lower(*arguments)
    text = lowered.compile(COMPILER_OPTIONS).as_text()
    # A scatter is a loop over the rows.
    traffic = count_traffic(parse_module(text), loops=(rows,))
    return f"{traffic.bytes / 1e6:.1f} MB, {1e-3 * traffic.cycles:.0f}"


if __name__ == "__main__":
    for rows in (1, 8):
        for tokens in (1, 8):
            found = (
                costs(write, rows, tokens) for write in (each_row, mapped, selected)
            )
            print(f"| {rows} | {tokens} | " + " | ".join(found) + " |")
