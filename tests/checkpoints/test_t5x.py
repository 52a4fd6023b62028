"""t5x's own checkpoints: every form it wrote, bit for bit, and damaged ones."""

import hashlib
import json
import math
import os
import pathlib
import shutil
import zipfile

import jax
import ml_dtypes
import msgpack
import numpy as np
import pytest
import tensorstore as ts

from spec_jax.checkpoints import CheckpointError, load_params
from spec_jax.checkpoints.loading import open_checkpoint
from spec_jax.checkpoints.validation import flatten
from tests.golden import golden_path

FORMS = {
    "legacy float32": ("t5x_draft/legacy_float32", "t5_1_1_draft", "float32"),
    "legacy float32 tied": ("t5x_tied/legacy_float32", "t5_1_0_tied", "float32"),
    "legacy bfloat16": ("t5x_tied/legacy_bfloat16", "t5_1_0_tied", "bfloat16"),
    "orbax": ("t5x_draft/orbax", "t5_1_1_draft", "float32"),
    "orbax tied": ("t5x_tied/orbax", "t5_1_0_tied", "float32"),
    "two ways model parallel": (
        "t5x_variants/draft_legacy_float32_2way_model_parallel",
        "t5_1_1_draft",
        "float32",
    ),
    "without optimizer, many chunks": (
        "t5x_variants/draft_legacy_bfloat16_params_only_many_chunks",
        "t5_1_1_draft",
        "bfloat16",
    ),
}
INDEXES = ("checkpoint_gcs_driver", "checkpoint_gfile_driver_path_beside_kvstore")
KERNEL = "target.decoder.layers_1.mlp.wi_0.kernel"


def sums(params):
    return {
        name: hashlib.sha256(array.tobytes()).hexdigest()
        for name, array in flatten(params).items()
    }


def golden_sums(model, dtype):
    manifest = json.loads(golden_path(f"models/{model}/manifest.json").read_text())
    return {
        name: entry[f"sha256_{dtype}"] for name, entry in manifest["params"].items()
    }


def expected(model):
    manifest = json.loads(golden_path(f"models/{model}/manifest.json").read_text())
    tree = {}
    for name, entry in manifest["params"].items():
        node = tree
        *folders, last = name.split("/")
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = jax.ShapeDtypeStruct(tuple(entry["shape"]), np.float32)
    return tree


@pytest.fixture
def legacy(tmp_path):
    """A copy of the draft's legacy checkpoint that a test may damage."""
    source = golden_path("t5x_draft/legacy_float32/checkpoint_1000")
    return pathlib.Path(shutil.copytree(source, tmp_path / "model/checkpoint_1000"))


@pytest.fixture
def orbax(tmp_path):
    source = golden_path("t5x_draft/orbax/checkpoint_1000")
    return pathlib.Path(shutil.copytree(source, tmp_path / "model/checkpoint_1000"))


@pytest.mark.parametrize("form", FORMS)
def test_values_equal_t5x_bit_for_bit(form):
    path, model, dtype = FORMS[form]
    params = load_params(golden_path(path), expected(model))
    assert sums(params) == golden_sums(model, dtype)
    assert {array.dtype.name for array in flatten(params).values()} == {dtype}


@pytest.mark.parametrize("path", ["t5x_draft/legacy_float32", "t5x_draft/orbax"])
def test_cast_to_bfloat16_equals_t5x(path):
    params = load_params(golden_path(path), dtype=ml_dtypes.bfloat16)
    assert sums(params) == golden_sums("t5_1_1_draft", "bfloat16")


@pytest.mark.parametrize("index", INDEXES)
def test_index_files_of_public_checkpoints(legacy, index):
    shutil.copy(
        golden_path(f"t5x_variants/draft_index_files/{index}"), legacy / "checkpoint"
    )
    assert sums(load_params(legacy)) == golden_sums("t5_1_1_draft", "float32")


