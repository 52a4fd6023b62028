"""Checkpoints of one form turned into another."""

import dataclasses
import json
import math
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from spec_jax.checkpoints import (
    CheckpointError,
    infer_config,
    save_huggingface,
    save_t5x,
    save_weights,
    weights_metadata,
)
from spec_jax.checkpoints.describe import checkpoint_step, read_own_config
from spec_jax.checkpoints.huggingface import open_huggingface
from spec_jax.checkpoints.inference import expected_shapes
from spec_jax.checkpoints.loading import (
    HUGGINGFACE,
    OWN,
    WEIGHTS,
    WEIGHTS_FILE,
    Found,
    find_checkpoint,
    open_found,
)
from spec_jax.checkpoints.mapping import ACTIVATIONS, FIXED, check_layers
from spec_jax.checkpoints.safetensors_writer import stored_dtype, tensor_bytes
from spec_jax.checkpoints.storage import StoredArray
from spec_jax.checkpoints.validation import EMBEDDING, check_fits, unflatten
from spec_jax.checkpoints.vocabulary_files import for_transformers, vocabulary_files
from spec_jax.checkpoints.whole import copy_files, whole_folder
from spec_jax.models.t5 import T5Config
from spec_jax.pairs.folders import CONFIG, resolve

OWN_FORM, T5X_FORM, HUGGINGFACE_FORM = FORMS = ("own", "t5x", "huggingface")
DTYPES = ("float32", "bfloat16")
STEP_FOLDER = re.compile(r"checkpoint_(\d+)")


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What was written.

    Attributes:
      source: the checkpoint that was read, and its kind.
      kind: of the source.
      destination: absolute path of what was written.
      config: the network's shape.
      num_parameters: numbers in it.
      num_bytes: of them, not compressed.
      dtypes: they are stored in.
      copied: names of the vocabulary's files that went along, as written.
    """

    source: str
    kind: str
    destination: str
    config: T5Config
    num_parameters: int
    num_bytes: int
    dtypes: tuple[str, ...]
    copied: tuple[str, ...]


def convert(
    source: str | os.PathLike,
    destination: str | os.PathLike,
    form: str,
    *,
    dtype: str | None = None,
    step: int | None = None,
) -> Conversion:
    """Write a T5's checkpoint in another form: all of it or nothing.

    One array after the other is in memory. Optimizer state stays behind; a vocabulary
    that lies beside the source goes along.

    Args:
      source: as for `load_pair`.
      destination: a folder that does not exist yet; for `t5x`, the folder that holds
        the checkpoints, or one `checkpoint_N`.
      form: one of FORMS.
      dtype: of the weights, one of DTYPES; None keeps what is stored.
      step: N; None takes the source's, or 0. For `t5x` alone.

    Raises:
      ValueError: if the source is no T5 or is damaged, the form cannot hold what it
        computes, or the destination exists or cannot be written.
    """
    if form not in FORMS:
        raise ValueError(f"want one of the forms {', '.join(FORMS)}, got {form!r}")
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"want one of the dtypes {', '.join(DTYPES)}, got {dtype!r}")
    if step is not None and form != T5X_FORM:
        raise ValueError(f"a step is t5x's alone: leave it out for {form!r}")
    if not os.fspath(destination):
        raise ValueError("want a path to write to, got an empty one")
    found = find_checkpoint(resolve(source))
    arrays, config = open_model(found)
    files = vocabulary_files(found.path)
    copied = tuple(file.name for file in files)
    params = unflatten(arrays)
    if form == T5X_FORM:
        check_t5x_has(config)
        destination, step = _step_folder(destination, step, checkpoint_step(found))
        destination = save_t5x(destination, params, step=step, dtype=dtype, files=files)
    elif form == HUGGINGFACE_FORM:
        fields = dataclasses.asdict(config)
        save_huggingface(destination, params, fields, dtype=dtype, files=files)
        copied = tuple(for_transformers(files))
    else:
        with whole_folder(destination) as folder:
            fields = dataclasses.asdict(config) | {"dtype": config.dtype.name}
            if dtype is not None:
                fields["dtype"] = dtype
            (folder / CONFIG).write_text(json.dumps(fields, indent=2) + "\n")
            save_weights(folder / WEIGHTS, params, _metadata(found), dtype)
            copy_files(files, folder)
    kinds = {name: stored_dtype(name, array, dtype) for name, array in arrays.items()}
    return Conversion(
        source=found.path,
        kind=found.kind,
        destination=os.path.abspath(os.path.expanduser(destination)),
        config=config,
        num_parameters=sum(math.prod(array.shape) for array in arrays.values()),
        num_bytes=sum(
            tensor_bytes(array, kinds[name]) for name, array in arrays.items()
        ),
        dtypes=tuple(sorted({kind.name for kind in kinds.values()})),
        copied=copied,
    )


def open_model(found: Found) -> tuple[dict[str, StoredArray], T5Config]:
    """The arrays of a T5 of whatever kind, none of them read, and its shape.

    The shape is that of the config beside them, else the one they have themselves.

    Raises:
      CheckpointError: if they cannot be opened, or are not those of a T5.
    """
    fields: Mapping[str, Any] | None = None
    if found.kind == HUGGINGFACE:
        arrays, fields = open_huggingface(found.folder.local)
    else:
        arrays = open_found(found)
        if found.kind == OWN:
            fields = read_own_config(found.folder.local)
    try:
        config = T5Config(**(fields or infer_config(arrays)))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{found.path} is no T5: {error}") from None
    layers = max(config.num_encoder_layers, config.num_decoder_layers)
    check_layers(layers, len(arrays), found.path)
    wanted = expected_shapes(dataclasses.asdict(config))
    shapes = {name: _Shape(shape) for name, shape in wanted.items()}
    check_fits(arrays, shapes, found.path)
    if fields is None or found.kind == HUGGINGFACE:
        config = dataclasses.replace(config, dtype=_activations(arrays, config))
    return arrays, config


@dataclasses.dataclass(frozen=True)
class _Shape:
    shape: tuple[int, ...]


def _activations(arrays: Mapping[str, StoredArray], config: T5Config) -> str:
    """The dtype to compute in: the weights', where the network can."""
    stored = arrays[EMBEDDING].dtype.name
    gated = len(config.mlp_activations) > 1
    if stored == "float16" and gated:
        return "bfloat16"
    return stored if stored != "float64" else "float32"


