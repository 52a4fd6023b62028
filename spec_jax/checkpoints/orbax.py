"""Our own checkpoints, written with Orbax: parameters, and training state."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import checkpoint_managers

from spec_jax.checkpoints.storage import (
    CheckpointError,
    Folder,
    StoredArray,
    open_ocdbt,
    read_arrays,
)
from spec_jax.checkpoints.validation import check_fits, flatten, unflatten

DATABASE = "manifest.ocdbt"
METADATA = "_CHECKPOINT_METADATA"
STATE = "state"
EXTRA = "extra"


def save(
    path: str | os.PathLike,
    params: Mapping[str, Any],
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint: all of it or nothing, also when killed.

    Args:
      path: a folder that does not exist yet.
      params: nested dict of arrays, whole or sharded.
      metadata: what JSON can hold, kept beside the arrays.

    Raises:
      CheckpointError: if the folder exists, or a key holds `.` or `/`.
    """
    folder = _path(path)
    if folder.exists():
        raise CheckpointError(f"{folder} exists; a checkpoint is never overwritten")
    for name in flatten(params):
        if "." in name:
            raise CheckpointError(f"{name!r}: a parameter's key must not hold '.'")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder, dict(params), custom_metadata=dict(metadata or {}))


def restore(path: str | os.PathLike, like: Mapping[str, Any] | None = None) -> dict:
    """Read a checkpoint that `save` wrote, on these devices or others.

    Args:
      path: its folder.
      like: nested dict of jax.ShapeDtypeStruct (or arrays); each leaf comes back
        with that dtype and sharding, on the first device where it has none.

    Returns:
      The parameters; NumPy arrays as they were stored if `like` is None.

    Raises:
      CheckpointError: if the folder holds no such checkpoint, or `like` has other
        names or shapes.
    """
    arrays = open_own(Folder.at(path))
    if like is None:
        return unflatten(read_arrays(arrays))
    folder = _path(path)
    check_fits(arrays, flatten(like), str(folder))
    with ocp.StandardCheckpointer() as checkpointer:
        try:
            return checkpointer.restore(folder, jax.tree.map(_placed, like))
        except (ValueError, OSError) as error:
            raise CheckpointError(f"{folder} cannot be read: {error}") from error


def read_metadata(path: str | os.PathLike) -> dict[str, Any]:
    """What `save` was given as metadata.

    Args:
      path: the checkpoint's folder.

    Returns:
      The dict; empty if there was none.
    """
    content = Folder.at(path).read(METADATA)
    if content is None:
        raise CheckpointError(f"{path} has no {METADATA}; it is no checkpoint of ours")
    try:
        return json.loads(content).get("custom_metadata") or {}
    except (ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}/{METADATA} is damaged: {error}") from error


def open_own(folder: Folder) -> dict[str, StoredArray]:
    """Find the parameters of a checkpoint that `save` wrote; none of them read."""
    if not folder.has(DATABASE):
        raise CheckpointError(f"{folder.path} has no {DATABASE}; it is no checkpoint")
    arrays = open_ocdbt(folder)
    return {name.replace(".", "/"): array for name, array in arrays.items()}


def open_training(folder: Folder) -> dict[str, StoredArray]:
    """Find the parameters in one step of `TrainingCheckpoints`.

    Args:
      folder: of the step.

    Returns:
      Arrays below `params` of the state, none of them read; empty if there are none.
    """
    arrays = open_ocdbt(folder, STATE, "params.")
    return {name.replace(".", "/"): array for name, array in arrays.items()}


class TrainingCheckpoints:
    """The newest checkpoints of a training run, one folder a step.

    A kill at any moment leaves the checkpoints that were complete. Each is written
    under another name and renamed when it is whole; what a killed run left is
    removed at the next start.

    `load_params` finds the parameters in it if the state has them as `params`.
    """

    def __init__(self, directory: str | os.PathLike, keep: int = 2):
        """Open or create the directory.

        Args:
          directory: of the run.
          keep: how many of the newest steps stay.
        """
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self.directory = _path(directory)
        self._checkpoints = ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=checkpoint_managers.LatestN(keep),
                cleanup_tmp_directories=True,
                enable_async_checkpointing=False,
            ),
        )

    def save(self, step: int, state: Any, extra: Mapping[str, Any]) -> None:
        """Write one step; returns when it is complete.

        Args:
          step: newer than the latest.
          state: any pytree of arrays, e.g. parameters and optax's state.
          extra: what JSON can hold, e.g. the position in the data.
        """
        latest = self.latest_step()
        if latest is not None and step <= latest:
            raise CheckpointError(
                f"step {step} is not newer than {latest}, the latest in "
                f"{self.directory}"
            )
        self._checkpoints.save(
            step,
            args=ocp.args.Composite(
                **{
                    STATE: ocp.args.StandardSave(state),
                    EXTRA: ocp.args.JsonSave(dict(extra)),
                }
            ),
        )

    def latest_step(self) -> int | None:
        """The newest complete step, or None before the first."""
        return self._checkpoints.latest_step()

    def restore(self, step: int, like: Any) -> tuple[Any, dict[str, Any]]:
        """Read one step.

        Args:
          step: one that is there.
          like: the state's pytree, of arrays or jax.ShapeDtypeStruct; leaves come
            back with its dtypes and shardings.

        Returns:
          The state and what was given as extra.

        Raises:
          CheckpointError: if there is no such step, or its state is another.
        """
        if step not in self._checkpoints.all_steps():
            raise CheckpointError(
                f"no step {step} in {self.directory}; there are "
                f"{list(self._checkpoints.all_steps())}"
            )
        try:
            restored = self._checkpoints.restore(
                step,
                args=ocp.args.Composite(
                    **{
                        STATE: ocp.args.StandardRestore(jax.tree.map(_placed, like)),
                        EXTRA: ocp.args.JsonRestore(),
                    }
                ),
            )
        except (ValueError, OSError) as error:
            raise CheckpointError(
                f"step {step} of {self.directory} cannot be read: {error}"
            ) from error
        return restored[STATE], restored[EXTRA]

    def close(self) -> None:
        """Finish what is being written and let the directory go."""
        self._checkpoints.close()

    def __enter__(self) -> "TrainingCheckpoints":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def _path(path: str | os.PathLike) -> Any:
    """A path as Orbax takes it: absolute, or a URL."""
    if "://" in os.fspath(path):
        return epath.Path(path)
    return pathlib.Path(path).expanduser().resolve()


def _placed(leaf: Any) -> Any:
    """The leaf as Orbax wants it: with a sharding of devices that are here."""
    if isinstance(leaf, np.ndarray) or not hasattr(leaf, "shape"):
        return leaf
    sharding = getattr(leaf, "sharding", None)
    if sharding is None:
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
