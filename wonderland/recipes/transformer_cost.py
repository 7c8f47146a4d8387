"""What a transformer costs against its context and its width: the formula, and the time that compiled code takes."""

from typing import Any

import numpy as np

from wonderland import models, recipes, train
from wonderland.recipes import drawing


def run(
    contexts: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096),
    widths: tuple[int, ...] = (64, 128, 256, 512, 1024),
    context: int = 256,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    vocab_size: int = 64,
    seed: int = 0,
    **options: Any,  # of train.fit: nothing is trained
) -> recipes.Outcome:
    """Costs of a gradient, with the context growing at one width, and the width growing at one context."""
    if min(len({*contexts}), len({*widths})) < 2 or min(*contexts, *widths) < 1:
        raise recipes.RecipeError(f"transformer-cost: two sizes or more are compared, not {contexts} and {widths}")
    rows: dict[str, dict[str, list[float]]] = {}
    for name, sizes in (("context", contexts), ("width", widths)):
        row = rows[name] = {"size": [], "attention": [], "weights": [], "together": [], "seconds": []}
        for size in sizes:
            config = {"context": context, "width": width, "layers": layers, "heads": heads, "vocab_size": vocab_size}
            found = models.transformer_cost({**config, name: size}, measure=True)
            pairs = found.parts["scores"][1] + found.parts["mixing"][1]
            new = size, pairs, found.training - pairs, found.training, (found.seconds or (0, 0))[1]
            for values, value in zip(row.values(), new, strict=True):
                values.append(value)

    said = {"attention": "scores and mixing", "weights": "products with weights", "together": "all", "seconds": "time"}
    slopes = {
        f"power of the {axis}: {title}": _slope(row["size"], row[what])
        for axis, row in rows.items()
        for what, title in said.items()
    }

    def figures():
        title = f"a gradient of {layers} layers with {heads} heads; width {width}, and context {context}"
        return {"cost": drawing.costs(rows, slopes, title)}

    return recipes.Outcome(None, train.History(), slopes, figures, __doc__ or "")


def _slope(x: list[float], y: list[float]) -> float:
    """The power of x that y grows with, in the larger half of the sizes."""
    half = min(len(x) // 2, len(x) - 2)
    return float(np.polyfit(np.log(x[half:]), np.log(y[half:]), 1)[0])
