"""The Fréchet distance: two Gaussians, or two sets of features, come in; how far they are apart comes out."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.generative.metrics.points import two_sets
from wonderland.nn.arguments import floating


def gaussian_frechet(mean1: Any, covariance1: Any, mean2: Any, covariance2: Any) -> Any:
    """|m1 - m2|^2 + tr(C1 + C2 - 2 (C1^1/2 C2 C1^1/2)^1/2): the squared 2-Wasserstein distance of two Gaussians."""
    mean1, mean2 = floating(mean1), floating(mean2)
    covariance1, covariance2 = floating(covariance1), floating(covariance2)
    d = mean1.size
    if not mean1.shape == mean2.shape == (d,) or not covariance1.shape == covariance2.shape == (d, d):
        raise ArgumentError(
            "gaussian_frechet: means (d,) and covariances (d, d) are wanted, got "
            f"{mean1.shape}, {covariance1.shape}, {mean2.shape}, {covariance2.shape}"
        )
    values, vectors = np.linalg.eigh(covariance1)
    root = vectors * np.sqrt(np.maximum(values, 0))  # root root^T = C1, and root^T C2 root has the same eigenvalues
    inner = np.linalg.eigvalsh(root.T @ covariance2 @ root)
    cross = np.sum(np.sqrt(np.maximum(inner, 0)))
    return np.sum((mean1 - mean2) ** 2) + np.trace(covariance1) + np.trace(covariance2) - 2 * cross


def frechet_distance(x: Any, y: Any) -> Any:
    """`gaussian_frechet` of the means and covariances of features x (n, ...) and y (m, ...).

    Of the features of Inception-v3 it is known as FID (Heusel et al. 2017); features of a classifier of the data at
    hand, `model.hidden(images)`, say the same about it. It is biased: compare sets of equal sizes.
    """
    x, y = two_sets(x, y, "frechet_distance", least=2)
    mean = lambda points: np.mean(points.astype(np.float64), axis=0)

    def covariance(points: Any) -> Any:
        centred = points.astype(np.float64) - mean(points)
        return centred.T @ centred / (points.shape[0] - 1)

    return gaussian_frechet(mean(x), covariance(x), mean(y), covariance(y))
