"""What users bring to diffusion: lists, integers, empty batches, wrong shapes; none of it gives a wrong number."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import wonderland as wl
from wonderland import generative as gen
from wonderland.core.errors import ArgumentError
from wonderland.generative import views
from wonderland.recipes import diffusion, generated
from wonderland.recipes.catalog import RecipeError

KEY = wl.random.key(0)
MIXTURE = gen.GaussianMixture([1, 3], [[-1, 0], [1, 2]], [[[1, 0.5], [0.5, 1]], [[2, 0], [0, 0.3]]])
LINE = gen.GaussianMixture([0.3, 0.7], [[-1.0], [2.0]], [0.2, 0.5])
SIGMAS = gen.karras(8)
POINTS = np.array([[0.5, 1.0], [-2.0, 3.0], [1.0, -1.0]])


@pytest.fixture(scope="module")
def network():
    made = gen.TimeMLP(2, (16,), classes=3, key=KEY)
    made.head.weight[...] = np.random.default_rng(1).normal(size=made.head.weight.shape)
    return made


# Mixtures and the ideal denoiser


@pytest.mark.parametrize("shape", [(9,), (9, 2), ()])
def test_points_of_another_dimension_are_not_broadcast(shape):
    with pytest.raises(ArgumentError, match=r"x is \(\.\.\., 1\).*x\[:, None\]"):
        LINE.log_prob(np.zeros(shape))
    with pytest.raises(ArgumentError, match="got shape"):
        LINE.posterior_mean(np.zeros(shape), 1.0)


def test_mixtures_take_lists_and_integers():
    np.testing.assert_array_equal(MIXTURE.score([[0, 1]]), MIXTURE.score(np.array([[0.0, 1.0]])))
    levels = [0.5, 1.0, 2.0]
    for of in (MIXTURE.posterior_mean, MIXTURE.posterior_covariance):
        np.testing.assert_array_equal(of(POINTS.tolist(), levels), of(POINTS, np.array(levels)))
        np.testing.assert_allclose(of(POINTS, levels)[1], of(POINTS[1], 1.0), rtol=1e-12)
    with pytest.raises(ArgumentError, match="one noise level"):
        MIXTURE.posterior_mean(POINTS[0], np.ones(2))


@pytest.mark.parametrize(
    ("weights", "covariances", "said"),
    [
        ([-1, 2], 1.0, "weights"),
        ([0, 0], 1.0, "weights"),
        ([np.nan, 1], 1.0, "weights"),
        ([1, 1], -1.0, "variances"),
        ([1, 1], [[[1, 0.9], [0, 1]], [[1, 0], [0, 1]]], r"symmetric.*covariances\[0\]"),
    ],
)
def test_what_is_no_mixture(weights, covariances, said):
    with pytest.raises(ArgumentError, match=said):
        gen.GaussianMixture(weights, [[0.0, 0.0], [1.0, 1.0]], covariances)


def test_no_density_and_no_samples_where_there_are_none():
    with pytest.raises(ArgumentError, match=r"noisy\(0.01\)"):
        gen.GaussianMixture([1.0], [[0.0, 0.0]], 0.0).log_prob(POINTS)
    with pytest.raises(ValueError, match="no eigenvalue below 0"):
        gen.GaussianMixture([1.0], [[0.0, 0.0]], [[[1.0, 2.0], [2.0, 1.0]]]).sample(KEY, 3)


def test_ideal_denoisers_take_lists_and_integers():
    ideal = gen.IdealDenoiser(POINTS)
    np.testing.assert_array_equal(ideal([[1, 0]], [2.0]), ideal(np.array([[1.0, 0.0]]), 2.0))


def test_densities_of_another_dimension():
    with pytest.raises(ArgumentError, match="gaussian_log_density"):
        gen.gaussian_log_density(POINTS[:, :1], [1, 2], np.eye(2))
    assert gen.diagonal_gaussian_kl([0.0, 1.0], [0.0, 0.0]) == 0.5
    with pytest.raises(ArgumentError, match="covariance"):
        gen.gaussian_flow(POINTS, 0.0, 1.0, 2.0, 1.0)


# Schedules and samplers


def test_what_is_no_schedule():
    with pytest.raises(ArgumentError, match=r"whole number.*10\.0"):
        gen.karras(10.0)
    with pytest.raises(ArgumentError, match="rho"):
        gen.karras(10, rho=0)
    with pytest.raises(ArgumentError, match="betas"):
        gen.ddpm_linear(10, 0.02, 2.0)
    with pytest.raises(ArgumentError, match="at most 999"):
        gen.ddpm_linear(1000, zero=False)


@pytest.mark.parametrize("solver", [gen.DDIM(), gen.DDPM(), gen.Heun(), gen.UniPC(), gen.AdaptiveHeun()])
def test_no_samples_at_all(solver):
    for denoiser in (MIXTURE.denoiser(), gen.IdealDenoiser(POINTS)):
        assert gen.sample(denoiser, (0, 2), SIGMAS, solver, key=KEY).shape == (0, 2)
    assert gen.log_likelihood(MIXTURE.denoiser(), np.zeros((0, 2)), SIGMAS).shape == (0,)


@pytest.mark.parametrize("sigmas", [SIGMAS, SIGMAS[:-1], np.array([5.0, 0.0])])
def test_an_inverted_trajectory_begins_with_x(sigmas):
    path = gen.invert(MIXTURE.denoiser(), POINTS, sigmas, trajectory=True)
    assert path.shape == (len(sigmas), 3, 2)
    np.testing.assert_array_equal(path[0], POINTS)
    np.testing.assert_array_equal(path[-1], gen.invert(MIXTURE.denoiser(), POINTS, sigmas))


def test_samplers_say_what_they_want():
    with pytest.raises(ArgumentError, match=r"isn't a function: use its denoiser\(\)"):
        gen.sample(MIXTURE, (3, 2), SIGMAS, key=KEY)
    with pytest.raises(ArgumentError, match="a solver is an object"):
        gen.invert(MIXTURE.denoiser(), POINTS, SIGMAS, gen.Heun)
    with pytest.raises(ArgumentError, match="probes"):
        gen.log_likelihood(MIXTURE.denoiser(), POINTS, SIGMAS, "hutchinson", KEY, probes=0)
    np.testing.assert_array_equal(
        gen.log_likelihood(MIXTURE.denoiser(), POINTS.tolist(), SIGMAS),
        gen.log_likelihood(MIXTURE.denoiser(), POINTS, SIGMAS),
    )


def test_langevin_takes_x_and_no_shape():
    for run in (gen.langevin, gen.mala):
        with pytest.raises(ArgumentError, match="not a shape"):
            run(MIXTURE.score, (16, 2), 10, 0.1, KEY)
        with pytest.raises(ArgumentError, match=r"step_size=-0\.1"):
            run(MIXTURE.score, POINTS, 10, -0.1, KEY)
        with pytest.raises(ArgumentError, match="steps=0"):
            run(MIXTURE.score, POINTS, 0, 0.1, KEY)
    with pytest.raises(ArgumentError, match="score"):
        gen.langevin(lambda x: x[:, 0], POINTS, 10, 0.1, KEY)


def test_langevin_keeps_the_precision_of_x():
    single = POINTS.astype(np.float32)
    assert gen.langevin(MIXTURE.score, single, 3, 0.1, KEY).dtype == np.float32
    double = lambda x, sigma: MIXTURE.denoiser()(x.astype(np.float64), sigma)
    assert gen.annealed_langevin(double, single, SIGMAS, KEY, steps=2).dtype == np.float32


def test_clipped_samples_are_within_bounds():
    wide = gen.GaussianMixture([1.0], [[0.5, 0.0]], 4.0).denoiser()
    x = gen.sample(wide, (200, 2), SIGMAS, gen.DPMSolver(), key=KEY)
    assert np.abs(x).max() > 2
    inside = gen.sample(gen.clipped(wide), (200, 2), SIGMAS, gen.DPMSolver(), key=KEY)
    assert inside.min() >= -1 and inside.max() <= 1
    level = np.array([0.5, 1.0, 2.0])
    data = POINTS - level[:, None] * gen.clipped(wide, 0.0, 2.0)(POINTS, level)
    np.testing.assert_allclose(data, np.clip(POINTS - level[:, None] * wide(POINTS, level), 0, 2), atol=1e-15)


def test_clipping_changes_nothing_within_bounds_bit_for_bit():
    epsilon = MIXTURE.denoiser()
    np.testing.assert_array_equal(gen.clipped(epsilon, -99, 99)(POINTS, 0.7), epsilon(POINTS, 0.7))
    with pytest.raises(ArgumentError, match="low is below high"):
        gen.clipped(epsilon, 1, -1)


def test_predictions_are_not_broadcast():
    short = lambda x, time: x[:, :1]
    for denoiser in (gen.as_denoiser(short, "x0"), gen.edm_denoiser(short)):
        with pytest.raises(ArgumentError, match=r"of x \(3, 2\) it returned \(3, 1\)"):
            denoiser(POINTS, 1.0)


# Losses, networks, conditions


@pytest.mark.parametrize("sigmas", [-1.0, 0.0, np.nan, [], [0.0, 0.0], [1.0, -1.0]])
def test_losses_want_noise_levels(sigmas):
    with pytest.raises(ArgumentError, match="noise levels are above 0"):
        gen.score_matching_loss(MIXTURE.denoiser(), POINTS, KEY, sigmas)


def test_labels_may_be_unsigned(network):
    for dtype in (np.uint8, np.int8, np.int32):
        labels = np.array([0, 1, 2], dtype)
        np.testing.assert_array_equal(network(POINTS, 1.0, labels), network(POINTS, 1.0, [0, 1, 2]))
        found = gen.guided(network, labels, 2.0)(POINTS, 1.0)
        np.testing.assert_array_equal(found, gen.guided(network, [0, 1, 2], 2.0)(POINTS, 1.0))
        loss = lambda labels: gen.score_matching_loss(network, POINTS, KEY, SIGMAS, condition=labels)
        assert loss(labels) == loss([0, 1, 2])


def test_a_class_that_is_not_there_is_not_taken_for_none(network):
    for called in (network, wl.jit(network)):
        with pytest.raises(Exception, match="classes are numbers below 3"):
            called(POINTS, 1.0, np.array([0, 1, 3]))


def test_each_sample_has_a_condition(network):
    for labels in ([0, 1], [0, 1, 2, 0]):
        with pytest.raises(ArgumentError, match="each sample has a condition"):
            gen.score_matching_loss(network, POINTS, KEY, SIGMAS, condition=labels)
        for scale in (1.0, 2.0):
            with pytest.raises(ArgumentError, match="each sample has a condition"):
                gen.sample(gen.guided(network, labels, scale), POINTS, SIGMAS)
    with pytest.raises(ArgumentError, match="drop=2"):
        gen.score_matching_loss(network, POINTS, KEY, SIGMAS, condition=[0, 1, 2], drop=2)


@pytest.mark.parametrize("scale", [1, np.array(1.0), np.ones(3), [1.0, 1.0, 1.0]])
def test_no_guidance_is_the_network_bit_for_bit_when_compiled(network, scale):
    plain = wl.jit(lambda x, sigma: network(x, sigma, np.array([0, 1, 2])))(POINTS, 0.7)
    np.testing.assert_array_equal(wl.jit(gen.guided(network, [0, 1, 2], scale))(POINTS, 0.7), plain)
    with pytest.raises(TypeError, match="scale"):
        gen.guided(network, [0, 1, 2], None)(POINTS, 0.7)


def test_networks_want_batches_and_widths(network):
    with pytest.raises(ArgumentError, match=r"samples \(B, \.\.\.\)"):
        network(POINTS[0], 1.0)
    for hidden in ((), 16):
        with pytest.raises(ArgumentError, match="hidden"):
            gen.TimeMLP(2, hidden)
    with pytest.raises(ArgumentError, match="sigma_data"):
        gen.TimeMLP(2, (8,), sigma_data=0.0)(POINTS, 1.0)


def test_words_name_digits():
    with pytest.raises(RecipeError, match="words name digits"):
        generated.read("moons", "", 0, True)


@pytest.mark.parametrize("wrong", [{"samples": 1}, {"samples": -3}, {"steps": 0}])
def test_what_cannot_be_sampled_is_said_before_training(wrong):
    with pytest.raises(RecipeError, match="at least 2 and steps at least 1"):
        diffusion.run("moons", epochs=10**6, **wrong)


# Views, restoring, distances


def test_views_of_bytes():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7)).astype(np.uint8)
    np.testing.assert_array_equal(views.negate()(pixels), -pixels.astype(float))
    blurred = gaussian_filter(pixels.astype(float), 1.0, mode="reflect")
    np.testing.assert_allclose(views.low_pass(1.0)(pixels), blurred, atol=1e-11)
    np.testing.assert_allclose(views.high_pass(1.0)(pixels), pixels - blurred, atol=1e-11)
    with pytest.raises(ArgumentError, match="PixelView"):
        views.illusion(MIXTURE.denoiser(), [lambda x: x])


def test_restoring_checks_what_it_gets():
    known = np.array([True, False])
    project = gen.agreeing_pixels([1.0, 0.0], known)
    run = lambda denoiser, sigmas: gen.restore(denoiser, project, (3, 2), sigmas, KEY, repeats=2)
    for sigmas in (SIGMAS[::-1], [3.0, -1.0]):
        with pytest.raises(ArgumentError, match="a schedule"):
            run(MIXTURE.denoiser(), sigmas)
    with pytest.raises(ArgumentError, match="like x"):
        run(lambda x, sigma: x[:1], SIGMAS)
    with pytest.raises(ArgumentError, match=r"\(B, 1\) or \(1,\)"):
        gen.agreeing_linear(np.arange(3.0), [[1.0, 1.0]])


def test_restoring_keeps_the_precision_of_the_schedule():
    sigmas = SIGMAS.astype(np.float32)
    for project in (gen.agreeing_pixels([1.0, 0.0], [True, False]), gen.agreeing_linear([2.0], [[1.0, 1.0]])):
        found = gen.restore(MIXTURE.denoiser(), project, (3, 2), sigmas, KEY, repeats=2)
        assert found.dtype == np.float32 and np.all(np.isfinite(found))


def test_distances_that_are_none():
    for wrong in ({"p": np.inf}, {"p": 0.5}, {"projections": 0}):
        with pytest.raises(ArgumentError, match="sliced_wasserstein"):
            gen.sliced_wasserstein(POINTS, POINTS, **wrong)
    assert np.isnan(gen.sliced_wasserstein(np.nan * POINTS, POINTS))
    same = wl.grad(lambda x: gen.sliced_wasserstein(x, POINTS))(POINTS)
    np.testing.assert_array_equal(same, np.zeros_like(POINTS))
    for bandwidth in (None, 0.0, -1.0):
        with pytest.raises(ValueError, match="bandwidth is above 0"):
            gen.mmd(np.ones((4, 2)), np.ones((5, 2)), bandwidth)
    with pytest.raises(ArgumentError, match="gaussian_frechet"):
        gen.gaussian_frechet(0.0, 1.0, 0.0, 1.0)


# The U-Net's conditions and levels, and keys


def test_a_unet_of_tokens_says_what_they_are():
    network = gen.UNet(1, 8, (1, 1), context=4, tokens=5, key=KEY)
    x = np.zeros((2, 1, 4, 4), np.float32)
    for wrong, message in (
        ([[0], [5]], "below 5: got 5"),
        ([0, 1], "whole numbers"),
        ([[0.5], [1.0]], "whole numbers"),
    ):
        with pytest.raises((ValueError, ArgumentError), match=message):
            network(x, 1.0, np.array(wrong))
    same = network(x, 1.0, np.array([[3, 255 - 256], [1, 2]]))
    np.testing.assert_array_equal(network(x, 1.0, [[3, -1], [1, 2]]), same)
    assert network(x[:0], 1.0).shape == (0, 1, 4, 4)


@pytest.mark.parametrize("settings", [{"multiples": ()}, {"attention": (2,)}, {"blocks": 0}], ids=str)
def test_a_unet_has_levels_and_blocks(settings):
    with pytest.raises((ValueError, ArgumentError), match="UNet"):
        gen.UNet(1, 8, **settings)


def test_what_is_drawn_needs_a_key():
    with pytest.raises(ArgumentError, match="key"):
        gen.flow_sample(lambda x, t: x, (5, 2), 3)
    with pytest.raises(ArgumentError, match="key"):
        gen.gradient_penalty(lambda x: np.sum(x, 1), POINTS, POINTS)
    with pytest.raises(ArgumentError, match="projections"):
        gen.sliced_wasserstein(POINTS, POINTS, KEY)
