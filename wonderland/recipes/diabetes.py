"""How far diabetes is after a year, by 10 numbers about a patient: a regression, against the linear one."""

from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data, nn, recipes, train


def run(
    epochs: int = 200,
    batch_size: int = 32,
    rate: float = 2e-3,
    hidden: int = 32,
    weight_decay: float = 0.1,
    patience: int = 20,  # epochs without a better validation loss, then training stops; 0: never
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train, and return how good it is on patients that were never looked at."""
    wl.random.seed(seed)
    parts = data.split(data.diabetes(), [0.6, 0.2, 0.2], seed=seed)
    inputs, targets = data.Standardize().fit(parts[0]), data.Standardize(field=1).fit(parts[0])
    training, validation, test = (targets(inputs(part)) for part in parts)

    model = nn.Sequential(nn.Linear(10, hidden), nn.relu, nn.Linear(hidden, 1), nn.Flatten(0))

    def loss(model, patients, progress):
        return nn.mse_loss(model(patients), progress)

    callbacks = [*options.pop("callbacks", ())]
    if patience:
        callbacks.append(train.EarlyStopping(patience=patience))
    history = train.fit(
        model, loss, train.AdamW(model, rate, weight_decay=weight_decay), training, epochs=epochs,
        batch_size=batch_size, seed=seed, validation=validation, callbacks=callbacks, **options,
    )  # fmt: skip

    x, y = training[:]
    weights = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y)[0]  # least squares, the old way
    linear = train.metrics.r2_score(test[:][0] @ weights[:-1] + weights[-1], test[:][1])
    return recipes.regression(model, history, test, scale=targets, numbers={"R² of least squares": linear})
