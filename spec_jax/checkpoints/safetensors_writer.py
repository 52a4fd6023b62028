"""Writing a safetensors file without holding all of it in memory.

The format: https://github.com/huggingface/safetensors#format. The bytes are those
that the package safetensors writes of the same tensors.
"""

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from spec_jax.checkpoints.huggingface import DTYPE_NAMES
from spec_jax.checkpoints.storage import FLOATS, StoredArray, numeric_dtype
from spec_jax.checkpoints.whole import array_value

ALIGNMENT = 8
# The package puts larger numbers first, and orders dtypes of one size so.
RANK = ("BOOL U8 I8 I16 U16 F16 BF16 I32 U32 F32 F64 I64 U64").split()
CODES = {name: code for code, name in DTYPE_NAMES.items()}


def write_safetensors(
    stream: BinaryIO,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    dtype: Any = None,
) -> None:
    """Write a file's content, one tensor in memory at a time.

    Args:
      stream: open to be written.
      tensors: arrays, or StoredArrays that are read when their turn comes.
      metadata: strings, kept in the file's head.
      dtype: floating tensors are cast to it; None keeps theirs.

    Raises:
      CheckpointError: if one cannot be read, or holds anything but numbers.
    """
    kinds = {name: stored_dtype(name, leaf, dtype) for name, leaf in tensors.items()}
    order = sorted(
        tensors, key=lambda name: (-RANK.index(CODES[kinds[name].name]), name)
    )
    head: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        start, end = end, end + tensor_bytes(tensors[name], kinds[name])
        head[name] = {
            "dtype": CODES[kinds[name].name],
            "shape": list(_shape(tensors[name])),
            "data_offsets": [start, end],
        }
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    stream.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        value = array_value(name, tensors[name], dtype)
        stream.write(value.reshape(-1).view(np.uint8).data)


def stored_dtype(name: str, leaf: Any, dtype: Any = None) -> np.dtype:
    """What a parameter will be stored as.

    Args:
      name: for messages.
      leaf: an array or StoredArray.
      dtype: floating ones are cast to it; None keeps theirs.
    """
    kind = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    stored = numeric_dtype(np.dtype(kind).name, name)
    return stored if dtype is None or stored.name not in FLOATS else np.dtype(dtype)


def tensor_bytes(leaf: Any, dtype: np.dtype) -> int:
    """Bytes of an array's values as `dtype`."""
    return int(np.prod(_shape(leaf), dtype=np.int64)) * dtype.itemsize


def _shape(leaf: Any) -> tuple[int, ...]:
    return leaf.shape if isinstance(leaf, StoredArray) else np.shape(leaf)
