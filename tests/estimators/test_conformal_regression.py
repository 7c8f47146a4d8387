"""Intervals: coverage over 200 splits, exactness of the quantile, MAPIE's numbers, and what goes wrong."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import LinearRegression, QuantileRegressor, Ridge
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from wonderland import estimators
from wonderland.estimators import (
    ConformalizedQuantileRegressor,
    CrossConformalRegressor,
    JackknifeAfterBootstrapRegressor,
    SplitConformalRegressor,
    conformal_quantile,
    regression_coverage_score,
    regression_mean_width_score,
)


def noisy(n, seed=0):
    """Noise that grows with |x_0|."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, 10 + X @ [1.0, -2.0, 0.5] + (0.3 + np.abs(X[:, 0])) * rng.normal(size=n)


# The quantile --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 8, 9, 10, 19, 57])
@pytest.mark.parametrize("level", [0.5, 0.7, 0.8, 0.9, 0.95])
def test_exactly_k_of_n_plus_one(n, level):
    """Whichever of n + 1 scores is the new one: it is covered in k = ceil((n + 1) level) of the n + 1 cases."""
    scores = np.random.default_rng(n).permutation(n + 1) * 1.0
    covered = sum(scores[i] <= conformal_quantile(np.delete(scores, i), level) for i in range(n + 1))
    k = int(np.ceil(round((n + 1) * level, 9)))
    assert covered == k and k >= (n + 1) * level - 1e-9


def test_coverage_given_the_calibration_is_beta_distributed():
    """Of uniform scores the quantile is its own coverage: Beta(k, n + 1 - k), with mean k / (n + 1)."""
    n, level = 39, 0.9
    coverage = conformal_quantile(np.random.default_rng(0).random((20_000, n)), level)
    k = 36
    assert coverage.mean() == pytest.approx(k / (n + 1), abs=0.001)
    assert stats.kstest(coverage, stats.beta(k, n + 1 - k).cdf).pvalue > 0.01


def test_the_smallest_number_of_scores():
    assert conformal_quantile(np.arange(9.0), 0.9) == 8 and conformal_quantile(np.arange(8.0), 0.9) == np.inf
    assert conformal_quantile(np.arange(99.0), 0.99) == 98 and conformal_quantile(np.arange(98.0), 0.99) == np.inf
    assert conformal_quantile([], 0.5) == np.inf
    np.testing.assert_array_equal(conformal_quantile(np.arange(19.0), [0.5, 0.8, 0.9, 0.99]), [9, 15, 17, np.inf])
    np.testing.assert_array_equal(conformal_quantile([[3, 1, 2], [6, 4, 5]], [0.5, 0.75]), [[2, 3], [5, 6]])


# Coverage over 200 splits --------------------------------------------------------------------------------------------

class Least(RegressorMixin, BaseEstimator):
    """Least squares in two lines, since it is fitted thousands of times."""

    def fit(self, X, y):
        self.coef_ = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
        return self

    def predict(self, X):
        return X @ self.coef_[:-1] + self.coef_[-1]


POOL = noisy(2400)
TRAIN = slice(0, 400)


def over_splits(model, calibration=600, splits=200):
    """Coverage and width of a model that was fitted to the first samples, for splits of the others."""
    X, y = POOL[0][400:], POOL[1][400:]
    found = []
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(y))
        rows, rest = order[:calibration], order[calibration:]
        ends = model.conformalize(X[rows], y[rows]).predict_interval(X[rest])
        found.append((regression_coverage_score(y[rest], ends), regression_mean_width_score(ends)))
    return np.mean(found, axis=0)


@pytest.fixture(scope="module")
def line():
    return Least().fit(POOL[0][TRAIN], POOL[1][TRAIN])


