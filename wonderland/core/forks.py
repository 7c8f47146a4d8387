"""What a fork waits for, so that no child inherits a lock that nobody will ever release.

The child of a fork has one thread. A lock that another thread held stays locked in it: `LOCKS` are those that a fork
takes first. The locks of modules that are being imported are Python's own: `with loading():` is around every import
that isn't at the top of its file, and a fork waits until no other thread is inside one.
"""

from __future__ import annotations

import os
import threading
from typing import Any

LOCKS: list[Any] = []  # taken in this order. No module may wait for one while it is imported: a test sees to that

_turn = threading.Condition()
_loading: dict[int, int] = {}  # thread -> how many imports it is in, one inside another


class loading:
    """`with loading(): from wonderland.compile.jit import jit`: an import for which a fork waits.

    Threads don't wait for each other here: Python's locks see to that, and with ours they could cross.
    """

    def __enter__(self) -> None:
        me = threading.get_ident()
        with _turn:
            _loading[me] = _loading.get(me, 0) + 1

    def __exit__(self, *exc: object) -> None:
        me = threading.get_ident()
        with _turn:
            _loading[me] -= 1
            if not _loading[me]:
                del _loading[me]
                _turn.notify_all()


_held: list[Any] = []


def _before() -> None:
    me = threading.get_ident()
    while True:
        taken = list(LOCKS)
        for lock in taken:
            lock.acquire()
        _turn.acquire()
        _turn.wait_for(lambda: not _loading.keys() - {me})
        if len(taken) == len(LOCKS):  # what was imported meanwhile may have brought locks
            _held[:] = taken
            return
        _turn.release()
        for lock in reversed(taken):
            lock.release()


def _after() -> None:
    taken = list(_held)
    _turn.release()
    for lock in reversed(taken):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
