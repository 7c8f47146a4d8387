"""Looking inside: what `inspect` and `profile` show, and the line about a compile that takes long."""

import io

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile import insight
from wonderland.compile.text import duration, size


def loss(w, x):
    hidden = np.tanh(x @ w)
    state, _ = wl.scan(lambda c, _: (np.sin(c) + 1, None), hidden[0], np.zeros(5))
    return np.mean(hidden**2) + np.sum(np.linalg.svdvals(np.outer(state, state)))


@pytest.fixture
def arguments(rng):
    return rng.standard_normal((40, 30)), rng.standard_normal((50, 40))


def test_a_summary_names_everything(arguments):
    f = wl.jit(loss)
    found = f.inspect(*arguments)
    text = str(found)
    assert text.startswith("loss(f64[40,30], f64[50,40]) -> f64")
    assert "product 50x40 by 40x30, float64" in text and "loop of 5 turns" in text
    assert found.fallbacks and {*found.fallbacks} == {*found.reasons}
    for name, why in found.reasons.items():
        assert why and f"{name} ({why})" in text
    assert all(len(line) < 140 for line in text.splitlines())
    assert repr(found).startswith("<compiled loss: ") and len(repr(found)) < 80
    assert found.peak_bytes == found.arena_bytes + found.result_bytes > 50 * 30 * 8
    assert [name for name, _ in found.stages] == ["recorded", "inlined", "simplified"]
    assert f"{50 * 30 * 8:,}" in found.memory_plan()
    assert found.code_from in ("LLVM", "the disk") and wl.jit(loss).inspect(*arguments).code_from == "this process"
    assert 0 < sum(found.seconds.values()) <= found.compile_seconds


NODES = """
region(x0:f64[2,3], x1:f64[3], x2:f64[4]):
  n0 = map add f64[2,3] (x0, x1+2@[0,-1])
  n1 = reduce f64[2] by max over [1] (n0)
  n2 = loop f64[2], f64[4] (n1, x2, x1)
    region(x3:f64[2], x1:f64[3]):
      n3 = map mul f64[2] (x3, 2.0)
      n4 = map f64[] (x1@[])
      return n3, n4
  return n2.0, n2.1
"""

UNITS = """
  0  cluster over [2, 3], reducing [1]
       full     n0 = map add f64[2,3] (x0, x1+2@[0,-1])
       reduce   n1 = reduce f64[2] by max over [1] (n0)
  1  n2 = loop f64[2], f64[4] (n1, x2, x1)
         0  cluster over [2]
              full     n3 = map mul f64[2] (x3, 2.0)
         1  cluster over []
              full     n4 = map f64[] (x1@[])
            in memory: n3, n4
     in memory: n1, n2.0, n2.1
"""


def test_nodes_and_units_name_what_they_read():
    def f(x, y):
        start = np.max(x + y[::-1], axis=1)
        state, ys = wl.scan(lambda c, _: (c * 2.0, y[0]), start, np.zeros(4))
        return state, ys

    region = wl.jit(f).inspect(np.ones((2, 3)), np.ones(3)).region
    assert str(region) == NODES.strip()
    assert str(region.schedule) == UNITS[1:-1]


def test_inspect_runs_nothing():
    seen = []
    x = np.arange(3.0)
    wl.jit(lambda x: seen.append(type(x).__name__) or x + 1).inspect(x)
    assert seen == ["Tracer"]


def test_html_is_well_formed(arguments):
    from xml.etree import ElementTree

    page = wl.jit(loss).inspect(*arguments)._repr_html_()
    root = ElementTree.fromstring(page)
    assert [d.findtext("summary") for d in root.iter("details")][-1] == "LLVM IR"


def test_many_steps_are_cut_short():
    def f(x):
        for _ in range(60):
            x = np.linalg.eigvalsh(np.outer(x, x))
        return x

    assert "more" in str(wl.jit(f).inspect(np.ones(4))).splitlines()[-1]


