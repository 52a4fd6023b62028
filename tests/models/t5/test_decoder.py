"""The cache: any split of a sequence into calls gives what one pass gives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import ModelDraft, SamplingPolicy, Speculative, generate
from spec_jax.models.t5 import T5Config, T5Decoder, Transformer

CONFIGS = {
    "1.1": T5Config(
        vocab_size=61,
        emb_dim=24,
        num_heads=3,
        head_dim=8,
        mlp_dim=40,
        num_encoder_layers=2,
        num_decoder_layers=2,
    ),
    "1.0": T5Config(
        vocab_size=61,
        emb_dim=16,
        num_heads=2,
        head_dim=8,
        mlp_dim=32,
        num_encoder_layers=1,
        num_decoder_layers=3,
        mlp_activations=("relu",),
        logits_via_embedding=True,
    ),
}
LENGTH = 14
ROWS = 3


@functools.cache
def setting(version):
    """Config, parameters, encoder tokens, decoder tokens and logits of one pass."""
    config = CONFIGS[version]
    network = Transformer(config)
    rng = np.random.default_rng(0)
    inputs = rng.integers(2, 61, (ROWS, 9))
    inputs[1, 5:] = 0
    tokens = rng.integers(2, 61, (ROWS, LENGTH))
    tokens[:, 0] = 0
    params = network.init(jax.random.key(1), inputs, tokens)["params"]
    # Large kernels make every position matter to every later one.
    params = jax.tree.map(lambda x: 1.5 * x, params)
    return (
        config,
        params,
        inputs,
        tokens,
        network.apply({"params": params}, inputs, tokens),
    )


def extend_in_pieces(version, sizes, max_length=LENGTH, poison=False):
    config, params, inputs, tokens, _ = setting(version)
    decoder = T5Decoder(config)
    cache = decoder.init_cache(params, inputs, ROWS, max_length)
    at, out = 0, []
    for size in sizes:
        if poison:
            ahead = jnp.arange(max_length)[:, None] >= at
            own = jax.tree.map(lambda x, m=ahead: jnp.where(m, 1e4, x), cache.own)
            cache = cache._replace(own=own)
        piece = tokens[:, at : at + size]
        logits, cache = decoder.extend(params, cache, piece, jnp.full(ROWS, at))
        out.append(logits)
        at += size
    return jnp.concatenate(out, axis=1)


@pytest.mark.parametrize("version", CONFIGS)
@pytest.mark.parametrize("sizes", [[14], [1] * 14, [5, 4, 5], [1, 6, 2, 5]], ids=str)
def test_any_split_equals_the_full_forward_pass(version, sizes):
    np.testing.assert_allclose(
        extend_in_pieces(version, sizes), setting(version)[-1], atol=2e-4
    )


@pytest.mark.parametrize("version", CONFIGS)
def test_slots_past_a_call_are_never_read(version):
    clean = extend_in_pieces(version, [3, 5, 6], max_length=20)
    poisoned = extend_in_pieces(version, [3, 5, 6], max_length=20, poison=True)
    np.testing.assert_array_equal(clean, poisoned)


def test_a_slot_is_overwritten_and_rollback_is_a_smaller_start():
    """BEHAVIOURS 22, 25: after a rejection the logits are those of a fresh prefill."""
    config, params, inputs, tokens, _ = setting("1.1")
    decoder = T5Decoder(config)
    zero = jnp.zeros(ROWS, int)
    cache = decoder.init_cache(params, inputs, ROWS, LENGTH)
    _, cache = decoder.extend(params, cache, tokens[:, :6], zero)
    wrong = (tokens[:, 6:10] + 7) % 61
    _, cache = decoder.extend(params, cache, wrong, jnp.full(ROWS, 6))
    again, _ = decoder.extend(params, cache, tokens[:, 6:9], jnp.full(ROWS, 6))
    fresh = decoder.init_cache(params, inputs, ROWS, LENGTH)
    _, fresh = decoder.extend(params, fresh, tokens[:, :6], zero)
    wanted, _ = decoder.extend(params, fresh, tokens[:, 6:9], jnp.full(ROWS, 6))
    np.testing.assert_allclose(again, wanted, atol=1e-5)


@pytest.mark.parametrize("gamma", [1, 4])
def test_a_perfect_draft_is_never_rejected(gamma):
    """BEHAVIOURS 21 on a network: 50 steps of gamma + 1 tokens, at T = 0."""
    config, params, inputs, tokens, _ = setting("1.1")
    decoder, policy = T5Decoder(config), SamplingPolicy(temperature=0.0)
    draft = ModelDraft(decoder, policy, gamma)
    out = generate(
        Speculative(decoder, draft, policy, eos_id=None),
        {"target": params, "draft": params},
        inputs,
        tokens[:, :3],
        jax.random.key(0),
        max_new_tokens=50 * (gamma + 1),
        prompt_length=np.array([3, 1, 2]),
    )
    assert out.stats.accepted_per_drafted == 1
    np.testing.assert_array_equal(out.stats.histogram.sum((1, 2)), 50)
    assert len(np.unique(out.tokens)) > 5  # it does not repeat one token


@pytest.mark.parametrize("copies", [1, 4], ids=["unrolled rows", "vectorized rows"])
def test_rows_stand_at_different_positions(copies):
    config, params, inputs, tokens, full = setting("1.1")
    decoder = T5Decoder(config)
    inputs, tokens, full = (
        np.tile(x, (copies, 1, 1)[: x.ndim]) for x in (inputs, tokens, np.asarray(full))
    )
    rows = len(inputs)
    cache = decoder.init_cache(params, inputs, rows, LENGTH)
    _, cache = decoder.extend(params, cache, tokens[:, :8], jnp.zeros(rows, int))
    start = np.resize([8, 3, 6], rows)
    window = np.stack([row[at : at + 4] for row, at in zip(tokens, start)])
    logits, _ = decoder.extend(params, cache, window, jnp.array(start))
    wanted = np.stack([row[at : at + 4] for row, at in zip(full, start)])
    np.testing.assert_allclose(logits, wanted, atol=2e-4)


def test_padded_encoder_inputs_change_nothing():
    """BEHAVIOURS 25."""
    config, params, inputs, tokens, full = setting("1.1")
    padded = np.pad(inputs, ((0, 0), (0, 7)))
    got = Transformer(config).apply({"params": params}, padded, tokens)
    # Products of another width sum in another order, so the last bits may differ.
    np.testing.assert_allclose(got, full, atol=1e-5 * np.abs(full).max())


def test_cross_attention_keys_are_made_once():
    """A step holds no product over the encoder's width; its cache is passed on."""
    config, params, inputs, tokens, _ = setting("1.1")
    decoder = T5Decoder(config)
    cache = decoder.init_cache(params, inputs, ROWS, LENGTH)
    _, after = decoder.extend(params, cache, tokens[:, :2], jnp.zeros(ROWS, int))
    for before, now in zip(jax.tree.leaves(cache.cross), jax.tree.leaves(after.cross)):
        assert before is now
    program = jax.make_jaxpr(decoder.extend)(
        params, cache, tokens[:, :1], jnp.zeros(ROWS, int)
    )
    used = {id(v) for eqn in program.eqns for v in eqn.invars}
    names = jax.tree_util.tree_flatten_with_path(params)[0]
    unused = [
        jax.tree_util.keystr(path)
        for (path, _), var in zip(names, program.jaxpr.invars)
        if id(var) not in used
    ]
    for layer in ("layers_0", "layers_1"):
        for name in ("key", "value"):
            where = f"['decoder']['{layer}']['encoder_decoder_attention']['{name}']"
            assert any(path.startswith(where) for path in unused)
    assert any(path.startswith("['encoder']") for path in unused)


