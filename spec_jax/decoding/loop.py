"""Runs an algorithm to its end, or watches it step by step."""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from spec_jax.base import (
    Algorithm,
    DecodeState,
    Inputs,
    Params,
    Sampling,
    StepInfo,
    pytree,
)
from spec_jax.core.row_values import check_sampling
from spec_jax.decoding.commit import StopSequences
from spec_jax.decoding.sharded import ShardedStep, rows_of, run_sharded
from spec_jax.decoding.stats import Statistics

AnyArray = Array | np.ndarray


@pytree
class Generation:
    """The new tokens of each row, without the prompt.

    Attributes:
      tokens: new tokens, pad_id past a row's end; m is the most new tokens.
      lengths: how many there are, EOS and stop sequences counted.
      logprobs: their log-probabilities under the raw target, 0 past the end; None
        unless the algorithm has logprobs=True.
      policy_logprobs: the same under the distribution after the policy.
      stop_reason: a StopReason for each row.
      stats: counts and rates.
    """

    tokens: Int[Array, "b m"]
    lengths: Int[Array, "b"]
    logprobs: Float[Array, "b m"] | None
    policy_logprobs: Float[Array, "b m"] | None
    stop_reason: Int[Array, "b"]
    stats: Statistics


def generate(
    algorithm: Algorithm,
    params: Params,
    inputs: Inputs,
    prompt: Int[AnyArray, "b t"],
    key: Key[Array, "*rows"],
    *,
    max_new_tokens: int | Int[AnyArray, "b"],
    max_length: int | None = None,
    prompt_length: Int[AnyArray, "b"] | None = None,
    sampling: Sampling | None = None,
) -> Generation:
    """Decodes every row to its end in one compiled program.

    Shapes, `algorithm` and `max_length` decide what is compiled; prompts of any
    length in one padded width, keys, limits in an array and parameters do not.

    Args:
      algorithm: `Speculative` or `Autoregressive`.
      params: {"target": ..., "draft": ...}.
      inputs: what the prompt side needs (T5: the encoder's tokens).
      prompt: the decoder's own prefix (T5: the start token), left-aligned.
      key: one key (row i gets fold_in(key, i)) or one key a row.
      max_new_tokens: a number, or a limit for each row with a `max_length`.
      max_length: the most positions of any row, prompt included; by default t +
        max_new_tokens.
      prompt_length: how much of each row is prompt; by default all t.
      sampling: values for each row: any of temperature, top_k, top_p, min_p,
        repetition_penalty [b], and logit_bias [b, v].

    Returns:
      The new tokens and what is known of them.

    Raises:
      ValueError: for shapes and values that do not fit.
    """
    arguments, max_length = _arguments(
        params, inputs, prompt, key, max_new_tokens, max_length, prompt_length, sampling
    )
    if rows_of(algorithm) is not None:
        return run_sharded(_generate, algorithm, arguments, max_length=max_length)
    return _jitted_generate(algorithm, *arguments, max_length=max_length)


def trace(
    algorithm: Algorithm,
    params: Params,
    inputs: Inputs,
    prompt: Int[AnyArray, "b t"],
    key: Key[Array, "*rows"],
    *,
    max_new_tokens: int | Int[AnyArray, "b"],
    max_length: int | None = None,
    prompt_length: Int[AnyArray, "b"] | None = None,
    sampling: Sampling | None = None,
    num_steps: int | None = None,
) -> tuple[Generation, StepInfo]:
    """Like `generate`, keeping what every step did.

    Args:
      algorithm: see `generate`, also for the rest.
      num_steps: how many steps to run; by default as many as a row may have new
        tokens, which always ends it. Steps after the end emit nothing.

    Returns:
      The generation, and a StepInfo whose arrays have a leading axis of steps.
    """
    arguments, max_length = _arguments(
        params, inputs, prompt, key, max_new_tokens, max_length, prompt_length, sampling
    )
    if num_steps is None:
        num_steps = max_length - np.shape(prompt)[1]
    if num_steps < 1:
        raise ValueError(f"want num_steps >= 1, got {num_steps}")
    static = {"max_length": max_length, "num_steps": num_steps}
    if rows_of(algorithm) is not None:
        return run_sharded(_trace, algorithm, arguments, **static)
    return _jitted_trace(algorithm, *arguments, **static)


