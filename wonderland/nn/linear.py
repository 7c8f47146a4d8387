"""Dense layers: `Linear` and `Bilinear`."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.nn import init as initialisers
from wonderland.nn.building import Init, Recipe, fill, recipe, start
from wonderland.nn.module import Module
from wonderland.nn.placing import numbers, place_of, wrong_shape


class Linear(Module):
    """y = W x + b, of the last axis: (..., in) becomes (..., out).

    `weight` is (out, in), `bias` (out,), or None with `bias=False`. Both are drawn from U(-1, 1) / sqrt(in), as
    PyTorch's; `init=` is an initialiser of the weight (`nn.init.he_normal`), and `bias=` may be one of the bias.
    `in_features=None` is filled by `nn.build`.
    """

    weight: Any
    bias: Any

    def __init__(
        self,
        in_features: int | None,
        out_features: int,
        bias: bool | Init = True,
        *,
        init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
    ):
        self.in_features: int | None = None
        self.out_features: int = 0
        self.weight = self.bias = None
        sizes = {"in_features": in_features, "out_features": out_features}
        start(self, sizes, recipe(self, init, bias, key, dtype))

    def _make(self, how: Recipe) -> None:
        of_weight, of_bias = how.keys(2)
        self.weight = how.weight(of_weight, (self.out_features, self.in_features))  # type: ignore[arg-type]
        self.bias = how.bias_of(of_bias, (self.out_features,), self.in_features)  # type: ignore[arg-type]

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x, self.weight)
        if self.in_features is None and x.ndim:
            fill(self, in_features=x.shape[-1])
        if x.shape[-1:] != (self.in_features,):
            raise wrong_shape(self, f"(..., {self.in_features})", x.shape)
        weight: Any = self.weight
        if weight.ndim != 2:
            raise ValueError(
                f"{place_of(self)}: its weight has shape {tuple(weight.shape)}, not (out, in). An ensemble, which "
                "nn.stack makes, is called by vmap: wl.vmap(lambda model, x: model(x), in_axes=(0, None))(models, x)."
            )
        y = x @ weight.T
        return y if self.bias is None else y + self.bias


class Bilinear(Module):
    """y_o = x1^T W_o x2 + b_o, of the last axes: (..., in1) and (..., in2) become (..., out).

    `weight` is (out, in1, in2), `bias` (out,); both are drawn from U(-1, 1) / sqrt(in1), as PyTorch's.
    """

    weight: Any
    bias: Any

    def __init__(
        self,
        in1_features: int | None,
        in2_features: int | None,
        out_features: int,
        bias: bool | Init = True,
        *,
        init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
    ):
        self.in1_features: int | None = None
        self.in2_features: int | None = None
        self.out_features: int = 0
        self.weight = self.bias = None
        sizes = {"in1_features": in1_features, "in2_features": in2_features, "out_features": out_features}
        start(self, sizes, recipe(self, init, bias, key, dtype))

    def _make(self, how: Recipe) -> None:
        of_weight, of_bias = how.keys(2)
        fan: int = self.in1_features  # type: ignore[assignment]
        default = lambda key, shape, dtype: initialisers.fan_in_uniform(key, shape, dtype, fan_in=fan)
        self.weight = how.weight(of_weight, (self.out_features, fan, self.in2_features), default)  # type: ignore
        self.bias = how.bias_of(of_bias, (self.out_features,), fan)

    def __call__(self, x1: Any, x2: Any) -> Any:
        x1, x2 = numbers(self, x1, self.weight), numbers(self, x2, self.weight)
        if (self.in1_features is None or self.in2_features is None) and x1.ndim and x2.ndim:
            fill(self, in1_features=x1.shape[-1], in2_features=x2.shape[-1])
        if x1.shape[-1:] != (self.in1_features,) or x2.shape[-1:] != (self.in2_features,):
            expected = f"(..., {self.in1_features}) and (..., {self.in2_features})"
            raise ValueError(str(wrong_shape(self, expected, x1.shape, "inputs")) + f" and {x2.shape}")
        # first with x2, so that one product with the parameters is a plain matrix product: (..., out, in1)
        inner = x2 @ self.weight.reshape(-1, self.in2_features).T
        inner = inner.reshape(*x2.shape[:-1], self.out_features, self.in1_features)
        y = np.sum(inner * x1[..., None, :], axis=-1)
        return y if self.bias is None else y + self.bias
