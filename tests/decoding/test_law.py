"""The whole loop against the exact law: caches, positions, commit and draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import Autoregressive, ModelDraft, SamplingPolicy, Speculative, generate
from spec_jax.testing.enumeration import chain_law
from spec_jax.testing.statistics import chi_square_pvalue
from spec_jax.testing.tables import TableDecoder, table_law

V = 3
DECODER = TableDecoder(V)
TARGET, DRAFT = jax.random.normal(jax.random.key(20221130), (2, V, V, V)) * 1.5
PARAMS = {"target": TARGET, "draft": DRAFT}
PROMPT = (2, 1)
SIGNIFICANCE = 1e-6


def sampled(algorithm, rows, *, sampling=None, batch=50_000, seed=5):
    """Four tokens of many rows, in batches of one compiled shape."""
    prompt = np.tile(PROMPT, (batch, 1))
    return np.concatenate(
        [
            generate(
                algorithm,
                PARAMS,
                None,
                prompt,
                jax.random.fold_in(jax.random.key(seed), i),
                max_new_tokens=4,
                sampling=sampling,
            ).tokens
            for i in range(rows // batch)
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "draft", "gamma"),
    [
        ({}, {}, 1),
        ({}, {"temperature": 0.0}, 2),
        ({}, {"top_k": 2}, 3),
        ({"temperature": 0.5, "top_k": 2}, {}, 3),
        ({"temperature": 2.0, "top_p": 0.7}, {"temperature": 2.0, "top_p": 0.7}, 3),
    ],
    ids=str,
)
def test_joint_law_of_four_tokens(target, draft, gamma):
    """BEHAVIOURS 1: 200,000 rows; any policy of the draft is lawful."""
    policy = SamplingPolicy(**target)
    drafter = ModelDraft(DECODER, SamplingPolicy(**draft), gamma)
    algorithm = Speculative(DECODER, drafter, policy, eos_id=None)
    law = chain_law(table_law(TARGET, policy), PROMPT, 4)
    assert chi_square_pvalue(sampled(algorithm, 200_000), law) > SIGNIFICANCE


@pytest.mark.slow
def test_joint_law_of_plain_decoding():
    policy = SamplingPolicy(min_p=0.1)
    algorithm = Autoregressive(DECODER, policy, eos_id=None)
    law = chain_law(table_law(TARGET, policy), PROMPT, 4)
    assert chi_square_pvalue(sampled(algorithm, 200_000), law) > SIGNIFICANCE


@pytest.mark.slow
def test_joint_law_of_rows_with_their_own_temperatures():
    """One batch, half of its rows at T = 2, some at T = 0."""
    policy = SamplingPolicy()
    algorithm = Speculative(
        DECODER, ModelDraft(DECODER, policy, 2), policy, eos_id=None
    )
    batch = 50_000
    temperature = np.resize([2.0, 0.5, 2.0, 0.0], batch)
    tokens = sampled(
        algorithm, 200_000, sampling={"temperature": temperature}, batch=batch
    )
    temperature = np.tile(temperature, 4)
    for value in (2.0, 0.5, 0.0):
        p = table_law(TARGET, SamplingPolicy(temperature=value))
        law = chain_law(p, PROMPT, 4)
        pvalue = chi_square_pvalue(tokens[temperature == value], law)
        assert pvalue > SIGNIFICANCE


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_banned_token_is_never_emitted(temperature):
    """BEHAVIOURS 16: not accepted, not as correction, not as bonus."""
    policy = SamplingPolicy(temperature=temperature, banned=(1,))
    draft = ModelDraft(DECODER, SamplingPolicy(), 3)  # goes on proposing it
    algorithm = Speculative(DECODER, draft, policy, eos_id=None)
    tokens = sampled(algorithm, 20_000, batch=20_000)
    law = chain_law(table_law(TARGET, policy), PROMPT, 4)
    assert not (tokens == 1).any()
    assert chi_square_pvalue(tokens, law) > SIGNIFICANCE


def test_filters_are_the_same_in_both_algorithms():
    """BEHAVIOURS 12: whatever is emitted had (.7311, .2689, 0)."""
    policy = SamplingPolicy(temperature=2.0, top_p=0.8)
    draft = ModelDraft(DECODER, SamplingPolicy(), 2)
    table = jnp.broadcast_to(jnp.array([3.0, 1.0, 0.0]), (V, V, V))
    for algorithm in (
        Speculative(DECODER, draft, policy, eos_id=None, logprobs=True),
        Autoregressive(DECODER, policy, eos_id=None, logprobs=True),
    ):
        out = generate(
            algorithm,
            {"target": table, "draft": DRAFT},
            None,
            np.tile(PROMPT, (5_000, 1)),
            jax.random.key(3),
            max_new_tokens=4,
        )
        law = np.array([0.7311, 0.2689, 0.0])
        had = np.exp(out.policy_logprobs)
        np.testing.assert_allclose(had, law[np.asarray(out.tokens)], atol=1e-4)
        samples = np.asarray(out.tokens).reshape(-1, 1)
        assert chi_square_pvalue(samples, law) > SIGNIFICANCE


def test_acceptance_is_what_theory_says():
    """The first drafted token of a step is accepted with probability beta."""
    policy = SamplingPolicy()
    algorithm = Speculative(
        DECODER, ModelDraft(DECODER, policy, 1), policy, eos_id=None
    )
    rows = 50_000
    out = generate(
        algorithm,
        PARAMS,
        None,
        np.tile(PROMPT, (rows, 1)),
        jax.random.key(1),
        max_new_tokens=2,
    )
    p, q = (table_law(table, policy)(PROMPT) for table in (TARGET, DRAFT))
    beta = np.minimum(p, q).sum()
    first = out.stats.histogram[:, 1, 1] > 0  # of the one or two steps, the first
    error = abs(float(first.mean()) - beta) / np.sqrt(beta * (1 - beta) / rows)
    assert error < 5


def test_log_probabilities():
    """BEHAVIOURS 36: of accepted, correction and bonus tokens, raw and after."""
    policy = SamplingPolicy(temperature=0.7, top_k=2)
    draft = ModelDraft(DECODER, SamplingPolicy(), 2)
    raw, after = (table_law(TARGET, x) for x in (SamplingPolicy(), policy))
    for algorithm in (
        Speculative(DECODER, draft, policy, eos_id=0, logprobs=True),
        Autoregressive(DECODER, policy, eos_id=0, logprobs=True),
    ):
        out = generate(
            algorithm,
            PARAMS,
            None,
            np.tile(PROMPT, (64, 1)),
            jax.random.key(2),
            max_new_tokens=9,
        )
        lengths = np.asarray(out.lengths)
        assert lengths.min() < 9 and lengths.max() == 9
        for i in range(64):
            prefix = list(PROMPT)
            for j, token in enumerate(np.asarray(out.tokens[i, : lengths[i]]).tolist()):
                for law, values in ((raw, out.logprobs), (after, out.policy_logprobs)):
                    want = np.log(law(prefix)[token])
                    assert float(values[i, j]) == pytest.approx(want, abs=1e-5)
                prefix.append(token)
            assert not np.asarray(out.logprobs[i, lengths[i] :]).any()
            assert not np.asarray(out.policy_logprobs[i, lengths[i] :]).any()


def test_greedy_log_probabilities():
    """BEHAVIOURS 36 at T = 0: raw ones as ever, certain after the policy."""
    policy = SamplingPolicy(temperature=0.0)
    draft = ModelDraft(DECODER, policy, 2)
    algorithm = Speculative(DECODER, draft, policy, eos_id=None, logprobs=True)
    out = generate(
        algorithm, PARAMS, None, np.array([PROMPT]), jax.random.key(0), max_new_tokens=5
    )
    raw, prefix = table_law(TARGET, SamplingPolicy()), list(PROMPT)
    for token, value in zip(out.tokens[0].tolist(), out.logprobs[0].tolist()):
        assert value == pytest.approx(np.log(raw(prefix)[token]), abs=1e-5)
        prefix.append(token)
    np.testing.assert_array_equal(out.policy_logprobs, jnp.zeros((1, 5)))


def test_no_log_probabilities_unless_asked_for():
    algorithm = Autoregressive(DECODER, SamplingPolicy(), eos_id=None)
    out = generate(
        algorithm, PARAMS, None, np.array([PROMPT]), jax.random.key(0), max_new_tokens=2
    )
    assert out.logprobs is None and out.policy_logprobs is None
