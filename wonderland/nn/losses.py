"""Losses of numbers: a prediction and a target of one shape come in, a number goes out.

All take `reduction="mean"` (or "sum", "none"), a `weight` and a `mask` of bools; `reduction.py` says what these mean.
The result has the dtype of the prediction. Classes are in `classification.py`, pairs and sets of vectors in
`contrastive.py`, sequences without alignment in `ctc.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.nn.arguments import demand, floating, pair
from wonderland.nn.reduction import or_masked, reduced
from wonderland.transform.derivatives import stop_gradient

# Of the difference ---------------------------------------------------------------------------------------------------


def mse_loss(prediction: Any, target: Any, *, weight: Any = None, mask: Any = None, reduction: str = "mean") -> Any:
    """The squared loss, (prediction - target)^2."""
    prediction, target = pair(prediction, target, "mse_loss")
    error = prediction - target
    return reduced(error * error, reduction, "mse_loss", weight, mask)


def l1_loss(prediction: Any, target: Any, *, weight: Any = None, mask: Any = None, reduction: str = "mean") -> Any:
    """The absolute loss, |prediction - target|; its derivative where they are equal is 0."""
    prediction, target = pair(prediction, target, "l1_loss")
    return reduced(np.abs(prediction - target), reduction, "l1_loss", weight, mask)


def huber_loss(
    prediction: Any, target: Any, delta: float = 1.0, *, weight: Any = None, mask: Any = None, reduction: str = "mean"
) -> Any:
    """e^2 / 2 for errors |e| <= delta, and delta (|e| - delta / 2) beyond. Huber 1964."""
    prediction, target = pair(prediction, target, "huber_loss")
    _positive("huber_loss", delta=delta)
    size = np.abs(prediction - target)
    inner = np.where(size <= delta, size, 0)  # squares of large errors would overflow
    loss = np.where(size <= delta, 0.5 * inner * inner, delta * (size - 0.5 * delta))
    return reduced(loss, reduction, "huber_loss", weight, mask)


def smooth_l1_loss(
    prediction: Any, target: Any, beta: float = 1.0, *, weight: Any = None, mask: Any = None, reduction: str = "mean"
) -> Any:
    """e^2 / (2 beta) for errors |e| < beta, |e| - beta / 2 beyond: `huber_loss` / beta; at beta = 0, `l1_loss`."""
    if beta == 0:
        return l1_loss(prediction, target, weight=weight, mask=mask, reduction=reduction)
    return huber_loss(prediction, target, beta, weight=weight, mask=mask, reduction=reduction) / beta


def lp_loss(
    prediction: Any, target: Any, p: float = 2.0, axis: int = -1, *, weight: Any = None, mask: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """The L^p distance along an axis, (sum |prediction - target|^p)^(1/p), p >= 1; infinity is the largest difference.

    Where prediction and target are equal its derivative is 0.
    """
    prediction, target = pair(prediction, target, "lp_loss")
    if p < 1:
        raise ValueError(f"lp_loss: p is at least 1, got {p}")
    return reduced(np.linalg.norm(prediction - target, p, axis=axis), reduction, "lp_loss", weight, mask)


# Of scores and signs -------------------------------------------------------------------------------------------------


def hinge_loss(
    score: Any, target: Any, margin: float = 1.0, *, weight: Any = None, mask: Any = None, reduction: str = "mean"
) -> Any:
    """max(0, margin - target score), for targets -1 and 1; its derivative at the kink is 0."""
    return reduced(_hinge(score, target, margin, "hinge_loss", mask), reduction, "hinge_loss", weight, mask)


def squared_hinge_loss(
    score: Any, target: Any, margin: float = 1.0, *, weight: Any = None, mask: Any = None, reduction: str = "mean"
) -> Any:
    """max(0, margin - target score)^2, for targets -1 and 1."""
    loss = _hinge(score, target, margin, "squared_hinge_loss", mask)
    return reduced(loss * loss, reduction, "squared_hinge_loss", weight, mask)


def _hinge(score: Any, target: Any, margin: float, name: str, mask: Any) -> Any:
    score, target = pair(score, target, name)
    fits = or_masked((target == 1) | (target == -1), mask, score.shape, name)
    demand(fits, f"{name}: targets are -1 and 1 (of 0 and 1: 2 * target - 1), got {{}}", target)
    missing = margin - target * score
    return np.where(missing <= 0, 0, missing)


# Negative log-likelihoods --------------------------------------------------------------------------------------------


def poisson_nll_loss(
    prediction: Any, target: Any, log_input: bool = True, full: bool = False, eps: float = 1e-8, *, weight: Any = None,
    mask: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """rate - target log(rate), of counts whose rate (its logarithm if `log_input`) is predicted.

    `full` adds Stirling's approximation of log(target!), target log(target) - target + log(2 pi target) / 2 where the
    target is more than 1. A rate that isn't a logarithm is increased by `eps` under the logarithm.
    """
    prediction, target = pair(prediction, target, "poisson_nll_loss")
    if log_input:
        loss = np.exp(prediction) - target * prediction
    else:
        loss = prediction - target * np.log(prediction + eps)
    if full:
        many = np.where(target > 1, target, 1)
        stirling = many * np.log(many) - many + 0.5 * np.log(2 * math.pi * many)
        loss = loss + np.where(target > 1, stirling, 0)
    return reduced(loss, reduction, "poisson_nll_loss", weight, mask)


def gaussian_nll_loss(
    prediction: Any, target: Any, variance: Any, full: bool = False, eps: float = 1e-6, *, weight: Any = None,
    mask: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """(log(variance) + (prediction - target)^2 / variance) / 2; `full` adds log(2 pi) / 2.

    The variance has the shape of the prediction, or ones in it, or lacks the last axis (one for each sample). It is at
    least `eps`, which derivatives don't see. Nix and Weigend 1994.
    """
    prediction, target = pair(prediction, target, "gaussian_nll_loss")
    variance = floating(variance, "gaussian_nll_loss: the variance").astype(prediction.dtype)
    if variance.ndim and variance.shape == prediction.shape[:-1] != prediction.shape:
        variance = variance[..., None]
    if variance.ndim not in (0, prediction.ndim) or any(
        n not in (1, of) for n, of in zip(variance.shape, prediction.shape, strict=False)
    ):
        raise ValueError(
            f"gaussian_nll_loss: the variance has shape {variance.shape}, the prediction {prediction.shape}: they are "
            "the same, but for ones and a last axis that may be missing"
        )
    fits = or_masked(~(variance < 0), mask, prediction.shape, "gaussian_nll_loss")
    demand(fits, "gaussian_nll_loss: a variance isn't negative, got {}", variance)
    below = stop_gradient(eps - variance)
    variance = variance + np.where(below > 0, below, 0)
    error = prediction - target
    loss = 0.5 * (np.log(variance) + error * error / variance) + (0.5 * math.log(2 * math.pi) if full else 0.0)
    return reduced(loss, reduction, "gaussian_nll_loss", weight, mask)


def _positive(name: str, **numbers: Any) -> None:
    for key, number in numbers.items():
        if isinstance(number, (int, float)) and not number > 0:
            raise ValueError(f"{name}: {key} is positive, got {number}")
