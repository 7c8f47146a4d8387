"""The evidence log p(x) = log of the integral of p(x, z) over z, by samples: logs of weights in, an estimate out.

    p(x) = E_{z ~ q} [p(x, z) / q(z)]        for any density q that is 0 only where p(x, z) is

q = p(z) is naive Monte Carlo, which fails if few z of the prior explain x. q = p(z | x) is the best: every weight is
p(x) itself. In between, the variance of the weights says how good q is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.arguments import floating
from wonderland.scipy.special import logsumexp


class Evidence(NamedTuple):
    """An estimate of log p(x), of the first axis of weights.

    `effective_samples` is (sum w)^2 / sum w^2, from 1 (one weight has it all) to their number (all are equal).
    `error` is the standard error of the logarithm, as the weights that were seen have it: where few weights count it
    is too small, as the estimate is. One weight has none: NaN.
    """

    log_evidence: Any
    effective_samples: Any
    error: Any


def evidence(log_weights: Any) -> Evidence:
    """log (1/M) sum_m w_m of log weights (M, ...), with how many of them count."""
    log_weights = floating(log_weights, "evidence: log_weights")
    if not log_weights.ndim or not log_weights.shape[0]:
        raise ArgumentError(f"evidence takes weights (M, ...) of at least one sample, got shape {log_weights.shape}")
    count = log_weights.shape[0]
    total = logsumexp(log_weights, axis=0)
    effective = np.exp(2 * total - logsumexp(2 * log_weights, axis=0))
    share = np.exp(log_weights - total)  # (M, ...), they sum to 1
    error = np.sqrt(np.sum((share - 1 / count) ** 2, axis=0) * (count / (count - 1) if count > 1 else math.nan))
    return Evidence(total - math.log(count), effective, error)


def estimate_evidence(
    log_joint: Callable[[Any], Any], sample: Callable[[Any, int], Any], log_density: Callable[[Any], Any], key: Any,
    samples: int = 1000,
) -> Evidence:  # fmt: skip
    """Importance sampling of log p(x): z (M, ...) = `sample(key, M)` of q, log q(z) and log p(x, z) (M,) of functions.

        # x | z of N(z, 0.1^2), z of N(0, 1): naively with the prior as q
        wl.generative.estimate_evidence(
            lambda z: log_normal(z, 0, 1) + log_normal(x, z, 0.1),
            lambda key, count: wl.random.normal(key, (count,)), lambda z: log_normal(z, 0, 1), wl.random.key(0),
        )
    """
    if samples < 1:
        raise ArgumentError(f"estimate_evidence takes at least one sample, got samples={samples}")
    z = sample(key, samples)
    joint, density = log_joint(z), log_density(z)
    if np.shape(joint) != np.shape(density) or np.shape(joint)[:1] != (samples,):
        raise ArgumentError(
            f"estimate_evidence: log_joint and log_density return ({samples}, ...), a number for each sample, got "
            f"shapes {np.shape(joint)} and {np.shape(density)}"
        )
    return evidence(joint - density)
