"""NumPy and SciPy for the tables of their functions, complete: one that this version doesn't have is a stand-in.

    from wonderland.numpy.missing import np

    @implements(np.sort_complex)     # in a NumPy without it, this registers nothing; np.sort_complex(x) raises

`np` is NumPy with its own functions under their names, so that nothing else changes.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy


class Missing:
    """The stand-in of a function that a module doesn't have."""

    __name__: str

    def __init__(self, module: str, name: str):
        self.__module__, self.__name__ = module, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(f"the installed {self.__module__} has no {self.__name__}")


def complete(module: Any, parts: tuple[str, ...] = ()) -> Any:
    """A module in which every name is something; so are those of its submodules `parts`."""
    whole = ModuleType(module.__name__)
    vars(whole).update(vars(module) | {part: complete(getattr(module, part)) for part in parts})

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return getattr(module, name, Missing(module.__name__, name))  # a module may load names when asked

    vars(whole)["__getattr__"] = find
    return whole


if TYPE_CHECKING:
    import numpy as np
else:
    np = complete(numpy, ("linalg", "fft"))