def test_a_profile_counts_every_step(arguments):
    f = wl.jit(loss)
    found = f.profile(*arguments)
    by_name = {text: (depth, runs, seconds) for depth, text, runs, seconds in found.steps}
    assert by_name["product 50x40 by 40x30, float64"][:2] == (0, 1)
    assert by_name["loop of 5 turns"][:2] == (0, 1)
    inner = [(depth, runs) for depth, _, runs, _ in found.steps if depth == 1]
    assert inner and all(runs == 5 for _, runs in inner)
    outside = sum(seconds for depth, _, _, seconds in found.steps if depth == 0)
    assert 0 < outside <= found.seconds and found.calls >= 1
    assert all(seconds >= 0 for *_, seconds in found.steps)
    assert str(found).startswith("loss: ") and "by NumPy" in str(found)
    assert "wl_clock" not in f.inspect(*arguments).ir  # ordinary calls have no clock


def test_a_profile_of_branches_and_loops_of_unknown_length():
    def f(x):
        x, count = wl.while_loop(lambda c: c[0] > 1, lambda c: (c[0] / 2, c[1] + 1), (x, 0))
        return wl.cond(count > 3, lambda x: np.sin(x), lambda x: np.cos(x), x)

    found = wl.jit(f).profile(np.float64(100.0))
    turns = [runs for depth, text, runs, _ in found.steps if depth == 1]
    assert 7 in turns and 8 in turns  # bodies, and conditions
    assert {0, 1} <= set(turns)  # the branch not taken, and the one taken


def test_a_profile_changes_nothing():
    @wl.register_mutable
    class Counter:
        def __init__(self):
            self.n = np.zeros(3)

    def step(counter, x):
        counter.n = counter.n + x
        return np.sum(counter.n)

    counter, f = Counter(), wl.jit(step)
    f(counter, 1.0)
    f.profile(counter, 1.0)
    np.testing.assert_array_equal(counter.n, 1)


def test_a_profile_of_an_error_raises_it():
    with pytest.raises(IndexError):
        wl.jit(lambda x, i: x[i]).profile(np.ones(3), np.array(9))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def long_function(x):
    for _ in range(insight.MANY_EQUATIONS):
        x = np.sin(x)
    return x


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_long_compile_says_so_in_one_line(stream, monkeypatch):
    monkeypatch.setattr(insight, "LONG_COMPILE", 0.0)
    stderr = stream()
    monkeypatch.setattr("sys.stderr", stderr)
    wl.jit(long_function)(np.ones(3))
    assert stderr.getvalue().startswith("wonderland: compiling long_function (100 equations) ...")
    assert stderr.getvalue().count("\n") == 1 and stderr.getvalue().endswith("\n")


def test_a_short_compile_says_nothing(capsys):
    wl.jit(lambda x: x + 1)(np.ones(3))
    assert capsys.readouterr().err == ""


def test_numbers_for_people():
    assert [size(n) for n in (0, 1023, 1024, 1536, 10**6, 5 * 2**30)] == [
        "0 bytes", "1023 bytes", "1 KB", "1.5 KB", "977 KB", "5 GB",
    ]  # fmt: skip
    assert size(1023 * 1024) == "1023 KB"
    assert [duration(t) for t in (2.5, 0.0123, 4.56e-5, 7e-8, 0.0)] == ["2.5 s", "12.3 ms", "45.6 us", "70 ns", "0 ns"]


def test_the_epilogue_of_a_product_is_named():
    layer, args = wl.jit(lambda x, w, b: np.tanh(x @ w + b)), (np.ones((200, 200)), np.ones((200, 200)), np.ones(200))
    compiled, profile = layer.inspect(*args), layer.profile(*args)
    wanted = "product 200x200 by 200x200, float64, then on its rows\n  kernel over [200, 200]: elementwise"
    assert profile.steps[0][1].startswith(wanted)
    assert "then on its rows" in str(compiled) and "\n           kernel over [200, 200]" in str(compiled)
    assert "for 1 buffer of" in str(compiled) and "1 step, 1 kernel" in repr(compiled)
    assert repr(layer) == "<jitted <lambda>, compiled for 1 signature>"