@pytest.mark.parametrize("level", [0.8, 0.9])
@pytest.mark.parametrize(
    "how", [{}, {"symmetric": False}, {"conformity_score": "gamma"}, {"side": "upper"}, {"side": "lower"}], ids=str
)
def test_split_coverage(line, level, how):
    coverage, width = over_splits(SplitConformalRegressor(line, level, prefit=True, **how))
    assert coverage == pytest.approx(level, abs=0.01)
    assert np.isinf(width) == ("side" in how)


def test_normalized_coverage(line):
    """Narrower than with one width for all, at the same coverage, since the noise depends on x."""
    X, y = POOL
    sigma = LinearRegression().fit(np.abs(X[TRAIN]), np.abs(y[TRAIN] - line.predict(X[TRAIN])))

    class Sizes:
        def predict(self, X):
            return np.maximum(sigma.predict(np.abs(X)), 0.05)

    model = SplitConformalRegressor(line, 0.9, "normalized", residual_estimator=Sizes(), prefit=True)
    coverage, width = over_splits(model)
    assert coverage == pytest.approx(0.9, abs=0.01)
    assert width < 0.95 * over_splits(SplitConformalRegressor(line, 0.9, prefit=True))[1]


@pytest.mark.parametrize("symmetric", [True, False])
def test_conformal_quantile_coverage(symmetric):
    X, y = POOL
    raw = [QuantileRegressor(quantile=q, alpha=0).fit(X[TRAIN], y[TRAIN]) for q in (0.05, 0.95, 0.5)]
    model = ConformalizedQuantileRegressor(raw, 0.9, symmetric=symmetric, prefit=True)
    coverage, width = over_splits(model)
    assert coverage == pytest.approx(0.9, abs=0.01) and np.isfinite(width)


def test_cross_coverage():
    """200 data sets of 100 samples: at least 1 - 2 alpha is proven for "plus", and about 1 - alpha is what it is."""
    found = {"plus": [], "minmax": [], "base": []}
    for seed in range(200):
        X, y = noisy(250, seed=1000 + seed)
        model = CrossConformalRegressor(Least(), 0.9).fit(X[:100], y[:100])
        for method, values in found.items():
            ends = model.set_params(method=method).predict_interval(X[100:])
            values.append(regression_coverage_score(y[100:], ends))
    assert np.mean(found["plus"]) == pytest.approx(0.9, abs=0.01)
    assert np.mean(found["base"]) == pytest.approx(0.9, abs=0.01)
    assert 0.9 < np.mean(found["plus"]) + 0.005 < np.mean(found["minmax"]) < 0.94


def test_coverage_of_fits_in_one_line():
    """Everything inside: the split, the fit and the quantile, of 200 data sets."""
    found = []
    for seed in range(200):
        X, y = noisy(400, seed=5000 + seed)
        model = SplitConformalRegressor(Least(), 0.9, test_size=0.5, random_state=seed).fit(X[:200], y[:200])
        found.append(regression_coverage_score(y[200:], model.predict_interval(X[200:])))
    assert np.mean(found) == pytest.approx(0.9, abs=0.01)


def test_bootstrap_coverage():
    found = []
    for seed in range(60):
        X, y = noisy(300, seed=9000 + seed)
        model = JackknifeAfterBootstrapRegressor(Least(), 0.9, random_state=seed).fit(X[:100], y[:100])
        found.append(regression_coverage_score(y[100:], model.predict_interval(X[100:])))
    assert np.mean(found) == pytest.approx(0.9, abs=0.02)


# MAPIE's numbers -----------------------------------------------------------------------------------------------------


def mapie_data():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(120, 3))
    return X, 10 + X @ [1.0, -2, 0.5] + (0.3 + np.abs(X[:, 0])) * rng.normal(size=120)


