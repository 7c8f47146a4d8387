"""Handwritten digits (8 x 8 pixels) with a convolutional network: over 99 % in a few seconds."""

from typing import Any

import wonderland as wl
from wonderland import data, nn, recipes, train


def convolution(channels_in: int, channels_out: int) -> list[Any]:
    """A convolution, normalised over the batch, and a ReLU."""
    return [nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False), nn.BatchNorm2d(channels_out), nn.relu]


def run(
    epochs: int = 15,
    batch_size: int = 64,
    rate: float = 5e-3,
    dropout: float = 0.3,
    smoothing: float = 0.05,
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train, and return how good it is on digits that were never looked at."""
    wl.random.seed(seed)
    training, validation, test = data.split(data.digits(), [0.7, 0.1, 0.2], seed=seed, stratify=True)
    loader = data.Loader(training, batch_size, shuffle=True, seed=seed)

    model = nn.Sequential(
        *convolution(1, 32),
        *convolution(32, 32),
        nn.MaxPool2d(2),
        *convolution(32, 64),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(64 * 2 * 2, 10),
    )

    def loss(model, images, labels):
        return nn.cross_entropy(model(images), labels, label_smoothing=smoothing)

    optimizer = train.AdamW(model, train.one_cycle(rate, epochs * len(loader)), weight_decay=1e-4)
    history = train.fit(
        model, loss, optimizer, loader, epochs=epochs, validation=validation,
        metrics={"accuracy": train.metrics.Accuracy()}, **options,
    )  # fmt: skip
    return recipes.classification(model, history, test)
