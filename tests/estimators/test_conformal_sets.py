"""Sets of classes: coverage over 200 splits, for all and by class, MAPIE's sets, the largest threshold, bad input."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from wonderland import estimators
from wonderland.estimators import (
    CrossConformalClassifier,
    SplitConformalClassifier,
    aps_scores,
    classification_coverage_score,
    classification_mean_width_score,
    conformal_quantile,
    lac_scores,
    list_sets,
    raps_scores,
    top_k_scores,
)

CENTRES = np.array([[0.0, 0], [1.6, 1], [2.4, 0], [0, 2.2]])


def clouds(n, seed=0):
    """Four classes of different frequency that overlap."""
    rng = np.random.default_rng(seed)
    y = rng.choice(4, n, p=[0.4, 0.2, 0.2, 0.2])
    return CENTRES[y] + rng.normal(size=(n, 2)), y


class Bayes(estimators.Classifier):
    """The classifier that knows the law of `clouds`, up to a temperature that makes it over-confident."""

    def fit(self, X, y):
        self._training_labels(X, y)
        self.classes_ = np.arange(4)
        return self

    def _apply(self, X):
        distance = np.sum((X[:, None, :] - CENTRES) ** 2, axis=2)
        return 2 * (np.log(np.array([0.4, 0.2, 0.2, 0.2])) - distance / 2)


POOL = clouds(4000)
MODEL = Bayes().fit(*clouds(100, 1))
CLAIMED = MODEL.predict_proba(POOL[0])


class Looked(ClassifierMixin, BaseEstimator):
    """The probabilities of `POOL`, looked up by the number of the sample."""

    classes_ = np.arange(4)

    def predict_proba(self, X):
        return CLAIMED[X[:, 0]]


def over_splits(splits=200, calibration=1500, **how):
    """Coverage of all, by class, and mean size, for splits of the samples."""
    model = SplitConformalClassifier(Looked(), prefit=True, **{"confidence_level": 0.9} | how)
    X, y = np.arange(len(POOL[1]))[:, None], POOL[1]
    found = []
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(y))
        rows, rest = order[:calibration], order[calibration:]
        sets = model.set_params(random_state=seed).conformalize(X[rows], y[rows]).predict_set(X[rest])
        parts = classification_coverage_score(y[rest], sets, groups=y[rest])
        found.append([classification_coverage_score(y[rest], sets), *parts.values(), sets.sum(axis=1).mean()])
    return np.mean(found, axis=0)


# Coverage over 200 splits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
def test_coverage(score):
    coverage = over_splits(conformity_score=score)
    assert coverage[0] == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
def test_coverage_by_class(score):
    coverage = over_splits(conformity_score=score, by_class=True)
    np.testing.assert_allclose(coverage[:5], 0.9, atol=0.01)
    together = over_splits(20, conformity_score=score)
    assert np.max(np.abs(together[1:5] - 0.9)) > 0.02  # without, it is only right on average


def test_sizes():
    """LAC has the smallest sets; ranks cover more than asked, since they are whole numbers."""
    names = ("lac", "aps", "top_k")
    lac, aps, top = (over_splits(30, confidence_level=0.8, conformity_score=score) for score in names)
    assert lac[-1] < aps[-1] < top[-1] == 2 and top[0] > 0.85


def test_without_random_numbers_it_covers_more():
    """Of two classes the second rank is 1 for all, so that with many mistakes the quantile is 1, and sets are full."""
    rng = np.random.default_rng(0)
    p = np.stack([rng.uniform(0.5, 1, 3000)] * 2, axis=1)
    p[:, 1] = 1 - p[:, 0]
    y = (rng.random(3000) < 0.3).astype(int)
    own = aps_scores(p)[np.arange(3000), y]
    assert conformal_quantile(own, 0.9) == 1
    u = rng.random(3000)
    scores = aps_scores(p, u)
    inside = scores[1500:] <= conformal_quantile(scores[np.arange(1500), y[:1500]], 0.9)
    assert inside[np.arange(1500), y[1500:]].mean() == pytest.approx(0.9, abs=0.02)


def test_samples_that_come_one_at_a_time():
    """Each has a random number of its own: with one for all, coverage would depend on it."""
    X, y = POOL[0][:2000], POOL[1][:2000]
    found = []
    for seed in (0, 4, 9):
        model = SplitConformalClassifier(MODEL, 0.9, "aps", prefit=True, random_state=seed).conformalize(X, y)
        alone = np.concatenate([model.predict_set(x[None]) for x in POOL[0][2000:3000]])
        found.append(classification_coverage_score(POOL[1][2000:3000], alone))
    np.testing.assert_allclose(found, 0.9, atol=0.025)


class Means(ClassifierMixin, BaseEstimator):
    """Gaussians around the classes' means, in a few lines, since it is fitted thousands of times."""

    def fit(self, X, y):
        self.classes_, count = np.unique(y, return_counts=True)
        self.means_, self.prior_ = np.stack([X[y == c].mean(axis=0) for c in self.classes_]), np.log(count / len(y))
        return self

    def predict_proba(self, X):
        return softmax(self.prior_ - np.sum((X[:, None] - self.means_) ** 2, axis=2) / 2, axis=1)


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_cross_coverage(score):
    """200 data sets of 1,000 samples in five folds: of all and of each class."""
    inside, labels, by_class = [], [], []
    for seed in range(200):
        X, y = clouds(2000, seed=100 + seed)
        model = CrossConformalClassifier(Means(), 0.9, score, random_state=seed).fit(X[:1000], y[:1000])
        labels.append(y[1000:])
        for found, each in ((inside, False), (by_class, True)):
            sets = model.set_params(by_class=each).predict_set(X[1000:])
            found.append(sets[np.arange(1000), y[1000:]])
    labels = np.concatenate(labels)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)
    for c in range(4):
        assert np.concatenate(by_class)[labels == c].mean() == pytest.approx(0.9, abs=0.01)


