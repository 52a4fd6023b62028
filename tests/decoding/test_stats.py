"""Statistics: the names and what they count."""

import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import Statistics


def after(steps, gamma=3, rows=1):
    """Statistics of (drafted, accepted) steps, each emitting one token more."""
    stats = Statistics.zeros(rows, gamma)
    for drafted, accepted in steps:
        drafted, accepted = jnp.full(rows, drafted), jnp.full(rows, accepted)
        stats = stats.add(drafted, accepted, accepted + 1, jnp.zeros(rows, bool))
    return stats


def test_known_values():
    """BEHAVIOURS 35: accepted counts (3, 0, 1) at gamma 3."""
    stats = after([(3, 3), (3, 0), (3, 1)])
    assert stats.accepted_per_drafted == pytest.approx(4 / 9)
    assert stats.tokens_per_target_run == pytest.approx(7 / 3)
    np.testing.assert_allclose(stats.acceptance_by_position, [2 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(
        stats.conditional_acceptance_by_position, [2 / 3, 1 / 2, 1]
    )
    assert (stats.steps, stats.emitted, stats.drafted, stats.accepted) == (3, 7, 9, 4)
    assert stats.steps_without_drafts == 0


def test_every_name_is_defined():
    """BEHAVIOURS 35, last sentence: each public name is in the docstring."""
    names = [
        name
        for name, value in vars(Statistics).items()
        if isinstance(value, property) and not name.startswith("_")
    ]
    assert len(names) == 10
    for name in names:
        assert f"\n    {name}: " in Statistics.__doc__


def test_ragged_proposals():
    """A position counts where it was drafted."""
    stats = after([(3, 1), (1, 1), (0, 0), (2, 2)])
    np.testing.assert_allclose(stats.acceptance_by_position, [1, 1 / 2, 0])
    conditional = stats.conditional_acceptance_by_position
    np.testing.assert_allclose(conditional[:2], [1, 1 / 2])
    assert np.isnan(conditional[2])  # no step kept two of three
    assert stats.steps_without_drafts == 1


def test_rows():
    rows = jnp.arange(2)
    stats = Statistics.zeros(2, 1).add(rows, rows, rows + 1, rows == 1)
    assert (stats.row(0).accepted, stats.row(1).accepted) == (0, 1)
    assert (stats.row(0).emitted, stats.row(1).residual_fallbacks) == (1, 1)
    assert stats.steps == 2


def test_rows_that_emit_nothing_are_not_counted():
    zero = jnp.zeros(1, jnp.int32)
    assert Statistics.zeros(1, 2).add(zero, zero, zero, zero > 0).steps == 0


def test_no_steps_have_no_rates():
    stats = Statistics.zeros(1, 2)
    assert np.isnan(stats.tokens_per_target_run)
    assert np.isnan(stats.accepted_per_drafted)
    assert np.isnan(stats.acceptance_by_position).all()
