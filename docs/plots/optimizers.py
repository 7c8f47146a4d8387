"""The figures of docs/optimizers.md: schedules, and paths of all optimisers on Rosenbrock's and Himmelblau's function.

Run from the repository: python docs/plots/optimizers.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import wonderland as wl
from wonderland import nn, train

IMAGES = Path(__file__).parent.parent / "images"
BLUE, RED, GREY = "#2171B5", "#CB181D", "#999999"
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip


# Schedules -----------------------------------------------------------------------------------------------------------


def schedules(steps=200):
    """Rates against the step."""
    shown = [
        ("cosine(1, 200, warmup=20)", train.cosine(1.0, steps, warmup=20)),
        ("cosine_restarts(1, 30, factor=2)", train.cosine_restarts(1.0, 30, factor=2)),
        ("one_cycle(1, 200)", train.one_cycle(1.0, steps)),
        ("step(1, 50, gamma=0.5)", train.step(1.0, 50, gamma=0.5)),
        ("exponential(1, 0.98)", train.exponential(1.0, 0.98)),
        ("polynomial(1, 150, power=2)", train.polynomial(1.0, 150, power=2)),
        ("inverse_sqrt(1, warmup=30)", train.inverse_sqrt(1.0, warmup=30)),
        ("cyclic(0.2, 1, 25)", train.cyclic(0.2, 1.0, 25)),
    ]
    t = np.arange(steps)
    figure, axes = plt.subplots(2, 4, figsize=(9.5, 3.6), sharex=True, sharey=True, layout="constrained")
    for place, (title, schedule) in zip(axes.flat, shown, strict=True):
        place.plot(t, schedule(t), color=BLUE, linewidth=1.5)
        place.set(title=title, xlim=(0, steps), ylim=(0, 1.08), xticks=[0, 100, 200], yticks=[0, 0.5, 1])
    for place in axes[1]:
        place.set_xlabel("step")
    for place in axes[:, 0]:
        place.set_ylabel("rate")
    figure.savefig(IMAGES / "schedules.png")


# Paths ---------------------------------------------------------------------------------------------------------------


class Point(nn.Module):
    """A point of the plane, as a matrix of one row (Muon takes matrices)."""

    def __init__(self, start):
        self.at = np.array([start], np.float64)

    def __call__(self):
        return self.at[0]


def rosenbrock(p):
    """The smallest value is 0 at (1, 1), at the end of a bent valley."""
    return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2


def himmelblau(p):
    """Four minima, all 0."""
    return (p[0] ** 2 + p[1] - 11) ** 2 + (p[0] + p[1] ** 2 - 7) ** 2


def residuals(f, p):
    """Numbers whose squares sum up to f, for Gauss-Newton."""
    if f is rosenbrock:
        return np.stack([1 - p[0], 10 * (p[1] - p[0] ** 2)])
    return np.stack([p[0] ** 2 + p[1] - 11, p[0] + p[1] ** 2 - 7])


def first_order(make):
    """One compiled step of an optimiser of gradients."""

    def run(f, start, count):
        model = Point(start)
        optimizer = make(model)

        @wl.jit
        def step(model, optimizer):
            value, gradient = wl.value_and_grad(lambda m: f(m()))(model)
            optimizer.update(model, gradient)
            return value

        path = [model.at[0].copy()]
        for _ in range(count):
            step(model, optimizer)
            path.append(model.at[0].copy())
        return np.array(path)

    return run


def second_order(make, gauss=False):
    """One compiled iteration of an optimiser that takes the loss."""

    def run(f, start, count):
        model = Point(start)
        optimizer = make(model)

        @wl.jit
        def step(model, optimizer):
            if gauss:
                return optimizer.minimize(lambda r: np.sum(r**2), model, outputs=lambda m: residuals(f, m()))
            return optimizer.minimize(lambda m: f(m()), model)

        path = [model.at[0].copy()]
        for _ in range(count):
            step(model, optimizer)
            path.append(model.at[0].copy())
        return np.array(path)

    return run


def optimizers(small, large):
    """All of them, with a rate for each function that suits it: `small` for gradients, `large` for steps of a size."""
    return {
        "SGD": first_order(lambda m: train.SGD(m, rate=small)),
        "momentum": first_order(lambda m: train.SGD(m, rate=small, momentum=0.9)),
        "Nesterov": first_order(lambda m: train.SGD(m, rate=small, momentum=0.9, nesterov=True)),
        "Adagrad": first_order(lambda m: train.Adagrad(m, rate=10 * large)),
        "RMSProp": first_order(lambda m: train.RMSProp(m, rate=large / 2)),
        "Adadelta": first_order(lambda m: train.Adadelta(m, rate=1.0, epsilon=1e-3)),
        "Adam": first_order(lambda m: train.Adam(m, rate=large)),
        "AdamW": first_order(lambda m: train.AdamW(m, rate=large, weight_decay=0.1)),
        "NAdam": first_order(lambda m: train.NAdam(m, rate=large)),
        "Lion": first_order(lambda m: train.Lion(m, rate=train.cosine(large, 300))),
        "Muon": first_order(lambda m: train.Muon(m, rate=train.cosine(large, 300), weight_decay=0.0)),
        "LBFGS": second_order(lambda m: train.LBFGS(m)),
        "NewtonCG": second_order(lambda m: train.NewtonCG(m)),
        "GaussNewton": second_order(lambda m: train.GaussNewton(m), gauss=True),
    }


def paths(name, f, start, limits, goals, small, large, ticks, count=300):
    """A panel for each optimiser, above the contours of the function."""
    x, y = np.meshgrid(np.linspace(*limits[0], 240), np.linspace(*limits[1], 240))
    z = np.log1p(f(np.stack([x, y])))
    runs = optimizers(small, large)
    figure, axes = plt.subplots(3, 5, figsize=(10, 6.3), sharex=True, sharey=True, layout="constrained")
    last = {}
    for place, (title, run) in zip(axes.flat, runs.items(), strict=False):
        path = run(f, start, count)
        values = np.array([f(p) for p in path])
        near = np.flatnonzero(values < 1e-3)
        last[title] = near[0] if len(near) else None
        place.contourf(x, y, z, 14, cmap="Greys", alpha=0.55)
        place.plot(*path.T, "-", color=BLUE, linewidth=1.2)
        place.plot(*path.T, ".", color=BLUE, markersize=2.5)
        place.plot(*np.array(goals).T, "x", color=RED, markersize=5)
        place.plot(*path[0], "o", color="white", markeredgecolor=BLUE, markersize=5)
        reached = f"{near[0]} steps" if len(near) else f"f = {values[-1]:.2g}"
        place.set(title=f"{title}: {reached}", xlim=limits[0], ylim=limits[1])
    axes.flat[14].axis("off")
    legend = f"○ start\n× minimum\n\nsteps until f < 0.001,\nor f after {count} steps"
    axes.flat[14].text(0.5, 0.5, legend, ha="center", va="center", transform=axes.flat[14].transAxes)
    axes[0, 0].set(xticks=ticks, yticks=ticks, xlim=limits[0], ylim=limits[1])
    figure.savefig(IMAGES / f"optimizers-{name}.png")
    return last


def main():
    """Draw the figures."""
    schedules()
    print(paths("rosenbrock", rosenbrock, (-1.2, 1.0), ((-1.8, 1.8), (-0.9, 2.4)), [(1, 1)], 1e-3, 0.05, [-1, 0, 1, 2]))
    minima = [(3, 2), (-2.805118, 3.131312), (-3.779310, -3.283186), (3.584428, -1.848126)]
    print(paths("himmelblau", himmelblau, (-0.5, -0.7), ((-5, 5), (-5, 5)), minima, 5e-3, 0.1, [-4, -2, 0, 2, 4]))


if __name__ == "__main__":
    main()
