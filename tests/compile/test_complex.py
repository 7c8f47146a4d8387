"""Complex numbers in compiled code: without NumPy's help, and as exact."""

import numpy as np
import pytest
from differential import Generator, assert_close, compare_with

import wonderland as wl
from wonderland.core import tree
from wonderland.ops import elementwise as ew
from wonderland.ops import reduce as reduce_ops
from wonderland.ops import shape as shape_ops
from wonderland.scipy.linalg import solve_triangular

INF, NAN = np.inf, np.nan
DTYPES = ["complex64", "complex128"]


def numbers(*shape, dtype="complex128", seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)[()]


def check(f, *args, single=False):
    """jit gives what NumPy gives, and needs no NumPy for it."""
    jitted = wl.jit(f)
    assert jitted.inspect(*args).fallbacks == ()
    with np.errstate(all="ignore"):
        expected = f(*args)
    for got, want in zip(tree.leaves(jitted(*args)), tree.leaves(expected), strict=True):
        assert_close(got, want, single=single or any(np.result_type(a) == np.complex64 for a in args))
    return jitted


# Operations ----------------------------------------------------------------------------------------------------------


FUNCTIONS = (
    "exp log sqrt sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh expm1 log1p exp2 log2 log10 "
    "sign abs conjugate square reciprocal negative angle real imag rint isnan isfinite isinf"
).split()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype):
    f = getattr(np, name)
    for scale in (1e-3, 1.0, 30.0):
        check(lambda z: f(z), scale * numbers(101, dtype=dtype))


@pytest.mark.optimised
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name",
    "exp log sqrt sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh".split(),
)
def test_each_part_has_its_digits(name, dtype):
    """Beside a part that is far larger, and near the points where the formulas of textbooks cancel."""
    f, rng = getattr(np, name), np.random.default_rng(1)
    real = np.zeros(0, dtype).real.dtype

    def noise(scale):
        return rng.normal(size=200) * scale

    circle = np.exp(1j * noise(3))
    points = [
        noise(1) + 1j * noise(1e-6), noise(1e-6) + 1j * noise(1), 1 + noise(1e-3) + 1j * noise(1e-3),
        1j + noise(1e-3) + 1j * noise(1e-3), noise(1e-4) + 1j * noise(1e-4), circle * (1 + noise(1e-4)),
    ]  # fmt: skip
    z = np.concatenate(points).astype(dtype)
    wide = z.astype(np.clongdouble if dtype == "complex128" else np.complex128)
    got, exact = wl.jit(lambda z: f(z))(z), f(wide)
    for g, x in ((got.real, exact.real), (got.imag, exact.imag)):
        assert np.max(np.abs(g - x) / np.maximum(np.abs(x), np.finfo(real).tiny)) < 16 * np.finfo(real).eps


EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e300, -1e300, 1e-300, 800.0, -800.0, 5e-324, INF, -INF, NAN]
PLANE = np.array([complex(x, y) for x in EDGES for y in EDGES])


def same_parts(got, want, signs):
    for g, w in ((got.real, want.real), (got.imag, want.imag)):
        with np.errstate(all="ignore"):
            close = np.abs(g - w) <= 1e-14 * np.abs(w) + 1e-320
        assert np.all((g == w) | (np.isnan(g) & np.isnan(w)) | close)
        assert np.all((np.signbit(g) == np.signbit(w)) | np.isnan(g) | ~signs)


@pytest.mark.optimised
@pytest.mark.parametrize(
    "name",
    "exp log sqrt sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh log2 log10 sign abs".split(),
)
def test_branch_cuts_infinities_and_zeros(name):
    """As in C; a zero beside a NaN apart in the inverse functions. Where a part is infinite or NaN, signs are open."""
    f = getattr(np, name)
    z = PLANE
    if name.startswith("arc"):
        z = z[~(np.isnan(z) & ((z.real == 0) | (z.imag == 0)))]
    with np.errstate(all="ignore"):
        want = f(z)
    same_parts(wl.jit(lambda z: f(z))(z), want, np.isfinite(z))


