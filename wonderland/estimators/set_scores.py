"""How badly each class fits a sample, from its probabilities: the scores behind conformal sets.

All take probabilities (n, classes) and give scores (n, classes), of which the true class's is kept for calibration.
A set has the classes whose score is at most the quantile of those.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rankdata


def lac_scores(probabilities: Any) -> np.ndarray:
    """1 - p_k: sets are the classes with a probability above a threshold, and the smallest on average. Sadinle 2019."""
    return 1 - np.asarray(probabilities, np.float64)


def top_k_scores(probabilities: Any) -> np.ndarray:
    """The rank of each class, 1 for the likeliest: all sets have one size. Of equal probabilities the best rank."""
    return rankdata(-np.asarray(probabilities, np.float64), method="min", axis=1)


def aps_scores(probabilities: Any, u: Any = 1.0) -> np.ndarray:
    """The sum of p_j over classes j likelier than k, plus u p_k: adaptive sets, larger where the model is unsure.

    `u` is 1, or for exact coverage a random number in [0, 1] for each sample, (n,). Romano, Sesia and Candes 2020.
    """
    return raps_scores(probabilities, u, penalty=0.0)


def raps_scores(probabilities: Any, u: Any = 1.0, penalty: float = 0.1, k_reg: int = 1) -> np.ndarray:
    """`aps_scores` plus `penalty` for each rank after the first `k_reg`: regularised, which keeps sets from being huge.

    Angelopoulos et al. 2021, who call the penalty lambda.
    """
    p = np.asarray(probabilities, np.float64)
    order = np.argsort(-p, axis=1, kind="stable")
    ranked = np.take_along_axis(p, order, axis=1)
    total = np.cumsum(ranked, axis=1)
    ranked, total = ranked / total[:, -1:], total / total[:, -1:]  # so that the last is 1 to the last digit
    scores = total - (1 - np.reshape(u, (-1, 1))) * ranked
    scores += penalty * np.maximum(np.arange(1, p.shape[1] + 1) - k_reg, 0)
    out = np.empty_like(p)
    np.put_along_axis(out, order, scores, axis=1)
    return out
