"""Mean and standard deviation as functions of x: against SciPy's minimiser, least squares, and known noise."""

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression

import wonderland as wl
from wonderland.estimators import HeteroscedasticRegressor

RNG = np.random.default_rng(0)


def noisy(n, seed=0, p=2):
    """y = 1 + 2 x0 - x1 + exp(-1 + 0.8 x0) noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    mean, std = 1 + 2 * X[:, 0] - X[:, 1], np.exp(-1 + 0.8 * X[:, 0])
    return X, mean + std * rng.normal(size=n), mean, std


def objective(theta, X, z, weight, alpha, floor):
    """What is minimised, written again."""
    w, b, v, c = np.split(theta, np.cumsum([X.shape[1], 1, X.shape[1]]))
    V = np.exp(2 * (X @ v + c)) + floor**2
    return np.sum(weight * (np.log(V) + (z - X @ w - b) ** 2 / V)) / 2 + alpha * (w @ w + v @ v) / 2


@pytest.mark.parametrize(("alpha", "floor"), [(0.0, 0.0), (0.5, 1e-3), (3.0, 0.3)])
def test_linear_against_scipy(alpha, floor):
    X, y, _, _ = noisy(60)
    X = X * [1.0, 20.0] + [3.0, -50.0]  # of other scales
    weight = RNG.uniform(0.3, 2, 60)
    model = HeteroscedasticRegressor(alpha=alpha, floor=floor).fit(X, y, weight)
    centre = np.average(y, weights=weight)
    spread = np.sqrt(np.average((y - centre) ** 2, weights=weight))
    z = (y - centre) / spread
    # SciPy's is given columns of unit scale, and the penalty that this makes
    scaled = lambda theta: theta / np.array([1, 20, 1, 1, 20, 1])
    there = optimize.minimize(
        wl.jit(wl.value_and_grad(lambda t: objective(scaled(t), X - [3, -50], z, weight, alpha, floor))),
        np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 1000},
    )  # fmt: skip
    w, b, v, c = np.split(scaled(there.x), [2, 3, 5])
    np.testing.assert_allclose(model.coef_, spread * w, rtol=1e-6)
    np.testing.assert_allclose(model.intercept_, centre + spread * (b[0] - w @ [3, -50]), rtol=1e-6)
    np.testing.assert_allclose(model.log_std_coef_, v, rtol=1e-6)
    np.testing.assert_allclose(model.log_std_intercept_, np.log(spread) + c[0] - v @ [3, -50], rtol=1e-6)
    np.testing.assert_allclose(model.loss_ * weight.sum(), there.fun, rtol=1e-9)
    assert model.loss_curve_ == [*model.history_["loss"]] and model.n_iter_ < 30


def test_equal_noise_is_least_squares():
    """Residuals of one size, whatever x is: then the standard deviation is that size, and the mean is least squares."""
    half = RNG.normal(size=(30, 3))
    X = np.vstack([half, half])
    y = X @ [1.0, 2.0, -1.0] + 4 + np.repeat([0.5, -0.5], 30)
    model = HeteroscedasticRegressor(alpha=0.0, floor=0.0).fit(X, y)
    other = LinearRegression().fit(X, y)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-8)
    np.testing.assert_allclose(model.intercept_, other.intercept_, atol=1e-8)
    np.testing.assert_allclose(model.log_std_coef_, 0, atol=1e-8)
    np.testing.assert_allclose(model.predict(X, return_std=True)[1], 0.5, rtol=1e-8)


def test_known_noise_is_found_and_more_likely():
    X, y, mean, std = noisy(4000)
    model = HeteroscedasticRegressor().fit(X, y)
    found = model.predict(X, return_std=True)
    np.testing.assert_allclose(model.coef_, [2, -1], atol=0.02)
    np.testing.assert_allclose(model.log_std_coef_, [0.8, 0], atol=0.04)
    np.testing.assert_allclose(found[0], mean, atol=0.1)
    assert np.max(np.abs(np.log(found[1] / std))) < 0.15
    X_new, y_new, _, _ = noisy(2000, seed=1)
    plain = LinearRegression().fit(X, y)
    alike = stats.norm.logpdf(y_new, plain.predict(X_new), np.std(y - plain.predict(X)))
    assert model.log_likelihood(X_new, y_new).mean() > alike.mean() + 0.2
    for confidence in (0.5, 0.9):
        low, high = model.predict_interval(X_new, confidence).T
        np.testing.assert_allclose(np.mean((low <= y_new) & (y_new <= high)), confidence, atol=0.03)


def test_likelihood_and_intervals_are_those_of_the_normal_law():
    X, y, _, _ = noisy(50)
    model = HeteroscedasticRegressor().fit(X, y)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(model.log_likelihood(X, y), stats.norm(mean, std).logpdf(y))
    np.testing.assert_allclose(model.predict_interval(X).T, stats.norm(mean, std).interval(0.95))
    with pytest.raises(ValueError, match="confidence"):
        model.predict_interval(X, 95)
    with pytest.raises(ValueError, match="inconsistent"):
        model.log_likelihood(X, y[:-1])
    with pytest.raises(ValueError, match="one number for each sample"):
        model.log_likelihood(X, y[:, None])


def test_weights_are_repetitions_and_units_dont_matter():
    X, y, _, _ = noisy(40)
    times = RNG.integers(0, 4, 40)
    weighted = HeteroscedasticRegressor(alpha=0.3).fit(X, y, times)
    repeated = HeteroscedasticRegressor(alpha=0.3).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    for one, other in zip(weighted.predict(X, return_std=True), repeated.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    thousands = HeteroscedasticRegressor(alpha=0.3).fit(X, 1000 * y + 7, times)
    np.testing.assert_allclose(thousands.predict(X), 1000 * weighted.predict(X) + 7, rtol=1e-9)
    np.testing.assert_allclose(thousands.predict(X, return_std=True)[1], 1000 * weighted.predict(X, True)[1], rtol=1e-9)


def test_more_features_than_samples_constant_columns_and_targets():
    X, y, _, _ = noisy(8, p=20)
    model = HeteroscedasticRegressor(floor=0.01).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, y, atol=0.02 * np.std(y))  # it can be right, and the floor holds
    assert np.all(std >= 0.01 * np.std(y)) and np.all(std < 0.05 * np.std(y))
    more = np.column_stack([X[:, :2], X[:, 0], np.full(8, 3.0)])
    assert np.all(np.isfinite(HeteroscedasticRegressor(alpha=0.1).fit(more, y).predict(more)))
    same = HeteroscedasticRegressor().fit(X, np.full(8, 5.0))
    np.testing.assert_allclose(same.predict(X), 5.0)
    float32 = HeteroscedasticRegressor().fit(X[:, :1].astype(np.float32), y)
    assert float32.predict(X[:, :1].astype(np.float32)).dtype == np.float32


def test_network_finds_noise_that_is_no_line():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(1500, 1))
    mean, std = np.sin(2 * x[:, 0]), 0.05 + 0.4 * (np.abs(x[:, 0]) < 1)
    y = mean + std * rng.normal(size=1500)
    model = HeteroscedasticRegressor(
        (32, 32), "tanh", learning_rate="cosine", learning_rate_init=0.01, max_iter=60, random_state=0
    ).fit(x, y)
    found = model.predict(x, return_std=True)
    assert np.sqrt(np.mean((found[0] - mean) ** 2)) < 0.08
    calm, loud = np.abs(x[:, 0]) > 1.3, np.abs(x[:, 0]) < 0.7
    np.testing.assert_allclose([found[1][calm].mean(), found[1][loud].mean()], [0.05, 0.45], rtol=0.25)
    line = HeteroscedasticRegressor().fit(x, y)
    assert model.log_likelihood(x, y).mean() > line.log_likelihood(x, y).mean() + 0.5
    z = (y - y.mean()) / y.std()
    V = (found[1] / y.std()) ** 2
    by_hand = np.mean(np.log(V) + (z - (found[0] - y.mean()) / y.std()) ** 2 / V) / 2
    np.testing.assert_allclose(model.loss_, by_hand, atol=0.02)  # a mean over batches while it learns
    with pytest.raises(AttributeError, match="no coefficients"):
        _ = model.coef_


def test_wrong_input():
    X, y, _, _ = noisy(20)
    with pytest.raises(ValueError, match="floor"):
        HeteroscedasticRegressor(floor=-1).fit(X, y)
    with pytest.raises(ValueError, match="alpha"):
        HeteroscedasticRegressor(alpha="much").fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        HeteroscedasticRegressor().fit(X, np.where(y > 1, np.nan, y))
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        HeteroscedasticRegressor(max_iter=1).fit(X, y)