@pytest.mark.optimised
def test_log1p_of_small_numbers():
    z = 1e-5 * numbers(100)
    wide = z.astype(np.clongdouble)
    got, exact = wl.jit(np.log1p)(z), wide - wide**2 / 2 + wide**3 / 3 - wide**4 / 4
    np.testing.assert_allclose(got.real, exact.real.astype(float), rtol=2e-15)
    np.testing.assert_allclose(got.imag, exact.imag.astype(float), rtol=2e-15)


@pytest.mark.optimised
@pytest.mark.parametrize(
    "f",
    [
        np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.less, np.less_equal, np.greater,
        np.greater_equal, np.equal, np.not_equal,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_pairs_at_the_edges(f):
    x, y = (g.ravel() for g in np.meshgrid(PLANE, PLANE))
    with np.errstate(all="ignore"):
        want = f(x, y)
    got = wl.jit(lambda x, y: f(x, y))(x, y)
    assert got.dtype == want.dtype
    same_parts(got, want, np.ones(x.shape, bool)) if want.dtype.kind == "c" else np.testing.assert_array_equal(
        got, want
    )


def test_powers():
    z, w = numbers(60), numbers(60, seed=1)
    check(lambda z, w: (z**w, z**2, z**3, z**-1, z**-5, z**0.5, z**0, z ** (1 - 2j), z**99), z, w)
    whole = np.arange(-30, 30) + 0j
    check(lambda z, n: z**n, z, whole)
    got = wl.jit(lambda z, n: z**n)(np.array([2 + 0j, 1 + 2j, 1j]), np.array([3 + 0j, 2 + 0j, -1 + 0j]))
    assert np.array_equal(got, [8, -3 + 4j, -1j])  # exact on small integers
    zeros, exponents = np.zeros(4, complex), np.array([0, 2, 0.5 + 1j, -1])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(wl.jit(lambda z, n: z**n)(zeros, exponents), zeros**exponents)


def test_mixes_with_reals_and_python_numbers():
    z, x = numbers(7, dtype="complex64"), np.linspace(-1, 1, 7, dtype="float32")
    n, b = np.arange(7), np.arange(7) % 2 == 0
    f = check(
        lambda z, x, n, b: (z * x, x + 1j, z * 2, z + n, z * b, x * (1 + 2j), n * 1j, np.where(b, z, x), z - 1.5),
        z,
        x,
        n,
        b,
    )
    assert [v.dtype.name for v in f(z, x, n, b)[:4]] == ["complex64", "complex64", "complex64", "complex128"]
    check(lambda z, w: z * w, 1 + 2j, z)
    check(lambda z, w: z * w, 1 + 2j, 3.0)
    check(lambda z, w: z * w, 1 + 2j, 2 - 1j)
    assert wl.jit(lambda z: z * z)(1 + 2j) == -3 + 4j
    with np.errstate(all="ignore"):
        check(
            lambda z: (z.astype("complex128"), z.astype(bool), z.real.astype(int), z.real.astype(complex)),
            np.array([0, 1j, -0.0, 2 + 3j], "complex64"),
        )


def test_zero_times_infinity_in_a_derivative():
    z = np.array([0j, 1 + 1j])

    def f(z):
        return np.sum(np.abs(np.where(z == 0, 0, np.sqrt(z))) ** 2)

    check(wl.grad(f), z)
    assert np.all(np.isfinite(wl.jit(wl.grad(f))(z)))


# Arrays --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_and_copies(dtype):
    z = numbers(6, 5, 4, dtype=dtype)
    check(
        lambda z: (
            z[::-1, 1:4, ::-2], z.T, z.reshape(10, 12), z.transpose(1, 0, 2).reshape(-1), z[2], z[1, 2, 3],
            np.concatenate([z, 2 * z], 1), np.stack([z[0], z[1]]), np.broadcast_to(z[0], (3, 5, 4)) * 1j,
            z.real, z.imag,
        ),
        z,
    )  # fmt: skip
    for layout in (z.T, z[::-1], z[:, ::-2], np.asfortranarray(z), z[..., 0]):
        check(lambda z: (z * 2j + z.conj(), np.sum(z, 0)), layout)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (1, 1), (3,), (2, 3)])
