"""Pictures of models that read tokens: where attention looks, and where tokens lie in the space of their embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.train.ink import SIZE, dress, headline, ink_of, new_figure, rgba

MOST_LABELS = 48  # tokens of an axis that have room for their texts


def attention(weights: Any, queries: Sequence[Any] = (), keys: Sequence[Any] | None = None, dark: bool = False) -> Any:
    """Where each head looks: a matrix for each, with a row for each query and a column for each key.

    `weights` is (heads, T, S), in rows of two, or of four without texts; (layers, heads, T, S), a row for each layer;
    or (T, S). `queries` and `keys` are the texts of tokens, the same for both unless `keys` are given. The weights of
    a model are `nn.attention_maps`.
    """
    weights = np.asarray(weights, float)
    if weights.ndim not in (2, 3, 4) or 0 in weights.shape:
        raise ValueError(f"attention: weights are (heads, T, S) or (layers, heads, T, S), got shape {weights.shape}")
    weights = weights.reshape((1,) * (4 - weights.ndim) + weights.shape)
    keys = queries if keys is None else keys
    for name, labels, extent in (("queries", queries, weights.shape[2]), ("keys", keys, weights.shape[3])):
        if len(labels) not in (0, extent):
            raise ValueError(f"attention: there are {extent} {name}, but {len(labels)} texts for them")
    layers, heads, count, seen = weights.shape
    ink, labelled = ink_of(dark), 0 < max(len(queries), len(keys)) and max(count, seen) <= MOST_LABELS
    side = min(6.0, max(1.5, 0.13 * max(count, seen))) if labelled else 1.5
    columns = heads if layers > 1 else min(heads, 2 if labelled else 4)
    rows = -(-layers * heads // columns)
    figure = new_figure(side * columns + 0.6, side * rows + 0.6, dark)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes:
        ax.set_axis_off()
    for place, (layer, head) in enumerate(np.ndindex(layers, heads)):
        ax = dress(axes[place], ink, grid=False)
        ax.set_axis_on()
        ax.imshow(rgba(weights[layer, head], 1.0), interpolation="nearest", aspect="auto")
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"head {head}" if layers == 1 else f"layer {layer}, head {head}", color=ink.ink, fontsize=SIZE - 1)
        if labelled:
            ax.set_xticks(range(seen), [_shown(k) for k in keys], fontsize=SIZE - 3, rotation=90, color=ink.ink)
        if labelled and place % columns == 0:
            ax.set_yticks(range(count), [_shown(q) for q in queries], fontsize=SIZE - 3, color=ink.ink)
        ax.tick_params(length=0)
    headline(figure, ink, "how much a token (row) looks at each other one (column): white 0, blue 1")
    return figure


def embedding(vectors: Any, labels: Sequence[Any], most: int = 200, dark: bool = False) -> Any:
    """Vectors (n, width) in the plane in which they differ most (their first two principal components), by name.

    The first `most` are drawn.
    """
    vectors = np.asarray(vectors, float)
    if vectors.ndim != 2 or len(labels) != len(vectors) or vectors.shape[1] < 2:
        raise ValueError(f"embedding takes n vectors and n labels, got shape {vectors.shape} and {len(labels)} labels")
    centred = vectors - vectors.mean(axis=0)
    _, scale, axes = np.linalg.svd(centred, full_matrices=False)
    share = scale[:2] ** 2 / max(float(np.sum(scale**2)), 1e-300)
    ink = ink_of(dark)
    figure = new_figure(5.2, 4.2, dark)
    ax = dress(figure.subplots(), ink, x=f"{share[0]:.0%} of the variance", y=f"{share[1]:.0%}")
    for (x, y), label in zip((centred @ axes[:2].T)[:most], labels):
        ax.plot(x, y, ".", markersize=1, color=ink.faint)
        ax.text(x, y, _shown(label), color=ink.series[_kind(str(label))], fontsize=SIZE - 1, ha="center", va="center")
    headline(figure, ink, "tokens by their vectors: letters, capitals, digits, others")
    return figure


def _kind(label: str) -> int:
    kinds = (str.islower, str.isupper, str.isdigit)
    return next((i for i, kind in enumerate(kinds) if kind(label.strip())), 3)


def _shown(label: Any) -> str:
    """A token as people can see it; $ would be mathematics."""
    text = str(label).replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·")
    return "".join(c if c.isprintable() else "�" for c in text).replace("$", r"\$")
