"""Larger matrices by LAPACK: nodes of stacks (..., n, n) come in, factors and solutions go out.

`scipy.linalg` offers BLAS and LAPACK to C, and compiled code calls them as it calls anything: no Python, no lock. Their
matrices lie column by column and ours row by row, so what we hand over is the transpose. A system is solved from the
factors of a', with right-hand sides that are rows: x' a' = b'. Where the factors are the result, a is copied.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland.compile import foreign, ir
from wonderland.compile.loops import I64
from wonderland.compile.memory import ALIGNMENT, round_up
from wonderland.compile.nodes import Node
from wonderland.compile.procedures import Array, Code
from wonderland.compile.scalars import TYPES, Scalar
from wonderland.core.types import ArrayType

LETTERS = {4: "s", 8: "d"}  # that names of routines begin with, by the bytes of a number
I32 = np.dtype(np.int32)
SINGULAR = (np.linalg.LinAlgError, "Singular matrix")
CALL = 1000.0  # nanoseconds that a routine takes at least


class Routines:
    """Calls of LAPACK from the code of a procedure: every argument is the address of a number or letter."""

    def __init__(self, code: Code, dtype: np.dtype, scratch: ir.Value | None = None):
        self.code: Code = code
        self.f: ir.Function = code.f
        self.dtype: np.dtype = dtype
        self.scratch: ir.Value | None = scratch
        self._given: dict[Any, ir.Value] = {}
        self._used: int = 0

    def room(self, count: int, dtype: np.dtype | None = None) -> Array:
        """So many numbers of the scratch memory."""
        dtype = dtype or self.dtype
        place = self.code.shifted(self.scratch, self._used)  # type: ignore[arg-type]
        self._used += room(count, dtype)
        return self.code.buffer(place, dtype)

    def call(self, name: str, *args: Any) -> Scalar:
        """Call a routine; letters, integers and 1.0 by their values. Returns what it says in its last argument."""
        given = [a.pointer if isinstance(a, Array) else self._address(a) for a in args]
        self.f.call(foreign.routine(LETTERS[self.dtype.itemsize] + name, len(given)), *given)
        info = self.f.load(ir.INT, given[-1], align=4)
        return Scalar(info.text, I32, self.code)

    def _address(self, value: Any) -> ir.Value:
        key = value.__class__, value  # 1 and 1.0 are equal, and not the same bytes
        if key not in self._given:
            type = ir.BYTE if isinstance(value, str) else ir.INT if isinstance(value, int) else TYPES[self.dtype]
            place = self.f.stack(type, align=8)
            now, self.f.current = self.f.current, self.f.head
            self.f.store(ir.constant(ord(value) if isinstance(value, str) else value, type), place)
            self.f.current = now
            self._given[key] = place
        return self._given[key]

    def info(self) -> Array:
        """Where a routine says how it went."""
        return Array(self.code, self.f.stack(ir.INT, align=8), I32)


def room(count: int, dtype: np.dtype) -> int:
    """Bytes of scratch memory for so many numbers."""
    return round_up(count * dtype.itemsize, ALIGNMENT)


def matrix(code: Code, x: Array, rows: int, columns: int, transposed: bool = False) -> Array:
    """Contiguous memory as a matrix, row by row or column by column."""
    return Array(code, x.pointer, x.dtype, (rows, columns), (1, rows) if transposed else (columns, 1))


def copy(code: Code, to: Array, x: Array, rows: int, columns: int) -> None:
    """The numbers of one matrix into another."""
    with code.loop(0, rows) as i, code.loop(0, columns) as j:
        to.store(x.load(i, j), i, j)


def _swap_rows(code: Code, x: Array, i: Scalar, j: Scalar, columns: int) -> None:
    with code.loop(0, columns) as c:
        one, other = x.load(i, c), x.load(j, c)
        x.store(other, i, c)
        x.store(one, j, c)


def _factorise(r: Routines, a: Array, swaps: Array, n: int) -> Scalar:
    return r.call("getrf", n, n, a, n, swaps, r.info())


# Systems --------------------------------------------------------------------------------------------------------------


def lower_system(builder: Any, a: Node, b: Node) -> Node:
    """The nodes of x in a x = b."""
    *lead, n, k = b.shape
    return builder.procedure(
        "solving", partial(_solve, n=n, k=k), [a, b], ArrayType(b.shape, b.dtype), len(lead),
        cost=CALL + 0.1 * n * n * (n + k), scratch=room(n * n, b.dtype) + room(n, I32), failure=SINGULAR,
    )  # fmt: skip


def _solve(code: Code, out: Array, a: Array, b: Array, n: int, k: int, scratch: ir.Value) -> None:
    r = Routines(code, a.dtype, scratch)
    factors, swaps = r.room(n * n), r.room(n, I32)
    copy(code, matrix(code, factors, n, n), a, n, n)
    copy(code, out, b, n, k)
    with code.when(_factorise(r, factors, swaps, n).differs(0)):
        code.fail()
    if k == 1:
        r.call("getrs", "T", n, 1, factors, n, swaps, out, n, r.info())
        return
    r.call("trsm", "R", "U", "N", "N", k, n, 1.0, factors, n, out, k)
    r.call("trsm", "R", "L", "N", "U", k, n, 1.0, factors, n, out, k)
    with code.loop(0, n) as step:
        i = code.number(n) - 1 - step
        _swap_rows(code, out, i, swaps.load(i).convert(I64) - 1, k)


# Factors --------------------------------------------------------------------------------------------------------------


def lower_factors(builder: Any, a: Node) -> tuple[Node, Node]:
    """L and U in one array, and the order of the rows."""
    *lead, n, _ = a.shape
    types = [ArrayType(a.shape, a.dtype), ArrayType((*lead, n), I64)]
    return builder.procedures(
        "elimination", partial(_factors, n=n), [a], types, len(lead),
        cost=CALL + 0.1 * n**3, scratch=room(n * n, a.dtype) + room(n, I32),
    )  # fmt: skip


def _factors(code: Code, out: Array, places: Array, a: Array, n: int, scratch: ir.Value) -> None:
    r = Routines(code, a.dtype, scratch)
    factors, swaps = r.room(n * n), r.room(n, I32)
    turned = matrix(code, factors, n, n, transposed=True)
    copy(code, turned, a, n, n)
    _factorise(r, factors, swaps, n)
    copy(code, out, turned, n, n)
    with code.loop(0, n) as i:
        places.store(i, i)
    with code.loop(0, n) as i:
        other, here = swaps.load(i).convert(I64) - 1, places.load(i)
        places.store(places.load(other), i)
        places.store(here, other)


def lower_from_factors(builder: Any, lu: Node, places: Node, b: Node, adjoint: bool) -> Node:
    """The nodes of x in a x = b, or a' x = b, from the factors of a."""
    *lead, n, k = b.shape
    lu = builder.solid(lu)
    lu = lu if lu.layout[1][-2:] == (n, 1) else builder.copy(lu)
    return builder.procedure(
        "substitution", partial(_from_factors, n=n, k=k, adjoint=adjoint), [lu, places, b],
        ArrayType(b.shape, b.dtype), len(lead), cost=CALL + 0.1 * n * n * k,
        scratch=room(n * k, b.dtype) if adjoint else 0,
    )  # fmt: skip


