"""Clusters as a density: points come in, a mixture of Gaussians goes out, with the chance that each made a point."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array, check_is_fitted, check_random_state, check_scalar, validate_data

from wonderland.compile.jit import jit
from wonderland.core.errors import ArgumentError
from wonderland.estimators.base import FLOATS, Estimator, one_of, positive_number, weights
from wonderland.estimators.contract import DensityMixin
from wonderland.estimators.distances import nearest, squared_norms
from wonderland.estimators.lloyd import lloyd
from wonderland.estimators.seeding import plus_plus
from wonderland.generative.em import fit_mixture, log_densities, maximization, posterior

KINDS = {"full": "full", "tied": "tied", "diag": "diagonal", "spherical": "spherical"}
LARGE = 1 << 17  # samples x components x features from where a fit is worth its compilation
compiled_fit = jit(fit_mixture, static_argnames=("components", "kind", "steps", "tol", "regularization"))


class GaussianMixtureModel(DensityMixin, Estimator):
    """A mixture of Gaussians, p(x) = sum_k w_k N(x | mu_k, S_k), of largest likelihood: by expectation maximisation.

        model = GaussianMixtureModel(3, random_state=0).fit(X)      # (n, features)
        model.predict(X), model.predict_proba(X)                    # the likeliest component, and all chances (n, 3)
        model.score_samples(X)                                      # log p(x), (n,)
        wl.grad(model.as_function())(x)                             # the score, d log p(x) / dx, at one x

    `covariance_type` says what the components may be: "full", any S_k; "tied", one S for all; "diag", axes along the
    features; "spherical", one variance each. `reg_covar` is added to variances: a component on one point would have
    none. Choose `n_components` and the type by the lowest `bic(X)`.

    A run starts at clusters of k-means, or where `weights_init`, `means_init` or `precisions_init` (inverses of the
    covariances) say. It ends when the mean log-likelihood changes by less than `tol`, or after `max_iter` steps with
    a ConvergenceWarning. Of `n_init` runs the likeliest is kept. A sample of weight 2 counts as two.

    Fitted: `weights_` (k,), `means_` (k, features), `covariances_` in scikit-learn's shapes: (k, features, features),
    of "tied" (features, features), of "diag" (k, features), of "spherical" (k,); `n_iter_`, `converged_`,
    `lower_bound_`, and `loss_history_`, minus the mean log-likelihood before each step. The engine is
    `wl.generative.fit_mixture`. A. Dempster, N. Laird, D. Rubin, Maximum likelihood from incomplete data, 1977.
    """

    weights_: np.ndarray
    means_: Any
    covariances_: np.ndarray
    n_iter_: int
    converged_: bool
    loss_history_: np.ndarray
    lower_bound_: float

    def __init__(
        self, n_components: int = 1, *, covariance_type: str = "full", tol: float = 1e-3, reg_covar: float = 1e-6,
        max_iter: int = 100, n_init: int = 1, weights_init: Any = None, means_init: Any = None,
        precisions_init: Any = None, random_state: Any = None,
    ):  # fmt: skip
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GaussianMixtureModel:
        """Find the mixture of X (n, features), with weights (n,)."""
        X = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        weight = weights(sample_weight, X)
        if weight is not None:
            X, weight = X[weight > 0], weight[weight > 0]
        settings = self._settings(X)
        weight = np.ones(len(X), X.dtype) if weight is None else weight
        middle = weight @ X / np.sum(weight)
        points = np.subtract(X, middle, order="C")
        rng = check_random_state(self.random_state)
        run = compiled_fit if len(X) * self.n_components * X.shape[1] >= LARGE else fit_mixture
        best: Any = None
        for _ in range(check_scalar(self.n_init, "n_init", numbers.Integral, min_val=1)):
            start = self._start(points, weight, middle, rng)
            try:
                found = run(points, start=start, sample_weight=weight, **settings)
            except (ArgumentError, ValueError) as error:
                raise ValueError(
                    "GaussianMixtureModel: a component has no covariance that can be inverted: take fewer "
                    f"n_components, a larger reg_covar than {self.reg_covar}, or another covariance_type"
                ) from error
            if best is None or found.log_likelihood > best.log_likelihood + 1e-8 * abs(best.log_likelihood):
                best = found
        self.weights_, self.means_ = np.asarray(best.weights), np.asarray(best.means) + middle
        self.covariances_ = _compact(np.asarray(best.covariances), self.covariance_type)
        self.n_iter_, self.converged_ = int(best.steps), bool(best.converged)
        self.loss_history_ = -np.asarray(best.history)[: self.n_iter_]
        self.lower_bound_ = -float(self.loss_history_[-1])
        if not self.converged_:
            warnings.warn(
                f"GaussianMixtureModel stopped after max_iter={self.max_iter} steps, while the likelihood still rose: "
                "take a larger max_iter or tol, or look whether there are too many components",
                ConvergenceWarning, 2,
            )  # fmt: skip
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """The component of each of X, which it is fitted to."""
        return self.fit(X, y, sample_weight).predict(X)

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest component of each of X: (n,)."""
        return np.argmax(self.predict_proba(X), axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The chance of each component, given x: (n, n_components)."""
        X = self._inputs(X)
        return np.asarray(posterior(self.weights_, self._densities(X))[1])

    def score_samples(self, X: Any) -> np.ndarray:
        """log p(x) of each of X: (n,)."""
        return np.asarray(self._apply(self._inputs(X)))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of log p(x)."""
        return float(np.mean(self.score_samples(X)))

    def bic(self, X: Any) -> float:
        """Bayes's information criterion at X, -2 log p(X) + numbers fitted x log n: the lower the better."""
        logs = self.score_samples(X)
        return float(-2 * np.sum(logs) + self._count() * np.log(len(logs)))

    def aic(self, X: Any) -> float:
        """Akaike's information criterion at X, -2 log p(X) + 2 x numbers fitted: the lower the better."""
        return float(-2 * np.sum(self.score_samples(X)) + 2 * self._count())

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Points (n_samples, features) drawn from the mixture, and their components (n_samples,), in order of these."""
        check_is_fitted(self)
        check_scalar(n_samples, "n_samples", numbers.Integral, min_val=1)
        rng = check_random_state(self.random_state)
        shares = self.weights_.astype(np.float64)
        labels = np.repeat(np.arange(self.n_components), rng.multinomial(n_samples, shares / np.sum(shares)))
        noise = rng.normal(size=(n_samples, self.means_.shape[1])).astype(self.means_.dtype)
        factors = np.linalg.cholesky(self._covariances())
        return self.means_[labels] + np.einsum("nij,nj->ni", factors[labels], noise), labels

    def _apply(self, X: Any) -> Any:
        """log p(x)."""
        return posterior(self.weights_, self._densities(X))[0]

    def _densities(self, X: Any) -> Any:
        """log N(x | mu_k, S_k): (n, n_components)."""
        middle = np.mean(self.means_, axis=0)
        return log_densities(X - middle, self.means_ - middle, self._covariances(), KINDS[self.covariance_type])

    def _covariances(self) -> np.ndarray:
        return _whole(self.covariances_, self.covariance_type, *self.means_.shape)

    def _count(self) -> int:
        """How many numbers were fitted."""
        k, d = self.means_.shape
        spread = {"full": k * d * (d + 1) // 2, "tied": d * (d + 1) // 2, "diag": k * d, "spherical": k}
        return k - 1 + k * d + spread[self.covariance_type]

    def _settings(self, X: np.ndarray) -> dict[str, Any]:
        """The parameters, checked, as those of `fit_mixture`."""
        if len(X) < check_scalar(self.n_components, "n_components", numbers.Integral, min_val=1):
            raise ValueError(
                f"n_samples={len(X)}, without those of weight zero, should be >= n_components={self.n_components}: "
                "take fewer components"
            )
        return {
            "components": int(self.n_components),
            "kind": KINDS[one_of(self.covariance_type, "covariance_type", tuple(KINDS))],
            "steps": int(check_scalar(self.max_iter, "max_iter", numbers.Integral, min_val=1)),
            "tol": positive_number(self.tol, "tol", zero=True),
            "regularization": positive_number(self.reg_covar, "reg_covar", zero=True),
        }

    def _start(self, points: np.ndarray, weight: np.ndarray, middle: np.ndarray, rng: Any) -> tuple[Any, Any, Any]:
        """Weights, means and covariances of clusters by k-means, or those given; of points around `middle`."""
        k, features, kind = self.n_components, points.shape[1], self.covariance_type
        shares, means = self._given("weights_init", (k,)), self._given("means_init", (k, features))
        compact = _compact(np.empty((k, features, features)), kind).shape
        precisions = self._given("precisions_init", compact)
        if precisions is not None:
            precisions = _whole(precisions, kind, k, features)
            even = np.allclose(precisions, np.swapaxes(precisions, 1, 2))
            if not even or np.min(np.linalg.eigvalsh(precisions)) <= 0:
                raise ValueError("precisions_init, inverses of covariances, are symmetric with eigenvalues above zero")
        if shares is not None and (np.any(shares < 0) or abs(np.sum(shares) - 1) > 1e-5):
            raise ValueError(f"weights_init are shares of the components, which sum to 1, got {shares}")
        drawn: tuple[Any, Any, Any] = (None, None, None)
        if shares is None or means is None or precisions is None:
            stop = 1e-4 * float(weight @ squared_norms(points)) / (np.sum(weight) * features)
            centres = lloyd(points, plus_plus(points, k, weight, rng), weight, 300, stop).centres
            parts = np.eye(k, dtype=points.dtype)[nearest(points, centres)[0]] * weight[:, None]
            drawn = maximization(points, parts, KINDS[kind], self.reg_covar)
        start = (
            drawn[0] if shares is None else shares,
            drawn[1] if means is None else means - middle,
            drawn[2] if precisions is None else np.linalg.inv(precisions),
        )
        return tuple(np.asarray(part, points.dtype) for part in start)  # type: ignore[return-value]

    def _given(self, name: str, shape: tuple[int, ...]) -> np.ndarray | None:
        if getattr(self, name) is None:
            return None
        value = check_array(getattr(self, name), ensure_2d=False, allow_nd=True, input_name=name)
        if value.shape != shape:
            raise ValueError(f"{name}: the shape is {shape} for this X and covariance_type, got {value.shape}")
        return value


def _compact(covariances: np.ndarray, kind: str) -> np.ndarray:
    """Covariances (k, d, d) in scikit-learn's shapes."""
    if kind == "tied":
        return covariances[0].copy()
    if kind == "diag":
        return np.diagonal(covariances, axis1=1, axis2=2).copy()
    return covariances[:, 0, 0].copy() if kind == "spherical" else covariances


def _whole(values: np.ndarray, kind: str, k: int, d: int) -> np.ndarray:
    """Covariances, or their inverses, in scikit-learn's shapes as (k, d, d)."""
    if kind in ("full", "tied"):
        return np.broadcast_to(values, (k, d, d))
    return np.eye(d, dtype=values.dtype) * (values[:, None, None] if kind == "spherical" else values[:, None, :])
