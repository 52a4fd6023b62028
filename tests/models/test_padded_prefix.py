"""A function without a cache decodes as the same model with one does."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import (
    Autoregressive,
    Decoder,
    ModelDraft,
    SamplingPolicy,
    Speculative,
    generate,
)
from spec_jax.models.padded_prefix import PaddedPrefixDecoder
from spec_jax.models.t5 import T5Config, T5Decoder, Transformer
from spec_jax.testing.tables import TableDecoder

V = 5
TABLES = 2 * jax.random.normal(jax.random.key(0), (2, V, V, V))
PARAMS = {"target": TABLES[0], "draft": TABLES[1]}
PROMPT = np.array([[1, 2, 3, 4], [2, 4, 0, 0], [3, 0, 0, 0]])
PROMPT_LENGTH = np.array([4, 2, 1])
SHAPES = collections.Counter()


def table_logits(params, tokens, inputs):
    """The whole forward pass of a TableDecoder."""
    del inputs
    SHAPES[tokens.shape] += 1
    earlier = jnp.cumsum(tokens, axis=1) - tokens
    return params[earlier % V, tokens]


PADDED = PaddedPrefixDecoder(table_logits, V)


def speculative(target, draft, gamma, temperature=0.0):
    policy = SamplingPolicy(temperature=temperature)
    return Speculative(target, ModelDraft(draft, policy, gamma), policy, eos_id=None)


def tokens_of(algorithm, params=PARAMS, inputs=None, seed=0, **kwargs):
    arguments = {
        "prompt": PROMPT,
        "prompt_length": PROMPT_LENGTH,
        "max_new_tokens": 12,
    }
    out = generate(
        algorithm, params, inputs, key=jax.random.key(seed), **(arguments | kwargs)
    )
    return np.asarray(out.tokens)


def test_is_a_decoder_that_equals_another_of_the_same_function():
    assert isinstance(PADDED, Decoder)
    assert PaddedPrefixDecoder(table_logits, V) == PADDED
    assert hash(PADDED) == hash(PaddedPrefixDecoder(table_logits, V))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("gamma", [1, 2, 3, 4])
def test_decodes_as_the_decoder_with_a_cache(gamma, temperature):
    """As target and as draft, ragged prompts, to the token."""
    cached = TableDecoder(V)
    got = tokens_of(speculative(PADDED, PADDED, gamma, temperature))
    wanted = tokens_of(speculative(cached, cached, gamma, temperature))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("gamma", [1, 2, 3, 4])
def test_greedy_speculative_equals_plain(gamma):
    plain = Autoregressive(PADDED, SamplingPolicy(temperature=0.0), eos_id=None)
    got = tokens_of(speculative(PADDED, PADDED, gamma))
    np.testing.assert_array_equal(got, tokens_of(plain))
    assert len(np.unique(got)) > 2


def test_a_longer_prefix_leaves_nothing_behind():
    start = jnp.array([1, 3])
    seen = []

    def record(params, tokens, inputs):
        seen.append(tokens)
        return table_logits(params, tokens, inputs)

    decoder = PaddedPrefixDecoder(record, V)
    cache = decoder.init_cache(TABLES[0], None, 2, 6)
    full = jnp.array([[1, 2, 3, 4, 1], [4, 3, 2, 1, 4]])
    _, cache = decoder.extend(TABLES[0], cache, full, jnp.zeros(2, int))
    logits, cache = decoder.extend(TABLES[0], cache, jnp.array([[3], [2]]), start)
    wanted = [[1, 3, 0, 0, 0, 0], [4, 3, 2, 2, 0, 0]]
    np.testing.assert_array_equal(seen[-1], wanted)
    np.testing.assert_array_equal(cache.tokens, wanted)
    np.testing.assert_array_equal(
        logits[:, 0], [TABLES[0][1, 3], TABLES[0][(4 + 3 + 2) % V, 2]]
    )


def test_many_prompts_are_one_program():
    """BEHAVIOURS 27: other prompts, lengths and keys trace the function no more."""
    algorithm = speculative(PADDED, TableDecoder(V), 3)
    rng = np.random.default_rng(0)
    counts = []
    for seed in range(5):
        prompt = rng.integers(0, V, PROMPT.shape)
        length = rng.integers(1, 5, 3)
        tokens_of(algorithm, seed=seed, prompt=prompt, prompt_length=length)
        counts.append(SHAPES.total())
    assert counts[0] > 0 and len(set(counts)) == 1


def test_the_function_never_sees_more_than_its_limit():
    SHAPES.clear()
    limited = PaddedPrefixDecoder(table_logits, V, max_length=16)
    got = tokens_of(speculative(limited, TableDecoder(V), 4))
    assert set(SHAPES) == {(3, 16)}
    np.testing.assert_array_equal(got, tokens_of(speculative(PADDED, PADDED, 4)))


def scaled_logits(params, tokens, inputs):
    base = table_logits(params, tokens, None)
    return base * inputs["scale"][:, None, None] + inputs["more"][0]


def test_inputs_may_be_any_pytree():
    inputs = {
        "scale": np.array([1.0, -1.0, 1.0], np.float32),
        "more": (np.zeros(V, np.float32),),
    }
    policy = SamplingPolicy(temperature=0.0)
    algorithm = Autoregressive(
        PaddedPrefixDecoder(scaled_logits, V), policy, eos_id=None
    )
    got = tokens_of(algorithm, inputs=inputs)
    plain = Autoregressive(PADDED, policy, eos_id=None)
    upright = tokens_of(plain)
    turned = tokens_of(plain, {"target": -TABLES[0]})
    np.testing.assert_array_equal(got, [upright[0], turned[1], upright[2]])
    assert (upright[1] != turned[1]).any()


CONFIG = T5Config(
    vocab_size=61,
    emb_dim=24,
    num_heads=3,
    head_dim=8,
    mlp_dim=40,
    num_encoder_layers=2,
    num_decoder_layers=2,
)
NETWORK = Transformer(CONFIG)


def t5_logits(params, tokens, inputs):
    return NETWORK.apply({"params": params}, inputs, tokens)


@functools.cache
def t5_setting():
    """Parameters, encoder tokens of three rows and decoder tokens."""
    rng = np.random.default_rng(0)
    inputs = rng.integers(2, 61, (3, 9))
    inputs[1, 5:] = 0
    tokens = rng.integers(2, 61, (3, 10))
    tokens[:, 0] = 0
    inputs, tokens = jnp.asarray(inputs), jnp.asarray(tokens)
    params = NETWORK.init(jax.random.key(1), inputs, tokens)["params"]
    return jax.tree.map(lambda x: 1.5 * x, params), inputs, tokens


def test_t5_over_prefixes_has_the_logits_of_t5_over_its_cache():
    params, inputs, tokens = t5_setting()
    both = []
    for decoder in (PaddedPrefixDecoder(t5_logits, 61), T5Decoder(CONFIG)):
        cache = decoder.init_cache(params, inputs, 3, 12)
        extend = jax.jit(decoder.extend)
        _, cache = extend(params, cache, tokens[:, :6], jnp.zeros(3, int))
        start = jnp.array([6, 2, 4])
        window = jnp.stack([row[at : at + 4] for row, at in zip(tokens, start)])
        both.append(extend(params, cache, window, start)[0])
    np.testing.assert_allclose(*both, atol=2e-4)


def test_t5_over_prefixes_generates_what_t5_over_its_cache_does():
    params, inputs, tokens = t5_setting()
    params = {"target": params, "draft": jax.tree.map(lambda x: 1.02 * x, params)}
    padded, cached = PaddedPrefixDecoder(t5_logits, 61), T5Decoder(CONFIG)
    arguments = {"prompt": tokens[:, :4], "inputs": inputs}
    got = tokens_of(speculative(padded, cached, 3), params, **arguments)
    plain = Autoregressive(cached, SamplingPolicy(temperature=0.0), eos_id=None)
    np.testing.assert_array_equal(got, tokens_of(plain, params, **arguments))


def test_a_function_that_cannot_be_hashed_is_refused():
    class Model(list):
        def __call__(self, params, tokens, inputs):
            return table_logits(params, tokens, inputs)

    with pytest.raises(ValueError, match=r"hashable.*Model"):
        PaddedPrefixDecoder(Model(), V)


def last_only(params, tokens, inputs):
    return table_logits(params, tokens, inputs)[:, -1]


def test_logits_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(3, 16, 5\).*got \(3, 5\)"):
        tokens_of(Autoregressive(PaddedPrefixDecoder(last_only, V), SamplingPolicy()))
