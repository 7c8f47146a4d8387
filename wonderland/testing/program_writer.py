"""A random program while it is written: statements are run as they are chosen, and their values are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import wonderland as wl

LIMIT = 4.0  # numbers that grow beyond are scaled down
MARGIN = 0.03  # between numbers that are compared
LARGEST = 60  # elements of an array


class Writer:
    """A program being written: its lines, and the values its names have."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.lines: list[str] = []
        self.statements = 0
        self.space: dict[str, Any] = {"np": np, "wl": wl}
        self.values: dict[str, Any] = {}  # in order of creation
        self.written: set[str] = set()  # arrays that the program made to write into
        self.args: dict[str, Any] = {}
        extents = [int(n) for n in rng.choice([1, 2, 3, 4], 3)]
        if rng.random() < 0.06:
            extents[0] = 0
        for i in range(int(rng.integers(1, 4))):
            shape = tuple(extents[int(k)] for k in rng.integers(0, 3, int(rng.integers(0, 3))))
            self.argument(f"x{i}", np.round(rng.uniform(-1.5, 1.5, shape), 3))
        if rng.random() < 0.4:
            self.argument("k", rng.integers(-3, 4, tuple(extents[:1])))
        if rng.random() < 0.2:
            self.argument("flags", rng.random(tuple(extents[1:2])) < 0.5)

    def argument(self, name: str, value: Any) -> None:
        value = value if np.ndim(value) else np.asarray(value)[()]
        self.args[name] = self.values[name] = value
        if isinstance(value, np.ndarray):
            value = value.copy()
            self.values[name] = value
        self.space[name] = value

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def choose(self, options: Any) -> Any:
        options = list(options)
        return options[int(self.rng.integers(len(options)))]

    def pick(self, allowed: Callable[[Any], bool] = lambda v: True, kinds: str = "f") -> str | None:
        """A name whose value is of these kinds and allowed, preferably a late one."""
        names = [n for n, v in self.values.items() if np.result_type(v).kind in kinds and allowed(v)]
        if not names:
            return None
        return names[-1 - min(int(self.rng.exponential(2.0)), len(names) - 1)]

    def value(self, expression: str) -> Any:
        with np.errstate(all="ignore"):
            return eval(expression, self.space)

    def add(self, expression: str, name: str | None = None) -> str:
        """A line `name = expression`, scaled down if the numbers are large."""
        value = self.value(expression)
        largest = float(np.max(np.abs(value), initial=0.0))
        if np.result_type(value).kind == "f" and largest > LIMIT:
            expression = f"{2 / largest:.1g} * ({expression})"
            value = self.value(expression)
        prefix = {"f": "v", "i": "i", "u": "i", "b": "m"}[np.result_type(value).kind]
        name = name or f"{prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        self.space[name] = self.values[name] = value
        return name

    def run(self, line: str) -> None:
        """A statement that writes into something."""
        self.lines.append(line)
        exec(line, self.space)

    def forget(self, line: int) -> None:
        """Take back the lines from a number on."""
        names = {text.split(" = ")[0] for text in self.lines[line:]}
        del self.lines[line:]
        self.values = {name: value for name, value in self.values.items() if name not in names}
        self.written -= names

    def clear(self, name: str, of: float = 0.0) -> bool:
        """Are all numbers clearly different from one?"""
        return bool(np.all(np.abs(self.values[name] - of) > MARGIN))

    def threshold(self, name: str) -> float | None:
        """A number clearly different from all of these."""
        for _ in range(8):
            c = round(float(self.rng.uniform(-1, 1)), 2)
            if self.clear(name, c):
                return c
        return None

    def axis(self, value: Any) -> int:
        """An axis, counted from the front or from the back."""
        return int(self.rng.integers(-np.ndim(value), np.ndim(value)))

    def results(self) -> str:
        names = list(self.values)
        floats = [n for n in names if np.result_type(self.values[n]).kind == "f"]
        chosen = floats[-3:][::-1] + [n for n in names if n not in floats and n not in self.args][-1:]
        return ", ".join(chosen) + ("," if len(chosen) == 1 else "")


def is_array(v: Any) -> bool:
    """Has it axes?"""
    return np.ndim(v) > 0


def is_full(v: Any) -> bool:
    """Has it axes, and elements?"""
    return np.ndim(v) > 0 and np.size(v) > 0


def fits_with(x: Any) -> Callable[[Any], bool]:
    """Does it broadcast with x, to something not too large?"""

    def fits(y: Any) -> bool:
        try:
            shape = np.broadcast_shapes(np.shape(x), np.shape(y))
        except ValueError:
            return False
        return int(np.prod(shape)) <= LARGEST

    return fits
