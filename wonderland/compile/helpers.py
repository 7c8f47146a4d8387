"""Calls on several threads of Python: a function and arguments come in, results go out, and no thread stays behind.

For calls that let Python run meanwhile, as LLVM's do. A fork waits until no helper is inside one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from wonderland.core import forks

_helpers: list[threading.Thread] = []


def threads() -> int:
    """How many threads to use: `WONDERLAND_THREADS`, or as many as there are CPUs for this process."""
    given = os.environ.get("WONDERLAND_THREADS", "").strip()
    if given and (not given.isdecimal() or int(given) < 1):
        raise ValueError(f"WONDERLAND_THREADS must be a positive number of threads, got {given!r}")
    if given:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """`[work(item) for item in items]`, begun in this order, by this thread and helpers: one caller at a time.

    What a call raises is raised here when all threads are done with theirs; those that haven't begun are left out.
    """
    todo, results, errors = deque(enumerate(items)), [None] * len(items), []

    def run() -> None:
        while todo and not errors:
            try:
                i, item = todo.popleft()
            except IndexError:  # another thread has taken the last one
                return
            try:
                results[i] = work(item)
            except BaseException as error:
                errors.append(error)

    try:
        for _ in range(min(threads(), len(items)) - 1):
            helper = threading.Thread(target=run, name="wonderland compiler")
            try:
                helper.start()
            except RuntimeError:  # no more threads, or the interpreter ends: this one does it all
                break
            _helpers.append(helper)
        run()
    finally:
        todo.clear()
        _join()
    if errors:
        raise errors[0]
    return results


def _join() -> None:
    """Wait for the helpers, whatever signals come: what those raise is raised afterwards."""
    try:
        while _helpers:
            _helpers[-1].join()
            _helpers.pop()
    except BaseException:
        _join()
        raise


class _Idle:
    """A lock that can be had while no helper runs; none starts without LLVM's lock, which a fork takes first."""

    def acquire(self, blocking: bool = True) -> bool:
        for helper in [*_helpers] if blocking else ():
            helper.join()
        return not any(helper.is_alive() for helper in _helpers)

    def release(self, *exc: object) -> None:
        pass

    __enter__, __exit__ = acquire, release


forks.LOCKS.append(_Idle())
