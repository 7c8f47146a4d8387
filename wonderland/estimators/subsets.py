"""Which features belong to a linear model: `SeenData` comes in, subsets with their log evidences go out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from wonderland.estimators.evidence import LOG_2PI, SeenData, noise_floor

DEPENDENT = 1e-9  # a column with less of its length left beside the others depends on them
Score = Callable[[np.ndarray], np.ndarray]  # of masks (m, p): log evidence + log prior, -inf for what is left out


def g_prior_log_evidence(data: SeenData, masks: np.ndarray, g: float) -> np.ndarray:
    """log p(y) of features by `masks` (m, p), w ~ N(0, g s2 (X'X)^-1), p(s2) = 1 / s2, for all masks at once.

        -k / 2 log(1 + g) - nu / 2 log(RSS + (TSS - RSS) / (1 + g)) + constants

    of k features and nu numbers in y (less one for an intercept). -inf for columns that depend on each other.
    A. Zellner 1986; with g = n it is the prior that holds as much as one sample (R. Kass and L. Wasserman 1995).
    """
    count = data.total - data.centred
    lengths = np.sqrt(np.sum(data.factor**2, axis=0))
    columns = data.factor / np.where(lengths > 0, lengths, 1)
    found = np.empty(len(masks))
    sizes = np.sum(masks, axis=1)
    for k in np.unique(sizes):
        rows = np.flatnonzero(sizes == k)
        chosen = np.argsort(~masks[rows], axis=1, kind="stable")[:, :k]  # (m, k) places of the features
        stack = np.concatenate([columns[:, chosen].transpose(1, 0, 2), _last(columns, len(rows))], axis=2)
        found[rows] = _profile(stack, int(k), count, g, lengths[-1], noise_floor(data))
    return found + (-0.5 * math.log(data.total) if data.centred else 0.0)


def _last(columns: np.ndarray, count: int) -> np.ndarray:
    return np.broadcast_to(columns[:, -1:], (count, len(columns), 1))


def _profile(stack: np.ndarray, k: int, count: float, g: float, length: float, floor: float) -> np.ndarray:
    """Log evidences of (m, rows, k + 1) columns of length one, y last."""
    diagonal: Any = np.abs(np.diagonal(np.linalg.qr(stack, mode="r"), axis1=1, axis2=2))
    fits = diagonal.shape[1] > k  # with as many features as numbers nothing is left of y
    rest = (diagonal[:, k] if fits else np.zeros(len(stack))) ** 2 * length**2
    misfit = rest + (length**2 - rest) / (1 + g)
    half = 0.5 * count
    value = scipy.special.gammaln(half) - half * (np.log(0.5 * misfit + floor) + LOG_2PI) - 0.5 * k * math.log1p(g)
    independent = np.all(diagonal[:, :k] > DEPENDENT, axis=1) & (diagonal.shape[1] >= k)
    return np.where(independent, value, -np.inf)


def all_subsets(features: int) -> np.ndarray:
    """Masks (2^p, p)."""
    return (np.arange(2**features)[:, None] >> np.arange(features)) % 2 == 1


def search_subsets(score: Score, features: int, steps: int, random: Any) -> tuple[np.ndarray, np.ndarray]:
    """(masks, scores) of those visited: up to a best subset by single changes, and from there a Markov chain.

    MC3 (D. Madigan and J. York, Bayesian graphical models for discrete data, 1995): one feature comes or goes, or two
    change places; taken with probability min(1, ratio of scores), so it visits a subset as often as it is likely.
    """
    known: dict[bytes, float] = {}

    def scores(masks: np.ndarray) -> np.ndarray:
        new = {mask.tobytes(): i for i, mask in enumerate(masks)}
        rows = [i for name, i in new.items() if name not in known]
        if rows:
            for i, value in zip(rows, score(masks[rows]), strict=True):
                known[masks[i].tobytes()] = float(value)
        return np.array([known[mask.tobytes()] for mask in masks])

    here = np.zeros(features, bool)
    value = scores(here[None])[0]
    while True:
        around = here ^ np.eye(features, dtype=bool)
        values = scores(around)
        if (best := values.max()) <= value:
            break
        here, value = around[np.argmax(values)], best
    for _ in range(steps):
        new = here.copy()
        if 0 < here.sum() < features and random.random_sample() < 0.5:
            new[random.choice(np.flatnonzero(here))] = False
            new[random.choice(np.flatnonzero(~here))] = True
        else:
            new[random.randint(features)] ^= True
        there = scores(new[None])[0]
        if math.log(1 - random.random_sample()) < there - value:
            here, value = new, there
    masks = np.array([np.frombuffer(name, bool) for name in known])
    return masks, np.array([*known.values()])


def log_model_prior(masks: np.ndarray, model_prior: Any) -> np.ndarray:
    """log p of subsets (m, p): "uniform", "beta_binomial" (sizes are alike), or the probability of a feature."""
    k, p = np.sum(masks, axis=1), masks.shape[1]
    if isinstance(model_prior, str) and model_prior == "beta_binomial":
        return scipy.special.betaln(k + 1, p - k + 1)  # integral of t^k (1 - t)^(p - k)
    inside = 0.5 if isinstance(model_prior, str) else float(model_prior)
    return k * math.log(inside) + (p - k) * math.log1p(-inside)
