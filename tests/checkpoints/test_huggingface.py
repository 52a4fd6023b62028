"""Hugging Face T5 folders: values of every tensor, shards, and damaged files."""

import hashlib
import json
import os
import pathlib
import shutil

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from spec_jax.checkpoints import (
    CheckpointError,
    load_huggingface,
    load_params,
    read_config,
)
from spec_jax.checkpoints.validation import flatten
from tests.golden import golden_path

FOLDERS = {
    "t5_1_1_gated_gelu": "t5_1_1_target",
    "t5_1_1_assistant": "t5_1_1_draft",
    "t5_1_0_relu_tied": "t5_1_0_tied",
}


def sums(params):
    return {
        name: hashlib.sha256(array.tobytes()).hexdigest()
        for name, array in flatten(params).items()
    }


def golden_sums(model, dtype="float32"):
    manifest = json.loads(golden_path(f"models/{model}/manifest.json").read_text())
    return {
        name: entry[f"sha256_{dtype}"] for name, entry in manifest["params"].items()
    }


def copy(folder, tmp_path):
    source = golden_path(f"hf/{folder}")
    return pathlib.Path(shutil.copytree(source, tmp_path / folder))


def tensors_of(folder):
    return safetensors.numpy.load_file(folder / "model.safetensors")


def write(folder, tensors):
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")


@pytest.fixture
def draft(tmp_path):
    return copy("t5_1_1_assistant", tmp_path)


@pytest.fixture
def tied(tmp_path):
    return copy("t5_1_0_relu_tied", tmp_path)


@pytest.mark.parametrize("config", ["config.json", "config.v4_style.json"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_values_and_configuration_equal_t5x(folder, config, tmp_path):
    path = copy(folder, tmp_path)
    (path / "config.json").write_bytes(
        (golden_path(f"hf/{folder}") / config).read_bytes()
    )
    params, fields = load_huggingface(path)
    assert sums(params) == golden_sums(FOLDERS[folder])
    assert all(array.flags.c_contiguous for array in flatten(params).values())
    assert fields == read_config(path)
    assert fields["vocab_size"] == 256
    assert fields["logits_via_embedding"] == (folder == "t5_1_0_relu_tied")
    assert sums(load_params(path)) == sums(params)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_files(tied, dtype):
    tensors = tensors_of(tied)
    write(tied, {name: tensor.astype(dtype) for name, tensor in tensors.items()})
    params, _ = load_huggingface(tied)
    embedding = params["token_embedder"]["embedding"]
    assert embedding.dtype == dtype
    np.testing.assert_array_equal(embedding, tensors["shared.weight"].astype(dtype))
    if dtype == ml_dtypes.bfloat16:
        assert sums(params) == golden_sums("t5_1_0_tied", "bfloat16")
    widened, _ = load_huggingface(tied, np.float32)
    assert widened["token_embedder"]["embedding"].dtype == np.float32


def test_cast_while_loading(draft):
    params, _ = load_huggingface(draft, ml_dtypes.bfloat16)
    assert sums(params) == golden_sums("t5_1_1_draft", "bfloat16")


def shard(folder):
    tensors = tensors_of(folder)
    names = sorted(tensors)
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        safetensors.numpy.save_file({n: tensors[n] for n in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards(draft):
    shard(draft)
    assert sums(load_huggingface(draft)[0]) == golden_sums("t5_1_1_draft")


def test_a_missing_shard_is_named(draft):
    shard(draft)
    (draft / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no file .*00002-of-00002"):
        load_huggingface(draft)


def test_a_shard_without_a_tensor_that_the_index_places_there(draft):
    shard(draft)
    file = draft / "model-00001-of-00002.safetensors"
    tensors = safetensors.numpy.load_file(file)
    name = sorted(tensors)[0]
    del tensors[name]
    safetensors.numpy.save_file(tensors, file)
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        load_huggingface(draft)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": "b.bin"}}'],
)
def test_a_damaged_shard_index(draft, content):
    (draft / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"index\.json"):
        load_huggingface(draft)


@pytest.mark.parametrize("length", [0, 7, 100, -1])
def test_a_cut_file_is_named(draft, length):
    file = draft / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is cut"):
        load_params(draft)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_missing_or_damaged_configuration(draft, content):
    config = draft / "config.json"
    config.unlink()
    if content is not None:
        config.write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_huggingface(draft)


def test_a_pickle_is_never_opened(draft):
    os.rename(draft / "model.safetensors", draft / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is not read"):
        load_params(draft)


def test_weights_that_the_configuration_does_not_describe(draft):
    tensors = tensors_of(draft)
    tensors["decoder.block.2.layer.0.layer_norm.weight"] = np.ones(32, np.float32)
    del tensors["shared.weight"]
    write(draft, tensors)
    with pytest.raises(CheckpointError) as error:
        load_huggingface(draft)
    assert "missing (1): ['shared.weight']" in str(error.value)
    assert "decoder.block.2.layer.0.layer_norm.weight" in str(error.value)


def test_copies_of_the_embedding_in_older_files_are_ignored(tied):
    tensors = tensors_of(tied)
    for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head"):
        tensors[f"{name}.weight"] = tensors["shared.weight"].copy()
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    tensors[name] = np.ones((32, 4), np.float32)
    write(tied, tensors)
    assert sums(load_huggingface(tied)[0]) == golden_sums("t5_1_0_tied")


def test_a_tied_head_that_differs_from_the_embedding(tied):
    tensors = tensors_of(tied)
    write(tied, tensors | {"lm_head.weight": tensors["shared.weight"] + 1})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs"):
        load_huggingface(tied)


def test_a_vector_in_place_of_a_matrix(draft):
    tensors = tensors_of(draft)
    write(draft, tensors | {"lm_head.weight": np.ones(256, np.float32)})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight .* wanted a matrix"):
        load_huggingface(draft)


def test_the_cache_of_the_hub_links_to_its_blobs(draft, tmp_path):
    snapshot = tmp_path / "models--a--b/snapshots/0123"
    blobs = tmp_path / "models--a--b/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(("config.json", "model.safetensors")):
        shutil.copy(draft / file, blobs / str(number))
        (snapshot / file).symlink_to(f"../../blobs/{number}")
    assert sums(load_params(snapshot)) == golden_sums("t5_1_1_draft")


def test_the_file_alone_asks_for_its_folder(draft):
    with pytest.raises(CheckpointError, match=r"give its folder"):
        load_params(draft / "model.safetensors")
