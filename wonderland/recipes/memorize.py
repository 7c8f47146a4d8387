"""A look-up table that knows its training data by heart, and a network that learned it: the generalisation gap."""

from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data, nn, recipes, train
from wonderland.recipes import drawing


def look_up(training: data.Dataset, default: int = 0) -> Any:
    """f(x) = y if (x, y) is in the training data, else a constant: the best there is, on the training data."""
    table = {x.tobytes(): y for x, y in zip(*training[:])}
    return lambda inputs: np.array([table.get(x.tobytes(), default) for x in inputs])


def run(
    epochs: int = 60,
    batch_size: int = 32,
    rate: float = 3e-3,
    hidden: int = 64,
    noise: float = 0.0,  # the part of the training labels that is drawn by lot
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Both models, and how often each is wrong on what it knows and on what it doesn't."""
    wl.random.seed(seed)
    training, test = data.split(data.digits(), [0.5, 0.5], seed=seed, stratify=True)
    images, labels = training[:]
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(len(labels)) < noise, rng.integers(10, size=len(labels)), labels)
    training = data.Arrays(images, labels, classes=test.classes)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.relu, nn.Linear(hidden, 10))

    def loss(model, images, labels):
        logits = model(images)
        return nn.cross_entropy(logits, labels), {"accuracy": train.metrics.accuracy(logits, labels)}

    history = train.fit(
        model, loss, train.Adam(model, rate), training, epochs=epochs, batch_size=batch_size, seed=seed,
        validation=test, **options,
    )  # fmt: skip

    table, errors = look_up(training), {}
    for name, predict in [("look-up table", table), ("network", lambda x: np.argmax(train.predict(model, x), 1))]:
        empirical, expected = (float(np.mean(predict(x) != y)) for x, y in (training[:], test[:]))
        errors[name] = {"training error": empirical, "test error": expected, "gap": expected - empirical}
    numbers = {f"{name}: {kind}": value for name, row in errors.items() for kind, value in row.items()}

    def figures():
        return {"generalisation gap": drawing.grouped(errors, "fraction that is wrong", "error")}

    return recipes.Outcome(model, history, numbers, figures, __doc__ or "")
