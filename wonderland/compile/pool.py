"""The native thread pool: nothing comes in, the address of `wl_parallel` goes out.

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
from functools import cache
from time import perf_counter_ns

from wonderland.compile import llvm

SPIN_NANOSECONDS = 30_000
# A worker takes no signals, so that they reach Python's main thread; its own faults must still be reported.
FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP")

_library: llvm.Library | None = None
_size: int | None = None


def size() -> int:
    """Number of threads a call may use, the caller included."""
    global _size
    if _size is None:
        _size = _default_size() if _has_pthreads() else 1
    return _size


def set_size(threads: int) -> None:
    """Use this many threads from now on, the caller included: surplus workers leave, missing ones start."""
    global _size
    if threads < 1:
        raise ValueError(f"a pool needs at least one thread, got {threads}")
    with llvm.lock:
        _size = threads if _has_pthreads() else 1
        if _library is not None:
            _call(_library, "wl_pool_resize", _size)


def address() -> int:
    """Address of `wl_parallel`; the first call compiles the pool."""
    global _library
    if _library is None:
        with llvm.lock:
            if _library is None:
                _library = _load()
    return _library.address("wl_parallel")


def _default_size() -> int:
    given = os.environ.get("WONDERLAND_THREADS", "").strip()
    if given:
        if not given.isdecimal() or int(given) < 1:
            raise ValueError(f"WONDERLAND_THREADS must be a positive number of threads, got {given!r}")
        return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _has_pthreads() -> bool:
    return os.name == "posix" and hasattr(ctypes.CDLL(None), "pthread_create")


def _load() -> llvm.Library:
    library = llvm.compile_library(
        llvm.AS_WRITTEN + definition(), ["wl_parallel", "wl_pool_reset", "wl_pool_resize", "wl_pool_spin"]
    )
    # Workers may still be inside this code when the interpreter clears its modules: it outlives everything.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
    if _has_pthreads():
        _call(library, "wl_pool_reset", _pauses(library))
        _call(library, "wl_pool_resize", size())
        # A forked child has none of the workers, and maybe a mutex that one of them held: start anew.
        os.register_at_fork(after_in_child=lambda: _call(library, "wl_pool_reset", 0))
    return library


def _call(library: llvm.Library, symbol: str, argument: int) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.address(symbol))(argument)


def _pauses(library: llvm.Library) -> int:
    """How many pause instructions fill the time to spin: measured, for one takes 10 to 150 cycles."""
    best = SPIN_NANOSECONDS * 1000
    for _ in range(3):
        start = perf_counter_ns()
        _call(library, "wl_pool_spin", 1000)
        best = min(best, perf_counter_ns() - start)
    return max(100, min(30_000, SPIN_NANOSECONDS * 1000 // max(best, 1)))


def definition() -> str:
    """The pool as LLVM IR; where there are no pthreads, a loop."""
    if not _has_pthreads():
        return SERIAL + RUN_SERIALLY
    pause, declaration = _pause()
    text = declaration + THREADED + RUN_SERIALLY
    mask = str(int(signal.SIG_SETMASK))
    return text.replace("$PAUSE", pause).replace("$KEEP", _keep_faults()).replace("$SETMASK", mask)


def _pause() -> tuple[str, str]:
    """The instruction that tells a core it is waiting, and its declaration; a plain loop waits too."""
    triple = llvm.target_machine().triple
    if triple.startswith(("x86_64", "i386", "i686")):
        return "call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()\n"
    if triple.startswith(("aarch64", "arm64")):
        return "call void @llvm.aarch64.isb(i32 15)", "declare void @llvm.aarch64.isb(i32)\n"
    return "fence acquire", ""


def _keep_faults() -> str:
    numbers = [int(getattr(signal, name)) for name in FAULTS if hasattr(signal, name)]
    return "\n".join(f"  call i32 @sigdelset(ptr %blocked, i32 {number})" for number in numbers)


RUN_SERIALLY = """
define internal void @run_serially(ptr %task, ptr %context, i64 %chunks) {
entry:
  %any = icmp sgt i64 %chunks, 0
  br i1 %any, label %body, label %exit
body:
  %chunk = phi i64 [ 0, %entry ], [ %next, %body ]
  call void %task(ptr %context, i64 %chunk)
  %next = add i64 %chunk, 1
  %more = icmp slt i64 %next, %chunks
  br i1 %more, label %body, label %exit
exit:
  ret void
}
"""

SERIAL = """
define void @wl_parallel(ptr %task, ptr %context, i64 %chunks) {
  call void @run_serially(ptr %task, ptr %context, i64 %chunks)
  ret void
}
define void @wl_pool_reset(i64 %pauses) { ret void }
define void @wl_pool_resize(i64 %threads) { ret void }
define void @wl_pool_spin(i64 %times) { ret void }
"""

# Words that different threads write lie 128 bytes apart (a cache line and its prefetched neighbour).
THREADED = """
@remaining = internal global [16 x i64] zeroinitializer, align 128
@done = internal global [16 x i64] zeroinitializer, align 128
@busy = internal global [16 x i64] zeroinitializer, align 128
@sleepers = internal global [16 x i64] zeroinitializer, align 128
@job = internal global { ptr, ptr, i64, [13 x i64] } zeroinitializer, align 128
@threads = internal global i64 1, align 128
@workers = internal global i64 0, align 8
@spins = internal global i64 1000, align 8
@mutex = internal global [32 x i64] zeroinitializer, align 128
@awake = internal global [32 x i64] zeroinitializer, align 128

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i32 @sched_yield()

