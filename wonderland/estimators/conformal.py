"""What conformal predictions share: the quantile of scores that makes coverage exact, and levels of confidence.

A score says how badly an answer fits a sample. Of n samples that the model hasn't seen, and one more, each order of
their scores is equally likely; so the new one's is at most the k-th smallest of the n with probability k / (n + 1).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np


def conformal_quantile(scores: Any, confidence_level: Any) -> Any:
    """The ceil((n + 1) level)-th smallest of scores (..., n): what a new score doesn't exceed with at least that level.

    It is infinite where n is too small, n < level / (1 - level): 9 scores are needed for 0.9, 99 for 0.99. For a list
    of levels the result has them in its last axis. If no two scores are equal, the chance that a new one is at most
    this is k / (n + 1) exactly, with k = ceil((n + 1) level); given these n scores it is a number from the
    Beta(k, n + 1 - k) distribution. Vovk et al. 2005; Angelopoulos and Bates 2021.
    """
    scores, levels = np.asarray(scores, np.float64), numbers_of(confidence_level)
    if not scores.ndim or np.any(np.isnan(scores)):
        raise ValueError(f"conformal_quantile: scores are numbers (..., n), none of them NaN, got shape {scores.shape}")
    if not np.all((levels >= 0) & (levels <= 1)):
        raise ValueError(f"conformal_quantile: levels are from 0 to 1, got {confidence_level!r}: 0.9 for 90 %")
    n = scores.shape[-1]
    ranks = rank_of(n, levels)
    inside = np.minimum(ranks, n)
    if not n:
        return np.full(scores.shape[:-1] + levels.shape, np.inf)[()]
    chosen = np.partition(scores, np.unique(inside) - 1, axis=-1)[..., inside - 1]
    return np.where(ranks > n, np.inf, chosen)[()]


def rank_of(n: int, levels: np.ndarray) -> np.ndarray:
    """ceil((n + 1) level), where 10 * 0.9 is 9 whatever its last digit says."""
    return np.maximum(np.ceil((n + 1) * levels - 1e-9), 1).astype(np.int64)


def numbers_of(confidence_level: Any) -> np.ndarray:
    """Levels as floats; what isn't a number is NaN."""
    levels = np.asarray(confidence_level)
    return levels.astype(np.float64) if levels.dtype.kind in "fiu" else np.full(levels.shape, np.nan)


def levels_of(confidence_level: Any) -> np.ndarray:
    """Levels between 0 and 1, as an array (levels,)."""
    levels = numbers_of(confidence_level)
    if levels.ndim > 1 or not levels.size or not np.all((levels > 0) & (levels < 1)):
        raise ValueError(
            f"confidence_level is between 0 and 1, or a list of such, got {confidence_level!r}: 0.9 for 90 %"
        )
    return np.atleast_1d(levels)


def like_levels(values: np.ndarray, confidence_level: Any) -> np.ndarray:
    """Values (..., levels) without that axis if there was one level and no list of them."""
    return values[..., 0] if np.ndim(confidence_level) == 0 else values


def warn_if_infinite(quantiles: Any, n: int, levels: np.ndarray, what: str, ends: int = 1) -> None:
    """Say that there were too few samples, where each of so many ends has a quantile of its own."""
    if np.any(np.isinf(quantiles)):
        level = float(np.max(levels))
        least = int(np.ceil((ends - 1 + level) / (1 - level) - 1e-9))
        warnings.warn(
            f"{n} sample{' is' if n == 1 else 's are'} too few for confidence level {level:g}: {what}. It takes at "
            f"least {least} that the estimator wasn't fitted to",
            stacklevel=4,
        )
