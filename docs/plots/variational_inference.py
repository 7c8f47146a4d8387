"""The figures of docs/variational-inference.md: evidence by samples, bounds, example 6.7, gradients, EM.

Run from the repository: python docs/plots/variational_inference.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import wonderland as wl
from wonderland import generative

INK, BLUE, ORANGE, GREEN, GREY = "#222222", "#0072B2", "#D55E00", "#009E73", "#AAAAAA"
IMAGES = Path(__file__).parent.parent / "images"
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip


def model_of(latent, features, sigma, seed=0):
    """A linear model, and data of it."""
    rng = np.random.default_rng(seed)
    model = generative.LinearGaussian(rng.normal(size=(features, latent)), np.zeros(features), sigma)
    return model, model.weight @ rng.normal(size=latent) + sigma * rng.normal(size=features)


def evidence():
    """log p(x) by samples of three proposals; and the importance-weighted bound against K."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.3), layout="constrained")
    model, x = model_of(4, 12, 0.2)
    exact = float(model.log_likelihood(x))
    mean, spread = model.posterior(x)
    counts = [10, 30, 100, 300, 1000, 3000, 10_000, 30_000]
    for name, colour, law in (
        ("prior (naive)", ORANGE, stats.multivariate_normal(np.zeros(4), np.eye(4))),
        ("posterior, 3 times as wide", BLUE, stats.multivariate_normal(mean, 9 * spread)),
        ("posterior (optimal)", GREEN, stats.multivariate_normal(mean, spread)),
    ):
        found = []
        for count in counts:
            z = law.rvs((20, count), random_state=1)
            found.append(generative.evidence((model.log_joint(x, z) - law.logpdf(z)).T).log_evidence)
        found = np.array(found) - exact
        left.plot(counts, np.median(found, 1), "o-", color=colour, markersize=3, label=name)
        left.fill_between(counts, found.min(1), found.max(1), color=colour, alpha=0.2, linewidth=0)
    left.axhline(0, color=INK, linewidth=1)
    left.set(xscale="log", yscale="symlog", xlabel="samples", ylabel="estimate − log p(x)",
             title="evidence, 4 latent numbers; bands are 20 runs")  # fmt: skip
    left.set_ylim(-2e4, 30)
    left.set_yticks([-1e4, -1000, -100, -10, -1, 0, 1, 10])
    left.legend(frameon=False, fontsize=8, loc="lower right")
    model, x = model_of(2, 4, 0.6)
    exact = float(model.log_likelihood(x))
    sizes = 2 ** np.arange(9)
    mean, spread = model.posterior(x)
    for name, colour, law in (
        ("q = prior", ORANGE, stats.multivariate_normal(np.zeros(2), np.eye(2))),
        ("q near the posterior", BLUE, stats.multivariate_normal(mean + 0.2, 2 * spread)),
    ):
        z = law.rvs(256 * 2000, random_state=0)
        weights = np.exp(model.log_joint(x, z) - law.logpdf(z)).reshape(-1, 256)
        right.plot(sizes, [np.log(weights.reshape(-1, k).mean(1)).mean() for k in sizes], "o-", color=colour,
                   markersize=3, label=name)  # fmt: skip
    right.axhline(exact, color=INK, linewidth=1, label="log p(x)")
    right.set_xscale("log", base=2)
    right.set_xticks(sizes, [str(k) for k in sizes])
    right.set(xlabel="K", ylabel="nats", title="importance-weighted bound; K = 1 is the ELBO")
    right.legend(frameon=False, fontsize=8)
    figure.savefig(IMAGES / "variational-evidence.png")


