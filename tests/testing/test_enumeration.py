"""The enumeration itself: probabilities that sum to one, and are conditional."""

import jax
import numpy as np
import pytest

from spec_jax import BlockRule, LenientRule, SamplingPolicy, TokenRule
from spec_jax.testing.enumeration import (
    chain_law,
    drafted_laws,
    emitted_law,
    loop_law,
)
from spec_jax.testing.tables import table_law

P, Q = (
    table_law(table, SamplingPolicy())
    for table in jax.random.normal(jax.random.key(0), (2, 3, 3, 3))
)


def test_chain_law():
    law = chain_law(P, (1, 2), 3)
    assert law.shape == (3, 3, 3) and law.sum() == pytest.approx(1)
    want = P((1, 2))[0] * P((1, 2, 0))[2] * P((1, 2, 0, 2))[1]
    assert law[0, 2, 1] == pytest.approx(want)
    assert chain_law(P, (1, 2), 0) == 1


def test_drafted_laws():
    drafts, drawn, q, p = drafted_laws(P, Q, (1, 2), 2)
    assert len(np.unique(drafts, axis=0)) == 9 and drawn.sum() == pytest.approx(1)
    row = drafts.tolist().index([2, 0])
    assert drawn[row] == pytest.approx(Q((1, 2))[2] * Q((1, 2, 2))[0])
    np.testing.assert_allclose(q[row], [Q((1, 2)), Q((1, 2, 2))])
    np.testing.assert_allclose(p[row, 2], P((1, 2, 2, 0)))


def test_emitted_law_sees_a_rule_that_accepts_all():
    """Then the output is the draft's, but for the bonus token."""

    class Credulous(TokenRule):
        def accept_law(self, tokens, q, p):
            return np.eye(3, dtype=np.float32)[2]

    law = emitted_law(Credulous(), P, Q, (1, 2), 2)
    np.testing.assert_allclose(law.sum(2), chain_law(Q, (1, 2), 2), atol=1e-6)
    assert law.sum() == pytest.approx(1, abs=1e-6)
    assert np.abs(law - chain_law(P, (1, 2), 3)).max() > 0.01


@pytest.mark.parametrize("rule", [TokenRule(), BlockRule()], ids=str)
@pytest.mark.parametrize("gamma", [1, 2, 5])
def test_a_loop_of_lossless_steps(rule, gamma):
    law = loop_law(rule, P, Q, (1, 2), gamma, 4)
    np.testing.assert_allclose(law, chain_law(P, (1, 2), 4), atol=1e-6)


def test_a_loop_of_lossy_steps():
    """A law still, but not the target's; one token alone is drawn from p."""
    law = loop_law(LenientRule(0.4), P, Q, (1, 2), 2, 4)
    assert law.sum() == pytest.approx(1, abs=1e-6)
    assert np.abs(law - chain_law(P, (1, 2), 4)).max() > 1e-3
    np.testing.assert_array_equal(
        loop_law(LenientRule(0.4), P, Q, (1, 2), 2, 1), P((1, 2))
    )
