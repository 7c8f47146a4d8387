"""Score matching: how well a network knows the noise in data, as a loss; data, a key and noise levels come in.

    E |epsilon_theta(x0 + sigma epsilon, sigma) - epsilon|^2          (the mean over the numbers of a sample, too)

Conditions are dropped at random in training, so that one network knows the data with and without them, which guidance
needs: what is dropped becomes the *null condition*, -1 for integers (classes, tokens) and 0 for other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland import random
from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer
from wonderland.generative.denoising import as_condition, as_sigma
from wonderland.nn.arguments import array, floating

Weighting = float | str | Callable[[Any], Any]


def score_matching_loss(
    denoiser: Callable[..., Any], x0: Any, key: Any, sigmas: Any, *, weighting: Weighting = 1.0,
    condition: Any = None, drop: float = 0.1, sigma_data: float = 0.5,
) -> Any:  # fmt: skip
    """The mean of w(sigma) |epsilon_theta(x0 + sigma epsilon, sigma) - epsilon|^2 over a batch x0 (B, ...): a number.

    `sigmas` is one noise level, or a schedule: then each sample has its own, drawn log-uniformly between the schedule's
    smallest one above 0 and its largest. The same `key` draws the same levels and noise. `weighting` is a number,
    "edm" or "min-snr" (see `loss_weight`), or a function of sigma (B,).

    With a `condition` (B, ...), `denoiser(x, sigma, condition)` is called, and each sample's condition is dropped with
    probability `drop`.

        loss = lambda network, x0, labels, key: score_matching_loss(network, x0, key, sigmas, condition=labels)
    """
    x0 = floating(x0, "score_matching_loss: x0")
    of_levels, of_noise, of_drops = random.split(key, 3)
    sigma = draw_sigmas(of_levels, sigmas, x0.shape[0], x0.dtype)  # (B,)
    epsilon = random.normal(of_noise, x0.shape, dtype=x0.dtype)
    x = x0 + as_sigma(sigma, x0) * epsilon
    if condition is not None and np.shape(condition)[:1] != x0.shape[:1]:
        raise ArgumentError(f"each sample has a condition: got shape {np.shape(condition)} for x0 {x0.shape}")
    given = () if condition is None else (dropped(of_drops, condition, drop),)
    found = denoiser(x, sigma, *given)
    if found.shape != x.shape:
        raise ArgumentError(
            f"a denoiser returns noise of the shape of its data: got {found.shape} for data of shape {x.shape}"
        )
    square = (found - epsilon) ** 2
    return np.mean(as_sigma(loss_weight(weighting, sigma, sigma_data), x0) * square)


def draw_sigmas(key: Any, sigmas: Any, count: int, dtype: Any) -> Any:
    """Noise levels (count,): of one number that number, of a schedule log-uniform between its ends above 0."""
    sigmas = array(sigmas)
    if sigmas.ndim > 1:
        raise ArgumentError(f"sigmas are one noise level or a schedule (N,), not an array of shape {sigmas.shape}")
    _check_levels(sigmas)
    if sigmas.ndim == 0:
        return np.broadcast_to(sigmas.astype(dtype), (count,))
    high = np.max(sigmas)
    low = np.min(np.where(sigmas > 0, sigmas, high))  # the last level of a schedule is 0, whose noise nobody sees
    part = random.uniform(key, (count,), dtype=dtype)
    return np.exp(np.log(low) + part * np.log(high / low)).astype(dtype)


def _check_levels(sigmas: Any) -> None:
    if isinstance(sigmas, Tracer):
        return  # its values aren't known yet
    if not np.all(np.isfinite(sigmas) & (sigmas >= 0)) or not np.any(sigmas > 0):
        raise ArgumentError(f"noise levels are above 0 (but for the end of a schedule) and finite: got sigmas={sigmas}")


def loss_weight(weighting: Weighting, sigma: Any, sigma_data: float = 0.5) -> Any:
    """What the square of an error in epsilon is multiplied by at noise levels sigma (B,).

    A number: that. "edm": 1 + sigma^2 / sigma_data^2, which makes all levels count alike for a preconditioned network
    (Karras et al. 2022, whose weight 1/sigma^2 + 1/sigma_data^2 is for errors in x0). "min-snr": min(1, 5 sigma^2), as
    a signal-to-noise ratio 1/sigma^2 above 5 counts as 5 (Hang et al. 2023).
    """
    if callable(weighting):
        return weighting(sigma)
    if isinstance(weighting, str):
        if weighting not in ("edm", "min-snr"):
            raise ArgumentError(f'weighting is a number, "edm", "min-snr" or a function of sigma, not {weighting!r}')
        return 1 + (sigma / sigma_data) ** 2 if weighting == "edm" else np.minimum(1, 5 * sigma**2)
    return np.broadcast_to(array(weighting).astype(sigma.dtype), sigma.shape)


def null_condition(condition: Any) -> Any:
    """No condition, in the shape of some: -1 for integers, 0 for other numbers."""
    condition = as_condition(condition)
    return np.full(condition.shape, -1 if condition.dtype.kind == "i" else 0, condition.dtype)


def dropped(key: Any, condition: Any, drop: float) -> Any:
    """Conditions (B, ...), of which each is the null condition with probability `drop`."""
    condition = as_condition(condition)
    if not 0 <= drop <= 1:
        raise ArgumentError(f"drop is the probability that a condition is dropped, from 0 to 1: got drop={drop}")
    if not drop:
        return condition
    gone = random.bernoulli(key, (condition.shape[0],), drop)
    gone = gone.reshape(-1, *(1 for _ in condition.shape[1:]))
    return np.where(gone, null_condition(condition), condition)
