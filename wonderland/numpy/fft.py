"""`wonderland.numpy.fft`: NumPy's `fft`, on traced arrays too. What isn't here is NumPy's own."""

from typing import Any

import numpy as _np

from wonderland.numpy import fourier as _fourier  # noqa: F401  (registers the functions)
from wonderland.numpy.dispatch import spaces as _spaces


def __getattr__(name: str) -> Any:
    ours = _spaces["numpy.fft"]
    return ours[name] if name in ours else getattr(_np.fft, name)


def __dir__() -> list[str]:
    return sorted(_spaces["numpy.fft"])
