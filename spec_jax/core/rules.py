"""Verification rules as pairs of laws, without random numbers.

p is the target's distribution and q the draft's, as in Leviathan et al. 2023,
"Fast Inference from Transformers via Speculative Decoding",
https://arxiv.org/abs/2211.17192. Each law is of one row, so a rule can be checked by
enumeration; `core.verification` draws from it.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from spec_jax.base import Rule


def residual(p: Float[Array, "v"], q: Float[Array, "v"]) -> Float[Array, "v"]:
    """The law of a correction: norm(max(p - q, 0)), or p where that is zero.

    Args:
      p: the target's distribution at the rejected position.
      q: the draft's; all zero where nothing was drafted.

    Returns:
      A distribution. The fallback is reached by rounding only.

    Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, section 2.3.
    """
    return normalized(jnp.maximum(p - q, 0.0), p)


def normalized(
    weights: Float[Array, "v"], fallback: Float[Array, "v"]
) -> Float[Array, "v"]:
    """Weights as a distribution; the fallback where all are zero."""
    total = weights.sum()
    return jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), fallback)


class ResidualRule:
    """What rules share whose corrections follow norm(max(w p - q, 0)).

    The weight w of a position is 1 unless the rule says otherwise.
    """

    noise = "uniform"
    lossless = True

    def weights(
        self,
        tokens: Int[Array, "g"],
        q: Float[Array, "g v"],
        p: Float[Array, "n v"],
    ) -> Float[Array, "n"]:
        """w at each position."""
        del q, p
        return jnp.ones((tokens.shape[0] + 1,), jnp.float32)

    def excess(
        self,
        tokens: Int[Array, "g"],
        q: Float[Array, "g v"],
        p: Float[Array, "n v"],
        accepted: Int[Array, ""],
    ) -> Float[Array, "v"]:
        """max(w p - q, 0) after `accepted` tokens; w p itself past the last."""
        p_at, q_at = _at(p, q, accepted)
        weight = self.weights(tokens, q, p)[accepted]
        return jnp.maximum(weight * p_at - q_at, 0.0)

    def next_law(
        self,
        tokens: Int[Array, "g"],
        q: Float[Array, "g v"],
        p: Float[Array, "n v"],
        accepted: Int[Array, ""],
    ) -> Float[Array, "v"]:
        """The law of the token after `accepted` ones; p where no excess is left."""
        return normalized(self.excess(tokens, q, p, accepted), p[accepted])


@dataclasses.dataclass(frozen=True)
class TokenRule(ResidualRule):
    """Accepts token by token with probability min(1, p/q).

    Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, algorithm 1.
    """

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
        return _until_rejected(jnp.minimum(_ratios(tokens, q, p), 1.0))


@dataclasses.dataclass(frozen=True)
class BlockRule(ResidualRule):
    """Judges the block as a whole: never fewer expected tokens than `TokenRule`.

    P_0 = 1 and P_i = min(1, P_(i-1) p_i(x_i) / q_i(x_i)) is the weight after i
    tokens. With the next position's p and q, S_i = sum max(P_i p - q, 0) and h_i =
    S_i / (S_i + 1 - P_i), and h_gamma = P_gamma. The largest i that passes its own
    trial with probability h_i is accepted.

    Reference: Sun et al. 2024, https://arxiv.org/abs/2403.10444, algorithm 2.
    """

    def weights(self, tokens, q, p):
        """P_0 .. P_gamma. See `ResidualRule.weights`."""
        ratios = _ratios(tokens, q, p)
        weights = [jnp.float32(1.0)]
        for i in range(tokens.shape[0]):
            weights.append(jnp.minimum(weights[-1] * ratios[i], 1.0))
        return jnp.stack(weights)

    def accept_law(
        self,
        tokens: Int[Array, "g"],
        q: Float[Array, "g v"],
        p: Float[Array, "n v"],
    ) -> Float[Array, "n"]:
        """The probability of accepting exactly 0 .. g tokens. See `TokenRule`."""
        weight = self.weights(tokens, q, p)
        following = jnp.concatenate([q, jnp.zeros_like(q[:1])])
        # Past the end of a proposal the weight is zero, and p may be anything.
        excess = jnp.maximum(weight[:, None] * p - following, 0.0)
        excess = jnp.where(weight[:, None] > 0, excess, 0.0).sum(1)
        whole = excess + 1.0 - weight
        passes = jnp.where(whole > 0, excess / jnp.where(whole > 0, whole, 1.0), 1.0)
        passes = passes.at[0].set(1.0).at[-1].set(weight[-1])
        return _until_rejected(1.0 - passes[::-1])[-2::-1]


@dataclasses.dataclass(frozen=True)
class LenientRule(ResidualRule):
    """Accepts with probability min(1, p / (l q)): faster, and not the target's law.

    Above temperature 0 no token becomes more probable than p / l. At 0 a drafted
    token stands where p(x) >= l max p, p being the target's at temperature 1.

    Attributes:
      lenience: l in (0, 1]; 1 is `TokenRule`.

    Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, A.5.
    """

    lenience: float
    lossless = False

    def __post_init__(self):
        if not 0 < self.lenience <= 1:
            raise ValueError(f"want lenience in (0, 1], got {self.lenience}")

    def accept_law(
        self,
        tokens: Int[Array, "g"],
        q: Float[Array, "g v"],
        p: Float[Array, "n v"],
    ) -> Float[Array, "n"]:
        """The probability of accepting exactly 0 .. g tokens. See `TokenRule`."""
        ratios = _ratios(tokens, q, p) / self.lenience
        return _until_rejected(jnp.minimum(ratios, 1.0))


@dataclasses.dataclass(frozen=True)
class CoupledRule:
    """Accepts what the target would have drawn itself, from noise shared by both.

    At each position target and draft draw by the largest log-probability plus the
    same Gumbel noise; a drafted token stands if it is the target's draw. So the
    output is, token for token, that of plain decoding with noise="gumbel" and the
    same key, whatever the draft and gamma. It is no law of p and q alone: accepted
    tokens of one position depend on the noise of that position.

    Reference: Daliri et al. 2024, https://arxiv.org/abs/2408.07978, algorithm 2.
    """

    noise = "gumbel"
    lossless = True


AnyRule = Rule | CoupledRule


def is_lossless(rule: AnyRule | None) -> bool:
    """Whether outputs follow the target's distribution; None is the token rule."""
    return rule is None or rule.lossless


