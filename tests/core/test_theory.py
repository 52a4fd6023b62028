"""The paper's closed forms against its printed tables and figures."""

import math

import numpy as np
import pytest

from spec_jax.core import paper, theory


@pytest.mark.parametrize("row", paper.TABLE_1, ids=str)
def test_table_1(row):
    """To the printed digits, c being 0."""
    operations = theory.operations(row.alpha, row.gamma, 0.0)
    assert f"{operations:.2f}" == f"{row.operations:.2f}"
    speed = theory.speedup(row.alpha, row.gamma, 0.0)
    assert f"{speed:.2f}" == f"{row.speed:.2f}"


@pytest.mark.parametrize("row", paper.TABLE_2, ids=str)
def test_table_4(row):
    """The printed alpha and c are rounded, hence 0.07."""
    speed = theory.speedup(row.alpha, row.gamma, row.c)
    assert speed == pytest.approx(row.expected, abs=0.07)


@pytest.mark.parametrize("row", paper.FIGURE_3, ids=str)
def test_figure_3(row):
    """The steps of the curves at the values of alpha that were read off."""
    best = [theory.optimal_gamma(row.alpha, c) for c in paper.FIGURE_3_COSTS]
    assert tuple(best) == row.gammas


@pytest.mark.parametrize("c", paper.FIGURE_3_COSTS)
def test_the_curves_of_figure_3_rise(c):
    """A better draft is worth more tokens; a dearer one fewer."""
    alphas = np.linspace(0.05, 0.95, 19)
    best = [theory.optimal_gamma(alpha, c) for alpha in alphas]
    assert best == sorted(best)
    dearer = [theory.optimal_gamma(alpha, 2 * c) for alpha in alphas]
    assert all(one >= two for one, two in zip(best, dearer))


def test_figures_2_and_4_at_their_printed_gammas():
    """Curves of tokens a run end at gamma + 1, the last at 1 / (1 - alpha)."""
    for gamma in paper.FIGURE_2_GAMMAS[:-1]:
        assert theory.expected_tokens(1.0, gamma) == gamma + 1
    assert theory.expected_tokens(0.8, paper.FIGURE_2_GAMMAS[-1]) == pytest.approx(5)
    for row in paper.TABLE_1:
        assert theory.expected_tokens(row.alpha, row.gamma) == theory.speedup(
            row.alpha, row.gamma, 0.0
        )


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
