"""What was prepared, to read and to look at: sizes, colours, cost; the pattern in the colours of its products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wonderland.sparse.coloring import Coloring

if TYPE_CHECKING:
    from wonderland.sparse.prepared import Prepared

# Okabe and Ito's colours, which people with colour-blindness tell apart.
PALETTE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#000000"
MOST_CELLS = 60  # rows or columns up to which lines are drawn between the entries
MOST_PIXELS = 700  # of a side: several entries of a larger matrix share one


def report(prepared: Prepared, name: str) -> str:
    """Sizes, density, colours, cost against the dense derivative, and where the time of preparation went."""
    (m, n), nnz, coloring = prepared.shape, prepared.pattern.nnz, prepared.coloring
    rows, columns = np.diff(prepared.pattern.indptr), np.bincount(prepared.pattern.indices, minlength=n)
    lines = [
        f"{name}: {m:,} x {n:,}, {nnz:,} entries ({nnz / max(1, m * n):.3g} of all)",
        f"  per row     {_spread(rows)}",
        f"  per column  {_spread(columns)}",
        f"  products    {_products(prepared)}",
    ]
    dense = min(m, n) if prepared.name == "jacobian" else n
    if coloring.num_colors:
        lines.append(f"  dense takes {dense:,}, {dense / coloring.num_colors:,.3g} times as many")
    if prepared.seconds:
        parts = [f"{what} {seconds:.3g} s" for what, seconds in prepared.seconds.items()]
        lines.append(f"  prepared    {', '.join(parts)}")
    return "\n".join(lines)


def _spread(counts: np.ndarray) -> str:
    if not len(counts):
        return "none"
    return f"{counts.min():,} to {counts.max():,}, {counts.mean():.3g} on average"


def _products(prepared: Prepared) -> str:
    coloring = prepared.coloring
    count = {"forward": coloring.num_column_colors, "reverse": coloring.num_row_colors}
    if prepared.name == "hessian":
        count = {"Hessian times vector": coloring.num_colors}
    said = " and ".join(f"{number:,} ({way})" for way, number in count.items() if number) or "none"
    return f"{said}; partition {coloring.partition}, {coloring.decompression} decompression"


def entry_colors(coloring: Coloring) -> np.ndarray:
    """For each entry, by rows, the number of the product it is read from; by substitution, that of its column."""
    (m, n), pattern = coloring.shape, coloring.pattern
    if coloring.sources is None:
        assert coloring.column_colors is not None
        rows = np.repeat(np.arange(m), np.diff(pattern.indptr))
        by_row = None if coloring.row_colors is None else coloring.num_column_colors + coloring.row_colors[rows]
        by_column = coloring.column_colors[pattern.indices]
        return by_column if by_row is None else np.where(by_column < 0, by_row, by_column)
    columns = coloring.num_column_colors
    rest = coloring.sources - columns * m
    return np.where(rest < 0, coloring.sources // max(1, m), columns + rest // max(1, n))


def plot(coloring: Coloring, ax: Any = None) -> Any:
    """The pattern as a picture, each entry in the colour of its product; returns Matplotlib's axes."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib.colors import to_rgb
    except ImportError:
        raise ImportError("plot() needs Matplotlib, which isn't installed: pip install matplotlib") from None
    (m, n), pattern, count = coloring.shape, coloring.pattern, coloring.num_colors
    if ax is None:
        _, ax = plt.subplots(figsize=(5, 5.4))
    height, width = min(m, MOST_PIXELS), min(n, MOST_PIXELS)
    picture = np.ones((max(1, height), max(1, width), 3))
    rows = np.repeat(np.arange(m), np.diff(pattern.indptr))
    where = rows * height // max(1, m), pattern.indices.astype(np.int64) * width // max(1, n)
    if count <= len(PALETTE):
        shades = np.array([to_rgb(shade) for shade in PALETTE])
    else:
        shades = plt.get_cmap("turbo")(np.linspace(0, 1, count))[:, :3]
    picture[where] = shades[entry_colors(coloring)]
    ax.imshow(picture, extent=(0, max(1, n), max(1, m), 0), interpolation="nearest")
    if max(m, n) <= MOST_CELLS:
        ax.set_xticks(np.arange(n + 1), [""] * (n + 1))
        ax.set_yticks(np.arange(m + 1), [""] * (m + 1))
        ax.tick_params(length=0)
        ax.grid(color="0.85", linewidth=0.6)
    ax.set_title(f"{m:,} x {n:,}, {pattern.nnz:,} entries, {count} product{'s' * (count != 1)}", fontsize=10)
    return ax
