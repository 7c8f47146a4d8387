"""`memory_profile`: the memory of forward and reverse mode over time, as the notes draw it in figures 1.4 and 1.5.

A function and its arguments come in. The engine itself differentiates it, on arrays that are counted: a level below all
others, the Meter, carries out each operation and wraps the result in a value that says when it is let go. After each
operation the bytes of the arrays that are alive are noted; the curve goes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.control.cond import clamped
from wonderland.control.scan import Parts, scan_p
from wonderland.core.errors import ArgumentError, NoValueError, check_function
from wonderland.core.functions import Call
from wonderland.core.level import Level, Traced, bind, bind_update, is_alone
from wonderland.core.primitive import Primitive
from wonderland.core.program import Program, run
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, is_differentiable, type_of
from wonderland.transform.budget import opened
from wonderland.transform.derivatives import Linearized, argument_numbers, quiet
from wonderland.transform.dual import Dual


def memory_profile(
    f: Callable, *args: Any, mode: str = "reverse", argnums: int | Sequence[int] | None = None
) -> MemoryProfile:
    """Differentiate `f` at `args` and note, after each operation, how many bytes of arrays are alive.

    mode "forward" takes a tangent along with each value; "reverse" runs the function, keeping what the backward pass
    needs, and then goes back, letting go of it. `argnums` says which arguments are differentiated, all of them unless
    given. The result prints as a small chart, has `plot()`, and the numbers in `live`, `phase`, `operation` and `peak`.

    Arguments count, and each array once, however many views there are of it. What the function closes over doesn't. The
    operations are those of the function's Program, where a value is let go after its last use, or, of a function that
    decides by its values, those that it carries out, where a local variable is let go when Python does.
    """
    check_function(f, "memory_profile")
    if mode not in ("forward", "reverse"):
        raise ArgumentError(f'memory_profile: mode is "forward" or "reverse", not {mode!r}')
    numbers = tuple(range(len(args))) if argnums is None else argument_numbers(argnums, len(args))
    call = Call(f, args, {}, numbers)
    if any(isinstance(value, Traced) for value in call.values):
        raise ArgumentError(
            "memory_profile counts bytes, so it can't run inside another transformation: call it outside"
        )
    places = [i for i, s in enumerate(call.structure.children[0].children) for _ in range(s.leaf_count)]
    places += [-1] * (len(call.types) - len(places))
    select = [i in numbers and is_differentiable(t.dtype) for i, t in zip(places, call.types, strict=True)]
    if not any(select):
        raise ArgumentError("memory_profile needs a floating-point argument: use 2.0 instead of 2, or .astype(float)")
    function = _flat(call)
    with quiet(), Meter() as meter:
        values = [meter.value(v) for v in call.values]
        (_forward if mode == "forward" else _reverse)(meter, function, values, select)
        values.clear()
    return MemoryProfile(mode, meter.samples)


def _flat(call: Call) -> Callable[..., Sequence[Any]]:
    """The call as a function of values: its Program, or itself if it decides by values."""

    def function(*values: Any) -> list:
        return call.split(call.run(values))[0]

    try:
        program = opened(function, call.types)
    except NoValueError:
        return function
    return lambda *values: run(program, values)


def _forward(meter: Meter, function: Callable, values: list, select: list[bool]) -> None:
    tangents = [meter.ones(type_of(v)) if s else None for v, s in zip(values, select, strict=True)]
    with Dual() as level:
        function(*(v if t is None else level.lift(v, t) for v, t in zip(values, tangents, strict=True)))


def _reverse(meter: Meter, function: Callable, values: list, select: list[bool]) -> None:
    call = Call(lambda *handles: list(map(Tracer, function(*map(unwrap, handles)))), tuple(map(Tracer, values)), {})
    linear = Linearized(call, select, prune=False)
    types = linear.types
    result, linear.values = linear.values, []
    meter.phase = "backward"
    linear.pull([meter.ones(t) if is_differentiable(t.dtype) else None for t in types], consume=True)
    del result  # held till the end, as `value_and_grad` holds it


class MeteredValue(Traced):
    """An array that is counted while somebody holds it."""

    __slots__ = ("key", "primal")

    def __init__(self, level: Meter, primal: Any):
        self.level = level
        self.primal: Any = primal
        self.key: int = level.hold(primal, id(self))

    @property
    def type(self) -> ArrayType:
        return type_of(self.primal)

    def __del__(self) -> None:
        self.level.release(self.key)  # type: ignore[attr-defined]


class Meter(Level):
    """The bytes of the arrays that are alive, after each operation."""

    __slots__ = ("bytes", "holders", "phase", "samples")
    name = "memory_profile"

    def __init__(self) -> None:
        self.bytes: int = 0
        self.holders: dict[int, list[int]] = {}  # memory -> (how many values lie in it, its bytes)
        self.phase: str = "forward"
        self.samples: list[tuple[str, str, int]] = []

    def value(self, primal: Any) -> MeteredValue:
        return MeteredValue(self, primal)

    def ones(self, array_type: ArrayType) -> MeteredValue:
        return self.value(np.ones(array_type.shape, array_type.dtype)[()])

    def hold(self, primal: Any, number: int) -> int:
        """Count one more value in this memory; views of an array lie in the array's."""
        while isinstance(primal, np.ndarray) and isinstance(primal.base, np.ndarray):
            primal = primal.base
        key = id(primal) if isinstance(primal, np.ndarray) else number
        held = self.holders.setdefault(key, [0, getattr(primal, "nbytes", type_of(primal).dtype.itemsize)])
        self.bytes += held[1] if held[0] == 0 else 0
        held[0] += 1
        return key

    def release(self, key: int) -> None:
        held = self.holders[key]
        held[0] -= 1
        if held[0] == 0:
            self.bytes -= held[1]
            del self.holders[key]

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[Any, Any]) -> Any:
        programs = () if primitive.calls is None else primitive.calls(params)
        if programs:
            first = len(args) - len(programs[0].inputs)
            return run(programs[clamped(_below(args[0]), len(programs)) if first else 0], args[first:])
        if primitive is scan_p:
            return self._scan(args, params)
        return self._noted(primitive, bind(primitive, *map(_below, args), **params))

    def process_update(
        self, primitive: Primitive, box: list[Any], args: tuple[Any, ...], params: dict[Any, Any]
    ) -> Any:
        if not isinstance(box[0], MeteredValue):
            return self.process(primitive, (box[0], *args), params)
        alone = is_alone(box)
        inner = [box[0].primal]
        if alone:
            box[0].primal = None  # nobody else sees this value: its memory may be written to
        return self._noted(primitive, bind_update(primitive, inner, *map(_below, args), **params))

    def _noted(self, primitive: Primitive, out: Any) -> Any:
        outs = [self.value(o) for o in (out if primitive.multiple else (out,))]
        self.samples.append((primitive.name, self.phase, self.bytes))
        return tuple(outs) if primitive.multiple else outs[0]

    def _scan(self, args: tuple, params: dict) -> tuple:
        """A loop step by step; what it stacks lies in one array from the start, if the number of steps is known."""
        parts, body, condition, n_carry = Parts(args, params), params["body"], params["condition"], params["n_carry"]
        types, carry = body.output_types[n_carry:], parts.carry

        def step(slices: list) -> Sequence[Any]:
            outs = run(body, [*parts.consts, *carry, *slices])
            carry[:] = outs[:n_carry]
            return outs[n_carry:]

        def stacks(length: int) -> list[MeteredValue]:
            return [self.value(np.empty((length, *t.shape), t.dtype)) for t in types]

        def store(ys: list, t: int, row: Sequence[Any]) -> None:
            for y, value in zip(ys, row, strict=True):
                y.primal[t] = _below(value)

        if condition is not None:
            rows = []
            while _below(run(condition, (*parts.consts, *carry))[0]):
                rows.append(step([]))
            ys, count = stacks(len(rows)), [np.int64(len(rows))]
            for t, row in enumerate(rows):
                store(ys, t, row)
            row = rows = None
        else:
            length = int(_below(parts.head[0])) if params["length"] is None else params["length"]
            ys, count = stacks(length), []
            for t in range(length - 1, -1, -1) if params["reverse"] else range(length):
                store(ys, t, step([self.value(_below(x)[t]) for x in parts.xs]))
        return (*carry, *count, *ys)


