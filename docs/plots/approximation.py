"""The figure of docs/universal-approximation.md: networks with computed weights, and their errors against the width.

Run from the repository: python docs/plots/approximation.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from wonderland import nn

BLUE, GREY, RED, GREEN = "#08306B", "#999999", "#CB181D", "#238B45"
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip


def g(x):
    """sin(x) / x."""
    return np.sinc(x / np.pi)


def at(model, x):
    """A network of one input, at points (n,)."""
    return model(x[:, None])[:, 0]


def curves(axes, make, bins, title):
    """The network and the function."""
    x = np.linspace(0.002, 9.998, 4001)
    axes.plot(x, g(x), color=GREY, linewidth=2.5, label="sin(x)/x")
    axes.plot(x, at(make(g, 0, 10, bins), x), color=BLUE, linewidth=1.1, label="network")
    axes.set(title=title, xlabel="x", ylim=(-0.35, 1.08))
    axes.legend(frameon=False)


def fitted(activation, width, rng, x, y):
    """Error of the best output layer behind random hidden units."""
    hidden = activation(rng.normal(size=width) * x[:, None] + rng.uniform(-1, 1, width))
    hidden = np.column_stack([hidden, np.ones(len(x))])
    return np.max(np.abs(hidden @ np.linalg.lstsq(hidden, y, rcond=None)[0] - y))


def widths(axes):
    """Errors against the number of hidden units."""
    x = np.linspace(0.002, 9.998, 20001)  # at the ends a step is half way
    counts = 2 ** np.arange(2, 10)
    lines = [np.max(np.abs(at(nn.interpolate(g, 0, 10, n - 2), x) - g(x))) for n in counts]
    bins = [np.max(np.abs(at(nn.sigmoid_bins(g, 0, 10, n // 2), x) - g(x))) for n in counts]
    rng, t = np.random.default_rng(0), np.linspace(-1, 1, 801)
    square = [fitted(np.square, n, rng, t, np.abs(t)) for n in counts]
    best = np.max(np.abs(np.polynomial.Polynomial.fit(t, np.abs(t), 2)(t) - np.abs(t)))
    axes.loglog(counts, lines, "o-", color=BLUE, label="ReLU, built", markersize=3)
    axes.loglog(counts, bins, "s-", color=GREEN, label="sigmoid bins", markersize=3)
    axes.loglog(counts, square, "^-", color=RED, label="s², fitted to |x|", markersize=3)
    axes.axhline(best, color=RED, linestyle="--", linewidth=0.8)
    axes.loglog(counts, 40.0 / counts**2, ":", color=GREY, label="1 / width²")
    axes.set(xlabel="hidden units", title="largest error")
    axes.legend(frameon=False)


def main():
    """Draw the figure."""
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 3), layout="constrained")
    curves(axes[0], nn.sigmoid_bins, 15, "15 bins, 30 sigmoids")
    curves(axes[1], nn.interpolate, 15, "15 lines, 17 ReLUs")
    widths(axes[2])
    figure.savefig(Path(__file__).parent.parent / "images" / "approximation.png")


if __name__ == "__main__":
    main()
