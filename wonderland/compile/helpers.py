"""Calls on several threads of Python: a function and arguments come in, results go out, and no thread stays behind.

For calls that let Python run meanwhile, as LLVM's do. A fork waits until no helper is inside one.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from wonderland.core import forks

NAME = "wonderland compiler"  # of a helper's thread

_helping: set[int] = set()  # threads


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
    todo, results, errors, ended = deque(enumerate(items)), [None] * len(items), [], SimpleQueue()

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

    def help() -> None:
        _helping.add(threading.get_ident())
        try:
            run()
        finally:
            _helping.discard(threading.get_ident())
            ended.put(None)

    try:
        for _ in range(min(threads(), len(items)) - 1):
            try:
                threading.Thread(target=help, name=NAME).start()
            except RuntimeError:  # no more threads, or the interpreter ends: this one does it all
                break
        run()
    finally:
        todo.clear()  # a helper that begins only now finds nothing to do
        _wait(ended)
    if not errors:
        return results
    try:
        raise errors[0]
    finally:
        errors.clear()  # its traceback refers to them: what it keeps goes with it, and not when garbage is collected


def _wait(ended: SimpleQueue) -> None:
    """Wait for the helpers, whatever signals come: what those raise is raised afterwards.

    `Thread.join` won't do: when a signal interrupts it, Python 3.11 takes the thread for ended.
    """
    try:
        while _helping:
            with forks.lent(), suppress(Empty):  # or what it was told has got lost in an interrupt
                ended.get(timeout=0.1)
    except BaseException:
        _wait(ended)
        raise


class _Idle:
    """A lock that can be had while no helper works; none does without LLVM's lock, which a fork takes first."""

    def acquire(self, blocking: bool = True) -> bool:
        while blocking and _helping:
            time.sleep(1e-3)
        return not _helping

    def release(self, *exc: object) -> None:
        pass

    __enter__, __exit__ = acquire, release


forks.LOCKS.append(_Idle())
