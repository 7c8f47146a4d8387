"""Variational auto-encoders: data x (B, ...) in, a bound on their log-likelihood out, and new data.

    Z ~ N(0, I)                                      the prior, of `latent` numbers
    X | Z = z ~ p(x | D(z))                          the decoder, with a likelihood (`likelihoods.py`)
    q(z | x) = N(E_mu(x), diag E_sigma(x)^2)         the encoder, which returns E_mu and log E_sigma^2, (B, 2 latent)

    log p(x) >= L(x) = E_{z ~ q} log p(x | D(z)) - KL(q(. | x) || N(0, I))

by L samples z = E_mu + epsilon E_sigma, which have derivatives (the reparametrisation trick), and the KL divergence in
closed form. Arrays of samples are (L, B, latent).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from wonderland import random
from wonderland.control.loops import scan
from wonderland.core.errors import ArgumentError
from wonderland.generative.gaussians import diagonal_gaussian_kl, diagonal_log_density, standard_log_density
from wonderland.generative.likelihoods import likelihood_of
from wonderland.generative.noise_keys import KeyHolder
from wonderland.nn.arguments import array, floating
from wonderland.nn.building import positive
from wonderland.scipy.special import logsumexp


class LatentGaussian(NamedTuple):
    """q(z | x): independent Gaussians, both arrays (B, latent)."""

    mean: Any
    log_variance: Any

    def sample(self, noise: Any) -> Any:
        """mean + sigma * noise."""
        return self.mean + np.exp(0.5 * self.log_variance) * noise

    def log_density(self, z: Any) -> Any:
        """log q(z | x), a sum over the last axis."""
        return diagonal_log_density(z, self.mean, self.log_variance)


def cubature(latent: int, dtype: Any = np.float64) -> Any:
    """Points (2 latent, latent) over which means of polynomials up to degree 3 are those over standard normal noise.

    `vae.elbo(x, noise=wl.generative.cubature(latent))` has no noise, and is exact where decoder and likelihood are
    linear and Gaussian. Arasaratnam and Haykin 2009.
    """
    points = math.sqrt(latent) * np.eye(latent, dtype=dtype)
    return np.concatenate([points, -points])


class Variational(KeyHolder):
    """What a VAE and a conditional VAE share; `_given` is the condition of `count` samples, a tuple of none or one."""

    def __init__(
        self, encoder: Any, decoder: Any, latent: int, *, likelihood: Any = "gaussian", variance: str = "fixed",
        sigma: float = 1.0, shape: Any = None, beta: float = 1.0, samples: int = 1, objective: str = "elbo",
        prior: Any = None, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        if not beta >= 0:
            raise ArgumentError(f"beta weighs the KL divergence, with 0 or more, got beta={beta!r}")
        if objective not in ("elbo", "iwae"):
            raise ArgumentError(f'objective is "elbo" or "iwae", got {objective!r}')
        if objective == "iwae" and beta != 1:
            raise ArgumentError(f"the importance-weighted bound has no KL divergence to weigh: got beta={beta}")
        super().__init__(key)
        self.encoder: Any = encoder
        self.decoder: Any = decoder
        self.prior: Any = prior
        self.likelihood: Any = likelihood_of(likelihood, variance, sigma, shape, dtype)
        self.latent: int = positive(latent, "VAE: latent")
        self.beta: float = float(beta)
        self.samples: int = positive(samples, "VAE: samples")
        self.objective: str = objective

    def _given(self, condition: Any, count: int | None = None) -> tuple[Any, ...]:
        raise NotImplementedError

    # What the networks say

    def posterior(self, x: Any, condition: Any = None) -> LatentGaussian:
        """q(z | x): mean and log variance, (B, latent) each."""
        x = floating(x, "VAE: x")
        return self._halves(self.encoder(x, *self._given(condition, len(x))), "the encoder")

    def encode(self, x: Any, condition: Any = None) -> Any:
        """The mean of q(z | x): (B, latent)."""
        return self.posterior(x, condition).mean

    def decode(self, z: Any, condition: Any = None) -> Any:
        """The expected data of codes z (B, latent)."""
        return self.likelihood.mean(self.decoder(z, *self._given(condition, len(z))))

    def reconstruct(self, x: Any, condition: Any = None) -> Any:
        """The expected data of the mean of q(z | x)."""
        return self.decode(self.encode(x, condition), condition)

    def __call__(self, x: Any, condition: Any = None) -> Any:
        """`reconstruct`."""
        return self.reconstruct(x, condition)

    def prior_of(self, condition: Any = None) -> LatentGaussian | None:
        """p(z) of a prior network; None for N(0, I)."""
        return None if self.prior is None else self._halves(self.prior(*self._given(condition)), "the prior")

    # Bounds

    def terms(
        self, x: Any, condition: Any = None, *, samples: int | None = None, key: Any = None, noise: Any = None
    ) -> tuple[Any, Any]:
        """The two terms of the ELBO of each sample: E log p(x | z) (B,) by Monte Carlo, and KL (B,)."""
        x = floating(x, "VAE: x")
        q = self.posterior(x, condition)
        z = q.sample(self._noise(q, samples, key, noise))
        kl = diagonal_gaussian_kl(*q, *(self.prior_of(condition) or ()))
        return np.mean(self._log_likelihoods(x, z, condition), axis=0), kl

    def elbo(
        self, x: Any, condition: Any = None, *, samples: int | None = None, key: Any = None, noise: Any = None
    ) -> Any:
        """L(x) of each sample, (B,): with `samples` draws, or with the noise (L, latent) or (L, B, latent) given."""
        likelihood, kl = self.terms(x, condition, samples=samples, key=key, noise=noise)
        return likelihood - kl

    def log_weights(
        self, x: Any, condition: Any = None, *, samples: int | None = None, key: Any = None, noise: Any = None
    ) -> Any:
        """log p(x, z_k) - log q(z_k | x), (K, B): weights of importance sampling, whose mean is p(x)."""
        x = floating(x, "VAE: x")
        q = self.posterior(x, condition)
        noise = self._noise(q, samples, key, noise)
        z = q.sample(noise)
        density = standard_log_density(noise) - 0.5 * np.sum(q.log_variance, axis=-1)  # log q(z | x)
        prior = self.prior_of(condition)
        joint = standard_log_density(z) if prior is None else prior.log_density(z)
        return self._log_likelihoods(x, z, condition) + joint - density

    def iwae(
        self, x: Any, condition: Any = None, *, samples: int | None = None, key: Any = None, noise: Any = None
    ) -> Any:
        """E log (1/K) sum_k p(x, z_k) / q(z_k | x), (B,): the ELBO for K = 1, closer to log p(x) the larger K is.

        Y. Burda et al., Importance weighted autoencoders, 2016.
        """
        weights = self.log_weights(x, condition, samples=samples, key=key, noise=noise)
        return logsumexp(weights, axis=0) - math.log(weights.shape[0])

    def log_likelihood(
        self, x: Any, condition: Any = None, *, samples: int = 1000, chunk: int = 50, key: Any = None
    ) -> Any:
        """log p(x) of each sample, (B,), by importance sampling with q: `samples` draws, `chunk` of them at a time.

        Too small on average by about the relative variance of the weights over 2 `samples`.
        """
        chunk = min(positive(chunk, "VAE: chunk"), positive(samples, "VAE: samples"))
        count = -(-samples // chunk)

        def step(total: Any, key: Any) -> Any:
            found = logsumexp(self.log_weights(x, condition, samples=chunk, key=key), axis=0)
            return np.logaddexp(total, found.astype(total.dtype)), None

        keys = random.split(self.key_of(key), count)
        nothing = np.full(np.shape(x)[0], -np.inf, self._dtype())
        return scan(step, nothing, keys)[0] - math.log(count * chunk)

    def loss(self, x: Any, condition: Any = None, *, key: Any = None, noise: Any = None) -> Any:
        """-E log p(x | z) + beta KL, the mean over samples; with the objective "iwae", minus that bound."""
        if self.objective == "iwae":
            return -np.mean(self.iwae(x, condition, key=key, noise=noise))
        likelihood, kl = self.terms(x, condition, key=key, noise=noise)
        return np.mean(self.beta * kl - likelihood)

    # New data

    def sample(self, count: int, condition: Any = None, *, noisy: bool = False, key: Any = None) -> Any:
        """New data (count, ...): expected data of codes of the prior; with `noisy`, draws of the likelihood."""
        given = self._given(condition, count)
        keys = random.split(self.key_of(key))
        z, prior = random.normal(keys[0], (count, self.latent), dtype=self._dtype()), self.prior_of(condition)
        z = z if prior is None else prior.sample(z)
        if not noisy:
            return self.decode(z, condition)
        return self.likelihood.sample(self.decoder(z, *given), keys[1])

    # Parts

    def _dtype(self) -> Any:
        return next((p.dtype for p in self.parameters() if p.dtype.kind == "f"), np.dtype(np.float32))

    def _halves(self, found: Any, what: str) -> LatentGaussian:
        if found.ndim != 2 or found.shape[1] != 2 * self.latent:
            raise ArgumentError(
                f"{what} of a VAE with latent={self.latent} returns means and log variances, (B, {2 * self.latent}), "
                f"and not {found.shape}"
            )
        return LatentGaussian(found[:, : self.latent], found[:, self.latent :])

    def _noise(self, q: LatentGaussian, samples: int | None, key: Any, noise: Any) -> Any:
        """Standard normal noise (L, B, latent); sample i's depends on the key, on i and on L alone."""
        batch = q.mean.shape[0]
        if noise is None:
            count = self.samples if samples is None else positive(samples, "VAE: samples")
            drawn = self.normal((batch, count, self.latent), q.mean.dtype, key)
            return np.swapaxes(drawn, 0, 1)
        noise = floating(noise, "VAE: noise").astype(q.mean.dtype)
        if noise.ndim == 2:
            noise = noise[:, None]
        if noise.ndim != 3 or noise.shape[1] not in (1, batch) or noise.shape[2] != self.latent:
            raise ArgumentError(
                f"noise is (L, {self.latent}) or (L, {batch}, {self.latent}), samples of the latent numbers, got "
                f"{noise.shape}"
            )
        return np.broadcast_to(noise, (noise.shape[0], batch, self.latent))

    def _log_likelihoods(self, x: Any, z: Any, condition: Any) -> Any:
        """log p(x | z), (L, B), of codes (L, B, latent): one call of the decoder."""
        count, batch = z.shape[:2]

        def repeated(values: Any) -> Any:
            shape = values.shape[1:]
            return np.broadcast_to(values[None], (count, batch, *shape)).reshape(count * batch, *shape)

        given = tuple(repeated(c) for c in self._given(condition))
        output = self.decoder(z.reshape(count * batch, self.latent), *given)
        return self.likelihood.log_prob(repeated(x), output).reshape(count, batch)


