"""The examples of foreign decoders run as they stand, and decode exactly."""

import functools
import importlib.util
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import Autoregressive, generate
from spec_jax.testing.contract import check_decoder
from spec_jax.testing.statistics import chi_square_pvalue

FOLDER = Path(__file__).resolve().parents[2] / "examples"
NAMES = ["nnx_decoder", "equinox_decoder"]
V = 8
P_VALUE = 1e-6


@functools.cache
def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_is_short_and_runs_as_a_script(name):
    path = FOLDER / f"{name}.py"
    assert len(path.read_text("utf-8").splitlines()) < 80
    run = subprocess.run(
        [sys.executable, str(path)],
        cwd=FOLDER.parent,
        env={"PYTHONPATH": str(FOLDER.parent), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert 1 < float(run.stdout.rpartition("tokens per target run:")[2]) <= 4


@pytest.mark.parametrize("name", NAMES)
def test_keeps_the_contract(name):
    algorithm, params = example(name).speculative()
    tokens = np.random.default_rng(0).integers(0, 16, (2, 6))
    check_decoder(algorithm.target, params["target"], None, tokens)


@pytest.mark.parametrize("name", NAMES)
def test_equal_decoders_are_one_program(name):
    first, again = (example(name).speculative()[0] for _ in range(2))
    assert first == again and hash(first) == hash(again)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_speculative_equals_plain(name):
    algorithm, params = example(name).speculative()
    plain = Autoregressive(algorithm.target, algorithm.policy, eos_id=None)
    outputs = [
        generate(
            each,
            params,
            None,
            np.random.default_rng(1).integers(0, 16, (4, 5)),
            jax.random.key(0),
            max_new_tokens=24,
            prompt_length=np.array([5, 1, 3, 2]),
        )
        for each in (algorithm, plain)
    ]
    np.testing.assert_array_equal(outputs[0].tokens, outputs[1].tokens)
    accepted = outputs[0].stats.accepted_per_drafted
    assert 0 < accepted < 1  # both verdicts were reached


def law_of_two(decoder, params, prompt):
    """The law of the next two tokens, from one call over every first token."""
    tokens = jnp.concatenate([jnp.tile(prompt, (V, 1)), jnp.arange(V)[:, None]], 1)
    cache = decoder.init_cache(params, None, V, tokens.shape[1])
    logits, _ = jax.jit(decoder.extend)(params, cache, tokens, jnp.zeros(V, int))
    probs = np.asarray(jax.nn.softmax(logits), np.float64)
    return probs[0, -2][:, None] * probs[:, -1]


@pytest.mark.parametrize("name", NAMES)
def test_samples_follow_the_target(name):
    """And not the draft, which the same test can tell from it."""
    rows, prompt = 5_000, jnp.array([1, 2, 3])
    algorithm, params = example(name).speculative(temperature=1.0, vocab_size=V)
    flatter = jax.tree.map(lambda x: 0.6 * x, params["target"])
    params = {"target": params["target"], "draft": flatter}
    out = generate(
        algorithm,
        params,
        None,
        jnp.tile(prompt, (rows, 1)),
        jax.random.key(0),
        max_new_tokens=2,
    )
    target, draft = (
        law_of_two(algorithm.target, params[who], prompt) for who in ("target", "draft")
    )
    assert chi_square_pvalue(out.tokens, target) > P_VALUE
    assert chi_square_pvalue(out.tokens, draft) < P_VALUE
