"""Our writer of t5x's legacy format: file for file t5x's, whole or not at all."""

import gzip
import os

import ml_dtypes
import msgpack
import numpy as np
import pytest

from spec_jax.checkpoints import CheckpointError, load_params, save_t5x
from spec_jax.checkpoints import t5x_writer as module
from spec_jax.checkpoints.loading import open_checkpoint
from spec_jax.checkpoints.validation import flatten, unflatten
from tests.golden import golden_path

SOURCES = {
    "float32": "t5x_draft/legacy_float32",
    "float32 tied": "t5x_tied/legacy_float32",
    "bfloat16 tied": "t5x_tied/legacy_bfloat16",
}
SMALL = {"decoder": {"norm": {"scale": np.arange(3, dtype=np.float32)}}}


def equal(got, want):
    got, want = flatten(got), flatten(want)
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert np.asarray(got[name]).dtype == value.dtype, name
        np.testing.assert_array_equal(got[name], value, name)


def content(file):
    """gzip may give one content other bytes, as its input comes in other pieces."""
    data = file.read_bytes()
    return data if file.name == ".zarray" else gzip.decompress(data)


@pytest.mark.parametrize("source", SOURCES)
def test_every_file_is_as_t5x_wrote_it(source, tmp_path):
    golden = golden_path(SOURCES[source]) / "checkpoint_1000"
    written = save_t5x(tmp_path, load_params(golden), step=1000)
    assert written == tmp_path / "checkpoint_1000"
    files = [
        file.relative_to(golden)
        for folder in golden.glob("target.*")
        for file in folder.iterdir()
    ]
    assert len(files) > 50
    for file in files:
        assert content(written / file) == content(golden / file), file
    there = {path.name for path in written.iterdir()}
    assert there == {"checkpoint", *(file.parts[0] for file in files)}
    ours, theirs = (
        msgpack.unpackb((folder / "checkpoint").read_bytes())
        for folder in (written, golden)
    )
    assert ours["version"] == theirs["version"]
    assert ours["optimizer"]["target"] == theirs["optimizer"]["target"]
    # All that is missing is what Adafactor adds.
    assert ours["optimizer"]["state"] == {"step": theirs["optimizer"]["state"]["step"]}


@pytest.mark.parametrize("source", SOURCES)
def test_round_trip(source, tmp_path):
    params = load_params(golden_path(SOURCES[source]))
    equal(load_params(save_t5x(tmp_path / "new/model", params)), params)
    equal(load_params(tmp_path / "new/model"), params)


def test_stored_arrays_are_read_and_cast_one_by_one(tmp_path):
    source = golden_path(SOURCES["float32"])
    arrays, _ = open_checkpoint(source)
    save_t5x(tmp_path, unflatten(arrays), dtype="bfloat16")
    equal(load_params(tmp_path), load_params(source, dtype=ml_dtypes.bfloat16))


def test_arrays_larger_than_a_chunk(tmp_path, monkeypatch):
    """As t5x cut them when its limit was lowered to 512 numbers."""
    monkeypatch.setattr(module, "CHUNK_BYTES", 1024)
    golden = golden_path("t5x_variants/draft_legacy_bfloat16_params_only_many_chunks")
    written = save_t5x(tmp_path, load_params(golden), step=1000)
    golden = golden / "checkpoint_1000"
    files = sorted(f.relative_to(golden) for f in golden.rglob("*") if f.is_file())
    there = (f.relative_to(written) for f in written.rglob("*") if f.is_file())
    assert sorted(there) == files
    assert any(file.name == "15.0" for file in files)
    for file in files[1:]:
        assert content(written / file) == content(golden / file), file


@pytest.mark.parametrize(
    ("shape", "limit", "chunk"),
    [
        ((32128, 4096), 64 * 2**20, (4016, 4096)),
        ((7, 5), 4 * 7, (1, 5)),
        ((6, 6), 4 * 12, (3, 3)),
        ((), 4, ()),
        ((0, 4), 4, (1, 1)),
        ((13,), 4, (1,)),
    ],
)
def test_chunks(shape, limit, chunk):
    assert module.chunk_shape(shape, 4, limit) == chunk


def test_what_exists_is_not_written_over(tmp_path):
    save_t5x(tmp_path, SMALL, step=5)
    with pytest.raises(CheckpointError, match=r"checkpoint_5 exists"):
        save_t5x(tmp_path, {"a": np.ones(2)}, step=5)
    equal(load_params(tmp_path), SMALL)
    save_t5x(tmp_path, {"a": np.ones(2)}, step=6)
    assert list(load_params(tmp_path)) == ["a"]


