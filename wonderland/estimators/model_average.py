"""Bayesian model averaging: many models come in, or subsets of features, and one prediction of all of them goes out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from wonderland.estimators.base import Regressor, one_of, positive_number, probability, targets, whole_number
from wonderland.estimators.bayesian import BayesianLinearRegression
from wonderland.estimators.evidence import SeenData, seen
from wonderland.estimators.subsets import all_subsets, g_prior_log_evidence, log_model_prior, search_subsets

EXHAUSTIVE = 15  # features, up to which all subsets are looked at


class BayesianModelAverage(Regressor):
    """Predictions of all models, each as much as the data make it likely: p(y | x) = sum_m p(y | x, m) p(m | data).

        p(m | data) ~ p(data | m) p(m),   the evidence of the model, and its prior

    With `estimators`, a list of them or of (name, estimator), the models are these: anything that has `log_evidence_`
    after `fit`, or a pipeline that ends with such a thing. Without, they are linear regressions on all subsets of the
    features: with up to 15 features on each of them, above on those that a search visits (or as `search` says: "all",
    "mc3").

        model = BayesianModelAverage().fit(X, y)
        model.inclusion_probabilities_                      # of each feature
        mean, std = model.predict(X_new, return_std=True)

        degrees = [make_pipeline(PolynomialFeatures(d), BayesianLinearRegression()) for d in range(1, 8)]
        BayesianModelAverage(degrees).fit(X, y).weights_

    Subsets have Zellner's prior w ~ N(0, g s2 (X'X)^-1) with p(s2) = 1 / s2 and a flat intercept: units of the
    features don't matter. `g` is the number of samples if None: the unit-information prior. Or give `estimator`, a
    `BayesianLinearRegression` whose prior is taken for each subset. Columns that depend on each other are never in
    together. Predictions take the `max_models` likeliest subsets, which hold `mass_` of the probability;
    `inclusion_probabilities_` are of all that were looked at.

    `model_prior` is "uniform", "beta_binomial" (all numbers of features alike), or the probability that a feature is
    in; for `estimators` "uniform" or one probability each. `n_steps` and `random_state` are of the search.

    Attributes: `models_`, fitted, `weights_` and `log_evidences_`, likeliest first for subsets; `log_evidence_` of all
    together; with subsets `subsets_` (models, features), `inclusion_probabilities_`, `coef_` and `intercept_`, and
    `covariance_` of these.

    J. Hoeting, D. Madigan, A. Raftery and C. Volinsky, Bayesian model averaging: a tutorial, 1999.
    """

    estimators: Any
    estimator: Any
    g: float | None
    model_prior: Any
    search: str
    n_steps: int
    max_models: int
    fit_intercept: bool
    random_state: Any
    log_evidence_: float
    inclusion_probabilities_: np.ndarray
    mass_: float
    subsets_: np.ndarray
    weights_: np.ndarray
    log_evidences_: np.ndarray
    models_: Any
    coef_: np.ndarray
    intercept_: Any

    def __init__(
        self, estimators: Any = None, *, estimator: Any = None, g: float | None = None, model_prior: Any = "uniform",
        search: str = "auto", n_steps: int = 5000, max_models: int = 500, fit_intercept: bool = True,
        random_state: Any = None,
    ):  # fmt: skip
        self.estimators, self.estimator, self.g, self.model_prior = estimators, estimator, g, model_prior
        self.search, self.n_steps, self.max_models = search, n_steps, max_models
        self.fit_intercept, self.random_state = fit_intercept, random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianModelAverage:
        """All models for X (n, features), y (n,) and weights (n,)."""
        if self.estimators is not None:
            self._fit_list(X, y, sample_weight)
            return self
        X, y, weight = self._training_data(X, y, sample_weight)
        template = self._template()
        data = seen(X, y, weight, template.fit_intercept)
        if data.total - data.centred <= 0:
            raise ValueError(
                f"subsets are compared by how they explain differences in y, and weights that sum to {data.total:.6g} "
                "have none: one sample isn't enough"
            )
        self._fit_subsets(data, template, X.dtype)
        return self

    def _template(self) -> BayesianLinearRegression:
        """The model that a subset's is made from."""
        one_of(self.search, "search", ("auto", "all", "mc3"))
        whole_number(self.n_steps, "n_steps", least=0)
        whole_number(self.max_models, "max_models")
        if self.g is not None:
            positive_number(self.g, "g")
        if isinstance(self.model_prior, str):
            one_of(self.model_prior, "model_prior", ("uniform", "beta_binomial"))
        elif np.ndim(self.model_prior) != 0 or not 0 < self.model_prior < 1:
            raise ValueError(
                'model_prior of subsets is "uniform", "beta_binomial", or the probability that a feature is in, '
                f"between 0 and 1, got {self.model_prior!r}"
            )
        if self.estimator is None:
            reference = {"prior": "normal_inverse_gamma", "noise_shape": 0.0, "noise_rate": 0.0}
            return BayesianLinearRegression(**reference, fit_intercept=self.fit_intercept)
        if not isinstance(self.estimator, BayesianLinearRegression):
            raise TypeError(
                f"estimator is a BayesianLinearRegression, whose prior each subset gets; got {self.estimator!r}. Other "
                "models go into estimators=[...]"
            )
        return self.estimator

    def _fit_subsets(self, data: SeenData, template: BayesianLinearRegression, dtype: Any) -> None:
        features = len(data.mean) - 1
        g = data.total if self.g is None else float(self.g)
        scatter = data.factor[:, :-1].T @ data.factor[:, :-1]
        settings = template.get_params() | ({"alpha": 1 / g} if self.estimator is None else {})

        mean, precision = (np.zeros(features), scatter) if self.estimator is None else template._prior(features)

        def model_of(mask: np.ndarray) -> BayesianLinearRegression:
            part = precision[mask] if precision.ndim == 1 else precision[np.ix_(mask, mask)]
            model = BayesianLinearRegression(**{**settings, "prior_mean": mean[mask], "prior_precision": part})
            model.n_features_in_ = int(np.sum(mask))
            return model._fit_to(data.columns(mask), dtype, mean[mask], part)

        def score(masks: np.ndarray) -> np.ndarray:
            if self.estimator is None:
                found = g_prior_log_evidence(data, masks, g)
            else:
                found = np.array([model_of(mask).log_evidence_ for mask in masks])
            return found + log_model_prior(masks, self.model_prior)

        if self.search == "all" or (self.search == "auto" and features <= EXHAUSTIVE):
            masks = all_subsets(features)
            scores = score(masks)
        else:
            random = check_random_state(self.random_state)
            masks, scores = search_subsets(score, features, self.n_steps, random)
        self.log_evidence_ = float(np.logaddexp.reduce(scores))
        weights = np.exp(scores - self.log_evidence_)
        self.inclusion_probabilities_ = weights @ masks
        order = np.argsort(-weights, kind="stable")[: self.max_models]
        order = order[weights[order] > 1e-12]
        self.mass_ = float(np.sum(weights[order]))
        self.subsets_, self.weights_ = masks[order], weights[order] / self.mass_
        self.log_evidences_ = scores[order] - log_model_prior(self.subsets_, self.model_prior)
        self.models_ = [model_of(mask) for mask in self.subsets_]
        coef = np.zeros((len(order), features))
        for row, mask, model in zip(coef, self.subsets_, self.models_, strict=True):
            row[mask] = model.coef_
        self.coef_ = (self.weights_ @ coef).astype(dtype)
        self.intercept_ = dtype.type(sum(w * m.intercept_ for w, m in zip(self.weights_, self.models_, strict=True)))

    def _fit_list(self, X: Any, y: Any, sample_weight: Any) -> None:
        self._training_data(X, y, sample_weight)  # checks, and the number and names of the features
        members = [item[1] if isinstance(item, tuple) else item for item in self.estimators]
        if not members:
            raise ValueError("estimators is a list of at least one model: it is empty")
        prior = np.full(len(members), 1 / len(members))
        if not isinstance(self.model_prior, str):
            prior = np.asarray(self.model_prior, np.float64)
            if prior.shape != (len(members),) or not np.all(prior >= 0) or not math.isclose(np.sum(prior), 1):
                raise ValueError(
                    f"model_prior is a probability for each of {len(members)} estimators, together 1, got {prior}"
                )
        elif self.model_prior != "uniform":
            raise ValueError(
                f'model_prior of estimators is "uniform" or a probability for each, got {self.model_prior!r}'
            )
        self.models_ = []
        for member in members:
            model: Any = clone(member)
            last = model.steps[-1][0] + "__" if isinstance(model, Pipeline) else ""
            model.fit(X, y, **({} if sample_weight is None else {f"{last}sample_weight": sample_weight}))
            if not hasattr(_last_of(model), "log_evidence_"):
                raise TypeError(f"models are weighed by their log_evidence_, which {_last_of(model)!r} hasn't")
            self.models_.append(model)
        for name in ("subsets_", "inclusion_probabilities_", "coef_", "intercept_"):  # of a fit before
            vars(self).pop(name, None)
        self.log_evidences_ = np.array([_last_of(model).log_evidence_ for model in self.models_])
        with np.errstate(divide="ignore"):  # a prior of zero
            scores = self.log_evidences_ + np.log(prior)
        self.log_evidence_ = float(np.logaddexp.reduce(scores))
        self.weights_ = np.exp(scores - self.log_evidence_)
        self.mass_ = 1.0

    def _laws(self, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Locations and scales (models, n) and degrees of freedom (models, 1) of the Student-t laws of all models."""
        checked, found = self._inputs(X), []
        for i, model in enumerate(self.models_):
            last = _last_of(model)
            if not isinstance(last, BayesianLinearRegression):
                raise TypeError(
                    "intervals need the law of each prediction, which BayesianLinearRegression has: they aren't known "
                    f"of {last!r}"
                )
            part = checked[:, self.subsets_[i]] if hasattr(self, "subsets_") else _transformed(model, X)
            found.append(last._law(np.asarray(part)))
        locations, scales = (np.stack(each) for each in zip(*found, strict=True))
        return locations, scales, np.array([[_last_of(model).degrees_of_freedom_] for model in self.models_])

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of y at X (n,), and with `return_std` the standard deviation (n,): of each model, and between."""
        check_is_fitted(self)
        if not return_std:
            if hasattr(self, "subsets_"):
                return super().predict(X)
            return self.weights_ @ np.stack([model.predict(X) for model in self.models_])
        if hasattr(self, "subsets_"):
            means, scales, free = self._laws(X)
            with np.errstate(divide="ignore"):
                spread = np.where(free == np.inf, 1.0, np.where(free > 2, free / (free - 2), np.inf))
            deviations = scales * np.sqrt(spread)
        else:
            pairs = [model.predict(X, return_std=True) for model in self.models_]
            means, deviations = (np.stack(each) for each in zip(*pairs, strict=True))
        mean = self.weights_ @ means
        return mean, np.sqrt(self.weights_ @ (deviations**2 + (means - mean) ** 2))

    def predict_interval(self, X: Any, confidence: float = 0.95) -> np.ndarray:
        """Intervals (n, 2) that hold y with probability `confidence`, equal tails outside."""
        outside = (1 - probability(confidence, "confidence")) / 2
        locations, scales, free = self._laws(X)
        ends = []
        for level in (outside, 1 - outside):
            each = locations + scales * stats.t.ppf(level, free)
            low, high = each.min(axis=0), each.max(axis=0)  # the mixture's quantile is between those of its parts
            for _ in range(60):
                middle = (low + high) / 2
                below = self.weights_ @ stats.t.cdf(middle, free, locations, scales) < level
                low, high = np.where(below, middle, low), np.where(below, high, middle)
            ends.append((low + high) / 2)
        return np.stack(ends, axis=1)

    def log_predictive(self, X: Any, y: Any) -> np.ndarray:
        """log p(y_i | x_i, data) of each sample, (n,)."""
        y = targets(y, len(self._inputs(X)))
        with np.errstate(divide="ignore"):  # a weight of zero
            log_weights = np.log(self.weights_)[:, None]
        if hasattr(self, "subsets_"):
            locations, scales, free = self._laws(X)
            each = stats.t.logpdf(y, free, locations, scales)
        else:
            each = np.stack([_last_of(model).log_predictive(_transformed(model, X), y) for model in self.models_])
        return np.logaddexp.reduce(each + log_weights, axis=0)

    @property
    def covariance_(self) -> np.ndarray:
        """Covariance of `coef_`, and of the intercept last, over all subsets: within each, and between."""
        check_is_fitted(self)
        if not hasattr(self, "subsets_"):
            raise AttributeError("only subsets of features have coefficients in common, and their covariance")
        intercept = [True] if self.models_[0].fit_intercept else []
        mean = np.append(self.coef_, self.intercept_) if intercept else self.coef_
        covariance = np.zeros((len(mean), len(mean)))
        for weight, mask, model in zip(self.weights_, self.subsets_, self.models_, strict=True):
            inside, away = np.append(mask, intercept).astype(bool), -mean.astype(np.float64)
            away[inside] += np.append(model.coef_, model.intercept_) if intercept else model.coef_
            covariance += weight * np.outer(away, away)
            covariance[np.ix_(inside, inside)] += weight * model.covariance_
        return covariance

    def _apply(self, X: Any) -> Any:
        if hasattr(self, "subsets_"):
            return X @ self.coef_ + self.intercept_
        for model in self.models_:
            if not hasattr(model, "_apply"):
                raise TypeError(
                    f"only estimators of wonderland have predictions that are differentiated, and {model!r} isn't one"
                )
        return sum(weight * model._apply(X) for weight, model in zip(self.weights_, self.models_, strict=True))


def _last_of(model: Any) -> Any:
    """The estimator at the end of a pipeline."""
    return model[-1] if isinstance(model, Pipeline) else model


def _transformed(model: Any, X: Any) -> Any:
    """X as the last estimator of a pipeline sees it."""
    return model[:-1].transform(X) if isinstance(model, Pipeline) and len(model) > 1 else X
