"""Programs of the loop on a mesh: rows divided, shardings said on both sides.

A target that says `rows`, the sharding of arrays with a leading axis of rows, has its
programs compiled so. Parameters stay where they lie.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from spec_jax.base import Algorithm, DecodeState, Params
from spec_jax.core.draws import row_keys


def rows_of(algorithm: Algorithm) -> NamedSharding | None:
    """Where an algorithm's rows lie; None on a single device."""
    return getattr(getattr(algorithm, "target", None), "rows", None)


def on_every_device(rows: NamedSharding) -> NamedSharding:
    """Whole on each device of the same mesh."""
    return NamedSharding(rows.mesh, PartitionSpec())


def padded_batch(rows: NamedSharding, batch: int) -> int:
    """The least number of rows from `batch` on that divides over the devices."""
    shards = 1
    for axis in jax.tree.leaves(tuple(rows.spec)[:1]):
        shards *= rows.mesh.shape[axis]
    return -(-batch // shards) * shards


def on_every_host(values: Any) -> Any:
    """A tree of arrays that this host can read, also where others have their parts."""

    def one(value):
        whole = not isinstance(value, jax.Array) or value.is_fully_addressable
        if whole or value.is_fully_replicated:
            return value
        return multihost_utils.process_allgather(value, tiled=True)

    return jax.tree.map(one, values)


def run_sharded(
    program: Callable, algorithm: Algorithm, arguments: tuple, **static: int
) -> Any:
    """Runs one of the loop's programs on the mesh of its target.

    Rows that do not divide over the devices are padded with rows that end at once;
    the program cuts them off again, so they are in no result and no statistic.

    Args:
      program: takes the algorithm, `arguments`, `static` and the number of rows
        wanted as `batch`.
      algorithm: its target says `rows`.
      arguments: parameters, inputs, prompt, prompt_length, key, limit, sampling. On
        several hosts each gives the same, or the right values for its own rows.
      static: hashable, parts of the program.

    Returns:
      The results, whole on every device: any host can read them.
    """
    rows = rows_of(algorithm)
    params, *rest = arguments
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(params)):
        return program(algorithm, *arguments, **static)  # part of another program
    check_placed(params, rows)
    static["batch"] = rest[1].shape[0]
    placed = (params, *place_arguments(rows, tuple(rest)))
    run = _compiled(program, algorithm, *_shardings(placed), tuple(static.items()))
    if not rows.is_fully_addressable:
        leaves, tree = jax.tree.flatten(placed)
        run = _compiled_by_all(run, tuple(map(_described, leaves)), tree)
    return run(*placed)


