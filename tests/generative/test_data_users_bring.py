"""Data as users bring them: lists, integers and labels of any dtype give the same numbers; what is wrong is said."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.mixture import GaussianMixture

import wonderland as wl
from wonderland import generative, nn

KEY = wl.random.key(0)
X = np.random.default_rng(0).normal(size=(6, 4))
BITS = (X > 0).astype(float)
BOTH = pytest.mark.parametrize("run", [lambda f: f, wl.jit], ids=["eager", "jitted"])


def linear(*sizes):
    return nn.Linear(*sizes, key=KEY, dtype=np.float64)


def vae(outputs=4, **settings):
    return generative.VAE(linear(4, 4), linear(2, outputs), 2, key=KEY, dtype=np.float64, **settings)


class WithLabel(nn.Module):
    def __init__(self, inputs, outputs):
        self.inner, self.shift = linear(inputs, outputs), nn.Embedding(6, outputs, key=KEY, dtype=np.float64)

    def __call__(self, x, labels):
        return self.inner(x) + self.shift(labels)


def conditional(**settings):
    return generative.ConditionalVAE(WithLabel(4, 4), WithLabel(2, 4), 2, key=KEY, **settings)


def raster(vocab=3, classes=4):
    return generative.RasterGPT(vocab, (2, 2), 1, 2, 8, classes=classes, key=KEY, dtype=np.float64)


def patches(classes=1):
    return generative.PatchTransformer(4, 2, 2, 1, 2, 8, classes, key=KEY, dtype=np.float64)


def pixels(classes=None):
    return generative.PixelCNN(3, 4, 1, classes=classes, key=KEY, dtype=np.float64)


GRIDS = np.array([[[0, 1], [2, 1]], [[2, 2], [0, 0]]])
PATCHES = X[:4].reshape(2, 2, 4)
EYES = np.stack([np.eye(4)] * 2)
VELOCITY = lambda x, t: -x
fit = generative.fit_mixture

# Numbers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [[0, 1, 2, 3, 4, 5], np.arange(6, dtype=np.uint8)], ids=["list", "uint8"])
def test_labels_of_a_conditional_vae(labels):
    model = conditional(samples=3)
    np.testing.assert_array_equal(model.elbo(X, labels, key=KEY), model.elbo(X, np.arange(6), key=KEY))
    np.testing.assert_array_equal(model.sample(6, labels, key=KEY), model.sample(6, np.arange(6), key=KEY))


def test_small_integers_as_labels_do_not_begin_again():
    model, labels = raster(254), np.array([1, 3])
    expected = model.log_prob(GRIDS, labels)
    for given in (labels.astype(np.uint8), labels.tolist()):
        np.testing.assert_array_equal(model.log_prob(GRIDS.astype(np.uint8), given), expected)
    assert abs(expected[1] - model.log_prob(GRIDS, np.array([1, 0]))[1]) > 1e-6


def test_lists_and_whole_numbers_of_any_dtype():
    for given in (GRIDS.tolist(), GRIDS.astype(np.uint8), GRIDS.astype(np.float32)):
        np.testing.assert_array_equal(pixels().log_prob(given), pixels().log_prob(GRIDS))
    np.testing.assert_array_equal(patches(3).log_prob(PATCHES.tolist(), [2, 0]), patches(3).log_prob(PATCHES, [2, 0]))
    given = np.array([[[1, -1], [-1, 2]]])
    np.testing.assert_array_equal(
        pixels().sample(KEY, (1, 2, 2), given=given.tolist()), pixels().sample(KEY, (1, 2, 2), given=given)
    )


@BOTH
def test_nearest_codes_of_vectors_far_from_zero(run):
    layer = generative.VectorQuantizer(8, 4, key=KEY).eval()
    layer.codebook[...] += np.float32(1e4)
    z = (X + 1e4).astype(np.float32)
    expected = np.argmin(cdist(z.astype(np.float64), layer.codebook.astype(np.float64)), axis=1)
    np.testing.assert_array_equal(run(lambda layer, z: layer.encode_tokens(z))(layer, z), expected)


@pytest.mark.parametrize("update", ["gradient", "ema"])
def test_codes_are_filled_with_different_vectors(update):
    layer = generative.VectorQuantizer(6, 4, update=update, key=KEY, dtype=np.float64)
    layer.fill(X, KEY)
    np.testing.assert_array_equal(np.sort(layer.encode_tokens(X)), np.arange(6))  # none is dead
    layer.fill(X[:2], KEY)  # fewer vectors than codes
    assert np.all(cdist(layer.codebook, X[:2]).min(1) == 0)


@BOTH
def test_optimal_pairs_of_points_far_from_zero(run):
    x, y = X + 1e8, X[::-1] * 0.7 + 1e8
    expected = linear_sum_assignment(cdist(x, y, "sqeuclidean"))[1]
    np.testing.assert_array_equal(run(generative.optimal_pairs)(x, y), expected)


def test_flows_of_whole_numbers():
    whole = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(
        generative.flow_sample(VELOCITY, whole), generative.flow_sample(VELOCITY, whole.astype(float))
    )
    loss = lambda x, **given: generative.flow_matching_loss(VELOCITY, x, KEY, **given)
    assert loss(whole) == loss(whole.astype(float)) == loss(whole.tolist())
    assert loss(whole, times=[0.1, 0.2, 0.3]) == loss(whole, times=np.array([0.1, 0.2, 0.3]))


def test_a_linear_model_with_a_weight_of_integers():
    weight = np.array([[1], [2]])
    exact = generative.LinearGaussian(weight.astype(float), np.zeros(2), 0.5).log_likelihood(X[:, :2])
    np.testing.assert_array_equal(generative.LinearGaussian(weight, np.zeros(2), 0.5).log_likelihood(X[:, :2]), exact)


def test_steps_of_em_take_lists_and_integers():
    whole = (10 * X).astype(int)
    for a, b in zip(generative.maximization(whole.tolist(), BITS), generative.maximization(whole * 1.0, BITS)):
        np.testing.assert_array_equal(a, b)
    mixture = [0.5, 0.5], X[:2].tolist(), EYES
    np.testing.assert_array_equal(
        generative.responsibilities(whole, *mixture)[1], generative.responsibilities(whole * 1.0, *mixture)[1]
    )


@BOTH
def test_the_likeliest_of_several_runs(run):
    x = np.random.default_rng(4).normal(size=(60, 2))  # no clusters: EM ends in many maxima
    settings = {"kind": "spherical", "tol": 1e-6, "steps": 200}
    found = run(lambda key: fit(x, 4, key=key, restarts=8, **settings))(KEY)
    runs = [fit(x, 4, key=key, **settings) for key in wl.random.split(KEY, 8)]
    best = max(runs, key=lambda run: run.log_likelihood)
    assert best.log_likelihood > min(run.log_likelihood for run in runs) + 1e-3
    for a, b in zip(found, best, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)
    assert GaussianMixture(4, covariance_type="spherical", random_state=0).fit(x).score(x) < found.log_likelihood + 0.01


# What is refused ----------------------------------------------------------------------------------------------------

WRONG = {
    "Bernoulli of pixels": (lambda: vae(likelihood="bernoulli").loss(255 * BITS), "data from 0 to 1, got 255.0"),
    "Bernoulli of numbers": (lambda: vae(likelihood="bernoulli").loss(X), "data from 0 to 1, got -0.1321"),
    "Bernoulli of NaN": (lambda: vae(likelihood="bernoulli").loss(X * np.nan), "got nan"),
    "Bernoulli, compiled": (lambda: wl.jit(vae(likelihood="bernoulli").elbo)(X), "data from 0 to 1"),
    "Bernoulli with a variance": (lambda: vae(likelihood="bernoulli", sigma=0.1), 'for likelihood="gaussian"'),
    "a full covariance and sigma": (lambda: vae(14, variance="full", sigma=0.1), "the decoder says it all"),
    "sigma of the decoder's": (lambda: vae(8, variance="decoder", sigma=0.1), "leave out sigma=0.1"),
    "a sigma for another shape": (lambda: vae(variance="output", shape=(1,)).loss(X), r"shape \(1,\) for samples of"),
    "no samples": (lambda: vae().elbo(X, samples=0), "samples=0 is an integer of at least 1"),
    "no draws": (lambda: vae().log_likelihood(X, samples=0), "samples=0 is an integer of at least 1"),
    "half a latent number": (lambda: generative.VAE(linear(4, 4), linear(2, 4), 2.5), "latent=2.5 is an integer"),
    "beta below 0": (lambda: vae(beta=-1.0), "with 0 or more, got beta=-1.0"),
    "one label for all": (lambda: conditional().loss(X, [1]), r"each of 6 samples, got one of shape \(1,\)"),
    "one vector": (lambda: generative.AutoEncoder(linear(4, 2), linear(2, 4)).loss(X[0]), r"x\[None\] is a batch"),
    "fewer samples than codes": (lambda: generative.LinearAutoEncoder(4, 3).fit(X[:2]), "at least 3 samples"),
    "other features": (lambda: generative.LinearAutoEncoder(5, 3).fit(X), "of 5 features, got x of shape"),
    "directions of NaN": (lambda: generative.discarded_spectrum(X * np.nan, 1), "finite numbers, got nan"),
    "a code below 0": (lambda: generative.discarded_spectrum(X, -1), "0 or more numbers, got code=-1"),
    "no variance left": (lambda: generative.probabilistic_pca(X[:3], 2), "take fewer latent numbers"),
    "sigma 0": (lambda: generative.LinearGaussian(X, X[:, 0], 0.0).log_likelihood(X.T), "above 0, got 0.0"),
    "many sigmas": (lambda: generative.LinearGaussian(X, X[:, 0], X[:, 0]).log_likelihood(X.T), "one number for all"),
    "EM of NaN": (lambda: fit(X * np.nan, 2), "finite points, got nan"),
    "EM of NaN, compiled": (lambda: wl.jit(lambda x: fit(x, 2, key=KEY))(X * np.nan), "finite points"),
    "EM of numbers": (lambda: fit(X[:, 0], 2), r"are points x\[:, None\]"),
    "EM of half a component": (lambda: fit(X, 2.5), "components=2.5 is an integer"),
    "weights that aren't shares": (lambda: fit(X, 2, start=([5, 5], X[:2], EYES)), "shares that sum to 1, got 5.0"),
    "a start of means": (lambda: fit(X, 2, start=X[:2]), "start is .weights, means, covariances. .* got ndarray"),
    "no covariance": (lambda: fit(np.ones((9, 2)), 1, regularization=0.0, key=KEY), "a larger regularization="),
    "a start and restarts": (lambda: fit(X, 2, start=([0.5, 0.5], X[:2], EYES), restarts=3), "leave out restarts=3"),
    "parts of other points": (lambda: generative.maximization(X, BITS[:3]), r"got \(6, 4\) and \(3, 4\)"),
    "a weight for two": (lambda: generative.responsibilities(X, [1.0], X[:2], EYES), "a mixture is .weights"),
    "a token below 0": (lambda: generative.VectorQuantizer(8, 4).decode_tokens([0, -1]), "from 0 to 7, got -1"),
    "densities of other shapes": (
        lambda: generative.estimate_evidence(lambda z: -z[:, None], wl.random.normal, lambda z: -z, KEY, 5),
        r"shapes \(5, 1\) and \(5,\)",
    ),
    "noise of one sample": (
        lambda: generative.stochastic_backpropagation(np.sum, X[0], X[0], X[1]), r"noise \(M, d\), got"
    ),
    "rates below 0": (lambda: generative.exponential_elbo(-1.0, -1.0, 1.0), "rates of exponential distributions"),
    "a velocity that broadcasts": (
        lambda: generative.flow_matching_loss(lambda x, t: x[:, 0], X[:, :1], KEY), r"of shape \(6, 1\), got \(6,\)",
    ),
    "a velocity of other shape": (
        lambda: generative.flow_sample(lambda x, t: x[:, 0], (2, 2), key=KEY), "like the points",
    ),
    "times of another clock": (
        lambda: generative.flow_matching_loss(VELOCITY, X, KEY, times=np.arange(6)), "to 1 .noise., got 2",
    ),
    "pairs of few": (lambda: generative.optimal_pairs(X, X[:3]), r"got \(6, 4\) and \(3, 4\)"),
    "a penalty between few": (
        lambda: generative.gradient_penalty(linear(4, 1), X, X[:1], KEY), r"\(6, 4\), got \(1, 4\)",
    ),
    "pixels between 0 and 1": (lambda: pixels().log_prob(GRIDS / 4), "whole numbers from 0 to 2, got 0.25"),
    "pixels below 0": (lambda: pixels().log_prob(GRIDS - 1), "whole numbers from 0 to 2, got -1"),
    "pixels with channels": (lambda: pixels().log_prob(GRIDS[:, None]), "without an axis of channels"),
    "a label for many images": (lambda: pixels(3).log_prob(GRIDS, [1]), r"each of 2 samples, got shape \(1,\)"),
    "given pixels too large": (lambda: pixels().sample(KEY, (2, 2, 2), given=9 + GRIDS), "0 to 2, got 9"),
    "given pixels of one": (lambda: pixels().sample(KEY, (2, 2, 2), given=GRIDS[0]), r"\(2, 2, 2\), got \(2, 2\)"),
    "a grid lying down": (lambda: raster(classes=1).log_prob(GRIDS.reshape(2, 1, 4)), "expected grids of"),
    "a token of a class": (lambda: raster().log_prob(GRIDS + 1, [0, 1]), "whole numbers from 0 to 2, got 3"),
    "a label below 0": (lambda: raster().log_prob(GRIDS, [0, -1]), "labels are whole numbers from 0 to 3, got -1"),
    "labels and another count": (lambda: raster().sample(KEY, 5, [0, 1]), "each of 5 samples"),
    "patches without labels": (lambda: patches(3).log_prob(PATCHES), "a model of 3 classes needs labels"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name):
    call, message = WRONG[name]
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        call()


def test_one_weight_has_no_standard_error():
    assert np.isnan(generative.evidence(np.array([3.0])).error)
