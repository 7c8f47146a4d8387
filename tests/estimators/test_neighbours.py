"""Nearest neighbours against brute force and scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from sklearn import neighbors
from sklearn.datasets import load_digits, load_iris

import wonderland as wl
from wonderland.estimators import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors, distances, neighbours

METRICS = pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
WEIGHTS = pytest.mark.parametrize("weights", ["uniform", "distance"])


def by_definition(X, points, k, metric, own=False):
    """All distances, sorted; equal ones in the order of rows."""
    far = -X @ points.T if metric == "dot" else cdist(X, points, metric)
    if own:
        np.fill_diagonal(far, np.inf)
    places = np.argsort(far, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(far, places, axis=1), places


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (30, 7, 1, 4), (200, 50, 8, 5), (6, 4, 40, 6), (90, 333, 3, 90)])
@METRICS
def test_they_are_the_sorted_distances(metric, shape, monkeypatch):
    n, m, features, k = shape
    rng = np.random.default_rng(n)
    points, X = rng.normal(size=(n, features)) + 1, rng.normal(size=(m, features)) + 1
    if features == 1:
        points, X = np.abs(points) + 0.1, np.abs(X) + 0.1  # all cosines are 1
    monkeypatch.setattr(neighbours, "TABLE", 16 * n)  # several blocks
    monkeypatch.setattr(distances, "BLOCK", 64)
    far, places = NearestNeighbors(k, metric=metric).fit(points).kneighbors(X)
    expected, rows = by_definition(X, points, k, metric)
    np.testing.assert_allclose(far, expected, rtol=1e-12, atol=4e-16)
    if not (features == 1 and metric == "cosine"):
        np.testing.assert_array_equal(places, rows)


@METRICS
def test_a_point_is_not_its_own_neighbour(metric):
    X = np.random.default_rng(0).normal(size=(50, 4))
    model = NearestNeighbors(3, metric=metric).fit(X)
    far, places = model.kneighbors()
    expected, rows = by_definition(X, X, 3, metric, own=True)
    np.testing.assert_array_equal(places, rows)
    np.testing.assert_allclose(far, expected, rtol=1e-12)
    np.testing.assert_array_equal(model.kneighbors(n_neighbors=1, return_distance=False), rows[:, :1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_are_at_distance_zero_in_the_order_of_rows(dtype):
    """Far from the origin products have no digits left for them."""
    rng = np.random.default_rng(1)
    distinct = (rng.normal(size=(20, 12)) + 1e3).astype(dtype)
    points = np.tile(distinct, (5, 1))
    far, places = NearestNeighbors(7).fit(points).kneighbors(distinct)
    np.testing.assert_array_equal(far[:, :5], 0)
    np.testing.assert_array_equal(places[:, :5], np.arange(20)[:, None] + 20 * np.arange(5))
    expected, rows = by_definition(distinct.astype(float), distinct.astype(float), 2, "euclidean")
    np.testing.assert_array_equal(places[:, 5:], rows[:, 1:] + [[0, 20]])
    np.testing.assert_allclose(far[:, 5:], np.repeat(expected[:, 1:], 2, axis=1), rtol=1e-6)
    assert far.dtype == dtype


def test_ties_of_whole_numbers():
    X = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 2]])
    far, places = NearestNeighbors(4).fit(X).kneighbors([[0, 0], [1, 1]])
    np.testing.assert_array_equal(places, [[0, 1, 2, 3], [3, 1, 2, 0]])
    np.testing.assert_allclose(far, [[0, 1, 1, 2**0.5], [0, 1, 1, 2**0.5]])


def test_zeros_have_cosine_distance_one():
    far, places = NearestNeighbors(3, metric="cosine").fit([[0.0, 0], [1, 0], [-1, 0]]).kneighbors([[2.0, 0], [0, 0]])
    np.testing.assert_array_equal(far, [[0, 1, 2], [1, 1, 1]])
    np.testing.assert_array_equal(places, [[1, 0, 2], [0, 1, 2]])


def flowers(classes):
    """Iris with a little noise against ties: samples to keep, others, and their names."""
    X, y = load_iris(return_X_y=True)
    X, y = (X + 0.01 * np.random.default_rng(0).normal(size=X.shape))[y < classes], y[y < classes]
    y = np.array(["setosa", "versicolor", "virginica"])[y]
    return X[::2], y[::2], X[1::2], y[1::2]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@WEIGHTS
def test_classes_are_scikit_learns(weights, metric, classes):
    X, y, others, answers = flowers(classes)
    theirs = neighbors.KNeighborsClassifier(7, weights=weights, metric=metric, algorithm="brute").fit(X, y)
    model = KNeighborsClassifier(7, weights=weights, metric=metric).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(others), theirs.predict_proba(others), atol=1e-8)
    np.testing.assert_array_equal(model.predict(others), theirs.predict(others))
    assert model.score(others, answers) == theirs.score(others, answers)


def test_votes_of_the_largest_products():
    X, y, others, _ = flowers(3)
    model = KNeighborsClassifier(7, metric="dot").fit(X, y)
    votes = y[by_definition(others, X, 7, "dot")[1]]
    shares = np.mean(votes[:, :, None] == model.classes_, axis=1)
    np.testing.assert_allclose(model.predict_proba(others), shares, atol=1e-12)


def test_of_equal_votes_the_first_class_is_taken():
    X, y = [[0.0], [1.0], [2.0], [3.0]], ["b", "a", "b", "a"]
    np.testing.assert_array_equal(KNeighborsClassifier(2).fit(X, y).predict([[0.4], [2.4]]), ["a", "a"])
    model = KNeighborsClassifier(3).fit(X, ["c", "b", "a", "b"])
    np.testing.assert_array_equal(model.predict([[0.9], [2.2]]), ["a", "b"])


@WEIGHTS
def test_means_are_scikit_learns(weights):
    rng = np.random.default_rng(0)
    X, others = rng.normal(size=(80, 3)), rng.normal(size=(30, 3))
    for y in (rng.normal(size=80), rng.normal(size=(80, 2)), rng.normal(size=(80, 1))):
        theirs = neighbors.KNeighborsRegressor(4, weights=weights, algorithm="brute").fit(X, y)
        found = KNeighborsRegressor(4, weights=weights).fit(X, y).predict(others)
        np.testing.assert_allclose(found, theirs.predict(others), rtol=1e-10)
        assert found.shape == theirs.predict(others).shape


def test_samples_at_distance_zero_alone_decide():
    X, y = np.array([[0.0], [0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 10.0, 20.0])
    model = KNeighborsRegressor(3, weights="distance").fit(X, y)
    np.testing.assert_allclose(model.predict([[0.0], [1.0], [0.5]]), [2.0, 10.0, (2 + 6 + 20) / 6])
    np.testing.assert_allclose(model.as_function()(np.array([0.0])), 2.0)


def test_digits_are_retrieved():
    X, y = load_digits(return_X_y=True)
    model = KNeighborsClassifier(3, metric="cosine").fit(X[:1000], y[:1000])
    theirs = neighbors.KNeighborsClassifier(3, metric="cosine").fit(X[:1000], y[:1000])
    score = model.score(X[1000:], y[1000:])
    assert score > 0.95 and abs(score - theirs.score(X[1000:], y[1000:])) < 0.003  # a tie or two


def gradients_by_differences(function, X, step=1e-6):
    columns = [(function(X + e) - function(X - e)) / (2 * step) for e in step * np.eye(X.shape[1])]
    return np.stack(columns, axis=-1)


@METRICS
def test_gradients_in_the_inputs(metric):
    rng = np.random.default_rng(3)
    X, others, y = rng.normal(size=(40, 3)), rng.normal(size=(6, 3)), rng.normal(size=40)
    index = NearestNeighbors(2, metric=metric).fit(X)
    expected = gradients_by_differences(lambda x: index.kneighbors(x)[0], others)
    np.testing.assert_allclose(index.input_gradient(others), expected, atol=1e-7)
    np.testing.assert_allclose(index.as_function()(others), index.kneighbors(others)[0], rtol=1e-12)
    weights = "uniform" if metric == "dot" else "distance"
    regressor = KNeighborsRegressor(4, weights=weights, metric=metric).fit(X, y)
    expected = gradients_by_differences(regressor.predict, others)
    np.testing.assert_allclose(regressor.input_gradient(others), expected, atol=1e-6)
    classifier = KNeighborsClassifier(4, weights=weights, metric=metric).fit(X, np.digitize(y, [-0.5, 0.5]))
    expected = gradients_by_differences(classifier.predict_proba, others)
    np.testing.assert_allclose(classifier.input_gradient(others), expected, atol=1e-6)
    compiled = wl.jit(regressor.as_function())
    np.testing.assert_allclose(compiled(others), regressor.predict(others), rtol=1e-10)


@METRICS
def test_compiled_functions_of_whole_numbers(metric):
    """The points aren't whole numbers, though the queries are."""
    rng = np.random.default_rng(5)
    points, queries = rng.normal(size=(40, 3)), rng.integers(-3, 4, (9, 3))
    index = NearestNeighbors(4, metric=metric).fit(points)
    queries[np.all(queries == 0, axis=1)] = 1  # cdist has no cosine for zeros
    expected = by_definition(queries, points, 4, metric)[0]
    for f in (wl.jit(index.as_function()), wl.vmap(index.as_function())):
        np.testing.assert_allclose(f(queries), expected, atol=1e-12)


