"""Diffusion: noise becomes points of a swiss roll or of moons, or digits of the class that is asked for."""

from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data as datasets
from wonderland import generative, recipes, train
from wonderland.recipes import generated

USUAL: dict[str, Any] = {  # epochs, rate, highest and lowest noise level, guidance, samples
    "swissroll": (200, 5e-3, 10.0, 0.01, 1.0, 1000),
    "moons": (200, 5e-3, 10.0, 0.01, 1.0, 1000),
    "digits": (80, 3e-3, 20.0, 0.02, 2.0, 100),
    "mnist": (4, 2e-3, 40.0, 0.02, 2.0, 100),
}


def run(
    data: str = "swissroll",
    folder: str = "",  # that of MNIST's files
    epochs: int = 0,  # 0 is what is usual, here and below
    batch_size: int = 64,
    rate: float = 0.0,
    width: int = 32,
    steps: int = 30,  # of sampling
    guidance: float = 0.0,
    words: bool = False,  # digits are asked for by their names, "seven", letter by letter
    samples: int = 0,
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train a network to know the noise in data, and return how good what it makes of noise is."""
    if data not in USUAL:
        raise recipes.RecipeError(f"diffusion: data is {', '.join(USUAL)}, not {data!r}")
    wl.random.seed(seed)
    given: Any = (epochs, rate, 0, 0, guidance, samples)
    epochs, rate, high, low, guidance, samples = (mine or usual for mine, usual in zip(given, USUAL[data]))
    generated.check(samples, steps)
    training, test, classes = generated.read(data, folder, seed, words)
    spread = float(np.std(x0 := training[:][0]))
    network = generated.network(x0.shape[1:], width, classes, words, spread)
    sigmas = np.append(np.geomspace(high, low, steps), 0).astype(np.float32)

    def loss(network, x0, *rest):
        options = {"condition": rest[0] if classes else None, "weighting": "edm", "sigma_data": spread}
        return generative.score_matching_loss(network, x0, rest[-1], sigmas, **options)

    loader = datasets.Loader(training, batch_size, shuffle=True, seed=seed, transform=generative.with_key)
    optimizer = train.AdamW(network, train.one_cycle(rate, epochs * len(loader)))
    average = train.Average(network, 0.995)
    following = generative.Averaging(average)
    history = train.fit(network, loss, optimizer, loader, epochs=epochs, callbacks=[following], **options)
    asked = None if not classes else generated.conditions(np.arange(samples) * classes // samples, words)
    denoiser = generated.denoiser(average.model, asked, guidance)
    noise = high * wl.random.normal(wl.random.key(seed), (samples, *x0.shape[1:]), dtype=np.float32)
    path = generated.denoised(denoiser, noise, sigmas)  # (steps + 1, samples, ...)
    generated.write_gif(path, options.get("checkpoint"))
    return generated.outcome(average.model, history, training, test, path, sigmas, guidance, words)
