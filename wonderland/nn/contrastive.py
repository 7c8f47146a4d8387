"""Losses of vectors that are to be near to each other, or not: along the last axis, or the one given."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.nn.arguments import array, axis_of, demand, floating, pair
from wonderland.nn.classification import cross_entropy
from wonderland.nn.reduction import mask_of, or_masked, reduced


def cosine_similarity(a: Any, b: Any, axis: int = -1, eps: float = 1e-8) -> Any:
    """a b / (|a| |b|) along an axis; lengths are at least `eps`."""
    a, b = pair(a, b, "cosine_similarity")
    return np.sum(_unit(a, axis, eps) * _unit(b, axis, eps), axis=axis)


def _unit(x: Any, axis: int, eps: float) -> Any:
    length = np.linalg.norm(x, axis=axis, keepdims=True)
    return x / np.where(length > eps, length, eps)


def cosine_embedding_loss(
    a: Any, b: Any, target: Any, margin: float = 0.0, *, axis: int = -1, weight: Any = None, mask: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """1 - cos(a, b) for pairs with target 1, and max(0, cos(a, b) - margin) for those with target -1.

    `a` and `b` are (..., width), the target (...).
    """
    name = "cosine_embedding_loss"
    a, b = pair(a, b, name)
    target = array(target)
    axis = axis_of(axis, a.shape, f"{name}: a, which")
    if target.shape != a.shape[:axis] + a.shape[axis + 1 :]:
        raise ValueError(f"{name}: vectors have shape {a.shape}, the target {target.shape}: one for each pair")
    fits = or_masked((target == 1) | (target == -1), mask, target.shape, name)
    demand(fits, f"{name}: targets are -1 and 1, got {{}}", target)
    cosine = cosine_similarity(a, b, axis)
    apart = cosine - margin
    loss = np.where(target == 1, 1 - cosine, np.where(apart > 0, apart, 0))
    return reduced(loss, reduction, name, weight, mask)


def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, *, weight: Any = None, mask: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the L^p distance along the last axis.

    `eps` is added to differences, as PyTorch does. With `swap` the negative's distance is the smaller one of those from
    the anchor and from the positive. Balntas et al. 2016.
    """
    name = "triplet_margin_loss"
    anchor, positive = pair(anchor, positive, name)
    anchor, negative = pair(anchor, negative, name)
    near, far = np.linalg.norm(anchor - positive + eps, p, axis=-1), np.linalg.norm(anchor - negative + eps, p, axis=-1)
    if swap:
        other = np.linalg.norm(positive - negative + eps, p, axis=-1)
        far = np.where(other < far, other, far)
    missing = near - far + margin
    return reduced(np.where(missing <= 0, 0, missing), reduction, name, weight, mask)


def info_nce(
    queries: Any, keys: Any, negatives: Any = None, temperature: Any = 0.07, *, normalize: bool = True,
    symmetric: bool = False, weight: Any = None, mask: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """-log exp(q_i k_i / t) / sum_j exp(q_i k_j / t): each query is to find its key among all of them.

    `queries` and `keys` are (..., n, width), key i belongs to query i. With `negatives`, (..., m, width), query i has
    its own key and those to choose from, and not the other keys. Vectors are made unit vectors, unless
    `normalize=False`. `symmetric` is the mean with the loss of keys that look for their queries, as in CLIP. `weight`
    and `mask` belong to queries. van den Oord et al. 2018; Radford et al. 2021.
    """
    name = "info_nce"
    queries, keys = pair(queries, keys, name)
    if queries.ndim < 2:
        raise ValueError(f"{name}: queries and keys are (..., n, width), got {queries.shape}")
    if normalize:
        queries, keys = _unit(queries, -1, 1e-12), _unit(keys, -1, 1e-12)
    options = {"sample_weight": weight, "mask": mask, "reduction": reduction}
    places = np.broadcast_to(np.arange(queries.shape[-2]), queries.shape[:-1])
    if negatives is None:
        scores = queries @ np.swapaxes(keys, -1, -2) / temperature
        loss = cross_entropy(scores, places, **options)
        if not symmetric:
            return loss
        return 0.5 * (loss + cross_entropy(np.swapaxes(scores, -1, -2), places, **options))
    if symmetric:
        raise ValueError(f"{name}: symmetric is of queries and keys alone: no negatives")
    negatives = floating(negatives, f"{name}: negatives").astype(queries.dtype)
    if negatives.ndim < 2 or negatives.shape[-1] != queries.shape[-1]:
        raise ValueError(f"{name}: negatives are (..., m, width), got {negatives.shape} for queries {queries.shape}")
    if normalize:
        negatives = _unit(negatives, -1, 1e-12)
    own = np.sum(queries * keys, axis=-1, keepdims=True)
    scores = np.concatenate([own, queries @ np.swapaxes(negatives, -1, -2)], axis=-1) / temperature
    return cross_entropy(scores, np.zeros(queries.shape[:-1], np.int64), **options)


def nt_xent(
    first: Any, second: Any, temperature: Any = 0.5, *, normalize: bool = True, weight: Any = None, mask: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """-log exp(z_i z_j / t) / sum_{k != i} exp(z_i z_k / t): each view is to find the other view of the same sample.

    `first` and `second` are (..., n, width), the two views of n samples. All 2n of them look for their partner j(i)
    among the 2n - 1 others, so that the 2n - 2 views of other samples are the negatives; `info_nce` has only those of
    the other side. The loss of a sample, (..., n), is the mean of its two. Vectors are made unit vectors, unless
    `normalize=False`. `weight` and `mask` belong to samples; those masked out are nobody's negatives either.

        loss = nn.nt_xent(model(view()), model(view()), temperature=0.5)

    The loss of SimCLR: Chen et al. 2020 (normalised, temperature-scaled cross-entropy); Sohn 2016.
    """
    name = "nt_xent"
    first, second = pair(first, second, name)
    if first.ndim < 2 or 0 in first.shape or first.shape != second.shape:
        raise ValueError(f"{name}: both views are (..., n, width), n at least 1, got {first.shape}, {second.shape}")
    samples, n = first.shape[:-1], first.shape[-2]
    views = np.concatenate([first, second], axis=-2)
    hidden: Any = np.eye(2 * n, dtype=bool)  # nobody is to find itself
    if mask is not None:
        there = np.broadcast_to(mask_of(mask, samples, name), samples)
        there = np.concatenate([there, there], axis=-1)
        views = np.where(there[..., None], views, 1)  # whatever they were
        hidden = hidden | (there[..., :, None] & ~there[..., None, :])
    if normalize:
        views = _unit(views, -1, 1e-12)
    scores = np.where(hidden, -np.inf, views @ np.swapaxes(views, -1, -2) / temperature)
    partner = np.broadcast_to((np.arange(2 * n) + n) % (2 * n), views.shape[:-1])
    losses = cross_entropy(scores, partner, reduction="none")
    return reduced(0.5 * (losses[..., :n] + losses[..., n:]), reduction, name, weight, mask)
