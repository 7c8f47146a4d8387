"""The figure of docs/convolution.md: matrices of convolutions, and receptive fields read off sparsity patterns.

Run from the repository: python docs/plots/convolution.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import wonderland as wl

INK, EDGE, LIGHT = "#222222", "#CCCCCC", "#F4F4F4"
SHADES = ["#08306B", "#4292C6", "#9ECAE1"]
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9})


def grid(axes, rows, columns):
    """A field of squares."""
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal", xticks=[], yticks=[])
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=0.6)
    axes.tick_params(which="both", length=0)
    for spine in axes.spines.values():
        spine.set_color(EDGE)


def toeplitz(axes, title, **arguments):
    """The matrix of x -> conv(x, w); a colour for each weight."""
    w = np.array([1.0, 2.0, 3.0])
    matrix = wl.sparse.jacobian(lambda x: wl.conv(x[None], w[None, None], **arguments)[0])(np.ones(16)).toarray()
    shown = np.ones((*matrix.shape, 3)) * matplotlib.colors.to_rgb(LIGHT)
    for weight, colour in zip(w, SHADES, strict=True):
        shown[matrix == weight] = matplotlib.colors.to_rgb(colour)
    axes.imshow(shown)
    grid(axes, *matrix.shape)
    axes.set_title(title)


def layers(axes, size=15):
    """Which pixels the middle one reads after one, two, three layers."""

    def stack(image, count):
        for _ in range(count):
            image = np.maximum(wl.conv(image, np.ones((1, 1, 3, 3)), padding="same"), 0.0)
        return image

    shown = np.ones((size, size, 3)) * matplotlib.colors.to_rgb(LIGHT)
    middle = size * size // 2
    for count, colour in zip((3, 2, 1), SHADES[::-1], strict=True):
        reads = wl.sparse.jacobian_pattern(lambda x, count=count: stack(x, count), np.ones((1, size, size)))
        shown[reads.toarray()[middle].reshape(size, size)] = matplotlib.colors.to_rgb(colour)
    axes.imshow(shown)
    grid(axes, size, size)
    for count, colour in zip((1, 2, 3), SHADES, strict=True):
        axes.plot([], [], "s", color=colour, label=f"{count} layer{'s' * (count > 1)}")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncol=3, frameon=False, fontsize=8, handletextpad=0.1,
                columnspacing=0.8)  # fmt: skip
    axes.set_title("one pixel reads, by 3 x 3 layers")


def causal(axes, length=24, dilations=(1, 2, 4, 8)):
    """The steps of each layer that the last step of the result reads, and how."""
    alive = np.zeros(length, bool)
    alive[-1] = True
    height = len(dilations)
    for level, dilation in reversed(list(enumerate(dilations))):
        layer = lambda x, d=dilation: wl.conv(x, np.ones((1, 1, 2)), padding="causal", dilation=d)
        reads = wl.sparse.jacobian_pattern(layer, np.ones((1, length))).toarray()
        axes.scatter(np.flatnonzero(~alive), np.full((~alive).sum(), level + 1), s=14, color=EDGE, zorder=2)
        axes.scatter(np.flatnonzero(alive), np.full(alive.sum(), level + 1), s=20, color=SHADES[0], zorder=3)
        for target in np.flatnonzero(alive):
            for source in np.flatnonzero(reads[target]):
                axes.plot([source, target], [level, level + 1], color=SHADES[1], linewidth=1, zorder=1)
        alive = reads[alive].any(0)
    axes.scatter(np.flatnonzero(~alive), np.zeros((~alive).sum()), s=14, color=EDGE, zorder=2)
    axes.scatter(np.flatnonzero(alive), np.zeros(alive.sum()), s=20, color=SHADES[0], zorder=3)
    axes.set(xlim=(-1, length), ylim=(-0.4, height + 0.4), xticks=[], xlabel="time")
    axes.set_yticks(range(height + 1), ["input", *(f"dilation {d}" for d in dilations)])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(f"one step reads {alive.sum()}, by causal layers with two weights")


def main():
    """Draw all of it."""
    figure = plt.figure(figsize=(8.4, 6.2), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.1, 1))
    left, middle, right = above.subplots(1, 3)
    toeplitz(left, 'padding="same"', padding="same")
    toeplitz(middle, 'padding="same", dilation=3', padding="same", dilation=3)
    toeplitz(right, "stride=2", stride=2)
    one, two = below.subplots(1, 2, width_ratios=(1, 1.9))
    layers(one)
    causal(two)
    path = Path(__file__).resolve().parent.parent / "images" / "convolution.png"
    figure.savefig(path)
    print(path)


if __name__ == "__main__":
    main()
