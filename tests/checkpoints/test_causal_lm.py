"""Folders of Llama and GPT-2: every tensor in its place, shards, wrong files."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy

from spec_jax.checkpoints import CheckpointError
from spec_jax.checkpoints.causal_lm import (
    causal_lm_config,
    open_causal_lm,
    read_eos_ids,
)
from spec_jax.checkpoints.storage import read_arrays
from tests.golden import golden_path


def copy(name, tmp_path):
    return pathlib.Path(
        shutil.copytree(golden_path(f"causal_lm/{name}"), tmp_path / name)
    )


def tensors_of(folder):
    return safetensors.numpy.load_file(folder / "model.safetensors")


def write(folder, tensors):
    safetensors.numpy.save_file(
        {name: np.ascontiguousarray(x) for name, x in tensors.items()},
        folder / "model.safetensors",
    )


def change(folder, **fields):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def values(folder):
    return read_arrays(open_causal_lm(folder)[0])


@pytest.fixture
def llama(tmp_path):
    return copy("llama", tmp_path)


@pytest.fixture
def gpt2(tmp_path):
    return copy("gpt2", tmp_path)


def test_a_llama_s_weights_keep_their_layout(llama):
    tensors, params = tensors_of(llama), values(llama)
    assert len(params) == len(tensors)
    for ours, theirs in {
        "token_embedder/embedding": "model.embed_tokens",
        "decoder/layers_1/self_attention/key/kernel": "model.layers.1.self_attn.k_proj",
        "decoder/layers_0/mlp/wi_1/kernel": "model.layers.0.mlp.up_proj",
        "decoder/logits_dense/kernel": "lm_head",
    }.items():
        np.testing.assert_array_equal(params[ours], tensors[f"{theirs}.weight"])


def test_gpt2_s_joint_projection_is_parted_and_turned(gpt2):
    tensors, params = tensors_of(gpt2), values(gpt2)
    weight = tensors["transformer.h.1.attn.c_attn.weight"]
    bias = tensors["transformer.h.1.attn.c_attn.bias"]
    for i, name in enumerate(("query", "key", "value")):
        part = slice(24 * i, 24 * (i + 1))
        ours = f"decoder/layers_1/self_attention/{name}"
        np.testing.assert_array_equal(params[f"{ours}/kernel"], weight[:, part].T)
        np.testing.assert_array_equal(params[f"{ours}/bias"], bias[part])
        assert params[f"{ours}/kernel"].flags.c_contiguous


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_shards(name, tmp_path):
    folder = copy(name, tmp_path)
    whole, tensors = values(folder), tensors_of(folder)
    names = sorted(tensors)
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        safetensors.numpy.save_file({n: tensors[n] for n in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    sharded = values(folder)
    assert sharded.keys() == whole.keys()
    for key, value in whole.items():
        np.testing.assert_array_equal(sharded[key], value)
    weight_map[names[0]] = "../elsewhere.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="only read its own folder"):
        open_causal_lm(folder)


def test_a_gpt2_saved_without_its_head_and_with_its_masks(gpt2):
    """As the published files of GPT-2 are."""
    wanted, tensors = values(gpt2), tensors_of(gpt2)
    trunk = {name.removeprefix("transformer."): x for name, x in tensors.items()}
    trunk["h.0.attn.bias"] = np.tril(np.ones((48, 48), np.float32))[None, None]
    write(gpt2, trunk)
    got = values(gpt2)
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_array_equal(got[key], value)


def test_old_frequencies_and_a_copied_head_are_passed_over(tmp_path):
    folder = copy("llama_tied", tmp_path)
    tensors = tensors_of(folder)
    head = tensors["model.embed_tokens.weight"]
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)}
    write(folder, tensors | extra | {"lm_head.weight": head})
    assert "decoder/logits_dense/kernel" not in values(folder)
    write(folder, tensors | {"lm_head.weight": head + 1})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs from model"):
        open_causal_lm(folder)


def test_missing_and_surplus_tensors_are_named(llama):
    tensors = tensors_of(llama)
    tensors["model.layers.2.mlp.up_proj.weight"] = np.ones((40, 24), np.float32)
    del tensors["model.norm.weight"], tensors["lm_head.weight"]
    write(llama, tensors)
    with pytest.raises(CheckpointError) as error:
        open_causal_lm(llama)
    assert "missing (2): ['lm_head.weight', 'model.norm.weight']" in str(error.value)
    assert "surplus (1): ['model.layers.2.mlp.up_proj.weight']" in str(error.value)
    assert str(llama) in str(error.value)


def test_a_joint_projection_without_three_parts(gpt2):
    tensors = tensors_of(gpt2)
    name = "transformer.h.0.attn.c_attn.weight"
    write(gpt2, tensors | {name: tensors[name][:, :-1]})
    with pytest.raises(CheckpointError, match=r"c_attn\.weight .* three parts"):
        open_causal_lm(gpt2)


@pytest.mark.parametrize(
    "name, fields, message",
    [
        ("llama", {"model_type": "bert"}, "model_type 'bert'; wanted 'llama' or"),
        ("llama", {"hidden_size": "24"}, "hidden_size '24'; wanted a positive whole"),
        ("llama", {"hidden_act": "swish"}, "hidden_act 'swish'; wanted one of"),
        (
            "llama",
            {"rope_parameters": {"rope_theta": 1.0, "rope_type": "llama3"}},
            "rope type 'llama3' of a llama; the network has 'default' alone",
        ),
        ("llama", {"rope_scaling": {"type": "linear"}}, "rope type"),
        ("llama", {"attention_bias": True}, "wanted both alike"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights False of a gpt2"),
        ("gpt2", {"n_positions": None}, "n_positions None; wanted"),
    ],
)
def test_what_the_network_cannot_express_is_refused(name, fields, message, tmp_path):
    folder = copy(name, tmp_path)
    if "rope_scaling" in fields:  # as transformers 4 wrote it
        shutil.copy(folder / "config.v4_style.json", folder / "config.json")
    change(folder, **fields)
    with pytest.raises(CheckpointError, match=message):
        open_causal_lm(folder)


def test_defaults_of_a_llama():
    fields = causal_lm_config(
        {
            "model_type": "llama",
            "vocab_size": 8,
            "hidden_size": 12,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 3,
            "max_position_embeddings": 9,
        }
    )
    assert fields["num_kv_heads"] == 3 and fields["head_dim"] == 4
    assert fields["rope_base"] == 10_000 and not fields["logits_via_embedding"]


def test_ends_of_text_come_from_the_generation_config_first(llama):
    assert read_eos_ids(llama) == (2,)
    (llama / "generation_config.json").write_text('{"eos_token_id": [7, 2]}')
    assert read_eos_ids(llama) == (7, 2)
    (llama / "generation_config.json").write_text('{"eos_token_id": "x"}')
    with pytest.raises(CheckpointError, match=r"generation_config.json: eos_token_id"):
        read_eos_ids(llama)
