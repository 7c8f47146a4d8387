"""Large eager draws by compiled code: a function of arrays in, the same function out, compiled where that is felt.

The compiler is a later layer, loaded on the first large draw (machine code is kept on disk). Size alone decides: what a
key gives doesn't depend on what was drawn before. Without LLVM, NumPy evaluates.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.later import Slot
from wonderland.core.level import Traced, freeze
from wonderland.core.tracer import unwrap

LARGE = 1 << 15  # elements; NumPy draws fewer in a few milliseconds

compiler: Slot[[Callable[..., Any]], Callable[..., Any]] = Slot("compiler")


def natively(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f(key, *operands, shape, **options)`, whose values at a place depend on the place in the flat array alone."""

    @functools.wraps(f)
    def draw(key: Any, *operands: Any, shape: tuple[int, ...], **options: Any) -> Any:
        size = math.prod(shape)
        traced = isinstance(key, Traced) or any(isinstance(o, Traced) for o in operands)
        run = None if traced or size < LARGE else _kernel(f, size, tuple(options.items()))
        if run is None:
            return f(key, *operands, shape=shape, **options)
        flat = [o if np.ndim(o) == 0 else np.broadcast_to(o, shape).ravel() for o in operands]
        try:
            out = run(key, *flat)
            out.resize(shape, refcheck=False)  # in place: a view would have to be copied for the caller
            return freeze(out)
        except ValueError:  # parameters outside their domain: NumPy's evaluation says which
            return f(key, *operands, shape=shape, **options)

    return draw


@functools.lru_cache(maxsize=64)
def _kernel(f: Callable, size: int, options: tuple) -> Callable | None:
    """The compiled form for arrays of one size: machine code is shared between them."""

    def run(key: Any, *operands: Any) -> Any:
        return f(unwrap(key), *map(unwrap, operands), shape=(size,), **dict(options))

    try:
        return compiler(run)
    except ImportError:  # no LLVM
        return None
