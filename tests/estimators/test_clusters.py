"""k-means against scikit-learn from the same start, and against its definition."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from sklearn import cluster
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import wonderland as wl
from wonderland.estimators import KMeans, distances
from wonderland.estimators.seeding import at_random, plus_plus


def blobs(n=300, features=3, clusters=4, spread=2.0, seed=0):
    rng = np.random.default_rng(seed)
    centres = spread * rng.normal(size=(clusters, features))
    return centres[rng.integers(0, clusters, n)] + rng.normal(size=(n, features))


def inertia(X, centres, weight=1.0):
    return np.sum(weight * np.min(np.sum((X[:, None] - centres) ** 2, axis=2), axis=1))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(300, 3, 5), (100, 1, 4), (20, 50, 3), (60, 2, 1), (500, 8, 60), (7, 2, 7)])
def test_it_is_scikit_learns_from_the_same_start(shape, weighted, monkeypatch):
    n, features, k = shape
    X = blobs(n, features) + 10
    weight = np.random.default_rng(1).uniform(0.1, 2, n) if weighted else None
    monkeypatch.setattr(distances, "BLOCK", 128)  # several blocks
    theirs = cluster.KMeans(k, init=X[:k], n_init=1, tol=0).fit(X, sample_weight=weight)
    model = KMeans(k, init=X[:k], tol=0).fit(X, sample_weight=weight)
    np.testing.assert_allclose(model.cluster_centers_, theirs.cluster_centers_, rtol=1e-10)
    np.testing.assert_array_equal(model.labels_, theirs.labels_)
    np.testing.assert_allclose(model.inertia_, theirs.inertia_, rtol=1e-9, atol=1e-20)
    assert model.n_iter_ == theirs.n_iter_
    others = X[::-1] + 0.3
    np.testing.assert_array_equal(model.predict(others), theirs.predict(others))
    np.testing.assert_allclose(model.transform(others), theirs.transform(others), rtol=1e-9)
    np.testing.assert_allclose(model.score(others), theirs.score(others), rtol=1e-9)


def test_it_stops_as_scikit_learn_does():
    X = blobs(2000, 4, 1)
    for tol in (1e-1, 1e-3):
        theirs = cluster.KMeans(6, init=X[:6], n_init=1, tol=tol).fit(X)
        model = KMeans(6, init=X[:6], tol=tol).fit(X)
        assert model.n_iter_ == theirs.n_iter_
        np.testing.assert_allclose(model.cluster_centers_, theirs.cluster_centers_, rtol=1e-10)


def test_the_inertia_falls_to_its_end():
    X = blobs()
    model = KMeans(5, random_state=0, tol=0).fit(X)
    history = [*model.loss_history_, model.inertia_]
    assert np.all(np.diff(history) <= 1e-9) and len(model.loss_history_) == model.n_iter_
    np.testing.assert_allclose(model.inertia_, inertia(X, model.cluster_centers_), rtol=1e-12)
    np.testing.assert_allclose(model.score(X), -model.inertia_, rtol=1e-12)
    means = [X[model.labels_ == k].mean(axis=0) for k in range(5)]
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-10)
    np.testing.assert_array_equal(model.cluster_weights_, np.bincount(model.labels_))
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    np.testing.assert_array_equal(model.labels_, np.argmin(model.transform(X), axis=1))


@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_starts_are_as_good_as_scikit_learns(init):
    X = blobs(400, 2, 8, spread=5.0)
    ours = [KMeans(8, init=init, n_init=1, random_state=seed).fit(X).inertia_ for seed in range(25)]
    theirs = [cluster.KMeans(8, init=init, n_init=1, random_state=seed).fit(X).inertia_ for seed in range(25)]
    error = np.hypot(np.std(ours), np.std(theirs)) / 25**0.5
    assert abs(np.mean(ours) - np.mean(theirs)) < 3 * error
    best = min(min(ours), min(theirs))
    assert KMeans(8, init=init, n_init=25, random_state=0).fit(X).inertia_ <= best * 1.001


def test_draws_are_by_squared_distance():
    """First by weight, then the better one of two draws by weight times squared distance."""
    X, weight = np.array([[0.0], [1.0], [3.0], [5.0]]), np.array([1.0, 2.0, 3.0, 1.0])
    far = (X - X.T) ** 2
    expected = np.zeros((4, 4))
    for first in range(4):
        chances = weight * far[first] / (weight @ far[first])
        left = np.minimum(far[first], far) @ weight  # of each second centre
        for one in range(4):
            for other in range(4):
                better = one if left[one] <= left[other] else other
                expected[first, better] += weight[first] / 7 * chances[one] * chances[other]
    found, draws = np.zeros((4, 4)), 1500
    rng = np.random.RandomState(0)
    for _ in range(draws):
        first, second = plus_plus(X, 2, weight, rng)[:, 0]
        found[np.flatnonzero(X == first)[0], np.flatnonzero(X == second)[0]] += 1 / draws
    assert np.all(np.abs(found - expected) <= 4 * np.sqrt(expected * (1 - expected) / draws))


def test_different_points_are_drawn_while_there_are_any():
    X = np.array([[0.0], [0.0], [1.0], [3.0], [3.0]])
    for seed in range(50):
        for draw in (plus_plus, at_random):
            assert {*draw(X, 3, np.ones(5), np.random.RandomState(seed))[:, 0]} == {0.0, 1.0, 3.0}


@pytest.mark.parametrize("settings", [{}, {"init": "random"}, {"n_init": 5}, {"n_clusters": 12}])
def test_weights_are_counts_whatever_the_order(settings):
    rng = np.random.default_rng(0)
    X, count = blobs(80), rng.integers(0, 4, 80)
    model = KMeans(**{"n_clusters": 5, "random_state": 0, **settings})
    weighted = model.fit(X, sample_weight=count).transform(X)
    shuffled = rng.permutation(np.repeat(np.arange(80), count))
    np.testing.assert_allclose(model.fit(X[shuffled]).transform(X), weighted, rtol=1e-9)


def test_empty_clusters_get_the_farthest_points():
    X = np.array([[0.0], [1.0], [2.0], [10.0], [30.0]])
    init = np.array([[1.0], [100.0], [200.0]])
    model = KMeans(3, init=init, max_iter=1, tol=1e9).fit(X)  # 30 goes to centre 1 first
    theirs = cluster.KMeans(3, init=init, max_iter=1, n_init=1, tol=1e9).fit(X)
    np.testing.assert_allclose(model.cluster_centers_, theirs.cluster_centers_)
    model = KMeans(3, init=init).fit(X)
    np.testing.assert_allclose(np.sort(model.cluster_centers_, axis=0), [[1], [10], [30]])
    assert model.inertia_ == 2.0
    X = np.repeat(X, 3, axis=0)  # copies go together
    np.testing.assert_allclose(np.sort(KMeans(3, init=init).fit(X).cluster_centers_, axis=0), [[1], [10], [30]])


def test_fewer_points_than_clusters_are_said():
    X = np.repeat([[0.0, 1.0], [2.0, 3.0]], 10, axis=0)
    for init in ("k-means++", "random"):
        with pytest.warns(ConvergenceWarning, match="found 2 different clusters, fewer than n_clusters=4"):
            model = KMeans(4, init=init, random_state=0).fit(X)
        assert model.inertia_ == 0
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter=2 steps"):
        KMeans(8, init="random", n_init=1, max_iter=2, random_state=0).fit(blobs())


def test_far_from_the_origin_no_digits_are_lost():
    X = blobs(200)
    for dtype, far in ((np.float64, 2.0**30), (np.float32, 2.0**9)):
        here = (X.astype(np.float32).astype(dtype) + dtype(far)) - dtype(far)  # what is left of them there
        near, away = (KMeans(4, init=x[:4], tol=0).fit(x) for x in (here, here + dtype(far)))
        np.testing.assert_array_equal(near.labels_, away.labels_)
        np.testing.assert_array_equal(away.predict(here + dtype(far)), near.labels_)
        np.testing.assert_allclose(away.inertia_, near.inertia_, rtol=1e-3 if dtype == np.float32 else 1e-6)
        assert away.cluster_centers_.dtype == away.transform(here).dtype == dtype


def test_mini_batches_are_running_means():
    X = blobs(600, spread=8.0)
    model = KMeans(4, random_state=0)
    for batch in np.split(X, 6):
        model.partial_fit(batch)
    np.testing.assert_allclose(model.inertia_, inertia(X[500:], model.cluster_centers_), rtol=1e-10)
    assert model.n_iter_ == 6 and len(model.labels_) == 100
    assert np.sum(model.cluster_weights_) == 600
    whole = KMeans(4, n_init=10, random_state=0).fit(X)
    assert inertia(X, model.cluster_centers_) < 1.02 * whole.inertia_

    before, counts = whole.cluster_centers_.copy(), whole.cluster_weights_.copy()  # goes on after a fit
    batch, weight = X[:50] + 0.5, np.arange(50.0)
    labels = whole.predict(batch)
    whole.partial_fit(batch, sample_weight=weight)
    for k in range(4):
        w = weight * (labels == k)
        expected = (counts[k] * before[k] + w @ batch) / (counts[k] + w.sum())
        np.testing.assert_allclose(whole.cluster_centers_[k], expected, rtol=1e-12)


def test_gradients_of_the_distances():
    X = blobs(50)
    model = KMeans(3, random_state=0).fit(X)
    steps = 1e-6 * np.eye(3)
    expected = [(model.transform(X + e) - model.transform(X - e)) / 2e-6 for e in steps]
    np.testing.assert_allclose(model.input_gradient(X), np.stack(expected, axis=-1), atol=1e-8)
    np.testing.assert_allclose(model.as_function()(X), model.transform(X), rtol=1e-12)
    centre = wl.jacobian(model.as_function())(model.cluster_centers_[1])
    np.testing.assert_array_equal(centre[1], 0)


def test_any_arrays_and_named_outputs():
    X = np.random.default_rng(0).integers(0, 9, size=(40, 3))
    expected = KMeans(3, random_state=0).fit(X.astype(float))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    for same in (X, X.tolist(), frame, np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2]):
        model = KMeans(3, random_state=0)
        np.testing.assert_array_equal(model.fit_predict(same), expected.labels_)
        np.testing.assert_allclose(model.cluster_centers_, expected.cluster_centers_, rtol=1e-12)
    named = KMeans(3, random_state=0).set_output(transform="pandas").fit_transform(frame)
    assert [*named.columns] == ["kmeans0", "kmeans1", "kmeans2"]
    np.testing.assert_allclose(named, expected.transform(X))


def test_digits_are_clustered_as_scikit_learn_does():
    X, y = load_digits(return_X_y=True)
    model, theirs = KMeans(10, n_init=4, random_state=0).fit(X), cluster.KMeans(10, n_init=4, random_state=0).fit(X)
    assert model.inertia_ < 1.01 * theirs.inertia_
    purity = sum(np.max(np.bincount(y[model.labels_ == k])) for k in range(10)) / len(y)
    assert purity > 0.75


def test_what_it_refuses():
    X = blobs(10)
    for settings, message in [
        ({"n_clusters": 11}, "n_samples=10 should be >= n_clusters=11: take fewer clusters"),
        ({"n_clusters": 0}, "n_clusters == 0, must be >= 1"),
        ({"init": "forgy"}, "init is 'k-means\\+\\+', 'random' or an array of centres, got 'forgy'"),
        ({"init": X[:2]}, r"init has a centre for each cluster, shape \(8, 3\), got \(2, 3\)"),
        ({"init": np.full((8, 3), np.nan)}, "NaN"),
        ({"n_init": 0}, "n_init == 0"),
        ({"max_iter": 0}, "max_iter == 0"),
        ({"tol": -1.0}, "tol is a number of at least 0, got -1.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            KMeans(**settings).fit(X)
    with pytest.raises(ValueError, match="n_samples=4 with weights above zero should be >= n_clusters=8"):
        KMeans().fit(X, sample_weight=[1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
    with pytest.raises(ValueError, match="weights are finite and not negative, got -1"):
        KMeans(2).fit(X, sample_weight=-np.ones(10))
    with pytest.raises(ValueError, match="NaN"):
        KMeans(1).fit([[np.nan]])
    with pytest.raises(ValueError, match="0 sample"):
        KMeans(1).fit(np.empty((0, 3)))
    with pytest.warns(RuntimeWarning, match="init is an array, so there is one start"):
        KMeans(8, init=X[:8], n_init=3).fit(X)


def test_clusters_that_were_found_stay_if_another_number_is_wanted():
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = KMeans(3, random_state=0).fit(X)
    expected = cdist(X, model.cluster_centers_)
    model.set_params(n_clusters=5)
    np.testing.assert_allclose(model.transform(X), expected)
    with pytest.raises(ValueError, match="goes on with 3 clusters, and n_clusters is now 5"):
        model.partial_fit(X)
    assert model.fit(X).transform(X).shape == (40, 5)
