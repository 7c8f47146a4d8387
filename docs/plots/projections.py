"""The figure of docs/projections.md: a grid of points, their nearest points of six sets, and the derivative there.

Run from the repository: python docs/plots/projections.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Circle, Polygon, Rectangle

import wonderland as wl

implicit = wl.implicit
INK, LINE, RIGHT, UP, SET = "#222222", "#C8C8C8", "#0072B2", "#D55E00", "#E6EDF2"
plt.rcParams.update({"font.size": 10, "figure.dpi": 150})

REACH = 2.0
SETS = {
    "project_simplex": (implicit.project_simplex, None),
    "project_l1_ball": (implicit.project_l1_ball, Polygon([(1, 0), (0, 1), (-1, 0), (0, -1)])),
    "project_ball": (implicit.project_ball, Circle((0, 0), 1)),
    "project_linf_ball": (implicit.project_linf_ball, Rectangle((-1, -1), 2, 2)),
    "project_halfspace": (
        lambda x: implicit.project_halfspace(x, np.array([1.0, 2.0]), -0.5),
        Polygon([(-9, 4.25), (9, -4.75), (-9, -9)]),
    ),
    "project_second_order_cone": (implicit.project_second_order_cone, Polygon([(0, 0), (9, 9), (9, -9)])),
}


def draw(axes, name, project, patch, length=0.17):
    """Points, lines to where they are projected, and where that moves when a point moves right or up."""
    if patch is None:
        axes.plot([0, 1], [1, 0], color="#9DB4C4", linewidth=5, solid_capstyle="round", zorder=0)
    else:
        patch.set(facecolor=SET, edgecolor="#9DB4C4", linewidth=1.2, zorder=0)
        axes.add_patch(patch)
    side = np.linspace(-1.75, 1.75, 8)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    nearest = project(points)
    columns = wl.vmap(wl.jacobian(project))(points)  # (points, 2, 2)
    for x, p in zip(points, nearest, strict=True):
        axes.plot(*np.stack([x, p]).T, color=LINE, linewidth=0.7, zorder=1)
    axes.scatter(*nearest.T, s=5, color=INK, zorder=4)
    axes.scatter(*points.T, s=4, color="#888888", zorder=2)
    for column, colour in ((0, RIGHT), (1, UP)):
        moves = length * columns[:, :, column]
        moved = np.hypot(*moves.T) > 1e-9
        axes.quiver(
            *points[moved].T, *moves[moved].T, color=colour, angles="xy", scale_units="xy", scale=0.55, width=0.007,
            headwidth=3.5, headlength=4, zorder=3,
        )  # fmt: skip
    axes.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), aspect="equal", xticks=[], yticks=[])
    axes.set_title(name, fontsize=10, family="monospace")
    for spine in axes.spines.values():
        spine.set_color("#CCCCCC")


def main() -> None:
    """Draw six sets into docs/images."""
    figure, axes = plt.subplots(2, 3, figsize=(9.6, 6.7), layout="constrained")
    for place, (name, (project, patch)) in zip(axes.flat, SETS.items(), strict=True):
        draw(place, name, project, patch)
    figure.savefig(Path(__file__).resolve().parent.parent / "images" / "projections.png", dpi=120)


if __name__ == "__main__":
    main()
