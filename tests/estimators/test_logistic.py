"""Logistic regression: scikit-learn's coefficients by each solver, derivatives, and data that have no best fit."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as Oracle
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import wonderland as wl
from wonderland.estimators import LogisticRegression
from wonderland.estimators.smooth import problem as problems
from wonderland.estimators.smooth.auto import minimise
from wonderland.estimators.smooth.hessian import hessian
from wonderland.estimators.smooth.losses import Rows, derivatives
from wonderland.estimators.smooth.problem import SmoothProblem, sample

SOLVERS = ["auto", "newton-cholesky", "newton-cg", "lbfgs"]


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def two_classes(n=120, p=5, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + rng.normal(size=p)
    return X, (X[:, 0] - X.mean() + noise * rng.logistic(size=n) > 0).astype(int)


def three_classes(n=120, p=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.5
    return X, np.argmax(X @ rng.normal(size=(p, 3)) + rng.gumbel(size=(n, 3)), axis=1)


def exact(**settings):
    return Oracle(tol=1e-12, solver="newton-cholesky", max_iter=1000, **settings)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("data", [two_classes, three_classes])
@pytest.mark.parametrize("settings", [{}, {"C": 0.01}, {"C": 50.0, "fit_intercept": False}], ids=str)
def test_coefficients_are_scikit_learns(data, solver, settings):
    X, y = data()
    weight = np.random.default_rng(7).uniform(0.5, 2, len(y))
    ours = LogisticRegression(solver=solver, tol=1e-9, max_iter=1000, **settings).fit(X, y, weight)
    theirs = exact(**settings).fit(X, y, weight)
    assert ours.coef_.shape == theirs.coef_.shape and ours.intercept_.shape == theirs.intercept_.shape
    assert np.allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-6)
    assert np.allclose(ours.intercept_, theirs.intercept_, rtol=0, atol=1e-6)
    assert np.allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=0, atol=1e-6)
    assert np.allclose(ours.predict_log_proba(X), theirs.predict_log_proba(X), rtol=1e-5, atol=1e-6)
    assert np.array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("data", [two_classes, three_classes])
def test_without_a_penalty(data):
    X, y = data()
    ours = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y)
    theirs = exact(C=np.inf).fit(X, y)
    assert np.allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=0, atol=1e-7)
    assert np.allclose(ours.coef_, theirs.coef_ - (0 if len(theirs.coef_) == 1 else theirs.coef_.mean(0)), atol=1e-6)


@pytest.mark.parametrize("class_weight", ["balanced", {"a": 3.0}, {"a": 0.5, "b": 2.0, "c": 1.0}], ids=str)
def test_class_weights(class_weight):
    X, y = three_classes()
    y = np.array(["a", "b", "c"])[y]
    weight = np.random.default_rng(7).uniform(0.5, 2, len(y))
    ours = LogisticRegression(class_weight=class_weight, tol=1e-10).fit(X, y, weight)
    theirs = exact(class_weight=class_weight).fit(X, y, weight)
    assert np.allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(9000, 12), (300, 60), (40, 130), (100, 300), (5000, 2)], ids=str)
def test_auto_finds_the_minimum_of_data_of_any_shape(shape):
    """Many samples (a part first), many features (L-BFGS, then Newton, of the dual where features are more)."""
    X, y = two_classes(*shape, noise=2.0)
    ours = LogisticRegression(C=10.0, tol=1e-9).fit(X, y)
    theirs = exact(C=10.0).fit(X, y)
    assert np.allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=0, atol=1e-6)
    assert np.allclose(ours.coef_, theirs.coef_, rtol=1e-5, atol=1e-6)


def test_a_part_of_the_samples_that_is_not_like_the_rest_does_no_harm():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4400, 20))
    chosen = sample(4400, 1050)
    y = rng.integers(0, 2, 4400)
    y[chosen] = X[chosen, 0] > 0
    X[np.setdiff1d(np.arange(4400), chosen), 0] *= -200
    ours = LogisticRegression(tol=1e-9).fit(X, y)
    assert np.allclose(ours.coef_, exact().fit(X, y).coef_, rtol=0, atol=1e-6)


def test_the_default_tolerance_is_scikit_learns_or_better():
    X, y = two_classes(2000, 8)
    best = exact().fit(X, y).coef_
    ours, theirs = LogisticRegression().fit(X, y).coef_, Oracle().fit(X, y).coef_
    assert np.abs(ours - best).max() < np.abs(theirs - best).max() < 0.1


def test_units_of_features_and_their_means_do_not_matter():
    X, y = two_classes(200, 3)
    scale, mean = np.array([1e-5, 1.0, 1e6]), np.array([3e-3, -20.0, 5e7])
    ours = LogisticRegression(C=np.inf, tol=1e-13).fit(X * scale + mean, y)
    assert np.allclose(ours.coef_ * scale, LogisticRegression(C=np.inf, tol=1e-13).fit(X, y).coef_, rtol=1e-5)


def test_breast_cancer():
    X, y = load_breast_cancer(return_X_y=True)
    scores = cross_val_score(make_pipeline(StandardScaler(), LogisticRegression()), X, y, cv=5)
    assert scores.mean() >= 0.96


def test_blocks_of_rows_change_nothing():
    X, y = two_classes(9000, 3)
    problem = SmoothProblem(X, y.astype(float), np.ones(9000), derivatives(_plain), l2=2.0)
    assert len(problem.rows.blocks) == 2 and problem.rows.padded == 16384
    w = np.array([0.3, -0.2, 0.1, 0.5])
    point = problem.at(w)
    eta = X @ w[:3] + w[3]
    A = np.column_stack([X, np.ones(9000)])
    p = expit(eta)
    penalty = np.array([2.0, 2.0, 2.0, 0.0])
    assert np.isclose(point.value, -np.sum(np.log(np.where(y == 1, p, 1 - p))) + 0.5 * np.sum(penalty * w**2))
    assert np.allclose(point.gradient, A.T @ (p - y) + penalty * w)
    H = A.T @ ((p * (1 - p))[:, None] * A) + np.diag(penalty)
    assert np.allclose(hessian(problem, point.eta), H)
    v = np.array([1.0, 2.0, -1.0, 0.5])
    assert np.allclose(problem.product(point.eta)(v), H @ v)
    assert np.allclose(problem.part(np.arange(10)).l2, 2.0 * 10 / 9000)


def _plain(eta, y):
    return np.log1p(np.exp(eta)) - y * eta


@pytest.mark.parametrize("n", [1, 511, 512, 513, 2049, 8193, 20_000])
def test_rows_cover_all_samples_once(n):
    for p in (1, 100, 3000):
        rows = Rows(n, p)
        covered = np.concatenate([np.arange(rows.padded)[block] for block in rows.blocks])
        assert np.array_equal(covered, np.arange(rows.padded)) and rows.padded - n < rows.block
    places = sample(n, 100)
    assert len(places) == min(n, 100) and np.all(np.diff(places) > 0) and places[-1] < n


def test_a_loss_that_is_not_convex_is_minimised_too():
    """1 - cos of the difference has curvatures of both signs."""
    X = np.linspace(-1, 1, 50)[:, None]
    y = 0.7 * X[:, 0] + 0.2
    problem = SmoothProblem(X, y, np.ones(50), derivatives(lambda eta, y: 2 * np.sin((eta - y) / 2) ** 2))
    for solver in SOLVERS:
        result = minimise(problem, np.array([3.0, 1.9]), solver, 1e-10, 200)
        assert result.converged and np.isclose(np.cos(result.point.eta[:50] - y).min(), 1), solver


# -- l1


@pytest.mark.parametrize("data", [two_classes, three_classes])
@pytest.mark.parametrize("settings", [{"l1_ratio": 1.0, "C": 0.3}, {"l1_ratio": 0.4, "C": 0.1, "fit_intercept": False}])
def test_an_l1_penalty_has_scikit_learns_coefficients(data, settings):
    X, y = data(80)
    X = X - X.mean(0)
    weight = np.random.default_rng(7).uniform(0.5, 2, 80)
    ours = LogisticRegression(tol=1e-9, **settings).fit(X, y, weight)
    theirs = Oracle(solver="saga", tol=1e-9, max_iter=100_000, random_state=0, **settings).fit(X, y, weight)
    assert np.allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-6)
    assert np.allclose(ours.intercept_, theirs.intercept_, rtol=0, atol=1e-6)
    assert np.array_equal(ours.coef_ == 0, theirs.coef_ == 0) and np.any(ours.coef_ == 0)


@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("classes", [2, 3])
def test_an_l1_penalty_of_many_features_keeps_the_conditions_of_the_optimum(classes, ratio):
    """At zero, derivatives are within the penalty's; elsewhere its opposite. There are more features than at first."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 300))
    y = np.argmax(X[:, :classes] + 0.5 * rng.normal(size=(60, classes)), axis=1)
    C = 0.4
    model = LogisticRegression(C=C, l1_ratio=ratio, tol=1e-9).fit(X, y)
    error = model.predict_proba(X) - np.eye(classes)[y]
    slope = (error[:, 1:].T if classes == 2 else error.T) @ X + (1 - ratio) / C * model.coef_
    zero = model.coef_ == 0
    assert 0.5 < zero.mean() < 1
    assert np.all(np.abs(slope[zero]) <= ratio / C + 1e-6)
    assert np.allclose(slope[~zero], -ratio / C * np.sign(model.coef_[~zero]), atol=1e-6)
    assert np.allclose(error.sum(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_an_l1_penalty_does_not_mind_means_far_from_zero(classes):
    X, y = two_classes(300, 12, noise=8.0) if classes == 2 else three_classes(300, 12)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    centred = LogisticRegression(C=3.0, l1_ratio=0.7, tol=1e-9).fit(X, y)
    moved = LogisticRegression(C=3.0, l1_ratio=0.7, tol=1e-9).fit(X + 300.0, y)  # another intercept, no more
    assert np.allclose(moved.coef_, centred.coef_, rtol=0, atol=1e-6) and np.max(moved.n_iter_) <= 20
    oracle = Oracle(C=3.0, l1_ratio=0.7, solver="saga", tol=1e-8, max_iter=100_000).fit(X, y)
    assert np.allclose(moved.predict_proba(X + 300.0), oracle.predict_proba(X), rtol=0, atol=1e-5)


def test_a_strong_l1_penalty_leaves_the_intercept():
    X, y = two_classes()
    model = LogisticRegression(C=1e-6, l1_ratio=1.0, tol=1e-10).fit(X, y)
    assert not model.coef_.any() and np.isclose(expit(model.intercept_[0]), y.mean())
    weak = LogisticRegression(C=np.inf, l1_ratio=1.0, tol=1e-9).fit(X, y)
    assert np.allclose(weak.coef_, LogisticRegression(C=np.inf, tol=1e-9).fit(X, y).coef_)
    with pytest.raises(AttributeError, match="l1 penalty"):
        model.covariance_  # noqa: B018


def test_derivatives_of_coefficients_with_an_l1_penalty():
    X, y = two_classes(60, 5)
    X, y = X - X.mean(0), y.astype(float)
    dX = np.random.default_rng(7).normal(size=X.shape)
    model = LogisticRegression(l1_ratio=0.7)

    def along(t):
        coef, intercept = model.coefficients(X + t * dX, y, C=0.1 + t)
        return np.append(coef, intercept)

    refitted = (along(1e-5) - along(-1e-5)) / 2e-5
    assert np.any(along(0.0) == 0) and np.any(refitted != 0)
    assert np.allclose(wl.jvp(along, (0.0,), (1.0,))[1], refitted, rtol=1e-4, atol=1e-6)


# -- derivatives


@pytest.mark.parametrize("data", [two_classes, three_classes])
def test_derivatives_of_coefficients(data):
    X, y = data(30, 3)
    y = y.astype(float)
    weight = np.random.default_rng(7).uniform(0.5, 2, len(y))
    dX, dweight = np.random.default_rng(7).normal(size=X.shape), np.random.default_rng(7).normal(size=len(y))
    model = LogisticRegression(tol=1e-12)

    def along(t):
        coef, intercept = model.coefficients(X + t * dX, y, weight + t * dweight, C=2.0 + t)
        return np.append(np.ravel(coef), intercept)

    refitted = (along(1e-4) - along(-1e-4)) / 2e-4
    assert np.allclose(wl.jvp(along, (0.0,), (1.0,))[1], refitted, rtol=1e-5, atol=1e-7)
    total = lambda t: np.sum(along(t) ** 2)
    assert np.isclose(wl.grad(total)(0.0), 2 * along(0.0) @ refitted, rtol=1e-5)


def test_derivatives_of_coefficients_with_class_weights_and_in_y():
    X, y = two_classes(30, 3)
    model = LogisticRegression(class_weight="balanced")
    total = lambda C: np.sum(model.coefficients(X, y.astype(float), C=C)[0] ** 2)
    assert np.isclose(wl.grad(total)(1.0), (total(1 + 1e-5) - total(1 - 1e-5)) / 2e-5, rtol=1e-5)
    # By hand: dw/dy = H^-1 X', of the mean of a smoothed label.
    plain = LogisticRegression(fit_intercept=False)
    slope = wl.jacobian(lambda y: plain.coefficients(X, y)[0])(y.astype(float))
    p = plain.set_params(tol=1e-12).fit(X, y).predict_proba(X)[:, 1]
    assert np.allclose(slope, np.linalg.solve(X.T @ ((p * (1 - p))[:, None] * X) + np.eye(3), X.T), atol=1e-9)


@pytest.mark.parametrize("data", [two_classes, three_classes])
def test_derivatives_of_probabilities(data):
    X, y = data(40, 3)
    model = LogisticRegression().fit(X, y)
    there = model.input_gradient(X[:5])
    assert there.shape == (5, len(model.classes_), 3)
    for j in range(3):
        h = 1e-6 * np.eye(3)[j]
        assert np.allclose(
            there[:, :, j], (model.predict_proba(X[:5] + h) - model.predict_proba(X[:5] - h)) / 2e-6, atol=1e-8
        )


# -- covariances


def test_covariance_is_the_inverse_of_the_information():
    X, y = two_classes()
    model = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y)
    A = np.column_stack([X, np.ones(len(X))])
    p = model.predict_proba(X)[:, 1]
    assert np.allclose(model.covariance_, np.linalg.inv(A.T @ ((p * (1 - p))[:, None] * A)))
    assert model.covariance_ is model.covariance_
    before = model.covariance_
    assert not np.allclose(model.fit(X[:60], y[:60]).covariance_, before)


def test_covariance_of_softmax_is_the_pseudo_inverse():
    X, y = three_classes()
    for C in (np.inf, 2.0):
        model = LogisticRegression(C=C, tol=1e-11).fit(X, y)
        target = np.eye(3)[y]

        def negative_log_likelihood(w, target=target, C=C):
            w = w.reshape(3, 5)
            eta = X @ w[:, :4].T + w[:, 4]
            loss = np.log(np.sum(np.exp(eta), axis=1)) - np.sum(target * eta, axis=1)
            return np.sum(loss) + np.sum(w[:, :4] ** 2) / (2 * C)

        H = wl.hessian(negative_log_likelihood)(np.column_stack([model.coef_, model.intercept_]).ravel())
        assert np.allclose(model.covariance_, np.linalg.pinv(H, rcond=1e-10), atol=1e-7)


def test_covariance_needs_the_data():
    X, y = two_classes()
    model = LogisticRegression().fit(X, y)
    copied = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copied.predict_proba(X), model.predict_proba(X))
    with pytest.raises(AttributeError, match="fit again"):
        copied.covariance_  # noqa: B018
    kept = model.covariance_
    assert np.array_equal(pickle.loads(pickle.dumps(model)).covariance_, kept)
    again = LogisticRegression().fit(X, y)
    X *= 2
    with pytest.raises(RuntimeError, match="has been changed"):
        again.covariance_  # noqa: B018
    with pytest.raises(AttributeError):
        LogisticRegression().covariance_  # noqa: B018


