"""Huber and quantile regression: against scikit-learn, SciPy's minimisers, closed forms and refits."""

import numpy as np
import pytest
import scipy.optimize
from sklearn import linear_model
from sklearn.exceptions import ConvergenceWarning

import wonderland as wl
from wonderland.estimators import HuberRegressor, QuantileRegressor, Ridge
from wonderland.estimators.huber import best_scale, huber_value


def data(n, p, seed=0, outliers=7):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 2
    y = X @ rng.normal(size=p) + rng.normal(size=n) + 1
    y[::outliers] += 20 * rng.normal(size=len(y[::outliers]))
    return X, y, rng.uniform(0.2, 2, n)


def objective(model, coef, intercept, X, y, weight=None):
    return float(model._objective(coef, intercept, X, y, np.ones(len(X)) if weight is None else weight))


# ---- Huber ----


@pytest.mark.parametrize("epsilon", [1.05, 1.35, 3.0])
def test_the_best_scale_is_the_minimum(epsilon):
    rng = np.random.default_rng(0)
    for n in (1, 5, 200):
        r, weight = rng.standard_t(2, n), rng.uniform(0.1, 2, n)
        value = lambda t: float(huber_value(r, weight, epsilon, np.exp(t)))  # noqa: B023
        found = scipy.optimize.minimize_scalar(value, bounds=(-15, 10), method="bounded", options={"xatol": 1e-12})
        scale = float(best_scale(r, weight, epsilon))
        assert value(np.log(scale)) <= found.fun * (1 + 1e-12)
        assert scale == pytest.approx(np.exp(found.x), rel=1e-4)
    assert best_scale(np.array([0.0, 0.0, 5.0]), np.ones(3), 1.35) == 0


@pytest.mark.parametrize("shape", [(30, 1), (80, 5), (400, 20)], ids=str)
@pytest.mark.parametrize("intercept", [True, False])
def test_huber_finds_scikit_learns_minimum(shape, intercept):
    X, y, weight = data(*shape)
    for w in (None, weight):
        for settings in ({}, {"epsilon": 2.0, "alpha": 1.0}):
            ours = HuberRegressor(fit_intercept=intercept, **settings).fit(X, y, w)
            theirs = linear_model.HuberRegressor(fit_intercept=intercept, tol=1e-10, max_iter=10_000, **settings)
            theirs.fit(X, y, w)
            least, reference = (objective(ours, m.coef_, m.intercept_, X, y, w) for m in (ours, theirs))
            assert reference * (1 - 1e-7) <= least <= reference
            np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)
            assert ours.scale_ == pytest.approx(theirs.scale_, rel=1e-3)
            np.testing.assert_array_equal(ours.outliers_, np.abs(y - ours.predict(X)) > ours.scale_ * ours.epsilon)
            assert ours.n_iter_ < 15


def test_huber_is_exact():
    X, y, weight = data(60, 4)
    model = HuberRegressor(alpha=0.1).fit(X, y, weight)

    def value(v):
        r = y - X @ v[:4] - v[4]
        return huber_value(r, weight, 1.35, np.exp(v[5])) + 0.1 * np.sum(v[:4] ** 2)

    start = np.concatenate([model.coef_ + 0.1, [model.intercept_, np.log(model.scale_) + 0.1]])
    found = scipy.optimize.minimize(value, start, method="BFGS", jac=wl.grad(value), options={"gtol": 1e-9})
    np.testing.assert_allclose(found.x[:4], model.coef_, atol=1e-8)
    assert np.exp(found.x[5]) == pytest.approx(model.scale_, rel=1e-8)


def test_huber_without_outliers_is_ridge():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.uniform(-1, 1, 50)
    model = HuberRegressor(epsilon=10.0, alpha=0.5).fit(X, y)
    assert not np.any(model.outliers_)
    np.testing.assert_allclose(model.coef_, Ridge(0.5 * model.scale_).fit(X, y).coef_, rtol=1e-6)


def test_huber_isnt_moved_by_far_outliers():
    X, y, _ = data(200, 3, outliers=1000)
    moved = y.copy()
    moved[:10] += 1e9
    clean, model = HuberRegressor().fit(X, y), HuberRegressor().fit(X, moved)
    np.testing.assert_allclose(model.coef_, clean.coef_, atol=0.3)
    assert np.all(model.outliers_[:10])
    scaled = HuberRegressor(alpha=0).fit(X, 1e6 * y)  # y in other units
    np.testing.assert_allclose(scaled.coef_, 1e6 * HuberRegressor(alpha=0).fit(X, y).coef_, rtol=1e-7)


