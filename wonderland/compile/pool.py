"""The native thread pool: nothing comes in, `PARALLEL` goes out, a function for compiled code to call.

    void wl_parallel(ptr task, ptr context, i64 chunks)

runs `task(context, chunk)` for every chunk in 0..chunks-1 on the calling thread and the workers, and returns
when all are done. There is one pool per process. Its code is compiled on first use and never unloaded: the
workers live in it.

How it works. A job is published by storing its number of chunks in `remaining`; whoever decrements it from a
positive value owns one chunk. That one word decides everything: a worker that comes late gets a number that
isn't positive and touches nothing; one that gets a chunk knows that the job stands still around it, for the
caller waits until `done` reaches the number of chunks. So a caller never waits for a worker that is asleep,
and which thread runs which chunk leaves no trace in the results. Workers spin for about 30 microseconds after
their last job, then sleep on a condition variable. A call that finds the pool in use (another thread's call,
or one made inside a task) runs its chunks itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from functools import cache, partial
from time import perf_counter_ns

from wonderland.compile import helpers, ir, llvm
from wonderland.compile.ir import INT, LONG, POINTER, VOID, External, Function, Global, Module, Value, array, zeros
from wonderland.compile.native import NULL, native

SPIN_NANOSECONDS = 30_000
# A worker takes no signals, so that they reach Python's main thread; its own faults must still be reported.
FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP")

RESET, RESIZE, SPIN = "wl_pool_reset", "wl_pool_resize", "wl_pool_spin"
TASK = "task* context* chunks"  # what a call gives
CODE = ir.Resident(lambda: module(), lambda library: _begin(library))
PARALLEL = CODE.external("wl_parallel", VOID, (POINTER, POINTER, LONG))

_size: int | None = None


def size() -> int:
    """Number of threads a call may use, the caller included."""
    global _size
    if _size is None:
        _size = helpers.threads() if _has_pthreads() else 1
    return _size


def set_size(threads: int) -> None:
    """Use this many threads from now on, the caller included: surplus workers leave, missing ones start."""
    global _size
    if threads < 1:
        raise ValueError(f"a pool needs at least one thread, got {threads}")
    with llvm.lock:
        _size = threads if _has_pthreads() else 1
        if CODE.library is not None:
            _call(CODE.library, RESIZE, _size)


@cache
def _has_pthreads() -> bool:
    return os.name == "posix" and hasattr(ctypes.CDLL(None), "pthread_create")


def _begin(library: llvm.Library) -> None:
    if _has_pthreads():
        _call(library, RESET, _pauses(library))
        _call(library, RESIZE, size())
        # A forked child has none of the workers, and maybe a mutex that one of them held: start anew.
        os.register_at_fork(after_in_child=lambda: _call(library, RESET, 0))


def _call(library: llvm.Library, symbol: str, argument: int) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.address(symbol))(argument)


def _pauses(library: llvm.Library) -> int:
    """How many pause instructions fill the time to spin: measured, for one takes 10 to 150 cycles."""
    best = SPIN_NANOSECONDS * 1000
    for _ in range(3):
        start = perf_counter_ns()
        _call(library, SPIN, 1000)
        best = min(best, perf_counter_ns() - start)
    return max(100, min(30_000, SPIN_NANOSECONDS * 1000 // max(best, 1)))


# Words that different threads write lie 128 bytes apart (a cache line and its prefetched neighbour).
REMAINING, DONE, BUSY, SLEEPERS, JOB = (
    zeros(name, array(LONG, 16), 128) for name in ("remaining", "done", "busy", "sleepers", "job")
)
THREADS = Global("threads", "internal global i64 1, align 128")
WORKERS = zeros("workers", LONG, 8)
SPINS = Global("spins", "internal global i64 1000, align 8")
MUTEX, AWAKE = zeros("mutex", array(LONG, 32), 128), zeros("awake", array(LONG, 32), 128)


def module() -> Module:
    """The pool's code; where there are no pthreads, a loop."""
    if _has_pthreads():
        return Module(_spin(), _reset(), _resize(), _parallel(), as_written=True)
    stubs = [Function(name, [("number", LONG)], exported=True, attributes=ir.RARE) for name in (RESET, RESIZE, SPIN)]
    alone = _run_serially()
    alone.name, alone.exported = PARALLEL.name, True
    return Module(alone, *stubs, as_written=True)


