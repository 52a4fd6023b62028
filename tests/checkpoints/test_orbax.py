"""Our own checkpoints: round trips over devices, atomicity, training state."""

import os
import signal
import subprocess
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from spec_jax.checkpoints import (
    CheckpointError,
    TrainingCheckpoints,
    load_params,
    read_metadata,
    restore,
    save,
)


def params():
    rng = np.random.default_rng(3)
    return {
        "decoder": {
            "layers_0": {"kernel": rng.normal(size=(16, 8)).astype(np.float32)},
            "scale": np.zeros(8, np.float32),
        },
        "embedding": rng.normal(size=(32, 8)).astype(ml_dtypes.bfloat16),
    }


def over_eight_devices():
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))
    specs = {
        "decoder": {
            "layers_0": {"kernel": PartitionSpec("data", "model")},
            "scale": PartitionSpec(),
        },
        "embedding": PartitionSpec(("data", "model"), None),
    }
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        specs,
        is_leaf=lambda leaf: isinstance(leaf, PartitionSpec),
    )


def like(tree, shardings, dtype=None):
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
            leaf.shape, dtype or leaf.dtype, sharding=sharding
        ),
        tree,
        shardings,
    )


def assert_equal(got, want):
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)),
        got,
        want,
    )


def test_numpy_round_trip_keeps_values_and_dtypes(tmp_path):
    save(tmp_path / "a", params(), {"config": {"emb_dim": 8}})
    got = restore(tmp_path / "a")
    assert_equal(got, params())
    assert jax.tree.map(lambda leaf: leaf.dtype, got) == jax.tree.map(
        lambda leaf: leaf.dtype, params()
    )
    assert read_metadata(tmp_path / "a") == {"config": {"emb_dim": 8}}
    assert_equal(load_params(tmp_path / "a"), params())


def test_saved_on_eight_devices_restored_on_one(tmp_path):
    """BEHAVIOURS 31."""
    assert jax.device_count() == 8
    sharded = jax.device_put(params(), over_eight_devices())
    save(tmp_path / "a", sharded)
    one = jax.sharding.SingleDeviceSharding(jax.devices()[3])
    want = like(params(), jax.tree.map(lambda _: one, params()))
    got = restore(tmp_path / "a", want)
    assert_equal(got, params())
    assert all(leaf.sharding == one for leaf in jax.tree.leaves(got))
    assert_equal(restore(tmp_path / "a"), params())
    assert_equal(load_params(tmp_path / "a", params()), params())


@pytest.mark.parametrize("dtype", [None, jnp.bfloat16, jnp.float32])
def test_saved_on_one_device_restored_on_eight(tmp_path, dtype):
    """BEHAVIOURS 31."""
    save(tmp_path / "a", jax.device_put(params(), jax.devices()[0]))
    want = like(params(), over_eight_devices(), dtype)
    got = restore(tmp_path / "a", want)
    for leaf, wanted, value in zip(
        *(jax.tree.leaves(tree) for tree in (got, want, params())), strict=True
    ):
        assert leaf.sharding == wanted.sharding
        assert leaf.dtype == wanted.dtype
        np.testing.assert_array_equal(np.asarray(leaf), value.astype(wanted.dtype))


def test_load_params_places_what_has_a_sharding(tmp_path):
    save(tmp_path / "a", params())
    want = like(params(), over_eight_devices())
    got = load_params(tmp_path / "a", want, dtype=jnp.float32)
    assert jax.tree.map(lambda leaf: leaf.sharding, got) == over_eight_devices()
    assert_equal(got, jax.tree.map(lambda leaf: leaf.astype(np.float32), params()))


def test_without_shardings_everything_comes_to_the_first_device(tmp_path):
    save(tmp_path / "a", jax.device_put(params(), over_eight_devices()))
    got = restore(tmp_path / "a", jax.eval_shape(params))
    assert_equal(got, params())
    assert {leaf.device for leaf in jax.tree.leaves(got)} == {jax.devices()[0]}


def test_another_shape_or_name_is_named(tmp_path):
    save(tmp_path / "a", params())
    other = params()
    other["decoder"]["layers_0"] = {"kernel": np.zeros((16, 9), np.float32)}
    with pytest.raises(CheckpointError, match=r"kernel: \(16, 8\) .* \(16, 9\)"):
        restore(tmp_path / "a", other)
    with pytest.raises(CheckpointError, match=r"not in the model \(2\)"):
        restore(tmp_path / "a", {"embedding": params()["embedding"]})


def test_a_checkpoint_is_not_overwritten(tmp_path):
    save(tmp_path / "a", params())
    with pytest.raises(CheckpointError, match="exists"):
        save(tmp_path / "a", params())