def _from_factors(
    code: Code, out: Array, lu: Array, places: Array, b: Array, n: int, k: int, adjoint: bool,
    scratch: ir.Value | None = None,
) -> None:  # fmt: skip
    r = Routines(code, lu.dtype, scratch)

    def rows(to: Array, x: Array, into_order: bool) -> None:
        with code.loop(0, n) as i:
            place = inside(code, places.load(i), n)
            with code.loop(0, k) as c:
                to.store(x.load(place if into_order else i, c), i if into_order else place, c)

    def substitute(triangle: str, form: str, diagonal: str, x: Array) -> None:
        if k == 1:  # a quarter of the time that the routine for many takes
            r.call("trsv", triangle, "NT"[form == "N"], diagonal, n, lu, n, x, 1)
        else:
            r.call("trsm", "R", triangle, form, diagonal, k, n, 1.0, lu, n, x, k)

    if adjoint:  # U' L' x[places] = b
        kept = r.room(n * k)
        copy(code, matrix(code, kept, n, k), b, n, k)
        substitute("L", "T", "N", kept)
        substitute("U", "T", "U", kept)
        rows(out, matrix(code, kept, n, k), into_order=False)
    else:  # L U x = b[places]
        rows(out, b, into_order=True)
        substitute("U", "N", "U", out)
        substitute("L", "N", "N", out)
    singular = code.variable(0)
    with code.loop(0, n) as i, code.when(lu.load(i, i).equals(0)):
        singular.set(code.number(1))
    with code.when(singular.get().differs(0)), code.loop(0, n) as i, code.loop(0, k) as c:
        out.store(code.constant(np.nan, out.dtype), i, c)


def inside(code: Code, place: Scalar, n: int) -> Scalar:
    """A row's number: a permutation that isn't one must not lead outside of the memory."""
    return code.intrinsic("umin", place, code.number(n - 1))


def lower_pivots(builder: Any, a: Node) -> tuple[Node, Node]:
    """The diagonal of U, and the sign of the permutation."""
    *lead, n, _ = a.shape
    types = [ArrayType((*lead, n), a.dtype), ArrayType(tuple(lead), a.dtype)]
    return builder.procedures(
        "elimination", partial(_pivots, n=n), [a], types, len(lead),
        cost=CALL + 0.1 * n**3, scratch=room(n * n, a.dtype) + room(n, I32),
    )  # fmt: skip


