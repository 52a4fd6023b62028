"""A network's shape, read off its arrays."""

import json

import jax
import numpy as np
import pytest

from spec_jax.checkpoints import CheckpointError, infer_config, load_params, read_config
from spec_jax.checkpoints.inference import expected_shapes
from spec_jax.checkpoints.validation import flatten
from spec_jax.models.t5 import T5Config
from spec_jax.pairs import parameter_shapes
from tests.golden import golden_path

MODELS = {
    "t5_1_1_target": "t5_1_1_gated_gelu",
    "t5_1_1_draft": "t5_1_1_assistant",
    "t5_1_0_tied": "t5_1_0_relu_tied",
}


def shapes(model):
    manifest = json.loads(golden_path(f"models/{model}/manifest.json").read_text())
    return {
        name: jax.ShapeDtypeStruct(tuple(entry["shape"]), np.float32)
        for name, entry in manifest["params"].items()
    }


@pytest.mark.parametrize("model", MODELS)
def test_it_is_the_one_that_made_them(model):
    fields = infer_config(shapes(model))
    assert fields.pop("relative_attention_num_buckets") == 32
    assert fields == read_config(golden_path(f"hf/{MODELS[model]}"))


@pytest.mark.parametrize("activations", [("relu",), ("gelu", "linear")])
@pytest.mark.parametrize("tied", [True, False])
def test_it_gives_the_same_arrays_again(activations, tied):
    config = T5Config(
        vocab_size=11,
        emb_dim=6,
        num_heads=3,
        head_dim=5,
        mlp_dim=7,
        num_encoder_layers=2,
        num_decoder_layers=11,
        mlp_activations=activations,
        logits_via_embedding=tied,
        relative_attention_num_buckets=16,
    )
    arrays = flatten(parameter_shapes(config))
    assert T5Config(**infer_config(arrays)) == config
    wanted = {name: array.shape for name, array in arrays.items()}
    assert expected_shapes(infer_config(arrays)) == wanted


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("token_embedder/embedding", None, "no token_embedder/embedding among the"),
        ("token_embedder/embedding", (3,), "wanted a matrix"),
        ("encoder/relpos_bias/rel_embedding", (3, 32), "3 heads, which do not share"),
    ],
)
def test_arrays_of_no_t5(name, shape, message):
    arrays = shapes("t5_1_1_draft")
    del arrays[name]
    if shape is not None:
        arrays[name] = jax.ShapeDtypeStruct(shape, np.float32)
    with pytest.raises(CheckpointError, match=message):
        infer_config(arrays)


def test_a_decoder_only_model_is_no_t5():
    with pytest.raises(CheckpointError, match="wanted those of a T5"):
        infer_config({"model.embed_tokens.weight": np.ones((3, 4))})


def test_stored_arrays_tell_it_unread():
    arrays = flatten(load_params(golden_path("t5x_tied/legacy_bfloat16")))
    assert infer_config(arrays)["logits_via_embedding"]
