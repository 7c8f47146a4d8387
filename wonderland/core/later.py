"""What comes later: names, functions and whole layers that are loaded when they are first needed.

Three things that only look alike from outside. `names` gives a package the names that a list of imports says, each
loaded on its first use. A `Slot` is a function that a layer calls and a later layer has: that one fills it when it is
imported. `PROVIDERS` says which module to import for an empty slot, or for a table that a layer fills in passing;
`wonderland/__init__.py`, which knows all layers, writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, Generic, ParamSpec, TypeVar

from wonderland.core.forks import loading
from wonderland.core.tracebacks import publish

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

PROVIDERS: dict[str, str] = {}  # a slot, or a module of NumPy's or SciPy's -> the module of ours that provides for it


def load_module(module: str) -> Any:
    """The module of this name."""
    with loading():
        return import_module(module)


def filled(table: T, module: str) -> T:
    """A table, with what is ours for a module of NumPy's or SciPy's: nobody needs it before that one is loaded."""
    if module in PROVIDERS and module in sys.modules:
        load_module(PROVIDERS[module])
    return table


class Slot(Generic[P, R]):
    """A function that this layer calls and a later one has.

    loop = Slot("loop")        # the earlier layer; `PROVIDERS["loop"]` is the module that fills it
    loop.fill(scan_p)          # the later layer, when it is imported
    """

    def __init__(self, name: str):
        self.name = name
        self._function: Callable[P, R] | None = None

    def fill(self, function: Callable[P, R]) -> Callable[P, R]:
        """Set the function; also a decorator of it."""
        self._function = function
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._function is None:
            load_module(PROVIDERS[self.name])
        assert self._function is not None, f"{PROVIDERS[self.name]} doesn't fill the slot {self.name}"
        return self._function(*args, **kwargs)


class _Imported:
    """What `from module import name` gets from a list that is only read: the two names."""

    def __init__(self, module: str, *of_import: Any):
        self.module = module

    def __getattr__(self, name: str) -> tuple[str, str]:
        return self.module, name


def listed(module: str) -> dict[str, tuple[str, str]]:
    """The names that a module imports, each with its module and its name there; nothing is imported."""
    spec = PathFinder.find_spec(module, sys.modules[module.rpartition(".")[0]].__path__)
    assert spec is not None and spec.loader is not None, module
    found: dict[str, Any] = {"__builtins__": {"__import__": _Imported}, "__name__": module}
    exec(spec.loader.get_code(module), found)  # type: ignore[attr-defined]
    return {name: source for name, source in found.items() if name[0] != "_"}


def names(
    package: str, list_of_imports: str, elsewhere: str = ""
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package that has the names of a module of imports.

    `elsewhere`: a module whose `NAMES` says what to write instead of names that others use.
    """
    sources = listed(list_of_imports)
    space = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in sources:
            advice = load_module(elsewhere).NAMES.get(name, "") if elsewhere else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}" + (advice and f": {advice}"))
        module, original = sources[name]
        if module == package:
            return load_module(f"{package}.{name}")
        space[name] = getattr(load_module(module), original)
        publish(package, space, [name])
        return space[name]

    return sorted(sources), get, lambda: sorted(sources)