_function = partial(native, attributes=ir.RARE)  # each waits, or calls


@_function(TASK)
def _run_serially(f: Function, task: Value, context: Value, chunks: Value) -> None:
    with f.loop(0, chunks) as chunk:
        f.call_at(task, VOID, context, chunk)


def _c(f: Function, name: str, *args: Value) -> Value:
    """Call a function of C's library."""
    return f.call(External(name, INT, tuple(value.type for value in args)), *args)


# Access to a word with a memory order.


def _get(f: Function, word: Global, order: str) -> Value:
    return f.load(LONG, f.at(word), order=order)


def _set(f: Function, word: Global, value: Value | int, order: str) -> None:
    f.store(f.integer(value), f.at(word), order=order)


def _count(f: Function, how: str, word: Global, order: str) -> Value:
    """Add or sub one; what it was before."""
    return f.atomic(how, f.at(word), f.constant(1), order)


def _pause(f: Function) -> None:
    """Tell the core that it is waiting; a plain loop waits too."""
    triple = llvm.target_machine().triple
    if triple.startswith(("x86_64", "i386", "i686")):
        f.call(External("llvm.x86.sse2.pause", VOID, ()))
    elif triple.startswith(("aarch64", "arm64")):
        f.call(External("llvm.aarch64.isb", VOID, (INT,)), f.constant(15, INT))
    else:
        f.fence("acquire")


def wait(f: Function, condition: Callable[[], Value], pauses: Value | int = 1000) -> None:
    """Code that waits for what other threads do: it spins, then it lets others run."""
    patience = f.variable(pauses)
    with f.forever() as leave:
        leave(condition())
        waiting = patience.get() > 0
        with f.when(waiting):
            _pause(f)
            patience.add(-1)
        with f.unless(waiting):
            if _has_pthreads():
                _c(f, "sched_yield")


@_function("times", exported=SPIN)
def _spin(f: Function, times: Value) -> None:
    with f.loop(0, times):
        _pause(f)


@_function("pauses", exported=RESET)
def _reset(f: Function, pauses: Value) -> None:
    """No workers, nobody inside, fresh mutex: at the start and in a forked child. Zero keeps the number of pauses."""
    for word in (REMAINING, DONE, SLEEPERS, WORKERS):
        _set(f, word, 0, "seq_cst")
    _c(f, "pthread_mutex_init", f.at(MUTEX), NULL)
    _c(f, "pthread_cond_init", f.at(AWAKE), NULL)
    with f.when(pauses > 0):
        f.store(pauses, f.at(SPINS))
    _set(f, BUSY, 0, "seq_cst")


@_function("threads", exported=RESIZE)
def _resize(f: Function, threads: Value) -> None:
    _c(f, "pthread_mutex_lock", f.at(MUTEX))
    _set(f, THREADS, threads, "seq_cst")
    _c(f, "pthread_cond_broadcast", f.at(AWAKE))
    _c(f, "pthread_mutex_unlock", f.at(MUTEX))


@_function("")
def _take_chunks(f: Function) -> None:
    """Takes chunks of the published job until there are none left."""
    with f.forever() as leave:
        left = _count(f, "sub", REMAINING, "acq_rel")
        leave(left <= 0)
        task, context, chunks = (f.load(type, place) for type, place in _job(f))
        f.call_at(task, VOID, context, chunks - left)
        _count(f, "add", DONE, "release")


def _job(f: Function) -> list[tuple[str, Value]]:
    """What is published: task, context and number of chunks, as types and places."""
    return [(type, f.element(LONG, f.at(JOB), i)) for i, type in enumerate((POINTER, POINTER, LONG))]


@_function("unused*", POINTER)
def _worker(f: Function, unused: Value, take_chunks: Function) -> None:
    with f.forever():
        spins = f.variable(f.load(LONG, f.at(SPINS)))
        with f.forever() as leave:
            leave(_get(f, REMAINING, "monotonic") > 0)
            _pause(f)
            spins.add(-1)
            with f.when(spins.get() <= 0):
                _sleep(f)
                leave()
        f.call(take_chunks)


