"""Models made ready to decode together: loaded, in one dtype, over one vocabulary."""

from spec_jax.pairs.folders import (
    EXPORT,
    PACKAGE,
    load_model,
    parameter_shapes,
    read_model_config,
    resolve,
    save_model,
)
from spec_jax.pairs.pair import START_ID, Pair, load_pair, shipped_pair

__all__ = [
    "EXPORT",
    "PACKAGE",
    "START_ID",
    "Pair",
    "load_model",
    "load_pair",
    "parameter_shapes",
    "read_model_config",
    "resolve",
    "save_model",
    "shipped_pair",
]