class VAE(Variational):
    """A variational auto-encoder. Kingma and Welling 2014, Rezende et al. 2014.

        encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.relu, nn.Linear(128, 2 * latent))
        decoder = nn.Sequential(nn.Linear(latent, 128), nn.relu, nn.Linear(128, 64), nn.Unflatten(1, (1, 8, 8)))
        model = wl.generative.VAE(encoder, decoder, latent, likelihood="bernoulli")
        train.fit(model, lambda model, x: model.loss(x), train.Adam(model), images, epochs=30)
        model.sample(16)

    The encoder returns means and log variances, (B, 2 latent). `likelihood` is "gaussian", with a `variance` that is
    "fixed" (to sigma^2), "scalar", "output" (with the `shape` of a sample), "decoder" or "full", or "bernoulli", whose
    decoder returns logits, or a Module with log_prob, mean and sample. `beta` weighs the KL divergence in the loss
    (Higgins et al. 2017), `samples` is L; `objective="iwae"` trains the importance-weighted bound with them.
    """

    def _given(self, condition: Any, count: int | None = None) -> tuple[Any, ...]:
        if condition is not None:
            raise ArgumentError("a VAE has no condition: use wl.generative.ConditionalVAE")
        return ()


class ConditionalVAE(Variational):
    """A VAE of x given a condition c (B, ...): encoder(x, c), decoder(z, c), and a prior N(0, I), or of prior(c).

    All methods take the condition after x: `model.loss(x, labels)`, `model.sample(10, np.arange(10))`. A `prior` is a
    Module that returns means and log variances (B, 2 latent). Everything else is as in `VAE`. Sohn et al. 2015.
    """

    def _given(self, condition: Any, count: int | None = None) -> tuple[Any, ...]:
        if condition is None:
            raise ArgumentError("a ConditionalVAE takes a condition for each sample: model.loss(x, labels)")
        condition = array(condition)
        if count is not None and condition.shape[:1] != (count,):
            raise ArgumentError(f"a condition for each of {count} samples, got one of shape {condition.shape}")
        return (condition,)