# Definitions ---------------------------------------------------------------------------------------------------------


def test_the_largest_threshold_that_keeps_coverage():
    """{k: p_k >= gamma} with gamma = 1 - q: any larger one has the true class in too few of the sets."""
    X, y = POOL[0][:200], POOL[1][:200]
    model = SplitConformalClassifier(MODEL, 0.9, prefit=True).conformalize(X, y)
    gamma = 1 - model.quantiles_[0]
    own = MODEL.predict_proba(X)[np.arange(200), y]
    needed = np.ceil(0.9 * 201)
    assert np.sum(own >= gamma - 1e-12) == needed and np.sum(own > gamma + 1e-12) < needed
    assert abs(gamma - 0.1) > 0.02  # it isn't 1 - level
    new = POOL[0][200:300]
    np.testing.assert_array_equal(model.predict_set(new), MODEL.predict_proba(new) >= gamma)


def test_scores_by_loops():
    rng = np.random.default_rng(0)
    p, u = softmax(2 * rng.normal(size=(30, 6)), axis=1), rng.random(30)
    for i, k in np.ndindex(p.shape):
        above = p[i] > p[i, k]
        assert lac_scores(p)[i, k] == 1 - p[i, k]
        assert top_k_scores(p)[i, k] == 1 + above.sum()
        assert aps_scores(p)[i, k] == pytest.approx(p[i][above].sum() + p[i, k])
        assert aps_scores(p, u)[i, k] == pytest.approx(p[i][above].sum() + u[i] * p[i, k])
        penalty = 0.2 * max(0, 1 + above.sum() - 2)
        assert raps_scores(p, u, 0.2, k_reg=2)[i, k] == pytest.approx(p[i][above].sum() + u[i] * p[i, k] + penalty)
    np.testing.assert_array_equal(top_k_scores([[0.4, 0.4, 0.2]]), [[1, 1, 3]])
    thirds = np.full((1, 3), 1 / 3)
    assert aps_scores(thirds).max() == 1  # to the last digit, so that a quantile of 1 has all


