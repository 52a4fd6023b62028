"""Parameters from a checkpoint of any kind, checked before they are read."""

import dataclasses
import functools
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from spec_jax.checkpoints import huggingface, mapping, orbax, t5x
from spec_jax.checkpoints.storage import (
    CheckpointError,
    Folder,
    StoredArray,
    inside,
    names_the_path,
    read_arrays,
    read_onto,
)
from spec_jax.checkpoints.validation import check_fits, flatten, unflatten

STEP = re.compile(r"(?:checkpoint_)?(\d+)")
WEIGHTS = "params.safetensors"
WANTED = (
    "a t5x checkpoint_N or the folder of several, a Hugging Face T5 folder, a "
    "checkpoint or training run of ours, a .safetensors file or a folder with "
    f"{WEIGHTS}"
)


def load_params(
    path: str | os.PathLike,
    expected: Mapping[str, Any] | None = None,
    name: str = "target",
    dtype: Any = None,
    *,
    resize_vocabulary: bool = False,
) -> dict[str, Any]:
    """Read a model's parameters from a checkpoint of whatever kind.

    Args:
      path: t5x's model directory (the latest step is taken), one `checkpoint_N`, or
        a one-file checkpoint; a Hugging Face T5 folder; a checkpoint, training run
        or weights file of ours. Relative or absolute; t5x's and our own folders may
        also be URLs that tensorstore takes, as `gs://bucket/model`.
      expected: the model's parameter tree, with leaves of jax.ShapeDtypeStruct (their
        dtype is not looked at). Where all have shardings each host reads only
        the parts that its devices hold. None takes whatever there is.
      name: "target" or "draft", for messages.
      dtype: floating arrays are cast to it; None keeps what is stored.
      resize_vocabulary: whether tables of the vocabulary may have another number of
        rows; see `mapping.resize_vocabulary`.

    Returns:
      Nested dict of NumPy arrays (jax arrays where `expected` has shardings).

    Raises:
      CheckpointError: if there is no checkpoint, it is damaged or reaches outside its
        folder, or its arrays are not those expected; nothing is read in that case.
    """
    arrays, where = open_checkpoint(path)
    wanted = None if expected is None else flatten(expected)
    vocab_size = None
    if wanted is not None:
        described: dict[str, Any] = dict(arrays)
        if resize_vocabulary and mapping.EMBEDDING in wanted:
            vocab_size = wanted[mapping.EMBEDDING].shape[0]
            described |= _resized(arrays, vocab_size)
        check_fits(described, wanted, where, name)
        shardings = {
            key: sharding
            for key, leaf in wanted.items()
            if (sharding := getattr(leaf, "sharding", None)) is not None
        }
        if shardings.keys() == wanted.keys() and all(
            arrays[key].shape == wanted[key].shape for key in wanted
        ):
            return unflatten(read_onto(arrays, shardings, dtype))
    values = read_arrays(arrays, dtype)
    if vocab_size is not None:
        values = flatten(mapping.resize_vocabulary(unflatten(values), vocab_size))
    if wanted is not None:
        values = {key: _placed(value, wanted[key]) for key, value in values.items()}
    return unflatten(values)


def open_checkpoint(
    path: str | os.PathLike,
) -> tuple[dict[str, StoredArray], str]:
    """Find the parameters of a checkpoint of whatever kind.

    Args:
      path: as for `load_params`.

    Returns:
      Arrays by t5x's name, none of them read, and the path they were found at.

    Raises:
      CheckpointError: if there is no checkpoint or it cannot be opened.
    """
    found = find_checkpoint(path)
    return open_found(found), found.path


@dataclasses.dataclass(frozen=True)
class Found:
    """A checkpoint that has been recognized, not opened.

    Attributes:
      kind: one of KINDS.
      path: of the checkpoint itself, for the user.
      folder: it lies in; itself, if it is a folder.
      file: its name in the folder, if it is one file.
    """

    kind: str
    path: str
    folder: Folder
    file: str | None = None


LEGACY = "t5x's legacy format"
ONE_FILE = "t5x's one-file format"
T5X_ORBAX = "t5x's Orbax format"
HUGGINGFACE = "Hugging Face folder"
WEIGHTS_FILE = "safetensors file with t5x's names"
OWN = "folder of spec_jax"
OWN_ORBAX = "Orbax checkpoint of spec_jax"
TRAINING = "training run of spec_jax"
KINDS = (
    *(LEGACY, ONE_FILE, T5X_ORBAX, HUGGINGFACE),
    *(WEIGHTS_FILE, OWN, OWN_ORBAX, TRAINING),
)


