"""Whether samples follow a law."""

import numpy as np
from scipy import stats


def chi_square_pvalue(samples: np.ndarray, law: np.ndarray) -> float:
    """Chi-square p-value of independent samples against a joint law.

    Args:
      samples: integers [rows, k]; a sample of probability zero gives 0.
      law: probabilities of every outcome, an array with k axes.

    Returns:
      The p-value. Outcomes expected fewer than 5 times are pooled.
    """
    samples = np.asarray(samples)
    if samples.ndim != 2 or samples.shape[1] != law.ndim:
        raise ValueError(
            f"want samples [rows, {law.ndim}] for a law of shape {law.shape}, got "
            f"{samples.shape}"
        )
    if samples.min() < 0 or (samples >= law.shape).any():
        return 0.0
    flat = np.ravel_multi_index(tuple(samples.T), law.shape)
    counts = np.bincount(flat, minlength=law.size)
    expected = len(samples) * law.ravel() / law.sum()
    if counts[expected == 0].any():
        return 0.0
    rare = expected < 5
    observed, wanted = counts[~rare], expected[~rare]
    if expected[rare].sum() > 0:
        observed = np.append(observed, counts[rare].sum())
        wanted = np.append(wanted, expected[rare].sum())
    if len(observed) < 2:
        return 1.0
    return float(stats.chisquare(observed, wanted, sum_check=False).pvalue)
