"""Compiled code as a service: flat memory over many compilations, processes, threads, exit, and other CPUs."""

import gc
import multiprocessing
import os
import platform
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile import build
from wonderland.compile import jit as jit_module

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")


def resident_kilobytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def compile_another(number: int) -> None:
    """A Program whose text nobody has compiled before."""
    factor = 1.0 + number / 1024
    x = np.linspace(0.0, 1.0, 9)
    np.testing.assert_allclose(wl.jit(lambda x: np.sin(x) * factor)(x), np.sin(x) * factor, rtol=1e-14)


@needs_proc
@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_memory_stays_flat_over_many_compilations(count, monkeypatch):
    monkeypatch.setenv("WONDERLAND_CACHE", "off")
    monkeypatch.setattr(build, "MOST_LIBRARIES", 10)
    for number in range(15):
        compile_another(number)
    before = resident_kilobytes()
    for number in range(15, 15 + count):
        compile_another(number)
    assert len(build._libraries) <= 10
    assert resident_kilobytes() - before < 2_000 + 5 * count  # LLVM keeps 2 KB of each


@needs_proc
@pytest.mark.slow
def test_memory_stays_flat_over_100_000_calls():
    f, x = wl.jit(lambda x, i: (np.sin(x) @ x, x[i], {"a": x * 2})), np.ones((20, 20))
    for _ in range(1_000):
        f(x, 1)
    before = resident_kilobytes()
    for _ in range(100_000):
        f(x, 1)
    assert resident_kilobytes() - before < 1_000


@needs_proc
@pytest.mark.filterwarnings("ignore:.*is compiled for the:UserWarning")
def test_memory_stays_flat_over_many_shapes(monkeypatch):
    monkeypatch.setattr(jit_module, "MOST_SPECIALIZATIONS", 50)
    f = wl.jit(lambda x: np.sum(np.sin(x)) + x)
    most = jit_module.MOST_SPECIALIZATIONS
    for n in range(1, most + 50):
        f(np.ones(n))
    before = resident_kilobytes()
    for n in range(most + 50, most + 200):
        f(np.ones(n))
    assert len(f._specializations) == most
    assert resident_kilobytes() - before < 2_000


def test_the_signature_that_was_looked_up_longest_ago_is_forgotten(monkeypatch):
    monkeypatch.setattr(jit_module, "MOST_SPECIALIZATIONS", 3)
    seen = []
    f = wl.jit(lambda x: seen.append(x.shape[0]) or x + 1)
    for n in (1, 2, 3, 1, 4, 3, 1, 4, 2):  # 4 pushes 1 out (its second call was native), 1 pushes 2 out, 2 pushes 3 out
        np.testing.assert_array_equal(f(np.zeros(n)), np.ones(n))
    assert seen == [1, 2, 3, 4, 1, 2] and len(f._specializations) == 3


def test_signatures_come_and_go_under_eight_threads(monkeypatch):
    monkeypatch.setattr(jit_module, "MOST_SPECIALIZATIONS", 4)
    monkeypatch.setattr(jit_module, "RECOMPILATIONS_BEFORE_WARNING", 100)
    f = wl.jit(lambda x: np.sum(x) * 2)

    def work(seed: int) -> bool:
        sizes = np.random.default_rng(seed).integers(1, 9, 40)
        return all(f(np.ones(n)) == 2 * n for n in sizes)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(8)))
    assert len(f._specializations) <= 4


def test_donated_states_of_eight_threads():
    step = wl.jit(lambda state, x: {"w": state["w"] @ x, "n": state["n"] + 1}, donate=0)
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    barrier = threading.Barrier(8)

    def work(seed: int) -> bool:
        state = {"w": np.full((2, 2), float(seed)), "n": np.zeros(3)}
        arrays = list(state.values())
        barrier.wait()
        for _ in range(400):
            state = step(state, turn)
        same = state["w"] is arrays[0] and state["n"] is arrays[1]
        return same and bool(np.all(state["w"] == seed)) and bool(np.all(state["n"] == 400))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(8)))


def energy(x: np.ndarray) -> np.float64:
    return np.sum(np.tanh(x @ x.T))


