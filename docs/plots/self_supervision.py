"""The figures and tables of docs/self-supervision.md: what the recipes measure, and accuracy against labels.

Run from the repository: python docs/plots/self_supervision.py    (some minutes; `tables` alone prints, `figures` draws)
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.manifold import TSNE

from wonderland import recipes
from wonderland.recipes import pretext

IMAGES = Path(__file__).parent.parent / "images"
INK, BLUE, ORANGE, GREEN, GREY = "#222222", "#0072B2", "#D55E00", "#009E73", "#AAAAAA"
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip


def show(name, outcome):
    """Print numbers and tables."""
    print(f"\n{name}")
    for key, value in outcome.numbers.items():
        print(f"  {key}: {value if isinstance(value, str) else round(value, 4)}")
    for title, rows in outcome.tables.items():
        print(f"  {title}")
        for row in rows:
            print("   ", *(f"{k}: {v if isinstance(v, str) else round(float(v), 3)}" for k, v in row.items()), sep="  ")
    sys.stdout.flush()


def tables():
    """Three seeds of both recipes, all tasks of the second."""
    for seed in range(3):
        show(f"simclr-digits, seed {seed}", recipes.find("simclr-digits").run({"seed": seed}, progress=False))
    for task in ("masked", "denoising", "rotation"):
        for seed in range(3):
            outcome = recipes.find("masked-digits").run({"task": task, "seed": seed}, progress=False)
            show(f"masked-digits, {task}, seed {seed}", outcome)


def figures():
    """Those of the reports with seed 0, those in the plane by t-SNE, and accuracy against labels."""
    outcome = recipes.find("simclr-digits").run({"draws": 5}, progress=False)
    drawn = outcome.figures()
    for name in ("few labels", "views", "neighbours"):
        drawn[name].savefig(IMAGES / f"simclr-{name.replace(' ', '-')}.png", dpi=110)
    for task in ("masked", "denoising"):
        small = {"task": task, "draws": 1, "label_epochs": 1}  # of which nothing is drawn
        drawn = recipes.find("masked-digits").run(small, progress=False).figures()
        drawn["task"].savefig(IMAGES / f"pretext-{task}.png", dpi=110)
    backbone = outcome.model[0]
    training, test, _ = pretext.read(0, 10, 1)
    planes(pretext.spaces_of(backbone, training, test), test[:][1])
    against_labels(backbone, training, test)


def planes(spaces, labels):
    """New digits in the plane: near if they were near (t-SNE), as pixels and as embeddings."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
    colors = plt.get_cmap("tab10").colors
    for place, (name, (_, new)) in zip(axes, spaces.items(), strict=True):
        points = TSNE(2, perplexity=30, random_state=0).fit_transform(new)
        for (x, y), label in zip(points, labels, strict=True):
            place.text(x, y, str(label), color=colors[label], fontsize=7, ha="center", va="center")
        low, high = points.min(0) - 3, points.max(0) + 3
        place.set(title=name, xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
        place.spines[["left", "bottom"]].set_visible(False)
    figure.savefig(IMAGES / "simclr-plane.png", dpi=110)


def against_labels(backbone, training, test):
    """Accuracy with 1 to 50 labels a class: mean and spread over five draws."""
    counts = [1, 2, 5, 10, 20, 50]
    spaces = pretext.spaces_of(backbone, training, test)
    found = []
    for count in counts:
        draws = pretext.read(0, count, 5)[2]
        epochs = max(100, 800 * 10 // max(count, 10))  # as many steps for all with ten labels or more
        found.append(pretext.few_labels(backbone, 16, spaces, training, test, draws, epochs, 0))
        print(count, {name: (values.mean().round(4), values.std().round(4)) for name, values in found[-1].items()},
              flush=True)  # fmt: skip
    figure, place = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
    styles = {pretext.FROZEN: (BLUE, "o-"), pretext.SCRATCH: (ORANGE, "s-"), pretext.TUNED: (GREEN, "^-"),
              "pixels, nearest neighbour": (GREY, "v--"), "pixels, linear head": (INK, "x--")}  # fmt: skip
    for name, (color, style) in styles.items():
        values = 100 * np.array([row[name] for row in found])
        place.plot(counts, values.mean(1), style, color=color, markersize=4, label=name)
        place.fill_between(counts, values.min(1), values.max(1), color=color, alpha=0.12, linewidth=0)
    place.set_xscale("log")
    place.set_xticks(counts, [str(count) for count in counts])
    place.minorticks_off()
    place.set(xlabel="labels of each class", ylabel="% of new digits right", ylim=(40, 100))
    place.grid(color="#e5e5e5", linewidth=0.6)
    place.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(IMAGES / "simclr-labels.png", dpi=110)


if __name__ == "__main__":
    for part in sys.argv[1:] or ["tables", "figures"]:
        {"tables": tables, "figures": figures}[part]()
