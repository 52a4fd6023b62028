"""Sampling values of single rows: which there are, their ranges and shapes."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from spec_jax.base import Sampling

RANGES = {
    "temperature": (
        "finite and >= 0 (0 is argmax)",
        lambda x: np.isfinite(x) & (x >= 0),
    ),
    "top_k": (">= 0 and whole (0 is off)", lambda x: (x >= 0) & (x % 1 == 0)),
    "top_p": ("in (0, 1] (1 is off)", lambda x: (x > 0) & (x <= 1)),
    "min_p": ("in [0, 1] (0 is off)", lambda x: (x >= 0) & (x <= 1)),
    "repetition_penalty": (
        "finite and > 0 (1 is off)",
        lambda x: np.isfinite(x) & (x > 0),
    ),
}
"""Of numbers: what is wanted, in words and as a test."""

BIAS = "logit_bias"
"""The one value that is an array [v] a row."""

ROW_VALUES = (*RANGES, BIAS)
"""What `sampling` may hold."""


def check_sampling(sampling: Sampling | None, batch: int) -> None:
    """Checks names, shapes and, outside of a traced function, ranges of row values.

    Raises:
      ValueError: for an unknown name, a shape that is not (b,), or a value that
        `SamplingPolicy` would not take as its field.
    """
    for name, value in (sampling or {}).items():
        if name not in ROW_VALUES:
            raise ValueError(f"want `sampling` to hold {ROW_VALUES}, got {name!r}")
        if name == BIAS:
            _check_bias(value, batch)
            continue
        if jnp.shape(value) != (batch,):
            raise ValueError(
                f"want one {name} for each of {batch} rows, got shape "
                f"{jnp.shape(value)}"
            )
        if isinstance(value, jax.core.Tracer):
            continue
        wanted, lies_in = RANGES[name]
        values = np.asarray(value)
        if not lies_in(values).all():
            raise ValueError(f"want every row's {name} {wanted}, got {values.tolist()}")


def _check_bias(bias: Array | np.ndarray, batch: int) -> None:
    shape = jnp.shape(bias)
    if len(shape) != 2 or shape[0] != batch:
        raise ValueError(
            f"want logit_bias of shape ({batch}, v), a row of values for each, got "
            f"shape {shape}"
        )
    if isinstance(bias, jax.core.Tracer):
        return
    values = np.asarray(bias)
    if np.isnan(values).any() or (values == np.inf).any():
        raise ValueError("want each logit_bias a number below infinity, got others")
    if (values == -np.inf).all(-1).any():
        raise ValueError("want a token whose logit_bias is finite in every row")


def row_values(
    sampling: Sampling | None, logits: Float[Array, "*b v"]
) -> dict[str, Array]:
    """Per-row numbers, shaped to broadcast against the logits."""
    check_sampling(sampling, logits.shape[0])
    shape = (-1,) + (1,) * (logits.ndim - 1)
    return {
        name: jnp.reshape(x, shape)
        for name, x in (sampling or {}).items()
        if name != BIAS
    }


def row_bias(
    bias: Float[Array, "b v"] | Float[np.ndarray, "b v"], logits: Float[Array, "*b w"]
) -> Float[Array, "..."]:
    """A bias of each row, shaped to broadcast against the logits."""
    width = logits.shape[-1]
    _check_bias(bias, logits.shape[0])
    if bias.shape[1] < width:
        raise ValueError(
            f"want logit_bias for all {width} tokens, got {bias.shape[1]} columns"
        )
    shape = (-1,) + (1,) * (logits.ndim - 2) + (width,)
    return jnp.reshape(jnp.asarray(bias, jnp.float32)[:, :width], shape)
