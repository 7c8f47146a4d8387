"""What docs/estimators.md says of bad input, for every estimator that it concerns."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from test_contract import ALL, data_for

from wonderland import estimators

SUPERVISED = [e for e in ALL if is_classifier(e) or is_regressor(e)]
LEAST_SQUARES = (estimators.LinearRegression, estimators.Ridge, estimators.Lasso)


@pytest.mark.parametrize("estimator", SUPERVISED, ids=lambda e: type(e).__name__)
def test_missing_values_and_sparse_matrices(estimator):
    X, y = data_for(estimator)
    hole = X.copy()
    hole.iloc[3, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        clone(estimator).fit(hole, y)
    with pytest.raises((TypeError, ValueError), match=r"[Ss]parse"):
        clone(estimator).fit(sparse.csr_array(X.to_numpy()), y)


@pytest.mark.parametrize("estimator", [e for e in ALL if is_classifier(e)], ids=lambda e: type(e).__name__)
def test_one_class(estimator):
    with pytest.raises(ValueError, match="class"):
        clone(estimator).fit(np.arange(24.0).reshape(12, 2), ["all"] * 12)


@pytest.mark.parametrize("model", LEAST_SQUARES)
def test_more_features_than_samples_and_columns_that_say_the_same(model):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5, 9)), rng.normal(size=5)
    assert np.all(np.isfinite(model().fit(X, y).coef_))
    double = np.column_stack([X[:, :2], X[:, :2], np.ones(5)])
    coef = model().fit(double, y).coef_
    assert np.all(np.isfinite(coef)) and coef[4] == 0
    if model is not estimators.Lasso:
        np.testing.assert_allclose(coef[:2], coef[2:4], rtol=1e-8)


def test_least_squares_has_the_minimum_norm():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5, 9)), rng.normal(size=5)
    model = estimators.LinearRegression(fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.coef_, np.linalg.pinv(X) @ y, rtol=1e-9)
    with pytest.raises(ValueError, match="more samples"):
        model.predict_interval(X)


def test_separated_classes():
    X = np.array([[-2.0, 1], [-1, 0], [-1.5, 2], [1, 1], [2, 0], [3, 2]])
    y = np.array([0, 0, 0, 1, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimators.LogisticRegression().fit(X, y).score(X, y) == 1
    with pytest.warns(ConvergenceWarning, match="feature 0"):
        estimators.LogisticRegression(C=np.inf).fit(X, y)


def test_numbers_that_a_family_doesnt_have():
    X = np.arange(6.0)[:, None]
    with pytest.raises(ValueError, match=r"poisson|Poisson"):
        estimators.PoissonRegressor().fit(X, [1, 2, -1, 0, 3, 1])
    with pytest.raises(ValueError, match=r"gamma|Gamma"):
        estimators.GammaRegressor().fit(X, [1.0, 2, 0, 3, 1, 2])


@pytest.mark.parametrize("model", (*LEAST_SQUARES, estimators.PoissonRegressor, estimators.HuberRegressor))
def test_targets_that_single_precision_cannot_hold(model):
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    y = np.exp(X[:, 0].astype(np.float64)) * 1e39
    with pytest.raises(ValueError, match="single precision"):
        model().fit(X, y)
    assert np.all(np.isfinite(model().fit(X.astype(np.float64), y).coef_))


def test_too_few_samples_for_a_promise():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 1))
    with pytest.warns(UserWarning, match="at least"):
        model = estimators.SplitConformalRegressor(confidence_level=0.99).fit(X, X[:, 0])
    assert np.all(np.isinf(model.predict_interval(X)))


@pytest.mark.parametrize(
    "model",
    [
        estimators.Ridge(alpha=np.inf), estimators.Lasso(alpha=np.inf), estimators.QuantileRegressor(alpha=np.inf),
        estimators.HuberRegressor(alpha=np.inf), estimators.PoissonRegressor(alpha=np.inf),
        estimators.MAPRegressor(tol=np.inf), estimators.MLPRegressor(alpha=np.inf),
    ],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_parameters_are_finite(model):
    with pytest.raises(ValueError, match=r"(alpha|tol) is a finite number, got inf"):
        model.fit(np.eye(4), np.arange(4.0))


def test_map_regression_says_what_its_steps_are():
    for wrong, said in (({"max_iter": 0}, "max_iter is a whole number"), ({"tol": "x"}, "tol is a number")):
        with pytest.raises(ValueError, match=said):
            estimators.MAPRegressor(**wrong).fit(np.eye(4), np.arange(4.0))
