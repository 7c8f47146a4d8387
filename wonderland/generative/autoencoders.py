"""Auto-encoders: data x (B, ...) in, a code E(x) of fewer numbers, and data D(E(x)) like x out, that lose least.

    auto-encoder               D(E(x))
    denoising auto-encoder     D(E(x + sigma epsilon))
    variational auto-encoder   D(E_mu(x) + epsilon E_sigma(x)), in `vae.py`

All have `encode`, `decode`, `reconstruct` and `loss`: the mean over the samples of the squared distance of a sample and
its reconstruction, a sum over its numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland import random
from wonderland.core.errors import ArgumentError
from wonderland.generative.noise_keys import KeyHolder
from wonderland.nn.arguments import demand, floating
from wonderland.nn.linear import Linear
from wonderland.nn.module import Module


def check_decoded(x: Any, decoded: Any) -> None:
    """Raise unless a decoder gives what the encoder got, a batch of samples."""
    if np.ndim(x) < 1 or np.shape(x) != np.shape(decoded):
        raise ArgumentError(
            f"a decoder returns data like those of the encoder, (B, ...) of shape {np.shape(x)}, and not of "
            f"{np.shape(decoded)}: look at its last layer, or add nn.Unflatten"
        )


def squared_distance(x: Any, y: Any) -> Any:
    """|x - y|^2 of each sample: (B, ...) and (B, ...) to (B,)."""
    check_decoded(x, y)
    return np.sum(((x - y) ** 2).reshape(x.shape[0], -1), axis=1)


def standard_deviation(value: Any, name: str) -> float:
    """A number above 0."""
    if not isinstance(value, (int, float, np.number)) or not value > 0:
        raise ArgumentError(f"{name} is a standard deviation, a number above 0, got {value!r}")
    return float(value)


class CodeModel(Module):
    """An encoder E and a decoder D, any two Modules, one after the other."""

    encoder: Any
    decoder: Any

    def encode(self, x: Any) -> Any:
        """x (B, ...) to codes (B, ...)."""
        return self.encoder(self._data(x))

    def decode(self, z: Any) -> Any:
        """Codes to data (B, ...)."""
        return self.decoder(z)

    def reconstruct(self, x: Any) -> Any:
        """D(E(x))."""
        return self.decode(self.encode(x))

    def __call__(self, x: Any) -> Any:
        """D(E(x))."""
        return self.reconstruct(x)

    def _data(self, x: Any) -> Any:
        return floating(x, f"{type(self).__name__}: x")

    def _samples(self, x: Any) -> Any:
        """Data whose samples are told apart."""
        x = self._data(x)
        if x.ndim < 2:
            raise ArgumentError(
                f"{type(self).__name__}: errors are of samples x (B, ...), got shape {x.shape}: x[None] is a batch of "
                "one sample, x[:, None] one of numbers"
            )
        return x


class AutoEncoder(CodeModel):
    """E|x - D(E(x))|^2 of an encoder E and a decoder D, any two Modules: (B, ...) to (B, code) and back.

        model = wl.generative.AutoEncoder(
            nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.relu, nn.Linear(32, 2)),
            nn.Sequential(nn.Linear(2, 32), nn.relu, nn.Linear(32, 64), nn.Unflatten(1, (1, 8, 8))),
        )
        train.fit(model, lambda model, x: model.loss(x), train.Adam(model), images, epochs=10)
    """

    def __init__(self, encoder: Any, decoder: Any):
        self.encoder: Any = encoder
        self.decoder: Any = decoder

    def errors(self, x: Any) -> Any:
        """|x - D(E(x))|^2 of each sample, (B,): large for what isn't like the data it was trained on."""
        x = self._samples(x)
        return squared_distance(x, self.reconstruct(x))

    def loss(self, x: Any) -> Any:
        """The mean of |x - D(E(x))|^2 over samples."""
        return np.mean(self.errors(x))


