"""The figures of docs/sparse.md, docs/coloring.md and docs/sparse-scipy.md, drawn from the library's own colourings.

Run from the repository: python docs/plots/sparse.py
"""

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle
from scipy import sparse

import wonderland as wl
from wonderland.sparse.report import entry_colors
from wonderland.testing.sparse_problems import brusselator, brusselator_start

INK, LINE, FAINT = "#222222", "#888888", "#DDDDDD"
# Okabe and Ito's colours; numbers beside them say the same again.
COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999"]
DARK = {"#0072B2", "#009E73", "#D55E00"}  # with white letters
IMAGES = Path(__file__).resolve().parent.parent / "images"
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 150})

# The notes' matrices: 4 x 5 (A1.55) and symmetric 4 x 4 (A1.63).
WIDE = np.array([[0, 1, 0, 1, 0], [0, 0, 0, 1, 1], [0, 1, 1, 0, 0], [1, 0, 1, 0, 0]])
SYMMETRIC = np.array([[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]])


def ink_on(color):
    """White on dark colours, black on the others."""
    return "white" if color in DARK else INK


def cells(axes, left, top, labels, colors, size=11):
    """A matrix of squares of side 1 with these labels; a colour of None leaves a square white, a label None empty."""
    for i, row in enumerate(labels):
        for j, label in enumerate(row):
            color = colors[i][j]
            axes.add_patch(Rectangle((left + j, top - i - 1), 1, 1, facecolor=color or "white", edgecolor="white"))
            axes.add_patch(Rectangle((left + j, top - i - 1), 1, 1, fill=False, edgecolor=FAINT, linewidth=0.8))
            if label is not None:
                axes.text(left + j + 0.5, top - i - 0.5, label, ha="center", va="center", fontsize=size,
                          color=ink_on(color))  # fmt: skip


def vertex(axes, place, label, color="white", size=520, marker="o"):
    """A vertex of a graph."""
    axes.scatter(*place, s=size, color=color, edgecolor=INK, linewidth=1, zorder=3, marker=marker)
    axes.text(*place, label, ha="center", va="center", fontsize=10, color=ink_on(color), zorder=4)


def edge(axes, start, end, **style):
    """An edge between two places."""
    axes.plot(*zip(start, end), **{"color": LINE, "linewidth": 1.6, "zorder": 1} | style)


def blank(axes, title=None, **limits):
    """No frame, equal units."""
    axes.set(aspect="equal", **limits)
    axes.axis("off")
    if title:
        axes.set_title(title, fontsize=10, color=INK)


def compression():
    """From the pattern to the entries in four steps, for the notes' 4 x 5 matrix."""
    coloring = wl.sparse.color(WIDE)
    colors = coloring.column_colors
    names = iter("abcdefgh")
    letters = [[next(names) if entry else None for entry in row] for row in WIDE]
    shades = [[COLORS[colors[j]] if entry else None for j, entry in enumerate(row)] for row in WIDE]
    grey = [["#E4E4E4" if entry else None for entry in row] for row in WIDE]
    product = [[None, None] for _ in WIDE]
    for i, j in zip(*np.nonzero(WIDE)):
        product[i][colors[j]] = letters[i][j]

    figure, axes = plt.subplots(figsize=(10.6, 3.55), layout="constrained")
    lefts = [0, 7.4, 15.4, 20.4]
    cells(axes, lefts[0], 4, [["•" if entry else None for entry in row] for row in WIDE], grey)
    cells(axes, lefts[1], 4, [[None] * 5 for _ in WIDE], shades)
    cells(axes, lefts[2], 4, product, [[COLORS[c] for c in range(2)]] * 4)
    cells(axes, lefts[3], 4, letters, shades)
    for j, c in enumerate(colors):
        axes.text(lefts[1] + j + 0.5, 4.4, str(c), ha="center", va="center", fontsize=10, color=INK)
        for k in range(2):  # the seeds, below
            on = coloring.column_seeds(int)[k, j]
            cells(axes, lefts[1] + j, -0.5 - k, [[str(on)]], [[COLORS[k] if on else None]], 9)
    for k in range(2):
        axes.text(lefts[1] - 0.25, -1 - k, f"$v_{k}$", ha="right", va="center", fontsize=10)
        axes.text(lefts[2] + k + 0.5, 4.4, f"$J v_{k}$", ha="center", va="center", fontsize=10)
    titles = ["1. the pattern", "2. colours: one of each a row", "3. products", "4. each entry in its place"]
    for left, width, title in zip(lefts, (5, 5, 2, 5), titles):
        axes.text(left + width / 2, 5.35, title, ha="center", fontsize=10, color=INK)
    for left, right in zip((5, 12.4, 17.4), lefts[1:]):
        axes.annotate("", (right - 0.5, 2), (left + 0.5, 2), arrowprops={"arrowstyle": "-|>", "color": INK})
    blank(axes, xlim=(-0.2, 25.6), ylim=(-2.6, 5.8))
    figure.savefig(IMAGES / "sparse-compression.png")


