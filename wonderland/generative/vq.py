"""Vectors rounded to the nearest of a codebook: data become tokens, and tokens data.

Vectors z (..., width) come in, along any axis; the codes e_k that are nearest, their numbers, and what rounding costs
go out. A VQ-VAE has such a layer between its encoder and its decoder.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland import random
from wonderland.core.errors import ArgumentError
from wonderland.generative.autoencoders import squared_distance
from wonderland.generative.noise_keys import KeyHolder
from wonderland.generative.tokens import whole_below
from wonderland.nn.arguments import axis_of, floating
from wonderland.nn.building import positive
from wonderland.nn.module import Buffer, Module
from wonderland.numpy import take
from wonderland.numpy.at import at
from wonderland.transform.derivatives import stop_gradient


class Quantized(NamedTuple):
    """Rounded vectors, like z; the numbers of their codes, like z without its axis of vectors; losses, like tokens."""

    values: Any
    tokens: Any
    losses: Any


class VectorQuantizer(KeyHolder):
    """z to e_k, k = argmin_j |z - e_j|: `codes` vectors of `width` numbers, along `axis` of what comes in.

    The derivative of rounding is 0 almost everywhere; here it is the identity instead (straight-through). What moves
    encoder and codes towards each other are the losses of the vectors, where sg has no derivative:

        update="gradient"    |sg(z) - e_k|^2 + commitment |z - sg(e_k)|^2       the codebook is a parameter
        update="ema"                           commitment |z - sg(e_k)|^2       the codebook is a buffer

    With "ema" each code is a moving average of the vectors that chose it, with a factor `decay`, written in training
    mode: N_k = decay N_k + (1 - decay) n_k, m_k = decay m_k + (1 - decay) sum z, e_k = m_k / N_k.

    Codes that nobody chooses stay where they are, and are lost. `usage` is how often each was chosen, N_k. Codes whose
    usage falls below `restart` become random vectors of the batch, with "ema" by themselves; `restart_codes(z)` does it
    for both, and `fill(z)` begins with vectors of the data.

    A. van den Oord et al., Neural discrete representation learning, 2017.
    """

    def __init__(
        self, codes: int, width: int, *, commitment: float = 0.25, update: str = "gradient", decay: float = 0.99,
        restart: float = 0.0, axis: int = -1, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        if update not in ("gradient", "ema"):
            raise ArgumentError(f'VectorQuantizer: update is "gradient" or "ema", got {update!r}')
        if not 0 <= decay < 1:
            raise ArgumentError(f"VectorQuantizer: decay is a number from 0 to below 1, got {decay!r}")
        super().__init__(key)
        self.codes: int = positive(codes, "VectorQuantizer: codes")
        self.width: int = positive(width, "VectorQuantizer: width")
        self.commitment: float = float(commitment)
        self.update: str = update
        self.decay: float = float(decay)
        self.restart: float = float(restart)
        self.axis: int = int(axis)
        book = np.array(random.normal(self.next_key(), (self.codes, self.width), dtype=dtype))
        self.codebook: Any = book if update == "gradient" else Buffer(book)
        self.usage: Any = Buffer(np.ones(self.codes, dtype))
        self.sums: Any = Buffer(book.copy()) if update == "ema" else None

    def __call__(self, z: Any) -> Quantized:
        """Vectors along `axis` to rounded vectors, tokens and losses."""
        vectors = self._vectors(z)
        tokens = self._nearest(vectors)
        codes = take(self.codebook, tokens, axis=0)
        losses = self.commitment * np.sum((vectors - stop_gradient(codes)) ** 2, axis=-1)
        if self.update == "gradient":
            losses = losses + np.sum((stop_gradient(vectors) - codes) ** 2, axis=-1)
        if self.training:
            self._move(stop_gradient(vectors).reshape(-1, self.width), tokens.reshape(-1))
        values = vectors + stop_gradient(codes - vectors)
        return Quantized(np.moveaxis(values, -1, self.axis), tokens, losses)

    def encode_tokens(self, z: Any) -> Any:
        """The numbers of the nearest codes: integers, of the shape of z without the axis of vectors."""
        return self._nearest(self._vectors(z))

    def decode_tokens(self, tokens: Any) -> Any:
        """The vectors of codes: integers (B, ...) to (B, ...) with the axis of vectors."""
        return np.moveaxis(take(self.codebook, self._tokens(tokens), axis=0), -1, self.axis)

    def perplexity(self, tokens: Any) -> Any:
        """exp of the entropy of how often codes are chosen: as many as are in use, if those are used alike."""
        tokens = self._tokens(tokens).reshape(-1)
        shares = self._counts(tokens) / tokens.size
        return np.exp(-np.sum(np.where(shares > 0, shares * np.log(np.where(shares > 0, shares, 1)), 0)))

    def fill(self, z: Any, key: Any = None) -> None:
        """All codes become random vectors of z: where training starts."""
        vectors = self._vectors(z).reshape(-1, self.width)
        self._put(np.ones(self.codes, bool), self._chosen(vectors, key))

    def restart_codes(self, z: Any, key: Any = None, below: float | None = None) -> None:
        """Codes whose usage is below `restart`, or `below`, become random vectors of z."""
        vectors = self._vectors(z).reshape(-1, self.width)
        self._put(self.usage < (self.restart if below is None else below), self._chosen(vectors, key))

    # Parts

    def _vectors(self, z: Any) -> Any:
        z = floating(z, "VectorQuantizer: z")
        if not z.ndim or z.shape[axis_of(self.axis, z.shape, "VectorQuantizer: z")] != self.width:
            raise ArgumentError(
                f"VectorQuantizer takes vectors of width {self.width} along axis {self.axis}, got z of shape {z.shape}"
            )
        return np.moveaxis(z, self.axis, -1)

    def _nearest(self, vectors: Any) -> Any:
        """argmin |z - e|^2 = argmin |e|^2 - 2 z'e, about the centre of the codes: far from 0, all is rounded."""
        book, flat = stop_gradient(self.codebook), stop_gradient(vectors).reshape(-1, self.width)
        centre = np.mean(book, axis=0)
        book, flat = book - centre, flat - centre
        distances = np.sum(book**2, axis=1) - 2 * (flat @ book.T)
        return np.argmin(distances, axis=1).reshape(vectors.shape[:-1])

    def _tokens(self, tokens: Any) -> Any:
        return whole_below(tokens, self.codes, "VectorQuantizer: tokens")

    def _counts(self, tokens: Any) -> Any:
        return at(np.zeros_like(self.usage))[tokens].add(1)

    def _chosen(self, vectors: Any, key: Any) -> Any:
        """A random vector for each code, all different if there are enough: of two equal codes one is never chosen."""
        count = vectors.shape[0]
        key = self.next_key() if key is None else key
        places = random.choice(key, count, (self.codes,), replace=count < self.codes)
        return take(vectors, places, axis=0).astype(self.usage.dtype)

    def _move(self, vectors: Any, tokens: Any) -> None:
        """Averages of how often codes are chosen, and with "ema" of the vectors that choose them."""
        keep, gain = self.decay, 1 - self.decay
        self.usage = keep * self.usage + gain * self._counts(tokens)
        if self.update == "ema":
            new = at(np.zeros_like(self.sums))[tokens].add(vectors.astype(self.sums.dtype))
            self.sums = keep * self.sums + gain * new
            alive = (self.usage > 1e-6)[:, None]  # an average of nothing would be 0 / 0 in the end
            self.codebook = np.where(alive, self.sums / np.where(alive, self.usage[:, None], 1), self.codebook)
            if self.restart > 0:
                self._put(self.usage < self.restart, self._chosen(vectors, None))

    def _put(self, which: Any, vectors: Any) -> None:
        """Some codes become other vectors, as if each had been chosen once."""
        column = which[:, None]
        book = np.where(column, vectors, self.codebook)
        if self.update == "ema":
            self.codebook = book
            self.sums = np.where(column, vectors, self.sums)
        else:
            self.codebook[...] = book
        self.usage = np.where(which, 1, self.usage)


