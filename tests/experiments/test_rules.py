"""Expected tokens by other rules on real drafts: against enumeration and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import BlockRule, ModelDraft, SamplingPolicy, Speculative, TokenRule
from spec_jax.experiments.inputs import Input, InputBatch
from spec_jax.experiments.rules import block_gains, branch_gains
from spec_jax.testing.enumeration import expected_tokens
from spec_jax.testing.tables import TableDecoder, table_law

V, GAMMA, ROWS = 3, 3, 4_000
DECODER = TableDecoder(V)
TARGET, DRAFT = jax.random.normal(jax.random.key(3), (2, V, V, V)) * 1.5


def batch(limit):
    """Rows of one prompt; a table has no inputs, whose shape alone is read."""
    return InputBatch(
        members=tuple(Input(i, (1,)) for i in range(ROWS)),
        inputs=jnp.zeros((ROWS, 2), jnp.int32),
        prompt=jnp.full((ROWS, 1), 2),
        keys=jax.random.split(jax.random.key(5), ROWS),
        limits=np.full(ROWS, limit),
        max_new_tokens=limit,
    )


def test_block_gains_are_the_enumerated_ones():
    """Of the first step: rows run only until gamma tokens would pass their limit."""
    policy = SamplingPolicy()
    algorithm = Speculative(
        DECODER, ModelDraft(DECODER, policy, GAMMA), policy, eos_id=None
    )
    params = {"target": TARGET, "draft": DRAFT}
    gains = block_gains(algorithm, params, [batch(GAMMA + 1)], "toy")
    p, q = (table_law(table, policy) for table in (TARGET, DRAFT))
    assert [gain.gamma for gain in gains] == [1, 2, 3]
    for gain in gains:
        assert gain.steps == ROWS and gain.task == "toy"
        for rule, found in ((TokenRule(), gain.token), (BlockRule(), gain.block)):
            want = expected_tokens(rule, p, q, (2,), gain.gamma)
            assert found == pytest.approx(want, abs=0.06)
        assert gain.gain == gain.block / gain.token
        assert gain.block - gain.token > -5 * gain.stderr - 1e-6
        assert type(gain).from_json(gain.to_json()) == gain
    assert gains[0].block == pytest.approx(gains[0].token, abs=1e-5)
    assert gains[2].stderr > 0


def test_branch_gains():
    """.7, .82 and 1: a draft of (1/2, 3/10, 1/5) for a target of (1/5, 3/10, 1/2)."""
    q, p = (np.tile(x, (20_000, 1)) for x in ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]))
    gains = branch_gains(
        p, q, 0.5, task="toy", temperature=1.0, gamma=3, costs=[1.5, 2.0, 4.0], seed=1
    )
    assert [gain.branches for gain in gains] == [1, 2, 3]
    for gain, want in zip(gains, (0.7, 0.82, 1.0)):
        assert gain.first == pytest.approx(want, abs=0.01)
        assert gain.tokens == pytest.approx(1 + gain.first * 1.75)
    assert [gain.cost for gain in gains] == [1.5, 2.0, 4.0]
    assert gains[2].speed == gains[2].tokens / 4.0


def test_branch_gains_at_temperature_zero():
    """The likeliest k drafted tokens hold the target's choice, or they do not."""
    p = np.eye(4)[[0, 1, 2, 3]]
    q = np.tile([0.4, 0.3, 0.2, 0.1], (4, 1))
    gains = branch_gains(
        p, q, 0.5, task="toy", temperature=0.0, gamma=2, costs=[1.0] * 4
    )
    assert [gain.first for gain in gains] == [0.25, 0.5, 0.75, 1.0]
