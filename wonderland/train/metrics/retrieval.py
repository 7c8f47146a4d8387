"""Metrics of retrieval: are the nearest vectors (n, width) those of the same label?

Every vector is a query for all others, or for those of a `gallery`. Nearest is the largest cosine, or the smallest
distance with metric="euclidean"; of equals, those of smaller number come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wonderland.train.metrics.arguments import known, labels

BLOCK = 1 << 22  # numbers of a block of similarities, so that memory isn't quadratic in the samples
METRICS = ("cosine", "euclidean")


def precision_at_k(
    vectors: Any, target: Any, k: int = 10, *, gallery: Any = None, gallery_target: Any = None, metric: str = "cosine"
) -> float:
    """The fraction of the k nearest that have the label of the query, in the mean over all queries.

    `vectors` (n, width) with labels `target` (n,) look for their like among each other, never finding themselves, or in
    a `gallery` (m, width) with labels `gallery_target` (m,).

        metrics.precision_at_k(embeddings, labels, 10)
    """
    name = "precision_at_k"
    _, found = _ranked(vectors, target, gallery, gallery_target, metric, name, k)
    return float(np.mean(np.concatenate([*found])))


def mean_average_precision(
    vectors: Any, target: Any, *, gallery: Any = None, gallery_target: Any = None, metric: str = "cosine"
) -> float:
    """The mean over queries of their average precision: that of (hits among the first r) / r over the ranks r of hits.

    1 if all of the query's label come before all others, near the label's share if the order is random. Queries whose
    label nothing else has count in no mean. The arguments are those of `precision_at_k`.
    """
    name = "mean_average_precision"
    every, blocks = _ranked(vectors, target, gallery, gallery_target, metric, name, None)
    ranks = np.arange(1, every + 1)
    averages = []
    for hits in blocks:
        hits = hits[hits.any(axis=1)]
        averages.append(np.sum(hits * np.cumsum(hits, axis=1) / ranks, axis=1) / hits.sum(axis=1))
    averages = np.concatenate(averages)
    if not len(averages):
        raise ValueError(f"{name}: no query has a label that anything else has")
    return float(np.mean(averages))


def nearest(vectors: Any, k: int | None = None, *, gallery: Any = None, metric: str = "cosine") -> np.ndarray:
    """The numbers of the k nearest (of all, without k) for each vector, the nearest first: (n, k)."""
    queries, others = _vectors(vectors, gallery, metric, "nearest")
    return np.concatenate([*_order(queries, others, gallery is None, metric, k)])


def _ranked(
    vectors: Any, target: Any, gallery: Any, gallery_target: Any, metric: str, name: str, k: int | None
) -> tuple[int, Iterator[np.ndarray]]:
    """How many are found for each query, and, block by block, whether they have its label."""
    if (gallery is None) != (gallery_target is None):
        raise ValueError(f"{name}: a gallery has vectors and labels: give gallery= and gallery_target=, or neither")
    queries, others = _vectors(vectors, gallery, metric, name)
    target = _labels_of(target, queries, name)
    wanted = target if gallery is None else _labels_of(gallery_target, others, name)
    most = len(others) - (gallery is None)
    if not len(queries) or most < 1:
        raise ValueError(f"{name}: there are {len(queries)} queries, and {max(most, 0)} vectors to be found by each")
    if k is not None and not 1 <= k <= most:
        raise ValueError(f"{name}: k is 1 to the number of vectors that can be found, {most}; got {k}")

    def blocks() -> Iterator[np.ndarray]:
        start = 0
        for order in _order(queries, others, gallery is None, metric, k):
            yield wanted[order] == target[start : start + len(order), None]
            start += len(order)

    return most, blocks()


def _order(queries: np.ndarray, others: np.ndarray, alone: bool, metric: str, k: int | None) -> Iterator[np.ndarray]:
    """Block by block, the numbers of the nearest of all others; `alone` if those are the queries themselves."""
    step = max(1, BLOCK // max(len(others), 1))
    offset = 0.0 if metric == "cosine" else 0.5 * np.sum(others * others, axis=1)
    for start in range(0, len(queries), step):
        block = queries[start : start + step]
        scores = block @ others.T - offset  # for distances, up to what is the same for all: q o - |o|² / 2
        if alone:
            scores[np.arange(len(block)), start + np.arange(len(block))] = -np.inf
        yield np.argsort(-scores, axis=1, kind="stable")[:, : len(others) - alone if k is None else k]


def _vectors(vectors: Any, gallery: Any, metric: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Queries and what they are compared with, in double precision; unit vectors for cosines."""
    if metric not in METRICS:
        raise ValueError(f"{name}: metric is one of {', '.join(map(repr, METRICS))}, got {metric!r}")
    both = [known(x, name).astype(np.float64) for x in (vectors, vectors if gallery is None else gallery)]
    if any(x.ndim != 2 for x in both) or both[0].shape[1] != both[1].shape[1]:
        raise ValueError(
            f"{name}: vectors are (n, width), those of a gallery (m, width), got {both[0].shape} and {both[1].shape}"
        )
    if not all(np.all(np.isfinite(x)) for x in both):
        raise ValueError(f"{name}: vectors are finite numbers, and some are NaN or infinite")
    if metric == "cosine":
        lengths = [np.linalg.norm(x, axis=1, keepdims=True) for x in both]
        both = [x / np.where(length > 0, length, 1) for x, length in zip(both, lengths, strict=True)]
    elif len(both[1]):  # around a vector amid the others products lose no digits, and equal distances stay equal
        middle = both[1][np.argmin(np.sum((both[1] - both[1].mean(axis=0)) ** 2, axis=1))]
        both = [x - middle for x in both]
    return both[0], both[1]


def _labels_of(target: Any, vectors: np.ndarray, name: str) -> np.ndarray:
    target = labels(known(target, name), f"{name}: targets")
    if target.shape != vectors.shape[:1]:
        raise ValueError(f"{name}: {len(vectors)} vectors have labels ({len(vectors)},), got shape {target.shape}")
    return target
