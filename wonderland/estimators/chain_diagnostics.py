"""How far to trust the samples of Markov chains: draws (chains, draws) or (chains, draws, d) in, numbers out."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from wonderland.core.errors import ArgumentError


def r_hat(samples: Any) -> np.ndarray:
    """How much wider all chains together are than each by itself: near 1 if they agree, say below 1.01.

    sqrt((W (n - 1) / n + B / n) / W) of the variance W within and B between halves of chains, after ranks have been
    made Gaussian; the larger one of that and the same for distances from the median. A number, or (d,).
    A. Vehtari et al., Rank-normalization, folding, and localization: an improved R-hat, 2021.
    """
    halves = _halves(samples)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.maximum(_r_hat(_normal_scores(halves)), _r_hat(_normal_scores(folded)))


def effective_sample_size(samples: Any) -> np.ndarray:
    """How many independent samples would tell the mean as well: draws / (1 + 2 sum of autocorrelations).

    Of halves of chains, after ranks have been made Gaussian; the sum ends where pairs of autocorrelations are no longer
    positive (C. Geyer, Practical Markov chain Monte Carlo, 1992). A number, or (d,). A. Vehtari et al. 2021.
    """
    z = _normal_scores(_halves(samples))
    chains, draws = z.shape[:2]
    centred = z - np.mean(z, axis=1, keepdims=True)
    frequencies = np.fft.rfft(centred, 2 * draws, axis=1)
    covariance = np.fft.irfft(np.abs(frequencies) ** 2, axis=1)[:, :draws] / draws  # (chains, lags, ...)
    within = np.mean(covariance[:, 0], axis=0) * draws / (draws - 1)
    total = within * (draws - 1) / draws + np.var(np.mean(z, axis=1), axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = 1 - (within - np.mean(covariance, axis=0)) / total  # (lags, ...)
    rho[0] = 1.0
    pairs = rho[: draws // 2 * 2].reshape(draws // 2, 2, *rho.shape[1:]).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    pairs = np.minimum.accumulate(np.where(positive, pairs, 0), axis=0)  # and they don't grow
    time = np.maximum(-1 + 2 * np.sum(pairs, axis=0), 1 / np.log10(chains * draws))
    return np.where(total > 0, chains * draws / time, np.nan)[()]


def _halves(samples: Any) -> np.ndarray:
    samples = np.asarray(samples, np.float64)
    if samples.ndim not in (2, 3) or samples.shape[1] < 4:
        raise ArgumentError(f"samples are (chains, draws) or (chains, draws, d), at least 4 draws, got {samples.shape}")
    half = samples.shape[1] // 2
    return np.concatenate([samples[:, :half], samples[:, -half:]])


def _normal_scores(samples: np.ndarray) -> np.ndarray:
    """Ranks among all of a parameter's samples, as quantiles of N(0, 1)."""
    flat = samples.reshape(-1, *samples.shape[2:])
    return ndtri((rankdata(flat, axis=0) - 0.375) / (len(flat) + 0.25)).reshape(samples.shape)


def _r_hat(z: np.ndarray) -> np.ndarray:
    draws = z.shape[1]
    within = np.mean(np.var(z, axis=1, ddof=1), axis=0)
    between = draws * np.var(np.mean(z, axis=1), axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):  # a parameter that never moved has none: NaN
        return np.sqrt((within * (draws - 1) + between) / (draws * within))
