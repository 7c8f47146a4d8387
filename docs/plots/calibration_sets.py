"""Figures of docs/calibration-and-conformal.md, third part: coverage over 200 splits, sets, by class, shifted.

Each split has new parts, new noise and a new network. Run from the repository: python docs/plots/calibration_sets.py
"""

import matplotlib.pyplot as plt
import numpy as np
from calibration import BLUE, GREEN, GREY, IMAGES, INK, ORANGE, network, noisy_digits
from scipy import stats
from sklearn.datasets import load_diabetes, load_digits

from wonderland import estimators

LEVEL, SPLITS = 0.9, 200
SCORES = {"lac": BLUE, "aps": ORANGE, "raps": GREEN}
NOISES = np.linspace(0, 1.2, 13)  # of the images to come; those to calibrate have 0.4


def diabetes(seed, parts=(200, 299)):
    """Coverage and mean width: 200 patients to fit, 99 to calibrate, 143 to judge."""
    x, y = load_diabetes(return_X_y=True)
    first, second, third = np.split(np.random.default_rng(seed).permutation(len(y)), parts)
    model = estimators.SplitConformalRegressor(estimators.LinearRegression(), LEVEL, test_size=None)
    ends = model.fit(x[first], y[first]).conformalize(x[second], y[second]).predict_interval(x[third])
    return estimators.regression_coverage_score(y[third], ends), estimators.regression_mean_width_score(ends)


def digits(seed):
    """Of each score, by class or not: coverage, size, coverage by class and difficulty, sizes; coverage by noise."""
    first, second, (x, y) = noisy_digits(seed, (400, 1399))
    net = network(first, seed)
    p = net.predict_proba(x)
    hard = np.digitize(np.sum(np.cumsum(np.sort(p)[:, ::-1], axis=1) < 0.9, axis=1), [1, 2, 3])  # classes to reach 0.9
    found = {}
    for score in SCORES:
        for by_class in (False, True):
            model = estimators.SplitConformalClassifier(
                net, LEVEL, score, by_class=by_class, prefit=True, random_state=seed
            )
            sets = model.fit(*second).predict_set(x)
            coverage = estimators.classification_coverage_score
            groups = [coverage(y[g], sets[g]) if g.any() else np.nan for g in (hard == k for k in range(4))]
            each = [coverage(y[y == c], sets[y == c]) for c in range(10)]
            sizes = np.bincount(sets.sum(axis=1), minlength=11) / len(y)
            found[score, by_class] = [coverage(y, sets), sets.sum(axis=1).mean(), *each, *groups, *sizes]
            if score == "lac" and not by_class:
                found["shift"] = [shifted(model, seed, noise) for noise in NOISES]
    return found


def shifted(model, seed, noise):
    """Coverage of the same images with other noise."""
    rng = np.random.default_rng(seed)
    x, y = load_digits(return_X_y=True)
    rows = rng.permutation(len(x))[1399:]
    x = (x[rows] / 16 + rng.normal(0, noise, (len(rows), 64))).astype(np.float32)
    return estimators.classification_coverage_score(y[rows], model.predict_set(x))


def law(ax, values, n, m, title):
    """How often which coverage was seen, and what is proven."""
    k = int(np.ceil((n + 1) * LEVEL - 1e-9))
    beta, seen = stats.beta(k, n + 1 - k), stats.betabinom(m, k, n + 1 - k)
    step = max(1, round(0.0101 * m)) / m
    edges = np.arange(np.floor(values.min() / step) - 1.5, 1 / step + 1) * step
    ax.hist(values, edges, density=True, color=BLUE, alpha=0.45, label=f"{len(values)} splits")
    grid = np.linspace(0.7, 1, 600)
    ax.plot(grid, beta.pdf(grid), "--", color=GREY, linewidth=1.3, label=f"Beta({k}, {n + 1 - k})")
    counts = np.arange(m + 1)
    ax.plot(counts / m, seen.pmf(counts) * m, color=ORANGE, linewidth=1.8, label=f"seen on {m} samples")
    ax.axvline(LEVEL, color=INK, linewidth=0.8)
    ax.set(xlim=(0.77, 1), xlabel="coverage", title=title, yticks=[])
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    print(f"{title}: coverage {values.mean():.4f} ± {values.std():.4f}, law {k / (n + 1):.4f} ± {seen.std() / m:.4f}")


