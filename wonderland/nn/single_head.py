"""`Attention` with one head, as the notes write it: of a sequence to itself, or of queries to keys and values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.nn.building import Init, positive, recipe
from wonderland.nn.linear import Linear
from wonderland.nn.lookups import mask_of, weigh, weighting_of
from wonderland.nn.module import Module
from wonderland.nn.placing import numbers, wrong_shape
from wonderland.nn.watching import watching
from wonderland.numpy.attention import attention


class Attention(Module):
    """softmax(Q K^T / sqrt(k)) V with Q = X W_q, K = C W_k, V = D W_v: (..., T, width) to (..., T, value_width).

    Keys are of the `context` C (..., S, context_width), values of the `content` D (..., S, content_width). Without
    content these are the same, and without context all are of x: self-attention, with 2 k e + v e parameters for
    k = `key_width`, v = `value_width`, e = `width`. `scale` is the factor of Q K^T, 1 / sqrt(k) unless it is given.
    `causal`: a token sees itself and those before. `weighting` is that of `nn.lookup`, "hard" for hard attention.
    Several heads, positions and caches are `nn.MultiHeadAttention`'s.
    """

    def __init__(
        self, width: int, key_width: int | None = None, value_width: int | None = None, *,
        context_width: int | None = None, content_width: int | None = None, causal: bool = False,
        weighting: str | Callable = "softmax", scale: float | None = None, bias: bool | Init = False,
        init: Init | None = None, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        self.width: int = positive(width, "Attention: width")
        self.key_width: int = self.width if key_width is None else positive(key_width, "Attention: key_width")
        self.value_width: int = self.width if value_width is None else positive(value_width, "Attention: value_width")
        self.causal: bool = bool(causal)
        weighting_of(weighting)  # says what there is
        self.weighting: Any = weighting
        self.scale: float = 1 / math.sqrt(self.key_width) if scale is None else float(scale)
        context_width = self.width if context_width is None else context_width
        content_width = context_width if content_width is None else content_width
        of_q, of_k, of_v = recipe(self, init, bias, key, dtype).keys(3)
        make = lambda i, o, key: Linear(i, o, bias, init=init, key=key, dtype=dtype)
        self.q_proj: Any = make(self.width, self.key_width, of_q)
        self.k_proj: Any = make(context_width, self.key_width, of_k)
        self.v_proj: Any = make(content_width, self.value_width, of_v)

    def __call__(self, x: Any, context: Any = None, content: Any = None, *, mask: Any = None) -> Any:
        """x (..., T, width), context and content (..., S, their widths), mask (..., T, S): True where a key is seen."""
        mask = mask_of(mask)
        q, k = self._compared(x, context)  # (..., T, k), (..., S, k)
        source = content if content is not None else context if context is not None else x
        v = self.v_proj(source)  # (..., S, v)
        if (seen := watching.get()) is not None:
            seen.append((self, self._weights(q, k, mask)[..., None, :, :]))
        if self.weighting != "softmax":
            return self._weights(q, k, mask) @ v
        head = lambda a: a if a is None else a[..., None, :, :]
        options: dict[str, Any] = {"mask": head(mask), "causal": self.causal, "scale": self.scale}
        return attention(head(q), head(k), head(v), **options)[..., 0, :, :]

    def weights(self, x: Any, context: Any = None, *, mask: Any = None) -> Any:
        """How much each query looks at each key, (..., T, S)."""
        return self._weights(*self._compared(x, context), mask_of(mask))

    def _compared(self, x: Any, context: Any) -> tuple[Any, Any]:
        x = numbers(self, x, self.q_proj.weight)
        if x.ndim < 2 or x.shape[-1] != self.width:
            raise wrong_shape(self, f"(..., T, {self.width})", x.shape)
        return self.q_proj(x), self.k_proj(x if context is None else context)

    def _weights(self, q: Any, k: Any, mask: Any) -> Any:
        scores = self.scale * (q @ np.swapaxes(k, -2, -1))
        T, S = scores.shape[-2:]
        if self.causal:
            if mask is not None and mask.dtype != bool:
                scores, mask = scores + mask, None
            seen = np.arange(T)[:, None] + S - T >= np.arange(S)
            mask = seen if mask is None else seen & mask
        return weigh(scores, self.weighting, mask)
