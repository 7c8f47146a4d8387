"""GPT: a stack of causal transformer blocks that gives the logits of the next token.

GPT-2 as it is by default, LLaMA by `llama(...)`; weights of both load from Hugging Face's files (`load_huggingface`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.generation import Generates
from wonderland.nn.building import positive, recipe
from wonderland.nn.placing import indices
from wonderland.nn.transformer import make_norm, residual_init

POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "relative", None)


class GPT(Generates):
    """Tokens (..., T), integers, to logits (..., T, vocab_size) of the token that follows each.

        h = E[tokens] + P[0, ..., T - 1];   h = block_l(h) for each layer;   logits = norm(h) E^T

    `context` is the most tokens that are looked at. `positions` is "learned", "sinusoidal", "rotary", "alibi",
    "relative" or None. `tied`: the matrix of the logits is that of the embedding. `window`: each layer looks at so many
    tokens only. `kv_heads` are the groups of heads that share keys and values; `norm`, `gated`, `activation`,
    `order` and `bias` are those of `nn.TransformerBlock`; `rotary` are options of `nn.Rotary`.

    Radford et al. 2019, Language models are unsupervised multitask learners; Touvron et al. 2023, LLaMA.
    """

    def __init__(
        self, vocab_size: int, context: int, layers: int, heads: int, width: int, *, kv_heads: int | None = None,
        head_width: int | None = None, hidden: int | None = None, norm: Any = "layer", eps: float = 1e-5,
        positions: str | None = "learned", rotary: Mapping[str, Any] | None = None, activation: Any = "gelu_tanh",
        gated: bool = False, order: str = "pre", tied: bool = True, bias: bool = True, window: int | None = None,
        dropout: float = 0.0, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        # What makes another one like it; `save_gpt` writes it down.
        self.config: dict[str, Any] = {k: v for k, v in locals().items() if k not in ("self", "key", "__class__")}
        self.config["dtype"] = np.dtype(dtype).name
        if positions not in POSITIONS:
            raise ValueError(f"GPT: positions is one of {POSITIONS}, got {positions!r}")
        self.vocab_size: int = positive(vocab_size, "GPT: vocab_size")
        self.context: int = positive(context, "GPT: context")
        self.positions: str | None = positions
        init, zeros = partial(nn.init.normal, std=0.02), nn.init.zeros if bias else False
        keys = iter(recipe(self, None, False, key, dtype).keys(positive(layers, "GPT: layers") + 5))
        drawn: dict[str, Any] = {"init": init, "dtype": dtype}
        self.tokens: Any = nn.Embedding(self.vocab_size, width, key=next(keys), **drawn)
        learned = positions == "learned"
        self.places: Any = nn.Embedding(self.context, width, key=next(keys), **drawn) if learned else None
        D = width // heads if head_width is None else head_width
        attention = {
            "causal": True, "kv_heads": kv_heads, "head_width": head_width, "window": window, "dropout": dropout,
            "rotary": nn.Rotary(D, **(rotary or {})) if positions == "rotary" else None,
            "position_bias": _bias_of(positions, heads, next(keys), dtype),
        }  # fmt: skip
        self.dropout: Any = nn.Dropout(dropout, key=next(keys)) if dropout else None
        self.blocks: list[Any] = [
            nn.TransformerBlock(
                width, heads, hidden, activation=activation, gated=gated, norm=norm, eps=eps, order=order, bias=zeros,
                attention=attention, dropout=dropout, out_init=residual_init(layers), key=next(keys), **drawn,
            )
            for _ in range(layers)
        ]  # fmt: skip
        self.norm: Any = None if order == "post" else make_norm(norm, width, eps, bias, dtype)
        self.head: Any = None if tied else nn.Linear(width, self.vocab_size, bias=False, key=next(keys), **drawn)

    def __call__(self, tokens: Any, *, caches: Any = None) -> Any:
        """With `caches`, of `new_caches`, the tokens come after those that were seen before."""
        return self.logits(self.hidden(tokens, caches=caches))

    def hidden(self, tokens: Any, *, caches: Any = None) -> Any:
        """What the logits are made of, (..., T, width)."""
        tokens = indices(self, tokens)  # (B, T)
        start = 0 if caches is None else caches[0].position
        count = tokens.shape[-1] if tokens.ndim else 0
        if not tokens.ndim or (count > self.context and not self.endless):
            raise ValueError(
                f"GPT: expected tokens of shape (..., T) with T at most context={self.context}, got {tokens.shape}. "
                "Keep the latest: tokens[..., -model.context :]."
            )
        places = start + np.arange(count)
        x = self.tokens(tokens)  # (B, T, C)
        if self.places is not None:
            x = x + self.places(places)
        elif self.positions == "sinusoidal":
            x = x + nn.sinusoidal(places, x.shape[-1], dtype=x.dtype)
        x = x if self.dropout is None else self.dropout(x)
        for i, block in enumerate(self.blocks):
            x = block(x, cache=None if caches is None else caches[i])  # (B, T, C)
        return x if self.norm is None else self.norm(x)

    def logits(self, x: Any) -> Any:
        """(..., width) to (..., vocab_size)."""
        return self.tokens.unembed(x) if self.head is None else self.head(x)

    @property
    def endless(self) -> bool:
        """May there be more tokens than the context? With a window, and positions that count distances, yes."""
        return self.blocks[0].attention.window is not None and self.positions in ("rotary", "alibi", "relative", None)

    def new_caches(self, batch: tuple[int, ...] = (), length: int | None = None, spare: int = 0) -> list[Any]:
        """Empty caches of keys and values, one for each block, for `length` tokens (the context).

        The latest tokens, up to `spare` of them, can be taken back by setting `position` of each.
        """
        return [block.attention.new_cache(length or self.context, batch, spare) for block in self.blocks]


def gpt2(**options: Any) -> GPT:
    """GPT-2 with 124 million parameters, unless options of `GPT` say otherwise."""
    return GPT(**{"vocab_size": 50257, "context": 1024, "layers": 12, "heads": 12, "width": 768, **options})


def llama(**options: Any) -> GPT:
    """LLaMA's kind of GPT: RMS norm, rotary positions, gated feed-forward networks with SiLU, no biases.

    Unless options of `GPT` say otherwise, LLaMA 2 with 7 billion parameters.
    """
    kind = {
        "norm": "rms", "positions": "rotary", "gated": True, "activation": "silu", "bias": False, "tied": False,
        "eps": 1e-5, "vocab_size": 32000, "context": 4096, "layers": 32, "heads": 32, "width": 4096, "hidden": 11008,
    }  # fmt: skip
    return GPT(**{**kind, **options})


def _bias_of(positions: str | None, heads: int, key: Any, dtype: Any) -> Any:
    """One for all layers."""
    if positions == "alibi":
        return nn.ALiBi(heads)
    return nn.RelativeBias(heads, bidirectional=False, key=key, dtype=dtype) if positions == "relative" else None
