"""Losses of two classes: a logit or a probability for each event comes in, with targets between 0 and 1."""

from __future__ import annotations

from typing import Any

from wonderland.nn.activations import sigmoid, softplus
from wonderland.nn.arguments import bounded_log, demand, floating, pair, power
from wonderland.nn.reduction import or_masked, reduced


def binary_cross_entropy_with_logits(
    logits: Any, target: Any, *, pos_weight: Any = None, label_smoothing: float = 0.0, weight: Any = None,
    mask: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """-target log sigmoid(logits) - (1 - target) log sigmoid(-logits), for targets between 0 and 1.

    `pos_weight`, to broadcast with the logits (one for each class in the last axis), multiplies the first term.
    `label_smoothing` moves targets towards 1/2. As in PyTorch the mean divides by the number of elements, and not by
    the sum of their weights.
    """
    name = "binary_cross_entropy_with_logits"
    logits, target = _binary(name, logits, target, label_smoothing)
    # (1 - t) x + (1 + (q - 1) t) softplus(-x), which for q = 1 is softplus(x) - t x
    if pos_weight is None:
        loss = softplus(logits) - target * logits
    else:
        factor = 1 + (_fitting(name, pos_weight, logits) - 1) * target
        loss = (1 - target) * logits + factor * softplus(-logits)
    return reduced(loss, reduction, name, weight, mask, per_weight=False)


def binary_cross_entropy(
    probabilities: Any, target: Any, *, label_smoothing: float = 0.0, weight: Any = None, mask: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """-target log(p) - (1 - target) log(1 - p), for probabilities p; logarithms are at least -100, as in PyTorch.

    The mean divides by the number of elements, and not by the sum of their weights. Of logits,
    `binary_cross_entropy_with_logits` keeps more digits.
    """
    name = "binary_cross_entropy"
    p, target = _binary(name, probabilities, target, label_smoothing)
    message = f"{name}: probabilities are between 0 and 1, got {{}} (of logits: {name}_with_logits)"
    demand(or_masked(~((p < 0) | (p > 1)), mask, p.shape, name), message, p)  # a NaN is a NaN
    loss = -(target * bounded_log(p) + (1 - target) * bounded_log(1 - p))
    return reduced(loss, reduction, name, weight, mask, per_weight=False)


def _binary(name: str, prediction: Any, target: Any, smoothing: float) -> tuple[Any, Any]:
    prediction, target = pair(prediction, target, name)
    if isinstance(smoothing, (int, float)) and smoothing == 0:
        return prediction, target
    return prediction, target * (1 - smoothing) + 0.5 * smoothing


def _fitting(name: str, weight: Any, logits: Any) -> Any:
    weight = floating(weight, f"{name}: pos_weight").astype(logits.dtype)
    if weight.ndim > logits.ndim or any(
        n not in (1, of) for n, of in zip(weight.shape[::-1], logits.shape[::-1], strict=False)
    ):
        raise ValueError(f"{name}: pos_weight, {weight.shape}, doesn't broadcast to the logits, {logits.shape}")
    return weight


def sigmoid_focal_loss(
    logits: Any, target: Any, alpha: float | None = 0.25, gamma: float = 2.0, *, weight: Any = None, mask: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """The focal loss of two classes: alpha_t (1 - p_t)^gamma times the binary cross-entropy, for targets 0 and 1.

    p_t is the probability sigmoid(+-logits) of what is the case; alpha_t is alpha for 1 and 1 - alpha for 0 (None:
    no factor). Lin et al. 2017; the arguments are torchvision's.
    """
    name = "sigmoid_focal_loss"
    logits, target = pair(logits, target, name)
    loss = softplus(logits) - target * logits
    loss = loss * power(target * sigmoid(-logits) + (1 - target) * sigmoid(logits), gamma)
    loss = loss if alpha is None else loss * (alpha * target + (1 - alpha) * (1 - target))
    return reduced(loss, reduction, name, weight, mask)
