"""The closed forms of the paper's sections 3 and A.2. NumPy only.

alpha is the expected acceptance, gamma the drafted tokens of a step, c the time
of one draft step over one plain target step. Acceptances are taken as
independent; at alpha = 1 every quotient takes its limit.

Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192.
"""

import numpy as np


def acceptance_rate(p: np.ndarray, q: np.ndarray) -> np.ndarray | np.floating:
    """beta = sum_x min(p(x), q(x)); its mean over contexts is alpha.

    Args:
      p: the target's distributions, over the last axis.
      q: the draft's.

    Reference: theorem 3.5 and corollary 3.6.
    """
    return np.minimum(p, q).sum(-1)


def rejection_sampling_rate(p: np.ndarray, q: np.ndarray) -> np.ndarray | np.floating:
    """What plain rejection sampling would accept; never more than beta.

    That is min over x of q(x) / p(x), tokens with p = 0 set aside.

    Reference: appendix A.2.
    """
    ratio = np.divide(q, p, out=np.full(np.shape(p), np.inf), where=np.asarray(p) > 0)
    return np.minimum(ratio.min(-1), 1.0)


def coupled_rate(p: np.ndarray, q: np.ndarray) -> np.ndarray | np.floating:
    """How often draws of p and q with the same Gumbel noise agree.

    That is the sum over x of 1 / sum_y max(p(y) / p(x), q(y) / q(x)), tokens with
    p = 0 or q = 0 set aside; never more than beta.

    Reference: Daliri et al. 2024, https://arxiv.org/abs/2408.07978, section 4.
    """
    p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
    both = (p > 0) & (q > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.maximum(
            p[..., None, :] / p[..., :, None], q[..., None, :] / q[..., :, None]
        )
        agree = 1.0 / ratios.sum(-1)
    return np.where(both, agree, 0.0).sum(-1)


def expected_tokens(alpha: float, gamma: float | int) -> float:
    """Tokens per target run, (1 - alpha^(gamma + 1)) / (1 - alpha).

    Args:
      alpha: expected acceptance, in [0, 1].
      gamma: drafted tokens a step, math.inf allowed.

    Example:
      >>> round(expected_tokens(0.8, 5), 2)
      3.69

    Reference: equation 1.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"want alpha in [0, 1], got {alpha}")
    if gamma < 0:
        raise ValueError(f"want gamma >= 0, got {gamma}")
    if alpha == 1:
        return float(gamma + 1)
    return (1 - alpha ** (gamma + 1)) / (1 - alpha)


def speedup(alpha: float, gamma: int, c: float, verify_cost: float = 1.0) -> float:
    """How much faster than plain decoding: tokens / (gamma c + verify_cost).

    Args:
      alpha: expected acceptance, in [0, 1].
      gamma: drafted tokens a step.
      c: time of one draft step over one plain target step.
      verify_cost: time of the target's call on gamma + 1 tokens over one plain
        step. The paper takes it as 1; measured, it says what a machine can reach.

    Reference: theorem 3.8.
    """
    return expected_tokens(alpha, gamma) / (gamma * c + verify_cost)


def least_speedup(alpha: float, c: float) -> float:
    """What some gamma reaches at least, (1 + alpha) / (1 + c); 1 if alpha <= c.

    Reference: corollary 3.9.
    """
    return (1 + alpha) / (1 + c) if alpha > c else 1.0


def operations(alpha: float, gamma: int, c_hat: float) -> float:
    """Arithmetic operations per token over those of plain decoding.

    Args:
      alpha: expected acceptance, in [0, 1].
      gamma: drafted tokens a step.
      c_hat: operations of a draft step over those of a target step.

    Reference: theorem 3.11.
    """
    return (gamma * c_hat + gamma + 1) / expected_tokens(alpha, gamma)


def optimal_gamma(
    alpha: float, c: float, verify_cost: float = 1.0, max_gamma: int = 256
) -> int:
    """The gamma of largest `speedup`; 0 says that no draft pays.

    Reference: section 3.5.
    """
    speeds = [1.0] + [
        speedup(alpha, gamma, c, verify_cost) for gamma in range(1, max_gamma + 1)
    ]
    return int(np.argmax(speeds))