@pytest.mark.parametrize(
    ("how", "lower", "upper"),
    [
        ({}, [9.388748920570132, 8.648600120710135], [11.857938572912078, 12.598087372772074]),
        ({"symmetric": False}, [8.676492221943043, 8.046737071813581], [11.653289576272723, 12.551041619765755]),
        (
            {"conformity_score": "gamma"},
            [8.861680716342404, 8.128163229397929], [12.385006777139807, 13.11852426408428],
        ),
        (
            {"conformity_score": "gamma", "symmetric": False},
            [8.781111316266966, 7.9301280710985464], [11.70567610183768, 13.11852426408428],
        ),
    ],
    ids=str,
)  # fmt: skip
def test_mapies_split_intervals(how, lower, upper):
    """The first of MAPIE 1.6.0's, at levels 0.8 and 0.9."""
    X, y = mapie_data()
    base = Ridge().fit(X[:60], y[:60])
    model = SplitConformalRegressor(base, [0.8, 0.9], prefit=True, **how).conformalize(X[60:100], y[60:100])
    np.testing.assert_allclose(model.predict_interval(X[100:103])[0], [lower, upper], rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "cv", "lower", "upper"),
    [
        ("plus", 5, [8.905541692456783, 8.267587412979939], [11.675403469541774, 12.489199346140767]),
        ("plus", -1, [8.957324045135106, 8.355042089942941], [11.546138802246261, 12.380070307600473]),
        ("minmax", 5, [8.63597319384638, 8.069267725255639], [12.035228590486605, 12.601934059077347]),
        ("minmax", -1, [8.8492326377651, 8.131125907491912], [11.756830600062832, 12.47493733033602]),
        ("base", 5, [8.858135629986654, 8.291430161395912], [11.697548449319088, 12.26425391790983]),
        ("base", -1, [8.983434661097293, 8.265327930824105], [11.572249418208449, 12.290356148481637]),
    ],
)
def test_mapies_cross_intervals(method, cv, lower, upper):
    X, y = mapie_data()
    model = CrossConformalRegressor(Ridge(), [0.8, 0.9], method=method, cv=cv).fit(X[:100], y[:100])
    np.testing.assert_allclose(model.predict_interval(X[100:103])[0], [lower, upper], rtol=1e-9)
    np.testing.assert_allclose(model.predict(X), Ridge().fit(X[:100], y[:100]).predict(X))


@pytest.mark.parametrize(
    ("symmetric", "first"),
    [(True, [9.45980904962458, 11.026054948557741]), (False, [8.589580109256993, 10.650623538345648])],
)
def test_mapies_quantile_intervals(symmetric, first):
    X, y = mapie_data()
    raw = [QuantileRegressor(quantile=q, alpha=0).fit(X[:60], y[:60]) for q in (0.1, 0.9, 0.5)]
    model = ConformalizedQuantileRegressor(raw, 0.8, prefit=True, symmetric=symmetric).fit(X[60:100], y[60:100])
    np.testing.assert_allclose(model.predict_interval(X[100:103])[0], first, rtol=1e-9)


# By hand -------------------------------------------------------------------------------------------------------------


def test_the_plus_interval_by_loops():
    X, y = noisy(40)
    model = CrossConformalRegressor(LinearRegression(), 0.8, cv=4).fit(X, y)
    low, high = [], []
    for train, rest in KFold(4).split(X):
        fit = LinearRegression().fit(X[train], y[train])
        for i in rest:
            error = abs(y[i] - fit.predict(X[i : i + 1])[0])
            low.append(fit.predict(X[:1])[0] - error)
            high.append(fit.predict(X[:1])[0] + error)
    expected = [sorted(low)[int(np.floor(0.2 * 41)) - 1], sorted(high)[int(np.ceil(0.8 * 41)) - 1]]
    np.testing.assert_allclose(model.predict_interval(X[:1])[0], expected)


