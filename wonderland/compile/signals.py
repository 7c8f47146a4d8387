"""Ctrl-C in compiled code: regions come in, how often to look goes out; and the native functions that call Python.

Python notes a signal and acts on it when its main thread runs Python code, which compiled code keeps it from. So what
may run for long counts down its work, in nanoseconds as estimated, in a word at the head of the arena. When it is used
up, `wl_poll` looks at the clock, and every tenth of a second lets Python handle signals. If that raises, the error word
says so, everything is left as after any other error, and the entry returns with the exception that is set. Loops that
are short for certain don't count: they are part of what is around them.
"""

from __future__ import annotations

import math
from typing import Any

from wonderland.compile import python_api as python
from wonderland.compile.entry_layout import RAISED
from wonderland.compile.ir import LONG, POINTER, VOID, Function, Module, Resident, Value
from wonderland.compile.native import native
from wonderland.core.forks import loading

GROUP = 16  # short turns of a loop that are counted at once: a power of 2
BUDGET = 1_000_000  # nanoseconds of work, as estimated, between looks at the clock
INTERVAL = 100_000_000  # nanoseconds between looks at signals: these take the GIL
BUDGET_WORD, TIME_WORD = 1, 2  # of the arena's head: what is left of the budget, when signals were looked at
CODE = Resident(lambda: _module())
POLL = CODE.external("wl_poll", VOID, (POINTER,), "cold")  # of the arena
HOST = CODE.external("wl_host", LONG, (POINTER, POINTER))


def pace_of(loop: Any) -> int:
    """What a turn of a loop counts; 0 if all its turns together are short."""
    short = isinstance(loop.length, int) and loop.length * loop.turn < BUDGET
    return 0 if short else math.ceil(min(loop.turn, 2.0 * BUDGET))


def _module() -> Module:
    return Module(_poll(), _host(), as_written=True)


@native("arena*", exported=POLL.name)
def _poll(f: Function, arena: Value) -> None:
    """The budget is used up: a new one, and from time to time a look at signals."""
    with loading():
        from wonderland.compile.profile import CLOCK

    f.store(f.constant(BUDGET), f.element(LONG, arena, BUDGET_WORD))
    place = f.element(LONG, arena, TIME_WORD)
    last, now = f.load(LONG, place), f.call(CLOCK)
    with f.when(last.equals(0)):
        f.store(now, place)
        f.ret()
    with f.when(now - last >= INTERVAL):
        f.store(now, place)
        state = _enter(f)
        raised = f.call(python.CHECK_SIGNALS)
        f.call(python.DROP_GIL, state)
        with f.when(raised.differs(0)):
            f.store(f.constant(RAISED), arena)


@native("callable* address*", LONG, exported=HOST.name)
def _host(f: Function, callable: Value, address: Value) -> Value:
    """`callable(address)` with the GIL: 0, or the error number of an exception that is set."""
    state, code = _enter(f), f.variable(RAISED)
    number = f.call(python.INT_FROM_POINTER, address)
    with f.when(number.differs(None)):
        result = f.call(python.CALL, callable, number)
        f.call(python.DECREF, number)
        with f.when(result.differs(None)):
            f.call(python.DECREF, result)
            code.set(0)
    f.call(python.DROP_GIL, state)
    return code.get()


def _enter(f: Function) -> Value:
    """Take the GIL. What SciPy's functions noted as errors of Python's doesn't count (see the entry): it is cleared."""
    state = f.call(python.TAKE_GIL)
    f.call(python.CLEAR_ERROR)
    return state
