"""Block, lenient and recursive rules by enumeration; the token rule beside them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import (
    BlockRule,
    LenientRule,
    Proposal,
    SamplingPolicy,
    TokenRule,
    verify,
)
from spec_jax.core.branches import RecursiveRule
from spec_jax.core.verification import verify_lenient
from spec_jax.testing.enumeration import (
    chain_law,
    emitted_law,
    emitted_law_of_branches,
    expected_tokens,
)
from spec_jax.testing.tables import table_law

P = jnp.array([0.5, 0.3, 0.2])
Q = jnp.array([0.2, 0.3, 0.5])
PREFIX = (1, 0)


def toy(p, q):
    """p and q that do not depend on the prefix."""
    return (lambda prefix: np.asarray(p)), (lambda prefix: np.asarray(q))


def laws(seed, vocab_size, scale=2.0):
    """A random target and draft, by tables."""
    shape = (2, vocab_size, vocab_size, vocab_size)
    tables = jax.random.normal(jax.random.key(seed), shape) * scale
    return [table_law(table, SamplingPolicy()) for table in tables]


@pytest.mark.parametrize("gamma", [1, 2, 3, 4])
@pytest.mark.parametrize("vocab_size", [2, 3, 4])
def test_block_never_emits_fewer_tokens(gamma, vocab_size):
    """Sun et al. 2024, theorem 2; equal at gamma 1, more somewhere else."""
    gains = []
    for seed in range(8 if gamma < 4 else 2):
        p, q = laws(seed, vocab_size)
        block, token = (
            expected_tokens(rule, p, q, PREFIX, gamma)
            for rule in (BlockRule(), TokenRule())
        )
        gains.append(block - token)
    assert min(gains) > -1e-6
    assert max(gains) > 0.01 if gamma > 1 else max(gains) < 1e-6


@pytest.mark.parametrize("rule", [TokenRule(), BlockRule()], ids=str)
def test_a_draft_may_end_after_any_token_it_keeps(rule):
    """BEHAVIOURS 7: stopping by what was drafted so far changes no law."""
    p, q = laws(5, 3)
    stop = lambda draft: draft[-1] == 1 or draft[:2] == [0, 0]  # noqa: E731
    law = emitted_law(rule, p, q, PREFIX, 3, stop)
    np.testing.assert_allclose(law, chain_law(p, PREFIX, 4), atol=1e-6)


@pytest.mark.parametrize("rule", [TokenRule(), BlockRule()], ids=str)
def test_equal_distributions_are_always_accepted(rule):
    """BEHAVIOURS 9: p == q, also with zeros, is neither rejected nor NaN."""
    p = jnp.array([[0.0, 0.7, 0.3]] * 4)
    accept = rule.accept_law(jnp.array([1, 2, 1]), p[:3], p)
    np.testing.assert_array_equal(accept, [0, 0, 0, 1])
    for accepted in range(4):
        following = rule.next_law(jnp.array([1, 2, 1]), p[:3], p, jnp.int32(accepted))
        np.testing.assert_allclose(following, p[0], atol=1e-6)


@pytest.mark.parametrize("rule", [TokenRule(), BlockRule(), LenientRule(0.3)], ids=str)
@pytest.mark.parametrize("impossible", ["p", "q"])
def test_an_impossible_token_ends_the_block(rule, impossible):
    """BEHAVIOURS 8: p(x) = 0 or q(x) = 0 has acceptance exactly 0, and what follows."""
    p, q = jnp.tile(P, (4, 1)), jnp.tile(Q, (3, 1))
    zero = jnp.array([0.0, 0.5, 0.5])
    if impossible == "p":
        p = p.at[1].set(zero)
    else:
        q = q.at[1].set(zero)
    accept = rule.accept_law(jnp.array([1, 0, 1]), q, p)
    np.testing.assert_array_equal(accept[2:], [0, 0])
    assert float(accept.sum()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("rule", [TokenRule(), BlockRule()], ids=str)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_short_proposal_is_a_short_block(rule, count):
    """Past the end q is zero: the laws are those of gamma = count."""
    p, q = jnp.stack([P, Q, P, Q]), jnp.stack([Q, P, Q])
    tokens = jnp.array([0, 2, 1])
    ended = jnp.where(jnp.arange(3)[:, None] < count, q, 0.0)
    accept = rule.accept_law(tokens, ended, p)
    if count:
        want = rule.accept_law(tokens[:count], q[:count], p[: count + 1])
        np.testing.assert_allclose(accept[: count + 1], want, atol=1e-6)
    np.testing.assert_array_equal(accept[count + 1 :], jnp.zeros(3 - count))
    following = rule.next_law(tokens, ended, p, jnp.int32(count))
    np.testing.assert_allclose(following, p[count], atol=1e-6)


def test_lenience():
    """BEHAVIOURS 11: l = .5 accepts .9, emits (.3, .3, .4), nothing beyond p / l."""
    rule = LenientRule(0.5)
    law = emitted_law(rule, *toy(P, Q), (0,), 1).sum(1)
    np.testing.assert_allclose(law, [0.3, 0.3, 0.4], atol=1e-6)
    assert expected_tokens(rule, *toy(P, Q), (0,), 1) == pytest.approx(1.9)
    assert (law <= np.asarray(P) / 0.5 + 1e-6).all()
    assert not rule.lossless and TokenRule().lossless and BlockRule().lossless


@pytest.mark.parametrize("lenience", [0.2, 0.6])
def test_no_token_exceeds_p_over_l(lenience):
    """BEHAVIOURS 11, for random laws and blocks: at every position of a step."""
    for seed in range(5):
        p, q = laws(seed, 3)
        law = emitted_law(LenientRule(lenience), p, q, PREFIX, 2)
        bound, mass = chain_law(p, PREFIX, 3), law
        for tokens in (3, 2, 1):  # each conditional is at most p / l
            context = mass.sum(-1, keepdims=True)
            conditional = mass / context
            own = bound / bound.sum(-1, keepdims=True)
            assert (conditional <= own / lenience + 1e-5).all(), tokens
            mass, bound = mass.sum(-1), bound.sum(-1)


def test_full_lenience_is_the_token_rule():
    p, q = laws(1, 3)
    law = emitted_law(LenientRule(1.0), p, q, PREFIX, 2)
    np.testing.assert_allclose(law, chain_law(p, PREFIX, 3), atol=1e-6)


def test_lenience_at_temperature_zero():
    """A.5: a token stands where p(x) >= l max p; then the likeliest follows."""
    soft = jnp.array([[[0.5, 0.3, 0.2], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3]]] * 3)
    tokens = jnp.array([[1, 1], [1, 2], [2, 2]])
    proposal = Proposal(tokens, None, jnp.full(3, 2))
    verdict = verify_lenient(LenientRule(0.6), proposal, soft, soft.argmax(-1))
    np.testing.assert_array_equal(verdict.accepted, [1, 2, 0])
    np.testing.assert_array_equal(verdict.token, [2, 1, 0])
    strict = verify_lenient(LenientRule(1.0), proposal, soft, soft.argmax(-1))
    np.testing.assert_array_equal(strict.accepted, [0, 0, 0])
    short = Proposal(tokens, None, jnp.array([2, 1, 0]))
    cut = verify_lenient(LenientRule(0.6), short, soft, soft.argmax(-1))
    np.testing.assert_array_equal(cut.accepted, [1, 1, 0])


@pytest.mark.parametrize("lenience", [0.0, -1.0, 1.1, float("nan")])
def test_wrong_lenience_raises(lenience):
    with pytest.raises(ValueError, match=r"lenience in \(0, 1\]"):
        LenientRule(lenience)


@pytest.mark.parametrize("vocab_size", [2, 3, 4])
@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("branches", [1, 2, 3])
def test_branches_are_exact(vocab_size, gamma, branches):
    """Every ordered draw of all branches; more branches than tokens are not drawn."""
    if branches > vocab_size:
        with pytest.raises(ValueError, match="branches"):
            emitted_law_of_branches(
                RecursiveRule(), *laws(0, vocab_size), PREFIX, gamma, branches
            )
        return
    if branches == 3 and gamma == 3:
        vocab_size = 3  # of 4 tokens there would be 98,304 draws
    p, q = laws(10 * gamma + branches, vocab_size)
    law = emitted_law_of_branches(RecursiveRule(), p, q, PREFIX, gamma, branches)
    np.testing.assert_allclose(law, chain_law(p, PREFIX, gamma + 1), atol=1e-6)


def test_first_token_acceptance_of_branches():
    """.7, .82 and 1 for one, two and three branches drawn from (1/2, 3/10, 1/5)."""
    for branches, want in ((1, 0.7), (2, 0.82), (3, 1.0)):
        accepted = 0.0
        for first in np.ndindex(*(3,) * branches):
            if len(set(first)) < branches:
                continue
            mass, left = 1.0, 1.0
            for token in first:
                mass, left = mass * float(P[token]) / left, left - float(P[token])
            law = RecursiveRule().accept_law(
                jnp.array(first)[:, None],
                jnp.tile(P, (branches, 1, 1)),
                jnp.tile(Q, (branches, 2, 1)),
            )
            assert float(law.sum()) == pytest.approx(1, abs=1e-6)
            accepted += mass * float(law[:, 1].sum())
        assert accepted == pytest.approx(want, abs=1e-6)


def test_branches_with_a_planted_fault():
    """Power: first tokens judged as if each had been drawn from the whole q."""
    from spec_jax.core import branches

    class WithReplacement(RecursiveRule):
        def accept_law(self, tokens, q, p):
            honest = branches.without_replacement
            branches.without_replacement = lambda tokens, q: [q] * len(tokens)
            try:
                return super().accept_law(tokens, q, p)
            finally:
                branches.without_replacement = honest

    errors = []
    for seed in range(6):  # it shows where p exceeds q for two tokens
        p, q = laws(seed, 3)
        law = emitted_law_of_branches(WithReplacement(), p, q, PREFIX, 1, 2)
        errors.append(np.abs(law - chain_law(p, PREFIX, 2)).max())
    assert max(errors) > 1e-2


@pytest.mark.parametrize("rule", [BlockRule(), LenientRule(0.5)], ids=str)
def test_drawing_follows_the_laws(rule):
    """verify draws counts and tokens of these rules as their laws say."""
    rows, gamma = 40_000, 2
    tokens = jnp.array([2, 1])
    p, q = jnp.stack([P, Q, P]), jnp.stack([Q, P])
    proposal = Proposal(
        jnp.tile(tokens, (rows, 1)), jnp.tile(q, (rows, 1, 1)), jnp.full(rows, gamma)
    )
    keys = jax.random.split(jax.random.key(1), rows)
    verdict = verify(rule, keys, proposal, jnp.tile(p, (rows, 1, 1)))
    accept = rule.accept_law(tokens, q, p)
    for count in range(gamma + 1):
        following = np.asarray(
            rule.next_law(tokens, q, p, jnp.int32(count)), np.float64
        )
        for token in range(3):
            want = float(accept[count]) * following[token]
            hits = (verdict.accepted == count) & (verdict.token == token)
            error = abs(float(hits.mean()) - want)
            assert error <= 5 * np.sqrt(want * (1 - want) / rows) + 1e-9
