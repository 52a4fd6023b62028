"""The tables of names and configurations, without any file being loaded."""

import json

import numpy as np
import pytest

from spec_jax.checkpoints import CheckpointError, resize_vocabulary
from spec_jax.checkpoints.mapping import t5_config, t5_names
from tests.golden import golden_path

MODELS = {
    "t5_1_1_gated_gelu": "t5_1_1_target",
    "t5_1_1_assistant": "t5_1_1_draft",
    "t5_1_0_relu_tied": "t5_1_0_tied",
}


def golden_config(model):
    manifest = json.loads(golden_path(f"models/{model}/manifest.json").read_text())
    config = manifest["config"]
    for other in ("dtype", "dropout_rate", "float32_attention_logits"):
        config.pop(other)
    return config | {"mlp_activations": tuple(config["mlp_activations"])}


def huggingface_config(folder, file="config.json"):
    return json.loads(golden_path(f"hf/{folder}/{file}").read_text())


@pytest.mark.parametrize("folder", MODELS)
def test_names_and_transposes_of_every_parameter(folder):
    listed = json.loads(golden_path("hf/t5x_to_hf_names.json").read_text())[folder]
    config = golden_config(MODELS[folder])
    table = t5_names(
        config["num_encoder_layers"],
        config["num_decoder_layers"],
        config["mlp_activations"],
        config["logits_via_embedding"],
    )
    assert {(n.t5x, n.huggingface, n.transpose) for n in table} == {
        (entry["t5x"], entry["hf"], entry["op"] == "transpose") for entry in listed
    }
    assert len(table) == len(listed)


def test_names_for_any_number_of_layers():
    table = t5_names(3, 11)
    assert len({names.t5x for names in table}) == len(table)
    assert len({names.huggingface for names in table}) == len(table)
    # 2 embeddings and logits, 2 x (norm, bias), 9 and 14 arrays a layer.
    assert len(table) == 2 + 4 + 3 * 9 + 11 * 14
    last = "decoder/layers_10/encoder_decoder_attention/out/kernel"
    assert [n.huggingface for n in table if n.t5x == last] == [
        "decoder.block.10.layer.1.EncDecAttention.o.weight"
    ]


@pytest.mark.parametrize("file", ["config.json", "config.v4_style.json"])
@pytest.mark.parametrize("folder", MODELS)
def test_configuration_of_transformers_4_and_5(folder, file):
    config = t5_config(huggingface_config(folder, file), folder != "t5_1_0_relu_tied")
    assert config == golden_config(MODELS[folder])


def test_configuration_with_what_transformers_4_left_out():
    config = huggingface_config("t5_1_0_relu_tied", "config.v4_style.json")
    for absent in ("tie_word_embeddings", "feed_forward_proj", "num_decoder_layers"):
        config.pop(absent, None)
    assert t5_config(config, False) == golden_config("t5_1_0_tied")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "umt5"}, "model_type 'umt5'"),
        ({"model_type": "gpt2"}, "model_type 'gpt2'"),
        ({"relative_attention_num_buckets": 16}, "num_buckets 16"),
        ({"relative_attention_max_distance": 64}, "max_distance 64"),
        ({"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon"),
        ({"feed_forward_proj": "gated-silu"}, "feed_forward_proj 'gated-silu'"),
        ({"feed_forward_proj": ["relu"]}, "feed_forward_proj"),
        ({"num_decoder_layers": "3"}, "num_decoder_layers"),
        ({"num_decoder_layers": 2.5}, "num_decoder_layers"),
        ({"d_model": None}, "d_model"),
        ({"vocab_size": "256"}, "vocab_size"),
    ],
)
def test_configurations_that_t5x_cannot_express(change, message):
    config = huggingface_config("t5_1_1_gated_gelu") | change
    with pytest.raises(CheckpointError, match=message):
        t5_config(config, True)


def test_untied_configuration_without_a_head():
    with pytest.raises(CheckpointError, match=r"no lm_head\.weight"):
        t5_config(huggingface_config("t5_1_1_gated_gelu"), False)


def test_resize_vocabulary_pads_with_zeros_and_cuts():
    table = np.arange(12, dtype=np.float32).reshape(4, 3) + 1
    params = {
        "token_embedder": {"embedding": table},
        "decoder": {"logits_dense": {"kernel": table.T}, "other": table},
    }
    padded = resize_vocabulary(params, 6)
    embedding = padded["token_embedder"]["embedding"]
    assert embedding.shape == (6, 3)
    np.testing.assert_array_equal(embedding[:4], table)
    assert not embedding[4:].any()
    np.testing.assert_array_equal(
        padded["decoder"]["logits_dense"]["kernel"], embedding.T
    )
    assert padded["decoder"]["other"].shape == (4, 3)
    again = resize_vocabulary(padded, 4)
    np.testing.assert_array_equal(again["token_embedder"]["embedding"], table)
    np.testing.assert_array_equal(again["decoder"]["logits_dense"]["kernel"], table.T)
    with pytest.raises(ValueError, match="at least 1"):
        resize_vocabulary(params, 0)
