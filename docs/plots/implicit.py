"""The figures of docs/implicit.md: the circle and its tangents, what unrolling gives, and Kepler's equation.

Run from the repository: python docs/plots/implicit.py
"""

from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import wonderland as wl

INK, BLUE, ORANGE, GREY = "#222222", "#0072B2", "#D55E00", "#AAAAAA"
SHADES = ["#9ECAE1", "#4292C6", "#0072B2", "#08306B"]
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 150})
IMAGES = Path(__file__).parent.parent / "images"


def on_circle(guess, x):
    """The y near the guess with x^2 + y^2 = 1."""
    return wl.implicit.root(lambda y: x * x + y * y - 1, guess)


def circle(axes):
    """Both branches of x^2 + y^2 = 1 with the slopes of the theorem, and where it doesn't hold."""
    turn = np.linspace(0, 2 * np.pi, 400)
    axes.plot(np.cos(turn), np.sin(turn), color=GREY, linewidth=1.2)
    for guess, colour, name in ((1.0, BLUE, "$y^+$"), (-1.0, ORANGE, "$y^-$")):
        branch = partial(on_circle, guess)
        line = np.linspace(-0.95, 0.95, 60)
        axes.plot(line, wl.vmap(branch)(line), color=colour, linewidth=2.4)
        for at in (-0.8, -0.3, 0.6):
            y, slope = wl.value_and_grad(branch)(at)
            along = 0.38 / np.hypot(1, slope)
            axes.plot([at - along, at + along], [y - slope * along, y + slope * along], color=INK, linewidth=1.3)
            axes.plot(at, y, "o", color=INK, markersize=4)
        axes.annotate(name, (0.03, 0.84 * guess), color=colour, fontsize=12, ha="center", va="center")
    for at in (-1, 1):
        axes.plot(at, 0, "o", markerfacecolor="white", markeredgecolor=INK, markersize=7, zorder=5)
    axes.annotate("dF/dy = 2y = 0:\nno function of x", (1, 0), (-8, 0), textcoords="offset points", fontsize=8,
                  ha="right", va="center", color="#555555")  # fmt: skip
    axes.set(aspect="equal", xlabel="$x$", ylabel="$y$", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
    axes.set_title("two functions, one equation", fontsize=10)


def iterated(g, k, a):
    """What k steps of x <- g(x, a) make of 0.5."""
    return wl.fori_loop(0, k, lambda _, x: g(x, a), 0.5)


def unrolled(axes, a=2.0, rate=0.55):
    """The derivative of a fixed point after k steps: through the steps, and by the theorem at what they found."""
    g = lambda x, a: rate * x + (1 - rate) * np.cos(x * a)
    exact = wl.grad(lambda a: wl.implicit.fixed_point(g, 0.5, a))(a)
    steps = np.arange(1, 36)
    through, theorem = [], []
    for k in steps:
        iterate = partial(iterated, g, k)
        through.append(abs(wl.grad(iterate)(a) - exact))
        x = iterate(a)
        theorem.append(abs(wl.grad(g, 1)(x, a) / (1 - wl.grad(g)(x, a)) - exact))
    floor = lambda errors: np.maximum(errors, 1e-17)
    axes.semilogy(steps, floor(through), "s-", color=ORANGE, markersize=2.5, linewidth=1, label="through k steps")
    axes.semilogy(steps, floor(theorem), "o-", color=BLUE, markersize=2.5, linewidth=1, label="theorem after k steps")
    axes.set(xlabel="steps k", ylabel="error of the derivative", ylim=(1e-17, 10))
    axes.legend(frameon=False, fontsize=8)
    axes.set_title("a fixed point's derivative", fontsize=10)


def kepler(axes):
    """The eccentric anomaly and its derivatives in the mean anomaly."""
    E = lambda M, e: wl.implicit.root(lambda E: E - e * np.sin(E) - M, M + e * np.sin(M))
    M = np.linspace(0, 2 * np.pi, 300)
    first = wl.jit(wl.vmap(wl.grad(E), (0, None)))
    for e, colour in zip((0.2, 0.5, 0.8), SHADES[1:], strict=True):
        axes.plot(M, first(M, e), color=colour, linewidth=1.8, label=f"e = {e}")
    axes.set(xlabel="mean anomaly $M$", ylabel="$dE/dM$", ylim=(0, 5.2))
    axes.legend(frameon=False, fontsize=8)
    axes.set_title("$E - e\\,\\sin E = M$", fontsize=10)


def main():
    """Write the figure."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), constrained_layout=True)
    for draw, place in zip((circle, unrolled, kepler), axes, strict=True):
        draw(place)
    figure.savefig(IMAGES / "implicit.png")


if __name__ == "__main__":
    main()
