"""Pictures of what a diffusion model makes: samples, how they come out of noise, and whether they are copies."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from wonderland.train.ink import SIZE, dress, headline, ink_of, legend, new_figure


def tiled(images: np.ndarray, columns: int = 10) -> np.ndarray:
    """Images (n, 1, H, W) from -1 to 1 side by side, with lines between them: one image from 0 to 1."""
    rows = -(-len(images) // columns)
    _, _, H, W = images.shape
    whole = np.full((rows * (H + 1) - 1, columns * (W + 1) - 1), 0.5)
    for i, image in enumerate(np.clip((images[:, 0] + 1) / 2, 0, 1)):
        y, x = i // columns * (H + 1), i % columns * (W + 1)
        whole[y : y + H, x : x + W] = image
    return whole


def _show(ax: Any, picture: np.ndarray) -> None:
    ax.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    ax.set(xticks=[], yticks=[])


def samples(made: np.ndarray, data: np.ndarray, dark: bool = False) -> Any:
    """Points beside those of the data, or images, a row for each class."""
    ink = ink_of(dark)
    if made.ndim == 4:
        figure = new_figure(4.2, 4.5, dark)
        _show(dress(figure.subplots(), ink, grid=False), tiled(made))
        headline(figure, ink, f"{len(made)} samples")
        return figure
    figure = new_figure(6.4, 3.4, dark)
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for k, (ax, points, title) in enumerate(zip(axes, (data, made), ("data", "samples"), strict=True)):
        dress(ax, ink, title=title)
        ax.scatter(*points.T, s=4, color=ink.series[k], alpha=0.6, linewidths=0)
        ax.set_aspect("equal")
    headline(figure, ink, f"{len(made)} samples beside data that was never looked at")
    return figure


def trajectory(path: np.ndarray, sigmas: np.ndarray, dark: bool = False) -> Any:
    """A few moments on the way from noise to samples, each in the scale of its noise."""
    ink = ink_of(dark)
    moments = np.unique(np.linspace(0, len(path) - 1, 6).astype(int))
    figure = new_figure(1.3 * len(moments), 1.7 if path.ndim == 3 else 2.1, dark)
    axes = np.atleast_1d(figure.subplots(1, len(moments)))
    for ax, t in zip(axes, moments, strict=True):
        dress(ax, ink, grid=False, title=f"σ = {sigmas[t]:.2g}")
        scale = np.sqrt(1 + sigmas[t] ** 2)
        if path.ndim == 3:
            ax.scatter(*(path[t] / scale).T, s=2, color=ink.series[1], alpha=0.6, linewidths=0)
            ax.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), xticks=[], yticks=[])
            ax.set_aspect("equal")
        else:
            some = path[t][:: max(1, path.shape[1] // 9)][:9]
            _show(ax, tiled(some / scale, 3))
    headline(figure, ink, "from noise to samples")
    return figure


def memorisation(found: Any, dark: bool = False) -> Any:
    """Distances to the nearest training data: of samples, and of data that was never looked at."""
    ink = ink_of(dark)
    figure = new_figure(4.6, 2.8, dark)
    ax = dress(figure.subplots(), ink, x="distance to the nearest training data", y="density")
    edges = np.linspace(0, max(float(np.quantile(part, 0.99)) for part in (found.samples, found.held_out)), 30)
    for k, (label, distances) in enumerate((("held-out data", found.held_out), ("samples", found.samples))):
        ax.hist(distances, edges, density=True, color=ink.series[k], alpha=0.55, label=label)
    legend(ax, ink)
    headline(figure, ink, f"median distance {found.ratio:.2f} times that of new data, {found.copied:.1%} are copies")
    return figure


def illusions(
    images: np.ndarray, turned: np.ndarray, first: np.ndarray, second: np.ndarray, right: np.ndarray, dark: bool = False
) -> Any:
    """Images and what they are upside down: those that a classifier takes for both, if there are any."""
    ink = ink_of(dark)
    chosen = np.flatnonzero(right & (first != second))
    chosen = (chosen if len(chosen) else np.arange(len(images)))[:: max(1, len(chosen) // 8)][:8]
    figure = new_figure(0.8 * len(chosen), 2.2, dark)
    axes = figure.subplots(2, len(chosen), squeeze=False)
    for column, i in zip(axes.T, chosen, strict=True):
        for ax, image, label in zip(column, (images[i], turned[i]), (first[i], second[i]), strict=True):
            dress(ax, ink, grid=False)
            _show(ax, tiled(image[None], 1))
            ax.set_title(str(label), color=ink.ink, fontsize=SIZE)
    headline(figure, ink, f"upside down another digit: {np.mean(right[first != second]):.0%} are both")
    return figure


def gif(path: np.ndarray, file: Path, milliseconds: int = 90) -> bool:
    """A trajectory (steps, n, ...) as an animation, each moment in the scale of its noise; False without Pillow."""
    if importlib.util.find_spec("PIL") is None:
        return False
    from PIL import Image

    frames = []
    for moment in path:
        scale = max(1.0, float(np.std(moment)) / max(float(np.std(path[-1])), 1e-9))
        if path.ndim == 3:
            inside = np.linspace(-4, 4, 161)
            counts = np.histogram2d(-moment[:, 1] / scale, moment[:, 0] / scale, bins=(inside, inside))[0]
            picture = 1 - np.minimum(counts, 2) / 2
        else:
            picture = tiled(moment[:100] / scale)
        picture = np.kron(picture, np.ones((3, 3)))
        frames.append(Image.fromarray((255 * picture).astype(np.uint8)))
    last = max(1500 // milliseconds, 1)
    frames[0].save(file, save_all=True, append_images=frames[1:] + frames[-1:] * last, duration=milliseconds, loop=0)
    return True
