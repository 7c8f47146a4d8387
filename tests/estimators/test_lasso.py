"""Lasso and elastic net: against scikit-learn, the conditions of optimality, SciPy and refits."""

import warnings

import numpy as np
import pytest
import scipy.optimize
from sklearn import linear_model
from sklearn.exceptions import ConvergenceWarning

import wonderland as wl
from wonderland.estimators import ElasticNet, Lasso, LinearRegression, Ridge, lasso_path
from wonderland.estimators.coordinate import padded_size
from wonderland.estimators.least_squares import SquaresProblem
from wonderland.estimators.penalised import ColumnCoordinates, GramCoordinates, Penalty, duality_gap

# The Gram matrix of all columns, of some (in single precision), and columns themselves.
SHAPES = [(50, 1), (60, 8), (8, 30), (700, 300), (90, 300)]


def data(n, p, outputs=(), seed=0, noise=0.5, correlated=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + correlated * rng.normal(size=(n, 1)) + 2
    w = rng.normal(size=(p, *outputs))
    w[3:] *= (rng.random(w[3:].shape) < 0.1) & (p < 100)
    return X, X @ w + noise * rng.normal(size=(n, *outputs)) + 1, rng.uniform(0.2, 2, n)


def objective(model, coef, intercept, X, y, weight=None):
    return float(model._objective(coef, intercept, X, y, np.ones(len(X)) if weight is None else weight))


def same(ours, theirs, tol=1e-8):
    scale = np.max(np.abs(theirs.coef_))
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=tol * scale)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=tol * max(scale, 1) * 100)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("positive", [True, False])
def test_scikit_learns_coefficients(shape, intercept, positive):
    X, y, weight = data(*shape)
    X = X if intercept else X - 2
    for ratio, alpha in ((1.0, 0.05), (1.0, 0.5), (0.4, 0.3)):
        for w in (None, weight) if ratio == 1 else (weight,):
            settings = {"l1_ratio": ratio, "fit_intercept": intercept, "positive": positive, "tol": 1e-13}
            theirs = linear_model.ElasticNet(alpha, max_iter=100_000, **settings).fit(X, y, w)
            ours = ElasticNet(alpha, max_iter=100_000, **settings).fit(X, y, w)
            same(ours, theirs, 1e-6)
            assert 0 <= ours.dual_gap_ <= 1e-12 * np.mean(y * y)
            assert np.all((ours.coef_ != 0) == (np.abs(theirs.coef_) > 1e-9))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_gap_bounds_what_is_left(shape):
    X, y, weight = data(*shape, correlated=3.0)
    proximal = Lasso(0.05, tol=1e-2, solver="proximal", max_iter=10_000)
    for model in (Lasso(0.05, tol=1e-2), ElasticNet(0.1, tol=1e-2), proximal):
        rough = model.fit(X, y, weight)
        exact = ElasticNet(model.alpha, l1_ratio=model.l1_ratio, tol=1e-12, max_iter=100_000).fit(X, y, weight)
        least = objective(model, exact.coef_, exact.intercept_, X, y, weight)
        value = objective(model, rough.coef_, rough.intercept_, X, y, weight)
        assert least - 1e-12 <= value <= least + rough.dual_gap_ + 1e-12
        assert rough.dual_gap_ <= 1e-2 * np.average((y - np.average(y, weights=weight)) ** 2, weights=weight) * 1.01


def test_default_tolerance_is_exact_by_the_linear_system_at_the_end():
    X, y, _ = data(200, 20)
    theirs = linear_model.Lasso(0.1, tol=1e-14, max_iter=100_000).fit(X, y)
    same(Lasso(0.1).fit(X, y), theirs, 1e-11)
    X, y, _ = data(900, 400)
    theirs = linear_model.Lasso(0.1, tol=1e-14, max_iter=100_000).fit(X, y)
    same(Lasso(0.1).fit(X, y), theirs, 1e-6)


@pytest.mark.parametrize("model", [Lasso(0.05, solver="proximal"), ElasticNet(0.1, solver="proximal", positive=True)])
def test_proximal_steps_find_the_same(model):
    for shape in ((60, 8), (8, 30)):
        X, y, weight = data(*shape)
        model.set_params(tol=1e-13, max_iter=50_000).fit(X, y, weight)
        settings = {"l1_ratio": model.l1_ratio, "positive": model.positive}
        same(model, ElasticNet(model.alpha, tol=1e-13, max_iter=50_000, **settings).fit(X, y, weight), 1e-5)
        assert model.loss_history_[-1] == pytest.approx(objective(model, model.coef_, model.intercept_, X, y, weight))
        assert len(model.loss_history_) == model.n_iter_


