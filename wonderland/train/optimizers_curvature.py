"""Optimisers that use curvature: L-BFGS from past gradients, Newton-CG from `hvp`, Gauss-Newton from `gnvp`.

The parameters are one vector here. `minimize(loss, model, *data)` is one iteration with a line search: it calls the
loss several times, on clones of the model whose buffers are copies, so the model's own buffers stay as they are. All of
it works inside `wl.jit`, where loops and searches are part of the native call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.control.loops import fori_loop, while_loop
from wonderland.core.errors import ArgumentError
from wonderland.nn.module import Buffer, Module
from wonderland.nn.substitute import with_arrays
from wonderland.numpy import take
from wonderland.train.optimizers_base import Arrays, Number, Optimizer, trainable
from wonderland.transform.curvature import gnvp
from wonderland.transform.derivatives import value_and_grad
from wonderland.transform.second_order import hvp_at


class VectorOptimizer(Optimizer):
    """An optimiser of all parameters as one vector."""

    def _size(self) -> tuple[int, np.dtype]:
        kinds = {np.dtype(dtype) for _, _, dtype in self.shapes}
        if any(kind.kind == "c" for kind in kinds):
            raise ArgumentError(f"{type(self).__name__} has no complex parameters: keep real and imaginary part apart")
        return sum(int(np.prod(shape)) for _, shape, _ in self.shapes), np.result_type(*kinds)

    def _flat(self, arrays: Arrays) -> Any:
        dtype = self._size()[1]
        return np.concatenate([arrays[name].reshape(-1).astype(dtype) for name, _, _ in self.shapes])

    def _unflat(self, vector: Any) -> Arrays:
        out, start = {}, 0
        for name, shape, dtype in self.shapes:
            size = int(np.prod(shape))
            out[name] = vector[start : start + size].reshape(shape).astype(dtype)
            start += size
        return out

    def _function(self, model: Module, loss: Callable, data: tuple[Any, ...]) -> Callable:
        """The loss as a function of the vector."""
        return lambda vector: loss(with_arrays(model, self._unflat(vector), copied=True), *data)

    def _start(self, model: Module) -> tuple[Arrays, Any]:
        """The parameters by name, as they are tracked, and as a vector."""
        parameters = trainable(model)
        self._matched(model, parameters)
        return parameters, self._flat(parameters)

    def _finish(self, parameters: Arrays, x: Any, others: Arrays | None = None) -> None:
        others = {"updates": self.updates + 1, **(others or {})}
        self.write(parameters, (self._unflat(x), {}, others))

    def _rate(self) -> Any:
        rate: Any = self.defaults.rate
        value: Any = rate(self.updates) if callable(rate) else rate
        return value + 0.0

    def minimize(self, loss: Callable, model: Module, *data: Any) -> Any:
        """One iteration on `loss(model, *data)`, with a line search; returns the loss before it."""
        raise NotImplementedError


class LBFGS(VectorOptimizer):
    """The direction -H g with H from the last `history` pairs of steps s and gradient changes y (two loops).

    H begins as (s'y / y'y) I; pairs without s'y > 1e-10 are left out. `minimize` searches a step that satisfies the
    weak Wolfe conditions, by bisection; `update(model, grads)` takes the step `rate` (the first time
    rate * min(1, 1 / |g|_1)), as PyTorch's without a line search does.

    J. Nocedal and S. Wright, Numerical optimization, 2006, algorithm 7.4; A. Lewis and M. Overton, Nonsmooth
    optimization via quasi-Newton methods, 2013 (the search).
    """

    steps: Any
    changes: Any
    last_gradient: Any
    last_step: Any
    globals: tuple[str, ...] = ("steps", "changes", "inverses", "scale", "pairs", "last_gradient", "last_step")

    def __init__(
        self, model: Module, rate: Number = 1.0, *, history: int = 10, searches: int = 25, skip_nonfinite: bool = False
    ):
        if history < 1:
            raise ArgumentError(f"history is the number of pairs kept, at least 1, not {history}")
        self.history: int
        self.searches: int
        self.history, self.searches = int(history), int(searches)
        super().__init__(model, {"rate": rate}, None, skip_nonfinite)

    def track(self, model: Module) -> None:
        """As of every optimiser; a history of other parameters is forgotten."""
        before = self.shapes
        super().track(model)
        if before != self.shapes:
            size, dtype = self._size()
            for name in ("last_gradient", "last_step"):
                setattr(self, name, Buffer(np.zeros(size, dtype)))
            for name in ("steps", "changes"):
                setattr(self, name, Buffer(np.zeros((self.history, size), dtype)))
            self.inverses: Any = Buffer(np.zeros(self.history, dtype))  # 1 / s'y, 0 where there is no pair
            self.scale: Any = Buffer(np.array(1.0, dtype))
            self.pairs: Any = Buffer(np.array(0, np.int64))
            self.began: Any = Buffer(np.array(self.updates, np.int64))

    def _remembered(self, g: Any) -> Arrays:
        """The history with the last step and what it did to the gradient."""
        y, s = g - self.last_gradient, self.last_step
        product = np.sum(y * s)
        good = (self.updates > self.began) & (product > 1e-10)
        place = np.mod(self.pairs, self.history)
        chosen = (np.arange(self.history) == place) & good
        safe = np.where(good, product, 1.0)
        return {
            "steps": np.where(chosen[:, None], s, self.steps),
            "changes": np.where(chosen[:, None], y, self.changes),
            "inverses": np.where(chosen, 1.0 / safe, self.inverses),
            "scale": np.where(good, safe / np.where(good, np.sum(y * y), 1.0), self.scale),
            "pairs": self.pairs + np.where(good, 1, 0),
        }

    def _direction(self, g: Any, held: Arrays) -> Any:
        s, y, rho, m = held["steps"], held["changes"], held["inverses"], self.history

        def newest_first(i: Any, carry: Any) -> Any:
            q, alphas = carry
            k = np.mod(held["pairs"] - 1 - i, m)
            alpha = np.sum(take(s, k, axis=0) * q) * take(rho, k)
            return q - alpha * take(y, k, axis=0), np.where(np.arange(m) == k, alpha, alphas)

        def oldest_first(i: Any, r: Any) -> Any:
            k = np.mod(held["pairs"] + i, m)
            beta = np.sum(take(y, k, axis=0) * r) * take(rho, k)
            return r + (take(alphas, k) - beta) * take(s, k, axis=0)

        q, alphas = fori_loop(0, m, newest_first, (-g, np.zeros(m, g.dtype)))
        return fori_loop(0, m, oldest_first, held["scale"] * q)

    def rules(self, parameters: Arrays, gradients: Arrays) -> tuple[Arrays, dict[str, Arrays], Arrays]:
        """The step of size `rate`."""
        x, g = self._flat(parameters), self._flat(gradients)
        held = self._remembered(g)
        d = self._direction(g, held)
        first = np.minimum(1.0, 1.0 / np.maximum(np.sum(np.abs(g)), np.finfo(g.dtype).tiny))
        step = (self._rate() * np.where(self.updates > self.began, 1.0, first)).astype(g.dtype) * d
        return self._unflat(x + step), {}, {**held, "last_gradient": g, "last_step": step}

    def minimize(self, loss: Callable, model: Module, *data: Any) -> Any:
        """One iteration on `loss(model, *data)`, with a line search; returns the loss before it."""
        parameters, x = self._start(model)
        f = value_and_grad(self._function(model, loss, data))
        value, g = f(x)
        held = self._remembered(g)
        d = self._direction(g, held)
        descends = np.sum(g * d) < 0
        d = np.where(descends, d, -g)  # after a history that rounding has spoilt
        first = np.minimum(1.0, 1.0 / np.maximum(np.sum(np.abs(g)), np.finfo(g.dtype).tiny))
        start = (self._rate() * np.where(self.updates > self.began, 1.0, first)).astype(g.dtype)
        step = wolfe(f, x, d, value, g, start, self.searches) * d
        self._finish(parameters, x + step, {**held, "last_gradient": g, "last_step": step})
        return value


class NewtonCG(VectorOptimizer):
    """The Newton step H d = -g by conjugate gradients with `hvp`, cut short where H has a negative direction.

    They end at |H d + g| <= min(forcing, sqrt |g|) |g|, or after `iterations`; then a step along d by halving, with
    Armijo's condition. With less `forcing` there are fewer steps, of more products each.
    J. Nocedal and S. Wright, Numerical optimization, 2006, algorithm 7.1.
    """

    def __init__(
        self,
        model: Module,
        rate: Number = 1.0,
        *,
        iterations: int | None = None,
        forcing: float = 0.5,
        searches: int = 25,
    ):
        self.forcing: float
        self.iterations: int | None
        self.searches: int
        self.iterations, self.forcing, self.searches = iterations, float(forcing), int(searches)
        super().__init__(model, {"rate": rate})

    def update(self, model: Module, grads: Any) -> None:
        """Not of this one: it needs the loss itself."""
        raise ArgumentError("NewtonCG needs the loss, not only its gradient: optimizer.minimize(loss, model, *data)")

    def minimize(self, loss: Callable, model: Module, *data: Any) -> Any:
        """One iteration on `loss(model, *data)`, with a line search; returns the loss before it."""
        parameters, x = self._start(model)
        f = self._function(model, loss, data)
        value, g = value_and_grad(f)(x)
        norm = np.sqrt(np.sum(g * g))
        tolerance = np.minimum(self.forcing, np.sqrt(norm)) * norm
        d = conjugate_gradients(hvp_at(f, x), -g, tolerance, self.iterations or 2 * x.size)
        step = halving(f, x, d, value, np.sum(g * d), self._rate().astype(g.dtype), self.searches) * d
        self._finish(parameters, x + step)
        return value


class GaussNewton(VectorOptimizer):
    """(J' H J + damping I) d = -g by conjugate gradients with `gnvp`: for loss(outputs(model)) with a convex loss.

    J is the Jacobian of the outputs, H the Hessian of the loss there. The damping follows how well the model of the
    loss predicted the change (Levenberg and Marquardt): a third after a good step, twice after a poor one; a step
    that doesn't decrease the loss isn't taken. N. Schraudolph, Fast curvature matrix-vector products, 2002; J. Martens,
    Deep learning via Hessian-free optimization, 2010.

        optimizer.minimize(loss, model, x, outputs=lambda model, x: model(x))    # loss(outputs)
    """

    def __init__(
        self, model: Module, rate: Number = 1.0, *, damping: float = 1e-3, iterations: int | None = None,
        tolerance: float = 1e-6,
    ):  # fmt: skip
        self.iterations: int | None
        self.tolerance: float
        self.iterations, self.tolerance = iterations, float(tolerance)
        self.damping: Any = Buffer(np.array(damping, np.float64))
        super().__init__(model, {"rate": rate})

    def update(self, model: Module, grads: Any) -> None:
        """Not of this one: it needs the loss itself."""
        raise ArgumentError("GaussNewton needs the loss, not only its gradient: optimizer.minimize(loss, model, x)")

    def minimize(self, loss: Callable, model: Module, *data: Any, outputs: Callable | None = None) -> Any:
        """One iteration on `loss(outputs(model, *data))`; without `outputs`, these are model(*data)."""
        parameters, x = self._start(model)
        run = outputs or (lambda model, *data: model(*data))
        residual = self._function(model, run, data)
        f = lambda vector: loss(residual(vector))
        value, g = value_and_grad(f)(x)
        damping = self.damping.astype(g.dtype)
        product = lambda v: gnvp(residual, loss, x, v) + damping * v
        norm = np.sqrt(np.sum(g * g))
        d = conjugate_gradients(product, -g, self.tolerance * norm, self.iterations or 2 * x.size)
        step = self._rate().astype(g.dtype) * d
        predicted = -(np.sum(g * step) + np.sum(step * (product(step) - damping * step)) / 2)
        new = f(x + step)
        ratio = (value - new) / np.where(predicted > 0, predicted, 1.0)
        factor = np.where(ratio > 0.75, 1.0 / 3.0, np.where(ratio > 0.25, 1.0, 2.0))
        better = new < value
        changed = np.where(better, x + step, x)
        self._finish(parameters, changed, {"damping": self.damping * np.where(better, factor, 4.0)})
        return value


# What they share -----------------------------------------------------------------------------------------------------


def conjugate_gradients(product: Callable, b: Any, tolerance: Any, iterations: int) -> Any:
    """Nearly the solution of A d = b for v -> A v; where v'A v <= 0 it ends (at b itself, if at once)."""

    def go_on(carry: Any) -> Any:
        _, r, _, i, bent = carry
        return (np.sqrt(np.sum(r * r)) > tolerance) & (i < iterations) & ~bent

    def body(carry: Any) -> Any:
        d, r, p, i, _ = carry
        a = product(p)
        curvature, squared = np.sum(p * a), np.sum(r * r)
        bent = ~(curvature > 0)
        alpha = np.where(bent, 0.0, squared / np.where(bent, 1.0, curvature)).astype(r.dtype)
        d = np.where(bent & (i == 0), b, d + alpha * p)
        left = r - alpha * a
        p = left + np.sum(left * left) / squared * p
        return d, left, p, i + 1, bent

    start = (np.zeros_like(b), b, b, np.int64(0), np.bool_(False))
    return while_loop(go_on, body, start)[0]


def halving(f: Callable, x: Any, d: Any, value: Any, slope: Any, start: Any, most: int) -> Any:
    """The first of start, start / 2, ... with f(x + t d) <= f(x) + 1e-4 t slope; 0 if none has it."""

    def go_on(carry: Any) -> Any:
        t, there, i = carry
        return ~(there <= value + 1e-4 * t * slope) & (i < most)

    def body(carry: Any) -> Any:
        t, _, i = carry
        return t / 2, f(x + t / 2 * d), i + 1

    t, there, _ = while_loop(go_on, body, (start, f(x + start * d), np.int64(0)))
    return np.where(there <= value + 1e-4 * t * slope, t, 0.0).astype(d.dtype)


def wolfe(f: Callable, x: Any, d: Any, value: Any, g: Any, start: Any, most: int) -> Any:
    """A step with the weak Wolfe conditions (1e-4 and 0.9), by doubling and bisection; the last one tried otherwise.

    `f` returns value and gradient. A step that doesn't decrease f becomes 0.
    """
    slope = np.sum(g * d)
    infinity = np.array(np.inf, x.dtype)

    def at(t: Any) -> tuple[Any, Any]:
        there, gradient = f(x + t * d)
        return there, np.sum(gradient * d)

    def verdict(t: Any, there: Any, incline: Any) -> tuple[Any, Any]:
        high = ~(there <= value + 1e-4 * t * slope)
        return high, ~high & (incline < 0.9 * slope)

    def go_on(carry: Any) -> Any:
        t, _, _, there, incline, i = carry
        high, flat = verdict(t, there, incline)
        return (high | flat) & (i < most)

    def body(carry: Any) -> Any:
        t, low, top, there, incline, i = carry
        high, _ = verdict(t, there, incline)
        low, top = np.where(high, low, t), np.where(high, t, top)
        t = np.where(np.isfinite(top), (low + np.where(np.isfinite(top), top, low)) / 2, 2 * low)
        return (t, low, top, *at(t), i + 1)

    carry = (start, np.zeros_like(start), infinity, *at(start), np.int64(0))
    t, _, _, there, _, _ = while_loop(go_on, body, carry)
    return np.where(there < value, t, 0.0).astype(d.dtype)