def check_t5x_has(config: T5Config) -> None:
    """Sees to it that t5x's arrays alone tell the network.

    Raises:
      ValueError: if something of it differs from T5's that no array tells, or that
        t5x's own network has fixed.
    """
    fixed = {name: FIXED[name] for name in FIXED if hasattr(config, name)}
    activations = tuple(ACTIVATIONS.values())
    wrong = [
        f"{name} {getattr(config, name)} (T5: {value})"
        for name, value in fixed.items()
        if getattr(config, name) != value
    ]
    if config.mlp_activations not in activations:
        t5s = " or ".join(map(str, activations))
        wrong.append(f"mlp_activations {config.mlp_activations} (T5: {t5s})")
    if wrong:
        raise ValueError(
            f"t5x's format holds no config, and so not {' and '.join(wrong)}; "
            "the form own holds it"
        )


def _step_folder(
    destination: str | os.PathLike, step: int | None, source_step: int | None
) -> tuple[str, int]:
    """The folder of the checkpoints, and the step to write there."""
    text = os.fspath(destination).rstrip("/")
    above, _, name = text.rpartition("/")
    named = STEP_FOLDER.fullmatch(name)
    if named:
        if step is not None and step != int(named[1]):
            raise ValueError(
                f"{name} is another step than {step}: give one of the two alone"
            )
        return (above or ("/" if text.startswith("/") else ".")), int(named[1])
    if step is None:
        step = source_step or 0
    return os.fspath(destination), step


def _metadata(found: Found) -> dict[str, str]:
    """What a file of ours says of the vocabulary it belongs to."""
    if found.kind not in (OWN, WEIGHTS_FILE) or found.file is None:
        return {}
    return weights_metadata(pathlib.Path(found.folder.local) / found.file)