def stream(
    algorithm: Algorithm,
    params: Params,
    inputs: Inputs,
    prompt: Int[AnyArray, "b t"],
    key: Key[Array, "*rows"],
    *,
    max_new_tokens: int | Int[AnyArray, "b"],
    max_length: int | None = None,
    prompt_length: Int[AnyArray, "b"] | None = None,
    sampling: Sampling | None = None,
) -> Iterator[tuple[np.ndarray, ...]]:
    """Like `generate`, handing out tokens as they are committed.

    Tokens that may turn out to begin a stop sequence are held back until that is
    known, so a stop sequence arrives whole, as the end of a row's last piece,
    where `text_tokens` drops it.

    Args:
      algorithm: see `generate`, also for the rest.

    Yields:
      After each step, the new tokens of every row, an array each, often empty.
      Together they are the row's tokens of `generate`.
    """
    arguments, max_length = _arguments(
        params, inputs, prompt, key, max_new_tokens, max_length, prompt_length, sampling
    )
    if rows_of(algorithm) is None:
        step = functools.partial(speculative_step, algorithm)
        state = _start(algorithm, *arguments, max_length=max_length)
    else:
        programs = ShardedStep(algorithm, max_length)
        state, step = programs.start(*arguments), programs.step
    batch = arguments[2].shape[0]
    sent = np.asarray(state.prompt_length)[:batch].copy()
    first = sent.copy()
    running = True
    while running:
        state, _ = step(params, state)
        values = map(np.asarray, (state.tokens, state.length, state.done))
        tokens, length, done = (value[:batch] for value in values)
        running = not done.all()
        pieces = []
        for i, end in enumerate(length):
            if not done[i]:
                end = end - _open_match(tokens[i, first[i] : end], algorithm.stop)
            pieces.append(tokens[i, sent[i] : end])
            sent[i] = max(end, sent[i])
        yield tuple(pieces)


@functools.partial(jax.jit, static_argnames="algorithm")
def speculative_step(
    algorithm: Algorithm, params: Params, state: DecodeState
) -> tuple[DecodeState, StepInfo]:
    """One compiled step of any algorithm, for loops of one's own.

    Args:
      algorithm: `Speculative` or `Autoregressive`; equal ones share a program.
      params: {"target": ..., "draft": ...}.
      state: what `algorithm.init` or the last step returned.

    Returns:
      The state after the step, and what the step did.
    """
    return algorithm.step(params, state)


def _arguments(
    params, inputs, prompt, key, max_new_tokens, max_length, prompt_length, sampling
):
    """Brings a user's arguments into the shapes that the programs take."""
    prompt = _int32(prompt)
    if prompt.ndim != 2:
        raise ValueError(f"want a prompt of shape [b, t], got {prompt.shape}")
    batch, width = prompt.shape
    if np.ndim(max_new_tokens) == 0:
        if max_new_tokens < 1 or max_new_tokens % 1:
            raise ValueError(f"want a whole max_new_tokens >= 1, got {max_new_tokens}")
        needed = width + int(max_new_tokens)
        max_length = needed if max_length is None else max_length
        if max_length < needed:
            raise ValueError(
                f"want max_length >= {needed} for a prompt of {width} and "
                f"{max_new_tokens} new tokens, got {max_length}"
            )
        max_new_tokens = np.full(batch, max_new_tokens)
    elif max_length is None:
        raise ValueError(
            "want a max_length where max_new_tokens is an array of limits: it "
            "decides the size of buffers"
        )
    elif not isinstance(max_new_tokens, jax.core.Tracer):
        values = np.asarray(max_new_tokens)
        if (values < 0).any():
            raise ValueError(f"want each max_new_tokens >= 0, got {values.tolist()}")
    if prompt_length is None:
        prompt_length = np.full(batch, width)
    elif not isinstance(prompt_length, jax.core.Tracer):
        values = np.asarray(prompt_length)
        if values.min() < 1 or values.max() > width:
            raise ValueError(
                f"want each prompt_length in 1 .. {width}, got {values.tolist()}"
            )
    if sampling is not None:
        sampling = {name: jnp.asarray(value) for name, value in sampling.items()}
        check_sampling(sampling, batch)
    arguments = (
        params,
        inputs,
        prompt,
        _int32(prompt_length),
        key,
        _int32(max_new_tokens),
        sampling,
    )
    return arguments, int(max_length)


