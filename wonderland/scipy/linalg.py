"""`wonderland.scipy.linalg`: SciPy's `linalg`, on traced arrays too. What isn't here is SciPy's own."""

from typing import Any

import scipy.linalg as _original

from wonderland.numpy.dispatch import spaces as _spaces
from wonderland.scipy import linear_algebra as _linear_algebra  # noqa: F401  (registers the functions)


def __getattr__(name: str) -> Any:
    ours = _spaces["scipy.linalg"]
    return ours[name] if name in ours else getattr(_original, name)


def __dir__() -> list[str]:
    return sorted(_spaces["scipy.linalg"])
