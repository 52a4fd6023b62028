"""Which drafted tokens stand, and what follows them.

p is the target's distribution and q the draft's, as in Leviathan et al. 2023,
"Fast Inference from Transformers via Speculative Decoding",
https://arxiv.org/abs/2211.17192. A rule is a pair of laws; drawing from them is
shared code, so a rule can be checked by enumeration, without random numbers.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from spec_jax.base import Proposal, Rule, pytree
from spec_jax.core.draws import draw, pick, uniforms


@pytree
class Verdict:
    """Row i keeps its first `accepted[i]` drafted tokens, then `token[i]`.

    Attributes:
      accepted: how many drafted tokens stand.
      token: the correction, or the bonus token after a full acceptance.
      residual_empty: where a token was rejected though max(p - q, 0) is zero
        everywhere, which rounding alone can do: the correction was drawn from p.
    """

    accepted: Int[Array, "b"]
    token: Int[Array, "b"]
    residual_empty: Bool[Array, "b"]


def residual(p: Float[Array, "v"], q: Float[Array, "v"]) -> Float[Array, "v"]:
    """The law of a correction: norm(max(p - q, 0)), or p where that is zero.

    Args:
      p: the target's distribution at the rejected position.
      q: the draft's; all zero where nothing was drafted.

    Returns:
      A distribution. The fallback is reached by rounding only.

    Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, section 2.3.
    """
    excess = jnp.maximum(p - q, 0.0)
    total = excess.sum()
    return jnp.where(total > 0, excess / jnp.where(total > 0, total, 1.0), p)


@dataclasses.dataclass(frozen=True)
class TokenRule:
    """Accepts token by token with probability min(1, p/q).

    Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, algorithm 1.
    """

    lossless = True

    def accept_law(
        self,
        tokens: Int[Array, "g"],
        q: Float[Array, "g v"],
        p: Float[Array, "n v"],
    ) -> Float[Array, "n"]:
        """The probability of accepting exactly 0 .. g tokens.

        Args:
          tokens: the drafted tokens.
          q: what they were drawn from; zero past the end of the proposal.
          p: the target's distribution after 0 .. g of them.

        Returns:
          A distribution over the counts. A token with p = 0 or q = 0 is accepted
          with probability exactly 0.
        """
        gamma = tokens.shape[0]
        p_x = jnp.take_along_axis(p[:gamma], tokens[:, None], 1)[:, 0]
        q_x = jnp.take_along_axis(q, tokens[:, None], 1)[:, 0]
        ratio = jnp.where(q_x > 0, p_x / jnp.where(q_x > 0, q_x, 1.0), 0.0)
        accept = jnp.minimum(ratio, 1.0)
        before = jnp.arange(gamma) < jnp.arange(gamma + 1)[:, None]
        reach = jnp.where(before, accept, 1.0).prod(1)
        return reach * (1.0 - jnp.append(accept, 0.0))

    def next_law(
        self,
        tokens: Int[Array, "g"],
        q: Float[Array, "g v"],
        p: Float[Array, "n v"],
        accepted: Int[Array, ""],
    ) -> Float[Array, "v"]:
        """The residual at the first rejected position; p itself past the last."""
        return residual(*_at(p, q, accepted))


def _at(
    p: Float[Array, "n v"], q: Float[Array, "g v"], position: Int[Array, ""]
) -> tuple[Float[Array, "v"], Float[Array, "v"]]:
    """p and q at a position; q is zero at the last one, where nothing is drafted."""
    gamma = q.shape[0]
    q_at = q[jnp.minimum(position, gamma - 1)]
    return p[position], jnp.where(position < gamma, q_at, 0.0)


def verify(
    rule: Rule,
    keys: Key[Array, "b"],
    proposal: Proposal,
    p: Float[Array, "b n v"],
) -> Verdict:
    """Draws what a rule's laws say about a proposal.

    Args:
      rule: the rule.
      keys: one key a row; three uniforms are drawn from it.
      proposal: drafted tokens and what each was drawn from.
      p: the target's distribution after 0 .. g drafted tokens (n = g + 1).

    Returns:
      The verdict. An outcome of probability zero is never drawn. Past the end of
      a row's proposal q is zero: nothing is accepted there and the residual is
      p, so ragged and empty proposals and the bonus token need no branch.

    Raises:
      ValueError: if p has not one position more than the proposal, or another
        vocabulary.
    """
    tokens = proposal.tokens
    gamma = tokens.shape[1]
    vocab_size = p.shape[-1]
    if p.shape[1] != gamma + 1:
        raise ValueError(
            f"want p at gamma + 1 = {gamma + 1} positions, got {p.shape[1]}"
        )
    probs = proposal.probs
    if probs is None:
        probs = jax.nn.one_hot(tokens, vocab_size, dtype=jnp.float32)
    if probs.shape[-1] != vocab_size:
        raise ValueError(
            f"want one vocabulary, got {vocab_size} tokens from the target and "
            f"{probs.shape[-1]} from the draft; set the same vocab_limit in both "
            "policies"
        )

    def one_row(u, tokens, probs, count, p):
        q = jnp.where(jnp.arange(gamma)[:, None] < count, probs, 0.0)
        accepted = pick(u[0], rule.accept_law(tokens, q, p))
        token = draw(u[1:], rule.next_law(tokens, q, p, accepted))
        p_at, q_at = _at(p, q, accepted)
        empty = (accepted < count) & ~(p_at > q_at).any()
        return accepted, token, empty

    u = uniforms(keys, 3)
    return Verdict(*jax.vmap(one_row)(u, tokens, probs, proposal.count, p))


def verify_greedy(proposal: Proposal, choice: Int[Array, "b n"]) -> Verdict:
    """What every lossless rule does where p is one-hot, without random numbers.

    A drafted token stands exactly if it is the target's choice, whatever q it
    was drawn from, and the target's choice follows.

    Args:
      proposal: the drafted tokens; what they were drawn from is not read.
      choice: the target's likeliest tokens after 0 .. g drafted tokens.

    Returns:
      The verdict.
    """
    gamma = proposal.tokens.shape[1]
    if choice.shape[1] != gamma + 1:
        raise ValueError(f"want gamma + 1 = {gamma + 1} choices, got {choice.shape[1]}")
    slot = jnp.arange(gamma)
    fits = (proposal.tokens == choice[:, :-1]) & (slot < proposal.count[:, None])
    accepted = jnp.where(fits, gamma, slot).min(1).astype(jnp.int32)
    token = jnp.take_along_axis(choice, accepted[:, None], 1)[:, 0]
    return Verdict(accepted, token, jnp.zeros_like(fits[:, 0]))
