"""Questions about images whose answers are in the images: what is hidden, what is noise, which way is up.

A transform of batches asks, (inputs, answer, mask); a head on an encoder answers; numbers and a picture say how well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland import data, nn, train
from wonderland.recipes import latent_pictures
from wonderland.recipes.catalog import RecipeError
from wonderland.recipes.outcomes import Figures

TASKS = ("masked", "denoising", "rotation")
PATCH = 2  # pixels of a side


def question(task: str, hidden: float, sigma: float) -> Callable[[Any, np.random.Generator], Any]:
    """A transform of batches (images, ...) to (inputs, answer, mask), the mask for what of the answer counts.

    "masked": a share `hidden` of all patches is left empty (0), and what was there is asked for. "denoising": the image
    before noise of deviation `sigma` came to it. "rotation": how many quarter turns there were, 0 to 3.
    """
    if task not in TASKS:
        raise RecipeError(f"masked-digits: task is {', '.join(TASKS)}, not {task!r}")
    if not 0 < hidden <= 1 or not sigma > 0:
        raise RecipeError(
            f"masked-digits: hidden is a share of patches above 0 and sigma is positive, not {hidden} and {sigma}"
        )

    def ask(batch: Any, rng: np.random.Generator) -> Any:
        images = batch[0]
        if task == "rotation":
            turns = rng.integers(4, size=len(images))
            return _turned(images, turns), turns, np.ones(len(images), bool)
        if task == "denoising":
            return data.gaussian_noise(sigma)(images, rng), images, np.ones(images.shape, bool)
        patches = rng.random((len(images), 1, *(side // PATCH for side in images.shape[2:]))) < hidden
        mask = patches.repeat(PATCH, axis=2).repeat(PATCH, axis=3)
        return np.where(mask, np.zeros_like(images), images), images, mask

    return ask


def _turned(images: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Images (n, 1, side, side), each turned by so many quarters."""
    return np.stack([np.rot90(image, k, (1, 2)) for image, k in zip(images, turns, strict=True)])


def answering(task: str, backbone: nn.Module, width: int) -> nn.Sequential:
    """An encoder whose embeddings have so many numbers, and two layers that answer by them."""
    last = [nn.Linear(128, 4)] if task == "rotation" else [nn.Linear(128, 64), nn.Unflatten(1, (1, 8, 8))]
    return nn.Sequential(backbone, nn.Linear(width, 128), nn.relu, *last)


def answer_loss(task: str) -> Callable[..., Any]:
    """loss(model, inputs, answer, mask): cross-entropy of turns, mean squared error of pixels."""
    if task == "rotation":
        return lambda model, x, answer, mask: nn.cross_entropy(model(x), answer)
    return lambda model, x, answer, mask: nn.mse_loss(model(x), answer, mask=mask)


def judged(task: str, model: Any, ask: Any, training: Any, test: Any, seed: int) -> tuple[dict[str, float], Any]:
    """How good answers about new digits are, beside simple ones, and a function that draws some of them."""
    images = test[:][0]
    x, answer, mask = ask(test[:], np.random.default_rng(seed))
    said = train.predict(model, x)
    if task == "rotation":
        said = np.argmax(said, axis=1)
        shown, word = _turned(x, -said), "turned back"
        numbers = {"accuracy of turns": float(np.mean(said == answer))}
    else:
        error = lambda found: float(np.mean((found - answer)[mask] ** 2))
        mean = np.broadcast_to(training[:][0].mean(axis=0), answer.shape)
        numbers = {"squared error of a pixel": error(said), "that of the mean digit": error(mean)}
        shown, word = (np.where(mask, said, x), "filled in") if task == "masked" else (said, "denoised")

    def figures() -> Figures:
        some = np.stack([part[:12, 0] for part in (images, x, shown)])
        title = "new digits, what the network sees of them, and what it says"
        return {"task": latent_pictures.tiles(np.clip(some, 0, 1), title, ("digit", "seen", word))}

    return numbers, figures
