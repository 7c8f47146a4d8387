"""BERT: a stack of transformer blocks that sees both sides of each token, and guesses tokens that are hidden from it.

Weights of Hugging Face's BERT load by `load_huggingface`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland import nn, random
from wonderland.nn.arguments import array, demand
from wonderland.nn.building import positive, recipe
from wonderland.nn.masks import of_keys, real_places
from wonderland.nn.placing import indices, wrong_shape


class MaskedHead(nn.Module):
    """logits = E norm(gelu(W h + b)) + c, (..., width) to (..., vocab_size); E is the matrix of the embedding."""

    def __init__(self, vocab_size: int, width: int, eps: float, *, init: Any = None, key: Any = None, dtype: Any):
        self.inner: Any = nn.Linear(width, width, nn.init.zeros, init=init, key=key, dtype=dtype)
        self.norm: Any = nn.LayerNorm(width, eps, dtype=dtype)
        self.bias: Any = np.zeros(vocab_size, dtype)

    def __call__(self, x: Any, embedding: Any) -> Any:
        return embedding.unembed(self.norm(nn.gelu(self.inner(x)))) + self.bias


class Encoder(nn.Module):
    """Tokens (..., T), integers, to logits (..., T, vocab_size) of what stands at each place: a masked language model.

        h = norm(E[tokens] + P[0, ..., T - 1] + K[kinds]);   h = block_l(h) for each layer;   logits = head(h)

    `kinds` is the number of kinds of tokens (the first or the second sentence). With `head=False` the result is h.
    `pooler=True` adds a layer for `pooled`: a vector for the whole text. Norms are behind the sums (`order="post"`).

    Devlin et al. 2019, BERT: pre-training of deep bidirectional transformers.
    """

    def __init__(
        self, vocab_size: int, context: int, layers: int, heads: int, width: int, *, hidden: int | None = None,
        kinds: int = 2, head: bool = True, pooler: bool = False, activation: Any = "gelu", order: str = "post",
        eps: float = 1e-12, dropout: float = 0.0, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.vocab_size: int = positive(vocab_size, "Encoder: vocab_size")
        self.context: int = positive(context, "Encoder: context")
        keys = iter(recipe(self, None, False, key, dtype).keys(positive(layers, "Encoder: layers") + 6))
        drawn: dict[str, Any] = {"init": partial(nn.init.normal, std=0.02), "dtype": dtype}
        self.tokens: Any = nn.Embedding(vocab_size, width, key=next(keys), **drawn)
        self.places: Any = nn.Embedding(context, width, key=next(keys), **drawn)
        self.kinds: Any = nn.Embedding(kinds, width, key=next(keys), **drawn)
        self.norm: Any = nn.LayerNorm(width, eps, dtype=dtype)
        self.dropout: Any = nn.Dropout(dropout, key=next(keys)) if dropout else None
        self.blocks: list[Any] = [
            nn.TransformerBlock(
                width, heads, hidden, activation=activation, order=order, eps=eps, bias=nn.init.zeros, dropout=dropout,
                attention={"dropout": dropout}, key=next(keys), **drawn,
            )
            for _ in range(layers)
        ]  # fmt: skip
        self.pooler: Any = nn.Linear(width, width, nn.init.zeros, key=next(keys), **drawn) if pooler else None
        self.head: Any = MaskedHead(self.vocab_size, width, eps, key=next(keys), **drawn) if head else None

    def __call__(self, tokens: Any, kinds: Any = None, *, mask: Any = None) -> Any:
        """`kinds` (..., T) are 0 unless they are given; `mask` (..., T) is False where there is no token."""
        x = self.hidden(tokens, kinds, mask=mask)
        return x if self.head is None else self.head(x, self.tokens)

    def hidden(self, tokens: Any, kinds: Any = None, *, mask: Any = None) -> Any:
        """The vectors of the tokens, (..., T, width)."""
        tokens = indices(self, tokens)  # (B, T)
        if not tokens.ndim or tokens.shape[-1] > self.context:
            raise wrong_shape(self, f"(..., T) with T at most context={self.context}", tokens.shape, "tokens")
        count = tokens.shape[-1]
        x = self.tokens(tokens) + self.places(np.arange(count))  # (B, T, C)
        x = self.norm(x + (self.kinds.weight[0] if kinds is None else self.kinds(kinds)))
        x = x if self.dropout is None else self.dropout(x)
        seen = of_keys(real_places(self, mask, tokens.shape))  # (B, 1, 1, T)
        for block in self.blocks:
            x = block(x, mask=seen)
        return x

    def pooled(self, tokens: Any, kinds: Any = None, *, mask: Any = None) -> Any:
        """A vector of the whole text, (..., width): tanh of a layer on the first token."""
        if self.pooler is None:
            raise ValueError("Encoder: pooled takes the layer that pooler=True makes")
        return nn.tanh(self.pooler(self.hidden(tokens, kinds, mask=mask)[..., 0, :]))


def mask_tokens(key: Any, tokens: Any, vocab_size: int, mask_token: int, p: float = 0.15) -> tuple[Any, Any]:
    """Tokens with some hidden, and which those are: what a masked language model is trained on.

    Each is chosen with probability p; of the chosen, 8 in 10 become `mask_token`, 1 any token, 1 stays. The loss is
    that of the chosen: `nn.cross_entropy(model(hidden)[chosen], tokens[chosen])`.
    """
    tokens = array(tokens)
    p = array(p)
    demand((p >= 0) & (p <= 1), "mask_tokens: p is the probability that a token is chosen, from 0 to 1, got {}", p)
    choice, fate, other = random.split(key, 3)
    chosen = random.uniform(choice, tokens.shape) < p
    fate = random.uniform(fate, tokens.shape)
    others = np.where(fate < 0.9, random.randint(other, tokens.shape, 0, vocab_size), tokens)
    hidden = np.where(fate < 0.8, mask_token, others)
    return np.where(chosen, hidden, tokens), chosen