def test_a_failing_write_leaves_nothing(tmp_path, monkeypatch):
    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", fail)
    with pytest.raises(CheckpointError, match=r"cannot write .*No space left"):
        save_t5x(tmp_path / "new/model", SMALL)
    assert os.listdir(tmp_path) == []


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_write_array", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_t5x(tmp_path / "model", SMALL)
    assert os.listdir(tmp_path) == []


def test_while_it_is_written_no_reader_takes_it(tmp_path, monkeypatch):
    save_t5x(tmp_path, SMALL, step=1)
    write, seen = module._write_array, []

    def look(*args):
        seen.append(list(load_params(tmp_path)))
        return write(*args)

    monkeypatch.setattr(module, "_write_array", look)
    save_t5x(tmp_path, {"a": np.ones(2, np.float32), "b": np.ones(2)}, step=2)
    assert seen == [["decoder"], ["decoder"]]
    assert list(load_params(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    ("params", "step", "message"),
    [
        ({}, 0, "no parameters"),
        ({"a.b": np.ones(1)}, 0, "must not hold '.'"),
        ({"a": np.ones(1)}, -1, "step -1; wanted 0 <= step"),
        ({"a": np.ones(1)}, 2**31, "step 2147483648"),
        ({"a": np.array(["x"])}, 0, "a: dtype"),
    ],
)
def test_what_t5x_could_not_hold(tmp_path, params, step, message):
    with pytest.raises(CheckpointError, match=message):
        save_t5x(tmp_path, params, step=step)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("place", ["file/below", "gs://bucket/model"])
def test_places_that_cannot_be_written(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        save_t5x(place, SMALL)
    assert os.listdir(tmp_path) == ["file"]


@pytest.fixture(scope="module")
def restored_by_t5x(tmp_path_factory):
    """A function: what t5x restores of parameters that we wrote, by each of its ways.

    It is what t5x's infer.py does: a model, its partitioner, a state without optimizer.
    """
    import jax
    import seqio
    from t5x import checkpoints, models, partitioning, utils
    from t5x.examples.t5 import network

    def restore(params, sizes, dtype=None):
        folder = tmp_path_factory.mktemp("model")
        path = str(save_t5x(folder, params, step=7))
        vocabulary = seqio.ByteVocabulary(extra_ids=0)
        model = models.EncoderDecoderModel(
            network.Transformer(config=network.T5Config(dtype="float32", **sizes)),
            vocabulary,
            vocabulary,
            None,
        )
        whole = [(axis, None) for axis, _ in partitioning.standard_logical_axis_rules()]
        partitioner = partitioning.PjitPartitioner(1, logical_axis_rules=whole)
        initializer = utils.TrainStateInitializer(
            optimizer_def=None,
            init_fn=model.get_initial_variables,
            input_shapes={
                name: (len(jax.devices()), 8)
                for name in ("encoder_input_tokens", "decoder_input_tokens")
            },
            partitioner=partitioner,
        )
        config = utils.RestoreCheckpointConfig(
            path=path, mode="specific", dtype=dtype, strict=False
        )
        states = {
            f"use_orbax={use_orbax}": utils.create_checkpoint_manager_and_restore(
                initializer, partitioner, config, path, None, use_orbax=use_orbax
            )[0]
            for use_orbax in (False, True)
        }
        checkpointer = checkpoints.Checkpointer(
            initializer.global_train_state_shape, partitioner, str(folder)
        )
        states["latest"] = checkpointer.restore()
        assert {int(state.step) for state in states.values()} == {7}
        trees = {way: dict(state.params) for way, state in states.items()}
        trees["bare"] = checkpoints.load_t5x_checkpoint(path)["target"]
        return trees

    return restore


@pytest.mark.needs_t5x
@pytest.mark.parametrize("source", SOURCES)
def test_t5x_restores_it_bit_for_bit(source, restored_by_t5x):
    from spec_jax.checkpoints.inference import infer_config

    arrays, _ = open_checkpoint(golden_path(SOURCES[source]))
    params = load_params(golden_path(SOURCES[source]))
    sizes = infer_config(arrays)
    assert sizes.pop("relative_attention_num_buckets") == 32  # fixed in t5x
    trees = restored_by_t5x(params, sizes)
    assert len(trees) == 4
    for tree in trees.values():
        equal(tree, params)
