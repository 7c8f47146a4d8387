"""`wonderland.scipy.signal`: SciPy's `signal`, on traced arrays too. What isn't here is SciPy's own."""

from typing import Any

import scipy.signal as _original

from wonderland.numpy.dispatch import spaces as _spaces
from wonderland.scipy import signals as _signals  # noqa: F401  (registers the functions)


def __getattr__(name: str) -> Any:
    ours = _spaces["scipy.signal"]
    return ours[name] if name in ours else getattr(_original, name)


def __dir__() -> list[str]:
    return sorted(_spaces["scipy.signal"])
