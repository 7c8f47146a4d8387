"""Schedules: noise levels to sample at, as plain arrays.

In: a number of steps and the ends. Out: sigmas (n + 1,), decreasing, for n steps of a sampler; the last is 0 unless
`zero=False` asks for n + 1 positive ones. Schedules of models trained with a variance kept at 1 (variance preserving)
are defined by alpha_bar, the part of the variance that is data, and sigma^2 = (1 - alpha_bar) / alpha_bar.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer


def to_sigma(alpha_bar: Any) -> Any:
    """sqrt((1 - alpha_bar) / alpha_bar): the noise level of sqrt(alpha_bar) x0 + sqrt(1 - alpha_bar) epsilon."""
    return np.sqrt((1 - alpha_bar) / alpha_bar)


def to_alpha_bar(sigma: Any) -> Any:
    """1 / (1 + sigma^2), which `to_sigma` inverts."""
    return 1 / (1 + sigma * sigma)


def check_sigmas(sigmas: Any) -> Any:
    """The schedule as an array (N + 1,), or an error that says what is wrong: finite, decreasing, not below 0."""
    if not isinstance(sigmas, Tracer):
        sigmas = np.asarray(sigmas)
        if sigmas.dtype.kind not in "fiu":
            raise ArgumentError(f"a schedule is an array of noise levels: got dtype {sigmas.dtype}")
        if sigmas.dtype.kind != "f":
            sigmas = sigmas.astype(np.float64)
    if np.ndim(sigmas) != 1 or np.shape(sigmas)[0] < 2:
        raise ArgumentError(
            f"a schedule is an array (N + 1,) of noise levels for N >= 1 steps: got shape {np.shape(sigmas)}"
        )
    if isinstance(sigmas, Tracer):
        return sigmas  # its values aren't known yet
    for wrong, what in (
        (~np.isfinite(sigmas), "is finite"),
        (sigmas < 0, "isn't below 0"),
        (np.append(False, sigmas[1:] >= sigmas[:-1]), "decreases (the other way round it is sigmas[::-1])"),
    ):
        if np.any(wrong):
            place = int(np.argmax(wrong))
            before = f" after {sigmas[place - 1]}" if place else ""
            raise ArgumentError(f"a schedule {what}; got sigmas[{place}] = {sigmas[place]}{before}")
    return sigmas


def log_linear(n: int, sigma_min: float = 0.002, sigma_max: float = 80.0, zero: bool = True) -> Any:
    """A geometric sequence: every step divides sigma by the same factor."""
    _check_ends(n, sigma_min, sigma_max)
    return _ended(np.geomspace(sigma_max, sigma_min, n if zero else n + 1), zero)


geometric = log_linear


def karras(n: int, sigma_min: float = 0.002, sigma_max: float = 80.0, rho: float = 7.0, zero: bool = True) -> Any:
    """sigma^(1/rho) evenly spaced (Karras et al. 2022, equation 5): short steps where sigma is small."""
    _check_ends(n, sigma_min, sigma_max)
    if not 0 < rho < math.inf:
        raise ArgumentError(f"rho is above 0: got rho={rho}")
    count = n if zero else n + 1
    # Ends to the bit: a power of a root isn't the number.
    between = np.linspace(sigma_max ** (1 / rho), sigma_min ** (1 / rho), count)[1:-1] ** rho
    return _ended(np.concatenate([[sigma_max], between, [sigma_min]])[:count], zero)


def flow(n: int, sigma_max: float = 80.0, shift: float = 1.0) -> Any:
    """Even steps in the time t of x_t = (1 - t) x0 + t epsilon, down to 0: sigma = shift t / (1 - t).

    At t = 1, noise alone, sigma has no limit: the first t is that of `sigma_max`. `shift` > 1 stays longer where there
    is noise (Esser et al. 2024).
    """
    _check_steps(n)
    if not 0 < sigma_max < math.inf or not 0 < shift < math.inf:
        raise ArgumentError(f"sigma_max and shift are above 0: got {sigma_max} and {shift}")
    start = sigma_max / shift
    t = np.linspace(start / (1 + start), 0, n + 1)
    return np.concatenate([[sigma_max], shift * t[1:] / (1 - t[1:])])


def ddpm_linear(
    n: int, beta_start: float = 1e-4, beta_end: float = 0.02, train_steps: int = 1000, spacing: str = "leading",
    zero: bool = True,
) -> Any:  # fmt: skip
    """Of betas on a line (Ho et al. 2020): alpha_bar_t is the product of 1 - beta_s over s <= t."""
    return _taken(n, np.linspace(beta_start, beta_end, train_steps), spacing, zero)


def scaled_linear(
    n: int, beta_start: float = 0.00085, beta_end: float = 0.012, train_steps: int = 1000, spacing: str = "leading",
    zero: bool = True,
) -> Any:  # fmt: skip
    """Of betas whose roots are on a line: that of latent diffusion (Rombach et al. 2022)."""
    return _taken(n, np.linspace(beta_start**0.5, beta_end**0.5, train_steps) ** 2, spacing, zero)


def sigmoid(
    n: int, beta_start: float = 1e-4, beta_end: float = 0.02, train_steps: int = 1000, spacing: str = "leading",
    zero: bool = True,
) -> Any:  # fmt: skip
    """Of betas on a sigmoid from `beta_start` to `beta_end` (Xu et al. 2022)."""
    bend = 1 / (1 + np.exp(-np.linspace(-6, 6, train_steps)))
    return _taken(n, beta_start + (beta_end - beta_start) * bend, spacing, zero)


def cosine(
    n: int, train_steps: int = 1000, spacing: str = "leading", max_beta: float = 0.999, zero: bool = True
) -> Any:
    """Of alpha_bar = cos^2 of a time that goes from 0.008 to a right angle (Nichol & Dhariwal 2021)."""
    t = np.linspace(0, 1, train_steps + 1)
    alpha_bar = np.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
    return _taken(n, np.minimum(1 - alpha_bar[1:] / alpha_bar[:-1], max_beta), spacing, zero)


def _taken(n: int, betas: Any, spacing: str, zero: bool) -> Any:
    """Of the noise levels of training, one for each beta, those at n (and one more, without a zero) places."""
    _check_steps(n)
    total, count = len(betas), n if zero else n + 1
    if count > total:
        raise ArgumentError(f"a schedule of {total} training steps has at most {total - count + n} steps: got n={n}")
    if not np.all((betas > 0) & (betas < 1)):
        raise ArgumentError(f"betas are between 0 and 1: got some from {np.min(betas)} to {np.max(betas)}")
    sigmas = to_sigma(np.cumprod(1 - betas))
    # The names and places of Lin et al. 2024, table 2.
    if spacing == "leading":
        times = np.arange(count)[::-1] * (total // count)
    elif spacing == "trailing":
        times = np.round(np.arange(total, 0, -total / count))[:count] - 1
    elif spacing == "linspace":
        times = np.linspace(0, total - 1, count)[::-1]
    else:
        raise ArgumentError(f'spacing is "leading", "trailing" or "linspace": got {spacing!r}')
    return _ended(np.interp(times, np.arange(total), sigmas), zero)


def _ended(sigmas: Any, zero: bool) -> Any:
    return np.append(sigmas, 0.0) if zero else sigmas


def _check_steps(n: int) -> None:
    if not isinstance(n, (int, np.integer)) or n < 1:
        raise ArgumentError(f"a schedule has a whole number of steps, at least one: got n={n!r}")


def _check_ends(n: int, sigma_min: float, sigma_max: float) -> None:
    _check_steps(n)
    if not 0 < sigma_min < sigma_max < math.inf:
        raise ArgumentError(
            f"a schedule has 0 < sigma_min < sigma_max (a 0 comes after them): got {sigma_min} and {sigma_max}"
        )
