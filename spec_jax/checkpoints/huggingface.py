"""T5 folders of Hugging Face: config.json and safetensors files.

Neither transformers nor torch is needed, and no pickle is opened.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import safetensors

from spec_jax.checkpoints.mapping import (
    IGNORED,
    Names,
    check_layers,
    t5_config,
    t5_names,
)
from spec_jax.checkpoints.storage import (
    CheckpointError,
    Index,
    StoredArray,
    confined,
    inside,
    names_the_path,
    numeric_dtype,
    read_arrays,
)
from spec_jax.checkpoints.validation import unflatten

CONFIG = "config.json"
SINGLE = "model.safetensors"
SHARDED = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5")
DTYPE_NAMES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


def load_huggingface(
    path: str | os.PathLike, dtype: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a Hugging Face T5 folder.

    Args:
      path: the folder, local.
      dtype: parameters are cast to it; None keeps what is stored.

    Returns:
      The parameters in t5x's tree, and T5Config's keyword arguments.

    Raises:
      CheckpointError: if a file is missing, cut, or does not hold such a model.
    """
    arrays, config = open_huggingface(path)
    return unflatten(read_arrays(arrays, dtype)), config


@names_the_path
def open_huggingface(
    path: str | os.PathLike,
) -> tuple[dict[str, StoredArray], dict[str, Any]]:
    """Find the parameters of a Hugging Face T5 folder.

    Args:
      path: the folder, local.

    Returns:
      Parameters by t5x's name, none of them read, and T5Config's arguments.

    Raises:
      CheckpointError: as `load_huggingface`.
    """
    folder = pathlib.Path(path).expanduser().resolve()
    files = tensor_files(folder)
    config = t5_config(read_json(folder, CONFIG), "lm_head.weight" in files)
    layers = max(config["num_encoder_layers"], config["num_decoder_layers"])
    check_layers(layers, len(files), str(folder / CONFIG))
    table = t5_names(
        config["num_encoder_layers"],
        config["num_decoder_layers"],
        config["mlp_activations"],
        config["logits_via_embedding"],
    )
    _check_names(files, table, folder)
    stored = {
        names.t5x: stored_tensor(
            files[names.huggingface], names.huggingface, names.transpose
        )
        for names in table
    }
    if config["logits_via_embedding"] and "lm_head.weight" in files:
        _check_same_table(files, folder)
    return stored, config


def read_config(path: str | os.PathLike) -> dict[str, Any]:
    """T5Config's keyword arguments from a Hugging Face folder.

    Args:
      path: the folder, local.

    Returns:
      As `mapping.t5_config`.
    """
    return open_huggingface(path)[1]


def open_safetensors(file: pathlib.Path) -> dict[str, StoredArray]:
    """Describe every tensor of one safetensors file, by its name there.

    Raises:
      CheckpointError: if the file is missing, cut or damaged.
    """
    with opened(file) as tensors:
        names = list(tensors.keys())
    return {name: stored_tensor(file, name) for name in names}


@contextlib.contextmanager
def opened(file: pathlib.Path):
    """A safetensors file, open to be read.

    Raises:
      CheckpointError: if the file is missing, cut or damaged.
    """
    try:
        # A pipe exists too, but would be waited for.
        if not file.is_file():
            raise CheckpointError(f"there is no file {file}")
        with safetensors.safe_open(str(file), "np") as tensors:
            yield tensors
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is cut or damaged: {error}") from error


