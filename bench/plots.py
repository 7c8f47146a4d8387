"""Measured figures come in; charts go out as PNG files.

Colours are Okabe and Ito's, which people with colour-blindness tell apart; markers and labels say the same again.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

from bench.report import number, seconds

BLUE, ORANGE, GREEN, PURPLE, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A8A8A", "#222222"
STYLES = {  # colour, marker, line
    "wonderland": (BLUE, "o", "-"),
    "numpy": (GREY, "s", "-"),
    "torch": (ORANGE, "^", "-"),
    "jax": (GREEN, "D", "-"),
    "wonderland, elementwise": (BLUE, "o", "-"),
    "wonderland, layers": (BLUE, "s", "--"),
    "jax, elementwise": (GREEN, "D", "-"),
    "jax, layers": (GREEN, "^", "--"),
}
NAMES = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX", "jax.forward": "JAX, forward mode"}
plt.rcParams.update(
    {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#888888",
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "figure.dpi": 150,
    }
)


def origin(record: dict[str, Any]) -> str:
    """Where the figures come from, in one line."""
    machine = record["environment"]
    versions = machine["versions"]
    peers = [("NumPy", "numpy"), ("PyTorch", "torch"), ("JAX", "jax")]
    named = ", ".join(f"{title} {versions[name]}" for title, name in peers if name in versions)
    when = f"{machine['date'][:10]}, commit {machine['commit']}"
    return f"{machine['cpu']}, {machine['threads']} threads; {named}; {when}"


def table(record: dict[str, Any], path: Path) -> None:
    """Our time over the best peer's: a dot with its quartiles per benchmark, a bar at its limit."""
    results = [r for r in record["results"] if r["verdict"] != "failed"]
    groups = [(group, list(members)) for group, members in groupby(results, lambda r: r["group"])]
    height = len(results) + 1.6 * len(groups)
    figure, axes = plt.subplots(figsize=(8.6, 0.205 * height + 1.5), layout="constrained")
    ticks, place = [], 0.0
    for group, members in groups:
        axes.text(0.0, place, group, transform=axes.get_yaxis_transform(), fontsize=9, fontweight="bold", va="center")
        place += 1
        for result in members:
            dot(axes, result, place)
            ticks.append((place, result["benchmark"]))
            place += 1
        place += 0.6
    axes.set_xscale("log")
    axes.set_ylim(place - 0.4, -1)
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.05), max(high, 2) * 2.4)  # room for the peers' names
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.axvline(1, color=INK, linewidth=0.8, zorder=0)
    axes.grid(axis="x", which="major", color="#E4E4E4", linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.set_yticks([y for y, _ in ticks], [label for _, label in ticks], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("our time / the best peer's (log scale; less than 1 is faster)")
    legend = [
        Line2D([], [], color=BLUE, marker="o", linestyle="", label="within the limit"),
        Line2D([], [], color=ORANGE, marker="X", linestyle="", label="beyond it"),
        Line2D([], [], color=INK, marker="|", markersize=11, markeredgewidth=2, linestyle="", label="limit"),
    ]
    axes.legend(handles=legend, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, fontsize=9)
    figure.supxlabel(origin(record), fontsize=7, color="#666666")
    figure.savefig(path)
    plt.close(figure)


def dot(axes: Any, result: dict[str, Any], y: float) -> None:
    ratio = result["ratios"][result["peer"]]
    met = result["verdict"] != "MISS"
    colour, marker = (BLUE, "o") if met else (ORANGE, "X")
    axes.plot([ratio["lower"], ratio["upper"]], [y, y], color=colour, linewidth=2.4, alpha=0.4, solid_capstyle="round")
    axes.plot(ratio["median"], y, marker, color=colour, markersize=6)
    if result["limit"] is not None:
        axes.plot(result["limit"], y, "|", color=INK, markersize=9, markeredgewidth=1.8)
    peer = NAMES.get(result["peer"], result["peer"])
    text = f"{number(ratio['median'])}  {peer}"
    if result["seconds"]:
        own = result["times"]["wonderland"]["median"]
        text = f"{seconds(own)}, limit {seconds(result['seconds'])}"
    right = max(ratio["upper"], result["limit"] or 0.0)
    axes.annotate(text, (right, y), (7, 0), textcoords="offset points", va="center", fontsize=7, color="#555555")


LABELS = {  # x, y, and what a point of (x, seconds) becomes
    "size": ("elements", "nanoseconds per element", lambda x, s: 1e9 * s / x),
    "gemm": ("n, of n x n float32 matrices", "GFLOP/s", lambda n, s: 2e-9 * n**3 / s),
    "equations": ("equations of an unrolled loop", "seconds of the first call", lambda x, s: s),
}
TITLES = {
    "size": "Time per element of an elementwise chain of 6 functions, float32",
    "gemm": "Rate of a matrix product",
    "equations": "Compile time against the length of the program",
}


def growth(study: str, record: dict[str, Any], path: Path) -> None:
    """One line per contender, named at its end, on logarithmic axes."""
    x_label, y_label, convert = LABELS[study]
    figure, axes = plt.subplots(figsize=(7.6, 4.6), layout="constrained")
    ends = []
    for name, points in record[study].items():
        colour, marker, style = STYLES[name]
        xs = [x for x, _ in points]
        ys = [convert(x, s) for x, s in points]
        front = name.startswith("wonderland")
        width, order = (2.2, 3) if front else (1.5, 2)
        axes.plot(xs, ys, style, marker=marker, color=colour, markersize=5, linewidth=width, zorder=order)
        who, *rest = name.split(", ")
        ends.append((xs[-1], ys[-1], ", ".join([str(NAMES.get(who, who)), *rest]), colour))
    axes.set_xscale("log")
    axes.set_yscale("log")
    if study == "equations":
        proportional(axes, record[study])
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    if study == "gemm":
        largest = max(n for points in record[study].values() for n, _ in points)
        shown = [n for n in (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096) if n <= largest]
        axes.set_xticks(shown, [str(n) for n in shown])
        axes.minorticks_off()
    axes.grid(which="major", color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(TITLES[study], fontsize=11, loc="left")
    name_lines(axes, ends)
    figure.supxlabel(origin(record), fontsize=7, color="#666666")
    figure.savefig(path)
    plt.close(figure)


def proportional(axes: Any, series: dict[str, list[tuple[float, float]]]) -> None:
    """A line of slope 1 through our last point: what linear growth looks like."""
    points = series.get("wonderland, elementwise")
    if not points:
        return
    x, s = points[-1]
    axes.plot([x / 100, x], [s / 100, s], ":", color=INK, linewidth=1, zorder=1)
    axes.annotate("proportional", (x / 100, s / 100), (4, -10), textcoords="offset points", fontsize=8, color=INK)


def name_lines(axes: Any, ends: list[tuple[float, float, str, str]]) -> None:
    """Names to the right of the lines' ends, moved apart where they would lie on each other."""
    figure = axes.figure
    figure.canvas.draw()
    height = 9.5 * figure.dpi / 72 * 1.25
    below = -1e9
    for x, y, name, colour in sorted(ends, key=lambda end: end[1]):
        at = axes.transData.transform((x, y))[1]
        shift = max(0.0, below + height - at)
        below = at + shift
        axes.annotate(
            name,
            (x, y),
            (8, shift * 72 / figure.dpi),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=9.5,
            annotation_clip=False,
        )
