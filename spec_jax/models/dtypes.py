"""The dtypes that networks compute in."""

from typing import Any

import jax.numpy as jnp


def floating(dtype: Any, wanted: str) -> jnp.dtype:
    """A dtype by name or type.

    Args:
      dtype: such as 'bfloat16'.
      wanted: begins the message, as "want CausalLMConfig.dtype".

    Raises:
      ValueError: if it is none, or not a floating one.
    """
    try:
        # None would be NumPy's float64.
        known = None if dtype is None else jnp.dtype(dtype)
    except TypeError:
        known = None
    if known is None or not jnp.issubdtype(known, jnp.floating):
        raise ValueError(
            f"{wanted} a floating dtype such as 'float32' or 'bfloat16', got {dtype!r}"
        )
    return known