def test_the_jackknife_after_the_bootstrap_by_loops():
    X, y = noisy(30)
    model = JackknifeAfterBootstrapRegressor(LinearRegression(), 0.8, n_resamplings=20, random_state=3).fit(X, y)
    draw = np.random.RandomState(3)
    drawn = [draw.randint(30, size=30) for _ in range(20)]
    fits = [LinearRegression().fit(X[rows], y[rows]) for rows in drawn]
    low, high = [], []
    for i in range(30):
        without = [fit for fit, rows in zip(fits, drawn, strict=True) if i not in rows]
        error = abs(y[i] - np.mean([fit.predict(X[i : i + 1]) for fit in without]))
        there = np.mean([fit.predict(X[:1]) for fit in without])
        low.append(there - error)
        high.append(there + error)
    expected = [sorted(low)[int(np.floor(0.2 * 31)) - 1], sorted(high)[int(np.ceil(0.8 * 31)) - 1]]
    np.testing.assert_allclose(model.predict_interval(X[:1])[0], expected)


@pytest.mark.parametrize("scaled", [False, True])
def test_standard_deviations_of_the_estimator_itself(scaled):
    X, y = noisy(120)
    base = GaussianProcessRegressor(RBF(2.0) + WhiteKernel(0.5), optimizer=None, normalize_y=True)
    base = make_pipeline(StandardScaler(), base) if scaled else base
    model = SplitConformalRegressor(base, 0.8, "normalized", random_state=0).fit(X, y)
    middle, scale = model.estimator_.predict(X, return_std=True)
    ends = model.predict_interval(X)
    np.testing.assert_allclose(ends.mean(axis=1), middle)
    np.testing.assert_allclose(ends[:, 1] - middle, scale * conformal_quantile(np.abs(model.conformity_scores_), 0.8))
    again = SplitConformalRegressor(model.estimator_, 0.8, "normalized", prefit=True).conformalize(X, y)
    np.testing.assert_allclose(again.conformity_scores_, (y - middle) / scale)


def test_sizes_of_errors_are_learnt():
    """Linear in |x|: the fitted widths follow the noise, whose size is 0.2 exp(x)."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 2, (1500, 1))
    y = X[:, 0] + 0.2 * np.exp(X[:, 0]) * rng.normal(size=1500)
    model = SplitConformalRegressor(
        LinearRegression(), 0.9, "normalized", residual_estimator=LinearRegression(), random_state=0
    ).fit(X, y)
    width = np.diff(model.predict_interval([[-1.0], [0.5], [2.0]]), axis=1)[:, 0]
    np.testing.assert_allclose(width / width[1], np.exp([-1.5, 0, 1.5]), rtol=0.15)
    parts = regression_coverage_score(y, model.predict_interval(X), groups=X[:, 0] > 0.5)
    assert abs(parts[True] - parts[False]) < 0.05
    same = SplitConformalRegressor(LinearRegression(), 0.9, random_state=0).fit(X, y).predict_interval(X)
    apart = regression_coverage_score(y, same, groups=X[:, 0] > 0.5)
    assert apart[False] - apart[True] > 0.1


def test_the_quantiles_without_an_estimator():
    """Those of a line without a penalty, as scikit-learn's with alpha=0."""
    X, y = noisy(300)
    ours = ConformalizedQuantileRegressor(None, 0.8, random_state=0).fit(X, y)
    theirs = ConformalizedQuantileRegressor(QuantileRegressor(alpha=0), 0.8, random_state=0).fit(X, y)
    np.testing.assert_allclose(ours.predict_interval(X), theirs.predict_interval(X), atol=1e-6)


@pytest.mark.parametrize(
    "base",
    [
        QuantileRegressor(alpha=0),
        GradientBoostingRegressor(loss="quantile", n_estimators=10, random_state=0),
        HistGradientBoostingRegressor(loss="quantile", quantile=0.5, max_iter=10),
        make_pipeline(StandardScaler(), QuantileRegressor(alpha=0)),
    ],
    ids=lambda b: type(b).__name__,
)
def test_any_regressor_of_quantiles(base):
    X, y = noisy(200)
    model = ConformalizedQuantileRegressor(base, 0.8, random_state=0).fit(X, y)
    ends = model.predict_interval(X)
    assert np.all(ends[:, 0] <= ends[:, 1]) and 0.7 < regression_coverage_score(y, ends) <= 1
    np.testing.assert_array_equal(model.predict(X), model.estimators_[2].predict(X))


