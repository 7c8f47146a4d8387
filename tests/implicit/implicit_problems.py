"""Problems whose solutions depend on parameters p (k,), and their derivatives by other means than those under test.

`Exact` solves the same equations in NumPy's extended precision, by Newton's method with differences for derivatives,
and differentiates the solution by central differences of eighth order: nothing of wonderland is used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import wonderland as wl

LONG = np.longdouble
FIRST = {1: LONG(4) / 5, 2: -LONG(1) / 5, 3: LONG(4) / 105, 4: -LONG(1) / 280}
SECOND = {1: LONG(8) / 5, 2: -LONG(1) / 5, 3: LONG(8) / 315, 4: -LONG(1) / 560}


@dataclass
class Case:
    """`f(x, p)` for the function of wl.implicit called `kind`; `equations(x, p)` are those of its solution, a vector.

    Where they are left out, they are f itself (of a root), x - f (of a fixed point), or the gradient by complex steps.
    """

    name: str
    kind: str
    f: Callable
    start: Any
    p: list[float]
    solvers: tuple
    equations: Callable | None = None
    guess: Any = None  # where the exact solution is looked for, if not at the start

    @cached_property
    def exact(self) -> "Exact":
        equations = self.equations
        if equations is None and self.kind in ("root", "bisect", "custom_root"):
            equations = self.f
        elif equations is None and self.kind == "fixed_point":
            equations = lambda x, p: x - self.f(x, p)
        elif equations is None and self.kind == "least_squares":
            equations = gradient(lambda x, p: np.sum(self.f(x, p) ** 2) / 2)
        elif equations is None:
            equations = gradient(self.f)
        return Exact(
            equations, np.array(self.start if self.guess is None else self.guess, LONG), np.array(self.p, LONG)
        )


def gradient(f: Callable) -> Callable:
    """Of a function that is analytic, by complex steps."""

    def g(x: Any, p: Any) -> Any:
        step = LONG(1e-40)
        return np.array([f(x + 1j * step * e, p).imag / step for e in np.eye(len(x), dtype=LONG)])

    return g


def eliminated(a: Any, b: Any) -> Any:
    """x in a x = b, by Gauss with pivots, in extended precision."""
    a, b = a.copy(), b.copy()
    n = len(b)
    for i in range(n):
        p = i + int(np.argmax(np.abs(a[i:, i])))
        a[[i, p]], b[[i, p]] = a[[p, i]], b[[p, i]]
        for j in range(i + 1, n):
            m = a[j, i] / a[i, i]
            a[j, i:] -= m * a[i, i:]
            b[j] -= m * b[i]
    for i in reversed(range(n)):
        b[i] = (b[i] - a[i, i + 1 :] @ b[i + 1 :]) / a[i, i]
    return b


def sizes(x: Any) -> Any:
    """|x|, and 1 where that is 0 (but for extended precision's rounding)."""
    return np.where(np.abs(x) < 1e-18, 1, np.abs(x))


class Exact:
    """x(p) with F(x, p) = 0, and its derivatives."""

    def __init__(self, F: Callable, start: Any, p: Any):
        self.F, self.p = F, p
        self.x = self.root(start, p, 60)

    def root(self, x: Any, p: Any, steps: int = 12) -> Any:
        for _ in range(steps):
            scale = sizes(x)
            columns = []
            for e in np.eye(len(x), dtype=LONG):
                h = 1e-6 * scale * e
                columns.append((self.F(x + h, p) - self.F(x - h, p)) / (2 * np.sum(h)))
            s = eliminated(np.stack(columns, axis=1), self.F(x, p))
            x = x - s
            if np.all(np.abs(s) <= 1e-18 * scale):
                break
        assert np.all(np.abs(s) <= 1e-15 * scale), s
        return x

    def shifted(self, direction: Any, order: int) -> Any:
        """The derivative of x along a direction of p, first or second."""
        direction = np.asarray(direction, LONG)
        h = LONG(2e-3)
        table, out = (FIRST, SECOND)[order - 1], 0
        for i, weight in table.items():
            plus, minus = (self.root(self.x, self.p + s * i * h * direction) for s in (1, -1))
            out = out + weight * (plus - minus if order == 1 else plus + minus - 2 * self.x)
        return out / h**order

    @cached_property
    def jacobian(self) -> Any:
        """dx/dp (n, k)."""
        return np.stack(
            [self.shifted(e * s, 1) / s for e, s in zip(np.eye(len(self.p)), self.size, strict=True)], axis=1
        )

    @cached_property
    def size(self) -> Any:
        return np.maximum(np.abs(self.p), LONG(1e-3))

    @cached_property
    def direction(self) -> Any:
        """Some change of all parameters, in proportion to them."""
        return self.size * np.cos(np.arange(1, len(self.p) + 1) * 2.0)

    @cached_property
    def second(self) -> Any:
        """The second derivative of x along `direction`, (n,)."""
        return self.shifted(self.direction, 2)

    @cached_property
    def weights(self) -> Any:
        """A vector that makes all numbers of x count, (n,)."""
        return (np.cos(np.arange(len(self.x))) + 1.5) / sizes(self.x)


ROOTS = ("newton", "trust_region", "broyden", "lm")
MINIMA = ("bfgs", "lbfgs", "newton_cg", "newton")
FITS = ("lm", "gauss_newton", "bfgs", "newton")
POINTS = ("anderson", "picard", "newton")
RANDOM = np.random.default_rng(5)
A = RANDOM.normal(size=(12, 3))
Y = A @ np.array([1.0, -2.0, 0.5]) + 0.3 * RANDOM.normal(size=12)
LABELS = np.where(Y + RANDOM.normal(size=12) > 0, 1.0, -1.0)
T = np.linspace(0.2, 4, 9)
W = RANDOM.normal(size=(4, 4)) / 3
B = RANDOM.normal(size=4)
Q = A.T @ A / 4
CONSUMED = np.array([0.6, 1.1, 1.4, 1.7, 1.9, 2.0, 2.05, 2.2, 2.15])


def padded(x):
    zero = 0 * x[:1]
    return np.concatenate([zero, x, zero])


def tridiagonal(x, p):
    y = padded(x)
    return (3 - p[0] * x) * x - y[:-2] - 2 * y[2:] + p[1]


def boundary(x, p):
    y, h = padded(x), 1 / 6
    return 2 * x - y[:-2] - y[2:] + h * h * (x + p[0] * np.arange(1, 6) * h + p[1]) ** 3 / 2


def markov(x, p):
    """One step of a chain on three states whose rates depend on p, of numbers with sum 1."""
    a, b = p[0] * x[0], p[1] * x[1]
    c = 0.3 * x[2]
    new = np.stack([x[0] - a + c / 2, x[1] - b + a, x[2] - c + b + 0 * x[0]])
    new = new + np.stack([0 * c, c / 2, 0 * c])
    return new / np.sum(new)


def decay(x, p):
    return x[0] * np.exp(-x[1] * T) + x[2] - (2 * p[1] * np.exp(-p[0] * p[1] * T) + p[1] ** 2)


def logistic(x, p):
    return np.sum(np.log(1 + np.exp(-LABELS * (A @ x) * p[0]))) + p[1] * np.sum(x * x)


def fit(x, p):
    return np.sum((A @ x - p[0] ** 2 * Y) ** 2) / 2


def fit_gradient(x, p):
    return A.T @ (A @ x - p[0] ** 2 * Y)


def portfolio(x, p):
    return p[0] * (x @ Q @ x) / 2 - p[1] * np.sum(np.array([1.0, -1.5, 0.3]) * x)


def portfolio_conditions(x, p):
    """Of the minimum over the simplex with the second number 0: equal slopes of the others, and their sum."""
    g = p[0] * (Q @ x) - p[1] * np.array([1.0, -1.5, 0.3])
    return np.stack([g[0] - g[2], x[1], x[0] + x[2] - 1])


def on_simplex(p):
    return wl.implicit.ProjectedGradient(wl.implicit.project_simplex)


def in_box(p):
    """Whose lower bounds are a parameter."""
    return wl.implicit.ProjectedGradient(lambda x: wl.implicit.project_box(x, -p[1], 2.0))


def not_negative(p):
    return wl.implicit.ProjectedGradient(wl.implicit.project_nonnegative)


def with_l1(p):
    """Whose strength is a parameter."""
    return wl.implicit.ProximalGradient(lambda x, t: wl.implicit.prox_l1(x, p[1] * t))


CASES = [
    Case("circle, upper branch", "root", lambda y, p: y * y + p[0] ** 2 - p[1], [1.0], [0.6, 1.0], ROOTS),
    Case("circle, lower branch", "root", lambda y, p: y * y + p[0] ** 2 - p[1], [-1.0], [0.6, 1.0], ROOTS),
    Case("Kepler", "root", lambda e, p: e - p[0] * np.sin(e) - p[1], [1.0], [0.8, 0.5], ROOTS),
    Case("Kepler, between bounds", "bisect", lambda e, p: e - p[0] * np.sin(e) - p[1], [1.0], [0.8, 0.5], ("bisect",)),
    Case("Kepler, by SciPy", "custom_root", lambda e, p: e - p[0] * np.sin(e) - p[1], [1.0], [0.8, 0.5], ("scipy",)),
    Case("Lambert's W", "root", lambda x, p: x * np.exp(x) - p[0], [1.0], [2.0], ROOTS),
    Case(
        "Colebrook",
        "root",
        lambda s, p: s + 2 / np.log(10) * np.log(p[0] / 3.7 + 2.51 * s / (p[1] * 1e5)),
        [5.0],
        [1e-3, 2.0],
        ROOTS,
    ),
    Case(
        "Powell, badly scaled",
        "root",
        lambda x, p: np.stack([1e4 * x[0] * x[1] - p[0], np.exp(-x[0]) + np.exp(-x[1]) - 1 - p[1]]),
        [0.0, 1.0],
        [1.0, 1e-4],
        ("newton", "trust_region", "broyden"),
        guess=[1.1e-5, 9.1],
    ),
    Case("Broyden's tridiagonal", "root", tridiagonal, [-1.0] * 6, [2.0, 1.0], ROOTS),
    Case("boundary values", "root", boundary, [-0.1] * 5, [1.0, 1.0], ROOTS),
    Case(
        "units of 1e10 and 1e-10",
        "root",
        lambda x, p: np.stack([1e10 * (x[0] - 1e6 * p[0]), 1e-10 * (x[1] ** 2 - 1e-12 * p[1])]),
        [1.0, 1.0],
        [2.0, 3.0],
        ROOTS,
        guess=[2e6, 1.7e-6],
    ),
    Case("cubic", "root", lambda x, p: x**3 - p[0] * x + p[1], [2.0], [3.0, 1.0], ROOTS),
    Case(
        "ellipse and exponential",
        "root",
        lambda x, p: np.stack([p[0] * x[0] ** 2 + x[1] ** 2 - 4, np.exp(x[0]) + p[1] * x[1] - 1]),
        [1.0, -1.7],
        [1.0, 1.0],
        ROOTS,
    ),
    Case(
        "equilibrium of reactions",
        "root",
        lambda x, p: np.stack([x[0] * x[1] - p[0] * x[2], x[0] + x[2] - p[1], x[1] + x[2] - 1.5]),
        [0.5, 0.5, 0.5],
        [0.4, 1.0],
        ROOTS,
    ),
    Case(
        "an implicit step of van der Pol",
        "root",
        lambda x, p: np.stack([x[0] - 2 - p[1] * x[1], x[1] - p[1] * (p[0] * (1 - x[0] ** 2) * x[1] - x[0])]),
        [2.0, 0.0],
        [5.0, 0.1],
        ROOTS,
    ),
    Case("Heron", "fixed_point", lambda x, p: (x + p[0] / x) / 2, [1.0], [2.0], POINTS),
    Case(
        "cosine",
        "fixed_point",
        lambda x, p: p[0] * np.cos(p[1] * x),
        [1.0],
        [0.9, 0.8],
        (*POINTS, "broyden", "lm", "trust_region"),
    ),
    Case(
        "equilibrium network",
        "fixed_point",
        lambda x, p: np.tanh(p[0] * (W @ x) + p[1] * B),
        [0.0] * 4,
        [0.7, 1.3],
        POINTS,
    ),
    Case("linear contraction", "fixed_point", lambda x, p: p[0] * (W @ x) + p[1] * B, [0.0] * 4, [0.6, 1.3], POINTS),
    Case("stationary distribution", "fixed_point", markov, [1 / 3] * 3, [0.4, 0.2], POINTS),
    Case(
        "ridge regression",
        "minimize",
        lambda x, p: np.sum((A @ x - p[1] * Y) ** 2) + p[0] * np.sum(x * x),
        [0.0] * 3,
        [0.3, 1.0],
        MINIMA,
    ),
    Case("logistic regression", "minimize", logistic, [0.0] * 3, [1.0, 0.2], MINIMA),
    Case(
        "Rosenbrock",
        "minimize",
        lambda x, p: (p[0] - x[0]) ** 2 + p[1] * (x[1] - x[0] ** 2) ** 2,
        [-1.2, 1.0],
        [1.0, 100.0],
        MINIMA,
    ),
    Case(
        "log-sum-exp",
        "minimize",
        lambda x, p: np.log(np.sum(np.exp(A @ x * p[0]))) + p[1] * np.sum(x * x),
        [1.0] * 3,
        [1.0, 0.1],
        MINIMA,
    ),
    Case(
        "entropy",
        "minimize",
        lambda x, p: np.sum(x * np.log(x)) + p[0] * np.sum(np.arange(3) * x) + p[1] * np.sum(x) ** 2,
        [0.5] * 3,
        [0.7, 0.3],
        MINIMA,
        guess=[0.22, 0.11, 0.055],
    ),
    Case(
        "Poisson regression",
        "minimize",
        lambda x, p: np.sum(np.exp(p[0] * (A @ x) / 3) - np.abs(Y) * (A @ x)) + p[1] * np.sum(x * x),
        [0.0] * 3,
        [1.0, 0.5],
        MINIMA,
    ),
    Case(
        "tilted double well",
        "minimize",
        lambda x, p: np.sum(x**4 - p[0] * x * x + p[1] * x),
        [1.0, -1.0],
        [2.0, 0.3],
        MINIMA,
    ),
    Case(
        "exponential, without residual",
        "least_squares",
        decay,
        [1.0, 1.0, 0.0],
        [0.7, 1.0],
        FITS,
        guess=[2.0, 0.7, 1.0],
    ),
    Case(
        "exponential, with residual",
        "least_squares",
        lambda x, p: decay(x, p) + 0.3 * np.cos(9 * T),
        [1.0, 1.0, 0.0],
        [0.7, 1.0],
        FITS,
        guess=[2.0, 0.7, 0.95],
    ),
    Case(
        "Michaelis and Menten",
        "least_squares",
        lambda x, p: x[0] * T / (x[1] + T) - CONSUMED * p[0] - p[1],
        [2.0, 1.0],
        [1.0, 0.1],
        FITS,
        guess=[2.6, 0.5],
    ),
    Case(
        "rational function",
        "least_squares",
        lambda x, p: (x[0] + x[1] * T) / (1 + x[2] * T) - np.cos(p[0] * T),
        [1.0, -0.1, 0.0],
        [0.3],
        FITS,
        guess=[1.03, -0.22, -0.13],
    ),
    Case(
        "circle through points",
        "least_squares",
        lambda x, p: (p[0] * np.cos(T) - x[0]) ** 2 + (p[1] * np.sin(T) - x[1]) ** 2 - x[2] ** 2,
        [0.1, 0.2, 1.0],
        [1.2, 1.0],
        FITS,
    ),
    Case("portfolio", "minimize", portfolio, [1 / 3] * 3, [1.0, 0.5], (on_simplex,), portfolio_conditions),
    Case(
        "least squares in a box",
        "minimize",
        fit,
        [0.0] * 3,
        [1.0, 0.7],
        (in_box,),
        lambda x, p: np.stack([fit_gradient(x, p)[0], x[1] + p[1], fit_gradient(x, p)[2]]),
    ),
    Case(
        "least squares without negative numbers",
        "minimize",
        fit,
        [1.0] * 3,
        [1.0],
        (not_negative,),
        lambda x, p: np.stack([fit_gradient(x, p)[0], x[1], fit_gradient(x, p)[2]]),
    ),
    Case(
        "lasso",
        "minimize",
        fit,
        [0.0] * 3,
        [1.0, 6.0],
        (with_l1,),
        lambda x, p: np.stack([fit_gradient(x, p)[0] + p[1], fit_gradient(x, p)[1] - p[1], x[2]]),
    ),
]
