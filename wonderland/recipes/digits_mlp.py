"""Handwritten digits (8 x 8 pixels) with a multilayer perceptron: about 98 % in under a second."""

from itertools import pairwise
from typing import Any

import wonderland as wl
from wonderland import data, nn, recipes, train


def run(
    epochs: int = 40,
    batch_size: int = 64,
    rate: float = 5e-3,
    hidden: tuple[int, ...] = (128, 64),
    dropout: float = 0.2,
    smoothing: float = 0.05,
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train, and return how good it is on digits that were never looked at."""
    wl.random.seed(seed)
    training, validation, test = data.split(data.digits(), [0.7, 0.1, 0.2], seed=seed, stratify=True)
    loader = data.Loader(training, batch_size, shuffle=True, seed=seed)

    layers: list[Any] = [nn.Flatten()]
    sizes = [64, *hidden]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.relu, nn.Dropout(dropout)]
    model = nn.Sequential(*layers, nn.Linear(sizes[-1], 10))

    def loss(model, images, labels):
        return nn.cross_entropy(model(images), labels, label_smoothing=smoothing)

    optimizer = train.AdamW(model, train.one_cycle(rate, epochs * len(loader)), weight_decay=1e-4)
    history = train.fit(
        model, loss, optimizer, loader, epochs=epochs, validation=validation,
        metrics={"accuracy": train.metrics.Accuracy()}, **options,
    )  # fmt: skip
    return recipes.classification(model, history, test)
