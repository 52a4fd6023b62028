"""A file of weights: safetensors with t5x's names, e.g. `decoder/decoder_norm/scale`.

The plainest form to ship: one file, any dtype of plain numbers, nothing to run.
"""

import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

from spec_jax.checkpoints.huggingface import open_safetensors, opened
from spec_jax.checkpoints.safetensors_writer import write_safetensors
from spec_jax.checkpoints.storage import read_arrays
from spec_jax.checkpoints.validation import flatten, unflatten


def save_weights(
    file: str | os.PathLike,
    params: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    dtype: Any = None,
) -> None:
    """Write the file: all of it or nothing, also when killed.

    Args:
      file: is replaced if it exists.
      params: nested dict of arrays; StoredArrays are read one by one.
      metadata: strings, kept in the file's head.
      dtype: floating arrays are cast to it; None keeps theirs.
    """
    file = _path(file)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            write_safetensors(stream, flatten(params), metadata, dtype)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise


def load_weights(file: str | os.PathLike, dtype: Any = None) -> dict[str, Any]:
    """Read such a file.

    Args:
      file: its path.
      dtype: floating arrays are cast to it; None keeps what is stored.

    Returns:
      Nested dict of NumPy arrays.

    Raises:
      CheckpointError: if the file is missing, cut or damaged.
    """
    return unflatten(read_arrays(open_safetensors(_path(file)), dtype))


def weights_metadata(file: str | os.PathLike) -> dict[str, str]:
    """What `save_weights` was given as metadata.

    Args:
      file: its path.

    Returns:
      The dict; empty if there was none.

    Raises:
      CheckpointError: as `load_weights`.
    """
    with opened(_path(file)) as tensors:
        return dict(tensors.metadata() or {})


def _path(file: str | os.PathLike) -> pathlib.Path:
    return pathlib.Path(os.path.expanduser(file))
