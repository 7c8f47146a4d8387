"""Images one part after the other: a causal transformer over tokens, or over patches of numbers, in raster order.

Tokens are those of a vector quantizer, or pixels (Esser et al. 2021, Taming transformers); patches are vectors, whose
next one has a mixture of Gaussians as its distribution (Tschannen et al. 2023, GIVT). Both have exact log-likelihoods.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import models, nn, random
from wonderland.control.loops import fori_loop
from wonderland.core.errors import ArgumentError
from wonderland.generative.tokens import labels_of, whole_below
from wonderland.nn.arguments import floating
from wonderland.nn.building import positive, recipe
from wonderland.numpy.at import at
from wonderland.scipy.special import logsumexp
from wonderland.transform.vmap import vmap


class RasterGPT(models.GPT):
    """p(tokens) of grids (B, h, w) of tokens below `vocab`, in raster order, given a label if there are `classes`.

    A GPT whose first token says the class; it is never predicted. Other options are those of `models.GPT`.

        tokens = quantized.encode_tokens(images)                    # (B, h, w)
        model = wl.generative.RasterGPT(vocab=64, grid=(4, 4), layers=4, heads=4, width=64, classes=10)
        made = quantized.decode_tokens(model.sample(key, labels=np.arange(10)))
    """

    def __init__(
        self, vocab: int, grid: tuple[int, int], layers: int, heads: int, width: int, classes: int = 1, **options: Any
    ):
        height, across = grid
        super().__init__(
            positive(vocab, "RasterGPT: vocab") + positive(classes, "RasterGPT: classes"), height * across, layers,
            heads, width, **options,
        )  # fmt: skip
        self.vocab: int = vocab
        self.grid: tuple[int, int] = (height, across)
        self.classes: int = classes

    def logits(self, x: Any) -> Any:
        """Those of the tokens; what only begins an image has probability 0."""
        found = super().logits(x)
        return np.where(np.arange(self.vocab_size) < self.vocab, found, -np.inf).astype(found.dtype)

    def log_prob(self, tokens: Any, labels: Any = None) -> Any:
        """log p of each grid (B, h, w), or sequence (B, h w): (B,)."""
        tokens = whole_below(tokens, self.vocab, "RasterGPT: tokens")
        if tokens.shape[1:] not in (self.grid, (self.context,)):
            raise ArgumentError(f"RasterGPT: expected grids of {self.grid}, got tokens of shape {tokens.shape}")
        flat = tokens.reshape(tokens.shape[0], -1)
        given = np.concatenate([self._starts(labels, flat.shape[0]), flat[:, :-1]], axis=1)
        logs = nn.log_softmax(self(given), axis=-1)  # (B, h w, vocab + classes)
        return np.sum(np.take_along_axis(logs, flat[:, :, None], axis=2), axis=(1, 2))

    def loss(self, tokens: Any, labels: Any = None) -> Any:
        """-log p per token, on average, in nats."""
        return -np.mean(self.log_prob(tokens, labels)) / self.context

    def sample(self, key: Any, count: int | None = None, labels: Any = None, **options: Any) -> Any:
        """Grids (B, h, w) of tokens; `labels` (B,) or how many. Options are those of `generate`: temperature, top_k."""
        if count is None:
            if labels is None:
                raise ArgumentError("RasterGPT.sample: give labels, or count=, how many")
            count = len(labels)
        starts = self._starts(labels, count)
        text = self.generate(starts, self.context, key=key, **options)
        return text[:, 1:].reshape(-1, *self.grid)

    def _starts(self, labels: Any, count: int) -> Any:
        return (labels_of(labels, self.classes, count, "RasterGPT") + self.vocab)[:, None]


class PatchTransformer(nn.Module):
    """p(patches) of sequences (B, T, d) of real numbers: each patch a mixture of Gaussians given those before it.

    `components` Gaussians with diagonal covariances; `count` is T, the number of patches of an image. With `classes` a
    label decides what the sequence begins with.
    """

    def __init__(
        self, size: int, count: int, components: int = 8, layers: int = 2, heads: int = 4, width: int = 64,
        classes: int = 1, *, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.size: int = positive(size, "PatchTransformer: size")
        self.count: int = positive(count, "PatchTransformer: count")
        self.components: int = positive(components, "PatchTransformer: components")
        keys = iter(recipe(self, None, False, key, dtype).keys(layers + 4))
        self.start: Any = nn.Embedding(classes, width, key=next(keys), dtype=dtype)
        self.places: Any = nn.Embedding(count, width, key=next(keys), dtype=dtype)
        self.inner: Any = nn.Linear(size, width, key=next(keys), dtype=dtype)
        self.blocks: list[Any] = [
            nn.TransformerBlock(width, heads, attention={"causal": True}, key=next(keys), dtype=dtype)
            for _ in range(layers)
        ]
        self.norm: Any = nn.LayerNorm(width, dtype=dtype)
        self.head: Any = nn.Linear(width, components * (1 + 2 * size), key=next(keys), dtype=dtype)

    def __call__(self, patches: Any, labels: Any = None) -> tuple[Any, Any, Any]:
        """Log-weights (B, T, K), means and log-scales (B, T, K, d) of each patch, given those before it."""
        patches = floating(patches, "PatchTransformer: patches")
        if patches.ndim != 3 or patches.shape[1:] != (self.count, self.size):
            raise ArgumentError(
                f"PatchTransformer: expected patches (B, {self.count}, {self.size}), got shape {patches.shape}"
            )
        batch = patches.shape[0]
        labels = labels_of(labels, self.start.weight.shape[0], batch, "PatchTransformer")
        first = self.start(labels)[:, None]  # (B, 1, C)
        x = np.concatenate([first, self.inner(patches[:, :-1])], axis=1) + self.places(np.arange(self.count))
        for block in self.blocks:
            x = block(x)
        out = self.head(self.norm(x))
        k, d = self.components, self.size
        rest = out[..., k:].reshape(batch, self.count, k, 2 * d)
        return nn.log_softmax(out[..., :k], axis=-1), rest[..., :d], rest[..., d:]

    def log_prob(self, patches: Any, labels: Any = None) -> Any:
        """log p of each sequence, (B,)."""
        patches = floating(patches, "PatchTransformer: patches")
        weights, means, scales = self(patches, labels)
        z = (patches[:, :, None] - means) * np.exp(-scales)  # (B, T, K, d)
        logs = weights - np.sum(z * z / 2 + scales + np.log(2 * np.pi) / 2, axis=-1)
        return np.sum(logsumexp(logs, axis=-1), axis=1)

    def loss(self, patches: Any, labels: Any = None) -> Any:
        """-log p per number, on average, in nats."""
        return -np.mean(self.log_prob(patches, labels)) / (self.count * self.size)

    def sample(self, key: Any, count: int, labels: Any = None) -> Any:
        """Sequences (count, T, d), patch by patch; the numbers of a sequence depend on the key and its place alone."""
        keys = vmap(lambda i: random.fold_in(key, i))(np.arange(count))
        dtype = self.inner.weight.dtype

        def patch(t: Any, patches: Any) -> Any:
            at_t = (part[:, t] for part in self(patches, labels))
            return at(patches)[:, t].set(vmap(lambda *args: self._drawn(t, *args))(keys, *at_t))

        return fori_loop(0, self.count, patch, np.zeros((count, self.count, self.size), dtype))

    def _drawn(self, t: Any, key: Any, weights: Any, means: Any, scales: Any) -> Any:
        which, noise = random.split(random.fold_in(key, t))
        k = random.categorical(which, None, weights)
        return means[k] + np.exp(scales[k]) * random.normal(noise, (self.size,), dtype=means.dtype)
