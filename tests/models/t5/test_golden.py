"""The network equals real t5x and Hugging Face T5 on the same weights."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax.checkpoints import load_params, read_config
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.decoding.loop import generate
from spec_jax.decoding.speculative import Speculative
from spec_jax.drafts.model import ModelDraft
from spec_jax.models.attention import relative_position_bucket
from spec_jax.models.t5 import T5Config, T5Decoder, Transformer
from tests.golden import golden_path

# t5x's name of a model and the Hugging Face folder with the same weights.
MODELS = {
    "t5_1_1_target": "t5_1_1_gated_gelu",
    "t5_1_1_draft": "t5_1_1_assistant",
    "t5_1_0_tied": "t5_1_0_relu_tied",
}
LONG = ("t5_1_1_target", "t5_1_0_tied")
TOLERANCE = 1e-4  # of the largest logit


@functools.cache
def model(name):
    """The config and the float32 parameters of a golden model."""
    folder = golden_path(f"hf/{MODELS[name]}")
    return T5Config(**read_config(folder)), load_params(folder)


def golden(name, file):
    return dict(np.load(golden_path(f"models/{name}/{file}.npz")))


def assert_logits_equal(got, wanted):
    assert got.shape == wanted.shape
    error = np.abs(np.asarray(got) - wanted).max()
    assert error <= TOLERANCE * np.abs(wanted).max()


@functools.partial(jax.jit, static_argnums=0)
def forward(config, params, encoder_tokens, decoder_tokens):
    return Transformer(config).apply({"params": params}, encoder_tokens, decoder_tokens)


@pytest.mark.parametrize("name", MODELS)
def test_parameter_tree_is_t5x_s(name):
    config, params = model(name)
    tokens = jnp.ones((1, 2), jnp.int32)
    shapes = jax.eval_shape(Transformer(config).init, jax.random.key(0), tokens, tokens)
    assert jax.tree.map(np.shape, params) == jax.tree.map(
        lambda leaf: leaf.shape, shapes["params"]
    )


def test_logical_axes_are_t5x_s():
    """Names as in t5x's default partitioning table."""
    tokens = jnp.ones((1, 2), jnp.int32)
    shapes = jax.eval_shape(
        Transformer(model("t5_1_1_target")[0]).init, jax.random.key(0), tokens, tokens
    )
    axes = shapes["params_axes"]
    layer = axes["decoder"]["layers_0"]
    names = {
        "embedding": axes["token_embedder"]["embedding_axes"],
        "query": layer["self_attention"]["query"]["kernel_axes"],
        "out": layer["encoder_decoder_attention"]["out"]["kernel_axes"],
        "wi": layer["mlp"]["wi_0"]["kernel_axes"],
        "wo": layer["mlp"]["wo"]["kernel_axes"],
        "norm": layer["pre_mlp_layer_norm"]["scale_axes"],
        "relpos": axes["decoder"]["relpos_bias"]["rel_embedding_axes"],
        "logits": axes["decoder"]["logits_dense"]["kernel_axes"],
    }
    assert {key: tuple(value.names) for key, value in names.items()} == {
        "embedding": ("vocab", "embed"),
        "query": ("embed", "joined_kv"),
        "out": ("joined_kv", "embed"),
        "wi": ("embed", "mlp"),
        "wo": ("mlp", "embed"),
        "norm": ("embed",),
        "relpos": ("heads", "relpos_buckets"),
        "logits": ("embed", "vocab"),
    }


@pytest.mark.parametrize("name", MODELS)
def test_forward_equals_t5x(name):
    config, params = model(name)
    wanted = golden(name, "forward")
    encoder_tokens = wanted["encoder_input_tokens"]
    logits = forward(config, params, encoder_tokens, wanted["decoder_input_tokens"])
    valid = wanted["decoder_target_tokens"] > 0
    assert_logits_equal(logits[valid], wanted["decoder_logits"][valid])
    encoded = Transformer(config).apply(
        {"params": params}, encoder_tokens, method=Transformer.encode
    )
    valid = encoder_tokens > 0
    assert_logits_equal(encoded[valid], wanted["encoder_output"][valid])


@pytest.mark.parametrize("name", MODELS)
def test_forward_equals_hugging_face(name):
    config, params = model(name)
    wanted = dict(np.load(golden_path(f"hf/{MODELS[name]}/golden.npz")))
    logits = forward(config, params, wanted["input_ids"], wanted["decoder_input_ids"])
    valid = wanted["valid_decoder_positions"].astype(bool)
    assert_logits_equal(logits[valid], wanted["logits"][valid])


@pytest.mark.parametrize("name", LONG)
def test_lengths_beyond_the_relative_position_buckets(name):
    config, params = model(name)
    wanted = golden(name, "long_packed")
    logits = forward(
        config,
        params,
        wanted["verylong_encoder_input_tokens"],
        wanted["verylong_decoder_input_tokens"],
    )
    last = wanted["verylong_decoder_logits_last_8_positions"]
    assert_logits_equal(logits[:, -8:], last)
    # The cached call reaches the same positions by its own way to the biases.
    decoder = T5Decoder(config)
    cache = decoder.init_cache(params, wanted["verylong_encoder_input_tokens"], 1, 160)
    tokens = wanted["verylong_decoder_input_tokens"]
    _, cache = decoder.extend(params, cache, tokens[:, :152], jnp.zeros(1, int))
    cached, _ = decoder.extend(params, cache, tokens[:, 152:], jnp.full(1, 152))
    assert_logits_equal(cached, last)


