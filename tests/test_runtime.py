"""Compiled functions as a service: many calls, many threads, fork, exit, and what a person can look at."""

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import wonderland as wl

ROOT = Path(__file__).resolve().parent.parent


def resident_kilobytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


@wl.register_mutable
class Model:
    """Weights of a small network."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.w = rng.normal(size=(8, 4)).astype(np.float32)
        self.b = np.zeros(4, np.float32)


def train(model, x):
    value, g = wl.value_and_grad(lambda m: np.mean(np.tanh(x @ m.w + m.b) ** 2))(model)
    model.w = model.w - 0.01 * g.w
    model.b = model.b - 0.01 * g.b
    return value


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
def test_memory_stays_flat_over_many_calls():
    step, gradient = wl.jit(train), wl.jit(wl.grad(lambda x: np.sum(np.sin(x) * x)))
    model, x, y = Model(), np.ones((16, 8), np.float32), np.linspace(0, 1, 50)
    for _ in range(2_000):
        step(model, x)
        gradient(y)
    gc.collect()
    before = resident_kilobytes()
    for _ in range(50_000):
        step(model, x)
        gradient(y)
    gc.collect()
    assert resident_kilobytes() - before < 3_000  # a leak of one small array per call would be 10 MB


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
def test_memory_of_slow_paths_stays_flat():
    f = wl.jit(lambda x, i: x[i] * 2.0)
    x = np.linspace(0, 1, 50)
    strided = np.linspace(0, 1, 100)[::2]

    def misuse():
        f(strided, 3)
        with pytest.raises(IndexError):
            f(x, 77)

    for _ in range(500):
        misuse()
    gc.collect()
    before = resident_kilobytes()
    for _ in range(5_000):
        misuse()
    gc.collect()
    assert resident_kilobytes() - before < 2_000


def test_calls_from_eight_threads_give_right_answers():
    f = wl.jit(wl.grad(lambda x: np.sum(np.tanh(x @ x.T))))
    inputs = [np.random.default_rng(i).normal(size=(40, 40)) for i in range(8)]
    expected = [wl.grad(lambda x: np.sum(np.tanh(x @ x.T)))(x) for x in inputs]
    wrong = []

    def work(i):
        for _ in range(50):
            if not np.allclose(f(inputs[i]), expected[i], rtol=1e-10, atol=1e-10):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_compiling_from_several_threads():
    results = {}

    def work(n):
        results[n] = wl.jit(lambda x: np.sum(np.exp(x) * n))(np.zeros(n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {n: float(n * n) for n in range(1, 9)}


def run_in_child(function, timeout=60):
    """Run in a forked child; its exit code."""
    child = multiprocessing.get_context("fork").Process(target=function)
    child.start()
    child.join(timeout)
    if child.is_alive():
        child.kill()
        pytest.fail("the forked child hangs")
    return child.exitcode


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_computes_and_compiles():
    f = wl.jit(lambda x: np.sum(np.sin(x)) + np.sum(x @ x))
    x = np.random.default_rng(0).normal(size=(300, 300))
    expected = f(x)  # the pool has started

    def child():
        same = np.isclose(f(x), expected)
        new = np.isclose(wl.jit(lambda x: np.mean(x * 3.0))(x), np.mean(x) * 3.0)
        os._exit(0 if same and new else 1)

    assert run_in_child(child) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_fork_while_another_thread_compiles():
    stop = threading.Event()

    def compile_forever():
        n = 0
        while not stop.is_set():
            n += 1
            wl.jit(lambda x, n=n: np.sum(np.tanh(x) * float(n)))(np.ones(5))

    thread = threading.Thread(target=compile_forever)
    thread.start()
    try:
        for _ in range(5):

            def child():
                os._exit(0 if wl.jit(lambda x: np.sum(np.exp(x)))(np.zeros(7)) == 7.0 else 1)

            assert run_in_child(child) == 0
    finally:
        stop.set()
        thread.join()


LOADING = """
import os, sys, threading, time
import numpy as np, wonderland as wl
import logging  # a fork takes its lock, which imports of SciPy's need; as it is imported after us, before our own
from wonderland.core import forks
forks.PATIENCE = 1e6  # what waits for the fork itself shows

