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
        cache = self.decoder.init_cache(params, inputs, batch, max_length)
        return self._divided(cache)

    def extend(
        self,
        params: Params,
        cache: Cache,
        tokens: Int[Array, "b t"],
        start: Int[Array, "b"],
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """See `Decoder.extend`."""
        logits, cache = self.decoder.extend(params, cache, tokens, start)
        return self._constrained(LOGITS, logits), self._divided(cache)

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
