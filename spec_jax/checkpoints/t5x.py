"""Checkpoints as t5x writes them: legacy, one-file and Orbax.

Legacy: a msgpack file `checkpoint` holds the tree; a leaf is an array, or names a
zarr array in a folder beside it. Orbax: one OCDBT database of zarr arrays. Only the
parameters (`target`) are opened; the optimizer's state is never read.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from spec_jax.checkpoints.storage import (
    CheckpointError,
    Folder,
    StoredArray,
    confined,
    inline_array,
    numeric_dtype,
    open_ocdbt,
    open_zarr,
)

INDEX = "checkpoint"
ORBAX_ITEM = "state"
# Drivers that t5x writes or public checkpoints hold. They say where the checkpoint
# was written, not where it lies: arrays are always opened beside the index.
DRIVERS = ("file", "gfile", "gcs")
# flax's codes for an array and for a NumPy scalar, both (shape, dtype, bytes).
ARRAY_CODES = (1, 3)


def open_legacy(
    folder: Folder, index: str = INDEX, failed: dict[str, str] | None = None
) -> dict[str, StoredArray]:
    """Find the parameters of a legacy or one-file checkpoint.

    Args:
      folder: the folder of the index.
      index: name of the msgpack file.
      failed: takes why an array cannot be opened, by name, in place of the error.

    Returns:
      Parameters by t5x's name, without `target/`; none of them read.

    Raises:
      CheckpointError: if the index is cut, names anything outside the folder or
        holds other things than arrays; or an array cannot be opened.
    """
    where = f"{folder.path}/{index}"
    inline, stores, described = {}, {}, {}
    leaves = _leaves(_target(_read_index(folder, index), where))
    if not leaves:
        raise CheckpointError(f"{where}: its 'target' holds no parameters")
    for name, leaf in leaves:
        if isinstance(leaf, msgpack.ExtType):
            inline[name] = inline_array(where, _decode(leaf, f"{name} in {where}"))
        elif isinstance(leaf, Mapping):
            stores[name] = folder.store(_array_path(leaf, f"{name} in {where}"))
            described[name] = leaf
        else:
            raise CheckpointError(_foreign(name, leaf, where))
    arrays = open_zarr(stores, folder, failed=failed)
    for name in arrays.keys() & described.keys():
        leaf = described[name]
        _check_described(arrays[name], leaf, f"{name} in {where}")
    return inline | arrays


def read_step(folder: Folder, index: str = INDEX) -> int | None:
    """The step that the index of a legacy or one-file checkpoint tells, if it does.

    Args:
      folder: the folder of the index.
      index: name of the msgpack file.

    Raises:
      CheckpointError: if the index is missing or cut.
    """
    root = _read_index(folder, index)
    root = root.get("optimizer", root) if isinstance(root, Mapping) else None
    state = root.get("state") if isinstance(root, Mapping) else None
    leaf = state.get("step") if isinstance(state, Mapping) else None
    if not isinstance(leaf, msgpack.ExtType):
        return leaf if isinstance(leaf, int) else None
    step = _decode(leaf, f"state/step in {folder.path}/{index}")
    return int(step.reshape(-1)[0]) if step.size == 1 else None


def open_orbax(folder: Folder) -> dict[str, StoredArray]:
    """Find the parameters of a checkpoint that t5x wrote with Orbax.

    Args:
      folder: `checkpoint_N`.

    Returns:
      Parameters by t5x's name, without `target/`; none of them read. Empty if the
      database holds no `target`.

    Raises:
      CheckpointError: if the database cannot be opened.
    """
    arrays = open_ocdbt(folder, ORBAX_ITEM, "target.")
    return {name.replace(".", "/"): array for name, array in arrays.items()}


def _read_index(folder: Folder, index: str) -> Any:
    where = f"{folder.path}/{index}"
    data = folder.read(index)
    if data is None:
        raise CheckpointError(f"there is no file {where}")
    return _unpack(data, where)


def _unpack(data: bytes, where: str) -> Any:
    try:
        # Extension types stay as they are: nothing in the file chooses code to run.
        return msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise CheckpointError(
            f"{where} is cut short or no msgpack index: {error}"
        ) from error


def _target(index: Any, where: str) -> Mapping[str, Any]:
    root = index.get("optimizer", index) if isinstance(index, Mapping) else None
    target = root.get("target") if isinstance(root, Mapping) else None
    if not isinstance(target, Mapping):
        raise CheckpointError(f"{where} holds no 'target', where t5x keeps parameters")
    return target


def _leaves(node: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    leaves = []
    for key, value in node.items():
        name = f"{above}/{key}" if above else str(key)
        value = _joined(value, name)
        if isinstance(value, Mapping) and "driver" not in value:
            leaves += _leaves(value, name)
        else:
            leaves.append((name, value))
    return leaves


def _joined(value: Any, name: str) -> Any:
    """An array that flax cut up because msgpack's limit on one piece is 4 GiB."""
    if not isinstance(value, Mapping) or "__msgpack_chunked_array__" not in value:
        return value
    try:
        shape, chunks = (
            [value[part][str(i)] for i in range(len(value[part]))]
            for part in ("shape", "chunks")
        )
        pieces = [_decode(chunk, name) for chunk in chunks]
        whole = np.concatenate(pieces)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(f"{name}: no pieces of one array: {error!r}") from error
    packed = msgpack.packb((shape, whole.dtype.name, whole.tobytes()))
    return msgpack.ExtType(1, packed)


