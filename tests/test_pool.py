"""The native thread pool: every chunk runs exactly once, whoever calls it, from wherever."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import llvmlite.binding
import numpy as np
import pytest

from wonderland.compile import llvm, pool
from wonderland.compile.ir import LONG, POINTER, Function, Module

# count(context, i): context[i] += 1.   nest(context, i): count over row i of a matrix, by the pool again.
TASKS = """
declare void @wl_parallel(ptr, ptr, i64)
define void @count(ptr %context, i64 %chunk) {
  %p = getelementptr i64, ptr %context, i64 %chunk
  %old = load i64, ptr %p
  %new = add i64 %old, 1
  store i64 %new, ptr %p
  ret void
}
define void @nest(ptr %context, i64 %chunk) {
  %offset = mul i64 %chunk, 50
  %row = getelementptr i64, ptr %context, i64 %offset
  call void @wl_parallel(ptr @count, ptr %row, i64 50)
  ret void
}
"""
SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
CHUNKS = [0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 100, 1000, 20_000]


@pytest.fixture(scope="module")
def tasks():
    return llvm.compile_library(TASKS, ["count", "nest"], {"wl_parallel": pool.PARALLEL.address()})


@pytest.fixture(params=[1, 2, 3, 8])
def threads(request):
    before = pool.size()
    pool.set_size(request.param)
    yield request.param
    pool.set_size(before)


def run(tasks, name: str, counts: np.ndarray, chunks: int) -> None:
    SIGNATURE(pool.PARALLEL.address())(tasks.address(name), counts.ctypes.data, chunks)


@pytest.mark.parametrize("chunks", CHUNKS)
def test_every_chunk_runs_once(tasks, threads, chunks):
    counts = np.zeros(chunks + 1, np.int64)
    for _ in range(20):
        run(tasks, "count", counts, chunks)
    assert (counts[:chunks] == 20).all()
    assert counts[chunks] == 0


def test_negative_number_of_chunks_does_nothing(tasks, threads):
    counts = np.zeros(1, np.int64)
    run(tasks, "count", counts, -3)
    assert counts[0] == 0


def test_many_short_jobs(tasks, threads):
    counts = np.zeros(5, np.int64)
    for repeat in range(3000):
        run(tasks, "count", counts, 2 + repeat % 4)
    expected = [3000, 3000, 2250, 1500, 750]
    assert counts.tolist() == expected


def test_after_sleep(tasks, threads):
    counts = np.zeros(64, np.int64)
    for _ in range(20):
        run(tasks, "count", counts, 64)
        time.sleep(0.002)
    assert (counts == 20).all()


def test_nested_calls_run_inline(tasks, threads):
    counts = np.zeros((40, 50), np.int64)
    for _ in range(20):
        run(tasks, "nest", counts, 40)
    assert (counts == 20).all()


def test_eight_python_threads_at_once(tasks, threads):
    counts = [np.zeros(97, np.int64) for _ in range(8)]
    barrier = threading.Barrier(8)

    def work(mine: np.ndarray) -> None:
        barrier.wait()
        for _ in range(300):
            run(tasks, "count", mine, 97)

    callers = [threading.Thread(target=work, args=(mine,)) for mine in counts]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all((mine == 300).all() for mine in counts)


def test_work_is_shared_between_threads():
    """Chunks that wait for each other can only finish on different threads."""
    before = pool.size()
    pool.set_size(3)
    try:
        together = threading.Barrier(3, timeout=10)
        seen = set()

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        def meet(context, chunk):
            together.wait()
            seen.add(threading.get_ident())

        SIGNATURE(pool.PARALLEL.address())(ctypes.cast(meet, ctypes.c_void_p).value, None, 3)
        assert len(seen) == 3
    finally:
        pool.set_size(before)


def test_resizing_between_calls(tasks):
    before = pool.size()
    counts = np.zeros(200, np.int64)
    sizes = [1, 4, 2, 8, 1, 3, 2, 5]
    for threads in sizes:
        pool.set_size(threads)
        assert pool.size() == threads
        run(tasks, "count", counts, 200)
        time.sleep(0.001)
    pool.set_size(before)
    assert (counts == len(sizes)).all()


def test_surplus_workers_leave(tasks):
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("counts threads in /proc")
    before = pool.size()
    pool.set_size(1)
    time.sleep(0.05)
    base = len(os.listdir("/proc/self/task"))
    pool.set_size(6)
    counts = np.zeros(64, np.int64)
    run(tasks, "count", counts, 64)
    assert len(os.listdir("/proc/self/task")) == base + 5
    pool.set_size(1)
    deadline = time.monotonic() + 5
    while len(os.listdir("/proc/self/task")) > base and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/task")) == base
    pool.set_size(before)


def running_threads() -> int:
    """Threads of this process, other than this one, that are running or want to."""
    running = 0
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != threading.get_native_id():
            with open(f"/proc/self/task/{thread}/stat") as file:
                running += file.read().rsplit(")", 1)[1].split()[0] == "R"
    return running


def test_idle_workers_sleep(tasks):
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("looks at threads in /proc")
    before = pool.size()
    pool.set_size(4)
    run(tasks, "count", np.zeros(64, np.int64), 64)
    deadline = time.monotonic() + 10
    while running_threads() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert running_threads() == 0
    pool.set_size(before)


def test_set_size_refuses_nonsense():
    with pytest.raises(ValueError, match="at least one thread, got 0"):
        pool.set_size(0)


def check_in_child(tasks) -> None:
    counts = np.zeros(64, np.int64)
    for _ in range(50):
        run(tasks, "count", counts, 64)
    os._exit(0 if (counts == 50).all() else 1)


def wait_for_child(child: int) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the forked child hangs")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork(tasks, threads):
    counts = np.zeros(64, np.int64)
    run(tasks, "count", counts, 64)
    child = os.fork()
    if child == 0:
        check_in_child(tasks)
    assert wait_for_child(child) == 0
    run(tasks, "count", counts, 64)
    assert (counts == 2).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_while_another_thread_uses_the_pool(tasks):
    before = pool.size()
    pool.set_size(3)
    counts = np.zeros(64, np.int64)
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            run(tasks, "count", counts, 64)

    other = threading.Thread(target=keep_busy)
    other.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                check_in_child(tasks)
            assert wait_for_child(child) == 0
    finally:
        stop.set()
        other.join()
        pool.set_size(before)


def _child_count(repeats: int) -> int:
    tasks = llvm.compile_library(TASKS, ["count", "nest"], {"wl_parallel": pool.PARALLEL.address()})
    counts = np.zeros(64, np.int64)
    for _ in range(repeats):
        run(tasks, "count", counts, 64)
    return int(counts.sum())


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_multiprocessing_pool_of_forks(tasks):
    counts = np.zeros(64, np.int64)
    run(tasks, "count", counts, 64)
    with multiprocessing.get_context("fork").Pool(3) as processes:
        assert processes.map(_child_count, [10, 20, 30, 40], chunksize=1) == [640, 1280, 1920, 2560]


SCRIPT = """
import ctypes, os, sys
from wonderland.compile import llvm, pool
sys.path.insert(0, {tests!r})
from test_pool import TASKS, run
import numpy as np
tasks = llvm.compile_library(TASKS, ["count", "nest"], {{"wl_parallel": pool.PARALLEL.address()}})
counts = np.zeros(1000, np.int64)
for _ in range(100):
    run(tasks, "count", counts, 1000)
