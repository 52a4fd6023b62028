"""What a checkpoint holds, and what it lacks."""

import dataclasses
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from spec_jax.checkpoints import causal_lm, gguf, huggingface, t5x
from spec_jax.checkpoints.inference import expected_shapes, infer_config
from spec_jax.checkpoints.loading import (
    HUGGINGFACE,
    LEGACY,
    ONE_FILE,
    OWN,
    STEP,
    Found,
    find_checkpoint,
    open_found,
)
from spec_jax.checkpoints.mapping import check_layers, t5_config
from spec_jax.checkpoints.storage import (
    FLOATS,
    CheckpointError,
    StoredArray,
    inside,
    names_the_path,
    read_arrays,
)
from spec_jax.checkpoints.vocabulary_files import vocabulary_files

OWN_CONFIG = "t5_config.json"
DECODER_ONLY = "Hugging Face folder of a decoder-only model"
GGUF = "GGUF file of a decoder-only model"
READ_BYTES = 2_000_000_000
"""A larger checkpoint is not read whole unless that is asked for."""
LISTED = 5


@dataclasses.dataclass(frozen=True)
class ArraySummary:
    """One stored array.

    Attributes:
      name: t5x's, or the file's own where that is not known.
      shape: in t5x's layout.
      dtype: as stored.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """How many numbers."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class CheckpointSummary:
    """What is at a path.

    Attributes:
      path: of the checkpoint itself: of a folder of several, the newest.
      kind: one of `loading.KINDS`, DECODER_ONLY or GGUF.
      step: of training, if it tells.
      arrays: all of its parameters.
      num_parameters: numbers in them.
      num_bytes: of the parameters, as stored and not compressed.
      disk_bytes: of the files, with whatever else is in them; None for a URL.
      dtypes: how many parameters are stored in each.
      config: T5Config's arguments (CausalLMConfig's of a decoder-only model); None if
        nothing tells them.
      config_from: the file that tells them, or "the arrays".
      vocabulary: files beside it.
      problems: what is missing, damaged or contradicts itself, a line each.
      was_read: whether every number was read.
    """

    path: str
    kind: str
    step: int | None
    arrays: tuple[ArraySummary, ...]
    num_parameters: int
    num_bytes: int
    disk_bytes: int | None
    dtypes: dict[str, int]
    config: dict[str, Any] | None
    config_from: str | None
    vocabulary: tuple[str, ...]
    problems: tuple[str, ...]
    was_read: bool


@dataclasses.dataclass(frozen=True)
class _Content:
    """What opening a checkpoint gave."""

    kind: str
    arrays: Mapping[str, StoredArray]
    config: dict[str, Any] | None = None
    config_from: str | None = None
    problems: tuple[str, ...] = ()


@names_the_path
def describe_checkpoint(
    path: str | os.PathLike, read: bool | None = None
) -> CheckpointSummary:
    """Say what a file, folder or URL holds, without loading it.

    Args:
      path: as for `load_params`; also GGUF files and folders of decoder-only models.
      read: whether every array is read once, one after the other, to find damage; None
        does so up to READ_BYTES.

    Raises:
      CheckpointError: if there is no checkpoint, or so little of it that nothing can
        be said.
    """
    if os.fspath(path).endswith(".gguf"):
        model = gguf.open_gguf(path)
        place = str(pathlib.Path(path).expanduser())
        content = _Content(GGUF, model.arrays, model.fields, "the file")
        step, local = None, pathlib.Path(place)
    else:
        found = find_checkpoint(path)
        content = _open(found)
        place, step, local = found.path, checkpoint_step(found), found.folder.local
        if local is not None and found.file and found.kind != OWN:
            local = local / found.file
    arrays = content.arrays
    num_bytes = sum(
        math.prod(array.shape) * array.dtype.itemsize for array in arrays.values()
    )
    if read is None:
        read = local is not None and num_bytes <= READ_BYTES
    damage = _damage(arrays) if read else ()
    vocabulary: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    try:
        vocabulary = tuple(str(file) for file in vocabulary_files(place))
    except CheckpointError as error:
        refused = (str(error),)
    dtypes: dict[str, int] = {}
    for array in arrays.values():
        kind, size = array.dtype.name, math.prod(array.shape)
        dtypes[kind] = dtypes.get(kind, 0) + size
    return CheckpointSummary(
        path=place,
        kind=content.kind,
        step=step,
        arrays=tuple(
            ArraySummary(name, tuple(array.shape), array.dtype.name)
            for name, array in arrays.items()
        ),
        num_parameters=sum(dtypes.values()),
        num_bytes=num_bytes,
        disk_bytes=None if local is None else _disk_bytes(local),
        dtypes=dtypes,
        config=content.config,
        config_from=content.config_from,
        vocabulary=vocabulary,
        problems=content.problems + damage + refused,
        was_read=read,
    )


