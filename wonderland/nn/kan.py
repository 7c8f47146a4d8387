"""`KAN`: a layer whose weights are functions, splines, that are trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland import random
from wonderland.nn.activations import silu
from wonderland.nn.building import Init, Recipe, fill, positive, recipe, start
from wonderland.nn.gates import bspline_basis
from wonderland.nn.module import Buffer, Module
from wonderland.nn.placing import numbers, wrong_shape


class KAN(Module):
    """y_o = sum_i (base_weight_oi base(x_i) + sum_g spline_weight_oig B_g(x_i)): (..., in) becomes (..., out).

    B_g are the B-splines of degree `order` on `grid` (a buffer): `intervals` equal ones of `grid_range`, and `order`
    more on either side, so that the splines add up to 1 in the range; beyond it they fade to 0, and the `base` function
    remains (None: there is none). `base_weight` is (out, in), drawn as a `Linear` (or by `init=`); `spline_weight` is
    (out, in, intervals + order), drawn from N(0, (0.1 / intervals)^2). Liu et al. 2024, KAN.
    """

    grid: Any
    base_weight: Any
    spline_weight: Any

    def __init__(
        self,
        in_features: int | None,
        out_features: int,
        intervals: int = 5,
        order: int = 3,
        grid_range: tuple[float, float] = (-1.0, 1.0),
        base: Callable[[Any], Any] | None = silu,
        *,
        init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
    ):
        self.in_features: int | None = None
        self.out_features: int = 0
        self.intervals: int = positive(intervals, "KAN: intervals")
        if isinstance(order, bool) or not isinstance(order, int) or order < 0:
            raise ValueError(f"KAN: order={order!r} is the degree of the splines, an integer of at least 0")
        low, high = grid_range
        if not low < high:
            raise ValueError(f"KAN: grid_range={grid_range!r} is (low, high), with low below high")
        self.base: Any
        self.order: int
        self.order, self.base = order, base
        step = (high - low) / self.intervals
        self.grid = Buffer((low + step * np.arange(-order, self.intervals + order + 1)).astype(dtype))
        self.base_weight = self.spline_weight = None
        sizes = {"in_features": in_features, "out_features": out_features}
        start(self, sizes, recipe(self, init, False, key, dtype))

    def _make(self, how: Recipe) -> None:
        of_base, of_spline = how.keys(2)
        n: Any = self.in_features
        if self.base is not None:
            self.base_weight = how.weight(of_base, (self.out_features, n))
        shape = (self.out_features, n, self.intervals + self.order)
        self.spline_weight = random.normal(of_spline, shape, 0.0, 0.1 / self.intervals, dtype=how.dtype)

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x, self.spline_weight)
        if self.in_features is None and x.ndim:
            fill(self, in_features=x.shape[-1])
        if x.shape[-1:] != (self.in_features,):
            raise wrong_shape(self, f"(..., {self.in_features})", x.shape)
        basis = bspline_basis(x, self.grid, self.order)  # (..., in, splines)
        flat = basis.reshape(*x.shape[:-1], basis.shape[-2] * basis.shape[-1])
        y = flat @ self.spline_weight.reshape(self.out_features, -1).T
        return y if self.base is None else y + self.base(x) @ self.base_weight.T
