"""Calibration: scikit-learn's probabilities, closed forms, SciPy's isotonic regression, and an overfitted network."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import sklearn.isotonic
from scipy.special import expit, logit, softmax
from sklearn.calibration import CalibratedClassifierCV as Theirs
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

import wonderland as wl
from wonderland import estimators
from wonderland.estimators import CalibratedClassifierCV, IsotonicRegression, MLPClassifier
from wonderland.train import metrics


class Scored(estimators.Classifier):
    """A linear classifier that was never fitted, as an estimator of wonderland to differentiate through."""

    def __init__(self, outputs=1):
        self.outputs = outputs

    def fit(self, X, y, sample_weight=None):
        X, _, _ = self._training_labels(X, y, sample_weight)
        self.weight_ = np.random.default_rng(1).normal(size=(X.shape[1], self.outputs))
        return self

    def _apply(self, X):
        scores = X @ self.weight_
        return scores[:, 0] if self.outputs == 1 else scores


def classes(n=150, k=3, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 4)), rng.integers(0, k, n)
    X[:, 0] += y
    X[:, 1] -= (y == 1) * 1.5
    return X, y, rng.integers(1, 4, n).astype(float)


# Temperature, Platt, vector ------------------------------------------------------------------------------------------


def test_the_temperature_of_one_confidence_in_closed_form():
    """Scores of +-3 that are right three times in four: 3 / T is the logit of 3/4."""
    labels = np.tile([1, 1, 1, 0], 25)
    assert estimators.temperature_scaling(np.full(100, 3.0), labels) == pytest.approx(3 / np.log(3), rel=1e-12)
    two = np.stack([np.zeros(100), np.full(100, 3.0)], axis=1)
    assert estimators.temperature_scaling(two, labels) == pytest.approx(3 / np.log(3), rel=1e-12)
    weight = np.where(labels == 1, 1.0, 2.0)
    assert estimators.temperature_scaling(two, labels, weight) == pytest.approx(3 / logit(0.6), rel=1e-12)


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_the_temperature_is_the_minimum(scale):
    rng = np.random.default_rng(2)
    z = rng.normal(size=(300, 5))
    y = np.array([rng.choice(5, p=p) for p in softmax(z, axis=1)])

    def loss(log_t):
        return -np.mean(np.log(softmax(scale * z / np.exp(log_t), axis=1)[np.arange(300), y]))

    T = estimators.temperature_scaling(scale * z, y)
    best = scipy.optimize.minimize_scalar(loss, bounds=(np.log(T) - 1, np.log(T) + 2), options={"xatol": 1e-12})
    assert np.log(T) == pytest.approx(best.x, abs=1e-6) and loss(np.log(T)) <= best.fun + 1e-15
    assert estimators.temperature_scaling(7 * scale * z, y) == pytest.approx(7 * T, rel=1e-9)


def test_no_finite_temperature_is_best():
    z = np.random.default_rng(0).normal(size=(40, 3))
    assert estimators.temperature_scaling(z, z.argmax(1)) == pytest.approx(np.exp(-10))  # always right
    assert estimators.temperature_scaling(z, z.argmin(1)) == pytest.approx(np.exp(10))  # always wrong
    assert estimators.temperature_scaling(np.ones((6, 3)), np.arange(6) % 3) == 1  # no score says anything
    a, b = estimators.platt_scaling([-2.0, -1, 1, 2], [0, 0, 1, 1])  # Platt's targets keep these finite
    np.testing.assert_allclose(expit(-(a * np.array([-2, -1, 1, 2]) + b)).sum(), 2)
    assert np.isfinite([a, b]).all() and a < 0


@pytest.mark.parametrize("scale", [0.1, 1.0, 1e4])
def test_platts_sigmoid(scale):
    from sklearn.calibration import _SigmoidCalibration

    rng = np.random.default_rng(0)
    s = scale * rng.normal(size=200)
    y, weight = (rng.random(200) < expit(s / scale - 1)).astype(int), rng.random(200)
    for w in (None, weight):
        a, b = estimators.platt_scaling(s, y, w)
        theirs = _SigmoidCalibration().fit(s, y, w)
        np.testing.assert_allclose(expit(-(a * s + b)), theirs.predict(s), atol=1e-6)
    assert estimators.platt_scaling(np.ones(10), np.arange(10) % 2) == pytest.approx((0, 0))  # a useless score


def test_platts_sigmoid_ends_where_the_loss_rounds():
    """Steps of these scores never become as short as their digits allow."""
    rng = np.random.default_rng(128)
    s = rng.normal(size=60)
    y = (rng.random(60) < expit(8 * s)).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a, b = estimators.platt_scaling(s, y)
    p, target = expit(-(a * s + b)), np.where(y == 1, (y.sum() + 1) / (y.sum() + 2), 1 / (60 - y.sum() + 2))
    np.testing.assert_allclose([np.sum(p - target), np.sum((p - target) * s)], 0, atol=1e-9)


def test_vector_scaling_can_not_be_improved():
    X, y, weight = classes()
    z = LogisticRegression(C=100).fit(X[:60], y[:60]).decision_function(X)
    w, b = estimators.vector_scaling(z, y, weight)

    def loss(w, b):
        return -np.sum(weight * np.log(softmax(w * z + b, axis=1)[np.arange(len(y)), y]))

    best = loss(w, b)
    assert best < loss(np.full(3, 1 / estimators.temperature_scaling(z, y, weight)), 0)
    for step in 1e-4 * np.eye(3):
        assert min(loss(w + step, b), loss(w - step, b), loss(w, b + step), loss(w, b - step)) > best
    s = z[:, 1]
    p = estimators.vector_scaling(s, y == 1)  # of two classes: a logistic regression of the score
    theirs = LogisticRegression(C=1e12, tol=1e-10).fit(s[:, None], y == 1)
    ours = softmax(p[0] * np.stack([-s / 2, s / 2], axis=1) + p[1], axis=1)
    np.testing.assert_allclose(ours, theirs.predict_proba(s[:, None]), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: estimators.temperature_scaling(np.ones((3, 2)), [0, 1]), r"got \(3, 2\) and \(2,\)"),
        (lambda: estimators.temperature_scaling(np.ones((2, 2)), [0, 2]), "integers from 0 to 1"),
        (lambda: estimators.temperature_scaling(np.ones((2, 2)), [0.0, 1.0]), "are integers from"),
        (lambda: estimators.temperature_scaling([[np.nan, 1.0]], [0]), "finite, got nan"),
        (lambda: estimators.temperature_scaling(np.ones((2, 2)), [0, 1], [1.0, -1.0]), "not negative, got -1.0"),
        (lambda: estimators.platt_scaling(np.ones((2, 2)), [0, 1]), r"scores are \(n,\)"),
        (lambda: estimators.temperature_scaling(np.empty((0, 2)), np.empty(0, int)), r"got \(0, 2\)"),
    ],
)
def test_wrong_scores(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Isotonic regression -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3, 30, 3000])
def test_pooling_is_scipys(n, increasing):
    rng = np.random.default_rng(n)
    noise = rng.normal(size=n)
    cascade = np.append(np.arange(n - 1.0), -1e4)  # its last number pools all, one after the other
    for y in (noise, np.sort(noise), -np.arange(n) * 1.0, cascade, rng.integers(0, 3, n), np.arange(n) + 3 * noise):
        for w in (None, rng.random(n) + 0.1):
            found = estimators.isotonic_regression(y, sample_weight=w, increasing=increasing)
            expected = scipy.optimize.isotonic_regression(y, weights=w, increasing=increasing).x
            np.testing.assert_allclose(found, expected, atol=1e-9)
    assert estimators.isotonic_regression(noise.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(
        estimators.isotonic_regression(noise, y_min=-0.2, y_max=0.3),
        sklearn.isotonic.isotonic_regression(noise, y_min=-0.2, y_max=0.3),
    )


@pytest.mark.parametrize("increasing", [True, False, "auto"])
def test_the_estimator_is_scikit_learns(increasing):
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=80), 1)  # with ties
    y, w = 2 * x + rng.normal(size=80), rng.integers(0, 3, 80).astype(float)
    new = np.linspace(-4, 4, 50)
    for bounds in ("clip", "nan"):
        ours = IsotonicRegression(increasing=increasing, out_of_bounds=bounds, y_max=1.5).fit(x, y, w)
        theirs = sklearn.isotonic.IsotonicRegression(increasing=increasing, out_of_bounds=bounds, y_max=1.5)
        np.testing.assert_allclose(ours.predict(new), theirs.fit(x, y, w).predict(new), atol=1e-12)
        np.testing.assert_array_equal(ours.predict(new[:, None]), ours.predict(new))
        np.testing.assert_array_equal(ours.transform(new), ours.predict(new))
        assert ours.increasing_ == theirs.increasing_
    np.testing.assert_allclose(ours.X_thresholds_, theirs.X_thresholds_)
    frame = pd.DataFrame({"x": x})
    assert [*IsotonicRegression().fit(frame, y).feature_names_in_] == ["x"]
    half = IsotonicRegression().fit(x.astype(np.float32), y.astype(np.float32))
    assert half.predict(new.astype(np.float32)).dtype == np.float32
    again = pickle.loads(pickle.dumps(half))
    np.testing.assert_array_equal(again.predict(new), half.predict(new))


@pytest.mark.filterwarnings("ignore:Confidence interval")
def test_the_direction_of_weighted_samples():
    """Weights are counts: scikit-learn's direction of the same samples, each as often as its weight says."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(50):
        x, y, count = (rng.integers(0, 6, 9) for _ in range(3))
        often = np.repeat(np.arange(9), count)
        found.append(IsotonicRegression(increasing="auto").fit(x, y, count).increasing_)
        if np.ptp(x[often]) and np.ptp(y[often]):
            assert found[-1] == sklearn.isotonic.check_increasing(x[often], y[often])
    assert 10 < np.sum(found) < 40


