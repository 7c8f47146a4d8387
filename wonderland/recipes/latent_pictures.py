"""Pictures of models with a latent space: where data lie in it, and what its points look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.train.ink import SIZE, dress, headline, ink_of, new_figure


def code_map(codes: np.ndarray, labels: np.ndarray, classes: Sequence[str], dark: bool = False) -> Any:
    """Codes (n, latent) in the plane of the two that vary most, as the names of their classes, in their colours."""
    ink = ink_of(dark)
    first, second = np.sort(np.argsort(-codes.var(axis=0), kind="stable")[:2]) if codes.shape[1] > 1 else (0, 0)
    figure = new_figure(5.2, 5.0, dark)
    ax = dress(figure.subplots(), ink, x=f"code {first + 1}", y=f"code {second + 1}")
    for k, name in enumerate(classes):
        color = ink.series[k % len(ink.series)]
        for point in codes[labels == k]:
            ax.text(point[first], point[second], name, color=color, fontsize=SIZE - 2, ha="center", va="center")
    ends = np.abs(codes[:, [first, second]]).max() * 1.08
    ax.set(xlim=(-ends, ends), ylim=(-ends, ends), aspect="equal")
    headline(figure, ink, f"{len(codes)} new samples by their codes; the prior is a bell around 0")
    return figure


def tiles(images: np.ndarray, title: str, names: Sequence[str] = (), dark: bool = False) -> Any:
    """Images (rows, columns, height, width) side by side as one; a name for each row, if there are names."""
    rows, columns, height, width = images.shape
    ink = ink_of(dark)
    figure = new_figure(0.5 * columns + 0.3 + 1.0 * bool(names), 0.5 * rows + 0.4, dark)
    ax = dress(figure.subplots(), ink, grid=False)
    framed = np.pad(images, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    whole = framed.swapaxes(1, 2).reshape(rows * (height + 1), columns * (width + 1))[:-1, :-1]
    ax.imshow(whole, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([(i + 0.5) * (height + 1) - 1 for i in range(rows)] if names else [], [*names])
    ax.tick_params(length=0)
    headline(figure, ink, title)
    return figure
