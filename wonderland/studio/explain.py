"""`explain`: the table that the notes draw by hand, of values, tangents and adjoints, for any function.

A function and its arguments come in; an `Explanation` goes out, which prints as a table, renders as one in a notebook,
and has the numbers in `rows`.
"""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import Call
from wonderland.core.kinds import DICT
from wonderland.core.level import Traced
from wonderland.core.printing import Printer
from wonderland.core.program import Equation, Var
from wonderland.core.types import is_differentiable, type_of
from wonderland.studio.watch import WatchedCall
from wonderland.transform.derivatives import argument_numbers


class TraceRow(NamedTuple):
    """One variable of the trace. What no derivative flows to (integers, constants) has no tangent and no adjoint."""

    name: str
    equation: str
    value: Any
    tangent: Any
    adjoint: Any


def explain(
    f: Callable,
    *args: Any,
    argnums: int | Sequence[int] | None = None,
    tangent: Any = None,
    cotangent: Any = None,
    limit: int = 60,
) -> Explanation:
    """Run `f(*args)` and tabulate each operation: its equation, value, tangent and adjoint.

    Tangents are those along the direction `tangent` of the arguments: like the argument if there is one or `argnums` is
    an int, else a tuple with one for each; ones unless given. Adjoints are derivatives of the result along
    `cotangent`, a tree like the result: ones unless given, which for an array means of the sum. `argnums` says which
    arguments are differentiated, all of them unless given; the others are constants. Of more than `limit` rows those
    in the middle are left out when printed.

    The function runs on values, so `if x > 0` works; the trace is that of the path taken. An argument that is used
    in the first operations and again later has a second row, for the later uses, as in the notes: s1 = x.
    """
    check_function(f, "explain")
    call = Call(f, args, {})
    if any(isinstance(value, Traced) for value in call.values):
        raise ArgumentError("explain shows numbers, so it can't run inside another transformation: call it outside")
    numbers = range(len(args)) if argnums is None else argument_numbers(argnums, len(args))
    select = [
        i in numbers and is_differentiable(type_of(leaf).dtype)
        for i, argument in enumerate(args)
        for leaf in tree.leaves(argument)
    ]
    chosen = [args[i] for i in numbers]
    if not any(select):
        raise ArgumentError("explain needs a floating-point argument: use 2.0 instead of 2, or .astype(float)")
    if tangent is not None and len(chosen) == 1 and (argnums is None or isinstance(argnums, (int, np.integer))):
        tangent = (tangent,)
    if tangent is not None and not isinstance(tangent, (tuple, list)):
        raise ArgumentError(f"the tangent of {len(chosen)} arguments is a tuple with one for each, not {tangent!r}")
    watched = WatchedCall(call, select)
    seeds = _given(tangent, tuple(chosen), "tangent")
    result = call.out_structure.unflatten(watched.result)  # type: ignore[union-attr]
    tangents = watched.tangents([seed for seed in seeds if seed is not None])
    adjoints = watched.adjoints(_given(cotangent, result, "cotangent"))
    return Explanation(_rows(watched, input_names(f, args), tangents, adjoints), result, limit)


def _given(given: Any, like: Any, what: str) -> list:
    """The leaves of a tangent or cotangent, ones where nothing is given, None for integers."""
    leaves, structure = tree.flatten(like)
    values, found = ([None] * len(leaves), structure) if given is None else tree.flatten(given)
    if isinstance(given, (tuple, list)) and isinstance(like, (tuple, list)) and len(given) == len(like):
        found = tree.flatten(type(like)(given))[1]
    if found != structure:
        raise ArgumentError(f"the {what} has structure {found}, what it belongs to {structure}")
    return [_matching(value, leaf, what) for value, leaf in zip(values, leaves, strict=True)]


def _matching(value: Any, leaf: Any, what: str) -> Any:
    array_type = type_of(leaf)
    if not is_differentiable(array_type.dtype):
        return None
    value = np.ones(array_type.shape, array_type.dtype) if value is None else np.asarray(value)
    if value.shape != array_type.shape:
        raise ArgumentError(f"the {what} has shape {value.shape}, expected {array_type.shape}")
    if not np.can_cast(value.dtype, array_type.dtype, "same_kind"):
        raise ArgumentError(f"the {what} has dtype {value.dtype}, expected {array_type.dtype}")
    value = value.astype(array_type.dtype)
    return value.item() if array_type.weak else value[()]


def input_names(f: Callable, args: Sequence[Any]) -> list[str]:
    """For each leaf of the arguments a name: that of the parameter, and where in the tree it is."""
    try:
        bound = inspect.signature(f).bind(*args).arguments
    except (TypeError, ValueError):
        bound = {f"x{i}": argument for i, argument in enumerate(args)}
    names: list[str] = []
    for (name, argument), last in zip(bound.items(), range(1 - len(bound), 1), strict=True):
        variadic = last == 0 and isinstance(argument, tuple) and len(argument) == 1 + len(args) - len(bound)
        if variadic and argument is not args[-1]:
            names += [n for i, a in enumerate(argument) for n in _leaf_names(a, f"{name}[{i}]")]
        else:
            names += _leaf_names(argument, name)
    return names