# -- data as they come


def test_separated_classes_without_a_penalty_are_named():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    y = X[:, 1] > 0.1
    with pytest.warns(ConvergenceWarning, match=r"all samples perfectly, of feature 1 \(\+1\.00\)"):
        model = LogisticRegression(C=np.inf).fit(X, y)
    assert np.sqrt(model.covariance_[1, 1]) > 0.5 * np.abs(model.coef_[0, 1])
    assert model.score(X, y) == 1 and np.all(np.isfinite(model.coef_))
    assert np.allclose(LogisticRegression(tol=1e-9).fit(X, y).coef_, exact().fit(X, y).coef_, atol=1e-6)


def test_classes_that_touch_are_named_too():
    """A group whose samples are all of one class: its coefficient has no bound, the others have."""
    rng = np.random.default_rng(1)
    group = np.repeat([0.0, 1.0], [80, 20])
    X = np.column_stack([rng.normal(size=100), group])
    y = np.where(group == 1, 1, rng.integers(0, 2, 100))
    with pytest.warns(ConvergenceWarning, match=r"some samples .*of feature 1 \(\+1\.00\)"):
        LogisticRegression(C=np.inf, tol=1e-7).fit(X, y)


def test_separated_classes_of_three():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="separates the classes"):
        LogisticRegression(C=np.inf).fit(X, y)