compiled_energy = wl.jit(energy)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", [m for m in ("spawn", "fork") if m in multiprocessing.get_all_start_methods()])
def test_worker_processes(method):
    inputs = [np.random.default_rng(i).normal(size=(70, 60)) for i in range(4)]
    expected = [compiled_energy(x) for x in inputs]  # the pool of this process has started
    with multiprocessing.get_context(method).Pool(2) as workers:
        found = workers.map_async(compiled_energy, inputs).get(timeout=120)
    np.testing.assert_array_equal(found, expected)


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_exit_while_threads_compute_and_compile():
    done = run("""
        import threading, time
        import numpy as np, wonderland as wl

        f = wl.jit(lambda x: np.sum(np.exp(x)) + np.sum(x @ x))  # on the pool
        g = wl.jit(lambda x: np.linalg.eigvalsh(x[:20, :20]) * 2)  # back into Python in the middle
        x = np.zeros((200, 200))

        def compute():
            while True:
                f(x), g(x)

        def compile():
            n = 0
            while True:
                n += 1
                wl.jit(lambda x: x * n)(x)

        f(x), g(x)
        for work in (compute, compute, compile):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
        print("end")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


CALCULATION = """
    import numpy as np
    import wonderland as wl
    from wonderland.compile import llvm

    def f(w, x):
        hidden = np.tanh(x @ w) + np.exp(-np.abs(x[:, :7])) * np.log1p(x[:, :7] ** 2)
        scaled = hidden / np.sum(hidden**2, axis=1, keepdims=True)
        state, _ = wl.scan(lambda c, row: (np.sin(c) + row, c), scaled[0], scaled)
        return np.sum(state) + np.max(np.arctan2(x, 2.0)) + np.sum(np.cumsum(np.sort(w[:, 0])))

    rng = np.random.default_rng(0)
    for dtype, tolerance in ((np.float32, 2e-4), (np.float64, 1e-12)):
        w, x = rng.normal(size=(33, 7)).astype(dtype), rng.normal(size=(70, 33)).astype(dtype)
        gradient = wl.grad(f)(w, x)
        np.testing.assert_allclose(wl.jit(f)(w, x), f(w, x), rtol=tolerance)
        np.testing.assert_allclose(wl.jit(wl.grad(f))(w, x), gradient, rtol=tolerance, atol=tolerance)
    i = np.arange(-50, 50, dtype=np.int32)
    np.testing.assert_array_equal(wl.jit(lambda i: (i // 7, i % 7, i << 2, i * i))(i), (i // 7, i % 7, i << 2, i * i))
    print(llvm.cpu()[0], llvm.vector_bytes())
"""
x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names of x86 processors")


def runs_here(name: str) -> bool:
    """Has this machine what processors of that name have?"""
    wanted = {"x86-64": "", "x86-64-v2": "sse4_2", "pentium3": "", "i386": ""}
    needed = set(wanted.get(name, "avx2 fma bmi2").split())
    with open("/proc/cpuinfo") as f:
        return needed <= set(f.read().split())


@pytest.mark.optimised
@x86
@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("x86-64", 16),
        ("haswell", 32),
        pytest.param("i386", 16, marks=pytest.mark.slow),
        pytest.param("pentium3", 16, marks=pytest.mark.slow),
        pytest.param("x86-64-v2", 16, marks=pytest.mark.slow),
        pytest.param("x86-64-v3", 32, marks=pytest.mark.slow),
        pytest.param("znver3", 32, marks=pytest.mark.slow),
    ],
)
def test_code_for_another_cpu_is_right(name, width):
    if not os.path.exists("/proc/cpuinfo") or not runs_here(name):
        pytest.skip(f"this machine doesn't run code for {name}")
    done = run(CALCULATION, WONDERLAND_CPU=name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [name, str(width)]


@x86
@pytest.mark.parametrize(
    ("name", "width", "register"),
    [("haswell", 32, "%ymm"), ("skylake-avx512", 64, "%zmm")],
)
def test_assembly_for_another_cpu(name, width, register):
    done = run(
        """
        from wonderland.compile import gemm, llvm
        code = llvm.assembly(gemm.definition("f64").text())
        print(llvm.vector_bytes(), *(register for register in ("%xmm", "%ymm", "%zmm") if register in code))
        """,
        WONDERLAND_CPU=name,
    )
    assert done.returncode == 0, done.stderr
    found, *registers = done.stdout.split()
    assert found == str(width) and registers[-1] == register


def test_the_native_cpu_by_name():
    code = "from wonderland.compile import llvm; print(llvm.cpu(), llvm.vector_bytes())"
    assert run(code, WONDERLAND_CPU="native").stdout == run(code, WONDERLAND_CPU="").stdout != ""


def test_an_unknown_cpu_is_an_error():
    done = run("import numpy as np, wonderland as wl; wl.jit(lambda x: x + 1)(np.ones(3))", WONDERLAND_CPU="haswel-2")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ValueError: WONDERLAND_CPU='haswel-2' is no CPU that LLVM knows")
