"""The figure of docs/lp-and-qp-layers.md: how a solution moves with its data, and a signal with its learned weight.

Run from the repository: python docs/plots/programs.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import wonderland as wl
from wonderland.implicit import qp

INK, BLUE, ORANGE, GREY = "#222222", "#0072B2", "#D55E00", "#AAAAAA"
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 150})
G = np.array([[1.0, 2.0], [2.0, 0.6], [-1.0, 1.0]])
H = np.array([3.0, 3.2, 0.8])


def goal(t):
    """A point that goes around the feasible set."""
    return np.stack([0.9 + 1.5 * np.cos(t), 0.7 + 1.2 * np.sin(t)])


def nearest(t):
    """The feasible point that is nearest to it."""
    return qp(np.eye(2), -goal(t), G=G, h=H, lower=0.0).x


def moving(axes):
    """The solution, and its velocity, as the goal goes around."""
    x = np.linspace(-0.4, 2.4, 300)
    grid = np.stack(np.meshgrid(x, x), axis=-1)
    inside = np.all(grid @ G.T <= H, axis=-1) & np.all(grid >= 0, axis=-1)
    axes.contourf(x, x, inside, levels=[0.5, 1.5], colors=["#E4EBF2"])
    axes.contour(x, x, inside.astype(float), levels=[0.5], colors=["#8FA9BF"], linewidths=1)
    times = np.linspace(0, 2 * np.pi, 25)[:-1]
    points, velocities = wl.vmap(lambda t: wl.jvp(nearest, (t,), (1.0,)))(times)
    goals = goal(times).T
    for (gx, gy), (px, py), (vx, vy) in zip(goals, points, velocities, strict=True):
        axes.plot([gx, px], [gy, py], color="#CCCCCC", linewidth=0.8, zorder=1)
        if np.hypot(vx, vy) > 1e-9:
            axes.annotate("", (px + 0.22 * vx, py + 0.22 * vy), (px, py),
                          arrowprops={"arrowstyle": "-|>", "color": ORANGE, "linewidth": 1.4})  # fmt: skip
    axes.plot(*goals.T, "o", color=GREY, markersize=4)
    axes.plot(*points.T, "o", color=INK, markersize=4, zorder=5)
    axes.set(aspect="equal", xlim=(-0.8, 2.6), ylim=(-0.7, 2.1), xticks=[], yticks=[])
    axes.set_title("the nearest feasible point, and where it moves", fontsize=10)


def signal(axes):
    """Total variation: a weight that is too small, and the learned one."""
    rng = np.random.default_rng(0)
    clean = np.repeat([0.0, 2.0, 1.0, 3.0], 20)
    noisy = clean + 0.4 * rng.normal(size=clean.size)
    D = np.diff(np.eye(clean.size), axis=0)

    def denoised(weight):
        return noisy - D.T @ qp(D @ D.T, -D @ noisy, lower=-weight, upper=weight).x

    slope = wl.jit(wl.grad(lambda log_weight: np.mean((denoised(np.exp(log_weight)) - clean) ** 2)))
    log_weight = np.log(0.05)
    for _ in range(40):
        log_weight = log_weight - 12.0 * slope(log_weight)
    axes.plot(noisy, ".", color=GREY, markersize=4, label="noisy")
    axes.plot(clean, color="#CCCCCC", linewidth=4, label="clean")
    axes.plot(denoised(0.05), color=ORANGE, linewidth=1, label="weight 0.05")
    axes.plot(denoised(np.exp(log_weight)), color=BLUE, linewidth=1.8, label=f"learned, {np.exp(log_weight):.2f}")
    axes.set(xticks=[], xlabel="time")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.set_title("total variation, the weight learned through the program", fontsize=10)


def main():
    """Write the figure."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    moving(axes[0])
    signal(axes[1])
    figure.savefig(Path(__file__).parent.parent / "images" / "programs.png")


if __name__ == "__main__":
    main()
