"""Calls of NumPy from compiled code: the node, its step, and the Python function that native code calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from wonderland.compile import ir, signals
from wonderland.compile.loops import note_failure
from wonderland.compile.memory import Buffer
from wonderland.compile.nodes import Node, Number, Several, is_big
from wonderland.compile.sites import NO_MEMORY
from wonderland.compile.steps import Step

CALL_NANOSECONDS = 10_000.0


@dataclass(eq=False, repr=False)
class HostNode(Several):
    """An equation that NumPy evaluates (`why`: the reason), or one with an effect that Python has."""

    name: str
    evaluate: Callable
    multiple: bool
    given: Sequence[Node]
    why: str
    has_effect: bool = False
    can_fail = True

    def __post_init__(self) -> None:
        super().__init__()
        self.given = tuple(self.given)

    @property
    def memory(self) -> tuple[Node, ...]:
        return tuple(n.base for n in self.given if n.in_memory)

    @property
    def nanoseconds(self) -> float:
        return CALL_NANOSECONDS

    def plan(self, plan: Any, position: int) -> None:
        operands = [plan.memory[n.base] if n.in_memory else None for n in self.given]
        plan.add(RunCall(self, operands, [plan.own(r) for r in self.results]))

    def __str__(self) -> str:
        return f"{self.name}, by NumPy: {self.why}"


@dataclass(eq=False, repr=False)
class RunCall(Step):
    """Let NumPy do it: it gets pointers to operands and results."""

    node: HostNode
    operands: list[Buffer | None]
    made: list[Buffer]

    def emit(self, out: Any, f: ir.Function) -> None:
        """An array of pointers; a dynamic operand's length follows its pointer."""
        pointers: list[ir.Value] = []
        for node, buffer in zip(self.node.given, self.operands, strict=True):
            if buffer is not None:
                pointers.append(out.pointer(f, buffer))
                if None in node.shape:
                    pointers.append(out.length(f, buffer).convert(ir.POINTER))
        for node, buffer in zip(self.node.results, self.made, strict=True):
            pointers.append(out.cell(f, buffer.data) if None in node.shape else out.pointer(f, buffer))
        array = out.record(f, pointers)
        function = out.number(f, out.callbacks.add(self)).convert(ir.POINTER)
        failed = f.call(signals.HOST, function, array)
        with f.when(failed.differs(0)):
            f.call(note_failure(), out.arena, failed, f.constant(0))
            out.leave(f)

    def __str__(self) -> str:
        return f"{self.node.name}, by NumPy"


class Callbacks:
    """The Python functions that native code calls."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}  # why NumPy evaluates something, by its name
        self.names: list[str] = []
        self.alive: list[Any] = []

    def add(self, step: RunCall) -> int:
        """The address of a Python function that evaluates this step on an array of pointers, given by its address."""
        function = partial(_evaluate, step.node)
        if not step.node.has_effect:  # the others are calls of Python that the function asks for
            self.names.append(step.node.name)
            self.reasons[step.node.name] = step.node.why
        self.alive.append(function)
        return id(function)


def _evaluate(node: HostNode, place_of_pointers: int) -> None:
    pointers, operands = iter(ctypes.cast(place_of_pointers, ctypes.POINTER(ctypes.c_void_p))), []
    for operand in node.given:
        shape, size = operand.shape, operand.dtype.itemsize
        if isinstance(operand, Number) and is_big(operand.value):
            operands.append(operand.value)
            continue
        if isinstance(operand, Number):
            array = np.broadcast_to(np.asarray(operand.value, operand.dtype), shape)
        elif None in shape:
            address, shape = next(pointers), (next(pointers) or 0, *shape[1:])
            array = _array(address, shape, operand.dtype).copy()
        else:
            offset, strides = operand.layout
            address = (next(pointers) or 0) + offset * size
            array = _array(address, shape, operand.dtype, tuple(s * size for s in strides)).copy()
        operands.append(array.item() if operand.type.weak else array[()])  # what `evaluate` expects
    with np.errstate(all="ignore"):
        out = node.evaluate(*operands)
    for result, value in zip(node.results, out if node.multiple else (out,), strict=True):
        address = next(pointers)
        if None in result.shape:
            _hand_over(address, np.ascontiguousarray(value, result.dtype))
        else:
            _array(address, result.shape, result.dtype)[...] = value


def _array(address: int | None, shape: tuple, dtype: np.dtype, strides: tuple | None = None) -> np.ndarray:
    """The memory at an address."""
    if 0 in shape:
        return np.zeros(shape, dtype)
    place = {"data": (address or 0, False), "shape": shape, "typestr": dtype.str, "strides": strides, "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=place))


@cache
def _realloc() -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(("realloc", ctypes.CDLL(None)))


def _hand_over(cells: Any, value: np.ndarray) -> None:
    """Put a dynamic result into a growing buffer."""
    words, size = (ctypes.c_int64 * 3).from_address(cells), max(value.nbytes, 8)
    address = _realloc()(words[0] or None, size)
    if not address:
        raise MemoryError(NO_MEMORY)
    words[:] = address, len(value), size
    ctypes.memmove(address, value.ctypes.data, value.nbytes)