def example(x=2.0):
    """The bound of example 6.7, its maximum, and the printed one; beside it the posterior and the best Exp."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.3), layout="constrained")
    axis = np.linspace(0.15, 2.2, 200)
    theta, phi = np.meshgrid(axis, axis)
    values = generative.exponential_elbo(theta, phi, x)
    levels = [-6, -4, -3, -2.6, -2.3, -2.1, -2.0, -1.95]
    drawn = left.contour(theta, phi, values, levels=levels, cmap="Blues", linewidths=1)
    left.clabel(drawn, fontsize=7)
    best = float(generative.exponential_optimum(x))
    left.plot(best, best, "o", color=BLUE, label=f"2/x: {float(generative.exponential_elbo(best, best, x)):.4f}")
    printed = float(generative.exponential_elbo(1 / x, 1 / x, x))
    left.plot(1 / x, 1 / x, "x", color=ORANGE, label=f"1/x, as printed: {printed:.4f}")
    left.set(xlabel="θ", ylabel="φ", aspect="equal", title="L(θ, φ; x = 2)")
    left.legend(edgecolor="white", framealpha=1, fontsize=8, loc="upper left")
    z = np.linspace(0, 5, 300)
    posterior = np.exp(np.log(best) - best * z + stats.norm.logpdf(x, z) - generative.exponential_evidence(best, x))
    right.plot(z, posterior, color=INK, label="p(z | x) at θ = 1")
    right.plot(z, best * np.exp(-best * z), color=BLUE, label="q = Exp(1)")
    gap = float(generative.exponential_gap(best, best, x))
    right.set(xlabel="z", title=f"KL(q | posterior) = {gap:.4f}: the gap of the bound")
    right.legend(frameon=False, fontsize=8)
    figure.savefig(IMAGES / "variational-example.png")


def gradients():
    """Variances of one-sample gradients."""
    model, x = model_of(2, 4, 0.6)
    likelihood = lambda z: -0.5 * np.sum((x - model.decode(z)) ** 2) / 0.36 + np.sum(np.tanh(z))
    found = generative.compare_elbo_gradients(likelihood, np.array([0.3, -0.2]), np.array([-1.0, -0.5]),
                                              wl.random.key(0), 20_000)  # fmt: skip
    figure, axes = plt.subplots(figsize=(6.6, 2.6), layout="constrained")
    height = np.arange(len(found))[::-1]
    for part, (name, colour, shift) in enumerate((("mean", BLUE, 0.2), ("log variance", ORANGE, -0.2))):
        axes.barh(height + shift, [g.var(0)[part].mean() for g in found.values()], 0.38, color=colour,
                  label=f"by the {name} of q")  # fmt: skip
    axes.set_yticks(height, [*found])
    axes.set(xscale="log", xlabel="variance of a gradient by one sample")
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    figure.savefig(IMAGES / "variational-gradients.png")


def mixture():
    """EM on three clusters: where it begins, after some steps, and its likelihood."""
    rng = np.random.default_rng(3)
    centres = np.array([[0, 0], [4, 1], [1, 4]])
    mixes = np.array([[[1, 0.8], [0, 0.6]], [[0.5, 0], [0.5, 0.9]], [[1, 0], [-0.5, 0.6]]])
    labels = rng.integers(0, 3, 400)
    x = centres[labels] + np.einsum("nij,nj->ni", mixes[labels], rng.normal(size=(400, 2)))
    start = (np.ones(3) / 3, np.array([[2.0, 2], [2.5, 2], [2, 2.5]]), np.stack([np.eye(2)] * 3))
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained")
    turn = np.linspace(0, 2 * np.pi, 100)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    for place, steps in zip(axes, (0, 5, 40)):
        fit = generative.fit_mixture(x, 3, start=start, steps=steps, tol=0.0) if steps else generative.MixtureFit(
            *start, 0.0, 0.0, 0, False)  # fmt: skip
        parts = generative.responsibilities(x, *fit[:3])[1]
        colours = np.array([[0, 0.45, 0.7], [0.84, 0.37, 0], [0, 0.62, 0.45]])
        place.scatter(*x.T, s=5, c=parts @ colours)
        for mean, covariance, colour in zip(fit.means, fit.covariances, colours):
            place.plot(*(mean[:, None] + 2 * np.linalg.cholesky(covariance) @ circle), color=colour, linewidth=1.5)
        place.set(aspect="equal", title=f"after {steps} steps", xticks=[], yticks=[])
    for kind, colour in (("full", BLUE), ("tied", ORANGE), ("diagonal", GREEN), ("spherical", GREY)):
        history = generative.fit_mixture(x, 3, kind, start=start, steps=60, tol=0.0).history
        axes[3].plot(history, "--" if kind == "spherical" else "-", color=colour, label=kind)
    axes[3].set(xlabel="step", title="mean log-likelihood")
    axes[3].legend(frameon=False, fontsize=8)
    figure.savefig(IMAGES / "variational-mixture.png")


if __name__ == "__main__":
    evidence()
    example()
    gradients()
    mixture()
