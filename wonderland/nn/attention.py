"""`MultiHeadAttention`: of a sequence to itself, or to another; with a cache, one token after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wonderland import random
from wonderland.nn import init as initialisers
from wonderland.nn.building import Init, positive, recipe
from wonderland.nn.cache import KVCache
from wonderland.nn.dropout import Dropout
from wonderland.nn.linear import Linear
from wonderland.nn.lookups import mask_of, weigh, weighting_of
from wonderland.nn.module import Module
from wonderland.nn.placing import numbers, place_of, wrong_shape
from wonderland.nn.positions import checked_positions, of_pairs
from wonderland.nn.tokens import prefixed
from wonderland.nn.watching import watching
from wonderland.numpy.attention import attention, ends_of


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
    Values are `value_width` numbers wide for each head, as queries and keys are `head_width`. `weighting` is that of
    `nn.lookup`: "hard" attention takes the value of the key that matches best. `memory`: so many trained keys and
    values in each group that all queries see besides (Sukhbaatar et al. 2019; PyTorch's `add_bias_kv` is one); rotary
    positions don't turn them, as if they were at position 0.

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
        value_width: int | None = None,
        context_width: int | None = None,
        causal: bool = False,
        window: int | tuple[int | None, int | None] | None = None,
        rotary: Any = None,
        position_bias: Any = None,
        weighting: str | Callable = "softmax",
        memory: int = 0,
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
        self.value_width: int = self.head_width if value_width is None else int(value_width)
        self.context_width: int | None = context_width
        self.causal: bool = bool(causal)
        ends = ends_of(window)
        self.window: Any = window if window is None else ends if isinstance(window, (tuple, list)) else int(window)
        weighting_of(weighting)  # says what there is
        self.weighting: Any = weighting
        checked_positions(self, rotary, position_bias, self.heads)
        keys = recipe(self, init, bias, key, dtype).keys(6 if memory else 5)
        sizes = q, k, v = self._sizes
        make = lambda i, o, key: Linear(i, o, bias, init=init, key=key, dtype=dtype)
        self.fused: bool = bool(fused) and context_width is None
        if self.fused:
            self.in_proj: Any = make(self.width, sum(sizes), keys[0])
        else:
            source = self.width if context_width is None else context_width
            self.q_proj: Any = make(self.width, q, keys[0])
            self.k_proj: Any = make(source, k, keys[1])
            self.v_proj: Any = make(source, v, keys[2])
        out_bias = bias if out_bias is None else out_bias
        stacked = self.heads * self.value_width
        self.out_proj: Any = Linear(stacked, self.width, out_bias, init=out_init or init, key=keys[3], dtype=dtype)
        self.rotary: Any = rotary
        self.position_bias: Any = position_bias
        self.dropout: Any = Dropout(dropout, key=keys[4]) if dropout else None
        self.memory_keys: Any = None
        self.memory_values: Any = None
        if memory:
            memory = positive(memory, "MultiHeadAttention: memory")
            draw = partial(initialisers.normal, dtype=dtype, std=1 / math.sqrt(self.head_width))
            of_keys, of_values = random.split(keys[5])
            self.memory_keys = draw(of_keys, (self.kv_heads, memory, self.head_width))
            self.memory_values = draw(of_values, (self.kv_heads, memory, self.value_width))

    def __call__(
        self, x: Any, context: Any = None, *, mask: Any = None, cache: KVCache | None = None, positions: Any = None
    ) -> Any:
        """x (..., T, width), context (..., S, context_width), mask (..., heads, T, S) True where a query sees a key.

        The context may also be what `self.context` made of it. With a `cache`, x are the tokens that come after those
        in it. `positions` (T,) are 0, 1, ... unless they are given or known from the cache.
        """
        q, k, v, options = self._prepared(x, context, mask, cache, positions)
        if (seen := watching.get()) is not None:
            seen.append((self, self._weights(q, k, options)))
        if self.weighting == "softmax" and (self.dropout is None or not self.training):
            y = attention(q, k, v, **options)  # (..., H, T, D)
        else:
            weights = self._weights(q, k, options)  # (..., H, T, S)
            y = (weights if self.dropout is None else self.dropout(weights)) @ _repeated(v, self.heads)
        y = np.swapaxes(y, -3, -2)  # (..., T, H, D)
        return self.out_proj(y.reshape(*y.shape[:-2], self.heads * self.value_width))

    def weights(self, x: Any, context: Any = None, *, mask: Any = None, positions: Any = None) -> Any:
        """How much each query looks at each key, (..., heads, T, S), at those of a memory first: rows sum to 1."""
        q, k, _, options = self._prepared(x, context, mask, None, positions)
        return self._weights(q, k, options)

    def context(self, context: Any) -> Context:
        """The keys and values of a context (..., S, context_width), for calls with many x, such as token by token."""
        if self.fused:
            raise ValueError(f"{place_of(self)}: one matrix makes q, k and v of x: for a context, use fused=False")
        k, v = _heads(self.k_proj(context), self.head_width), _heads(self.v_proj(context), self.value_width)
        return Context(k if self.rotary is None else self.rotary(k, np.arange(k.shape[-2])), v)

    def new_cache(self, length: int, batch: tuple[int, ...] = (), spare: int = 0) -> KVCache:
        """An empty cache for `length` tokens; a ring, if a window lets fewer do.

        Up to `spare` of the latest tokens can be taken back, by setting the cache's `position`.
        """
        window = self.window + spare if isinstance(self.window, int) else None
        ring = window is not None and window < length
        dtype = self.out_proj.weight.dtype
        kept: int = window if ring else length  # type: ignore[assignment]
        return KVCache(batch, self.kv_heads, kept, self.head_width, ring, value_width=self.value_width, dtype=dtype)

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
            q, k, v = self._projected(x)
            k, there = k if self.rotary is None else self.rotary(k, here), here
        else:
            k, v = context if isinstance(context, Context) else self.context(context)
            q, there = _heads(self.q_proj(x), self.head_width), np.arange(k.shape[-2])
        q = q if self.rotary is None else self.rotary(q, here)
        options: dict[str, Any] = {"mask": mask_of(mask)}
        if cache is None:
            options |= {"causal": self.causal, "window": self.window}
        else:
            k, v, there = cache.write(k, v)
            seen = self._visible(here, there)
            options["mask"] = _both(seen, options["mask"])
        plain = cache is None and positions is None and self.memory_keys is None
        if plain and hasattr(self.position_bias, "of_distance"):
            distances = np.arange(1 - q.shape[-2], k.shape[-2])  # a number for each: those of all pairs are never made
            options["by_distance"] = self.position_bias.of_distance(distances).astype(q.dtype)
        elif self.position_bias is not None:
            options["bias"] = self.position_bias(here, there).astype(q.dtype)
        return (q, k, v, options) if self.memory_keys is None else self._remembering(q, k, v, options)

    def _projected(self, x: Any) -> list[Any]:
        """Queries, keys and values of x."""
        if self.fused:
            q, k, _ = self._sizes
            y = self.in_proj(x)
            parts = [y[..., :q], y[..., q : q + k], y[..., q + k :]]
        else:
            parts = [self.q_proj(x), self.k_proj(x), self.v_proj(x)]
        widths = self.head_width, self.head_width, self.value_width
        return [_heads(part, D) for part, D in zip(parts, widths, strict=True)]

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """Numbers of queries, keys and values that are made of a token."""
        return self.heads * self.head_width, self.kv_heads * self.head_width, self.kv_heads * self.value_width

    def _remembering(self, q: Any, k: Any, v: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, dict]:
        """With keys and values of the memory before the others: all queries see them, at any distance."""
        if options.get("window") is not None:
            options = self._as_mask(options, q, k)
        count, width = self.memory_keys.shape[1], k.shape[-2]
        for name in ("mask", "bias"):
            given = options.get(name)
            if given is not None:
                seen = np.ones if given.dtype == bool else np.zeros
                given = np.broadcast_to(given, (*given.shape[:-1], width))
                options[name] = np.concatenate([seen((*given.shape[:-1], count), given.dtype), given], axis=-1)
        return q, prefixed(self.memory_keys, k), prefixed(self.memory_values, v), options

    def _weights(self, q: Any, k: Any, options: dict[str, Any]) -> Any:
        """The weights of attention as a matrix, (..., H, T, S)."""
        scores = q @ np.swapaxes(_repeated(k, self.heads), -2, -1) * (1 / math.sqrt(self.head_width))
        options = self._as_mask(options, q, k)
        return weigh(scores if options["bias"] is None else scores + options["bias"], self.weighting, options["mask"])

    def _as_mask(self, options: dict[str, Any], q: Any, k: Any) -> dict[str, Any]:
        """With `causal` and `window` as part of the mask, and one bias for all pairs."""
        mask, bias = options["mask"], options.get("bias")
        if "by_distance" in options:
            bias = of_pairs(options["by_distance"], k.shape[-2])
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
        left, right = ends_of(self.window)
        right = 0 if self.causal else right
        seen = seen if right is None else seen & (there <= here + right)
        return seen if left is None else seen & (there >= here - left)


def _both(seen: Any, mask: Any) -> Any:
    """A mask that hides what isn't seen, too."""
    if mask is None or mask.dtype == bool:
        return seen if mask is None else seen & mask
    return np.where(seen, mask, -np.inf)


def _heads(x: Any, width: int) -> Any:
    """(..., T, H D) to (..., H, T, D)."""
    return np.swapaxes(x.reshape(*x.shape[:-1], x.shape[-1] // width, width), -3, -2)


def _repeated(x: Any, heads: int) -> Any:
    """Groups (..., G, S, D) as heads (..., H, S, D)."""
    return x if x.shape[-3] == heads else np.repeat(x, heads // x.shape[-3], axis=-3)