def test_columns_that_are_constant_or_twice_there():
    X, y = two_classes(80, 2)
    wide = np.column_stack([X, X[:, 0], np.full(80, 3.0), np.zeros(80)])
    for C in (1.0, np.inf):
        ours = LogisticRegression(C=C, tol=1e-10).fit(wide, y)
        theirs = Oracle(C=C, tol=1e-10, max_iter=10_000).fit(wide, y)
        assert np.all(np.isfinite(ours.coef_))
        assert np.allclose(ours.predict_proba(wide), theirs.predict_proba(wide), rtol=0, atol=1e-6)
    assert np.isclose(ours.coef_[0, 0], ours.coef_[0, 2])


def test_more_features_than_samples():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(20, 50)), np.arange(20) % 2
    for fit_intercept in (True, False):
        theirs = exact(fit_intercept=fit_intercept).fit(X, y)
        for solver in SOLVERS:
            ours = LogisticRegression(fit_intercept=fit_intercept, solver=solver, tol=1e-9, max_iter=500).fit(X, y)
            assert np.allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-6), solver


@pytest.mark.parametrize("solver", ["auto", "newton-cholesky"])
@pytest.mark.parametrize("mean, unit, fit_intercept, C", [(1e4, 1.0, True, 1e4), (1.0, 1e6, False, 1e4)])
def test_more_features_than_samples_with_means_and_units_far_from_one(mean, unit, fit_intercept, C, solver):
    rng = np.random.default_rng(1)
    there, y = unit * (rng.normal(size=(20, 30)) + mean), rng.integers(0, 2, 20)
    ours = LogisticRegression(C=C, fit_intercept=fit_intercept, solver=solver, tol=1e-8).fit(there, y)
    X = (there - fit_intercept * there.mean(axis=0)) / unit
    reduced = X @ np.linalg.qr(X.T)[0]  # the same fit, of as many features as samples
    theirs = exact(C=C * unit**2, fit_intercept=fit_intercept).fit(reduced, y)
    found = theirs.coef_ @ reduced.T + theirs.intercept_
    assert np.allclose(ours.predict_proba(there)[:, 1], expit(found), rtol=0, atol=1e-8)


