"""Models of X w + b: their coefficients, with intervals where a covariance is known, and as functions of the data.

A linear estimator's `fit` sets `coef_` (features,) or (outputs, features), and `intercept_`. It says what it minimises
in `_objective`, as NumPy code, and with that the coefficients have derivatives in all of the data and the numbers that
set it up: the optimum solves `_optimality` = 0, and the implicit function theorem does the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from wonderland.core.tracer import Tracer
from wonderland.estimators import pictures
from wonderland.estimators.base import Classifier, Estimator, probability
from wonderland.implicit.roots import custom_root
from wonderland.transform.derivatives import grad


class LinearModel(Estimator):
    """X w + b, of `coef_` and `intercept_`."""

    coef_: np.ndarray
    intercept_: Any
    n_features_in_: int
    fit_intercept: bool
    EXACT: dict[str, Any] = {"tol": 1e-12}  # parameters for a fit whose derivative is taken
    NUMBERS: tuple[str, ...] = ()  # parameters that `_objective` takes as `hyper`

    def _apply(self, X: Any) -> Any:
        return X @ self.coef_.T + self.intercept_

    @property
    def covariance_(self) -> np.ndarray:
        """Covariance of the estimates: those of `coef_`, and of the intercept last, if there is one."""
        raise AttributeError(f"{type(self).__name__} knows no covariance of its coefficients")

    def coefficient_table(self, confidence: float = 0.95) -> dict[str, list[Any]]:
        """Columns "feature" and "coefficient", and where a covariance is known "error", "lower", "upper" and "p".

        Bounds are those of the interval of this confidence, and p is how likely an estimate so far from zero would be
        without an effect: by Student's t where the noise was estimated from the same data, else by the Gaussian. Of
        several outputs each has its rows, named as "class: feature".
        """
        probability(confidence, "confidence")
        names, values = _named_coefficients(self)
        table: dict[str, list[Any]] = {"feature": names, "coefficient": values.tolist()}
        try:
            error, degrees = self._errors()
        except AttributeError:
            return table
        if error.shape != values.shape:
            return table
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.abs(values) / error
        width, p = stdtrit(degrees, 0.5 + confidence / 2), 2 * stdtr(degrees, -ratio)
        bounds = {"lower": values - width * error, "upper": values + width * error}
        columns = {"error": error, **bounds, "p": np.minimum(p, 1)}
        return table | {name: column.tolist() for name, column in columns.items()}

    def _errors(self) -> tuple[np.ndarray, float]:
        """The scale of each estimate's error, and the degrees of freedom of its Student-t law (infinite: Gaussian)."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance_), 0)), np.inf

    def plot_coefficients(self, confidence: float = 0.95, most: int = 25, dark: bool = False) -> Any:
        """The largest coefficients, with intervals where a covariance is known; hollow if zero is inside."""
        table = self.coefficient_table(confidence)
        row = self.n_features_in_ + bool(self.fit_intercept)
        chosen = [i for i in range(len(table["feature"])) if i % row < self.n_features_in_]  # without intercepts
        column = lambda name: np.array(table[name])[chosen] if name in table else None
        names = [table["feature"][i] for i in chosen]
        title = f"coefficients with intervals of {confidence:.0%}" if "lower" in table else "coefficients"
        if isinstance(self, Classifier) and len(chosen) == self.n_features_in_:
            title = f"{self.classes_[-1]}: {title}"
        return pictures.coefficients(
            names, np.array(table["coefficient"])[chosen], column("lower"), column("upper"), title, most, dark
        )

    def _figures(self, X: Any, y: Any) -> dict[str, Any]:
        return {"coefficients": self.plot_coefficients(), **super()._figures(X, y)}

    def _tables(self) -> dict[str, Any]:
        return {"Coefficients": self.coefficient_table(), **super()._tables()}

    def _objective(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> Any:
        """What `fit` minimises: of traced values, too; `hyper` are parameters of the constructor that are numbers."""
        raise NotImplementedError

    def _optimality(self, coef: Any, intercept: Any, X: Any, y: Any, weight: Any, **hyper: Any) -> tuple[Any, Any]:
        """What is zero at the optimum, like (coef, intercept): the gradient; with kinks, steps of a proximal method."""
        return grad(lambda both: self._objective(both[0], both[1], X, y, weight, **hyper))((coef, intercept))

    def coefficients(self, X: Any, y: Any, sample_weight: Any = None, **hyper: Any) -> tuple[Any, Any]:
        """(coef, intercept) of a fit to X and y, as a function with derivatives in X, y, sample_weight and `hyper`.

        `hyper` are parameters of the constructor that are numbers: here the slope of a validation loss in `alpha`.

            def validation(alpha):
                coef, intercept = Ridge().coefficients(X, y, alpha=alpha)
                return np.mean((X_valid @ coef + intercept - y_valid) ** 2)

            wl.grad(validation)(1.0)

        Derivatives of any order come from the implicit function theorem at the optimum; how it was found isn't
        differentiated. The estimator itself stays as it is. Labels of a classifier are numbers 0 to classes - 1.
        """
        from sklearn.base import clone

        known = self.get_params()
        X, y, weight = _checked(self, X, y, sample_weight, hyper)

        def solver(F: Any, start: Any, X: Any, y: Any, weight: Any, hyper: Any) -> Any:
            exact = {name: value for name, value in self.EXACT.items() if name in known}
            numbers = {name: np.asarray(value)[()] for name, value in hyper.items()}
            y = np.asarray(y)
            if isinstance(self, Classifier):
                y = np.rint(y).astype(np.int64)
            model: Any = clone(self)
            model.set_params(**exact, **numbers).fit(np.asarray(X), y, np.asarray(weight))
            return np.asarray(model.coef_).reshape(start[0].shape), np.reshape(model.intercept_, start[1].shape)

        def conditions(both: Any, X: Any, y: Any, weight: Any, hyper: Any) -> Any:
            coef, intercept = self._optimality(both[0], both[1], X, y, weight, **hyper)
            return (coef, intercept if self.fit_intercept else both[1])

        start = self._start(X, y)
        return custom_root(solver)(conditions, start, X, y, weight, hyper)

    def _start(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Zeros in the shapes of coefficients and intercept."""
        outputs = np.shape(y)[1:]
        dtype = np.result_type(X.dtype, np.float32)
        return np.zeros((*outputs, np.shape(X)[1]), dtype), np.zeros(outputs, dtype)


def _checked(model: LinearModel, X: Any, y: Any, weight: Any, hyper: dict[str, Any]) -> Any:
    """(X, y, weight) as arrays or traced values, of what `coefficients` are a function of."""
    for name in hyper:
        if name not in model.NUMBERS:
            raise TypeError(
                f"coefficients of {type(model).__name__} are a function of "
                f"{', '.join(('X', 'y', 'sample_weight', *model.NUMBERS))}, got {name!r}: other parameters belong "
                "into the constructor"
            )
    weight = np.ones(np.shape(X)[0]) if weight is None else weight
    X, y, weight = (a if isinstance(a, Tracer) else np.asarray(a) for a in (X, y, weight))
    if isinstance(model, Classifier) and not isinstance(y, Tracer):
        classes = np.unique(y)
        if classes.dtype.kind not in "biuf" or not np.array_equal(classes, np.arange(len(classes))):
            raise ValueError(f"labels in coefficients are numbers from 0 to classes - 1, got {classes[:5]}")
    return X, y, weight


def _named_coefficients(model: LinearModel) -> tuple[list[str], np.ndarray]:
    """All coefficients in one row, the intercept after those of its output, and their names."""
    names = [str(n) for n in getattr(model, "feature_names_in_", [f"x{i}" for i in range(model.n_features_in_)])]
    rows = np.atleast_2d(model.coef_)
    if model.fit_intercept:
        names = [*names, "intercept"]
        rows = np.column_stack([rows, np.broadcast_to(np.asarray(model.intercept_).reshape(-1), len(rows))])
    if len(rows) > 1:
        labels = [*map(str, getattr(model, "classes_", range(len(rows))))]
        names = [f"{label}: {name}" for label in labels for name in names]
    return names, rows.ravel()