def _decode(leaf: msgpack.ExtType, where: str) -> np.ndarray:
    if leaf.code not in ARRAY_CODES:
        raise CheckpointError(
            f"{where}: msgpack extension type {leaf.code}; wanted an array"
        )
    content = _unpack(leaf.data, where)
    if not isinstance(content, list) or len(content) != 3:
        raise CheckpointError(f"{where}: wanted (shape, dtype, bytes) of an array")
    shape, name, data = content
    dtype = numeric_dtype(name, where)
    if (
        not isinstance(shape, list)
        or not all(isinstance(size, int) and size >= 0 for size in shape)
        or not isinstance(data, bytes)
        or len(data) != math.prod(shape) * dtype.itemsize
    ):
        raise CheckpointError(f"{where}: shape {shape} of {name} does not fit its data")
    return np.frombuffer(data, dtype).reshape(shape)


def _array_path(leaf: Mapping[str, Any], where: str) -> str:
    store = leaf.get("kvstore")
    if leaf["driver"] != "zarr" or not isinstance(store, Mapping):
        raise CheckpointError(f"{where}: driver {leaf['driver']!r}; wanted 'zarr'")
    if store.get("driver") not in DRIVERS:
        raise CheckpointError(
            f"{where}: an array in a {store.get('driver')!r} store; t5x writes "
            f"{DRIVERS}, and a checkpoint may only read its own folder"
        )
    unknown = leaf.keys() - {"driver", "dtype", "kvstore", "metadata", "path"}
    unknown |= store.keys() - {"driver", "path", "bucket"}
    if unknown:
        raise CheckpointError(f"{where}: unknown entries {sorted(unknown)}")
    paths = {here["path"] for here in (leaf, store) if "path" in here}
    if len(paths) != 1 or not isinstance(*paths, str):
        raise CheckpointError(
            f"{where}: wanted one path, got {sorted(map(str, paths))}"
        )
    return confined(*paths, where)


def _check_described(array: StoredArray, leaf: Mapping[str, Any], where: str) -> None:
    metadata = leaf.get("metadata", {})
    if not isinstance(metadata, Mapping):
        raise CheckpointError(f"{where}: metadata {metadata!r}; wanted a map")
    shape = metadata.get("shape", list(array.shape))
    dtype = leaf.get("dtype", array.dtype.name)
    if list(array.shape) != shape or array.dtype.name != dtype:
        raise CheckpointError(
            f"{where}: the index says {dtype} {shape}, the array's .zarray "
            f"{array.dtype.name} {list(array.shape)}"
        )


def _foreign(name: str, leaf: Any, where: str) -> str:
    if isinstance(leaf, str) and leaf.startswith("PLACEHOLDER://"):
        return (
            f"{where} is of an early Orbax form (array names as {leaf!r}), which this "
            "loader does not read; restore it with t5x and save it again"
        )
    return f"{name} in {where} is a {type(leaf).__name__}; wanted an array"