define void @wl_pool_spin(i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  $PAUSE
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %exit
exit:
  ret void
}

; No workers, nobody inside, fresh mutex: at the start and in a forked child. Zero keeps the number of pauses.
define void @wl_pool_reset(i64 %pauses) {
entry:
  store atomic i64 0, ptr @remaining seq_cst, align 8
  store atomic i64 0, ptr @done seq_cst, align 8
  store atomic i64 0, ptr @sleepers seq_cst, align 8
  store atomic i64 0, ptr @workers seq_cst, align 8
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @awake, ptr null)
  %given = icmp sgt i64 %pauses, 0
  br i1 %given, label %set, label %exit
set:
  store i64 %pauses, ptr @spins, align 8
  br label %exit
exit:
  store atomic i64 0, ptr @busy seq_cst, align 8
  ret void
}

define void @wl_pool_resize(i64 %threads) {
  call i32 @pthread_mutex_lock(ptr @mutex)
  store atomic i64 %threads, ptr @threads seq_cst, align 8
  call i32 @pthread_cond_broadcast(ptr @awake)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

; Takes chunks of the published job until there are none left.
define internal void @take_chunks() {
entry:
  br label %take
take:
  %left = atomicrmw sub ptr @remaining, i64 1 acq_rel, align 8
  %got = icmp sgt i64 %left, 0
  br i1 %got, label %run, label %exit
run:
  %task = load ptr, ptr @job, align 8
  %context = load ptr, ptr getelementptr ({ ptr, ptr, i64 }, ptr @job, i64 0, i32 1), align 8
  %chunks = load i64, ptr getelementptr ({ ptr, ptr, i64 }, ptr @job, i64 0, i32 2), align 8
  %chunk = sub i64 %chunks, %left
  call void %task(ptr %context, i64 %chunk)
  atomicrmw add ptr @done, i64 1 release, align 8
  br label %take
exit:
  ret void
}

define internal ptr @worker(ptr %unused) {
entry:
  br label %rest
rest:
  %spins = load i64, ptr @spins, align 8
  br label %look
look:
  %spin = phi i64 [ %spins, %rest ], [ %fewer, %pause ]
  %seen = load atomic i64, ptr @remaining monotonic, align 8
  %work = icmp sgt i64 %seen, 0
  br i1 %work, label %serve, label %pause
serve:
  call void @take_chunks()
  br label %rest
pause:
  $PAUSE
  %fewer = sub i64 %spin, 1
  %tired = icmp sle i64 %fewer, 0
  br i1 %tired, label %lie_down, label %look
lie_down:
  call i32 @pthread_mutex_lock(ptr @mutex)
  atomicrmw add ptr @sleepers, i64 1 seq_cst, align 8
  br label %check
check:
  %threads = load atomic i64, ptr @threads seq_cst, align 8
  %workers = load atomic i64, ptr @workers seq_cst, align 8
  %surplus = icmp sge i64 %workers, %threads
  br i1 %surplus, label %leave, label %stay
stay:
  %published = load atomic i64, ptr @remaining seq_cst, align 8
  %called = icmp sgt i64 %published, 0
  br i1 %called, label %get_up, label %sleep
sleep:
  call i32 @pthread_cond_wait(ptr @awake, ptr @mutex)
  br label %check
get_up:
  atomicrmw sub ptr @sleepers, i64 1 seq_cst, align 8
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %serve
leave:
  atomicrmw sub ptr @sleepers, i64 1 seq_cst, align 8
  atomicrmw sub ptr @workers, i64 1 seq_cst, align 8
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret ptr null
}

; Called by the thread that holds the pool. If the system refuses a thread, the job runs with those there are.
define internal void @start_workers() {
entry:
  %blocked = alloca [32 x i64], align 16
  %before = alloca [32 x i64], align 16
  %thread = alloca i64, align 8
  call i32 @sigfillset(ptr %blocked)
$KEEP
  call i32 @pthread_sigmask(i32 $SETMASK, ptr %blocked, ptr %before)
  call i32 @pthread_mutex_lock(ptr @mutex)
  br label %check
check:
  %workers = load atomic i64, ptr @workers seq_cst, align 8
  %threads = load atomic i64, ptr @threads seq_cst, align 8
  %with_caller = add i64 %workers, 1
  %short = icmp slt i64 %with_caller, %threads
  br i1 %short, label %start, label %exit
start:
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr null)
  %started = icmp eq i32 %failed, 0
  br i1 %started, label %count, label %exit
count:
  %id = load ptr, ptr %thread, align 8
  call i32 @pthread_detach(ptr %id)
  atomicrmw add ptr @workers, i64 1 seq_cst, align 8
  br label %check
exit:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  call i32 @pthread_sigmask(i32 $SETMASK, ptr %before, ptr null)
  ret void
}