def test_small_shapes(shape):
    z = numbers(*shape)
    check(lambda z: (z * z + 1j, np.sum(z), np.abs(z), z @ z.T if len(np.shape(z)) == 2 else z), z)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7,), (40, 30), (5, 1, 9), (3000,), (300_000,), (900, 1100), (1100, 3)])
def test_reductions(shape, dtype):
    z = numbers(*shape, dtype=dtype)
    axes = [None, 0, -1]
    check(lambda z: [np.sum(z, a) for a in axes], z)
    check(lambda z: [np.mean(z * z.conj(), a) for a in axes], z)
    check(lambda z: [np.max(z, a) for a in axes] + [np.min(z, a) for a in axes], z)


def test_maxima_with_nan_are_numpys():
    z = numbers(50)
    z[[7, 20]] = complex(NAN, 3), complex(1, NAN)
    got = wl.jit(np.max)(z)
    assert np.isnan(got.real) and got.imag == 3


def test_rows_in_several_sweeps():
    z = numbers(20, 33)
    check(lambda z: np.exp(z) / np.sum(np.exp(z), 1, keepdims=True), z)
    check(lambda z: (z - z.mean(0)) / np.sqrt(np.sum(np.abs(z - z.mean(0)) ** 2, 0)), z)


def test_indices():
    z, i = numbers(6, 4), np.array([4, 0, 4, -1])

    def f(z, i):
        y = z * 1
        y[i] = y[i] * 3j
        y[1:3] += 2 - 1j
        return z[i], z[i, 1], np.add.at(y, i, 1j), y, np.take_along_axis(z, i[None] * 0, 1)

    check(f, z, i)
    with pytest.raises(IndexError):
        wl.jit(f)(z, np.array([6, 0, 0, 0]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_order_and_triangular_systems(dtype):
    """Whoever does it: NumPy, or native code."""
    z = np.array([complex(a, b) for a in (1, -1, 0, NAN) for b in (2, -0.5, NAN)], dtype)
    for f in (np.sort, np.argsort, np.argmax, np.argmin, lambda z: np.searchsorted(np.sort(z), z)):
        np.testing.assert_array_equal(wl.jit(f)(z), f(z))
    for f in (np.maximum.accumulate, np.minimum.accumulate, np.cumsum, np.cumprod, np.prod):
        for x in (z, z[:2], z[::-3]):
            assert_close(wl.jit(lambda x, f=f: f(x))(x), f(x), single=dtype == "complex64")
    a, b = numbers(60, 60, dtype=dtype) / 60 + np.eye(60, dtype=dtype), numbers(60, 7, dtype=dtype, seed=1)
    for options in ({}, {"lower": True}, {"trans": "C"}, {"trans": "T", "lower": True}):
        got = wl.jit(lambda a, b, options=options: solve_triangular(a, b, **options))(a, b)
        assert_close(got, solve_triangular(a, b, **options), single=dtype == "complex64")


PRODUCTS = [(2, 3, 4), (1, 300, 200), (200, 300, 1), (1, 5000, 1), (20, 1, 20), (40, 30, 50), (70, 200, 33)]


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("sizes", "dtype"), [*((s, "complex128") for s in PRODUCTS), *((s, "complex64") for s in PRODUCTS[::3])]
)
def test_matrix_products(sizes, dtype):
    m, k, n = sizes
    x, y = numbers(m, k, dtype=dtype) / k, numbers(k, n, dtype=dtype, seed=1)
    check(lambda x, y: x @ y, x, y)
    check(lambda x, y: x.T @ y, np.ascontiguousarray(x.T), y)
    check(lambda x, y: x @ y.conj().T, x, np.ascontiguousarray(y.T))
    check(lambda x, y: (x @ y, y.T @ x.T), x[::-1, ::-1], np.asfortranarray(y))
    check(lambda x, y: x @ y, x, y.real.copy())
    check(lambda x, y: x @ y, x.real.copy(), y, single=dtype == "complex64")
    check(lambda x, y: x @ y[:, 0], x, y)


def test_batched_products():
    x, y = numbers(2, 3, 20, 15), numbers(2, 3, 15, 25, seed=1)
    check(lambda x, y: x @ y, x, y)
    check(lambda x, y: x @ y, x, y[0, 0])
    check(lambda x, y: np.einsum("abij,abjk->aik", x, y), x, y)
    check(lambda x, y: np.einsum("abij,cbjk->aick", x, y), x, y)
    check(wl.vmap(wl.vmap(lambda x, y: x @ y)), x, y)


def test_products_with_what_was_computed_in_another_order():
    x, y = numbers(9, 70), numbers(70, 70, seed=1)
    check(lambda x, y: x @ (y @ y).T, x, y)
    check(lambda x, y: x @ (2 * (y @ y).T), x, y)
    check(wl.conv, numbers(2, 13, 40, 13), numbers(4, 13, 2, 3, seed=1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(9, 9, 9), (70, 90, 33), (300, 40, 100)])
def test_maps_around_products(sizes, dtype):
    m, k, n = sizes
    x, y = numbers(m, k, dtype=dtype) / k, numbers(k, n, dtype=dtype, seed=1)
    b, r = numbers(n, dtype=dtype, seed=2), numbers(m, n, dtype=dtype, seed=3)
    check(lambda x, y, b, r: (np.exp(2 * x @ y.conj()) + b, r - x @ y, np.abs(x @ y), (x @ y).imag), x, y, b, r)
    check(lambda x, y, b, r: (np.sum(x @ y * r, 1), np.mean(x @ y, 0)), x, y, b, r)
    check(wl.grad(lambda x, y, b, r: np.mean(np.abs(np.tanh(x @ y) + b - r) ** 2), (0, 1, 2)), x, y, b, r)


def test_products_of_infinities():
    x, y = numbers(30, 30), numbers(30, 30)
    x[3, 4] = INF
    y[7, 2] = complex(0, NAN)
    with np.errstate(all="ignore"):
        got, want = wl.jit(np.matmul)(x, y), x @ y
    assert np.array_equal(np.isfinite(got), np.isfinite(want))


# Control flow --------------------------------------------------------------------------------------------------------

A = numbers(3, 3, seed=5) / 3


def states(z, xs):
    return wl.scan(lambda h, x: (np.tanh(A @ h) / 2 + x, h * 2j), z, xs)


def mandelbrot(c):
    return wl.while_loop(
        lambda s: (np.abs(s[0]) < 2) & (s[1] < 50), lambda s: (s[0] * s[0] + c, s[1] + 1), (0 * c, np.int64(0))
    )


def test_carries():
    z, xs = numbers(3), numbers(6, 3, seed=1)
    check(states, z, xs)
    check(lambda z, xs: wl.scan(lambda h, x: (h * 0.5 + x, h), z, xs, reverse=True), z, xs)
    for c in (0.3 + 0.5j, 0.4 + 0.6j):
        check(mandelbrot, c)
        check(mandelbrot, np.complex64(c))
    check(wl.vmap(mandelbrot), numbers(9))
    for p in (True, False):
        check(lambda p, z: wl.cond(p, lambda z: z * 1j, lambda z: np.conj(z), z), p, z)


def test_gradients_of_loops():
    z, xs = numbers(3), numbers(6, 3, seed=1)

    def loss(z, xs):
        h, ys = states(z, xs)
        return np.sum(np.abs(h) ** 2) + np.sum(np.real(ys))

    check(wl.grad(loss, (0, 1)), z, xs)

    def root(c):
        return np.abs(wl.while_loop(lambda z: np.abs(z * z - c) > 1e-12, lambda z: (z + c / z) / 2, c))

    check(wl.grad(root), 2 + 1j)


# Derivatives ---------------------------------------------------------------------------------------------------------


def test_gradients_in_closed_form():
    z = numbers(8)
    np.testing.assert_allclose(wl.jit(wl.grad(lambda z: np.sum(np.abs(z) ** 2)))(z), 2 * z, rtol=1e-14)
    np.testing.assert_allclose(wl.jit(wl.grad(lambda z: np.sum(np.real(z * z))))(z), 2 * np.conj(z), rtol=1e-14)
    np.testing.assert_allclose(wl.jit(wl.grad(lambda z: np.sum(np.abs(z))))(z), z / np.abs(z), rtol=1e-14)
    np.testing.assert_allclose(wl.jit(wl.grad(lambda z: np.sum(np.imag(np.exp(z)))))(z), np.conj(-1j * np.exp(z)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(dtype):
    z, w = numbers(6, 5, dtype=dtype), numbers(5, 4, dtype=dtype, seed=1)

    def loss(z, w):
        y = np.tanh(z @ w) / (2 + np.abs(z[:, :4])) + np.log(3 + z[:, 1:] * 0.1)
        return np.sum(np.real(y * np.conj(y)) + np.imag(y)) + np.sum(np.abs(w))

    check(wl.grad(loss, (0, 1)), z, w)
    check(lambda z, w: wl.jvp(lambda z: loss(z, w), (z,), (z,)), z, w)
    check(wl.vmap(wl.grad(lambda row: np.sum(np.abs(row * w[:, 0]) ** 3))), z)
    check(wl.grad(lambda z: np.sum(wl.grad(loss)(z, w).real ** 2)), z)


def test_a_real_argument_of_a_complex_function():
    x = np.linspace(-1, 1, 9)
    check(wl.grad(lambda x: np.abs(np.sum(np.exp(1j * x)))), x)
    check(wl.grad(lambda x: np.sum(wl.grad(lambda x: np.abs(np.sum(np.exp(1j * x * x))) ** 2)(x) ** 2)), x)


# Random Programs -----------------------------------------------------------------------------------------------------


class ComplexGenerator(Generator):
    """Where the real one has floats, this one has complex numbers, and reals that come from them."""

    def __init__(self, seed):
        super().__init__(seed)
        self.float = np.dtype("c8" if self.float.itemsize == 4 else "c16")

    def array(self, shape, dtype):
        part = super().array(shape, np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype)
        return part + 1j * super().array(shape, part.dtype) if dtype.kind == "c" else part

    def pick(self, kinds="fib"):
        return super().pick(kinds.replace("f", "fc"))

    def moderate(self, x):
        return ew.div(x, ew.add(1.0, ew.abs(x))) if x.type.dtype.kind in "fc" else x

    def make_unary(self):
        x = self.moderate(self.pick("f"))
        op = str(self.rng.choice("sin cos exp neg abs sqrt log tanh real imag conj".split()))
        if op in ("sqrt", "log"):  # off the branch cut, where the sign of a rounding error decides
            x = ew.add(x, 2.0)
        return getattr(ew, op)(x)

    def make_binary(self):
        x = self.pick("fi")
        y = self.partner(x, "fic") if self.rng.random() < 0.7 else complex(*self.rng.integers(-3, 4, 2))
        if y is None:
            return None
        op = str(self.rng.choice(["add", "sub", "mul", "masked_mul", "div"]))
        if op == "div":
            return ew.div(x, ew.add(y / 8 if isinstance(y, complex) else self.moderate(y), 2.0))
        out = getattr(ew, op)(x, y)
        if out.type.dtype.kind == "c" and out.type.dtype != self.float:
            out = shape_ops.convert(out, dtype=self.float)
        return self.moderate(out) if "mul" in op else out

    def make_reduce(self):
        x = self.pick("fi")
        return self.moderate(reduce_ops.sum(x, axes=self.axes(len(x.shape))))

    def make_row(self):
        x = self.moderate(self.pick("f"))
        axes = self.axes(len(x.shape))
        e = ew.exp(x)
        return ew.div(e, reduce_ops.spread(reduce_ops.sum(ew.abs(e), axes=axes), x.shape, axes))

    def make_convert(self):
        x, to = self.pick(), self.dtype()
        if x.type.dtype.kind in "fc" and to.kind not in "fc":
            return None
        return shape_ops.convert(x, dtype=to)


@pytest.mark.optimised
@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 40))])
def test_random_programs(seed):
    program, arrays = ComplexGenerator(seed).program(25)
    compiled = compare_with(program, arrays, f"seed {seed}")
    assert compiled.fallbacks == ()