def test_the_slope_of_an_isotonic_function():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    model = IsotonicRegression().fit(x, x + 0.3 * rng.normal(size=30))
    at = np.array([[-2.0], [-0.6], [0.13], [0.3], [1.0], [9.0]])
    slope = (model.predict(at + 1e-6) - model.predict(at - 1e-6)) / 2e-6
    np.testing.assert_allclose(model.input_gradient(at)[:, 0], slope, atol=1e-6)
    assert slope.max() > 0.1 and slope[-1] == 0


def test_wrong_isotonic():
    with pytest.raises(ValueError, match="function of one feature"):
        IsotonicRegression().fit(np.ones((3, 2)), [1, 2, 3])
    with pytest.raises(ValueError, match="one of 'clip', 'nan', 'raise', got 'cut'"):
        IsotonicRegression(out_of_bounds="cut").fit([1, 2], [1, 2])
    model = IsotonicRegression(out_of_bounds="raise").fit([1, 2], [1, 2])
    with pytest.raises(ValueError, match=r"between 1\.0 and 2\.0 as in fit, got 3\.0"):
        model.predict([1.5, 3])
    with pytest.raises(ValueError, match=r"y\[weight > 0\]"):
        estimators.isotonic_regression([1, 2], sample_weight=[1, 0])
    with pytest.raises(ValueError, match="finite numbers"):
        estimators.isotonic_regression([1, np.nan])
    with pytest.raises(NotFittedError):
        IsotonicRegression().predict([1.0])


