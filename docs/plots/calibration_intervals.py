"""Figures of docs/calibration-and-conformal.md, second part: intervals that follow the noise, and of few samples.

Run from the repository: python docs/plots/calibration_intervals.py
"""

import matplotlib.pyplot as plt
import numpy as np
from calibration import BLUE, GREY, IMAGES, INK, ORANGE
from sklearn.datasets import load_diabetes
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from wonderland import estimators

THIRDS = ("quiet third", "middle", "noisy third")


def waves(n, rng):
    """y = sin 6x and noise that grows with x, skewed."""
    x = rng.random((n, 1))
    noise = rng.gamma(2.0, size=n) - 2  # mean 0
    return x, np.sin(6 * x[:, 0]) + (0.03 + 0.4 * x[:, 0] ** 2) * noise


def on_splines(last):
    """A regressor on smooth functions of x."""
    return make_pipeline(SplineTransformer(6), last)


def models(seed):
    """Three ways to intervals, each around a regressor that suits it."""
    split = estimators.SplitConformalRegressor
    return {
        "absolute": split(on_splines(estimators.Ridge(1e-3)), random_state=seed),
        "normalized": split(
            on_splines(estimators.HeteroscedasticRegressor()), conformity_score="normalized", random_state=seed
        ),
        "quantiles": estimators.ConformalizedQuantileRegressor(
            on_splines(estimators.QuantileRegressor(alpha=0)), random_state=seed
        ),
    }


def wave_numbers(seeds=range(100)):
    """{way: (seeds, 5)}: coverage of all, of thirds of x; mean width."""
    found = {}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        train, (x, y) = waves(1000, rng), waves(3000, rng)
        third = np.digitize(x[:, 0], [1 / 3, 2 / 3])
        for name, model in models(seed).items():
            ends = model.fit(*train).predict_interval(x)
            parts = estimators.regression_coverage_score(y, ends, groups=third)
            every = estimators.regression_coverage_score(y, ends)
            row = [every, *parts.values(), estimators.regression_mean_width_score(ends)]
            found.setdefault(name, []).append(row)
    return {name: np.array(values) for name, values in found.items()}


def following(numbers, seed=0):
    """Three bands around the same data, and how often each third of them is covered."""
    rng = np.random.default_rng(seed)
    train, (x, y) = waves(1000, rng), waves(400, rng)
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.2), sharey=True, layout="constrained")
    grid = np.linspace(0, 1, 300)[:, None]
    titles = {"absolute": "the same width everywhere", "normalized": "in proportion to a deviation s(x)",
              "quantiles": "between quantiles of y given x"}  # fmt: skip
    for ax, (name, model) in zip(axes, models(seed).items(), strict=True):
        model.fit(*train)
        ends, band = model.predict_interval(x), model.predict_interval(grid)
        inside = (ends[:, 0] <= y) & (y <= ends[:, 1])
        ax.fill_between(grid[:, 0], *band.T, color=BLUE, alpha=0.18, linewidth=0)
        ax.plot(grid[:, 0], model.predict(grid), color=INK, linewidth=1.2)
        ax.scatter(x[inside, 0], y[inside], s=7, color=BLUE, linewidths=0)
        ax.scatter(x[~inside, 0], y[~inside], s=9, color=ORANGE, linewidths=0)
        ax.set(title=titles[name], xlabel="x", xlim=(0, 1), ylim=(-2.2, 2.2))
        for k, value in enumerate(numbers[name].mean(axis=0)[1:4]):
            ax.text((k + 0.5) / 3, 1.95, f"{value:.0%}", ha="center", color=INK, fontsize=10)
            ax.axvline((k + 1) / 3, color=GREY, linewidth=0.6, linestyle=":")
    axes[0].set_ylabel("y")
    figure.savefig(IMAGES / "conformal-intervals.png")


def few_models(seed):
    """Ways to use 60 samples."""
    base = estimators.Ridge(0.1)
    return {
        "split": estimators.SplitConformalRegressor(base, test_size=30, random_state=seed),
        "CV+": estimators.CrossConformalRegressor(base, cv=10),
        "jackknife+": estimators.CrossConformalRegressor(base, cv=-1),
        "after bootstrap": estimators.JackknifeAfterBootstrapRegressor(base, random_state=seed),
        "minmax": estimators.CrossConformalRegressor(base, cv=10, method="minmax"),
    }


def few_numbers(splits=200):
    """{way: (splits, 2)}: coverage and mean width on the diabetes of 382 patients, from 60."""
    x, y = load_diabetes(return_X_y=True)
    found = {}
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(y))
        rows, rest = order[:60], order[60:]
        for name, model in few_models(seed).items():
            ends = model.fit(x[rows], y[rows]).predict_interval(x[rest])
            score = estimators.regression_coverage_score(y[rest], ends)
            found.setdefault(name, []).append([score, estimators.regression_mean_width_score(ends)])
    return {name: np.array(values) for name, values in found.items()}


def few(numbers):
    """Coverage and width of intervals from 60 samples, over splits."""
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 2.9), sharey=True, layout="constrained")
    names = [*numbers][::-1]
    for column, (ax, label) in enumerate(zip(axes, ("coverage of 382 other patients", "mean width"), strict=True)):
        values = [numbers[name][:, column] for name in names]
        parts = ax.violinplot(values, orientation="horizontal", showextrema=False, widths=0.85)
        for body in parts["bodies"]:
            body.set(facecolor=BLUE, alpha=0.35)
        ax.scatter([v.mean() for v in values], range(1, len(names) + 1), s=22, color=INK, zorder=3)
        ax.set(xlabel=label)
    axes[0].axvline(0.9, color=ORANGE, linewidth=1.2)
    axes[0].set_yticks(range(1, len(names) + 1), names)
    figure.savefig(IMAGES / "conformal-few.png")


def main():
    """Draw both, and print their numbers: means and standard deviations."""
    numbers = wave_numbers()
    print("all, thirds, width")
    for name, values in numbers.items():
        print(f"{name:16}", *(f"{m:7.3f} ± {s:.3f}" for m, s in zip(values.mean(0), values.std(0), strict=True)))
    following(numbers)
    numbers = few_numbers()
    for name, values in numbers.items():
        print(f"{name:16}", *(f"{m:7.3f} ± {s:.3f}" for m, s in zip(values.mean(0), values.std(0), strict=True)))
    few(numbers)


if __name__ == "__main__":
    main()
