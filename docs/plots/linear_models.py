"""The figures of docs/linear-models.md: descent, hat matrices, condition, paths, outliers, intervals, GLMs, noise.

Run from the repository: python docs/plots/linear_models.py [names of figures]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from points import save
from scipy import stats
from sklearn.datasets import load_diabetes, load_iris
from sklearn.preprocessing import StandardScaler

from wonderland import estimators
from wonderland.testing.least_squares import solver_errors
from wonderland.train.ink import rgba

INK, BLUE, ORANGE, GREEN, PINK, GREY = "#222222", "#0072B2", "#D55E00", "#009E73", "#C0619A", "#AAAAAA"


def quiet(axes, **labels):
    """Axes with labels and a legend without a box."""
    axes.set(**labels)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)


def descent():
    """The loss above its minimum along three descents, and paths in a narrow valley."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.3), layout="constrained")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 3))
    y = X @ rng.normal(size=3) + 0.1 * rng.normal(size=10)
    model = estimators.LinearRegression(fit_intercept=False, solver="gradient").fit(X, y)
    least = np.mean((y - X @ np.linalg.lstsq(X, y)[0]) ** 2)
    longest = 1 / np.linalg.norm(X, 2) ** 2
    for rate, colour, name in ((1e-3, ORANGE, "steps of 0.001 (box C.4.3)"), (longest, BLUE, "steps of 1 / curvature")):
        w, losses = np.zeros(3), []
        for _ in range(15_000):
            losses.append(np.mean((y - X @ w) ** 2) - least)
            w = w + rate * X.T @ (y - X @ w)
        left.plot(np.arange(1, 15_001), losses, color=colour, label=name)
    left.plot(np.arange(1, model.n_iter_ + 1), model.loss_history_ - least, color=GREEN, label='solver="gradient"')
    left.set(xscale="log", yscale="log", ylim=(1e-13, 2e3), xlim=(1, 15_000), xlabel="step",
             ylabel="loss above its minimum")  # fmt: skip
    left.legend(frameon=False, fontsize=8, loc="upper right")
    z = rng.normal(size=(30, 2)) @ np.array([[1.0, 0.85], [0, 0.28]])
    target = z @ [1.0, 0.5] + 0.3 * rng.normal(size=30)
    best, gram = np.linalg.lstsq(z, target)[0], z.T @ z
    a, b = np.meshgrid(np.linspace(-1.7, 2.6, 150), np.linspace(-1.5, 2.9, 150))
    d = np.stack([a - best[0], b - best[1]], axis=-1)
    right.contour(a, b, np.einsum("xyi,ij,xyj->xy", d, gram, d), levels=gram[0, 0] * np.array([0.01, 0.05, 0.15, 0.4, 1,
                  2.2, 4.5]), colors="#CCCCCC", linewidths=0.9)  # fmt: skip
    curvature = np.linalg.norm(gram, 2)
    for rate, colour, name in ((1.9, ORANGE, "1.9 / curvature"), (1.0, BLUE, "1 / curvature")):
        path = [np.array([-1.4, 1.9])]
        for _ in range(60):
            path.append(path[-1] - rate / curvature * gram @ (path[-1] - best))
        right.plot(*np.array(path).T, ".-", color=colour, markersize=4, linewidth=1, label=name)
    right.plot(*best, "*", color=INK, markersize=10)
    quiet(right, xlabel="w₁", ylabel="w₂", title="60 steps of two lengths; 2 / curvature would never arrive")
    save(figure, "linear-models-descent")


