"""A step writes into the caches where they lie."""

import re

import jax
import jax.numpy as jnp
import pytest

from spec_jax import Autoregressive, SamplingPolicy, generate
from spec_jax.models.t5 import T5Config, T5Decoder, Transformer

CONFIG = T5Config(
    vocab_size=64,
    emb_dim=32,
    num_heads=2,
    head_dim=16,
    mlp_dim=32,
    num_encoder_layers=1,
    num_decoder_layers=2,
    dtype="float32",
)


@pytest.mark.skipif(
    jax.__version_info__ < (0, 12), reason="XLA before copies caches whatever is said"
)
def test_a_plain_step_copies_no_cache():
    tokens = jnp.ones((1, 2), int)
    network = Transformer(CONFIG).init(jax.random.key(0), tokens, tokens)
    algorithm = Autoregressive(T5Decoder(CONFIG), SamplingPolicy(temperature=0.0))

    def run(params, inputs, prompt, key):
        return generate(algorithm, params, inputs, prompt, key, max_new_tokens=40)

    arguments = {"target": network["params"]}, tokens, tokens[:, :1], jax.random.key(0)
    program = jax.jit(run).lower(*arguments).compile().as_text()
    (name,) = re.findall(r"body=%?([\w.-]+)", program)
    body = re.search(rf"^%?{re.escape(name)} \(.*?^}}", program, re.M | re.S)[0]
    cache = r"f32\[1,2,41,16\]"
    assert re.search(cache, body)
    assert not re.findall(rf"= {cache}\S* copy\(", body)
