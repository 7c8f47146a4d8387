"""Looking values up by keys: queries, keys and values come in, sums of values go out, weighted by how keys match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland import random
from wonderland.nn.activations import softmax
from wonderland.nn.arguments import array, axis_of, floating
from wonderland.transform.derivatives import stop_gradient


def lookup(
    queries: Any, keys: Any, values: Any, weighting: str | Callable = "softmax", *, scale: float = 1.0, mask: Any = None
) -> Any:
    """sum_i w_i v_i with w = weighting(scale <q, k_i>): queries (..., k) or (..., T, k) to (..., v) or (..., T, v).

    Keys are (..., n, k), values (..., n, v): a table that is read by vectors instead of numbers. `weighting` is

        "linear"              w = s; if keys are unit vectors, lookup(e_3 + 2 e_5) = v_3 + 2 v_5
        "softmax"             weights are positive, and sum to 1
        "hard"                1 for the key that matches best, the first of equals: its value as it is. A derivative
                              goes to that value only; queries and keys have none
        "straight_through"    the weights of "hard", with the derivatives of "softmax"

    or a function of the scores (..., T, n). A boolean `mask` (..., T, n) is True where a query sees a key; one of
    floats is added to the scores, and -inf hides a key.
    """
    queries, keys, values = floating(queries, "queries"), floating(keys, "keys"), floating(values, "values")
    if keys.ndim < 2 or values.ndim < 2 or keys.shape[-2] != values.shape[-2] or queries.shape[-1:] != keys.shape[-1:]:
        raise ValueError(
            "lookup takes queries (..., T, k) or (k,), keys (..., n, k) and values (..., n, v), got "
            f"{queries.shape}, {keys.shape}, {values.shape}"
        )
    return weigh(scale * (queries @ np.swapaxes(keys, -2, -1)), weighting, mask) @ values


def weigh(scores: Any, weighting: str | Callable = "softmax", mask: Any = None) -> Any:
    """Weights (..., T, n) of scores; the row of a query that sees nothing is 0."""
    function = weighting_of(weighting)
    mask = mask_of(mask)
    if mask is None:
        return function(scores)
    if mask.dtype != bool:  # what -inf hides is hidden, also from a query that sees nothing else
        scores, mask = scores + mask, mask > -np.inf
    weights = function(np.where(mask, scores, np.finfo(scores.dtype).min))
    return np.where(mask, weights, 0)


def mask_of(mask: Any) -> Any:
    """None, bools that say which keys are seen, or floats that are added to scores."""
    mask = None if mask is None else array(mask)
    if mask is not None and mask.dtype.kind not in "bf":
        raise TypeError(
            "a mask of bools says which keys are seen, one of floats is added to the scores, got dtype "
            f"{mask.dtype}: write mask.astype(bool), or mask.astype(float) if they are to be added"
        )
    return mask


def hardmax(x: Any, axis: int = -1, straight_through: bool = False) -> Any:
    """1 where x is largest along an axis, at the first such place, 0 elsewhere: softmax(c x), as c grows to infinity.

    Its derivative is 0; with `straight_through` that of softmax (Bengio et al. 2013).
    """
    x = floating(x)
    axis = axis_of(axis, x.shape, "hardmax: x")
    places = np.arange(x.shape[axis]).reshape(-1, *[1] * (x.ndim - 1 - axis))
    hard = (np.expand_dims(np.argmax(x, axis), axis) == places).astype(x.dtype)
    if not straight_through:
        return hard
    soft = softmax(x, axis)
    return hard + (soft - stop_gradient(soft))


def gumbel_softmax(key: Any, x: Any, temperature: Any = 1.0, hard: bool = False, axis: int = -1) -> Any:
    """A sample of the categories with logits x, relaxed: softmax((x + g) / temperature), g Gumbel noise of the key.

    With `hard`, the category as a vector of 0 and one 1, with the derivatives of the relaxed one, as PyTorch's.
    Jang et al. 2017, Maddison et al. 2017.
    """
    x = floating(x)
    noisy = (x + random.gumbel(key, x.shape, dtype=x.dtype)) / temperature
    return hardmax(noisy, axis, straight_through=True) if hard else softmax(noisy, axis)


WEIGHTINGS: dict[str, Callable] = {
    "softmax": softmax,
    "linear": lambda scores: scores,
    "hard": hardmax,
    "straight_through": lambda scores: hardmax(scores, straight_through=True),
}


def weighting_of(weighting: str | Callable) -> Callable:
    """A function of scores, by its name or as it is."""
    if callable(weighting):
        return weighting
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting is one of {[*WEIGHTINGS]}, or a function of scores, got {weighting!r}")
    return WEIGHTINGS[weighting]
