"""Ctrl-C in compiled code: regions come in, how often to look goes out; and the native functions that call Python.

Python notes a signal and acts on it when its main thread runs Python code, which compiled code keeps it from. So what
may run for long counts down its work, in nanoseconds as estimated, in a word at the head of the arena. When it is used
up, `wl_poll` looks at the clock, and every tenth of a second lets Python handle signals. If that raises, the error word
says so, everything is left as after any other error, and the entry returns with the exception that is set. Loops that
are short for certain don't count: they are part of what is around them.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache

from wonderland.compile import llvm
from wonderland.compile.entry_layout import RAISED, function_address
from wonderland.compile.nodes import Branch, Call, Contract, Loop, Map, Node, Procedure, Reduce, Region, Scatter

GROUP = 16  # short turns of a loop that are counted at once: a power of 2
BUDGET = 1_000_000  # nanoseconds of work, as estimated, between looks at the clock
INTERVAL = 100_000_000  # nanoseconds between looks at signals: these take the GIL
STEP, ELEMENT, OPERATION, PRODUCT, CALL = 2.0, 0.2, 0.05, 0.02, 10_000.0  # nanoseconds
BUDGET_WORD, TIME_WORD = 1, 2  # of the arena's head: what is left of the budget, when signals were looked at
DECLARATIONS = {"wl_poll": "declare void @wl_poll(ptr) cold", "wl_host": "declare i64 @wl_host(ptr, ptr)"}


def nanoseconds(region: Region) -> float:
    """A guess of how long a region takes, without what the loops in it count themselves."""
    return sum(map(_nanoseconds, region.nodes))


def _nanoseconds(node: Node) -> float:
    if isinstance(node, Loop):
        turns = GROUP if node.pace else node.length  # those after the last group aren't counted
        return turns * _turn(node) if isinstance(turns, int) else 0.0
    if isinstance(node, Branch):
        return STEP + max(map(nanoseconds, node.regions), default=0.0)
    if isinstance(node, Call):
        return CALL
    if isinstance(node, Contract):
        return STEP + PRODUCT * math.prod(node.batch) * node.m * node.n * node.k
    if isinstance(node, Procedure):
        return STEP + math.prod(node.shape[: node.rows]) * node.cost
    space = node.operand if isinstance(node, Reduce) else node.update if isinstance(node, Scatter) else node
    element = ELEMENT + (OPERATION * node.cost if isinstance(node, Map) else 0.0)
    return STEP + element * math.prod(n for n in space.shape if n is not None)


def pace_of(loop: Loop) -> int:
    """What a turn of a loop counts; 0 if all its turns together are short."""
    turn = _turn(loop)
    short = isinstance(loop.length, int) and loop.length * turn < BUDGET
    return 0 if short else math.ceil(min(turn, 2.0 * BUDGET))


def _turn(loop: Loop) -> float:
    return STEP + nanoseconds(loop.body) + (nanoseconds(loop.condition) if loop.condition is not None else 0.0)


def imports(ir: str) -> dict[str, int]:
    """The addresses of the functions here that the text of a module calls."""
    return {name: _library().address(name) for name in DECLARATIONS if f" @{name}(" in ir}


@cache
def _library() -> llvm.Library:
    from wonderland.compile.profile import clock

    names = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Clear", "PyLong_FromVoidPtr",
             "PyObject_CallOneArg", "Py_DecRef")  # fmt: skip
    python = {name: function_address(getattr(ctypes.pythonapi, name)) for name in names}
    library = llvm.compile_library(llvm.AS_WRITTEN + CODE, [*DECLARATIONS], {**python, "wl_clock": clock()})
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))  # its addresses are handed out for good
    return library


# What functions of SciPy noted as errors of Python's doesn't count (see the entry): it is cleared before Python runs.
CODE = f"""
declare i64 @wl_clock()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Clear()
declare ptr @PyLong_FromVoidPtr(ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare void @Py_DecRef(ptr)

; The budget is used up: a new one, and from time to time a look at signals.
define void @wl_poll(ptr %arena) {{
  %budget.at = getelementptr i64, ptr %arena, i64 {BUDGET_WORD}
  store i64 {BUDGET}, ptr %budget.at, align 8
  %last.at = getelementptr i64, ptr %arena, i64 {TIME_WORD}
  %last = load i64, ptr %last.at, align 8
  %now = call i64 @wl_clock()
  %first = icmp eq i64 %last, 0
  br i1 %first, label %note, label %compare
note:
  store i64 %now, ptr %last.at, align 8
  ret void
compare:
  %passed = sub i64 %now, %last
  %due = icmp sge i64 %passed, {INTERVAL}
  br i1 %due, label %look, label %done
look:
  store i64 %now, ptr %last.at, align 8
  %state = call i32 @PyGILState_Ensure()
  call void @PyErr_Clear()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  %fine = icmp eq i32 %raised, 0
  br i1 %fine, label %done, label %stop
stop:
  store i64 {RAISED}, ptr %arena, align 8
  br label %done
done:
  ret void
}}

; `callable(address)` with the GIL: 0, or the error number of an exception that is set.
define i64 @wl_host(ptr %callable, ptr %address) {{
  %state = call i32 @PyGILState_Ensure()
  call void @PyErr_Clear()
  %number = call ptr @PyLong_FromVoidPtr(ptr %address)
  %there = icmp ne ptr %number, null
  br i1 %there, label %go, label %failed
go:
  %result = call ptr @PyObject_CallOneArg(ptr %callable, ptr %number)
  call void @Py_DecRef(ptr %number)
  %fine = icmp ne ptr %result, null
  br i1 %fine, label %done, label %failed
done:
  call void @Py_DecRef(ptr %result)
  call void @PyGILState_Release(i32 %state)
  ret i64 0
failed:
  call void @PyGILState_Release(i32 %state)
  ret i64 {RAISED}
}}
"""
