"""Writing verified tokens into the state: EOS, stop sequences, limits, counts."""

import dataclasses
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from spec_jax.base import DecodeState, StepInfo, StopReason
from spec_jax.core.verification import Verdict

StopSequences = tuple[tuple[int, ...], ...]


def as_stop(stop: Iterable[Any]) -> StopSequences:
    """Stop sequences as a hashable value.

    Raises:
      ValueError: if a sequence is empty or no sequence of ids.
    """
    try:
        sequences = tuple(tuple(map(operator.index, one)) for one in stop)
    except TypeError:
        raise ValueError(
            f"want stop as sequences of ids, such as ((5, 6), (7,)), got {stop!r}"
        ) from None
    if not all(sequences):
        raise ValueError(f"want stop sequences of at least one id, got {stop!r}")
    return sequences


def newest(state: DecodeState) -> Int[Array, "b 1"]:
    """Each row's newest token, the one that the caches have not seen."""
    return jnp.take_along_axis(state.tokens, state.length[:, None] - 1, 1)


def commit(
    state: DecodeState,
    proposed: Int[Array, "b g"],
    num_proposed: Int[Array, "b"],
    emitted: Int[Array, "b n"],
    verdict: Verdict,
    *,
    eos_id: int | None,
    stop: StopSequences,
    logprobs: dict[str, Array] | None = None,
) -> tuple[DecodeState, StepInfo]:
    """Appends accepted tokens and the next one, cut where the row ends.

    Args:
      state: the state before the step; rows that are done stay as they are.
      proposed: the drafted tokens.
      num_proposed: how many of them were judged.
      emitted: the accepted tokens, then the next one; the rest is not read.
      verdict: how many were accepted.
      eos_id: a row ends after this token, which is kept; None: no such token.
      stop: a row ends after any of these, which is kept.
      logprobs: arrays [b, n] for the emitted tokens, by the name of the state's
        field.

    Returns:
      The state after the step, and what the step did.
    """
    width = emitted.shape[1]
    slot = jnp.arange(width)
    available = jnp.where(state.done, 0, verdict.accepted + 1)
    available = jnp.minimum(available, state.limit - state.length)

    is_eos = jnp.zeros(emitted.shape, bool) if eos_id is None else emitted == eos_id
    is_stop = _ends_stop(state, emitted, stop)
    ends = (is_eos | is_stop) & (slot < available[:, None])
    end = jnp.where(ends, slot, width).min(1)
    taken = jnp.minimum(available, end + 1)
    length = state.length + taken

    ended = end < width
    last = slot == end[:, None]
    reason = jnp.where(
        ended,
        jnp.where((is_eos & last).any(1), StopReason.EOS, StopReason.STOP),
        jnp.where(length >= state.limit, StopReason.LENGTH, StopReason.RUNNING),
    )
    # A select over the buffer: on CPU a scatter costs more than the whole step.
    offset = jnp.arange(state.tokens.shape[1]) - state.length[:, None]
    is_new = (offset >= 0) & (offset < taken[:, None])
    source = jnp.clip(offset, 0, width - 1)

    def write(old, new):
        return jnp.where(is_new, jnp.take_along_axis(new, source, 1), old)

    # A cut drops the rest of the proposal from the counts as well.
    cut = taken <= verdict.accepted
    num_proposed = jnp.where(cut, taken, num_proposed)
    num_accepted = jnp.minimum(verdict.accepted, taken)
    fallback = verdict.residual_empty & ~cut
    info = StepInfo(
        length=state.length,
        proposed=proposed,
        num_proposed=num_proposed,
        num_accepted=num_accepted,
        emitted=emitted,
        num_emitted=taken,
        residual_empty=fallback,
    )
    state = dataclasses.replace(
        state,
        tokens=write(state.tokens, emitted),
        length=length,
        stop_reason=jnp.where(state.done, state.stop_reason, reason),
        stats=state.stats.add(num_proposed, num_accepted, taken, fallback),
        **{
            name: write(getattr(state, name), values)
            for name, values in (logprobs or {}).items()
        },
    )
    return state, info


def _ends_stop(
    state: DecodeState, emitted: Int[Array, "b n"], stop: StopSequences
) -> Bool[Array, "b n"]:
    """Where a stop sequence of new tokens ends; it may begin in earlier steps."""
    ends = jnp.zeros(emitted.shape, bool)
    if not stop:
        return ends
    width = emitted.shape[1]
    reach = max(map(len, stop)) - 1
    before = state.length[:, None] + jnp.arange(-reach, 0)
    earlier = jnp.take_along_axis(state.tokens, jnp.maximum(before, 0), 1)
    earlier = jnp.where(before >= state.prompt_length[:, None], earlier, -1)
    seen = jnp.concatenate([earlier, emitted], axis=1)
    for sequence in stop:
        matches = jnp.ones(emitted.shape, bool)
        first = reach + 1 - len(sequence)
        for i, token in enumerate(sequence):
            matches &= seen[:, first + i : first + i + width] == token
        ends |= matches
    return ends


def text_tokens(
    tokens: Sequence[int] | np.ndarray,
    eos_id: int | None,
    stop: Sequence[Sequence[int]] = (),
) -> Sequence[int] | np.ndarray:
    """Committed tokens without the EOS or stop sequence that ended them.

    Args:
      tokens: one row's tokens, cut to its length.
      eos_id: the algorithm's.
      stop: the algorithm's; the longest one that fits is dropped.

    Example:
      >>> text_tokens([5, 6, 7, 1], eos_id=1), text_tokens([5, 6, 7], 1, ((6, 7),))
      ([5, 6, 7], [5])
    """
    endings = sorted(map(tuple, stop), key=len, reverse=True)
    endings = [(eos_id,), *endings] if eos_id is not None else endings
    for ending in endings:
        if tuple(int(token) for token in tokens[-len(ending) :]) == ending:
            return tokens[: -len(ending)]
    return tokens