def test_arrays_of_all_kinds():
    X, y = two_classes()
    model = LogisticRegression().fit(X, y)
    doubled = np.repeat(X, 2, axis=1)[:, ::2]
    for other in (np.asfortranarray(X), doubled, X.tolist()):
        assert np.allclose(LogisticRegression().fit(other, y).coef_, model.coef_)
    single = LogisticRegression().fit(X.astype(np.float32), y)
    assert single.coef_.dtype == single.intercept_.dtype == np.float32 == single.predict_proba(X.astype("f4")).dtype
    assert np.allclose(single.coef_, model.coef_, atol=1e-4)
    times = np.arange(len(y)) % 3
    weighted = LogisticRegression(tol=1e-9).fit(X, y, times.astype(float))
    repeated = LogisticRegression(tol=1e-9).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert np.allclose(weighted.coef_, repeated.coef_, atol=1e-8)


def test_warm_start_begins_where_the_last_fit_ended():
    for data in (two_classes, three_classes):
        X, y = data()
        model = LogisticRegression(warm_start=True, tol=1e-8).fit(X, y)
        assert model.n_iter_[0] > 2
        assert model.fit(X, y).n_iter_[0] <= 1
        with pytest.raises(ValueError, match="use a new estimator"):
            model.fit(X[:, 1:], y)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"C": 0.0}, "C is a number above 0, got 0.0"),
        ({"C": "1"}, "C is a number above 0"),
        ({"solver": "saga"}, "solver is one of 'auto', 'newton-cholesky', 'newton-cg', 'lbfgs', got 'saga'"),
        ({"tol": -1.0}, "tol is a number above 0"),
        ({"max_iter": 0}, "max_iter is a whole number of at least 1"),
        ({"fit_intercept": "no"}, "fit_intercept is one of True, False"),
        ({"l1_ratio": 1.5}, "l1_ratio is between 0 and 1, got 1.5"),
        ({"l1_ratio": -0.1}, "l1_ratio is a number of at least 0"),
        ({"l1_ratio": 0.5, "solver": "lbfgs"}, "minimised by Newton's method, solver='auto', got 'lbfgs'"),
        ({"class_weight": "even"}, "class_weight is None, 'balanced' or a dict"),
        ({"class_weight": {7: 1.0}}, "that y hasn't"),
        ({"class_weight": {0: -1.0}}, "not negative"),
    ],
)  # fmt: skip
def test_wrong_parameters_say_what_they_are(settings, says):
    with pytest.raises(ValueError, match=says):
        LogisticRegression(**settings).fit(*two_classes())