def test_huber_goes_exactly_through_most_samples_if_it_can():
    X, _, _ = data(40, 3)
    y = X @ [1.0, -2.0, 0.5] + 3
    y[::5] += 10
    model = HuberRegressor(alpha=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, [1, -2, 0.5], atol=1e-10)
    assert model.scale_ < 1e-10
    np.testing.assert_array_equal(np.flatnonzero(np.abs(y - model.predict(X)) > 1), np.arange(0, 40, 5))
    for seed in range(20):  # few samples for the coefficients: kinks everywhere
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(12, 5)), rng.standard_t(1, 12)
        ours = HuberRegressor(epsilon=1.1).fit(X, y)
        theirs = linear_model.HuberRegressor(epsilon=1.1, tol=1e-10, max_iter=10_000).fit(X, y)
        values = [objective(ours, m.coef_, m.intercept_, X, y) for m in (ours, theirs)]
        assert values[0] <= values[1] * (1 + 1e-9)


@pytest.mark.parametrize("shape", [(12, 20), (5, 4)])
def test_huber_leaves_a_line_through_all_samples_where_the_penalty_asks_for_it(shape):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=shape), 1e5 * rng.normal(size=shape[0]) ** 3
    model, theirs = HuberRegressor().fit(X, y), linear_model.HuberRegressor(max_iter=20_000, tol=1e-10).fit(X, y)

    def value(m):
        r = y - X @ m.coef_ - m.intercept_
        return huber_value(r, np.ones(len(y)), 1.35, m.scale_) + 1e-4 * np.sum(m.coef_**2)

    assert value(model) <= value(theirs) * (1 + 1e-7)


def test_huber_with_more_features_than_samples_and_bad_columns():
    X, y, _ = data(10, 30)
    assert np.max(np.abs(y - HuberRegressor().fit(X, y).predict(X))) < 0.1
    X, y, _ = data(40, 3)
    worse = np.concatenate([X, X[:, :1], np.full((40, 1), 1e6 / 3)], axis=1)
    model = HuberRegressor(alpha=0).fit(worse, y)
    np.testing.assert_allclose(model.predict(worse), HuberRegressor(alpha=0).fit(X, y).predict(X), atol=1e-6)
    assert HuberRegressor().fit([[1.0]], [2.0]).predict([[5.0]]) == pytest.approx([2.0])


# ---- quantiles ----


@pytest.mark.parametrize("shape", [(30, 1), (80, 5), (12, 20)], ids=str)
@pytest.mark.parametrize("intercept", [True, False])
def test_quantiles_have_scikit_learns_objective(shape, intercept):
    X, y, weight = data(*shape)
    for quantile in (0.5, 0.05, 0.9):
        for alpha in (0.0, 0.02, 1.0):
            for w in (None, weight):
                settings = {"quantile": quantile, "alpha": alpha, "fit_intercept": intercept}
                ours = QuantileRegressor(**settings).fit(X, y, w)
                theirs = linear_model.QuantileRegressor(**settings).fit(X, y, w)
                values = [objective(ours, m.coef_, m.intercept_, X, y, w) for m in (ours, theirs)]
                assert abs(values[0] - values[1]) <= 1e-9 * (values[1] + 1e-3)
                assert ours.dual_gap_ <= 1e-9 * max(values[1], 1e-3)
                if alpha:
                    np.testing.assert_array_equal(ours.coef_ != 0, np.abs(theirs.coef_) > 1e-9)
                    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-7)


def test_degenerate_programs():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, p = int(rng.integers(1, 25)), int(rng.integers(1, 5))
        X = rng.integers(-2, 3, size=(n, p)).astype(float)
        X[:, -1] = X[:, 0] if seed % 2 else 3.0
        y = rng.integers(0, 3, size=n).astype(float)
        settings = {"quantile": 0.3, "alpha": 0.1 * (seed % 3)}
        ours = QuantileRegressor(**settings).fit(X, y)
        theirs = linear_model.QuantileRegressor(**settings).fit(X, y)
        values = [objective(ours, m.coef_, m.intercept_, X, y) for m in (ours, theirs)]
        assert abs(values[0] - values[1]) <= 1e-9


def test_a_constant_is_the_quantile():
    y = np.random.default_rng(0).exponential(size=101)
    for quantile in (0.1, 0.5, 0.75):
        model = QuantileRegressor(quantile=quantile).fit(np.ones((101, 1)), y)
        assert model.intercept_ == pytest.approx(np.quantile(y, quantile), abs=1e-9)
    assert QuantileRegressor().fit(np.ones((5, 1)), np.full(5, 7.0)).predict([[3.0]]) == [7.0]


