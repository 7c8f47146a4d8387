"""`wonderland.numpy.linalg`: NumPy's `linalg`, on traced arrays too. What isn't here is NumPy's own."""

from typing import Any

import numpy as _np

from wonderland.numpy import linear_algebra as _linear_algebra  # noqa: F401  (registers the functions)
from wonderland.numpy.dispatch import spaces as _spaces


def __getattr__(name: str) -> Any:
    ours = _spaces["numpy.linalg"]
    return ours[name] if name in ours else getattr(_np.linalg, name)


def __dir__() -> list[str]:
    return sorted(_spaces["numpy.linalg"])
