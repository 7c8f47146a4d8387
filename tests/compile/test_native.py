"""The compiled Program as a whole: errors, memory, constants, fallbacks, caches."""

import re
import threading

import numpy as np
import pytest
from differential import assert_close, check, record

import wonderland as wl
from wonderland.compile import build, calls, jit, pool
from wonderland.compile.stages import compile_program
from wonderland.core import tree
from wonderland.core.primitive import Primitive
from wonderland.core.program import Record, run
from wonderland.core.types import ArrayType
from wonderland.ops import dot as dot_ops
from wonderland.ops import elementwise as ew
from wonderland.ops import index as index_ops
from wonderland.ops import math as math_ops
from wonderland.ops import reduce as reduce_ops
from wonderland.ops import shape as shape_ops

EMPTY = ((), ())


def test_outputs_that_are_inputs_constants_views_or_twice_the_same():
    x, c = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    c.flags.writeable = False

    def f(x):
        y = ew.mul(x, 2.0)
        t = shape_ops.transpose(y, permutation=(1, 0))
        return [x, x, y, y, t, shape_ops.reshape(y, shape=(6,)), c, 3.0, shape_ops.broadcast(1.5, shape=(2, 2))]

    compiled = check(f, x)
    out = compiled(x)
    out[0][:] = -1
    out[2][:] = -1
    assert x[0, 0] == 0 and out[1][0, 1] == 1 and out[3][0, 1] == 2


def test_index_errors_are_numpys():
    x = np.arange(5.0)
    compiled = compile_program(record(lambda x, i: index_ops.gather(x, i, axes=(0,)), x, np.array([0])))
    for bad in (7, -6, 5, 2**40, -(2**40)):
        with pytest.raises(IndexError) as ours:
            compiled(x, np.array([bad]))
        with pytest.raises(IndexError) as numpys:
            x[np.array([bad])]
        assert str(ours.value) == str(numpys.value)
    assert compiled(x, np.array([4]))[0] == 4.0


def test_an_index_into_nothing_raises():
    x = np.zeros((0, 3))
    compiled = compile_program(record(lambda x, i: index_ops.gather(x, i, axes=(0,)), x, np.array([0])))
    with pytest.raises(IndexError):
        compiled(x, np.array([0]))


def written_check(f, arrays, written):
    program = record(f, *arrays)
    want = run(program, [a.copy() for a in arrays])
    compiled = compile_program(program, written)
    mine = [a.copy() for a in arrays]
    got = list(compiled(*mine))
    for i, w in enumerate(want):
        assert_close(mine[written[i]] if i in written else got.pop(0), w, str(program))
    for i, (a, b) in enumerate(zip(mine, arrays, strict=True)):
        if i not in written.values():
            np.testing.assert_array_equal(a, b)
    return compiled


def test_written_arguments():
    p, m, g = (np.random.default_rng(i).normal(size=(20, 30)) for i in range(3))

    def momentum(p, m, g):
        m = ew.add(ew.mul(m, 0.9), g)
        return ew.sub(p, ew.mul(m, 0.1)), m, reduce_ops.sum(ew.mul(g, g), axes=(0, 1))

    compiled = written_check(momentum, [p, m, g], {0: 0, 1: 1})
    assert compiled.arena_bytes <= 1024  # in place
    written_check(lambda p, m, g: (m, p), [p, m, g], {0: 0, 1: 1})  # exchange
    written_check(lambda p, m, g: (p, ew.mul(p, 2.0)), [p, m, g], {0: 0, 1: 1})  # unchanged
    written_check(lambda p, m, g: (ew.mul(p, 2.0), p), [p, m, g], {0: 0})  # the old value is an output too
    written_check(lambda p, m, g: (ew.add(g, 1.0), reduce_ops.sum(ew.mul(p, 2.0), axes=(0,))), [p, m, g], {0: 0})
    square = np.random.default_rng(3).normal(size=(9, 9))
    written_check(lambda x: ew.add(shape_ops.transpose(x, permutation=(1, 0)), x), [square], {0: 0})
    written_check(lambda x: index_ops.scatter_slice(x, 1.0, index=(2, 3), mode="set"), [square], {0: 0})


def test_a_failed_run_leaves_written_arguments_as_they_were():
    x, i = np.arange(5.0), np.array([0, 9])

    def f(x, i):
        return ew.mul(x, 2.0), index_ops.gather(x, i, axes=(0,))

    compiled = compile_program(record(f, x, i), {0: 0})
    with pytest.raises(IndexError):
        compiled(x, i)
    np.testing.assert_array_equal(x, np.arange(5.0))
    compiled(x, np.array([0, 1]))
    np.testing.assert_array_equal(x, 2 * np.arange(5.0))
    update = compile_program(
        record(lambda x, i: index_ops.scatter(x, i, np.ones(2), axes=(0,), mode="set"), x, i), {0: 0}
    )
    with pytest.raises(IndexError):
        update(x, i)
    np.testing.assert_array_equal(x, 2 * np.arange(5.0))


