"""Which drafted tokens stand, and what follows them.

p is the target's distribution and q the draft's, as in Leviathan et al. 2023,
"Fast Inference from Transformers via Speculative Decoding",
https://arxiv.org/abs/2211.17192. Rules are laws, see `core.rules`; drawing from them
is shared code, here.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from spec_jax.base import Proposal, Rule, pytree
from spec_jax.core.draws import draw, pick, uniforms
from spec_jax.core.rules import LenientRule, ResidualRule


@pytree
class Verdict:
    """Row i keeps its first `accepted[i]` drafted tokens, then `token[i]`.

    Attributes:
      accepted: how many drafted tokens stand.
      token: the correction, or the bonus token after a full acceptance.
      residual_empty: where a token was rejected though the residual is zero
        everywhere, which rounding alone can do: the correction was drawn from p.
        False for a rule that is no `ResidualRule`.
    """

    accepted: Int[Array, "b"]
    token: Int[Array, "b"]
    residual_empty: Bool[Array, "b"]


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
        # What the target says past a proposal is not read: it may be NaN.
        p = jnp.where(jnp.arange(gamma + 1)[:, None] <= count, p, 0.0)
        accepted = pick(u[0], rule.accept_law(tokens, q, p))
        token = draw(u[1:], rule.next_law(tokens, q, p, accepted))
        if not isinstance(rule, ResidualRule):
            return accepted, token, jnp.bool_(False)
        excess = rule.excess(tokens, q, p, accepted)
        return accepted, token, (accepted < count) & ~(excess > 0).any()

    u = uniforms(keys, 3)
    return Verdict(*jax.vmap(one_row)(u, tokens, probs, proposal.count, p))


def verify_choice(proposal: Proposal, choice: Int[Array, "b n"]) -> Verdict:
    """Keeps drafted tokens while they are the target's own choice.

    That is every lossless rule where p is one-hot, and `CoupledRule` where the
    choices are draws with shared noise. What the tokens were drawn from is not
    read.

    Args:
      proposal: the drafted tokens.
      choice: what the target chooses after 0 .. g drafted tokens.

    Returns:
      The verdict.
    """
    gamma = proposal.tokens.shape[1]
    if choice.shape[1] != gamma + 1:
        raise ValueError(f"want gamma + 1 = {gamma + 1} choices, got {choice.shape[1]}")
    return _verify_fits(proposal, proposal.tokens == choice[:, :-1], choice)


def verify_lenient(
    rule: LenientRule,
    proposal: Proposal,
    soft: Float[Array, "b n v"],
    choice: Int[Array, "b n"],
) -> Verdict:
    """What `LenientRule` does at temperature 0, without random numbers.

    Args:
      rule: the rule.
      proposal: the drafted tokens.
      soft: the target's distribution at temperature 1.
      choice: its likeliest tokens.

    Returns:
      The verdict: a token stands where its probability is at least l times the
      largest; after the first that does not, the likeliest token follows.
    """
    p_x = jnp.take_along_axis(soft[:, :-1], proposal.tokens[..., None], -1)[..., 0]
    fits = p_x >= rule.lenience * soft[:, :-1].max(-1)
    return _verify_fits(proposal, fits, choice)


def _verify_fits(
    proposal: Proposal, fits: Bool[Array, "b g"], choice: Int[Array, "b n"]
) -> Verdict:
    """Keeps drafted tokens up to the first that does not fit, then the choice."""
    gamma = proposal.tokens.shape[1]
    slot = jnp.arange(gamma)
    fits &= slot < proposal.count[:, None]
    accepted = jnp.where(fits, gamma, slot).min(1).astype(jnp.int32)
    token = jnp.take_along_axis(choice, accepted[:, None], 1)[:, 0]
    return Verdict(accepted, token, jnp.zeros_like(fits[:, 0]))
