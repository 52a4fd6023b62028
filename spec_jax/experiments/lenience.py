"""alpha as the lenience falls: the paper's Table 5."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from spec_jax.base import Decoder, DraftSource, Inputs, Params, Proposal
from spec_jax.core.draws import first_argmax
from spec_jax.core.rules import LenientRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.experiments.alpha import reduced_along


def lenient_acceptances(
    target: Decoder,
    draft: DraftSource,
    policy: SamplingPolicy,
    params: Params,
    inputs: Inputs,
    prompt: Int[Array, "b t"],
    tokens: Int[Array, "b m"],
    lengths: Int[Array, "b"],
    key: Key[Array, "*rows"],
    *,
    leniences: tuple[float, ...],
) -> Float[Array, "b m l"]:
    """How often `LenientRule` accepts at each token of an output, for each l.

    Above temperature 0 that is sum_x min(p(x) / l, q(x)). At 0 it is 1 where the
    drafted token has p(x) >= l max p, p being the target's at temperature 1, and 0
    elsewhere. l = 1 is the token rule: then these are `acceptances`.

    Args:
      target: see `acceptances`, as for all up to `key`.
      draft: of the policy's temperature.
      policy: from the target's logits to p.
      params: of both models.
      inputs: what the prompt side needs.
      prompt: what the output follows.
      tokens: the target's own output.
      lengths: of the rows.
      key: one key, or one a row.
      leniences: each l in (0, 1].

    Returns:
      The acceptances, 0 past a row's length.

    Raises:
      ValueError: if a lenience is out of range, or there is none.

    Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, A.5.
    """
    check_leniences(leniences)
    greedy = policy.is_greedy()
    soft = dataclasses.replace(policy, temperature=1.0) if greedy else policy
    return reduced_along(
        target,
        draft,
        soft,
        params,
        inputs,
        prompt,
        tokens,
        lengths,
        key,
        reduce=_Lenient(tuple(leniences), greedy),
    )


def check_leniences(leniences: tuple[float, ...]) -> None:
    """Raises ValueError if there is none, or one is not in (0, 1]."""
    if not leniences:
        raise ValueError("want at least one lenience in (0, 1], got none")
    for lenience in leniences:
        LenientRule(lenience)


@dataclasses.dataclass(frozen=True)
class _Lenient:
    """From p and a proposal to the acceptance for each lenience.

    Attributes:
      leniences: each l.
      greedy: whether the drafted token is the draft's likeliest, p being soft.
    """

    leniences: tuple[float, ...]
    greedy: bool

    def __call__(
        self, p: Float[Array, "b v"], proposal: Proposal
    ) -> Float[Array, "b l"]:
        l = jnp.array(self.leniences)
        token = proposal.tokens[:, :1]
        p_x = jnp.take_along_axis(p, token, axis=1)
        if self.greedy:
            likely = p_x >= l * p.max(-1, keepdims=True)
            # Of tokens that are equally likely the token rule keeps the first alone.
            first = token == first_argmax(p)[:, None]
            accepted = jnp.where(l == 1, first, likely).astype(jnp.float32)
        elif proposal.probs is None:
            accepted = jnp.minimum(p_x / l, 1.0)
        else:
            q = proposal.probs[:, 0]
            accepted = jax.lax.map(lambda one: jnp.minimum(p / one, q).sum(-1), l).T
        return jnp.where(proposal.count[:, None] > 0, accepted, 0.0)
