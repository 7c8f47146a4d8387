"""What a benchmark is: a name, inputs, and one function per contender that prepares a call."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

OURS = "wonderland"
BENCHMARKS: dict[str, Benchmark] = {}

Call = Callable[[], Any]


class Benchmark:
    """One computation, and how each contender does it.

    `inputs()` makes NumPy data, the same for everyone. A contender gets them and returns a call without
    arguments that is compiled, holds its inputs in the contender's own arrays, and returns only when its
    result is there. Before anything is timed, the results of the first `check_calls` calls must agree within
    `rtol` and `atol`. Calls of a `self_timed` benchmark return the seconds they took.
    """

    def __init__(
        self,
        name: str,
        about: str,
        inputs: Callable[[], tuple[Any, ...]] = tuple,
        targets: dict[str, float] | None = None,
        rtol: float = 1e-5,
        atol: float = 1e-6,
        check_calls: int = 1,
        self_timed: bool = False,
    ):
        self.name, self.about, self.inputs = name, about, inputs
        self.targets = targets or {}
        self.rtol, self.atol, self.check_calls = rtol, atol, check_calls
        self.self_timed = self_timed
        self.contenders: dict[str, Callable[..., Call]] = {}
        if name in BENCHMARKS:
            raise ValueError(f"there are two benchmarks called {name!r}")
        BENCHMARKS[name] = self

    @property
    def peers(self) -> list[str]:
        return [name for name in self.contenders if name != OURS]

    def contender(self, name: str) -> Callable[[Callable[..., Call]], Callable[..., Call]]:
        """Decorator: the function under it prepares the call of contender `name`."""

        def register(prepare: Callable[..., Call]) -> Callable[..., Call]:
            self.contenders[name] = prepare
            return prepare

        return register


def load() -> dict[str, Benchmark]:
    """All benchmarks, by importing every module of `bench.cases`."""
    from bench import cases

    for module in pkgutil.iter_modules(cases.__path__):
        importlib.import_module(f"bench.cases.{module.name}")
    return BENCHMARKS