def coverage(intervals, sets):
    """Both histograms."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.9), layout="constrained")
    law(left, intervals, 99, 143, "diabetes, intervals")
    law(right, sets, 999, 398, "noisy digits, sets")
    figure.savefig(IMAGES / "conformal-coverage.png")


def examples(seed=0, level=LEVEL):
    """Images with their sets, as large as they are hard."""
    first, second, (x, y) = noisy_digits(seed, (400, 1399))
    model = estimators.SplitConformalClassifier(network(first, seed), level, prefit=True).fit(*second)
    sets = model.predict_set(x)
    size = sets.sum(axis=1)
    figure, axes = plt.subplots(2, 8, figsize=(8.6, 2.9), layout="constrained")
    chosen = [np.flatnonzero(size == k)[:4] for k in (1, 2, 3, 4)]
    for ax, i in zip(axes.ravel(), np.concatenate(chosen), strict=True):
        ax.imshow(x[i].reshape(8, 8), cmap="gray_r")
        inside = sets[i, y[i]]
        ax.set_title("{" + ", ".join(map(str, np.flatnonzero(sets[i]))) + "}", fontsize=10, color=INK)
        ax.set_xlabel(f"{y[i]}", fontsize=10, color=BLUE if inside else ORANGE, labelpad=3)
        ax.set(xticks=[], yticks=[])
        for spine in ax.spines.values():
            spine.set(visible=True, color=BLUE if inside else ORANGE, linewidth=1.6)
    figure.savefig(IMAGES / "conformal-digits.png")


def sizes(numbers):
    """Left, how large sets are; right, their coverage by how hard the image is."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.9), layout="constrained")
    for place, (score, colour) in enumerate(SCORES.items()):
        mean = np.nanmean(numbers[score, False], axis=0)
        left.bar(np.arange(11) + 0.27 * (place - 1), mean[16:], 0.27, color=colour,
                 label=f"{score.upper()}: {mean[1]:.2f} classes")  # fmt: skip
        right.plot(range(4), mean[12:16], "o-", color=colour, label=score.upper())
    left.set(xlabel="classes in the set", ylabel="share of sets", xticks=range(9), xlim=(-0.5, 8.5))
    left.legend(frameon=False, fontsize=8)
    right.axhline(LEVEL, color=INK, linewidth=0.8)
    right.set_xticks(range(4), ["1", "2", "3", "4 or more"])
    right.set(xlabel="classes that the network needs for 0.9", ylabel="coverage", ylim=(0.7, 1))
    right.legend(frameon=False, fontsize=8, loc="lower left")
    figure.savefig(IMAGES / "conformal-sets.png")


def classes_and_shift(numbers):
    """Left, coverage by class; right, coverage of images with other noise."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.9), layout="constrained")
    for place, (by_class, colour) in enumerate(((False, GREY), (True, BLUE))):
        mean = np.mean(numbers["lac", by_class], axis=0)
        left.bar(np.arange(10) + 0.4 * (place - 0.5), mean[2:12], 0.4, color=colour,
                 label="a threshold for each class" if by_class else "one threshold")  # fmt: skip
    left.axhline(LEVEL, color=INK, linewidth=0.8)
    left.set(xlabel="digit", ylabel="coverage", xticks=range(10), ylim=(0.7, 1.04), yticks=(0.7, 0.8, 0.9, 1))
    left.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")
    values = np.array(numbers["shift"])
    right.fill_between(NOISES, *np.quantile(values, [0.05, 0.95], axis=0), color=BLUE, alpha=0.2, linewidth=0)
    right.plot(NOISES, values.mean(axis=0), "o-", color=BLUE, markersize=4)
    right.axhline(LEVEL, color=INK, linewidth=0.8)
    right.axvline(0.4, color=GREY, linewidth=1, linestyle=":")
    right.annotate("calibrated here", (0.4, 0.5), (0.43, 0.5), fontsize=8)
    right.set(xlabel="noise of the new images", ylabel="coverage", ylim=(0.3, 1.02))
    figure.savefig(IMAGES / "conformal-fails.png")


def main():
    """Draw all, and print the numbers."""
    examples()
    found = [digits(seed) for seed in range(SPLITS)]
    numbers = {key: np.array([f[key] for f in found]) for key in found[0]}
    intervals = np.array([diabetes(seed) for seed in range(SPLITS)])
    coverage(intervals[:, 0], numbers["lac", False][:, 0])
    print(f"width {intervals[:, 1].mean():.1f} ± {intervals[:, 1].std():.1f}")
    for key, values in numbers.items():
        print(key, np.nanmean(values, axis=0).round(3), values[:, 0].std().round(4))
    sizes(numbers)
    classes_and_shift(numbers)


if __name__ == "__main__":
    main()
