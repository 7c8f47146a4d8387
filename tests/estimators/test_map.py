"""MAP regression equals scikit-learn's ridge, lasso, elastic net and Poisson, linear programs, and SciPy's minima."""

import numpy as np
import pytest
import scipy.optimize
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, PoissonRegressor, Ridge

import wonderland as wl
from wonderland.estimators import BayesianLinearRegression, GaussianPrior, LaplacePrior, MAPRegressor, StudentPrior
from wonderland.estimators.kinks import Kinks, kinked_minimum

SHAPES = [(40, 4), (1, 3), (15, 30), (60, 1)]
SIGMA, TAU = 0.7, 0.3


def problem(n=40, p=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * rng.uniform(0.5, 4, p) + 3
    return X, X[:, 0] - 0.5 * X[:, -1] + rng.standard_t(3, size=n)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_gaussian_prior_is_ridge_and_a_laplace_prior_the_lasso(shape, fit_intercept):
    X, y = problem(*shape)
    n = len(y)
    ours = MAPRegressor("gaussian", prior_scale=TAU, noise_scale=SIGMA, fit_intercept=fit_intercept).fit(X, y)
    theirs = Ridge(alpha=SIGMA**2 / TAU**2, fit_intercept=fit_intercept, solver="svd").fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-9)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-9)
    ours = MAPRegressor("laplace", prior_scale=0.05, noise_scale=SIGMA, fit_intercept=fit_intercept).fit(X, y)
    theirs = Lasso(alpha=SIGMA**2 / (n * 0.05), fit_intercept=fit_intercept, tol=1e-13, max_iter=10**6).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(ours.coef_ == 0, theirs.coef_ == 0)
    if n > 1:
        assert np.any(ours.coef_ != 0)


def test_weights_are_numbers_of_samples():
    X, y = problem()
    weight = np.arange(40) % 3
    for likelihood in ("gaussian", "student", "laplace"):
        for prior in ("gaussian", "laplace"):
            model = MAPRegressor(prior, prior_scale=0.2, likelihood=likelihood)
            weighted = model.fit(X, y, weight).coef_
            np.testing.assert_allclose(
                model.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight)).coef_, weighted, rtol=1e-6, atol=1e-8
            )


def test_priors_per_feature_with_means_and_a_prior_of_ones_own():
    X, y = problem()
    scale, mean = np.array([0.1, 0.2, 0.3, 1]), np.array([1.0, 0, 0, -1])
    model = MAPRegressor(GaussianPrior(scale, mean), noise_scale=SIGMA).fit(X, y)
    exact = BayesianLinearRegression(alpha=1, beta=SIGMA**-2, prior_mean=mean, prior_precision=scale**-2).fit(X, y)
    np.testing.assert_allclose(model.coef_, exact.coef_, rtol=1e-9)
    np.testing.assert_allclose(model.covariance_, exact.covariance_, rtol=1e-8, atol=1e-12)
    own = MAPRegressor(lambda w: -0.5 * np.sum(((w - mean) / scale) ** 2), noise_scale=SIGMA).fit(X, y)
    np.testing.assert_allclose(own.coef_, exact.coef_, rtol=1e-9)

    class Elastic:
        def log_density(self, w):
            return -np.sum(5 * np.abs(w) + 2 * w**2)

        def l1(self, features):
            return 5.0, 0.0

    theirs = ElasticNet(alpha=9 / 40, l1_ratio=5 / 9, tol=1e-13, max_iter=10**6).fit(X, y)
    np.testing.assert_allclose(MAPRegressor(Elastic()).fit(X, y).coef_, theirs.coef_, rtol=1e-8, atol=1e-10)
    # coefficients with a kink elsewhere stop there
    stuck = MAPRegressor(LaplacePrior(1e-4, mean)).fit(X, y)
    np.testing.assert_array_equal(stuck.coef_, mean)


@pytest.mark.parametrize("prior", ["flat", "laplace"])
@pytest.mark.parametrize("shape", [(41, 4), (15, 1)])
def test_absolute_loss_is_a_linear_program(prior, shape):
    X, y = problem(*shape)
    n, p = X.shape
    model = MAPRegressor(prior, prior_scale=0.1, likelihood="laplace", noise_scale=SIGMA).fit(X, y)
    rate = 10.0 if prior == "laplace" else 0.0
    # w = w+ - w-, b = b+ - b-, residuals = r+ - r-
    cost = np.concatenate([np.full(2 * p, rate), [0, 0], np.full(2 * n, 1 / SIGMA)])
    rows = np.hstack([X, -X, np.ones((n, 1)), -np.ones((n, 1)), np.eye(n), -np.eye(n)])
    exact = scipy.optimize.linprog(cost, A_eq=rows, b_eq=y)
    np.testing.assert_allclose(model.coef_, exact.x[:p] - exact.x[p : 2 * p], rtol=1e-7, atol=1e-9)
    losses = exact.fun + n * np.log(2 * SIGMA) + (p * np.log(0.2) if prior == "laplace" else 0)
    assert model.log_posterior_ == pytest.approx(-losses, rel=1e-10)
    if prior == "flat":  # as many samples as unknowns are met exactly
        assert np.sum(np.abs(model.predict(X) - y) < 1e-9) == p + 1


