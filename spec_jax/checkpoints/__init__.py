"""Reading and writing t5x's, Hugging Face's and our own T5 checkpoints."""

from spec_jax.checkpoints.huggingface import load_huggingface, read_config
from spec_jax.checkpoints.huggingface_writer import save_huggingface
from spec_jax.checkpoints.inference import infer_config
from spec_jax.checkpoints.loading import load_params
from spec_jax.checkpoints.mapping import resize_vocabulary
from spec_jax.checkpoints.orbax import (
    TrainingCheckpoints,
    read_metadata,
    restore,
    save,
)
from spec_jax.checkpoints.storage import CheckpointError
from spec_jax.checkpoints.t5x_writer import save_t5x
from spec_jax.checkpoints.weights import load_weights, save_weights, weights_metadata

__all__ = [
    "CheckpointError",
    "TrainingCheckpoints",
    "infer_config",
    "load_huggingface",
    "load_params",
    "load_weights",
    "read_config",
    "read_metadata",
    "resize_vocabulary",
    "restore",
    "save",
    "save_huggingface",
    "save_t5x",
    "save_weights",
    "weights_metadata",
]
