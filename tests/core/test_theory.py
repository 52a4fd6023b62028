"""The paper's closed forms against its printed tables and figures."""

import math

import numpy as np
import pytest

from spec_jax.core import theory

TABLE_1 = [
    # alpha, gamma, operations, speed
    (0.6, 2, 1.53, 1.96),
    (0.7, 3, 1.58, 2.53),
    (0.8, 2, 1.23, 2.44),
    (0.8, 5, 1.63, 3.69),
    (0.9, 2, 1.11, 2.71),
    (0.9, 10, 1.60, 6.86),
]
TABLE_4 = [
    # gamma, alpha, c, expected speed
    (7, 0.75, 0.02, 3.2),
    (7, 0.80, 0.04, 3.3),
    (7, 0.82, 0.11, 2.5),
    (7, 0.62, 0.02, 2.3),
    (5, 0.68, 0.04, 2.4),
    (3, 0.71, 0.11, 2.0),
    (5, 0.65, 0.02, 2.4),
    (5, 0.73, 0.04, 2.6),
    (3, 0.74, 0.11, 2.0),
    (5, 0.53, 0.02, 1.9),
    (3, 0.55, 0.04, 1.8),
    (3, 0.56, 0.11, 1.6),
]
FIGURE_3 = {
    # alpha: the best gamma for c = .01, .02, .05, .1
    0.5: (5, 4, 3, 2),
    0.6: (7, 6, 4, 3),
    0.7: (9, 8, 6, 4),
    0.8: (14, 11, 8, 6),
    0.9: (24, 19, 13, 10),
}


@pytest.mark.parametrize(("alpha", "gamma", "operations", "speed"), TABLE_1)
def test_table_1(alpha, gamma, operations, speed):
    assert theory.operations(alpha, gamma, 0.0) == pytest.approx(operations, abs=0.005)
    assert theory.speedup(alpha, gamma, 0.0) == pytest.approx(speed, abs=0.005)


@pytest.mark.parametrize(("gamma", "alpha", "c", "expected"), TABLE_4)
def test_table_4(gamma, alpha, c, expected):
    """The printed alpha and c are rounded, hence 0.07."""
    assert theory.speedup(alpha, gamma, c) == pytest.approx(expected, abs=0.07)


@pytest.mark.parametrize("alpha", FIGURE_3)
def test_figure_3(alpha):
    costs = (0.01, 0.02, 0.05, 0.1)
    assert tuple(theory.optimal_gamma(alpha, c) for c in costs) == FIGURE_3[alpha]


def test_limits_at_alpha_one():
    assert theory.expected_tokens(1.0, 4) == 5
    assert theory.expected_tokens(1 - 1e-9, 4) == pytest.approx(5)
    assert theory.speedup(1.0, 4, 0.1) == pytest.approx(5 / 1.4)
    assert theory.operations(1.0, 4, 0.1) == pytest.approx(5.4 / 5)
    assert theory.optimal_gamma(1.0, 0.1, max_gamma=32) == 32


def test_other_limits():
    assert theory.expected_tokens(0.0, 7) == 1
    assert theory.expected_tokens(0.8, math.inf) == pytest.approx(5)
    assert theory.expected_tokens(0.3, 0) == pytest.approx(1)
    assert theory.optimal_gamma(0.1, 0.2) == 0  # alpha < c: no draft pays
    with pytest.raises(ValueError, match="alpha"):
        theory.expected_tokens(1.1, 3)
    with pytest.raises(ValueError, match="gamma"):
        theory.expected_tokens(0.5, -1)


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("c", [0.02, 0.1, 0.25])
def test_some_gamma_reaches_the_least_speedup(alpha, c):
    best = theory.speedup(alpha, theory.optimal_gamma(alpha, c), c)
    assert best >= theory.least_speedup(alpha, c) > 1
    assert theory.least_speedup(0.1, 0.2) == 1


def test_measured_verification_cost():
    """tokens / (gamma c + v): what a machine can reach."""
    assert theory.speedup(0.8, 4, 0.1, verify_cost=1.5) == pytest.approx(
        theory.expected_tokens(0.8, 4) / 1.9
    )
    assert theory.optimal_gamma(0.5, 0.05, verify_cost=3.0) == 0


def test_acceptance_rates():
    """TOY: alpha .7; plain rejection sampling accepts min q/p = .4."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    assert theory.acceptance_rate(p, q) == pytest.approx(0.7)
    assert theory.rejection_sampling_rate(p, q) == pytest.approx(0.4)
    with np.errstate(all="raise"):
        assert theory.rejection_sampling_rate(np.array([1.0, 0]), q[:2]) == 0.2


def test_rejection_sampling_is_never_better():
    p, q = np.random.default_rng(0).dirichlet(np.ones(5), (2, 1000))
    worse = theory.rejection_sampling_rate(p, q)
    assert (worse <= theory.acceptance_rate(p, q) + 1e-12).all()


def test_coupled_rate():
    """BEHAVIOURS 10: .6308 on the toy; 1 for equal laws; never more than beta."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    assert theory.coupled_rate(p, q) == pytest.approx(0.6308, abs=5e-5)
    assert theory.coupled_rate(p, p) == pytest.approx(1)
    rows = np.random.default_rng(0).dirichlet(np.ones(5), (2, 50))
    rows[:, :, 0] = 0
    rows /= rows.sum(-1, keepdims=True)
    beta = theory.acceptance_rate(*rows)
    coupled = theory.coupled_rate(*rows)
    assert (coupled <= beta + 1e-12).all() and (coupled > 0.3 * beta).all()
