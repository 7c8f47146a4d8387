"""Bayesian logistic regression: scikit-learn's mode, integrals by quadrature, and averages of samples."""

import pickle

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, log_softmax, logsumexp, softmax
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import wonderland as wl
from wonderland.estimators import BayesianLogisticRegression


def problem(n=40, p=3, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 1
    scores = 2 * X @ rng.normal(size=(p, classes)) + rng.gumbel(size=(n, classes))
    return X, np.argmax(scores, axis=1)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_mode_is_scikit_learns(classes, fit_intercept):
    X, y = problem(60, classes=classes)
    ours = BayesianLogisticRegression(prior_scale=0.8, intercept_scale=1e5, fit_intercept=fit_intercept).fit(X, y)
    theirs = LogisticRegression(C=0.64, fit_intercept=fit_intercept, tol=1e-12, max_iter=10000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    between = lambda b: b - np.mean(b) if classes > 2 else b  # one number in all intercepts changes nothing
    np.testing.assert_allclose(between(ours.intercept_), between(theirs.intercept_), atol=1e-6)
    assert ours.coef_.shape == theirs.coef_.shape and ours.intercept_.shape == theirs.intercept_.shape


@pytest.fixture(scope="module")
def quadrature():
    """One feature and an intercept: everything by sums over a grid of (w, b at the mean feature)."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=12) + 2
    y = (x + rng.normal(size=12) > 2).astype(int)
    w, b = np.meshgrid(np.linspace(-9, 9, 201), np.linspace(-18, 18, 401), indexing="ij")
    scores = w[..., None] * (x - x.mean()) + b[..., None]
    log_density = np.sum(stats.bernoulli.logpmf(y, expit(scores)), axis=-1)
    log_density += stats.norm.logpdf(w, 0, 1.5) + stats.norm.logpdf(b, 0, 3)
    evidence = logsumexp(log_density) + 2 * np.log(0.09)
    density = np.exp(log_density - logsumexp(log_density))
    new = np.array([0.0, 1.5, 2.0, 5.0, 9.0])
    predictive = np.array([np.sum(density * expit(w * (at - x.mean()) + b)) for at in new])
    mean = np.sum(density * w)
    return x[:, None], y, new[:, None], predictive, evidence, mean, np.sum(density * (w - mean) ** 2)


@pytest.mark.parametrize(
    ("posterior", "error", "of_moments"), [("laplace", 0.05, 0.3), ("variational", 0.03, 0.1), ("hmc", 0.015, 0.06)]
)
def test_predictions_are_averages_over_the_posterior(quadrature, posterior, error, of_moments):
    X, y, new, predictive, evidence, mean, variance = quadrature
    model = BayesianLogisticRegression(
        posterior=posterior, prior_scale=1.5, intercept_scale=3.0, n_samples=4000, random_state=0
    ).fit(X, y)
    assert np.max(np.abs(model.predict_proba(new)[:, 1] - predictive)) < error
    assert model.log_evidence_ == pytest.approx(evidence, abs=0.1)
    assert model.coef_[0, 0] == pytest.approx(mean, abs=of_moments * np.sqrt(variance))
    assert model.covariance_[0, 0] == pytest.approx(variance, rel=2 * of_moments)
    if posterior == "variational":
        assert model.elbo_ == pytest.approx(evidence, abs=0.05) and model.elbo_ < evidence + 0.01


def test_mackays_approximation_of_the_gaussian_integral():
    X, y = problem()
    model = BayesianLogisticRegression().fit(X, y)
    design = np.column_stack([X, np.ones(len(X))])
    mean = X @ model.coef_[0] + model.intercept_[0]
    deviation = np.sqrt(np.einsum("ij,jk,ik->i", design, model.covariance_, design))
    for i in range(0, 40, 8):
        exact = integrate.quad(lambda s, i=i: expit(s) * stats.norm.pdf(s, mean[i], deviation[i]), -40, 40)[0]
        assert model.predict_proba(X)[i, 1] == pytest.approx(exact, abs=0.01)
    np.testing.assert_allclose(model.decision_function(X), mean / np.sqrt(1 + np.pi / 8 * deviation**2), rtol=1e-8)


def test_several_classes_are_averages_too():
    X, y = problem(60, classes=3)
    model = BayesianLogisticRegression().fit(X, y)
    draws = model.sample(20000, random_state=0)  # (size, classes, features + 1)
    assert draws.shape == (20000, 3, 4)
    assert np.max(np.abs(draws.mean(axis=0) - np.column_stack([model.coef_, model.intercept_]))) < 0.1
    scores = np.einsum("nd,skd->snk", np.column_stack([X, np.ones(60)]), draws)
    averages = np.mean(softmax(scores, axis=2), axis=0)
    assert np.max(np.abs(model.predict_proba(X) - averages)) < 0.06  # MacKay's, class by class
    sampled = BayesianLogisticRegression(posterior="hmc", random_state=0, n_samples=2000).fit(X, y)
    assert np.all(sampled.posterior_.summary().r_hat < 1.03)
    # The same draws, weighted by the posterior over Laplace's Gaussian (importance sampling).
    w, b = draws[:, :, :-1], draws[:, :, -1] + draws[:, :, :-1] @ X.mean(axis=0)
    log_p = np.sum(log_softmax(scores, axis=2)[:, np.arange(60), y], axis=1)
    log_p += np.sum(stats.norm.logpdf(w), axis=(1, 2)) + np.sum(stats.norm.logpdf(b, 0, 10), axis=1)
    mean = np.column_stack([model.coef_, model.intercept_]).ravel()
    log_q = stats.multivariate_normal.logpdf(draws.reshape(20000, -1), mean, model.covariance_)
    exact = np.einsum("s,snk->nk", softmax(log_p - log_q), softmax(scores, axis=2))
    assert np.max(np.abs(sampled.predict_proba(X) - exact)) < 0.025  # the Gaussian's averages are 0.06 away
    np.testing.assert_allclose(sampled.predict_proba(X).sum(axis=1), 1)


@pytest.mark.parametrize("scale", [1e2, 1e5, 1e8, 1e11])
def test_wide_priors_of_several_classes(scale):
    """Against scikit-learn's mode without a penalty, and the covariance with the last class's coefficients at zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.argmax(X[:, :1] * [0, 1, -1] + X[:, 1:] + rng.gumbel(size=(300, 3)), axis=1)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10000).fit(X, y)
    D, p = np.column_stack([X, np.ones(300)]), theirs.predict_proba(X)[:, :2]
    blocks = p[:, :, None] * (np.eye(2) - p[:, None, :])
    inverse = np.linalg.inv(np.einsum("nkl,ni,nj->kilj", blocks, D, D).reshape(6, 6)).reshape(2, 3, 2, 3)
    joint = np.zeros((300, 3, 3))
    joint[:, :2, :2] = np.einsum("ni,kilj,nj->nkl", D, inverse, D)
    each = np.diagonal(joint, axis1=1, axis2=2)
    scores = theirs.decision_function(X)
    ahead = (scores[:, None, :] - scores[:, :, None]) / np.sqrt(
        1 + np.pi / 8 * (each[:, :, None] + each[:, None, :] - 2 * joint)
    )
    expected = 1 / np.sum(np.exp(ahead), axis=2)  # Lu et al. 2020
    expected /= expected.sum(axis=1, keepdims=True)
    model = BayesianLogisticRegression(prior_scale=scale, intercept_scale=scale).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-4 if scale < 1e3 else 1e-6)
    wide = BayesianLogisticRegression(prior_scale=10 * scale, intercept_scale=10 * scale).fit(X, y)
    np.testing.assert_allclose(model.log_evidence_ - wide.log_evidence_, 6 * np.log(10), atol=1e-2)  # of six numbers
    inside = BayesianLogisticRegression(prior_scale=1.0, intercept_scale=scale).fit(scale * X, y)  # in other units
    np.testing.assert_allclose(model.predict_proba(X), inside.predict_proba(scale * X), atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_covariance_is_the_inverse_hessian(classes):
    X, y = problem(30, 2, classes)
    model = BayesianLogisticRegression(prior_scale=1.3, intercept_scale=2.0).fit(X, y)
    rows = len(model.coef_)

    def loss(v):
        w = v.reshape(rows, 3)
        scores = X @ w[:, :2].T + w[:, 2]
        scores = np.column_stack([np.zeros(30), scores]) if rows == 1 else scores
        prior = (
            stats.norm.logpdf(w[:, :2], 0, 1.3).sum() + stats.norm.logpdf(w[:, 2] + w[:, :2] @ X.mean(0), 0, 2).sum()
        )
        return np.sum(logsumexp(scores, axis=1) - scores[np.arange(30), y]) - prior

    at = np.column_stack([model.coef_, model.intercept_]).ravel()
    size, h = len(at), 1e-3
    unit = h * np.eye(size)
    bend = np.array(
        [[loss(at + a + b) - loss(at + a - b) - loss(at - a + b) + loss(at - a - b) for a in unit] for b in unit]
    ) / (4 * h * h)
    np.testing.assert_allclose(model.covariance_, np.linalg.inv(bend), rtol=1e-3, atol=1e-4)
    laplace = -loss(at) + 0.5 * size * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(bend)[1]
    assert model.log_evidence_ == pytest.approx(laplace, rel=1e-5)


@pytest.mark.parametrize("posterior", ["laplace", "variational", "hmc"])
def test_far_from_the_data_it_is_less_sure_than_the_mode(posterior):
    X, y = problem(20, 2)
    model = BayesianLogisticRegression(posterior=posterior, random_state=0, prior_scale=3.0).fit(X, y)
    mode = LogisticRegression(C=9.0, tol=1e-10).fit(X, y)
    far = 20 * np.random.default_rng(0).normal(size=(50, 2))
    sure = lambda model: np.mean(np.max(model.predict_proba(far), axis=1))
    assert sure(model) < sure(mode) - 0.03


@pytest.mark.parametrize("classes", [2, 3])
def test_derivatives_of_coefficients_equal_refits(classes):
    X, y = problem(30, 2, classes)
    weight = np.random.default_rng(0).uniform(0.5, 1.5, 30)
    model = BayesianLogisticRegression()

    def both(X, weight, prior_scale, intercept_scale):
        coef, intercept = model.coefficients(X, y, weight, prior_scale=prior_scale, intercept_scale=intercept_scale)
        return np.sum(coef[..., 0] * np.arange(1, np.size(intercept) + 1)) + np.sum(intercept**2)

    point = (X, weight, np.float64(0.8), np.float64(2.0))
    slopes = wl.grad(both, (0, 1, 2, 3))(*point)
    rng = np.random.default_rng(1)
    directions = [rng.normal(size=np.shape(a)) for a in point]

    def refit(t):
        X, weight, scale, wide = (a + t * d for a, d in zip(point, directions, strict=True))
        fit = BayesianLogisticRegression(prior_scale=float(scale), intercept_scale=float(wide), tol=1e-14)
        fit.fit(X, y, weight)
        return np.sum(fit.coef_[:, 0] * np.arange(1, len(fit.coef_) + 1)) + np.sum(fit.intercept_**2)

    found = sum(np.sum(a * b) for a, b in zip(slopes, directions, strict=True))
    assert found == pytest.approx((refit(1e-5) - refit(-1e-5)) / 2e-5, rel=1e-5)
    with pytest.raises(ValueError, match='take posterior="laplace"'):
        BayesianLogisticRegression(posterior="hmc").coefficients(X, y, weight)


@pytest.mark.parametrize(("posterior", "classes"), [("laplace", 2), ("laplace", 3), ("hmc", 2), ("hmc", 3)])
def test_derivatives_of_predictions(posterior, classes):
    X, y = problem(20, 2, classes)
    model = BayesianLogisticRegression(posterior=posterior, random_state=0, n_samples=100).fit(X, y)
    shift = 1e-6 * np.eye(2)[1]
    expected = (model.predict_proba(X + shift) - model.predict_proba(X - shift)) / 2e-6
    np.testing.assert_allclose(model.input_gradient(X)[:, :, 1], expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("case", ["separated", "p > n", "constant column", "equal columns", "far"])
def test_degenerate_data(case):
    X, y = problem(30, 3)
    if case == "separated":
        y = (X[:, 0] > 1).astype(int)
    elif case == "p > n":
        X, y = problem(10, 25)[0], np.arange(10) % 2
    elif case == "constant column":
        X[:, 1] = 3.0
    elif case == "equal columns":
        X[:, 1] = X[:, 2]
    near = BayesianLogisticRegression().fit(X, y)
    assert np.all(np.isfinite(near.coef_)) and np.isfinite(near.log_evidence_)
    assert np.all(np.abs(near.predict_proba(X) - 0.5) < 0.4999)
    if case == "constant column":
        assert near.coef_[0, 1] == pytest.approx(0, abs=1e-10)
    elif case == "equal columns":
        assert near.coef_[0, 1] == pytest.approx(near.coef_[0, 2])
    elif case == "far":
        far = BayesianLogisticRegression().fit(X + 1e6, y)
        np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-7)
        np.testing.assert_allclose(far.predict_proba(X + 1e6), near.predict_proba(X), atol=1e-7)


def test_weights_labels_seeds_and_single_precision():
    X, y = problem(30)
    weight = np.arange(30) % 3
    names = np.array(["no", "yes"])[y]
    weighted = BayesianLogisticRegression().fit(X, names, weight)
    repeated = BayesianLogisticRegression().fit(np.repeat(X, weight, axis=0), np.repeat(names, weight))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-8)
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_)
    assert {*weighted.predict(X)} <= {"no", "yes"}
    one = BayesianLogisticRegression(posterior="hmc", random_state=3, n_samples=50).fit(X, y)
    two = BayesianLogisticRegression(posterior="hmc", random_state=3, n_samples=50).fit(X, y)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(one)).predict_proba(X), one.predict_proba(X))
    single = BayesianLogisticRegression().fit(X.astype(np.float32), y)
    assert single.coef_.dtype == np.float32
    np.testing.assert_allclose(
        single.predict_proba(X), BayesianLogisticRegression().fit(X, y).predict_proba(X), rtol=1e-4
    )


