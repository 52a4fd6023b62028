"""Draws: the law at full vocabulary, extreme uniforms, keys of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from spec_jax.core.draws import (
    BLOCK,
    DRAFT,
    VERIFY,
    block_keys,
    draft_keys,
    draw,
    draw_gumbel,
    gumbel,
    pick,
    position_keys,
    row_keys,
    step_keys,
    uniforms,
)
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.drafts import ModelDraft, PromptLookupDraft
from spec_jax.testing.statistics import chi_square_pvalue
from spec_jax.testing.tables import TableDecoder

GRID = 2**23  # a float32 uniform is a multiple of 2^-23
BELOW_ONE = 1 - 2.0**-23


def picked_law(weights):
    """Exactly how often `pick` yields each entry, over all float32 uniforms.

    Bisects for the first uniform that yields more than j, with the code itself.
    """
    entries = jnp.arange(weights.shape[0])

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        u = middle.astype(jnp.float32) / GRID
        above = jax.vmap(pick, (0, None))(u, weights) > entries
        return jnp.where(above, low, middle + 1), jnp.where(above, middle, high)

    start = jnp.zeros(entries.shape, jnp.int32), jnp.full(entries.shape, GRID)
    first_above = jax.lax.fori_loop(0, 25, halve, start)[1]
    return jnp.diff(first_above, prepend=0)


def drawn_law(probs):
    """The exact law of `draw` in float64, from the laws of its two picks."""
    blocks = jnp.pad(probs, (0, -len(probs) % BLOCK)).reshape(-1, BLOCK)
    of_block = np.asarray(jax.jit(picked_law)(blocks.sum(1)), np.float64) / GRID
    within = jax.jit(lambda x: jax.lax.map(picked_law, x))(blocks)
    within = np.asarray(within, np.float64) / GRID
    return (of_block[:, None] * within).reshape(-1)[: len(probs)]


@pytest.mark.parametrize("scale", [0.0, 1.0, 4.0])
def test_law_of_a_draw_over_32k_tokens(scale):
    """Total variation below 1e-5, every uniform counted."""
    logits = scale * jax.random.normal(jax.random.key(0), (32_128,))
    probs = jax.nn.softmax(logits.at[::7].set(-jnp.inf))
    exact = np.asarray(probs, np.float64)
    law = drawn_law(probs)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    assert not law[exact == 0].any()
    assert np.abs(law - exact / exact.sum()).sum() / 2 < 1e-5


def test_one_uniform_would_not_do():
    """Why there are two: one pick over 32k entries misses the bound."""
    probs = jax.nn.softmax(jax.random.normal(jax.random.key(0), (32_128,)))
    cumulative = np.cumsum(np.asarray(probs), dtype=np.float32)
    bounds = np.ceil(cumulative.astype(np.float64) * GRID)
    law = np.diff(bounds, prepend=0) / GRID
    assert np.abs(law - np.asarray(probs, np.float64)).sum() / 2 > 1e-4


@pytest.mark.parametrize("size", [1, 2, 127, 128, 129, 300, 5_120])
def test_extreme_uniforms_draw_possible_tokens(size):
    """BEHAVIOURS 8: 0.0 and just below 1, any vocabulary, zeros at both ends."""
    probs = np.zeros(size, np.float32)
    probs[size // 3 : size // 3 + 1 + size // 2 : 2] = 1.0
    probs[: size // 3] = 0
    u = jnp.array([[a, b] for a in (0.0, BELOW_ONE) for b in (0.0, BELOW_ONE)])
    tokens = jax.vmap(draw, (0, None))(u, jnp.asarray(probs / probs.sum()))
    positive = np.flatnonzero(probs)
    np.testing.assert_array_equal(
        (np.asarray(tokens[0]), np.asarray(tokens[-1])), (positive[0], positive[-1])
    )
    assert set(np.asarray(tokens)) <= set(positive)


@pytest.mark.parametrize("seed", range(3))
def test_rounding_never_yields_an_impossible_entry(seed):
    """A scan may round a cumulative sum up at an entry of weight zero."""
    key, other = jax.random.split(jax.random.key(seed))
    weights = jax.random.uniform(key, (200,)) ** 8
    weights = jnp.where(jax.random.bernoulli(other, 0.5, (200,)), weights, 0)
    cumulative = jnp.cumsum(weights) / weights.sum()
    u = jnp.concatenate(
        [jnp.nextafter(cumulative, jnp.float32(to)) for to in (0, 2)] + [cumulative]
    )
    picks = jax.vmap(pick, (0, None))(jnp.clip(u, 0, BELOW_ONE), weights)
    assert (np.asarray(weights)[np.asarray(picks)] > 0).all()


def test_weights_need_not_sum_to_one():
    weights = jnp.array([0.0, 3.0, 1.0])
    u = jnp.array([0.0, 0.74, 0.76, BELOW_ONE])
    np.testing.assert_array_equal(jax.vmap(pick, (0, None))(u, weights), [1, 1, 2, 2])


def test_row_keys():
    key = jax.random.key(3)
    keys = row_keys(key, 4)
    assert keys.shape == (4,)
    assert keys[2] == jax.random.fold_in(key, 2)
    assert (row_keys(keys, 4) == keys).all()
    with pytest.raises(ValueError, match="4 keys"):
        row_keys(keys[:3], 4)
    with pytest.raises(ValueError, match="threefry"):
        row_keys(jax.random.key(0, impl="rbg"), 4)
    with pytest.raises(ValueError, match=r"jax\.random\.key"):
        row_keys(jax.random.PRNGKey(0), 4)


def test_keys_of_all_purposes_differ():
    """No two draws of a row share a key, over positions, indices and roles."""
    keys = row_keys(jax.random.key(0), 2)
    seen = [position_keys(keys, jnp.array([t, t])) for t in range(6)]
    for length in range(6):
        for role, count in ((DRAFT, 4), (VERIFY, 1)):
            seen.extend(step_keys(keys, jnp.full(2, length), role, count).T)
    data = np.concatenate([np.asarray(jax.random.key_data(key)) for key in seen])
    assert len(np.unique(data, axis=0)) == len(data) == 2 * (6 + 6 * 5)


def test_plain_keys_fold_the_position():
    keys = row_keys(jax.random.key(0), 2)
    assert position_keys(keys, jnp.array([5, 9]))[1] == jax.random.fold_in(keys[1], 9)


def test_uniforms_are_a_rows_own():
    """The same numbers in any batch, in [0, 1)."""
    keys = row_keys(jax.random.key(1), 1000)
    together = uniforms(keys, 3)
    assert together.shape == (1000, 3)
    np.testing.assert_array_equal(together[17], uniforms(keys[17:18], 3)[0])
    assert float(together.min()) >= 0 and float(together.max()) < 1
    assert uniforms(keys.reshape(50, 20), 2).shape == (50, 20, 2)


def test_gumbel_noise():
    """Its law at a million values, its tails, and that it belongs to the key."""
    keys = jax.random.split(jax.random.key(3), 20)
    noise = np.asarray(gumbel(keys, 50_000), np.float64)
    assert np.isfinite(noise).all()
    assert stats.kstest(noise.ravel(), "gumbel_r").pvalue > 1e-6
    # Values a token of probability 1e-6 needs: e^-13 of them lie beyond 13.
    beyond = (noise > 13).sum()
    assert stats.poisson.cdf(beyond, 1e6 * np.exp(-13)) > 1e-6
    np.testing.assert_array_equal(gumbel(keys[3], 50_000), noise[3].astype(np.float32))


def test_gumbel_noise_reaches_rare_tokens(monkeypatch):
    """The largest value lies beyond 22, not at the 16.6 of a uniform near 1."""
    monkeypatch.setattr(jax.random, "bits", lambda key, shape, kind: jnp.zeros(1, kind))
    assert float(gumbel(jax.random.key(0), 1)[0]) > 22
    top = lambda key, shape, kind: jnp.full(1, 2**32 - 1, kind)  # noqa: E731
    monkeypatch.setattr(jax.random, "bits", top)
    assert np.isfinite(gumbel(jax.random.key(0), 1)).all()


def test_draws_with_noise_follow_the_law():
    """And tokens of probability zero are never drawn."""
    probs = jnp.array([0.0, 0.5, 0.3, 0.2, 0.0])
    keys = jax.random.split(jax.random.key(4), 100_000)
    tokens = draw_gumbel(keys, jnp.tile(probs, (100_000, 1)))
    assert chi_square_pvalue(np.asarray(tokens)[:, None], np.asarray(probs)) > 1e-6
    one_hot = jnp.array([0.0, 0.0, 1.0])
    assert (draw_gumbel(keys[:100], jnp.tile(one_hot, (100, 1))) == 2).all()


def test_draws_with_one_noise_agree_as_often_as_theory_says():
    """BEHAVIOURS 10: .6308 on the toy, where independent draws agree .29."""
    p, q = jnp.array([0.5, 0.3, 0.2]), jnp.array([0.2, 0.3, 0.5])
    rows = 100_000
    keys = jax.random.split(jax.random.key(5), rows)
    agree = draw_gumbel(keys, jnp.tile(p, (rows, 1))) == draw_gumbel(
        keys, jnp.tile(q, (rows, 1))
    )
    error = abs(float(agree.mean()) - 0.6308) / np.sqrt(0.6308 * 0.3692 / rows)
    assert error < 5


def test_keys_of_a_block_are_those_of_its_positions():
    keys = row_keys(jax.random.key(0), 2)
    length = jnp.array([3, 7])
    block = block_keys(keys, length, 3)
    for i in range(3):
        want = position_keys(keys, length + i)
        np.testing.assert_array_equal(
            jax.random.key_data(block[:, i]), jax.random.key_data(want)
        )


@pytest.mark.parametrize("noise", ["gumbel", "uniform", None])
def test_keys_of_a_proposal(noise):
    """Of positions where noise is shared; else never those of a position."""
    draft = ModelDraft(TableDecoder(5), SamplingPolicy(), 3)
    if noise != "uniform":
        draft = PromptLookupDraft(3)
    if noise == "gumbel":
        draft = ModelDraft(TableDecoder(5), SamplingPolicy(), 3, noise=noise)
    keys, length = row_keys(jax.random.key(0), 2), jnp.array([3, 7])
    got = jax.random.key_data(draft_keys(draft, keys, length)).tolist()
    of_positions = jax.random.key_data(block_keys(keys, length, 3)).tolist()
    assert (got == of_positions) == (noise == "gumbel")
