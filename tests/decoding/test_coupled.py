"""CoupledRule: the output is plain decoding's with the same noise, token for token."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import (
    Autoregressive,
    CoupledRule,
    ModelDraft,
    SamplingPolicy,
    Speculative,
    TokenRule,
    generate,
)
from spec_jax.core import theory
from spec_jax.testing.enumeration import chain_law
from spec_jax.testing.statistics import chi_square_pvalue
from spec_jax.testing.tables import TableDecoder, table_law

V = 5
DECODER = TableDecoder(V)
TABLES = jax.random.normal(jax.random.key(7), (2, V, V, V)) * 1.5
PARAMS = {"target": TABLES[0], "draft": TABLES[0] + 0.5 * TABLES[1]}
PERFECT = {"target": TABLES[0], "draft": TABLES[0]}
PROMPTS = np.array([[0, 1, 2, 3], [4, 2, 0, 0], [1, 0, 0, 0], [2, 2, 3, 0]] * 8)
LENGTHS = np.array([4, 2, 1, 3] * 8)
KEY = jax.random.key(3)


def coupled(policy, gamma, draft_policy=None, **fields):
    draft = ModelDraft(DECODER, draft_policy or policy, gamma, noise="gumbel")
    fields = {"eos_id": None} | fields
    return Speculative(DECODER, draft, policy, CoupledRule(), **fields)


def plain(policy, **fields):
    fields = {"eos_id": None} | fields
    return Autoregressive(DECODER, policy, noise="gumbel", **fields)


def run(algorithm, params=PARAMS, key=KEY, n=24, **options):
    return generate(
        algorithm,
        params,
        None,
        PROMPTS,
        key,
        max_new_tokens=n,
        prompt_length=LENGTHS,
        **options,
    )


@pytest.mark.parametrize("gamma", range(1, 9))
@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0, 2.0])
def test_equals_plain_sampling(gamma, temperature):
    """BEHAVIOURS 10: any temperature, any gamma, ragged rows."""
    policy = SamplingPolicy(temperature=temperature)
    want, out = run(plain(policy)), run(coupled(policy, gamma))
    np.testing.assert_array_equal(out.tokens, want.tokens)
    assert 0 < out.stats.accepted < out.stats.drafted


@pytest.mark.parametrize(
    "draft",
    [{"temperature": 0.0}, {"temperature": 2.0}, {"top_k": 2}, {"banned": (1, 2)}],
    ids=str,
)
def test_for_any_draft(draft):
    """BEHAVIOURS 10: what the draft draws from decides the speed alone."""
    policy = SamplingPolicy(temperature=0.8, top_p=0.9)
    want = run(plain(policy))
    out = run(coupled(policy, 3, SamplingPolicy(**draft)))
    np.testing.assert_array_equal(out.tokens, want.tokens)


def test_rows_of_different_temperatures():
    """Greedy rows among others, with a penalty and a bias for each row."""
    rows = {
        "temperature": np.resize([0.0, 0.5, 1.0, 2.0], 32),
        "repetition_penalty": np.resize([1.0, 1.5], 32),
        "logit_bias": np.resize([0.5, 0, 0, -1.0, 0], (32, V)),
    }
    policy = SamplingPolicy()
    want, out = (
        run(plain(policy), sampling=rows),
        run(coupled(policy, 3), sampling=rows),
    )
    np.testing.assert_array_equal(out.tokens, want.tokens)
    assert 0 < out.stats.accepted < out.stats.drafted


def test_ends_and_log_probabilities():
    """EOS, stop sequences and both kinds of log-probabilities are plain decoding's."""
    policy = SamplingPolicy(temperature=0.9, logit_bias={0: -2.5})
    fields = {"eos_id": 0, "stop": ((2, 3), (4, 4, 1)), "logprobs": True}
    want, out = run(plain(policy, **fields)), run(coupled(policy, 4, **fields))
    assert len(np.unique(want.stop_reason)) == 3
    for name in ("tokens", "lengths", "stop_reason"):
        np.testing.assert_array_equal(getattr(out, name), getattr(want, name))
    for name in ("logprobs", "policy_logprobs"):
        np.testing.assert_allclose(getattr(out, name), getattr(want, name), atol=1e-5)


def test_a_perfect_draft_is_always_accepted():
    policy = SamplingPolicy(temperature=1.0)
    out = run(coupled(policy, 3), PERFECT)
    assert out.stats.accepted_per_drafted == 1
    assert out.stats.steps == 6 * 32


def test_acceptance_is_what_theory_says():
    """Of the first drafted token: theory.coupled_rate, below beta."""
    policy, rows = SamplingPolicy(), 40_000
    out = generate(
        coupled(policy, 1),
        PARAMS,
        None,
        np.tile([[2, 1]], (rows, 1)),
        KEY,
        max_new_tokens=2,
    )
    p, q = (table_law(PARAMS[x], policy)((2, 1)) for x in ("target", "draft"))
    want = theory.coupled_rate(p, q)
    got = float((out.stats.histogram[:, 1, 1] > 0).mean())
    assert abs(got - want) < 5 * np.sqrt(want * (1 - want) / rows)
    assert want < theory.acceptance_rate(p, q)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", "coupled"])
def test_joint_law_of_four_tokens(way):
    """With Gumbel noise the output follows the target as well."""
    policy = SamplingPolicy(temperature=1.3, top_k=4)
    algorithm = plain(policy) if way == "plain" else coupled(policy, 3)
    tokens = [
        generate(
            algorithm,
            PARAMS,
            None,
            np.tile([[2, 1]], (50_000, 1)),
            jax.random.fold_in(KEY, i),
            max_new_tokens=4,
        ).tokens
        for i in range(4)
    ]
    law = chain_law(table_law(PARAMS["target"], policy), (2, 1), 4)
    assert chi_square_pvalue(np.concatenate(tokens), law) > 1e-6


def test_noise_that_does_not_fit_raises():
    policy = SamplingPolicy()
    uniform = ModelDraft(DECODER, policy, 2)
    gumbel = ModelDraft(DECODER, policy, 2, noise="gumbel")
    with pytest.raises(ValueError, match="noise='gumbel' under CoupledRule"):
        Speculative(DECODER, uniform, policy, CoupledRule())
    with pytest.raises(ValueError, match="noise='uniform' under TokenRule"):
        Speculative(DECODER, gumbel, policy, TokenRule())


@pytest.mark.skipif(
    hasattr(SamplingPolicy.probs, "__wrapped__"),
    reason="checked annotations refuse these first",
)
def test_unknown_noise_raises():
    for make in (
        lambda: ModelDraft(DECODER, SamplingPolicy(), 2, noise="normal"),
        lambda: Autoregressive(DECODER, SamplingPolicy(), noise=None),
    ):
        with pytest.raises(ValueError, match="'uniform' or 'gumbel'"):
            make()


def test_no_noise_at_temperature_zero():
    """Where the policy is greedy no random number is compiled in."""
    policy = SamplingPolicy(temperature=0.0)
    algorithm = coupled(policy, 2)
    state = algorithm.init(
        PARAMS, None, jnp.array([[1]]), jnp.array([1]), KEY, jnp.array([8]), 9
    )
    step = str(jax.make_jaxpr(lambda s: algorithm.step(PARAMS, s))(state))
    assert "threefry2x32" not in step and "random_bits" not in step
    drawn = coupled(SamplingPolicy(), 2)
    assert "random_bits" in str(jax.make_jaxpr(lambda s: drawn.step(PARAMS, s))(state))
