"""What a loop reads: the `pattern` rule of `scan`.

A loop whose length is known is followed step by step: with the values that it carries and that are known (a counter),
or, where those decide nothing, by one pattern of the body for all steps. Any other loop goes to a fixed point: what
each carried element can depend on after any number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from wonderland.control.scan import Parts
from wonderland.core.program import Literal, Program, eliminate_dead, run
from wonderland.core.types import is_differentiable
from wonderland.ops.pattern import known, matrix_of_reads, propagate
from wonderland.ops.sets import Sets, concatenate, product, separate, union
from wonderland.ops.work import count
from wonderland.transform.programs import pick, scatter_flags

_MANY = 32  # steps that are worth powers of a matrix
Value = tuple[Sets | None, Any]  # what a value reads, and the value itself where it is known


class ScanOperands:
    """The operands of a scan by their roles, each with what it reads and its value."""

    n_carry: Any
    backwards: Any
    params: dict[Any, Any]

    def __init__(self, types: Sequence[Any], params: dict[Any, Any], reads: Sequence[Sets | None]):
        parts, sets = Parts(types, params), Parts(reads, params)
        self.body: Program = params["body"]
        self.n_carry, self.backwards, self.params = params["n_carry"], params["reverse"], params
        self.consts: list[Value] = [(s, known(t)) for s, t in zip(sets.consts, parts.consts, strict=True)]
        self.carry: list[Value] = [(s, known(t)) for s, t in zip(sets.carry, parts.carry, strict=True)]
        self.xs: list[tuple[Any, Any]] = list(zip(sets.xs, parts.xs, strict=True))
        self.length = params["length"]
        if parts.head and known(parts.head[0]) is not None:
            self.length: Any = int(parts.head[0])
        self.sizes: list[int] = [count(t) for t in self.body.output_types]

    def reads(self) -> list[Sets | None]:
        """What the outputs of the scan read."""
        if self.params["condition"] is not None or self.length is None:
            carry, ys = self._fixed_point()
        else:
            carry, ys = self._steps()
        steps = [] if self.params["condition"] is None else [None]  # their number reads nothing
        return [*carry, *steps, *ys]

    def values(self) -> list[Any]:
        """The outputs that don't depend on what isn't known: stacked counters, which index something later."""
        if self.params["condition"] is not None or not self.length:
            return []
        n, body = len(self.consts), self.body
        given = [*(x for _, x in self.consts), *(x for _, x in self.carry), *(known(x) for _, x in self.xs)]
        flags = [x is not None for x in given]
        while True:  # what is carried is known if it stays so
            fixed = {v for v, flag in zip(body.inputs, flags, strict=True) if flag} | {v for v, _ in body.constants}
            for equation in body.equations:
                if not equation.has_effects() and all(isinstance(a, Literal) or a in fixed for a in equation.inputs):
                    fixed.update(equation.outputs)
            outs = [isinstance(a, Literal) or a in fixed for a in body.outputs]
            stays = [flag and out for flag, out in zip(flags[n : n + self.n_carry], outs, strict=False)]
            if stays == flags[n : n + self.n_carry]:
                break
            flags[n : n + self.n_carry] = stays
        wanted = [*stays, *outs[self.n_carry :]]
        if not any(wanted):
            return []
        outputs = pick(body.outputs, wanted)
        part = eliminate_dead(Program(pick(body.inputs, flags), body.equations, outputs, body.constants), effects=False)
        consts, carry = pick(given[:n], flags[:n]), pick(given[n : n + self.n_carry], stays)
        xs, rows = pick(given[n + self.n_carry :], flags[n + self.n_carry :]), []
        with np.errstate(all="ignore"):
            for t in range(self.length - 1, -1, -1) if self.backwards else range(self.length):
                found = run(part, [*consts, *carry, *(x[t] for x in xs)])
                carry = found[: len(carry)]
                rows.append(found[len(carry) :])
        stacked = [np.stack(column) for column in zip(*(rows[::-1] if self.backwards else rows), strict=True)]
        return scatter_flags([*carry, *stacked], wanted)

    # -- a known number of steps ---------------------------------------------------------------------------------------

    def _steps(self) -> tuple[list, list]:
        carry, rows = list(self.carry), []
        matrices: dict[tuple, _StepMatrix | None] = {}
        reads_rows = any(s is not None for s, _ in self.xs)
        for t in range(self.length - 1, -1, -1) if self.backwards else range(self.length):
            inputs = [*self.consts, *carry, *(self._slice(x, t) for x in self.xs)]
            flags = tuple((s is not None, x is not None) for s, x in inputs)
            if flags not in matrices:
                matrices[flags] = _StepMatrix(self, inputs) if self._is_static(flags) else None
            step = matrices[flags]
            if step is None:
                found, values = propagate(self.body, [s for s, _ in inputs], [x for _, x in inputs])
                outs = [(s, known(x)) for s, x in zip(found, map(_as_array, values), strict=True)]
            else:
                outs = step(inputs)
            new = outs[: self.n_carry]
            rows.append([s and s.alone() for s, _ in outs[self.n_carry :]])
            left, same = self.length - len(rows), False
            if step is not None and not reads_rows:
                if len(outs) == self.n_carry and left >= _MANY:  # nothing comes out on the way
                    return step.repeated(left, [*self.consts, *new]), []
                same = _equal(new, carry)
            carry = new
            if same:  # and so are all steps from here on
                rows += [rows[-1]] * left
                break
        return [s for s, _ in carry], self._stacked(rows[::-1] if self.backwards else rows)

    def _slice(self, x: tuple[Sets | None, Any], t: int) -> Value:
        sets, whole = x
        size = count(whole) if whole.shape[0] is None else count(whole) // max(whole.shape[0], 1)
        start = 0 if whole.shape[0] is None else t * size
        return None if sets is None else sets[start : start + size], None if known(whole) is None else whole[t]

    def _is_static(self, flags: tuple) -> bool:
        """Is what the body reads the same in every step? Values that change from step to step decide nothing."""
        n = len(self.consts)
        active = {v for v, (reads, _) in zip(self.body.inputs, flags, strict=True) if reads}
        varying = {v for v, (_, value) in zip(self.body.inputs[n:], flags[n:], strict=True) if value}
        for equation in self.body.equations:
            reads, varies = (any(a in group for a in equation.inputs) for group in (active, varying))
            if reads and varies:
                return False
            active.update(equation.outputs if reads else ())
            varying.update(equation.outputs if varies else ())
        outs = self.body.outputs[: self.n_carry]
        # A value that is known now and isn't after this step, or comes to read something, makes the next one another.
        return all(
            (not value or a in varying) and (reads or a not in active)
            for a, (reads, value) in zip(outs, flags[n : n + self.n_carry], strict=True)
        )

    def _stacked(self, rows: list[list]) -> list[Sets | None]:
        out = []
        for k, size in enumerate(self.sizes[self.n_carry :]):
            column = [row[k] for row in rows]
            if self.params["length"] is not None:
                out.append(concatenate([(s, size) for s in column]))
            else:  # the type knows no length: one row stands for all
                out.append(union(size, [(None, s.index, s.table) for s in column if s is not None]))
        return out

    # -- any number of steps -------------------------------------------------------------------------------------------

    def _fixed_point(self) -> tuple[list, list]:
        rows = [(self._any_row(s, t), None) for s, t in self.xs]
        carry: list[Value] = [(s, None) for s, _ in self.carry]
        step = _StepMatrix(self, [*self.consts, *carry, *rows], all_carries=True)
        of_consts, of_carry = step.parts(self.consts, 0), step.parts(carry, len(self.consts))
        of_rows = step.parts(rows, len(self.consts) + self.n_carry)
        first, sizes = sum(size for _, size in of_consts), [size for _, size in of_carry]  # 0 for an integer
        total = sum(sizes)
        moving = np.repeat([size > 0 for size in sizes], self.sizes[: self.n_carry])
        own = step.matrix[: len(moving)][moving]
        rest = concatenate([*of_consts, (None, total), *of_rows])
        base = _joined(total, [(None, concatenate(of_carry)), (own, rest)])
        if base is not None:
            base = _closure(own[:, first : first + total], base)
        final = separate(base, sizes)
        outs = step([*self.consts, *((s, None) for s in final), *rows])
        return final, [s for s, _ in outs[self.n_carry :]]

    def _any_row(self, sets: Sets | None, whole: Any) -> Sets | None:
        if sets is None or whole.shape[0] is None:
            return sets
        size = count(whole) // max(whole.shape[0], 1)
        return union(size, [(np.arange(sets.index.size) % max(size, 1), sets.index, sets.table)])


class _StepMatrix:
    """One step of a loop as a boolean matrix: elements of the body's outputs x of its inputs that read something."""

    def __init__(self, loop: ScanOperands, inputs: Sequence[Value], all_carries: bool = False):
        self.loop, n = loop, len(loop.consts)
        self.active = [
            is_differentiable(v.dtype) and (s is not None or (all_carries and n <= i < n + loop.n_carry))
            for i, (v, (s, _)) in enumerate(zip(loop.body.inputs, inputs, strict=True))
        ]
        self.known = [None if i >= n and not all_carries else x for i, (_, x) in enumerate(inputs)]

    @cached_property
    def matrix(self) -> Any:
        return matrix_of_reads(self.loop.body, [int(i) for i in np.flatnonzero(self.active)], self.known)

    def parts(self, values: Sequence[Value], first: int) -> list[tuple[Sets | None, int]]:
        """What values in the place of inputs from a number on read, each with its number of columns."""
        types = self.loop.body.input_types[first : first + len(values)]
        flags = self.active[first : first + len(values)]
        return [
            (s if flag else None, count(t) if flag else 0) for (s, _), t, flag in zip(values, types, flags, strict=True)
        ]

    def __call__(self, inputs: Sequence[Value]) -> list[Value]:
        """What the outputs of the body read."""
        found = _joined(sum(self.loop.sizes), [(self.matrix, concatenate(self.parts(inputs, 0)))])
        return [(s, self._value(i, inputs)) for i, s in enumerate(separate(found, self.loop.sizes))]

    def repeated(self, times: int, inputs: Sequence[Value]) -> list[Sets | None]:
        """What is carried reads after so many steps, by powers of the matrix."""
        consts = len(self.loop.consts)
        given = [*self.parts(inputs[:consts], 0), *self.parts(inputs[consts:], consts)]
        sizes = [size for _, size in given]
        fixed, total = sum(sizes[:consts]), sum(sizes)
        rows = self.matrix[np.repeat([size > 0 for size in sizes[consts:]], self.loop.sizes)]
        rest = sparse.csr_array((fixed, total - fixed), dtype=bool)
        step = sparse.vstack(
            [sparse.hstack([sparse.eye_array(fixed, dtype=bool), rest]), rows], format="csr", dtype=bool
        )
        found = None
        while times:
            if times % 2:
                found = step if found is None else product(found, step)
            times //= 2
            step = product(step, step) if times else step
        return separate(_joined(total, [(found, concatenate(given))]), sizes)[consts:]

    def _value(self, output: int, inputs: Sequence[Value]) -> Any:
        """Something in the place of a value that is known and decides nothing."""
        return inputs[len(self.loop.consts) + output][1] if output < self.loop.n_carry else None