assert (counts == 100).all()
print(pool.size(), len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0)
"""


def run_script(threads: str, ending: str = "") -> subprocess.CompletedProcess:
    script = SCRIPT.format(tests=os.path.dirname(os.path.abspath(__file__))) + ending
    environment = dict(os.environ, WONDERLAND_THREADS=threads, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "ending", ["", "sys.exit(0)", "import gc; del tasks; pool.CODE = None; gc.collect()"]
)
def test_exit_right_after_use(ending):
    result = run_script("4", ending)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[0] == "4"


def test_one_thread_starts_no_workers():
    result = run_script("1")
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[0] == "1"
    assert result.stdout.split()[1] in ("0", "1")


@pytest.mark.parametrize("given", ["0", "-2", "two", "1.5"])
def test_wrong_number_of_threads_is_reported(given, monkeypatch):
    monkeypatch.setenv("WONDERLAND_THREADS", given)
    monkeypatch.setattr(pool, "_size", None)
    with pytest.raises(ValueError, match="WONDERLAND_THREADS must be a positive number"):
        pool.size()


def test_a_module_that_calls_the_pool_finds_it_by_itself():
    task = Function("task", [("context", POINTER), ("chunk", LONG)])
    place = task.element(LONG, *task.parameters)
    task.store(task.load(LONG, place) + 1, place)
    run = Function("run", [("counts", POINTER), ("chunks", LONG)], exported=True)
    run.call(pool.PARALLEL, run.at(task), *run.parameters)
    module = Module()
    module.add(run)
    library = module.load()
    counts = np.zeros(1000, np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("run"))(counts.ctypes.data, 1000)
    assert (counts == 1).all()


def test_without_pthreads_the_caller_runs_all_chunks(tasks, monkeypatch):
    monkeypatch.setattr(pool, "_has_pthreads", lambda: False)
    library = pool.module().load()
    counts = np.zeros(7, np.int64)
    SIGNATURE(library.address("wl_parallel"))(tasks.address("count"), counts.ctypes.data, 7)
    for name in ("wl_pool_reset", "wl_pool_resize", "wl_pool_spin"):
        ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.address(name))(3)
    assert (counts == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the code with threads is that of pthreads")
@pytest.mark.parametrize(
    ("triple", "pause"),
    [("x86_64-linux", "x86.sse2.pause"), ("arm64-apple", "aarch64.isb(i32 15)"), ("riscv64-linux", "fence acquire")],
)
def test_a_waiting_core_is_told_so(monkeypatch, triple, pause):
    with monkeypatch.context() as patch:
        patch.setattr(llvm, "target_machine", lambda: SimpleNamespace(triple=triple))
        text = pool.module().text()
    assert text.count(pause) >= 3
    llvmlite.binding.parse_assembly(text).verify()