# The classifier ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [LinearSVC(), GaussianNB(), LogisticRegression()], ids=lambda b: type(b).__name__)
@pytest.mark.parametrize("method", ["temperature", "sigmoid", "isotonic"])
@pytest.mark.parametrize("k", [2, 3])
def test_scikit_learns_probabilities(base, method, k):
    X, y, weight = classes(k=k)
    names = np.array(["b", "a", "c"])[y]
    for ensemble, w in ((False, None), (False, weight), (True, weight)):
        ours = CalibratedClassifierCV(base, method=method, cv=3, ensemble=ensemble).fit(X, names, w)
        theirs = Theirs(base, method=method, cv=3, ensemble=ensemble).fit(X, names, w)
        np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
        np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
        assert len(ours.calibrated_classifiers_) == (3 if ensemble else 1)


@pytest.mark.parametrize("method", ["temperature", "sigmoid", "isotonic"])
def test_fitted_before(method):
    X, y, _ = classes()
    base = GaussianNB().fit(X[:60], y[:60])
    theirs = Theirs(FrozenEstimator(base), method=method, ensemble=False).fit(X[60:], y[60:]).predict_proba(X)
    ours = CalibratedClassifierCV(base, method=method, cv="prefit").fit(X[60:], y[60:])
    np.testing.assert_allclose(ours.predict_proba(X), theirs, atol=1e-6)
    frozen = CalibratedClassifierCV(FrozenEstimator(base), method=method).fit(X[60:], y[60:])
    np.testing.assert_allclose(frozen.predict_proba(X), theirs, atol=1e-6)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ours)).predict_proba(X), ours.predict_proba(X))


