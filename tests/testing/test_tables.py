"""TableDecoder: one law for any way of feeding it, and no wrong write unseen."""

import jax
import jax.numpy as jnp
import numpy as np

from spec_jax import Decoder, SamplingPolicy
from spec_jax.testing.tables import TableDecoder, table_law

V = 4
DECODER = TableDecoder(V)
TABLE = jax.random.normal(jax.random.key(0), (V, V, V))
TOKENS = jnp.array([[1, 2, 3, 0, 2, 1], [3, 3, 0, 1, 1, 2]])
ZERO = jnp.zeros(2, jnp.int32)
extend = jax.jit(DECODER.extend)


def empty(size=8):
    return DECODER.init_cache(TABLE, None, 2, size)


def full():
    return extend(TABLE, empty(), TOKENS, ZERO)[0]


def test_is_a_decoder():
    assert isinstance(DECODER, Decoder)


def test_one_by_one_equals_all_at_once():
    cache = empty()
    for i in range(6):
        logits, cache = extend(TABLE, cache, TOKENS[:, i : i + 1], ZERO + i)
        np.testing.assert_array_equal(logits[:, 0], full()[:, i])


def test_the_law_is_that_of_the_logits():
    law = table_law(TABLE, SamplingPolicy())
    probs = jax.nn.softmax(full())
    for row in range(2):
        for i in range(6):
            want = law(TOKENS[row, : i + 1].tolist())
            np.testing.assert_allclose(probs[row, i], want, atol=1e-6)


def test_rollback_is_writing_again():
    """BEHAVIOURS 25: a slot written twice holds the second value."""
    _, cache = extend(TABLE, empty(), TOKENS.at[:, 3:].set(1), ZERO)
    logits, _ = extend(TABLE, cache, TOKENS[:, 3:], ZERO + 3)
    np.testing.assert_array_equal(logits, full()[:, 3:])


def test_rows_stand_at_different_positions():
    start = jnp.array([2, 4])
    cache = extend(TABLE, empty(), TOKENS[:, :4], ZERO)[1]
    new = jnp.stack([TOKENS[0, 2:4], TOKENS[1, 4:6]])
    logits, _ = extend(TABLE, cache, new, start)
    np.testing.assert_array_equal(logits[0], full()[0, 2:4])
    np.testing.assert_array_equal(logits[1], full()[1, 4:6])


def test_a_skipped_slot_is_seen():
    cache = extend(TABLE, empty(), TOKENS[:, :3], ZERO)[1]
    logits, cache = extend(TABLE, cache, TOKENS[:, 3:5], ZERO + 4)
    assert jnp.isnan(logits).all()
    assert jnp.isnan(cache[:, 3]).all()


def test_a_stale_slot_is_seen():
    cache = extend(TABLE, empty(), TOKENS.at[:, 1].set(0), ZERO)[1]
    logits, _ = extend(TABLE, cache, TOKENS[:, 5:], ZERO + 5)
    assert (logits[:, 0] != full()[:, 5]).any(-1).all()


def test_a_write_past_the_end_is_seen():
    logits, cache = extend(TABLE, empty(5), TOKENS, ZERO)
    assert not jnp.isnan(logits[:, :5]).any()
    assert jnp.isnan(logits[:, 5]).all()
    np.testing.assert_array_equal(cache, TOKENS[:, :5])
