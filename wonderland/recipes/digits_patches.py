"""Handwritten digits as 16 patches that attention, MLPs, gates, shifts or pooling mix: a small ViT and its kin."""

from functools import partial
from typing import Any

import wonderland as wl
from wonderland import data, models, nn, recipes, train
from wonderland.models.metaformer import MIXERS

PYRAMID = {"classes": 10, "channels": 1, "patch": (2, 2, 0), "norm": "layer", "scale": None}
MODELS = {
    "vit": partial(models.ViT, 8, 2, 10, heads=4, channels=1, pool="mean"),
    "mixer": partial(models.Mixer, 8, 2, 10, token_hidden=64, channels=1),
    "gmlp": partial(models.GMLP, 8, 2, 10, channels=1),
    "s2mlp": partial(models.S2MLP, 8, 2, 10, channels=1),
    "monet": partial(models.MONet, 8, 2, 10, channels=1),
}


def mixed(name: str, layers: int, width: int) -> nn.Module:
    """A model by its name; others than those above are a MetaFormer with this mixer."""
    if name in MODELS:
        return MODELS[name](layers=layers, width=width)
    if name not in MIXERS:
        raise recipes.RecipeError(f"digits-patches: model is one of {', '.join([*MODELS, *MIXERS])}, not {name!r}")
    return models.MetaFormer([(width, layers)], name, **PYRAMID)


def run(
    model: str = "vit",
    epochs: int = 80,
    batch_size: int = 64,
    rate: float = 3e-3,
    layers: int = 2,
    width: int = 64,
    shift: int = 1,  # augmentation: images move by up to so many pixels, anew in each epoch
    weight_decay: float = 0.05,
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train, and return how good it is on digits that were never looked at."""
    wl.random.seed(seed)
    network = mixed(model, layers, width)
    training, validation, test = data.split(data.digits(), [0.7, 0.1, 0.2], seed=seed, stratify=True)
    moved = data.crop(8, padding=shift) if shift else None
    loader = data.Loader(training, batch_size, shuffle=True, seed=seed, transform=moved)

    def loss(network, images, labels):
        return nn.cross_entropy(network(images), labels, label_smoothing=0.05)

    optimizer = train.AdamW(network, train.one_cycle(rate, epochs * len(loader)), weight_decay=weight_decay)
    history = train.fit(
        network, loss, optimizer, loader, epochs=epochs, validation=validation,
        metrics={"accuracy": train.metrics.Accuracy()}, **options,
    )  # fmt: skip
    return recipes.classification(network, history, test)
