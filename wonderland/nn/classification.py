"""Losses of classes: scores or probabilities along an axis, and labels or probabilities as targets, come in.

Labels are integers, in an array of the scores' shape without the axis of the classes; a target of floats has their
shape and is a probability for each class ("soft labels"). The axis of the classes is the last one; for PyTorch's
(batch, classes, *spatial) it is `axis=1`. A label that is no class raises, in compiled code too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.nn.arguments import array, axis_of, bounded_log, demand, floating
from wonderland.nn.reduction import mask_of, reduced
from wonderland.transform.derivatives import stop_gradient


def cross_entropy(
    logits: Any, target: Any, *, axis: int = -1, weight: Any = None, sample_weight: Any = None, mask: Any = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0, from_probabilities: bool = False,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """-sum_c target_c log softmax(logits)_c: for a label y, logsumexp(logits) - logits_y.

    `logits` is (..., classes), or has its classes along `axis`; `target` are integer labels (...), or floats, one
    probability for each class. With `from_probabilities` the first argument has probabilities instead of logits
    (logits keep more digits).

    `weight` has one number for each class, as PyTorch's; `sample_weight` and `mask` belong to samples. The mean divides
    by the sum of the weights of the labels (for soft labels, of `sample_weight`). Labels equal to `ignore_index` are
    masked out. `label_smoothing` mixes the target with the uniform distribution in this proportion.
    """
    name = "cross_entropy"
    scores = floating(logits, f"{name}: logits")
    axis = axis_of(axis, scores.shape, f"{name}: logits, which")
    if from_probabilities:
        log_p, base = bounded_log(scores), None
    else:
        top = np.max(stop_gradient(scores), axis=axis, keepdims=True)
        log_p, base = scores - top, np.log(np.sum(np.exp(scores - top), axis=axis))
    return _nll(name, log_p, base, target, axis, weight, sample_weight, mask, ignore_index, label_smoothing, reduction)


def nll_loss(
    log_probabilities: Any, target: Any, *, axis: int = -1, weight: Any = None, sample_weight: Any = None,
    mask: Any = None, ignore_index: int | None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """-log_probabilities_y for labels y: `cross_entropy` after `log_softmax`, whose arguments it takes."""
    log_p = floating(log_probabilities, "nll_loss: log_probabilities")
    axis = axis_of(axis, log_p.shape, "nll_loss: log_probabilities, which")
    return _nll("nll_loss", log_p, None, target, axis, weight, sample_weight, mask, ignore_index, 0.0, reduction)


def _nll(
    name: str, log_p: Any, base: Any, target: Any, axis: int, weight: Any, sample_weight: Any, mask: Any,
    ignore_index: int | None, smoothing: float, reduction: str,
) -> Any:  # fmt: skip
    """-sum target (log_p - base): `base`, without the axis, is what normalises `log_p`, if something is to do that."""
    if isinstance(smoothing, (int, float)) and not 0 <= smoothing <= 1:
        raise ValueError(f"{name}: label_smoothing is between 0 and 1, got {smoothing}")
    target, classes = array(target), log_p.shape[axis]
    weight = class_weights(name, weight, log_p, axis)
    if target.dtype.kind == "f" and target.shape == log_p.shape:
        if ignore_index is not None:
            raise ValueError(f"{name}: ignore_index is for labels, got soft labels, {target.shape}: use mask=")
        soft = target.astype(log_p.dtype)
        if not (isinstance(smoothing, (int, float)) and smoothing == 0):
            soft = soft * (1 - smoothing) + smoothing / classes
        soft = soft if weight is None else soft * weight
        loss = -np.sum(soft * log_p, axis=axis)
        loss = loss if base is None else loss + base * np.sum(soft, axis=axis)
        return reduced(loss, reduction, name, sample_weight, mask)
    labels, mask = labels_of(name, target, log_p.shape, axis, mask, ignore_index)
    loss = -picked(log_p, labels, axis)
    loss = loss if base is None else loss + base
    each = None if weight is None else np.take(weight.reshape(-1), labels)
    loss = loss if each is None else loss * each
    if not (isinstance(smoothing, (int, float)) and smoothing == 0):
        uniform = -np.sum(log_p if weight is None else log_p * weight, axis=axis)
        if base is not None:
            uniform = uniform + base * (classes if weight is None else np.sum(weight))
        loss = (1 - smoothing) * loss + smoothing / classes * uniform
    if each is None or reduction != "mean":
        return reduced(loss, reduction, name, sample_weight, mask)
    # The class weights are already in the losses: they only divide.
    return reduced(loss, "sum", name, sample_weight, mask) / _total(reduced(each, "sum", name, sample_weight, mask))


def _total(total: Any) -> Any:
    return np.where(total == 0, 1, total)


def class_weights(name: str, weight: Any, scores: Any, axis: int) -> Any:
    """One weight for each class, to broadcast with scores."""
    if weight is None:
        return None
    weight = floating(weight, f"{name}: weight").astype(scores.dtype)
    if weight.shape != (scores.shape[axis],):
        raise ValueError(
            f"{name}: weight has shape {weight.shape}, the scores {scores.shape}: it has one number for each of the "
            f"{scores.shape[axis]} classes; weights of samples are sample_weight="
        )
    return weight.reshape(-1, *(1,) * (scores.ndim - axis - 1))


def labels_of(
    name: str, labels: Any, shape: tuple[int, ...], axis: int, mask: Any = None, ignore_index: int | None = None
) -> tuple[Any, Any]:
    """Labels that are classes, and the mask with what is ignored; what is masked out has a label that is a class."""
    labels, expected, classes = array(labels), shape[:axis] + shape[axis + 1 :], shape[axis]
    if labels.dtype.kind not in "iu":
        raise TypeError(
            f"{name}: labels are integers of shape {expected}, soft labels floats of shape {shape}; got dtype "
            f"{labels.dtype}, shape {labels.shape}"
        )
    if labels.shape != expected:
        where = "" if axis == len(shape) - 1 else f" along axis {axis}"
        more = ""
        if labels.shape == (*expected, 1):
            more = ": write target[..., 0]"
        elif len(shape) > 2 and labels.shape == shape[:1] + shape[2:]:
            more = ": for (batch, classes, ...) write axis=1"
        raise ValueError(
            f"{name}: scores have shape {shape} with {classes} classes{where}, so labels have shape {expected}, got "
            f"{labels.shape}{more}"
        )
    mask = None if mask is None else mask_of(mask, expected, name)
    if ignore_index is not None:
        kept = labels != ignore_index
        mask = kept if mask is None else mask & kept
    if mask is not None:
        labels = np.where(mask, labels, 0)
    fits = (labels >= 0) & (labels < classes)
    demand(fits, f"{name}: labels are 0 to {classes - 1}, got {{}} (to leave some out: ignore_index=, mask=)", labels)
    return labels, mask


def picked(scores: Any, labels: Any, axis: int) -> Any:
    """The scores of the labels."""
    found = np.take_along_axis(scores, np.expand_dims(labels, axis), axis=axis)
    return found.reshape(labels.shape)


def is_label(labels: Any, shape: tuple[int, ...], axis: int) -> Any:
    """Bools of the shape of scores: True at the label of each sample."""
    classes = np.arange(shape[axis]).reshape(-1, *(1,) * (len(shape) - axis - 1))
    return classes == np.expand_dims(labels, axis)