def test_inputs_of_another_shape_are_refused():
    config, params, inputs, _, _ = setting("1.1")
    with pytest.raises(ValueError, match=r"shape \[2, length\].*got int64\[3, 9\]|got"):
        T5Decoder(config).init_cache(params, inputs, 2, LENGTH)


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("num_heads", 0, "num_heads must be a positive integer, got 0"),
        ("mlp_activations", ("swish",), "mlp_activations must be taken from"),
        ("dropout_rate", 1.0, r"dropout_rate must be in \[0, 1\)"),
    ],
)
def test_a_config_says_what_is_wrong(field, value, message):
    fields = {
        "vocab_size": 8,
        "emb_dim": 8,
        "num_heads": 1,
        "head_dim": 8,
        "mlp_dim": 8,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
    }
    with pytest.raises(ValueError, match=message):
        T5Config(**{**fields, field: value})


def test_float16_with_a_gated_network_is_refused():
    """BEHAVIOURS 32."""
    fields = {f: getattr(CONFIGS["1.1"], f) for f in ("vocab_size", "emb_dim")}
    fields |= {"num_heads": 1, "head_dim": 8, "mlp_dim": 8}
    fields |= {"num_encoder_layers": 1, "num_decoder_layers": 1}
    with pytest.raises(ValueError, match="65504"):
        T5Config(**fields, dtype="float16")
    T5Config(**fields, dtype="bfloat16")
    T5Config(**fields, dtype="float16", mlp_activations=("relu",))


def test_equal_configs_hash_alike():
    fields = {
        f.name: getattr(CONFIGS["1.1"], f.name)
        for f in CONFIGS["1.1"].__dataclass_fields__.values()
    }
    fields["mlp_activations"] = list(fields["mlp_activations"])
    fields["dtype"] = "float32"
    assert hash(T5Config(**fields)) == hash(CONFIGS["1.1"])
    assert T5Decoder(T5Config(**fields)) == T5Decoder(CONFIGS["1.1"])
