"""`wl.train.pictures`: what training looks like, as matplotlib Figures.

    figure = train.pictures.curves(history)
    figure.savefig("curves.png", dpi=150)

Each function returns a new Figure that belongs to nobody (pyplot isn't used, so nothing needs to be closed), drawn for
light paper, or for dark with `dark=True`; inside of `train.report` it is light or dark as the page is. Colours are safe
for the colour-blind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wonderland.core.tracebacks import publish as _publish
from wonderland.train.ink import BETWEEN, SIZE, Ink, dress, headline, ink_of, legend, new_figure, note, rgba
from wonderland.train.metrics.calibration import Reliability
from wonderland.train.metrics.calibration import reliability as _binned
from wonderland.train.pictures_text import attention, embedding

__all__ = [
    "attention", "confusion", "curves", "embedding", "filters", "gradient_norms", "mistakes", "reliability",
]  # fmt: skip

NO_CURVES = ("epoch", "seconds", "step")
WITH_COUNTS = 20  # classes of a confusion matrix that are drawn cell by cell


def panels(history: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What is drawn together: a name and its "validation_" one; losses come first, and a rate that changes last."""
    constant = len({*np.asarray(history.get("rate", ())).tolist()}) == 1
    names = [name for name in history if name not in NO_CURVES and not (name == "rate" and constant)]
    found = []
    for name in names:
        if name.startswith("validation_") and name.removeprefix("validation_") in names:
            continue
        found.append(tuple(n for n in (name, f"validation_{name}") if n in names))
    return sorted(found, key=lambda panel: (panel[0] == "rate", "loss" not in panel[0]))