LOG_LIKELIHOODS = {
    "gaussian": lambda y, s: stats.norm.logpdf(y, s, SIGMA),
    "student": lambda y, s: stats.t.logpdf(y, 4, s, SIGMA),
    "laplace": lambda y, s: stats.laplace.logpdf(y, s, SIGMA),
    "poisson": lambda y, s: stats.poisson.logpmf(y, np.exp(s)),
}
LOG_PRIORS = {
    "gaussian": lambda w: stats.norm.logpdf(w, 0, TAU),
    "laplace": lambda w: stats.laplace.logpdf(w, 0, TAU),
    "student": lambda w: stats.t.logpdf(w, 3, 0, TAU),
    "flat": lambda w: 0 * w,
}


@pytest.mark.parametrize("likelihood", LOG_LIKELIHOODS)
@pytest.mark.parametrize("prior", LOG_PRIORS)
def test_the_log_posterior_is_that_of_the_densities_and_none_nearby_is_larger(likelihood, prior):
    X, y = problem()
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    if likelihood == "poisson":
        y = np.round(np.exp(y / 6))
    model = MAPRegressor(prior, prior_scale=TAU, likelihood=likelihood, noise_scale=SIGMA).fit(X, y)

    def log_posterior(v):
        return np.sum(LOG_LIKELIHOODS[likelihood](y, X @ v[:-1] + v[-1])) + np.sum(LOG_PRIORS[prior](v[:-1]))

    there = np.append(model.coef_, model.intercept_)
    top = log_posterior(there)
    assert model.log_posterior_ == pytest.approx(top, rel=1e-10)
    found = scipy.optimize.minimize(lambda v: -log_posterior(v), there, method="Nelder-Mead", options={"maxiter": 2000})
    assert -found.fun <= top + 1e-9 * abs(top)
    assert np.max(np.abs(found.x - there)) < 1e-3


def test_poisson_equals_scikit_learns():
    X, y = problem()
    X, counts = X / 4, np.round(np.exp(y / 6))
    ours = MAPRegressor(prior_scale=0.5, likelihood="poisson").fit(X, counts)
    theirs = PoissonRegressor(alpha=4 / 40, tol=1e-10, max_iter=1000).fit(X, counts)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_minima_with_kinks_satisfy_their_conditions(seed):
    rng = np.random.default_rng(seed)
    d, m = 6, 15
    root = rng.normal(size=(4, d))  # singular
    H, g, w = root.T @ root, rng.normal(size=d), rng.normal(size=d)
    g = root.T @ rng.normal(size=4)
    kinks = Kinks(rng.normal(size=(m, d)), rng.normal(size=m), rng.uniform(0.1, 2, m))
    v = kinked_minimum(g, H, w, kinks)
    r = kinks.rows @ v - kinks.offsets
    on = np.abs(r) < 1e-9
    force = g + H @ (v - w) + kinks.rows[~on].T @ (kinks.rates * np.sign(r))[~on]
    # forces of the kinks, within their rates, balance the rest
    found = scipy.optimize.lsq_linear(kinks.rows[on].T, -force, (-kinks.rates[on], kinks.rates[on]), tol=1e-14)
    assert np.linalg.norm(found.fun) < 1e-8


