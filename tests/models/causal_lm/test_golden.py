"""Logits and greedy tokens of Hugging Face transformers on the same weights."""

import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import Autoregressive, SamplingPolicy, generate
from spec_jax.checkpoints.causal_lm import open_causal_lm
from spec_jax.checkpoints.storage import read_arrays
from spec_jax.checkpoints.validation import unflatten
from spec_jax.models.causal_lm import (
    CausalLMConfig,
    CausalLMDecoder,
    CausalTransformer,
)
from tests.golden import golden_path

MODELS = ("llama", "llama_tied", "gpt2")


@functools.cache
def setting(name):
    arrays, fields = open_causal_lm(golden_path(f"causal_lm/{name}"))
    with np.load(golden_path(f"causal_lm/{name}/golden.npz")) as golden:
        golden = dict(golden)
    return CausalLMConfig(**fields), unflatten(read_arrays(arrays)), golden


@functools.partial(jax.jit, static_argnums=0)
def forward(config, params, tokens):
    return CausalTransformer(config).apply({"params": params}, tokens)


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_transformers(name):
    config, params, golden = setting(name)
    got, wanted = forward(config, params, golden["tokens"]), golden["logits"]
    np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("name", MODELS)
def test_greedy_tokens_equal_transformers(name):
    """No decision is closer than 0.02, so no rounding can change one."""
    config, params, golden = setting(name)
    plain = Autoregressive(
        CausalLMDecoder(config), SamplingPolicy(temperature=0.0), eos_id=None
    )
    out = generate(
        plain,
        {"target": params},
        None,
        golden["prompt"],
        jax.random.key(0),
        max_new_tokens=golden["greedy"].shape[1],
    )
    np.testing.assert_array_equal(out.tokens, golden["greedy"])


@pytest.mark.parametrize("name", MODELS)
def test_every_array_matters(name):
    """A parameter that is mapped wrongly could not pass the comparison above."""
    config, params, golden = setting(name)
    before = forward(config, params, golden["tokens"])
    leaves, tree = jax.tree.flatten_with_path(params)
    for i, (path, leaf) in enumerate(leaves):
        if path[-1].key == "bias" and path[-2].key == "key":
            continue  # the same for every key, so the softmax takes it away
        changed = [x for _, x in leaves]
        changed[i] = jnp.asarray(leaf) * 1.2
        after = forward(config, jax.tree.unflatten(tree, changed), golden["tokens"])
        moved = np.abs(after - before).max()
        limit = 1e-4 * np.abs(golden["logits"]).max()
        assert moved > 3 * limit, jax.tree_util.keystr(path)


@pytest.mark.needs_torch
@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_those_of_transformers_here(name, tmp_path):
    """The golden files in the flesh, for tokens that they do not hold."""
    import torch

    transformers = pytest.importorskip("transformers")
    config, params, _ = setting(name)
    folder = shutil.copytree(golden_path(f"causal_lm/{name}"), tmp_path / name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokens = np.random.default_rng(1).integers(3, config.vocab_size, (2, 40))
    with torch.no_grad():
        wanted = model(torch.tensor(tokens)).logits.numpy()
    got = forward(config, params, tokens)
    np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())


def test_both_styles_of_configuration_say_the_same(tmp_path):
    for name in MODELS:
        folder = shutil.copytree(golden_path(f"causal_lm/{name}"), tmp_path / name)
        shutil.copy(folder / "config.v4_style.json", folder / "config.json")
        assert CausalLMConfig(**open_causal_lm(folder)[1]) == setting(name)[0]
        assert json.loads((folder / "config.json").read_text())["torch_dtype"]
