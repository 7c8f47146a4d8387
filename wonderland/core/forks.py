"""What a fork waits for, so that no child inherits a lock that nobody will ever release.

The child of a fork has one thread. A lock that another thread held stays locked in it: `LOCKS` are those that a fork
takes first. The locks of modules that are being imported are Python's own: `with loading():` is around every import
that isn't at the top of its file, and a fork waits until no other thread is inside one.

While it waits it holds nothing that such an import could need: garbage of llvmlite is freed under one of `LOCKS`, and
logging, whose lock a fork takes too, is asked for a logger by much of what is imported.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LOCKS: list[Any] = []  # taken in this order. No module may wait for one while it is imported: a test sees to that
LENT: list[Any] = []  # of these, locks that a thread has around single calls, and others need to get on
PATIENCE = 10.0  # seconds for imports of other threads: one that waits for the fork itself must not stop it for ever

_turn = threading.Condition()
_loading: dict[int, int] = {}  # thread -> how many imports it is in, one inside another
_forking: dict[int, int] = {}  # thread -> in how many of our hooks it is
_held: list[Any] = []
_after_logging = False


class loading:
    """`with loading(): from wonderland.compile.jit import jit`: an import for which a fork waits.

    Threads don't wait for each other here: Python's locks see to that, and with ours they could cross.
    """

    def __enter__(self) -> None:
        me = threading.get_ident()
        with _turn:
            _loading[me] = _loading.get(me, 0) + 1
        if not _after_logging:
            _run_before_logging()

    def __exit__(self, *exc: object) -> None:
        me = threading.get_ident()
        with _turn:
            _loading[me] -= 1
            if not _loading[me]:
                del _loading[me]
                _turn.notify_all()


def _before() -> None:
    me, end = threading.get_ident(), time.monotonic() + PATIENCE
    _forking[me] = _forking.get(me, 0) + 1
    if _forking[me] > 1:
        return
    while True:
        _turn.acquire()
        _turn.wait_for(lambda: not _loading.keys() - {me}, max(end - time.monotonic(), 0.0))
        if _take_locks() or (_loading.keys() - {me} and time.monotonic() > end):
            return
        _turn.release()
        with lent():
            time.sleep(1e-3)


@contextmanager
def lent() -> Iterator[None]:
    """Others have what this thread holds: a handler of a signal may run between taking a lock and the call for it."""
    held = [(lock, lock._release_save()) for lock in LENT if lock._is_owned()]
    try:
        yield
    finally:
        for lock, state in held:
            lock._acquire_restore(state)


def _take_locks() -> bool:
    """All of them, or none: who holds one may be about to import something, which takes our turn."""
    for lock in LOCKS:
        if not lock.acquire(blocking=False):
            _let_go()
            return False
        _held.append(lock)
    return True


def _let_go() -> None:
    while _held:
        _held.pop().release()


def _after() -> None:
    me = threading.get_ident()
    _forking[me] -= 1
    if not _forking[me]:
        del _forking[me]
        _let_go()
        _turn.release()


def _after_in_child() -> None:
    me = threading.get_ident()
    for other in (_loading.keys() | _forking.keys()) - {me}:  # there is no other thread here
        _loading.pop(other, None)
        _forking.pop(other, None)
    _after()


def _register() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)


def _run_before_logging() -> None:
    """Hooks run in the reverse of their order: once more, after logging's has been registered."""
    global _after_logging
    import logging  # noqa: F401

    _after_logging = True
    _register()


_register()
