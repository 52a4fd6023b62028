"""Everything on 8 virtual devices, in one process that is started once."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).with_name("on_devices.py")
ROOT = SCRIPT.parents[2]
VOCABULARY, WORDS_OF_ACTIVATIONS = 520, 8 * 4 * 16
MESHES = ("8x1", "4x2", "1x8")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    # Compiling takes nearly all of the time, and is not what is tested.
    flags = (
        "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true"
    )
    environment = os.environ | {
        "XLA_FLAGS": flags,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path_factory.mktemp("checkpoints"))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [*MESHES, "1x1", "2x1", "1x4"])
def test_tokens_and_statistics_are_those_of_one_device(report, mesh):
    found = report["meshes"][mesh]
    assert len(found) == (2 if mesh in MESHES else 1)
    for temperature, decoded in found.items():
        assert decoded == report["one"][temperature], temperature


@pytest.mark.slow
def test_the_texts_differ_and_some_drafts_are_accepted(report):
    greedy = report["one"]["0.0"]
    assert len({tuple(row) for row in greedy["tokens"]}) > 3
    assert greedy != report["one"]["1.0"]
    assert accepted(greedy) > 0


def accepted(decoded):
    """Drafted tokens that were, of all rows."""
    return sum(
        i * n
        for row in decoded["histogram"]
        for drafted in row
        for i, n in enumerate(drafted)
    )


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["8x1", "1x8"])
def test_one_row_on_eight_devices(report, mesh):
    assert report["batch_1"][mesh] == report["one"]["batch 1"]


@pytest.mark.slow
def test_trace_and_stream_are_the_same(report):
    greedy = report["one"]["0.0"]["tokens"]
    watched = report["watched"]
    assert watched["trace"] == greedy
    for row, count, expected in zip(watched["stream"], watched["emitted"], greedy):
        assert row == expected[:count]


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["bigram", "lookup"])
def test_tables_copies_and_blocks_are_the_same_on_a_mesh(report, draft):
    one, mesh = (decoded[draft] for decoded in report["other drafts"])
    assert accepted(one) > 0
    assert mesh == one


@pytest.mark.slow
def test_the_embedding_axis_may_be_divided_too(report):
    assert report["embed divided"] == report["one"]["1.0"]


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES)
def test_a_greedy_step_moves_activations_alone(report, mesh):
    sizes = [size for _, size in report["steps"][f"{mesh} at 0.0"]["collectives"]]
    assert max(sizes) < VOCABULARY
    assert max(sizes) <= WORDS_OF_ACTIVATIONS


@pytest.mark.slow
def test_a_draw_moves_less_than_the_vocabulary_of_its_rows(report):
    sizes = [size for _, size in report["steps"]["1x8 at 1.0"]["collectives"]]
    assert VOCABULARY < max(sizes) < 8 * VOCABULARY


@pytest.mark.slow
def test_rows_on_their_own_devices_move_nothing(report):
    # What a step says of itself goes to every host: a few numbers a row.
    collectives = report["steps"]["8x1 at 1.0"]["collectives"]
    assert all(kind == "all-gather" and size <= 8 * 4 for kind, size in collectives)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES)
def test_the_state_is_divided_and_donated(report, mesh):
    step = report["steps"][f"{mesh} at 0.0"]
    rows, model = mesh.split("x")
    assert ("'data'" in step["tokens"]) == (rows != "1")
    assert ("'data'" in step["cache"]) == (rows != "1")
    assert ("'model'" in step["cache"]) == (model != "1")
    assert step["donated"]


@pytest.mark.slow
def test_checkpoints_of_any_mesh_are_restored_on_any_other(report):
    restored = report["restored"]
    assert len(restored) == 12
    assert all(restored.values()), restored


@pytest.mark.slow
def test_a_device_holds_its_part_alone(report):
    found = report["bytes"]
    assert found["1x8"] < found["whole"] / 7
    assert found["embed divided"] < found["whole"] / 7
