"""Verification rules by their laws: enumeration and known values, no sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import BlockRule, Proposal, SamplingPolicy, TokenRule, verify
from spec_jax.core import verification
from spec_jax.core.draws import row_keys
from spec_jax.core.rules import residual
from spec_jax.core.verification import verify_choice
from spec_jax.testing.enumeration import (
    chain_law,
    drafted_laws,
    emitted_law,
    expected_tokens,
)
from spec_jax.testing.tables import table_law

P = jnp.array([0.5, 0.3, 0.2])
Q = jnp.array([0.2, 0.3, 0.5])
BELOW_ONE = 1 - 2.0**-23
RULES = [TokenRule(), BlockRule()]
judge = jax.jit(verify, static_argnums=0)


def toy(p, q):
    """p and q that do not depend on the prefix."""
    return (lambda prefix: np.asarray(p)), (lambda prefix: np.asarray(q))


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("vocab_size", [2, 3, 4])
@pytest.mark.parametrize(
    "policies",
    [({}, {}), ({"top_k": 2}, {}), ({"temperature": 0.5}, {"top_p": 0.6})],
    ids=str,
)
def test_a_step_is_exact(rule, gamma, vocab_size, policies):
    """BEHAVIOURS 6: every draft and verdict enumerated equals the chain rule."""
    shape = (2, vocab_size, vocab_size, vocab_size)
    tables = jax.random.normal(jax.random.key(gamma), shape) * 2
    p, q = (
        table_law(table, SamplingPolicy(**fields))
        for table, fields in zip(tables, policies)
    )
    law = emitted_law(rule, p, q, (1, 0), gamma)
    np.testing.assert_allclose(law, chain_law(p, (1, 0), gamma + 1), atol=1e-6)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_toy_marginal(rule):
    """BEHAVIOURS 1: the emitted marginal is p, alpha is .7, the residual (1, 0, 0)."""
    law = emitted_law(rule, *toy(P, Q), (0,), 1)
    np.testing.assert_allclose(law.sum(1), P, atol=1e-6)
    np.testing.assert_allclose(residual(P, Q), [1, 0, 0], atol=1e-6)
    drafts, drawn, q, p = drafted_laws(*toy(P, Q), (0,), 1)
    accept = jax.vmap(rule.accept_law)(drafts, jnp.float32(q), jnp.float32(p))
    assert drawn @ np.asarray(accept)[:, 1] == pytest.approx(0.7, abs=1e-6)


def test_toy_of_wrong_rules():
    """BEHAVIOURS 1: what a wrong rule would give is not what p is."""

    class FromP(TokenRule):
        def next_law(self, tokens, q, p, accepted):
            return p[accepted]

    law = emitted_law(FromP(), *toy(P, Q), (0,), 1)
    np.testing.assert_allclose(law.sum(1), [0.35, 0.39, 0.26], atol=1e-6)
    # Drafts argmax q, reports q: token 2 is drafted always.
    accept = TokenRule().accept_law(jnp.array([2]), jnp.array([Q]), jnp.array([P, P]))
    kept = np.asarray(accept)[1] * np.eye(3)[2]
    wrong = kept + np.asarray(accept)[0] * np.asarray(residual(P, Q))
    np.testing.assert_allclose(wrong, [0.6, 0, 0.4], atol=1e-6)


def test_point_mass():
    """BEHAVIOURS 2: accepted with p(x); the residual is p without x."""
    one_hot = np.array([0, 0, 1], np.float32)
    p, q = np.stack([P, P]), one_hot[None]
    before = p.copy(), q.copy()
    tokens = np.array([2])
    accept = jax.jit(TokenRule().accept_law)(tokens, q, p)
    np.testing.assert_allclose(accept, [0.8, 0.2], atol=1e-6)
    following = jax.jit(TokenRule().next_law)(tokens, q, p, 0)
    np.testing.assert_allclose(following, [0.625, 0.375, 0], atol=1e-6)
    np.testing.assert_array_equal(p, before[0])
    np.testing.assert_array_equal(q, before[1])


def test_missing_probs_are_point_masses():
    """BEHAVIOURS 2: a proposal without probs is one of one-hot rows."""
    tokens = jnp.tile(jnp.array([[2, 0]]), (500, 1))
    count = jnp.full(500, 2)
    p = jnp.tile(jnp.array([[P, P, P]]), (500, 1, 1))
    keys = row_keys(jax.random.key(0), 500)
    dense = Proposal(tokens, jax.nn.one_hot(tokens, 3), count)
    sparse = Proposal(tokens, None, count)
    for a, b in zip(
        jax.tree.leaves(judge(TokenRule(), keys, dense, p)),
        jax.tree.leaves(judge(TokenRule(), keys, sparse, p)),
    ):
        np.testing.assert_array_equal(a, b)


def test_filtered_laws():
    """BEHAVIOURS 3: top-k 2 on both; q is what the token was drawn from."""
    policy = SamplingPolicy(top_k=2)
    p = policy.probs(jnp.array([2, 1.5, 0, -1]))
    q = policy.probs(jnp.array([1, 2, 1.5, 0]))
    np.testing.assert_allclose(p, [0.6225, 0.3775, 0, 0], atol=1e-4)
    assert float(jnp.minimum(p, q).sum()) == pytest.approx(0.3775, abs=1e-4)
    law = emitted_law(TokenRule(), *toy(p, q), (0,), 1)
    np.testing.assert_allclose(law.sum(1), p, atol=1e-6)


def test_matching_accepts_less():
    """BEHAVIOURS 4: drawing from p and comparing accepts only sum p q = .29."""
    accept = [
        TokenRule().accept_law(jnp.array([x]), jnp.array([Q]), jnp.array([P, P]))[1]
        for x in range(3)
    ]
    assert float(Q @ np.array(accept)) == pytest.approx(0.7, abs=1e-6)
    assert float(P @ Q) == pytest.approx(0.29, abs=1e-6)


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        (BlockRule(), (2 / 3, 11 / 9, 5 / 3, 166 / 81)),
        (TokenRule(), (2 / 3, 10 / 9, 38 / 27, 130 / 81)),
    ],
    ids=str,
)
def test_expected_accepted_tokens(rule, want):
    """BEHAVIOURS 5: alpha is 2/3 at every position."""
    p, q = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])
    for gamma, accepted in enumerate(want, 1):
        expected = expected_tokens(rule, *toy(p, q), (0,), gamma)
        assert expected == pytest.approx(accepted + 1, abs=1e-6)


@pytest.mark.parametrize("u", [0.0, BELOW_ONE])
@pytest.mark.parametrize(
    ("p", "q"),
    [([1.0, 0.0], [0.0, 1.0]), ([1.0, 0.0], [1.0, 0.0]), ([1.0, 0.0], [0.5, 0.5])],
)
def test_extreme_uniforms(monkeypatch, u, p, q):
    """BEHAVIOURS 8: token 1 with p = 0 or q = 0 is rejected, and never drawn."""
    monkeypatch.setattr(
        verification, "uniforms", lambda keys, k: jnp.full((*keys.shape, k), u)
    )
    proposal = Proposal(jnp.array([[1]]), jnp.array([[q]]), jnp.array([1]))
    keys = row_keys(jax.random.key(0), 1)
    fresh = jax.jit(lambda *laws: verify(TokenRule(), keys, *laws))
    verdict = fresh(proposal, jnp.array([[p, p]]))
    assert (verdict.accepted[0], verdict.token[0]) == (0, 0)


@pytest.mark.parametrize("u", [0.0, BELOW_ONE])
def test_zero_q_is_rejected(monkeypatch, u):
    """BEHAVIOURS 8: q(x) = 0 for a drafted token, p(x) > 0."""
    monkeypatch.setattr(
        verification, "uniforms", lambda keys, k: jnp.full((*keys.shape, k), u)
    )
    probs = jnp.array([[[1.0, 0.0]]])
    proposal = Proposal(jnp.array([[1]]), probs, jnp.array([1]))
    keys = row_keys(jax.random.key(0), 1)
    p = jnp.array([[[0.5, 0.5]] * 2])
    fresh = jax.jit(lambda *laws: verify(TokenRule(), keys, *laws))
    assert fresh(proposal, p).accepted[0] == 0


def test_empty_residual_falls_back_to_p():
    """BEHAVIOURS 9: p == q, or p below q everywhere by rounding: p, no NaN."""
    np.testing.assert_array_equal(residual(P, P), P)
    np.testing.assert_array_equal(residual(P * (1 - 1e-6), P), P * (1 - 1e-6))
    accept = TokenRule().accept_law(jnp.array([1]), jnp.array([P]), jnp.array([P, P]))
    np.testing.assert_array_equal(accept, [0, 1])

    class Rejecting(TokenRule):
        def accept_law(self, tokens, q, p):
            return jnp.zeros(p.shape[0]).at[0].set(1.0)

    tokens = jnp.array([[1], [1], [1]])
    probs = jnp.array([[P], [P], [Q]])
    keys = row_keys(jax.random.key(0), 3)
    p = jnp.tile(jnp.array([[P, P]]), (3, 1, 1))
    verdict = verify(
        Rejecting(), keys, Proposal(tokens, probs, jnp.array([1, 0, 1])), p
    )
    # The second row proposed nothing, the third has a residual: no fallback.
    np.testing.assert_array_equal(verdict.residual_empty, [True, False, False])


def test_laws_are_distributions():
    """Also for tokens of zero probability and ragged proposals."""
    q = jnp.array([Q, [0, 0, 1], [0, 0, 0]])
    p = jnp.array([P, [1, 0, 0], P, P])
    tokens = jnp.array([0, 2, 1])
    accept = TokenRule().accept_law(tokens, q, p)
    np.testing.assert_allclose(accept, [0, 1, 0, 0], atol=1e-7)
    assert float(accept[2]) == 0 and float(accept[3]) == 0
    for accepted in range(4):
        following = TokenRule().next_law(tokens, q, p, jnp.int32(accepted))
        assert float(following.sum()) == pytest.approx(1, abs=1e-6)
    np.testing.assert_array_equal(TokenRule().next_law(tokens, q, p, jnp.int32(3)), P)


def test_past_the_count_nothing_is_accepted():
    """Even where the draft left positive probabilities there."""
    n = 300
    tokens = jnp.zeros((n, 3), jnp.int32)
    probs = jnp.tile(jnp.array([1.0, 0, 0]), (n, 3, 1))
    count = jnp.arange(n) % 4
    p = jnp.tile(jnp.array([1.0, 0, 0]), (n, 4, 1))
    keys = row_keys(jax.random.key(0), n)
    verdict = judge(TokenRule(), keys, Proposal(tokens, probs, count), p)
    np.testing.assert_array_equal(verdict.accepted, count)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_what_lies_past_the_count_is_not_read(rule, count):
    """NaN logits past the end of a row's proposal change nothing, in law and draw."""
    tokens = jnp.array([[0, 1, 2, 1]])
    probs = jnp.array([[Q, Q, Q, Q]])
    past = jnp.arange(5)[:, None] > count
    p = jnp.where(past, jnp.nan, jnp.tile(P, (5, 1)))[None]
    q = jnp.where(past[1:], 0.0, probs[0])
    np.testing.assert_array_equal(
        jax.jit(rule.accept_law)(tokens[0], q, p[0])[: count + 1],
        jax.jit(rule.accept_law)(tokens[0], q, jnp.nan_to_num(p[0]))[: count + 1],
    )
    for seed in range(20):
        keys = row_keys(jax.random.key(seed), 1)
        proposal = Proposal(tokens, probs, jnp.array([count]))
        verdict = judge(rule, keys, proposal, p)
        clean = judge(rule, keys, proposal, jnp.nan_to_num(p))
        assert verdict.accepted[0] == clean.accepted[0] <= count
        assert verdict.token[0] == clean.token[0] < 3


