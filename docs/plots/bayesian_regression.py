"""The figures of docs/bayesian-regression.md: posteriors of lines, evidence, averages, approximations, classes.

Run from the repository: python docs/plots/bayesian_regression.py [names of figures]; "degrees" prints how often the
evidence finds the degree.
"""

import sys
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np
from points import save
from scipy import stats
from sklearn.datasets import load_diabetes
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import wonderland as wl
from wonderland import estimators

INK, BLUE, ORANGE, GREEN, PINK, GREY = "#222222", "#0072B2", "#D55E00", "#009E73", "#C0619A", "#AAAAAA"
ALPHA, BETA = 2.0, 25.0


def lines():
    """The posterior of slope and intercept after 0, 1, 3 and 20 points, and lines of it."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 20)
    y = 0.5 * x - 0.3 + 0.2 * rng.normal(size=20)
    X = np.column_stack([x, np.ones(20)])
    axis = np.linspace(-1.6, 1.6, 150)
    plane = np.stack(np.meshgrid(axis, axis), axis=-1)
    figure, axes = plt.subplots(2, 4, figsize=(9.6, 4.6), layout="constrained")
    for column, n in enumerate((0, 1, 3, 20)):
        above, below = axes[:, column]
        mean, covariance = np.zeros(2), np.eye(2) / ALPHA
        if n:
            model = estimators.BayesianLinearRegression(alpha=ALPHA, beta=BETA, fit_intercept=False).fit(X[:n], y[:n])
            mean, covariance = model.coef_, model.covariance_
        law = stats.multivariate_normal(mean, covariance)
        above.contourf(*plane.transpose(2, 0, 1), law.pdf(plane) / law.pdf(mean), levels=np.linspace(0.02, 1, 12),
                       cmap="Blues")  # fmt: skip
        above.plot(0.5, -0.3, "+", color=ORANGE, markersize=11, markeredgewidth=2)
        above.set(title=("the prior", "after 1 point", "after 3", "after 20")[column], xlabel="slope", aspect="equal",
                  xticks=[-1, 0, 1], yticks=[-1, 0, 1])  # fmt: skip
        drawn = law.rvs(30, random_state=1)
        ends = np.array([-1.1, 1.1])
        below.plot(ends, (drawn @ np.stack([ends, np.ones(2)])).T, color=BLUE, linewidth=0.7, alpha=0.6)
        below.plot(x[:n], y[:n], "o", color=ORANGE, markersize=5, markeredgecolor="white", zorder=3)
        below.set(xlim=(-1.1, 1.1), ylim=(-1.9, 1.9), xlabel="x", xticks=[-1, 0, 1])
    axes[0, 0].set_ylabel("intercept")
    axes[1, 0].set_ylabel("y")
    save(figure, "bayesian-lines")


def cubic(x):
    """The truth."""
    return 1 - 2 * x + 3 * x**3


def cubic_data(seed, n=30):
    """Points of a cubic."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-1, 1, n))
    return x[:, None], cubic(x) + 0.3 * rng.normal(size=n)


def polynomial(degree):
    """As on the page."""
    powers = PolynomialFeatures(degree, include_bias=False)
    return make_pipeline(powers, StandardScaler(), estimators.BayesianLinearRegression())


