from jax.sharding import PartitionSpec as P

from spec_jax.decoding.sharded import check_placed
from spec_jax.pairs import load_pair
from spec_jax.partitioning import Partitioner, mesh_axes, replicated_rules


def test_the_draft_is_whole_on_every_device_unless_told():
    target, draft = (
        Partitioner(num_partitions=4, parameter_partitioning_dims=2).sharded("x", role)
        for role in ("target", "draft")
    )
    assert dict(target.mesh.shape) == {"data": 2, "model": 4}
    assert mesh_axes(("embed", "mlp"), target.rules) == P("data", "model")
    assert draft.mesh == target.mesh and draft.rules == replicated_rules()
    both = Partitioner(num_partitions=4, partition_draft=True)
    assert both.sharded("x", "draft") == both.sharded("x", "target")


def test_nothing_is_divided_unless_told():
    assert Partitioner().sharded("x", "target") == "x"
    assert dict(Partitioner(num_partitions=1).mesh().shape) == {"data": 8, "model": 1}
    submesh = Partitioner(model_parallel_submesh=(1, 2))
    assert dict(submesh.mesh().shape) == {"data": 4, "model": 2}


def test_tables_lie_whole_on_the_mesh_of_their_target():
    folder = "spec_jax://pretrained"
    pair = load_pair(
        f"{folder}/target",
        f"{folder}/draft",
        f"{folder}/vocabulary.model",
        tables=f"{folder}/ngram.safetensors",
        partitioner=Partitioner(num_partitions=2),
    )
    for source in ("bigram", "chain"):
        params = pair.using(source).params
        check_placed(params, pair.target.rows)
    assert all(leaf.is_fully_replicated for leaf in params["draft"]["inner"].values())
