"""A decoder whose cache and logits are divided over a mesh."""

import dataclasses
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from spec_jax.base import Cache, Inputs, Params
from spec_jax.partitioning.placement import (
    axes_sharding,
    batch_sharding,
    param_shardings,
    place,
)
from spec_jax.partitioning.rules import LogicalAxisRules, standard_logical_axis_rules

LOGITS = ("batch", "length", "vocab")
_ROWS, _WHOLE = PartitionSpec("data"), PartitionSpec()


@dataclasses.dataclass(frozen=True)
class ShardedDecoder:
    """Another decoder on a mesh: equal ones share one compiled program.

    Its cache lies with its rows over 'data' and its heads over 'model', its logits
    with the vocabulary over 'model', as the rules say. Where rows do not divide over
    'data' they are whole on every device.

    Attributes:
      decoder: has `param_axes`, `param_shapes` and `cache_axes` besides a Decoder's
        two functions.
      mesh: from `make_mesh`.
      rules: from logical axes to the mesh's; `replicated_rules()` keeps a small draft
        whole on every device.
    """

    decoder: Any
    mesh: Mesh
    rules: LogicalAxisRules = dataclasses.field(
        default_factory=standard_logical_axis_rules, repr=False
    )

    @property
    def vocab_size(self) -> int:
        return self.decoder.vocab_size

    @property
    def max_length(self) -> int | None:
        return self.decoder.max_length

    @property
    def config(self) -> Any:
        """The network's."""
        return self.decoder.config

    @property
    def rows(self) -> NamedSharding:
        """Of every array with a leading axis of rows: the loop places these so."""
        return batch_sharding(self.mesh)

    def shardings(self) -> Any:
        """Of the parameters; see `param_shardings`."""
        return param_shardings(self.decoder, self.mesh, self.rules)

    def place(self, params: Params) -> Params:
        """The parameters, or their shapes, on the mesh."""
        return place(params, self.shardings())

    def init_cache(
        self, params: Params, inputs: Inputs, batch: int, max_length: int
    ) -> Cache:
        """See `Decoder.init_cache`."""
        if not self._by_rows(batch):
            cache = self.decoder.init_cache(params, inputs, batch, max_length)
            return self._divided(cache)

        def init(params, inputs):
            local = batch // self.mesh.shape["data"]
            return self.decoder.init_cache(params, inputs, local, max_length)

        shapes = jax.eval_shape(
            lambda params, inputs: self.decoder.init_cache(
                params, inputs, batch, max_length
            ),
            params,
            inputs,
        )
        run = self._mapped(init, (_WHOLE, _ROWS), self._row_specs(shapes))
        return self._divided(run(params, inputs))

    def extend(
        self,
        params: Params,
        cache: Cache,
        tokens: Int[Array, "b t"],
        start: Int[Array, "b"],
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """See `Decoder.extend`."""
        extend = self.decoder.extend
        if self._by_rows(tokens.shape[0]):
            specs = self._row_specs(cache)
            extend = self._mapped(extend, (_WHOLE, specs, _ROWS, _ROWS), (_ROWS, specs))
        logits, cache = extend(params, cache, tokens, start)
        return self._constrained(LOGITS, logits), self._divided(cache)

    def _by_rows(self, batch: int) -> bool:
        """Whether every device of 'data' computes its own rows and no others.

        Said to XLA, as rows are written one by one: left to itself it sends each of
        them to every device.
        """
        shards = self.mesh.shape["data"]
        alone = all(name == "batch" or axis != "data" for name, axis in self.rules)
        return shards > 1 and batch % shards == 0 and alone

    def _mapped(self, function, in_specs, out_specs):
        return jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            axis_names={"data"},
            check_vma=False,
        )

    def _row_specs(self, cache: Cache) -> Any:
        """Which arrays of a cache have rows, by a specification for each."""
        tree = jax.tree.structure(cache)
        names = tree.flatten_up_to(self.decoder.cache_axes(cache))
        return tree.unflatten(_ROWS if axes[0] == "batch" else _WHOLE for axes in names)

    def _divided(self, cache: Cache) -> Cache:
        leaves, tree = jax.tree.flatten(cache)
        names = tree.flatten_up_to(self.decoder.cache_axes(cache))
        return tree.unflatten(map(self._constrained, names, leaves))

    def _constrained(self, names, value):
        sharding = axes_sharding(self.mesh, self.rules, names)
        rows, *rest = sharding.spec
        if rows == "data" and value.shape[0] % self.mesh.shape["data"]:
            sharding = NamedSharding(self.mesh, PartitionSpec(None, *rest))
        return jax.lax.with_sharding_constraint(value, sharding)