def test_several_outputs_are_problems_of_their_own():
    X, y, weight = data(60, 8, (3,))
    model = Lasso(0.1, tol=1e-12).fit(X, y, weight)
    assert model.coef_.shape == (3, 8) and model.intercept_.shape == model.dual_gap_.shape == (3,)
    assert len(model.n_iter_) == 3
    for k in range(3):
        same(Lasso(0.1, tol=1e-12).fit(X, y[:, k], weight), linear_model.Lasso(0.1, tol=1e-14).fit(X, y[:, k], weight))
        np.testing.assert_allclose(model.coef_[k], Lasso(0.1, tol=1e-12).fit(X, y[:, k], weight).coef_, atol=1e-12)


def test_float32_orders_and_frames_of_columns():
    X, y, _ = data(60, 8)
    theirs = linear_model.Lasso(0.1, tol=1e-14).fit(X, y)
    single = Lasso(0.1).fit(X.astype(np.float32), y)
    assert single.coef_.dtype == np.float32
    same(single, theirs, 1e-5)
    same(Lasso(0.1).fit(np.asfortranarray(X), y), theirs)
    same(Lasso(0.1).fit(np.repeat(X, 2, axis=1)[:, ::2], y), theirs)
    same(Lasso(0.1).fit(X.tolist(), y.tolist()), theirs)


def test_columns_far_from_zero():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 300))
    y = X[:, 0] - X[:, 1] + rng.normal(size=1000)
    for far in (X[:, :20], X, X[:100]):
        near, away = Lasso(0.1, tol=1e-12).fit(far, y[: len(far)]), Lasso(0.1, tol=1e-12).fit(far + 1e7, y[: len(far)])
        np.testing.assert_allclose(away.coef_, near.coef_, atol=1e-7)


def test_columns_that_hardly_differ():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(700, 150))
    X = np.concatenate([base, base + 1e-4 * rng.normal(size=(700, 150))], axis=1)  # less than float32 sees in X'X
    y = X[:, :5] @ np.arange(1.0, 6) + rng.normal(size=700)
    model = Lasso(0.01, tol=1e-6, max_iter=20_000).fit(X, y)
    theirs = linear_model.Lasso(0.01).fit(X, y)
    ours, reference = (objective(model, m.coef_, m.intercept_, X, y) for m in (model, theirs))
    assert model.dual_gap_ <= 1e-6 * np.var(y)
    assert reference - theirs.dual_gap_ <= ours < reference


