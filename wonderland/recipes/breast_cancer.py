"""Benign or malignant, by 30 numbers about cells: logistic regression with early stopping."""

from typing import Any

import wonderland as wl
from wonderland import data, nn, recipes, train


def run(
    epochs: int = 200,
    batch_size: int = 32,
    rate: float = 0.01,
    weight_decay: float = 0.01,
    patience: int = 20,  # epochs without a better validation loss, then training stops; 0: never
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train, and return how good it is on samples that were never looked at."""
    wl.random.seed(seed)
    parts = data.split(data.breast_cancer(), [0.6, 0.2, 0.2], seed=seed, stratify=True)
    scaler = data.Standardize().fit(parts[0])  # of the training part only: nothing is known of the others
    training, validation, test = (scaler(part) for part in parts)

    model = nn.Sequential(nn.Linear(30, 2))

    def loss(model, cells, labels):
        return nn.cross_entropy(model(cells), labels)

    callbacks = [*options.pop("callbacks", ())]
    if patience:
        callbacks.append(train.EarlyStopping(patience=patience))
    history = train.fit(
        model, loss, train.AdamW(model, rate, weight_decay=weight_decay), training, epochs=epochs,
        batch_size=batch_size, seed=seed, validation=validation, metrics={"accuracy": train.metrics.Accuracy()},
        callbacks=callbacks, **options,
    )  # fmt: skip
    return recipes.classification(model, history, test)
