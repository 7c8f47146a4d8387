"""What estimators of a smooth loss of X w + b share: the choice of a solver, warnings, the covariance by Hessians."""

from __future__ import annotations

import warnings
import zlib
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from wonderland.estimators.base import one_of, positive_number
from wonderland.estimators.linear import LinearModel
from wonderland.estimators.smooth.auto import SOLVERS, minimise
from wonderland.estimators.smooth.hessian import inverse_hessian
from wonderland.estimators.smooth.newton import Result
from wonderland.estimators.smooth.problem import SmoothProblem
from wonderland.estimators.smooth.proximal import proximal_newton, steepness


class SmoothModel(LinearModel):
    """A linear model whose `fit` makes a `SmoothProblem` and gives it to `_minimise`.

    The problem stays with the model, so that what few ask for (covariances, statistics) is computed when they do. It
    refers to the X of `fit` without a copy. It isn't pickled.
    """

    loss_history_: Any
    solver: str
    tol: float
    max_iter: int
    warm_start: bool
    _problem: SmoothProblem
    _mark: int  # of the data at the end of the fit

    def _minimise(self, problem: SmoothProblem, start: np.ndarray) -> np.ndarray:
        """The parameters of the minimum; sets `n_iter_`."""
        warm = bool(self.warm_start) and hasattr(self, "coef_")
        if warm:
            last = self._parameters()
            if last.shape != problem.shape:
                raise ValueError(
                    f"{type(self).__name__}(warm_start=True) starts from coefficients of the shape of the last fit, "
                    f"{last.shape} with the intercept, but these data need {problem.shape}: use a new estimator"
                )
            # Of data in other units the last solution may be worse than none, or its loss infinite.
            warm = problem.at(last).value <= problem.at(start).value
            start = last if warm else start
        solver, tol, max_iter = self._how()
        if problem.l1 == 0:
            return self._ended(minimise(problem, start, solver, tol, max_iter, warm), problem)
        if solver not in ("auto", "newton-cholesky"):
            raise ValueError(f"an l1 penalty is minimised by Newton's method, solver='auto', got {solver!r}")
        return self._ended(proximal_newton(problem, start, tol, max_iter), problem)

    def _how(self) -> tuple[str, float, int]:
        """`solver`, `tol`, `max_iter`, checked."""
        if not isinstance(self.max_iter, (int, np.integer)) or self.max_iter < 1:
            raise ValueError(f"max_iter is a whole number of at least 1, got {self.max_iter!r}")
        one_of(self.fit_intercept, "fit_intercept", (True, False))
        return one_of(self.solver, "solver", SOLVERS), positive_number(self.tol, "tol"), int(self.max_iter)

    def _ended(self, result: Result, problem: SmoothProblem) -> np.ndarray:
        if not result.converged:
            largest = steepness(problem, result.point).max() / problem.total
            warnings.warn(
                f"{type(self).__name__} stopped after {result.iterations} steps with a derivative of {largest:.1e} "
                f"(tol={self.tol:g}): raise max_iter, scale the features (StandardScaler), or use more penalty",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.n_iter_: Any = result.iterations
        self.loss_history_ = [value / problem.total for value in result.values]
        self._problem = problem
        self._mark = _mark(problem.X)
        self.__dict__.pop("_covariance", None)  # of the last fit
        return result.w

    def _parameters(self) -> np.ndarray:
        """`coef_` and `intercept_` as the array of a `SmoothProblem`."""
        coef = np.asarray(self.coef_, np.float64).T
        if coef.ndim == 2 and coef.shape[1] == 1:
            coef = coef[:, 0]
        if not self.fit_intercept:
            return coef.copy()
        return np.concatenate([coef, np.reshape(np.asarray(self.intercept_, np.float64), (1, *coef.shape[1:]))])

    def _kept(self, asked: str) -> tuple[SmoothProblem, np.ndarray]:
        """The problem of the fit and its predictors at the solution, if both are still there."""
        check_is_fitted(self)
        problem = self.__dict__.get("_problem")
        if problem is None:
            raise AttributeError(
                f"{asked} needs the data of the fit, which a pickled or copied {type(self).__name__} doesn't have: "
                "ask for it before, or fit again"
            )
        if self._mark != _mark(problem.X):
            raise RuntimeError(f"{asked}: the array that {type(self).__name__} was fitted to has been changed since")
        return problem, problem.at(self._parameters()).eta

    @property
    def covariance_(self) -> np.ndarray:
        """The inverse of the objective's Hessian at the solution: of features, the intercept last, class by class.

        Of a maximum of the likelihood (no penalty), the usual estimate of the coefficients' covariance; with a penalty,
        Laplace's approximation of a posterior. Computed when first asked for, from the X of `fit`.
        """
        if "_covariance" not in self.__dict__:
            self._covariance = self._covariance_now()
        return self._covariance

    def _covariance_now(self) -> np.ndarray:
        problem, eta = self._kept("covariance_")
        if problem.l1:
            raise AttributeError("coefficients with an l1 penalty, some of them exactly 0, have no such covariance")
        return inverse_hessian(problem, eta)

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_problem"}


def _mark(X: np.ndarray) -> int:
    """A number of about 100 rows of X, by which one sees that they have been written to."""
    return zlib.crc32(X[:: max(1, len(X) // 100)].tobytes())
