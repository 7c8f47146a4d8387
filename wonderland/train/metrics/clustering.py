"""Metrics of clusters: how well numbers of clusters (n,) agree with labels (n,), whatever the clusters are called.

All three are of the contingency table, how often cluster i meets class j. A label that stands for none, as -1 does for
noise, is a cluster as any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.train.metrics.arguments import known, labels

AVERAGES = ("arithmetic", "geometric", "min", "max")


def clustering_accuracy(clusters: Any, target: Any) -> float:
    """The fraction that is right if each cluster is called by a class of its own, in the best way of all.

    max over one-to-one maps m of mean(m(cluster) = label), by an optimal assignment; clusters without a class, and
    classes without a cluster, are wrong. Kuhn 1955 (the Hungarian algorithm).

        metrics.clustering_accuracy([1, 1, 0, 0, 2], [0, 0, 1, 1, 1])    # 0.8
    """
    with loading():
        from scipy.optimize import linear_sum_assignment  # takes longer to import than all metrics

    table = _contingency(clusters, target, "clustering_accuracy")
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def normalized_mutual_info(clusters: Any, target: Any, average: str = "arithmetic") -> float:
    """I(clusters; labels) / mean(H(clusters), H(labels)): 1 if each says what the other is, 0 if they're independent.

    `average` says which mean of the two entropies: "arithmetic", "geometric", "min" or "max". Where neither tells
    anything (one cluster, one class) it is 1. Strehl and Ghosh 2002; scikit-learn's `normalized_mutual_info_score`.
    """
    name = "normalized_mutual_info"
    if average not in AVERAGES:
        raise ValueError(f"{name}: average is one of {', '.join(map(repr, AVERAGES))}, got {average!r}")
    joint = _contingency(clusters, target, name)
    if joint.shape == (1, 1):
        return 1.0
    total = joint.sum()
    rows, columns, joint = joint.sum(1) / total, joint.sum(0) / total, joint / total  # one class alone is 1, not nearly
    there = joint > 0
    shared = float(np.sum(joint[there] * np.log((joint / np.outer(rows, columns))[there])))
    first, second = (-float(np.sum(p * np.log(p))) for p in (rows, columns))
    means = {
        "arithmetic": (first + second) / 2, "geometric": float(np.sqrt(first * second)), "min": min(first, second),
        "max": max(first, second),
    }  # fmt: skip
    return float(np.clip(shared / means[average], 0, 1)) if means[average] > 0 else 0.0


def adjusted_rand_index(clusters: Any, target: Any) -> float:
    """Pairs of samples that are together in both or apart in both, corrected for chance: 1 is agreement, 0 is chance.

    (RI - E RI) / (1 - E RI), E for random clusters of the same sizes; below 0 is worse than chance.
    Hubert and Arabie 1985; scikit-learn's `adjusted_rand_score`.
    """
    table = _contingency(clusters, target, "adjusted_rand_index")
    pairs = lambda counts: sum(int(c) * (int(c) - 1) // 2 for c in counts.ravel())  # exact, however many there are
    both, first, second, every = pairs(table), pairs(table.sum(1)), pairs(table.sum(0)), pairs(table.sum())
    if first == second == both:  # the same partition
        return 1.0
    chance = first * second / every
    return (both - chance) / ((first + second) / 2 - chance)


def _contingency(clusters: Any, target: Any, name: str) -> np.ndarray:
    """How often each cluster meets each class, without those that don't occur."""
    clusters = labels(known(clusters, name), f"{name}: clusters")
    target = labels(known(target, name), f"{name}: targets")
    if clusters.shape != target.shape or clusters.ndim != 1 or not len(target):
        raise ValueError(
            f"{name}: clusters and targets are (n,), n at least 1, got shapes {clusters.shape} and {target.shape}"
        )
    (first, row), (second, column) = (np.unique(x, return_inverse=True) for x in (clusters, target))
    table = np.bincount(row * len(second) + column, minlength=len(first) * len(second))
    return table.reshape(len(first), len(second))
