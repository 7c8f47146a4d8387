"""The figure of docs/taylor.md: Taylor polynomials of growing degree, and an equation of motion solved by its series.

Run from the repository: python docs/plots/taylor.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ellipj

import wonderland as wl

INK, SHADES = "#222222", ["#9ECAE1", "#4292C6", "#0072B2", "#08306B"]
MARKERS = "os^D"
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 150})


def f(x):
    """The function to expand."""
    return np.exp(np.sin(2 * x)) / (1 + x * x)


def polynomials(axes, center=0.6, degrees=(1, 3, 10, 30)):
    """Taylor polynomials around a point, against the function."""
    x = np.linspace(-1.2, 2.4, 500)
    out, series = wl.jet(f, (center,), ([1.0] + [None] * (max(degrees) - 1),), factorial_scaled=False)
    coefficients = np.array([out, *series])
    axes.plot(x, f(x), color=INK, linewidth=2.6)
    for degree, colour in zip(degrees, SHADES, strict=True):
        y = np.polynomial.polynomial.polyval(x - center, coefficients[: degree + 1])
        outside = np.abs(y - 1.3) > 1.9  # of the frame; what it does further out says nothing
        right = np.logical_or.accumulate(outside & (x > center))
        y[right | np.logical_or.accumulate((outside & (x < center))[::-1])[::-1]] = np.nan
        axes.plot(x, y, color=colour, linewidth=1.5, label=f"degree {degree}")
    axes.plot(center, out, "o", color=INK, markersize=6, zorder=5)
    radius = abs(center - 1j)
    for edge in (center - radius, center + radius):
        if x[0] < edge < x[-1]:
            axes.axvline(edge, color="#AAAAAA", linewidth=0.9, linestyle=":")
    axes.annotate("as far as the\npoles at $\\pm i$", (center - radius, 3.0), (6, 0), textcoords="offset points",
                  fontsize=8, color="#777777", ha="left", va="top")  # fmt: skip
    axes.set(xlabel="$x$", ylabel="$f(x) = e^{\\sin 2x} / (1 + x^2)$", xlim=(x[0], x[-1]), ylim=(-0.6, 3.2))
    axes.legend(framealpha=1, edgecolor="none", fontsize=8, loc="upper right", title="around 0.6", title_fontsize=8)


def field(y):
    """The pendulum: angle and angular velocity."""
    return np.stack([y[1], -np.sin(y[0])])


def stepper(order):
    """One step of the series of that order: each coefficient from one more order of the field."""

    @wl.jit
    def step(y, h):
        terms = [y]
        for k in range(order):
            slope, series = wl.jet(field, (y,), (terms[1:],), factorial_scaled=False)
            terms.append((series[-1] if k else slope) / (k + 1))
        out = terms[-1]
        for c in reversed(terms[:-1]):
            out = out * h + c
        return out

    return step


def errors(axes, time=10.0, start=2.0, orders=(2, 4, 8, 16)):
    """The error after ten seconds against the number of steps, for series of several orders."""
    modulus = np.sin(start / 2)
    _, cn, dn, _ = ellipj(time, modulus**2)
    exact = 2 * np.arcsin(modulus * cn / dn)
    for order, colour, marker in zip(orders, SHADES, MARKERS, strict=True):
        step, found = stepper(order), []
        counts = np.unique(np.round(np.geomspace(8, 640, 16)).astype(int))
        for count in counts:
            y = np.array([start, 0.0])
            for _ in range(count):
                y = step(y, time / count)
            found.append(max(abs(y[0] - exact), 1e-17))
        axes.loglog(counts, found, marker, color=colour, linestyle="-", markersize=4, label=f"order {order}")
    axes.axhline(np.finfo(float).eps, color="#AAAAAA", linewidth=0.9, linestyle=":")
    axes.annotate("rounding", (640, np.finfo(float).eps), (0, -10), textcoords="offset points", fontsize=8,
                  color="#777777", ha="right")  # fmt: skip
    axes.set(xlabel="steps to $t = 10$", ylabel="error of the pendulum's angle", ylim=(1e-17, 30))
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 0.1))


def main() -> None:
    """Draw both into docs/images."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    polynomials(left)
    errors(right)
    figure.savefig(Path(__file__).resolve().parent.parent / "images" / "taylor.png")


if __name__ == "__main__":
    main()
