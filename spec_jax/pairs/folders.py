"""Folders of T5 models: what a path means, weights with their shape and vocabulary."""

import dataclasses
import importlib.resources
import json
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spec_jax.checkpoints import (
    CheckpointError,
    load_params,
    read_config,
    save_weights,
    weights_metadata,
)
from spec_jax.checkpoints.huggingface import CONFIG as THEIR_CONFIG
from spec_jax.checkpoints.loading import WEIGHTS
from spec_jax.checkpoints.storage import inside
from spec_jax.data.vocabulary import SentencePieceVocabulary
from spec_jax.models.t5 import T5Config, T5Decoder, Transformer

PACKAGE = "spec_jax://"
"""Begins the path of a file that comes with the package."""
CONFIG = "t5_config.json"
EXPORT = "export"
"""Where training leaves such a folder, in that of its run."""
FINGERPRINT = "vocabulary_sha256"
"""Metadata of the weights: the vocabulary that the model was trained with."""


def load_model(
    path: str,
    pieces: SentencePieceVocabulary | None,
    config: T5Config | None = None,
    dtype: Any = "bfloat16",
    role: str = "target",
    abstract: bool = False,
) -> tuple[T5Decoder, Any]:
    """Loads one model that belongs to a vocabulary.

    Args:
      path: see `resolve`.
      pieces: the vocabulary; None takes the model as it is.
      config: its shape; None reads it from the folder.
      dtype: of parameters and activations.
      role: "target" or "draft", for messages.
      abstract: reads no parameters; with a config, nothing need be at the path.

    Returns:
      The decoder, and its parameters on the default device, or their
      jax.ShapeDtypeStruct.

    Raises:
      ValueError: see `load_pair`.
    """
    folder = resolve(path)
    config = config or read_model_config(folder, role)
    config = dataclasses.replace(config, dtype=dtype)
    if pieces is not None:
        check_vocabulary(folder, config, pieces, role)
    shapes = parameter_shapes(config)
    if abstract:
        return T5Decoder(config), cast(shapes, config.dtype)
    params = load_params(folder, shapes, role, config.dtype)
    return T5Decoder(config), jax.tree.map(jnp.asarray, params)


def parameter_shapes(config: T5Config) -> dict[str, Any]:
    """The parameter tree of a network, as jax.ShapeDtypeStruct."""
    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    network = Transformer(config)
    variables = jax.eval_shape(network.init, jax.random.key(0), tokens, tokens)
    return variables["params"]


def cast(params: Any, dtype: Any) -> Any:
    """Parameters, or their shapes, in another dtype."""

    def one(leaf):
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf.update(dtype=dtype)
        return leaf.astype(dtype)

    return jax.tree.map(one, params)


def resolve(path: str | os.PathLike) -> str:
    """What a user's path means.

    Args:
      path: a path or URL. `spec_jax://` begins one inside the package, `~` one in
        the home; the folder of a training run stands for the model it exported.

    Returns:
      The path of the file or folder itself.
    """
    text = os.fspath(path)
    if text.startswith(PACKAGE):
        root = importlib.resources.files("spec_jax")
        text = str(root.joinpath(*text[len(PACKAGE) :].split("/")))
        config = pathlib.Path(text) / CONFIG
        if config.is_symlink():  # some installers link a package's files from a cache
            text = str(config.resolve().parent)
    text = os.path.expanduser(text)
    exported = os.path.join(text, EXPORT)
    own = [os.path.join(text, name) for name in (CONFIG, THEIR_CONFIG)]
    if os.path.isfile(os.path.join(exported, CONFIG)) and not any(
        os.path.exists(file) for file in own
    ):
        inside(pathlib.Path(text), EXPORT)  # refuses a link that leads out
        return exported
    return text


def check_vocabulary(
    folder: str,
    config: T5Config,
    pieces: SentencePieceVocabulary,
    role: str = "target",
) -> None:
    """Sees to it that a model and a vocabulary can belong together.

    Args:
      folder: of the model; what `save_model` wrote knows its vocabulary.
      config: its shape.
      pieces: the vocabulary.
      role: "target" or "draft", for messages.

    Raises:
      ValueError: if the table has too few rows, or it was another vocabulary that
        the model was trained with.
    """
    if config.vocab_size < pieces.vocab_size:
        raise ValueError(
            f"the {role} at {folder} has a table of {config.vocab_size} rows, the "
            f"vocabulary {pieces.path} has {pieces.vocab_size} pieces: they do "
            "not belong together"
        )
    weights = inside(pathlib.Path(folder), WEIGHTS)
    if not weights.is_file():
        return
    trained_with = weights_metadata(weights).get(FINGERPRINT, pieces.fingerprint)
    if trained_with != pieces.fingerprint:
        raise ValueError(
            f"the {role} at {folder} was trained with another vocabulary (sha256 "
            f"{trained_with[:12]}...) than {pieces.path} (sha256 "
            f"{pieces.fingerprint[:12]}...): give the one it was trained with"
        )


def save_model(
    folder: str | pathlib.Path,
    params,
    config: T5Config,
    dtype: Any = "bfloat16",
    vocabulary: SentencePieceVocabulary | None = None,
) -> None:
    """Writes a folder that `load_pair` reads: the weights and their config.

    Args:
      folder: is made.
      params: nested dict of arrays.
      config: the network's shape.
      dtype: of the weights in the file.
      vocabulary: the one that the model was trained with: no other will be taken
        with it.
    """
    folder = pathlib.Path(os.path.expanduser(folder))
    folder.mkdir(parents=True, exist_ok=True)
    fields = dataclasses.asdict(config) | {"dtype": np.dtype(dtype).name}
    (folder / CONFIG).write_text(json.dumps(fields, indent=2) + "\n")
    weights = jax.tree.map(lambda x: np.asarray(x.astype(dtype)), params)
    metadata = {} if vocabulary is None else {FINGERPRINT: vocabulary.fingerprint}
    save_weights(folder / WEIGHTS, weights, metadata)


def read_model_config(folder: str, role: str = "target") -> T5Config:
    """The config beside the weights, ours or Hugging Face's.

    Raises:
      ValueError: if there is none; t5x's checkpoints need one from gin.
    """
    give = f"give {role}_config (in gin: load_pair.{role}_config = @{role}/T5Config())"
    if "://" in str(folder):
        raise CheckpointError(
            f"the {role} at {folder} is given by a URL, where no config is looked for, "
            f"so its shape is unknown: {give}"
        )
    if not os.path.exists(folder):
        raise CheckpointError(f"no checkpoint of the {role} at {folder}")
    ours = inside(pathlib.Path(folder), CONFIG)
    theirs = inside(pathlib.Path(folder), THEIR_CONFIG)
    file = ours if os.path.isfile(ours) else theirs
    if not os.path.isfile(file):
        raise CheckpointError(
            f"the {role} at {folder} has neither {CONFIG} nor {THEIR_CONFIG}, so its "
            f"shape is unknown: {give}"
        )
    try:
        if file == ours:
            return T5Config(**json.loads(file.read_text(encoding="utf-8")))
        return T5Config(**read_config(folder))
    except CheckpointError:
        raise
    except (TypeError, ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{file} is no T5 config: {error}") from None
