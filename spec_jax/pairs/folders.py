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
    infer_config,
    load_params,
    read_config,
    save_weights,
    weights_metadata,
)
from spec_jax.checkpoints.huggingface import CONFIG as THEIR_CONFIG
from spec_jax.checkpoints.huggingface import opened
from spec_jax.checkpoints.loading import WEIGHTS, open_checkpoint
from spec_jax.checkpoints.mapping import check_layers
from spec_jax.checkpoints.storage import inside
from spec_jax.checkpoints.validation import EMBEDDING
from spec_jax.data.vocabulary import Vocabulary
from spec_jax.models.t5 import T5Config, T5Decoder
from spec_jax.partitioning import Partitioner, ShardedDecoder

PACKAGE = "spec_jax://"
"""Begins the path of a file that comes with the package."""
CONFIG = "t5_config.json"
EXPORT = "export"
"""Where training leaves such a folder, in that of its run."""
FINGERPRINT = "vocabulary_sha256"
"""Metadata of the weights: the vocabulary that the model was trained with."""


def load_model(
    path: str,
    pieces: Vocabulary | None,
    config: T5Config | None = None,
    dtype: Any = "bfloat16",
    role: str = "target",
    abstract: bool = False,
    partitioner: Partitioner | None = None,
) -> tuple[T5Decoder | ShardedDecoder, Any]:
    """Loads one model that belongs to a vocabulary.

    Args:
      path: see `resolve`.
      pieces: the vocabulary; None takes the model as it is.
      config: its shape; None reads it from the folder, see `read_model_config`. Its
        table may have more or fewer rows than the checkpoint's, if both hold the
        vocabulary.
      dtype: of parameters and activations.
      role: "target" or "draft", for messages.
      abstract: reads no parameters; with a config, nothing need be at the path.
      partitioner: divides the model over a mesh: each host reads only what its
        devices hold. None keeps it whole.

    Returns:
      The decoder, and its parameters on the default device or the mesh, or their
      jax.ShapeDtypeStruct.

    Raises:
      ValueError: see `load_pair`.
    """
    folder = resolve(path)
    given = config is not None
    config = config or read_model_config(folder, role)
    config = dataclasses.replace(config, dtype=dtype)
    if pieces is not None:
        check_vocabulary(folder, config, pieces, role)
    decoder, shapes = T5Decoder(config), parameter_shapes(config)
    if partitioner is not None and not abstract:
        decoder = partitioner.sharded(decoder, role)
    if isinstance(decoder, ShardedDecoder):
        shapes = decoder.place(shapes)
    if abstract:
        return decoder, cast(shapes, config.dtype)
    resize = given and pieces is not None and _padded_otherwise(folder, config, pieces)
    params = load_params(folder, shapes, role, config.dtype, resize_vocabulary=resize)
    return decoder, jax.tree.map(jnp.asarray, params)


def parameter_shapes(config: T5Config) -> dict[str, Any]:
    """The parameter tree of a network, as jax.ShapeDtypeStruct."""
    return T5Decoder(config).param_shapes()


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

    Raises:
      ValueError: if the path is empty.
    """
    text = os.fspath(path)
    if not text:
        raise CheckpointError("want a path, got an empty one")
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
    pieces: Vocabulary,
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
    vocabulary: Vocabulary | None = None,
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
    """A model's config: ours or Hugging Face's, or what its arrays tell.

    t5x's checkpoints hold none, so their arrays' names and shapes have to tell; see
    `infer_config`.

    Args:
      folder: the checkpoint, as `load_params` takes it.
      role: "target" or "draft", for messages.

    Raises:
      ValueError: if there is no checkpoint, its config is damaged, or there is none
        and the arrays are not those of a T5.
    """
    give = f"give {role}_config (in gin: load_pair.{role}_config = @{role}/T5Config())"
    remote = "://" in str(folder)
    if not remote and not os.path.exists(folder):
        raise CheckpointError(f"no checkpoint of the {role} at {folder}")
    file = None if remote else _config_file(pathlib.Path(folder))
    if file is None:
        return _inferred(folder, role, give)
    try:
        if file.name == CONFIG:
            config = T5Config(**json.loads(file.read_text(encoding="utf-8")))
            _check_layers(file, config)
            return config
        return T5Config(**read_config(folder))
    except CheckpointError:
        raise
    except (TypeError, ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{file} is no T5 config: {error}") from None


def _config_file(folder: pathlib.Path) -> pathlib.Path | None:
    files = (inside(folder, name) for name in (CONFIG, THEIR_CONFIG))
    return next((file for file in files if file.is_file()), None)


def _check_layers(file: pathlib.Path, config: T5Config) -> None:
    """Raises CheckpointError for more layers than the weights beside can hold."""
    weights = inside(file.parent, WEIGHTS)
    if weights.is_file():
        layers = max(config.num_encoder_layers, config.num_decoder_layers)
        with opened(weights) as tensors:
            check_layers(layers, len(tensors.keys()), str(file))


def _inferred(folder: str, role: str, give: str) -> T5Config:
    """The config that a checkpoint's arrays tell."""
    try:
        arrays, _ = open_checkpoint(folder)
    except CheckpointError as error:
        raise CheckpointError(f"the {role}: {error}") from None
    try:
        return T5Config(**infer_config(arrays))
    except ValueError as error:
        raise CheckpointError(
            f"the {role} at {folder} holds no config, and its arrays tell none "
            f"({error}): {give}"
        ) from None


def _padded_otherwise(folder: str, config: T5Config, pieces: Vocabulary) -> bool:
    """Whether a checkpoint's table has other padding than its config says.

    T5's 32100 pieces are in tables of 32128 rows, and of 32100 or more where
    somebody resized them: each holds the vocabulary, so each can be the other.
    """
    arrays, _ = open_checkpoint(folder)
    table = arrays.get(EMBEDDING)
    rows = table.shape[0] if table is not None and table.shape else 0
    return config.vocab_size != rows >= pieces.vocab_size
