"""Batches made ahead by a thread: an iterator comes in, the same batches go out, with the next ones under way.

The thread is there while the generator is: when its loop is left, by `break` or by an exception, the generator is
closed, and it waits for the thread to end. What is cheap isn't worth a thread: to hand a batch over costs some 20
microseconds, and more when the two compete for Python's lock. So the first batches are made by the consumer, and the
thread begins when two in a row took longer than `WORTH`, or one much longer: the first may have other reasons.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter
from typing import Any

WORTH = 5e-4  # seconds for a batch from which on a thread pays

_END = object()


def ahead(batches: Generator[Any, None, None], count: int) -> Generator[Any, None, None]:
    """The batches, up to `count` of them made before they are asked for."""
    slow = False
    try:
        while True:
            start = perf_counter()
            batch = next(batches, _END)
            taken = perf_counter() - start
            if batch is _END:
                return
            yield batch
            if taken >= WORTH and (slow or taken >= 20 * WORTH):
                break
            slow = taken >= WORTH
        thread = Prefetcher(batches, count)
        try:
            thread.start()
            yield from thread
        finally:
            thread.stop()
    finally:
        with suppress(ValueError):  # the thread still makes a batch: Ctrl-C came a second time while we waited
            batches.close()


class Prefetcher:
    """A thread that makes batches; at most `count` of them wait."""

    def __init__(self, batches: Iterator[Any], count: int):
        self.batches = batches
        self.made: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.room: threading.Semaphore = threading.Semaphore(count)
        self.working: Any = threading.Lock()  # held while a batch is made
        self.stopped: bool = False
        self.thread: threading.Thread = threading.Thread(target=self._run, name="wonderland-prefetch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        _running.add(self)
        self.thread.start()

    def _run(self) -> None:
        try:
            while True:
                self.room.acquire()
                with self.working:
                    if self.stopped:
                        return
                    batch = next(self.batches, _END)
                self.made.put((batch, None))
                if batch is _END:
                    return
        except BaseException as error:  # whatever it is, the consumer gets it
            self.made.put((_END, error))

    def __iter__(self) -> Iterator[Any]:
        while True:
            batch, error = self.made.get()
            if error is not None:
                raise error
            if batch is _END:
                return
            self.room.release()
            yield batch

    def stop(self) -> None:
        """End the thread, after the batch that it is making; it makes no other one. Ctrl-C doesn't change that.

        Ctrl-C can come in any line of this file, before the thread is known to have begun, too: so it is the lock that
        says whether a batch is being made.
        """
        self.stopped = True
        self.room.release()
        try:
            with self.working:
                pass
        except KeyboardInterrupt:
            with self.working:
                pass
            raise
        if self.thread.is_alive():
            self.thread.join()
        _running.discard(self)


_running: weakref.WeakSet[Prefetcher] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """A loop that is never finished ends with the program: threads can't be waited for after this."""
    for thread in [*_running]:
        thread.stop()
