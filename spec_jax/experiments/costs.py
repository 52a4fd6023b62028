"""What the parts of a step cost, c and verification, and what is done before it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from spec_jax.base import Inputs, Params, StopReason
from spec_jax.core.draws import draft_keys, row_keys
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.decoding.speculative import Speculative
from spec_jax.drafts.lengths import fixed_length
from spec_jax.experiments.clock import time_alternately, time_call

WALK = 16
"""Lengths that a timed loop passes through, over and over."""


@dataclasses.dataclass(frozen=True)
class StepCosts:
    """Medians of repeats.

    Attributes:
      plain: seconds of a plain step.
      draft: seconds of one of the gamma steps of a proposal.
      verify: seconds of a speculative step without its proposal.
    """

    plain: float
    draft: float
    verify: float

    @property
    def c(self) -> float:
        """A draft step over a plain step."""
        return self.draft / self.plain

    @property
    def verify_cost(self) -> float:
        """A step's target call and verification over a plain step."""
        return self.verify / self.plain


def step_costs(
    plain: Autoregressive,
    plain_params: Params,
    speculative: Speculative,
    params: Params,
    inputs: Inputs,
    prompt: Int[Array, "b t"],
    key: Key[Array, "*rows"],
    *,
    max_new_tokens: int,
    iterations: int = 64,
    repeats: int = 7,
) -> StepCosts:
    """Times a plain step, a proposal and a verification, alternately.

    Each is a compiled loop over a live state in the middle of a text, its caches
    filled by decoding up to there and as long as in decoding. An iteration sets
    the rows' length to one of 16 neighbouring ones, so that nothing in it is the
    same for all, and calls

    - plain: the whole `plain.step`: one target call on one token, the policy,
      the draw, and committing the token;
    - draft: `propose` with its keys, divided by gamma: for a model draft gamma
      calls, the first on two tokens, the policy and the draws;
    - verify: the whole `speculative.step` with a proposal that costs nothing:
      one target call on gamma + 1 tokens, the policy, the rule, the draws, and
      committing. So gamma c + verify_cost is a speculative step in plain steps.

    Not included: encoder, prefill, making caches, the loop's condition, and the
    call from Python.

    Args:
      plain: the baseline.
      plain_params: its parameters, in the dtype in which it is fastest.
      speculative: what is compared with it.
      params: its parameters.
      inputs: what the prompt side needs.
      prompt: of the rows, all of it valid.
      key: one key, or one a row.
      max_new_tokens: decides the length of buffers, as in decoding.
      iterations: of a loop.
      repeats: timed loops of each kind.

    Returns:
      The medians.
    """
    speculative = dataclasses.replace(
        speculative, draft=fixed_length(speculative.draft)
    )
    prompt = jnp.asarray(prompt, jnp.int32)
    width = prompt.shape[1]
    max_length = width + max_new_tokens
    first = (width + max_length) // 2
    walk = max(1, min(WALK, max_length - first))
    filled = first + walk - width  # lengths from the prompt's to the last one timed
    replay = dataclasses.replace(speculative, draft=_Replay(speculative.draft.gamma))

    text = _start(plain, plain_params, inputs, prompt, key, max_length)
    text = _steps(plain, plain_params, text, width, filled, filled)
    state = _start(speculative, params, inputs, prompt, key, max_length)
    state = dataclasses.replace(state, tokens=text.tokens)
    proposal, draft_state = _proposals(
        speculative, params, state, width, filled, filled
    )
    drafting = dataclasses.replace(state, draft_state=draft_state)
    judging = dataclasses.replace(state, draft_state=proposal)
    judging = _steps(replay, params, judging, width, filled, filled)

    rest = (first, walk, iterations)
    functions = {
        "plain": lambda: _steps(plain, plain_params, text, *rest),
        "draft": lambda: _proposals(speculative, params, drafting, *rest),
        "verify": lambda: _steps(replay, params, judging, *rest),
    }
    for function in functions.values():  # compiled already, now warm
        time_call(function)
    timings = time_alternately(functions, repeats)
    seconds = {name: timing.median / iterations for name, timing in timings.items()}
    return StepCosts(
        plain=seconds["plain"],
        draft=seconds["draft"] / speculative.draft.gamma,
        verify=seconds["verify"],
    )


