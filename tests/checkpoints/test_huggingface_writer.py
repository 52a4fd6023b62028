"""Our writer of Hugging Face folders: names, bytes, shards, both configs, failures."""

import json
import os

import ml_dtypes
import numpy as np
import pytest

from spec_jax.checkpoints import (
    CheckpointError,
    load_huggingface,
    load_params,
    save_huggingface,
)
from spec_jax.checkpoints import huggingface_writer as module
from spec_jax.checkpoints.loading import open_checkpoint
from spec_jax.checkpoints.mapping import t5_config
from spec_jax.checkpoints.validation import flatten, unflatten
from tests.golden import golden_path

FOLDERS = ("t5_1_1_gated_gelu", "t5_1_1_assistant", "t5_1_0_relu_tied")
DRAFT = "hf/t5_1_1_assistant"


def equal(got, want):
    got, want = flatten(got), flatten(want)
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert got[name].dtype == value.dtype, name
        np.testing.assert_array_equal(got[name], value, name)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_weights_are_transformers_own_file(folder, tmp_path):
    golden = golden_path(f"hf/{folder}")
    save_huggingface(tmp_path / "model", *load_huggingface(golden))
    names = ["config.json", "generation_config.json", "model.safetensors"]
    assert sorted(os.listdir(tmp_path / "model")) == names
    ours, theirs = (
        (place / "model.safetensors").read_bytes()
        for place in (tmp_path / "model", golden)
    )
    assert ours == theirs


@pytest.mark.parametrize("style", ["config.json", "config.v4_style.json"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_config_says_what_transformers_says(folder, style, tmp_path):
    """Both of them: what 4 acts on as it wrote it, what 5 acts on likewise."""
    golden = golden_path(f"hf/{folder}")
    save_huggingface(tmp_path / "model", *load_huggingface(golden))
    ours = json.loads((tmp_path / "model/config.json").read_text())
    theirs = json.loads((golden / style).read_text())
    untied = folder != "t5_1_0_relu_tied"
    assert ours["tie_word_embeddings"] is ours["scale_decoder_outputs"] is not untied
    common = ours.keys() & theirs.keys() - {"tie_word_embeddings", "dropout_rate"}
    assert len(common) >= 18
    for field in common:
        assert ours[field] == theirs[field], field
    # What only a version of its own writes there follows from the rest.
    assert theirs.keys() - ours.keys() <= {
        *("transformers_version", "classifier_dropout", "dense_act_fn"),
        *("is_decoder", "is_gated_act"),
    }


def test_shards(tmp_path):
    params, config = load_huggingface(golden_path(DRAFT))
    save_huggingface(tmp_path / "model", params, config, shard_bytes=40_000)
    files = sorted(path.name for path in tmp_path.glob("model/*.safetensors"))
    count = len(files)
    assert count > 4
    assert files[0] == f"model-00001-of-{count:05}.safetensors"
    index = json.loads((tmp_path / "model/model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4 * 55744
    assert set(index["weight_map"].values()) == set(files)
    for file in files:
        assert (tmp_path / "model" / file).stat().st_size < 40_000 + 4_000
    equal(load_params(tmp_path / "model"), params)


def test_stored_arrays_are_read_and_cast_one_by_one(tmp_path):
    golden = golden_path("t5x_tied/legacy_float32")
    _, config = load_huggingface(golden_path("hf/t5_1_0_relu_tied"))
    arrays, _ = open_checkpoint(golden)
    save_huggingface(tmp_path / "m", unflatten(arrays), config, dtype="bfloat16")
    equal(load_params(tmp_path / "m"), load_params(golden, dtype=ml_dtypes.bfloat16))
    assert json.loads((tmp_path / "m/config.json").read_text())["dtype"] == "bfloat16"


def test_a_failing_write_leaves_nothing(tmp_path, monkeypatch):
    params, config = load_huggingface(golden_path(DRAFT))
    write, calls = module.write_safetensors, []

    def fail_at_the_second(*args):
        calls.append(args)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        write(*args)

    monkeypatch.setattr(module, "write_safetensors", fail_at_the_second)
    with pytest.raises(CheckpointError, match="No space left"):
        save_huggingface(tmp_path / "a/b", params, config, shard_bytes=40_000)
    assert os.listdir(tmp_path) == []


def test_what_exists_is_not_written_over(tmp_path):
    with pytest.raises(CheckpointError, match="exists; a checkpoint is never"):
        save_huggingface(tmp_path, *load_huggingface(golden_path(DRAFT)))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_encoder_layers": 2}, r"missing \(9\): \['encoder/layers_1/attention"),
        ({"logits_via_embedding": True}, r"surplus \(1\): \['decoder/logits_dense"),
        ({"mlp_activations": ("silu", "linear")}, "Hugging Face's T5 has one of"),
    ],
)
def test_what_transformers_could_not_load(change, message, tmp_path):
    params, config = load_huggingface(golden_path(DRAFT))
    with pytest.raises(CheckpointError, match=message):
        save_huggingface(tmp_path / "model", params, config | change)
    assert os.listdir(tmp_path) == []


BASE = {
    **dict.fromkeys(
        ("vocab_size", "d_model", "num_heads", "num_layers", "d_kv", "d_ff"), 8
    ),
}


def test_model_types():
    """A T5, an mT5 and a ByT5 are one network; an umT5 is another."""
    for kind, tied in (("t5", True), ("mt5", False)):
        fields = t5_config({**BASE, "model_type": kind}, has_lm_head=True)
        assert fields["logits_via_embedding"] is tied
    with pytest.raises(CheckpointError, match=r"'umt5': every layer has its own table"):
        t5_config({**BASE, "model_type": "umt5"}, has_lm_head=True)
    with pytest.raises(CheckpointError, match=r"'longt5'; wanted 't5' or 'mt5'"):
        t5_config({**BASE, "model_type": "longt5"}, has_lm_head=True)


@pytest.mark.needs_torch
@pytest.mark.parametrize("shard_bytes", [40_000, 5_000_000_000])
@pytest.mark.parametrize("folder", FOLDERS)
def test_transformers_loads_it_to_equal_logits(folder, shard_bytes, tmp_path):
    import torch
    from transformers import T5ForConditionalGeneration

    golden = golden_path(f"hf/{folder}")
    params, config = load_huggingface(golden)
    save_huggingface(tmp_path / "m", params, config, shard_bytes=shard_bytes)
    model, report = T5ForConditionalGeneration.from_pretrained(
        tmp_path / "m", output_loading_info=True
    )
    assert not any(report.values()), report
    with np.load(golden / "golden.npz") as known:
        names = ("input_ids", "attention_mask", "decoder_input_ids")
        with torch.no_grad():
            given = {name: torch.tensor(known[name]) for name in names}
            logits = model.eval()(**given).logits.numpy()
        valid = known["valid_decoder_positions"].astype(bool)
        np.testing.assert_allclose(
            logits[valid], known["logits"][valid], rtol=0, atol=1e-4
        )