def test_wrong_data_say_what_they_are():
    X, y = two_classes()
    with pytest.raises(ValueError, match="NaN"):
        LogisticRegression().fit(np.where(X > X.max() - 1e-9, np.nan, X), y)
    with pytest.raises(ValueError, match="only one class"):
        LogisticRegression().fit(X, np.zeros(len(y)))
    with pytest.raises(ValueError, match="only one class with weights above zero"):
        LogisticRegression().fit(X, y, 1.0 - y)
    with pytest.raises(ValueError, match="not negative"):
        LogisticRegression().fit(X, y, -np.ones(len(y)))
    with pytest.raises(ValueError, match="Unknown label type"):
        LogisticRegression().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="inconsistent"):
        LogisticRegression().fit(X, y[:-1])


def test_too_few_steps_warn():
    X, y = two_classes()
    for solver in SOLVERS:
        with pytest.warns(ConvergenceWarning, match="stopped after 1 steps .* raise max_iter"):
            LogisticRegression(max_iter=1, solver=solver, tol=1e-8).fit(X, y)


def test_coefficients_of_lists_and_of_labels_that_arent_numbers():
    X, y = load_iris(return_X_y=True)
    arrays, lists = (LogisticRegression().coefficients(X, y), LogisticRegression().coefficients(X.tolist(), y.tolist()))
    np.testing.assert_array_equal(arrays[0], lists[0])
    for labels in (y + 1, np.array(["a", "b", "c"])[y]):
        with pytest.raises(ValueError, match="from 0 to classes - 1"):
            LogisticRegression().coefficients(X, labels)


