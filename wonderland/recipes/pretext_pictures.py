"""Pictures of what self-supervision learnt: accuracies with few labels, embeddings in the plane, nearest neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wonderland.train.ink import SIZE, dress, headline, ink_of, new_figure
from wonderland.train.metrics.retrieval import nearest


def few_labels(scores: Mapping[str, np.ndarray], labels: int, samples: int, dark: bool = False) -> Any:
    """Accuracies by way and draw: a point for each draw of labels, the mean as a bar, with its number."""
    ink = ink_of(dark)
    figure = new_figure(6.4, 0.42 * len(scores) + 0.9, dark)
    ax = dress(figure.subplots(), ink, x=f"accuracy on {samples} new digits")
    for place, (name, values) in enumerate(scores.items()):
        color = ink.series[0] if place == 0 else ink.series[1] if "scratch" in name else ink.series[2]
        ax.barh(place, values.mean(), 0.62, color=color, alpha=0.35)
        spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else [0.0]
        ax.plot(values, place + np.asarray(spread), "o", color=color, markersize=4)
        said = f"{values.mean():.1%} ± {100 * values.std():.1f}"
        ax.text(1.01, place, said, transform=ax.get_yaxis_transform(), color=ink.ink, fontsize=SIZE, va="center")
    ax.set_yticks(range(len(scores)), [*scores])
    ax.invert_yaxis()
    lowest = min(float(values.min()) for values in scores.values())
    ax.set_xlim(max(0.0, lowest - 0.02), 1)
    ax.grid(False, axis="y")
    draws = len(next(iter(scores.values())))
    headline(figure, ink, f"{labels} label{'s' * (labels > 1)} a class; {draws} draw{'s' * (draws > 1)} of labels")
    return figure


def planes(spaces: Mapping[str, np.ndarray], labels: np.ndarray, dark: bool = False) -> Any:
    """Vectors (n, width) of several spaces, each in the plane in which they differ most, as their labels."""
    ink = ink_of(dark)
    figure = new_figure(3.9 * len(spaces), 4.1, dark)
    axes = np.atleast_1d(figure.subplots(1, len(spaces)))
    for ax, (name, vectors) in zip(axes, spaces.items(), strict=True):
        centred = vectors - vectors.mean(axis=0)
        _, scale, directions = np.linalg.svd(centred, full_matrices=False)
        share = scale[:2] ** 2 / max(float(np.sum(scale**2)), 1e-300)
        dress(ax, ink, title=name, x=f"{share[0]:.0%} of the variance", y=f"{share[1]:.0%}")
        places = centred @ directions[:2].T
        ax.plot(*places.T, ".", markersize=0.1, color=ink.faint)
        for place, label in zip(places, labels, strict=True):
            color = ink.series[int(label) % len(ink.series)]
            ax.text(*place, str(label), color=color, fontsize=SIZE - 2, ha="center", va="center", clip_on=True)
        ax.set(xticklabels=[], yticklabels=[])
    headline(figure, ink, f"{len(labels)} new digits, in the plane of most variance")
    return figure


def neighbours(
    spaces: Mapping[str, np.ndarray], images: np.ndarray, labels: np.ndarray, most: int = 7, dark: bool = False
) -> Any:
    """For the first digit of each class, the most similar others in each space; other digits have a frame."""
    from matplotlib.patches import Rectangle

    ink = ink_of(dark)
    queries = [int(np.flatnonzero(labels == k)[0]) for k in np.unique(labels)]
    height, width = (side + 2 for side in images.shape[2:])
    figure = new_figure(0.36 * len(spaces) * (most + 1) + 0.4, 0.36 * len(queries) + 0.8, dark)
    axes = np.atleast_1d(figure.subplots(1, len(spaces)))
    for ax, (name, vectors) in zip(axes, spaces.items(), strict=True):
        dress(ax, ink, grid=False, title=name)
        near = nearest(vectors, most)
        whole = np.full((len(queries) * height, (most + 1) * width), np.nan)
        for i, query in enumerate(queries):
            for j, which in enumerate([query, *near[query]]):
                y, x = i * height, j * width
                whole[y + 1 : y + height - 1, x + 1 : x + width - 1] = images[which, 0]
                if j == 0 or labels[which] != labels[query]:
                    color = ink.series[int(j > 0)]
                    ax.add_patch(Rectangle((x, y), width - 1, height - 1, fill=False, edgecolor=color, linewidth=2))
        ax.imshow(whole, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        ax.set(xticks=[], yticks=[])
    headline(figure, ink, "a digit (blue) and those nearest to it; other digits have an orange frame")
    return figure
