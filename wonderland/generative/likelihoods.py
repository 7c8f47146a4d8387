"""What a decoder's output says of data: p(x | z), Gaussian or Bernoulli, with the constants of the density.

Each is a Module with `log_prob(x, output)`, x (N, ...) and the outputs of a decoder for N codes to (N,), with
`mean(output)`, the expected data, and with `sample(output, key)`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland import random
from wonderland.core.errors import ArgumentError
from wonderland.generative.autoencoders import check_decoded, squared_distance, standard_deviation
from wonderland.generative.gaussians import LOG_2PI
from wonderland.nn.activations import sigmoid, softplus
from wonderland.nn.arguments import demand
from wonderland.nn.module import Module
from wonderland.scipy.linalg import solve_triangular

VARIANCES = ("fixed", "scalar", "output", "decoder", "full")


class BernoulliLikelihood(Module):
    """Independent bits: log p(x | z) = sum_i x_i l_i - log(1 + exp(l_i)), where the decoder gives the logits l.

    For x between 0 and 1 it is the cross-entropy, the density of nothing: good for pictures, and no likelihood.
    """

    def log_prob(self, x: Any, output: Any) -> Any:
        """(N, ...) and logits (N, ...) to (N,)."""
        check_decoded(x, output)
        demand(
            (x >= 0) & (x <= 1),
            'a Bernoulli likelihood is of data from 0 to 1, got {}: divide pixels by 255, or use likelihood="gaussian"',
            x,
        )
        return _total(x * output - softplus(output))

    def mean(self, output: Any) -> Any:
        """Probabilities."""
        return sigmoid(output)

    def sample(self, output: Any, key: Any) -> Any:
        """0 and 1."""
        return (random.uniform(key, output.shape, dtype=output.dtype) < sigmoid(output)).astype(output.dtype)


class GaussianLikelihood(Module):
    """N(x | D_mu(z), D_sigma^2): log p = -(n/2) log 2 pi - sum_i log sigma_i - 1/2 sum_i ((x_i - mu_i) / sigma_i)^2.

    `variance` says what sigma is:

        "fixed"      `sigma`, as it is given
        "scalar"     one number that is trained
        "output"     one for each of the n numbers of a sample, trained: give their `shape`
        "decoder"    D_sigma(z): the decoder returns means and log sigma^2, twice as many along axis 1

    A trained sigma is kept as its logarithm, and begins with `sigma`.
    """

    def __init__(self, variance: str = "fixed", sigma: float = 1.0, shape: Any = None, dtype: Any = np.float32):
        if variance not in VARIANCES[:-1]:
            raise ArgumentError(f"GaussianLikelihood: variance is one of {VARIANCES[:-1]}, got {variance!r}")
        if (variance == "output") != (shape is not None):
            raise ArgumentError(
                'variance="output" has a sigma for each number of a sample, and needs its shape; no other takes one: '
                f"got variance={variance!r}, shape={shape!r}; write shape=x.shape[1:]"
            )
        self.variance: str = variance
        self.log_sigma: Any = None
        self.sigma: float = standard_deviation(sigma, "GaussianLikelihood: sigma")
        if variance == "decoder" and sigma != 1:
            raise ArgumentError(f'variance="decoder": the decoder says what sigma is, so leave out sigma={sigma!r}')
        if variance in ("scalar", "output"):
            self.log_sigma = np.full(() if shape is None else shape, math.log(sigma), dtype)

    def split(self, output: Any) -> tuple[Any, Any]:
        """Means, and log sigma, which broadcasts with them."""
        if self.variance == "decoder":
            half, odd = divmod(output.shape[1], 2)
            if odd:
                raise ArgumentError(
                    'variance="decoder": the decoder returns means and log sigma^2 along axis 1, an even number, and '
                    f"not {output.shape}"
                )
            return output[:, :half], 0.5 * output[:, half:]
        return output, math.log(self.sigma) if self.log_sigma is None else self.log_sigma

    def log_prob(self, x: Any, output: Any) -> Any:
        """(N, ...) and outputs of the decoder to (N,)."""
        mean, log_sigma = self.split(output)
        size = math.prod(x.shape[1:])
        if self.variance in ("fixed", "scalar"):  # one number, a float that keeps the dtype, or a parameter
            weight = self.sigma**-2 if self.log_sigma is None else np.exp(-2 * log_sigma)
            return -0.5 * size * LOG_2PI - size * log_sigma - 0.5 * weight * squared_distance(x, mean)
        check_decoded(x, mean)
        if self.variance == "output" and self.log_sigma.shape != x.shape[1:]:
            raise ArgumentError(
                f'variance="output" has a sigma of shape {self.log_sigma.shape} for samples of shape {x.shape[1:]}: '
                "write shape=x.shape[1:]"
            )
        return -0.5 * size * LOG_2PI - _total(
            np.broadcast_to(log_sigma, x.shape) + 0.5 * ((x - mean) * np.exp(-log_sigma)) ** 2
        )

    def mean(self, output: Any) -> Any:
        """D_mu(z)."""
        return self.split(output)[0]

    def sample(self, output: Any, key: Any) -> Any:
        """D_mu(z) + D_sigma(z) epsilon."""
        mean, log_sigma = self.split(output)
        sigma = np.exp(log_sigma) if self.variance != "fixed" else self.sigma
        return mean + sigma * random.normal(key, mean.shape, dtype=mean.dtype)


class CholeskyLikelihood(Module):
    """N(x | mu(z), C(z) C(z)'), a covariance with all its entries: of n numbers the decoder returns n + n (n+1) / 2.

    Those after the means are the lower triangle of C, row by row, its diagonal as logarithms. x is (N, n).
    """

    def split(self, output: Any) -> tuple[Any, Any]:
        """Means (N, n) and factors C (N, n, n)."""
        count = output.shape[-1]
        size = (math.isqrt(9 + 8 * count) - 3) // 2
        if output.ndim != 2 or size < 1 or size + size * (size + 1) // 2 != count:
            raise ArgumentError(
                f'variance="full": for data (N, n) the decoder returns (N, n + n (n+1) / 2) numbers, means and the '
                f"lower triangle of a factor of the covariance; got {output.shape}"
            )
        rows, columns = np.tril_indices(size)
        place = np.zeros((size, size), np.int64)
        place[rows, columns] = size + np.arange(len(rows))
        factor = np.where(np.tri(size, dtype=bool), output[:, place], 0)
        return output[:, :size], np.where(np.eye(size, dtype=bool), np.exp(factor), factor)

    def log_prob(self, x: Any, output: Any) -> Any:
        """(N, n) and outputs of the decoder to (N,)."""
        mean, factor = self.split(output)
        check_decoded(x, mean)
        size = x.shape[1]
        white = solve_triangular(factor, (x - mean)[..., None], lower=True)[..., 0]
        rows, columns = np.tril_indices(size)
        logs = output[:, size + np.flatnonzero(rows == columns)]  # of the diagonal
        return -0.5 * size * LOG_2PI - np.sum(logs, axis=1) - 0.5 * np.sum(white**2, axis=1)

    def mean(self, output: Any) -> Any:
        """mu(z)."""
        return self.split(output)[0]

    def sample(self, output: Any, key: Any) -> Any:
        """mu(z) + C(z) epsilon."""
        mean, factor = self.split(output)
        return mean + (factor @ random.normal(key, (*mean.shape, 1), dtype=mean.dtype))[..., 0]


def likelihood_of(likelihood: Any, variance: str, sigma: float, shape: Any, dtype: Any) -> Any:
    """A likelihood by its name, or as it is."""
    if isinstance(likelihood, str) and likelihood not in ("gaussian", "bernoulli"):
        raise ArgumentError(
            f'a likelihood is "gaussian", "bernoulli", or a Module with log_prob, mean and sample, got {likelihood!r}'
        )
    if variance not in VARIANCES:
        raise ArgumentError(f"variance is one of {VARIANCES}, got {variance!r}")
    gaussian, sigma = likelihood == "gaussian", standard_deviation(sigma, "sigma")
    if gaussian and variance != "full":
        return GaussianLikelihood(variance, sigma, shape, dtype)
    if sigma != 1 or shape is not None or (not gaussian and variance != "fixed"):
        raise ArgumentError(
            'variance, sigma and shape are for likelihood="gaussian", and with variance="full" the decoder says it '
            f"all: got likelihood={likelihood!r}, variance={variance!r}, sigma={sigma}, shape={shape!r}"
        )
    if gaussian:
        return CholeskyLikelihood()
    return BernoulliLikelihood() if likelihood == "bernoulli" else likelihood


def _total(terms: Any) -> Any:
    """Sums over all but the first axis."""
    return np.sum(terms.reshape(terms.shape[0], -1), axis=1)