def read_own_config(folder: pathlib.Path) -> dict[str, Any] | None:
    """T5Config's arguments from a folder of ours; None if it has no such file.

    Raises:
      CheckpointError: if the file holds something else.
    """
    file = inside(folder, OWN_CONFIG)
    return huggingface.read_json(folder, OWN_CONFIG) if file.is_file() else None


def _open(found: Found) -> _Content:
    if found.kind == HUGGINGFACE:
        return _open_huggingface(found)
    failed: dict[str, str] = {}
    arrays = open_found(found, failed)
    problems = tuple(f"{name} {reason}" for name, reason in sorted(failed.items()))
    config, source = None, None
    if found.folder.local is not None and found.kind == OWN:
        config, source = read_own_config(found.folder.local), OWN_CONFIG
    if config is None:
        try:
            config, source = infer_config(arrays), "the arrays"
        except CheckpointError as error:
            return _Content(found.kind, arrays, None, None, (*problems, str(error)))
    absent = [name for name in failed if name not in arrays]
    return _Content(
        found.kind,
        arrays,
        config,
        source,
        problems + _differences(arrays, config, absent),
    )


def _open_huggingface(found: Found) -> _Content:
    folder = found.folder.local
    config = huggingface.read_json(folder, huggingface.CONFIG)
    if config.get("model_type") in ("llama", "gpt2"):
        arrays, fields = causal_lm.open_causal_lm(folder)
        return _Content(DECODER_ONLY, arrays, fields, huggingface.CONFIG)
    try:
        arrays, fields = huggingface.open_huggingface(folder)
    except CheckpointError as error:
        files = huggingface.tensor_files(folder)
        arrays = {
            name: huggingface.stored_tensor(file, name) for name, file in files.items()
        }
        try:
            fields = t5_config(config, "lm_head.weight" in files)
        except CheckpointError:
            fields = None
        source = None if fields is None else huggingface.CONFIG
        return _Content(found.kind, arrays, fields, source, (str(error),))
    return _Content(
        found.kind,
        arrays,
        fields,
        huggingface.CONFIG,
        _differences(arrays, fields, ()),
    )


def _differences(
    arrays: Mapping[str, StoredArray], config: Mapping[str, Any], known: Any
) -> tuple[str, ...]:
    """How the arrays differ from those of the network, a line each."""
    try:
        layers = max(config["num_encoder_layers"], config["num_decoder_layers"])
        check_layers(layers, len(arrays) + len(known), "the config")
        wanted = expected_shapes(config)
    except CheckpointError as error:
        return (str(error),)
    except (KeyError, TypeError) as error:
        return (f"the config lacks {error}",)
    missing = sorted(wanted.keys() - arrays.keys() - set(known))
    surplus = sorted(arrays.keys() - wanted.keys())
    wrong = sorted(
        f"{name} is {tuple(arrays[name].shape)}, wanted {wanted[name]}"
        for name in wanted.keys() & arrays.keys()
        if tuple(arrays[name].shape) != wanted[name]
    )
    return (
        *_some("missing", missing),
        *_some("not of this network", surplus),
        *wrong,
    )


def _some(what: str, names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    rest = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return (f"{what}: {', '.join(names[:LISTED])}{rest}",)


def _damage(arrays: Mapping[str, StoredArray]) -> tuple[str, ...]:
    """What is found when every array is read, a line each."""
    problems = []
    for name, array in arrays.items():
        try:
            value = read_arrays({name: array})[name]
        except CheckpointError as error:
            problems.append(str(error))
            continue
        if value.dtype.name in FLOATS:
            wild = value.size - int(np.count_nonzero(np.isfinite(value)))
            if wild:
                problems.append(f"{name} has {wild} numbers that are not finite")
    return tuple(problems)


def checkpoint_step(found: Found) -> int | None:
    """The step of training that a checkpoint tells, in its index or its name."""
    if found.kind in (LEGACY, ONE_FILE):
        step = t5x.read_step(found.folder, found.file or t5x.INDEX)
        if step is not None:
            return step
    name = STEP.fullmatch(found.path.rstrip("/").rpartition("/")[2])
    return int(name[1]) if name else None


def _disk_bytes(path: pathlib.Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(
        os.stat(os.path.join(folder, file)).st_size
        for folder, _, files in os.walk(path)
        for file in files
        if os.path.exists(os.path.join(folder, file))
    )
