"""What a Jacobian costs by vertex elimination: `python -m bench.elimination [--images DIRECTORY]`.

Prints, for each order, the products of edges as the literature counts them, beside the published counts of Graphax
and AlphaGrad (Lohoff and Neftci 2024), whose search is hours of reinforcement learning; and the multiplications that
our Program makes. With --images, draws a small graph while it is eliminated.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import wonderland as wl
from wonderland.testing.problems import PROBLEMS
from wonderland.transform.elimination import count_multiplications, equation_graph
from wonderland.transform.elimination_order import ORDERS, search

PUBLISHED = {
    "roe_flux": (620, 364, 407, 320),
    "robot_arm": (397, 301, 288, 231),
    "propane_combustion": (151, 90, 111, 88),
    "heart_dipole": (240, 172, 194, 148),
}


def table() -> str:
    """A Markdown table, three lines for each problem, with the seconds (of the processor) that the search took."""
    lines = [
        "| | | forward | reverse | Markowitz | searched |",
        "|---|---|---|---|---|---|",
    ]
    for name, published in PUBLISHED.items():
        f, args, argnums = PROBLEMS[name]
        graph = equation_graph(wl.trace(f)(*args))
        start = time.process_time()
        search(graph, 10.0)
        seconds = time.process_time() - start
        counts = count_multiplications(f, *args, argnums=argnums)
        rows = [
            (name.replace("_", " "), "published", *published),
            ("", "ours, counted so", *(counts[order][0] for order in ORDERS)),
            (f"({seconds:.1f} s)", "multiplications made", *(counts[order][1] for order in ORDERS)),
        ]
        lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def draw(directory: Path) -> None:
    """The graph of y = sin(x0 x1), (x0 y, y + x1), while its two inner vertices are eliminated."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    places = {"x0": (0, 1), "x1": (0, 0), "p": (1, 0.5), "y": (2, 0.5), "f0": (3, 1), "f1": (3, 0)}
    names = {"x0": "$x_0$", "x1": "$x_1$", "p": "$p$", "y": "$y$", "f0": "$f_0$", "f1": "$f_1$"}
    shared = {("x0", "f0"): "$y$", ("x1", "f1"): "1"}
    panels = [
        ("$p = x_0 x_1,\\ y = \\sin p,\\ f_0 = x_0 y,\\ f_1 = y + x_1,\\ c = \\cos p$",
         {**shared, ("x0", "p"): "$x_1$", ("x1", "p"): "$x_0$", ("p", "y"): "$c$", ("y", "f0"): "$x_0$",
          ("y", "f1"): "1"}),
        ("$p$ eliminated: 2 multiplications",
         {**shared, ("x0", "y"): "$x_1 c$", ("x1", "y"): "$x_0 c$", ("y", "f0"): "$x_0$", ("y", "f1"): "1"}),
        ("$y$ eliminated: 2 more, the edges are the Jacobian",
         {("x0", "f0"): "$y + x_0\\,x_1 c$", ("x1", "f0"): "$x_0\\,x_0 c$", ("x0", "f1"): "$x_1 c$",
          ("x1", "f1"): "$1 + x_0 c$"}),
    ]  # fmt: skip
    figure, axes = plt.subplots(1, 3, figsize=(12, 2.9), layout="constrained")
    for axis, (title, edges) in zip(axes, panels):
        axis.set(xlim=(-0.3, 3.3), ylim=(-0.25, 1.25), title=title)
        axis.title.set_fontsize(10)
        axis.axis("off")
        crossing = ("x1", "f0") in edges
        for (a, b), text in edges.items():
            start, end = np.array(places[a]), np.array(places[b])
            axis.annotate(
                "", end, start, arrowprops={"arrowstyle": "-|>", "color": "#5e35b1", "shrinkA": 12, "shrinkB": 12}
            )
            along = 0.3 if crossing else 0.5
            label = start + along * (end - start)
            axis.text(*label, text, ha="center", va="center", fontsize=10, bbox={"fc": "white", "ec": "none", "pad": 1})
        for name, place in places.items():
            if any(name in pair for pair in edges):
                kind = "#ede7f6" if name in ("p", "y") else "#fff8e1"
                axis.text(*place, names[name], ha="center", va="center", fontsize=11,
                          bbox={"boxstyle": "circle", "fc": kind, "ec": "#424242"})  # fmt: skip
    figure.savefig(directory / "elimination.png", dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.elimination", description="Counts of vertex elimination.")
    parser.add_argument("--images", metavar="DIRECTORY", type=Path, help="draw elimination.png there, count nothing")
    directory = parser.parse_args().images
    if directory is None:
        print(table())
    else:
        draw(directory)
