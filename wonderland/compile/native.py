"""A closed Program comes in, a native function of its flat arguments goes out.

The way: passes, lowering to nodes, fusion and memory plan, text, machine code (kept by its text), native entry.
`WONDERLAND_DEBUG=1..5` shows each stage on stderr: 1 signature and compile time, 2 Programs, 3 kernels and memory plan,
4 LLVM IR, 5 assembly.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Container
from functools import cache, partial
from typing import Any, NoReturn

import numpy as np

from wonderland.compile import cache as disk
from wonderland.compile import foreign, gemm, insight, llvm, passes, pool, profile, signals
from wonderland.compile.driver import FIRST_SITE, OUT_OF_MEMORY, Driver
from wonderland.compile.entry import MISS, Entry, Input, Output, layout
from wonderland.compile.graph import lower
from wonderland.compile.nodes import Leaf, Node, Number, Region, base_of, contiguous_strides, is_big, layout_of
from wonderland.compile.plan import Buffer, Plan, RegionPlan, RunCall, Target
from wonderland.core.program import Program
from wonderland.core.types import ArrayType

PYTHON_TYPES = {"f": float, "i": int, "b": bool, "c": complex}
MOST_LIBRARIES = 512
LONG_RUN = 20_000  # nanoseconds from which a run lets other Python threads work meanwhile
NO_MEMORY = "no memory for the residuals of a loop"

_libraries: OrderedDict[str, llvm.Library] = OrderedDict()


class Sites:
    """Numbers for the places where compiled code can fail, and what they raise."""

    def __init__(self) -> None:
        self.found: dict[tuple[Any, ...], int] = {}

    def index(self, axis: int, extent: int) -> int:
        return self.found.setdefault((axis, extent), FIRST_SITE + len(self.found))

    def raising(self, kind: type[Exception], message: str) -> int:
        return self.found.setdefault((kind, message), FIRST_SITE + len(self.found))

    def fail(self, code: int) -> NoReturn:
        site, index = code & 0xFFFF, code >> 16
        if site == OUT_OF_MEMORY:
            raise MemoryError(NO_MEMORY)
        axis, extent = list(self.found)[site - FIRST_SITE]
        if isinstance(axis, type):
            raise axis(extent)
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {extent}")


class Callbacks:
    """Equations that NumPy evaluates, callable from native code."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.alive: list[Any] = []

    def add(self, step: RunCall) -> int:
        """The address of a Python function that evaluates this step on an array of pointers, given by its address."""
        function = partial(_evaluate, step)
        if not step.node.effect:  # the others are calls of Python that the function asks for
            self.names.append(step.node.name)
        self.alive.append(function)
        return id(function)


def _evaluate(step: RunCall, place_of_pointers: int) -> None:
    pointers = ctypes.cast(place_of_pointers, ctypes.POINTER(ctypes.c_void_p))
    place = iter(range(1 << 30))
    operands = []
    for operand in step.operands:
        if isinstance(operand, Number) and is_big(operand.value):
            operands.append(operand.value)
            continue
        if isinstance(operand, Number):
            spread = np.broadcast_to(np.asarray(operand.value, operand.dtype), operand.shape)
            operands.append(_value(spread, operand))
            continue
        node, _ = operand
        address, shape, size = pointers[next(place)] or 0, node.shape, node.dtype.itemsize
        if None in shape:
            shape = (pointers[next(place)] or 0, *shape[1:])
            offset, strides = 0, contiguous_strides(shape)
        else:
            offset, strides = layout_of(node)
        array = _array(address + offset * size, shape, node.dtype, tuple(s * size for s in strides))
        operands.append(_value(array.copy(), node))
    with np.errstate(all="ignore"):
        out = step.node.evaluate(*operands)
    for result, value in zip(step.node.results, out if step.node.multiple else (out,), strict=True):
        address = pointers[next(place)]
        if None in result.shape:
            _hand_over(address, np.ascontiguousarray(value, result.dtype))
        else:
            _array(address, result.shape, result.dtype)[...] = value


def _value(array: np.ndarray, node: Node) -> Any:
    """What `evaluate` expects: Python scalars where weak, NumPy scalars where 0-d."""
    if node.type.weak:
        return array.item()
    return array[()]


class _Memory:
    """Memory at an address, for `np.asarray`."""

    def __init__(self, address: int, shape: tuple, dtype: np.dtype, strides: tuple | None):
        self.__array_interface__ = {
            "data": (address, False), "shape": shape, "typestr": dtype.str, "strides": strides, "version": 3,
        }  # fmt: skip