def evidence():
    """Evidence and training error by degree; fits with bands."""
    x, y = cubic_data(0)
    degrees = np.arange(1, 11)
    fits = {degree: polynomial(degree).fit(x, y) for degree in degrees}
    figure, axes = plt.subplots(1, 4, figsize=(11, 3.0), layout="constrained", width_ratios=(1.15, 1, 1, 1))
    logs = [fits[degree][-1].log_evidence_ for degree in degrees]
    error = [np.mean((np.polyval(np.polyfit(x[:, 0], y, degree), x[:, 0]) - y) ** 2) for degree in degrees]
    axes[0].plot(degrees, logs, "o-", color=BLUE, markersize=4)
    axes[0].plot(degrees[np.argmax(logs)], max(logs), "o", color=BLUE, markersize=9, fillstyle="none")
    axes[0].set(xlabel="degree", xticks=[1, 3, 5, 7, 9], title="which degree?")
    axes[0].annotate("log evidence", (5.2, -12.4), color=BLUE, fontsize=8)
    axes[0].annotate("error of least squares", (4.0, -22.6), color=ORANGE, fontsize=8)
    axes[0].tick_params(axis="y", colors=BLUE)
    other = axes[0].twinx()
    other.plot(degrees, error, "s--", color=ORANGE, markersize=3)
    other.set(yscale="log", yticks=[0.05, 0.1, 0.3], yticklabels=["0.05", "0.1", "0.3"])
    other.tick_params(axis="y", which="minor", right=False, labelright=False)
    other.tick_params(axis="y", colors=ORANGE)
    grid = np.linspace(-1.6, 1.6, 300)[:, None]
    for place, degree in zip(axes[1:], (1, 3, 9), strict=True):
        model = fits[degree]
        last, at = model[-1], model[:-1].transform(grid)
        for level, strength in ((0.95, 0.15), (0.5, 0.3)):
            low, high = last.predict_interval(at, level).T
            place.fill_between(grid[:, 0], low, high, color=BLUE, alpha=strength, linewidth=0, label=f"{level:.0%}")
        place.plot(grid, last.predict(at), color=BLUE)
        place.plot(grid, cubic(grid), "--", color=INK, linewidth=1, label="truth")
        place.plot(x, y, "o", color=ORANGE, markersize=3)
        place.set(ylim=(-5, 6), xlim=(-1.6, 1.6), xlabel="x", title=f"degree {degree}")
    axes[1].legend(frameon=False, fontsize=8, loc="upper left")
    save(figure, "bayesian-evidence")


def average():
    """Probabilities of features, and how much better the average predicts than the best subset, in 20 draws."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    names, X, y = [*X], X.to_numpy(), y.to_numpy()

    def patients(seed):
        order = np.random.default_rng(seed).permutation(len(y))
        return X[order[:60]], y[order[:60]], X[order[60:]], y[order[60:]]

    def correlated(seed, n=30, new=200):
        rng = np.random.default_rng(seed)
        places = np.arange(8)
        root = np.linalg.cholesky(0.6 ** np.abs(places[:, None] - places))
        Z = rng.normal(size=(n + new, 8)) @ root.T
        z = Z @ [1.5, 0, 0.8, 0, 0.4, 0, 0.2, 0] + 1.5 * rng.normal(size=n + new)
        return Z[:n], z[:n], Z[n:], z[n:]

    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.1), layout="constrained")
    models = [estimators.BayesianModelAverage(max_models=1).fit(*patients(seed)[:2]) for seed in range(20)]
    inside = np.array([model.inclusion_probabilities_ for model in models])
    order = np.argsort(inside.mean(axis=0))
    for height, i in enumerate(order):
        left.plot(inside[:, i], np.full(20, height), "|", color=GREY, markersize=9)
        left.plot(inside[:, i].mean(), height, "o", color=BLUE, markersize=6)
    left.set_yticks(range(10), [names[i] for i in order])
    left.set(xlim=(0, 1.03), xlabel="probability that the feature is in", title="20 draws of 60 patients, their mean")
    for height, (draw, name) in enumerate(((correlated, "8 correlated\nfeatures, n = 30"), (patients, "60 patients"))):
        gains = []
        for seed in range(20):
            A, b, new, label = draw(seed)
            many, one = (estimators.BayesianModelAverage(max_models=k).fit(A, b) for k in (100, 1))
            gains.append(np.mean(many.log_predictive(new, label) - one.log_predictive(new, label)))
        mean, error = np.mean(gains), np.std(gains, ddof=1) / np.sqrt(20)
        print(f"{name!r}: {mean:.3f} ± {error:.3f}, ahead in {np.sum(np.array(gains) > 0)}")
        right.plot(gains, np.full(20, height), "o", color=GREY, markersize=5, fillstyle="none")
        right.errorbar(mean, height, xerr=error, fmt="o", color=BLUE, capsize=4)
        right.annotate(name, (0.98, height + 0.13), xycoords=("axes fraction", "data"), ha="right", fontsize=9)
    right.axvline(0, color=INK, linewidth=0.8)
    right.set(yticks=[], ylim=(-0.5, 1.6), xlabel="nats a sample, on data held out",
              title="gain of the average over the best subset")  # fmt: skip
    save(figure, "bayesian-average")


def posteriors():
    """The exact density of two numbers, three Gaussians, and samples."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 2, 12)
    counts = rng.poisson(np.exp(0.4 + 0.8 * x))

    def log_density(w):
        eta = w[0] + w[1] * x
        return np.sum(counts * eta - np.exp(eta)) - 0.5 * np.sum(w**2)

    def banana(w):
        return -0.5 * (w[0] ** 2 + ((w[1] - 0.8 * w[0] ** 2) / 0.35) ** 2)

    figure, axes = plt.subplots(1, 2, figsize=(8.8, 3.6), layout="constrained")
    key, turn = wl.random.key(0), np.linspace(0, 2 * np.pi, 200)
    circle = 2 * np.stack([np.cos(turn), np.sin(turn)])
    for place, density, sides, title in (
        (axes[0], log_density, None, "counts with a log link"),
        (axes[1], banana, ((-2.9, 2.9), (-1.8, 5.4)), "a banana"),
    ):
        ways = {
            "Laplace": (ORANGE, estimators.laplace_approximation(density, np.zeros(2), key)),
            "mean field": (PINK, estimators.variational_inference(density, np.zeros(2), key, family="mean_field")),
            "variational": (GREEN, estimators.variational_inference(density, np.zeros(2), key)),
        }
        drawn = estimators.hmc(density, np.zeros(2), key, draws=500, target=0.99, length=4.0)
        print(title, drawn.summary(), drawn.details, sep="\n")
        centre, spread = drawn.mean, np.sqrt(np.diag(drawn.covariance))
        sides = sides or tuple((c - 3.2 * s, c + 3.2 * s) for c, s in zip(centre, spread, strict=True))
        grid = np.stack(np.meshgrid(*(np.linspace(*side, 160) for side in sides)), axis=-1)
        values = np.asarray(wl.vmap(density)(grid.reshape(-1, 2))).reshape(160, 160)
        place.contourf(grid[..., 0], grid[..., 1], np.exp(values - values.max()), levels=np.linspace(0.03, 1, 10),
                       cmap="Blues", alpha=0.8)  # fmt: skip
        place.plot(*drawn.samples.reshape(-1, 2)[::4].T, ".", color=INK, markersize=1.5, label="HMC, 500 of 2000")
        for name, (colour, way) in ways.items():
            root = np.linalg.cholesky(way.covariance)
            place.plot(*(way.mean[:, None] + root @ circle), color=colour, label=f"{name}, 2 deviations")
        place.set(xlim=sides[0], ylim=sides[1], title=title)
    axes[0].set(xlabel="intercept", ylabel="slope")
    axes[0].legend(frameon=False, fontsize=8, loc="upper right")
    save(figure, "bayesian-posteriors")