@pytest.mark.parametrize("key", ["a.b", "a/b"])
def test_keys_that_would_not_come_back(tmp_path, key):
    with pytest.raises(CheckpointError, match="must not hold"):
        save(tmp_path / "a", {key: np.ones(3)})
    assert not (tmp_path / "a").exists()


def test_no_checkpoint_there(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint"):
        restore(tmp_path)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        read_metadata(tmp_path)
    (tmp_path / "_CHECKPOINT_METADATA").write_text("{")
    with pytest.raises(CheckpointError, match="damaged"):
        read_metadata(tmp_path)


class Moments(NamedTuple):
    count: Any
    first: Any


class State(NamedTuple):
    params: Any
    optimizer: Any
    step: Any


def state(step):
    tree = jax.tree.map(lambda leaf: jnp.asarray(leaf) + step, params())
    return State(tree, (Moments(jnp.int32(step), tree), ()), jnp.int32(step))


def test_training_state_comes_back_whole(tmp_path):
    with TrainingCheckpoints(tmp_path / "run", keep=2) as checkpoints:
        assert checkpoints.latest_step() is None
        for step in (10, 20, 30):
            checkpoints.save(step, state(step), {"row": step, "seed": [1, 2]})
    with TrainingCheckpoints(tmp_path / "run", keep=2) as checkpoints:
        assert checkpoints.latest_step() == 30
        got, extra = checkpoints.restore(30, jax.eval_shape(state, 0))
        assert extra == {"row": 30, "seed": [1, 2]}
        assert jax.tree.structure(got) == jax.tree.structure(state(0))
        assert_equal(got, state(30))
        older, _ = checkpoints.restore(20, state(0))
        assert_equal(older, state(20))
        with pytest.raises(CheckpointError, match=r"no step 10 .*\[20, 30\]"):
            checkpoints.restore(10, state(0))
        with pytest.raises(CheckpointError, match="not newer than 30"):
            checkpoints.save(30, state(30), {})
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["20", "30"]
    assert_equal(load_params(tmp_path / "run"), state(30).params)
    assert_equal(load_params(tmp_path / "run/20"), state(20).params)


def test_training_state_of_another_model(tmp_path):
    with TrainingCheckpoints(tmp_path / "run") as checkpoints:
        checkpoints.save(1, state(1), {})
        other = state(1)._replace(params={"embedding": jnp.zeros((2, 2))})
        with pytest.raises(CheckpointError, match=r"step 1 .* cannot be read"):
            checkpoints.restore(1, other)


def test_training_state_moves_between_devices(tmp_path):
    shardings = over_eight_devices()
    with TrainingCheckpoints(tmp_path / "run") as checkpoints:
        checkpoints.save(1, {"params": jax.device_put(params(), shardings)}, {})
        one, _ = checkpoints.restore(1, {"params": jax.eval_shape(params)})
        assert {leaf.device for leaf in jax.tree.leaves(one)} == {jax.devices()[0]}
        checkpoints.save(2, one, {})
        back, _ = checkpoints.restore(2, {"params": like(params(), shardings)})
    assert_equal(back["params"], params())
    assert jax.tree.map(lambda leaf: leaf.sharding, back["params"]) == shardings


def test_keep_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="keep must be at least 1"):
        TrainingCheckpoints(tmp_path, keep=0)


ENDLESS = """
import itertools, sys
import numpy as np
from spec_jax.checkpoints import TrainingCheckpoints
checkpoints = TrainingCheckpoints(sys.argv[1], keep=2)
first = (checkpoints.latest_step() or 0) + 1
for step in itertools.count(first):
    checkpoints.save(step, {"params": {"a": np.full(300_000, step)}}, {"step": step})
    print(step, flush=True)
"""


def test_a_kill_leaves_the_newest_complete_step(tmp_path):
    announced = 0
    for delay in (0.0, 0.013, 0.029):
        process = subprocess.Popen(
            [sys.executable, "-c", ENDLESS, str(tmp_path / "run")],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for _ in range(3):
            announced = int(process.stdout.readline())
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0].split()
        announced = int(rest[-1]) if rest else announced
        with TrainingCheckpoints(tmp_path / "run") as checkpoints:
            latest = checkpoints.latest_step()
            assert latest in (announced, announced + 1)
            shape = jax.ShapeDtypeStruct((300_000,), jnp.int32)
            got, extra = checkpoints.restore(latest, {"params": {"a": shape}})
        assert extra == {"step": latest}
        assert (np.asarray(got["params"]["a"]) == latest).all()