def hat():
    """Weights of samples for one prediction, of a line and of a cubic; the hat matrix of the cubic."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-1, 1, 40))
    y = np.sin(2.5 * x) + 0.25 * rng.normal(size=40)
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.2), layout="constrained", width_ratios=(1, 1, 0.95))
    grid = np.linspace(-1.05, 1.05, 200)
    for place, degree, name in zip(axes, (1, 3), ("a line", "a cubic"), strict=False):
        powers = lambda x, degree=degree: np.stack([x ** (k + 1) for k in range(degree)], axis=1)
        model = estimators.LinearRegression().fit(powers(x), y)
        H = model.hat_matrix(powers(x))
        at = 33
        place.plot(grid, model.predict(powers(grid)), color=GREY, zorder=1)
        place.axvline(x[at], color=INK, linewidth=0.8, linestyle=":")
        for sign, colour, label in ((1, BLUE, "counts for it"), (-1, ORANGE, "against it")):
            there = sign * H[at] > 0
            place.scatter(x[there], y[there], s=900 * np.abs(H[at, there]) + 2, color=colour, alpha=0.75,
                          linewidths=0, label=label, zorder=2)  # fmt: skip
        place.plot(x[at], model.predict(powers(x[[at]])), "*", color=INK, markersize=11, zorder=3)
        place.set(title=f"{name}: who makes the prediction ★", xlabel="x")
        place.set_ylim(-1.9, 1.6)
        legend = place.legend(frameon=False, fontsize=8, loc="upper left")
        for handle in legend.legend_handles:
            handle.set_sizes([30])
    axes[2].imshow(rgba(H), interpolation="nearest")
    axes[2].set(title="H of the cubic: blue above 0", xlabel="label of sample", ylabel="prediction of sample")
    for spine in axes[2].spines.values():
        spine.set_visible(True)
    save(figure, "linear-models-hat")


def condition():
    """Errors of solvers by condition number, without and with noise."""
    conditions = np.logspace(1, 9, 33)
    figure, axes = plt.subplots(1, 2, figsize=(8.8, 3.3), layout="constrained", sharey=True)
    for place, noise, title in zip(axes, (0.0, 1.0), ("y = Xw exactly", "y with noise"), strict=True):
        errors = solver_errors(conditions, ("cholesky", "qr", "auto"), noise=noise, seeds=9)
        for solver, name, style in (
            ("cholesky", "normal equations", {"color": ORANGE}),
            ("qr", "QR", {"color": BLUE}),
            ("auto", "normal equations, refined (the default)", {"color": GREEN, "linestyle": "--"}),
        ):
            place.plot(conditions, np.maximum(errors[solver], 1e-16), label=name, **style)
        eps = np.finfo(float).eps
        for power, where in ((1, 1e7), (2, 1e5)):
            place.plot(conditions, eps * conditions**power, ":", color=GREY, linewidth=1)
            place.annotate(f"ε κ{'²' if power == 2 else ''}", (where, eps * where**power), color="#888888", fontsize=8,
                           xytext=(4, -10), textcoords="offset points")  # fmt: skip
        place.set(xscale="log", yscale="log", ylim=(1e-16, 10), xlabel="condition number κ of X", title=title)
    axes[0].set_ylabel("relative error of w")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    save(figure, "linear-models-condition")


def paths():
    """Coefficients of diabetes against the strength of a penalty: ridge and lasso."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    names, X, y = [*X], StandardScaler().fit_transform(X), y.to_numpy() - y.mean()
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.4), layout="constrained", sharey=True)
    strengths = np.logspace(-1, 5, 120)
    ridge = np.array([estimators.Ridge(a).fit(X, y).coef_ for a in strengths])
    alphas, lasso, _ = estimators.lasso_path(X, y, alphas=np.geomspace(46, 0.02, 200), tol=1e-8)
    strong = ["bmi", "s5", "bp", "s1", "sex", "s3"]
    colours = dict(zip(strong, (BLUE, ORANGE, GREEN, PINK, "#B87F00", "#3A98D0"), strict=True))
    for i, name in enumerate(names):
        style = {"color": colours.get(name, GREY), "linewidth": 1.6 if name in strong else 1.0}
        left.plot(strengths, ridge[:, i], **style)
        right.plot(alphas, lasso[i], label=name if name in strong else None, **style)
    for place, title in ((left, "ridge: all shrink, none is zero"), (right, "lasso: one after the other is zero")):
        place.axhline(0, color=INK, linewidth=0.6)
        place.set(xscale="log", xlabel="alpha", title=title)
    left.set(ylabel="coefficient", xlim=(0.1, 1e5))
    right.set(xlim=(0.02, 46))
    right.legend(frameon=False, fontsize=8, ncols=2, loc="lower right")
    save(figure, "linear-models-paths")