def tensor_files(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Which file of a folder holds each tensor.

    Raises:
      CheckpointError: if there is none, or an index places tensors where they are not.
    """
    if (folder / SHARDED).is_file():
        weight_map = read_json(folder, SHARDED).get("weight_map")
        if not isinstance(weight_map, dict) or not all(
            isinstance(file, str) and file.endswith(".safetensors")
            for file in weight_map.values()
        ):
            raise CheckpointError(
                f"{folder / SHARDED}: wanted a weight_map of tensor name to "
                ".safetensors file"
            )
        files = {
            file: inside(folder, confined(file, str(folder / SHARDED)))
            for file in set(weight_map.values())
        }
        held = {}
        for file in files.values():
            with opened(file) as tensors:
                held[file] = set(tensors.keys())
        absent = [
            name for name, file in weight_map.items() if name not in held[files[file]]
        ]
        if absent:
            raise CheckpointError(
                f"{folder / SHARDED} places {sorted(absent)[:10]} in files that do not "
                "hold them"
            )
        return {name: files[file] for name, file in weight_map.items()}
    if (folder / SINGLE).is_file():
        file = inside(folder, SINGLE)
        with opened(file) as tensors:
            return dict.fromkeys(tensors.keys(), file)
    pickled = [name for name in PICKLES if (folder / name).exists()]
    advice = (
        f"; {pickled[0]} is not read, because unpickling runs what the file says: "
        "save the model with safetensors"
        if pickled
        else ""
    )
    raise CheckpointError(f"{folder} has neither {SINGLE} nor {SHARDED}{advice}")


def read_json(folder: pathlib.Path, name: str) -> dict[str, Any]:
    """The object in a folder's JSON file.

    Raises:
      CheckpointError: if the file is missing, leads outside or holds something else.
    """
    file = inside(folder, name)
    if not file.is_file():
        raise CheckpointError(f"there is no file {file}")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file}: wanted a JSON object")
    return content


def stored_tensor(
    file: pathlib.Path, name: str, transpose: bool = False, part: int | None = None
) -> StoredArray:
    """Describes one tensor, in the layout of ours.

    Args:
      file: a safetensors file.
      name: the tensor's, there.
      transpose: whether it is a matrix whose axes change places.
      part: which third of its last axis is meant, before the transposition; None
        takes it whole.

    Raises:
      CheckpointError: if it is no such matrix, or does not hold plain numbers.
    """
    with opened(file) as tensors:
        described = tensors.get_slice(name)
        shape = tuple(described.get_shape())
        kind = described.get_dtype()
    where = f"{name} in {file}"
    if transpose and len(shape) != 2:
        raise CheckpointError(f"{where}: shape {shape}; wanted a matrix")
    taken = (Ellipsis,)
    if part is not None:
        if not shape or shape[-1] % 3:
            raise CheckpointError(
                f"{where}: shape {shape}; wanted three parts of one size side by side"
            )
        size = shape[-1] // 3
        shape = (*shape[:-1], size)
        taken = (Ellipsis, slice(part * size, (part + 1) * size))
    dtype = numeric_dtype(DTYPE_NAMES.get(kind, kind), where)

    def start(wanted: np.dtype) -> Callable[[], np.ndarray]:
        def wait() -> np.ndarray:
            with opened(file) as tensors:
                value = tensors.get_tensor(name)[taken]
            return np.asarray(value.T if transpose else value, wanted, order="C")

        return wait

    def start_part(wanted: np.dtype, index: Index) -> Callable[[], np.ndarray]:
        def wait() -> np.ndarray:
            with opened(file) as tensors:
                value = tensors.get_slice(name)[index[::-1] if transpose else index]
            return np.asarray(value.T if transpose else value, wanted, order="C")

        return wait

    return StoredArray(
        str(file),
        shape[::-1] if transpose else shape,
        dtype,
        start,
        start_part if part is None and shape else None,
    )


def _check_names(
    files: dict[str, pathlib.Path], table: tuple[Names, ...], folder: pathlib.Path
) -> None:
    wanted = {names.huggingface for names in table}
    missing = sorted(wanted - files.keys())
    surplus = sorted(files.keys() - wanted - IGNORED - {"lm_head.weight"})
    if missing or surplus:
        raise CheckpointError(
            f"the weights in {folder} are not what its config.json describes; "
            f"missing ({len(missing)}): {missing[:10]}; "
            f"surplus ({len(surplus)}): {surplus[:10]}"
        )


def _check_same_table(files: dict[str, pathlib.Path], folder: pathlib.Path) -> None:
    tables = read_arrays(
        {
            name: stored_tensor(files[name], name)
            for name in ("lm_head.weight", "shared.weight")
        }
    )
    if not np.array_equal(*tables.values()):
        raise CheckpointError(
            f"{folder}: config.json ties the logits to the embedding, but "
            "lm_head.weight differs from shared.weight"
        )
