"""LLVM on several threads: modules in parts mean the same, and whatever happens meanwhile, no thread is left behind."""

import os
import re
import subprocess
import sys
import textwrap
import threading
from contextlib import nullcontext

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile import build, cache, helpers, llvm, parts
from wonderland.core import forks as wonderland_forks

SMALL = 2000  # characters of a part, so that small programs have several


def layers(x, w):
    """Kernels of many kinds; sine has functions that LLVM must not drop, and several kernels call it."""
    for i in range(2):
        x = np.sin(x @ w) + np.exp(-np.abs(x)) * (i + 1.0)
        x = x - np.max(x, axis=1, keepdims=True)
        x = x / np.sum(np.tanh(x) ** 2 + 1.0, axis=0)
    return np.sum(np.sin(x) ** 2)


def arguments():
    rng = np.random.default_rng(0)
    return rng.normal(size=(90, 70)).astype(np.float32), rng.normal(size=(70, 70)).astype(np.float32)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Small parts, made anew."""
    monkeypatch.setenv("WONDERLAND_CACHE", str(tmp_path))
    monkeypatch.setattr(parts, "PART", SMALL)
    build._libraries.clear()
    yield
    build._libraries.clear()


def functions(text: str) -> list[str]:
    return re.findall(r"^define [^\n]*@([\w.]+)\(", text, re.M)


# What is cut ---------------------------------------------------------------------------------------------------------


def test_each_function_that_is_not_inlined_is_in_one_part(small):
    text = wl.jit(wl.grad(layers)).inspect(*arguments()).ir
    found = parts.cut(text)
    assert len(found) > 3 and found == parts.cut(text)
    assert {name for part in found for name in functions(part)} == {*functions(text)}
    for part in found:
        assert str(llvm.optimize(part))  # LLVM finds all that it needs
        own = {name: line for line in part.splitlines() if line.startswith("define") for name in functions(line)}
        for other in found:
            for name in {*own} & {*functions(other)} if other is not part else ():
                assert own[name].startswith(("define internal", "define weak_odr hidden")), name
    repeated = [name for name in functions(text) if sum(name in functions(part) for part in found) > 1]
    assert "wl_exp_f32" in repeated and any("_large_" in name for name in repeated)


@pytest.mark.parametrize("size", [100, 10**9])
def test_what_has_variables_or_is_small_is_not_cut(size, monkeypatch):
    from wonderland.compile import pool

    monkeypatch.setattr(parts, "PART", size)
    text = pool.module().text() if size == 100 else wl.jit(layers).inspect(*arguments()).ir
    assert parts.cut(text) == [text]


def test_parts_are_made_of_the_text_alone():
    """Other threads, other processes: the same parts, or they would not be found on the disk."""
    code = """
        import hashlib, numpy as np, wonderland as wl
        from wonderland.compile import parts
        parts.PART = 2000
        text = wl.jit(lambda x: np.sum(np.exp(x), axis=0) + np.sum(np.sin(x @ x), axis=0)).inspect(np.ones((90, 90))).ir
        print(len(parts.cut(text)), hashlib.sha256("".join(parts.cut(text)).encode()).hexdigest())
    """
    found = {
        run(code, WONDERLAND_THREADS=threads, PYTHONHASHSEED=threads, WONDERLAND_CHEAP="1") for threads in ("1", "5")
    }
    assert len(found) == 1 and int(found.pop().split()[0]) > 1


@pytest.mark.optimised
def test_parts_compute_the_same_to_the_bit(small, monkeypatch):
    results = []
    for size in (SMALL, 10**9):
        monkeypatch.setattr(parts, "PART", size)
        build._libraries.clear()
        results.append(wl.jit(wl.grad(layers, argnums=(0, 1)))(*arguments()))
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def test_parts_are_found_on_the_disk(small):
    first = wl.jit(layers).inspect(*arguments())
    before = cache.hits, cache.misses
    build._libraries.clear()
    again = wl.jit(layers).inspect(*arguments())
    assert first.code_from == "LLVM" and again.code_from == "the disk"
    assert (cache.hits, cache.misses) == (before[0] + len(parts.cut(again.ir)), before[1])


def test_the_assembly_has_all_parts(small):
    compiled = wl.jit(layers).inspect(*arguments())
    kernels = [name for name in functions(compiled.ir) if re.fullmatch(r"k\d+|main|run", name)]
    assert len(kernels) > 5 and all(f"\n{name}:" in compiled.assembly() for name in kernels)


def test_without_llvmlites_inner_function(small, monkeypatch):
    """Another llvmlite may have no way around its lock: then the parts are made one after the other."""
    monkeypatch.setattr(llvm, "_without_lock", lambda name: getattr(llvm.llvm.ffi.lib, name))
    x, w = arguments()
    np.testing.assert_allclose(wl.jit(layers)(x, w), layers(x, w), rtol=1e-4)


# The helpers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", ["1", "2", "7"])
def test_calls_are_shared(threads, monkeypatch):
    monkeypatch.setenv("WONDERLAND_THREADS", threads)
    who = set()

    def square(n):
        who.add(threading.get_ident())
        meeting.wait(20) if n < int(threads) else None
        return n * n

    meeting = threading.Barrier(int(threads))  # all of them work at the same time
    assert helpers.share(square, range(20)) == [n * n for n in range(20)]
    assert len(who) == int(threads) and not helpers._helping
    assert helpers.share(square, []) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("place", [0, 1])
def test_the_first_error_is_raised_when_all_are_done(error, place, monkeypatch):
    monkeypatch.setenv("WONDERLAND_THREADS", "2")
    begun, ended, meeting = [], [], threading.Barrier(2)

    def work(n):
        begun.append(n)
        meeting.wait(20)
        if n == place:
            raise error("this one")
        threading.Event().wait(0.2)
        ended.append(n)

    with pytest.raises(error, match="this one"):
        helpers.share(work, range(10))
    assert sorted(begun) == [0, 1] and ended == [1 - place] and not helpers._helping


def test_no_thread_can_be_started(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setenv("WONDERLAND_THREADS", "3")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert helpers.share(str, range(5)) == ["0", "1", "2", "3", "4"] and not helpers._helping


# Meanwhile -----------------------------------------------------------------------------------------------------------

START = """
import gc, os, signal, sys, threading, time
import numpy as np
import wonderland as wl
from wonderland.compile import helpers, llvm, parts
parts.PART = 2000
signal.signal(signal.SIGINT, signal.default_int_handler)

