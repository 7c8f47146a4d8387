"""Pictures of fitted models, of plain arrays: coefficients, residuals, intervals, sets, learning curves.

As in `wonderland.train.pictures`, each is a matplotlib Figure that belongs to nobody, for light paper or for dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from wonderland.train.ink import dress, headline, ink_of, legend, new_figure


def coefficients(
    names: Sequence[str], values: np.ndarray, lower: Any = None, upper: Any = None, title: str = "", most: int = 25,
    dark: bool = False,
) -> Any:  # fmt: skip
    """Coefficients by name, the largest first, with their intervals where they are given; hollow if 0 is inside."""
    ink = ink_of(dark)
    values = np.asarray(values, float)
    chosen = np.argsort(-np.abs(values), kind="stable")[:most][::-1]
    left = f" ({len(chosen)} of {len(values)})" if len(chosen) < len(values) else ""
    figure = new_figure(5.4, 0.23 * len(chosen) + 1.0, dark)
    ax = dress(figure.subplots(), ink, x="coefficient")
    headline(figure, ink, (title or "coefficients") + left)
    places = np.arange(len(chosen))
    ax.axvline(0, color=ink.ink, linewidth=0.8)
    sure = np.ones(len(chosen), bool)
    if lower is not None and upper is not None:
        low, high = np.asarray(lower, float)[chosen], np.asarray(upper, float)[chosen]
        ax.hlines(places, low, high, color=ink.series[0], linewidth=2)
        sure = (low > 0) | (high < 0)
    ax.scatter(values[chosen], places, s=26, color=[ink.series[0] if s else ink.paper for s in sure],
               edgecolors=ink.series[0], zorder=3)  # fmt: skip
    ax.set_yticks(places, [_short(str(names[i])) for i in chosen])
    ax.grid(False, axis="y")
    return figure


def residuals(prediction: np.ndarray, target: np.ndarray, dark: bool = False) -> Any:
    """What was predicted against what was true, and how the errors are spread."""
    ink = ink_of(dark)
    figure = new_figure(7.2, 3.4, dark)
    left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
    dress(left, ink, x="true", y="predicted")
    dress(right, ink, x="predicted − true", y="count")
    error = prediction - target
    headline(figure, ink, f"predictions are off by {np.mean(np.abs(error)):.3g} on average")
    ends = [float(min(prediction.min(), target.min())), float(max(prediction.max(), target.max()))]
    left.plot(ends, ends, "--", color=ink.ink, linewidth=1, label="as it should be")
    left.scatter(target, prediction, s=14, color=ink.series[0], alpha=0.75, linewidths=0)
    legend(left, ink, loc="upper left")
    right.hist(error, bins=min(30, max(8, len(error) // 6)), color=ink.series[0], alpha=0.9)
    right.axvline(0, linestyle="--", color=ink.ink, linewidth=1)
    right.yaxis.get_major_locator().set_params(integer=True)
    return figure


def quantiles(prediction: np.ndarray, target: np.ndarray, dark: bool = False) -> Any:
    """Are errors alike everywhere, and Gaussian? Against predictions, and against the quantiles of a Gaussian."""
    ink = ink_of(dark)
    figure = new_figure(7.2, 3.4, dark)
    left, right = figure.subplots(1, 2)
    error = target - prediction
    spread = float(np.std(error)) or 1.0
    dress(left, ink, x="predicted", y="true − predicted")
    dress(right, ink, x="quantile of a Gaussian", y="error / its deviation")
    headline(figure, ink, "are the errors alike everywhere, and Gaussian?")
    left.scatter(prediction, error, s=14, color=ink.series[0], alpha=0.75, linewidths=0)
    left.axhline(0, linestyle="--", color=ink.ink, linewidth=1)
    ordered = np.sort((error - error.mean()) / spread)
    expected = ndtri((np.arange(len(ordered)) + 0.5) / len(ordered))
    ends = [float(expected[0]), float(expected[-1])]
    right.plot(ends, ends, "--", color=ink.ink, linewidth=1)
    right.scatter(expected, ordered, s=14, color=ink.series[0], alpha=0.75, linewidths=0)
    return figure


def intervals(
    target: np.ndarray, prediction: np.ndarray, lower: np.ndarray, upper: np.ndarray, most: int = 120,
    dark: bool = False,
) -> Any:  # fmt: skip
    """Intervals in the order of predictions, with what was true: blue inside, orange outside of its interval.

    An end that is infinite is at the edge of the picture.
    """
    ink = ink_of(dark)
    figure = new_figure(7.2, 3.2, dark)
    ax = dress(figure.subplots(), ink, x="samples, by what was predicted", y="target")
    inside = (lower <= target) & (target <= upper)
    width = np.mean(upper - lower)
    wide = f"mean width {width:.3g}" if np.isfinite(width) else "without an end on one side or both"
    headline(figure, ink, f"{np.mean(inside):.1%} of {len(target)} inside, {wide}")
    shown = np.concatenate([target, prediction, lower, upper])
    shown = shown[np.isfinite(shown)]
    edge = 0.05 * np.ptp(shown)
    lower, upper = (np.clip(end, np.min(shown) - edge, np.max(shown) + edge) for end in (lower, upper))
    chosen = np.unique(np.linspace(0, len(target) - 1, min(most, len(target))).astype(int))
    order = np.argsort(prediction, kind="stable")[chosen]
    place = np.arange(len(order))
    ax.vlines(place, lower[order], upper[order], color=ink.faint, linewidth=3)
    ax.plot(place, prediction[order], color=ink.ink, linewidth=1, label="prediction")
    for good, color, name in ((True, ink.series[0], "inside"), (False, ink.series[1], "outside")):
        there = inside[order] == good
        ax.scatter(place[there], target[order][there], s=12, color=color, label=name, zorder=3)
    ax.set_xticks([])
    legend(ax, ink, loc="upper left", ncols=3)
    return figure


def set_sizes(sets: np.ndarray, labels: np.ndarray, dark: bool = False) -> Any:
    """How many classes are in the sets (n, classes) of True and False, and how often the true one is, by size."""
    ink = ink_of(dark)
    size, right = sets.sum(axis=1), sets[np.arange(len(labels)), labels]
    figure = new_figure(4.8, 3.2, dark)
    ax = dress(figure.subplots(), ink, x="classes in the set", y="samples")
    headline(figure, ink, f"{right.mean():.1%} of sets have the true class, {size.mean():.2f} classes on average")
    sizes = np.arange(size.min(), size.max() + 1)
    good = np.array([np.sum(right[size == k]) for k in sizes])
    bad = np.array([np.sum(~right[size == k]) for k in sizes])
    ax.bar(sizes, good, color=ink.series[0], label="with the true class")
    ax.bar(sizes, bad, bottom=good, color=ink.series[1], label="without it")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.margins(y=0.12)
    legend(ax, ink)
    return figure


def learning_curve(
    sizes: np.ndarray, training: np.ndarray, held_out: np.ndarray, score: str = "score", dark: bool = False
) -> Any:
    """Scores (sizes, folds) of fits to more and more samples: on those, and on samples held out."""
    ink = ink_of(dark)
    figure = new_figure(4.8, 3.2, dark)
    ax = dress(figure.subplots(), ink, x="training samples", y=score)
    headline(figure, ink, f"held out: {held_out[-1].mean():.3g} ± {held_out[-1].std():.2g} with {sizes[-1]} samples")
    for k, (name, values) in enumerate((("training", training), ("held out", held_out))):
        mean, spread = values.mean(axis=1), values.std(axis=1)
        ax.fill_between(sizes, mean - spread, mean + spread, color=ink.series[k], alpha=0.2, linewidth=0)
        ax.plot(sizes, mean, "o-", markersize=4, color=ink.series[k], label=name)
    if score == "R²":  # of few samples it may be -100, which would set the scale
        ax.set_ylim(bottom=max(ax.get_ylim()[0], -0.5))
    legend(ax, ink)
    return figure


def _short(name: str, most: int = 28) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
