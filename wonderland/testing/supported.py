"""The page of supported functions, from the op table: `python -m wonderland.testing.supported docs/supported.md`.

What comes in are the rows of the table; what goes out is Markdown, a table for each of NumPy's and SciPy's modules.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import wonderland as wl
from wonderland.core.program import Program, subprograms
from wonderland.core.tracer import METHODS, PROPERTIES, UFUNCS
from wonderland.testing import op_table
from wonderland.testing.op_checks import samples
from wonderland.testing.op_table import Row, name_of

TITLES = {
    "np": "NumPy",
    "np.linalg": "Linear algebra: `np.linalg`",
    "np.fft": "Fourier transforms: `np.fft`",
    "scipy.special": "`scipy.special`",
    "scipy.linalg": "`scipy.linalg`",
}

HEADER = """\
# Supported functions

Every function here works on traced arrays: inside `wl.grad`, `wl.jvp`, `wl.vmap`, `wl.jit` and all the others, under
NumPy's own name (`import numpy as np`) and in `wonderland.numpy`. SciPy's Python functions (those without a ufunc) have
no hook for other arrays: call them from `wonderland.scipy`, or wrap your function in `wl.lift`.

What isn't here raises an error that says so; nothing is silently computed without its derivative.

- **derivative**: *yes*; *0* where the function is piecewise constant (its derivative is zero wherever it exists); *-*
  where the result is an integer, a bool or a shape.
- **compiled**: *native* if every operation of it has native code; *NumPy* if some part of it is evaluated by NumPy
  inside the compiled function; *no* where the shape of the result depends on values: there it works in eager
  derivatives only.

The list is made from the table that the tests run: each function is checked against NumPy, against central differences,
forward against reverse, to second order, batched and compiled.
"""


def page() -> str:
    """The whole page."""
    op_table.load()
    groups: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in op_table.NUMPY:
        module, _, name = name_of(row.original).rpartition(".")
        groups[module][name].append(row)
    count = sum(len(names) for names in groups.values())
    parts = [HEADER, f"There are {count} functions, and the methods and operators of arrays below.\n"]
    for module, title in TITLES.items():
        if module not in groups:
            continue
        parts += [f"## {title}\n", "| function | derivative | compiled |", "|---|---|---|"]
        for name, rows in sorted(groups[module].items(), key=lambda item: item[0].lower()):
            parts.append(f"| `{module}.{name}` | {_derivative(rows)} | {_compiled(rows)} |")
        parts.append("")
    return "\n".join([*parts, _methods(), ""])


def _derivative(rows: list[Row]) -> str:
    kinds = set()
    for row in rows:
        if "derivatives" in row.excluded or not set(row.dtypes) & set("fc"):
            kinds.add("-")
        elif row.excluded.get("pattern exact") == "its derivative is zero":
            kinds.add("0")
        else:
            kinds.add("yes")
    return next(kind for kind in ("yes", "0", "-") if kind in kinds)


def _compiled(rows: list[Row]) -> str:
    if all("recording" in row.excluded for row in rows):
        return "no"
    return "native" if all(_is_native(row) for row in rows if "recording" not in row.excluded) else "NumPy"


def _is_native(row: Row) -> bool:
    dtype = next(n for n in ("float64", "int64", "bool", "complex128") if n in row.dtype_names())
    with np.errstate(all="ignore"):
        for sample in samples(row, [dtype], ("contiguous",)):
            if not _lowered(wl.trace(sample.function)(*sample.args())):
                return False
    return dtype != "complex128"


def _lowered(program: Program) -> bool:
    return all(
        (e.primitive.lower is not None or e.primitive.inline is not None) and all(map(_lowered, subprograms(e)))
        for e in program.equations
    )


def _methods() -> str:
    methods = sorted(name for name in METHODS if not name.startswith("_"))
    operators = sorted({name.strip("_").removeprefix("r") for name in METHODS if name.startswith("__")} - {"getitem"})
    ufunc_methods = defaultdict(list)
    for key in UFUNCS:
        if isinstance(key, tuple):
            ufunc_methods[key[1]].append(name_of(key[0]))
    lines = [
        "## Methods, attributes and operators of arrays\n",
        "Methods: " + _code(methods) + ".\n",
        "Attributes: "
        + _code(sorted(n for n in [*PROPERTIES, "shape", "dtype", "ndim", "size"] if n[0] != "_"))
        + ".\n",
        "Operators, in place too: " + _code(operators) + "; indexing and assignment to parts.\n",
    ]
    for method, names in sorted(ufunc_methods.items()):
        lines.append(f"`ufunc.{method}`: " + _code(sorted(names)) + ".\n")
    return "\n".join(lines).rstrip()


def _code(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