class Slowly:  # a finder that finds nothing, but takes its time in the middle of the first import of a module
    def find_spec(name, path, target=None):
        if name == "{module}" and not inside.is_set():
            inside.set()
            time.sleep(0.5)

inside = threading.Event()
sys.meta_path.insert(0, Slowly)
x = np.arange(3.0)
thread = threading.Thread(target=lambda: {use})
thread.start()
assert inside.wait(60)
child = os.fork()
if not child:
    os._exit(0 if np.all({use} == {expected}) else 1)
thread.join()
until = time.monotonic() + 60
while time.monotonic() < until:
    pid, status = os.waitpid(child, os.WNOHANG)
    if pid:
        sys.exit(status)
    time.sleep(0.05)
os.kill(child, 9)
sys.exit("the forked child hangs")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("module", "use", "expected"),
    [
        ("llvmlite.binding", "wl.jit(np.sum)(x)", "3"),  # a public name
        ("wonderland.transform.budget", "wl.grad(np.sum, memory_budget=1e9)(x)", "1"),  # an import in a function
        ("wonderland.numpy.fourier", "wl.jvp(np.fft.fft, (x,), (x,))[1]", "np.fft.fft(x)"),  # the tables of tracers
        ("wonderland.studio.dot", "wl.trace(np.sin)(1.0).to_dot()[:7]", "'digraph'"),  # a slot
        ("scipy.sparse", "wl.sparse.jacobian(np.sin)(0 * x).toarray()", "np.eye(3)"),
    ],
)
def test_fork_while_another_thread_loads_a_part(module, use, expected):
    """The child doesn't inherit the lock of a half-loaded module."""
    code = LOADING.format(module=module, use=use, expected=expected)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_that_waits_for_an_import_holds_no_lock():
    """An import may collect garbage of llvmlite's, which is freed under its lock."""
    code = (
        "import os, sys, threading, time\n"
        "from wonderland.compile import llvm\n"
        "from wonderland.core import forks\n"
        "forks.PATIENCE = 1e6\n"
        "inside = threading.Event()\n"
        "def load():\n"
        "    with forks.loading():\n"
        "        inside.set()\n"
        "        time.sleep(0.3)\n"
        "        for lock in forks.LOCKS:\n"
        "            with lock: pass\n"
        "threading.Thread(target=load).start()\n"
        "inside.wait()\n"
        "child = os.fork()\n"
        "if not child: os._exit(0)\n"
        "sys.exit(os.waitpid(child, 0)[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_no_import_waits_for_what_a_fork_holds():
    """A fork takes LLVM's lock and then waits for imports: with a module that compiles, both would wait."""
    code = (
        "import pkgutil, importlib, wonderland\n"
        "from wonderland.compile import llvm\n"
        "class Refusing:\n"
        "    def __enter__(self): raise AssertionError('compiles while it is imported')\n"
        "    acquire = __enter__\n"
        "    def __exit__(self, *exc): pass\n"
        "llvm.lock = Refusing()\n"
        "for found in pkgutil.walk_packages(wonderland.__path__, 'wonderland.'):\n"
        "    if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_exit_right_after_a_threaded_call():
    code = (
        "import numpy as np, wonderland as wl\n"
        "f = wl.jit(lambda x: np.sum(np.exp(x)) + np.sum(x @ x))\n"
        "print(f(np.zeros((600, 600))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "360000.0", "")


@pytest.mark.optimised
def test_results_do_not_depend_on_the_number_of_threads():
    code = (
        "import numpy as np, wonderland as wl\n"
        "x = np.random.default_rng(0).normal(size=(700, 900)).astype(np.float32)\n"
        "f = wl.jit(lambda x: (np.sum(np.exp(x)), np.sum(x, axis=0), np.max(x, axis=1), x @ x.T, np.mean(x * x)))\n"
        "import hashlib; print(hashlib.sha256(b''.join(np.asarray(o).tobytes() for o in f(x))).hexdigest())"
    )
    found = set()
    for threads in ("1", "2", "3"):
        environment = {**os.environ, "WONDERLAND_THREADS": threads}
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        found.add(out.stdout)
    assert len(found) == 1


def test_a_ragged_last_batch_reuses_machine_code():
    f = wl.jit(lambda x, w: np.tanh(x @ w).sum(axis=1))
    w = np.ones((40, 30), np.float32)
    first, second = (f.inspect(np.ones((n, 40), np.float32), w) for n in (128, 57))
    assert first.ir == second.ir
    np.testing.assert_allclose(f(np.ones((57, 40), np.float32), w), np.full(57, 30.0), rtol=1e-6)


def test_inspect_shows_every_stage():
    def softmax(x):
        e = np.exp(x - np.max(x, axis=1, keepdims=True))
        return e / np.sum(e, axis=1, keepdims=True)

    found = wl.jit(softmax).inspect(np.ones((64, 32), np.float32))
    assert "exp" in str(found.program)
    assert len(found.kernels) == 1  # the whole softmax, row by row
    assert "define" in found.ir
    assert len(found.assembly()) > 100
    assert not found.fallbacks


def test_a_primitive_without_lowering_runs_by_numpy_inside_a_jit():
    f = wl.jit(lambda z: np.sum(np.abs(np.fft.fft(z) * 2j) ** 2))
    z = np.array([1 + 2j, 3 - 1j])
    assert f(z) == pytest.approx(2 * 4 * 15.0)
    assert f.inspect(z).fallbacks == ("fft",)


@pytest.mark.parametrize("level", ["1", "2", "3", "4", "5"])
def test_debug_levels_print_to_stderr(level):
    code = "import numpy as np, wonderland as wl; print(wl.jit(lambda x: np.sum(np.sin(x)))(np.zeros(40)))"
    environment = {**os.environ, "WONDERLAND_DEBUG": level}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "0.0"
    expected = {"1": "f64[40]", "2": "program", "3": "kernel", "4": "define", "5": "ret"}[level]
    assert expected in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory by Linux's rules")
def test_running_out_of_memory_raises_and_leaves_everything_usable():
    code = """
import numpy as np, resource, wonderland as wl
def f(x, steps):
    return np.sum(wl.while_loop(lambda s: s[1] < steps, lambda s: (np.sin(s[0]) * x, s[1] + 1), (x * 1.0, 0))[0])
g = wl.jit(wl.grad(f))
x = np.ones(2000)
before = g(x, 5)
try:
    limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (512 << 20)
except OSError:
    limit = 3 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    g(x, 10_000_000)
except MemoryError:
    print(np.array_equal(g(x, 5), before))
"""
    environment = {**os.environ, "WONDERLAND_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


def test_a_jitted_gradient_sees_later_changes_of_a_captured_array():
    """SEMANTICS 5: by reference, in derivatives too."""
    w = np.ones(3)
    f = lambda x: np.sum(x * x * w)
    transforms = [wl.jit(wl.grad(f)), wl.jit(lambda x: wl.vjp(f, x)[1](1.0)[0]), wl.jit(wl.vmap(wl.grad(f)))]
    args = [np.ones(3), np.ones(3), np.ones((2, 3))]
    for g, x in zip(transforms, args, strict=True):
        w[:] = 1.0
        np.testing.assert_array_equal(g(x), 2.0 * np.ones_like(x))
        w[:] = 5.0
        np.testing.assert_array_equal(g(x), 10.0 * np.ones_like(x))


def test_but_sees_it_as_it_was_at_each_use():
    def f(x):
        w = np.ones(3)
        a = x * w
        w *= 5
        return np.sum(a * w)

    for g in (wl.grad(f), wl.jit(wl.grad(f))):
        np.testing.assert_array_equal(g(np.ones(3)), 5.0 * np.ones(3))