def test_ends_that_would_cross_meet():
    X, y = noisy(100)
    far = [LinearRegression().fit(X, y - 100), LinearRegression().fit(X, y + 100), LinearRegression().fit(X, y)]
    model = ConformalizedQuantileRegressor(far, 0.1, prefit=True).fit(X, y)
    ends = model.predict_interval(X)
    assert np.all(ends[:, 0] <= ends[:, 1])


def test_fit_and_conformalize_as_two_steps():
    X, y = noisy(100)
    for model in (
        SplitConformalRegressor(LinearRegression(), test_size=None),
        ConformalizedQuantileRegressor(QuantileRegressor(alpha=0), test_size=None),
    ):
        model.fit(X[:60], y[:60])
        assert model.predict(X).shape == (100,)
        with pytest.raises(NotFittedError, match=r"call conformalize\(X, y\) first"):
            model.predict_interval(X)
        assert model.conformalize(X[60:], y[60:]).predict_interval(X).shape == (100, 2)
    model = SplitConformalRegressor(LinearRegression(), test_size=None).fit(X[:60], y[:60]).conformalize(X[60:], y[60:])
    prefit = SplitConformalRegressor(LinearRegression().fit(X[:60], y[:60]), prefit=True).fit(X[60:], y[60:])
    np.testing.assert_array_equal(model.predict_interval(X), prefit.predict_interval(X))
    again = model.conformalize(X[:30], y[:30])  # new samples replace the old ones
    assert again.conformity_scores_.shape == (30,)


def test_shapes_frames_and_weights():
    X, y = noisy(100)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    weight = np.random.default_rng(0).random(100)
    model = SplitConformalRegressor(LinearRegression(), [0.5, 0.8, 0.9], random_state=0)
    ends = model.fit(frame, y, sample_weight=weight).predict_interval(frame)
    assert ends.shape == (100, 2, 3) and [*model.feature_names_in_] == ["a", "b", "c"]
    assert np.all(np.diff(ends[:, 1] - ends[:, 0], axis=1) > 0)
    assert SplitConformalRegressor(LinearRegression(), random_state=0).fit(X.tolist(), y.tolist()).predict_interval(
        X.tolist()
    ).shape == (100, 2)  # fmt: skip
    cross = CrossConformalRegressor(LinearRegression(), [0.5, 0.9]).fit(frame, y, sample_weight=weight)
    assert cross.predict_interval(frame).shape == (100, 2, 2)
    one = SplitConformalRegressor(LinearRegression(), random_state=0).fit(X[:, :1].astype(np.float32), y)
    assert one.predict_interval(X[:, :1]).dtype == np.float64


def test_memory_is_bounded_by_blocks(monkeypatch):
    from wonderland.estimators import conformal_cross, meta

    X, y = noisy(60)
    model = CrossConformalRegressor(LinearRegression()).fit(X, y)
    whole = model.predict_interval(X)
    monkeypatch.setattr(conformal_cross, "blocks", lambda rows, width: meta.blocks(rows, width, most=7 * 60))
    np.testing.assert_allclose(model.predict_interval(X), whole, rtol=1e-12)


class Cubic(estimators.Regressor):
    """A fixed function, traced."""

    def fit(self, X, y):
        self._training_data(X, y)
        return self

    def _apply(self, X):
        return X[:, 0] ** 3 - X[:, 1]


def test_derivatives_of_predictions_go_through():
    X, y = noisy(50)
    for model in (SplitConformalRegressor(Cubic()), CrossConformalRegressor(Cubic())):
        slope = model.fit(X, y).input_gradient(X[:5])
        np.testing.assert_allclose(slope, np.stack([3 * X[:5, 0] ** 2, -np.ones(5), np.zeros(5)], axis=1))
    with pytest.raises(TypeError, match="got LinearRegression"):
        SplitConformalRegressor(LinearRegression()).fit(X, y).input_gradient(X)