def _leaf_names(item: Any, name: str) -> list[str]:
    def walk(s: tree.Structure, name: str) -> list[str]:
        if s.kind is None:
            return [name]
        if not s.children:
            return []
        if s.kind is DICT:
            labels = [f"[{key!r}]" for key in s.static[1]]
        elif s.kind.mutable:
            labels = [f".{attribute}" for attribute in s.static[1]]
        else:
            labels = [f"[{i}]" for i in range(len(s.children))]
        return [n for child, label in zip(s.children, labels, strict=True) for n in walk(child, name + label)]

    return walk(tree.flatten(item)[1], name)


class _Namer(Printer):
    """The printer of Programs, with arguments named as the function names them."""

    def __init__(self, names: dict[Var, str]):
        super().__init__()
        self.taken = {*names.values()}
        self.given = names
        self.count = 0

    def name(self, atom: Any) -> str:
        if not isinstance(atom, Var):
            return repr(atom)
        if atom not in self.given:
            while (text := _letters(self.count)) in self.taken:
                self.count += 1
            self.count += 1
            self.given[atom] = text
        return self.given[atom]


def _letters(n: int) -> str:
    text = ""
    while n >= 0:
        text, n = chr(97 + n % 26) + text, n // 26 - 1
    return text


def _rows(watched: WatchedCall, input_names: list[str], tangents: dict, adjoints: dict) -> list[TraceRow]:
    namer = _Namer(dict(zip(watched.inputs, input_names, strict=True)))
    used = {a for e in watched.equations for a in e.inputs}

    def row(var: Var, text: str) -> TraceRow:
        value = watched.values[var]
        return TraceRow(namer.name(var), text, *map(_plain, (value, tangents.get(var), adjoints.get(var))))

    rows = [row(var, namer.typed(var)) for var in watched.inputs]
    rows += [row(var, f"{namer.typed(var)} := constant") for var in watched.constants if var in used]
    for var, copy in watched.carried.items():
        rows.append(row(copy, f"{namer.typed(copy)} = {namer.name(var)}"))
    for equation in watched.equations:
        rows += [row(var, text) for var, text in _texts(namer, equation, used | {*watched.outputs})]
    return rows


def _texts(namer: _Namer, equation: Equation, needed: set) -> list[tuple[Var, str]]:
    """The outputs of an equation, each with the text of its row. A Program inside shows by its primitive's name."""
    text = namer.equation(equation).partition("\n")[0].replace("  ", " ")
    first, *others = [var for var in equation.outputs if var in needed]
    return [(first, text), *((var, f"{namer.typed(var)} of the same") for var in others)]


def _plain(value: Any) -> Any:
    """A number or an array of the caller's own."""
    return None if value is None else np.array(value)[()]


HEADERS = ("equation", "value", "tangent", "adjoint")


class Explanation:
    """The table of a computation: printed by `print` and at a prompt, rendered in a notebook.

    `rows` has the data, one `TraceRow` (name, equation, value, tangent, adjoint) for each variable; `value` is what the
    function returned.
    """

    def __init__(self, rows: list[TraceRow], value: Any, limit: int):
        self.rows = rows
        self.value = value
        self.limit = limit

    def _cells(self) -> list[tuple[str, ...] | int]:
        """The rows as text; in the place of those left out, their number."""
        rows, limit = self.rows, max(self.limit, 2)
        cells: list = [(_short(r.equation), _show(r.value), _show(r.tangent), _show(r.adjoint)) for r in rows[:limit]]
        if len(rows) > limit:
            head = (limit + 1) // 2
            tail = rows[head - limit :]
            cells[head:] = [len(rows) - limit]
            cells += [(_short(r.equation), _show(r.value), _show(r.tangent), _show(r.adjoint)) for r in tail]
        return cells

    def __repr__(self) -> str:
        cells = self._cells()
        full = [HEADERS, *(c for c in cells if not isinstance(c, int))]
        widths = [max(len(row[i]) for row in full) for i in range(4)]
        lines = []
        for row in (HEADERS, tuple("-" * w for w in widths), *cells):
            if isinstance(row, int):
                lines.append(f"... {row} more rows")
            else:
                lines.append("  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th {_HEAD}>{name}</th>" for name in HEADERS)
        body = []
        for row in self._cells():
            if isinstance(row, int):
                body.append(f'<tr><td colspan="4" {_CELL}><i>{row} more rows</i></td></tr>')
            else:
                body.append("<tr>" + "".join(f"<td {_CELL}>{html.escape(cell)}</td>" for cell in row) + "</tr>")
        return f"<table {_TABLE}><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


# Colours are the page's own, so that the table fits into a light and a dark notebook.
_TABLE = 'style="border-collapse: collapse; font-family: ui-monospace, monospace; font-size: 13px"'
_EDGE = "padding: 3px 14px 3px 4px; text-align: left; white-space: pre; border-bottom: 1px solid"
_HEAD = f'style="{_EDGE} currentColor"'
_CELL = f'style="{_EDGE} rgba(128, 128, 128, 0.25)"'


def _short(text: str, width: int = 64) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _show(value: Any) -> str:
    """A number; a small array whole; of a large one the shape and the first numbers."""
    if value is None:
        return ""
    if np.ndim(value) == 0:
        return _number(value, 6)
    if value.size <= 4:
        return _nested(value)
    return f"{'x'.join(map(str, value.shape))}: {' '.join(_number(v, 4) for v in value.flat[:3])} ..."


def _nested(value: Any) -> str:
    return _number(value, 4) if np.ndim(value) == 0 else "[" + " ".join(map(_nested, value)) + "]"


def _number(value: Any, digits: int) -> str:
    return f"{value:.{digits}g}" if np.asarray(value).dtype.kind in "fc" else str(value)
