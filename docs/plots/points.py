"""What figures of points share: an axes without ticks, and a small file."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from PIL import Image

IMAGES = Path(__file__).parent.parent / "images"
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "axes.spines.top": False,
                     "axes.spines.right": False})  # fmt: skip


def save(figure, name, colors=96):
    """A figure as a small file: points, arrows and lines need few colours."""
    path = IMAGES / f"{name}.png"
    figure.savefig(path)
    Image.open(path).convert("RGB").quantize(colors, dither=Image.Dither.NONE).save(path, optimize=True)


def bare(place, side, title=""):
    """An axes without ticks, from -side to side."""
    place.set(aspect="equal", xlim=(-side, side), ylim=(-side, side), xticks=[], yticks=[])
    place.set_title(title)
    for spine in place.spines.values():
        spine.set(visible=True, color="#DDDDDD")
