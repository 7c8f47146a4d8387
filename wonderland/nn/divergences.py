"""Distances of probability distributions: p and q, with their probabilities along an axis, come in.

The mean is over the distributions (PyTorch's "batchmean"), weights and masks belong to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.nn.arguments import apply, pair
from wonderland.nn.reduction import reduced
from wonderland.ops.special import rel_entr


def kl_divergence(
    p: Any, q: Any, *, axis: int = -1, log: bool = False, weight: Any = None, mask: Any = None, reduction: str = "mean"
) -> Any:
    """KL(p || q) = sum_i p_i log(p_i / q_i), where 0 log 0 is 0; infinite if q is 0 where p isn't.

    With `log`, both are given by their logarithms. `torch.nn.functional.kl_div(log_q, p, reduction="batchmean")` has
    them the other way round.
    """
    p, q = pair(p, q, "kl_divergence")
    if log:
        nothing = p == -np.inf
        terms = np.where(nothing, 0, np.exp(p) * (np.where(nothing, 0, p) - q))
    else:
        terms = apply(rel_entr, p, q)
    return reduced(np.sum(terms, axis=axis), reduction, "kl_divergence", weight, mask)


def jensen_shannon(
    p: Any, q: Any, *, axis: int = -1, weight: Any = None, mask: Any = None, reduction: str = "mean"
) -> Any:
    """(KL(p || m) + KL(q || m)) / 2 with m = (p + q) / 2: symmetric, and at most log 2. Lin 1991."""
    p, q = pair(p, q, "jensen_shannon")
    middle = 0.5 * (p + q)
    terms = 0.5 * (apply(rel_entr, p, middle) + apply(rel_entr, q, middle))
    return reduced(np.sum(terms, axis=axis), reduction, "jensen_shannon", weight, mask)


def total_variation(
    p: Any, q: Any, *, axis: int = -1, weight: Any = None, mask: Any = None, reduction: str = "mean"
) -> Any:
    """sum_i |p_i - q_i| / 2, the largest difference of the probabilities of an event; between 0 and 1."""
    p, q = pair(p, q, "total_variation")
    return reduced(0.5 * np.sum(np.abs(p - q), axis=axis), reduction, "total_variation", weight, mask)
