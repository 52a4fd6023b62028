"""Several drafts a step: recursive rejection sampling without replacement, as a law.

k branches of g tokens differ in their first tokens, which are drawn from q one after
another without replacement; each branch then goes on by itself. Shape letter k is the
number of branches.

Jeon et al. 2024, "Recursive Speculative Decoding: Accelerating LLM Inference via
Sampling Without Replacement", https://arxiv.org/abs/2402.14160, section 3.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from spec_jax.core.rules import TokenRule, normalized, residual


def without_replacement(
    tokens: Int[Array, "k"], q: Float[Array, "v"]
) -> Float[Array, "k v"]:
    """What each of k tokens was drawn from, the ones before it left out.

    Args:
      tokens: in the order in which they were drawn.
      q: the distribution of the first.

    Returns:
      A distribution a token; zero where no other token was left to draw.
    """
    laws = [q]
    for token in tokens[:-1]:
        left = jnp.where(jnp.arange(q.shape[0]) == token, 0.0, laws[-1])
        laws.append(normalized(left, jnp.zeros_like(left)))
    return jnp.stack(laws)


@dataclasses.dataclass(frozen=True)
class RecursiveRule:
    """Judges k branches: their first tokens in turn, then the chosen branch alone.

    Token j is accepted with probability min(1, r_j / s_j), where s_j is what it was
    drawn from, r_1 = p and r_(j+1) = norm(max(r_j - s_j, 0)). The rest of an accepted
    token's branch is judged by `TokenRule`. With one branch it is `TokenRule`.

    Example: more branches are accepted more often.
      >>> q, p = jnp.array([0.5, 0.3, 0.2]), jnp.array([0.2, 0.3, 0.5])
      >>> tokens = jnp.array([[0], [1]])
      >>> law = RecursiveRule().accept_law(
      ...     tokens, jnp.tile(q, (2, 1, 1)), jnp.tile(p, (2, 2, 1))
      ... )
      >>> [[round(float(x), 2) for x in row] for row in law]  # [branch][accepted]
      [[0.6, 0.4], [0.0, 0.0]]
    """

    lossless = True

    def accept_law(
        self,
        tokens: Int[Array, "k g"],
        q: Float[Array, "k g v"],
        p: Float[Array, "k n v"],
    ) -> Float[Array, "k n"]:
        """The probability of taking branch j and exactly i of its tokens.

        Args:
          tokens: the branches; their first tokens differ.
          q: what the draft gives along each branch; q[:, 0] is the same for all, the
            law from which first tokens were drawn without replacement.
          p: the target's distribution along each branch; p[:, 0] is the same for all.

        Returns:
          A distribution over branches and counts. That no branch is taken stands at
          [0, 0], and [j, 0] is 0 for the others.
        """
        accept, _ = _first_tokens(tokens[:, 0], q[0, 0], p[0, 0])
        before = jnp.cumprod(jnp.append(1.0, 1.0 - accept))
        rest = TokenRule().accept_law
        along = jax.vmap(rest)(tokens[:, 1:], q[:, 1:], p[:, 1:])
        taken = (before[:-1] * accept)[:, None] * along
        none = jnp.zeros((len(accept),)).at[0].set(before[-1])
        return jnp.concatenate([none[:, None], taken], axis=1)

    def next_law(
        self,
        tokens: Int[Array, "k g"],
        q: Float[Array, "k g v"],
        p: Float[Array, "k n v"],
        branch: Int[Array, ""],
        accepted: Int[Array, ""],
    ) -> Float[Array, "v"]:
        """The law of the token after `accepted` ones of a branch.

        Where none was accepted that is what is left of p after all k first tokens;
        `branch` is not read then.
        """
        _, left = _first_tokens(tokens[:, 0], q[0, 0], p[0, 0])
        none_left = jnp.zeros_like(q[:, :1])  # past the last one nothing is drafted
        q_at = jnp.concatenate([q, none_left], axis=1)[branch, accepted]
        return jnp.where(accepted == 0, left, residual(p[branch, accepted], q_at))


def _first_tokens(
    tokens: Int[Array, "k"], q: Float[Array, "v"], p: Float[Array, "v"]
) -> tuple[Float[Array, "k"], Float[Array, "v"]]:
    """Each token's acceptance if its turn comes, and what p is after all of them."""
    accept = []
    for token, drawn_from in zip(tokens, without_replacement(tokens, q)):
        q_x, p_x = drawn_from[token], p[token]
        ratio = jnp.where(q_x > 0, p_x / jnp.where(q_x > 0, q_x, 1.0), 0.0)
        accept.append(jnp.minimum(ratio, 1.0))
        p = residual(p, drawn_from)
    return jnp.stack(accept), p
