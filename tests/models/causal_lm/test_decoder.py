"""The cache: any split of a sequence into calls gives what one pass gives."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import Autoregressive, ModelDraft, SamplingPolicy, Speculative, generate
from spec_jax.models.causal_lm import (
    LM1B_6M,
    LM1B_97M,
    CausalLMConfig,
    CausalLMDecoder,
    CausalTransformer,
)
from spec_jax.models.causal_lm.network import attend_in_groups, rope
from spec_jax.testing.contract import check_decoder

VOCAB, LENGTH, ROWS = 61, 14, 3
SHAPE = {"vocab_size": VOCAB, "emb_dim": 24, "mlp_dim": 40, "max_length": 18}
CONFIGS = {
    "llama": CausalLMConfig(
        **SHAPE, num_heads=6, num_kv_heads=2, head_dim=8, num_layers=2
    ),
    "llama_tied": CausalLMConfig(
        **SHAPE,
        num_heads=3,
        num_kv_heads=3,
        head_dim=6,
        num_layers=1,
        logits_via_embedding=True,
    ),
    "gpt": CausalLMConfig(
        **SHAPE,
        num_heads=3,
        num_kv_heads=3,
        head_dim=8,
        num_layers=2,
        positions="learned",
        norm="layer",
        mlp_activations=("gelu",),
        use_bias=True,
    ),
}
SPLITS = [[14], [1] * 14, [5, 4, 5], [1, 6, 2, 5]]


@functools.partial(jax.jit, static_argnums=0)
def forward(config, params, tokens):
    return CausalTransformer(config).apply({"params": params}, tokens)


@functools.partial(jax.jit, static_argnums=0)
def extend(decoder, params, cache, tokens, start):
    return decoder.extend(params, cache, tokens, start)


@functools.cache
def setting(name):
    """Config, parameters, tokens and logits of one pass."""
    config = CONFIGS[name]
    tokens = np.random.default_rng(0).integers(0, VOCAB, (ROWS, LENGTH))
    params = jax.jit(CausalTransformer(config).init)(jax.random.key(1), tokens)
    params = jax.tree_util.tree_map_with_path(larger, params["params"])
    return config, params, tokens, forward(config, params, tokens)


def larger(path, x):
    """Weights that make every position matter to every later one."""
    name = jax.tree_util.keystr(path)
    noise = jax.random.normal(jax.random.key(len(name)), x.shape)
    if "embedding" in name:
        return 20 * x
    return 2 * x if x.ndim > 1 else x + 0.3 * noise


def extend_in_pieces(name, sizes, max_length=LENGTH, poison=None):
    config, params, tokens, _ = setting(name)
    decoder = CausalLMDecoder(config)
    cache = decoder.init_cache(params, None, ROWS, max_length)
    at, out = 0, []
    for size in sizes:
        if poison is not None:
            ahead = jnp.arange(max_length)[:, None] >= at
            cache = jax.tree.map(lambda x, m=ahead: jnp.where(m, poison, x), cache)
        piece = tokens[:, at : at + size]
        logits, cache = extend(decoder, params, cache, piece, jnp.full(ROWS, at))
        out.append(logits)
        at += size
    return jnp.concatenate(out, axis=1)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("sizes", SPLITS, ids=str)
def test_any_split_equals_the_full_forward_pass(name, sizes):
    got = extend_in_pieces(name, sizes, max_length=20, poison=jnp.nan)
    full = setting(name)[-1]
    assert np.abs(full).max() > 1  # far above the tolerance
    np.testing.assert_allclose(got, full, atol=1e-4 * np.abs(full).max())


@pytest.mark.parametrize("name", ["llama", "gpt"])
def test_the_contract_of_a_decoder(name):
    config, params, tokens, _ = setting(name)
    check_decoder(CausalLMDecoder(config), params, None, tokens)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_earlier_token_matters(name):
    """So the tests above would see a lost or misplaced position."""
    config, params, tokens, full = setting(name)
    changed = tokens.copy()
    changed[:, 2] = (changed[:, 2] + 7) % VOCAB
    got = forward(config, params, changed)
    np.testing.assert_array_equal(got[:, :2], full[:, :2])
    assert np.abs(got - full)[:, 3:].max((0, 2)).min() > 0.02


@pytest.mark.parametrize("copies", [1, 4], ids=["unrolled rows", "vectorized rows"])
def test_rows_stand_at_different_positions(copies):
    config, params, tokens, full = setting("llama")
    decoder = CausalLMDecoder(config)
    tokens, full = np.tile(tokens, (copies, 1)), np.tile(full, (copies, 1, 1))
    rows = len(tokens)
    cache = decoder.init_cache(params, None, rows, LENGTH)
    _, cache = extend(decoder, params, cache, tokens[:, :8], jnp.zeros(rows, int))
    start = np.resize([8, 3, 6], rows)
    window = np.stack([row[at : at + 4] for row, at in zip(tokens, start)])
    logits, _ = extend(decoder, params, cache, window, jnp.array(start))
    wanted = np.stack([row[at : at + 4] for row, at in zip(full, start)])
    np.testing.assert_allclose(logits, wanted, atol=1e-4 * np.abs(full).max())


def test_no_key_is_repeated_in_the_cache():
    config, params, _, _ = setting("llama")
    cache = CausalLMDecoder(config).init_cache(params, None, ROWS, 20)
    shapes = {x.shape for x in jax.tree.leaves(cache)}
    assert shapes == {(ROWS, 2, 20, 8)}


def test_grouped_heads_equal_repeated_keys():
    keys = jax.random.split(jax.random.key(0), 3)
    query = jax.random.normal(keys[0], (2, 6, 5, 8))
    key, value = (jax.random.normal(k, (2, 2, 9, 8)) for k in keys[1:])
    visible = jnp.arange(9) <= 3 + jnp.arange(5)[:, None]
    got = attend_in_groups(query, key, value, visible[None], jnp.ones((1, 9), bool))
    repeated = (jnp.repeat(x, 3, axis=1) for x in (key, value))
    wanted = jax.nn.dot_product_attention(
        *(x.transpose(0, 2, 1, 3) for x in (query, *repeated)), mask=visible[None, None]
    )
    np.testing.assert_allclose(got, wanted.transpose(0, 2, 1, 3), atol=1e-5)


def test_rope_turns_by_position_differences_alone():
    """A query at i and a key at j meet at an angle of i - j, whatever i is."""
    cos, sin = rope(jnp.array([[3, 40]]), 2, base=10.0)
    np.testing.assert_allclose(cos[0, :, 0], np.cos([3, 40]), atol=1e-5)
    np.testing.assert_allclose(sin[0, :, 0], np.sin([3, 40]), atol=1e-5)
    cos, _ = rope(jnp.array([[7]]), 4, base=100.0)
    np.testing.assert_allclose(cos[0, 0], np.cos([7, 0.7]), atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt"])
def test_prompts_of_different_lengths_equal_each_row_alone(name):
    """BEHAVIOURS 23 for a decoder-only model: the prompt itself is ragged."""
    config, params, tokens, _ = setting(name)
    plain = Autoregressive(
        CausalLMDecoder(config), SamplingPolicy(temperature=0.0), eos_id=None
    )
    lengths = np.array([5, 1, 3])
    together = generate(
        plain,
        {"target": params},
        None,
        tokens[:, :5],
        jax.random.key(0),
        max_new_tokens=8,
        prompt_length=lengths,
    )
    for row, length in enumerate(lengths):
        alone = generate(
            plain,
            {"target": params},
            None,
            tokens[row : row + 1, :length],
            jax.random.key(0),
            max_new_tokens=8,
        )
        np.testing.assert_array_equal(together.tokens[row], alone.tokens[0])
    assert len(np.unique(together.tokens)) > 5


@pytest.mark.parametrize("draft", ["llama", "gpt"])
def test_greedy_speculation_equals_plain_decoding(draft):
    config, params, tokens, _ = setting("llama")
    decoder, policy = CausalLMDecoder(config), SamplingPolicy(temperature=0.0)
    small, small_params, _, _ = setting(draft)
    params = {"target": params, "draft": small_params}
    source = ModelDraft(CausalLMDecoder(small), policy, 3)
    algorithms = (
        Autoregressive(decoder, policy, eos_id=None),
        Speculative(decoder, source, policy, eos_id=None),
    )
    plain, fast = (
        generate(
            algorithm,
            params,
            None,
            tokens[:, :3],
            jax.random.key(0),
            max_new_tokens=12,
            max_length=18,  # the model's own limit: drafts reach past it
            prompt_length=np.array([3, 1, 2]),
        )
        for algorithm in algorithms
    )
    np.testing.assert_array_equal(fast.tokens, plain.tokens)
    if draft == "llama":
        assert fast.stats.accepted_per_drafted == 1


def test_bfloat16_is_near_float32_in_any_number_of_rows():
    """One row is computed as two, for speed on CPU."""
    _, params, tokens, full = setting("llama")
    config = dataclasses.replace(CONFIGS["llama"], dtype="bfloat16")
    decoder = CausalLMDecoder(config)
    cache = decoder.init_cache(params, None, 1, LENGTH)
    assert cache[0][0].dtype == jnp.bfloat16
    got = []
    for at in range(LENGTH):
        logits, cache = extend(
            decoder, params, cache, tokens[:1, at : at + 1], jnp.array([at])
        )
        assert logits.dtype == jnp.float32 and logits.shape == (1, 1, VOCAB)
        got.append(logits[0, 0])
    assert np.abs(np.array(got) - full[0]).max() < 0.05 * np.abs(full[0]).max()


@pytest.mark.parametrize(
    "config, millions", [(LM1B_97M, 97), (LM1B_6M, 6)], ids=["97M", "6M"]
)
def test_the_paper_s_models_have_its_numbers_of_parameters(config, millions):
    network = CausalTransformer(config)
    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    params = jax.eval_shape(network.init, jax.random.key(0), tokens)
    size = sum(x.size for x in jax.tree.leaves(params["params"]))
    assert abs(size / 1e6 - millions) < 1


def test_inputs_are_refused():
    config, params, tokens, _ = setting("llama")
    with pytest.raises(
        ValueError, match="None as the inputs of a decoder-only model, got "
    ):
        CausalLMDecoder(config).init_cache(params, tokens, ROWS, LENGTH)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"num_layers": 0}, "num_layers a positive integer, got 0"),
        ({"num_heads": 5}, "multiple of num_kv_heads, got 5 and 2"),
        ({"head_dim": 7}, "even head_dim for RoPE, got 7"),
        ({"positions": "alibi"}, "positions one of"),
        ({"norm": "batch"}, "norm one of"),
        ({"mlp_activations": ()}, "mlp_activations of"),
        ({"mlp_activations": ("swish",)}, "mlp_activations of"),
        ({"norm_epsilon": 0.0}, "norm_epsilon > 0"),
        ({"dtype": "int8"}, "a floating dtype"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_a_config_says_what_is_wrong(fields, message):
    with pytest.raises(ValueError, match=message):
        CausalLMConfig(
            **SHAPE
            | {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "num_layers": 1}
            | fields
        )


def test_equal_configs_hash_alike():
    config = CONFIGS["gpt"]
    again = dataclasses.replace(config, mlp_activations=["gelu"], dtype="float32")
    assert hash(again) == hash(CONFIGS["gpt"])
    assert CausalLMDecoder(again) == CausalLMDecoder(CONFIGS["gpt"])