; The job is published. The lock, taken and dropped, waits for a worker between its last look and its sleep.
define internal void @wake(i64 %sleepers, i64 %useful) {
entry:
  call i32 @pthread_mutex_lock(ptr @mutex)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  %all = icmp sge i64 %useful, %sleepers
  br i1 %all, label %everyone, label %some
everyone:
  call i32 @pthread_cond_broadcast(ptr @awake)
  ret void
some:
  %i = phi i64 [ 0, %entry ], [ %next, %some ]
  call i32 @pthread_cond_signal(ptr @awake)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %useful
  br i1 %more, label %some, label %exit
exit:
  ret void
}

define void @wl_parallel(ptr %task, ptr %context, i64 %chunks) {
entry:
  %many = icmp sgt i64 %chunks, 1
  br i1 %many, label %sized, label %serial
sized:
  %threads = load atomic i64, ptr @threads monotonic, align 8
  %pooled = icmp sgt i64 %threads, 1
  br i1 %pooled, label %claim, label %serial
claim:
  %pair = cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic, align 8
  %ours = extractvalue { i64, i1 } %pair, 1
  br i1 %ours, label %count, label %serial
serial:
  call void @run_serially(ptr %task, ptr %context, i64 %chunks)
  ret void
count:
  %workers = load atomic i64, ptr @workers monotonic, align 8
  %with_caller = add i64 %workers, 1
  %short = icmp slt i64 %with_caller, %threads
  br i1 %short, label %hire, label %publish
hire:
  call void @start_workers()
  br label %publish
publish:
  store ptr %task, ptr @job, align 8
  store ptr %context, ptr getelementptr ({ ptr, ptr, i64 }, ptr @job, i64 0, i32 1), align 8
  store i64 %chunks, ptr getelementptr ({ ptr, ptr, i64 }, ptr @job, i64 0, i32 2), align 8
  store atomic i64 0, ptr @done monotonic, align 8
  store atomic i64 %chunks, ptr @remaining seq_cst, align 8
  %sleepers = load atomic i64, ptr @sleepers seq_cst, align 8
  %asleep = icmp sgt i64 %sleepers, 0
  br i1 %asleep, label %rouse, label %join
rouse:
  %useful = sub i64 %chunks, 1
  call void @wake(i64 %sleepers, i64 %useful)
  br label %join
join:
  call void @take_chunks()
  %patience = load i64, ptr @spins, align 8
  br label %wait
wait:
  %spin = phi i64 [ %patience, %join ], [ %fewer, %pause ], [ 0, %yield ]
  %finished = load atomic i64, ptr @done acquire, align 8
  %all = icmp sge i64 %finished, %chunks
  br i1 %all, label %exit, label %still
still:
  %waiting = icmp sgt i64 %spin, 0
  br i1 %waiting, label %pause, label %yield
pause:
  $PAUSE
  %fewer = sub i64 %spin, 1
  br label %wait
yield:
  call i32 @sched_yield()
  br label %wait
exit:
  store atomic i64 0, ptr @busy release, align 8
  ret void
}
"""
