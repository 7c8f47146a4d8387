"""Gaussian linear regression in closed form: data come in, what a posterior needs of them and the evidence go out.

`SeenData` is what a Gaussian likelihood keeps of samples, and grows by more of them. `Spectrum` has it in coordinates
where prior and likelihood are diagonal, so the evidence of any alpha and beta is a sum over p numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.special

from wonderland.scipy.linalg import solve_triangular
from wonderland.transform.derivatives import grad
from wonderland.transform.second_order import hessian

LOG_2PI = math.log(2 * math.pi)
RATIOS = np.logspace(12, -12, 97)  # alpha / beta of the search's beginning, in units of the largest eigenvalue


class SeenData(NamedTuple):
    """Weighted samples as a likelihood sees them: `factor` has their scatter around `mean`, as factor'factor.

    A triangular factor instead of the sums of squares themselves: its rounding is that of the data, not of its square.
    """

    total: float  # sum of the weights
    mean: np.ndarray  # of (X, y), (p + 1,); zeros where there is no intercept
    factor: np.ndarray  # of (X, y) less the mean, (at most p + 1, p + 1)
    centred: bool

    def joined(self, other: SeenData) -> SeenData:
        """This and more data."""
        total = self.total + other.total
        share = other.total / total
        apart = math.sqrt(self.total * share) * (other.mean - self.mean)
        factor: Any = np.linalg.qr(np.vstack([self.factor, other.factor, apart[None]]), mode="r")
        return SeenData(total, self.mean + share * (other.mean - self.mean), factor, self.centred)

    def columns(self, chosen: np.ndarray) -> SeenData:
        """The same with some of the features, by a mask (p,)."""
        kept = np.append(chosen, True)
        return self._replace(mean=self.mean[kept], factor=self.factor[:, kept])


def seen(X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, centred: bool) -> SeenData:
    """What is kept of X (n, p), y (n,) and weights (n,)."""
    both = np.column_stack([X, y]).astype(np.float64)
    weight = np.ones(len(X)) if weight is None else weight.astype(np.float64)
    both, weight = both[weight > 0], weight[weight > 0]
    total = float(np.sum(weight))
    mean = weight @ both / total if centred else np.zeros(both.shape[1])
    factor: Any = np.linalg.qr(np.sqrt(weight)[:, None] * (both - mean), mode="r")
    return SeenData(total, mean, factor, bool(centred))


class RegressionEvidence:
    """log p(y) of prior and data, from two functions of ratio = alpha / beta, which are numbers or (..., 1)."""

    count: Any  # numbers in y, less the one that an intercept with a flat prior takes
    constant: Any  # of the log evidence: an intercept's -1/2 log of the sum of the weights

    def misfit(self, ratio: Any) -> Any:
        """min over w of |y - X w|^2 + ratio (w - m)'P(w - m)."""
        raise NotImplementedError

    def log_shrinkage(self, ratio: Any) -> Any:
        """1/2 log det ratio P (X'X + ratio P)^-1: the share of the prior's volume that the data leave."""
        raise NotImplementedError

    def log_evidence(self, alpha: Any, beta: Any) -> Any:
        """Of noise with the known variance 1 / beta."""
        rows = beta if np.ndim(beta) == 0 else beta[..., 0]
        fit = 0.5 * self.count * (np.log(rows) - LOG_2PI) - 0.5 * rows * self.misfit(alpha / beta)
        return self.constant + fit + self.log_shrinkage(alpha / beta)

    def log_evidence_of_any_noise(self, alpha: Any, shape: float, rate: float) -> Any:
        """Of noise s2 ~ InverseGamma(shape, rate), and w given s2 of precision alpha P / s2.

        With shape = rate = 0 it is that of the density 1 / s2, which has no normaliser.
        """
        more, scale = shape + 0.5 * self.count, rate + 0.5 * self.misfit(alpha)
        prior = shape * math.log(rate) - math.lgamma(shape) if shape else 0.0
        fit = prior + scipy.special.gammaln(more) - more * np.log(scale) - 0.5 * self.count * LOG_2PI
        return self.constant + fit + self.log_shrinkage(alpha)


@dataclass(frozen=True)
class Spectrum(RegressionEvidence):
    """In coordinates z of w = m + basis z: z_i ~ N(0, 1 / alpha), u_i ~ N(s_i z_i, 1 / beta)."""

    basis: np.ndarray  # (p, p)
    values: np.ndarray  # s (p,), from large to small
    targets: np.ndarray  # u (p,), zero where s is
    rest: float  # squares of y that no w explains
    count: float
    constant: float

    def misfit(self, ratio: Any) -> Any:
        return self.rest + np.sum(ratio * self.targets**2 / (ratio + self.values**2), axis=-1)

    def log_shrinkage(self, ratio: Any) -> Any:
        return 0.5 * np.sum(np.log(ratio / (ratio + self.values**2)), axis=-1)


def spectrum(data: SeenData, prior_mean: np.ndarray, prior_precision: np.ndarray) -> Spectrum:
    """Of a prior N(prior_mean, (alpha P)^-1) with a precision P of (p,) or (p, p)."""
    X, y = data.factor[:, :-1], data.factor[:, -1] - data.factor[:, :-1] @ prior_mean
    if prior_precision.ndim == 1:
        root = np.sqrt(prior_precision)
        white, colour = X / root, lambda V: V / root[:, None]
    else:
        root = np.linalg.cholesky(prior_precision)
        white = scipy.linalg.solve_triangular(root, X.T, lower=True).T
        colour = lambda V: scipy.linalg.solve_triangular(root, V, lower=True, trans=1)
    left, values, right = np.linalg.svd(white, full_matrices=True)
    rank = len(values)
    projected = left.T @ y
    pad = np.zeros(X.shape[1] - rank)
    return Spectrum(
        colour(right.T), np.append(values, pad), np.append(projected[:rank], pad),
        float(np.sum(projected[rank:] ** 2)), data.total - data.centred,
        -0.5 * math.log(data.total) if data.centred else 0.0,
    )  # fmt: skip


