"""Mixtures of Gaussians against scikit-learn from the same start, and against SciPy's densities."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import wonderland as wl
from wonderland.estimators import GaussianMixtureModel, mixture_model

KINDS = ["full", "tied", "diag", "spherical"]
ALL = pytest.mark.parametrize("kind", KINDS)


def points(n=250, features=3, seed=0):
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(3, features))
    mixes = 0.4 * rng.normal(size=(3, features, features)) + np.eye(features)
    labels = rng.integers(0, 3, n)
    return centres[labels] + np.einsum("nij,nj->ni", mixes[labels], rng.normal(size=(n, features)))


def start(kind, X, k=3):
    precisions = np.stack([np.eye(X.shape[1])] * k) * np.linspace(0.5, 1, k)[:, None, None]
    precisions = {"full": precisions, "tied": precisions[0], "diag": precisions[:, 0, :] + 0.1,
                  "spherical": precisions[:, 0, 0]}[kind]  # fmt: skip
    return {"weights_init": [0.5, 0.3, 0.2], "means_init": X[:k], "precisions_init": precisions}


def agree(model, theirs, X, rtol):
    np.testing.assert_allclose(model.weights_, theirs.weights_, rtol=rtol)
    np.testing.assert_allclose(model.means_, theirs.means_, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(model.covariances_, theirs.covariances_, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X), atol=100 * rtol)
    np.testing.assert_array_equal(model.predict(X), theirs.predict(X))
    np.testing.assert_allclose(model.score_samples(X), theirs.score_samples(X), rtol=100 * rtol)
    np.testing.assert_allclose(
        [model.score(X), model.bic(X), model.aic(X), model.lower_bound_],
        [theirs.score(X), theirs.bic(X), theirs.aic(X), theirs.lower_bound_], rtol=100 * rtol,
    )  # fmt: skip
    assert model.n_iter_ == theirs.n_iter_ and model.converged_ == theirs.converged_


@pytest.mark.parametrize("features", [1, 3])
@ALL
def test_it_is_scikit_learns_from_the_same_start(kind, features):
    X = points(features=features) + 5
    settings = {"covariance_type": kind, "tol": 1e-6, "max_iter": 300, **start(kind, X)}
    theirs = GaussianMixture(3, **settings).fit(X)
    model = GaussianMixtureModel(3, **settings).fit(X)
    agree(model, theirs, X, 1e-8)
    np.testing.assert_array_equal(model.fit_predict(X), theirs.predict(X))


@ALL
def test_compiled_it_is_the_same(kind, monkeypatch):
    X = points(120)
    settings = {"covariance_type": kind, "tol": 1e-5, **start(kind, X)}
    plain = GaussianMixtureModel(3, **settings).fit(X)
    monkeypatch.setattr(mixture_model, "LARGE", 0)
    compiled = GaussianMixtureModel(3, **settings).fit(X)
    agree(compiled, plain, X, 1e-9)
    assert all(type(part) is np.ndarray for part in (compiled.weights_, compiled.means_, compiled.covariances_))


@ALL
def test_from_clusters_of_k_means_it_finds_what_scikit_learn_does(kind):
    X = points(300, seed=2)
    settings = {"covariance_type": kind, "tol": 1e-7, "max_iter": 1000, "n_init": 5, "random_state": 0}
    theirs, model = GaussianMixture(3, **settings).fit(X), GaussianMixtureModel(3, **settings).fit(X)
    assert model.score(X) == pytest.approx(theirs.score(X), abs=1e-4)
    assert np.all(np.diff(model.loss_history_) <= 1e-12) and len(model.loss_history_) == model.n_iter_


@ALL
def test_the_density_is_scipys(kind):
    X = points(100)
    model = GaussianMixtureModel(3, covariance_type=kind, random_state=0).fit(X)
    whole = {"full": lambda c: c, "tied": lambda c: [c] * 3, "diag": lambda c: [np.diag(v) for v in c],
             "spherical": lambda c: [v * np.eye(3) for v in c]}[kind](model.covariances_)  # fmt: skip
    density = sum(
        w * stats.multivariate_normal(m, c).pdf(X) for w, m, c in zip(model.weights_, model.means_, whole, strict=True)
    )
    np.testing.assert_allclose(model.score_samples(X), np.log(density), rtol=1e-9)
    steps = 1e-5 * np.eye(3)
    expected = np.stack([(model.score_samples(X + e) - model.score_samples(X - e)) / 2e-5 for e in steps], axis=-1)
    np.testing.assert_allclose(model.input_gradient(X), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(wl.grad(model.as_function())(X[0]), expected[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(wl.jit(model.as_function())(X), model.score_samples(X), rtol=1e-10)


@ALL
def test_weights_are_counts_whatever_the_order(kind):
    rng = np.random.default_rng(0)
    X, count = points(80), rng.integers(0, 4, 80)
    model = GaussianMixtureModel(3, covariance_type=kind, n_init=2, max_iter=30, random_state=0)
    shuffled = rng.permutation(np.repeat(np.arange(80), count))
    weighted = model.fit(X, sample_weight=count).predict_proba(X)
    np.testing.assert_allclose(model.fit(X[shuffled]).predict_proba(X), weighted, atol=1e-8)


@ALL
def test_samples_have_its_moments(kind):
    model = GaussianMixtureModel(3, covariance_type=kind, random_state=0).fit(points())
    drawn, labels = model.sample(6000)
    assert drawn.shape == (6000, 3) and np.all(np.diff(labels) >= 0)
    shares = np.bincount(labels) / 6000
    assert np.all(np.abs(shares - model.weights_) < 4 * np.sqrt(model.weights_ / 6000))
    again = GaussianMixtureModel(
        3, covariance_type=kind, weights_init=model.weights_, means_init=model.means_, tol=1e-6, max_iter=500
    ).fit(drawn)
    np.testing.assert_allclose(again.means_, model.means_, atol=0.3)
    np.testing.assert_allclose(again.covariances_, model.covariances_, atol=0.5)
    np.testing.assert_array_equal(model.sample(5)[0], model.sample(5)[0])


def test_the_criterion_knows_how_many_there_are():
    X = points(400, seed=2)
    bic = [GaussianMixtureModel(k, random_state=0, n_init=3).fit(X).bic(X) for k in (1, 2, 3, 4)]
    assert np.argmin(bic) == 2


def test_any_arrays():
    X = np.round(20 * points(60)).astype(int)
    expected = GaussianMixtureModel(2, random_state=0).fit(X.astype(float))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    for same in (X, X.tolist(), frame, np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2]):
        model = GaussianMixtureModel(2, random_state=0).fit(same)
        np.testing.assert_allclose(model.means_, expected.means_, rtol=1e-9)
        np.testing.assert_allclose(model.score_samples(same), expected.score_samples(X.astype(float)), rtol=1e-9)
    narrow = GaussianMixtureModel(2, random_state=0).fit(X.astype(np.float32))
    assert narrow.means_.dtype == narrow.predict_proba(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(narrow.means_, expected.means_, rtol=1e-2)


def test_wide_and_constant_data():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(6, 20))
    assert np.all(np.isfinite(GaussianMixtureModel(2, random_state=0).fit(wide).score_samples(wide)))
    flat = np.hstack([points(50), np.ones((50, 2))])  # two equal columns of one value: reg_covar is their variance
    model = GaussianMixtureModel(2, random_state=0).fit(flat)
    np.testing.assert_allclose(model.covariances_[:, 3:, 3:], np.stack([1e-6 * np.eye(2)] * 2), atol=1e-12)


def test_what_it_refuses():
    X = points(10)
    for settings, message in [
        ({"n_components": 11}, "n_samples=10, without those of weight zero, should be >= n_components=11"),
        ({"n_components": 0}, "n_components == 0, must be >= 1"),
        ({"covariance_type": "round"}, "covariance_type is one of 'full', 'tied', 'diag', 'spherical', got 'round'"),
        ({"reg_covar": -1.0}, "reg_covar is a number of at least 0, got -1.0"),
        ({"tol": -1.0}, "tol is a number of at least 0"),
        ({"max_iter": 0}, "max_iter == 0"),
        ({"n_init": 0}, "n_init == 0"),
        ({"n_components": 2, "weights_init": [0.5, 0.6]}, "weights_init are shares of the components"),
        ({"n_components": 2, "means_init": X[:3]}, r"means_init: the shape is \(2, 3\) .*, got \(3, 3\)"),
        ({"covariance_type": "tied", "precisions_init": np.eye(2)}, r"precisions_init: the shape is \(3, 3\)"),
        ({"covariance_type": "tied", "precisions_init": np.eye(3) - 1}, "symmetric with eigenvalues above zero"),
        ({"covariance_type": "spherical", "precisions_init": [0.0]}, "symmetric with eigenvalues above zero"),
        ({"n_components": 2, "reg_covar": 0.0, "random_state": 0}, "no covariance that can be inverted: take fewer"),
    ]:
        with pytest.raises(ValueError, match=message):
            GaussianMixtureModel(**settings).fit(np.repeat(X[:5], 2, axis=0))
    with pytest.raises(ValueError, match="weights are finite and not negative"):
        GaussianMixtureModel().fit(X, sample_weight=-np.ones(10))
    with pytest.raises(ValueError, match="NaN"):
        GaussianMixtureModel().fit([[np.nan], [1.0]])
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter=1 steps"):
        GaussianMixtureModel(3, max_iter=1, random_state=0).fit(points())
    with pytest.raises(ValueError, match="n_samples == 0"):
        GaussianMixtureModel().fit(X).sample(0)
