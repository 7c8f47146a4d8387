"""The figure of docs/diffusion-samplers.md: the probability flow of a mixture, and the error of solvers on it.

Run from the repository: python docs/plots/diffusion_samplers.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import wonderland as wl
from wonderland.generative import (
    DDIM,
    DDPM,
    LMS,
    Accelerated,
    DPMSolver,
    GaussianMixture,
    Heun,
    UniPC,
    karras,
    log_linear,
    sample,
)

INK, EDGE = "#222222", "#CCCCCC"
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "text.color": INK})
LINE = GaussianMixture([0.3, 0.5, 0.2], [[-1.5], [0.4], [2.0]], 0.03)
PLANE = GaussianMixture([0.3, 0.7], [[-1.0, 0.5], [1.0, -0.3]], [0.2, 0.1])
SOLVERS = {
    "DDIM": (DDIM(), "#08306B", "o"), "gamma = 1.3": (Accelerated(gamma=1.3), "#4292C6", "o"),
    "gamma by the steps": (Accelerated(), "#D94801", "s"), "Heun": (Heun(), "#238B45", "s"),
    "DPM-Solver++ 2M": (DPMSolver(2), "#807DBA", "s"), "DPM-Solver++ 3M": (DPMSolver(3), "#54278F", "^"),
    "UniPC 2": (UniPC(2), "#E7298A", "^"), "LMS 4": (LMS(4), "#666666", "^"),
}  # fmt: skip


def flows(axes):
    """Where points of the line go, with and without noise, over the density at each level."""
    sigmas = log_linear(200, 0.02, 5.0, zero=False)
    x = np.linspace(-4, 4, 401)
    density = np.stack([np.exp(LINE.noisy(s).log_prob(x[:, None])) for s in sigmas])  # (levels, x)
    density = density / density.max(axis=1, keepdims=True)
    axes.pcolormesh(sigmas, x, density.T, cmap="Blues", vmax=1.6, rasterized=True)
    start = np.linspace(-7, 7, 29)[:, None]
    for path in sample(LINE.denoiser(), start, sigmas, Heun(), trajectory=True)[..., 0].T:
        axes.plot(sigmas, path, color=INK, linewidth=0.6)
    noisy = sample(LINE.denoiser(), start[10:11], sigmas, DDPM(), key=wl.random.key(2), trajectory=True)[:, 0, 0]
    axes.plot(sigmas, noisy, color="#D94801", linewidth=0.9, label="DDPM: with noise")
    axes.plot([], [], color=INK, linewidth=0.6, label="the probability flow")
    axes.set(xscale="log", xlim=(5, 0.02), ylim=(-4, 4), xlabel="sigma", ylabel="x", title="From noise to a mixture")
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def errors(axes):
    """The largest error against evaluations of the denoiser."""
    x = 10 * np.random.default_rng(0).normal(size=(64, 2))
    run = lambda solver, n: wl.jit(lambda x: sample(PLANE.denoiser(), x, karras(n, 0.05, 10.0, zero=False), solver))(x)
    fine = run(UniPC(3), 4000)
    for name, (solver, colour, mark) in SOLVERS.items():
        each = 2 if isinstance(solver, Heun) else 1
        counts = np.array([8, 16, 32, 64, 128, 256, 512]) // each
        found = [np.abs(run(solver, int(n)) - fine).max() for n in counts]
        axes.loglog(counts * each, found, mark + "-", color=colour, linewidth=1.2, markersize=3, label=name)
    axes.set(xlabel="evaluations of the denoiser", ylabel="largest error", title="Solvers on a mixture")
    axes.set_xlim(7, 600)
    axes.grid(color=EDGE, linewidth=0.5)
    axes.legend(frameon=False, fontsize=7.5, loc="lower left")


def main():
    """Draw both."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
    flows(left)
    errors(right)
    for axes in (left, right):
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    path = Path(__file__).resolve().parent.parent / "images" / "diffusion-samplers.png"
    figure.savefig(path)
    print(path)


if __name__ == "__main__":
    main()
