"""Digits without labels: a network fills in hidden patches, takes away noise or finds the way up, then gets labels."""

from typing import Any

import wonderland as wl
from wonderland import data, nn, recipes, train
from wonderland.recipes import pretext, pretext_tasks

TEXT = """The answer to the task is in the digit itself, so that no label is needed. Then the encoder stays as it is, \
and logistic regression on its embeddings learns from a few labels. The same network from scratch has the same labels, \
and views of its digits. Fine-tuning goes on from the encoder, with all that training from scratch has."""


def run(
    task: str = "masked",  # or denoising, or rotation
    epochs: int = 100,
    batch_size: int = 64,
    rate: float = 4e-3,
    hidden: float = 0.5,  # the share of patches, if they are masked
    sigma: float = 0.5,  # of noise
    width: int = 16,
    labels: int = 10,  # of each class
    draws: int = 5,  # of the labels
    label_epochs: int = 800,  # of training with labels
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train on the task, and return what few labels are worth then, on digits that were never looked at."""
    wl.random.seed(seed)
    ask = pretext_tasks.question(task, hidden, sigma)
    training, test, labelled = pretext.read(seed, labels, draws)
    backbone = pretext.encoder(width)
    model = pretext_tasks.answering(task, backbone, 8 * width)

    loader = data.Loader(training, batch_size, shuffle=True, seed=seed, transform=ask)
    optimizer = train.AdamW(model, train.one_cycle(rate, epochs * len(loader)), weight_decay=1e-4)
    history = train.fit(model, pretext_tasks.answer_loss(task), optimizer, loader, epochs=epochs, **options)

    numbers, figures = pretext_tasks.judged(task, model, ask, training, test, seed)
    nn.update_statistics(backbone, [training[:][0]])  # from here on, digits are whole
    return pretext.outcome(
        model, backbone, width, history, training, test, labelled, epochs=label_epochs, seed=seed, numbers=numbers,
        figures=figures, text=TEXT,
    )  # fmt: skip
