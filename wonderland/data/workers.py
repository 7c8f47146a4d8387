"""Batches made by other processes: numbers of batches come in, the batches go out in the same order.

Each process has the function that makes a batch, and a pipe. Batch k is made by process k modulo their number, so that
the order needs no bookkeeping. Where processes can be forked they are, and functions and data needn't be pickled;
elsewhere they are. A process ends when it is told to, or when the program that started it has gone, however that ended.
"""

from __future__ import annotations

import multiprocessing as mp
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from multiprocessing import connection
from typing import Any

from wonderland.core.errors import ArgumentError

PATIENCE = 5.0  # seconds for a process to end before it is killed


def made_by_processes(
    make: Callable[[int], Any], numbers: Sequence[int], workers: int, depth: int
) -> Generator[Any, None, None]:
    """`make(k)` for each number, by this many processes; each works up to `depth` batches ahead."""
    crew = [Worker(make, place) for place in range(min(workers, len(numbers)))]
    try:
        for worker in crew:
            worker.start()
        for place, number in enumerate(numbers[: depth * len(crew)]):
            crew[place % len(crew)].ask(number)
        for place, number in enumerate(numbers):
            worker = crew[place % len(crew)]
            batch = worker.answer(number)
            if place + depth * len(crew) < len(numbers):
                worker.ask(numbers[place + depth * len(crew)])
            yield batch
    finally:
        for worker in crew:
            worker.end()


class Worker:
    """One process, and our end of its pipe."""

    def __init__(self, make: Callable[[int], Any], place: int):
        self.make = make
        self.place = place
        self.process: Any = None
        self.pipe: Any = None

    def start(self) -> None:
        """Start the process."""
        context: Any = mp.get_context("fork" if sys.platform == "linux" else None)
        self.pipe, theirs = context.Pipe()
        name = f"wonderland-data-{self.place}"
        self.process = context.Process(target=_serve, args=(self.make, theirs), name=name, daemon=True)
        try:
            with warnings.catch_warnings():  # Python warns of forks with threads about: ours see to their locks
                warnings.simplefilter("ignore", DeprecationWarning)
                self.process.start()
        except (pickle.PicklingError, AttributeError, TypeError, ValueError) as error:
            self.process = None
            raise ArgumentError(
                f"workers need a dataset and functions that can be pickled on this system ({error}): functions at the "
                "top of a module rather than lambdas, or workers=0"
            ) from error
        finally:
            theirs.close()

    def ask(self, number: int) -> None:
        """Ask for a batch."""
        try:
            self.pipe.send(number)
        except OSError:
            pass  # it has gone; `answer` says so

    def answer(self, number: int) -> Any:
        """The batch that was asked for first."""
        try:
            batch, error = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(PATIENCE)
            raise RuntimeError(
                f"the process that made batch {number} has ended (exit code {self.process.exitcode}; -9 is often a "
                "lack of memory): use fewer workers, or workers=0 to see what happens"
            ) from None
        if error is not None:
            raise error
        return batch

    def end(self) -> None:
        """End the process, whatever it does."""
        if self.process is not None and self.process.pid is not None:
            self.process.terminate()
            self.process.join(PATIENCE)
            if self.process.exitcode is None:
                self.process.kill()
                self.process.join()
            self.process.close()
            self.process = None
        if self.pipe is not None:
            self.pipe.close()


def _serve(make: Callable[[int], Any], pipe: Any) -> None:
    """What a process does: numbers come in by its pipe, batches or errors go out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = mp.parent_process()
    assert parent is not None
    while True:
        if pipe not in connection.wait([pipe, parent.sentinel]):
            return
        try:
            number = pipe.recv()
        except EOFError:
            return
        try:
            answer = make(number), None
        except Exception as error:
            answer = None, _portable(error)
        try:
            pipe.send(answer)
        except OSError:  # nobody is there any more
            return


def _portable(error: Exception) -> Exception:
    """The error as it can be sent, with the lines where it came from; its type and message as they are."""
    lines = "".join(traceback.format_exception(error))
    try:
        again = pickle.loads(pickle.dumps(error))
        if str(again) != str(error):
            raise ValueError("its message got lost")
    except Exception:
        again = RuntimeError(f"{type(error).__name__}: {error}")
    again.add_note(f"in a worker:\n{lines}")
    return again