def test_cross_sets_by_loops():
    X, y = clouds(60)
    model = CrossConformalClassifier(GaussianNB(), 0.8, cv=StratifiedKFold(3)).fit(X, y)
    new = clouds(20, seed=9)[0]
    below = np.zeros((20, 4))
    for train, rest in StratifiedKFold(3).split(X, y):
        fit = GaussianNB().fit(X[train], y[train])
        for i in rest:
            below += 1 - fit.predict_proba(X[i : i + 1])[0, y[i]] < 1 - fit.predict_proba(new)
    np.testing.assert_array_equal(model.predict_set(new), below < np.ceil(0.8 * 61))


# MAPIE's sets --------------------------------------------------------------------------------------------------------


def mapie_data():
    rng = np.random.default_rng(7)
    rng.normal(size=(120, 3)), rng.normal(size=120)
    Z, c = rng.normal(size=(400, 2)), rng.integers(0, 4, 400)
    return Z + 1.2 * np.array([[0, 0], [1, 1], [2, 0], [0, 2.0]])[c], c


def summary(sets, c):
    """Size of all sets, how many have the true class, and a sum that depends on which classes are in which sets."""
    weight = np.arange(1, 101)[:, None, None] * np.arange(1, 5)[:, None]
    return sets.sum((0, 1)).tolist(), sets[np.arange(100), c].sum(0).tolist(), (sets * weight).sum((0, 1)).tolist()


@pytest.mark.parametrize(
    ("score", "figures"),
    [("lac", ([129, 194], [84, 94], [16313, 22932])), ("top_k", ([200, 300], [92, 100], [23887, 35666]))],
)
def test_mapies_split_sets(score, figures):
    """MAPIE 1.6.0 at levels 0.8 and 0.9, around the same GaussianNB."""
    Z, c = mapie_data()
    base = GaussianNB().fit(Z[:150], c[:150])
    model = SplitConformalClassifier(base, [0.8, 0.9], score, prefit=True).conformalize(Z[150:300], c[150:300])
    assert summary(model.predict_set(Z[300:]), c[300:]) == figures


def test_mapies_randomised_sets():
    """MAPIE subtracts u p where the paper adds it, and draws the same u for calibration and prediction."""
    Z, c = mapie_data()
    base = GaussianNB().fit(Z[:150], c[:150])
    own = aps_scores(base.predict_proba(Z[150:300]), 1 - np.random.RandomState(3).uniform(size=150))
    quantile = conformal_quantile(own[np.arange(150), c[150:300]], [0.8, 0.9])
    np.testing.assert_allclose(quantile, [0.8623680979959079, 0.9357489961302375], rtol=1e-12)
    new = aps_scores(base.predict_proba(Z[300:]), 1 - np.random.RandomState(3).uniform(size=100))
    assert summary(new[:, :, None] <= quantile, c[300:]) == ([160, 193], [90, 93], [19285, 23464])


@pytest.mark.parametrize(
    ("agg_scores", "figures"),
    [("mean", ([125, 177], [82, 91], [15969, 21711])), ("crossval", ([129, 179], [84, 91], [16256, 21956]))],
)
def test_mapies_cross_sets(agg_scores, figures):
    Z, c = mapie_data()
    model = CrossConformalClassifier(GaussianNB(), [0.8, 0.9], cv=StratifiedKFold(5), agg_scores=agg_scores)
    assert summary(model.fit(Z[:300], c[:300]).predict_set(Z[300:]), c[300:]) == figures


# As an estimator -----------------------------------------------------------------------------------------------------


