"""The page of supported functions, from the op table: `python -m wonderland.testing.supported docs/supported.md`.

What comes in are the rows of the table and the tables through which NumPy's calls reach us; what goes out is Markdown.
A function is in the group of the file of `rows/` that its row is in.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.compile import passes
from wonderland.compile.calls import HostNode
from wonderland.compile.lower import lower_program
from wonderland.compile.nodes import Region
from wonderland.compile.signature import Signature
from wonderland.core import tree
from wonderland.core.tracer import METHODS, PROPERTIES, UFUNCS, Tracer
from wonderland.testing import op_table
from wonderland.testing.check_grads import random_like
from wonderland.testing.op_samples import Sample, samples
from wonderland.testing.op_table import Row, name_of

GROUPS = {
    "elementwise": "Elementwise",
    "reduce": "Reductions and running sums",
    "shape": "Shapes, joining and splitting",
    "index": "Indexing and selecting",
    "sorting": "Sorting and statistics",
    "products": "Products and `einsum`",
    "calculus": "Calculus, polynomials, signals",
    "construction": "Construction",
    "np.linalg": "Linear algebra: `np.linalg`",
    "scipy.linalg": "Linear algebra: `scipy.linalg`",
    "scipy.signal": "Signals: `scipy.signal`",
    "np.fft": "Fourier transforms: `np.fft`",
    "scipy.special": "Special functions: `scipy.special`",
}

# Those that a person looks for elsewhere than beside the functions that they are tested with.
ELSEWHERE = {
    "construction": "zeros_like ones_like empty_like full_like linspace logspace geomspace meshgrid vander copy astype",
    "sorting": "cov corrcoef average median",
    "reduce": "ptp",
    "index": "where ix_ tril_indices_from triu_indices_from diag_indices_from fill_diagonal",
}

# The constructors of `wonderland.numpy`, which have no row because what comes in isn't an array.
HOLDERS = "zeros ones empty full eye identity".split()
TAKERS = "array asarray asanyarray ascontiguousarray asfortranarray arange".split()

BEFORE = {
    "construction": "NumPy has no hook for constructors. In `wonderland.numpy`, and under `wl.lift` with NumPy's own "
    "names, traced values may be written to what {holders} make, and be given to {takers}. "
    "[Code that writes in place](in-place.md) shows both.",
    "np.linalg": "[Linear algebra](linear-algebra.md) says which derivative is meant at degenerate points.",
    "scipy.linalg": "As `wonderland.scipy.linalg`, or under SciPy's own names in `wl.lift`.",
    "scipy.signal": "As `wonderland.scipy.signal`, or under SciPy's own names in `wl.lift`.",
    "scipy.special": "SciPy's ufuncs work under their own names; its Python functions, marked †, as "
    "`wonderland.scipy.special`, or under their own names in `wl.lift`.",
}

HEADER = """\
# Supported functions