def test_greedy_verification():
    choice = jnp.array([[5, 6, 7]] * 5)
    tokens = jnp.array([[5, 6], [5, 9], [9, 6], [5, 6], [5, 6]])
    count = jnp.array([2, 2, 2, 1, 0])
    verdict = verify_choice(Proposal(tokens, None, count), choice)
    np.testing.assert_array_equal(verdict.accepted, [2, 1, 0, 1, 0])
    np.testing.assert_array_equal(verdict.token, [7, 6, 5, 6, 5])


def test_greedy_verification_is_the_rule_at_temperature_zero():
    """The shortcut for one-hot p agrees with the law, whatever q is."""
    key, other, third = jax.random.split(jax.random.key(0), 3)
    n, gamma, v = 200, 3, 4
    choice = jax.random.randint(key, (n, gamma + 1), 0, v)
    agree = jax.random.bernoulli(other, 0.7, (n, gamma))
    tokens = jnp.where(agree, choice[:, :-1], (choice[:, :-1] + 1) % v)
    q = jax.nn.softmax(jax.random.normal(third, (n, gamma, v)))
    proposal = Proposal(tokens, q, jnp.arange(n) % (gamma + 1))
    verdict = verify_choice(proposal, choice)
    keys = row_keys(jax.random.key(1), n)
    by_law = judge(TokenRule(), keys, proposal, jax.nn.one_hot(choice, v))
    np.testing.assert_array_equal(verdict.accepted, by_law.accepted)
    np.testing.assert_array_equal(verdict.token, by_law.token)


def test_wrong_shapes_raise():
    keys = row_keys(jax.random.key(0), 1)
    proposal = Proposal(jnp.array([[1]]), jnp.array([[Q]]), jnp.array([1]))
    with pytest.raises(ValueError, match="2 positions, got 1"):
        verify(TokenRule(), keys, proposal, jnp.array([[P]]))
    with pytest.raises(ValueError, match="vocab_limit"):
        verify(TokenRule(), keys, proposal, jnp.full((1, 2, 4), 0.25))
    with pytest.raises(ValueError, match="2 choices"):
        verify_choice(proposal, jnp.array([[1]]))