def check_placed(params: Params, rows: NamedSharding) -> None:
    """Raises ValueError where a parameter lies on other devices than the rows."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        mesh = getattr(getattr(leaf, "sharding", None), "mesh", None)
        if mesh != rows.mesh:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise ValueError(
                f"want the parameter {name} on the mesh of its decoder, got it "
                "elsewhere: ShardedDecoder.place puts it there"
            )


def place_arguments(rows: NamedSharding, arguments: tuple) -> tuple:
    """inputs, prompt, prompt_length, key, limit, sampling; padded, on their devices."""
    inputs, prompt, prompt_length, key, limit, sampling = arguments
    batch = prompt.shape[0]
    added = padded_batch(rows, batch) - batch

    def repeat_last(values):
        return _place_rows(_padded(np.asarray(values), added), rows)

    limit = np.pad(np.asarray(limit), (0, added))  # 0: such a row ends at once
    data = np.asarray(jax.random.key_data(row_keys(key, batch)))
    implementation = jax.random.key_impl(key)
    return (
        jax.tree.map(repeat_last, inputs),
        repeat_last(prompt),
        repeat_last(prompt_length),
        jax.random.wrap_key_data(repeat_last(data), impl=implementation),
        _place_rows(limit, rows),
        jax.tree.map(repeat_last, sampling),
    )


def divide_state(state: DecodeState, rows: NamedSharding) -> DecodeState:
    """A state with all that has rows over the devices.

    Caches are left alone: their decoders divide them.
    """

    def one(leaf):
        return jax.lax.with_sharding_constraint(leaf, rows)

    def of_draft(leaf):
        kept = jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating) or not leaf.ndim
        return leaf if kept else one(leaf)

    divided = jax.tree.map(
        one, dataclasses.replace(state, target_cache=None, draft_state=None)
    )
    return dataclasses.replace(
        divided,
        target_cache=state.target_cache,
        draft_state=jax.tree.map(of_draft, state.draft_state),
    )


@dataclasses.dataclass(frozen=True)
class ShardedStep:
    """An algorithm's programs for a loop of one's own, on a mesh; the state is donated.

    Attributes:
      algorithm: its target says `rows`.
      max_length: the most positions of any row, prompt included.
    """

    algorithm: Algorithm
    max_length: int

    def start(self, params: Params, *arguments: Any) -> DecodeState:
        """The state before the first step.

        Args:
          params: {"target": ..., "draft": ...}, placed.
          arguments: inputs, prompt, prompt_length, key, limit, sampling.
        """
        rows = rows_of(self.algorithm)
        return _start(
            self.algorithm, params, *place_arguments(rows, arguments), self.max_length
        )

    def step(self, params: Params, state: DecodeState) -> tuple[DecodeState, Any]:
        """`Algorithm.step`; `state` must not be used again."""
        return self._program(params, state)(params, state)

    def lower(self, params: Params, state: DecodeState) -> jax.stages.Lowered:
        """The step's program for arrays, or jax.ShapeDtypeStruct with shardings."""
        return self._program(params, state).lower(params, state)

    def _program(self, params, state):
        return _step(self.algorithm, *_shardings((params, state)))


@functools.partial(jax.jit, static_argnums=(0, 8))
def _start(algorithm, params, inputs, prompt, prompt_length, *rest):
    key, limit, sampling, max_length = rest
    state = algorithm.init(
        params, inputs, prompt, prompt_length, key, limit, max_length, sampling
    )
    return divide_state(state, rows_of(algorithm))


@functools.lru_cache(maxsize=64)
def _step(algorithm, leaves, tree):
    params, state = jax.tree.unflatten(tree, leaves)

    return jax.jit(
        algorithm.step,
        in_shardings=(params, state),
        out_shardings=(state, on_every_device(rows_of(algorithm))),
        donate_argnums=1,
    )


@functools.lru_cache(maxsize=64)
def _compiled(program, algorithm, leaves, tree, static):
    def run(*arguments):
        return program(algorithm, *arguments, **dict(static))

    return jax.jit(
        run,
        in_shardings=jax.tree.unflatten(tree, leaves),
        out_shardings=on_every_device(rows_of(algorithm)),
    )


@functools.lru_cache(maxsize=64)
def _compiled_by_all(run, leaves, tree):
    """A program that no host starts before all have compiled it.

    A host that waits in a program's first sum gives the others up after 30 seconds
    on CPU, and compiling may take one host so much longer than another.
    """
    compiled = run.lower(*jax.tree.unflatten(tree, leaves)).compile()
    multihost_utils.sync_global_devices("compiled")
    return compiled


def _described(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _shardings(values: Any) -> tuple[tuple, Any]:
    """Hashable: of each array, and the tree they are in."""
    leaves, tree = jax.tree.flatten(values)
    return tuple(leaf.sharding for leaf in leaves), tree


def _padded(values: np.ndarray, added: int) -> np.ndarray:
    if not added:
        return values
    return np.concatenate([values, np.repeat(values[-1:], added, axis=0)])


def _place_rows(values: np.ndarray, rows: NamedSharding) -> jax.Array:
    """Each host hands over the rows of its own devices."""
    return jax.make_array_from_callback(values.shape, rows, lambda index: values[index])
