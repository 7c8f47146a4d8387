"""Keys: what randomness comes from. A seed in, a key out; children of keys; and a stream for those who carry none.

A key is a plain uint32 array of shape (2,), so it is an argument, a carry of a loop or a batch like any other array.
Nothing about it changes when numbers are drawn: the same key gives the same numbers, and new numbers need a new key,
by `split` or `fold_in`.
"""

from __future__ import annotations

import operator
import os
import threading
from itertools import count
from typing import Any

import numpy as np

from wonderland.core.errors import TracingError, user_line
from wonderland.core.functions import handles
from wonderland.core.level import Level, running
from wonderland.core.tracer import unwrap
from wonderland.core.types import type_of
from wonderland.ops.random import FOLD, SEED, SPLIT, random_fold

_NO_KEY = np.zeros(2, np.uint32)


class GlobalStreamError(TracingError):
    """A number of the global stream was asked for where it would be drawn once and then repeated."""


def _integer(value: Any, what: str) -> Any:
    """An integer scalar or array, known or traced."""
    value = unwrap(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**64:
            raise ValueError(f"{what} is an integer of 64 bits, not {value}")
        return np.uint64(value % 2**64)
    try:
        kind = type_of(value)
    except TypeError:
        kind = None
    if kind is None or kind.dtype.kind not in "iu" or kind.shape != ():
        raise TypeError(f"{what} is an integer, not {kind or type(value).__name__}")
    return value


def key(seed: Any) -> Any:
    """The key that a seed, an integer of 64 bits, stands for."""
    return handles([random_fold(_NO_KEY, _integer(seed, "a seed"), purpose=SEED)])[0]


def checked(key: Any) -> Any:
    """The value of a key given by a user, or an error that says how to make one."""
    value = unwrap(key)
    try:
        kind = type_of(value)
    except TypeError:
        kind = None
    if kind is not None and kind.dtype == np.uint32 and kind.shape == (2,):
        return value
    if kind is not None and kind.dtype == np.uint32 and kind.shape[-1:] == (2,):
        raise TypeError(
            f"expected one key, got keys of shape {kind.shape}{user_line()}: take one of them, or map over them with "
            "wl.vmap"
        )
    if isinstance(value, (int, np.integer)):
        given = f"the integer {value}"
    else:
        given = str(kind) if kind is not None else f"{type(value).__name__} {str(value)[:40]}"
    seed = value if isinstance(value, (int, np.integer)) else 0
    raise TypeError(
        f"the first argument is a key, not {given}{user_line()}: make a key with wl.random.key({seed}). Without a key, "
        "for numbers of the global stream, name the other arguments: wl.random.normal(shape=(3,))."
    )


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """`num` new keys, an array (num, 2); `num` may be a shape. Use the children and forget the parent."""
    shape = (num,) if not isinstance(num, tuple) else num
    shape = tuple(operator.index(n) for n in shape)
    numbers = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    return handles([random_fold(checked(key), numbers, purpose=SPLIT)])[0]


def fold_in(key: Any, data: Any) -> Any:
    """The child of a key that an integer names: a step, an epoch, the number of a layer. It may be traced."""
    return handles([random_fold(checked(key), _integer(data, "the data folded into a key"), purpose=FOLD)])[0]


# The global stream ---------------------------------------------------------------------------------------------------


class _GlobalStream:
    """The key of the seed, and how many keys it has given; one stream for all threads.

    The child of a fork has a stream of its own, which follows from the parent's and from how many children that had
    before: so it is another one, and as reproducible. A fork doesn't wait for the lock, whose holder may be compiling.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.children = count(1)
        self.child = threading.local()  # its number is known to the thread that forks
        # The key, how many it gave, and which child of its stream this one is: replaced at once, never changed.
        self.state: tuple[Any, int, tuple[int, ...]] = (None, 0, ())

    def start(self, seed: int | None) -> None:
        value = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        with self.lock:
            self.state, self.children = (key(value), 0, ()), count(1)

    def next(self) -> Any:
        with self.lock:
            if self.state[0] is None:
                self.start(None)
            parent, given, branches = self.state
            for branch in branches:
                parent, given = handles([random_fold(parent, np.uint64(branch), purpose=SPLIT)])[0], 0
            self.state = (parent, given + 1, ())
            return fold_in(parent, given + 1)

    def before_fork(self) -> None:
        self.child.number = next(self.children)

    def after_fork_in_child(self) -> None:
        self.lock = threading.RLock()
        parent, given, branches = self.state
        if parent is not None:  # without one the child finds entropy of its own
            self.state = (parent, given, (*branches, self.child.number))


_stream = _GlobalStream()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_stream.before_fork, after_in_child=_stream.after_fork_in_child)


def seed(seed: int | None = None) -> None:
    """Start the global stream anew; without a number from the system's entropy, which is also how it begins."""
    if seed is not None:
        _integer(seed, "a seed")
    _stream.start(seed)


def next_key() -> Any:
    """The next key of the global stream; the samplers take it when they are called without a key."""
    level = _level_without_values()
    if level is not None:
        raise GlobalStreamError(
            f"a random number of the global stream is drawn{user_line()} inside {level.name}: it would be drawn once, "
            "and every run (or every entry of a batch) would get the same number. Pass a key to the function, and "
            "give it to the sampler as the first argument: wl.random.normal(key, shape)."
        )
    return _stream.next()


def stream_state() -> dict[str, Any]:
    """Where the global stream is, for `load_stream_state`: a dict of a key, or None, and of numbers."""
    parent, given, branches = _stream.state
    return {"key": parent, "given": given, "branches": [*branches]}


def load_stream_state(state: dict[str, Any]) -> None:
    """Let the global stream go on from where it was."""
    parent = None if state["key"] is None else np.array(state["key"], np.uint32)
    with _stream.lock:
        _stream.state = (parent, int(state["given"]), tuple(int(b) for b in state["branches"]))


def _level_without_values() -> Level | None:
    """The transformation around this call that records or batches, if there is one."""
    return next((level for level in running() if level.once), None)
