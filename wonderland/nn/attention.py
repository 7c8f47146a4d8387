"""`MultiHeadAttention`: of a sequence to itself, or to another; with a cache, one token after the other."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from wonderland.nn.activations import softmax
from wonderland.nn.building import Init, positive, recipe
from wonderland.nn.cache import KVCache
from wonderland.nn.dropout import Dropout
from wonderland.nn.linear import Linear
from wonderland.nn.module import Module
from wonderland.nn.placing import numbers, place_of, wrong_shape
from wonderland.nn.positions import checked_positions
from wonderland.nn.watching import watching
from wonderland.numpy.attention import attention


class Context(NamedTuple):
    """Keys and values (..., heads, S, D) of a context, made once for all queries that look at it."""

    keys: Any
    values: Any


class MultiHeadAttention(Module):
    """y = W_out concat_h softmax(q_h k_h^T / sqrt(D) + bias) v_h, (..., T, width) to the same shape.

    Keys and values are of x itself, or of a `context` (..., S, context_width): cross-attention. `heads` may be a
    multiple of `kv_heads`, the groups that share keys and values (1: multi-query). `causal`: a token sees itself and
    those before; `window`, a number: of those only the latest; (left, right): so many before and after. `rotary` is an
    `nn.Rotary`, `position_bias` an `nn.RelativeBias` or `nn.ALiBi`. `dropout` is of the weights, in training.

    One matrix, `in_proj`, makes queries, keys and values, in this order; with `fused=False`, or a `context_width`,
    there are three, `q_proj`, `k_proj` and `v_proj`. `out_proj` is W_out. PyTorch's `in_proj_weight` loads as
    `in_proj.weight`. Vaswani et al. 2017; Ainslie et al. 2023, GQA.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        *,
        head_width: int | None = None,
        context_width: int | None = None,
        causal: bool = False,
        window: int | tuple[int | None, int | None] | None = None,
        rotary: Any = None,
        position_bias: Any = None,
        bias: bool | Init = True,
        out_bias: bool | Init | None = None,
        dropout: float = 0.0,
        fused: bool = True,
        init: Init | None = None,
        out_init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
    ):
        self.width: int = positive(width, "MultiHeadAttention: width")
        self.heads: int = positive(heads, "MultiHeadAttention: heads")
        self.kv_heads: int = self.heads if kv_heads is None else positive(kv_heads, "MultiHeadAttention: kv_heads")
        if head_width is None and self.width % self.heads:
            raise ValueError(f"MultiHeadAttention: width={width} isn't a multiple of heads={heads}: give head_width=")
        if self.heads % self.kv_heads:
            raise ValueError(f"MultiHeadAttention: heads={heads} isn't a multiple of kv_heads={kv_heads}")
        self.head_width: int = self.width // self.heads if head_width is None else int(head_width)
        self.context_width: int | None = context_width
        self.causal: bool = bool(causal)
        self.window: Any = window
        checked_positions(self, rotary, position_bias, self.heads)
        keys = recipe(self, init, bias, key, dtype).keys(5)
        q, kv = self.heads * self.head_width, self.kv_heads * self.head_width
        make = lambda i, o, key: Linear(i, o, bias, init=init, key=key, dtype=dtype)
        self.fused: bool = bool(fused) and context_width is None
        if self.fused:
            self.in_proj: Any = make(self.width, q + 2 * kv, keys[0])
        else:
            source = self.width if context_width is None else context_width
            self.q_proj: Any = make(self.width, q, keys[0])
            self.k_proj: Any = make(source, kv, keys[1])
            self.v_proj: Any = make(source, kv, keys[2])
        out_bias = bias if out_bias is None else out_bias
        self.out_proj: Any = Linear(q, self.width, out_bias, init=out_init or init, key=keys[3], dtype=dtype)
        self.rotary: Any = rotary
        self.position_bias: Any = position_bias
        self.dropout: Any = Dropout(dropout, key=keys[4]) if dropout else None

    def __call__(
        self, x: Any, context: Any = None, *, mask: Any = None, cache: KVCache | None = None, positions: Any = None
    ) -> Any:
        """x (..., T, width), context (..., S, context_width), mask (..., heads, T, S) True where a query sees a key.

        The context may also be what `self.context` made of it. With a `cache`, x are the tokens that come after those
        in it. `positions` (T,) are 0, 1, ... unless they are given or known from the cache.
        """
        q, k, v, options = self._prepared(x, context, mask, cache, positions)
        if (seen := watching.get()) is not None:
            seen.append((self, _weights(q, k, **self._as_mask(options, q, k))))
        if self.dropout is not None and self.training:
            y = self.dropout(_weights(q, k, **self._as_mask(options, q, k))) @ _repeated(v, self.heads)
        else:
            y = attention(q, k, v, **options)  # (..., H, T, D)
        y = np.swapaxes(y, -3, -2)  # (..., T, H, D)
        return self.out_proj(y.reshape(*y.shape[:-2], self.heads * self.head_width))

    def weights(self, x: Any, context: Any = None, *, mask: Any = None, positions: Any = None) -> Any:
        """How much each query looks at each key, (..., heads, T, S): rows sum to 1."""
        q, k, _, options = self._prepared(x, context, mask, None, positions)
        return _weights(q, k, **self._as_mask(options, q, k))

    def context(self, context: Any) -> Context:
        """The keys and values of a context (..., S, context_width), for calls with many x, such as token by token."""
        if self.fused:
            raise ValueError(f"{place_of(self)}: one matrix makes q, k and v of x: for a context, use fused=False")
        k, v = self._heads(self.k_proj(context)), self._heads(self.v_proj(context))
        return Context(k if self.rotary is None else self.rotary(k, np.arange(k.shape[-2])), v)

    def new_cache(self, length: int, batch: tuple[int, ...] = ()) -> KVCache:
        """An empty cache for `length` tokens; a ring, if a window lets fewer do."""
        window = self.window if isinstance(self.window, int) else None
        ring = window is not None and window < length
        dtype = self.out_proj.weight.dtype
        return KVCache(batch, self.kv_heads, window if ring else length, self.head_width, ring, dtype=dtype)  # type: ignore

    def _prepared(self, x: Any, context: Any, mask: Any, cache: Any, positions: Any) -> tuple[Any, Any, Any, dict]:
        """Queries (..., H, T, D), keys and values (..., G, S, D), and what else `wl.attention` takes."""
        x = numbers(self, x, self.out_proj.weight)
        if x.ndim < 2 or x.shape[-1] != self.width:
            raise wrong_shape(self, f"(..., T, {self.width})", x.shape)
        if context is not None and cache is not None:
            raise ValueError(f"{place_of(self)}: a cache holds keys of the sequence itself: leave out context or cache")
        if self.context_width is not None and context is None:
            raise ValueError(f"{place_of(self)}: it has context_width={self.context_width}: give it a context")
        here = positions if positions is not None else np.arange(x.shape[-2]) + (0 if cache is None else cache.position)
        if context is None:
            q, k, v = (self._heads(part) for part in self._projected(x))
            k, there = k if self.rotary is None else self.rotary(k, here), here
        else:
            k, v = context if isinstance(context, Context) else self.context(context)
            q, there = self._heads(self.q_proj(x)), np.arange(k.shape[-2])
        q = q if self.rotary is None else self.rotary(q, here)
        options: dict[str, Any] = {"mask": mask}
        if cache is None:
            options |= {"causal": self.causal, "window": self.window}
        else:
            k, v, there = cache.write(k, v)
            seen = self._visible(here, there)
            options["mask"] = seen if mask is None else seen & mask
        if self.position_bias is not None:
            options["bias"] = self.position_bias(here, there).astype(q.dtype)
        return q, k, v, options

    def _projected(self, x: Any) -> list[Any]:
        if self.fused:
            q, kv = self.heads * self.head_width, self.kv_heads * self.head_width
            y = self.in_proj(x)
            return [y[..., :q], y[..., q : q + kv], y[..., q + kv :]]
        return [self.q_proj(x), self.k_proj(x), self.v_proj(x)]

    def _heads(self, x: Any) -> Any:
        """(..., T, H D) to (..., H, T, D)."""
        return np.swapaxes(x.reshape(*x.shape[:-1], x.shape[-1] // self.head_width, self.head_width), -3, -2)

    def _as_mask(self, options: dict[str, Any], q: Any, k: Any) -> dict[str, Any]:
        """With `causal` and `window` as part of the mask."""
        mask, bias = options["mask"], options.get("bias")
        if options.get("causal") or options.get("window") is not None:
            band = self._visible(np.arange(q.shape[-2]) + k.shape[-2] - q.shape[-2], np.arange(k.shape[-2]))
            if mask is not None and mask.dtype != bool:
                bias, mask = mask if bias is None else bias + mask, None
            mask = band if mask is None else band & mask
        return {"mask": mask, "bias": bias}

    def _visible(self, here: Any, there: Any) -> Any:
        """Which rows of a cache queries see, (T, S): of a cache nothing is later than the tokens that came."""
        here, there = here[..., :, None], there[..., None, :]
        seen = there >= 0
        left, right = (self.window - 1, 0) if isinstance(self.window, int) else self.window or (None, None)
        right = 0 if self.causal else right
        seen = seen if right is None else seen & (there <= here + right)
        return seen if left is None else seen & (there >= here - left)


def _repeated(x: Any, heads: int) -> Any:
    """Groups (..., G, S, D) as heads (..., H, S, D)."""
    return x if x.shape[-3] == heads else np.repeat(x, heads // x.shape[-3], axis=-3)


def _weights(q: Any, k: Any, mask: Any = None, bias: Any = None) -> Any:
    """The weights of attention, (..., H, T, S), as a matrix; the row of a query that sees nothing is 0."""
    logits = q @ np.swapaxes(_repeated(k, q.shape[-3]), -2, -1) * (1 / math.sqrt(q.shape[-1]))
    logits = logits if bias is None else logits + bias
    if mask is None:
        return softmax(logits)
    if mask.dtype != bool:
        return softmax(logits + mask)
    weights = softmax(np.where(mask, logits, np.finfo(logits.dtype).min))
    return np.where(mask, weights, 0)
