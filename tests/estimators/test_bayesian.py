"""Bayesian linear regression equals its closed forms: densities by SciPy, scikit-learn's BayesianRidge, refits."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import BayesianRidge

import wonderland as wl
from wonderland.estimators import BayesianLinearRegression

NIG = {"prior": "normal_inverse_gamma", "noise_shape": 2.5, "noise_rate": 1.3}


def problem(n=30, p=4, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * rng.uniform(0.5, 3, p) + rng.normal(size=p)
    return X, X @ rng.normal(size=p) + 2 + noise * rng.normal(size=n)


def precision_matrix(p, seed=1):
    root = np.random.default_rng(seed).normal(size=(p, p))
    return root @ root.T + np.eye(p)


PRIORS = {"number": 0.7, "vector": np.array([0.5, 1.0, 2.0, 4.0]), "matrix": precision_matrix(4)}


def full(precision, p=4):
    precision = np.asarray(precision, float)
    return precision if precision.ndim == 2 else np.diag(np.broadcast_to(precision, (p,)))


@pytest.mark.parametrize("precision", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("shape", [(30, 4), (3, 4), (1, 4)])
def test_known_noise_without_intercept_equals_the_densities_of_y(precision, shape):
    X, y = problem(*shape)
    mean, alpha, beta = np.array([1.0, -1, 0, 2]), 0.8, 1.7
    model = BayesianLinearRegression(
        alpha=alpha, beta=beta, prior_mean=mean, prior_precision=precision, fit_intercept=False
    ).fit(X, y)
    prior = np.linalg.inv(alpha * full(precision))
    joint = X @ prior @ X.T + np.eye(len(y)) / beta
    assert model.log_evidence_ == pytest.approx(stats.multivariate_normal.logpdf(y, X @ mean, joint), rel=1e-10)
    # conditioning the joint Gaussian of (w, y) on y
    gain = prior @ X.T @ np.linalg.inv(joint)
    np.testing.assert_allclose(model.coef_, mean + gain @ (y - X @ mean), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(model.covariance_, prior - gain @ X @ prior, rtol=1e-8, atol=1e-10)
    new, later = problem(5, seed=3)
    expected = np.sqrt(np.einsum("ij,jk,ik->i", new, prior - gain @ X @ prior, new) + 1 / beta)
    found, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(std, expected, rtol=1e-9)
    np.testing.assert_allclose(found, new @ model.coef_)
    np.testing.assert_allclose(model.log_predictive(new, later), stats.norm.logpdf(later, found, expected))
    np.testing.assert_allclose(
        model.predict_interval(new, 0.8), np.stack(stats.norm.interval(0.8, found, expected), axis=1)
    )


@pytest.mark.parametrize("precision", PRIORS.values(), ids=PRIORS)
def test_unknown_noise_equals_the_students_densities_of_y(precision):
    X, y = problem(12)
    mean, alpha = np.array([1.0, -1, 0, 2]), 0.8
    model = BayesianLinearRegression(
        **NIG, alpha=alpha, prior_mean=mean, prior_precision=precision, fit_intercept=False
    ).fit(X, y)
    a, b = NIG["noise_shape"], NIG["noise_rate"]

    def density(X, y):
        scale = b / a * (np.eye(len(y)) + X @ np.linalg.inv(alpha * full(precision)) @ X.T)
        return stats.multivariate_t.logpdf(y, X @ mean, scale, df=2 * a)

    assert model.log_evidence_ == pytest.approx(density(X, y), rel=1e-10)
    assert model.degrees_of_freedom_ == 2 * a + 12
    # p(y_new | y) = p(y_new, y) / p(y)
    new, later = problem(3, seed=3)
    expected = [density(np.vstack([X, new[i : i + 1]]), np.append(y, later[i])) - density(X, y) for i in range(3)]
    np.testing.assert_allclose(model.log_predictive(new, later), expected, rtol=1e-9)
    found, std = model.predict(new, return_std=True)
    free = model.degrees_of_freedom_
    np.testing.assert_allclose(
        model.predict_interval(new, 0.8)[:, 1], found + stats.t.ppf(0.9, free) * std / np.sqrt(free / (free - 2))
    )


def test_a_flat_intercept_is_the_limit_of_a_wide_one():
    X, y = problem()
    model = BayesianLinearRegression(alpha=0.8, beta=1.7).fit(X, y)
    tiny = 1e-8
    precision = np.array([0.8, 0.8, 0.8, 0.8, tiny])
    wide = BayesianLinearRegression(alpha=1, beta=1.7, prior_precision=precision, fit_intercept=False)
    wide.fit(np.column_stack([X, np.ones(len(y))]), y)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), wide.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.covariance_, wide.covariance_, rtol=1e-5, atol=1e-8)
    # the flat prior's density is 1: that of N(b | 0, 1 / tiny) tends to sqrt(tiny / 2 pi)
    assert model.log_evidence_ == pytest.approx(wide.log_evidence_ - 0.5 * np.log(tiny / (2 * np.pi)), abs=1e-5)
    new, later = problem(6, seed=5)
    np.testing.assert_allclose(
        model.log_predictive(new, later), wide.log_predictive(np.column_stack([new, np.ones(6)]), later), rtol=1e-6
    )


def test_evidence_with_an_intercept_is_that_of_contrasts():
    """Integrated over b, p(y) is the density of the n - 1 differences, times 1 / sqrt n."""
    X, y = problem(9)
    contrasts = np.linalg.qr(np.column_stack([np.ones(9), np.eye(9)[:, :8]]))[0][:, 1:]
    model = BayesianLinearRegression(alpha=0.8, beta=1.7).fit(X, y)
    covariance = contrasts.T @ (X @ X.T / 0.8 + np.eye(9) / 1.7) @ contrasts
    expected = stats.multivariate_normal.logpdf(contrasts.T @ y, cov=covariance) - 0.5 * np.log(9)
    assert model.log_evidence_ == pytest.approx(expected, rel=1e-10)
    model = BayesianLinearRegression(**NIG, alpha=0.8).fit(X, y)
    a, b = NIG["noise_shape"], NIG["noise_rate"]
    scale = b / a * contrasts.T @ (X @ X.T / 0.8 + np.eye(9)) @ contrasts
    expected = stats.multivariate_t.logpdf(contrasts.T @ y, shape=scale, df=2 * a) - 0.5 * np.log(9)
    assert model.log_evidence_ == pytest.approx(expected, rel=1e-10)


def test_the_reference_prior_gives_least_squares():
    X, y = problem()
    reference = {"prior": "normal_inverse_gamma", "noise_shape": 0, "noise_rate": 0}
    model = BayesianLinearRegression(**reference, alpha=1e-10, fit_intercept=False).fit(X, y)
    coef, squares, *_ = np.linalg.lstsq(X, y)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-8)
    assert model.degrees_of_freedom_ == 30  # the flat prior of w is not counted: 1 / s2 alone
    assert 1 / model.beta_ == pytest.approx(squares[0] / 30, rel=1e-7)


@pytest.mark.parametrize("shape", [(60, 5), (10, 30)])
def test_learned_precisions_equal_scikit_learns(shape):
    X, y = problem(*shape)
    y = y - 2
    ours = BayesianLinearRegression(fit_intercept=False).fit(X, y)
    theirs = BayesianRidge(
        max_iter=20000, tol=1e-12, alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, compute_score=True,
        fit_intercept=False,
    ).fit(X, y)  # fmt: skip
    assert ours.beta_ == pytest.approx(theirs.alpha_, rel=1e-4)  # theirs is a fixed-point iteration
    assert ours.alpha_ == pytest.approx(theirs.lambda_, rel=1e-4)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-6)
    assert ours.log_evidence_ == pytest.approx(theirs.scores_[-1], rel=1e-8)
    assert ours.log_evidence_ >= theirs.scores_[-1] - 1e-9
    same = BayesianLinearRegression(alpha=theirs.lambda_, beta=theirs.alpha_, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(same.coef_, theirs.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(same.covariance_, theirs.sigma_, rtol=1e-6, atol=1e-9)
    for a, b in zip(same.predict(X, return_std=True), theirs.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("given", [{}, {"alpha": 0.5}, {"beta": 2.0}, NIG], ids=["both", "beta", "alpha", "ratio"])
def test_learned_precisions_are_at_the_top_of_the_evidence(given):
    X, y = problem(25, 4, seed=2)
    model = BayesianLinearRegression(**given).fit(X, y)
    known = {"alpha": model.alpha_} if given is NIG else {"alpha": model.alpha_, "beta": model.beta_}
    for name in known if given is NIG else {"alpha", "beta"} - {*given}:
        values = [
            BayesianLinearRegression(**{**given, **known, name: known[name] * f}).fit(X, y).log_evidence_
            for f in (np.exp(-1e-3), 1, np.exp(1e-3))
        ]
        assert values[1] == pytest.approx(model.log_evidence_, rel=1e-12)
        slope, bend = (values[2] - values[0]) / 2e-3, (values[2] - 2 * values[1] + values[0]) / 1e-6
        assert bend < 0
        assert abs(slope / bend) < 1e-5  # the distance to the top in its logarithm


@pytest.mark.parametrize("hyper", [{"alpha": 0.3, "beta": 2.0}, {}, {**NIG, "alpha": 1.0}, NIG])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_sequential_updating_equals_the_batch(hyper, fit_intercept):
    X, y = problem(40)
    weight = np.random.default_rng(4).uniform(0, 2, 40)
    batch = BayesianLinearRegression(**hyper, fit_intercept=fit_intercept).fit(X, y, weight)
    steps = BayesianLinearRegression(**hyper, fit_intercept=fit_intercept)
    for rows in np.split(np.arange(40), [1, 2, 7, 30]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            steps.partial_fit(X[rows], y[rows], weight[rows])
    limit = 1e-10 if "alpha" in hyper else 1e-7  # where precisions are learned it is to the search's tolerance
    np.testing.assert_allclose(steps.coef_, batch.coef_, rtol=limit, atol=limit)
    assert steps.intercept_ == pytest.approx(batch.intercept_, rel=limit, abs=limit)
    np.testing.assert_allclose(steps.covariance_, batch.covariance_, rtol=limit * 10, atol=limit)
    assert steps.log_evidence_ == pytest.approx(batch.log_evidence_, rel=1e-10)


def test_the_posterior_is_the_prior_of_what_comes():
    X, y = problem(40)
    first = BayesianLinearRegression(alpha=0.3, beta=2.0, fit_intercept=False).fit(X[:15], y[:15])
    second = BayesianLinearRegression(
        alpha=1, beta=2.0, prior_mean=first.coef_, prior_precision=np.linalg.inv(first.covariance_), fit_intercept=False
    ).fit(X[15:], y[15:])
    batch = BayesianLinearRegression(alpha=0.3, beta=2.0, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(second.coef_, batch.coef_, rtol=1e-9)
    np.testing.assert_allclose(second.covariance_, batch.covariance_, rtol=1e-8, atol=1e-12)
    assert first.log_evidence_ + second.log_evidence_ == pytest.approx(batch.log_evidence_, rel=1e-10)


def test_the_chain_rule_of_evidence_holds_sample_by_sample():
    X, y = problem(12)
    for hyper in ({"alpha": 0.3, "beta": 2.0}, {**NIG, "alpha": 1.0}):
        model = BayesianLinearRegression(**hyper).partial_fit(X[:3], y[:3])
        for i in range(3, 12):
            said = model.log_predictive(X[i : i + 1], y[i : i + 1])[0]
            before = model.log_evidence_
            model.partial_fit(X[i : i + 1], y[i : i + 1])
            assert model.log_evidence_ - before == pytest.approx(said, rel=1e-8)


@pytest.mark.parametrize("hyper", [{"alpha": 0.3, "beta": 2.0}, {}, NIG])
def test_a_weight_is_a_number_of_samples(hyper):
    X, y = problem(20)
    weight = np.arange(20) % 3
    weighted = BayesianLinearRegression(**hyper).fit(X, y, weight)
    repeated = BayesianLinearRegression(**hyper).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-7)
    np.testing.assert_allclose(weighted.covariance_, repeated.covariance_, rtol=1e-6, atol=1e-10)
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, rel=1e-10)


@pytest.mark.parametrize("hyper", [{"alpha": 0.3, "beta": 2.0}, {**NIG, "alpha": 1.0}])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_samples_have_the_posteriors_moments(hyper, fit_intercept):
    X, y = problem(15)
    model = BayesianLinearRegression(**hyper, fit_intercept=fit_intercept).fit(X, y)
    draws = model.sample(40000, random_state=0)
    mean = np.append(model.coef_, model.intercept_) if fit_intercept else model.coef_
    error = np.sqrt(np.diag(model.covariance_) / 40000)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 4.5 * error)
    scale = np.sqrt(np.outer(np.diag(model.covariance_), np.diag(model.covariance_)))
    assert np.max(np.abs(np.cov(draws.T) - model.covariance_) / scale) < 0.03  # 4 / sqrt(40000) and Student's tails
    np.testing.assert_array_equal(draws, model.sample(40000, random_state=0))


@pytest.mark.parametrize("hyper", [{"alpha": 0.3, "beta": 2.0}, {}, {"alpha": 0.3}, {"beta": 2.0}, NIG])
def test_derivatives_of_coefficients_equal_refits(hyper):
    X, y = problem(12, 2)
    weight = np.random.default_rng(0).uniform(0.5, 1.5, 12)
    model = BayesianLinearRegression(**hyper, prior_mean=0.4, prior_precision=precision_matrix(2))

    def both(X, y, weight):
        coef, intercept = model.coefficients(X, y, weight)
        return coef[0] - 2 * coef[1] + intercept

    slopes = wl.grad(both, (0, 1, 2))(X, y, weight)
    rng = np.random.default_rng(1)
    directions = [rng.normal(size=a.shape) for a in (X, y, weight)]

    def refit(t):
        fit = BayesianLinearRegression(**{**hyper, "tol": 1e-14}, prior_mean=0.4, prior_precision=precision_matrix(2))
        fit.fit(X + t * directions[0], y + t * directions[1], weight + t * directions[2])
        return fit.coef_[0] - 2 * fit.coef_[1] + fit.intercept_

    found = sum(np.sum(a * b) for a, b in zip(slopes, directions, strict=True))
    assert found == pytest.approx((refit(1e-4) - refit(-1e-4)) / 2e-4, rel=1e-5)


def test_derivatives_of_coefficients_in_alpha_and_of_predictions():
    X, y = problem(12, 2)
    fit = lambda alpha: BayesianLinearRegression(alpha=alpha, beta=2.0).fit(X, y).coef_[0]
    slope = wl.grad(lambda alpha: BayesianLinearRegression(beta=2.0).coefficients(X, y, alpha=alpha)[0][0])(0.3)
    assert slope == pytest.approx((fit(0.3 + 1e-5) - fit(0.3 - 1e-5)) / 2e-5, rel=1e-6)
    model = BayesianLinearRegression().fit(X, y)
    expected = (model.predict(X + 1e-6 * np.eye(2)[1]) - model.predict(X - 1e-6 * np.eye(2)[1])) / 2e-6
    np.testing.assert_allclose(model.input_gradient(X)[:, 1], expected, rtol=1e-6)


def test_far_from_the_origin_nothing_is_lost():
    X, y = problem(40)
    near = BayesianLinearRegression().fit(X, y)
    far = BayesianLinearRegression().fit(X + 1e6, y + 1e6)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-6)
    assert far.log_evidence_ == pytest.approx(near.log_evidence_, rel=1e-7)


@pytest.mark.parametrize("hyper", [{}, {"alpha": 0.3, "beta": 2.0}, NIG, {**NIG, "noise_shape": 0, "noise_rate": 0}])
@pytest.mark.parametrize("case", ["p > n", "constant columns", "equal columns", "constant y", "zero y", "no noise"])
def test_degenerate_data(hyper, case):
    n, p = (5, 12) if case == "p > n" else (20, 4)
    X, y = problem(n, p, noise=0 if case == "no noise" else 0.5)
    if case == "constant columns":
        X = np.ones_like(X)
    elif case == "equal columns":
        X[:, 1:] = X[:, :1]
    elif case in ("constant y", "zero y"):
        y = np.full(n, 3.0 if case == "constant y" else 0.0)
    with np.errstate(all="raise", under="ignore"):
        model = BayesianLinearRegression(**hyper).fit(X, y)
    for values in (model.coef_, model.covariance_, model.log_evidence_, *model.predict(X, return_std=True)):
        assert np.all(np.isfinite(values))
    if case == "constant columns":
        np.testing.assert_allclose(model.predict(X), y.mean())
    elif case == "equal columns":
        np.testing.assert_allclose(model.coef_, model.coef_[0])
    elif case == "no noise" and hyper == {}:
        np.testing.assert_allclose(model.predict(X), y, rtol=1e-8)
    elif "y" in case:
        np.testing.assert_allclose(model.predict(X), y, atol=1e-8)


def test_what_people_bring():
    X, y = problem(20, 3)
    model = BayesianLinearRegression().fit(X, y)
    for other in (X.tolist(), np.asfortranarray(X), pd.DataFrame(X, columns=list("abc"))):
        np.testing.assert_allclose(BayesianLinearRegression().fit(other, y).coef_, model.coef_, rtol=1e-12)
    wide = np.zeros((20, 6))
    wide[:, ::2] = X
    np.testing.assert_allclose(BayesianLinearRegression().fit(wide[:, ::2], y).coef_, model.coef_, rtol=1e-12)
    single = BayesianLinearRegression().fit(X.astype(np.float32), y)
    assert single.coef_.dtype == single.predict(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.coef_, model.coef_, rtol=1e-4)
    whole = np.arange(20).reshape(10, 2) % 7
    assert BayesianLinearRegression().fit(whole, np.arange(10)).coef_.dtype == np.float64


def test_an_intercept_that_comes_or_goes_between_batches():
    """What is kept of samples is their scatter around the mean, or around zero."""
    X, y = np.random.default_rng(0).normal(size=(2, 20, 2))
    for before in (True, False):
        model = BayesianLinearRegression(fit_intercept=before).partial_fit(X, y[:, 0])
        with pytest.raises(ValueError, match=f"were seen with fit_intercept={before}"):
            model.set_params(fit_intercept=not before).partial_fit(X, y[:, 0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"alpha": -1}, "alpha is a number above 0, got -1"),
        ({"beta": 0}, "beta is a number above 0, got 0"),
        ({"alpha": np.inf}, "alpha is a finite number, got inf"),
        ({"prior": "cauchy"}, "prior is one of 'normal', 'normal_inverse_gamma', got 'cauchy'"),
        ({"prior_mean": [1.0, 2]}, r"prior_mean is a number or \(3,\)"),
        ({"prior_precision": [1.0, -2, 1]}, "prior_precision is a number above 0"),
        ({"prior_precision": np.diag([1.0, -2, 1])}, "symmetric and positive definite"),
        ({"prior_precision": np.eye(2)}, r"or a matrix \(3, 3\)"),
        ({**NIG, "beta": 1.0}, "the noise is known"),
        ({**NIG, "noise_shape": 0}, "both above 0, or both 0"),
    ],
)
def test_wrong_parameters(wrong, message):
    with pytest.raises(ValueError, match=message):
        BayesianLinearRegression(**wrong).fit(*problem(10, 3))


def test_wrong_data():
    X, y = problem(10, 3)
    model = BayesianLinearRegression().fit(X, y)
    with pytest.raises(ValueError, match=r"shape \(10,\), got \(10, 1\)"):
        model.log_predictive(X, y[:, None])
    with pytest.raises(ValueError, match="confidence is a number between 0 and 1"):
        model.predict_interval(X, 95)
    with pytest.raises(ValueError, match="not negative"):
        model.fit(X, y, -np.ones(10))
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :2], y)
    with pytest.raises(ValueError, match="give more samples"):
        BayesianLinearRegression(alpha=1, prior="normal_inverse_gamma", noise_shape=0, noise_rate=0).fit(X[:1], y[:1])
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        BayesianLinearRegression(max_iter=1, tol=0).fit(X, y)
