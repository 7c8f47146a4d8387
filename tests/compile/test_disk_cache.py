"""Object code on disk: found again by another process, never trusted blindly, never in the way."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from differential import Generator

import wonderland as wl
from wonderland.compile import build, cache, llvm, stages

IR = "define i64 @answer() {{\n  ret i64 {}\n}}"
USER = """
    import numpy as np
    import wonderland as wl
    from wonderland.compile import cache

    def loss(w, x):
        return np.sum(np.tanh(x @ w) ** 2 + np.exp(-np.sum(x, axis=1, keepdims=True)))

    x = np.linspace(-1, 1, 60_000).reshape(300, 200)
    w = np.linspace(0, 1, 20_000).reshape(200, 100)
    gradient = wl.jit(wl.grad(loss))(w, x)
    assert np.allclose(gradient, wl.grad(loss)(w, x), rtol=1e-12)
    print(cache.hits, cache.misses)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("WONDERLAND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(code: str = USER, **environment: str) -> list[int]:
    """Hits and misses of a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return [int(word) for word in done.stdout.split()]


def entries(place: Path) -> list[Path]:
    return sorted(place.glob("*" + cache.SUFFIX))


def test_a_second_process_compiles_nothing(place):
    hits, misses = run(PYTHONHASHSEED="1")
    assert hits == 0 and misses == len(entries(place)) >= 4  # pool, product, entry, function
    assert run(PYTHONHASHSEED="2") == [misses, 0]
    assert not list(place.glob("*" + cache.UNFINISHED))


def test_another_cpu_has_its_own_code(place):
    llvm.compile_objects([IR.format(1)])
    code = f"""
        from wonderland.compile import cache, llvm
        llvm.compile_objects([{IR.format(1)!r}])
        print(cache.hits, cache.misses)
    """
    assert run(code) == [1, 0]
    assert run(code, WONDERLAND_CPU="generic") == [0, 1]


@pytest.mark.parametrize("off", ["0", "off", "OFF", " no "])
def test_it_can_be_switched_off(off, monkeypatch):
    monkeypatch.setenv("WONDERLAND_CACHE", off)
    assert cache.directory() is None
    cache.store("key", b"code")
    assert cache.load("key") is None


def test_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("WONDERLAND_CACHE", "")
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache.directory() == tmp_path / "wonderland"
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the standard
        assert cache.directory() == Path.home() / ".cache" / "wonderland"
    monkeypatch.setenv("WONDERLAND_CACHE", "~/elsewhere")
    assert cache.directory() == Path.home() / "elsewhere"


def test_a_directory_that_cannot_be_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WONDERLAND_CACHE", str(tmp_path / "file" / "cache"))
    assert llvm.compile_library(IR.format(2), ["answer"]).address("answer")
    assert cache.load("key") is None


def damaged(data: bytes) -> list[bytes]:
    middle = len(data) - 100
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    return [b"", data[:10], data[:-1], data[: len(data) // 2], flipped, data + b"x", b"x" + data, bytes(len(data))]


@pytest.mark.parametrize("kind", range(8))
def test_a_damaged_entry_is_ignored_and_written_again(place, kind):
    whole = llvm.compile_objects([IR.format(3)])
    [entry] = entries(place)
    data = entry.read_bytes()
    entry.write_bytes(damaged(data)[kind])
    assert llvm.compile_objects([IR.format(3)]) == whole
    assert entry.read_bytes() == data


def test_an_entry_under_another_name_is_not_taken(place):
    llvm.compile_objects([IR.format(4)])
    [entry] = entries(place)
    entry.rename(place / ("0" * 64 + cache.SUFFIX))
    assert cache.load("0" * 64) is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such permissions")
def test_what_others_can_write_is_not_executed(place):
    cache.store("a", b"code")
    assert cache.load("a") == b"code"
    [entry] = entries(place)
    assert entry.stat().st_mode & 0o777 == 0o600 and place.stat().st_mode & 0o777 == 0o700
    entry.chmod(0o620)
    assert cache.load("a") is None
    entry.chmod(0o602)
    assert cache.load("a") is None
    if os.geteuid() == 0:  # only root can give a file away
        entry.chmod(0o600)
        os.chown(entry, 12345, -1)
        assert cache.load("a") is None


def test_a_cache_that_can_only_be_read_is_read(place, monkeypatch):
    def refuse(*args):
        raise PermissionError

    cache.store("a", b"code")
    os.utime(entries(place)[0], (0, 0))
    monkeypatch.setattr(os, "utime", refuse)
    assert cache.load("a") == b"code"


def test_what_was_not_used_for_longest_goes(place, monkeypatch):
    monkeypatch.setenv("WONDERLAND_CACHE_MB", "0.1")
    for i in range(8):
        cache.store(f"key{i}", bytes(10_000))
        os.utime(place / f"key{i}{cache.SUFFIX}", (0, time.time() - 100_000 + i))
    assert cache.load("key0") == bytes(10_000)  # used: now the newest
    for i in range(8, 16):
        cache.store(f"key{i}", bytes(10_000))
    total = sum(entry.stat().st_size for entry in entries(place))
    assert 50_000 < total <= 0.1 * 2**20
    assert cache.load("key0") is not None and cache.load("key15") is not None
    assert cache.load("key1") is None and cache.load("key2") is None
    cache.store("large", bytes(200_000))  # more than everything
    assert cache.load("large") is None and cache.load("key15") is not None


def test_abandoned_files_go(place, monkeypatch):
    cache.store("a", b"code")
    old, young = place / f"old{cache.UNFINISHED}", place / f"young{cache.UNFINISHED}"
    old.touch()
    young.touch()
    os.utime(old, (0, 0))
    cache._written.clear()  # a new process
    cache.store("b", b"code")
    assert not old.exists() and young.exists()


@pytest.mark.parametrize("size", ["many", "-1", "nan", "inf"])
def test_a_limit_that_is_none(size, monkeypatch):
    monkeypatch.setenv("WONDERLAND_CACHE_MB", size)
    with pytest.raises(ValueError, match="WONDERLAND_CACHE_MB"):
        cache.limit()


def test_many_processes_at_once(place):
    """All of them write the same entries, and tidy up while the others read."""
    code = """
        from wonderland.compile import cache
        for turn in range(60):
            key = f"key{turn % 15}"
            found = cache.load(key)
            assert found is None or found == key.encode() * 2000, key
            cache.store(key, key.encode() * 2000)
    """
    environment = {**os.environ, "WONDERLAND_CACHE_MB": "0.05"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(6)]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0 and not errors, errors
    assert not list(place.glob("*" + cache.UNFINISHED))


def test_loaded_code_runs(place):
    import ctypes

    for _ in range(2):  # made, then found
        library = llvm.compile_library(IR.format(42), ["answer"])
        assert ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("answer"))() == 42


class TextOnly(Exception):
    pass


def products(x, y, z):
    """Kernels that may overwrite one of several operands."""
    a, b, c = x @ y, x @ z, y @ z
    return np.tanh(a) * b * c @ (np.sin(b) + a + c)


@pytest.mark.parametrize("seed", range(6))
def test_a_program_has_one_text(seed, monkeypatch):
    """Whatever is in memory where: otherwise another process would not find it."""
    texts, clutter = set(), []

    def keep(text, module):
        texts.add(text)
        raise TextOnly

    monkeypatch.setattr(build, "_library", keep)
    program = Generator(seed).program(40)[0] if seed else wl.trace(products)(*3 * [np.ones((64, 64))])
    for turn in range(12):
        clutter.append([object() for _ in range(1000 * turn + 7)])
        with pytest.raises(TextOnly):
            stages.compile_program(program)
        if turn % 2:
            del clutter[-1][::3]
    assert len(texts) == 1


def test_cheap_code_is_another_entry(monkeypatch):
    """`WONDERLAND_CHEAP`: the same text, without LLVM's vectors, means the same."""
    x = np.linspace(0.0, 1.0, 1001)
    ir = wl.jit(lambda x: np.sqrt(x) * 2.0 + 1.0).inspect(x).ir
    found, vectors = {}, {}
    for cheap in "01":
        monkeypatch.setenv("WONDERLAND_CHEAP", cheap)
        build._libraries.clear()
        found[cheap] = llvm.compile_objects([ir])
        vectors[cheap] = "vector.body" in str(llvm.optimize(ir))
        np.testing.assert_allclose(wl.jit(lambda x: np.sqrt(x) * 2.0 + 1.0)(x), np.sqrt(x) * 2 + 1, rtol=1e-15)
    assert found["0"] != found["1"] and vectors == {"0": True, "1": False}


@pytest.mark.parametrize("cheap", ["1", pytest.param("0", marks=pytest.mark.optimised)])
def test_the_mark_chooses_the_pipeline(cheap, request):
    given = next(p.given for p in request.config.pluginmanager.get_plugins() if type(p).__name__ == "Pipeline")
    assert os.environ["WONDERLAND_CHEAP"] == (cheap if given is None else given)
