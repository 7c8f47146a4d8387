"""`import wonderland.scipy.special`: SciPy's special functions, on traced arrays too.

SciPy's ufuncs (`scipy.special.erf`) find their way here by themselves. Its Python functions (`logsumexp`, `softmax`,
`polygamma`, ...) offer no hook: call them from here, or inside `wl.lift`. What isn't here is SciPy's own function.
"""

from typing import Any

import scipy.special as _scipy

from wonderland.numpy.dispatch import spaces as _spaces
from wonderland.scipy import special_functions as _functions  # noqa: F401  (registers them)

_namespace = _spaces["scipy.special"]


def __getattr__(name: str) -> Any:
    if name in _namespace:
        return _namespace[name]
    return getattr(_scipy, name)


def __dir__() -> list[str]:
    return sorted(_namespace)