About {count} functions work on traced arrays: inside `wl.grad`, `wl.jvp`, `wl.vmap`, `wl.jit` and all the
others, under NumPy's own names (`import numpy as np`) and in `wonderland.numpy`. So do the
[methods and operators](#methods-attributes-operators) of arrays. What isn't here raises an error that says so; nothing
is silently computed without its derivative. (Your NumPy may be too old to have the newest of them.)

| column | says | |
|---|---|---|
| derivative | yes | at kinks and singular points: see [sharp edges](sharp-edges.md#derivatives-where-there-is-none) |
| | 0 | piecewise constant: the derivative is zero wherever there is one |
| | - | the result is an integer, a bool or a shape |
| compiled | native | every operation of it is native code (special functions for real numbers only) |
| | NumPy | some part of it is evaluated by NumPy inside the compiled function: [which, and why](#by-numpy-and-why) |
| | no | the shape of the result depends on values: it works in eager derivatives only |

The page is made from the table that drives the tests: each function is compared with NumPy's, with central differences,
forward with reverse, to second order, batched and compiled. Some options of a function may be compiled otherwise than
its usual form, which is what the tables show: `jitted.inspect(...)` tells.
"""

BY_NUMPY = """\
## By NumPy, and why

What these operators do inside a compiled function is done by NumPy or SciPy, between native steps: right, and as fast
as they are. So is everything on dtypes that compiled code doesn't have (float16, long doubles), whatever the function
is. `jitted.inspect(...)` says the same of a function of yours, in what it prints and in `reasons`.
"""

SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "invert": "~", "neg": "-x", "pos": "+x",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "abs": "abs(x)", "round": "round(x)", "divmod": "divmod(x, y)",
}  # fmt: skip


def page() -> str:
    """The whole page."""
    groups = functions()
    parts = [HEADER.format(count=round(sum(map(len, groups.values())), -1))]
    for group, title in GROUPS.items():
        parts.append(f"## {title}\n")
        if group in BEFORE:
            parts.append(BEFORE[group].format(holders=_code(HOLDERS), takers=_code(TAKERS)) + "\n")
        parts += ["| derivative | compiled | functions |", "|---|---|---|"]
        kinds: dict[tuple[str, str], list[str]] = defaultdict(list)
        for name, row in sorted(groups[group].items(), key=lambda item: item[0].lower()):
            mark = " †" if group == "scipy.special" and not isinstance(row.original, np.ufunc) else ""
            kinds[_derivative(row), _compiled(row)].append(f"`{name}`{mark}")
        for derivative, compiled in product(("yes", "0", "-"), ("native", "NumPy", "no")):
            if names := kinds[derivative, compiled]:
                parts.append(f"| {derivative} | {compiled} | {', '.join(names)} |")
        parts.append("")
    return "\n".join([*parts, _by_numpy(groups), _methods(), ""])


def functions() -> dict[str, dict[str, Row]]:
    """For each group the functions by name, each with its main row: the one without a label, or the first."""
    op_table.load()
    moved = {f"np.{name}": group for group, names in ELSEWHERE.items() for name in names.split()}
    main: dict[str, Row] = {}
    for row in sorted(op_table.NUMPY, key=lambda row: bool(row.label)):
        main.setdefault(row.name, row)
    groups: dict[str, dict[str, Row]] = defaultdict(dict)
    for name, row in main.items():
        module = name.rpartition(".")[0]
        groups[module if module in GROUPS else moved.get(name, row.family)][name] = row
    return groups


def _derivative(row: Row) -> str:
    """By what comes out of the samples, and by its tangents."""
    found = "-"
    for sample in samples(row, ["float64", "complex128"], ("contiguous",)):
        args = sample.args()
        chosen = sample.differentiated(args)
        if not chosen or _is_exact(row, args, sample.case.params):
            continue

        def f(values: tuple, sample: Sample = sample, args: tuple = args, chosen: list[int] = chosen) -> Any:
            given = dict(zip(chosen, values, strict=True))
            return sample.function(*(given.get(i, a) for i, a in enumerate(args)))

        primals = tuple(args[i] for i in chosen)
        with np.errstate(all="ignore"):
            out, tangent = wl.jvp(f, (primals,), (random_like(primals, np.random.default_rng(0)),))
        for o, t in zip(tree.leaves(out), tree.leaves(tangent), strict=True):
            if np.asarray(o).dtype.kind in "fc":
                found = "0"
                if np.any(np.asarray(t) != 0):
                    return "yes"
    return found


def _is_exact(row: Row, args: tuple, params: dict) -> bool:
    """Are there only integers and bools in the function's own result, which its row may make something of?"""
    try:
        with np.errstate(all="ignore"):
            out = tree.leaves(row.original(*map(np.copy, args), **params))
    except (TypeError, ValueError):  # it is called otherwise than with the row's operands
        return False
    return bool(out) and all(np.asarray(o).dtype.kind in "biu" for o in out)


def _compiled(row: Row) -> str:
    if "recording" in row.excluded:
        return "no"
    return "NumPy" if reasons(row) else "native"


def reasons(row: Row) -> dict[str, str]:
    """The operators of a function that NumPy evaluates in compiled code, each with the reason; as `Compiled.reasons`.

    Lowering finds them; nothing is compiled.
    """
    dtype = next(n for n in ("float64", "int64", "bool", "complex128") if n in row.dtype_names())
    found: dict[str, str] = {}
    with np.errstate(all="ignore"):
        for sample in samples(row, [dtype], ("contiguous",)):
            program = passes.optimize(wl.trace(sample.function)(*sample.args()))[-1][1]
            region = lower_program(program, Signature(program, {}, ()))
            region.drop_unused()
            found.update((node.name, node.why) for node in _hosts(region))
    return found


def _hosts(region: Region) -> Iterator[HostNode]:
    for node in region.nodes:
        if isinstance(node, HostNode) and not node.has_effect:
            yield node
        for inner in node.regions:
            yield from _hosts(inner)


def _by_numpy(groups: dict[str, dict[str, Row]]) -> str:
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, row in sorted(item for group in groups.values() for item in group.items()):
        for operator in reasons(row).items() if "recording" not in row.excluded else ():
            users[operator].append(name)
    lines = [BY_NUMPY, "| operator | why | functions |", "|---|---|---|"]
    lines += [f"| `{operator}` | {why} | {_code(names)} |" for (operator, why), names in sorted(users.items())]
    return "\n".join([*lines, ""])


def _methods() -> str:
    methods = [f"x.{name}" for name in sorted(METHODS) if not name.startswith("_")]
    known = {*PROPERTIES, *(n for n, v in vars(Tracer).items() if isinstance(v, property))}
    attributes = [n for n in known if n[0] != "_" and hasattr(np.ndarray, n)]
    operators = [symbol for name, symbol in SYMBOLS.items() if f"__{name}__" in METHODS]
    in_place = [f"{symbol}=" for name, symbol in SYMBOLS.items() if hasattr(Tracer, f"__i{name}__")]
    aliases = {n: getattr(np, n).__name__ for n in dir(wnp) if getattr(getattr(np, n, None), "__name__", n) != n}
    lines = [
        "## Methods, attributes, operators\n",
        "| | |",
        "|---|---|",
        "| operators | " + _code(operators) + " |",
        "| in place | " + _code(in_place) + " |",
        "| parts | `x[i]`, `x[i] = v`, `x[1:, ::2]`, `x[[2, 0]]`, `x[mask]`, `x[..., None]`; `wl.at(x)[i].set(v)` |",
        "| methods | " + _code(methods) + " |",
        "| attributes | " + _code(sorted((f"x.{n}" for n in attributes), key=str.lower)) + " |",
        "| other names | " + ", ".join(f"`np.{n}` (`{name}`)" for n, name in aliases.items()) + " |",
    ]
    by_method = defaultdict(list)
    for key in UFUNCS:
        if isinstance(key, tuple):
            by_method[key[1]].append(name_of(key[0]))
    for method, names in sorted(by_method.items()):
        shown = "all elementwise functions of two arrays" if method == "outer" else _code(sorted(names))
        lines.append(f"| `ufunc.{method}` | {shown} |")
    return "\n".join(lines)


def _code(names: Iterable[str]) -> str:
    # Between backticks a bar would end the cell of a table, or show with its backslash.
    return ", ".join(f"<code>{n.replace('|', '&#124;')}</code>" if "|" in n else f"`{n}`" for n in names)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
