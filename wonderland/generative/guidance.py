"""Guidance: a conditioned network comes in, and a denoiser `epsilon(x, sigma)` that follows the condition goes out.

A condition is whatever the network takes: classes (B,), sequences of tokens (B, S) or of vectors (B, S, width); one
that is given once, () or (S,) ..., would have to be repeated: it has one row for each sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer
from wonderland.generative.denoising import as_sigma
from wonderland.generative.score_matching import null_condition
from wonderland.nn.arguments import floating
from wonderland.transform.derivatives import grad

Denoiser = Callable[[Any, Any], Any]
Scale = Any  # a number, one for each sample (B,), or a function of sigma


def conditioned(network: Callable[..., Any], condition: Any) -> Denoiser:
    """The denoiser epsilon(x, sigma) of a network with its condition."""

    def denoiser(x: Any, sigma: Any) -> Any:
        _check_rows(condition, x)
        return network(x, sigma, condition)

    return denoiser


def guided(network: Callable[..., Any], condition: Any, scale: Scale, *, negative: Any = None) -> Denoiser:
    """Classifier-free guidance: the denoiser

        lambda epsilon(x, sigma, condition) + (1 - lambda) epsilon(x, sigma),

    of a network that was trained with conditions and without (`score_matching_loss` drops some). lambda = 1, the
    `scale`, is the conditioned network itself, bit for bit; more makes samples more typical, and less diverse. It is a
    number, one for each sample (B,), or a function of sigma: `lambda sigma: np.where(sigma < 5, 3.0, 1.0)` guides in
    an interval. `negative` is a condition to keep away from, instead of none.

        sample(guided(network, labels, 3.0), (len(labels), 1, 8, 8), sigmas)

    Ho and Salimans 2022; Kynkäänniemi et al. 2024 (intervals).
    """
    if _is_always(scale, 1):
        return conditioned(network, condition)
    other = null_condition(condition) if negative is None else negative

    def denoiser(x: Any, sigma: Any) -> Any:
        _check_rows(condition, x)
        _check_rows(other, x)
        wanted = network(x, sigma, condition)
        part = _part(scale, x, sigma).astype(wanted.dtype)
        mixed = part * wanted + (1 - part) * network(x, sigma, other)
        return np.where(part == 1, wanted, mixed)

    return denoiser


def classifier_guided(denoiser: Denoiser, log_probability: Callable[[Any, Any], Any], scale: Scale = 1.0) -> Denoiser:
    """Classifier guidance: the denoiser epsilon(x, sigma) - scale sigma grad_x log p(y | x, sigma).

    `log_probability(x, sigma)` is the logarithm of how probable the class asked for is, (B,), for noisy data x
    (B, ...), each sample's for itself. With scale = 1 and the right p this is the denoiser of the class: the score of
    p(x | y) is that of p(x) and the gradient of log p(y | x). A scale of 0 is the denoiser itself, bit for bit.

    Dhariwal and Nichol 2021.
    """
    if _is_always(scale, 0):
        return denoiser

    def total(x: Any, sigma: Any) -> Any:
        return np.sum(log_probability(x, sigma))

    def guiding(x: Any, sigma: Any) -> Any:
        part = _part(scale, x, sigma).astype(x.dtype)
        return denoiser(x, sigma) - part * as_sigma(sigma, x) * grad(total)(x, sigma)

    return guiding


def _is_always(scale: Scale, value: int) -> bool:
    return not callable(scale) and not isinstance(scale, Tracer) and bool(np.all(np.asarray(scale) == value))


def _part(scale: Scale, x: Any, sigma: Any) -> Any:
    return as_sigma(floating(scale(sigma) if callable(scale) else scale, "the scale of guidance"), x)


def _check_rows(condition: Any, x: Any) -> None:
    """One condition for all is fine (networks broadcast it); another number of them than of samples isn't."""
    if np.ndim(condition) and np.shape(condition)[0] not in (1, np.shape(x)[0]):
        raise ArgumentError(f"each sample has a condition: got shape {np.shape(condition)} for samples {np.shape(x)}")
