"""Where arrays lie on a mesh: shardings of parameters and of rows."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from spec_jax.partitioning.rules import LogicalAxes, LogicalAxisRules, mesh_axes


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """The rows of an array [b, ...] over 'data', whole over 'model'."""
    return NamedSharding(mesh, PartitionSpec("data"))


def axes_sharding(
    mesh: Mesh,
    rules: LogicalAxisRules,
    names: LogicalAxes,
    shape: Sequence[int] | None = None,
    what: str = "an array",
) -> NamedSharding:
    """The sharding of an array by its logical axes.

    Args:
      mesh: of devices.
      rules: from logical axes to those of the mesh.
      names: the array's axes.
      shape: its sizes, None where they are not checked.
      what: names the array in messages.

    Raises:
      ValueError: if the rules collide, or a size does not divide.
    """
    try:
        spec = mesh_axes(names, rules)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    if shape is None:
        return NamedSharding(mesh, spec)
    if len(shape) != len(names):
        raise ValueError(f"{what}: want an axis for each of {names}, got {shape}")
    for name, axis, size in zip(names, spec, shape):
        if axis is not None and size % mesh.shape[axis]:
            raise ValueError(
                f"{what} of shape {tuple(shape)}: want its axis {name!r} of {size} "
                f"to divide over the {mesh.shape[axis]} devices of {axis!r}; use a "
                f"mesh that fits, or a rule ({name!r}, None)"
            )
    return NamedSharding(mesh, spec)


def param_shardings(decoder: Any, mesh: Mesh, rules: LogicalAxisRules) -> Any:
    """The sharding of each of a decoder's parameters.

    Args:
      decoder: has `param_axes` and `param_shapes`.
      mesh: of devices.
      rules: from logical axes to those of the mesh.

    Returns:
      A tree like that of the parameters.

    Raises:
      ValueError: naming the parameter whose axes collide or do not divide.
    """
    axes = decoder.param_axes()

    def one(path, leaf):
        names, keys = axes, [str(entry.key) for entry in path]
        for key in keys:
            names = names[key]
        what = f"parameter {'/'.join(keys)}"
        return axes_sharding(mesh, rules, names, leaf.shape, what)

    return jax.tree_util.tree_map_with_path(one, decoder.param_shapes())


def place(values: Any, shardings: Any) -> Any:
    """Puts a tree of arrays where its shardings say.

    Args:
      values: arrays; of an abstract tree their jax.ShapeDtypeStruct. Where there are
        several hosts each has the whole array, or at least its own part of it.
      shardings: a tree like it, or one sharding for all.

    Returns:
      The tree, its leaves with these shardings.
    """
    if isinstance(shardings, jax.sharding.Sharding):
        whole = shardings
        shardings = jax.tree.map(lambda _: whole, values)
    return jax.tree.map(_place_one, values, shardings)


def bytes_per_device(values: Any) -> int:
    """Bytes of a placed tree that one device holds."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(values)
    )


def _place_one(value: Any, sharding: jax.sharding.Sharding) -> Any:
    if isinstance(value, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)
    if sharding.is_fully_addressable or isinstance(value, jax.Array):
        return jax.device_put(value, sharding)
    whole = np.asarray(value)
    return jax.make_array_from_callback(
        whole.shape, sharding, lambda index: whole[index]
    )