def test_constants_are_read_by_reference():
    c = np.arange(4.0)
    view = np.arange(8.0)[::2]
    compiled = compile_program(record(lambda x: ew.add(ew.add(x, c), view), np.zeros(4)))
    np.testing.assert_array_equal(compiled(np.zeros(4))[0], c + view)
    c[:] = 10
    view[:] = 5
    np.testing.assert_array_equal(compiled(np.zeros(4))[0], np.full(4, 15.0))


def test_constants_outlive_their_owner():
    compiled = compile_program(record(lambda x: ew.add(x, np.full(1000, 3.0)), np.zeros(1000)))
    assert np.all(compiled(np.zeros(1000))[0] == 3.0)


def test_weak_scalars_take_the_kind_of_their_partner():
    with Record() as level:
        x, rate = level.variable(ArrayType((3,), np.float32)), level.variable(ArrayType((), np.float64, True))
        program = level.finish([x, rate], [ew.mul(x, rate), ew.mul(x, ew.add(rate, 1))])
    compiled = compile_program(program)
    out = compiled(np.ones(3, "f4"), 0.5)
    assert out[0].dtype == np.float32 and out[1][0] == 1.5


def test_arguments_that_do_not_fit_are_converted_or_refused():
    compiled = compile_program(record(lambda x: ew.mul(x, 2.0), np.zeros((3, 4))))
    x = np.arange(12.0).reshape(4, 3).T
    np.testing.assert_array_equal(compiled(x)[0], 2 * x)
    with pytest.raises(TypeError):
        compiled(np.zeros((3, 5)))


def test_half_falls_back_to_numpy():
    h = np.arange(3).astype(np.float16)
    compiled = check(lambda h: ew.add(shape_ops.convert(h, dtype=np.dtype("f4")), 1.0), h)
    assert compiled.fallbacks == ("convert",)


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, np.clongdouble])
def test_dtypes_without_code_of_ours_are_numpys(dtype):
    for x in (dtype(1.5), np.full((), 2, dtype), np.arange(6).astype(dtype).reshape(2, 3).T, np.zeros((0, 2), dtype)):
        for f in (
            lambda x: x,
            lambda x: np.sin(x) * x + 1,
            lambda x: (np.sum(x * x), x.astype(np.complex64), np.abs(x) > 1),
            lambda x: wl.scan(lambda c, y: (c + y, c * y), x * 0, np.arange(3).astype(x.dtype)),
        ):
            for found, expected in zip(tree.leaves(wl.jit(f)(x)), tree.leaves(f(x)), strict=True):
                assert found.dtype == expected.dtype
                np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps)


def test_integer_powers_are_native():
    compiled = check(lambda x, y: ew.add(math_ops.pow(x, y), 1), np.arange(5), np.arange(5))
    assert not compiled.fallbacks
    with pytest.raises(ValueError):
        compiled(np.arange(5), -np.arange(5))
    np.testing.assert_array_equal(compiled(np.arange(5), np.arange(5))[0], np.arange(5) ** np.arange(5) + 1)


def test_a_run_that_fails_leaves_arguments_alone():
    """Whether what fails comes before or after what is written."""
    w, x = (np.random.default_rng(i).normal(size=(40, 40)) for i in range(2))

    def product_first(w, x, i):
        product = dot_ops.dot(x, x, contract=((1,), (0,)), batch=EMPTY)
        picked = index_ops.gather(x, i, axes=(0,))
        return ew.add(w, product), picked

    def index_first(w, x, i):
        picked = index_ops.gather(x, i, axes=(0,))
        return ew.add(w, reduce_ops.sum(picked, axes=(0,))), picked

    for f in (product_first, index_first):
        compiled = compile_program(record(f, w, x, np.array([0])), {0: 0})
        mine = w.copy()
        with pytest.raises(IndexError):
            compiled(mine, x, np.array([40]))
        np.testing.assert_array_equal(mine, w)
        compiled(mine, x, np.array([39]))
        assert_close(mine, run(record(f, w, x, np.array([0])), [w, x, np.array([39])])[0])


def test_a_fallback_that_raises():
    def evaluate(x):
        raise KeyError("from inside")

    bad = Primitive("raises_for_a_test", evaluate, lambda x: x)
    compiled = compile_program(record(lambda x: bad(ew.sin(x)), np.zeros(3)))
    for _ in range(3):
        with pytest.raises(KeyError, match="from inside"):
            compiled(np.zeros(3))


def test_another_batch_size_reuses_machine_code():
    def f(x, w):
        h = ew.tanh(dot_ops.dot(x, w, contract=((1,), (0,)), batch=EMPTY))
        return reduce_ops.sum(ew.mul(h, h), axes=(0,)), ew.div(h, 3.0)

    w = np.random.default_rng(0).normal(size=(40, 50))
    irs = {check(f, np.random.default_rng(n).normal(size=(n, 40)), w).ir for n in (64, 37, 100)}
    assert len(irs) == 1 and irs <= set(build._libraries)


