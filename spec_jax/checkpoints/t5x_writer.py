"""Writing t5x's legacy format, as its Checkpointer does for a model without optimizer.

A msgpack file `checkpoint` names one zarr array a parameter in a folder beside it.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
import tensorstore as ts

from spec_jax.checkpoints.storage import STORE_ERRORS, CheckpointError
from spec_jax.checkpoints.t5x import ARRAY_CODES, INDEX
from spec_jax.checkpoints.validation import flatten, unflatten
from spec_jax.checkpoints.whole import (
    array_value,
    copy_files,
    new_folder,
    whole_folder,
)

VERSION = 3
CHUNK_BYTES = 64 * 2**20
"""t5x's limit on one chunk, before it is compressed."""


def save_t5x(
    path: str | os.PathLike,
    params: Mapping[str, Any],
    *,
    step: int = 0,
    dtype: Any = None,
    files: Sequence[pathlib.Path] = (),
) -> pathlib.Path:
    """Write `checkpoint_N` in a folder: all of it or nothing, also when killed.

    t5x restores it with `use_orbax` True and False alike, for inference; there is no
    optimizer in it to go on training with.

    Args:
      path: of the folder that holds the checkpoints, one a step; local. Is made.
      params: nested dict of arrays, in t5x's tree; StoredArrays are read one by one.
      step: N.
      dtype: floating arrays are cast to it; None keeps theirs.
      files: copied along, such as a vocabulary.

    Returns:
      The checkpoint's own path.

    Raises:
      CheckpointError: if the step exists, a key holds `.` or `/`, or the folder cannot
        be written.
    """
    if not 0 <= step < 2**31:
        raise CheckpointError(f"step {step}; wanted 0 <= step < 2**31")
    final = new_folder(os.path.join(path, f"checkpoint_{step}"))
    flat = flatten(params)
    if not flat:
        raise CheckpointError(f"there are no parameters to write to {final}")
    for name in flat:
        if "." in name:
            raise CheckpointError(f"{name!r}: a parameter's key must not hold '.'")
    with whole_folder(final) as folder:
        target = unflatten(
            {
                name: _write_array(folder, name, array_value(name, leaf, dtype))
                for name, leaf in flat.items()
            }
        )
        optimizer = {"target": target, "state": {"step": _inline(np.int32(step))}}
        content = msgpack.packb({"version": VERSION, "optimizer": optimizer})
        with open(folder / INDEX, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        copy_files(files, folder)
    return final


def chunk_shape(shape: Sequence[int], itemsize: int, limit: int) -> tuple[int, ...]:
    """The chunks that t5x cuts an array into: parts of one size, within a limit.

    The longest side is cut, again and again, to its next smaller divisor.

    Args:
      shape: of the array.
      itemsize: bytes of a number.
      limit: bytes of a chunk.

    Example:
      >>> chunk_shape((32128, 4096), 4, CHUNK_BYTES), chunk_shape((768,), 4, 4096)
      ((4016, 4096), (768,))
    """
    chunk = [max(size, 1) for size in shape]
    while int(np.prod(chunk, dtype=np.int64)) * itemsize > limit and max(chunk) > 1:
        axis = chunk.index(max(chunk))
        chunk[axis] = next(
            part for part in range(chunk[axis] - 1, 0, -1) if shape[axis] % part == 0
        )
    return tuple(chunk)


def _write_array(folder: pathlib.Path, name: str, value: np.ndarray) -> dict[str, Any]:
    """Writes one zarr array; returns what the index says of it."""
    path = f"target.{name.replace('/', '.')}/"
    spec = {
        "driver": "zarr",
        "dtype": value.dtype.name,
        "kvstore": {"driver": "file", "path": path},
        "metadata": {
            "chunks": list(chunk_shape(value.shape, value.dtype.itemsize, CHUNK_BYTES)),
            "compressor": {"id": "gzip", "level": 1},
            "shape": list(value.shape),
        },
    }
    place = {"driver": "file", "path": f"{folder}/{path}"}
    try:
        array = ts.open({**spec, "kvstore": place}, create=True).result()
        array.write(value).result()
    except STORE_ERRORS as error:
        reason = str(error).split(" [")[0]
        raise CheckpointError(f"{name} cannot be written: {reason}") from error
    return spec


def _inline(value: np.generic) -> msgpack.ExtType:
    """An array in the index itself, as flax packs it."""
    content = (value.shape, value.dtype.name, value.tobytes())
    return msgpack.ExtType(ARRAY_CODES[0], msgpack.packb(content))
