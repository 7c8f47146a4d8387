"""Bayesian logistic regression: X and classes come in, a posterior of the coefficients, and its average goes out."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from wonderland.estimators.base import Classifier, one_of, positive_number, whole_number
from wonderland.estimators.hamiltonian import hmc
from wonderland.estimators.linear import LinearModel
from wonderland.estimators.posterior import LOG_2PI
from wonderland.estimators.variational import variational_inference
from wonderland.random import key
from wonderland.transform.derivatives import stop_gradient

POSTERIORS = ("laplace", "variational", "hmc")


class BayesianLogisticRegression(LinearModel, Classifier):
    """Classes by the logistic function (softmax) of X w + b, averaged over w and b as likely as the data leave them.

        w ~ N(0, prior_scale^2),    b ~ N(0, intercept_scale^2) at the mean of the features
        p(class | x) = integral of p(class | x, w, b) p(w, b | data)                                  (E.3.9)

    `posterior` says how: "laplace", a Gaussian at the mode, by the Hessian there; "variational", the nearest Gaussian;
    "hmc", `n_samples` samples of the exact one. A Gaussian is averaged as MacKay does, scores divided by
    sqrt(1 + pi/8 their variance), with more classes each difference of two of them (Z. Lu et al., Mean-field
    approximation to Gaussian-softmax integral, 2020); samples by their plain mean (E.3.10). Probabilities are nearer
    to 1/2 than the mode's, the more so the further from the data. Where few samples are separated by many features,
    Laplace's Gaussian is much too wide, and too unsure: take one of the others.

        model = BayesianLogisticRegression().fit(X, y)
        model.predict_proba(X_new)
        model.posterior_.summary()                      # with "variational" and "hmc"

    The prior is proper, so there is an answer for data that a plane separates, for p > n, equal and constant columns.
    It is the same for all features: scale them. The intercept's is wide by default. More than two classes have a row of
    coefficients each, and softmax. A sample of weight 2 counts as two.

    Attributes: `coef_` and `intercept_`, the posterior's mean (the mode for "laplace"); `covariance_` of both, class by
    class, features and then the intercept; `log_evidence_`, Laplace's; `n_iter_` of Newton's method for the mode;
    `posterior_`, `elbo_` for "variational".

    D. MacKay, The evidence framework applied to classification networks, 1992.
    """

    posterior: str
    prior_scale: float
    intercept_scale: float
    fit_intercept: bool
    n_samples: int
    max_iter: int
    tol: float
    random_state: Any
    n_iter_: int
    NUMBERS = ("prior_scale", "intercept_scale")
    posterior_: Any
    coef_: np.ndarray
    intercept_: Any
    elbo_: float | None
    log_evidence_: float

    def __init__(
        self, *, posterior: str = "laplace", prior_scale: float = 1.0, intercept_scale: float = 10.0,
        fit_intercept: bool = True, n_samples: int = 1000, max_iter: int = 100, tol: float = 1e-10,
        random_state: Any = None,
    ):  # fmt: skip
        self.posterior, self.prior_scale, self.intercept_scale = posterior, prior_scale, intercept_scale
        self.fit_intercept, self.n_samples = fit_intercept, n_samples
        self.max_iter, self.tol, self.random_state = max_iter, tol, random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianLogisticRegression:
        """The posterior of X (n, features), classes y (n,) and weights (n,)."""
        X, labels, weight = self._training_labels(X, y, sample_weight)
        one_of(self.posterior, "posterior", POSTERIORS)
        whole_number(self.n_samples, "n_samples", least=16)  # 4 of each of 4 chains
        scale, wide = (
            positive_number(getattr(self, name), name) for name in ("prior_scale", "intercept_scale")
        )
        dtype, features = X.dtype, X.shape[1]
        weight = np.ones(len(X)) if weight is None else weight.astype(np.float64)
        X, labels, weight = X[weight > 0].astype(np.float64), labels[weight > 0], weight[weight > 0]
        self._mean = weight @ X / np.sum(weight) if self.fit_intercept else np.zeros(features)
        design = np.column_stack([X - self._mean, np.ones(len(X))]) if self.fit_intercept else X
        classes = len(self.classes_)
        rows = 1 if classes == 2 else classes
        target = (labels[:, None] == (1 if classes == 2 else np.arange(classes))).astype(np.float64)
        precision = np.full(design.shape[1], scale**-2)
        if self.fit_intercept:
            precision[-1] = wide**-2
        mode, bend, steps = newton(design, target, weight, precision, self.max_iter, self.tol)
        if steps is None:
            warnings.warn(
                f"no mode after {self.max_iter} steps of Newton's method: raise max_iter or tol, scale the features",
                ConvergenceWarning, stacklevel=2,
            )  # fmt: skip
        self.n_iter_ = steps or self.max_iter
        top = float(log_posterior(mode.ravel(), design, target, weight, precision))
        volume = float(np.linalg.slogdet(bend)[1])
        self._apart = self._covariance = np.linalg.inv(bend)
        if rows > 1:  # what was added where the classes move together is taken away: there the prior is all there is
            added = _together(design, weight)
            volume -= float(np.sum(np.log1p(added / precision)))
            wider = np.diag(added / precision / (precision + added))
            self._covariance = self._apart + np.kron(np.full((rows, rows), 1 / rows), wider)
        self.log_evidence_ = top + 0.5 * mode.size * LOG_2PI - 0.5 * volume
        self._samples, self.posterior_, self.elbo_ = None, None, None
        if self.posterior != "laplace":
            mode = self._integrate(mode, design, target, weight, precision)
        centred = mode.reshape(rows, -1)
        self.coef_ = centred[:, :features].astype(dtype)
        shift = centred[:, -1] - centred[:, :features] @ self._mean if self.fit_intercept else np.zeros(rows)
        self.intercept_ = shift.astype(dtype)
        return self

    def _integrate(self, mode: np.ndarray, *data: np.ndarray) -> np.ndarray:
        """The mean of the posterior, found from its mode; sets covariance and samples."""
        seed = key(int(check_random_state(self.random_state).randint(2**31)))
        data = padded(*data)
        if self.posterior == "variational":
            found = variational_inference(log_posterior, mode.ravel(), seed, args=data)
            self.elbo_ = found.log_evidence
        else:
            draws = -(-self.n_samples // 4)
            found = hmc(log_posterior, mode.ravel(), seed, args=data, draws=draws, covariance=self._covariance)
            self._samples = found.samples.reshape(-1, mode.size)[: self.n_samples]
        self.posterior_, self._apart, self._covariance = found, found.covariance, found.covariance
        return found.mean.reshape(mode.shape)

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance: for each row of `coef_` its features, and the intercept after them."""
        check_is_fitted(self)
        change = self._uncentred(np.eye(len(self._covariance)))  # (all, all): rows of what is seen of each unit
        return change.T @ self._covariance @ change

    def _uncentred(self, rows: np.ndarray) -> np.ndarray:
        """Coefficients (size, all), the intercepts at the features' zeros instead of at their mean."""
        if not self.fit_intercept:
            return rows
        blocks = rows.reshape(len(rows), -1, len(self._mean) + 1).copy()
        blocks[..., -1] -= blocks[..., :-1] @ self._mean
        return blocks.reshape(rows.shape)

    def sample(self, size: int, random_state: Any = None) -> np.ndarray:
        """Coefficients of the posterior, (size, rows, features + 1) with the intercept last, if there is one."""
        check_is_fitted(self)
        random = check_random_state(random_state)
        rows = len(self.coef_)
        if self._samples is not None:
            return self._uncentred(self._samples[random.randint(len(self._samples), size=size)]).reshape(size, rows, -1)
        mean = np.column_stack([self.coef_, self.intercept_]) if self.fit_intercept else self.coef_
        draws = random.standard_normal((size, mean.size)) @ np.linalg.cholesky(self.covariance_).T
        return mean + draws.reshape(size, *mean.shape)

    def _apply(self, X: Any) -> Any:
        ones = (X - self._mean, np.ones_like(X[:, :1])) if self.fit_intercept else (X,)
        design = np.concatenate(ones, axis=1)
        rows = len(self.coef_)
        if self._samples is not None:
            blocks = self._samples.reshape(len(self._samples), rows, -1)
            return _log_average(np.einsum("nd,srd->snr", design, blocks))
        mean, d = X @ self.coef_.T + self.intercept_, design.shape[1]
        if rows == 1:
            variance = np.sum((design @ self._covariance) * design, axis=1)
            return mean[:, 0] / np.sqrt(1 + math.pi / 8 * variance)
        joint = np.einsum("ni,kilj,nj->nkl", design, self._apart.reshape(rows, d, rows, d), design)
        each = np.diagonal(joint, axis1=1, axis2=2)
        variance = each[:, :, None] + each[:, None, :] - 2 * joint  # of differences of two scores
        differences = (mean[:, :, None] - mean[:, None, :]) / np.sqrt(1 + math.pi / 8 * variance)
        return -_log_sum(-differences)

    def coefficients(self, X: Any, y: Any, sample_weight: Any = None, **hyper: Any) -> tuple[Any, Any]:
        """As for every linear model, of the mode: with posterior="laplace"."""
        if self.posterior != "laplace":
            raise ValueError(f'coefficients() are those of the mode: take posterior="laplace", not {self.posterior!r}')
        return super().coefficients(X, y, sample_weight, **hyper)

    def _objective(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> Any:
        scale, wide = (hyper.get(name, getattr(self, name)) for name in ("prior_scale", "intercept_scale"))
        scores = X @ coef.T + intercept
        if coef.ndim == 1:
            losses = np.logaddexp(0, scores) - y * scores
        else:
            target = np.where(y[:, None] == np.arange(len(coef)), 1.0, 0.0)
            losses = _log_sum(scores) - np.sum(target * scores, axis=1)
        penalty = np.sum((coef / scale) ** 2)
        if self.fit_intercept:
            penalty = penalty + np.sum(((intercept + coef @ (weight @ X / np.sum(weight))) / wide) ** 2)
        return np.sum(weight * losses) + 0.5 * penalty

    def _start(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        classes = int(np.max(stop_gradient(y))) + 1
        shape = (classes,) if classes > 2 else ()
        return np.zeros((*shape, np.shape(X)[1])), np.zeros(shape)


def _log_sum(scores: Any) -> Any:
    """log sum exp over the last axis."""
    top = stop_gradient(np.max(scores, axis=-1))
    return top + np.log(np.sum(np.exp(scores - top[..., None]), axis=-1))


def _log_average(scores: Any) -> Any:
    """Scores (n,), or (n, classes), of the mean probability over samples (s, n, rows)."""
    if scores.shape[2] == 1:  # log-odds
        return _log_mean(-np.logaddexp(0, -scores[:, :, 0])) - _log_mean(-np.logaddexp(0, scores[:, :, 0]))
    return _log_mean(scores - _log_sum(scores)[..., None])


def _log_mean(values: Any) -> Any:
    return _log_sum(np.moveaxis(values, 0, -1)) - math.log(values.shape[0])


def log_posterior(w: Any, design: Any, target: Any, weight: Any, precision: Any) -> Any:
    """log p(y | w) p(w) at w (rows x d,), of a design (n, d) and targets (n, rows): one row for two classes."""
    rows, d = target.shape[1], design.shape[1]
    blocks = w.reshape(rows, d)
    scores = design @ blocks.T
    total = np.logaddexp(0, scores[:, 0]) if rows == 1 else _log_sum(scores)
    prior = 0.5 * np.sum(np.log(precision) - LOG_2PI - precision * blocks**2)  # (rows, d) of them
    return np.sum(weight * (np.sum(target * scores, axis=1) - total)) + prior


def newton(
    design: np.ndarray, target: np.ndarray, weight: np.ndarray, precision: np.ndarray, max_iter: int, tol: float
) -> tuple[np.ndarray, np.ndarray, int | None]:
    """(mode (rows, d), `_hessian` there, steps); steps are None if they were too few."""
    rows, d = target.shape[1], design.shape[1]
    w = np.zeros((rows, d))
    value = float(log_posterior(w.ravel(), design, target, weight, precision))
    for steps in range(1, max_iter + 1):
        probabilities = _softmax(design @ w.T)
        slope = (weight[:, None] * (target - probabilities)).T @ design - precision * w
        bend = _hessian(design, probabilities, weight, precision)
        step = np.linalg.solve(bend, slope.ravel()).reshape(rows, d)
        step -= np.mean(step, axis=0) if rows > 1 else 0.0  # at the mode what all classes share is zero
        gain = 0.5 * float(np.sum(slope * step))
        if gain <= tol * max(1.0, abs(value)):
            return w + step, _hessian(design, _softmax(design @ (w + step).T), weight, precision), steps
        size, new = 1.0, -math.inf
        while new < value and size > 1e-10:
            new = float(log_posterior((w + size * step).ravel(), design, target, weight, precision))
            w_new, size = w + size * step, size / 2
        w, value = (w_new, new) if new >= value else (w, value)
    return w, _hessian(design, _softmax(design @ w.T), weight, precision), None


def _softmax(scores: np.ndarray) -> np.ndarray:
    if scores.shape[1] == 1:
        return expit(scores)
    powers = np.exp(scores - np.max(scores, axis=1, keepdims=True))
    return powers / np.sum(powers, axis=1, keepdims=True)


def _hessian(design: np.ndarray, p: np.ndarray, weight: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """sum_n weight p_k (delta_kl - p_l) x x', and the prior's precision: blocks of classes.

    Where all classes move together the data say nothing, and a prior that is wide in units of the features would be
    less than the rounding of the rest. So `_together` is added in these directions, which are apart from all others.
    """
    rows, d = p.shape[1], design.shape[1]
    found = np.zeros((rows, d, rows, d))
    for k in range(rows):
        for m in range(k, rows):
            factor = weight * p[:, k] * ((k == m) - p[:, m])
            found[k, :, m] = found[m, :, k] = (design.T * factor) @ design
        found[k, np.arange(d), k, np.arange(d)] += precision
    if rows > 1:
        found += (np.diag(_together(design, weight)) / rows)[:, None, :]
    return found.reshape(rows * d, rows * d)


def _together(design: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Precisions (d,) as large as those of the data."""
    return weight @ design**2


def padded(design: np.ndarray, target: np.ndarray, weight: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, ...]:
    """With samples of weight zero, to a power of two of them: for most sizes of data the compiled code is there."""
    more = 2 ** math.ceil(math.log2(max(len(design), 16))) - len(design)
    grown = (np.concatenate([a, np.zeros((more, *a.shape[1:]))]) for a in (design, target, weight))
    return (*grown, precision)