def test_labels_frames_lists_and_repetition():
    X, y = clouds(300)
    names = np.array(["a", "b", "c", "d"])[y]
    frame = pd.DataFrame(X, columns=["u", "v"])
    model = SplitConformalClassifier(GaussianNB(), 0.9, "aps", random_state=0).fit(frame, names)
    sets = model.predict_set(frame)
    assert sets.shape == (300, 4) and sets.dtype == bool
    np.testing.assert_array_equal(sets, model.predict_set(frame))
    np.testing.assert_array_equal(sets, pickle.loads(pickle.dumps(model)).predict_set(frame))
    same = SplitConformalClassifier(GaussianNB(), 0.9, "aps", random_state=0).fit(frame, names)
    np.testing.assert_array_equal(sets, same.predict_set(frame))
    assert classification_coverage_score(names, sets, classes=model.classes_) > 0.8
    listed = list_sets(sets, model.classes_)
    assert [len(labels) for labels in listed] == sets.sum(axis=1).tolist() and {*listed[0]} <= {*"abcd"}
    np.testing.assert_array_equal(model.predict(frame), model.estimator_.predict(frame))
    np.testing.assert_array_equal(model.predict_proba(frame), model.estimator_.predict_proba(frame))
    many = SplitConformalClassifier(GaussianNB(), [0.5, 0.9], by_class=True, random_state=0).fit(X.tolist(), y.tolist())
    assert many.predict_set(X).shape == (300, 4, 2) and many.quantiles_.shape == (4, 2)
    assert np.all(many.predict_set(X)[:, :, 0] <= many.predict_set(X)[:, :, 1])


def test_sets_that_would_be_empty():
    X, y = POOL[0][:500], POOL[1][:500]
    empty = SplitConformalClassifier(MODEL, 0.5, prefit=True).conformalize(X, y).predict_set(X)
    full = SplitConformalClassifier(MODEL, 0.5, prefit=True, allow_empty=False).conformalize(X, y).predict_set(X)
    sizes = empty.sum(axis=1)
    assert (sizes == 0).any() and (full.sum(axis=1) == np.maximum(sizes, 1)).all()
    np.testing.assert_array_equal(np.argmax(full[sizes == 0], axis=1), MODEL.predict(X)[sizes == 0])


def test_a_class_that_was_not_there_to_be_fitted():
    """Its probability is 0, and it is in a set only if sets have all."""
    X, y = clouds(80)
    rare = np.append(y, 7)
    model = SplitConformalClassifier(GaussianNB(), 0.8, random_state=0).fit(np.append(X, [[9.0, 9]], axis=0), rare)
    assert [*model.classes_] == [0, 1, 2, 3, 7] and model.predict_set(X).shape == (80, 5)
    if 7 not in model.estimator_.classes_:
        assert not model.predict_set(X)[:, 4].any()


def test_two_steps_and_derivatives():
    X, y = clouds(200)
    model = SplitConformalClassifier(GaussianNB(), test_size=None).fit(X[:100], y[:100])
    with pytest.raises(NotFittedError, match=r"call conformalize\(X, y\) first"):
        model.predict_set(X)
    sets = model.conformalize(X[100:], y[100:]).predict_set(X)
    prefit = SplitConformalClassifier(GaussianNB().fit(X[:100], y[:100]), prefit=True).fit(X[100:], y[100:])
    np.testing.assert_array_equal(sets, prefit.predict_set(X))
    traced = SplitConformalClassifier(Bayes()).fit(X, y)
    np.testing.assert_allclose(traced.input_gradient(X[:5]), Bayes().fit(X, y).input_gradient(X[:5]))


def test_too_few_samples():
    X, y = clouds(20)
    with pytest.warns(UserWarning, match="5 samples are too few for confidence level 0.9: the sets have all classes"):
        model = SplitConformalClassifier(MODEL, 0.9, prefit=True).conformalize(X[:5], y[:5])
    assert model.predict_set(X).all()
    rows = np.concatenate([np.flatnonzero(POOL[1] != 3)[:200], np.flatnonzero(POOL[1] == 3)[:2]])
    model = SplitConformalClassifier(MODEL, 0.9, by_class=True, prefit=True)
    with pytest.warns(UserWarning, match="2 samples are too few .*: class 3 is in all sets"):
        model.conformalize(POOL[0][rows], POOL[1][rows])
    sets = model.predict_set(X)
    assert sets[:, 3].all() and not sets[:, :3].all()


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (SplitConformalClassifier(GaussianNB(), 1.5), ValueError, "between 0 and 1"),
        (SplitConformalClassifier(GaussianNB(), 0.9, "saps"), ValueError, "'lac', 'aps', 'raps', 'top_k', got 'saps'"),
        (SplitConformalClassifier(GaussianNB(), penalty=-1), ValueError, "penalty is a number of at least 0"),
        (SplitConformalClassifier(GaussianNB(), penalty=np.inf), ValueError, "penalty is a finite number"),
        (SplitConformalClassifier(GaussianNB(), k_reg=-1), ValueError, "k_reg is a whole number of at least 0"),
        (SplitConformalClassifier(LinearSVC()), TypeError, r"no predict_proba; CalibratedClassifierCV\(LinearSVC"),
        (CrossConformalClassifier(GaussianNB(), agg_scores="sum"), ValueError, "'crossval', 'mean', got 'sum'"),
        (CrossConformalClassifier(LinearSVC()), TypeError, "no predict_proba"),
    ],
)
def test_wrong_settings(model, error, message):
    with pytest.raises(error, match=message):
        model.fit(*clouds(100))


