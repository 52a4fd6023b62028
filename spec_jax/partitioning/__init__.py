"""Arrays over many devices: axis rules, meshes, placement, sharded decoders."""

from spec_jax.partitioning.decoder import ShardedDecoder as ShardedDecoder
from spec_jax.partitioning.mesh import make_mesh as make_mesh
from spec_jax.partitioning.partitioner import Partitioner as Partitioner
from spec_jax.partitioning.placement import batch_sharding as batch_sharding
from spec_jax.partitioning.placement import param_shardings as param_shardings
from spec_jax.partitioning.placement import place as place
from spec_jax.partitioning.placement import replicated as replicated
from spec_jax.partitioning.rules import mesh_axes as mesh_axes
from spec_jax.partitioning.rules import replicated_rules as replicated_rules
from spec_jax.partitioning.rules import (
    standard_logical_axis_rules as standard_logical_axis_rules,
)