@names_the_path
def find_checkpoint(path: str | os.PathLike) -> Found:
    """Recognize a checkpoint of whatever kind; opens no array.

    Args:
      path: as for `load_params`.

    Raises:
      CheckpointError: if there is none.
    """
    folder = Folder.at(path)
    if folder.local is not None and folder.local.is_file():
        file = folder.local
        kind = WEIGHTS_FILE if file.suffix == ".safetensors" else ONE_FILE
        above = Folder.at(file.parent)
        # The index of a folder was named in place of the folder.
        if kind == ONE_FILE and file.name == t5x.INDEX:
            return Found(LEGACY, above.path, above)
        return Found(kind, str(file), above, file.name)
    folder = _latest(folder)
    found = functools.partial(Found, path=folder.path, folder=folder)
    if folder.local is not None and folder.has(huggingface.CONFIG):
        return found(HUGGINGFACE)
    if folder.local is not None and folder.has(WEIGHTS):
        return found(OWN, file=WEIGHTS)
    if folder.has(t5x.INDEX):
        return found(LEGACY)
    if folder.has(f"{t5x.ORBAX_ITEM}/{orbax.DATABASE}"):
        # t5x and our training name the item alike; t5x's has no folder of ours.
        ours = folder.has(f"{orbax.EXTRA}/metadata")
        return found(TRAINING if ours else T5X_ORBAX)
    if folder.has(orbax.DATABASE):
        return found(OWN_ORBAX)
    raise CheckpointError(f"no checkpoint at {folder.path}; wanted {WANTED}")


@names_the_path
def _open(
    path: str, found: Found, failed: dict[str, str] | None
) -> dict[str, StoredArray]:
    folder = found.folder
    if found.kind == HUGGINGFACE:
        return huggingface.open_huggingface(folder.local)[0]
    if found.kind in (OWN, WEIGHTS_FILE):
        return _open_weights(inside(folder.local, found.file))
    if found.kind in (LEGACY, ONE_FILE):
        return t5x.open_legacy(folder, found.file or t5x.INDEX, failed)
    if found.kind == OWN_ORBAX:
        return orbax.open_own(folder)
    arrays = t5x.open_orbax(folder) or orbax.open_training(folder)
    if not arrays:
        raise CheckpointError(
            f"{path}/{t5x.ORBAX_ITEM} holds neither 'target' nor 'params'"
        )
    return arrays


def open_found(
    found: Found, failed: dict[str, str] | None = None
) -> dict[str, StoredArray]:
    """Find the parameters of a checkpoint that was recognized.

    Args:
      found: which.
      failed: takes why an array cannot be opened, by name, in place of the error, for
        formats with a file for each array.

    Returns:
      Arrays by t5x's name, none of them read.

    Raises:
      CheckpointError: if it cannot be opened.
    """
    return _open(found.path, found, failed)


def _open_weights(file: pathlib.Path) -> dict[str, StoredArray]:
    arrays = huggingface.open_safetensors(file)
    if "shared.weight" in arrays:
        raise CheckpointError(
            f"{file} has Hugging Face's names; give its folder, which holds "
            f"{huggingface.CONFIG}"
        )
    return arrays


def _latest(folder: Folder) -> Folder:
    """The folder itself if it is a checkpoint, else its newest step."""
    marks = [t5x.INDEX, f"{t5x.ORBAX_ITEM}/{orbax.DATABASE}", orbax.DATABASE]
    if folder.local is not None:
        marks += [huggingface.CONFIG, WEIGHTS]
    if any(folder.has(mark) for mark in marks):
        return folder
    steps = {
        int(step[1]): step[0]
        for name in folder.names()
        if (step := STEP.fullmatch(name))
    }
    for _, name in sorted(steps.items(), reverse=True):
        child = folder.child(name)
        # A step without an index is one that was never finished.
        if any(child.has(mark) for mark in marks):
            return child
    return folder


def _resized(arrays: Mapping[str, StoredArray], rows: int) -> dict[str, Any]:
    """How the tables of the vocabulary will be described once they are resized."""
    resized = {}
    for name, axis in ((mapping.EMBEDDING, 0), (mapping.HEAD, 1)):
        if name in arrays and len(arrays[name].shape) == 2:
            shape = list(arrays[name].shape)
            shape[axis] = rows
            resized[name] = jax.ShapeDtypeStruct(tuple(shape), arrays[name].dtype)
    return resized


def _placed(value: np.ndarray, leaf: Any) -> Any:
    sharding = getattr(leaf, "sharding", None)
    return value if sharding is None else jax.device_put(value, sharding)
