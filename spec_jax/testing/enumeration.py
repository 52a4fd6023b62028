"""The law of a verification rule's output, summed over every draft and verdict."""

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from spec_jax.base import Rule

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


def emitted_law(
    rule: Rule, p: Law, q: Law, prefix: Sequence[int], gamma: int
) -> np.ndarray:
    """The law of gamma + 1 tokens: one step, continued by plain sampling from p.

    Args:
      rule: the rule; no random number is used.
      p: the target.
      q: the draft, sampled token by token.
      prefix: the tokens before.
      gamma: drafted tokens.

    Returns:
      An array [v] * (gamma + 1); a lossless rule's equals `chain_law` of p.
    """
    prefix = tuple(prefix)
    drafts, drawn, q_along, p_along = drafted_laws(p, q, prefix, gamma)
    as_float32 = jnp.asarray(q_along, jnp.float32), jnp.asarray(p_along, jnp.float32)
    arguments = (jnp.asarray(drafts), *as_float32)
    accept = np.asarray(jax.vmap(rule.accept_law)(*arguments), np.float64)
    over_counts = jax.vmap(rule.next_law, (None, None, None, 0))
    counts = jnp.arange(gamma + 1)
    following = jax.vmap(lambda x, q, p: over_counts(x, q, p, counts))(*arguments)
    following = np.asarray(following, np.float64)

    law = np.zeros((p_along.shape[-1],) * (gamma + 1))
    for draft, mass, accept_row, next_row in zip(
        drafts.tolist(), drawn, accept, following, strict=True
    ):
        for count in range(gamma + 1):
            kept = tuple(draft[:count])
            for token, chance in enumerate(next_row[count]):
                rest = chain_law(p, (*prefix, *kept, token), gamma - count)
                law[(*kept, token)] += mass * accept_row[count] * chance * rest
    return law
