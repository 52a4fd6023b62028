"""What keeps XLA from copying weights and caches on a TPU; elsewhere nothing.

The compiler chooses layouts by one call at a time. `tests/experiments` reads in its
programs what it chose.
"""

import jax
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float

_SUBLANES, _LANES = 8, 128  # of a tile


def keep_kernel(x: Float[Array, "*b o"]) -> Float[Array, "*b o"]:
    """A product whose axes are moved next, made as it is written.

    Else heads come to the front within the product, for which XLA transposes its
    kernel: on the chip in each step, or all kernels once, in HBM, before a loop.
    """
    return jax.lax.platform_dependent(
        x, tpu=jax.lax.optimization_barrier, default=lambda x: x
    )


def as_stored(cache: Float[Array, "b h l d"]) -> Float[Array, "b h l d"]:
    """A cache in the layout that an argument of a program has.

    Else a loop that feeds one token at a time wants its heads side by side, and the
    call before it does not: every cache is copied between them.
    """
    _, _, length, size = cache.shape
    is_turned = _tiled(size, length) < _tiled(length, size)
    order = (0, 1, 3, 2) if is_turned else (0, 1, 2, 3)

    def constrained(cache):
        return with_layout_constraint(cache, Layout(major_to_minor=order))

    return jax.lax.platform_dependent(
        cache, tpu=constrained, default=lambda cache: cache
    )


def _tiled(rows: int, columns: int) -> int:
    """Elements of a matrix in whole tiles."""
    return -(-rows // _SUBLANES) * _SUBLANES * -(-columns // _LANES) * _LANES
