"""Pictures of recipes that aren't of training itself: a boundary in the plane, residuals, signals, two lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wonderland import nn, train
from wonderland.train.ink import BETWEEN, SIZE, dress, headline, ink_of, legend, new_figure, note

MARKS = ("o", "^", "s", "D", "v", "P")


def first_filters(model: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """The weights of the first layer as pictures: of a convolution, or of a linear layer on images of one channel."""
    for _, layer in model.named_modules():
        weight = getattr(layer, "weight", None)
        if weight is None or not isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Linear)):
            continue
        weight = np.asarray(weight)
        if weight.ndim > 2:
            return weight
        if len(shape) == 3 and shape[0] == 1 and np.prod(shape) in weight.shape:
            rows = weight if weight.shape[1] == np.prod(shape) else weight.T
            return rows.reshape(-1, *shape)
        return None
    return None


def linear_weights(model: Any, inputs: int) -> np.ndarray | None:
    """Of a model that is one linear layer with two outputs: how much each input speaks for the second class."""
    layers = [layer for _, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    if len(layers) != 1:
        return None
    weight = np.asarray(layers[0].weight)
    weight = weight if weight.shape == (2, inputs) else weight.T
    return weight[1] - weight[0] if weight.shape == (2, inputs) else None


def boundary(model: Any, x: np.ndarray, labels: np.ndarray, classes: Sequence[str], dark: bool = False) -> Any:
    """Points of the plane in their classes' colours, on what the model says everywhere; lines where it is undecided."""
    ink = ink_of(dark)
    figure = new_figure(4.4, 3.6, dark)
    ax = dress(figure.subplots(), ink, grid=False)
    low, high = x.min(0), x.max(0)
    low, high = low - 0.15 * (high - low), high + 0.15 * (high - low)
    side = 160
    across, up = np.meshgrid(*(np.linspace(low[i], high[i], side) for i in (0, 1)))
    grid = np.stack([across.ravel(), up.ravel()], 1).astype(x.dtype)
    shares = np.asarray(nn.softmax(train.predict(model, grid))).reshape(side, side, -1)
    colors = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in [*BETWEEN, *ink.series[2:]]])
    colors = colors[np.arange(shares.shape[-1]) % len(colors)]
    best = shares.max(-1, keepdims=True)
    sure = (best - 1 / shares.shape[-1]) / (1 - 1 / shares.shape[-1])
    area = np.concatenate([shares @ colors, 0.05 + 0.3 * sure], -1)
    ax.imshow(area, extent=(low[0], high[0], low[1], high[1]), origin="lower", aspect="auto", interpolation="bilinear")
    for k in range(1, shares.shape[-1]):
        lead = shares[..., k] - np.delete(shares, k, -1).max(-1)
        ax.contour(across, up, lead, levels=[0.0], colors=[ink.ink], linewidths=1.0)
    wrong = np.argmax(train.predict(model, x), 1) != labels
    for k in range(len(classes)):
        there = labels == k
        ax.scatter(*x[there].T, s=24, marker=MARKS[k % len(MARKS)], color=ink.series[k % len(ink.series)],
                   edgecolors=ink.paper, linewidths=0.5, label=f"class {classes[k]}")  # fmt: skip
    if wrong.any():
        ax.scatter(*x[wrong].T, s=70, facecolors="none", edgecolors=ink.ink, linewidths=1.0, label="mistaken")
    headline(figure, ink, f"{wrong.sum()} of {len(x)} test points mistaken")
    legend(ax, ink, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=ax.transAxes, ncols=len(classes) + 1,
           borderaxespad=2.0)  # fmt: skip
    return figure