def outliers():
    """Three losses, lines through data with outliers, and quantiles."""
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    e = np.linspace(-3, 3, 301)
    huber = np.where(np.abs(e) <= 1, 0.5 * e**2, np.abs(e) - 0.5)
    for loss, name, colour in ((e**2, "squared", ORANGE), (np.abs(e), "absolute", GREEN), (huber, "Huber", BLUE)):
        axes[0].plot(e, loss, color=colour, label=name)
    quiet(axes[0], xlabel="error", title="losses", ylim=(0, 4))
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 10, 60))
    y = 2 * x + 1 + rng.normal(size=60)
    off = x > 9
    y[off] -= 25
    grid = np.array([[0.0], [10.5]])
    axes[1].plot(x[~off], y[~off], "o", color=INK, markersize=3)
    axes[1].plot(x[off], y[off], "x", color=INK, markersize=5)
    for model, name, style in (
        (estimators.LinearRegression(), "least squares", {"color": ORANGE}),
        (estimators.QuantileRegressor(alpha=0), "absolute error", {"color": GREEN}),
        (estimators.HuberRegressor(), "Huber", {"color": BLUE, "linestyle": "--"}),
    ):
        axes[1].plot(grid, model.fit(x[:, None], y).predict(grid), label=name, **style)
    quiet(axes[1], xlabel="x", title="outliers (crosses) at one end")
    z = np.sort(rng.uniform(0, 10, 300))
    spread = 1 + z + (0.3 + 0.25 * z) * rng.normal(size=300)
    axes[2].plot(z, spread, ".", color=GREY, markersize=3)
    for q, colour in ((0.95, BLUE), (0.5, INK), (0.05, BLUE)):
        model = estimators.QuantileRegressor(quantile=q, alpha=0).fit(z[:, None], spread)
        below = np.mean(spread <= model.predict(z[:, None]) + 1e-9)
        axes[2].plot(grid, model.predict(grid), color=colour, label=f"quantile {q}: {below:.0%} below")
    quiet(axes[2], xlabel="x", title="quantiles")
    save(figure, "linear-models-outliers")


