"""Logical names of a network's axes, as its modules declare them."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax

_SUFFIX = "_axes"


def abstract_variables(network: nn.Module, *tokens: jax.ShapeDtypeStruct) -> Any:
    """Shapes and axes of a network's variables, without computing them.

    Args:
      network: whose parameters are made by `param_with_axes`.
      tokens: shapes of what it is called with.

    Returns:
      (parameters as jax.ShapeDtypeStruct, the names of their axes in such a tree).
    """
    variables = jax.eval_shape(network.init, jax.random.key(0), *tokens)
    return variables["params"], _names(variables["params_axes"])


def _names(node: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dicts of tuples from flax's metadata, whose names end in `_axes`."""
    return {
        key.removesuffix(_SUFFIX): tuple(value.names)
        if hasattr(value, "names")
        else _names(value)
        for key, value in node.items()
    }
