"""The paper and the colours of pictures: figures without pyplot's global state, in light and dark, and as SVG or PNG.

Colours are those of Okabe and Ito, which people tell apart whatever their sight; in the dark they are lighter.
"""

from __future__ import annotations

import functools
import io
import re
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Ink:
    """Colours of a picture: the background, text and axes, fine lines, and those of data."""

    paper: str
    ink: str
    faint: str
    series: tuple[str, ...]


LIGHT = Ink("#ffffff", "#1f2328", "#d1d9e0", ("#0072b2", "#d55e00", "#009e73", "#c0619a", "#b87f00", "#3a98d0"))
DARK = Ink("#0f1318", "#e6edf3", "#3d444e", ("#52aee6", "#ff8f45", "#35cda1", "#e8a3cb", "#f5bd4f", "#93cff7"))
BETWEEN = ("#2a8fcf", "#e8740f")  # for pixels, which are the same on light and dark
SIZE = 9.0  # of text, in points


def ink_of(dark: bool) -> Ink:
    """The colours for light or dark."""
    return DARK if dark else LIGHT


def new_figure(width: float, height: float, dark: bool) -> Any:
    """An empty matplotlib Figure of so many inches. It belongs to nobody: nothing to close, no window."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("train.pictures needs Matplotlib, which isn't installed: pip install matplotlib") from None
    figure: Any = Figure(figsize=(width, height), layout="constrained", facecolor=ink_of(dark).paper)
    figure.wonderland_ink = "dark" if dark else "light"
    figure._repr_png_ = functools.partial(png, figure)  # what a notebook shows
    return figure


def dress(ax: Any, ink: Ink, grid: bool = True, title: str = "", x: str = "", y: str = "") -> Any:
    """Axes with our colours, without a box, whatever the user's settings of matplotlib are."""
    ax.set_facecolor("none")
    for side, spine in ax.spines.items():
        spine.set_visible(grid and side in ("left", "bottom"))
        spine.set(color=ink.ink, linewidth=0.8)
    ax.tick_params(which="both", color=ink.ink, labelcolor=ink.ink, labelsize=SIZE, width=0.8)
    ax.set_axisbelow(True)
    ax.grid(False)
    if grid:
        ax.grid(True, color=ink.faint, linewidth=0.6, linestyle="-")
    ax.set_title(title, color=ink.ink, fontsize=SIZE + 1, loc="left", fontweight="bold")
    ax.set_xlabel(x, color=ink.ink, fontsize=SIZE)
    ax.set_ylabel(y, color=ink.ink, fontsize=SIZE)
    return ax


def headline(figure: Any, ink: Ink, text: str) -> None:
    """A title that begins at the left of the figure, whatever stands beside the axes."""
    figure.suptitle(text, color=ink.ink, fontsize=SIZE + 1, x=0.02, ha="left")


def legend(ax: Any, ink: Ink, **where: Any) -> None:
    """A legend in our colours, if there is something to say."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=SIZE, labelcolor=ink.ink, frameon=False, **where)


def note(ax: Any, ink: Ink, text: str) -> None:
    """Text instead of a picture."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, text, ha="center", va="center", color=ink.ink, fontsize=SIZE + 1, transform=ax.transAxes)


def png(figure: Any, dpi: float = 144) -> bytes:
    """A figure as the bytes of a PNG file."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi)
    return out.getvalue()


# Inside a page

VARIABLES = {  # the colours of both palettes -> the page's
    color: f"var(--{name})"
    for ink in (LIGHT, DARK)
    for name, color in [("paper", ink.paper), ("ink", ink.ink), ("faint", ink.faint)]
    + [(f"series-{i}", color) for i, color in enumerate(ink.series)]
}
FONT = re.compile(r"font-family: [^;\"]+")
SHORT_FONT = re.compile(r"(font: [^;\"]*?\d(?:px|pt)) [^;\"]+")


def css(ink: Ink) -> str:
    """The values of the variables that pictures inside a page use."""
    named = {"paper": ink.paper, "ink": ink.ink, "faint": ink.faint}
    named |= {f"series-{i}": color for i, color in enumerate(ink.series)}
    return " ".join(f"--{name}: {color};" for name, color in named.items())


def svg(figure: Any, prefix: str) -> str:
    """A figure as an SVG element for a page: without links, its ids made unique by `prefix`.

    Our own pictures get the colours of the page, light or dark, and its font; others stay as they are.
    """
    from matplotlib import rc_context

    ours = hasattr(figure, "wonderland_ink")
    out = io.StringIO()
    with rc_context({"svg.fonttype": "none" if ours else "path", "svg.hashsalt": prefix, "svg.image_inline": True}):
        figure.savefig(out, format="svg", transparent=ours, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    if ours:
        for color, variable in VARIABLES.items():
            text = text.replace(color, variable)
        text = SHORT_FONT.sub(r"\1 sans-serif", FONT.sub("font-family: inherit", text))
    return text


def rgba(values: np.ndarray, limit: float | None = None) -> np.ndarray:
    """Numbers around 0 as colours: orange below, white at 0, blue above; NaN is transparent."""
    low, middle, high = (np.array(c) for c in ((0.70, 0.31, 0.0), (0.97, 0.97, 0.97), (0.0, 0.36, 0.60)))
    with np.errstate(invalid="ignore"):
        limit = limit or float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0)) or 1.0
        part = np.clip(np.nan_to_num(values / limit), -1, 1)[..., None]
    colors = np.where(part < 0, middle + (middle - low) * part, middle + (high - middle) * part)
    return np.concatenate([colors, np.isfinite(values)[..., None].astype(float)], axis=-1)