def intervals():
    """The bands of the mean and of new labels; coefficients of diabetes with intervals."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.3), layout="constrained")
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(2, 6, 25))
    y = 1 + 0.6 * x + 0.5 * rng.normal(size=25)
    model = estimators.LinearRegression().fit(x[:, None], y)
    grid = np.linspace(-1, 9, 200)
    for of_mean, alpha, name in ((False, 0.15, "95 % of new labels"), (True, 0.35, "95 % for the line")):
        low, high = model.predict_interval(grid[:, None], mean=of_mean).T
        left.fill_between(grid, low, high, color=BLUE, alpha=alpha, linewidth=0, label=name)
    left.plot(grid, model.predict(grid[:, None]), color=BLUE)
    left.plot(grid, 1 + 0.6 * grid, "--", color=INK, linewidth=1, label="the truth")
    left.plot(x, y, "o", color=ORANGE, markersize=4)
    left.set(xlim=(-1, 9))
    quiet(left, xlabel="x", ylabel="y")
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X = StandardScaler().set_output(transform="pandas").fit_transform(X)
    table = estimators.LinearRegression().fit(X, y).coefficient_table()
    order = np.argsort(np.abs(table["coefficient"][:10]))
    for height, i in enumerate(order):
        low, high, value = (table[name][i] for name in ("lower", "upper", "coefficient"))
        sure = low > 0 or high < 0
        right.plot([low, high], [height, height], color=BLUE if sure else GREY, linewidth=2)
        right.plot(value, height, "o", color=BLUE if sure else GREY, markersize=5)
    right.set_yticks(range(10), [table["feature"][i] for i in order])
    right.axvline(0, color=INK, linewidth=0.8)
    right.set(xlabel="coefficient and its 95 % interval; grey if 0 is inside", title="progression of diabetes")
    save(figure, "linear-models-intervals")


def classes():
    """Probabilities of logistic regression in the plane: two classes of iris, and all three."""
    X, y = load_iris(return_X_y=True)
    X = X[:, [2, 3]] + np.random.default_rng(0).uniform(-0.05, 0.05, (150, 2))
    figure, axes = plt.subplots(1, 2, figsize=(8.8, 3.6), layout="constrained")
    colours = np.array([[0, 0.45, 0.70], [0.84, 0.37, 0.0], [0.0, 0.62, 0.45]])
    grid = np.stack(np.meshgrid(np.linspace(0.5, 7.3, 240), np.linspace(-0.2, 2.8, 240)), axis=-1)
    extent = (0.5, 7.3, -0.2, 2.8)
    for place, kept, shift in zip(axes, (y > 0, y >= 0), (1, 0), strict=True):
        model = estimators.LogisticRegression(C=10).fit(X[kept], y[kept])
        p = model.predict_proba(grid.reshape(-1, 2)).reshape(240, 240, -1)
        shades = 1 - 0.55 * (1 - colours[shift:])
        place.imshow(np.clip(p @ shades, 0, 1), origin="lower", extent=extent, aspect="auto", interpolation="bilinear")
        for k in range(shift, 3):
            place.scatter(*X[y == k].T, s=14, color=colours[k], edgecolors="white", linewidths=0.4,
                          label=load_iris().target_names[k])  # fmt: skip
        place.set(xlim=extent[:2], ylim=extent[2:], xlabel="petal length (cm)")
        if shift:
            drawn = place.contour(grid[..., 0], grid[..., 1], p[..., 1], levels=[0.1, 0.25, 0.5, 0.75, 0.9],
                                  colors=INK, linewidths=[0.7, 0.7, 1.5, 0.7, 0.7])  # fmt: skip
            place.clabel(drawn, fontsize=7)
            place.set(title="two classes: p(virginica)", ylabel="petal width (cm)")
        else:
            for k in range(3):  # where it is as likely as the best of the others
                ahead = p[..., k] - np.max(np.delete(p, k, axis=-1), axis=-1)
                place.contour(grid[..., 0], grid[..., 1], ahead, levels=[0.0], colors=INK, linewidths=1.2)
            place.set_title("three: softmax mixes the colours")
        place.legend(fontsize=8, loc="upper left", framealpha=0.9, edgecolor="white")
    save(figure, "linear-models-classes", 256)


def glm():
    """Counts, amounts, probabilities."""
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(0, 4, 120))
    grid = np.linspace(0, 4, 200)
    counts = rng.poisson(np.exp(-0.5 + 0.75 * x))
    model = estimators.GLM("poisson").fit(x[:, None], counts)
    line = estimators.LinearRegression().fit(x[:, None], counts)
    mean = model.predict(grid[:, None])
    axes[0].fill_between(grid, stats.poisson.ppf(0.05, mean), stats.poisson.ppf(0.95, mean), color=BLUE, alpha=0.2,
                         linewidth=0, step="mid", label="90 % of counts")  # fmt: skip
    axes[0].plot(grid, mean, color=BLUE, label="Poisson, log link")
    axes[0].plot(grid, line.predict(grid[:, None]), "--", color=ORANGE, label="least squares")
    axes[0].plot(x, counts, "o", color=INK, markersize=2.5)
    axes[0].axhline(0, color=INK, linewidth=0.6)
    quiet(axes[0], xlabel="x", title="counts")
    amounts = rng.gamma(3, np.exp(0.3 + 0.6 * x) / 3)
    model = estimators.GLM("gamma", link="log").fit(x[:, None], amounts)
    mean, shape = model.predict(grid[:, None]), 1 / model.scale_
    axes[1].fill_between(grid, *(stats.gamma.ppf(q, shape, scale=mean / shape) for q in (0.05, 0.95)), color=BLUE,
                         alpha=0.2, linewidth=0, label="90 % of amounts")  # fmt: skip
    axes[1].plot(grid, mean, color=BLUE, label="gamma, log link")
    axes[1].plot(x, amounts, "o", color=INK, markersize=2.5)
    quiet(axes[1], xlabel="x", title="amounts: spread grows with the mean")
    z = np.sort(rng.normal(0, 1.6, 150))
    yes = rng.uniform(size=150) < stats.norm.cdf(0.9 * z - 0.3)
    wide = np.linspace(-5, 5, 200)
    for link, colour, style in (("logit", BLUE, "-"), ("probit", ORANGE, "--"), ("cloglog", GREEN, "-.")):
        model = estimators.GLM("binomial", link=link).fit(z[:, None], yes.astype(float))
        label = f"{link}, AIC {model.statistics_.aic:.1f}"
        axes[2].plot(wide, model.predict(wide[:, None]), style, color=colour, label=label)
    axes[2].plot(z, yes + rng.uniform(-0.03, 0.03, 150), "o", color=INK, markersize=2, alpha=0.6)
    quiet(axes[2], xlabel="x", title="yes or no, by three links")
    save(figure, "linear-models-glm")


def noise():
    """Intervals with one noise for all, with a linear log standard deviation, and by a network."""
    rng = np.random.default_rng(0)
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.1), layout="constrained")
    x = np.sort(rng.uniform(0, 10, 400))
    y = 1 + 0.5 * x + np.exp(-2 + 0.3 * x) * rng.normal(size=400)
    u = np.sort(rng.uniform(-3, 3, 800))
    v = np.sin(2 * u) + (0.1 + 0.5 * np.exp(-((u - 1) ** 2) / 0.5)) * rng.normal(size=800)
    network = estimators.HeteroscedasticRegressor((64, 64), learning_rate_init=3e-3, max_iter=300, random_state=0)
    for place, model, inputs, outputs, title in (
        (axes[0], estimators.LinearRegression(), x, y, "one noise for all"),
        (axes[1], estimators.HeteroscedasticRegressor(), x, y, "mean and log deviation linear"),
        (axes[2], network, u, v, "both by a network"),
    ):
        model.fit(inputs[:, None], outputs)
        grid = np.linspace(inputs[0], inputs[-1], 300)
        for confidence, alpha in ((0.9, 0.15), (0.5, 0.25)):
            low, high = model.predict_interval(grid[:, None], confidence).T
            place.fill_between(grid, low, high, color=BLUE, alpha=alpha, linewidth=0, label=f"{confidence:.0%}")
        place.plot(grid, model.predict(grid[:, None]), color=BLUE)
        low, high = model.predict_interval(inputs[:, None], 0.9).T
        inside = (low < outputs) & (outputs < high)
        place.plot(inputs[inside], outputs[inside], ".", color=INK, markersize=2)
        place.plot(inputs[~inside], outputs[~inside], ".", color=ORANGE, markersize=4)
        place.set(title=title, xlabel="x")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    save(figure, "linear-models-noise")


FIGURES = [descent, hat, condition, paths, outliers, intervals, classes, glm, noise]

if __name__ == "__main__":
    for draw in FIGURES:
        if not sys.argv[1:] or draw.__name__ in sys.argv[1:]:
            draw()