def graphs():
    """The notes' two graphs of the 4 x 5 matrix: which columns meet, and rows beside columns."""
    figure, (first, second, third) = plt.subplots(1, 3, figsize=(10.4, 2.6), layout="constrained")
    colors = wl.sparse.color(WIDE).column_colors
    places = {0: (0, 0.2), 2: (1.4, 1.8), 1: (2.8, 0.2), 3: (4.2, 1.8), 4: (5.6, 0.2)}
    for i, row in enumerate(WIDE):
        a, b = np.flatnonzero(row)
        edge(first, places[a], places[b])
        middle = np.mean([places[a], places[b]], axis=0)
        first.text(*middle, f"row {i}", fontsize=8, ha="center", va="center", color=INK,
                   bbox={"fc": "white", "ec": "none", "pad": 1})  # fmt: skip
    for j, place in places.items():
        vertex(first, place, str(j), COLORS[colors[j]])
    blank(first, "columns that meet in a row differ", xlim=(-0.45, 6.05), ylim=(-0.5, 2.5))

    for axes, partition, title in (
        (second, "column", "columns two edges apart differ"), (third, "row", "or rows two edges apart"),
    ):  # fmt: skip
        coloring = wl.sparse.color(WIDE, partition)
        for i, j in zip(*np.nonzero(WIDE)):
            edge(axes, (j, 2), (i + 0.5, 0))
        for j in range(5):
            shade = "white" if coloring.column_colors is None else COLORS[coloring.column_colors[j]]
            vertex(axes, (j, 2), str(j), shade)
        for i in range(4):
            shade = "white" if coloring.row_colors is None else COLORS[coloring.row_colors[i]]
            vertex(axes, (i + 0.5, 0), str(i), shade, 420, "s")
        axes.text(-0.55, 2, "columns", ha="right", va="center", fontsize=9, color=INK)
        axes.text(-0.55, 0, "rows", ha="right", va="center", fontsize=9, color=INK)
        blank(axes, title, xlim=(-2.0, 4.5), ylim=(-0.5, 2.5))
    figure.savefig(IMAGES / "coloring-graphs.png")


