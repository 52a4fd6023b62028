"""The law of a verification rule's output, summed over every draft and verdict."""

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from spec_jax.base import Rule
from spec_jax.core.branches import RecursiveRule

Law = Callable[[Sequence[int]], np.ndarray]
"""From a prefix of tokens to the probabilities [v] of the next."""


def chain_law(p: Law, prefix: Sequence[int], num_tokens: int) -> np.ndarray:
    """The law of the next tokens by the chain rule.

    Args:
      p: the model.
      prefix: the tokens before.
      num_tokens: k.

    Returns:
      float64 probabilities of every sequence, an array [v] * k.
    """
    if num_tokens == 0:
        return np.ones(())
    first = np.asarray(p(tuple(prefix)), np.float64)
    return np.stack(
        [
            mass * chain_law(p, (*prefix, token), num_tokens - 1)
            for token, mass in enumerate(first)
        ]
    )


Stop = Callable[[Sequence[int]], bool]
"""Whether a draft ends after the tokens that it has so far."""


def drafted_laws(
    p: Law, q: Law, prefix: Sequence[int], gamma: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Every draft of gamma tokens, its probability, and q and p along it.

    Args:
      p: the target.
      q: the draft.
      prefix: the tokens before.
      gamma: drafted tokens.

    Returns:
      drafts [d, g], their probabilities [d], q [d, g, v] and p [d, n, v], in
      float64.
    """
    prefix = tuple(prefix)
    vocab_size = len(p(prefix))
    drafts = np.array(list(itertools.product(range(vocab_size), repeat=gamma)))
    along = [
        [(*prefix, *draft[:i].tolist()) for i in range(gamma + 1)] for draft in drafts
    ]
    q_along = np.array([[q(context) for context in row[:-1]] for row in along])
    p_along = np.array([[p(context) for context in row] for row in along])
    drawn = np.take_along_axis(q_along, drafts[..., None], -1)[..., 0].prod(-1)
    return drafts, drawn, q_along, p_along


def expected_tokens(
    rule: Rule, p: Law, q: Law, prefix: Sequence[int], gamma: int
) -> float:
    """The expected number of tokens that a step emits: accepted ones and one more."""
    drafts, drawn, q_along, p_along = drafted_laws(p, q, prefix, gamma)
    accept = _laws(rule, drafts, q_along, p_along)[0]
    return float(drawn @ accept @ np.arange(1, gamma + 2))


def emitted_law(
    rule: Rule,
    p: Law,
    q: Law,
    prefix: Sequence[int],
    gamma: int,
    stop: Stop | None = None,
) -> np.ndarray:
    """The law of gamma + 1 tokens: one step, continued by plain sampling from p.

    Args:
      rule: the rule; no random number is used.
      p: the target.
      q: the draft, sampled token by token.
      prefix: the tokens before.
      gamma: drafted tokens.
      stop: a draft of fewer tokens ends after the first ones for which this holds,
        the one that it looked at kept.

    Returns:
      An array [v] * (gamma + 1); a lossless rule's equals `chain_law` of p.
    """
    prefix = tuple(prefix)
    drafts, drawn, q_along, p_along = drafted_laws(p, q, prefix, gamma)
    if stop is not None:
        for draft, q_row in zip(drafts.tolist(), q_along):
            kept = [i for i in range(1, gamma) if stop(draft[:i])]
            q_row[min(kept, default=gamma) :] = 0.0
    accept, following = _laws(rule, drafts, q_along, p_along)
    law = np.zeros((p_along.shape[-1],) * (gamma + 1))
    for draft, mass, accept_row, next_row in zip(
        drafts.tolist(), drawn, accept, following, strict=True
    ):
        for count in range(gamma + 1):
            _add(
                law,
                p,
                prefix,
                draft[:count],
                mass * accept_row[count] * next_row[count],
            )
    return law


def loop_law(
    rule: Rule, p: Law, q: Law, prefix: Sequence[int], gamma: int, num_tokens: int
) -> np.ndarray:
    """The law of the next tokens when steps of a rule follow one another.

    What a rule that is not lossless does in the end; a lossless one's is `chain_law`
    of p. A step drafts no more than leaves room for the token after it.

    Args:
      rule: the rule.
      p: the target.
      q: the draft.
      prefix: the tokens before.
      gamma: drafted tokens of a step.
      num_tokens: k.

    Returns:
      An array [v] * k.
    """
    gamma = min(gamma, num_tokens - 1)
    if gamma < 1:
        return chain_law(p, prefix, num_tokens)
    prefix = tuple(prefix)
    drafts, drawn, q_along, p_along = drafted_laws(p, q, prefix, gamma)
    accept, following = _laws(rule, drafts, q_along, p_along)
    law = np.zeros((p_along.shape[-1],) * num_tokens)
    steps: dict[tuple[int, ...], float] = {}
    for i, draft in enumerate(drafts.tolist()):
        for count in range(gamma + 1):
            for token, chance in enumerate(following[i, count]):
                emitted = (*draft[:count], token)
                mass = drawn[i] * accept[i, count] * chance
                steps[emitted] = steps.get(emitted, 0.0) + mass
    for emitted, mass in steps.items():
        left = num_tokens - len(emitted)
        law[emitted] += mass * loop_law(rule, p, q, (*prefix, *emitted), gamma, left)
    return law


def emitted_law_of_branches(
    rule: RecursiveRule,
    p: Law,
    q: Law,
    prefix: Sequence[int],
    gamma: int,
    branches: int,
) -> np.ndarray:
    """`emitted_law` of a step that drafts several branches.

    First tokens are drawn from q without replacement, the rest of each branch token
    by token; every ordered draw of all branches is summed over.

    Raises:
      ValueError: if there are fewer tokens than branches.
    """
    prefix = tuple(prefix)
    if branches > len(p(prefix)):
        raise ValueError(
            f"want branches of different first tokens, got {branches} for a "
            f"vocabulary of {len(p(prefix))}"
        )
    tails, drawn, q_along, p_along = drafted_laws(p, q, prefix, gamma)
    size = p_along.shape[-1]
    first, index = tails[:, 0], np.arange(len(tails))
    root = np.asarray(q(prefix), np.float64)
    rest = drawn / root[first]  # of a branch, its first token given
    chosen = np.array(
        [
            rows
            for rows in itertools.product(index, repeat=branches)
            if len(set(first[list(rows)])) == branches
        ]
    )
    mass = rest[chosen].prod(1)
    left = np.ones(len(chosen))
    for j in range(branches):
        share = root[first[chosen[:, j]]]
        mass *= share / left
        left -= share
    arrays = (
        jnp.asarray(tails[chosen]),
        jnp.asarray(q_along[chosen], jnp.float32),
        jnp.asarray(p_along[chosen], jnp.float32),
    )
    accept = np.asarray(jax.jit(jax.vmap(rule.accept_law))(*arrays), np.float64)
    law = np.zeros((size,) * (gamma + 1))
    over = jax.jit(jax.vmap(rule.next_law, (0, 0, 0, None, None)))
    for branch, count in np.ndindex(branches, gamma + 1):
        following = np.asarray(over(*arrays, branch, count), np.float64)
        weight = (mass * accept[:, branch, count])[:, None] * following
        for rows, chances in zip(chosen, weight):
            _add(law, p, prefix, tails[rows[branch]][:count].tolist(), chances)
    return law


def _laws(rule: Rule, drafts, q, p) -> tuple[np.ndarray, np.ndarray]:
    """A rule's laws for each draft: of counts [d, n], of the next token [d, n, v]."""
    arguments = jnp.asarray(drafts), jnp.float32(q), jnp.float32(p)
    accept = np.asarray(jax.vmap(rule.accept_law)(*arguments), np.float64)
    over_counts = jax.vmap(rule.next_law, (None, None, None, 0))
    counts = jnp.arange(p.shape[1])
    following = jax.vmap(lambda x, q, p: over_counts(x, q, p, counts))(*arguments)
    return accept, np.asarray(following, np.float64)


def _add(law: np.ndarray, p: Law, prefix, kept: Sequence[int], chances) -> None:
    """Adds the outcomes that begin with the kept tokens and one more, by its chance."""
    for token, chance in enumerate(chances):
        if chance:
            rest = chain_law(p, (*prefix, *kept, token), law.ndim - len(kept) - 1)
            law[(*kept, token)] += chance * rest
