"""The chi-square test: level and power."""

import numpy as np
import pytest

from spec_jax.testing.statistics import chi_square_pvalue

LAW = np.array([[0.3, 0.2], [0.5, 0.0]])


def samples(rows, law=LAW, seed=0):
    flat = np.random.default_rng(seed).choice(4, rows, p=law.ravel())
    return np.stack(np.unravel_index(flat, law.shape), 1)


def test_level():
    """p-values of true samples are spread over (0, 1)."""
    pvalues = [chi_square_pvalue(samples(2_000, seed=i), LAW) for i in range(200)]
    assert min(pvalues) > 1e-4
    assert 0.4 < np.mean(pvalues) < 0.6


def test_power():
    other = np.array([[0.31, 0.19], [0.5, 0.0]])
    assert chi_square_pvalue(samples(200_000, other), LAW) < 1e-6


def test_impossible_outcomes_fail():
    assert chi_square_pvalue(np.append(samples(100), [[1, 1]], 0), LAW) == 0
    assert chi_square_pvalue(np.append(samples(100), [[2, 0]], 0), LAW) == 0
    assert chi_square_pvalue(np.append(samples(100), [[-1, 0]], 0), LAW) == 0


def test_rare_outcomes_are_pooled():
    law = np.array([0.5, 0.4999, 0.00005, 0.00005])
    rare = np.repeat([0, 1, 2], [5_000, 4_999, 1])[:, None]
    assert chi_square_pvalue(rare, law) > 0.1


def test_certain_laws():
    law = np.array([0.0, 1.0])
    assert chi_square_pvalue(np.ones((50, 1), int), law) == 1
    assert chi_square_pvalue(np.zeros((50, 1), int), law) == 0


def test_wrong_shapes_raise():
    with pytest.raises(ValueError, match=r"\[rows, 2\]"):
        chi_square_pvalue(samples(10)[:, :1], LAW)
