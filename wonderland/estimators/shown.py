"""How an estimator shows itself: plots as methods, and a report in one HTML file.

Each plot is a matplotlib Figure; `figure.savefig("name.png")` writes it, a notebook shows it. Without data the report
has what `fit` found; with data, X and y that it wasn't fitted to, it also has what came of it there.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wonderland import train
from wonderland.estimators import pictures

Figures = dict[str, Any]
CURVE = np.linspace(0.15, 1.0, 5)  # of the training samples: the sizes of a learning curve
FOLDS = 3


class TooFewError(ValueError):
    """Samples don't suffice for a picture."""


class Shown:
    """The report of any estimator, and the plots that any has. Regressors, classifiers and linear models add theirs."""

    def report(
        self, X: Any = None, y: Any = None, path: str | os.PathLike[str] | None = None, *, learning_curve: bool = True
    ) -> Path:
        """Write one HTML page that shows the fitted estimator, and return its path (runs/ClassName.html unless given).

        With X and y, data that it wasn't fitted to, it has scores, residuals or the reliability diagram, intervals or
        sets where it predicts such, and a learning curve, for which clones are fitted 15 times, unless told not to (or
        what is inside was fitted before, `prefit`). The facts say if the samples are too few for that.

            model.report(X_test, y_test)
        """
        from sklearn.base import is_classifier, is_regressor
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        if X is not None and y is None and (is_classifier(self) or is_regressor(self)):
            raise ValueError("report takes X and y, or neither of them")
        name = type(self).__name__
        path = Path(f"runs/{name}.html") if path is None else Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        figures, facts = self._figures(X, y), self._facts(X, y)
        if X is not None and learning_curve and hasattr(self, "score") and self._fits():
            try:
                figures["learning curve: fits to parts of this data, each scored on what it hasn't seen"] = (
                    self.plot_learning_curve(X, y)
                )
            except TooFewError:
                facts["learning curve"] = "too few samples"
        history = getattr(self, "history_", None)
        return train.report(
            path, name, history if isinstance(history, Mapping) else None, figures or None, self._tables(),
            text={"": repr(self)} if X is not None else {"": f"{self!r}\n\nGive data, report(X, y), to see more."},
            facts=facts,
        )  # fmt: skip

    def _facts(self, X: Any, y: Any) -> dict[str, Any]:
        """Numbers and short texts at the top of the report."""
        facts: dict[str, Any] = {"features": int(self.n_features_in_)}  # type: ignore[attr-defined]
        for name, shown in (("n_iter_", "iterations"), ("log_evidence_", "log evidence"), ("inertia_", "inertia")):
            value = getattr(self, name, None)
            if value is not None:
                facts[shown] = int(np.max(value)) if name == "n_iter_" else float(value)
        if X is not None:
            facts["samples here"] = len(X)
        return facts

    def _figures(self, X: Any, y: Any) -> Figures:
        """Pictures by caption."""
        losses = getattr(self, "loss_history_", None)
        if losses is None or len(losses) < 2:
            return {}
        return {"what was minimised, by iteration": self.plot_loss()}

    def _tables(self) -> dict[str, Any]:
        """Tables by title."""
        parameters: Any = self.get_params(deep=False)  # type: ignore[attr-defined]
        return {"Parameters": {"parameter": [*parameters], "value": [f"{v!r:.80}" for v in parameters.values()]}}

    def plot_loss(self, dark: bool = False) -> Any:
        """What was minimised, by iteration."""
        history = getattr(self, "history_", None)
        if isinstance(history, Mapping):
            return train.pictures.curves(history, dark=dark)
        losses = getattr(self, "loss_history_", None)
        if losses is None:
            raise AttributeError(
                f"{type(self).__name__} has no losses to plot: it was fitted in closed form, or is around a model that "
                "has them"
            )
        figure = train.pictures.curves({"loss": np.asarray(losses)}, dark=dark)
        figure.axes[0].set_xlabel("iteration")
        return figure

    def plot_learning_curve(self, X: Any, y: Any = None, dark: bool = False) -> Any:
        """Scores of fits to more and more of X and y: on those samples, and on a third that is held out, three times.

        If the two curves have met, more samples won't help; if they are far apart, they may.
        """
        from sklearn.base import is_classifier
        from sklearn.model_selection import KFold, StratifiedKFold
        from sklearn.model_selection import learning_curve as fits
        from sklearn.utils import indexable

        if not hasattr(self, "score"):
            raise AttributeError(f"{type(self).__name__} has no score, and so no learning curve")
        if not self._fits():
            raise ValueError(
                f"{type(self).__name__} has an estimator that was fitted before, so nothing is fitted to parts of X: "
                "plot_learning_curve of that one shows how it learns"
            )
        X, y = indexable(X, y)
        folds = (StratifiedKFold if is_classifier(self) else KFold)(FOLDS, shuffle=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of clones: few samples, no convergence
            try:
                sizes, training, held_out = fits(
                    self, X, y, train_sizes=CURVE, cv=folds, shuffle=True, random_state=0, scoring=self._scored
                )[:3]  # fmt: skip
            except ValueError as error:  # not one fit came off
                raise self._too_few(X) from error
        there = np.all(np.isfinite(training) & np.isfinite(held_out), axis=1)  # a part may lack a class
        if not np.any(there):
            raise self._too_few(X)
        return pictures.learning_curve(sizes[there], training[there], held_out[there], self._score_name(), dark=dark)

    def _too_few(self, X: Any) -> TooFewError:
        return TooFewError(
            f"plot_learning_curve fits {type(self).__name__} to parts of two thirds of X, and no part could be fitted "
            f"and scored. Is n_samples = {np.shape(X)[0]} too few? If not, the error above says why"
        )

    def _scored(self, model: Any, X: Any, y: Any = None) -> float:
        """The score of a clone, of which that of more samples isn't larger by itself."""
        return float(model.score(X) if y is None else model.score(X, y))

    def _score_name(self) -> str:
        return "score"

    def _fits(self) -> bool:
        """Does `fit` of a clone do all there is to do?"""
        return True


class ShownRegressor(Shown):
    """Plots of numbers that were predicted."""

    def _score_name(self) -> str:
        return "R²"

    def plot_residuals(self, X: Any, y: Any, dark: bool = False) -> Any:
        """Predictions at X against the true y, and how the errors are spread."""
        return pictures.residuals(*self._pairs(X, y), dark=dark)

    def plot_quantiles(self, X: Any, y: Any, dark: bool = False) -> Any:
        """Errors against predictions, and against the quantiles of a Gaussian."""
        return pictures.quantiles(*self._pairs(X, y), dark=dark)

    def plot_intervals(self, X: Any, y: Any, dark: bool = False) -> Any:
        """The intervals of `predict_interval` at X (of several levels, the first), and which y are inside."""
        predict: Any = getattr(self, "predict_interval", None)
        if predict is None:
            name = type(self).__name__
            raise AttributeError(f"{name} predicts no intervals: wrap it, SplitConformalRegressor(model)")
        prediction, target = self._pairs(X, y)
        ends = np.asarray(predict(X))
        ends = ends[..., 0] if ends.ndim == 3 else ends
        return pictures.intervals(target, prediction, ends[:, 0], ends[:, 1], dark=dark)

    def _pairs(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        prediction, target = np.asarray(self.predict(X), float), np.asarray(y, float)  # type: ignore[attr-defined]
        if prediction.shape != target.shape:
            raise ValueError(f"y has shape {target.shape}, the predictions at X {prediction.shape}")
        return prediction.ravel(), target.ravel()

    def _facts(self, X: Any, y: Any) -> dict[str, Any]:
        facts = super()._facts(X, y)
        if X is not None:
            prediction, target = self._pairs(X, y)
            error = prediction - target
            if np.ptp(target) > 0:
                facts["R²"] = float(train.metrics.r2_score(prediction, target))
            facts["root mean square error"] = float(np.sqrt(np.mean(error**2)))
            facts["mean absolute error"] = float(np.mean(np.abs(error)))
        return facts

    def _figures(self, X: Any, y: Any) -> Figures:
        figures = super()._figures(X, y)
        if X is not None:
            figures["residuals"] = self.plot_residuals(X, y)
            figures["errors against predictions, and against a Gaussian"] = self.plot_quantiles(X, y)
            if hasattr(self, "predict_interval") and np.ndim(y) == 1:
                figures["intervals"] = self.plot_intervals(X, y)
        return figures


class ShownClassifier(Shown):
    """Plots of classes that were predicted, and of how far their probabilities can be trusted."""

    classes_: np.ndarray

    def _score_name(self) -> str:
        return "accuracy"

    def plot_reliability(self, X: Any, y: Any, bins: int = 10, dark: bool = False) -> Any:
        """The reliability diagram: how often predictions at X were right, by the probability they were made with."""
        return train.pictures.reliability(self._claimed(X), self._places(y), bins, dark=dark)

    def plot_confusion(self, X: Any, y: Any, dark: bool = False) -> Any:
        """How often each class at X was taken for each."""
        said = self._places(self.predict(X))  # type: ignore[attr-defined]
        table = train.metrics.confusion_matrix(said, self._places(y), classes=len(self.classes_))
        return train.pictures.confusion(table, [str(c) for c in self.classes_], dark=dark)

    def plot_sets(self, X: Any, y: Any, dark: bool = False) -> Any:
        """How large the sets of `predict_set` at X are (of several levels, the first), and how often they are right."""
        predict: Any = getattr(self, "predict_set", None)
        if predict is None:
            raise AttributeError(f"{type(self).__name__} predicts no sets: wrap it, SplitConformalClassifier(model)")
        sets = np.asarray(predict(X))
        return pictures.set_sizes(sets[..., 0] if sets.ndim == 3 else sets, self._places(y), dark=dark)

    def _claimed(self, X: Any) -> np.ndarray:
        """Probabilities as floats that sum to one."""
        return np.clip(np.asarray(self.predict_proba(X), float), 0, 1)  # type: ignore[attr-defined]

    def _places(self, y: Any) -> np.ndarray:
        """The places of labels in `classes_`."""
        y = np.asarray(y)
        places = np.searchsorted(self.classes_, y)
        known = self.classes_[np.minimum(places, len(self.classes_) - 1)] == y
        if not np.all(known):
            raise ValueError(f"y has a class that wasn't there in fit: {y[~known][0]!r}; known: {self.classes_[:10]}")
        return places

    def _facts(self, X: Any, y: Any) -> dict[str, Any]:
        facts = super()._facts(X, y) | {"classes": len(self.classes_)}
        if X is not None:
            probabilities, places = self._claimed(X), self._places(y)
            chosen = np.maximum(probabilities[np.arange(len(places)), places], np.finfo(float).tiny)
            facts[self._score_name()] = float(self.score(X, y))  # type: ignore[attr-defined]
            facts["cross-entropy"] = float(0.0 - np.mean(np.log(chosen)))  # not -0.0
            facts["calibration error"] = float(train.metrics.calibration_error(probabilities, places))
        return facts

    def _figures(self, X: Any, y: Any) -> Figures:
        figures = super()._figures(X, y)
        if X is not None:
            figures["reliability diagram"] = self.plot_reliability(X, y)
            if np.array_equal(getattr(self, "actions_", self.classes_), self.classes_):
                figures["confusion matrix"] = self.plot_confusion(X, y)
            if hasattr(self, "predict_set"):
                figures["sets"] = self.plot_sets(X, y)
        return figures
