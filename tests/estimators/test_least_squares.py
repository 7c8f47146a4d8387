"""Least squares and ridge: against scikit-learn, exact solutions, mpmath, closed forms and refits."""

import mpmath
import numpy as np
import pytest
import scipy.stats
from sklearn import linear_model
from sklearn.exceptions import ConvergenceWarning

import wonderland as wl
from wonderland.estimators import LinearRegression, Ridge
from wonderland.estimators.gram import moments, residual_sums
from wonderland.estimators.positive import PositiveFactor
from wonderland.testing.least_squares import exact_least_squares, solver_errors

SHAPES = [(40, 1), (40, 6), (6, 40), (20, 20), (21, 20), (300, 70)]


def data(n, p, outputs=(), seed=0, mean=2.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + mean
    y = X @ rng.normal(size=(p, *outputs)) + rng.normal(size=(n, *outputs)) + 1
    return X, y, rng.uniform(0.2, 2, n)


def same(ours, theirs, tol=1e-9):
    scale = np.max(np.abs(theirs.coef_))
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=tol * scale)
    scale = max(scale, np.max(np.abs(theirs.intercept_)))
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=tol * scale)
    assert np.shape(ours.coef_) == np.shape(theirs.coef_)


# ---- moments ----


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_far_from_zero_lose_no_digits(order, weighted):
    rng = np.random.default_rng(0)
    n = 100_000  # several blocks
    small = rng.integers(-8, 8, size=(n, 3)).astype(float)
    small[: n // 2] += 20  # the first half isn't like the second
    X = np.asarray(small + 2.0**40, order=order)
    weight = rng.integers(1, 4, n).astype(float) if weighted else np.ones(n)
    found = moments(X, X[:, :1] * 3, weight if weighted else None)
    centred = small - np.average(small, axis=0, weights=weight)
    exact = centred.T @ (weight[:, None] * centred)
    np.testing.assert_allclose(found.gram, exact, rtol=1e-12, atol=1e-12 * exact[0, 0])
    np.testing.assert_allclose(found.cross[:, 0], 3 * exact[:, 0], rtol=1e-12, atol=1e-12 * exact[0, 0])
    np.testing.assert_allclose(found.x_mean, 2.0**40 + np.average(small, axis=0, weights=weight), rtol=1e-15)
    assert found.total == weight.sum()
    coef = np.array([[1.0], [-2.0], [0.5]])
    r = 3 * centred[:, :1] - centred @ coef
    means = found.x_mean, found.y_mean
    gradient, square = residual_sums(X, X[:, :1] * 3, weight if weighted else None, coef, *means, far=True)
    np.testing.assert_allclose(gradient, centred.T @ (weight[:, None] * r), rtol=1e-9, atol=1e-9 * exact[0, 0])
    np.testing.assert_allclose(square, np.sum(weight[:, None] * r * r, axis=0), rtol=1e-9)


def test_moments_when_the_sampled_rows_mislead(monkeypatch):
    monkeypatch.setattr("wonderland.estimators.gram.SAMPLE", 1)  # the first row
    X = np.random.default_rng(0).normal(size=(100_000, 1))
    X[0] = 1e9
    found = moments(X, X)
    exact = np.sum((X - np.mean(X)) ** 2)
    assert abs(found.gram[0, 0] / exact - 1) < 1e-13


def test_a_constant_column_has_no_spread_at_all():
    X = np.random.default_rng(0).normal(size=(5000, 2))
    X[:, 1] = 0.1
    assert moments(X, X[:, :1]).gram[1, 1] == 0


@pytest.mark.parametrize("size", [1, 7, 64, 65, 200])
def test_solves_and_condition_numbers_of_positive_matrices(size):
    rng = np.random.default_rng(size)
    Q = np.linalg.qr(rng.normal(size=(size, size)))[0]
    A = Q * np.logspace(0, -6, size) @ Q.T
    units = 10.0 ** rng.integers(-8, 8, size)
    factor = PositiveFactor(A * units * units[:, None])
    b = rng.normal(size=(size, 2))
    np.testing.assert_allclose(A @ (factor.solve(b * units[:, None]) * units[:, None]), b, atol=1e-8)
    np.testing.assert_allclose(factor.root.T @ factor.root, A * units * units[:, None], rtol=1e-6)
    scale = np.sqrt(np.diagonal(A))
    exact = np.linalg.cond(A / scale / scale[:, None])
    assert 0.3 * exact < factor.condition < 20 * exact
    with pytest.raises(np.linalg.LinAlgError):
        PositiveFactor(-A)


# ---- least squares ----


@pytest.mark.parametrize("solver", ["auto", "qr", "svd"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("intercept", [True, False])
def test_scikit_learns_coefficients(shape, solver, intercept):
    for outputs in ((), (1,), (3,)):
        X, y, weight = data(*shape, outputs)
        for w in (None, weight):
            theirs = linear_model.LinearRegression(fit_intercept=intercept, tol=1e-12).fit(X, y, w)
            ours = LinearRegression(fit_intercept=intercept, solver=solver).fit(X, y, w)
            same(ours, theirs)
            assert ours.rank_ == theirs.rank_
            np.testing.assert_allclose(ours.singular_, theirs.singular_, atol=1e-9 * theirs.singular_[0])
            np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-8)


def test_other_solvers_agree():
    X, y, weight = data(60, 5)
    exact = LinearRegression(solver="qr").fit(X, y, weight)
    same(LinearRegression(solver="cholesky").fit(X, y, weight), exact)
    same(LinearRegression(solver="gradient", tol=1e-26).fit(X, y, weight), exact)
    wide = data(5, 60)
    exact = LinearRegression(solver="svd").fit(*wide)
    same(LinearRegression(solver="dual").fit(*wide), exact)
    same(LinearRegression(solver="gradient", tol=1e-26).fit(*wide), exact)


def test_gradient_descent_tells_its_course():
    X, y, _ = data(60, 5, mean=0)
    model = LinearRegression(solver="gradient").fit(X, y)
    assert model.n_iter_ == len(model.loss_history_) > 3
    assert model.loss_history_[0] == pytest.approx(np.var(y))
    assert model.loss_history_[-1] == pytest.approx(model.noise_variance_ml_, rel=1e-9)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        assert LinearRegression(solver="gradient", max_iter=2).fit(X, y).n_iter_ == 2
    assert LinearRegression(solver="gradient").fit(X, 0 * y).n_iter_ == 1


def test_deficient_columns_get_the_solution_of_minimum_norm():
    X, y, weight = data(50, 4)
    X = np.concatenate([X, X[:, :2], np.full((50, 1), 0.5), X[:, :1] + X[:, 1:2]], axis=1)
    for solver in ("auto", "qr", "svd"):
        for w in (None, weight):
            same(LinearRegression(solver=solver).fit(X, y, w), linear_model.LinearRegression(tol=1e-10).fit(X, y, w))
            assert LinearRegression(solver=solver).fit(X, y, w).rank_ == 4
    single = X.astype(np.float32)  # sums are rounded there, and depend all the same
    assert LinearRegression().fit(single, y).rank_ == 4
    same(LinearRegression().fit(single, y), linear_model.LinearRegression(tol=1e-5).fit(single, y), 1e-4)
    X[:, 6] = 1e6 / 3  # its mean is rounded, and has no spread all the same
    assert LinearRegression().fit(X, y, weight).coef_[6] == 0
    with pytest.raises(ValueError, match=r"singular.*'auto' or 'svd'"):
        LinearRegression(solver="cholesky").fit(X, y)
    for wide in (data(5, 5), data(5, 9)):  # rounding may make X'X look regular
        with pytest.raises(ValueError, match="singular"):
            LinearRegression(solver="cholesky").fit(*wide)
    nearly = X[:, :4].copy()
    nearly[:, 3] = nearly[:, 0] + 1e-5 * nearly[:, 3]
    assert LinearRegression().fit(nearly, y).rank_ == 4
    assert LinearRegression(rcond=1e-3).fit(nearly, y).rank_ == 3
    same(LinearRegression(rcond=1e-3).fit(nearly, y), linear_model.LinearRegression(tol=1e-3).fit(nearly, y))


def test_as_exact_as_qr_for_all_condition_numbers():
    conditions = 10.0 ** np.arange(1, 9)
    for noise in (0.0, 1.0):
        errors = solver_errors(conditions, noise=noise)
        assert np.all(errors["auto"] <= 5 * errors["qr"] + 1e-15)
        assert np.all(errors["qr"] < 1e-15 * conditions + 1e-15 * noise * conditions**2)
    clean = solver_errors(conditions)
    # Normal equations lose the square: slopes of 2 and 1 in logarithms, until nothing is left.
    slope = lambda errors: np.polyfit(np.log10(conditions[:7]), np.log10(errors[:7]), 1)[0]
    assert 1.7 < slope(clean["cholesky"]) < 2.3
    assert 0.6 < slope(clean["qr"]) < 1.2


def exactly(X, y, intercept):
    """Least squares in 80 digits."""
    with mpmath.workdps(80):
        A = mpmath.matrix(X.tolist())
        if intercept:
            A = mpmath.matrix([[*row, 1] for row in X.tolist()])
        w = mpmath.lu_solve(A.T * A, A.T * mpmath.matrix(y.tolist()))
        return np.array([float(v) for v in w])[: X.shape[1]]


def ill_conditioned():
    rng = np.random.default_rng(0)
    x = np.linspace(-9, -3, 82)
    filip = x[:, None] ** np.arange(1, 11)  # a polynomial of degree 10, as in NIST's Filip
    yield "polynomial", filip, np.sin(x) + 0.01 * rng.normal(size=82)
    i = np.arange(1, 21)
    yield "hilbert", 1 / (i[:, None] + np.arange(6)), rng.normal(size=20)
    trend = np.arange(16.0)  # seven columns that grow together, as in Longley's
    economy = np.stack([10.0**k * (1 + trend + 0.01 * rng.normal(size=16)) for k in range(6)], axis=1)
    yield "trends", economy + 1e4, 6e4 + 300 * trend + rng.normal(size=16)
    yield "far", rng.normal(size=(30, 3)) + 1e9, rng.normal(size=30)


@pytest.mark.parametrize("problem", [*ill_conditioned()], ids=lambda p: p[0])
@pytest.mark.parametrize("intercept", [True, False])
def test_as_exact_as_lapack_on_ill_conditioned_data(problem, intercept):
    _, X, y = problem
    exact = exactly(X, y, intercept)
    x, z = (X - X.mean(axis=0), y - y.mean()) if intercept else (X, y)
    lapack = np.linalg.lstsq(x / np.linalg.norm(x, axis=0), z, rcond=1e-18)[0] / np.linalg.norm(x, axis=0)
    ours = LinearRegression(fit_intercept=intercept).fit(X, y).coef_
    error = lambda coef: np.linalg.norm(coef - exact) / np.linalg.norm(exact)
    assert error(ours) <= 10 * error(lapack) + 1e-14
    single = X.astype(np.float32)
    model = LinearRegression(fit_intercept=intercept).fit(single, y)
    if model.rank_ == X.shape[1]:  # else float32 doesn't tell the columns apart
        exact = exactly(single.astype(float), y.astype(np.float32).astype(float), intercept)
        assert error(model.coef_) < 1e-6


def test_dtypes_orders_and_lists():
    X, y, _ = data(60, 5)
    exact = linear_model.LinearRegression().fit(X, y)
    same(LinearRegression().fit(np.asfortranarray(X), y), exact)
    same(LinearRegression().fit(np.repeat(X, 2, axis=1)[:, ::2], y), exact)
    same(LinearRegression().fit(X.tolist(), y.tolist()), exact)
    whole = np.rint(X * 10).astype(int)
    same(LinearRegression().fit(whole, y), linear_model.LinearRegression().fit(whole, y))
    single = LinearRegression().fit(X.astype(np.float32), y)
    assert single.coef_.dtype == single.predict(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.coef_, exact.coef_, atol=1e-5)
    for kept in (X, y):
        assert kept.flags.writeable


def test_units_of_columns_do_not_matter():
    X, y, _ = data(60, 4)
    units = np.array([1e-30, 1.0, 1e15, 1e30])
    np.testing.assert_allclose(LinearRegression().fit(X * units, y).coef_ * units, LinearRegression().fit(X, y).coef_)


# ---- what they know of themselves ----


def test_covariances_are_those_of_linregress():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40) + 3
    y = 2 * x + rng.normal(size=40)
    model, theirs = LinearRegression().fit(x[:, None], y), scipy.stats.linregress(x, y)
    np.testing.assert_allclose(np.sqrt(np.diagonal(model.covariance_)), [theirs.stderr, theirs.intercept_stderr])
    r = y - model.predict(x[:, None])
    assert model.noise_variance_ == pytest.approx(r @ r / 38) and model.noise_variance_ml_ == pytest.approx(r @ r / 40)


@pytest.mark.parametrize("solver", ["auto", "qr", "svd", "cholesky", "gradient"])
@pytest.mark.parametrize("intercept", [True, False])
def test_covariance_hat_matrix_and_intervals_are_the_closed_forms(intercept, solver):
    X, y, _ = data(30, 4, (2,))
    weight = np.random.default_rng(1).integers(1, 4, 30)
    model = LinearRegression(fit_intercept=intercept, solver=solver, tol=1e-26).fit(X, y, weight)
    A = np.concatenate([X, np.ones((30, 1))], axis=1) if intercept else X
    R = np.repeat(A, weight, axis=0)  # weights count samples
    left = len(R) - A.shape[1]
    r = np.repeat(y - model.predict(X), weight, axis=0)
    variance = np.sum(r * r, axis=0) / left
    np.testing.assert_allclose(model.noise_variance_, variance)
    inverse = np.linalg.inv(R.T @ R)
    np.testing.assert_allclose(model.covariance_, variance[:, None, None] * inverse, rtol=1e-6)
    H = model.hat_matrix(X, weight)
    np.testing.assert_allclose(H @ y, model.predict(X), atol=1e-6)
    np.testing.assert_allclose(H @ H, H, atol=1e-9)
    np.testing.assert_allclose(model.leverage(X, weight), np.diagonal(H), rtol=1e-7)
    assert np.trace(H) == pytest.approx(A.shape[1])
    new = X[:5] + 1
    B = np.concatenate([new, np.ones((5, 1))], axis=1) if intercept else new
    h = np.einsum("ij,jk,ik->i", B, inverse, B)[:, None]
    centre, deviation = model.predict(new, return_std=True)
    np.testing.assert_allclose(deviation, np.sqrt(variance * (1 + h)), rtol=1e-7)
    t = scipy.stats.t.ppf(0.95, left)
    for of_mean in (False, True):
        lower, upper = np.moveaxis(model.predict_interval(new, confidence=0.9, mean=of_mean), 1, 0)
        np.testing.assert_allclose(upper - centre, t * np.sqrt(variance * (h + (not of_mean))), rtol=1e-7)
        np.testing.assert_allclose(centre - lower, upper - centre)


def test_intervals_cover_what_they_say():
    rng = np.random.default_rng(0)
    X, count = rng.normal(size=(12, 4)), 5000
    model = LinearRegression().fit(X, X[:, :1] + rng.normal(size=(12, count)))  # as many outputs
    lower, upper = model.predict_interval(2 * X[:1], confidence=0.8)[0]
    new = 2 * X[0, 0] + rng.normal(size=count)
    assert abs(np.mean((lower < new) & (new < upper)) - 0.8) < 4 * np.sqrt(0.16 / count)


def test_no_samples_left_over_means_no_noise_variance():
    X, y, _ = data(5, 8)
    model = LinearRegression().fit(X, y)
    assert np.isnan(model.noise_variance_)
    with pytest.raises(ValueError, match="more samples than coefficients"):
        model.predict_interval(X)
    np.testing.assert_allclose(model.hat_matrix(X), np.eye(5), atol=1e-12)


@pytest.mark.parametrize("scales", [(1e7, 1, 1e-3), (1, 1e-3, 1e7), (1e-3, 1e7, 1)])
def test_what_ridge_tells_doesnt_depend_on_the_units_of_columns(scales):
    X, y, _ = data(20, 3, mean=0)
    alpha = 1e-3
    units = Ridge(alpha, solver="svd").fit(X * scales, y)  # by singular values of X itself
    model = Ridge(alpha).fit(X * scales, y)
    assert model.degrees_ == pytest.approx(units.degrees_, rel=1e-6)
    np.testing.assert_allclose(np.diagonal(model.covariance_), np.diagonal(units.covariance_), rtol=1e-5)
    np.testing.assert_allclose(model.leverage(X * scales), units.leverage(X * scales), rtol=1e-5)
    assert Ridge(0.0).fit(X * [1e8, 1, 1e-8], y).degrees_ == 3


def test_conditioning_names_collinear_columns():
    import pandas as pd

    X, y, _ = data(50, 4)
    X[:, 2] = X[:, 0] + X[:, 1] + 0.01 * X[:, 2]
    frame = pd.DataFrame(X, columns=["a", "b", "both", "other"])
    report = LinearRegression().fit(frame, y).conditioning()
    x = X - X.mean(axis=0)
    unit = x / np.linalg.norm(x, axis=0)
    assert report.condition == pytest.approx(np.linalg.cond(x), rel=1e-6)
    assert report.normal_condition == pytest.approx(np.linalg.cond(x) ** 2, rel=1e-6)
    assert report.scaled_condition == pytest.approx(np.linalg.cond(unit), rel=1e-6)
    for j in range(4):
        others = np.delete(X, j, axis=1)
        r2 = linear_model.LinearRegression().fit(others, X[:, j]).score(others, X[:, j])
        assert report.inflation[j] == pytest.approx(1 / (1 - r2), rel=1e-6)
    assert {*report.collinear} == {"a", "b", "both"}
    assert report.digits_normal == pytest.approx(2 * report.digits_qr)
    assert "both" in str(report) and "Ridge" in str(report)
    X[:, 2] = X[:, 0]
    X[:, 3] = 5
    report = LinearRegression().fit(X, y).conditioning()
    assert report.condition == np.inf and "rank 2 of 4" in str(report)
    assert Ridge().fit(X, y).conditioning().rank == 2
    assert np.all(np.isinf(report.inflation[[0, 2, 3]])) and np.isfinite(report.inflation[1])
    assert "any solver" in str(LinearRegression().fit(*data(50, 2)[:2]).conditioning())
    assert "rank 4 of 8" in str(LinearRegression().fit(*data(5, 8)[:2]).conditioning())


# ---- derivatives ----


@pytest.mark.parametrize("model", [LinearRegression(), LinearRegression(fit_intercept=False), Ridge(0.7)], ids=repr)
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_coefficients_have_derivatives(model, outputs):
    X, y, weight = data(12, 3, outputs)

    def loss(X, y, weight, hyper):
        coef, intercept = model.coefficients(X, y, weight, **hyper)
        return np.sum(np.sin(coef)) + np.sum(intercept**2)

    hyper = {"alpha": 0.7} if isinstance(model, Ridge) else {}
    wl.testing.check_grads(loss, (X, y, weight, hyper), order=1, modes=["reverse"])


def test_gradients_of_predictions_are_coefficients():
    X, y, _ = data(30, 4, (2,))
    for model in (LinearRegression(), Ridge()):
        np.testing.assert_allclose(model.fit(X, y).input_gradient(X[:3]), np.stack([model.coef_] * 3), rtol=1e-12)
        x = X[0]
        step = 1e-6 * np.eye(4)
        slopes = [(model.predict([x + d]) - model.predict([x - d]))[0] / 2e-6 for d in step]
        np.testing.assert_allclose(model.input_gradient([x])[0].T, slopes, rtol=1e-6)


# ---- ridge ----


@pytest.mark.parametrize("solver", ["auto", "svd"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("intercept", [True, False])
def test_scikit_learns_ridge(shape, solver, intercept):
    for outputs, alphas in (((), [1e-8, 0.3, 1e5]), ((2,), [1.0, [0.1, 30.0]]), ((6,), [[1, 2, 3, 4, 5, 6]])):
        X, y, weight = data(*shape, outputs)
        for alpha in alphas:
            for w in (None, weight):
                theirs = linear_model.Ridge(alpha, fit_intercept=intercept, solver="svd").fit(X, y, w)
                same(Ridge(alpha, fit_intercept=intercept, solver=solver).fit(X, y, w), theirs, 1e-8)


def test_ridge_by_gradient_descent_and_single_precision():
    for shape in ((60, 5), (5, 60)):
        X, y, weight = data(*shape, (2,))
        theirs = linear_model.Ridge([1.0, 3.0]).fit(X, y, weight)
        same(Ridge([1.0, 3.0], solver="gradient", tol=1e-26).fit(X, y, weight), theirs)
        single = Ridge([1.0, 3.0]).fit(X.astype(np.float32), y, weight)
        assert single.coef_.dtype == np.float32
        same(single, theirs, 1e-5)


def test_ridge_without_a_penalty_is_least_squares():
    for shape in ((50, 4), (5, 40)):
        X, y, _ = data(*shape)
        X[:, 1] = X[:, 0]
        same(Ridge(0).fit(X, y), linear_model.LinearRegression(tol=1e-10).fit(X, y))


def test_ridge_stays_exact_for_a_tiny_penalty():
    X, y, _ = exact_least_squares(1e9)
    with mpmath.workdps(60):
        A = mpmath.matrix(X.tolist())
        w = mpmath.lu_solve(A.T * A + mpmath.mpf(1e-18) * mpmath.eye(X.shape[1]), A.T * mpmath.matrix(y.tolist()))
        exact = np.array([float(v) for v in w])
    np.testing.assert_allclose(Ridge(1e-18).fit(X, y).coef_, exact, rtol=1e-6)


@pytest.mark.parametrize("shape", [(30, 4), (6, 20)], ids=str)
def test_ridge_is_the_posterior_of_a_gaussian_prior(shape):
    X, y, weight = data(*shape)
    alpha = 0.8
    model = Ridge(alpha).fit(X, y, weight)
    A = np.concatenate([X, np.ones((len(X), 1))], axis=1)
    prior = np.diag([alpha] * shape[1] + [0.0])
    inverse = np.linalg.inv(A.T @ (weight[:, None] * A) + prior)
    hat = A @ inverse @ A.T * weight
    assert model.degrees_ + 1 == pytest.approx(np.trace(hat))
    r = y - model.predict(X)
    variance = weight @ (r * r) / (weight.sum() - np.trace(hat))
    if weight.sum() > np.trace(hat):
        np.testing.assert_allclose(model.covariance_, variance * inverse, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(model.hat_matrix(X, weight), hat, atol=1e-10)
    np.testing.assert_allclose(model.leverage(X, weight), np.diagonal(hat), atol=1e-10)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_leave_one_out_errors_are_those_of_refits(outputs):
    X, y, weight = data(15, 20, outputs)
    alpha = [2.0, 5.0] if outputs else 2.0
    errors = Ridge(alpha).fit(X, y, weight).loo_errors(X, y, weight)
    assert errors.shape == y.shape
    for i in range(15):
        rest = np.delete(np.arange(15), i)
        without = linear_model.Ridge(alpha).fit(X[rest], y[rest], weight[rest])
        np.testing.assert_allclose(errors[i], (y[i] - without.predict(X[[i]]))[0], rtol=1e-8)


# ---- bad input ----


@pytest.mark.parametrize("Model", [LinearRegression, Ridge])
def test_bad_input_is_refused(Model):
    X, y, weight = data(10, 3)
    with pytest.raises(ValueError, match="NaN"):
        Model().fit(np.where(X == X[0, 0], np.nan, X), y)
    with pytest.raises(ValueError, match="inconsistent"):
        Model().fit(X, y[:-1])
    with pytest.raises(ValueError, match="negative"):
        Model().fit(X, y, -weight)
    with pytest.raises(ValueError, match="one number for each sample"):
        Model().fit(X, y, weight[:-1])
    with pytest.raises(ValueError, match="solver is one of 'auto'"):
        Model(solver="lu").fit(X, y)
    with pytest.raises(ValueError, match="fit_intercept is True or False"):
        Model(fit_intercept="yes").fit(X, y)
    with pytest.raises(ValueError, match="max_iter is a whole number"):
        Model(solver="gradient", max_iter=0).fit(X, y)
    with pytest.raises(ValueError, match="confidence"):
        Model().fit(X, y).predict_interval(X, confidence=95)
    with pytest.raises(ValueError, match="features"):
        Model().fit(X, y).predict(X[:, :2])


def test_bad_parameters_are_refused():
    X, y, _ = data(10, 3)
    with pytest.raises(ValueError, match="alpha is a number of at least 0"):
        Ridge(-1).fit(X, y)
    with pytest.raises(ValueError, match="y has 1, alpha has shape"):
        Ridge([1, 2]).fit(X, y)
    with pytest.raises(ValueError, match="at least as many features"):
        LinearRegression(solver="dual").fit(X, y)
    with pytest.raises(ValueError, match="rcond"):
        LinearRegression(rcond=-1).fit(X, y)


def test_one_sample_and_constant_labels():
    model = LinearRegression().fit([[1.0, 2.0]], [3.0])
    assert np.all(model.coef_ == 0) and model.intercept_ == 3 and model.rank_ == 0
    X, _, _ = data(20, 3)
    model = LinearRegression().fit(X, np.full(20, 0.1))
    np.testing.assert_allclose(model.coef_, 0, atol=1e-16)
    assert model.intercept_ == pytest.approx(0.1)
    assert Ridge().fit([[1.0, 2.0]], [3.0]).intercept_ == 3
