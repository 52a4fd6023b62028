"""Products whose backward products are fast on the CPU.

XLA's CPU backend reads a transposed operand in place, at a fraction of the speed
of a plain one, and the backward products of a network are full of them. Pinned
row-major, a transposed operand is copied first, which costs next to nothing.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint


def row_major_dot_general(
    x, y, dimension_numbers, precision=None, preferred_element_type=None
):
    """`jax.lax.dot_general` for a network's three kinds of product.

    Args:
      x: [.., m, k].
      y: a weight [k, o]; or, with the batch axes of x, [.., k, n] or [.., n, k].
      dimension_numbers: as for `jax.lax.dot_general`.
      precision: ignored, as operands of bfloat16 have one.
      preferred_element_type: of the result; that of x by default.

    Raises:
      ValueError: for any other contraction.
    """
    del precision
    (contract_x, contract_y), (batch_x, batch_y) = dimension_numbers
    batch = tuple(range(x.ndim - 2))
    out_dtype = jnp.dtype(preferred_element_type or x.dtype)
    last, before_last = y.ndim - 1, y.ndim - 2
    if tuple(contract_x) == (x.ndim - 1,):
        if y.ndim == 2 and tuple(contract_y) == (0,) and not tuple(batch_x):
            flat = _product(x.reshape(-1, x.shape[-1]), y, False, out_dtype)
            return flat.reshape(*x.shape[:-1], y.shape[1])
        if tuple(batch_x) == tuple(batch_y) == batch and x.ndim == y.ndim:
            if tuple(contract_y) == (before_last,):
                return _product(x, y, False, out_dtype)
            if tuple(contract_y) == (last,):
                return _product(x, y, True, out_dtype)
    raise ValueError(
        "only a product with a weight, or of matrices with equal leading batch axes, "
        f"is supported; got {dimension_numbers} for shapes {x.shape} and {y.shape}"
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _product(x, y, transposed, out_dtype):
    return _matmul(x, _transpose(y) if transposed else y, out_dtype)


def _forward(x, y, transposed, out_dtype):
    return _product(x, y, transposed, out_dtype), (x, y)


def _backward(transposed, out_dtype, saved, grad):
    del out_dtype
    x, y = saved
    grad = grad.astype(x.dtype)
    if transposed:  # out = x y^T
        return _matmul(grad, y), _matmul(_transpose(grad), x)
    return _matmul(grad, _transpose(y)), _matmul(_transpose(x), grad)


_product.defvjp(_forward, _backward)


def _matmul(x, y, out_dtype=None):
    batch = tuple(range(x.ndim - 2))
    return jax.lax.dot_general(
        x,
        y,
        (((x.ndim - 1,), (y.ndim - 2,)), (batch, batch)),
        preferred_element_type=out_dtype,
    )


def _transpose(x):
    row_major = Layout(major_to_minor=tuple(range(x.ndim)))
    return with_layout_constraint(jnp.swapaxes(x, -1, -2), row_major)