def classes():
    """Probabilities of the mode, of Laplace's approximation, of HMC."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal([-1, 0], 0.6, (15, 2)), rng.normal([1, 0], 0.6, (15, 2))])
    labels = np.repeat([0, 1], 15)
    axis = np.linspace(-8, 8, 160)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
    for place, model, title in (
        (axes[0], estimators.LogisticRegression(C=4.0), "the mode: sure of everything"),
        (axes[1], estimators.BayesianLogisticRegression(prior_scale=2.0), "averaged, Laplace"),
        (axes[2], estimators.BayesianLogisticRegression(posterior="hmc", prior_scale=2.0, random_state=0),
         "averaged, HMC"),
    ):  # fmt: skip
        p = model.fit(x, labels).predict_proba(grid)[:, 1].reshape(160, 160)
        place.imshow(p, origin="lower", extent=(-8, 8, -8, 8), cmap="RdBu", vmin=-0.7, vmax=1.7,
                     interpolation="bilinear")  # fmt: skip
        drawn = place.contour(axis, axis, p, levels=[0.05, 0.2, 0.5, 0.8, 0.95], colors=INK, linewidths=0.8)
        place.clabel(drawn, fontsize=7)
        for k, colour in ((0, ORANGE), (1, BLUE)):
            place.scatter(*x[labels == k].T, s=12, color=colour, edgecolors="white", linewidths=0.4)
        place.set(title=title, xticks=[], yticks=[])
    save(figure, "bayesian-classes", 256)


def degrees(draws=100):
    """How often each degree has the largest evidence."""
    for n in (30, 100):
        best = Counter()
        for seed in range(draws):
            data = cubic_data(seed, n)
            best[1 + int(np.argmax([polynomial(d).fit(*data)[-1].log_evidence_ for d in range(1, 11)]))] += 1
        print(n, "points:", dict(sorted(best.items())))


FIGURES = [lines, evidence, average, posteriors, classes]

if __name__ == "__main__":
    for draw in FIGURES if not sys.argv[1:] else [globals()[name] for name in sys.argv[1:]]:
        draw()
