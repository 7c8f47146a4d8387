"""Structured primitives in compiled code, with NumPy and SciPy as oracles: products, places of maxima, cumulative
operations, sorting and searching, triangular systems, sparse products. None of them calls NumPy; `test_ops.py` asks
that of all rows of the op table."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from differential import Generator, assert_close, check, is_single, record

import wonderland as wl
from wonderland.compile.stages import compile_program
from wonderland.core.program import run
from wonderland.ops import cumulative, index, linalg, reduce
from wonderland.ops import elementwise as ew
from wonderland.ops import sort as order
from wonderland.scipy.linalg import solve_triangular

SHAPES = [(1,), (5,), (3, 0), (4, 1), (2, 3, 4), (7, 600), (600, 7)]
DTYPES = ["?", "i4", "u8", "f4", "f8"]


def sample(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 9, shape).astype(dtype)


def native(f, *arrays):
    compiled = check(f, *arrays)
    assert not compiled.fallbacks
    return compiled


def special(dtype):
    return np.array([0.0, 2.0, np.nan, -np.inf, -0.0, np.inf, -np.nan, 2.0, -1.5, np.nan, 0.0], dtype)


def against_numpy(f, *args):
    """A jitted function of arrays gives what it gives on NumPy arrays, natively."""
    jitted = wl.jit(f)
    with np.errstate(all="ignore"):
        want = f(*args)
    assert not jitted.inspect(*args).fallbacks
    for _ in range(2):
        got = jitted(*args)
        several = isinstance(want, tuple)
        for g, w in zip(got if several else [got], want if several else [want], strict=True):
            assert_close(g, w)


# Reductions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_products_and_places_of_maxima(shape, dtype):
    x = sample(shape, dtype)
    axes = range(len(shape))
    native(lambda x: [reduce.prod(x, axes=tuple(axes)), *(reduce.prod(x, axes=(a,)) for a in axes)], x)
    native(lambda x: [reduce.argmax(x, axes=(a,)) for a in axes if shape[a]] + [x], x)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_first_nan_is_the_maximum(dtype):
    x = special(dtype)
    for part in (x, x[3:6], x[::-1], x[:2], np.stack([x, x[::-1]]), np.stack([x, x[::-1]]).T):
        against_numpy(lambda x: np.argmax(x, axis=0), part)
        against_numpy(lambda x: np.argmin(x, axis=-1), part)


def test_long_rows_have_one_first_maximum():
    x = np.zeros(100_000, "f4")
    x[[50_000, 70_000]] = 1
    against_numpy(lambda x: np.argmax(2 * x), x)
    against_numpy(lambda x: np.argmax(np.stack([x, x[::-1]]), axis=1), x)


def test_a_product_is_fused_with_what_it_reads_and_what_reads_it():
    compiled = native(lambda x: ew.mul(reduce.prod(ew.add(x, 1.0), axes=(1,)), 2.0), sample((30, 5), "f8"))
    assert len(compiled.kernels) == 1


def test_scattered_maxima():
    x, u = sample((5, 3), "f8"), sample((7, 3), "f8", 1)
    u[2, 1] = np.nan
    places = np.array([0, 4, 4, 1, -1, 0, 2])
    native(lambda x, i, u: index.scatter_max(x, i, u, axes=(0,)), x, places, u)
    integers = sample((5,), "i4"), np.array([3, 3, -2]), np.array([100, 7, 50], "i4")
    native(lambda x, i, u: index.scatter_max(x, i, u, axes=(0,)), *integers)
    with pytest.raises(IndexError):
        wl.jit(lambda x, i: wl.at(x)[i].max(1.0))(x, np.array([5]))


# Cumulative operations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_cumulative_operations(shape, dtype, reverse):
    x = sample(shape, dtype)
    operations = [cumulative.cumsum, cumulative.cummax, cumulative.cumprod]
    if dtype in ("f4", "f8"):
        operations.append(lambda x, **along: cumulative.recurrence(ew.mul(x, 0.1), x, **along))
    native(lambda x: [f(x, axis=a, reverse=reverse) for f in operations for a in range(len(shape))], x)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_cumulated_special_values(dtype):
    x = special(dtype)
    for part in (x, x[3:], x[::-1], x[4:5]):
        against_numpy(lambda x: (np.cumsum(x), np.maximum.accumulate(x), np.cumprod(x)), part)
    first = wl.jit(lambda x: np.cumsum(x))(np.array([-0.0, -0.0], dtype))
    assert np.signbit(first).all()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_layout(axis):
    x = sample((6, 20, 9), "f8")
    for y in (x[::-1, ::2], x.T, x[:, ::-1, ::-3], np.broadcast_to(x[:1], x.shape)):
        against_numpy(lambda y: np.cumsum(y, axis=axis), y)
        against_numpy(lambda y: np.cumprod(y[::-1], axis=axis) + y, y)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(40, 30), (1200, 3), (3, 1200)])
def test_cumulative_operations_fuse(shape, axis):
    x = sample(shape, "f8")

    def f(x):
        total = np.cumsum(x * x + 1.0, axis=axis)
        return total * 2.0, np.cumprod(1.0 + 0.01 * x, axis=axis) - x, np.sum(total, axis=axis)

    against_numpy(f, x)
    assert len(wl.jit(f).inspect(x).kernels) == 1
    centred = lambda x: (lambda c: c - np.max(c, axis=axis, keepdims=True))(np.cumsum(x, axis=axis))
    against_numpy(centred, x)
    assert len(wl.jit(centred).inspect(x).kernels) == 1
    both = lambda x: np.cumsum(x, axis=axis) + np.cumsum(x[::-1, ::-1], axis=axis)[::-1, ::-1]
    against_numpy(both, x)


def test_costly_functions_stay_vectorised():
    def f(x):
        return np.exp(np.cumsum(np.exp(x), axis=1) * 1e-3)

    x = sample((20, 50), "f8")
    against_numpy(f, x)
    assert len(wl.jit(f).inspect(x).kernels) == 3
    assert len(wl.jit(f).inspect(np.ascontiguousarray(x.T)).kernels) == 3
    columns = lambda x: np.exp(np.cumsum(np.exp(x), axis=0) * 1e-3)
    against_numpy(columns, x)
    assert len(wl.jit(columns).inspect(x).kernels) == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_derivatives_of_cumulative_operations(axis):
    x = sample((5, 9), "f8")
    x[2, 3] = 0.0
    functions = [
        lambda x: np.sum(np.sin(np.cumsum(x, axis=axis))),
        lambda x: np.sum(np.sin(np.cumprod(x, axis=axis))),
        lambda x: np.sum(np.maximum.accumulate(x, axis=axis) ** 2),
        lambda x: np.sum(np.prod(x, axis=axis) ** 2),
        lambda x: np.sum(np.sort(x, axis=axis) * np.arange(9.0)),
    ]
    for f in functions:
        against_numpy(wl.grad(f), x)
        against_numpy(lambda x, f=f: wl.jvp(wl.grad(f), (x,), (x,))[1], x)


def test_in_place():
    x = sample((50, 40), "f8")
    against_numpy(lambda x: np.cumsum(np.cumsum(x * 2.0, axis=0)[::-1], axis=1), x)
    for f in (lambda x: cumulative.cumsum(x, axis=1, reverse=True), lambda x: order.sort(x, axis=0)):
        target = x.copy()
        compile_program(record(f, x), {0: 0})(target)
        np.testing.assert_allclose(target, f(x), rtol=1e-12)


# Sorting --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, "i2", "u1"])
@pytest.mark.parametrize("shape", [*SHAPES, (16, 33), (2, 5000)])
def test_sorting(shape, dtype):
    x = sample(shape, dtype)
    native(lambda x: [f(x, axis=a) for f in (order.sort, order.argsort) for a in range(len(shape))], x)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u4", "u8", "i1"])
def test_the_whole_range_is_ordered(dtype):
    rng, dtype = np.random.default_rng(3), np.dtype(dtype)
    for n in (11, 40, 300, 1500):
        x = rng.integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype)
        against_numpy(lambda x: (np.sort(x), np.argsort(x, kind="stable"), np.sort(-x[::-2])), x)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("repeats", [1, 4, 40, 200])
def test_order_of_special_values(dtype, repeats):
    x = np.tile(special(dtype), repeats)
    against_numpy(lambda x: (np.sort(x), np.argsort(x, kind="stable")), x)
    against_numpy(lambda x: np.argsort(-np.stack([x, x * 2]), axis=1, kind="stable"), x)


def test_sorting_long_and_many_rows():
    rng = np.random.default_rng(0)
    for shape in [(100_000,), (5000, 20), (20, 5000), (300, 300)]:
        x = rng.integers(-50, 50, shape).astype("f8")
        against_numpy(lambda x: (np.sort(x, axis=0), np.argsort(x, axis=-1, kind="stable")), x)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtypes", [("f8", "f8"), ("i4", "f4"), ("i8", "i4"), ("f4", "f8")])
def test_searching(dtypes, side):
    for n in (0, 1, 2, 7, 1000):
        a, v = np.sort(sample((n,), dtypes[0])), sample((4, 30), dtypes[1], 1)
        v[0, :2] = a[:2] if n > 1 else v[0, :2]
        against_numpy(lambda a, v: np.searchsorted(a, v, side), a, v)
        against_numpy(lambda a, v: np.searchsorted(a, v[0, 0], side), a, v)
    a, v = special("f8"), special("f8")[::-1]
    against_numpy(lambda a, v: np.searchsorted(np.sort(a), v, side), a, v)
    rows, values = np.sort(sample((4, 9), "f8")), sample((4, 5), "f8", 1)
    batched = wl.vmap(lambda a, v: np.searchsorted(a, v, side))
    want = np.stack([np.searchsorted(a, v, side) for a, v in zip(rows, values, strict=True)])
    np.testing.assert_array_equal(wl.jit(batched)(rows, values), want)
    assert not wl.jit(batched).inspect(rows, values).fallbacks


# Linear systems and sparse products -----------------------------------------------------------------------------------


SMALL_SYSTEMS = [((1, 1), 1), ((3, 3), 2), ((2, 40, 40), 5), ((3, 3), 0), ((0, 0), 2), ((200, 4, 4), 3)]
LARGE_SYSTEMS = [((100, 100), 1), ((130, 130), 7), ((3, 2, 60, 60), 33)]


@pytest.mark.parametrize(
    ("shape", "columns", "dtype"),
    [
        *((*system, dtype) for system in SMALL_SYSTEMS for dtype in ("f4", "f8")),
        *((*system, "f8") for system in LARGE_SYSTEMS),
        *(pytest.param(*system, "f4", marks=pytest.mark.slow) for system in LARGE_SYSTEMS),
    ],
)
def test_triangular_systems(shape, columns, dtype):
    rng, n = np.random.default_rng(0), shape[-1]
    a = (rng.normal(size=shape) / np.sqrt(n + 1) + 3 * np.eye(n)).astype(dtype)
    b = rng.normal(size=(*shape[:-1], columns)).astype(dtype)
    for number in range(8):
        names = ("lower", "adjoint", "unit")
        params = {name: bool(number >> bit & 1) for bit, name in enumerate(names)}
        native(lambda a, b, params=params: linalg.triangular_solve(a, b, **params), a, b)


def test_triangular_systems_of_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(70, 70)) / 9 + 2 * np.eye(70), rng.normal(size=70)
    for trans in (0, 1):
        solve = wl.jit(lambda a, b, trans=trans: solve_triangular(a, b, trans=trans, lower=True))
        want = scipy.linalg.solve_triangular(a[::-1, ::-1], b, trans=trans, lower=True)
        np.testing.assert_allclose(solve(a[::-1, ::-1], b), want, rtol=1e-11)
        with pytest.raises(np.linalg.LinAlgError, match="singular"):
            solve(np.zeros((3, 3)), np.ones(3))


@pytest.mark.parametrize("dtype", ["?", "i8", "f4", "f8"])
def test_sparse_products(dtype):
    matrix = scipy.sparse.random(30, 20, density=0.2, random_state=1, format="csr")
    matrix.data *= 10
    matrix = matrix.astype(dtype)
    for shape in [(), (5,), (1,), (0,)]:
        against_numpy(lambda x: matrix @ x, sample((20, *shape), dtype))
        against_numpy(lambda x: matrix.T @ x, sample((30, *shape), dtype))
    against_numpy(lambda x: matrix @ x.T, sample((4, 20), dtype))
    against_numpy(lambda x: x[::-1] @ matrix, sample((4, 30), dtype))
    against_numpy(lambda x: scipy.sparse.csr_array((3, 20)) @ x, sample((20,), "f8"))
    if dtype[0] == "f":
        against_numpy(wl.grad(lambda x: np.sum((matrix @ x) ** 2)), sample((20, 3), dtype))
        against_numpy(wl.vmap(lambda x: matrix @ x), sample((6, 20), dtype))


# Inside of loops and branches -----------------------------------------------------------------------------------------


def test_inside_control_flow():
    x, w = sample((6, 6), "f8"), sample((3, 6, 6), "f8", 1)
    matrix = scipy.sparse.random(6, 6, density=0.4, random_state=1, format="csr")

    def step(carry, t):
        running = np.cumsum(carry * t, axis=1)
        solved = solve_triangular(np.tril(carry) * 0.1 + 2 * np.eye(6), running, lower=True)
        place = np.argmax(running, axis=0)
        found = np.searchsorted(np.sort(carry[0]), t[0])
        update = matrix @ solved + np.sort(carry, axis=0) + place * 0.01 + np.prod(np.tanh(t), axis=0)
        return np.tanh(update), (place, found)

    def run(x, w):
        carry, (places, found) = wl.scan(step, x, w)
        chosen = wl.cond(np.sum(carry) > 0, lambda c: np.cumprod(c, axis=0), lambda c: np.sort(c, axis=1), carry)
        return chosen, places, found

    def loop(x, w):
        return wl.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, step(s[1], w[0])[0]), (np.int64(0), x))[1]

    against_numpy(run, x, w)
    against_numpy(loop, x, w)
    against_numpy(wl.grad(lambda x, w: np.sum(run(x, w)[0])), x, w)
    against_numpy(wl.grad(lambda x, w: np.sum(loop(x, w))), x, w)


# Random programs ------------------------------------------------------------------------------------------------------


class Structured(Generator):
    """Every other equation is a structured one."""

    def equation(self):
        if self.rng.random() < 0.5:
            return super().equation()
        x = self.pick("fi")
        return getattr(self, f"make_{self.rng.choice(['running', 'order', 'place', 'product', 'system'])}")(x)

    def make_running(self, x):
        if not x.shape:
            return None
        along = {"axis": int(self.rng.integers(len(x.shape))), "reverse": bool(self.rng.integers(2))}
        if x.type.dtype.kind == "i" or self.rng.random() < 0.3:
            return cumulative.cummax(x, **along)
        choice = self.rng.integers(3)
        if choice == 0:
            return ew.tanh(ew.mul(cumulative.cumsum(x, **along), 0.1))
        if choice == 1:
            return cumulative.cumprod(ew.tanh(x), **along)
        return cumulative.recurrence(ew.mul(ew.tanh(x), 0.5), x, **along)

    def make_order(self, x):
        if not x.shape:
            return None
        axis = int(self.rng.integers(len(x.shape)))
        if x.type.dtype.kind == "f" or self.rng.random() < 0.5:
            return order.sort(x, axis=axis)
        return order.argsort(x, axis=axis)

    def make_place(self, x):
        if not x.shape:
            return None
        if x.type.dtype.kind == "i":
            return reduce.argmax(x, axes=(int(self.rng.integers(len(x.shape))),))
        axes, arrays = self.indices(x, 1)
        kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        return index.scatter_max(x, *arrays, self.array((*arrays[0].shape, *kept), x.type.dtype)[()], axes=axes)

    def make_product(self, x):
        return reduce.prod(ew.tanh(x), axes=self.axes(len(x.shape))) if x.type.dtype.kind == "f" else None

    def make_system(self, x):
        if len(x.shape) != 2 or x.shape[0] != x.shape[1] or x.type.dtype.kind != "f":
            return None
        a = ew.add(ew.mul(ew.tanh(x), 0.02), 2 * np.eye(x.shape[0], dtype=x.type.dtype))
        flags = self.rng.integers(2, size=2).astype(bool)
        return linalg.triangular_solve(a, x, lower=bool(flags[0]), adjoint=bool(flags[1]), unit=False)


@pytest.mark.parametrize("block", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 4))])
def test_random_programs(block):
    for seed in range(block * 10, block * 10 + 10):
        program, arrays = Structured(seed).program(12)
        with np.errstate(all="ignore"):
            want = run(program, arrays)
        compiled = compile_program(program)
        assert not compiled.fallbacks
        for _ in range(2):
            for i, (g, w) in enumerate(zip(compiled(*arrays), want, strict=True)):
                assert_close(g, w, f"seed {seed}, output {i} of\n{program}", is_single(program))
