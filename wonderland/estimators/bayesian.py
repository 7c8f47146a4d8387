"""Bayesian linear regression: X and y come in, the whole posterior of the coefficients and of predictions goes out."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from wonderland.estimators.base import Regressor, one_of, positive_number, probability, targets
from wonderland.estimators.evidence import SeenData, TracedEvidence, learned, learned_ratio, noise_floor, seen, spectrum
from wonderland.estimators.linear import LinearModel
from wonderland.implicit.roots import custom_root
from wonderland.transform.derivatives import grad


class BayesianLinearRegression(LinearModel, Regressor):
    """y = X w + b + noise with a Gaussian prior on w, and the posterior in closed form.

        prior="normal"                  w ~ N(m, (alpha P)^-1),       noise ~ N(0, 1 / beta)
        prior="normal_inverse_gamma"    w ~ N(m, s2 (alpha P)^-1),    noise ~ N(0, s2), s2 ~ InverseGamma(shape, rate)

    Predictions are Gaussian with the first, Student-t with the second, whose noise is unknown. m is `prior_mean`, a
    number or (features,), P `prior_precision`, a number, (features,) or a matrix. alpha and beta are numbers, or None:
    then they are those of the largest evidence p(y), found by Newton's method on its derivatives in log alpha and
    log beta ("type II" maximum likelihood; scikit-learn's `BayesianRidge` calls our alpha lambda_ and our beta alpha_).
    Give alpha=1 with a P that is meant as it stands.

        model = BayesianLinearRegression().fit(X, y)
        mean, std = model.predict(X_new, return_std=True)
        low, high = model.predict_interval(X_new, 0.9).T
        model.partial_fit(X_more, y_more)               # the posterior becomes the prior

    The intercept's prior is flat, independent of w. It has no normaliser, so `log_evidence_` is log of the integral of
    p(y | w, b) p(w) over w and b: of models that all have an intercept it tells the better one. For an intercept with
    a prior of its own, add a column of ones and take fit_intercept=False.

    A sample of weight 2 counts as two, and the evidence is that of so many samples. With p > n, with constant and
    equal columns the posterior is what the prior leaves. With y that doesn't depend on X at all the evidence grows
    with alpha for ever, with y that has no noise it grows with beta: alpha stops at 10^12 of the data's own precision,
    beta where the digits of y end. Memory is that of a few p x p matrices.

    Parameters: `alpha`, `beta`, `prior`, `prior_mean`, `prior_precision`, `noise_shape` and `noise_rate` (of the
    inverse gamma density; both 0 is the density 1 / s2, and the evidence then lacks its normaliser), `fit_intercept`,
    and for the search `max_iter` and `tol`, relative to the log evidence.

    Attributes: `coef_` and `intercept_`, the posterior mean; `covariance_` of both; `log_evidence_`; `alpha_`, `beta_`
    (the mean of 1 / s2 if the noise is unknown); `degrees_of_freedom_` of predictions (infinite if Gaussian);
    `n_iter_`.

    C. Bishop, Pattern recognition and machine learning, 2006, 3.3 to 3.5. D. MacKay, Bayesian interpolation, 1992.
    """

    NUMBERS = ("alpha", "beta")
    alpha: float | None
    beta: float | None
    prior: str
    prior_mean: Any
    prior_precision: Any
    noise_shape: float
    noise_rate: float
    fit_intercept: bool
    max_iter: int
    tol: float
    degrees_of_freedom_: float
    alpha_: float
    beta_: float
    n_iter_: int
    coef_: np.ndarray
    intercept_: Any
    log_evidence_: float
    n_features_in_: int

    def __init__(
        self, *, alpha: float | None = None, beta: float | None = None, prior: str = "normal", prior_mean: Any = 0.0,
        prior_precision: Any = 1.0, noise_shape: float = 1e-3, noise_rate: float = 1e-3, fit_intercept: bool = True,
        max_iter: int = 100, tol: float = 1e-10,
    ):  # fmt: skip
        self.alpha, self.beta, self.prior = alpha, beta, prior
        self.prior_mean, self.prior_precision = prior_mean, prior_precision
        self.noise_shape, self.noise_rate = noise_shape, noise_rate
        self.fit_intercept, self.max_iter, self.tol = fit_intercept, max_iter, tol

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianLinearRegression:
        """The posterior of X (n, features), y (n,) and weights (n,)."""
        X, y, weight = self._training_data(X, y, sample_weight)
        return self._fit_to(seen(X, y, weight, self.fit_intercept), X.dtype, *self._prior(X.shape[1]))

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianLinearRegression:
        """The posterior of these samples and all before them; the same as that of all at once.

        The posterior so far is the prior of what comes, kept in a form that alpha and beta can still be learned from.
        """
        first = not hasattr(self, "_seen")
        X, y, weight = self._training_data(X, y, sample_weight, reset=first)
        if not first and self._seen.centred != bool(self.fit_intercept):
            raise ValueError(
                f"the samples so far were seen with fit_intercept={self._seen.centred}, and what is kept of them has "
                "no other: set it back, or begin anew with fit"
            )
        more = seen(X, y, weight, self.fit_intercept)
        return self._fit_to(more if first else self._seen.joined(more), X.dtype, *self._prior(X.shape[1]))

    def _fit_to(self, data: SeenData, dtype: Any, mean: np.ndarray, precision: np.ndarray) -> BayesianLinearRegression:
        alpha, beta, shape, rate = self._numbers()
        known = spectrum(data, mean, precision)
        if self.prior == "normal":
            alpha, beta, steps = learned(data, known, alpha, beta, self.max_iter, self.tol)
            self.log_evidence_ = float(known.log_evidence(alpha, beta))
            self.degrees_of_freedom_, ratio = math.inf, alpha / beta
        else:
            more = shape + 0.5 * known.count
            if more <= 0:
                raise ValueError(
                    f"the noise of weights that sum to {data.total:.6g} is unknown with noise_shape={shape}: give more "
                    "samples, or a noise_shape and noise_rate above 0"
                )
            steps, rate = 1, rate or noise_floor(data)  # y may fit without any noise
            if alpha is None:
                alpha, steps = learned_ratio(known, shape, rate, self.max_iter, self.tol)
            self.log_evidence_ = float(known.log_evidence_of_any_noise(alpha, shape, rate))
            self.degrees_of_freedom_, ratio = 2 * more, alpha
            beta = more / (rate + 0.5 * float(known.misfit(alpha)))
        if steps is None:
            warnings.warn(
                f"the evidence still grows after {self.max_iter} steps: raise max_iter or tol, or give alpha and beta",
                ConvergenceWarning, stacklevel=3,
            )  # fmt: skip
        self.alpha_, self.beta_, self.n_iter_ = alpha, beta, steps or self.max_iter
        shrunk = known.values / (known.values**2 + ratio)
        coef = mean + known.basis @ (shrunk * known.targets)
        self._seen = data
        self._root = known.basis / np.sqrt(beta * (known.values**2 + ratio))  # root @ root.T is the scale of w
        self.coef_ = coef.astype(dtype)
        self.intercept_ = dtype.type(data.mean[-1] - data.mean[:-1] @ coef) if self.fit_intercept else 0.0
        return self

    def _numbers(self) -> tuple[float | None, float | None, float, float]:
        """alpha and beta, if given, the inverse gamma's shape and rate."""
        one_of(self.prior, "prior", ("normal", "normal_inverse_gamma"))
        alpha = None if self.alpha is None else positive_number(self.alpha, "alpha")
        beta = None if self.beta is None else positive_number(self.beta, "beta")
        shape = positive_number(self.noise_shape, "noise_shape", zero=True)
        rate = positive_number(self.noise_rate, "noise_rate", zero=True)
        if (shape == 0) != (rate == 0):
            raise ValueError(
                f"noise_shape and noise_rate are both above 0, or both 0 for the density 1 / s2: got {shape} and {rate}"
            )
        if self.prior != "normal" and beta is not None:
            raise ValueError(
                f'beta={beta:.6g} says that the noise is known, and prior="normal_inverse_gamma" that it isn\'t: '
                'take prior="normal", or beta=None'
            )
        return alpha, beta, shape, rate

    def _prior(self, features: int) -> tuple[np.ndarray, np.ndarray]:
        """m (features,) and P, (features,) or (features, features)."""
        mean = np.asarray(self.prior_mean, np.float64)
        precision = np.asarray(self.prior_precision, np.float64)
        if mean.shape not in ((), (features,)) or not np.all(np.isfinite(mean)):
            raise ValueError(f"prior_mean is a number or ({features},), finite, got shape {mean.shape}: {mean}")
        if precision.ndim == 2 and precision.shape == (features, features):
            good = np.allclose(precision, precision.T, rtol=1e-10, atol=1e-12 * np.max(np.abs(precision)))
            if not good or np.linalg.eigvalsh(precision)[0] <= 0:
                raise ValueError("prior_precision as a matrix is symmetric and positive definite; this one isn't")
            return np.broadcast_to(mean, (features,)), (precision + precision.T) / 2
        if precision.shape not in ((), (features,)) or not np.all((precision > 0) & np.isfinite(precision)):
            raise ValueError(
                f"prior_precision is a number above 0, ({features},) of them, or a matrix ({features}, {features}), "
                f"got shape {precision.shape}: {precision}"
            )
        return np.broadcast_to(mean, (features,)), np.broadcast_to(precision, (features,))

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance of `coef_`, and of the intercept last: infinite for up to 2 degrees of freedom."""
        check_is_fitted(self)
        root = self._root_with_intercept()
        return self._spread * (root @ root.T)

    def _errors(self) -> tuple[np.ndarray, float]:
        return np.linalg.norm(self._root_with_intercept(), axis=1), self.degrees_of_freedom_

    @property
    def _spread(self) -> float:
        """The variance of the predictive law in units of its scale squared."""
        free = self.degrees_of_freedom_
        return 1.0 if free == math.inf else free / (free - 2) if free > 2 else math.inf

    def _root_with_intercept(self) -> np.ndarray:
        """A root of the posterior's scale for w and b: b = y_mean - x_mean'w, and noise of its own."""
        if not self.fit_intercept:
            return self._root
        features = len(self._root)
        root = np.zeros((features + 1, features + 1))
        root[:-1, :-1] = self._root
        root[-1, :-1] = -self._seen.mean[:-1] @ self._root
        root[-1, -1] = 1 / math.sqrt(self.beta_ * self._seen.total)
        return root

    def _predictive(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Location and scale (n,) of the predictive law, noise included."""
        return self._law(self._inputs(X))

    def _law(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X = X.astype(np.float64)
        variance = np.sum(((X - self._seen.mean[:-1]) @ self._root) ** 2, axis=1) + 1 / self.beta_
        if self.fit_intercept:
            variance = variance + 1 / (self.beta_ * self._seen.total)
        return X @ self.coef_ + self.intercept_, np.sqrt(variance)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of y at X (n,), and with `return_std` the standard deviation (n,), noise included."""
        if not return_std:
            return super().predict(X)
        mean, scale = self._predictive(X)
        return mean, math.sqrt(self._spread) * scale

    def predict_interval(self, X: Any, confidence: float = 0.95) -> np.ndarray:
        """Intervals (n, 2) that hold y with probability `confidence`, equal tails outside."""
        mean, scale = self._predictive(X)
        reach = stats.t.ppf(0.5 + probability(confidence, "confidence") / 2, self.degrees_of_freedom_) * scale
        return np.stack([mean - reach, mean + reach], axis=1)

    def log_predictive(self, X: Any, y: Any) -> np.ndarray:
        """log p(y_i | x_i, data) of each sample, (n,); of all together it is `log_evidence_` after less before."""
        mean, scale = self._predictive(X)
        return stats.t.logpdf(targets(y, len(mean)), self.degrees_of_freedom_, mean, scale)

    def sample(self, size: int, random_state: Any = None) -> np.ndarray:
        """Coefficients drawn from the posterior, (size, features + 1) with the intercept last, if there is one."""
        check_is_fitted(self)
        random = check_random_state(random_state)
        root = self._root_with_intercept()
        draws = random.standard_normal((size, root.shape[1])) @ root.T
        free = self.degrees_of_freedom_
        if free != math.inf:  # a Student-t law is a Gaussian whose variance is random
            draws = draws * np.sqrt(free / random.chisquare(free, size))[:, None]
        centre = np.append(self.coef_, self.intercept_) if self.fit_intercept else self.coef_
        return centre + draws

    def _objective(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> Any:
        """beta / 2 |y - X w - b|^2 + alpha / 2 (w - m)'P(w - m)."""
        alpha, beta, _, _ = self._numbers()
        mean, precision = self._prior(np.shape(X)[1])
        away = coef - mean
        pull = precision @ away if precision.ndim == 2 else precision * away
        squares = np.sum(weight * (y - X @ coef - intercept) ** 2)
        return 0.5 * hyper.get("beta", beta or 1.0) * squares + 0.5 * hyper.get("alpha", alpha) * np.sum(away * pull)

    def coefficients(self, X: Any, y: Any, sample_weight: Any = None, **hyper: Any) -> tuple[Any, Any]:
        """(coef, intercept) of a fit, as a function with derivatives in X, y, sample_weight, alpha and beta.

        Where alpha and beta are learned, they move with the data too: by the implicit function theorem at the largest
        evidence.

            coef, intercept = BayesianLinearRegression().coefficients(X, y)
        """
        free = [name for name in self._learned() if name not in hyper]
        if free:
            hyper = {**hyper, **self._most_evident(free, X, y, sample_weight, hyper)}
        return super().coefficients(X, y, sample_weight, **hyper)

    def _learned(self) -> list[str]:
        """Names of the parameters that `fit` finds itself."""
        names = ["alpha", "beta"] if self.prior == "normal" else ["alpha"]
        return [name for name in names if getattr(self, name) is None]

    def _most_evident(self, free: list[str], X: Any, y: Any, weight: Any, hyper: dict[str, Any]) -> dict[str, Any]:
        """{name: value} of the largest evidence, as functions of the data and the other numbers."""
        weight = np.ones(np.shape(X)[0]) if weight is None else weight

        def solver(F: Any, start: Any, X: Any, y: Any, weight: Any, hyper: Any) -> Any:
            numbers = {name: float(value) for name, value in hyper.items()}
            model: Any = clone(self)
            model.set_params(**numbers).fit(np.asarray(X), np.asarray(y), np.asarray(weight))
            return np.log([getattr(model, f"{name}_") for name in free])

        def conditions(theta: Any, X: Any, y: Any, weight: Any, hyper: Any) -> Any:
            alpha, beta, shape, rate = self._numbers()
            evidence = TracedEvidence(X, y, weight, *self._prior(X.shape[1]), self.fit_intercept)

            def objective(theta: Any) -> Any:
                given = {"alpha": alpha, "beta": beta, **hyper, **dict(zip(free, np.exp(theta), strict=True))}
                if self.prior == "normal":
                    return evidence.log_evidence(given["alpha"], given["beta"])
                return evidence.log_evidence_of_any_noise(given["alpha"], shape, rate)

            return grad(objective)(theta)

        theta = custom_root(solver)(conditions, np.zeros(len(free)), X, y, weight, hyper)
        return dict(zip(free, np.exp(theta), strict=True))