def _sleep(f: Function) -> None:
    """Until a job is published; a worker that is one too many ends here."""
    _c(f, "pthread_mutex_lock", f.at(MUTEX))
    _count(f, "add", SLEEPERS, "seq_cst")
    with f.forever() as get_up:
        threads, workers = _get(f, THREADS, "seq_cst"), _get(f, WORKERS, "seq_cst")
        with f.when(workers >= threads):
            _count(f, "sub", SLEEPERS, "seq_cst")
            _count(f, "sub", WORKERS, "seq_cst")
            _c(f, "pthread_mutex_unlock", f.at(MUTEX))
            f.ret(NULL)
        get_up(_get(f, REMAINING, "seq_cst") > 0)
        _c(f, "pthread_cond_wait", f.at(AWAKE), f.at(MUTEX))
    _count(f, "sub", SLEEPERS, "seq_cst")
    _c(f, "pthread_mutex_unlock", f.at(MUTEX))


@_function("")
def _start_workers(f: Function, worker: Function) -> None:
    """Called by the thread that holds the pool. If the system refuses a thread, the job runs with those there are."""
    blocked, before, thread = f.stack(LONG, 32, align=16), f.stack(LONG, 32, align=16), f.stack(POINTER)
    mask = f.constant(signal.SIG_SETMASK, INT)
    _c(f, "sigfillset", blocked)
    for name in FAULTS:
        if hasattr(signal, name):
            _c(f, "sigdelset", blocked, f.constant(getattr(signal, name), INT))
    _c(f, "pthread_sigmask", mask, blocked, before)
    _c(f, "pthread_mutex_lock", f.at(MUTEX))
    with f.forever() as leave:
        workers, threads = _get(f, WORKERS, "seq_cst"), _get(f, THREADS, "seq_cst")
        leave(workers + 1 >= threads)
        leave(_c(f, "pthread_create", thread, NULL, f.at(worker), NULL).differs(0))
        _c(f, "pthread_detach", f.load(POINTER, thread))
        _count(f, "add", WORKERS, "seq_cst")
    _c(f, "pthread_mutex_unlock", f.at(MUTEX))
    _c(f, "pthread_sigmask", mask, before, NULL)


@_function("sleepers useful")
def _wake(f: Function, sleepers: Value, useful: Value) -> None:
    """The job is published. The lock, taken and dropped, waits for a worker between its last look and its sleep."""
    _c(f, "pthread_mutex_lock", f.at(MUTEX))
    _c(f, "pthread_mutex_unlock", f.at(MUTEX))
    with f.when(useful >= sleepers):
        _c(f, "pthread_cond_broadcast", f.at(AWAKE))
        f.ret()
    with f.loop(0, useful):
        _c(f, "pthread_cond_signal", f.at(AWAKE))


@_function(TASK, exported=PARALLEL.name)
def _parallel(f: Function, task: Value, context: Value, chunks: Value) -> None:
    alone, take_chunks = _run_serially(), _take_chunks()

    def alone_if(condition: Value) -> None:
        with f.when(condition):
            f.call(alone, *f.parameters)
            f.ret()

    alone_if(chunks <= 1)
    threads = _get(f, THREADS, "monotonic")
    alone_if(threads <= 1)
    alone_if(~f.replace_if(f.at(BUSY), f.constant(0), f.constant(1), "acquire monotonic"))
    with f.when(_get(f, WORKERS, "monotonic") + 1 < threads):
        f.call(_start_workers(_worker(take_chunks)))
    for value, (_, place) in zip(f.parameters, _job(f), strict=True):
        f.store(value, place)
    _set(f, DONE, 0, "monotonic")
    _set(f, REMAINING, chunks, "seq_cst")
    sleepers = _get(f, SLEEPERS, "seq_cst")
    with f.when(sleepers > 0):
        f.call(_wake(), sleepers, chunks - 1)
    f.call(take_chunks)
    wait(f, lambda: _get(f, DONE, "acquire") >= chunks, f.load(LONG, f.at(SPINS)))
    _set(f, BUSY, 0, "release")