def test_the_average_is_better_than_the_mode_where_the_prior_is_right():
    """Coefficients drawn from the prior: mean log losses of 1000 new samples, over 20 data sets."""
    gains = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1040, 10))
        y = (rng.uniform(size=1040) < expit(X @ (4 * rng.normal(size=10)))).astype(int)
        model = BayesianLogisticRegression(
            posterior="variational", prior_scale=4.0, fit_intercept=False, random_state=0
        ).fit(X[:40], y[:40])
        mode = LogisticRegression(C=16.0, fit_intercept=False).fit(X[:40], y[:40])
        found, plain = model.predict_log_proba(X[40:]), mode.predict_log_proba(X[40:])
        gains.append(np.mean((found - plain)[np.arange(1000), y[40:]]))
    assert np.mean(gains) > 2 * np.std(gains, ddof=1) / np.sqrt(20)


def test_real_data():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    scores = [BayesianLogisticRegression().fit(X[::2], y[::2]).score(X[1::2], y[1::2])]
    X, y = load_iris(return_X_y=True)
    scores.append(BayesianLogisticRegression(prior_scale=5.0).fit(X[::2], y[::2]).score(X[1::2], y[1::2]))
    assert np.min(scores) > 0.94


def test_wrong_parameters():
    X, y = problem()
    for wrong, message in (
        ({"posterior": "mcmc"}, "posterior is one of 'laplace', 'variational', 'hmc'"),
        ({"prior_scale": 0}, "prior_scale is a number above 0"),
        ({"prior_scale": np.inf}, "prior_scale is a finite number"),
        ({"n_samples": 10}, "n_samples is a whole number of at least 16, got 10"),
        ({"intercept_scale": -1}, "intercept_scale is a number above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            BayesianLogisticRegression(**wrong).fit(X, y)
    with pytest.raises(ValueError, match="one class"):
        BayesianLogisticRegression().fit(X, np.zeros(40))
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        BayesianLogisticRegression(max_iter=1).fit(X, y)
