"""Activations with parameters: PReLU, Swish, APL, KAF; and units made of several: Maxout, SwiGLU.

`num_parameters` is 1, for all units alike, or the number of units, the last axis: each has parameters of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import random
from wonderland.nn import activations, gates
from wonderland.nn.building import Init, Recipe, fill, positive, recipe, start
from wonderland.nn.linear import Linear
from wonderland.nn.module import Buffer, Module
from wonderland.nn.placing import numbers, placed, wrong_shape


class PReLU(Module):
    """x where it is positive, weight * x elsewhere; `weight` is (num_parameters,) and begins as `init`.

    Several are one for each channel along `axis`, which is PyTorch's, 1. He et al. 2015, Delving deep into rectifiers.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, axis: int = 1, dtype: Any = np.float32):
        self.num_parameters: int = positive(num_parameters, "PReLU: num_parameters")
        self.axis = axis
        self.weight: Any = np.full(self.num_parameters, init, dtype)

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x, self.weight)
        with placed(self):
            return activations.prelu(x, self.weight, self.axis)


class Swish(Module):
    """sigmoid(a x + b) (c x + d), all four trained; at the beginning a = c = 1 and b = d = 0, which is `SiLU`.

    Ramachandran et al. 2017, Searching for activation functions; equation 5.12 of the book.
    """

    def __init__(self, num_parameters: int = 1, *, dtype: Any = np.float32):
        self.num_parameters = n = positive(num_parameters, "Swish: num_parameters")
        self.a: Any
        self.b: Any
        self.a, self.b = np.ones(n, dtype), np.zeros(n, dtype)
        self.c: Any
        self.d: Any
        self.c, self.d = np.ones(n, dtype), np.zeros(n, dtype)

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x, self.a)
        _check_units(self, x)
        return activations.swish(x, self.a, self.b, self.c, self.d)


class APL(Module):
    """max(x, 0) + sum_s slopes_s max(hinges_s - x, 0): a piecewise linear function with `terms` trained hinges.

    `slopes` and `hinges` are (num_parameters, terms), drawn from U(-1, 1) / terms and N(0, 1). Agostinelli et al. 2015,
    Learning activation functions to improve deep neural networks.
    """

    def __init__(self, num_parameters: int = 1, terms: int = 5, *, key: Any = None, dtype: Any = np.float32):
        self.num_parameters = n = positive(num_parameters, "APL: num_parameters")
        self.terms = terms = positive(terms, "APL: terms")
        of_slopes, of_hinges = random.split(random.next_key() if key is None else key)
        self.slopes: Any = random.uniform(of_slopes, (n, terms), -1 / terms, 1 / terms, dtype=dtype)
        self.hinges: Any = random.normal(of_hinges, (n, terms), dtype=dtype)

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x, self.slopes)
        _check_units(self, x)
        return gates.apl(x, self.slopes, self.hinges)


class KAF(Module):
    """sum_i coefficients_i exp(-gamma (x - dictionary_i)^2): a kernel expansion, whose coefficients are trained.

    `dictionary` (a buffer) has `points` numbers between -boundary and boundary at equal distances d; gamma is
    1 / (6 d^2) if it isn't given. `coefficients` is (num_parameters, points), drawn from N(0, 0.3^2); or fitted at the
    points to a function (`start=nn.elu`), by ridge regression. Scardapane et al. 2019, Kafnets.
    """

    def __init__(
        self,
        num_parameters: int = 1,
        points: int = 20,
        boundary: float = 3.0,
        gamma: float | None = None,
        *,
        start: Any = None,
        key: Any = None,
        dtype: Any = np.float32,
    ):
        self.num_parameters = n = positive(num_parameters, "KAF: num_parameters")
        if positive(points, "KAF: points") < 2 or not boundary > 0:
            raise ValueError(f"KAF: at least 2 points and a boundary above 0, not points={points}, boundary={boundary}")
        grid = np.linspace(-boundary, boundary, points)
        self.gamma: float = float(1 / (6 * (grid[1] - grid[0]) ** 2) if gamma is None else gamma)
        self.dictionary: Any = Buffer(grid.astype(dtype))
        if start is None:
            self.coefficients: Any = random.normal(key, (n, points), 0.0, 0.3, dtype=dtype)
        else:
            kernel = np.exp(-self.gamma * (grid[:, None] - grid) ** 2)
            fitted = np.linalg.solve(kernel + 1e-4 * np.eye(points), np.asarray(start(grid), np.float64))
            self.coefficients = np.tile(fitted.astype(dtype), (n, 1))

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x, self.coefficients)
        _check_units(self, x)
        return gates.kaf(x, self.coefficients, self.dictionary, self.gamma)


def _check_units(layer: Any, x: Any) -> None:
    if layer.num_parameters > 1 and x.shape[-1:] != (layer.num_parameters,):
        raise wrong_shape(layer, f"(..., {layer.num_parameters})", x.shape)


class Maxout(Module):
    """y_j = max_k (W_jk x + b_jk), of `pieces` linear functions each: (..., in) becomes (..., out).

    `inner` is a Linear(in, out * pieces). Goodfellow et al. 2013, Maxout networks.
    """

    def __init__(
        self,
        in_features: int | None,
        out_features: int,
        pieces: int = 2,
        bias: bool | Init = True,
        *,
        init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
    ):
        self.pieces: int = positive(pieces, "Maxout: pieces")
        outputs = positive(out_features, "Maxout: out_features") * self.pieces
        self.inner: Any = Linear(in_features, outputs, bias, init=init, key=key, dtype=dtype)

    def __call__(self, x: Any) -> Any:
        return gates.maxout(self.inner(x), self.pieces)


class SwiGLU(Module):
    """y = W_outer (silu(W_gate x) * (W_inner x)): the gated feed-forward block of transformers, (..., n) to (..., out).

    `gate` and `inner` are Linear(n, hidden), `outer` is Linear(hidden, out), out = n if it isn't given; without biases
    unless `bias=True`. Shazeer 2020, GLU variants improve transformers.
    """

    gate: Any
    inner: Any
    outer: Any

    def __init__(
        self,
        in_features: int | None,
        hidden_features: int,
        out_features: int | None = None,
        bias: bool | Init = False,
        *,
        init: Init | None = None,
        key: Any = None,
        dtype: Any = np.float32,
    ):
        self.in_features: int | None = None
        self.hidden_features: int = 0
        self.out_features = None if out_features is None else positive(out_features, "SwiGLU: out_features")
        self.gate = self.inner = self.outer = None
        sizes = {"in_features": in_features, "hidden_features": hidden_features}
        start(self, sizes, recipe(self, init, bias, key, dtype))

    def _make(self, how: Recipe) -> None:
        n, hidden = self.in_features, self.hidden_features
        self.out_features = self.out_features or n
        sizes = (n, hidden), (n, hidden), (hidden, self.out_features)
        self.gate, self.inner, self.outer = (
            Linear(i, o, how.bias, init=how.init, key=key, dtype=how.dtype)  # type: ignore[arg-type]
            for (i, o), key in zip(sizes, how.keys(3), strict=True)
        )

    def __call__(self, x: Any) -> Any:
        x = numbers(self, x)
        if self.in_features is None and x.ndim:
            fill(self, in_features=x.shape[-1])
        return self.outer(activations.silu(self.gate(x)) * self.inner(x))
