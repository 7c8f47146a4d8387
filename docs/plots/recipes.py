"""The table and the figure of docs/recipes.md: what augmentation and early stopping gain, in pairs of equal seeds.

Run from the repository: python docs/plots/recipes.py

The seeds, and with them the data, are others than those with which the recipes' settings were chosen.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from wonderland import recipes

IMAGES = Path(__file__).parent.parent / "images"
BLUE, GREY = "#2171B5", "#999999"
SEEDS = range(10, 15)
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip

# Title, recipe, what is common, the setting, its value without and with, and the numbers that are compared.
PAIRS = [
    ("augmentation\nMNIST-1D, MLP", "mnist1d", {"model": "mlp", "epochs": 100}, "shift", (0, 2), "test accuracy"),
    ("augmentation\nMNIST-1D, CNN", "mnist1d", {}, "shift", (0, 2), "test accuracy"),
    ("early stopping\ndiabetes", "diabetes", {}, "patience", (0, 20), "test R²"),
    ("early stopping\nbreast cancer", "breast-cancer", {}, "patience", (0, 20), "test cross-entropy"),
]


def measured(name, common, setting, values, number):
    """(seeds, 2): without and with."""
    recipe = recipes.find(name)
    rows = []
    for seed in SEEDS:
        fresh = {"data_seed": seed} if "data_seed" in recipe.settings else {}  # a set that nobody has seen
        settings = [{**common, **fresh, setting: value, "seed": seed} for value in values]
        rows.append([recipe.run(each, progress=False).numbers[number] for each in settings])
        print(name, setting, seed, *(f"{value:.4f}" for value in rows[-1]), flush=True)
    return np.array(rows)


def main():
    """Measure all pairs, print them, and draw them."""
    figure, axes = plt.subplots(1, len(PAIRS), figsize=(9, 2.8), layout="constrained")
    for place, (title, name, common, setting, values, number) in zip(axes, PAIRS, strict=True):
        found = measured(name, common, setting, values, number)
        gain = found[:, 1] - found[:, 0]
        place.plot([0, 1], found.T, color=GREY, linewidth=0.8, marker="o", markersize=3)
        place.plot([0, 1], found.mean(0), color=BLUE, linewidth=2, marker="o", markersize=5)
        place.set(title=title, ylabel=number, xlim=(-0.3, 1.3))
        place.set_xticks([0, 1], [f"{setting}={value}" for value in values])
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        print(
            f"{number}: {found[:, 0].mean():.4f} -> {found[:, 1].mean():.4f}, gain {gain.mean():+.4f} ± {error:.4f}\n"
        )
    figure.savefig(IMAGES / "recipes-gains.png")


if __name__ == "__main__":
    main()