def _array(address: int, shape: tuple, dtype: np.dtype, strides: tuple | None = None) -> np.ndarray:
    if 0 in shape:
        return np.zeros(shape, dtype)
    return np.asarray(_Memory(address, shape, dtype, strides))


@cache
def _realloc() -> Any:
    function = ctypes.CDLL(None).realloc
    function.restype, function.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t)
    return function


def _hand_over(cells: int, value: np.ndarray) -> None:
    """Put a dynamic result into a growing buffer."""
    words = (ctypes.c_int64 * 3).from_address(cells)
    address = _realloc()(words[0] or None, max(value.nbytes, 8))
    if not address:
        raise MemoryError(NO_MEMORY)
    words[0], words[1], words[2] = address, len(value), max(value.nbytes, 8)
    ctypes.memmove(address, value.ctypes.data, value.nbytes)


class Compiled:
    """A compiled Program: call it with flat arguments; it returns a tuple. The rest is for looking inside.

    `print` gives a summary. `source` is the Program as recorded, `stages` what each pass made of it, `program` the last
    of these; `kernels` are descriptions, `fallbacks` names of what NumPy evaluates; `memory_plan()`, `ir` and
    `assembly()` are text. `peak_bytes` is the memory that a call takes beside its arguments: the arena and the results
    (`arena_bytes`, `result_bytes`). `seconds` says where the time of compiling went, `code_from` whether LLVM, the disk
    or this process had the machine code; `profile` measures the steps.
    """

    def __init__(
        self,
        program: Program,
        written: dict[int, int],
        name: str = "",
        watch: profile.Watch | None = None,
        taken: Container[int] = (),
    ):
        start = time.perf_counter()
        self.source = program
        self.written: dict[int, int] = dict(written)
        self.name = name
        self.seconds: dict[str, float] = {}
        with insight.progress(name, program):
            self.stages: list[tuple[str, Program]] = passes.optimize(program)  # (name, Program) after each pass
            self.program: Program = self.stages[-1][1]
            self._lap("passes", start)
            with llvm.lock:
                self._build(watch, taken)
        self.compile_seconds: float = time.perf_counter() - start
        _debug(self)

    def _lap(self, name: str, start: float) -> float:
        now = time.perf_counter()
        self.seconds[name] = now - start
        return now

    def __call__(self, *flat_args: Any) -> tuple[Any, ...]:
        out = self.entry.call(*flat_args)
        if out is MISS:
            out = self.entry.convert(flat_args)
        return (out,) if len(self.entry.outputs) == 1 else out

    def _build(self, watch: profile.Watch | None, taken: Container[int]) -> None:
        start = time.perf_counter()
        program = self.program
        returned = [i for i in range(len(program.outputs)) if i not in self.written or i in taken]
        inputs = [_input(v.type, i in self.written.values()) for i, v in enumerate(program.inputs)]
        outputs = [
            Output(program.outputs[i].type.dtype, program.outputs[i].type.shape, True, self.written.get(i))
            for i in returned
        ]
        in_slots, out_slots, _ = layout(inputs, outputs, 0)
        sites, callbacks = Sites(), Callbacks()
        plan = Plan(sites)
        nodes: list[Node] = []
        for i, v in enumerate(program.inputs):
            leaf = Leaf(ArrayType(v.type.shape, v.type.dtype), f"input {i}")
            plan.memory[leaf] = Buffer("slot", 0, in_slots[i])
            nodes.append(Number(leaf.type, 0) if 0 in v.type.shape else leaf)
        region = lower(program, nodes, Region())
        targets: list[Target | None] = []
        dynamic: list[tuple[int, int]] = []
        for position, atom in enumerate(program.outputs):
            if position in self.written:
                old = nodes[self.written[position]]
                targets.append(None if isinstance(old, Number) else Target(plan.memory[old], old, True))
                continue
            slot = out_slots[returned.index(position)]
            if None in atom.type.shape:
                dynamic.append((position, slot))
            targets.append(Target(Buffer("slot", 0, slot)))
        steps = plan.steps = RegionPlan(plan, region, targets).steps
        heaps = [(plan.memory[base_of(region.outputs[position])], slot) for position, slot in dynamic]
        driver = Driver(plan, steps, heaps, callbacks, watch)
        if watch is not None:
            watch.finish()
        self.arena_bytes: int = plan.finish()
        self.result_bytes: int = sum(_bytes(program.outputs[i].type) for i in returned if i not in self.written)
        self.peak_bytes: int = self.arena_bytes + self.result_bytes
        self.ir: str = driver.ir
        self.fallbacks: tuple[str, ...] = tuple(callbacks.names)
        self.kernels: list[str] = [k.description for k in plan.kernels]
        self.plan = plan
        start = self._lap("kernels and plan", start)
        known, misses = driver.ir in _libraries, disk.misses
        library = _library(driver)
        self.code_from = "this process" if known else "LLVM" if disk.misses > misses else "the disk"
        start = self._lap("machine code", start)
        self.entry: Entry = Entry(
            library.address("run"), inputs, outputs, [], self.arena_bytes, driver.numbers(), sites.fail,
            plan.work > LONG_RUN or bool(callbacks.alive), (library, callbacks, plan.constants, watch),
            [value for _, value in self.source.constants if isinstance(value, np.ndarray)],
        )  # fmt: skip
        self._lap("entry", start)

    def assembly(self) -> str:
        """The machine code, for a person to read."""
        return llvm.assembly(self.ir, quick=True)

    def memory_plan(self) -> str:
        """The buffers of the arena: where they lie, and when they are in use."""
        return insight.memory_plan(self)

    def profile(self, *flat_args: Any) -> profile.Profile:
        """Time per step on these flat arguments, which stay as they are."""
        return profile.profile(self, flat_args)

    def __str__(self) -> str:
        return insight.describe(self)

    def __repr__(self) -> str:
        return insight.one_line(self)

    def _repr_html_(self) -> str:
        return insight.as_html(self)


