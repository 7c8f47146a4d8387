"""EM for mixtures of Gaussians against scikit-learn, from the same start."""

import numpy as np
import pytest
from scipy import stats
from sklearn.mixture import GaussianMixture

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.generative import fit_mixture, kmeans_plus_plus, maximization, responsibilities

KINDS = {"full": "full", "diagonal": "diag", "spherical": "spherical", "tied": "tied"}
ALL = pytest.mark.parametrize("kind", KINDS)
CENTRES = np.array([[0.0, 0.0], [4.0, 1.0], [1.0, 5.0]])


def points(count=300, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    mixes = rng.normal(size=(3, 2, 2)) * 0.7 + np.eye(2)
    labels = rng.integers(0, 3, count)
    x = CENTRES[labels] + np.einsum("nij,nj->ni", mixes[labels], rng.normal(size=(count, 2)))
    return x.astype(dtype)


def starting(dtype=np.float64):
    means = np.array([[1.0, 1.0], [3.0, 0.0], [0.0, 3.0]], dtype)
    return np.array([0.5, 0.3, 0.2], dtype), means, np.broadcast_to(1.5 * np.eye(2, dtype=dtype), (3, 2, 2))


def sklearns(x, kind, steps, tol=0.0, regularization=1e-6):
    weights, means, covariances = starting()
    inverse = np.linalg.inv(covariances)
    precisions = {"full": inverse, "tied": inverse[0], "diagonal": inverse[:, [0, 1], [0, 1]],
                  "spherical": inverse[:, 0, 0]}[kind]  # fmt: skip
    return GaussianMixture(
        3, covariance_type=KINDS[kind], weights_init=weights, means_init=means, precisions_init=precisions,
        max_iter=steps, tol=tol, reg_covar=regularization,
    ).fit(x)  # fmt: skip


def whole(covariances, kind):
    eye = np.eye(2)
    return {"full": lambda c: c, "tied": lambda c: np.stack([c] * 3), "diagonal": lambda c: c[:, :, None] * eye,
            "spherical": lambda c: c[:, None, None] * eye}[kind](covariances)  # fmt: skip


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
@ALL
def test_it_is_scikit_learns_from_the_same_start(kind, jitted):
    x = points()
    theirs = sklearns(x, kind, 25)
    fit = lambda x: fit_mixture(x, 3, kind, start=starting(), steps=25, tol=0.0)
    found = (wl.jit(fit) if jitted else fit)(x)
    np.testing.assert_allclose(found.weights, theirs.weights_, rtol=1e-9)
    np.testing.assert_allclose(found.means, theirs.means_, rtol=1e-9)
    np.testing.assert_allclose(found.covariances, whole(theirs.covariances_, kind), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.log_likelihood, theirs.score(x), rtol=1e-12)
    np.testing.assert_allclose(found.history[-1], theirs.lower_bound_, rtol=1e-12)
    logs, parts = responsibilities(x, *found[:3])
    np.testing.assert_allclose(parts, theirs.predict_proba(x), atol=1e-9)
    np.testing.assert_allclose(logs, theirs.score_samples(x), rtol=1e-10)


def test_it_stops_as_scikit_learn_does():
    x = points()
    theirs = sklearns(x, "full", 100, tol=1e-4)
    found = fit_mixture(x, 3, start=starting(), tol=1e-4)
    assert found.converged and found.steps == theirs.n_iter_ < 100
    np.testing.assert_allclose(found.means, theirs.means_, rtol=1e-9)
    assert np.all(np.isnan(found.history[found.steps :])) and np.all(np.isfinite(found.history[: found.steps]))


@ALL
def test_the_likelihood_never_falls(kind):
    x = points(seed=1)
    history = fit_mixture(x, 4, kind, key=wl.random.key(2), steps=60, tol=0.0, regularization=0.0).history
    assert np.all(np.diff(history) > -1e-13) and history[-1] > history[0] + 0.1


@ALL
def test_float32(kind):
    x = points(dtype=np.float32)
    found = wl.jit(lambda x: fit_mixture(x, 3, kind, start=starting(np.float32), steps=10, tol=0.0))(x)
    exact = fit_mixture(x.astype(np.float64), 3, kind, start=starting(), steps=10, tol=0.0)
    for a, b in zip(found[:4], exact[:4], strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


def test_kmeans_plus_plus_draws_by_squared_distance():
    x = np.array([[0.0], [1.0], [3.0]])
    draw = lambda key: kmeans_plus_plus(key, x, 2)[:, 0]
    pairs = wl.jit(wl.vmap(draw))(wl.random.split(wl.random.key(0), 30_000))
    assert np.all(pairs[:, 0] != pairs[:, 1])
    for first, others, shares in ((0, (1, 3), (1, 9)), (1, (0, 3), (1, 4)), (3, (0, 1), (9, 4))):
        there = pairs[pairs[:, 0] == first, 1]
        p = shares[0] / sum(shares)
        assert abs(len(there) / 30_000 - 1 / 3) < 4 * np.sqrt(2 / 9 / 30_000)
        assert abs(np.mean(there == others[0]) - p) < 4 * np.sqrt(p * (1 - p) / len(there))
    np.testing.assert_array_equal(kmeans_plus_plus(wl.random.key(0), np.ones((5, 2)), 3), np.ones((3, 2)))


def test_kmeans_plus_plus_draws_by_weights():
    x, weight = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([1.0, 2.0, 1.0, 0.0])
    draw = lambda key: kmeans_plus_plus(key, x, 2, weight)[:, 0]
    pairs = wl.jit(wl.vmap(draw))(wl.random.split(wl.random.key(0), 30_000))
    for first, p, others, shares in (
        (0, 0.25, (1, 3), (2, 9)), (1, 0.5, (0, 3), (1, 4)), (3, 0.25, (0, 1), (9, 8)), (3.5, 0, (0, 1), (1, 1)),
    ):  # fmt: skip
        there = pairs[pairs[:, 0] == first, 1]
        assert abs(len(there) / 30_000 - p) <= 4 * np.sqrt(p * (1 - p) / 30_000)
        q = shares[0] / sum(shares)
        assert not p or abs(np.mean(there == others[0]) - q) < 4 * np.sqrt(q * (1 - q) / len(there))
    assert {*kmeans_plus_plus(wl.random.key(0), x, 4, weight)[:, 0]} == {0, 1, 3}  # never one of weight 0


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
@ALL
def test_weights_are_counts(kind, jitted):
    x, count = points(120), np.random.default_rng(1).integers(0, 4, 120)
    fit = lambda x, w: fit_mixture(x, 3, kind, start=starting(), steps=20, tol=0.0, sample_weight=w)
    found = (wl.jit(fit) if jitted else fit)(x, count.astype(float))
    expected = fit_mixture(np.repeat(x, count, axis=0), 3, kind, start=starting(), steps=20, tol=0.0)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)
    absent = np.concatenate([x, np.full((40, 2), 1e3)])  # of weight zero
    found = fit_mixture(absent, 3, kind, key=wl.random.key(0), sample_weight=np.repeat([1.0, 0.0], [120, 40]))
    assert np.all(found.means > x.min(axis=0)) and np.all(found.means < x.max(axis=0))
    for wrong, message in (
        (count[:5], "one number for each point"), (-count, "not negative"), (0 * count, "all weights are zero")
    ):  # fmt: skip
        with pytest.raises((ArgumentError, ValueError), match=message):
            fit_mixture(x, 3, kind, start=starting(), sample_weight=wrong)


def test_from_kmeans_plus_plus_it_finds_the_clusters():
    rng = np.random.default_rng(0)
    x = np.concatenate([c + 0.5 * rng.normal(size=(100, 2)) for c in CENTRES])
    found = fit_mixture(x, 3, key=wl.random.key(1))
    order = np.argsort(found.means @ [1, 2])
    np.testing.assert_allclose(found.means[order], CENTRES[np.argsort(CENTRES @ [1, 2])], atol=0.25)
    np.testing.assert_allclose(found.weights, 1 / 3, atol=0.02)


def test_one_component_is_the_sample():
    x = points()
    found = fit_mixture(x, 1, key=wl.random.key(0), regularization=0.0)
    np.testing.assert_allclose(found.means[0], x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.covariances[0], np.cov(x.T, ddof=0), rtol=1e-12)
    exact = stats.multivariate_normal(x.mean(0), np.cov(x.T, ddof=0)).logpdf(x).mean()
    np.testing.assert_allclose(found.log_likelihood, exact, rtol=1e-12)


def test_a_component_on_one_point_stays_finite():
    x = np.concatenate([points(50), [[100.0, 100.0]]])
    found = fit_mixture(x, 2, start=(np.ones(2) / 2, np.array([[1.0, 1], [100, 100]]), np.stack([np.eye(2)] * 2)))
    np.testing.assert_allclose(found.covariances[1], 1e-6 * np.eye(2), atol=1e-9)
    assert np.isfinite(found.log_likelihood)


def test_what_is_refused():
    x = points(10)
    with pytest.raises(ArgumentError, match="kind is one of"):
        fit_mixture(x, 2, "diag")
    with pytest.raises(ArgumentError, match="1 to n components"):
        fit_mixture(x, 11)
    with pytest.raises(ArgumentError, match=r"start is \(weights, means, covariances\)"):
        fit_mixture(x, 2, start=starting())
    with pytest.raises(ArgumentError, match="kind is one of"):
        maximization(x, np.ones((10, 2)) / 2, "round")
