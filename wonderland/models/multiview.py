"""Several views of one object, in no order: a network for each view, attention between them, one answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.deep_sets import set_pool
from wonderland.nn.arguments import array
from wonderland.nn.building import positive, recipe
from wonderland.nn.masks import of_keys, real_places
from wonderland.nn.placing import place_of, wrong_shape
from wonderland.nn.tokens import prefixed


class MultiView(nn.Module):
    """Views (..., V, *view) of an object to logits (..., classes), which don't depend on the order of the views.

        h_i = backbone(x_i)  for each view;   h = block_l(h) for each layer;   logits = head(mean_i h_i)

    `backbone` makes a vector (n, width) of each of n views (n, *view), which have `rank` axes, as (channels, height,
    width) have. Any number of views will do, a different one in each call. `layers=0` leaves the mean alone: deep sets.
    `pool="class"` looks at a trained token among the views instead of their mean.
    """

    def __init__(
        self, backbone: Any, width: int, classes: int, heads: int = 4, layers: int = 1, *, rank: int = 3,
        pool: str = "mean", hidden: int | None = None, dropout: float = 0.0, key: Any = None, dtype: Any = np.float32,
    ):  # fmt: skip
        if pool not in ("mean", "class"):
            raise ValueError(f'MultiView: pool is "mean" or "class", got {pool!r}')
        self.width, self.rank = positive(width, "MultiView: width"), positive(rank, "MultiView: rank")
        self.pool: str = pool
        keys = recipe(self, None, False, key, dtype).keys(layers + 2)
        self.backbone: Any = backbone
        self.token: Any = nn.init.normal(keys[-1], (1, width), dtype, std=0.02) if pool == "class" else None
        self.blocks: list[Any] = [
            nn.TransformerBlock(width, heads, hidden, dropout=dropout, key=key, dtype=dtype) for key in keys[:layers]
        ]
        self.head: Any = nn.Linear(width, classes, key=keys[-2], dtype=dtype)

    def __call__(self, x: Any, *, mask: Any = None) -> Any:
        """`mask` (..., V) is False where there is no view."""
        x = array(x)
        if x.ndim < self.rank + 1:
            raise wrong_shape(self, f"(..., views, and {self.rank} axes of a view)", x.shape)
        leading, view = x.shape[: x.ndim - self.rank], x.shape[x.ndim - self.rank :]
        h = self.backbone(x.reshape(-1, *view))  # (B V, C)
        if h.shape[1:] != (self.width,):
            raise ValueError(f"{place_of(self)}: its backbone made {h.shape} of views, not (n, width={self.width})")
        h = h.reshape(*leading, self.width)  # (B, V, C)
        mask = real_places(self, mask, leading)
        if self.token is not None:
            h = prefixed(self.token, h)
            if mask is not None:
                mask = np.concatenate([np.ones((*mask.shape[:-1], 1), bool), mask], axis=-1)
        for block in self.blocks:
            h = block(h, mask=of_keys(mask))
        return self.head(set_pool(h, "mean", mask) if self.token is None else h[..., 0, :])
