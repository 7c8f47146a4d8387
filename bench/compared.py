"""Numerical, symbolic and automatic differentiation side by side: `python -m bench.compared --images DIRECTORY`.

One plot each: the error of difference quotients against their step, with AD's beside it, in both precisions; operations
and time of a gradient against the number of inputs; the size of a derivative against the depth of a function; and the
memory of forward and reverse mode over time. Operations are counted, so they are the same everywhere; times are of one
machine, and rough.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import sympy as sp

import wonderland as wl
from wonderland.testing.problems import helmholtz_energy

Curves = dict[str, list[tuple[float, float]]]  # by method: x and y

# The functions -------------------------------------------------------------------------------------------------------


def squire_trapp(x: Any) -> Any:
    """The function on which Squire and Trapp showed the complex step."""
    return np.exp(x) / np.sqrt(np.sin(x) ** 3 + np.cos(x) ** 3)


def fluid(n: int) -> tuple[Any, Any, Any]:
    """Arguments of the Helmholtz energy: n inputs, one output, n^2 operations."""
    rng = np.random.default_rng(n)
    a = rng.uniform(0.5, 1.5, (n, n))
    return rng.uniform(0.5, 1.5, n) / n, (a + a.T) / 2, rng.uniform(0.1, 0.5, n)


def logistic(x: Any, depth: int) -> Any:
    """The logistic map 4 x (1 - x), so many times."""
    for _ in range(depth):
        x = 4 * x * (1 - x)
    return x


# Counting ------------------------------------------------------------------------------------------------------------


def expression_size(expressions: list) -> int:
    return sum(int(sp.count_ops(e)) for e in expressions)


def shared_size(expressions: list) -> int:
    """The operations of expressions whose common parts are computed once."""
    parts, rest = sp.cse(expressions)
    return expression_size([e for _, e in parts]) + expression_size(list(rest))


# The studies ---------------------------------------------------------------------------------------------------------

SCHEMES = {"forward": "forward difference", "central": "central difference", "complex_step": "complex step"}


def errors(dtype: type, count: int = 60) -> tuple[Curves, float, dict[str, tuple[float, float]]]:
    """Relative errors by step: the median over points. And AD's, and those of the automatic steps."""
    points = np.linspace(0.2, 1.4, count).astype(dtype)
    x = sp.Symbol("x", real=True)
    slope = sp.lambdify(x, sp.diff(wl.to_sympy(squire_trapp, x), x), "mpmath")
    with mpmath.workdps(50):
        exact = np.array([float(slope(mpmath.mpf(float(p)))) for p in points])

    def error(derivative: Callable) -> float:
        found = np.array([float(derivative(p)) for p in points])
        return float(max(np.median(np.abs(found / exact - 1)), np.finfo(dtype).eps / 8))

    eps = float(np.finfo(dtype).eps)
    curves: Curves = {name: [] for name in SCHEMES.values()}
    chosen = {}
    for scheme, name in SCHEMES.items():
        low = math.log10(1e-20 if eps < 1e-10 else 1e-10) if scheme == "complex_step" else math.log10(eps) + 0.5
        for h in 10.0 ** np.arange(-0.5, low, -0.25):
            step = float(h) if dtype is np.float64 else float(np.float32(h))
            difference = wl.finite_difference(squire_trapp, scheme=scheme, step=step)
            try:
                curves[name].append((step, error(difference)))
            except wl.ArgumentError:  # the step is lost to rounding
                break
        automatic = {"forward": eps ** (1 / 2), "central": eps ** (1 / 3)}.get(scheme, 1e-20 if eps < 1e-10 else 1e-10)
        chosen[name] = automatic, error(wl.finite_difference(squire_trapp, scheme=scheme))
    return curves, error(wl.grad(squire_trapp)), chosen


SIZES = [1, 2, 4, 8, 16, 24, 32, 64, 128, 256]
SYMBOLIC_LIMIT = 24  # inputs beyond which SymPy takes minutes


