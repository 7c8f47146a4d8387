"""The figures of docs/auto-encoders.md: a curve, codes of digits, a plane of digits, and a codebook.

Run from the repository: python docs/plots/auto_encoders.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import Voronoi, voronoi_plot_2d

import wonderland as wl
from wonderland import data, generative, nn, train

INK, BLUE, ORANGE, GREEN, GREY = "#222222", "#0072B2", "#D55E00", "#009E73", "#AAAAAA"
IMAGES = Path(__file__).parent.parent / "images"
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip


def arc(count=400, noise=0.06):
    """Points near three quarters of a circle."""
    rng = np.random.default_rng(0)
    t = rng.uniform(-2.3, 2.3, count)
    return (np.stack([np.sin(t), np.cos(t)], 1) + noise * rng.normal(size=(count, 2))).astype(np.float32)


def networks(inputs, code, hidden=64):
    """An encoder and a decoder."""
    encoder = nn.Sequential(nn.Linear(inputs, hidden), nn.tanh, nn.Linear(hidden, hidden), nn.tanh,
                            nn.Linear(hidden, code))  # fmt: skip
    decoder = nn.Sequential(nn.Linear(code, hidden), nn.tanh, nn.Linear(hidden, hidden), nn.tanh,
                            nn.Linear(hidden, inputs))  # fmt: skip
    return encoder, decoder


def trained(model, x, epochs, rate=3e-3):
    """A model after its training on x."""
    steps = epochs * -(-len(x) // 64)
    optimizer = train.Adam(model, train.cosine(rate, steps))
    train.fit(model, lambda model, x: model.loss(x), optimizer, x, epochs=epochs, batch_size=64, progress=False)
    return model.eval()


def curve():
    """What one number keeps of points of the plane: a line, a curve; and where denoising pulls."""
    x = arc()
    wl.random.seed(2)
    linear = generative.LinearAutoEncoder(2, 1).fit(x)
    deep = trained(generative.AutoEncoder(*networks(2, 1)), x, 300)
    encoder, decoder = networks(2, 2)
    denoising = trained(generative.DenoisingAutoEncoder(encoder, decoder, 0.25), x, 300)
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
    for place, model, name in zip(axes, (linear, deep), ("linear: a line", "deep: a curve")):
        place.plot(*x.T, ".", color=GREY, markersize=3)
        found = model.reconstruct(x)
        order = np.argsort(model.encode(x)[:, 0])
        place.plot(*found[order].T, "-", color=BLUE, linewidth=2)
        for a, b in zip(x[::16], found[::16]):
            place.plot(*np.stack([a, b]).T, color=ORANGE, linewidth=0.8)
        place.set_title(f"{name}, mean squared distance {float(model.loss(x)):.3f}")
    grid = np.stack(np.meshgrid(*[np.linspace(-1.7, 1.7, 18)] * 2), -1).reshape(-1, 2).astype(np.float32)
    pull = denoising.reconstruct(grid) - grid
    axes[2].plot(*x.T, ".", color=GREY, markersize=3)
    axes[2].quiver(*grid.T, *pull.T, color=BLUE, angles="xy", scale_units="xy", scale=2.2, width=0.004)
    axes[2].set_title("denoising: the way from y to D(E(y))")
    for place in axes:
        place.set(aspect="equal", xlim=(-1.8, 1.8), ylim=(-1.8, 1.8))
    figure.savefig(IMAGES / "auto-encoders-curve.png")


def spectrum():
    """Squared error on new digits against the length of the code."""
    training, test = data.split(data.digits(), [0.8, 0.2], seed=0, stratify=True)
    known, new = (part[:][0].reshape(-1, 64) for part in (training, test))
    sizes = [1, 2, 4, 8, 16, 32]
    linear, exact, deep = [], [], []
    for size in sizes:
        wl.random.seed(0)
        exact.append(float(generative.discarded_spectrum(known.astype(np.float64), size)))
        model = trained(generative.LinearAutoEncoder(64, size), known, 100, 1e-2)
        linear.append(float(model.loss(known)))
        encoder = nn.Sequential(nn.Linear(64, 256), nn.gelu, nn.Linear(256, size))
        decoder = nn.Sequential(nn.Linear(size, 256), nn.gelu, nn.Linear(256, 64))
        model = trained(generative.AutoEncoder(encoder, decoder), known, 100)
        deep.append((float(model.loss(known)), float(model.loss(new))))
    figure, axes = plt.subplots(figsize=(4.8, 3.2), layout="constrained")
    axes.plot(sizes, exact, "-", color=INK, linewidth=1.2, label="discarded spectrum")
    axes.plot(sizes, linear, "o", color=BLUE, label="linear, trained")
    axes.plot(sizes, [a for a, _ in deep], "^-", color=ORANGE, label="deep, trained")
    axes.plot(sizes, [b for _, b in deep], "^--", color=ORANGE, markerfacecolor="white", label="deep, new digits")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(s) for s in sizes])
    axes.set(xlabel="numbers in the code", ylabel="squared distance", yscale="log")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(IMAGES / "auto-encoders-spectrum.png")


def digits():
    """The recipe: codes of new digits, and the plane of codes."""
    outcome = wl.recipes.find("vae-digits").run(progress=False)
    pictures = outcome.figures()
    for name in ("latent space", "plane of codes", "reconstructions"):
        pictures[name].savefig(IMAGES / f"vae-{name.replace(' ', '-')}.png", dpi=120)


def codebook():
    """Codes of points of the plane, after training with and without restarts."""
    x = arc(600)
    figure, axes = plt.subplots(1, 2, figsize=(7, 3.5), layout="constrained")
    for place, restart, name in zip(axes, (0.0, 0.3), ("without restarts", "dead codes restarted")):
        layer = generative.VectorQuantizer(24, 2, update="ema", decay=0.9, restart=restart, key=wl.random.key(5))
        layer.codebook[...] = layer.codebook * 0.3 + np.array([0.0, 3.0], np.float32)  # a bad start
        layer.sums[...] = layer.codebook
        step = wl.jit(lambda layer, x: layer(x).tokens)
        rng = np.random.default_rng(0)
        for _ in range(300):
            step(layer, x[rng.integers(0, len(x), 128)])
        layer.eval()
        tokens = layer.encode_tokens(x)
        voronoi_plot_2d(Voronoi(layer.codebook), place, show_points=False, show_vertices=False, line_colors=GREY,
                        line_width=0.7)  # fmt: skip
        place.scatter(*x.T, c=tokens % 10, s=3, cmap="tab10")
        place.plot(*layer.codebook.T, "o", color=INK, markersize=4)
        place.set_title(f"{name}: perplexity {float(layer.perplexity(tokens)):.1f} of 24")
        place.set(aspect="equal", xlim=(-1.7, 1.7), ylim=(-1.7, 1.7))
    figure.savefig(IMAGES / "auto-encoders-codebook.png")


if __name__ == "__main__":
    curve()
    spectrum()
    codebook()
    digits()