def _int32(values):
    """An array of int32; what is on no device yet goes there with the call itself."""
    if isinstance(values, jax.Array):
        return values.astype(jnp.int32)
    return np.asarray(values, np.int32)


@functools.partial(jax.jit, static_argnames=("algorithm", "max_length"))
def _start(
    algorithm,
    params,
    inputs,
    prompt,
    prompt_length,
    key,
    limit,
    sampling,
    *,
    max_length,
):
    """The state before the first step; every row's new tokens fit the result."""
    limit = jnp.minimum(limit, max_length - prompt.shape[1])
    return algorithm.init(
        params, inputs, prompt, prompt_length, key, limit, max_length, sampling
    )


def _generate(algorithm, params, inputs, prompt, *rest, max_length, batch=None):
    state = _start(algorithm, params, inputs, prompt, *rest, max_length=max_length)
    state = jax.lax.while_loop(
        lambda state: ~state.done.all(),
        lambda state: algorithm.step(params, state)[0],
        state,
    )
    out = _result(state, max_length - prompt.shape[1], algorithm.pad_id)
    return jax.tree.map(lambda values: values[:batch], out)


def _trace(algorithm, params, inputs, prompt, *rest, max_length, num_steps, batch=None):
    state = _start(algorithm, params, inputs, prompt, *rest, max_length=max_length)
    state, infos = jax.lax.scan(
        lambda state, _: algorithm.step(params, state), state, length=num_steps
    )
    out = _result(state, max_length - prompt.shape[1], algorithm.pad_id)
    infos = jax.tree.map(lambda values: values[:, :batch], infos)
    return jax.tree.map(lambda values: values[:batch], out), infos


_jitted_generate = jax.jit(_generate, static_argnames=("algorithm", "max_length"))
_jitted_trace = jax.jit(
    _trace, static_argnames=("algorithm", "max_length", "num_steps")
)


def _result(state: DecodeState, width: int, pad_id: int) -> Generation:
    """Cuts the prompt off."""
    index = state.prompt_length[:, None] + jnp.arange(width)
    within = index < state.length[:, None]
    index = jnp.minimum(index, state.tokens.shape[1] - 1)

    def cut(values, fill):
        if values is None:
            return None
        return jnp.where(within, jnp.take_along_axis(values, index, 1), fill)

    return Generation(
        tokens=cut(state.tokens, pad_id),
        lengths=state.length - state.prompt_length,
        logprobs=cut(state.logprobs, 0.0),
        policy_logprobs=cut(state.policy_logprobs, 0.0),
        stop_reason=state.stop_reason,
        stats=state.stats,
    )


def _open_match(tokens: np.ndarray, stop: StopSequences) -> int:
    """How many of the newest tokens may begin a stop sequence."""
    longest = max(map(len, stop), default=1) - 1
    for size in range(min(longest, len(tokens)), 0, -1):
        tail = tuple(tokens[-size:].tolist())
        if any(sequence[:size] == tail for sequence in stop if len(sequence) > size):
            return size
    return 0