class TracedEvidence(RegressionEvidence):
    """As `Spectrum`, of X, y and weights that may be traced: by a Cholesky factor for each ratio."""

    count: Any
    constant: Any
    scatter: Any
    precision: Any
    slope: Any
    squares: Any

    def __init__(self, X: Any, y: Any, weight: Any, prior_mean: Any, prior_precision: Any, centred: bool):
        self.count, self.constant = np.sum(weight), 0.0
        if centred:
            total = np.sum(weight)
            X, y = X - weight @ X / total, y - weight @ y / total
            self.count, self.constant = total - 1, -0.5 * np.log(total)
        self.scatter = (X.T * weight) @ X
        self.precision = prior_precision if prior_precision.ndim == 2 else np.diag(prior_precision)
        away = y - X @ prior_mean
        self.slope, self.squares = X.T @ (weight * away), np.sum(weight * away**2)

    def _factor(self, ratio: Any) -> Any:
        return np.linalg.cholesky(self.scatter + ratio * self.precision)

    def misfit(self, ratio: Any) -> Any:
        return self.squares - np.sum(solve_triangular(self._factor(ratio), self.slope, lower=True) ** 2)

    def log_shrinkage(self, ratio: Any) -> Any:
        volume = 0.5 * len(self.precision) * np.log(ratio) + 0.5 * np.linalg.slogdet(self.precision)[1]
        return volume - np.sum(np.log(np.diagonal(self._factor(ratio))))


def learned(
    data: SeenData, known: Spectrum, alpha: float | None, beta: float | None, max_iter: int, tol: float
) -> tuple[float, float, int | None]:
    """(alpha, beta, steps) of the largest log evidence; what is given stays. Steps are None if they were too few.

    The evidence may have several maxima, so Newton's method in (log alpha, log beta) starts at the best of a row of
    ratios alpha / beta, each with its best beta. Where the best ratio is the first or the last of that row (the data
    say nothing about w, or fit without noise) there is no maximum, and it stays there.
    """
    if alpha is not None and beta is not None:
        return alpha, beta, 1
    ratios = RATIOS[:, None] * (np.max(known.values, initial=0) ** 2 or 1.0)
    floor = noise_floor(data)
    if beta is not None:
        betas = np.full_like(ratios, beta)
    elif alpha is not None:
        betas = alpha / ratios
    else:
        betas = max(known.count, 1.0) / np.maximum(known.misfit(ratios), max(known.count, 1.0) * floor)[:, None]
    found = known.log_evidence(ratios * betas, betas)
    best = int(np.argmax(found))
    start = np.log([ratios[best, 0] * betas[best, 0], betas[best, 0]])
    free = np.array([alpha is None, beta is None])
    if best in (0, len(ratios) - 1) or (beta is None and betas[best, 0] * floor >= 1):
        return float(np.exp(start[0])), float(np.exp(start[1])), 1

    def objective(theta: Any) -> Any:
        a = theta[0] if alpha is None else math.log(alpha)
        b = theta[-1] if beta is None else math.log(beta)
        return known.log_evidence(np.exp(a), np.exp(b))

    theta, steps = climbed(objective, start[free], max_iter, tol)
    start[free] = theta
    values = np.exp(start)
    return (float(values[0]) if alpha is None else alpha), (float(values[1]) if beta is None else beta), steps


def learned_ratio(known: Spectrum, shape: float, rate: float, max_iter: int, tol: float) -> tuple[float, int | None]:
    """The alpha of the largest evidence for noise s2 ~ InverseGamma(shape, rate), as `learned` finds it."""
    ratios = RATIOS * (np.max(known.values, initial=0) ** 2 or 1.0)
    found = np.array([known.log_evidence_of_any_noise(ratio, shape, rate) for ratio in ratios])
    best = int(np.argmax(found))
    if best in (0, len(ratios) - 1):
        return float(ratios[best]), 1
    objective = lambda theta: known.log_evidence_of_any_noise(np.exp(theta[0]), shape, rate)
    theta, steps = climbed(objective, np.log(ratios[best : best + 1]), max_iter, tol)
    return float(np.exp(theta[0])), steps


def noise_floor(data: SeenData) -> float:
    """The least variance of noise that y's digits can tell from none."""
    squares = data.mean[-1] ** 2 + np.sum(data.factor[:, -1] ** 2) / data.total
    return float(np.finfo(np.float64).eps ** 2 * (squares or 1.0))


def climbed(f: Callable[[Any], Any], x: np.ndarray, max_iter: int, tol: float) -> tuple[np.ndarray, int | None]:
    """Newton's method up to a maximum of f: along eigenvectors of the Hessian, whatever the signs of its values.

    It ends when the next step would gain less than `tol` of f; f's own error is then of the order of tol squared.
    """
    slope, curvature, value = grad(f), hessian(f), float(f(x))
    for steps in range(1, max_iter + 1):
        bent, vectors = np.linalg.eigh(np.asarray(curvature(x)))
        along = vectors.T @ np.asarray(slope(x))
        step = vectors @ (along / np.maximum(np.abs(bent), 1e-8))
        step /= max(1.0, np.max(np.abs(step)))
        gain = 0.5 * float(np.sum(along * (vectors.T @ step)))
        size = 1.0
        while (new := float(f(x + size * step))) < value and size > 1e-6:
            size /= 2
        if new >= value:
            x, value = x + size * step, new
        if gain <= tol * max(1.0, abs(value)):
            return x, steps
    return x, None
