"""diffusers' checks of its deterministic schedulers: input arange(768) / 768, model x t / (t + 1), ten steps.

The numbers are those of huggingface/diffusers, tests/schedulers (test_scheduler_ddim.py, _edm_euler.py, _lms.py,
_dpm_multi.py, _unipc.py), with their tolerances: sums of the absolute values to 1e-2 (EDM 1e-3), means to 1e-3. They
were computed in single precision.
"""

import numpy as np
import pytest

from wonderland.generative import (
    DDIM,
    DDPM,
    LMS,
    DPMSolver,
    UniPC,
    as_denoiser,
    ddpm_linear,
    edm_denoiser,
    from_frame,
    karras,
    sample,
    to_alpha_bar,
    to_frame,
    to_sigma,
)

X = (np.arange(768) / 768).reshape(3, 8, 8, 4).transpose(3, 0, 1, 2)
LINEAR = to_sigma(np.cumprod(1 - np.linspace(1e-4, 0.02, 1000)))


def model(x, t):
    return x * t / (t + 1)


def vp_denoiser(prediction, table=LINEAR):
    """The model as one of variance 1, which is told the number of the training step."""
    return as_denoiser(model, prediction, "vp", lambda sigma: np.interp(sigma, table, np.arange(len(table))))


@pytest.mark.parametrize(("prediction", "total"), [("epsilon", 172.0067), ("v", 52.5302)])
def test_ddim(prediction, total):
    sigmas = ddpm_linear(10)
    x = sample(vp_denoiser(prediction), from_frame(X, sigmas[0], "vp"), sigmas, DDIM())
    assert abs(np.abs(x).sum() - total) < 1e-2


def test_ddim_of_other_betas_and_another_end():
    """set_alpha_to_one is a last level of 0; without, it is that of the first training step."""
    table = to_sigma(np.cumprod(1 - np.linspace(0.01, 0.02, 1000)))
    sigmas = ddpm_linear(10, beta_start=0.01)
    epsilon = vp_denoiser("epsilon", table)
    x = sample(epsilon, from_frame(X, sigmas[0], "vp"), sigmas)
    assert abs(np.abs(x).sum() - 149.8295) < 1e-2
    # Its last step goes from the level of the first training step to the same level: nothing moves.
    x = sample(epsilon, from_frame(X, sigmas[0], "vp"), sigmas[:-1])
    assert abs(np.abs(to_frame(x, sigmas[-2], "vp")).sum() - 149.0784) < 1e-2


@pytest.mark.parametrize(("t", "before", "variance"), [(420, 400, 0.14771), (980, 960, 0.32460), (487, 486, 0.00979),
                                                       (999, 998, 0.02)])  # fmt: skip
def test_variances_of_ddpm(t, before, variance):
    sigmas = np.array([LINEAR[t], LINEAR[before]])
    eta = DDPM().table(sigmas)[2][0]
    assert abs(to_alpha_bar(sigmas[1]) * eta**2 - variance) < 1e-5


def test_edm_euler():
    x = sample(edm_denoiser(model), X * np.sqrt(80**2 + 1), karras(10), DDIM())
    assert abs(np.abs(x).sum() - 34.1855) < 1e-3


@pytest.mark.parametrize(("spaced", "total"), [("training", 1006.388), ("karras", 3812.9927)])
def test_lms(spaced, total):
    """Their loop scales x itself before each step, not only what the model sees: so the steps are taken one by one.

    Their products of alphas are of single precision, which the sum shows.
    """
    alpha_bar = np.cumprod(1 - np.linspace(1e-4, 0.02, 1100, dtype=np.float32), dtype=np.float32)
    table = np.sqrt((1 - alpha_bar) / alpha_bar).astype(np.float64)
    times = np.linspace(0, 1099, 10)[::-1]
    sigmas = np.append(np.interp(times, np.arange(1100), table), 0.0)
    if spaced == "karras":
        sigmas = karras(10, sigmas[-2], sigmas[0])
        times = np.interp(np.log(sigmas[:-1]), np.log(table), np.arange(1100))
    else:  # what our schedule has in double precision
        np.testing.assert_allclose(ddpm_linear(10, train_steps=1100, spacing="linspace"), sigmas, rtol=1e-3)
    solver = LMS(order=4)
    levels, weights = solver.table(sigmas)
    x = X * sigmas[0]
    state = solver.begin(x)
    for sigma, weight, t in zip(levels, weights, times, strict=True):
        x = to_frame(x, sigma, "vp")
        x, state = solver.step(lambda x, sigma, t=t: model(x, t), x, state, (sigma, weight), None)
    assert abs(np.abs(x).sum() - total) < 1e-2


@pytest.mark.parametrize(("prediction", "mean"), [("epsilon", 0.3301), ("v", 0.2251)])
def test_dpm_solver_2m(prediction, mean):
    sigmas = np.append(LINEAR[np.linspace(0, 999, 11).round().astype(int)[:0:-1]], LINEAR[0])
    x = sample(vp_denoiser(prediction), from_frame(X, sigmas[0], "vp"), sigmas, DPMSolver(order=2))
    assert abs(np.abs(to_frame(x, sigmas[-1], "vp")).mean() - mean) < 1e-3


@pytest.mark.parametrize(("prediction", "mean"), [("epsilon", 0.2464), ("v", 0.1014)])
def test_unipc(prediction, mean):
    """Theirs ends with a step of order 1 (lower_order_final), which is put into the table."""
    sigmas = np.append(LINEAR[np.linspace(0, 999, 11).round().astype(int)[:0:-1]], LINEAR[0])
    solver = UniPC(order=2)
    sigma, ratio, predict, before, correct = solver.table(sigmas)
    predict = np.concatenate([predict[:-1], [[1 - ratio[-1], 0.0]]])
    x = from_frame(X, sigmas[0], "vp")
    state = solver.begin(x)
    for row in zip(sigma, ratio, predict, before, correct, strict=True):
        x, state = solver.step(vp_denoiser(prediction), x, state, row, None)
    assert abs(np.abs(to_frame(x, sigmas[-1], "vp")).mean() - mean) < 1e-3