def compile_program(
    program: Program, written: dict[int, int] | None = None, name: str = "", taken: Container[int] = ()
) -> Compiled:
    """Compile a closed Program. `written[output] = input`: that output replaces the contents of that input.

    Written outputs that are in `taken` are among the results too, as the arrays that they were written to.
    """
    return Compiled(program, written or {}, name, taken=taken)


def _bytes(type: ArrayType) -> int:
    return math.prod(n for n in type.shape if n is not None) * type.dtype.itemsize


def _input(type: ArrayType, written: bool) -> Input:
    weak = PYTHON_TYPES[type.dtype.kind] if type.weak else None
    return Input(type.dtype.num, type.dtype.itemsize, type.shape, weak, written)


def _library(driver: Driver) -> llvm.Library:
    """Machine code, found by its text."""
    known = _libraries.get(driver.ir)
    if known is None:
        imports = {f"wl_gemm_{name}": gemm.address(name[-3:], name.startswith("rows")) for name in driver.gemms}
        if "call void @wl_parallel" in driver.ir:
            imports["wl_parallel"] = pool.address()
        imports |= foreign.imports(driver.ir) | signals.imports(driver.ir)
        if driver.watch is not None:
            imports["wl_clock"] = profile.clock()
        known = _libraries[driver.ir] = llvm.compile_library(driver.ir, ["run"], imports, quick=True)
        while len(_libraries) > MOST_LIBRARIES:
            _libraries.popitem(last=False)
    else:
        _libraries.move_to_end(driver.ir)
    return known


def _debug(compiled: Compiled) -> None:
    given = os.environ.get("WONDERLAND_DEBUG") or "0"
    if not given.isdecimal():
        raise ValueError(f"WONDERLAND_DEBUG is a level from 0 to 5, not {given!r}")
    level = int(given)
    if level < 1:
        return
    types = ", ".join(map(str, compiled.source.input_types))
    out = [f"wonderland: compiled {compiled.name}({types}) in {compiled.compile_seconds * 1e3:.1f} ms"]
    if level >= 2:
        out += [f"-- {name}\n{program}" for name, program in compiled.stages]
    if level >= 3:
        out += [f"-- kernel {i}: {text}" for i, text in enumerate(compiled.kernels)]
        out.append(f"-- arena: {compiled.arena_bytes} bytes for {len(compiled.plan.buffers)} buffers")
        if compiled.fallbacks:
            out.append(f"-- evaluated by NumPy: {', '.join(compiled.fallbacks)}")
    if level >= 4:
        out.append(compiled.ir)
    if level >= 5:
        out.append(compiled.assembly())
    print("\n".join(out), file=sys.stderr)
