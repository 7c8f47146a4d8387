"""How far the gradient of a mini-batch is from that of all data: its variance falls as 1 / batch size."""

from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data, nn, recipes, train
from wonderland.recipes import drawing


def run(
    epochs: int = 5,
    batch_size: int = 64,
    rate: float = 3e-3,
    hidden: int = 32,
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256),
    draws: int = 400,
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train a little, then draw mini-batches of each size and compare their gradients with the whole one."""
    wl.random.seed(seed)
    training = data.digits()
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.relu, nn.Linear(hidden, 10))

    def loss(model, images, labels):
        return nn.cross_entropy(model(images), labels)

    history = train.fit(
        model, loss, train.Adam(model, rate), training, epochs=epochs, batch_size=batch_size, seed=seed, **options
    )

    def gradient(model, image, label):  # of one sample, all its numbers in one vector
        return wl.tree_ravel(wl.grad(loss)(model, image[None], label[None]))[0]

    images, labels = training[:]
    each = wl.jit(wl.vmap(gradient, (None, 0, 0)))(model, images, labels)  # (samples, parameters)
    whole = each.mean(0)  # the gradient of all data; that of a mini-batch is the mean of its rows
    single = float(np.mean(np.sum((each - whole) ** 2, 1)))  # independent draws: the variance is single / B

    rng = np.random.default_rng(seed)
    batches = {size: rng.integers(len(labels), size=(draws, size)) for size in sizes}
    variance = [np.mean([np.sum((each[i].mean(0) - whole) ** 2) for i in batches[size]]) for size in sizes]
    slope = float(np.polyfit(np.log(sizes), np.log(variance), 1)[0])
    off = float(np.max(np.abs(np.array(variance) * sizes / single - 1)))

    def figures():
        title = f"measured: B to the power {slope:.3f}"
        said = ("batch size B", "E |g of a batch − g of all|²", f"mean of {draws} batches", f"{single:.3g} / B")
        return {
            "gradient variance": drawing.power_law(np.array(sizes), variance, single / np.array(sizes), title, said)
        }

    numbers = {"power of the batch size": slope, "variance of one sample": single, "largest distance from 1/B": off}
    return recipes.Outcome(model, history, numbers, figures, __doc__ or "")
