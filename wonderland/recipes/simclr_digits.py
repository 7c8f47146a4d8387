"""Digits without labels: two views of one are to be alike. With ten labels a class, better than from scratch."""

from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data, nn, recipes, train
from wonderland.recipes import drawing, pretext

TEXT = """Two views of each unlabelled digit, turned, moved and resized at random, are to find each other among those \
of all other digits of the batch (NT-Xent). Then the encoder stays as it is, and logistic regression on its embeddings \
learns from a few labels. The same network from scratch has the same labels and views."""


def run(
    epochs: int = 160,
    batch_size: int = 32,
    rate: float = 4e-3,
    temperature: float = 1.0,
    width: int = 16,
    projection: int = 32,
    labels: int = 10,  # of each class
    draws: int = 5,  # of the labels
    label_epochs: int = 800,  # of training with labels
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train without labels, and return what few labels are worth then, on digits that were never looked at."""
    wl.random.seed(seed)
    training, test, labelled = pretext.read(seed, labels, draws)
    view = pretext.view()

    def pairs(batch, rng):
        return view(batch[0], rng), view(batch[0], rng)

    backbone = pretext.encoder(width)
    model = nn.Sequential(backbone, nn.Linear(8 * width, 128), nn.relu, nn.Linear(128, projection))

    def loss(model, first, second):
        z = model(np.concatenate([first, second]))  # (2 B, projection)
        return nn.nt_xent(z[: len(first)], z[len(first) :], temperature)

    loader = data.Loader(training, batch_size, shuffle=True, seed=seed, transform=pairs, drop_last=True)
    optimizer = train.AdamW(model, train.one_cycle(rate, epochs * len(loader)), weight_decay=1e-4)
    history = train.fit(model, loss, optimizer, loader, epochs=epochs, **options)

    def figures():
        images, names = test[:6]
        seen = np.stack([images, *(view(images, np.random.default_rng(k)) for k in range(9))], axis=1)
        return {"views": drawing.rows(seen[:, :, 0], [f"a {name}" for name in names])}

    return pretext.outcome(
        model, backbone, width, history, training, test, labelled, epochs=label_epochs, seed=seed, numbers={},
        figures=figures, text=TEXT,
    )  # fmt: skip