def called(primitive: Primitive, params: dict[Any, Any]) -> Program | None:
    """The Program that an equation calls, whatever the values: jitted, checkpointed, with rules of its own."""
    programs = () if primitive.calls is None else primitive.calls(params)
    return programs[0] if len(programs) == 1 else None


def _below(value: Any) -> Any:
    return value.primal if isinstance(value, MeteredValue) else value


class MemoryProfile:
    """Live bytes after each operation, printed as a chart; `plot()` draws the curve.

    `operation` has the names of the primitives in the order in which they ran, `phase` "forward" or "backward" for
    each, `live` the bytes after each; `peak` is the most there were, `peak_index` where.
    """

    def __init__(self, mode: str, samples: Sequence[tuple[str, str, int]]):
        self.mode = mode
        self.operation: list[str] = [name for name, _, _ in samples]
        self.phase: Any = np.array([phase for _, phase, _ in samples], dtype="<U8")
        self.live: Any = np.array([live for _, _, live in samples], dtype=np.int64)
        self.index: Any = np.arange(len(samples))
        self.peak: int = int(self.live.max(initial=0))
        self.peak_index: int = int(self.live.argmax()) if len(samples) else 0

    def __repr__(self) -> str:
        count = len(self.live)
        where = f" at operation {self.peak_index} ({self.operation[self.peak_index]})" if count else ""
        lines = [f"{self.mode} mode: {count} operations, at most {shown(self.peak)} alive{where}"]
        width = 60
        for phase in ("forward", "backward"):
            live = self.live[self.phase == phase]
            if live.size:
                columns = [part.max() for part in np.array_split(live, min(width * live.size // count or 1, live.size))]
                bars = "".join(BARS[-(-int(column) * (len(BARS) - 1) // max(self.peak, 1))] for column in columns)
                lines.append(f"{phase:<9}{bars}  {shown(int(live[0]))} to {shown(int(live[-1]))}")
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Draw the curve with Matplotlib, into `ax` if one is given; returns the axes."""
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise ImportError("plot() needs Matplotlib, which isn't installed: pip install matplotlib") from None
        if ax is None:
            ax = plt.subplots(figsize=(6, 3.2), layout="constrained")[1]
        size, unit = _unit(self.peak)
        turn = np.flatnonzero(self.phase == "backward")[:1]
        for phase, colour in (("forward", "#0072B2"), ("backward", "#D55E00")):
            here = self.phase == phase
            if here.any():
                # The curves of the two phases meet where one becomes the other.
                at = np.append(np.flatnonzero(here), turn) if phase == "forward" else np.flatnonzero(here)
                ax.plot(at, self.live[at] / size, color=colour, label=f"{phase} pass")
                ax.fill_between(at, self.live[at] / size, color=colour, alpha=0.15, linewidth=0)
        ax.set(xlabel="operation", ylabel=f"live arrays, {unit}", ylim=(0, 1.08 * max(self.peak, 1) / size))
        ax.margins(x=0.01)
        if turn.size:
            ax.legend(frameon=False)
        ax.set_title(f"{self.mode} mode", fontsize="medium")
        return ax


BARS = " ▁▂▃▄▅▆▇█"
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))


def shown(count: int) -> str:
    """Bytes for people: 8 bytes, 1.2 kB, 3.4 MB."""
    size, unit = _unit(count)
    return f"{count / size:.3g} {unit}"


def _unit(count: int) -> tuple[float, str]:
    return next((unit for unit in UNITS if count >= unit[0]), UNITS[-1])
