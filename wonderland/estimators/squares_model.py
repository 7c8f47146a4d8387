"""What models of least squares know besides coefficients: their covariance, leverages, intervals, the condition of X.

All of it comes from what a fit keeps of X, the matrix X'WX or a factor of it: (features, features), and is computed
when it is asked for.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.special import stdtrit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from wonderland.estimators.base import Regressor, probability
from wonderland.estimators.conditioning import Conditioning, conditioning_of
from wonderland.estimators.least_squares import Solved, SquaresProblem
from wonderland.estimators.linear import LinearModel


class SquaresModel(LinearModel, Regressor):
    """X w + b fitted by squares of residuals."""

    n_iter_: int
    coef_: np.ndarray
    intercept_: Any
    loss_history_: np.ndarray
    _solved: Solved
    solver: str
    n_features_in_: int

    def _problem(self, X: Any, y: Any, sample_weight: Any) -> tuple[SquaresProblem, np.ndarray]:
        """The data of a fit without samples of weight zero, and y as it came."""
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise ValueError(f"fit_intercept is True or False, got {self.fit_intercept!r}")
        X, y, weight = self._training_data(X, y, sample_weight, multi_output=True)
        return SquaresProblem.of(X, y, weight, bool(self.fit_intercept)), y

    def _keep(self, solved: Solved, y: np.ndarray) -> None:
        """Coefficients in the dtype and the shape that y asks for."""
        self._solved = solved
        if self.solver != "gradient":
            self.n_iter_ = 1
        single = y.ndim == 1
        intercept = solved.y_mean - solved.x_mean @ solved.coef if self.fit_intercept else np.zeros(len(solved.y_mean))
        self.coef_ = (solved.coef[:, 0] if single else solved.coef.T).astype(y.dtype)
        self.intercept_ = intercept.astype(y.dtype)[0] if single else intercept.astype(y.dtype)

    def _descended(self, solved: Solved, history: np.ndarray, converged: bool) -> Solved:
        """What gradient descent tells of itself, with a warning if it stopped early."""
        self.loss_history_, self.n_iter_ = history, len(history)
        if not converged:
            warnings.warn(
                f"{type(self).__name__}: gradient descent stopped after max_iter={len(history)} steps. Rescale the "
                "columns of X (StandardScaler), raise max_iter or tol, or use solver='auto'.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return solved

    def _penalties(self) -> np.ndarray:
        """What was added to the diagonal of X'WX, (outputs,)."""
        return np.zeros(len(self._solved.residual))

    def _degrees(self) -> np.ndarray:
        """Degrees of freedom that the fit took, (outputs,)."""
        return np.full(len(self._solved.residual), float(self._solved.rank)) + bool(self.fit_intercept)

    def _whitened(self, X: np.ndarray, alpha: float) -> np.ndarray:
        """T with T T' = X (X'WX + alpha I)^-1 X', of rows less the mean."""
        return X @ self._solved.inverse_root

    @property
    def noise_variance_(self) -> Any:
        """RSS / (n - degrees of freedom), without bias; a number, or (outputs,). NaN if no sample is left over.

        n is the sum of the weights, as weights count samples. `noise_variance_ml_` is that of maximum likelihood.
        """
        left = self._solved.total - self._degrees()
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._like_outputs(np.where(left > 1e-9, self._solved.residual / left, np.nan))

    @property
    def noise_variance_ml_(self) -> Any:
        """RSS / n, the most likely variance of Gaussian noise (E.4.9); a number, or (outputs,)."""
        return self._like_outputs(self._solved.residual / self._solved.total)

    def _like_outputs(self, values: np.ndarray) -> Any:
        return float(values[0]) if np.ndim(self.coef_) == 1 else values

    @property
    def covariance_(self) -> np.ndarray:
        """Covariance of the estimates: `noise_variance_` (X'WX)^-1, the intercept last; (outputs, ...) of several.

        Of X without full rank it is the pseudo-inverse: the covariance of the solution of minimum norm.
        """
        mean = self._solved.x_mean
        out = []
        for alpha, variance in zip(self._penalties(), np.atleast_1d(self.noise_variance_), strict=True):
            rows = np.eye(len(mean))
            if self.fit_intercept:
                rows = np.concatenate([rows, -mean[None, :]])
            T = self._whitened(rows, alpha)
            inverse = T @ T.T
            if self.fit_intercept:
                inverse[-1, -1] += 1 / self._solved.total
            out.append(variance * inverse)
        return out[0] if np.ndim(self.coef_) == 1 else np.stack(out)

    def _errors(self) -> tuple[np.ndarray, float]:
        if np.ndim(self.coef_) > 1:
            return np.empty(0), np.inf  # each output has a noise of its own
        return super()._errors()[0], float(self._solved.total - self._degrees()[0])

    def hat_matrix(self, X: Any, sample_weight: Any = None) -> np.ndarray:
        """H (n, n) with predictions H y, of the samples X and weights that the model was fitted to.

        H = X (X'WX)^-1 X'W is a projection: its eigenvalues are 0 and 1, and its trace is the number of coefficients.
        Row i says how much each label counted for the prediction at sample i, the dual view of least squares. Of
        several outputs with penalties of their own it is (outputs, n, n).
        """
        X = self._inputs(X) - self._solved.x_mean
        weight = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        offset = 1 / self._solved.total if self.fit_intercept else 0.0
        penalties, places = np.unique(self._penalties(), return_inverse=True)
        parts = [self._whitened(X, alpha) for alpha in penalties]
        out = [(T @ T.T + offset) * weight for T in parts]
        return out[0] if len(out) == 1 else np.stack([out[k] for k in places])

    def leverage(self, X: Any, sample_weight: Any = None) -> np.ndarray:
        """The diagonal of the hat matrix, (n,), without the matrix: how far a prediction follows its own label.

        At other X it says how far these are from the data: the variance of the prediction's mean is `noise_variance_`
        times it.
        """
        X = self._inputs(X) - self._solved.x_mean
        weight = 1.0 if sample_weight is None else np.asarray(sample_weight, np.float64)[:, None]
        out = self._leverages(X) * weight
        return out[:, 0] if len(np.unique(self._penalties())) == 1 else out

    def _leverages(self, X: np.ndarray) -> np.ndarray:
        """(n, outputs), of X less the mean."""
        offset = 1 / self._solved.total if self.fit_intercept else 0.0
        penalties, places = np.unique(self._penalties(), return_inverse=True)
        sums = [np.sum(self._whitened(X, alpha) ** 2, axis=1) + offset for alpha in penalties]
        return np.stack(sums, axis=1)[:, places]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predictions at X (n, features): (n,), or (n, outputs) if y had two axes.

        With `return_std` also the standard deviation of a new label there: noise, and uncertain coefficients.
        """
        X = self._inputs(X)
        mean = np.asarray(self._apply(X))
        return (mean, self._deviations(X, False).reshape(mean.shape)) if return_std else mean

    def predict_interval(self, X: Any, confidence: float = 0.95, mean: bool = False) -> np.ndarray:
        """Intervals (n, 2) of new labels at X, or with `mean` of their means; (n, 2, outputs) of several outputs.

        The classical intervals of Student's t, exact if the noise is Gaussian and of the same variance everywhere:
        x'w + b -+ t sqrt(noise_variance_ (1 + leverage)); without the 1 for the mean.
        """
        probability(confidence, "confidence")
        X = self._inputs(X)
        centre = np.asarray(self._apply(X))
        left, places = np.unique(self._solved.total - self._degrees(), return_inverse=True)
        half = self._deviations(X, mean) * stdtrit(left, 0.5 + confidence / 2)[places]
        half = half.reshape(centre.shape)
        return np.stack([centre - half, centre + half], axis=1)

    def _deviations(self, X: np.ndarray, of_mean: bool) -> np.ndarray:
        """(n, outputs)."""
        variance = np.atleast_1d(self.noise_variance_)
        if np.any(np.isnan(variance)):
            raise ValueError(
                f"{type(self).__name__}: the fit of {self._solved.total:g} samples took "
                f"{np.max(self._degrees()):g} degrees of freedom, so that the noise can't be told. Intervals need more "
                "samples than coefficients."
            )
        return np.sqrt(variance * (self._leverages(X - self._solved.x_mean) + (0.0 if of_mean else 1.0)))

    def conditioning(self) -> Conditioning:
        """Condition numbers of X, the digits that solvers lose by them, near-collinear columns by name: print it."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        resolution = 0.0 if self._solved.gram is None else 1e-7  # squares are rounded
        return conditioning_of(self._solved.root, [*names], self._solved.rank, self.coef_.dtype, resolution)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
