"""Folders that are written whole or not at all, and the values that go into them."""

import contextlib
import glob
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from spec_jax.checkpoints.storage import (
    FLOATS,
    CheckpointError,
    StoredArray,
    numeric_dtype,
    read_arrays,
)


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """A folder to write in; what is written there is then at `path`, or nowhere.

    It has another name until the block ends, so that a kill at any moment leaves no
    half a checkpoint under the name that readers look for; what a kill has left of it
    goes when the folder is written again. Folders above it that had to be made go
    again if the block fails.

    Args:
      path: of a folder that does not exist yet, local.

    Raises:
      CheckpointError: if there is something already, or it cannot be written.
    """
    final = new_folder(path)
    part = partial(final)
    made: list[pathlib.Path] = []
    try:
        for above in reversed(final.parents):
            if not above.exists():
                above.mkdir()
                made.append(above)
        remove_left(final)
        part.mkdir()
        yield part
        os.rename(part, final)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        for above in reversed(made):
            with contextlib.suppress(OSError):
                above.rmdir()
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise CheckpointError(f"cannot write {path}: {reason}") from error
        raise


def partial(final: pathlib.Path) -> pathlib.Path:
    """What a file or folder is called while this process writes it."""
    return final.with_name(f".{final.name}.{os.getpid()}.tmp")


def remove_left(final: pathlib.Path) -> None:
    """Removes what processes that were killed have left of a file or folder."""
    for left in final.parent.glob(f".{glob.escape(final.name)}.*.tmp"):
        pid = left.name.split(".")[-2]
        if not pid.isdigit() or _runs(int(pid)):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def copy_files(
    files: Sequence[pathlib.Path] | Mapping[str, pathlib.Path | bytes],
    folder: pathlib.Path,
) -> None:
    """Copies files into a folder; content alone.

    Args:
      files: to copy under their own names; or by the name to write, with bytes for
        what is no file yet.
      folder: where to.
    """
    if not isinstance(files, Mapping):
        files = {file.name: file for file in files}
    for name, file in files.items():
        if isinstance(file, bytes):
            (folder / name).write_bytes(file)
        else:
            shutil.copyfile(file, folder / name)


def new_folder(path: str | os.PathLike) -> pathlib.Path:
    """The absolute path of a folder that is to be made; makes nothing.

    Raises:
      CheckpointError: if it is a URL, is there already, or cannot be made.
    """
    if "://" in os.fspath(path):
        raise CheckpointError(f"cannot write {path}: want a local path, got a URL")
    final = pathlib.Path(os.path.abspath(os.path.expanduser(path)))
    if os.path.lexists(final):
        raise CheckpointError(f"{final} exists; a checkpoint is never overwritten")
    above = final.parent
    while not os.path.lexists(above):
        above = above.parent
    if not above.is_dir():
        raise CheckpointError(f"cannot write {path}: {above} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise CheckpointError(f"cannot write {path}: no permission to write in {above}")
    return final


def array_value(name: str, leaf: Any, dtype: Any = None) -> np.ndarray:
    """What is to be stored of one parameter.

    Args:
      name: for messages.
      leaf: an array, or a StoredArray, which is read now.
      dtype: floating arrays are cast to it; None keeps theirs.

    Returns:
      A NumPy array of plain numbers, C order.

    Raises:
      CheckpointError: if it cannot be read, holds anything but numbers, or one that
        is beyond the range of the dtype.
    """
    # NumPy warns of what is told below.
    with np.errstate(over="ignore", invalid="ignore"):
        value, stored = _cast(name, leaf, dtype)
    if value.dtype.name not in FLOATS or value.dtype == stored:
        return value
    wild = _not_finite(value)
    if wild and wild > _not_finite(_cast(name, leaf, None)[0]):
        raise CheckpointError(
            f"{name} holds numbers beyond the range of {value.dtype.name}; keep its "
            f"{stored.name}"
        )
    return value


def _cast(name: str, leaf: Any, dtype: Any) -> tuple[np.ndarray, np.dtype]:
    """A leaf's numbers as a dtype, and the dtype that they are stored in."""
    if isinstance(leaf, StoredArray):
        value = np.asarray(read_arrays({name: leaf}, dtype)[name], order="C")
        return value, leaf.dtype
    value = np.asarray(leaf, order="C")
    stored = numeric_dtype(value.dtype.name, name)
    if dtype is None or stored.name not in FLOATS:
        return value, stored
    return value.astype(dtype), stored


def _not_finite(value: np.ndarray) -> int:
    return value.size - int(np.count_nonzero(np.isfinite(value)))