# What goes wrong -----------------------------------------------------------------------------------------------------


def test_too_few_samples():
    X, y = noisy(20)
    with pytest.warns(UserWarning, match="5 samples are too few for confidence level 0.9: .*at least 9"):
        model = SplitConformalRegressor(LinearRegression(), 0.9, random_state=0).fit(X, y)
    assert np.all(np.isinf(model.predict_interval(X)))
    with pytest.warns(UserWarning, match="8 samples are too few for confidence level 0.9"):
        CrossConformalRegressor(LinearRegression(), 0.9).fit(X[:8], y[:8]).predict_interval(X)
    for kind in (SplitConformalRegressor, ConformalizedQuantileRegressor):  # each end is missed by 5 %
        with pytest.warns(UserWarning, match="18 samples are too few for confidence level 0.9: .*at least 19"):
            kind(symmetric=False, test_size=18).fit(*noisy(40))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kind(symmetric=False, test_size=19).fit(*noisy(40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one side is infinite because it is asked for
        model = SplitConformalRegressor(LinearRegression(), 0.8, side="upper", random_state=0).fit(X, y)
        ends = model.predict_interval(X)
    assert np.all(ends[:, 0] == -np.inf) and np.all(np.isfinite(ends[:, 1]))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SplitConformalRegressor(LinearRegression(), 90), "between 0 and 1, or a list of such, got 90: 0.9 for 90 %"),
        (SplitConformalRegressor(LinearRegression(), [0.5, 1.0]), "between 0 and 1"),
        (SplitConformalRegressor(LinearRegression(), "0.9"), "between 0 and 1, or a list of such, got '0.9'"),
        (SplitConformalRegressor(LinearRegression(), 0.9, "relative"), "one of 'absolute', 'gamma', 'normalized'"),
        (SplitConformalRegressor(LinearRegression(), side="left"), "side is one of"),
        (SplitConformalRegressor(Ridge(), 0.9, "normalized", prefit=True), "needs a residual_estimator"),
        (CrossConformalRegressor(LinearRegression(), method="cv"), "method is one of 'plus', 'minmax', 'base'"),
        (CrossConformalRegressor(LinearRegression(), cv=ShuffleSplit(3)), "leave out each sample exactly once"),
        (CrossConformalRegressor(LinearRegression(), 0.9, "normalized"), "one of 'absolute', 'gamma'"),
        (ConformalizedQuantileRegressor(LinearRegression()), "isn't set to regress a quantile"),
        (ConformalizedQuantileRegressor(GradientBoostingRegressor()), 'alpha with loss="quantile"'),
        (ConformalizedQuantileRegressor(HistGradientBoostingRegressor()), "isn't set to regress a quantile"),
        (ConformalizedQuantileRegressor(QuantileRegressor(), [0.8, 0.9]), "is one number"),
        (ConformalizedQuantileRegressor(QuantileRegressor(), prefit=True), "a list of three"),
        (JackknifeAfterBootstrapRegressor(LinearRegression(), n_resamplings=2), "take more, n_resamplings=4"),
        (JackknifeAfterBootstrapRegressor(LinearRegression(), n_resamplings=0), "at least 1, got 0"),
    ],
)
def test_wrong_settings(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*noisy(50))


@pytest.mark.parametrize(
    ("scores", "level", "message"),
    [([1.0, 2], 90, "levels are from 0 to 1, got 90"), ([1.0, 2], np.nan, "got nan"), ([1.0, 2], "a", "got 'a'"),
     ([1.0, np.nan], 0.5, "none of them NaN"), (3.0, 0.5, r"got shape \(\)")],
)  # fmt: skip
def test_wrong_quantiles(scores, level, message):
    with pytest.raises(ValueError, match=message):
        estimators.conformal_quantile(scores, level)