def test_the_methods_that_scale_logits():
    X, y, _ = classes()
    base = LogisticRegression(C=100).fit(X[:60], y[:60])
    z = base.decision_function(X)
    model = CalibratedClassifierCV(base, cv="prefit").fit(X[60:], y[60:])
    assert model.temperature_ == estimators.temperature_scaling(z[60:], y[60:])
    np.testing.assert_allclose(model.predict_proba(X), softmax(z / model.temperature_, axis=1))
    np.testing.assert_array_equal(model.predict(X), base.predict(X))
    w, b = estimators.vector_scaling(z[60:], y[60:])
    vector = CalibratedClassifierCV(base, cv="prefit", method="vector").fit(X[60:], y[60:])
    np.testing.assert_allclose(vector.predict_proba(X), softmax(w * z + b, axis=1))
    np.testing.assert_allclose(np.exp(vector.decision_function(X)), vector.predict_proba(X))
    both = y < 2
    two = CalibratedClassifierCV(LinearSVC(), method="vector").fit(X[both], y[both])
    np.testing.assert_allclose(expit(two.decision_function(X)), two.predict_proba(X)[:, 1])


@pytest.mark.parametrize("method", ["temperature", "sigmoid", "isotonic", "vector"])
@pytest.mark.parametrize("k", [2, 3])
def test_derivatives_of_calibrated_probabilities(method, k):
    X, y, _ = classes(k=k)
    model = CalibratedClassifierCV(Scored(1 if k == 2 else 3), method=method, cv=3).fit(X, y)
    x, h = X[:6], 1e-6
    np.testing.assert_allclose(wl.vmap(model.as_function())(x), model.predict_proba(x), atol=1e-12)
    found = model.input_gradient(pd.DataFrame(x))
    for f in range(4):
        step = h * np.eye(4)[f]
        expected = (model.predict_proba(x + step) - model.predict_proba(x - step)) / (2 * h)
        np.testing.assert_allclose(found[:, :, f], expected, atol=1e-6)
    with pytest.raises(TypeError, match="an estimator of wonderland inside, got GaussianNB"):
        CalibratedClassifierCV(GaussianNB()).fit(X, y).input_gradient(X)