def symmetric():
    """The notes' symmetric matrix: star colouring and acyclic colouring, and what their products show."""
    names = iter("1234567")
    entry = np.full((4, 4), None, object)
    for i, j in zip(*np.nonzero(np.triu(SYMMETRIC))):
        entry[i, j] = entry[j, i] = f"a_{next(names)}"
    places = {2: (0, 1), 0: (1, 0.25), 1: (2, 1), 3: (3, 0.25)}
    figure, rows = plt.subplots(2, 1, figsize=(10, 4.9), layout="constrained")
    for axes, decompression in zip(rows, ("direct", "substitution")):
        coloring = wl.sparse.color(SYMMETRIC, "symmetric", decompression)
        colors, count = coloring.column_colors, coloring.num_colors
        shades = [[COLORS[colors[j]] if SYMMETRIC[i, j] else None for j in range(4)] for i in range(4)]
        cells(axes, 0, 4, [[f"${name}$" if name else None for name in row] for row in entry], shades)
        for j in range(4):
            axes.text(j + 0.5, 4.4, str(colors[j]), ha="center", va="center", fontsize=10, color=INK)
        spots = {v: (6.2 + 1.9 * x, 0.6 + 2.4 * y) for v, (x, y) in places.items()}
        for i, j in zip(*np.nonzero(np.triu(SYMMETRIC, 1))):
            edge(axes, spots[i], spots[j])
            middle = np.mean([spots[i], spots[j]], axis=0)
            axes.text(*middle, f"${entry[i, j]}$", fontsize=10, ha="center", va="center", color=INK,
                      bbox={"fc": "white", "ec": "none", "pad": 1})  # fmt: skip
        for v, spot in spots.items():
            vertex(axes, spot, str(v), COLORS[colors[v]], 460)
        left = 15.4
        for i in range(4):
            for k in range(count):
                terms = [entry[i, j] for j in range(4) if colors[j] == k and SYMMETRIC[i, j]]
                alone = len(terms) == 1
                color = COLORS[k] if alone else None
                x, y = left + 1.6 * k, 3 - i
                axes.add_patch(Rectangle((x, y), 1.6, 1, facecolor=color or "white", edgecolor=FAINT, linewidth=0.8))
                text = "$" + " + ".join(terms) + "$" if terms else "0"
                axes.text(x + 0.8, y + 0.5, text, ha="center", va="center", fontsize=11, color=ink_on(color))
        for k in range(count):
            axes.text(left + 1.6 * k + 0.8, 4.4, f"$J v_{k}$", ha="center", va="center", fontsize=10)
        said = (
            "every entry stands alone\nsomewhere: read it there"
            if decompression == "direct"
            else "$a_3$ and $a_5$ stand alone;\nthen $a_2 = (a_2 + a_3) - a_3$"
        )
        axes.text(left + 5.2, 2, said, ha="left", va="center", fontsize=10, color=INK)
        name = "star: direct" if decompression == "direct" else "acyclic: substitution"
        axes.text(0, 5.2, f"{name}, {count} products", ha="left", fontsize=10, color=INK, fontweight="bold")
        for start, end in ((4.4, 5.4), (13.4, 14.9)):
            axes.annotate("", (end, 2), (start, 2), arrowprops={"arrowstyle": "-|>", "color": INK})
        blank(axes, xlim=(-0.2, 26.6), ylim=(-0.2, 5.8))
    figure.savefig(IMAGES / "coloring-symmetric.png")


def five_point(k):
    """The pattern of a 5-point stencil on a k x k grid."""
    line = sparse.diags_array([np.ones(k - 1), np.ones(k - 1)], offsets=[-1, 1])
    return sparse.eye_array(k * k) + sparse.kron(line, sparse.eye_array(k)) + sparse.kron(sparse.eye_array(k), line)