def _joined(size: int, terms: Sequence[tuple[Any, Sets | None]]) -> Sets | None:
    """A value that reads, by matrices (None: element by element), what values read."""
    out = []
    for matrix, sets in terms:
        if sets is None:
            continue
        if matrix is None:
            out.append((None, sets.index, sets.table))
        else:
            rows = np.repeat(np.arange(size), np.diff(matrix.indptr))
            out.append((rows, sets.index[matrix.indices], sets.table))
    return union(size, out)


def _closure(links: Any, base: Sets) -> Sets:
    """What elements read after any number of steps. Those that can reach each other read the same."""
    number, group = connected_components(links, connection="strong")
    members = sparse.csr_array((np.ones(len(group), bool), (group, np.arange(len(group)))), shape=(number, len(group)))
    reach = ((members @ links @ members.T).astype(bool) + sparse.eye_array(number, dtype=bool)).tocsr().astype(bool)
    entries = -1
    while reach.nnz != entries:
        entries, reach = reach.nnz, product(reach, reach)
    own = _joined(number, [(members, base)])
    found = _joined(number, [(reach, own)])
    assert found is not None
    return Sets(found.index[group], found.table)


def _as_array(value: Any) -> Any:
    return None if value is None else np.asanyarray(value)


def _equal(new: Sequence[Value], old: Sequence[Value]) -> bool:
    for (a, _), (b, _) in zip(new, old, strict=True):
        if (a is None) != (b is None):
            return False
        if a is not None and b is not None:
            if a.entries() != b.entries():
                return False
            x, y = a.matrix(), b.matrix()
            if not (np.array_equal(x.indptr, y.indptr) and np.array_equal(x.indices, y.indices)):
                return False
    return True


def loop_reads(
    types: Sequence[Any], params: dict[Any, Any], reads: Sequence[Any]
) -> tuple[list[Sets | None], list[Any]]:
    """What the outputs of a scan read, from what its operands do; and those that are known."""
    loop = ScanOperands(types, params, reads)
    try:
        values = loop.values()
    except Exception:  # what raises does so when it runs
        values = []
    return loop.reads(), values
