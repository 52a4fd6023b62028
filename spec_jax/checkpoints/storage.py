"""A checkpoint's folder and the arrays in it, confined to that folder.

A checkpoint is data from a stranger. Its files name other files, so every name
goes through `Folder`, which refuses what leads elsewhere, and every array is
opened by this module, which takes plain numbers only.
"""

import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import ml_dtypes
import numpy as np
import tensorstore as ts

DTYPES = {
    np.dtype(kind).name: np.dtype(kind)
    for kind in (
        *(np.bool_, np.int8, np.int16, np.int32, np.int64),
        *(np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16),
    )
}
FLOATS = ("float16", "bfloat16", "float32", "float64")
CACHE_BYTES = 100_000_000
RETRIES = {"max_retries": 5, "initial_delay": "500ms", "max_delay": "4s"}
# Elements of a chunk that is larger than its array; writers round up a little.
SMALL_CHUNK = 2**20
# What tensorstore raises: absent or damaged data, no permission, no such operation.
STORE_ERRORS = (ValueError, OSError, LookupError, RuntimeError)


Index = tuple[slice, ...]
"""A part of an array: a slice of each axis."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or does not fit; the message says why."""


def names_the_path(read: Callable[..., Any]) -> Callable[..., Any]:
    """Makes `read(path, ...)` say which path, whatever is wrong with its content.

    Files may hold other types than their format has, nest without end, or be links
    in a circle.
    """

    @functools.wraps(read)
    def named(path, *args, **kwargs):
        try:
            return read(path, *args, **kwargs)
        except (TypeError, AttributeError, LookupError, OSError, RuntimeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error

    return named


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """An array that has been found and described, not yet read.

    Attributes:
      where: the file or folder it lies in, for messages.
      shape: as the parameter tree has it.
      dtype: as stored.
      start: given the wanted dtype, begins to read; the returned function waits.
      start_part: the same of a part, given as a slice of each axis; None where an
        array can only be read whole.
    """

    where: str
    shape: tuple[int, ...]
    dtype: np.dtype
    start: Callable[[np.dtype], Callable[[], np.ndarray]]
    start_part: Callable[[np.dtype, Index], Callable[[], np.ndarray]] | None = None

    def begin(self, dtype: np.dtype, index: Index) -> Callable[[], np.ndarray]:
        """Begins to read a part; the returned function waits."""
        if self.start_part is not None:
            return self.start_part(dtype, index)
        wait = self.start(dtype)
        return lambda: wait()[index]


def read_arrays(
    arrays: Mapping[str, StoredArray], dtype: Any = None
) -> dict[str, np.ndarray]:
    """Read arrays, all at once where the store allows it.

    Args:
      arrays: by name.
      dtype: floating arrays are cast to it; None keeps what is stored.

    Returns:
      The values, by name.

    Raises:
      CheckpointError: if one of them is missing, cut or damaged; names it.
    """
    wanted = {name: _wanted(array.dtype, dtype) for name, array in arrays.items()}
    pending, values = {}, {}
    try:
        for name, array in arrays.items():
            pending[name] = array.start(wanted[name])
        for name, wait in pending.items():
            values[name] = wait()
    except Exception as error:
        raise CheckpointError(
            f"{name} of {arrays[name].where} cannot be read: {_short(error)}"
        ) from error
    return values


def read_onto(
    arrays: Mapping[str, StoredArray],
    shardings: Mapping[str, jax.sharding.Sharding],
    dtype: Any = None,
) -> dict[str, jax.Array]:
    """Read arrays straight onto their devices: each host its own devices' parts.

    Args:
      arrays: by name.
      shardings: of each.
      dtype: floating arrays are cast to it; None keeps what is stored.

    Returns:
      The arrays, by name. A part that several devices hold is read once.

    Raises:
      CheckpointError: if one of them is missing, cut or damaged; names it.
    """
    pending, values = {}, {}
    try:
        for name, array in arrays.items():
            wanted = _wanted(array.dtype, dtype)
            places = shardings[name].addressable_devices_indices_map(array.shape)
            parts = {_key(index): index for index in places.values()}
            waits = {key: array.begin(wanted, index) for key, index in parts.items()}
            pending[name] = places, waits
        for name, (places, waits) in pending.items():
            parts = {key: wait() for key, wait in waits.items()}
            values[name] = jax.make_array_from_single_device_arrays(
                arrays[name].shape,
                shardings[name],
                [
                    jax.device_put(parts[_key(index)], device)
                    for device, index in places.items()
                ],
            )
            waits.clear()  # they hold what they have read
    except Exception as error:
        raise CheckpointError(
            f"{name} of {arrays[name].where} cannot be read: {_short(error)}"
        ) from error
    return values


def _key(index: Index) -> tuple[tuple[int | None, int | None], ...]:
    """A part as something that can be hashed, which slices cannot in Python 3.11."""
    return tuple((one.start, one.stop) for one in index)


def inline_array(where: str, value: np.ndarray) -> StoredArray:
    """A StoredArray whose value is at hand."""
    return StoredArray(
        where, value.shape, value.dtype, lambda dtype: lambda: value.astype(dtype)
    )


def numeric_dtype(name: Any, where: str) -> np.dtype:
    """The dtype called `name`, if it is one of plain numbers."""
    if not isinstance(name, str) or name not in DTYPES:
        raise CheckpointError(
            f"{where}: dtype {name!r}; a checkpoint may hold {', '.join(DTYPES)}"
        )
    return DTYPES[name]


def confined(name: str, where: str) -> str:
    """`name`, if it is a relative path that cannot lead out of its folder.

    Args:
      name: a path that a checkpoint's file gave, with or without a slash at its end.
      where: the file that gave it, for the message.

    Returns:
      The path without a slash at its end.

    Raises:
      CheckpointError: for absolute paths, `..`, `.`, empty parts, backslashes.
    """
    bare = name.removesuffix("/")
    parts = bare.split("/")
    if any(part in ("", ".", "..") for part in parts) or set(name) & {"\\", "\0"}:
        raise CheckpointError(
            f"{where} names {name!r}, which is not a path inside the checkpoint; "
            "a checkpoint may only read its own folder"
        )
    return bare


def inside(folder: pathlib.Path, name: str | os.PathLike) -> pathlib.Path:
    """What is called `name` in a folder on disk, there or not.

    Raises:
      CheckpointError: if it is a link that leads out of the folder.
    """
    folder = _resolved(folder)
    path = folder / name
    end = _resolved(path)
    # The hub's cache links from snapshots/<revision>/ to blobs/ of the same model.
    allowed = [folder]
    if folder.parent.name == "snapshots":
        allowed.append(folder.parent.parent / "blobs")
    if not any(end.is_relative_to(place) for place in allowed):
        raise CheckpointError(
            f"{path} is a link that leads out of the checkpoint, to {end}; a "
            "checkpoint may only read its own folder"
        )
    return path


def _resolved(path: pathlib.Path) -> pathlib.Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{path}: {error}") from error


@dataclasses.dataclass(frozen=True)
class Folder:
    """A folder on disk or in any store that tensorstore can open.

    Attributes:
      path: what the user sees, absolute if local.
      local: the folder on disk, or None.
      spec: tensorstore's JSON for it as a key-value store.
    """

    path: str
    local: pathlib.Path | None
    spec: dict = dataclasses.field(compare=False, repr=False)

    @classmethod
    def at(cls, path: str | os.PathLike) -> "Folder":
        """The folder a user named: a path, relative or not, or a URL."""
        text = os.fspath(path)
        if "://" in text:
            try:
                spec = ts.KvStore.Spec(text).to_json()
            except STORE_ERRORS as error:
                raise CheckpointError(f"{path}: {_short(error)}") from error
            if spec["driver"] != "file":
                below = spec.get("path", "")
                slash = "/" if below and not below.endswith("/") else ""
                return cls(text.rstrip("/"), None, {**spec, "path": below + slash})
            text = spec["path"]
        local = _resolved(pathlib.Path(os.path.expanduser(text)))
        return cls(str(local), local, {"driver": "file", "path": f"{local}/"})

    def child(self, name: str) -> "Folder":
        """A folder below this one, confined to itself from there on."""
        if self.local is not None:
            return Folder.at(inside(self.local, name))
        return Folder(f"{self.path}/{name}", None, self._spec_below(name))

    def names(self) -> set[str]:
        """The files and folders directly below; none where a store cannot tell."""
        if self.local is not None:
            return set(os.listdir(self.local)) if self.local.is_dir() else set()
        try:
            keys = ts.KvStore.open(self.spec).result().list().result()
        except STORE_ERRORS:
            return set()
        return {key.decode(errors="replace").split("/")[0] for key in keys}

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        if self.local is not None:
            return (self.local / name).is_file()
        return self.read(name) is not None

    def read(self, name: str) -> bytes | None:
        """A whole file, or None where there is none."""
        name = confined(name, self.path)
        if self.local is not None:
            file = inside(self.local, name)
            return file.read_bytes() if file.is_file() else None
        try:
            store = ts.KvStore.open(self.spec, context=_patience()).result()
            result = store.read(name).result()
        except STORE_ERRORS as error:
            raise CheckpointError(f"{self.path}/{name}: {_short(error)}") from error
        return result.value if result.state == "value" else None

    def store(self, name: str = "") -> dict:
        """tensorstore's JSON for the folder `name` below; "" is this one.

        Raises:
          CheckpointError: if the name or a link in that folder leads outside, or
            there is a pipe or device in it, which would be waited for.
        """
        if name:
            name = confined(name, self.path)
        if self.local is not None:
            for below, folders, files in os.walk(inside(self.local, name)):
                for entry in folders + files:
                    path = inside(self.local, pathlib.Path(below, entry))
                    if path.exists() and not (path.is_file() or path.is_dir()):
                        raise CheckpointError(f"{path} is neither file nor folder")
        return self._spec_below(name) if name else self.spec

    def _spec_below(self, name: str) -> dict:
        return {**self.spec, "path": f"{self.spec.get('path', '')}{name}/"}


def open_zarr(
    stores: Mapping[str, dict],
    folder: Folder,
    driver: str = "zarr",
    failed: dict[str, str] | None = None,
) -> dict[str, StoredArray]:
    """Open many zarr arrays at once.

    Args:
      stores: tensorstore's JSON for the folder of each array, by parameter name.
      folder: the checkpoint, for messages.
      driver: tensorstore's driver.
      failed: takes why an array cannot be opened, by name, in place of the error.

    Returns:
      What was found, by parameter name; no data has been read.

    Raises:
      CheckpointError: if one cannot be opened, or reading it would take far more
        memory than its values; names it.
    """
    context = _context()
    opening = {
        name: ts.open(
            # Without this tensorstore takes a chunk that is missing for zeros.
            {"driver": driver, "kvstore": store, "fill_missing_data_reads": False},
            context=context,
            open=True,
            read=True,
        )
        for name, store in stores.items()
    }
    arrays = {}
    for name, future in opening.items():
        try:
            array = future.result()
        except STORE_ERRORS as error:
            if failed is not None:
                failed[name] = f"cannot be opened: {_short(error)}"
                continue
            raise CheckpointError(
                f"{name} of {folder.path} cannot be opened: {_short(error)}"
            ) from error
        dtype = numeric_dtype(array.dtype.name, f"{name} of {folder.path}")
        chunk = array.chunk_layout.read_chunk.shape
        if math.prod(chunk) > max(4 * array.size, SMALL_CHUNK):
            raise CheckpointError(
                f"{name} of {folder.path}: chunks of {chunk} for an array of "
                f"{array.shape}"
            )
        arrays[name] = StoredArray(
            folder.path,
            tuple(array.shape),
            dtype,
            _starter(array),
            lambda wanted, index, array=array: _starter(array[index])(wanted),
        )
    return arrays


def open_ocdbt(
    folder: Folder, item: str = "", wanted: str = ""
) -> dict[str, StoredArray]:
    """Open the arrays of an OCDBT database, as Orbax writes it.

    Args:
      folder: the checkpoint.
      item: the folder below it that holds `manifest.ocdbt`; "" is itself.
      wanted: arrays whose name begins so are opened, the others never touched.

    Returns:
      Those arrays by their name in the database (`.` between the parts), without
      what it begins with.

    Raises:
      CheckpointError: if the database or an array cannot be opened.
    """
    database = {"driver": "ocdbt", "base": folder.store(item)}
    where = f"{folder.path}/{item}" if item else folder.path
    try:
        store = ts.KvStore.open(database, context=_context()).result()
        keys = [key.decode() for key in store.list().result()]
    except STORE_ERRORS as error:
        raise CheckpointError(f"{where} cannot be opened: {_short(error)}") from error
    arrays = {}
    for driver, suffix in {"zarr": "/.zarray", "zarr3": "/zarr.json"}.items():
        names = [
            key.removesuffix(suffix)
            for key in keys
            if key.startswith(wanted) and key.endswith(suffix)
        ]
        stores = {
            name.removeprefix(wanted): {**database, "path": f"{name}/"}
            for name in names
        }
        arrays |= open_zarr(stores, folder, driver)
    return arrays


def _patience() -> ts.Context:
    # Where there is no network, tensorstore's own 32 attempts take many minutes.
    stores = ("gcs", "s3", "http")
    return ts.Context({f"{one}_request_retries": RETRIES for one in stores})


def _context() -> ts.Context:
    # The pool lets all arrays of a database share its decoded index.
    return ts.Context({"cache_pool": {"total_bytes_limit": CACHE_BYTES}})


def _starter(array: ts.TensorStore) -> Callable[[np.dtype], Callable[[], np.ndarray]]:
    def start(dtype: np.dtype) -> Callable[[], np.ndarray]:
        # Where there is no such memory NumPy raises, and tensorstore aborts.
        np.empty(array.shape, dtype)
        future = ts.cast(array, dtype).read()
        return lambda: np.asarray(future.result())

    return start


def _wanted(stored: np.dtype, dtype: Any) -> np.dtype:
    return stored if dtype is None or stored.name not in FLOATS else np.dtype(dtype)


def _short(error: Exception) -> str:
    # tensorstore appends the whole specification, which helps no user.
    return str(error).split(" [tensorstore_spec")[0].split(" [source locations")[0]