def grids(k=6):
    """A 5-point grid coloured for columns, as stars and as trees; the edges between two of the colours are drawn."""
    pattern = sparse.csr_array(five_point(k))
    found = [
        ("columns", wl.sparse.color(pattern), "pairs"),
        ("star", wl.sparse.color(pattern, "symmetric"), "stars"),
        ("acyclic", wl.sparse.color(pattern, "symmetric", "substitution"), "trees"),
    ]
    figure, rows = plt.subplots(1, 3, figsize=(10.4, 3.9), layout="constrained")
    edges = [(i, j) for i, j in zip(*pattern.nonzero()) if i < j]
    for axes, (name, coloring, shapes) in zip(rows, found):
        colors = coloring.column_colors
        place = lambda v: (v % k, -(v // k))
        for i, j in edges:
            pair = {colors[i], colors[j]} == {0, 1}
            edge(axes, place(i), place(j), color=INK if pair else FAINT, linewidth=3 if pair else 1)
        for v in range(k * k):
            vertex(axes, place(v), str(colors[v]), COLORS[colors[v]], 210)
        limits = {"xlim": (-0.6, k - 0.4), "ylim": (0.4 - k, 0.5)}
        blank(axes, f"{name}: {coloring.num_colors} colours; 0 and 1 form {shapes}", **limits)
    figure.savefig(IMAGES / "coloring-grids.png")


def patterns():
    """Some patterns, each entry in the colour of the product that it is read from."""
    band = lambda n, r: sparse.diags_array([np.ones(n - abs(k)) for k in range(-r, r + 1)], offsets=range(-r, r + 1))
    arrow = np.eye(12)
    arrow[0] = arrow[:, 0] = 1
    frame = np.zeros((10, 20))
    frame[[0, -1]] = frame[:, [0, -1]] = 1
    shown = [
        ("tridiagonal, columns", wl.sparse.color(band(12, 1))),
        ("band, columns", wl.sparse.color(band(12, 2))),
        ("arrow, symmetric", wl.sparse.color(arrow, "symmetric")),
        ("arrow, both sides", wl.sparse.color(arrow, "bidirectional", postprocess=True)),
        ("frame, both sides", wl.sparse.color(frame, "bidirectional", postprocess=True)),
    ]
    ratios = [coloring.shape[1] for _, coloring in shown]
    figure, row = plt.subplots(
        1, 5, figsize=(11.4, 2.3), layout="constrained", gridspec_kw={"width_ratios": ratios}
    )  # fmt: skip
    for axes, (name, coloring) in zip(row, shown):
        m, n = coloring.shape
        number = entry_colors(coloring)
        labels, shades = np.full((m, n), None, object), np.full((m, n), None, object)
        labels[coloring.pattern.nonzero()] = number
        shades[coloring.pattern.nonzero()] = [COLORS[c] for c in number]
        cells(axes, 0, m, labels, shades, 6)
        blank(axes, f"{name}: {coloring.num_colors}", xlim=(-0.2, n + 0.2), ylim=(-0.2, m + 0.2))
    figure.savefig(IMAGES / "coloring-patterns.png")


def plots():
    """What `plot()` draws: the Brusselator's Jacobian, and an arrow."""

    def arrow(x):
        return np.concatenate([x[:1] * np.sum(np.sin(x)), x[1:] * x[0] + x[1:] ** 2])

    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 4.4), layout="constrained")
    wl.sparse.jacobian(brusselator).prepare(brusselator_start(6)).plot(left)
    wl.sparse.jacobian(arrow).prepare(np.ones(70)).plot(right)
    figure.savefig(IMAGES / "sparse-plot.png")


def swing():
    """The pendulum of docs/sparse-scipy.md, from the code of that page, and the pattern of its constraints."""
    names = {}
    text = (IMAGES.parent / "sparse-scipy.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", text.partition("## Stiff")[0], re.S | re.M):
        exec(compile(block, "docs/sparse-scipy.md", "exec"), names)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.0), layout="constrained")
    curves = zip(("angle", "angular velocity", "torque"), names["exact"].x.reshape(3, -1), COLORS, "os^")
    for name, values, color, marker in curves:
        times = np.linspace(0.0, 3.0, len(values))
        left.plot(times, values, color=color, marker=marker, markersize=3, linewidth=1.4, label=name)
    left.axhline(np.pi, color="#AAAAAA", linewidth=0.9, linestyle=":")
    left.set(xlabel="time", xlim=(0, 3))
    left.legend(frameon=False, fontsize=8)
    names["defects_jacobian"].plot(right)
    right.set_xlabel("angles, velocities, torques")
    figure.savefig(IMAGES / "sparse-scipy.png", bbox_inches="tight")


def main() -> None:
    """Draw all into docs/images."""
    for draw in (compression, graphs, symmetric, grids, patterns, plots, swing):
        draw()


if __name__ == "__main__":
    main()
