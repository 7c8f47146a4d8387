"""Two half moons in the plane, with a small network: watch the boundary between them bend."""

from typing import Any

import wonderland as wl
from wonderland import data, nn, recipes, train


def run(
    epochs: int = 100,
    batch_size: int = 32,
    rate: float = 0.01,
    hidden: int = 32,
    samples: int = 600,
    noise: float = 0.2,
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train, and return how good it is on points that were never looked at."""
    wl.random.seed(seed)
    training, validation, test = data.split(data.moons(samples, noise, seed), [0.5, 0.2, 0.3], seed=seed, stratify=True)

    model = nn.Sequential(nn.Linear(2, hidden), nn.tanh, nn.Linear(hidden, hidden), nn.tanh, nn.Linear(hidden, 2))

    def loss(model, points, labels):
        return nn.cross_entropy(model(points), labels)

    history = train.fit(
        model, loss, train.Adam(model, rate), training, epochs=epochs, batch_size=batch_size, seed=seed,
        validation=validation, metrics={"accuracy": train.metrics.Accuracy()}, **options,
    )  # fmt: skip
    return recipes.classification(model, history, test)