def test_compiled_functions_far_from_zero():
    rng = np.random.default_rng(6)
    points, queries = rng.normal(size=(60, 3)) + 1e8, rng.normal(size=(20, 3)) + 1e8
    found = wl.jit(NearestNeighbors(3).fit(points).as_function())(queries)
    np.testing.assert_allclose(found, np.sort(cdist(queries, points))[:, :3])
    lattice, y = rng.integers(0, 4, (40, 2)).astype(float) + 1e8, rng.normal(size=40)
    theirs = neighbors.KNeighborsRegressor(1, algorithm="brute").fit(lattice - 1e8, y)  # of equals the first row
    model = KNeighborsRegressor(1).fit(lattice, y)
    np.testing.assert_allclose(wl.jit(model.as_function())(lattice), theirs.predict(lattice - 1e8))


def test_any_arrays():
    rng = np.random.default_rng(0)
    X = rng.integers(-5, 6, size=(30, 4))
    y = X[:, 0] > 0
    expected = KNeighborsClassifier(3).fit(X, y).predict(X)
    frame = pd.DataFrame(X, columns=list("abcd"))
    np.testing.assert_array_equal(KNeighborsClassifier(3).fit(frame, y).predict(frame), expected)
    np.testing.assert_array_equal(KNeighborsClassifier(3).fit(X.tolist(), y.tolist()).predict(X.tolist()), expected)
    np.testing.assert_array_equal(KNeighborsClassifier(3).fit(np.asfortranarray(X), y).predict(X), expected)
    wide = np.repeat(X, 2, axis=1)[:, ::2].astype(np.float32)
    model = KNeighborsClassifier(3).fit(wide, y)
    np.testing.assert_array_equal(model.predict(wide), expected)
    assert model.predict_proba(wide).dtype == np.float32