@pytest.mark.parametrize("likelihood", ["gaussian", "student", "poisson"])
@pytest.mark.parametrize("prior", ["gaussian", "laplace", "student"])
def test_derivatives_of_coefficients_equal_refits(likelihood, prior):
    X, y = problem(20, 3)
    X = X - 3
    y = np.exp(y / 6) if likelihood == "poisson" else y
    weight = np.random.default_rng(0).uniform(0.5, 1.5, 20)
    model = MAPRegressor(prior, prior_scale=0.2, likelihood=likelihood)

    def both(X, y, weight, prior_scale, noise_scale):
        coef, intercept = model.coefficients(X, y, weight, prior_scale=prior_scale, noise_scale=noise_scale)
        return coef[0] - 2 * coef[1] + intercept

    point = (X, y, weight, np.float64(0.2), np.float64(SIGMA))
    slopes = wl.grad(both, (0, 1, 2, 3, 4))(*point)
    rng = np.random.default_rng(1)
    directions = [rng.normal(size=np.shape(a)) for a in point]

    def refit(t):
        X, y, weight, prior_scale, noise_scale = (a + t * d for a, d in zip(point, directions, strict=True))
        fit = MAPRegressor(
            prior, likelihood=likelihood, prior_scale=float(prior_scale), noise_scale=float(noise_scale), tol=1e-14
        ).fit(X, y, weight)
        return fit.coef_[0] - 2 * fit.coef_[1] + fit.intercept_

    found = sum(np.sum(a * b) for a, b in zip(slopes, directions, strict=True))
    assert found == pytest.approx((refit(1e-5) - refit(-1e-5)) / 2e-5, rel=1e-5)


def test_derivatives_of_predictions():
    X, y = problem(20, 3)
    model = MAPRegressor(likelihood="poisson").fit(X / 4, np.abs(y))
    shift = 1e-6 * np.eye(3)[1]
    expected = (model.predict(X / 4 + shift) - model.predict(X / 4 - shift)) / 2e-6
    np.testing.assert_allclose(model.input_gradient(X / 4)[:, 1], expected, rtol=1e-6)


@pytest.mark.parametrize("likelihood", ["gaussian", "student", "laplace", "poisson"])
@pytest.mark.parametrize("prior", ["gaussian", "laplace", "student"])
@pytest.mark.parametrize("case", ["p > n", "constant column", "equal columns", "constant y", "one sample", "far"])
def test_degenerate_data(likelihood, prior, case):
    X, y = problem(6, 9) if case == "p > n" else problem(20, 3)
    y = np.abs(y)
    if case == "constant column":
        X[:, 1] = 2
    elif case == "equal columns":
        X[:, 1] = X[:, 2]
    elif case == "constant y":
        y = np.full(20, 3.0)
    elif case == "one sample":
        X, y = X[:1], y[:1]
    elif case == "far":
        X = X + 1e6
    model = MAPRegressor(prior, likelihood=likelihood).fit(X, y)
    assert np.all(np.isfinite(model.coef_)) and np.isfinite(model.intercept_)
    if case == "constant column":
        assert abs(model.coef_[1]) < 1e-8
    elif case == "equal columns" and prior == "gaussian":
        assert model.coef_[1] == pytest.approx(model.coef_[2], abs=1e-6)
    elif case in ("constant y", "one sample"):
        np.testing.assert_allclose(model.predict(X), y, rtol=1e-6)
    elif case == "far":
        near = MAPRegressor(prior, likelihood=likelihood).fit(X - 1e6, y)
        np.testing.assert_allclose(model.coef_, near.coef_, rtol=1e-5, atol=1e-6)


def test_single_precision_and_student_objects():
    X, y = problem()
    model = MAPRegressor(StudentPrior(df=2.0, scale=0.4)).fit(X.astype(np.float32), y)
    assert model.coef_.dtype == model.predict(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(model.coef_, MAPRegressor(StudentPrior(2.0, 0.4)).fit(X, y).coef_, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"prior": "cauchy"}, ValueError, "prior is one of 'gaussian', 'laplace'"),
        ({"prior": 3}, TypeError, "an object with log_density"),
        ({"prior": lambda w: -(w**2)}, ValueError, r"got shape \(4,\): sum it"),
        ({"prior": lambda w: w @ np.ones(3)}, ValueError, r"failed at w = zeros\(4\)"),
        ({"likelihood": "huber"}, ValueError, "likelihood is one of"),
        ({"noise_scale": 0}, ValueError, "noise_scale is a number above 0, got 0"),
        ({"likelihood": "poisson"}, ValueError, "none negative"),
    ],
)
def test_wrong_parameters(wrong, error, message):
    X, y = problem()
    with pytest.raises(error, match=message):
        MAPRegressor(**wrong).fit(X, y - 100)


def test_what_has_no_answer():
    X, y = problem()
    with pytest.raises(AttributeError, match="kinks"):
        MAPRegressor("laplace").fit(X, y).covariance_  # noqa: B018
    with pytest.raises(ValueError, match='likelihood="student"'):
        wl.grad(lambda y: MAPRegressor(likelihood="laplace").coefficients(X, y)[1])(y)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        MAPRegressor(likelihood="poisson", max_iter=1).fit(X, np.abs(y))