@pytest.mark.parametrize("name", MODELS)
def test_greedy_decoding_equals_t5x(name):
    """Token for token, and the logits of every step on the way."""
    config, params = model(name)
    wanted = golden(name, "decode")
    length = int(wanted["max_decode_length"])
    inputs = wanted["encoder_input_tokens"]
    algorithm = Autoregressive(T5Decoder(config), SamplingPolicy(temperature=0.0))
    start = np.zeros((len(inputs), 1), np.int32)
    out = generate(
        algorithm,
        {"target": params},
        inputs,
        start,
        jax.random.key(0),
        max_new_tokens=length,
    )
    np.testing.assert_array_equal(out.tokens, wanted["greedy_tokens"])
    np.testing.assert_array_equal(out.lengths, wanted["greedy_lengths_including_eos"])


@pytest.mark.parametrize("name", MODELS)
def test_greedy_decoding_equals_hugging_face(name):
    config, params = model(name)
    wanted = dict(np.load(golden_path(f"hf/{MODELS[name]}/golden.npz")))
    sequences = wanted["greedy_sequences"][:, 1:]  # column 0 is the start token
    algorithm = Autoregressive(T5Decoder(config), SamplingPolicy(temperature=0.0))
    start = np.zeros((len(sequences), 1), np.int32)
    out = generate(
        algorithm,
        {"target": params},
        wanted["input_ids"],
        start,
        jax.random.key(0),
        max_new_tokens=sequences.shape[1],
    )
    np.testing.assert_array_equal(out.tokens, sequences)


def test_prompted_greedy_decoding_equals_t5x():
    """Rows with prompts of 3, 1, 0 and 5 tokens in one batch."""
    config, params = model("t5_1_1_target")
    wanted = golden("t5_1_1_target", "decode")
    lengths = wanted["prompt_lengths"]
    # t5x shifts its prompts right behind the start token, as they are fed here.
    prompt = wanted["prompt_decoder_input_tokens"][:, : lengths.max() + 1]
    algorithm = Autoregressive(T5Decoder(config), SamplingPolicy(temperature=0.0))
    total = wanted["prompted_greedy_tokens"].shape[1]
    out = generate(
        algorithm,
        {"target": params},
        wanted["encoder_input_tokens"],
        prompt,
        jax.random.key(0),
        prompt_length=lengths + 1,
        max_new_tokens=total - lengths,
        max_length=total + 1 + int(lengths.max()),
    )
    for row, length in enumerate(lengths):
        whole = wanted["prompted_greedy_tokens"][row]
        made = np.asarray(out.tokens[row])[: total - length]
        np.testing.assert_array_equal(whole[:length], prompt[row, 1 : length + 1])
        np.testing.assert_array_equal(made, whole[length:])


@pytest.mark.parametrize("gamma", [1, 3, 5])
def test_speculative_greedy_decoding_equals_t5x(gamma):
    config, params = model("t5_1_1_target")
    draft_config, draft_params = model("t5_1_1_draft")
    wanted = golden("t5_1_1_target", "decode")
    policy = SamplingPolicy(temperature=0.0)
    algorithm = Speculative(
        T5Decoder(config), ModelDraft(T5Decoder(draft_config), policy, gamma), policy
    )
    inputs = wanted["encoder_input_tokens"]
    out = generate(
        algorithm,
        {"target": params, "draft": draft_params},
        inputs,
        np.zeros((len(inputs), 1), np.int32),
        jax.random.key(0),
        max_new_tokens=int(wanted["max_decode_length"]),
    )
    np.testing.assert_array_equal(out.tokens, wanted["greedy_tokens"])


BUCKETS = {
    "bidirectional_bucket": {"bidirectional": True},
    "causal_bucket": {"bidirectional": False},
    "bidirectional_bucket_nb16_md64": {
        "bidirectional": True,
        "num_buckets": 16,
        "max_distance": 64,
    },
    "causal_bucket_nb16_md64": {
        "bidirectional": False,
        "num_buckets": 16,
        "max_distance": 64,
    },
}


@pytest.mark.parametrize("name", BUCKETS)
def test_relative_position_buckets_equal_t5x(name):
    wanted = np.load(golden_path("models/relpos.npz"))
    got = relative_position_bucket(wanted["relative_position"], **BUCKETS[name])
    np.testing.assert_array_equal(got, wanted[name])


def test_bfloat16_checkpoint_computed_in_float32():
    """Parameters rounded to bfloat16, float32 maths, as in evaluation."""
    config, params = model("t5_1_1_target")
    rounded = jax.tree.map(lambda x: jnp.asarray(x, jnp.bfloat16), params)
    wanted = golden("t5_1_1_target", "forward")
    logits = forward(
        dataclasses.replace(config, dtype="float32"),
        rounded,
        wanted["encoder_input_tokens"],
        wanted["decoder_input_tokens"],
    )
    valid = wanted["decoder_target_tokens"] > 0
    logits_wanted = wanted["decoder_logits_bf16_checkpoint_params_f32_compute"]
    assert_logits_equal(logits[valid], logits_wanted[valid])
