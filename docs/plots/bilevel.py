"""The figure of docs/bilevel.md: a validation loss over log lambda, its hyper-gradients, and penalties that descend.

Run from the repository: python docs/plots/bilevel.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import wonderland as wl
from wonderland import implicit

INK, TANGENT, USEFUL, OTHER = "#222222", "#D55E00", "#0072B2", "#BBBBBB"
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 150})

FEATURES, NUMBER_USEFUL = 12, 4
rng = np.random.default_rng(0)
X = rng.normal(size=(330, FEATURES))
y = np.sign(X @ np.where(np.arange(FEATURES) < NUMBER_USEFUL, 1.5, 0.0) + rng.normal(size=330))
TRAIN, VALID = (X[:30], y[:30]), (X[30:], y[30:])


def loss(w, x, y):
    """Of a logistic regression, for each sample."""
    return np.logaddexp(0, -y * (x @ w))


def penalised(w, log_penalty):
    """The training loss."""
    return np.sum(loss(w, *TRAIN)) + 0.5 * np.sum(np.exp(log_penalty) * w**2)


def validation(log_penalty):
    """The validation loss of the minimum of the training loss."""
    w = implicit.minimize(penalised, np.zeros(FEATURES), log_penalty, solver="newton")
    return np.mean(loss(w, *VALID))


def descent(start, rate, steps):
    """Penalties and losses along gradient descent."""
    hyper = wl.jit(wl.value_and_grad(validation))
    path, losses, here = [], [], start
    for _ in range(steps):
        value, slope = hyper(here)
        path.append(here)
        losses.append(value)
        here = here - rate * slope
    return np.array(path), np.array(losses)


def one_penalty(axes):
    """The loss over log lambda, tangents by the theorem, and a descent."""
    grid = np.linspace(-5, 6, 120)
    axes.plot(grid, wl.jit(wl.vmap(validation))(grid), color=INK, linewidth=1.8, zorder=2)
    slope = wl.jit(wl.value_and_grad(validation))
    for at in np.linspace(-4.1, 5.2, 6):
        value, steep = slope(at)
        width = 0.7 / np.hypot(1, 8 * steep)
        axes.plot(
            [at - width, at + width], [value - width * steep, value + width * steep], color=TANGENT, linewidth=2.2
        )
    path, losses = descent(np.float64(-4.6), 3.0, 14)
    axes.plot(path, losses, "o", color=USEFUL, markersize=5, zorder=4, label="gradient descent")
    axes.plot([], [], color=TANGENT, linewidth=2.2, label="slope by wl.grad")
    axes.set(xlabel=r"$\log\lambda$, one for all features", ylabel="validation loss")
    axes.legend(frameon=False, fontsize=9, loc="upper center")


def each_feature(axes):
    """The penalties of all features while they descend."""
    path, losses = descent(np.zeros(FEATURES), 20.0, 120)
    for i in reversed(range(FEATURES)):
        useful = i < NUMBER_USEFUL
        axes.plot(path[:, i], color=USEFUL if useful else OTHER, linewidth=1.7)
    axes.annotate("useful features", (62, -2.4), color=USEFUL, fontsize=9)
    axes.annotate("the others", (62, 2.75), color="#888888", fontsize=9)
    axes.set(xlabel="step of the descent", ylabel=r"$\log\lambda_i$", xlim=(0, 119))
    right = axes.twinx()
    right.plot(losses, color=TANGENT, linewidth=1.7, linestyle="--")
    right.set_ylabel("validation loss (dashed)", color=TANGENT)
    right.tick_params(axis="y", colors=TANGENT)
    right.spines["right"].set(visible=True, color=TANGENT)


def main() -> None:
    """Draw both into docs/images."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    one_penalty(left)
    each_feature(right)
    figure.savefig(Path(__file__).resolve().parent.parent / "images" / "bilevel.png")


if __name__ == "__main__":
    main()