def costs(sizes: list[int]) -> tuple[Curves, Curves]:
    """Operations and seconds of a gradient of the Helmholtz energy, by its number of inputs."""
    counts: Curves = {}
    seconds: Curves = {}
    for n in sizes:
        x, a, b = fluid(n)
        f = lambda x, a=a, b=b: helmholtz_energy(x, a, b)
        forward = wl.jacobian(f, mode="forward")
        methods = {
            "forward difference": (
                (n + 1) * wl.cost(f, x).operations,
                wl.finite_difference(wl.jit(f), scheme="forward"),
            ),
            "AD, forward mode": (wl.cost(forward, x).operations, wl.jit(forward)),
            "AD, reverse mode": (wl.cost(wl.grad(f), x).operations, wl.jit(wl.grad(f))),
        }
        if n <= SYMBOLIC_LIMIT:
            symbols = sp.symbols(f"x:{n}", positive=True)
            gradient = [sp.diff(wl.to_sympy(f, np.array(symbols)), s) for s in symbols]
            evaluate = sp.lambdify([symbols], gradient, "math")
            methods["symbolic"] = expression_size(gradient), evaluate
            shared = sp.lambdify([symbols], gradient, "math", cse=True)
            methods["symbolic, common parts shared"] = shared_size(gradient), shared
        expected = wl.grad(f)(x)
        for name, (count, gradient) in methods.items():
            assert np.allclose(gradient(x), expected, rtol=1e-4), name
            counts.setdefault(name, []).append((n, count))
            seconds.setdefault(name, []).append((n, best_time(gradient, x)))
        print(f"  n = {n}: " + ", ".join(f"{name} {count}" for name, (count, _) in methods.items()), flush=True)
    return counts, seconds


def best_time(f: Callable, x: Any) -> float:
    best = math.inf
    for _ in range(7):
        start, calls = time.perf_counter(), 0
        while calls < 1 or time.perf_counter() - start < 0.01:
            f(x)
            calls += 1
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def swell(depths: list[int]) -> Curves:
    """Operations of the derivative of the iterated logistic map, by its depth."""
    curves: Curves = {}
    for depth in depths:
        f = lambda x, depth=depth: logistic(x, depth)
        x = sp.Symbol("x", real=True)
        counts = {
            "AD, forward mode": wl.cost(lambda x, f=f: wl.jvp(f, (x,), (1.0,))[1], 0.3).operations,
            "AD, reverse mode": wl.cost(wl.grad(f), 0.3).operations,
        }
        if depth <= 10:
            derivative = [sp.diff(wl.to_sympy(f, x), x)]
            counts["symbolic"] = expression_size(derivative)
            counts["symbolic, common parts shared"] = shared_size(derivative)
        for name, count in counts.items():
            curves.setdefault(name, []).append((depth, count))
    return curves


def network(weights: list, x: Any) -> Any:
    for w in weights:
        x = np.tanh(x @ w)
    return np.mean(x**2)