def test_what_it_refuses():
    X, y = np.random.default_rng(0).normal(size=(4, 2)), [0, 1, 0, 1]
    with pytest.raises(ValueError, match="n_neighbors = 5 of 4 points"):
        NearestNeighbors().fit(X).kneighbors(X)
    with pytest.raises(ValueError, match="n_neighbors = 4 of 3 points others, as no point is its own neighbour"):
        NearestNeighbors(4).fit(X).kneighbors()
    with pytest.raises(ValueError, match="metric is one of 'euclidean', 'cosine', 'dot', got 'manhattan'"):
        NearestNeighbors(metric="manhattan").fit(X)
    with pytest.raises(ValueError, match="n_neighbors == 0, must be >= 1"):
        NearestNeighbors(0).fit(X)
    with pytest.raises(TypeError, match="n_neighbors must be an instance of"):
        NearestNeighbors(2.5).fit(X)
    with pytest.raises(ValueError, match="weights is one of 'uniform', 'distance', got 'near'"):
        KNeighborsRegressor(weights="near").fit(X, y)
    with pytest.raises(ValueError, match="metric='dot' has none"):
        KNeighborsClassifier(weights="distance", metric="dot").fit(X, y)
    with pytest.raises(ValueError, match="only one class"):
        KNeighborsClassifier().fit(X, [1, 1, 1, 1])
    with pytest.raises(ValueError, match="NaN"):
        NearestNeighbors().fit([[np.nan, 1.0]])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        KNeighborsRegressor().fit(X, y[:3])
