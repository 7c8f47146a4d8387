"""Solvers against closed forms on Gaussians and a fine solution on a mixture, whose denoisers are exact."""

import io
import itertools
import sys

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.generative import (
    DDIM,
    DDPM,
    LMS,
    Accelerated,
    DPMSolver,
    GaussianMixture,
    Heun,
    IdealDenoiser,
    UniPC,
    ddpm_linear,
    gaussian_flow,
    invert,
    karras,
    log_linear,
    sample,
    sample_noise,
    to_alpha_bar,
)

MIXTURE = GaussianMixture([0.3, 0.7], [[-1.0, 0.5], [1.0, -0.3]], [0.2, 0.1])
X = 10 * np.random.default_rng(0).normal(size=(8, 2))
SOLVERS = [
    DDIM(), DDPM(), DDPM(mu=0.2), Accelerated(), Accelerated(gamma=2.0), Heun(), Heun(churn=5.0), DPMSolver(1),
    DPMSolver(2), DPMSolver(3), UniPC(1), UniPC(2), UniPC(3), LMS(1), LMS(3), LMS(4),
]  # fmt: skip
SMOOTH = [solver for solver in SOLVERS if not solver.stochastic]
KEY = wl.random.key(7)


def solved(solver, n):
    run = lambda x: sample(MIXTURE.denoiser(), x, karras(n, 0.05, 10.0, zero=False), solver)
    return wl.jit(run)(X)


@pytest.fixture(scope="module")
def fine():
    """By two solvers of different kinds, which agree."""
    one, other = solved(UniPC(3), 3000), solved(LMS(4), 6000)
    np.testing.assert_allclose(one, other, atol=1e-7)
    return one


@pytest.mark.parametrize(
    ("solver", "order", "steps"),
    [
        (DDIM(), 1, 100), (Accelerated(gamma=1.3), 1, 800), (Accelerated(), 2, 200), (LMS(2), 2, 200), (Heun(), 2, 50),
        (DPMSolver(1), 1, 100), (DPMSolver(2), 2, 50), (DPMSolver(3), 3, 100), (UniPC(1), 2, 100), (UniPC(2), 3, 100),
    ],
    ids=str,
)  # fmt: skip
def test_order_of_convergence(solver, order, steps, fine):
    """Twice the steps divide the error by 2^order, measured three times."""
    errors = [np.abs(solved(solver, n) - fine).max() for n in (steps, 2 * steps, 4 * steps)]
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), order, atol=0.12)


def test_acceleration_is_adams_bashforth():
    """The gamma of uneven steps is that of the line through both noises: LMS of order 2."""
    np.testing.assert_allclose(solved(Accelerated(), 12), solved(LMS(2), 12), rtol=1e-12)
    weights = Accelerated().table(np.array([3.0, 2.0, 1.0, 0.0]))[1]
    np.testing.assert_allclose(weights, [[-1, 0], [-1.5, 0.5], [-1.5, 0.5]])


def test_first_order_is_ddim():
    for solver in (DDPM(mu=0.0), DPMSolver(1), LMS(1), Accelerated(gamma=1.0)):
        np.testing.assert_allclose(solved(solver, 12), solved(DDIM(), 12), rtol=1e-12)


def test_ddims_factor_on_a_gaussian():
    """epsilon = sigma x / (s2 + sigma^2): a step multiplies x by 1 + (sigma' - sigma) sigma / (s2 + sigma^2)."""
    s2, sigmas = 0.3, karras(7, 0.01, 5.0)
    factor = np.prod(1 + np.diff(sigmas) * sigmas[:-1] / (s2 + sigmas[:-1] ** 2))
    found = sample(GaussianMixture([1.0], np.zeros((1, 2)), s2).denoiser(), X, sigmas)
    np.testing.assert_allclose(found, factor * X, rtol=1e-13)