@dataclasses.dataclass(frozen=True)
class StartCosts:
    """What is done once for a text, in seconds: encoders, prefill, empty caches.

    Attributes:
      plain: before plain decoding.
      target: before speculative decoding, for the target.
      draft: for the draft.
    """

    plain: float
    target: float
    draft: float


def start_costs(
    plain: Autoregressive,
    plain_params: Params,
    speculative: Speculative,
    params: Params,
    inputs: Inputs,
    prompt: Int[Array, "b t"],
    key: Key[Array, "*rows"],
    *,
    max_new_tokens: int,
    repeats: int = 7,
) -> StartCosts:
    """Times what comes before the first step, alternately.

    The call from Python is in each. Arguments as those of `step_costs`.

    Returns:
      Medians.
    """
    prompt = jnp.asarray(prompt, jnp.int32)
    max_length = prompt.shape[1] + max_new_tokens
    target = dataclasses.replace(plain, target=speculative.target)
    rest = inputs, prompt
    functions = {
        "plain": lambda: _start(plain, plain_params, *rest, key, max_length),
        "target": lambda: _start(target, params, *rest, key, max_length),
        "draft": lambda: _start_draft(
            speculative.draft, params.get("draft"), *rest, max_length
        ),
    }
    for function in functions.values():  # compiles
        time_call(function)
    timings = time_alternately(functions, repeats)
    return StartCosts(**{name: timing.median for name, timing in timings.items()})


@dataclasses.dataclass(frozen=True)
class _Replay:
    """A draft that proposes what stands in the buffer, at no cost.

    Its state is a proposal of the real draft, whose probabilities it repeats: the
    rule does the same work as for the real one.
    """

    gamma: int
    noise = None

    def propose(self, params, draft_state, keys, tokens, length, sampling=None):
        """See `DraftSource.propose`."""
        del params, keys, sampling
        at = length[:, None] + jnp.arange(self.gamma)
        at = jnp.minimum(at, tokens.shape[1] - 1)
        following = jnp.take_along_axis(tokens, at, axis=1)
        count = jnp.full_like(length, self.gamma)
        proposal = dataclasses.replace(draft_state, tokens=following, count=count)
        return proposal, draft_state


@functools.partial(jax.jit, static_argnames=("algorithm", "max_length"))
def _start(algorithm, params, inputs, prompt, key, max_length):
    batch, width = prompt.shape
    lengths = jnp.full((batch,), width, jnp.int32)
    limit = jnp.full((batch,), max_length - width, jnp.int32)
    return algorithm.init(
        params, inputs, prompt, lengths, row_keys(key, batch), limit, max_length
    )


@functools.partial(jax.jit, static_argnames=("draft", "max_length"))
def _start_draft(draft, params, inputs, prompt, max_length):
    batch, width = prompt.shape
    lengths = jnp.full((batch,), width, jnp.int32)
    return draft.init(params, inputs, prompt, lengths, max_length)


@functools.partial(jax.jit, static_argnames="algorithm")
def _steps(algorithm, params, state, first, walk, iterations):
    """Steps from the lengths first .. first + walk - 1, over and over."""

    def step(i, state):
        state = dataclasses.replace(
            state,
            length=jnp.full_like(state.length, first + i % walk),
            stop_reason=jnp.full_like(state.stop_reason, StopReason.RUNNING),
        )
        return algorithm.step(params, state)[0]

    return jax.lax.fori_loop(0, iterations, step, state)


@functools.partial(jax.jit, static_argnames="algorithm")
def _proposals(algorithm, params, state, first, walk, iterations):
    """Proposals at those lengths: the last one, and the draft's state."""
    draft = algorithm.draft

    def propose(i, carry):
        length = jnp.full_like(state.length, first + i % walk)
        keys = draft_keys(draft, state.key, length)
        return draft.propose(params.get("draft"), carry[1], keys, state.tokens, length)

    # The proposal is carried, or the compiler would drop what is not read.
    shapes, _ = jax.eval_shape(propose, 0, (None, state.draft_state))
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.fori_loop(0, iterations, propose, (empty, state.draft_state))