def signals(
    x: np.ndarray, predicted: np.ndarray, labels: np.ndarray, probabilities: np.ndarray, classes: Sequence[str],
    most: int = 12, dark: bool = False,
) -> Any:  # fmt: skip
    """Signals that were mistaken, those first whose true class was thought least likely."""
    ink = ink_of(dark)
    wrong = np.flatnonzero(predicted != labels)
    wrong = wrong[np.argsort(probabilities[wrong, labels[wrong]], kind="stable")]
    shown = wrong[:most]
    columns = max(1, min(4, len(shown)))
    rows = max(1, -(-len(shown) // columns))
    figure = new_figure(1.3 * columns + 1.2 * (columns < 3), 1.15 * rows + 0.4, dark)
    if not len(shown):
        note(figure.subplots(), ink, f"no mistakes among {len(labels)}")
        return figure
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for ax in axes:
        ax.set_axis_off()
    for ax, i in zip(axes, shown):
        ax.plot(x[i].reshape(-1, x.shape[-1]).T, color=ink.series[0], linewidth=1.4)
        true, said = int(labels[i]), int(predicted[i])
        ax.set_title(
            f"{classes[true]} → {classes[said]}  {probabilities[i, said]:.0%}", color=ink.ink, fontsize=SIZE - 1
        )
    left = f", the worst {len(shown)}" if len(shown) < len(wrong) else ""
    headline(figure, ink, f"{len(wrong)} of {len(labels)} mistaken{left} (true → said)")
    return figure


def bars(values: np.ndarray, names: Sequence[str], title: str, most: int = 15, dark: bool = False) -> Any:
    """The largest of some numbers by name, whatever their sign."""
    ink = ink_of(dark)
    chosen = np.argsort(-np.abs(values), kind="stable")[:most][::-1]
    figure = new_figure(5.0, 0.24 * len(chosen) + 0.8, dark)
    ax = dress(figure.subplots(), ink, x="weight")
    headline(figure, ink, title)
    ax.barh([names[i] for i in chosen], values[chosen], color=[ink.series[int(values[i] < 0)] for i in chosen])
    ax.axvline(0, color=ink.ink, linewidth=0.8)
    ax.grid(False, axis="y")
    return figure


def grouped(table: Mapping[str, Mapping[str, float]], title: str, y: str, dark: bool = False) -> Any:
    """Bars in groups: {group: {bar: value}}, each with its value above."""
    ink = ink_of(dark)
    names = [*dict.fromkeys(name for row in table.values() for name in row)]
    figure = new_figure(1.5 + 1.7 * len(table), 3.2, dark)
    ax = dress(figure.subplots(), ink, y=y)
    headline(figure, ink, title)
    width = 0.8 / len(names)
    for k, name in enumerate(names):
        places = np.arange(len(table)) + (k - (len(names) - 1) / 2) * width
        heights = [row.get(name, np.nan) for row in table.values()]
        drawn = ax.bar(places, heights, 0.92 * width, color=ink.series[k % len(ink.series)], label=name)
        ax.bar_label(drawn, fmt="%.3g", color=ink.ink, fontsize=SIZE - 1, padding=1)
    ax.set_xticks(np.arange(len(table)), [*table])
    ax.margins(y=0.15)
    ax.grid(False, axis="x")
    legend(ax, ink, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(names), borderaxespad=0.2)
    return figure


def power_law(
    x: np.ndarray, measured: Any, law: np.ndarray, title: str, labels: tuple[str, str, str, str],
    dark: bool = False,
) -> Any:  # fmt: skip
    """Measured points and a law through them, both axes logarithmic; labels are of x, of y, of points and of law."""
    ink = ink_of(dark)
    figure = new_figure(4.6, 3.4, dark)
    ax = dress(figure.subplots(), ink, x=labels[0], y=labels[1])
    headline(figure, ink, title)
    ax.plot(x, law, "--", color=ink.ink, linewidth=1.2, label=labels[3])
    ax.plot(x, measured, "o", color=ink.series[0], markersize=5, label=labels[2])
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(x, [f"{v:g}" for v in x])
    ax.minorticks_off()
    legend(ax, ink)
    return figure


def costs(
    rows: Mapping[str, Mapping[str, Sequence[float]]], slopes: Mapping[str, float], title: str, dark: bool = False
) -> Any:
    """Operations above, time below, a column for each size that grows, all axes logarithmic; slopes in the legends."""
    ink = ink_of(dark)
    figure = new_figure(7.6, 5.6, dark)
    headline(figure, ink, title)
    axes = figure.subplots(2, len(rows), sharex="col", sharey="row", squeeze=False)
    for (above, below), (name, row) in zip(axes.T, rows.items(), strict=True):
        dress(above, ink, y="operations" if name == next(iter(rows)) else "")
        dress(below, ink, x=name, y="milliseconds" if name == next(iter(rows)) else "")
        x = np.array(row["size"])
        for k, (what, label) in enumerate((("attention", "scores and mixing"), ("weights", "products with weights"))):
            power = slopes[f"power of the {name}: {label}"]
            above.plot(x, row[what], "o-", color=ink.series[k], markersize=4, label=f"{label}, {name}^{power:.2f}")
        power = slopes[f"power of the {name}: all"]
        above.plot(x, row["together"], "--", color=ink.ink, linewidth=1.2, label=f"together, {name}^{power:.2f}")
        power = slopes[f"power of the {name}: time"]
        below.plot(x, 1e3 * np.array(row["seconds"]), "s-", color=ink.series[2], markersize=4,
                   label=f"measured, {name}^{power:.2f}")  # fmt: skip
        for ax in (above, below):
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.set_xticks(x, [f"{v:g}" for v in x])
            ax.minorticks_off()
            ax.margins(y=0.22)  # for the legend
            legend(ax, ink, loc="upper left")
    return figure


def lines(
    x: Any, table: Mapping[str, Any], title: str, labels: tuple[str, str], log: bool = False, dark: bool = False
) -> Any:
    """Lines over the same places, {name: values}; labels are of x and of y; with `log`, x is logarithmic."""
    ink = ink_of(dark)
    figure = new_figure(4.6, 3.2, dark)
    ax = dress(figure.subplots(), ink, x=labels[0], y=labels[1])
    headline(figure, ink, title)
    for k, (name, values) in enumerate(table.items()):
        mark = MARKS[k % len(MARKS)]
        ax.plot([*x], [*values], marker=mark, markersize=4, color=ink.series[k % len(ink.series)], label=name)
    if log:
        ax.set_xscale("log", base=2)
        ax.set_xticks(x, [f"{value:g}" for value in x], rotation=45)
        ax.minorticks_off()
    else:
        ax.xaxis.get_major_locator().set_params(integer=True)
    legend(ax, ink)
    return figure


def rows(images: np.ndarray, names: Sequence[str], dark: bool = False) -> Any:
    """Pictures (rows, columns, height, width), each row with its name."""
    ink = ink_of(dark)
    figure = new_figure(0.6 * images.shape[1] + 0.6, 0.62 * images.shape[0], dark)
    axes = figure.subplots(*images.shape[:2], squeeze=False)
    for row, name, pictures in zip(axes, names, images, strict=True):
        for ax, picture in zip(row, pictures, strict=True):
            dress(ax, ink, grid=False)
            ax.set(xticks=[], yticks=[])
            ax.imshow(picture, cmap="gray", vmin=float(images.min()), vmax=float(images.max()))
        row[0].set_ylabel(name, color=ink.ink, fontsize=SIZE, rotation=0, ha="right", va="center")
    return figure