@pytest.mark.parametrize("mu", [0.0, 0.3, 0.5, 0.8])
def test_the_variance_of_ddpm_on_a_gaussian(mu):
    """V' = c^2 V + eta^2, exactly: x is the sum of independent noises with known factors."""
    s2, sigmas = 0.3, karras(6, 0.05, 5.0)
    denoiser = GaussianMixture([1.0], np.zeros((1, 1)), s2).denoiser()
    x = wanted = sigmas[0] * sample_noise(KEY, 0, (20000, 1))
    variance = sigmas[0] ** 2
    for i, (sigma, after) in enumerate(itertools.pairwise(sigmas)):
        lower = after ** (1 / (1 - mu)) * sigma ** (-mu / (1 - mu))  # after = sigma^mu lower^(1 - mu)
        c, eta = 1 + (lower - sigma) * sigma / (s2 + sigma**2), np.sqrt(after**2 - lower**2)
        variance = c**2 * variance + eta**2
        wanted = c * wanted + eta * sample_noise(KEY, i + 1, (20000, 1))
    found = sample(denoiser, x, sigmas, DDPM(mu=mu), key=KEY)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.var(), variance, rtol=4 * np.sqrt(2 / 20000))
    np.testing.assert_array_equal(sample(denoiser, (20000, 1), sigmas, DDPM(mu=mu), key=KEY), found)


def test_half_is_the_posterior_of_ddpm():
    """Ho et al. 2020, equations 6 and 7, in the frame of variance 1: the mean's two factors, and the variance."""
    sigmas = ddpm_linear(1000, zero=False, spacing="linspace", train_steps=1001)
    a, a_after = to_alpha_bar(sigmas[:-1]), to_alpha_bar(sigmas[1:])
    alpha = a / a_after
    sigma, change, eta = DDPM(mu=0.5).table(sigmas)
    np.testing.assert_allclose(a_after * eta**2, (1 - a_after) / (1 - a) * (1 - alpha), rtol=1e-9)
    # x' = x + change (x - x0) / sigma, where x is the frame's divided by sqrt(a)
    of_x = np.sqrt(a_after / a) * (1 + change / sigma)
    of_data = -np.sqrt(a_after) * change / sigma
    np.testing.assert_allclose(of_x, np.sqrt(alpha) * (1 - a_after) / (1 - a), rtol=1e-9)
    np.testing.assert_allclose(of_data, np.sqrt(a_after) * (1 - alpha) / (1 - a), rtol=1e-9)


