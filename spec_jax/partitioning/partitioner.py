"""How a pair is divided: what a command is told, made into a mesh and rules."""

import dataclasses
from typing import Any

import jax
from jax.sharding import Mesh

from spec_jax.partitioning.decoder import ShardedDecoder
from spec_jax.partitioning.mesh import make_mesh
from spec_jax.partitioning.rules import replicated_rules, standard_logical_axis_rules


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partitioner:
    """The mesh and the rules of a target and its draft. The names are t5x's.

    Attributes:
      num_partitions: devices that share one copy of the target; None: no mesh, all is
        on one device, but of several hosts, where it means 1.
      model_parallel_submesh: those devices as a block of the machine; see
        `make_mesh`.
      activation_partitioning_dims: see `standard_logical_axis_rules`.
      parameter_partitioning_dims: the same.
      partition_draft: whether the draft is divided like the target; otherwise every
        device has a whole copy, and drafting needs no communication.
    """

    num_partitions: int | None = None
    model_parallel_submesh: tuple[int, ...] | None = None
    activation_partitioning_dims: int = 1
    parameter_partitioning_dims: int = 1
    partition_draft: bool = False

    def mesh(self) -> Mesh | None:
        """Over all devices; None where nothing is divided.

        Raises:
          ValueError: if they cannot be divided so.
        """
        told = self.num_partitions is not None or self.model_parallel_submesh
        if not told and jax.process_count() == 1:
            return None
        count = 1 if self.num_partitions is None else self.num_partitions
        return make_mesh(count, self.model_parallel_submesh)

    def sharded(self, decoder: Any, role: str) -> Any:
        """A decoder on the mesh; itself where there is none.

        Args:
          decoder: a target or a draft.
          role: "target" or "draft".
        """
        mesh = self.mesh()
        if mesh is None:
            return decoder
        rules = standard_logical_axis_rules(
            self.activation_partitioning_dims, self.parameter_partitioning_dims
        )
        if role == "draft" and not self.partition_draft:
            rules = replicated_rules()
        return ShardedDecoder(decoder, mesh, rules)