class LinearAutoEncoder(AutoEncoder):
    """x to D (E x + e) + d: the best one of `code` numbers is principal component analysis.

    Only D E counts, a matrix of rank r = `code`. With centred data X = U S V' (a column for each sample), the best is
    D E = U_r U_r' (Eckart and Young 1936), and the loss is what it leaves out: the sum of s_i^2 / n for i > r, the
    *discarded spectrum*. `fit` computes it; gradient descent finds the same D E, and a mix of the same directions.
    """

    def __init__(self, features: int, code: int, *, bias: bool = True, key: Any = None, dtype: Any = np.float32):
        if not 1 <= code <= features:
            raise ArgumentError(f"LinearAutoEncoder: a code has 1 to features={features} numbers, got code={code}")
        keys = random.split(random.next_key() if key is None else key)
        super().__init__(
            Linear(features, code, bias=bias, key=keys[0], dtype=dtype),
            Linear(code, features, bias=bias, key=keys[1], dtype=dtype),
        )

    def fit(self, x: Any) -> LinearAutoEncoder:
        """The best there is for x (B, features), by its singular values; returns the Module."""
        centre, directions, _ = principal_directions(x, self.encoder.bias is not None)
        code, features = self.encoder.weight.shape
        if centre.shape[0] != features or directions.shape[0] < code:
            raise ArgumentError(
                f"LinearAutoEncoder.fit: a code of {code} numbers takes at least {code} samples of {features} "
                f"features, got x of shape {np.shape(x)}"
            )
        top = directions[:code]
        self.encoder.weight[...], self.decoder.weight[...] = top, top.T
        if self.encoder.bias is not None:
            self.encoder.bias[...], self.decoder.bias[...] = -top @ centre, centre
        return self


def principal_directions(x: Any, centred: bool = True) -> tuple[Any, Any, Any]:
    """Of x (B, features) the mean, directions in rows by falling variance, and the variances s_i^2 / B along them."""
    x = floating(x, "principal_directions: x")
    if x.ndim != 2:
        raise ArgumentError(f"principal directions are of vectors (B, features), got shape {x.shape}: use .reshape")
    demand(np.isfinite(x), "principal directions are of finite numbers, got {}", x)
    centre = np.mean(x, axis=0) if centred else np.zeros(x.shape[1], x.dtype)
    _, scale, directions = np.linalg.svd(x - centre, full_matrices=False)
    return centre, directions, scale**2 / x.shape[0]


def discarded_spectrum(x: Any, code: int, centred: bool = True) -> Any:
    """sum_{i > code} s_i^2 / B of x (B, features): the least loss of a linear auto-encoder with so many numbers."""
    if code < 0:
        raise ArgumentError(f"discarded_spectrum: a code has 0 or more numbers, got code={code}")
    return np.sum(principal_directions(x, centred)[2][code:])


class DenoisingAutoEncoder(CodeModel, KeyHolder):
    """E|x - D(E(x + sigma epsilon))|^2: the data, of noisy data. Vincent et al. 2008.

    What is best is E[x | x + sigma epsilon], so that (reconstruct(y) - y) / sigma^2 is the score of the noisy data:
    Tweedie's formula, and where diffusion begins.

    The same loss is an evidence lower bound (`elbo`) of the model Z ~ N(0, prior^2 I), X = D(E(Z)) + scale * noise,
    with noisy data Y = X + sigma epsilon in the place of Z given X: KL((Y | X=x) || Z) doesn't depend on D and E, and
    what is left of the bound is -loss / (2 scale^2).
    """

    def __init__(
        self, encoder: Any, decoder: Any, sigma: float, *, prior: float = 1.0, scale: float = 1.0, key: Any = None
    ):
        super().__init__(key)
        self.encoder: Any = encoder
        self.decoder: Any = decoder
        self.sigma: float = standard_deviation(sigma, "DenoisingAutoEncoder: sigma")
        self.prior: float = standard_deviation(prior, "DenoisingAutoEncoder: prior")
        self.scale: float = standard_deviation(scale, "DenoisingAutoEncoder: scale")

    def errors(self, x: Any, key: Any = None) -> Any:
        """|x - D(E(x + sigma epsilon))|^2 of each sample, (B,)."""
        x = self._samples(x)
        return squared_distance(x, self.reconstruct(x + self.sigma * self.normal(x.shape, x.dtype, key)))

    def loss(self, x: Any, key: Any = None) -> Any:
        """The mean of |x - D(E(x + sigma epsilon))|^2 over samples."""
        return np.mean(self.errors(x, key))

    def elbo(self, x: Any, key: Any = None) -> Any:
        """E log N(x | D(E(Y)), scale^2) - KL(N(x, sigma^2) || N(0, prior^2)) of each sample, (B,)."""
        x = self._samples(x)
        size = math.prod(x.shape[1:])
        ratio = (self.sigma / self.prior) ** 2
        kl = 0.5 * (np.sum((x / self.prior).reshape(x.shape[0], -1) ** 2, axis=1) + size * (ratio - np.log(ratio) - 1))
        likelihood = -0.5 * size * np.log(2 * np.pi * self.scale**2) - self.errors(x, key) / (2 * self.scale**2)
        return likelihood - kl