def _normalized(x, axis):
    centred = x - np.mean(x, axis=axis, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=axis, keepdims=True) + 1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "f",
    [
        np.mean,
        np.std,
        lambda x: np.var(x, axis=0),
        wl.value_and_grad(lambda x: np.mean((x - 1) ** 2)),
        wl.grad(lambda x: -np.mean(np.sin(_normalized(x, 0)))),
        wl.grad(lambda x: np.mean(np.sin(_normalized(x, 1)))),
    ],
)
def test_the_count_of_a_mean_is_no_part_of_the_code(f, dtype):
    x = np.random.default_rng(0).standard_normal((600, 40)).astype(dtype)
    jitted = wl.jit(f)
    assert jitted.inspect(x).ir == jitted.inspect(x[:500]).ir == jitted.inspect(x[:256]).ir
    for n in (500, 256, 17, 1):
        wl.tree_map(lambda a, b: assert_close(a, b), jitted(x[:n]), f(x[:n]))


def test_a_derivative_compiles_only_what_runs(monkeypatch):
    """Of a jitted function in a derivative: the forward pass that keeps residuals, and the backward pass."""
    compiled = []
    native = lambda program, *args, **options: compiled.append(program) or compile_program(program, *args, **options)
    monkeypatch.setattr(jit, "compile_program", native)
    f = wl.jit(lambda x: np.sum(np.sin(x) * x))
    wl.grad(f)(np.ones(3))
    assert len(compiled) == 2
    f(np.ones(3))
    assert len(compiled) == 3


def test_equal_kernels_are_one_function():
    def f(x):
        for _ in range(5):
            x = dot_ops.dot(ew.tanh(x), x, contract=((1,), (0,)), batch=EMPTY)
        return x

    compiled = check(f, np.random.default_rng(0).normal(size=(40, 40)) / 10)
    assert len(re.findall(r"define internal void @k\d+\(", compiled.ir)) == len(compiled.kernels) / 5


def test_the_arena_is_reused():
    def f(x):
        for _ in range(20):
            x = shape_ops.transpose(ew.sin(x), permutation=(1, 0))
        return x

    compiled = check(f, np.random.default_rng(0).normal(size=(50, 50)))
    assert compiled.arena_bytes < 4 * 50 * 50 * 8


@pytest.mark.optimised
def test_threads_do_not_change_results():
    x = np.random.default_rng(0).normal(size=(700, 900)).astype("f4")

    def f(x):
        e = ew.exp(x)
        total = reduce_ops.spread(reduce_ops.sum(e, axes=(1,)), x.shape, (1,))
        return ew.div(e, total), reduce_ops.sum(e, axes=(0, 1)), reduce_ops.sum(e, axes=(0,))

    compiled = check(f, x)
    before = pool.size()
    try:
        found = []
        for n in (1, 2, 3):
            pool.set_size(n)
            found.append([o.tobytes() for o in compiled(x)])
    finally:
        pool.set_size(before)
    assert found[0] == found[1] == found[2]


def test_calls_from_many_threads():
    x = np.random.default_rng(0).normal(size=(200, 300))
    compiled = check(lambda x: reduce_ops.sum(ew.sin(shape_ops.transpose(ew.exp(x), permutation=(1, 0))), axes=(1,)), x)
    want = compiled(x)[0]
    wrong = []

    def work():
        for _ in range(50):
            if not np.array_equal(compiled(x)[0], want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_long_program_compiles():
    def f(x):
        for i in range(700):
            x = index_ops.scatter_slice(
                x, ew.mul(index_ops.slice(x, index=(i % 7,)), 1.01), index=((i + 1) % 7,), mode="set"
            )
        return x

    check(f, np.arange(1.0, 8.0))


def test_a_result_of_unknown_length_that_finds_no_memory(monkeypatch):
    cells = np.zeros(3, np.int64)
    monkeypatch.setattr(calls, "_realloc", lambda: lambda address, size: None)
    with pytest.raises(MemoryError):
        calls._hand_over(cells.ctypes.data, np.arange(3.0))
    assert not cells.any()


def test_what_a_person_can_look_at(capsys, monkeypatch):
    monkeypatch.setenv("WONDERLAND_DEBUG", "5")
    compiled = compile_program(record(lambda x: reduce_ops.sum(ew.exp(x), axes=(1,)), np.zeros((30, 40))))
    shown = capsys.readouterr().err
    for word in (
        "compiled (f64[30,40])",
        "-- Program, simplified",
        "-- steps",
        "row mode",
        "-- memory plan",
        "define i64 @run",
        ".globl",
    ):
        assert word in shown, word
    assert [name for name, _ in compiled.stages] == ["recorded", "inlined", "simplified"]
    assert compiled.stages[0][1] is compiled.source and compiled.stages[-1][1] is compiled.program
    assert "exp" in str(compiled.program) and compiled.compile_seconds > 0 and "run" in compiled.assembly()
