"""The figures of docs/augmentation.md: every transform on handwritten digits, and signals of MNIST-1D.

Run from the repository: python docs/plots/augmentation.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from wonderland import data
from wonderland.data.sets_mnist1d import TEMPLATES

IMAGES = Path(__file__).parent.parent / "images"
BLUE, RED, GREY = "#2171B5", "#CB181D", "#999999"
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip


# Digits --------------------------------------------------------------------------------------------------------------


def digits():
    """Six digits, and what each transform makes of them."""
    x, y = data.digits()[10:16]
    ink = np.array([[1, 0.45, 0.2], [0.2, 0.7, 1], [0.5, 1, 0.4], [1, 0.85, 0.2], [0.9, 0.4, 0.9], [0.3, 1, 0.9]])
    coloured = x * ink[:, :, None, None].astype(np.float32)
    large = np.kron(x, np.ones((1, 1, 4, 4), np.float32))  # 32 x 32 pixels
    safe = ["rotate", "shear_x", "shear_y", "translate_x", "translate_y", "contrast", "brightness", "sharpness"]
    shown = [
        ("as they are", None, x),
        ("flip(1.0)", data.flip(1.0), x),
        ("flip(1.0, vertical=True)", data.flip(1.0, vertical=True), x),
        ("rotate(30)", data.rotate(30), large),
        ("zoom((0.6, 1.6))", data.zoom((0.6, 1.6)), large),
        ("crop(8, padding=2)", data.crop(8, padding=2), x),
        ("resized_crop(32, area=(0.3, 1))", data.resized_crop(32, area=(0.3, 1.0)), large),
        ("contrast((0.2, 1))", data.contrast((0.2, 1.0)), x),
        ("jitter(0.5)", data.jitter(0.5, limits=(0, 1)), coloured),
        ("jitter(0, 0.9, 0.5)", data.jitter(0.0, 0.9, 0.5, limits=(0, 1)), coloured),
        ("gaussian_noise(0.2)", data.gaussian_noise(0.2), x),
        ("cutout(4, fill=0.5)", data.cutout(4, fill=0.5), x),
        ("rand_augment(2, 8, operations=...)", data.rand_augment(2, 8, operations=safe), large),
        ("rand_augment(2, 8)", data.rand_augment(2, 8), np.kron(coloured, np.ones((1, 1, 4, 4), np.float32))),
        ("mixup(1.0, classes=10)", data.mixup(1.0, classes=10), coloured),
        ("cutmix(1.0, classes=10)", data.cutmix(1.0, classes=10), coloured),
    ]
    figure, axes = plt.subplots(8, 2, figsize=(9, 9.4), layout="constrained")
    for place, (title, transform, images) in zip(axes.T.flat, shown, strict=True):
        labels = [str(label) for label in y]
        if transform is not None:
            batch = transform((images, y), np.random.default_rng(7))
            images = batch[0]
            if batch[1].ndim == 2:
                labels = [" + ".join(f"{row[k]:.2f} of {k}" for k in np.flatnonzero(row)) for row in batch[1]]
        strip(place, images, labels if transform is None or "mi" in title else None)
        place.set_title(title, loc="left", family="monospace" if transform else None, fontsize=8.5)
    figure.savefig(IMAGES / "augmentation.png")
    plt.close(figure)


def strip(axes, images, labels=None):
    """Images (n, c, h, w) side by side."""
    n, channels, height, width = images.shape
    gap = width / 8
    for k, image in enumerate(np.clip(images, 0, 1)):
        left = k * (width + gap)
        pixels = np.repeat(image, 3, 0) if channels == 1 else image
        axes.imshow(np.moveaxis(pixels, 0, -1), extent=(left, left + width, height, 0), interpolation="nearest")
        if labels:
            axes.text(
                left + width / 2, height * 1.06, labels[k].replace(" + ", "\n"), ha="center", va="top", fontsize=7
            )
    axes.set(xlim=(-gap / 4, n * (width + gap) - 0.75 * gap), ylim=(height * 1.02, -height * 0.02))
    axes.axis("off")


# MNIST-1D ------------------------------------------------------------------------------------------------------------


def signals(rows=3):
    """The ten templates, samples of each, and what transforms make of one."""
    x, y = data.mnist1d()[0][:]
    figure, axes = plt.subplots(rows + 1, 10, figsize=(10, 5.2), layout="constrained", sharex="row", sharey="row")
    for digit in range(10):
        axes[0, digit].plot(TEMPLATES[digit], np.arange(12), color=RED, linewidth=2)
        axes[0, digit].set_title(str(digit))
        for row, sample in enumerate(x[y == digit][:rows], 1):
            axes[row, digit].plot(sample, np.arange(40), color=BLUE, linewidth=1.4)
    for place in axes.flat:
        place.invert_yaxis() if place in axes[:, 0] else None
        place.set(xticks=[], yticks=[])
    axes[0, 0].set_ylabel("template")
    axes[1, 0].set_ylabel("samples")
    figure.savefig(IMAGES / "augmentation-mnist1d.png")
    plt.close(figure)


def changed_signals():
    """One signal, and four draws of each transform that isn't of images only."""
    x, y = data.mnist1d()[0][:]
    batch = np.repeat(x[:2], 4, 0)[[0, 4, 1, 5, 2, 6, 3, 7]], np.repeat(y[:2], 4)[[0, 4, 1, 5, 2, 6, 3, 7]]
    shown = [("roll(8)", data.roll(8)), ("gaussian_noise(0.3)", data.gaussian_noise(0.3)),
             ("mixup(1.0, classes=10)", data.mixup(1.0, classes=10))]  # fmt: skip
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.4), layout="constrained", sharey=True)
    for place, (title, transform) in zip(axes, shown, strict=True):
        out = transform(batch, np.random.default_rng(5))
        place.plot(out[0][0::2].T, color=BLUE, linewidth=0.8)
        place.plot(x[0], color="black", linewidth=1.6)
        if "mixup" in title:
            place.plot(x[1], color=RED, linewidth=1.6)
        place.set_title(title, loc="left", family="monospace", fontsize=8.5)
        place.set(xlabel="time", xlim=(0, 39))
    figure.savefig(IMAGES / "augmentation-signals.png")
    plt.close(figure)


if __name__ == "__main__":
    digits()
    signals()
    changed_signals()