def function(n):
    def f(x):
        for i in range(4):
            x = np.sin(x @ x / 40.0) * (n + 0.5) / 10.0 + np.exp(-np.abs(x - np.max(x, axis=1, keepdims=True)))
        return np.sum(x, axis=0)
    return f

x = np.linspace(-1.0, 1.0, 1600).reshape(40, 40)
def is_right(n):
    return np.allclose(wl.jit(function(n))(x), function(n)(x), rtol=1e-9)

assert is_right(0)
inside, make = threading.Event(), llvm.optimize
def optimize(*args):
    if threading.current_thread().name == helpers.NAME: inside.set()
    return make(*args)
llvm.optimize = optimize  # says when a helper has begun
"""


MEANWHILE = {"WONDERLAND_CACHE": "off", "WONDERLAND_CHEAP": "0", "WONDERLAND_THREADS": "3"}


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **MEANWHILE, **environment},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_several_threads_compile():
    run(
        START
        + """
right = {}
threads = [threading.Thread(target=lambda n=n: right.update({n: is_right(n)})) for n in range(1, 6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert right == dict.fromkeys(range(1, 6), True) and not helpers._helping, right
"""
    )


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
IN_CHILD = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # a fork of several threads
def fork(n):
    child = os.fork()
    if not child:
        signal.alarm(100)
        os._exit(0 if is_right(n) and not helpers._helping else 1)
    return child
def is_well(child):
    return os.waitpid(child, 0)[1] == 0
"""


@forks
def test_fork_while_another_thread_has_helpers():
    run(
        START
        + IN_CHILD
        + """
thread = threading.Thread(target=is_right, args=(1,))
thread.start()
inside.wait()
assert is_well(fork(2))
thread.join()
"""
    )


def test_what_is_lent_others_have_meanwhile(monkeypatch):
    """As often as it was taken, a lock is let go and taken again."""
    lock, had = threading.RLock(), []
    monkeypatch.setattr(wonderland_forks, "LENT", [lock])

    def other():
        had.append(lock.acquire(blocking=False))
        if had[-1]:
            lock.release()

    with lock, lock:
        for lend in (False, True, False):
            with wonderland_forks.lent() if lend else nullcontext():
                thread = threading.Thread(target=other)
                thread.start()
                thread.join()
    assert had == [False, True, False]


@forks
def test_fork_by_a_handler_of_the_thread_that_compiles():
    """Helpers aren't there in a child: the fork waits for them."""
    run(
        START
        + IN_CHILD
        + """
children = []
signal.signal(signal.SIGUSR1, lambda *_: children.append(fork(2)))
threading.Thread(target=lambda: (inside.wait(), os.kill(os.getpid(), signal.SIGUSR1))).start()
assert is_right(1) and len(children) == 1 and is_well(*children)
"""
    )


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_ctrl_c_while_helpers_run(times):
    run(
        START
        + f"""
def interrupt(*_):
    if helpers._helping:  # not while the test looks at what is left
        raise KeyboardInterrupt
def press():
    inside.wait()
    for _ in range({times}):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
signal.signal(signal.SIGINT, interrupt)
presses = threading.Thread(target=press)
presses.start()
try:
    is_right(1)
    raise AssertionError("it wasn't interrupted")
except KeyboardInterrupt:
    assert not helpers._helping
presses.join()
gc.collect()
assert is_right(1) and is_right(2)
"""
    )
