"""Divergences: by hand, their bounds, and what their gradients lead to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax.core import theory
from spec_jax.training.divergences import DIVERGENCES, divergence

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])


def kl(p, q):
    return float(np.sum(p * np.log(p / q)))


M = 0.3 * P + 0.7 * Q


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("forward_kl", kl(P, Q)),
        ("reverse_kl", kl(Q, P)),
        ("jsd", 0.3 * kl(P, M) + 0.7 * kl(Q, M)),
        ("tv", 0.4),
    ],
)
def test_by_hand(name, wanted):
    # Logits are log-probabilities up to a constant.
    got = divergence(name, jnp.log(P) + 3.0, jnp.log(Q) - 1.0, weight=0.3)
    assert float(got) == pytest.approx(wanted, abs=1e-6)


def test_total_variation_is_what_acceptance_loses():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(7), (2, 50))
    got = divergence("tv", jnp.log(p), jnp.log(q))
    np.testing.assert_allclose(1 - got, theory.acceptance_rate(p, q), atol=1e-6)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_equal_distributions_are_at_zero_and_barred_tokens_leave_no_nan(name):
    logits = jnp.array([[0.3, -jnp.inf, 1.0, -jnp.inf], [0.0, 1.0, 2.0, 3.0]])
    other = logits + jnp.array([0.5, 0.0, -0.2, 0.1])

    def mean(x):
        return divergence(name, logits, x).mean()

    np.testing.assert_allclose(divergence(name, logits, logits), 0, atol=1e-6)
    assert (divergence(name, logits, other) > 1e-4).all()
    assert jnp.isfinite(jax.grad(mean)(other)).all()


@pytest.mark.parametrize("name", DIVERGENCES)
def test_descending_brings_the_draft_to_the_target(name):
    target = jnp.log(jnp.array([0.6, 0.25, 0.1, 0.05]))
    draft = jnp.zeros(4)
    step = jax.jit(lambda x: x - jax.grad(lambda y: divergence(name, target, y))(x))
    for _ in range(200):
        draft = step(draft)
    beta = float(jnp.minimum(jax.nn.softmax(draft), jax.nn.softmax(target)).sum())
    start = float(jnp.minimum(0.25, jax.nn.softmax(target)).sum())
    assert start == pytest.approx(0.65)
    # Steps of one size step over total variation's kink and back.
    assert beta > (0.9 if name == "tv" else 0.99)


def test_an_unknown_one_is_named():
    with pytest.raises(ValueError, match="forward_kl, reverse_kl, jsd, tv, got 'kl'"):
        divergence("kl", jnp.zeros(2), jnp.zeros(2))
