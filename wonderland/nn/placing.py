"""What layers say of wrong inputs: which layer it is, by its dotted name in the model, what it expected, what came."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from wonderland.core.level import running
from wonderland.core.program import Record
from wonderland.core.tracebacks import warn_user
from wonderland.core.tracer import Tracer
from wonderland.nn.arguments import array
from wonderland.nn.captured import unwatched
from wonderland.nn.module import Module
from wonderland.nn.names import named_modules


class PromotionWarning(UserWarning):
    """A layer computes in a wider dtype than its parameters have, because its input has that dtype."""


def place_of(layer: Any) -> str:
    """`layers.2 (Linear)`: the dotted name of a layer in the outermost Module that is being called, and its class.

    Layers don't know what holds them, and needn't: the frames of the call do. It is asked for in errors only.
    """
    name, frame = "", sys._getframe(1)
    with unwatched():
        while frame is not None:
            if frame.f_code.co_name != "<module>" or not name:
                name = next(filter(None, (_name_in(value, layer) for value in _modules(frame))), name)
            frame = frame.f_back
    return f"{name} ({type(layer).__name__})" if name else type(layer).__name__


def _modules(frame: FrameType) -> list[Module]:
    return [value for value in list(frame.f_locals.values()) if isinstance(value, Module)]


def _name_in(model: Module, layer: Any) -> str:
    """By the function, not the method: a frame's Module isn't read by what is being recorded, only looked at."""
    return next((name for name, node in named_modules(model) if node is layer), "")


def wrong_shape(layer: Any, expected: str, got: tuple[int, ...], what: str = "an input") -> ValueError:
    """The error for an input whose shape doesn't fit."""
    return ValueError(f"{place_of(layer)}: expected {what} of shape {expected}, got {tuple(got)}")


def wrong_channels(layer: Any, channels: int | None, axis: int, got: tuple[int, ...]) -> ValueError:
    """The error for an input with other channels."""
    expected = (*got[:axis], channels, *got[axis + 1 :])
    return wrong_shape(layer, f"{expected}, with {channels} channels along axis {axis}", got)


@contextmanager
def placed(layer: Any) -> Iterator[None]:
    """Errors of what a layer is computed by say which layer it is."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError):
            raise  # of the engine, about what was traced
        raise type(error)(f"{place_of(layer)}: {error}") from None


def numbers(layer: Any, x: Any, weight: Any = None) -> Any:
    """The input of a layer as an array of numbers; a recorded one that makes the layer compute wider warns."""
    x = array(x)
    if weight is not None and x.dtype != weight.dtype:
        _check_dtype(layer, x, weight)
    return x


def _check_dtype(layer: Any, x: Any, weight: Any) -> None:
    if x.dtype.kind not in "biufc":
        raise TypeError(f"{place_of(layer)}: expected an input of numbers, got dtype {x.dtype}")
    wide = np.result_type(x.dtype, weight.dtype)
    real = x.dtype.kind != "c"
    if wide != weight.dtype and real and any(isinstance(level, Record) for level in running()):
        warn_user(
            f"{place_of(layer)}: the input is {x.dtype} and the parameters are {weight.dtype}, so that all that "
            f"follows is computed in {wide}. Convert the input, x.astype(np.{weight.dtype}), or make the layer with "
            f"dtype=np.{wide}.",
            PromotionWarning,
        )


def indices(layer: Any, x: Any) -> Any:
    """The input of a layer that takes integers."""
    x = x if isinstance(x, (Tracer, np.ndarray)) else np.asarray(x)
    if x.dtype.kind not in "iu":
        raise TypeError(f"{place_of(layer)}: expected an input of integers, got dtype {x.dtype}")
    return x
