"""Random programs, compiled: seeds come in, differences from NumPy go out.

Many programs are compiled as one function, which costs less than one by one; when something differs, or the
compilation fails, they are tried one by one, and the culprit is shrunk and shown. The oracle is a higher precision:
compiled results may be off by a small multiple of what NumPy's own are, and integers and bools not at all. What NumPy's
are off by is seen from a run in long doubles, and from runs with arguments moved by a unit in the last place.

    python -m wonderland.testing.random_programs --count 20000 --start 0
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import wonderland as wl
from wonderland.core.types import type_of
from wonderland.testing.compiled_checks import largest_error
from wonderland.testing.random_programs import RandomProgram, random_program

FORMS = ("single", "grad", "jvp", "vmap")  # besides its value, a program is tried in one of these
TOGETHER = 12  # programs compiled as one function
KEPT: tuple[int, ...] = ()  # seeds that once failed


class CompiledCase:
    """A function, its arguments, what NumPy gives, and how exact that is."""

    program: RandomProgram
    form: str
    function: Callable[..., Any]
    args: tuple[Any, ...]

    def __init__(self, program: RandomProgram, form: str):
        self.program, self.form = program, form
        self.function, self.args = _form(program, form)
        single = form == "single" or "float32" in program.source
        self.epsilon: float = float(np.finfo(np.float32 if single else np.float64).eps)
        self.unit: float = 4 * len(program.lines) * self.epsilon * (1 if form in ("value", "single") else 2)
        with np.errstate(all="ignore"):
            self.expected: Any = self.function(*self.args)

    def difference(self, actual: tuple[Any, ...]) -> str | None:
        """What is wrong with the compiled results, or None."""
        for i, (a, e) in enumerate(zip(actual, self.expected, strict=True)):
            if type_of(a) != type_of(e):
                return f"result {i} is {type_of(a)} instead of {type_of(e)}"
            if np.result_type(e).kind not in "fc":
                if not np.array_equal(a, e):
                    return f"result {i} is\n{a} instead of\n{e}"
                continue
            if not _near(a, e, self.unit) and not self._excused(i, a):
                return f"result {i} is\n{a} instead of\n{e}, off by {np.max(np.abs(a - e), initial=0.0)}"
        return None

    def _excused(self, i: int, actual: Any) -> bool:
        """Is NumPy's result as far from the exact one?"""
        rng = np.random.default_rng(1)
        with np.errstate(all="ignore"):
            try:
                exact = self.function(*(a.astype(np.longdouble) if _floating(a) else a for a in self.args))[i]
            except TypeError:  # np.linalg and np.interp have no wider precision
                exact = self.expected[i]
            near = [self.function(*(_moved(a, self.epsilon, rng) for a in self.args))[i] for _ in range(6)]
        if any(np.shape(n) != np.shape(exact) for n in near):
            return False
        own = max(float(largest_error(n, exact)) for n in (self.expected[i], *near))
        return _near(actual, exact, self.unit, 4 * own)


def _near(a: Any, b: Any, unit: float, more: float = 0.0) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    finite = np.isfinite(b)
    if not (np.array_equal(np.isnan(a), np.isnan(b)) and np.all((a == b) | finite | np.isnan(b))):
        return False
    scale = max(1.0, float(np.max(np.abs(b[finite]), initial=0.0)))
    return bool(np.all(np.abs(a[finite] - b[finite]) <= unit * scale + more))


def _floating(value: Any) -> bool:
    return np.result_type(value).kind == "f"


def _moved(value: Any, epsilon: float, rng: np.random.Generator) -> Any:
    if not _floating(value):
        return value
    return (value * (1 + epsilon * rng.choice([-1.0, 1.0], np.shape(value)))).astype(value.dtype)