def test_one_file_checkpoint():
    params = load_params(golden_path("t5x_one_file/checkpoint_0"))
    known = json.loads(golden_path("t5x_one_file/sha256.json").read_text())
    assert sums(params) == {
        name.removeprefix("optimizer/target/"): value
        for name, value in known.items()
        if name.startswith("optimizer/target/")
    }


def test_an_inline_array_that_flax_cut_into_pieces(tmp_path):
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)

    def packed(array):
        return msgpack.ExtType(
            1, msgpack.packb((array.shape, array.dtype.name, array.tobytes()))
        )

    flat = whole.reshape(-1)
    node = {
        "__msgpack_chunked_array__": True,
        "shape": {"0": 3, "1": 4},
        "chunks": {"0": packed(flat[:7]), "1": packed(flat[7:])},
    }
    (tmp_path / "checkpoint_7").write_bytes(msgpack.packb({"target": {"a": node}}))
    params = load_params(tmp_path / "checkpoint_7")
    np.testing.assert_array_equal(params["a"], whole)


def test_paths_model_directory_one_checkpoint_relative_and_url(legacy, monkeypatch):
    """BEHAVIOURS 30."""
    want = golden_sums("t5_1_1_draft", "float32")
    older = legacy.parent / "checkpoint_999"
    older.mkdir()
    (older / "checkpoint").write_bytes(msgpack.packb({"target": {}}))
    # What t5x leaves of a save that was killed, and a step that has no index.
    shutil.copytree(older, legacy.parent / "checkpoint_2000.tmp-17")
    (legacy.parent / "checkpoint_3000").mkdir()
    monkeypatch.chdir(legacy.parent.parent)
    for path in (
        legacy,
        legacy.parent,
        str(legacy.parent),
        "model",
        "model/checkpoint_1000/",
        pathlib.Path("model/../model"),
        f"file://{legacy.parent}",
        legacy / "checkpoint",
    ):
        assert sums(load_params(path)) == want


@pytest.mark.parametrize("form", ["legacy float32", "orbax"])
def test_a_store_that_is_no_folder(tmp_path, form):
    source = golden_path(FORMS[form][0])
    file = tmp_path / "model.zip"
    with zipfile.ZipFile(file, "w", strict_timestamps=False) as archive:
        for path in source.rglob("*"):
            archive.write(path, path.relative_to(source))
    want = golden_sums("t5_1_1_draft", "float32")
    assert sums(load_params(f"file://{file}|zip:")) == want
    assert sums(load_params(f"file://{file}|zip:checkpoint_1000")) == want


def test_legacy_optimizer_state_is_not_read(legacy):
    """BEHAVIOURS 30."""
    removed = [folder for folder in legacy.iterdir() if folder.name.startswith("state")]
    assert len(removed) > 30
    for folder in removed:
        shutil.rmtree(folder)
    assert sums(load_params(legacy)) == golden_sums("t5_1_1_draft", "float32")


def test_orbax_optimizer_state_is_not_read(orbax):
    """BEHAVIOURS 30: its bytes, outside the database's index, are overwritten first."""
    state = orbax / "state"
    base = ts.KvStore.open(f"file://{state}/").result()
    root = ts.ocdbt.dump(base).result()["versions"][-1]["root"]["location"]
    overwritten = 0
    for entry in ts.ocdbt.dump(base, root).result()["entries"]:
        if entry["key"].startswith(b"state.") and "indirect_value" in entry:
            _, above, below, start, length = entry["indirect_value"].split(":")
            with open(state / above / below, "r+b") as file:
                file.seek(int(start))
                file.write(b"\xff" * int(length))
            overwritten += 1
    assert overwritten > 20
    assert sums(load_params(orbax)) == golden_sums("t5_1_1_draft", "float32")


@pytest.mark.parametrize("length", [0, 1, 1000, -1])
def test_a_cut_index_is_named(legacy, length):
    index = legacy / "checkpoint"
    index.write_bytes(index.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"checkpoint_1000/checkpoint is cut"):
        load_params(legacy)