def test_a_line_goes_through_as_many_samples_as_it_has_coefficients():
    X, y, _ = data(200, 4)
    model = QuantileRegressor(quantile=0.8, alpha=0).fit(X, y)
    r = y - model.predict(X)
    assert np.sum(np.abs(r) < 1e-10) == 5
    assert abs(np.mean(r < -1e-10) - 0.8) <= 5 / 200


def test_many_samples():
    X, y, _ = data(20_000, 5)
    model = QuantileRegressor(alpha=0).fit(X, y)
    # the optimality of linear programs: some d between the slopes has X'd = 0
    r = y - model.predict(X)
    on = np.abs(r) < 1e-9
    A = np.concatenate([X, np.ones((len(X), 1))], axis=1)
    d = np.linalg.solve(A[on].T, -A[~on].T @ np.where(r[~on] > 0, 0.5, -0.5))
    assert np.sum(on) == 6 and np.all(np.abs(d) <= 0.5)
    assert model.n_iter_ < 40


def test_float32_and_far_columns():
    X, y, _ = data(60, 3)
    for model in (HuberRegressor(), QuantileRegressor(alpha=0.01)):
        exact = model.fit(X, y).coef_
        single = model.fit(X.astype(np.float32), y).coef_
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, exact, atol=1e-4)
        np.testing.assert_allclose(model.fit(X + 1e7, y).coef_, exact, atol=1e-6)
        np.testing.assert_allclose(model.fit(np.asfortranarray(X), y).coef_, exact, atol=1e-9)


# ---- both ----


HUBERS = [HuberRegressor(alpha=0.1), HuberRegressor(fit_intercept=False)]
QUANTILES = [QuantileRegressor(alpha=alpha) for alpha in (0, 0.1, 1.0)]  # all, some and no coefficients


@pytest.mark.parametrize("model", HUBERS + QUANTILES, ids=repr)
def test_coefficients_have_derivatives(model):
    X, y, weight = data(25, 3)

    def loss(X, y, weight, hyper):
        coef, intercept = model.coefficients(X, y, weight, **hyper)
        return np.sum(np.sin(coef)) + np.sum(intercept**2)

    wl.testing.check_grads(loss, (X, y, weight, {"alpha": model.alpha + 0.05}), order=1, modes=["reverse"])


def test_gradients_of_predictions():
    X, y, _ = data(40, 3)
    for model in (HuberRegressor().fit(X, y), QuantileRegressor(alpha=0.01).fit(X, y)):
        slopes = [(model.predict([X[0] + d]) - model.predict([X[0] - d]))[0] / 2e-5 for d in 1e-5 * np.eye(3)]
        np.testing.assert_allclose(model.input_gradient(X[:1])[0], slopes, atol=1e-8)


def test_bad_input_is_refused():
    X, y, weight = data(10, 3)
    for model, match in (
        (HuberRegressor(epsilon=1.0), "epsilon is a number above 1"), (HuberRegressor(alpha=-1), "alpha"),
        (HuberRegressor(max_iter=0), "max_iter"), (QuantileRegressor(quantile=1), "quantile is between"),
        (QuantileRegressor(quantile=0), "quantile is a number above 0"), (QuantileRegressor(alpha=-1), "alpha"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            model.fit(X, y)
    for model in (HuberRegressor(), QuantileRegressor()):
        with pytest.raises(ValueError, match="NaN"):
            model.fit(np.where(X == X[0, 0], np.nan, X), y)
        with pytest.raises(ValueError, match="negative"):
            model.fit(X, y, -weight)
        with pytest.raises(ValueError, match="1d array"):
            model.fit(X, np.stack([y, y], axis=1))


def test_stopping_early_warns():
    X, y, _ = data(50, 5)
    for model in (HuberRegressor(max_iter=1), QuantileRegressor(max_iter=2)):
        with pytest.warns(ConvergenceWarning, match="max_iter"):
            model.fit(X, y)


@pytest.mark.parametrize("seed", [7, 16, 18])
def test_quantiles_of_fewer_samples_than_features_that_are_far_from_zero(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(20, 40)) + 100.0, rng.normal(size=20)
    settings = {"quantile": 0.9, "alpha": 3e-3, "fit_intercept": False}
    ours = QuantileRegressor(**settings).fit(X, y)
    theirs = linear_model.QuantileRegressor(**settings).fit(X, y)

    def value(coef):
        r = y - X @ coef
        return np.mean(np.maximum(0.9 * r, -0.1 * r)) + 3e-3 * np.sum(np.abs(coef))

    assert value(ours.coef_) <= value(theirs.coef_) * (1 + 1e-7)
