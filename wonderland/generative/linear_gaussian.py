"""Z ~ N(0, I), X = W Z + b + sigma noise: the latent-variable model of which everything is known.

Evidence, posterior, ELBO and its gap in closed form; fitted, it is probabilistic PCA. What estimates and auto-encoders
are measured against.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.generative.autoencoders import principal_directions
from wonderland.generative.gaussians import LOG_2PI, gaussian_kl, gaussian_log_density
from wonderland.nn.arguments import demand, floating


class LinearGaussian(NamedTuple):
    """The model with a weight W (features, latent), a mean b (features,) and one sigma for all features.

    x is (..., features), codes z (..., latent).
    """

    weight: Any
    mean: Any
    sigma: Any

    @property
    def variance(self) -> Any:
        """sigma^2, in the dtype of W."""
        sigma = floating(self.sigma, "LinearGaussian: sigma").astype(floating(self.weight).dtype)
        if sigma.ndim:
            raise ArgumentError(f"LinearGaussian: sigma is one number for all features, got shape {sigma.shape}")
        demand(sigma > 0, "LinearGaussian: sigma is a standard deviation, above 0, got {}", sigma)
        return sigma**2

    @property
    def covariance(self) -> Any:
        """Of X: W W' + sigma^2 I."""
        return self.weight @ self.weight.T + self.variance * np.eye(self.weight.shape[0], dtype=self.weight.dtype)

    def decode(self, z: Any) -> Any:
        """W z + b: the expected data of codes (..., latent)."""
        return z @ self.weight.T + self.mean

    def log_likelihood(self, x: Any) -> Any:
        """log p(x) = log N(x | b, W W' + sigma^2 I): the evidence."""
        return gaussian_log_density(x, self.mean, self.covariance)

    def log_joint(self, x: Any, z: Any) -> Any:
        """log p(x, z) = log N(z | 0, I) + log N(x | W z + b, sigma^2 I)."""
        return self._likelihood(np.sum((x - self.decode(z)) ** 2, axis=-1)) - 0.5 * np.sum(LOG_2PI + z**2, axis=-1)

    def posterior(self, x: Any) -> tuple[Any, Any]:
        """p(z | x) = N(m, S): m (..., latent), and for all x the same S = (I + W'W / sigma^2)^-1 (latent, latent)."""
        latent = self.weight.shape[1]
        inner = self.weight.T @ self.weight + self.variance * np.eye(latent, dtype=self.weight.dtype)
        inverse = np.linalg.inv(inner)
        return (x - self.mean) @ (self.weight @ inverse), 0.5 * self.variance * (inverse + inverse.T)

    def elbo(self, x: Any, mean: Any, covariance: Any) -> Any:
        """E_{z ~ N(mean, covariance)} log p(x, z) - log q(z), exactly: an expectation of squares.

        log p(x) - elbo is KL(q || p(z | x)), `gap`.
        """
        spread = np.sum((self.weight @ covariance) * self.weight, axis=(-2, -1))  # tr W S W'
        squares = np.sum((x - self.decode(mean)) ** 2, axis=-1) + spread
        eye = np.eye(self.weight.shape[1], dtype=self.weight.dtype)
        return self._likelihood(squares) - gaussian_kl(mean, covariance, 0 * eye[0], eye)

    def _likelihood(self, squares: Any) -> Any:
        """-(n/2) log 2 pi sigma^2 - squares / (2 sigma^2)."""
        return -0.5 * self.weight.shape[0] * (LOG_2PI + np.log(self.variance)) - 0.5 * squares / self.variance

    def gap(self, x: Any, mean: Any, covariance: Any) -> Any:
        """KL(N(mean, covariance) || p(z | x))."""
        return gaussian_kl(mean, covariance, *self.posterior(x))


def probabilistic_pca(x: Any, latent: int) -> LinearGaussian:
    """The most likely LinearGaussian of data x (n, features), in closed form. Tipping and Bishop 1999.

    W = U_r (L_r - sigma^2)^(1/2) with the r largest eigenvalues L of the covariance of x, and sigma^2 is the mean of
    the others. Its mean log-likelihood is the largest that the bound of a linear VAE can have.
    """
    mean, directions, variances = principal_directions(x)
    features = mean.shape[0]
    if not 1 <= latent < features:
        raise ArgumentError(f"probabilistic_pca: there are 1 to {features - 1} latent numbers, got latent={latent}")
    noise = np.sum(variances[latent:]) / (features - latent)
    demand(
        noise > np.finfo(mean.dtype).eps * np.sum(variances),
        f"probabilistic_pca: {latent} directions have all the variance of x, and leave sigma^2 = {{}}: take fewer "
        "latent numbers, or more samples",
        noise,
    )
    scale = np.sqrt(np.maximum(variances[:latent] - noise, 0))
    return LinearGaussian(directions[:latent].T * scale, mean, np.sqrt(noise))