def _form(program: RandomProgram, form: str) -> tuple[Callable, tuple]:
    args = program.args
    if form == "value":
        return program, args
    if form == "single":
        return program, tuple(a.astype(np.float32) if _floating(a) else a for a in args)
    chosen = [i for i, a in enumerate(args) if _floating(a)]

    def split(full: tuple) -> tuple[Callable, tuple]:
        """The floating-point results as a function of the floating-point arguments, and those."""

        def floats(*values: Any) -> tuple:
            given = dict(zip(chosen, values, strict=True))
            out = program(*(given.get(i, a) for i, a in enumerate(full)))
            return tuple(o for o in out if type_of(o).dtype.kind == "f")

        return floats, tuple(full[i] for i in chosen)

    def gradient(*full: Any) -> tuple:
        floats, inputs = split(full)
        total = lambda *values: sum(np.sum(0.5 * o * o + o) for o in floats(*values))
        return wl.grad(total, tuple(range(len(inputs))))(*inputs)

    def tangents(*full: Any) -> tuple:
        floats, inputs = split(full)
        return wl.jvp(floats, inputs, tuple(np.cos(v) for v in inputs))[1]

    def batched(*full: Any) -> tuple:
        floats, inputs = split(full)
        return wl.vmap(floats)(*inputs)

    if form == "vmap":
        return batched, tuple(np.stack([a, a]) if _floating(a) else a for a in args)
    return (gradient if form == "grad" else tangents), args


def cases(seeds: Iterable[int]) -> Iterator[CompiledCase]:
    """Each program as it is and in one other form; a form that NumPy itself can't evaluate is left out."""
    for seed in seeds:
        program, _ = random_program(seed, wide=bool(seed % 4))
        yield CompiledCase(program, "value")
        try:
            yield CompiledCase(program, FORMS[seed // 2 % len(FORMS)])
        except (TypeError, ValueError, NotImplementedError):
            continue


def failures(seeds: Iterable[int]) -> list[tuple[CompiledCase, str]]:
    """The cases of these seeds that differ from NumPy, and how."""
    tried = list(cases(seeds))
    try:
        together = wl.jit(lambda every: [c.function(*args) for c, args in zip(tried, every, strict=True)])
        results = together([c.args for c in tried])
    except Exception:
        results = None
    if results is not None and not any(c.difference(r) for c, r in zip(tried, results, strict=True)):
        return []
    alone = [(c, failure(c)) for c in tried]
    found = [(c, why) for c, why in alone if why is not None]
    if not found:  # only together
        why = "these programs fail only when they are compiled together"
        found = [(c, f"{why}: {c.difference(r)}") for c, r in zip(tried, results or (), strict=True) if c.difference(r)]
        found = found or [(tried[0], why)]
    return found


def failure(case: CompiledCase) -> str | None:
    """What is wrong with one case, compiled alone."""
    try:
        return case.difference(wl.jit(case.function)(*case.args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def shrunk(case: CompiledCase) -> CompiledCase:
    """The same failure with as few statements as possible."""
    program, again = case.program, True
    given = dict(zip(program._names, program.args))

    def with_fewer(lines: list[str], results: str) -> CompiledCase:
        return CompiledCase(RandomProgram(program.seed, lines, results, given), case.form)

    while again:
        again = False
        for i in reversed(range(len(program.lines))):
            lines = program.lines[:i] + program.lines[i + 1 :]
            try:
                smaller = with_fewer(lines, program.results)
            except Exception:
                kept = [r for r in program.results.split(", ") if r.strip(",") != program.lines[i].split(" =")[0]]
                try:
                    smaller = with_fewer(lines, ", ".join(r.strip(",") for r in kept) + ",")
                except Exception:
                    continue
            if smaller.expected and failure(smaller) is not None:
                case, program, again = smaller, smaller.program, True
                break
    return case


def main(argv: list[str] | None = None) -> None:
    """The long run: a line for every few hundred programs, and each failure as a script."""
    parser = argparse.ArgumentParser(prog="python -m wonderland.testing.random_programs", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many programs")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    options = parser.parse_args(argv)
    start, bad, end = time.monotonic(), 0, options.start + options.count
    for first in range(options.start, end, TOGETHER):
        last = min(first + TOGETHER, end)
        for case, why in failures(range(first, last)):
            bad += 1
            print(f"seed {case.program.seed}, {case.form}: {why}", flush=True)
            small = shrunk(case)
            print(f"{small.program}\n# {small.form}: {failure(small)}\n", flush=True)
        if (first - options.start) // TOGETHER % 20 == 19 or last == end:
            seconds = time.monotonic() - start
            print(f"{last - options.start} programs, {bad} failures, {seconds:.0f} s", flush=True)
    raise SystemExit(bool(bad))
