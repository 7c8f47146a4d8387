"""Parametrisations: what a network predicts, and the noise that follows from it.

In: a model of any of them. Out: a denoiser, epsilon(x, sigma) of x = x0 + sigma epsilon. Models see x in the frame they
were trained in:

| frame | the model's x | |
|---|---|---|
| "ve" | x0 + sigma epsilon | variance exploding: x itself |
| "vp" | (x0 + sigma epsilon) / sqrt(1 + sigma^2) | variance preserving: of data and noise the squares add to 1 |
| "flow" | (x0 + sigma epsilon) / (1 + sigma) | (1 - t) x0 + t epsilon, with t = sigma / (1 + sigma) |

and predict "epsilon"; the data "x0"; "v" = (epsilon - sigma x0) / sqrt(1 + sigma^2); or the velocity of a "flow",
epsilon - x0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.generative.denoising import as_sigma

FRAMES = {"epsilon": "ve", "x0": "ve", "v": "vp", "flow": "flow"}  # of each prediction, the usual one


def to_epsilon(value: Any, x: Any, sigma: Any, prediction: str) -> Any:
    """The noise that a prediction of another kind says, for x = x0 + sigma epsilon (B, ...)."""
    level = as_sigma(sigma, x)
    if prediction == "epsilon":
        return value
    if prediction == "x0":
        return (x - value) / level
    if prediction == "v":
        square = 1 + level * level
        return level * x / square + value / np.sqrt(square)
    if prediction == "flow":
        return (x + value) / (1 + level)
    raise _unknown(prediction)


def from_epsilon(epsilon: Any, x: Any, sigma: Any, prediction: str) -> Any:
    """What a model of another kind would predict where the noise is epsilon: `to_epsilon` inverts it."""
    level = as_sigma(sigma, x)
    if prediction == "epsilon":
        return epsilon
    if prediction == "x0":
        return x - level * epsilon
    if prediction == "v":
        square = 1 + level * level
        return np.sqrt(square) * epsilon - level * x / np.sqrt(square)
    if prediction == "flow":
        return (1 + level) * epsilon - x
    raise _unknown(prediction)


def to_frame(x: Any, sigma: Any, frame: str) -> Any:
    """x = x0 + sigma epsilon (B, ...) in another frame."""
    return x / _scale(x, sigma, frame)


def from_frame(x: Any, sigma: Any, frame: str) -> Any:
    """x0 + sigma epsilon, of x (B, ...) in another frame."""
    return x * _scale(x, sigma, frame)


def as_denoiser(
    model: Callable[..., Any], prediction: str = "epsilon", frame: str | None = None,
    time: Callable[[Any], Any] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """A denoiser epsilon(x, sigma) made of a model of any parametrisation, called `model(x, time(sigma))`.

    `prediction` is "epsilon", "x0", "v" or "flow"; `frame` that of the model's x, "ve", "vp" or "flow": unless given,
    "vp" for v, "flow" for flow, "ve" otherwise. `time` is what the model wants to know of the noise level: sigma
    itself unless given, or in the frame of flow, t = sigma / (1 + sigma). More arguments (a condition) go to the model
    as they are.

        epsilon = wl.generative.as_denoiser(network, prediction="v", frame="vp")
    """
    if prediction not in FRAMES:
        raise _unknown(prediction)
    frame = FRAMES[prediction] if frame is None else frame
    if frame not in FRAMES.values():
        raise _unknown_frame(frame)
    if time is None:
        time = (lambda sigma: sigma / (1 + sigma)) if frame == "flow" else lambda sigma: sigma

    def epsilon(x: Any, sigma: Any, *args: Any, **kwargs: Any) -> Any:
        value = _like(x, model(to_frame(x, sigma, frame), time(sigma), *args, **kwargs))
        return to_epsilon(value, x, sigma, prediction)

    return epsilon


def edm_denoiser(network: Callable[..., Any], sigma_data: float = 0.5) -> Callable[..., Any]:
    """A denoiser made of a network F with the preconditioning of Karras et al. 2022 (table 1).

    E[x0 | x] = c_skip x + c_out F(c_in x, log(sigma) / 4), where c_skip = s^2 / (sigma^2 + s^2),
    c_out = sigma s / sqrt(sigma^2 + s^2), c_in = 1 / sqrt(sigma^2 + s^2) and s = sigma_data: what F takes and what it
    is to give have variance 1 at every sigma.
    """

    def epsilon(x: Any, sigma: Any, *args: Any, **kwargs: Any) -> Any:
        level = as_sigma(sigma, x)
        total = level * level + sigma_data**2
        value = _like(x, network(x / np.sqrt(total), 0.25 * np.log(sigma), *args, **kwargs))
        # (x - x0) / sigma with the sigmas cancelled, so that small ones lose nothing.
        return level * x / total - sigma_data * value / np.sqrt(total)

    return epsilon


def clipped(denoiser: Callable[..., Any], low: float = -1.0, high: float = 1.0) -> Callable[..., Any]:
    """A denoiser whose expected data, x - sigma epsilon, are clipped to values from `low` to `high`: those of images.

    Where they are within, it is the denoiser itself, bit for bit. Samples that end at noise level 0 have values within.

        sample(clipped(network), (16, 1, 28, 28), sigmas, key=wl.random.key(0))
    """
    if not low < high:
        raise ArgumentError(f"clipped: low is below high: got low={low} and high={high}")

    def epsilon(x: Any, sigma: Any, *args: Any, **kwargs: Any) -> Any:
        found, level = denoiser(x, sigma, *args, **kwargs), as_sigma(sigma, x)
        data = x - level * found
        return np.where((data >= low) & (data <= high), found, (x - np.clip(data, low, high)) / level)

    return epsilon


def _like(x: Any, value: Any) -> Any:
    """What a model returned, of the shape of x: another might be broadcast to it."""
    if np.shape(value) != np.shape(x):
        raise ArgumentError(f"a model predicts what is like x: of x {np.shape(x)} it returned {np.shape(value)}")
    return value


def _scale(x: Any, sigma: Any, frame: str) -> Any:
    level = as_sigma(sigma, x)
    if frame == "ve":
        return 1
    if frame == "vp":
        return np.sqrt(1 + level * level)
    if frame == "flow":
        return 1 + level
    raise _unknown_frame(frame)


def _unknown(prediction: Any) -> ArgumentError:
    return ArgumentError(f'a model predicts "epsilon", "x0", "v" or "flow": got {prediction!r}')


def _unknown_frame(frame: Any) -> ArgumentError:
    return ArgumentError(f'the frame of a model is "ve", "vp" or "flow": got {frame!r}')
