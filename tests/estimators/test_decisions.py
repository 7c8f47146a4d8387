"""Decisions by cost: the book's table, brute force over actions, and classifiers that decide."""

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import wonderland as wl
from wonderland import estimators
from wonderland.estimators import CostSensitiveClassifier, decide, decision_threshold, expected_cost

MISSES = [[0, 10], [1, 0]]  # rows are predicted, columns true: to miss a 1 costs 10, a false alarm 1


class Sloped(estimators.Classifier):
    """Logits of a fixed matrix, traced."""

    def fit(self, X, y):
        self._training_labels(X, y)
        return self

    def _apply(self, X):
        return X @ np.array([[1.0, -1, 0.5], [0.2, 1, -1]])


def patients(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(1.5 - 2 * X[:, 0])), "ill", "healthy")


def test_the_books_table():
    """Predict 1 if and only if p > 1 / 11."""
    assert decision_threshold(MISSES) == pytest.approx(1 / 11, rel=1e-15)
    p = np.array([0.0, 1 / 11 - 1e-9, 1 / 11 + 1e-9, 0.5, 1.0])
    np.testing.assert_array_equal(decide(p, MISSES), [0, 0, 1, 1, 1])
    np.testing.assert_array_equal(decide(np.stack([1 - p, p], axis=1), MISSES), [0, 0, 1, 1, 1])
    np.testing.assert_allclose(expected_cost(p[3:], MISSES), [[5, 0.5], [10, 0]])
    np.testing.assert_array_equal(decide(p, np.transpose(MISSES)), [0, 0, 0, 0, 1])  # the other way round it isn't


@pytest.mark.parametrize(("actions", "classes"), [(2, 2), (3, 3), (5, 3), (2, 4)])
def test_by_brute_force(actions, classes):
    rng = np.random.default_rng(0)
    C, p = rng.normal(size=(actions, classes)), rng.dirichlet(np.ones(classes), 50)
    cost = np.array([[sum(C[i, j] * row[j] for j in range(classes)) for i in range(actions)] for row in p])
    np.testing.assert_allclose(expected_cost(p, C), cost)
    np.testing.assert_array_equal(decide(p, C), [min(range(actions), key=row.__getitem__) for row in cost])
    np.testing.assert_array_equal(decide(p.astype(np.float32), C.tolist()), cost.argmin(axis=1))


def test_equal_costs_are_the_likeliest_class():
    p = np.random.default_rng(0).dirichlet(np.ones(5), 100)
    np.testing.assert_array_equal(decide(p, 1 - np.eye(5)), p.argmax(axis=1))


@pytest.mark.parametrize("C", [[[0, 5], [2, 0]], [[-1, 3], [0.5, 1]], [[1, 9], [2, 8.5]]])
def test_the_threshold_is_where_the_decision_changes(C):
    at = decision_threshold(C)
    np.testing.assert_array_equal(decide(np.array([at - 1e-6, at + 1e-6]), C), [0, 1])
    costs = expected_cost(np.array([at]), C)
    assert costs[0, 0] == pytest.approx(costs[0, 1])


def test_chows_rule():
    """With a price for not answering, answer if and only if the largest probability is at least 1 - price."""
    p = np.random.default_rng(0).dirichlet(np.ones(4), 200)
    C = np.vstack([1 - np.eye(4), np.full(4, 0.4)])
    np.testing.assert_array_equal(decide(p, C) == 4, p.max(axis=1) < 0.6)


def test_a_classifier_that_decides():
    X, y = patients()
    base = LogisticRegression().fit(X, y)
    model = CostSensitiveClassifier(LogisticRegression(), MISSES).fit(X, y)
    ill = base.predict_proba(X)[:, 1] > 1 / 11
    np.testing.assert_array_equal(model.predict(X), np.where(ill, "ill", "healthy"))
    np.testing.assert_array_equal(model.decision_function(X) > 0, ill)
    np.testing.assert_allclose(model.predict_proba(X), base.predict_proba(X))
    np.testing.assert_array_equal(CostSensitiveClassifier(LogisticRegression()).fit(X, y).predict(X), base.predict(X))
    before = CostSensitiveClassifier(base, MISSES, prefit=True).fit(X[:5], y[:5])
    np.testing.assert_array_equal(before.predict(X), model.predict(X))
    new, truth = patients(4000, seed=1)
    plain, by_cost = (np.mean((m.predict(new) != truth) * np.where(truth == "ill", 10, 1)) for m in (base, model))
    assert model.mean_cost(new, truth) == pytest.approx(by_cost) and by_cost < 0.6 * plain


