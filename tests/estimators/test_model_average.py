"""Model averages: weights are evidences, predictions the mixture's, and they beat the best single model on new data."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from wonderland.estimators import BayesianLinearRegression, BayesianModelAverage
from wonderland.estimators.evidence import seen
from wonderland.estimators.subsets import all_subsets, g_prior_log_evidence, log_model_prior


def problem(n=30, p=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * rng.uniform(0.5, 3, p) + 1
    return X, X[:, 0] - 0.3 * X[:, 1] + rng.normal(size=n)


def correlated(seed, n=30, new=200):
    """Eight features, correlations 0.6^|i - j|, half of the coefficients zero; n to fit, others to judge."""
    rng = np.random.default_rng(seed)
    places = np.arange(8)
    root = np.linalg.cholesky(0.6 ** np.abs(places[:, None] - places))
    X = rng.normal(size=(n + new, 8)) @ root.T
    y = X @ [1.5, 0, 0.8, 0, 0.4, 0, 0.2, 0] + 1.5 * rng.normal(size=n + new)
    return X[:n], y[:n], X[n:], y[n:]


def patients(seed, n=60):
    """Diabetes: n patients to fit, the other 382 to judge."""
    X, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order[:n]], y[order[:n]], X[order[n:]], y[order[n:]]


@pytest.mark.parametrize("draw", [correlated, patients])
def test_the_average_beats_the_best_single_model_on_new_data(draw):
    """By the mean of log p(y | x): in the mean over 20 draws by more than 3 standard errors, and in most of them."""
    margins = []
    for seed in range(20):
        X, y, X_new, y_new = draw(seed)
        average, best = BayesianModelAverage(max_models=100).fit(X, y), BayesianModelAverage(max_models=1).fit(X, y)
        margins.append(np.mean(average.log_predictive(X_new, y_new) - best.log_predictive(X_new, y_new)))
    assert np.mean(margins) > 3 * np.std(margins, ddof=1) / np.sqrt(20)
    assert np.mean(np.greater(margins, 0)) > 2 / 3


@pytest.mark.parametrize("g", [None, 3.0])
def test_weights_of_subsets_are_those_of_zellners_prior(g):
    X, y = problem()
    model = BayesianModelAverage(g=g).fit(X, y)
    n, strength = len(y), 30 if g is None else g
    masks = all_subsets(5)
    log_bayes_factors = []
    for mask in masks:  # against no features, F. Liang et al., Mixtures of g priors, 2008, equation 6
        centred, target = X[:, mask] - X[:, mask].mean(axis=0), y - y.mean()
        rest = target - centred @ np.linalg.lstsq(centred, target)[0] if mask.any() else target
        R2 = 1 - rest @ rest / (target @ target)
        k = mask.sum()
        log_bayes_factors.append((n - 1 - k) / 2 * np.log1p(strength) - (n - 1) / 2 * np.log1p(strength * (1 - R2)))
    expected = np.exp(log_bayes_factors - np.max(log_bayes_factors))
    expected /= expected.sum()
    order = np.argsort(-expected)
    np.testing.assert_array_equal(model.subsets_, masks[order])
    np.testing.assert_allclose(model.weights_, expected[order], rtol=1e-8)
    np.testing.assert_allclose(model.inclusion_probabilities_, expected @ masks, rtol=1e-8)
    found = [m.log_evidence_ for m in model.models_]
    np.testing.assert_allclose(model.log_evidences_, found, rtol=1e-10)  # all at once, and one by one
    assert model.log_evidence_ == pytest.approx(np.log(np.mean(np.exp(found))), rel=1e-10)


def test_a_prior_of_ones_own_for_each_subset():
    X, y = problem(6, 3)
    scale = np.diag([1.0, 2, 3]) + 0.2
    template = BayesianLinearRegression(
        alpha=0.7, beta=1.3, prior_mean=[0.5, 0, 0], prior_precision=scale, fit_intercept=False
    )
    model = BayesianModelAverage(estimator=template).fit(X, y)
    assert len(model.models_) == 8
    for mask, found in zip(model.subsets_, model.log_evidences_, strict=True):
        prior = np.linalg.inv(0.7 * scale[np.ix_(mask, mask)])
        covariance = X[:, mask] @ prior @ X[:, mask].T + np.eye(6) / 1.3
        mean = X[:, mask] @ np.array([0.5, 0, 0])[mask]
        assert found == pytest.approx(stats.multivariate_normal.logpdf(y, mean, covariance), rel=1e-9)
    np.testing.assert_allclose(model.weights_, np.exp(model.log_evidences_) / np.sum(np.exp(model.log_evidences_)))


def test_priors_of_models():
    X, y = problem()
    masks = all_subsets(5)
    data = seen(X, y, None, True)
    for prior, expected in (
        ("beta_binomial", 1 / 6 / np.array([1, 5, 10, 10, 5, 1])[masks.sum(axis=1)]),
        (0.2, np.prod(np.where(masks, 0.2, 0.8), axis=1)),
        ("uniform", np.full(32, 1 / 32)),
    ):
        np.testing.assert_allclose(np.exp(log_model_prior(masks, prior)), expected)
        weights = expected * np.exp(g_prior_log_evidence(data, masks, 30))
        model = BayesianModelAverage(model_prior=prior).fit(X, y)
        np.testing.assert_allclose(model.inclusion_probabilities_, weights @ masks / weights.sum(), rtol=1e-9)


def test_predictions_are_the_mixtures():
    X, y = problem(12, 3)
    model = BayesianModelAverage().fit(X, y)
    new, later = problem(2, 3, seed=2)
    grid = np.linspace(-300, 300, 60001)
    for i in range(2):
        density = np.zeros_like(grid)
        at = 0.0
        for weight, mask, single in zip(model.weights_, model.subsets_, model.models_, strict=True):
            # Student-t with n - 1 degrees of freedom around the shrunk least squares
            centre = X[:, mask].mean(axis=0)
            away, target = X[:, mask] - centre, y - y.mean()
            inverse = np.linalg.inv(away.T @ away)
            coef = 12 / 13 * inverse @ away.T @ target
            squares = target @ target - 12 / 13 * target @ away @ inverse @ away.T @ target
            there = new[i, mask] - centre
            scale = np.sqrt(squares / 11 * (1 + 1 / 12 + 12 / 13 * there @ inverse @ there))
            law = stats.t(11, y.mean() + there @ coef, scale)
            density, at = density + weight * law.pdf(grid), at + weight * law.pdf(later[i])
            np.testing.assert_allclose(single.coef_, coef, rtol=1e-8)
        step = grid[1] - grid[0]
        mean, std = model.predict(new, return_std=True)
        assert mean[i] == pytest.approx(np.sum(density * grid) * step, rel=1e-6)
        assert std[i] == pytest.approx(np.sqrt(np.sum(density * (grid - mean[i]) ** 2) * step), rel=1e-6)
        assert model.log_predictive(new, later)[i] == pytest.approx(np.log(at), rel=1e-9)
        low, high = model.predict_interval(new, 0.8)[i]
        assert np.sum(density[grid < low]) * step == pytest.approx(0.1, abs=3e-3)
        assert np.sum(density[grid > high]) * step == pytest.approx(0.1, abs=3e-3)


def test_coefficients_and_their_covariance():
    X, y = problem(12)
    model = BayesianModelAverage().fit(X, y)
    rng = np.random.default_rng(0)
    draws = np.zeros((40000, 6))
    which = rng.choice(len(model.weights_), 40000, p=model.weights_)
    for i, (mask, single) in enumerate(zip(model.subsets_, model.models_, strict=True)):
        rows = np.flatnonzero(which == i)
        draws[np.ix_(rows, np.append(mask, True))] = single.sample(len(rows), random_state=i)
    scale = np.sqrt(np.diag(model.covariance_))
    found = np.append(model.coef_, model.intercept_)
    assert np.all(np.abs(draws.mean(axis=0) - found) < 4.5 * scale / 200)
    assert np.max(np.abs(np.cov(draws.T) - model.covariance_) / np.outer(scale, scale)) < 0.04
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_)
    shift = 1e-6 * np.eye(5)[1]
    expected = (model.predict(X + shift) - model.predict(X - shift)) / 2e-6
    np.testing.assert_allclose(model.input_gradient(X)[:, 1], expected, rtol=1e-6)


def test_the_search_finds_what_all_subsets_say():
    X, y, *_ = correlated(0)
    whole = BayesianModelAverage().fit(X, y)
    found = BayesianModelAverage(search="mc3", n_steps=2000, random_state=0).fit(X, y)
    np.testing.assert_allclose(found.inclusion_probabilities_, whole.inclusion_probabilities_, atol=0.02)
    np.testing.assert_array_equal(found.subsets_[0], whole.subsets_[0])
    again = BayesianModelAverage(search="mc3", n_steps=2000, random_state=0).fit(X, y)
    np.testing.assert_array_equal(found.weights_, again.weights_)


def test_more_features_than_samples():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 40))
    y = 3 * X[:, 7] - 2 * X[:, 30] + 0.5 * rng.normal(size=25)
    model = BayesianModelAverage(model_prior="beta_binomial", n_steps=500, random_state=0).fit(X, y)
    inside = model.inclusion_probabilities_
    assert inside[[7, 30]].min() > 0.99
    assert np.delete(inside, [7, 30]).max() < 0.5


def test_units_of_features_and_of_y_dont_matter():
    X, y = problem()
    model = BayesianModelAverage().fit(X, y)
    units = np.array([1e-6, 1, 1e3, 1e6, 10])
    other = BayesianModelAverage().fit(X * units + 5 * units, 1e4 * y)
    np.testing.assert_allclose(other.weights_, model.weights_, rtol=1e-7)
    np.testing.assert_allclose(other.coef_ * units, 1e4 * model.coef_, rtol=1e-6)


def test_columns_that_depend_on_each_other_are_never_in_together():
    X, y = problem(30, 3)
    twice = np.column_stack([X, X[:, 0], np.ones(30)])
    model = BayesianModelAverage().fit(twice, y)
    assert not np.any(model.subsets_[:, 0] & model.subsets_[:, 3])
    assert model.inclusion_probabilities_[4] == 0
    assert model.inclusion_probabilities_[0] == pytest.approx(model.inclusion_probabilities_[3])
    # subsets with the column that is there twice count twice
    once = BayesianModelAverage().fit(X, y)
    weights = once.weights_ * (1 + once.subsets_[:, 0])
    weights /= weights.sum()
    singles = [m.predict(X[:, s]) if s.any() else y.mean() for m, s in zip(once.models_, once.subsets_, strict=True)]
    expected = sum(weight * single for weight, single in zip(weights, singles, strict=True))
    np.testing.assert_allclose(model.predict(twice), expected, rtol=1e-8)


def test_constant_y_weights_and_single_precision():
    X, y = problem()
    flat = BayesianModelAverage().fit(X, np.full(30, 2.0))
    np.testing.assert_allclose(flat.predict(X), 2)
    weight = np.arange(30) % 3
    weighted = BayesianModelAverage().fit(X, y, weight)
    repeated = BayesianModelAverage().fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-8)
    np.testing.assert_allclose(weighted.weights_, repeated.weights_, rtol=1e-8)
    single = BayesianModelAverage().fit(X.astype(np.float32), y)
    assert single.predict(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.predict(X), weighted.fit(X, y).predict(X), rtol=1e-4)


def degrees(upto=5):
    return [
        make_pipeline(PolynomialFeatures(d, include_bias=False), StandardScaler(), BayesianLinearRegression())
        for d in range(1, upto + 1)
    ]


def test_any_models_with_evidences():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"time": rng.uniform(-1, 1, 40)})
    y = np.sin(3 * X["time"].to_numpy()) + 0.2 * rng.normal(size=40)
    models = [(f"degree {i + 1}", model) for i, model in enumerate(degrees())]
    average = BayesianModelAverage(models).fit(X, y)
    singles = [model.fit(X, y) for _, model in models]
    evidences = np.array([single[-1].log_evidence_ for single in singles])
    expected = np.exp(evidences - evidences.max()) / np.sum(np.exp(evidences - evidences.max()))
    np.testing.assert_allclose(average.weights_, expected, rtol=1e-10)
    assert average.log_evidence_ == pytest.approx(np.log(np.mean(np.exp(evidences - evidences[0]))) + evidences[0])
    means, stds = zip(*[single.predict(X, return_std=True) for single in singles], strict=True)
    mean, std = average.predict(X, return_std=True)
    np.testing.assert_allclose(mean, expected @ means)
    np.testing.assert_allclose(average.predict(X), mean)
    np.testing.assert_allclose(std, np.sqrt(expected @ (np.square(stds) + np.square(means)) - mean**2))
    densities = stats.norm.pdf(y, np.array(means), np.array(stds))
    np.testing.assert_allclose(average.log_predictive(X, y), np.log(expected @ densities))
    low = average.predict_interval(X, 0.9)[:, 0]
    np.testing.assert_allclose(expected @ stats.norm.cdf(low, np.array(means), np.array(stds)), 0.05, atol=1e-9)
    sure = BayesianModelAverage(models, model_prior=[0, 0, 1, 0, 0]).fit(X, y)
    np.testing.assert_allclose(sure.predict(X), means[2])
    weighted = BayesianModelAverage(models).fit(X, y, np.ones(40))
    np.testing.assert_allclose(weighted.weights_, expected, rtol=1e-7)


def test_averages_of_averages_and_their_derivatives():
    X, y = problem()
    both = BayesianModelAverage([BayesianModelAverage(), BayesianLinearRegression()]).fit(X, y)
    shift = 1e-6 * np.eye(5)[0]
    expected = (both.predict(X + shift) - both.predict(X - shift)) / 2e-6
    np.testing.assert_allclose(both.input_gradient(X)[:, 0], expected, rtol=1e-6)
    assert np.all(np.isfinite(both.log_predictive(X, y)))
    again = BayesianModelAverage().fit(X, y).set_params(estimators=both.estimators).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), both.predict(X))
    assert not hasattr(again, "subsets_")


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"search": "greedy"}, ValueError, "search is one of"),
        ({"g": 0}, ValueError, "g is a number above 0"),
        ({"max_models": 0}, ValueError, "max_models is a whole number of at least 1, got 0"),
        ({"model_prior": "poisson"}, ValueError, "model_prior is one of"),
        ({"model_prior": 1.5}, ValueError, "between 0 and 1, got 1.5"),
        ({"estimator": Ridge()}, TypeError, r"go into estimators=\[...\]"),
        ({"estimators": [Ridge()]}, TypeError, "log_evidence_, which Ridge"),
        ({"estimators": []}, ValueError, "it is empty"),
        ({"estimators": degrees(2), "model_prior": [0.5, 0.6]}, ValueError, "each of 2 estimators, together 1"),
        ({"estimators": degrees(2), "model_prior": "beta_binomial"}, ValueError, "a probability for each"),
    ],
)
def test_wrong_parameters(wrong, error, message):
    with pytest.raises(error, match=message):
        BayesianModelAverage(**wrong).fit(*problem())


def test_what_has_no_answer():
    X, y = problem()
    listed = BayesianModelAverage(degrees(1)).fit(X, y)
    with pytest.raises(AttributeError, match="subsets of features"):
        listed.covariance_  # noqa: B018
    with pytest.raises(TypeError, match="differentiated"):
        listed.input_gradient(X)
    with pytest.raises(TypeError, match="law of each"):
        BayesianModelAverage([BayesianModelAverage()]).fit(X, y).predict_interval(X)
    with pytest.raises(ValueError, match="one sample isn't enough"):
        BayesianModelAverage().fit(X[:1], y[:1])