def test_a_missing_chunk_is_an_error_not_zeros(legacy):
    (legacy / KERNEL / "0.0").unlink()
    with pytest.raises(
        CheckpointError, match=r"decoder/layers_1/mlp/wi_0/kernel .*chunk.*missing"
    ):
        load_params(legacy)


def test_one_of_several_chunks_is_missing(tmp_path):
    source = golden_path("t5x_variants/draft_legacy_float32_2way_model_parallel")
    folder = pathlib.Path(shutil.copytree(source, tmp_path / "model"))
    (folder / "checkpoint_1000" / KERNEL / "0.1").unlink()
    with pytest.raises(CheckpointError, match=r"mlp/wi_0/kernel .*0\.1.* missing"):
        load_params(folder)


@pytest.mark.parametrize("form", ["legacy float32", "two ways model parallel"])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_cut_chunk_is_named(tmp_path, form, kept):
    folder = pathlib.Path(
        shutil.copytree(golden_path(FORMS[form][0]), tmp_path / "model")
    )
    chunk = folder / "checkpoint_1000" / KERNEL / "0.0"
    data = chunk.read_bytes()
    chunk.write_bytes(data[: math.floor(len(data) * kept)])
    with pytest.raises(
        CheckpointError, match=r"decoder/layers_1/mlp/wi_0/kernel .*0\.0"
    ):
        load_params(folder)


def test_a_missing_array_is_named(legacy):
    shutil.rmtree(legacy / KERNEL)
    with pytest.raises(CheckpointError, match=r"decoder/layers_1/mlp/wi_0/kernel of"):
        load_params(legacy)


def test_metadata_that_contradicts_the_index(legacy):
    file = legacy / KERNEL / ".zarray"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "shape": [64, 32]}))
    with pytest.raises(CheckpointError, match=r"wi_0/kernel .*\[32, 64\].*\[64, 32\]"):
        load_params(legacy)


@pytest.mark.parametrize("kept", [0.0, 0.5])
@pytest.mark.parametrize("what", ["manifest.ocdbt", "d", "ocdbt.process_0/d"])
def test_a_cut_orbax_database_is_named(orbax, what, kept):
    path = orbax / "state" / what
    for file in [path] if path.is_file() else path.iterdir():
        data = file.read_bytes()
        file.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(CheckpointError, match="checkpoint_1000"):
        load_params(orbax)


def test_missing_orbax_data_is_an_error(orbax):
    shutil.rmtree(orbax / "state/ocdbt.process_0/d")
    with pytest.raises(CheckpointError, match="cannot be"):
        load_params(orbax)


def test_an_early_orbax_form_is_named(tmp_path):
    index = {"target": {"a": "PLACEHOLDER://target.a"}}
    (tmp_path / "checkpoint").write_bytes(msgpack.packb(index))
    with pytest.raises(CheckpointError, match="early Orbax form"):
        load_params(tmp_path)


@pytest.mark.parametrize("index", [{"version": 3}, {"optimizer": {}}, [1], 5])
def test_an_index_without_parameters(tmp_path, index):
    (tmp_path / "checkpoint").write_bytes(msgpack.packb(index))
    with pytest.raises(CheckpointError, match="holds no 'target'"):
        load_params(tmp_path)


def test_a_target_without_parameters(tmp_path):
    (tmp_path / "checkpoint").write_bytes(msgpack.packb({"target": {"a": {}}}))
    with pytest.raises(CheckpointError, match="holds no parameters"):
        load_params(tmp_path)


def test_nothing_is_read_before_it_is_checked(legacy):
    """All chunks are cut, so reading any would fail first with another error."""
    for chunk in legacy.glob("target.*/0*"):
        os.truncate(chunk, 1)
    arrays, where = open_checkpoint(legacy)
    assert where == str(legacy)
    assert arrays["token_embedder/embedding"].shape == (256, 32)
    with pytest.raises(CheckpointError, match="does not fit the draft model"):
        load_params(legacy, expected("t5_1_1_target"), "draft")
