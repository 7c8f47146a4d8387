"""Random NumPy programs: `random_program(seed)` gives a function and arguments to test transformations with.

A seed comes in; a function made of statements that NumPy users write, and arguments for it, go out. Each statement is
run on those arguments as it is chosen, so shapes always fit; numbers stay small, and decisions (comparisons, maxima,
sorting, rounding) are made clearly: the program is smooth around its arguments, and central differences hold.
`print(function)` shows a script that can be pasted and run.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

import wonderland as wl
from wonderland.testing.program_writer import Writer
from wonderland.testing.statements import FAMILIES
from wonderland.testing.wide_statements import WIDE


class RandomProgram:
    """A function with its source; `repr` is a script that reproduces a call."""

    seed: int
    args: tuple[Any, ...]
    lines: list[str]
    results: str

    def __init__(self, seed: int, lines: list[str], results: str, args: dict[str, Any]):
        self.seed, self.args = seed, tuple(args.values())
        self.lines, self.results = lines, results
        self.__name__: str = f"program_{seed}"
        head = f"def {self.__name__}({', '.join(args)}):"
        self.source: str = "\n".join([head, *(f"    {line}" for line in [*lines, f"return {results}"])]) + "\n"
        self._names = list(args)
        file = f"<random program {seed}>"
        linecache.cache[file] = (len(self.source), None, self.source.splitlines(True), file)
        space: dict[str, Any] = {"np": np, "wl": wl}
        exec(compile(self.source, file, "exec"), space)
        self.function: Callable = space[self.__name__]

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        return self.function(*args)

    def __repr__(self) -> str:
        given = "\n".join(f"{name} = {_literal(a)}" for name, a in zip(self._names, self.args, strict=True))
        call = f"print({self.__name__}({', '.join(self._names)}))"
        return f"import numpy as np\nimport wonderland as wl\n\n{self.source}\n{given}\n{call}\n"


def _literal(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return f"np.{value.dtype}({value!s})"
    text = np.array2string(value, separator=", ", threshold=1 << 30, max_line_width=100, floatmode="unique")
    return f"np.array({text}, dtype=np.{value.dtype}).reshape({value.shape})".replace("np.bool", "bool")


def random_program(
    seed: int, size: int = 12, ops: Collection[str] | None = None, wide: bool = False
) -> tuple[RandomProgram, tuple[Any, ...]]:
    """A random program and arguments for it: `(function, args)`, the same for the same seed and options.

    `size` counts its statements; `ops` limits them to families, of which `random_programs.FAMILIES` has the names;
    `wide` adds those of `wide_statements`. Some arguments are integers or bools. The function returns a tuple of arrays
    and numbers, the first of floating point.
    """
    unknown = set(ops or ()) - set(FAMILIES) - set(WIDE)
    if unknown:
        raise ValueError(f"no families of statements {sorted(unknown)}; there are {', '.join(FAMILIES)}")
    writer = Writer(np.random.default_rng([seed, size, 1] if wide else [seed, size]))
    known = FAMILIES | WIDE if wide else FAMILIES
    families = [f for name, (f, weight) in known.items() if ops is None or name in ops for _ in range(weight)]
    goal, attempts = size, 0
    while writer.statements < goal and attempts < 20 * size:
        attempts += 1
        before = len(writer.lines)
        try:
            families[int(writer.rng.integers(len(families)))](writer)
        except (ValueError, TypeError, IndexError, OverflowError):
            if not wide:
                raise
            writer.forget(before)  # these families choose without looking whether everything fits
        writer.statements += len(writer.lines) > before
    program = RandomProgram(seed, writer.lines, writer.results(), writer.args)
    return program, program.args


if __name__ == "__main__":
    from wonderland.testing.compiled_programs import main

    main()
