"""What a benchmark is: a name, inputs, and one function per contender that prepares a call."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

OURS = "wonderland"
BENCHMARKS: dict[str, Benchmark] = {}

Call = Callable[[], Any]
Prepare = Callable[..., Call]


class Benchmark:
    """One computation, and how each contender does it.

    `inputs()` makes NumPy data, the same for everyone. A contender gets them and returns a call without
    arguments that is compiled, holds its inputs in the contender's own arrays, and returns only when its
    result is there. Before anything is timed, the results of the first `check_calls` calls must agree within
    `rtol` and `atol`. Calls of a `self_timed` benchmark return the seconds they took.

    `limit` is what our time may be at most as a multiple of any peer's, so of the best one's; `targets` says it
    peer by peer; `seconds` is an absolute limit. `left_out` has the peers that aren't asked, and why.
    """

    def __init__(
        self,
        name: str,
        group: str,
        about: str,
        inputs: Callable[[], tuple[Any, ...]] = tuple,
        *,
        limit: float | None = None,
        targets: dict[str, float] | None = None,
        seconds: float | None = None,
        left_out: dict[str, str] | None = None,
        rtol: float = 1e-5,
        atol: float = 1e-6,
        check_calls: int = 1,
        self_timed: bool = False,
        float64: bool = False,
    ):
        self.name, self.group, self.about, self.inputs = name, group, about, inputs
        self.limit, self.seconds = limit, seconds
        self.own_targets, self.left_out = targets or {}, left_out or {}
        self.rtol, self.atol, self.check_calls = rtol, atol, check_calls
        self.self_timed, self.float64 = self_timed, float64
        self.contenders: dict[str, Prepare] = {}
        if name in BENCHMARKS:
            raise ValueError(f"there are two benchmarks called {name!r}")
        BENCHMARKS[name] = self

    @property
    def peers(self) -> list[str]:
        return [name for name in self.contenders if name != OURS]

    @property
    def targets(self) -> dict[str, float]:
        """The largest ratio allowed, by peer."""
        return self.own_targets if self.limit is None else dict.fromkeys(self.peers, self.limit)

    def contender(self, name: str) -> Callable[[Prepare], Prepare]:
        """Decorator: the function under it prepares the call of contender `name`."""

        def register(prepare: Prepare) -> Prepare:
            self.contenders[name] = prepare
            return prepare

        return register

    def torch(self, prepare: Prepare) -> Prepare:
        """Decorator: PyTorch, eager and compiled. The function gets what to compile with before the inputs."""

        def compiled(*inputs: Any) -> Call:
            import torch

            return prepare(torch.compile, *inputs)

        self.contenders["torch"] = lambda *inputs: prepare(uncompiled, *inputs)
        self.contenders["torch.compile"] = compiled
        return prepare

    def torch_in_both_formats(self, prepare: Prepare) -> Prepare:
        """Decorator: as `torch`, and once more with images in PyTorch's other memory format.

        There the function gets `channels_last=True`. `torch.compile` chooses the format itself.
        """
        self.contenders["torch.channels_last"] = lambda *inputs: prepare(uncompiled, *inputs, channels_last=True)
        return self.torch(prepare)


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """What compiles in eager PyTorch."""
    return function


def load() -> dict[str, Benchmark]:
    """All benchmarks, by importing every module of `bench.cases`, group by group."""
    from bench import cases

    for name in cases.ORDER:
        importlib.import_module(f"bench.cases.{name}")
    forgotten = {module.name for module in pkgutil.iter_modules(cases.__path__)} - {*cases.ORDER}
    if forgotten:
        raise ValueError(f"bench.cases.ORDER doesn't have {', '.join(sorted(forgotten))}")
    return BENCHMARKS


def select(benchmarks: dict[str, Benchmark], words: list[str]) -> list[Benchmark]:
    """The benchmarks whose name or group has one of the words in it; all of them without words."""
    for word in words:
        if not any(word in b.name or word in b.group for b in benchmarks.values()):
            raise KeyError(word)
    return [b for b in benchmarks.values() if not words or any(w in b.name or w in b.group for w in words)]