def test_gaussians_flow_exactly():
    mean, covariance = np.array([1.0, -2.0]), np.array([[0.5, 0.2], [0.2, 0.3]])
    denoiser = GaussianMixture([1.0], mean[None], covariance[None]).denoiser()
    sigmas = log_linear(60, 0.02, 10.0, zero=False)
    wanted = gaussian_flow(X, mean, covariance, sigmas[0], sigmas[-1])
    for solver, tolerance in [(Heun(), 2e-2), (DPMSolver(3), 2e-3), (UniPC(3), 2e-4)]:
        np.testing.assert_allclose(sample(denoiser, X, sigmas, solver), wanted, atol=tolerance)


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_samples_are_of_the_mixture(solver):
    """Means and variances, of enough samples to see 5 %. Solvers with noise need more steps to come as near."""
    sigmas = karras(300 if solver.stochastic else 60, 0.01, 30.0)
    x = wl.jit(lambda key: sample(MIXTURE.denoiser(), (4000, 2), sigmas, solver, key=key))(KEY)
    mean = np.array([0.4, -0.06])
    variance = 0.3 * 0.2 + 0.7 * 0.1 + MIXTURE.weights @ (MIXTURE.means - mean) ** 2
    np.testing.assert_allclose(x.mean(axis=0), mean, atol=0.07)
    np.testing.assert_allclose(x.var(axis=0), variance, rtol=0.1)
    assert abs(np.mean(x[:, 0] < 0) - 0.3) < 0.05


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_and_eager_are_the_same(solver, dtype):
    """In both precisions, with the last level 0 and not; sigmas may be traced; the progress bar changes nothing."""
    for sigmas in (karras(5, 0.05, 10.0), karras(5, 0.05, 10.0, zero=False)):
        eager = sample(MIXTURE.denoiser(), X.astype(dtype), sigmas, solver, key=KEY)
        run = lambda x, sigmas: sample(MIXTURE.denoiser(), x, sigmas, solver, key=KEY)
        assert eager.dtype == dtype and np.isfinite(eager).all()
        tolerance = 1e-10 if dtype == np.float64 else 1e-4
        np.testing.assert_allclose(wl.jit(run)(X.astype(dtype), sigmas), eager, rtol=tolerance, atol=tolerance)
        double = sample(MIXTURE.denoiser(), X, sigmas, solver, key=KEY) if not solver.stochastic else eager
        np.testing.assert_allclose(eager, double, rtol=2e-4, atol=2e-4)
        looped = sample(MIXTURE.denoiser(), X.astype(dtype), sigmas, solver, key=KEY, progress=True)
        assert looped.dtype == dtype
        np.testing.assert_allclose(looped, eager, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_noise_is_the_samples_own(solver):
    """The first rows of a larger batch are those of a smaller one."""
    run = lambda n: sample(MIXTURE.denoiser(), (n, 2), karras(6), solver, key=KEY)
    np.testing.assert_allclose(run(9)[:4], run(4), rtol=1e-12)
    assert len({*run(9)[:, 0]}) == 9
    np.testing.assert_array_equal(sample_noise(KEY, 3, (9, 2, 2))[:4], sample_noise(KEY, 3, (4, 2, 2)))
    assert not np.any(sample_noise(KEY, 3, (4, 2)) == sample_noise(KEY, 4, (4, 2)))


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_trajectories(solver):
    sigmas = karras(6)
    xs = sample(MIXTURE.denoiser(), (3, 2), sigmas, solver, key=KEY, trajectory=True)
    assert xs.shape == (7, 3, 2)
    np.testing.assert_array_equal(xs[0], sigmas[0] * sample_noise(KEY, 0, (3, 2)))
    np.testing.assert_array_equal(xs[-1], sample(MIXTURE.denoiser(), (3, 2), sigmas, solver, key=KEY))
    bar = sample(MIXTURE.denoiser(), (3, 2), sigmas, solver, key=KEY, trajectory=True, progress=True)
    np.testing.assert_allclose(bar, xs, rtol=1e-10, atol=1e-12)


def test_the_progress_bar_is_seen(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    sample(MIXTURE.denoiser(), (3, 2), karras(6), key=KEY, progress=True)
    assert "1/6" in sys.stderr.getvalue()


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_data_come_back_from_the_ideal_denoiser(solver):
    data = np.random.default_rng(3).normal(size=(20, 3, 2))
    x = sample(IdealDenoiser(data), (6, 3, 2), karras(30), solver, key=KEY)
    nearest = np.abs(x[:, None] - data).max(axis=(2, 3)).min(axis=1)
    assert nearest.max() < 0.1 * 0.002  # the last level before 0


@pytest.mark.parametrize("solver", SMOOTH, ids=str)
def test_inversion(solver):
    """Data to noise and back, with many steps; exactly the flow of a Gaussian."""
    x = MIXTURE.sample(KEY, 5)
    sigmas = log_linear(150, 0.01, 20.0)
    noise = invert(MIXTURE.denoiser(), x, sigmas, solver)
    back = sample(MIXTURE.denoiser(), noise, sigmas, solver)
    np.testing.assert_allclose(back, x, atol=0.1)
    gaussian = GaussianMixture([1.0], np.zeros((1, 2)), 0.5).denoiser()
    sigmas = log_linear(200, 0.01, 20.0, zero=False)
    wanted = x * np.sqrt((0.5 + 20.0**2) / (0.5 + 0.01**2))
    first = isinstance(solver, (DDIM,)) or getattr(solver, "order", 2) == 1 or getattr(solver, "gamma", None)
    np.testing.assert_allclose(invert(gaussian, x, sigmas, solver), wanted, rtol=4e-2 if first else 3e-3)
    upwards = invert(MIXTURE.denoiser(), x, karras(4), solver, trajectory=True)
    np.testing.assert_array_equal(upwards[-1], invert(MIXTURE.denoiser(), x, karras(4), solver))


def test_derivatives_go_through_samplers():
    """Of the samples' mean in the mixture's means, by differences."""
    def loss(means, solver):
        mixture = GaussianMixture(MIXTURE.weights, means, MIXTURE.covariances)
        return np.mean(sample(mixture.denoiser(), X, karras(5, 0.05, 10.0), solver) ** 2)

    for solver in (DDIM(), Heun(), DPMSolver(3), UniPC(2)):
        found = wl.jit(wl.grad(loss), static_argnums=1)(MIXTURE.means, solver)
        step = np.zeros((2, 2))
        step[1, 0] = 1e-5
        slope = (loss(MIXTURE.means + step, solver) - loss(MIXTURE.means - step, solver)) / 2e-5
        np.testing.assert_allclose(found[1, 0], slope, rtol=1e-6)


def test_networks():
    """A Module is a denoiser as it is, inside and outside of jit, held by a function or given to it."""
    class Network(wl.nn.Module):
        def __init__(self):
            self.inside = wl.nn.Linear(3, 8, key=wl.random.key(0))
            self.out = wl.nn.Linear(8, 2, key=wl.random.key(1))

        def __call__(self, x, sigma, condition=None):
            level = np.broadcast_to(np.log(sigma), (len(x), 1))
            return self.out(np.tanh(self.inside(np.concatenate([x, level], axis=1))))

    network, sigmas, x = Network(), karras(4, 0.1, 10.0), X.astype(np.float32)
    for solver in (DDIM(), DDPM(), Heun(), DPMSolver(3), UniPC(2)):
        eager = sample(network, x, sigmas, solver, key=KEY)
        held = wl.jit(lambda x, s=solver: sample(network, x, sigmas, s, key=KEY))(x)
        given = wl.jit(lambda network, x, s=solver: sample(lambda x, v: network(x, v, None), x, sigmas, s, key=KEY))
        np.testing.assert_allclose(held, eager, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(given(network, x), eager, rtol=1e-4, atol=1e-5)
        gradient = wl.grad(lambda network, s=solver: np.sum(sample(network, x, sigmas, s, key=KEY) ** 2))(network)
        assert np.isfinite(gradient.out.weight).all() and np.any(gradient.out.weight)


def test_errors():
    epsilon = MIXTURE.denoiser()
    for call, said in [
        (lambda: sample(epsilon, (3, 2), karras(5)), r"samples begin with noise: give a key"),
        (lambda: sample(epsilon, X, karras(5), DDPM()), r"DDPM\(mu=0.5\) adds noise: give it a key"),
        (lambda: sample(epsilon, X, [0.0, 1.0]), r"a schedule decreases"),
        (lambda: sample(epsilon, X, karras(5), "heun"), r"an object like DDIM\(\) or Heun\(\): got 'heun'"),
        (lambda: sample(epsilon, 3.0, karras(5)), r"x is \(B, ...\)"),
        (lambda: sample(lambda x, sigma: x[0], X, karras(5)), r"of x \(8, 2\) it returned \(2,\)"),
        (lambda: invert(epsilon, X, karras(5), DDPM()), r"adds noise, which can't be undone"),
        (lambda: DDPM(mu=1.0), r"mu is in \[0, 1\).*got mu=1.0"),
        (lambda: DPMSolver(4), r"order 1, 2 or 3: got order=4"),
        (lambda: UniPC(0), r"order 1, 2 or 3: got order=0"),
        (lambda: LMS(5), r"order 1, 2, 3 or 4: got order=5"),
        (lambda: Heun(churn=-1), r"churn isn't below 0"),
    ]:
        with pytest.raises(ArgumentError, match=said):
            call()
