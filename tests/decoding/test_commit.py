"""Ends inside a block: EOS, stop sequences, limits, finished rows, counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import DecodeState, Statistics, StopReason, text_tokens
from spec_jax.core.draws import row_keys
from spec_jax.core.verification import Verdict
from spec_jax.decoding.commit import as_stop, commit

EOS, GAMMA = 103, 5
BLOCK = (101, 102, EOS, 104, 105, 106)


def state(rows=1, length=2, limit=12, size=12, new=0):
    tokens = jnp.zeros((rows, size), jnp.int32).at[:, :length].set(7)
    at = jnp.full(rows, length)
    return DecodeState(
        tokens=tokens,
        length=at,
        prompt_length=at - new,
        limit=jnp.full(rows, limit),
        stop_reason=jnp.zeros(rows, jnp.int32),
        key=row_keys(jax.random.key(0), rows),
        target_cache=(),
        draft_state=(),
        stats=Statistics.zeros(rows, GAMMA),
        sampling=None,
        logprobs=jnp.zeros((rows, size)),
        policy_logprobs=jnp.zeros((rows, size)),
    )


def step(before, block=BLOCK, accepted=GAMMA, eos_id=EOS, stop=(), fallback=False):
    rows = before.length.shape[0]
    emitted = jnp.tile(jnp.array([block], jnp.int32), (rows, 1))
    accepted = jnp.full(rows, accepted)
    verdict = Verdict(accepted, emitted[:, -1], jnp.full(rows, fallback))
    values = -emitted.astype(jnp.float32)
    return commit(
        before,
        emitted[:, :-1],
        jnp.full(rows, GAMMA),
        emitted,
        verdict,
        eos_id=eos_id,
        stop=stop,
        logprobs={"logprobs": values, "policy_logprobs": values / 2},
    )


def test_eos_inside_an_accepted_block():
    """BEHAVIOURS 17: tokens, length, statistics and logprobs all end at EOS."""
    after, info = step(state())
    assert after.tokens[0].tolist() == [7, 7, 101, 102, EOS, 0, 0, 0, 0, 0, 0, 0]
    assert after.logprobs[0].tolist() == [0, 0, -101, -102, -EOS, 0, 0, 0, 0, 0, 0, 0]
    assert after.policy_logprobs[0, 4] == -EOS / 2
    assert (after.length[0], after.stop_reason[0]) == (5, StopReason.EOS)
    assert after.done[0]
    stats = after.stats
    assert (stats.emitted, stats.accepted, stats.drafted, stats.steps) == (3, 3, 3, 1)
    assert (info.num_proposed[0], info.num_accepted[0], info.num_emitted[0]) == (3,) * 3


def test_no_eos_id():
    after, _ = step(state(), eos_id=None)
    assert after.length[0] == 8 and not after.done[0]


def test_eos_past_the_accepted_tokens_does_not_count():
    """Tokens after the next one are scratch, whatever they hold."""
    after, info = step(state(), accepted=1, fallback=True)
    assert after.tokens[0, :6].tolist() == [7, 7, 101, 102, 0, 0]
    assert not after.done[0]
    assert (info.num_proposed[0], info.num_accepted[0], info.num_emitted[0]) == (
        GAMMA,
        1,
        2,
    )
    assert after.stats.residual_fallbacks == 1


@pytest.mark.parametrize("room", range(1, GAMMA + 2))
def test_limit_inside_a_block(room):
    """BEHAVIOURS 18: exactly the room that is left, nothing past it."""
    after, info = step(state(limit=2 + room), eos_id=None)
    assert after.length[0] == 2 + room
    assert after.tokens[0].tolist() == [7, 7, *BLOCK[:room]] + [0] * (10 - room)
    assert after.stop_reason[0] == StopReason.LENGTH
    assert info.num_emitted[0] == after.stats.emitted == room


def test_eos_at_the_limit_is_an_eos():
    after, _ = step(state(limit=5))
    assert after.stop_reason[0] == StopReason.EOS


def test_rows_that_are_done_stay_as_they_are():
    before, _ = step(state(rows=2))
    after, info = step(before)
    for name in ("tokens", "length", "stop_reason", "logprobs"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    assert info.num_emitted.tolist() == [0, 0]
    assert after.stats.steps == before.stats.steps == 2
    assert after.stats.emitted == before.stats.emitted


@pytest.mark.parametrize(
    ("stop", "kept"),
    [
        (((102,),), 2),
        (((104, 105),), 5),
        (((101, 104),), 6),  # never in a row
        (((7, 101),), 6),  # its first token is in the prompt
        (((106,), (104, 105)), 5),  # the first to end
    ],
    ids=str,
)
def test_stop_sequences(stop, kept):
    after, _ = step(state(), eos_id=None, stop=stop)
    assert after.length[0] == 2 + kept
    ended = StopReason.STOP if kept < 6 else StopReason.RUNNING
    assert after.stop_reason[0] == ended


def test_a_stop_sequence_across_two_steps():
    stop = ((105, 106, 101, 102),)
    middle, _ = step(state(size=20, limit=20), eos_id=None, stop=stop)
    assert not middle.done[0]
    after, _ = step(middle, eos_id=None, stop=stop)
    assert after.length[0] == 2 + 6 + 2
    assert after.stop_reason[0] == StopReason.STOP


def test_as_stop():
    assert as_stop([[5, 6], (7,)]) == ((5, 6), (7,))
    with pytest.raises(ValueError, match="at least one id"):
        as_stop([[]])
    with pytest.raises(ValueError, match="sequences of ids"):
        as_stop([5, 6])
    for text in ("ab", ("12",)):
        with pytest.raises(ValueError, match="sequences of ids"):
            as_stop(text)


def test_text_tokens():
    assert text_tokens([5, 6, 1], 1) == [5, 6]
    assert text_tokens([5, 6, 1], None) == [5, 6, 1]
    assert text_tokens([5, 6, 7], 1, ((7,), (6, 7))) == [5]
    assert text_tokens(np.array([5, 6]), 1, ((4, 5, 6),)).tolist() == [5, 6]
    assert text_tokens([], 1, ((4,),)) == []