def test_wrong_data():
    X, y = clouds(50)
    with pytest.raises(ValueError, match="only one class"):
        SplitConformalClassifier(GaussianNB()).fit(X, np.zeros(50))
    with pytest.raises(ValueError, match="NaN"):
        SplitConformalClassifier(GaussianNB()).fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="Unknown label type"):
        SplitConformalClassifier(GaussianNB()).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="isn't known: 9"):
        SplitConformalClassifier(MODEL, prefit=True).conformalize(X, np.where(y == 3, 9, y))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        SplitConformalClassifier(GaussianNB()).fit(X, y).conformalize(X, y[:-1])
    with pytest.raises(NotFittedError):
        SplitConformalClassifier(GaussianNB()).predict_set(X)
    with pytest.raises(NotFittedError):
        CrossConformalClassifier(GaussianNB()).predict_set(X)


def test_an_estimator_that_was_fitted_before():
    """It has to be, and parameters of `fit` would go nowhere."""
    X, y = clouds(50)
    for model in (
        SplitConformalClassifier(GaussianNB(), prefit=True),
        estimators.CalibratedClassifierCV(GaussianNB(), cv="prefit"),
        estimators.CostSensitiveClassifier(GaussianNB(), prefit=True),
    ):
        with pytest.raises(NotFittedError, match="this GaussianNB is to be fitted before"):
            model.fit(X, y)
    line, median = estimators.LinearRegression().fit(X, y), estimators.QuantileRegressor().fit(X, y)
    for model in (
        SplitConformalClassifier(MODEL, prefit=True),
        estimators.CostSensitiveClassifier(MODEL, prefit=True),
        estimators.SplitConformalRegressor(line, prefit=True),
        estimators.ConformalizedQuantileRegressor([median] * 3, prefit=True),
    ):
        with pytest.raises(ValueError, match="fits nothing, so that sample_weight has no effect"):
            model.fit(X, y, sample_weight=np.ones(50))


def test_scores_of_sets():
    sets = np.array([[True, False, False], [True, True, False], [False, False, False], [True, True, True]])
    y = [0, 2, 1, 1]
    assert classification_coverage_score(y, sets) == 0.5 and classification_mean_width_score(sets) == 1.5
    assert classification_coverage_score(y, sets, groups=sets.sum(axis=1)) == {0: 0, 1: 1, 2: 0, 3: 1}
    assert classification_coverage_score(np.array([*"axbb"]), sets, classes=[*"abx"]) == 0.5
    assert classification_mean_width_score(sets, groups=[0, 0, 1, 1]) == {0: 1.5, 1: 1.5}
    both = np.stack([sets, ~sets], axis=2)
    np.testing.assert_array_equal(classification_coverage_score(y, both), [0.5, 0.5])
    with pytest.raises(ValueError, match=r"bools \(n, classes\)"):
        classification_mean_width_score(sets.astype(int))
    with pytest.raises(ValueError, match="one of 3 classes"):
        classification_coverage_score([0, 1, 2, 3], sets)
    with pytest.raises(ValueError, match=r"got \(2,\) and \(4, 3\)"):
        classification_coverage_score([0, 1], sets)
    with pytest.raises(ValueError, match=r"sets are \(n, 2\) for 2 classes"):
        list_sets(sets, ["a", "b"])