def test_duplicate_and_constant_columns():
    X, y, _ = data(60, 5)
    X = np.concatenate([X, X[:, :2], np.full((60, 1), 1e6 / 3), np.zeros((60, 1))], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Lasso(0.1).fit(X, y)
    assert model.coef_[7] == model.coef_[8] == 0
    alone = Lasso(0.1).fit(X[:, :5], y)
    np.testing.assert_allclose(model.predict(X), alone.predict(X[:, :5]), atol=1e-2)
    assert objective(model, model.coef_, model.intercept_, X, y) <= (
        objective(alone, alone.coef_, alone.intercept_, X[:, :5], y) + model.dual_gap_ + 1e-12
    )


def test_limits_are_least_squares_ridge_and_nothing():
    X, y, _ = data(60, 5)
    np.testing.assert_allclose(Lasso(0, tol=1e-12).fit(X, y).coef_, LinearRegression().fit(X, y).coef_, rtol=1e-8)
    ridge = Ridge(60 * 0.3).fit(X, y)
    np.testing.assert_allclose(ElasticNet(0.3, l1_ratio=0, tol=1e-12).fit(X, y).coef_, ridge.coef_, rtol=1e-8)
    x, z = X - X.mean(axis=0), y - y.mean()
    least = np.max(np.abs(x.T @ z)) / 60
    for shape in (slice(None), slice(0, 1)):
        assert not np.any(Lasso(least * 1.0001).fit(X[:, shape], y).coef_)
    assert np.count_nonzero(Lasso(least * 0.9999).fit(X, y).coef_) == 1
    wide, labels, _ = data(90, 300)
    assert not np.any(Lasso(1e4).fit(wide, labels).coef_)
    nonnegative, _ = scipy.optimize.nnls(X, y)
    model = Lasso(0, positive=True, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(model.coef_, nonnegative, atol=1e-8)


def test_warm_starts_and_paths():
    X, y, _ = data(60, 8)
    x, z = X - X.mean(axis=0), y - y.mean()
    alphas, coefs, gaps, n_iter = lasso_path(x, z, alphas=20, eps=1e-2, tol=1e-12, return_n_iter=True)
    theirs = linear_model.lasso_path(x, z, alphas=20, eps=1e-2, tol=1e-14, max_iter=100_000)
    np.testing.assert_allclose(alphas, theirs[0], rtol=1e-10)
    np.testing.assert_allclose(coefs, theirs[1], atol=1e-8)
    assert gaps.shape == n_iter.shape == (20,) and np.all(gaps <= 1e-12 * np.var(z))
    assert np.all(coefs[:, 0] == 0)
    for shape in ((900, 300), (80, 300)):
        X, y, _ = data(*shape, (2,))
        X -= 2
        chosen = [0.1, 1.0, 0.3]
        alphas, coefs, _ = lasso_path(X, y, alphas=chosen, tol=1e-9, max_iter=10_000)
        assert [*alphas] == [1.0, 0.3, 0.1] and coefs.shape == (2, 300, 3)
        for k, alpha in enumerate(alphas):
            model = Lasso(alpha, fit_intercept=False, tol=1e-9, max_iter=10_000).fit(X, y)
            np.testing.assert_allclose(coefs[:, :, k], model.coef_, atol=1e-4)
    warm = Lasso(0.1, warm_start=True, tol=1e-10, max_iter=10_000).fit(X, y[:, 0])
    first = warm.n_iter_
    assert warm.fit(X, y[:, 0]).n_iter_ < first
    same(warm, Lasso(0.1, tol=1e-10, max_iter=10_000).fit(X, y[:, 0]), 1e-5)


def test_both_methods_and_both_gaps():
    """The Gram matrix and the columns solve the same; the gap is zero at the optimum alone."""
    X, y, weight = data(40, 20)
    problem = SquaresProblem(X, y[:, None], weight, True)
    x, z = problem.rows()
    for penalty in (Penalty(5.0, 0.0, False), Penalty(5.0, 3.0, False), Penalty(5.0, 3.0, True)):
        methods = (GramCoordinates(problem), ColumnCoordinates(problem))
        found = [method.solve(0, penalty, np.zeros(20), 1e-13, 10_000) for method in methods]
        np.testing.assert_allclose(found[0].coef, found[1].coef, atol=1e-8)
        assert all(one.converged for one in found)
        for w in (found[0].coef + 0.01, np.zeros(20)):
            w = np.maximum(w, 0) if penalty.positive else w
            r = z[:, 0] - x @ w
            gap = duality_gap(w, x.T @ r, r @ r, float(np.max(np.abs(x.T @ z))), penalty)
            values = []
            for point in (w, found[0].coef):
                penalties = penalty.l1 * np.sum(np.abs(point)) + penalty.l2 * point @ point / 2
                values.append(np.sum((z[:, 0] - x @ point) ** 2) / 2 + penalties)
            assert gap >= values[0] - values[1] > 0


def test_padded_sizes():
    sizes = [padded_size(k) for k in range(1, 3000)]
    assert all(size >= k for k, size in enumerate(sizes, 1)) and len({*sizes}) == 16
    assert [padded_size(k) for k in (1, 16, 17, 24, 25, 32, 33, 48, 49)] == [16, 16, 24, 24, 32, 32, 48, 48, 64]


@pytest.mark.parametrize(
    "model",
    [Lasso(0.1), Lasso(0.1, positive=True), ElasticNet(0.1, l1_ratio=0.6), Lasso(0.1, fit_intercept=False)],
    ids=repr,
)
def test_coefficients_have_derivatives(model):
    X, y, weight = data(20, 6, seed=1)
    assert 0 < np.count_nonzero(model.fit(X, y, weight).coef_) < 6

    def loss(X, y, weight, hyper):
        coef, intercept = model.coefficients(X, y, weight, **hyper)
        return np.sum(np.sin(coef)) + np.sum(intercept**2)

    wl.testing.check_grads(loss, (X, y, weight, {"alpha": 0.1}), order=1, modes=["reverse"])


def test_gradients_of_predictions():
    X, y, _ = data(40, 6)
    model = Lasso(0.1).fit(X, y)
    slopes = [(model.predict([X[0] + d]) - model.predict([X[0] - d]))[0] / 2e-5 for d in 1e-5 * np.eye(6)]
    np.testing.assert_allclose(model.input_gradient(X[:1])[0], slopes, atol=1e-8)


def test_stopping_early_warns():
    X, y, _ = data(90, 300, correlated=5.0)
    for model in (Lasso(1e-3, max_iter=2), Lasso(1e-3, max_iter=2, solver="proximal")):
        with pytest.warns(ConvergenceWarning, match=r"Lasso: the duality gap is still .* after 2 iterations"):
            assert model.fit(X, y).n_iter_ == 2
    with pytest.warns(ConvergenceWarning, match="lasso_path"):
        lasso_path(X, y, alphas=[1e-3], max_iter=1)


def test_bad_input_is_refused():
    X, y, weight = data(10, 3)
    for wrong, match in (
        ({"alpha": -1}, "alpha is a number"), ({"l1_ratio": 1.5}, "l1_ratio is between 0"), ({"tol": -1}, "tol"),
        ({"max_iter": 0}, "max_iter is a whole number"), ({"solver": "lars"}, "solver is one of"),
        ({"positive": "yes"}, "positive is one of"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            ElasticNet(**wrong).fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        Lasso().fit(np.where(X == X[0, 0], np.nan, X), y)
    with pytest.raises(ValueError, match="negative"):
        Lasso().fit(X, y, -weight)
    with pytest.raises(ValueError, match="alphas is a number"):
        lasso_path(X, y, alphas=[0.1, -1])
