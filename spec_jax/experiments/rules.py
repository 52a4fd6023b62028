"""What other rules would gain on the same drafts: block verification, branches."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from spec_jax.base import Params
from spec_jax.core.branches import RecursiveRule
from spec_jax.core.draws import draft_keys, gumbel
from spec_jax.core.rules import BlockRule, TokenRule
from spec_jax.core.sampling import GREEDY_TEMPERATURE
from spec_jax.decoding.commit import newest
from spec_jax.decoding.speculative import Speculative
from spec_jax.experiments.inputs import InputBatch, in_one_shape
from spec_jax.experiments.record import JsonLine


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockGain(JsonLine):
    """Expected tokens of a step by two rules, on the same drafts.

    Attributes:
      task: of the texts.
      temperature: of target and draft.
      gamma: drafted tokens.
      steps: drafts that the means are over.
      token: expected tokens of a step by `TokenRule`.
      block: by `BlockRule`.
      stderr: standard error of the mean difference, texts being independent.
      least: the smallest difference of any one draft; that of one draft may be
        negative, the expectation over drafts is not.
    """

    task: str
    temperature: float
    gamma: int
    steps: int
    token: float
    block: float
    stderr: float
    least: float

    @property
    def gain(self) -> float:
        """Tokens of a block over those of the token rule."""
        return self.block / self.token


@dataclasses.dataclass(frozen=True, kw_only=True)
class BranchGain(JsonLine):
    """How often one of k first tokens is accepted, and what a step then brings.

    Attributes:
      task: of the texts.
      temperature: of target and draft.
      gamma: drafted tokens of a branch.
      branches: k.
      steps: positions that the means are over.
      first: the probability that one of the k first tokens is accepted.
      tokens: expected tokens of a step, one branch followed.
      cost: time of a step whose k branches are rows of a batch, over a plain step of
        one row: gamma draft steps and a call of the target, all of k rows.
    """

    task: str
    temperature: float
    gamma: int
    branches: int
    steps: int
    first: float
    tokens: float
    cost: float

    @property
    def speed(self) -> float:
        """Over plain decoding, where steps alone are timed."""
        return self.tokens / self.cost


def block_gains(
    speculative: Speculative,
    params: Params,
    batches: Sequence[InputBatch],
    task: str,
) -> list[BlockGain]:
    """Expected tokens by both rules at every step of real decodes, gamma 1 .. g.

    The decodes go on by the algorithm's own rule; at each of their steps the draft's
    proposal is judged by both laws, cut to each gamma, so that nothing is left to
    chance but the proposals.

    Args:
      speculative: its draft's gamma is the largest.
      params: of its models.
      batches: of texts.
      task: their name.

    Returns:
      A gain for each gamma; none where no step had room for all drafted tokens.
    """
    rows = []
    for batch in in_one_shape(batches):
        token, block, ran = _expectations(
            speculative,
            params,
            batch.inputs,
            batch.prompt,
            batch.keys,
            batch.limits,
            batch.prompt.shape[1] + batch.max_new_tokens,
        )
        for i in range(len(batch.members)):
            rows.append(tuple(np.asarray(x)[:, i] for x in (token, block, ran)))
    if not any(ran.any() for _, _, ran in rows):
        return []
    gains = []
    for i in range(speculative.draft.gamma):
        token = [t[ran, i] for t, _, ran in rows]
        block = [b[ran, i] for _, b, ran in rows]
        apart = [b - t for b, t in zip(block, token)]
        sums, counts = np.array([[x.sum(), len(x)] for x in apart]).T
        mean = sums.sum() / counts.sum()
        spread = ((sums - mean * counts) ** 2).sum() * len(rows) / max(len(rows) - 1, 1)
        gains.append(
            BlockGain(
                task=task,
                temperature=speculative.policy.temperature,
                gamma=i + 1,
                steps=int(counts.sum()),
                token=float(np.concatenate(token).mean()),
                block=float(np.concatenate(block).mean()),
                stderr=float(np.sqrt(spread) / counts.sum()),
                least=float(np.concatenate(apart).min()),
            )
        )
    return gains


@functools.partial(jax.jit, static_argnames=("algorithm", "max_length"))
def _expectations(algorithm, params, inputs, prompt, keys, limits, max_length):
    """Expected tokens by both rules [steps, b, g], and which rows ran [steps, b]."""
    batch, width = prompt.shape
    gamma = algorithm.draft.gamma
    lengths = jnp.full((batch,), width, jnp.int32)
    state = algorithm.init(params, inputs, prompt, lengths, keys, limits, max_length)

    def expected(rule, tokens, q, p):
        """E[tokens] of one row for each gamma."""
        counts = jnp.arange(gamma)[:, None] < jnp.arange(1, gamma + 1)
        cut = jax.vmap(lambda kept: jnp.where(kept[:, None], q, 0.0))(counts.T)
        laws = jax.vmap(rule.accept_law, (None, 0, None))(tokens, cut, p)
        return laws @ jnp.arange(1.0, gamma + 2)

    def step(state):
        proposal, _ = algorithm.draft.propose(
            params["draft"],
            state.draft_state,
            draft_keys(algorithm.draft, state.key, state.length),
            state.tokens,
            state.length,
        )
        window = jnp.concatenate([newest(state), proposal.tokens], axis=1)
        logits, _ = algorithm.target.extend(
            params["target"], state.target_cache, window, state.length - 1
        )
        p = algorithm.policy.probs(logits)
        found = [
            jax.vmap(functools.partial(expected, rule))(
                proposal.tokens, proposal.probs, p
            )
            for rule in (TokenRule(), BlockRule())
        ]
        # Where a block would pass the limit the rules are not compared.
        ran = ~state.done & (state.length + gamma < state.limit)
        return algorithm.step(params, state)[0], (*found, ran)

    def step_or_rest(state, _):
        """No work once every row is done, which most texts are soon."""
        none = jnp.zeros((batch, gamma), jnp.float32)
        rest = (none, none, jnp.zeros((batch,), bool))
        return jax.lax.cond(state.done.all(), lambda state: (state, rest), step, state)

    return jax.lax.scan(step_or_rest, state, length=max_length - width)[1]


def branch_gains(
    p: Float[np.ndarray, "m v"],
    q: Float[np.ndarray, "m v"],
    alpha: float,
    *,
    task: str,
    temperature: float,
    gamma: int,
    costs: Sequence[float],
    seed: int = 0,
) -> list[BranchGain]:
    """What k branches would bring at real positions, and cost, k = 1, 2, ...

    First tokens are drawn without replacement and judged by `RecursiveRule`; the
    rest of the taken branch is accepted at the rate alpha.

    Args:
      p: the target's distribution at each position.
      q: the draft's; at temperature 0 its law at temperature 1, of which the
        likeliest k tokens are drafted.
      alpha: expected acceptance of one token.
      task: name of the texts.
      temperature: of both.
      gamma: drafted tokens of a branch.
      costs: of a step with 1, 2, ... branches over a plain step.
      seed: of the draws.
    """
    scores = jnp.log(jnp.asarray(q, jnp.float32))
    greedy = temperature <= GREEDY_TEMPERATURE
    if not greedy:
        keys = jax.random.split(jax.random.key(seed), len(p))
        scores += gumbel(keys, p.shape[1])
    tokens = jax.lax.top_k(scores, len(costs))[1]
    rest = sum(alpha**i for i in range(gamma))  # tokens once a first one stands
    gains = []
    for k, cost in enumerate(costs, 1):
        if greedy:
            law = jnp.take_along_axis(jnp.asarray(p), tokens[:, :k], 1).sum(1)
        else:
            law = _first_accepted(tokens[:, :k], jnp.asarray(q), jnp.asarray(p))
        first = float(np.asarray(law, np.float64).mean())
        gains.append(
            BranchGain(
                task=task,
                temperature=temperature,
                gamma=gamma,
                branches=k,
                steps=len(p),
                first=first,
                tokens=1 + first * rest,
                cost=cost,
            )
        )
    return gains


@jax.jit
def _first_accepted(
    tokens: Int[Array, "m k"], q: Float[Array, "m v"], p: Float[Array, "m v"]
) -> Float[Array, "m"]:
    """The probability that one of the first tokens is accepted."""

    def one(tokens: Int[Array, "k"], q: Any, p: Any):
        branches = tokens.shape[0]
        law = RecursiveRule().accept_law(
            tokens[:, None],
            jnp.broadcast_to(q, (branches, 1, *q.shape)),
            jnp.broadcast_to(p, (branches, 2, *p.shape)),
        )
        return law[:, 1].sum()

    return jax.lax.map(lambda row: one(*row), (tokens, q, p))