def curves(history: Mapping[str, Any], names: Sequence[str] | None = None, dark: bool = False) -> Any:
    """The values of each epoch as curves: losses, metrics and the rate, training and validation together.

    `history` is a `History`, or a dict of arrays; `names` are those to be drawn (all, unless given). Losses that become
    much smaller have a logarithmic axis. Behind them, thin, are the values of single steps, if there are such.
    """
    chosen = panels(history)
    if names is not None:
        missing = sorted({*names} - {*history})
        if missing:
            raise KeyError(f"curves: the history has no {', '.join(map(repr, missing))}, only {', '.join(history)}")
        chosen = panels({name: history[name] for name in names})
    ink = ink_of(dark)
    columns = min(3, max(1, len(chosen)))
    rows = -(-max(1, len(chosen)) // columns)
    figure = new_figure(3.9 * columns, 2.8 * rows, dark)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes[len(chosen) :]:
        ax.set_axis_off()
    if not chosen or not len(history[chosen[0][0]]):
        for ax in axes:
            note(ax, ink, "no epochs yet")
        return figure
    for ax, panel in zip(axes, chosen):
        _curve(ax, history, panel, ink)
    return figure


def _curve(ax: Any, history: Mapping[str, Any], panel: tuple[str, ...], ink: Ink) -> None:
    first = panel[0]
    dress(ax, ink, title=first.replace("_", " "), x="epoch")
    x = np.asarray(history.get("epoch", np.arange(1, len(history[first]) + 1)), float)
    drawn = [_finite(history[name]) for name in panel]
    every = np.concatenate(drawn)
    if not np.isfinite(every).any():
        note(ax, ink, f"{first}: no finite values")
        ax.set_title("")
        return
    if first in _steps(history):
        where, values = _of_steps(history, first)
        ax.plot(where, values, color=ink.series[0], linewidth=0.6, alpha=0.35)
    for name, y, color, style in zip(panel, drawn, ink.series, ("-", "--")):
        label = None if len(panel) == 1 else "validation" if name.startswith("validation_") else "training"
        marker = ("o" if style == "-" else "s") if len(x) <= 20 or np.isfinite(y).sum() < 0.5 * len(y) else ""
        there = np.isfinite(y) | (label != "validation")  # which isn't measured in every epoch: its curve goes on
        ax.plot(x[there], y[there], style, color=color, linewidth=1.7, marker=marker, markersize=3.5, label=label)
    lost = sum(
        np.sum(np.isinf(values) if name.startswith("validation_") else ~np.isfinite(values))
        for name, values in ((name, np.asarray(history[name], float)) for name in panel)
    )
    if lost:
        ax.set_title(f"{lost} not finite", loc="right", fontsize=SIZE, color=ink.series[1])
    good = every[np.isfinite(every)]
    if "loss" in first and good.min() > 0 and good.max() > 20 * good.min():
        ax.set_yscale("log")
    if x.max() - x.min() < 1:
        ax.set_xlim(x.min() - 1, x.max() + 1)
    ax.xaxis.get_major_locator().set_params(integer=True)
    legend(ax, ink)


def _finite(values: Any) -> np.ndarray:
    values = np.asarray(values, float)
    return np.where(np.isfinite(values), values, np.nan)


def _steps(history: Any) -> Mapping[str, np.ndarray]:
    return getattr(history, "steps", {})


def _of_steps(history: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Where steps are on an axis of epochs, and their values: the last step of epoch 3 is at 3."""
    steps = _steps(history)
    epoch, step = steps["epoch"], steps["step"].astype(float)
    numbers, first = np.unique(epoch, return_index=True)
    starts, ends = step[first] - 1, np.append(step[first[1:]] - 1, step[-1])
    lengths = np.maximum(ends - starts, 1.0)
    if len(lengths) > 1 and epoch[-1] > len(history["epoch"]):  # the last epoch isn't finished
        lengths[-1] = max(lengths[-1], lengths[-2])
    place = np.searchsorted(numbers, epoch)
    return numbers[place] - 1 + (step - starts[place]) / lengths[place], _finite(steps[name])


def gradient_norms(norms: Any, dark: bool = False) -> Any:
    """Norms of gradients at each step, on a logarithmic axis; what isn't finite is marked at the top.

    `norms` is an array, a dict of arrays by name, or a `History`, of whose steps those named "...norm" are drawn.
    """
    if hasattr(norms, "steps"):
        found = {name: values for name, values in norms.steps.items() if name.endswith("norm")}
        if not found:
            said = ", ".join(norms.steps) or "nothing"
            raise KeyError(f"gradient_norms: the steps of the history have no column named ...norm, only {said}")
        norms = found
    elif not isinstance(norms, Mapping):
        norms = {"norm of the gradient": norms}
    ink = ink_of(dark)
    figure = new_figure(3.9, 2.8, dark)
    ax = dress(figure.subplots(), ink, title="gradient norms", x="step")
    for i, (name, values) in enumerate(norms.items()):
        values, color = np.asarray(values, float).reshape(-1), ink.series[i % len(ink.series)]
        step = np.arange(1, len(values) + 1)
        good = np.isfinite(values) & (values > 0)
        ax.plot(step[good], values[good], color=color, linewidth=1.0, label=name, marker="o" if good.sum() < 2 else "")
        bad = step[~np.isfinite(values)]
        if len(bad):
            ax.plot(bad, np.full(len(bad), 0.97), "x", color=ink.series[1], transform=ax.get_xaxis_transform(),
                    label=f"{name}: not finite")  # fmt: skip
    if any(np.any(np.isfinite(v) & (np.asarray(v) > 0)) for v in norms.values()):
        ax.set_yscale("log")
    legend(ax, ink)
    return figure


def confusion(matrix: Any, classes: Sequence[Any] | None = None, dark: bool = False) -> Any:
    """A confusion matrix: what was predicted (columns) for what was true (rows).

    `matrix` are counts, as `train.metrics.confusion_matrix` and `ConfusionMatrix` give them. Shades are fractions of
    the row: blue what was right, orange what was mistaken.
    """
    matrix = np.asarray(getattr(matrix, "value", matrix), float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"confusion: a matrix (classes, classes) is wanted, got shape {matrix.shape}")
    count = len(matrix)
    names = [str(c) for c in (range(count) if classes is None else classes)]
    if len(names) != count:
        raise ValueError(f"confusion: there are {count} classes in the matrix, and {len(names)} names")
    ink = ink_of(dark)
    size = min(7.5, max(3.2, 0.36 * count + 1.2))
    figure = new_figure(size, size + 0.1, dark)
    total, right = matrix.sum(), np.trace(matrix)
    said = f"{right / total:.1%} right, {total - right:g} of {total:g} wrong" if total > 0 else "no samples"
    ax = dress(figure.subplots(), ink, grid=False, x="predicted", y="true")
    headline(figure, ink, said)
    rows = matrix.sum(axis=1, keepdims=True)
    part = np.divide(matrix, rows, out=np.zeros_like(matrix), where=rows > 0)
    shade = np.where(part > 0, 0.18 + 0.82 * part, 0)
    if count <= WITH_COUNTS:
        _cells(ax, matrix, shade, ink)
    else:
        blue, orange = (np.array([int(BETWEEN[i][k : k + 2], 16) / 255 for k in (1, 3, 5)]) for i in (0, 1))
        colors = np.where(np.eye(count, dtype=bool)[..., None], blue, orange)
        shade = np.where(part > 0, 0.2 + 0.8 * np.sqrt(part), 0)
        ax.imshow(np.concatenate([colors, shade[..., None]], -1), interpolation="nearest", extent=(0, count, count, 0))
    ax.set(xlim=(0, count), ylim=(count, 0), aspect="equal")
    some = np.arange(0, count, -(-count // 30))
    wide = max(len(name) for name in names) > 3 and count > 3
    ax.set_xticks(some + 0.5, [_short(names[i]) for i in some], rotation=90 if wide else 0)
    ax.set_yticks(some + 0.5, [_short(names[i]) for i in some])
    ax.tick_params(length=0)
    return figure


def _short(name: str, most: int = 16) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _cells(ax: Any, matrix: np.ndarray, shade: np.ndarray, ink: Ink) -> None:
    from matplotlib.patches import Rectangle

    for i, j in np.ndindex(*matrix.shape):
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor="none", edgecolor=ink.faint, linewidth=0.5))
        if not matrix[i, j]:
            continue
        color = ink.series[0 if i == j else 1]
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor=color, alpha=float(shade[i, j]), linewidth=0))
        text = f"{matrix[i, j]:g}" if matrix[i, j] >= 1 or matrix[i, j] == 0 else f"{matrix[i, j]:.2f}"
        over = ink.paper if shade[i, j] > 0.6 else ink.ink
        ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=over, fontsize=min(SIZE, 28 / len(text)))


def reliability(probabilities: Any, target: Any = None, bins: int = 10, dark: bool = False) -> Any:
    """The reliability diagram: how often things happened that were predicted with some probability.

    Takes probabilities and targets, or what `train.metrics.reliability` made of them. Bars below the diagonal mean that
    the model was too sure. Below is how many predictions are in each bin.
    """
    data = probabilities if isinstance(probabilities, Reliability) else _binned(probabilities, target, bins)
    ink = ink_of(dark)
    figure = new_figure(3.6, 4.2, dark)
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    error = data.error()
    said = "no predictions" if math.isnan(error) else f"calibration error {error:.3f}"
    headline(figure, ink, said)
    dress(top, ink, y="fraction that was right")
    dress(below, ink, x="predicted probability", y="count")
    centre, width = (data.edges[1:] + data.edges[:-1]) / 2, np.diff(data.edges) * 0.94
    there = data.count > 0
    top.bar(centre[there], data.accuracy[there], width[there], color=ink.series[0], label="right")
    low = np.minimum(data.accuracy, data.confidence)[there]
    gap = np.abs(data.confidence - data.accuracy)[there]
    top.bar(centre[there], gap, width[there], low, facecolor="none", edgecolor=ink.series[1], hatch="////",
            linewidth=1.0, label="gap to the prediction")  # fmt: skip
    top.plot([0, 1], [0, 1], "--", color=ink.ink, linewidth=1)
    top.set(xlim=(0, 1), ylim=(0, 1.02))
    below.bar(centre, data.count, width, color=ink.series[0])
    below.yaxis.get_major_locator().set_params(nbins=2, integer=True)
    legend(top, ink, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2, columnspacing=1.2)
    return figure


def filters(weight: Any, most: int = 64, dark: bool = False) -> Any:
    """The weights of a convolution as small pictures, one for each filter: blue is positive, orange negative, white 0.

    `weight` is (out, in, height, width), (out, in, length), or a layer that has such a `.weight`. With 3 inputs they
    are shown as red, green and blue; with more, each row is a filter and each column an input. At most `most` filters.
    """
    weight = np.asarray(getattr(weight, "weight", weight), float)
    if weight.ndim == 3:
        weight = weight[:, :, None, :]
    if weight.ndim != 4 or 0 in weight.shape:
        raise ValueError(f"filters: weights are (out, in, *kernel) of 1 or 2 dimensions, got shape {weight.shape}")
    every, inputs = weight.shape[:2]
    weight = weight[:most]
    limit = float(np.max(np.abs(weight), where=np.isfinite(weight), initial=0.0)) or 1.0
    shown = f"{len(weight)} of {every} filters" if len(weight) < every else f"{every} filter{'s' * (every != 1)}"
    if inputs == 3:
        colors = np.clip(np.nan_to_num(weight.transpose(0, 2, 3, 1) / limit) / 2 + 0.5, 0, 1)
        tiles = np.concatenate([colors, np.ones((*colors.shape[:3], 1))], axis=-1)
        columns = math.ceil(math.sqrt(len(tiles) * tiles.shape[1] / tiles.shape[2]))
        said = f"{shown} (grey is 0)"
    else:
        chosen = weight if inputs == 1 else weight[:, :32]
        tiles = rgba(chosen, limit).reshape(-1, *weight.shape[2:], 4)
        columns = math.ceil(math.sqrt(len(tiles))) if inputs == 1 else chosen.shape[1]
        of = f" (rows) of {inputs} inputs" if inputs > 1 else ""
        said = f"{shown}{of}\norange −{limit:.2g}, white 0, blue {limit:.2g}"
    return _grid(tiles, columns, said, dark)


def _grid(tiles: np.ndarray, columns: int, title: str, dark: bool) -> Any:
    """Tiles (n, height, width, 4) as one picture, with gaps between them."""
    _, height, width, _ = tiles.shape
    columns = max(1, min(columns, len(tiles)))
    rows = -(-len(tiles) // columns)
    times = max(1, round(24 / max(height, width)))  # so that gaps are fine lines
    tiles = tiles.repeat(times, 1).repeat(times, 2)
    height, width, gap = height * times, width * times, 2
    picture = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap, 4))
    for i, tile in enumerate(tiles):
        y, x = i // columns * (height + gap), i % columns * (width + gap)
        picture[y : y + height, x : x + width] = tile
    ink = ink_of(dark)
    across = min(4.2, max(2.6, 0.5 * columns))
    figure = new_figure(across, min(9.0, max(1.2, across * picture.shape[0] / picture.shape[1] + 0.5)), dark)
    ax = dress(figure.subplots(), ink, grid=False)
    ax.imshow(picture, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    headline(figure, ink, title)
    return figure


def mistakes(
    images: Any, predicted: Any, target: Any, probabilities: Any = None, *, classes: Sequence[Any] | None = None,
    most: int = 24, dark: bool = False,
) -> Any:  # fmt: skip
    """The worst mistakes of a classifier: pictures, what they are, and what was said.

    `images` are (n, height, width), with 1 or 3 channels first or last if any; `predicted` and `target` labels (n,).
    With `probabilities` (n, classes), those come first whose true class was thought least likely; without any mistake,
    it shows what was least sure.
    """
    images, predicted, target = np.asarray(images), np.asarray(predicted), np.asarray(target)
    if predicted.shape != target.shape or target.ndim != 1 or len(images) != len(target):
        raise ValueError(
            f"mistakes: n images, n labels predicted and n true are wanted, got {images.shape}, {predicted.shape} and "
            f"{target.shape}"
        )
    wrong = np.flatnonzero(predicted != target)
    if probabilities is not None:
        probabilities = np.asarray(probabilities, float)
        if probabilities.ndim != 2 or len(probabilities) != len(target):
            raise ValueError(f"mistakes: probabilities are ({len(target)}, classes), got {probabilities.shape}")
        wrong = wrong[np.argsort(probabilities[wrong, target[wrong]], kind="stable")]
    ink = ink_of(dark)
    shown = wrong[:most]
    left = f", the worst {len(shown)}" if len(shown) < len(wrong) else ""
    title = f"{len(wrong)} of {len(target)} mistaken{left} (true → said)"
    if not len(wrong) and len(target) and probabilities is not None:
        shown = np.argsort(probabilities[np.arange(len(target)), target], kind="stable")[: min(most, 12)]
        title = f"no mistakes among {len(target)}, the least sure (true → said)"
    columns = max(1, min(6, len(shown)))
    rows = max(1, -(-len(shown) // columns))
    across = max(3.2, 0.7 * columns)
    figure = new_figure(across, (across / columns + 0.38) * rows + 0.35 if len(shown) else 1.2, dark)
    if not len(shown):
        note(figure.subplots(), ink, f"no mistakes among {len(target)}")
        return figure
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes:
        ax.set_axis_off()
    finite = images[shown][np.isfinite(images[shown])]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    for ax, i in zip(axes, shown):
        ax.imshow(_picture(images[i]), cmap="gray", vmin=low, vmax=high if high > low else low + 1)
        said, true = (str(labels if classes is None else classes[labels]) for labels in (predicted[i], target[i]))
        sure = "" if probabilities is None else f" {probabilities[i, predicted[i]]:.0%}"
        ax.set_title(f"{_short(true, 9)} → {_short(said, 9)}\n{sure}".rstrip(), color=ink.ink, fontsize=SIZE - 1)
    headline(figure, ink, title)
    return figure


def _picture(image: np.ndarray) -> np.ndarray:
    """An image as matplotlib wants it: (height, width) or (height, width, 3)."""
    if image.ndim == 3 and image.shape[0] in (1, 3) and image.shape[-1] not in (1, 3):
        image = np.moveaxis(image, 0, -1)
    if image.ndim == 3 and image.shape[-1] == 1:
        image = image[..., 0]
    if image.ndim == 3 and image.shape[-1] == 3 and image.dtype.kind == "f":
        low, high = np.nanmin(image), np.nanmax(image)
        image = np.clip(image, 0, 1) if 0 <= low and high <= 1 else (image - low) / max(high - low, 1e-12)
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[-1] != 3):
        raise ValueError(f"mistakes: an image is (height, width), with 1 or 3 channels if any, got {image.shape}")
    return image


_publish(__name__, globals(), __all__)
