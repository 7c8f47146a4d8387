"""Windows that are summed into the array that they came from, for the `lower` rule of `fold`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.compile.nodes import Node, Number
from wonderland.core.types import ArrayType


def fold(
    self: Any, w: Node, shape: Sequence[int], axes: Sequence[int], sizes: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int],
) -> Node:  # fmt: skip
    """Windows (places at `axes`, their elements in the last axes) are added into zeros of this shape."""
    type, rank = ArrayType(tuple(shape), w.dtype), len(shape)
    zeros = Number(type, 0)
    if w.type.size == 0:
        return zeros
    last = range(rank, len(w.shape))
    rest = tuple(i for i in range(rank) if i not in axes)
    w = self.transpose(w, (*axes, *last, *rest))
    indices = []
    for i, (stride, dilation) in enumerate(zip(strides, dilations, strict=True)):
        own = [n if j in (i, i + len(axes)) else 1 for j, n in enumerate(w.shape[: 2 * len(axes)])]
        places = np.add.outer(np.arange(own[i]) * stride, np.arange(own[i + len(axes)]) * dilation)
        indices.append(self.constant(places.reshape(own)))
    return self.scatter(zeros, indices, w, axes, "add")