def _ratios(
    tokens: Int[Array, "g"], q: Float[Array, "g v"], p: Float[Array, "n v"]
) -> Float[Array, "g"]:
    """p / q of the drafted tokens, 0 where q is."""
    p_x = jnp.take_along_axis(p[:-1], tokens[:, None], 1)[:, 0]
    q_x = jnp.take_along_axis(q, tokens[:, None], 1)[:, 0]
    return jnp.where(q_x > 0, p_x / jnp.where(q_x > 0, q_x, 1.0), 0.0)


def _until_rejected(accept: Float[Array, "g"]) -> Float[Array, "n"]:
    """The law of how many independent trials pass before the first that fails."""
    gamma = accept.shape[0]
    before = jnp.arange(gamma) < jnp.arange(gamma + 1)[:, None]
    reach = jnp.where(before, accept, 1.0).prod(1)
    return reach * (1.0 - jnp.append(accept, 0.0))


def _at(
    p: Float[Array, "n v"], q: Float[Array, "g v"], position: Int[Array, ""]
) -> tuple[Float[Array, "v"], Float[Array, "v"]]:
    """p and q at a position; q is zero at the last one, where nothing is drafted."""
    gamma = q.shape[0]
    q_at = q[jnp.minimum(position, gamma - 1)]
    return p[position], jnp.where(position < gamma, q_at, 0.0)