def test_no_threshold_costs_less_than_the_closed_form():
    """Of many samples with probabilities that are right."""
    rng = np.random.default_rng(0)
    p = rng.random(200_000)
    ill = rng.random(200_000) < p
    best = decision_threshold(MISSES)
    costs = {t: np.mean(np.where(p > t, ~ill * 1.0, ill * 10.0)) for t in (best / 2, best, best * 1.5, 0.3, 0.5)}
    assert min(costs, key=costs.get) == best


def test_actions_that_are_no_classes():
    X, y = patients()
    C = [[0, 10], [1, 0], [0.5, 0.5]]
    model = CostSensitiveClassifier(LogisticRegression(), C, actions=["healthy", "ill", "ask"]).fit(X, y)
    p = model.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(
        model.predict(X), np.where(p < 0.05, "healthy", np.where(p <= 0.5, "ask", "ill"))
    )  # fmt: skip
    assert model.decision_function(X).shape == (400, 3) and {*model.predict(X)} == {"healthy", "ill", "ask"}
    numbers = CostSensitiveClassifier(GaussianNB(), C, actions=[0, 1, -1]).fit(X, y == "ill")
    assert {*numbers.predict(X)} <= {-1, 0, 1}


def test_in_a_pipeline_with_weights_and_names():
    X, y = patients()
    frame = pd.DataFrame(X, columns=["age", "dose"])
    weight = np.random.default_rng(0).integers(0, 3, 400)
    decider = CostSensitiveClassifier(GaussianNB(), MISSES)
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), decider)
    model.fit(frame, y, costsensitiveclassifier__sample_weight=weight)
    repeated = CostSensitiveClassifier(GaussianNB(), MISSES).fit(
        StandardScaler().fit(X).transform(np.repeat(X, weight, axis=0)), np.repeat(y, weight)
    )
    np.testing.assert_allclose(model.predict_proba(frame), repeated.predict_proba(StandardScaler().fit_transform(X)))
    assert [*model[-1].feature_names_in_] == ["age", "dose"]


def test_derivatives_of_expected_costs():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), np.arange(20) % 3
    C = rng.random((3, 3))
    model = CostSensitiveClassifier(Sloped(), C).fit(X, y)
    slope = wl.jacobian(lambda x: model._apply(x[None])[0])(X[0])
    for f, h in itertools.product(range(2), [1e-6]):
        step = h * np.eye(2)[f]
        difference = model.decision_function((X[0] + step)[None]) - model.decision_function((X[0] - step)[None])
        np.testing.assert_allclose(slope[:, f], difference[0] / (2 * h), atol=1e-8)
    assert model.input_gradient(X).shape == (20, 3, 2)  # of the probabilities


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: decide([[0.5, 0.5]], [0, 1]), r"row for each action.*got shape \(2,\)"),
        (lambda: decide([[0.5, 0.5]], [[0, 1, 2]]), r"column for each class: 3, but probabilities are \(1, 2\)"),
        (lambda: decide([[2.0, -3.0]], MISSES), "between 0 and 1: of scores"),
        (lambda: decide([[0.9, 0.8]], MISSES), r"sum to 1, got 1\.7: divide them"),
        (lambda: decide([[1, 0]], MISSES), "floats"),
        (lambda: decide([[0.5, 0.5]], [[0, np.inf], [1, 0]]), "finite numbers, got inf"),
        (lambda: decision_threshold(np.zeros((3, 2))), r"are \(2, 2\), got \(3, 2\)"),
        (lambda: decision_threshold([[1, 10], [0, 0]]), "one prediction is always the cheaper"),
        (lambda: CostSensitiveClassifier(GaussianNB(), np.ones((3, 2))).fit(*patients()), "costs have 3 rows, but"),
        (lambda: CostSensitiveClassifier(GaussianNB(), np.eye(3)).fit(*patients()), r"\(actions, 2\), got shape"),
        (lambda: CostSensitiveClassifier(GaussianNB()).fit(np.ones((3, 1)), [1, 1, 1]), "only one class"),
    ],
)
def test_wrong_costs(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_what_has_no_probabilities():
    from sklearn.svm import LinearSVC

    X, y = patients()
    with pytest.raises(TypeError, match=r"no predict_proba; CalibratedClassifierCV\(LinearSVC"):
        CostSensitiveClassifier(LinearSVC(), MISSES).fit(X, y).predict(X)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        CostSensitiveClassifier(GaussianNB(), MISSES).fit(X, y).mean_cost(X, y[:1])
    with pytest.raises(NotFittedError):
        CostSensitiveClassifier(GaussianNB()).predict(X)
