"""Programs of a pair, compiled for a TPU that need not be there, and what they move.

libtpu compiles from shapes alone, for a topology that is only named.
"""

import contextlib
import dataclasses
import functools
import importlib.metadata
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from spec_jax.decoding.loop import generate
from spec_jax.decoding.tpu import COMPILER_OPTIONS
from spec_jax.experiments.chips import chip_of
from spec_jax.experiments.hlo import parse_module
from spec_jax.experiments.record import JsonLine
from spec_jax.experiments.traffic import Traffic, count_traffic
from spec_jax.pairs import Pair
from spec_jax.partitioning import (
    ShardedDecoder,
    make_mesh,
    place,
    replicated,
    replicated_rules,
    standard_logical_axis_rules,
)
from spec_jax.partitioning.placement import axes_sharding, bytes_per_device

PROGRAMS = ("plain", "draft", "speculative", "generate")
"""A step of the target, of the draft, a speculative step, and a whole generation."""
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",  # asks no server which machine this is
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # nothing runs: there is no chip to share
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileSettings:
    """What is compiled.

    Attributes:
      topology: of chips, such as v4:2x2x1; the programs use num_partitions of them.
      programs: of `PROGRAMS`.
      gamma: drafted tokens of a speculative step.
      temperature: 0 is greedy.
      batch: rows.
      input_length: of the encoder, in tokens.
      new_tokens: the most a row may have.
      num_partitions: chips that share the target's weights.
    """

    topology: str = "v4:2x2x1"
    programs: tuple[str, ...] = PROGRAMS
    gamma: int = 7
    temperature: float = 0.0
    batch: int = 1
    input_length: int = 512
    new_tokens: int = 128
    num_partitions: int = 1

    def __post_init__(self):
        chip_of(self.topology)
        unknown = [name for name in self.programs if name not in PROGRAMS]
        if unknown or not self.programs:
            raise ValueError(
                f"want PROGRAMS of {', '.join(PROGRAMS)}, got {self.programs}"
            )
        for name in ("gamma", "batch", "input_length", "new_tokens", "num_partitions"):
            if getattr(self, name) < 1:
                raise ValueError(f"want {name} >= 1, got {getattr(self, name)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileRecord(JsonLine):
    """A compiled program; bytes are those of one chip. `docs/tpu.md` defines them.

    Attributes:
      program: of `PROGRAMS`; the figures of a generation that are moved bytes and
        operations are those of one step within its loop.
      hbm: bytes of arguments, of outputs that are no arguments, of temporary arrays
        and of the program itself.
      hbm_chip: bytes that the chip has.
      fewest_bytes: weights once, caches once, gamma draft steps.
      moved: bytes by what is moved.
      cycles: the compiler's estimates of all instructions, summed.
      copies: weights or caches that are written again, whole, also before the loop of
        a generation and after it.
    """

    pair: str
    program: str
    topology: str
    num_partitions: int
    dtype: str
    batch: int
    input_length: int
    new_tokens: int
    gamma: int
    temperature: float
    hbm: dict[str, int]
    hbm_chip: int
    bytes_read: int
    bytes_written: int
    fewest_bytes: int
    moved: dict[str, int]
    operations: int
    cycles: int
    copies: tuple[dict[str, Any], ...]
    collectives: tuple[dict[str, Any], ...]
    compile_seconds: float
    versions: dict[str, str]
    kind: str = "compile"

    @property
    def bytes(self) -> int:
        """Moved to and from HBM."""
        return self.bytes_read + self.bytes_written

    @property
    def excess(self) -> float:
        """By how much more than the fewest is moved, as a share of them."""
        return self.bytes / self.fewest_bytes - 1

    @property
    def peak_seconds(self) -> float:
        """The fewest for what is moved and computed, each at the chip's peak."""
        return chip_of(self.topology).roofline(self.bytes, self.operations)

    @property
    def likely_seconds(self) -> float | None:
        """The peak's or the compiler's cycles, whichever are more.

        None for a chip whose clock is not known.
        """
        clock = chip_of(self.topology).clock
        return clock and max(self.peak_seconds, self.cycles / clock)

    @property
    def key(self) -> tuple:
        """See `record_key`."""
        fields = sorted(field.name for field in dataclasses.fields(CompileSettings))
        rest = [getattr(self, name) for name in fields if name != "programs"]
        return self.pair, self.program, self.dtype, *rest

    @property
    def copied(self) -> tuple[dict[str, Any], ...]:
        """Weights that are written again, and caches from HBM to HBM: want none."""
        return tuple(
            one
            for one in self.copies
            if not one["put_back"] or one["source"].startswith("params")
        )

    @property
    def hbm_used(self) -> int:
        """Bytes that the program needs on a chip."""
        return sum(self.hbm.values())

    @staticmethod
    def restored(fields: dict[str, Any]) -> dict[str, Any]:
        """See `JsonLine.restored`."""
        for name in ("copies", "collectives"):
            fields[name] = tuple(fields[name])
        return fields


@dataclasses.dataclass(frozen=True)
class Program:
    """What is given to the compiler.

    Attributes:
      function: of the arguments.
      arguments: shapes, with their shardings.
      donated: which of the arguments it may overwrite.
      loops: how often loops of unknown count run, by depth.
      per_step: whether the outermost loop's body is what is counted.
      fewest_bytes: that one step has to move.
    """

    function: Callable
    arguments: tuple[Any, ...]
    donated: tuple[int, ...]
    loops: tuple[int, ...]
    per_step: bool
    fewest_bytes: int


@functools.cache
def topology_devices(topology: str) -> tuple[Any, ...]:
    """The devices of a topology, one a chip; the same ones at each call.

    Raises:
      ValueError: if libtpu is missing or does not know the topology.
    """
    chip = chip_of(topology)
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from jax.experimental import topologies

    try:
        importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError:
        raise ValueError(
            "want libtpu, which compiles for TPUs, got none: "
            "pip install 'spec_jax[compile]'"
        ) from None
    config = {} if chip.config is None else {"chip_config_name": chip.config}
    try:
        with _without_stderr():
            found = topologies.get_topology_desc(
                platform="tpu", topology_name=topology, **config
            )
    except Exception as error:  # of the plugin, which has no type of its own
        reason = str(error).splitlines()[0][:200]
        raise ValueError(
            f"want a topology that libtpu knows, got {topology!r}: {reason}"
        ) from error
    return tuple(found.devices)


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """Drops what libtpu logs while it finds that there is no TPU."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def record_key(pair: Pair, settings: CompileSettings, name: str) -> tuple:
    """What two records of the same program have in common."""
    rest = dataclasses.asdict(settings)
    del rest["programs"]
    return pair.name, name, str(pair.dtype), *(rest[field] for field in sorted(rest))


def compile_program(pair: Pair, settings: CompileSettings, name: str) -> CompileRecord:
    """Compiles one program of a pair and counts what it moves.

    Args:
      pair: an abstract one.
      settings: for what.
      name: of `PROGRAMS`.

    Returns:
      Its record.

    Raises:
      ValueError: if libtpu is missing, or shapes do not divide over the chips.
    """
    chip, devices = chip_of(settings.topology), topology_devices(settings.topology)
    chips = settings.num_partitions
    if chips > len(devices):
        raise ValueError(
            f"want num_partitions of at most {len(devices)} for {settings.topology}, "
            f"got {chips}"
        )
    program = _Layout(pair, settings, devices[:chips]).program(name)
    start = time.perf_counter()
    compiled = (
        jax.jit(program.function, donate_argnums=program.donated)
        .lower(*program.arguments)
        .compile(COMPILER_OPTIONS)
    )
    seconds = time.perf_counter() - start
    text = compiled.as_text()
    traffic = step_traffic(text, program)
    memory = compiled.memory_analysis()
    moved: dict[str, int] = {}
    for source, size in traffic.by_source().items():
        group = _group(source, "draft" if name == "draft" else "target")
        moved[group] = moved.get(group, 0) + size
    return CompileRecord(
        pair=pair.name,
        program=name,
        topology=settings.topology,
        num_partitions=settings.num_partitions,
        dtype=str(pair.dtype),
        batch=settings.batch,
        input_length=settings.input_length,
        new_tokens=settings.new_tokens,
        gamma=settings.gamma,
        temperature=settings.temperature,
        hbm={
            "arguments": memory.argument_size_in_bytes,
            "outputs": memory.output_size_in_bytes - memory.alias_size_in_bytes,
            "temporaries": memory.temp_size_in_bytes,
            "program": memory.generated_code_size_in_bytes,
        },
        hbm_chip=chip.memory,
        bytes_read=traffic.read,
        bytes_written=traffic.written,
        fewest_bytes=program.fewest_bytes,
        moved=moved,
        operations=traffic.operations,
        cycles=traffic.cycles,
        copies=tuple(dataclasses.asdict(one) for one in traffic.copies),
        collectives=tuple(dataclasses.asdict(one) for one in traffic.collectives),
        compile_seconds=round(seconds, 1),
        versions={
            package: importlib.metadata.version(package)
            for package in ("jax", "jaxlib", "libtpu")
        },
    )


def step_traffic(text: str, program: Program) -> Traffic:
    """What one step of a program moves, from its optimized HLO."""
    return count_traffic(
        parse_module(text), loops=program.loops, inside=program.per_step
    )


class _Layout:
    """A pair on its chips, and the programs.

    On several the target is divided; the draft too where its heads divide, which is
    otherwise whole on each.
    """

    def __init__(self, pair: Pair, settings: CompileSettings, devices: Sequence[Any]):
        self.settings, chips = settings, len(devices)
        self.mesh = make_mesh(chips, devices=devices)
        rules = standard_logical_axis_rules()
        divides = pair.draft.config.num_heads % chips == 0
        target = ShardedDecoder(pair.target, self.mesh, rules)
        draft = ShardedDecoder(
            pair.draft, self.mesh, rules if divides else replicated_rules()
        )
        self.params = {
            "target": target.place(pair.params["target"]),
            "draft": draft.place(pair.params["draft"]),
        }
        self.decoders = {"target": target, "draft": draft}
        self.pair = pair
        if chips > 1:
            self.pair = dataclasses.replace(pair, target=target, draft=draft)

    def program(self, name: str) -> Program:
        """By its name in `PROGRAMS`."""
        gamma, policy = self.settings.gamma, self.pair.policy(self.settings.temperature)
        plain = self.pair.autoregressive(policy)
        if name == "plain":
            params = {"target": self.params["target"]}
            return self._step(plain, params, self._fewest("target"))
        if name == "draft":
            alone = dataclasses.replace(plain, target=self.pair.draft)
            params = {"target": self.params["draft"]}
            return self._step(alone, params, self._fewest("draft"), "draft")
        speculative = self.pair.speculative(gamma, policy)
        fewest = self._fewest("target") + gamma * self._fewest("draft")
        if name == "generate":
            return self._generation(speculative, fewest)
        return self._step(speculative, self.params, fewest)

    def _step(self, algorithm, params, fewest: int, judge: str = "target") -> Program:
        """Of an algorithm whose target is the pair's `judge`."""
        batch, most = self.settings.batch, self.settings.new_tokens

        def init(params, inputs, key):
            prompt, one = jnp.zeros((batch, 1), jnp.int32), jnp.ones(batch, jnp.int32)
            limit = jnp.full(batch, most, jnp.int32)
            return algorithm.init(params, inputs, prompt, one, key, limit, most + 1)

        state = jax.eval_shape(init, params, self._inputs(), _key())
        placed = dataclasses.replace(
            place(state, replicated(self.mesh)),
            target_cache=self._placed_cache(judge, state.target_cache),
        )
        if state.draft_state is not None:
            cache = self._placed_cache("draft", state.draft_state.cache)
            placed = dataclasses.replace(
                placed, draft_state=placed.draft_state._replace(cache=cache)
            )
        return Program(
            algorithm.step, (params, placed), (1,), (self._inner,), False, fewest
        )

    def _generation(self, algorithm, fewest: int) -> Program:
        batch, most = self.settings.batch, self.settings.new_tokens

        def whole(params, inputs, key):
            prompt = jnp.zeros((batch, 1), jnp.int32)
            return generate(algorithm, params, inputs, prompt, key, max_new_tokens=most)

        arguments = place((self._inputs(), _key()), replicated(self.mesh))
        loops = (1, self._inner)
        return Program(whole, (self.params, *arguments), (), loops, True, fewest)

    def _placed_cache(self, name: str, cache: Any) -> Any:
        """A cache as its decoder divides it; the draft's if it is that one's alone."""
        decoder = self.decoders[name]
        leaves, tree = jax.tree.flatten(cache)
        names = tree.flatten_up_to(decoder.decoder.cache_axes(cache))
        shardings = [
            axes_sharding(self.mesh, decoder.rules, axes, leaf.shape, f"{name} cache")
            for axes, leaf in zip(names, leaves, strict=True)
        ]
        return tree.unflatten(map(place, leaves, shardings))

    def _fewest(self, name: str) -> int:
        settings, decoder = self.settings, self.decoders[name]
        cache = jax.eval_shape(
            lambda params, inputs: decoder.decoder.init_cache(
                params, inputs, settings.batch, settings.new_tokens + 1
            ),
            self.params[name],
            self._inputs(),
        )
        return fewest_bytes(self.params[name], self._placed_cache(name, cache))

    def _inputs(self) -> jax.ShapeDtypeStruct:
        shape = (self.settings.batch, self.settings.input_length)
        return jax.ShapeDtypeStruct(shape, jnp.int32)

    @property
    def _inner(self) -> int:
        # The first token of a proposal is drafted before its loop.
        return self.settings.gamma - 1


def fewest_bytes(params: Any, cache: Any) -> int:
    """What a T5's step has to read: the decoder's weights, the logits', the caches.

    Args:
      params: of one model; shapes with their shardings.
      cache: its cache, likewise.

    Returns:
      Bytes of one chip. The rows of the token table and the keys and values of new
      tokens are some kilobytes, and left out.
    """
    decoder = params["decoder"]
    weights = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(decoder):
        names = [entry.key for entry in path]
        # Projections of the encoder's output are in the cache already.
        once = names[1:2] == ["encoder_decoder_attention"] and names[2] in (
            "key",
            "value",
        )
        if not once and "relpos_bias" not in names:
            weights += bytes_per_device(leaf)
    if "logits_dense" not in decoder:
        weights += bytes_per_device(params["token_embedder"])
    return weights + bytes_per_device(cache)


def _key() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0))


def _group(source: str, judge: str) -> str:
    """What an argument of a program is, by its path; `judge` has a target's place."""
    if not source:
        return "intermediate"
    if source.startswith("carried"):
        return "carried"
    whose = "draft" if "draft" in source else judge
    if "cache" in source:
        return f"{whose} caches"
    return f"{whose} weights" if source.startswith("params") else "state"