def memory() -> list:
    """The profiles of a network of 16 layers, forward and in reverse."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(64, 64)) / 8 for _ in range(16)]
    batch = rng.normal(size=(512, 64))
    return [wl.memory_profile(network, weights, batch, mode=mode) for mode in ("forward", "reverse")]


# The plots -----------------------------------------------------------------------------------------------------------


def draw_errors(path: Path) -> None:
    from bench.plots import BLUE, GREEN, INK, ORANGE, plt

    figure, panels = plt.subplots(1, 2, figsize=(9.6, 4.0), layout="constrained", sharey=True)
    for axes, dtype in zip(panels, (np.float64, np.float32), strict=True):
        curves, of_ad, chosen = errors(dtype)
        for (name, points), colour in zip(curves.items(), (ORANGE, BLUE, GREEN), strict=True):
            axes.plot(*zip(*points, strict=True), color=colour, label=name)
            axes.plot(*chosen[name], "o", color=colour, markersize=7)
        axes.axhline(of_ad, color=INK, linestyle="--", linewidth=1.2, label="AD (wl.grad)")
        axes.set(xscale="log", yscale="log", xlabel="step h", title=np.dtype(dtype).name)
        axes.invert_xaxis()
        axes.grid(color="#E4E4E4", linewidth=0.8)
        print(f"  {np.dtype(dtype).name}: AD {of_ad:.1e}, automatic steps {chosen}", flush=True)
    panels[1].plot([], [], "o", color=INK, label="the automatic step")
    panels[0].set_ylabel("relative error of the derivative")
    panels[1].legend(frameon=False, fontsize=9, loc="lower left")
    figure.savefig(path)
    plt.close(figure)


def draw_costs(path: Path) -> None:
    from bench.plots import plt

    figure, panels = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
    labels = ("operations of a gradient", "seconds per gradient (rough)")
    for axes, curves, label in zip(panels, costs(SIZES), labels, strict=True):
        _lines(axes, curves, "number of inputs n", label)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    panels[0].legend(frameon=False, fontsize=9)
    figure.savefig(path)
    plt.close(figure)


def draw_swell(path: Path) -> None:
    from bench.plots import plt

    figure, axes = plt.subplots(figsize=(6.0, 3.8), layout="constrained")
    _lines(
        axes,
        swell([*range(1, 11), 12, 14, 16, 18, 20]),
        "times that 4x(1 - x) is applied",
        "operations of the derivative",
    )
    axes.set_xticks(range(0, 21, 4))
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path)
    plt.close(figure)


def _lines(axes: Any, curves: Curves, x_label: str, y_label: str) -> None:
    from bench.plots import BLUE, GREEN, GREY, ORANGE, PURPLE

    styles = {
        "forward difference": (GREY, "s"), "AD, forward mode": (GREEN, "D"), "AD, reverse mode": (BLUE, "o"),
        "symbolic": (ORANGE, "^"), "symbolic, common parts shared": (PURPLE, "v"),
    }  # fmt: skip
    for name, (colour, marker) in styles.items():
        if name in curves:
            width = 4 if colour == GREY else 1.5  # it lies under forward mode's line
            axes.plot(
                *zip(*curves[name], strict=True), marker=marker, markersize=4, linewidth=width, color=colour, label=name
            )
    axes.set(yscale="log", xlabel=x_label, ylabel=y_label)
    axes.grid(color="#E4E4E4", linewidth=0.8)


def draw_memory(path: Path) -> None:
    from bench.plots import plt

    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.4), layout="constrained", sharey=True)
    profiles = memory()
    for axes, profile in zip(panels, profiles, strict=True):
        profile.plot(axes)
        print(profile, flush=True)
    panels[0].set_ylim(0, 1.08 * max(profile.peak for profile in profiles) / 1e6)
    panels[1].set_ylabel("")
    figure.savefig(path)
    plt.close(figure)


STUDIES = {
    "error": ("compared-error.png", draw_errors), "cost": ("compared-cost.png", draw_costs),
    "swell": ("compared-swell.png", draw_swell), "memory": ("memory.png", draw_memory),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.compared", description="Three ways to differentiate.")
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"any of {', '.join(STUDIES)} (default: all)")
    parser.add_argument("--images", default="docs/images", metavar="DIRECTORY", help="where the plots go")
    options = parser.parse_args()
    if unknown := {*options.studies} - {*STUDIES}:
        parser.error(f"no study called {', '.join(unknown)}; there are {', '.join(STUDIES)}")
    images = Path(options.images)
    images.mkdir(parents=True, exist_ok=True)
    for name in options.studies or STUDIES:
        print(name, flush=True)
        file, draw = STUDIES[name]
        draw(images / file)


if __name__ == "__main__":
    main()