def test_whole_numbers_of_numpy_are_numbers_of_folds():
    X, y = noisy(20)
    one, other = (CrossConformalRegressor(LinearRegression(), cv=cv).fit(X, y) for cv in (-1, np.int64(-1)))
    np.testing.assert_array_equal(one.predict_interval(X), other.predict_interval(X))
    with pytest.raises(ValueError, match="30 folds need 30 samples of each class"):
        estimators.CalibratedClassifierCV(cv=np.int64(30)).fit(X, np.arange(20) % 2)


def test_wrong_data():
    X, y = noisy(50)
    with pytest.raises(ValueError, match="NaN"):
        SplitConformalRegressor(LinearRegression()).fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="y contains NaN"):
        SplitConformalRegressor(LinearRegression()).fit(X, np.where(y > 10, np.nan, y))
    with pytest.raises(ValueError, match=r"gamma.* have to be above 0, got -"):
        SplitConformalRegressor(LinearRegression(), 0.9, "gamma").fit(X, y - 20)
    with pytest.raises(ValueError, match=r"\(50, 2\)"):
        SplitConformalRegressor(LinearRegression()).fit(X, np.stack([y, y], axis=1))
    with pytest.raises(NotFittedError):
        SplitConformalRegressor(LinearRegression()).predict_interval(X)
    with pytest.raises(NotFittedError):
        SplitConformalRegressor(LinearRegression()).conformalize(X, y)
    with pytest.raises(ValueError, match="expecting 3 features"):
        SplitConformalRegressor(LinearRegression()).fit(X, y).predict_interval(X[:, :2])


def test_constant_columns_and_more_features_than_samples():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 60)), rng.normal(size=40)
    X[:, 0] = 1
    ends = SplitConformalRegressor(Ridge(), 0.5, random_state=0).fit(X, y).predict_interval(X)
    assert np.all(np.isfinite(ends))
    exact = SplitConformalRegressor(LinearRegression(), 0.5, "normalized", residual_estimator=Ridge(), random_state=0)
    line = exact.fit(X[:, :1] + np.arange(40)[:, None], np.arange(40.0))  # errors that are nearly all zero
    assert np.all(np.isfinite(line.predict_interval(X[:, :1])))


# Coverage and width --------------------------------------------------------------------------------------------------


def test_scores_of_intervals():
    ends = np.array([[0.0, 1], [0, 2], [1, 3], [5, 6]])
    y = [1.0, 3, 1, 5.5]
    assert regression_coverage_score(y, ends) == 0.75 and regression_mean_width_score(ends) == 1.5
    assert regression_coverage_score(y, ends, groups=["a", "b", "a", "b"]) == {"a": 1.0, "b": 0.5}
    assert regression_mean_width_score(ends, groups=[0, 0, 0, 1]) == {0: pytest.approx(5 / 3), 1: 1.0}
    both = np.stack([ends, ends + 10], axis=2)
    np.testing.assert_array_equal(regression_coverage_score(y, both), [0.75, 0])
    np.testing.assert_array_equal(regression_mean_width_score(both), [1.5, 1.5])
    for wrong in (([np.nan, 3, 1, 5.5], ends), (y, np.where(ends == 6, np.nan, ends))):
        with pytest.raises(ValueError, match="NaN"):
            regression_coverage_score(*wrong)
    with pytest.raises(ValueError, match=r"got \(3,\) and \(4, 2\)"):
        regression_coverage_score(y[:3], ends)
    with pytest.raises(ValueError, match=r"\(n, 2\) or \(n, 2, levels\), got \(2, 4\)"):
        regression_mean_width_score(ends.T)
    with pytest.raises(ValueError, match=r"label for each sample, \(4,\), got \(2,\)"):
        regression_mean_width_score(ends, groups=[1, 2])
