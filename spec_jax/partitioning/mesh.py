"""Devices as a mesh of two axes: 'data' for rows, 'model' for parts of a model."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

AXES = ("data", "model")


def make_mesh(
    num_partitions: int = 1,
    model_parallel_submesh: Sequence[int] | None = None,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """The mesh ('data', 'model') over all devices, as t5x's partitioner makes it.

    Args:
      num_partitions: devices that share one copy of a model. On TPU they are chosen
        to be neighbours, elsewhere of one host where that has so many.
      model_parallel_submesh: those devices as a block of the machine instead: (x, y,
        z, cores) chips on TPU, elsewhere (hosts, devices of each).
      devices: by default all there are; those of a TPU's topology description do.

    Returns:
      The mesh.

    Raises:
      ValueError: if the devices cannot be divided so.
    """
    devices = list(jax.devices() if devices is None else devices)
    if model_parallel_submesh is not None:
        return _mesh(_tiled(devices, tuple(model_parallel_submesh)))
    if num_partitions < 1 or len(devices) % num_partitions:
        raise ValueError(
            f"want num_partitions that divides the {len(devices)} devices, got "
            f"{num_partitions}"
        )
    shape = (len(devices) // num_partitions, num_partitions)
    if not _is_tpu(devices[0]):
        return _mesh(_in_order(devices).reshape(shape))
    try:
        return _mesh(mesh_utils.create_device_mesh(shape, devices=devices))
    except (NotImplementedError, ValueError, AssertionError) as error:
        raise ValueError(
            f"want num_partitions that fits the chips {_bounds(devices)}, got "
            f"{num_partitions} ({' '.join(str(error).split())}); give a "
            "model_parallel_submesh (x, y, z, cores)"
        ) from error


def _mesh(grid: np.ndarray) -> Mesh:
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _is_tpu(device: Any) -> bool:
    return hasattr(device, "coords") and hasattr(device, "core_on_chip")


def _in_order(devices: Sequence[Any]) -> np.ndarray:
    """By host, so that neighbours share one."""
    array = np.empty(len(devices), object)
    array[:] = sorted(devices, key=lambda device: (device.process_index, device.id))
    return array


def _places(devices: Sequence[Any]) -> dict[tuple[int, ...], Any]:
    """Each device by its place in the machine, counted from 0 on each axis."""
    if _is_tpu(devices[0]):
        at = {(*device.coords, device.core_on_chip): device for device in devices}
    else:
        at, seen = {}, {}
        for device in _in_order(devices):
            host = seen.setdefault(device.process_index, [])
            at[len(seen) - 1, len(host)] = device
            host.append(device)
    first = np.min(list(at), axis=0)
    return {tuple(np.subtract(place, first)): device for place, device in at.items()}


def _bounds(devices: Sequence[Any]) -> tuple[int, ...]:
    """The machine's size on each axis."""
    return tuple((np.max(list(_places(devices)), axis=0) + 1).tolist())


def _tiled(devices: Sequence[Any], submesh: tuple[int, ...]) -> np.ndarray:
    """[data, model] where each row is one block of the machine."""
    bounds = _bounds(devices)
    if math.prod(bounds) != len(devices):
        raise ValueError(
            f"want devices that fill {bounds} for a model_parallel_submesh, got "
            f"{len(devices)} of them"
        )
    fits = len(submesh) == len(bounds) and all(
        part >= 1 and size % part == 0 for size, part in zip(bounds, submesh)
    )
    if not fits:
        raise ValueError(
            "want a model_parallel_submesh whose sizes divide those of the devices "
            f"{bounds}, got {submesh}"
        )
    grid = np.empty(bounds, object)
    for place, device in _places(devices).items():
        grid[place] = device
    # Each axis as (blocks, place in the block); then all blocks first.
    split = [n for size, part in zip(bounds, submesh) for n in (size // part, part)]
    order = [*range(0, len(split), 2), *range(1, len(split), 2)]
    return grid.reshape(split).transpose(order).reshape(-1, math.prod(submesh))