class VQVAE(Module):
    """|x - D(q(E(x)))|^2, with a VectorQuantizer q between encoder and decoder: data as integers, and back.

        quantizer = wl.generative.VectorQuantizer(64, 16, update="ema", axis=1)
        model = wl.generative.VQVAE(encoder, decoder, quantizer)          # images to (B, 16, H, W) and back
        tokens = model.encode_tokens(images)                              # (B, H, W), integers below 64
        model.decode_tokens(tokens)                                       # images

    A model of the tokens (a GPT, a PixelCNN) makes it one of the data.
    """

    def __init__(self, encoder: Any, decoder: Any, quantizer: VectorQuantizer):
        self.encoder: Any = encoder
        self.decoder: Any = decoder
        self.quantizer: VectorQuantizer = quantizer

    def encode(self, x: Any) -> Any:
        """x (B, ...) to vectors that aren't rounded."""
        return self.encoder(floating(x, "VQVAE: x"))

    def encode_tokens(self, x: Any) -> Any:
        """x (B, ...) to integers (B, positions ...)."""
        return self.quantizer.encode_tokens(self.encode(x))

    def decode_tokens(self, tokens: Any) -> Any:
        """Integers (B, positions ...) to data (B, ...)."""
        return self.decoder(self.quantizer.decode_tokens(tokens))

    def reconstruct(self, x: Any) -> Any:
        """x by its tokens; nothing is learnt from it."""
        return self.decode_tokens(self.encode_tokens(x))

    def __call__(self, x: Any) -> Any:
        """`reconstruct`."""
        return self.reconstruct(x)

    def terms(self, x: Any) -> tuple[Any, Any]:
        """|x - D(q)|^2 (B,), and the losses of the quantizer, summed over positions, (B,)."""
        x = floating(x, "VQVAE: x")
        found = self.quantizer(self.encode(x))
        return squared_distance(x, self.decoder(found.values)), np.sum(found.losses.reshape(x.shape[0], -1), axis=1)

    def loss(self, x: Any) -> Any:
        """The mean over samples of both terms together."""
        error, losses = self.terms(x)
        return np.mean(error + losses)