@pytest.mark.parametrize(("solver", "l1_ratio"), [*((solver, 0.0) for solver in SOLVERS), ("auto", 1.0)])
def test_small_columns_have_coefficients_too(solver, l1_ratio):
    """Their derivatives are below any tolerance from the start."""
    X, y = load_iris(return_X_y=True)
    X = X[50:] - X[50:].mean(axis=0)
    C = 1e12 if l1_ratio else np.inf
    exact = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y[50:])
    small = LogisticRegression(C=C, l1_ratio=l1_ratio, solver=solver, tol=1e-6).fit(X * 1e-6, y[50:])
    np.testing.assert_allclose(small.coef_ * 1e-6, exact.coef_, rtol=1e-3)


@pytest.mark.parametrize("settings", [*({"solver": solver} for solver in SOLVERS), {"l1_ratio": 1.0}], ids=str)
@pytest.mark.parametrize("data", [two_classes, three_classes])
def test_large_data_of_single_precision_is_read_by_blocks(data, settings, monkeypatch):
    X, y = data(n=9000)
    X = X.astype(np.float32)
    model = LogisticRegression(C=0.5, tol=1e-9, max_iter=1000, **settings)
    whole = model.fit(X.astype(np.float64), y)
    coef, intercept = whole.coef_, whole.intercept_
    covariance = None if "l1_ratio" in settings else whole.covariance_
    monkeypatch.setattr(problems, "COPIED", 0)
    model.fit(X, y)
    assert model._problem.X is X and len(model._problem.pieces) == 2
    assert model.coef_.dtype == np.float32
    assert np.allclose(model.coef_, coef, rtol=1e-6, atol=1e-6)
    assert np.allclose(model.intercept_, intercept, rtol=1e-6, atol=1e-6)
    if covariance is not None:
        assert np.allclose(model.covariance_, covariance, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("mean", "unit"), [(0.0, 1.0), (1e3, 1.0), (0.0, 1e25)])
@pytest.mark.parametrize("classes", [2, 3])
def test_steps_of_single_precision_end_where_those_of_double_do(classes, mean, unit, monkeypatch):
    """Where they lead nowhere, too."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(20_000, 30))
    y = np.argmax(Z[:, :classes] + rng.gumbel(size=(len(Z), classes)), axis=1)
    Z[:, 0] *= unit
    X = (Z + mean).astype(np.float32)
    exact = LogisticRegression(solver="newton-cholesky", tol=1e-10).fit(X.astype(np.float64), y)
    monkeypatch.setattr(problems, "COPIED", 0)
    begun = []
    monkeypatch.setattr(problems.SmoothProblem, "rough", lambda self, rough=problems.SmoothProblem.rough: (
        begun.append(self), rough(self))[1])  # fmt: skip
    model = LogisticRegression(tol=1e-7).fit(X, y)
    assert begun
    sizes = np.std(X.astype(np.float64), axis=0)  # coefficients of standardised features
    np.testing.assert_allclose(model.coef_ * sizes, exact.coef_ * sizes, rtol=1e-5, atol=1e-5)
