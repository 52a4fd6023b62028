"""How far a draft's distribution is from its target's: what distillation lessens.

Reference: Zhou et al. 2023, DistillSpec, https://arxiv.org/abs/2310.08461, section 3
and table 1.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

DIVERGENCES = ("forward_kl", "reverse_kl", "jsd", "tv")


def divergence(
    name: str,
    target_logits: Float[Array, "*rows v"],
    draft_logits: Float[Array, "*rows v"],
    weight: float = 0.5,
) -> Float[Array, "*rows"]:
    """A divergence between p and q, the softmaxes of the target and of the draft.

    Args:
      name: "forward_kl" is KL(p || q), "reverse_kl" KL(q || p), "jsd" the
        generalized Jensen-Shannon divergence weight KL(p || m) + (1 - weight)
        KL(q || m) with m = weight p + (1 - weight) q, and "tv" total variation,
        sum |p - q| / 2, which is 1 - beta: the share that the draft loses.
      target_logits: of p, float32; -inf bars a token, for both or for neither.
      draft_logits: of q.
      weight: of "jsd", in (0, 1).

    Returns:
      The divergences in nats, total variation as a probability; never negative but
      by rounding.

    Raises:
      ValueError: if the name is unknown.
    """
    log_p = jax.nn.log_softmax(target_logits.astype(jnp.float32))
    log_q = jax.nn.log_softmax(draft_logits.astype(jnp.float32))
    if name == "forward_kl":
        return _kl(log_p, log_q)
    if name == "reverse_kl":
        return _kl(log_q, log_p)
    if name == "jsd":
        m = weight * jnp.exp(log_p) + (1 - weight) * jnp.exp(log_q)
        log_m = jnp.log(jnp.where(m > 0, m, 1.0))  # a barred token counts nothing
        return weight * _kl(log_p, log_m) + (1 - weight) * _kl(log_q, log_m)
    if name == "tv":
        return 0.5 * jnp.sum(jnp.abs(jnp.exp(log_p) - jnp.exp(log_q)), axis=-1)
    raise ValueError(f"want a divergence of {', '.join(DIVERGENCES)}, got {name!r}")


def _kl(log_p: Float[Array, "*rows v"], log_q: Float[Array, "*rows v"]):
    """KL(p || q) in nats; a token with p = 0 counts nothing, nor does its gradient."""
    barred = log_p == -jnp.inf
    ratio = jnp.where(barred, 0.0, log_p) - jnp.where(barred, 0.0, log_q)
    return jnp.sum(jnp.where(barred, 0.0, jnp.exp(log_p)) * ratio, axis=-1)
