"""The file of weights: one safetensors file with t5x's names."""

import os

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from spec_jax.checkpoints import (
    CheckpointError,
    load_params,
    load_weights,
    save_weights,
    weights_metadata,
)
from spec_jax.checkpoints import weights as module
from spec_jax.checkpoints.storage import DTYPES

PARAMS = {
    "decoder": {"norm": {"scale": np.arange(3, dtype=np.float32)}},
    "embedding": np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16),
    "half": np.ones((2, 2), np.float16),
    "step": np.int32(7),
}


def test_round_trip(tmp_path):
    file = tmp_path / "params.safetensors"
    save_weights(file, PARAMS, {"config": "{}"})
    got = load_weights(file)
    assert got["embedding"].dtype == ml_dtypes.bfloat16
    assert got["half"].dtype == np.float16
    assert got["step"].shape == () and got["step"] == 7
    np.testing.assert_array_equal(got["embedding"], PARAMS["embedding"])
    np.testing.assert_array_equal(got["decoder"]["norm"]["scale"], [0, 1, 2])
    assert weights_metadata(file) == {"config": "{}"}
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    for path in (file, tmp_path):
        loaded = load_params(path, dtype=np.float32)
        assert loaded["embedding"].dtype == np.float32
        assert loaded["step"].dtype == np.int32


def test_jax_arrays_and_arrays_that_are_not_contiguous(tmp_path):
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    save_weights(tmp_path / "a", {"a": jnp.asarray(table), "b": table.T})
    got = load_weights(tmp_path / "a")
    np.testing.assert_array_equal(got["a"], table)
    np.testing.assert_array_equal(got["b"], table.T)
    assert weights_metadata(tmp_path / "a") == {}


def test_the_same_parameters_give_the_same_bytes(tmp_path):
    for name, params in (("a", PARAMS), ("b", dict(reversed(PARAMS.items())))):
        save_weights(tmp_path / name, params)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_bytes_are_those_of_the_package_safetensors(tmp_path):
    """Also of every dtype at once, and of an array without axes or numbers."""
    params = {
        dtype.name: np.ones((2, 3), dtype)
        for dtype in sorted(DTYPES.values(), key=lambda dtype: dtype.name)
    } | {"none": np.ones((0, 3), np.float32), "point": np.float64(2), "ü": np.ones(5)}
    for metadata in (None, {"format": "pt"}):
        save_weights(tmp_path / "ours", params, metadata)
        plain = {name: np.asarray(array) for name, array in params.items()}
        assert (tmp_path / "ours").read_bytes() == (
            safetensors.numpy.save(plain, metadata)
        )


def test_cast_while_writing(tmp_path):
    save_weights(tmp_path / "a", PARAMS, dtype="float32")
    got = load_weights(tmp_path / "a")
    assert got["embedding"].dtype == got["half"].dtype == np.float32
    assert got["step"].dtype == np.int32
    np.testing.assert_array_equal(got["embedding"], PARAMS["embedding"])


def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "params.safetensors"
    save_weights(file, PARAMS)
    before = file.read_bytes()

    def fail(handle):
        raise OSError("disk is full")

    monkeypatch.setattr(module.os, "fsync", fail)
    with pytest.raises(OSError, match="disk is full"):
        save_weights(file, {"other": np.ones(3)})
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == [file.name]


@pytest.mark.parametrize("length", [0, 9, -1])
def test_a_cut_file_is_named(tmp_path, length):
    file = tmp_path / "params.safetensors"
    save_weights(file, PARAMS)
    file.write_bytes(file.read_bytes()[:length])
    for read in (load_weights, load_params, weights_metadata):
        with pytest.raises(CheckpointError, match=r"params\.safetensors"):
            read(file)


def test_a_missing_file_is_named(tmp_path):
    for read in (load_weights, load_params, weights_metadata):
        with pytest.raises(CheckpointError, match=r"none\.safetensors"):
            read(tmp_path / "none.safetensors")


def test_a_name_below_another_array(tmp_path):
    file = tmp_path / "params.safetensors"
    safetensors.numpy.save_file({"a": np.ones(1), "a/b": np.ones(1)}, file)
    with pytest.raises(CheckpointError, match="a/b"):
        load_weights(file)