def test_a_class_that_a_fold_has_not_seen():
    X, y = load_iris(return_X_y=True)  # sorted: without shuffling, each fold lacks a class
    with pytest.raises(ValueError, match=r"leaves only the classes \[1 2\] of \[0 1 2\]"):
        CalibratedClassifierCV(GaussianNB(), cv=KFold(3)).fit(X, y)
    assert CalibratedClassifierCV(GaussianNB(), cv=KFold(3, shuffle=True, random_state=0)).fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (CalibratedClassifierCV(GaussianNB(), method="platt"), "method is one of 'temperature', .*got 'platt'"),
        (CalibratedClassifierCV(GaussianNB(), cv="fitted"), "cv is one of 'prefit', got 'fitted'"),
        (CalibratedClassifierCV(GaussianNB(), cv=60), r"less than 60 examples: \d+\. Write cv="),
    ],
)
def test_wrong_settings(model, message):
    X, y, _ = classes()
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_wrong_data():
    X, y, _ = classes()
    with pytest.raises(ValueError, match="only one class"):
        CalibratedClassifierCV(GaussianNB()).fit(X, np.zeros(150))
    with pytest.raises(ValueError, match="NaN"):
        CalibratedClassifierCV(GaussianNB()).fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="not negative"):
        CalibratedClassifierCV(GaussianNB()).fit(X, y, -np.ones(150))
    with pytest.raises(ValueError, match="a class that isn't known: 9"):
        CalibratedClassifierCV(GaussianNB().fit(X, y), cv="prefit").fit(X, y + 9 * (y == 2) - 2 * (y == 2))
    with pytest.warns(UserWarning, match="weights are used for the calibration alone"):
        CalibratedClassifierCV(KNeighborsClassifier()).fit(X, y, np.ones(150))
    with pytest.raises(NotFittedError):
        CalibratedClassifierCV().predict_proba(X)
    with pytest.raises(TypeError, match="LinearRegression has neither decision_function nor predict_proba"):
        CalibratedClassifierCV(estimators.LinearRegression()).fit(X, y)
    with pytest.raises(TypeError, match="LinearRegression has no predict_proba: estimator is a classifier"):
        estimators.SplitConformalClassifier(estimators.LinearRegression()).fit(X, y)


class Blind(GaussianNB):
    """Says nothing where a feature is large."""

    def predict_proba(self, X):
        return np.where(X[:, :1] > 3, np.nan, super().predict_proba(X))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda: CalibratedClassifierCV(Blind()),
        lambda: estimators.CostSensitiveClassifier(Blind()),
        lambda: estimators.SplitConformalClassifier(Blind(), random_state=0),
        lambda: estimators.CrossConformalClassifier(Blind()),
    ],
)
def test_what_isnt_a_number_is_no_class(wrap):
    X, y, _ = classes()
    model = wrap().fit(np.minimum(X, 2.9), y)
    X_new = np.zeros((5, 4))
    X_new[[2, 4], 0] = 4
    for method in ("predict_proba", "predict", "predict_set"):
        if hasattr(model, method):
            with pytest.raises(ValueError, match=r"Blind gave NaN for 2 of 5 samples, the first at X\[2\]"):
                getattr(model, method)(X_new)


# An overfitted network -----------------------------------------------------------------------------------------------


def test_a_temperature_halves_the_error_of_an_overfitted_network():
    """Noisy digits, learnt by heart: training accuracy 1, test accuracy about 0.7, with confidences near 0.9."""
    digits, labels = load_digits(return_X_y=True)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(labels))
        X, y = digits[order] / 16 + rng.normal(0, 0.4, digits.shape), labels[order]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            net = MLPClassifier((64,), max_iter=60, learning_rate_init=0.01, random_state=seed).fit(X[:400], y[:400])
        model = CalibratedClassifierCV(net, cv="prefit").fit(X[400:800], y[400:800])
        before = metrics.calibration_error(net.predict_proba(X[800:]), y[800:], 15)
        after = metrics.calibration_error(model.predict_proba(X[800:]), y[800:], 15)
        assert net.score(X[:400], y[:400]) > 0.99 and before > 0.1
        assert after < before / 2 and model.temperature_ > 1.5
        assert model.score(X[800:], y[800:]) == net.score(X[800:], y[800:])
