"""The figures of docs/layers.md: activations, what normalisations average over, and what dropout takes away.

Run from the repository: python docs/plots/layers.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import wonderland as wl
from wonderland import nn

IMAGES = Path(__file__).parent.parent / "images"
BLUE, RED, GREY, LIGHT = "#2171B5", "#CB181D", "#999999", "#F2F2F2"
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip


# Activations ---------------------------------------------------------------------------------------------------------


def activations():
    """Twelve activations, each with its derivative."""
    shown = ["relu", "leaky_relu", "elu", "selu", "softplus", "gelu", "silu", "mish", "sigmoid", "tanh",
             "hardsigmoid", "hardswish"]  # fmt: skip
    s = np.linspace(-4, 4, 401)
    figure, axes = plt.subplots(3, 4, figsize=(9, 5.6), sharex=True, sharey=True, layout="constrained")
    for place, name in zip(axes.flat, shown, strict=True):
        f = getattr(nn, name)
        place.axhline(0, color=GREY, linewidth=0.5)
        place.axvline(0, color=GREY, linewidth=0.5)
        place.plot(s, f(s), color=BLUE, linewidth=1.6, label="value")
        place.plot(s, wl.vmap(wl.grad(f))(s), color=RED, linewidth=1.1, linestyle="--", label="derivative")
        place.set(title=f"nn.{name}", xlim=(-4, 4), ylim=(-2, 3), xticks=[-4, -2, 0, 2, 4], yticks=[-2, -1, 0, 1, 2, 3])
    axes[0, 0].legend(frameon=False, loc="upper left")
    figure.savefig(IMAGES / "activations.png")


# Normalisations ------------------------------------------------------------------------------------------------------


def norms(samples=4, channels=6, positions=8):
    """What each normalisation averages over: the numbers that the marked one is normalised with."""
    layers = [
        ("BatchNorm", nn.BatchNorm1d(channels, track_running_stats=False)),
        ("LayerNorm((C, L))", nn.LayerNorm((channels, positions))),
        ("InstanceNorm", nn.InstanceNorm1d(channels)),
        ("GroupNorm(2)", nn.GroupNorm(2, channels)),
        ("LayerNorm(C), (N, L, C)", lambda x: np.swapaxes(last(np.swapaxes(x, 1, 2)), 1, 2)),
    ]
    last = nn.LayerNorm(channels)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, channels, positions)).astype(np.float32)
    figure, axes = plt.subplots(1, 5, figsize=(10, 2.35), layout="constrained")
    for place, (title, layer) in zip(axes, layers, strict=True):
        reads = np.abs(wl.grad(lambda x, layer=layer: layer(x)[0, 4, 2])(x)) > 0  # whose derivative isn't 0
        blocks(place, reads, (0, 4, 2))
        place.set_title(title)
    axes[0].text(positions / 2, -0.4, "positions", ha="center", va="top")
    axes[0].text(-0.4, channels / 2, "channels", ha="right", va="center", rotation=90)
    axes[0].text(positions + 2.8, 1.4, "samples", ha="left", va="center", rotation=45, rotation_mode="anchor")
    figure.savefig(IMAGES / "normalisations.png")


def blocks(axes, reads, marked):
    """The samples as sheets of channels and positions, one behind the other."""
    samples, channels, positions = reads.shape
    for sample in reversed(range(samples)):
        across, up = 1.6 * sample, 1.6 * sample
        for c in range(channels):
            for p in range(positions):
                if (sample, c, p) == marked:
                    colour = RED
                else:
                    colour = BLUE if reads[sample, c, p] else "white"
                axes.add_patch(plt.Rectangle((p + across, c + up), 1, 1, facecolor=colour, edgecolor="#777777",
                                             linewidth=0.4))  # fmt: skip
    axes.set(xlim=(-1.6, positions + 1.6 * samples - 1.0), ylim=(-1.6, channels + 1.6 * samples - 1.0), aspect="equal",
             xticks=[], yticks=[])  # fmt: skip
    for spine in axes.spines.values():
        spine.set_visible(False)


# Dropout -------------------------------------------------------------------------------------------------------------


def picture(size=48):
    """A flower of smooth colours, (3, size, size), between 0 and 1."""
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    angle, radius = np.arctan2(y, x), np.hypot(x, y)
    petals = 1 / (1 + np.exp(-18 * (0.55 + 0.25 * np.cos(6 * angle) - radius)))
    heart = 1 / (1 + np.exp(-25 * (0.24 - radius)))
    sky = np.stack([0.45 + 0.25 * y, 0.70 + 0.15 * y, 0.90 + 0.0 * y])
    image = sky * (1 - petals) + petals * np.array([0.80, 0.25, 0.45])[:, None, None]
    return np.clip(image * (1 - heart) + heart * np.array([0.98, 0.80, 0.20])[:, None, None], 0, 1)


def dropout():
    """One picture through layers that drop, in training mode; numbers that are kept, without their factor 1/(1 - p)."""
    wl.random.seed(3)
    image = picture().astype(np.float32)
    layers = [
        ("the image", nn.Identity()),
        ("Dropout(0.3)", nn.Dropout(0.3)),
        ("Dropout2d(0.4): channels", nn.Dropout2d(0.4)),
        ("Cutout(18)", nn.Cutout(18)),
        ("GaussianNoise(0.15)", nn.GaussianNoise(0.15)),
    ]
    figure, axes = plt.subplots(2, 5, figsize=(10, 4.3), layout="constrained")
    for column, (title, layer) in enumerate(layers):
        for row in range(2):
            shown = (1 - getattr(layer, "p", 0)) * layer(image)
            axes[row, column].imshow(np.clip(shown, 0, 1).transpose(1, 2, 0))
            axes[row, column].set(xticks=[], yticks=[])
            for spine in axes[row, column].spines.values():
                spine.set_visible(False)
        axes[0, column].set_title(title)
    axes[0, 0].set_ylabel("first call")
    axes[1, 0].set_ylabel("second call")
    figure.savefig(IMAGES / "dropout.png")


if __name__ == "__main__":
    activations()
    norms()
    dropout()
