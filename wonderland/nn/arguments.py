"""What losses and activations ask of their arguments: anything comes in, plain or traced arrays of floats go out."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.control.effects import check
from wonderland.core.functions import handles
from wonderland.core.primitive import Primitive
from wonderland.core.tracer import Tracer, unwrap
from wonderland.numpy.join import as_value


def array(x: Any) -> Any:
    """An array, plain or traced; numbers and lists become arrays."""
    return x if isinstance(x, (Tracer, np.ndarray)) else handles([as_value(x)])[0]


def floating(x: Any, name: str = "x") -> Any:
    """An array of floating-point numbers: those keep their dtype, integers and bools become float64."""
    x = array(x)
    if x.dtype.kind == "f":
        return x
    if x.dtype.kind in "biu":
        return x.astype(np.float64)
    raise TypeError(f"{name} is an array of real numbers, got dtype {x.dtype}")


def apply(primitive: Primitive, *arrays: Any) -> Any:
    """A primitive, of arrays as users hold them."""
    return handles([primitive(*map(unwrap, arrays))])[0]


def axis_of(axis: int, shape: tuple[int, ...], what: str) -> int:
    """An axis, counted from the front."""
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"{what} has shape {shape}: there is no axis {axis}")
    return axis % len(shape)


def pair(prediction: Any, target: Any, name: str) -> tuple[Any, Any]:
    """Predictions and targets of one shape, in the dtype of the predictions. A target may be one number for all."""
    prediction, target = floating(prediction, f"{name}: the prediction"), array(target)
    if target.shape not in (prediction.shape, ()):
        raise ValueError(
            f"{name}: prediction has shape {prediction.shape}, target {target.shape}: they have the same one "
            "(nothing is broadcast: (n, 1) and (n,) would make (n, n))"
        )
    return prediction, floating(target, f"{name}: the target").astype(prediction.dtype)


def demand(condition: Any, message: str, values: Any) -> None:
    """Raise unless the condition holds for all values: now if they are known, else when the compiled code runs.

    `message` has a `{}` for the value that is wrong. Known values are named with their index; others are shown whole.
    """
    if isinstance(condition, Tracer):
        check(condition, message, values)
    elif not np.all(condition):
        wrong = np.argwhere(~np.asarray(condition))[0]
        place = f" (at index {tuple(map(int, wrong)) if len(wrong) > 1 else int(wrong[0])})" if len(wrong) else ""
        raise ValueError(message.format(np.broadcast_to(values, np.shape(condition))[tuple(wrong)]) + place)


def bounded_log(p: Any) -> Any:
    """log(p), at least -100 as in PyTorch; at 0 its derivative is large and finite, and points away from there."""
    zero = p < 4e-44
    return np.where(zero, -100 + 1e12 * p, np.log(np.where(zero, 1, p)))


def power(x: Any, exponent: float) -> Any:
    """A power of numbers that aren't negative, with derivative 0 at 0, where that of x^(1/2) isn't finite."""
    safe = np.where(x > 0, x, 1)
    return np.where(x > 0, safe**exponent, 1.0 if exponent == 0 else 0.0)
