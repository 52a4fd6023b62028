"""Writing T5 folders that transformers 4 and 5 load.

Neither transformers nor torch is needed.
"""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spec_jax.checkpoints.huggingface import CONFIG, SHARDED, SINGLE
from spec_jax.checkpoints.mapping import t5_names, to_huggingface_config
from spec_jax.checkpoints.safetensors_writer import (
    stored_dtype,
    tensor_bytes,
    write_safetensors,
)
from spec_jax.checkpoints.storage import FLOATS, CheckpointError, StoredArray
from spec_jax.checkpoints.validation import flatten
from spec_jax.checkpoints.vocabulary_files import for_transformers
from spec_jax.checkpoints.whole import copy_files, whole_folder

GENERATION_CONFIG = "generation_config.json"
GENERATION = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
SHARD_BYTES = 5_000_000_000
"""A larger model is written in several files, as transformers does."""


def save_huggingface(
    folder: str | os.PathLike,
    params: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    dtype: Any = None,
    shard_bytes: int = SHARD_BYTES,
    files: Sequence[pathlib.Path] = (),
) -> None:
    """Write a folder for transformers: all of it or nothing, also when killed.

    Args:
      folder: does not exist yet; local.
      params: nested dict of arrays, in t5x's tree; StoredArrays are read one by one.
      config: T5Config's arguments.
      dtype: floating arrays are cast to it; None keeps theirs.
      shard_bytes: of weights in one file.
      files: of a vocabulary, copied along; see `for_transformers` for their names.

    Raises:
      CheckpointError: if the folder exists or cannot be written, the parameters are
        not those of such a T5, or transformers has no such T5.
    """
    if shard_bytes < 1:
        raise CheckpointError(f"shard_bytes {shard_bytes}; wanted at least 1")
    flat = flatten(params)
    table = t5_names(
        config["num_encoder_layers"],
        config["num_decoder_layers"],
        config["mlp_activations"],
        config["logits_via_embedding"],
    )
    missing = sorted({row.t5x for row in table} - flat.keys())
    surplus = sorted(flat.keys() - {row.t5x for row in table})
    if missing or surplus:
        raise CheckpointError(
            f"these are not the parameters of such a T5; missing ({len(missing)}): "
            f"{missing[:10]}; surplus ({len(surplus)}): {surplus[:10]}"
        )
    tensors = {
        row.huggingface: transposed(flat[row.t5x]) if row.transpose else flat[row.t5x]
        for row in table
    }
    kinds = {name: stored_dtype(name, x, dtype) for name, x in tensors.items()}
    sizes = {name: tensor_bytes(x, kinds[name]) for name, x in tensors.items()}
    described = to_huggingface_config(config, _main_dtype(kinds, sizes))
    with whole_folder(folder) as part:
        _write_json(part / CONFIG, described)
        _write_json(part / GENERATION_CONFIG, GENERATION)
        shards = split_by_size(sizes, shard_bytes)
        names = [SINGLE]
        if len(shards) > 1:
            count = len(shards)
            names = [
                f"model-{number:05}-of-{count:05}.safetensors"
                for number in range(1, count + 1)
            ]
            weight_map = {
                tensor: file for file, shard in zip(names, shards) for tensor in shard
            }
            total = {"total_size": sum(sizes.values())}
            index = {"metadata": total, "weight_map": dict(sorted(weight_map.items()))}
            _write_json(part / SHARDED, index)
        for file, shard in zip(names, shards):
            with open(part / file, "wb") as stream:
                write_safetensors(
                    stream,
                    {name: tensors[name] for name in shard},
                    # transformers takes no file that does not say so.
                    {"format": "pt"},
                    dtype,
                )
                stream.flush()
                os.fsync(stream.fileno())
        copy_files(for_transformers(files), part)


def split_by_size(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Names in groups whose sizes stay within a limit, in their order.

    Args:
      sizes: of each.
      limit: of a group; what is larger is a group of its own.

    Example:
      >>> split_by_size({"a": 3, "b": 3, "c": 9, "d": 1}, 6)
      [['a', 'b'], ['c'], ['d']]
    """
    groups: list[list[str]] = [[]]
    used = 0
    for name, size in sizes.items():
        if groups[-1] and used + size > limit:
            groups.append([])
            used = 0
        groups[-1].append(name)
        used += size
    return groups


def transposed(leaf: Any) -> Any:
    """A matrix with its axes changed, read no earlier than before."""
    if not isinstance(leaf, StoredArray):
        return np.asarray(leaf).T

    def start(dtype: np.dtype):
        wait = leaf.start(dtype)
        return lambda: wait().T

    return StoredArray(leaf.where, leaf.shape[::-1], leaf.dtype, start)


def _main_dtype(kinds: Mapping[str, np.dtype], sizes: Mapping[str, int]) -> str:
    """The floating dtype that most of the weights have."""
    bytes_of: dict[str, int] = {}
    for name, kind in kinds.items():
        if kind.name in FLOATS:
            bytes_of[kind.name] = bytes_of.get(kind.name, 0) + sizes[name]
    return max(bytes_of, key=bytes_of.__getitem__, default="float32")


def _write_json(file: pathlib.Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