def _pivots(code: Code, out: Array, sign: Array, a: Array, n: int, scratch: ir.Value) -> None:
    r = Routines(code, a.dtype, scratch)
    factors, swaps = r.room(n * n), r.room(n, I32)
    whole = matrix(code, factors, n, n)
    copy(code, whole, a, n, n)
    _factorise(r, factors, swaps, n)
    found = code.variable(code.constant(1.0, a.dtype))
    with code.loop(0, n) as i:
        out.store(whole.load(i, i), i)
        with code.when((swaps.load(i).convert(I64) - 1).differs(i)):
            found.set(-found.get())
    sign.store(found.get())


# Symmetric matrices ---------------------------------------------------------------------------------------------------


def lower_cholesky(builder: Any, a: Node, failure: tuple[Any, str] | None) -> Node:
    """The lower factor; without a failure, NaN where there is none."""
    *lead, n, _ = a.shape
    return builder.procedure(
        "cholesky", partial(_cholesky, n=n, fails=failure is not None), [a], ArrayType(a.shape, a.dtype), len(lead),
        cost=CALL + 0.05 * n**3, failure=failure,
    )  # fmt: skip


def _cholesky(code: Code, out: Array, a: Array, n: int, fails: bool) -> None:
    r = Routines(code, a.dtype)
    with code.loop(0, n) as i:  # what is below the diagonal of ours is above that of LAPACK's
        with code.loop(0, i + 1) as j:
            out.store(a.load(i, j), i, j)
        with code.loop(i + 1, n) as j:
            out.store(code.constant(0, out.dtype), i, j)
    with code.when(r.call("potrf", "U", n, out, n, r.info()).differs(0)):
        if fails:
            code.fail()
        else:
            with code.loop(0, n) as i, code.loop(0, n) as j:
                out.store(code.constant(np.nan, out.dtype), i, j)


def lower_symmetric(builder: Any, a: Node, lower: bool, failure: tuple[Any, str]) -> tuple[Node, Node]:
    """Eigenvalues, and eigenvectors as columns."""
    *lead, n, _ = a.shape
    types = [ArrayType((*lead, n), a.dtype), ArrayType(a.shape, a.dtype)]
    scratch = room(n * n, a.dtype) + room(1 + 6 * n + 2 * n * n, a.dtype) + room(3 + 5 * n, I32)
    return builder.procedures(
        "eigenvectors", partial(_symmetric, n=n, lower=lower), [a], types, len(lead),
        cost=CALL + 2.0 * n**3, scratch=scratch, failure=failure,
    )  # fmt: skip


def _symmetric(code: Code, values: Array, out: Array, a: Array, n: int, lower: bool, scratch: ir.Value) -> None:
    r = Routines(code, a.dtype, scratch)
    most, most_integers = 1 + 6 * n + 2 * n * n, 3 + 5 * n
    whole, work, integers = r.room(n * n), r.room(most), r.room(most_integers, I32)
    copy(code, matrix(code, whole, n, n, transposed=True), a, n, n)
    info = r.call(
        "syevd", "V", "L" if lower else "U", n, whole, n, values, work, most, integers, most_integers, r.info()
    )  # fmt: skip
    with code.when(info.differs(0)):
        code.fail()
    copy(code, out, matrix(code, whole, n, n, transposed=True), n, n)


# Orthogonal factors ---------------------------------------------------------------------------------------------------

BLOCK = 64  # columns for which a routine has room to work on together


def lower_orthogonal(builder: Any, a: Node, columns: int) -> tuple[Node, Node]:
    """q with so many orthonormal columns, and the upper triangular r."""
    *lead, m, n = a.shape
    types = [ArrayType((*lead, m, columns), a.dtype), ArrayType((*lead, columns, n), a.dtype)]
    scratch = room(m * max(n, columns), a.dtype) + room(m, a.dtype) + room(BLOCK * max(m, n), a.dtype)
    return builder.procedures(
        "reflections", partial(_orthogonal, m=m, n=n, columns=columns), [a], types, len(lead),
        cost=CALL + 0.4 * m * n * min(m, n), scratch=scratch,
    )  # fmt: skip


def _orthogonal(code: Code, q: Array, r: Array, a: Array, m: int, n: int, columns: int, scratch: ir.Value) -> None:
    routines, k, room = Routines(code, a.dtype, scratch), min(m, n), BLOCK * max(m, n)
    whole, scales, work = routines.room(m * max(n, columns)), routines.room(m), routines.room(room)
    turned = matrix(code, whole, m, max(n, columns), transposed=True)
    copy(code, turned, a, m, n)
    routines.call("geqrf", m, n, whole, m, scales, work, room, routines.info())
    with code.loop(0, columns) as i, code.loop(0, n) as j:
        r.store(code.select(i > j, code.constant(0, r.dtype), turned.load(i, j)), i, j)
    routines.call("orgqr", m, columns, k, whole, m, scales, work, room, routines.info())
    copy(code, q, turned, m, columns)
