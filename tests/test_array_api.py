"""The array API standard, version 2024.12: every name of its main namespace and of its array object, on traced arrays.

A call of the table gets a namespace and arrays; with NumPy's namespace and plain arrays it is the oracle.
"""

import inspect

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.tracer import Tracer
from wonderland.testing.op_samples import assert_close

X = np.array([[0.3, -0.8, 0.55], [0.9, 0.1, -0.4]])
Y = np.array([[1.5, 0.7, -1.2], [0.42, -2.0, 1.1]])
N = np.array([[3, 1, 4], [1, 5, 2]])


def same(actual, expected, what=""):
    assert_close(actual, expected, str(what), 1e-12)


def of(name):
    """A function of one array, called by name."""
    return lambda xp, x: getattr(xp, name)(x)


def both(name):
    return lambda xp, x: getattr(xp, name)(x, xp.asarray(Y))


SMOOTH = {
    # elementwise
    **{name: of(name) for name in """
        abs acos asin asinh atan atanh ceil conj cos cosh exp expm1 floor imag log1p negative positive real reciprocal
        round sign sin sinh square tan tanh trunc
    """.split()},
    **{name: both(name) for name in """
        add atan2 copysign divide floor_divide hypot logaddexp maximum minimum multiply remainder subtract
    """.split()},
    "acosh": lambda xp, x: xp.acosh(x + 2),
    "clip": lambda xp, x: xp.clip(x, -0.5, 0.5) + xp.clip(x, max=0.2) + xp.clip(x, min=xp.asarray(Y)),
    "log": lambda xp, x: xp.log(x + 2), "log2": lambda xp, x: xp.log2(x + 2), "log10": lambda xp, x: xp.log10(x + 2),
    "pow": lambda xp, x: xp.pow(x + 2, x), "sqrt": lambda xp, x: xp.sqrt(x + 2),
    "nextafter": lambda xp, x: xp.nextafter(x, xp.asarray(Y)),
    # making and converting
    "asarray": lambda xp, x: xp.asarray(x) + xp.asarray(N, dtype=xp.float64),
    "empty_like": lambda xp, x: x * xp.zeros(xp.empty_like(x).shape), "zeros_like": lambda xp, x: x + xp.zeros_like(x),
    "ones_like": lambda xp, x: x * xp.ones_like(x), "full_like": lambda xp, x: x * xp.full_like(x, 2.0),
    "zeros": lambda xp, x: x + xp.zeros((2, 3)), "ones": lambda xp, x: x * xp.ones(3), "eye": lambda xp,
    x: x @ xp.eye(3, k=1),
    "empty": lambda xp, x: x * xp.ones(xp.empty((3,)).shape), "full": lambda xp, x: xp.full((2,), x[0, 0]),
    "arange": lambda xp, x: x * xp.arange(3), "linspace": lambda xp, x: xp.linspace(x[0, 0], x[0, 1], 4),
    "meshgrid": lambda xp, x: xp.meshgrid(x[0], x[1])[0], "tril": lambda xp, x: xp.tril(x), "triu": lambda xp,
    x: xp.triu(x, k=1),
    "astype": lambda xp, x: xp.astype(x, xp.complex128), "broadcast_arrays": lambda xp,
    x: xp.broadcast_arrays(x, x[0])[1],
    "broadcast_to": lambda xp, x: xp.broadcast_to(x, (2, 2, 3)),
    # linear algebra
    "matmul": lambda xp, x: xp.matmul(x, xp.asarray(Y).T), "matrix_transpose": of("matrix_transpose"),
    "tensordot": lambda xp, x: xp.tensordot(x, xp.asarray(Y), axes=((1,), (1,))),
    "vecdot": lambda xp, x: xp.vecdot(x, xp.asarray(Y), axis=0),
    # manipulation and indexing
    "concat": lambda xp, x: xp.concat([x, x], axis=1), "expand_dims": lambda xp, x: xp.expand_dims(x, axis=1),
    "flip": lambda xp, x: xp.flip(x, axis=0), "moveaxis": lambda xp, x: xp.moveaxis(x, 0, 1),
    "permute_dims": lambda xp, x: xp.permute_dims(x, (1, 0)), "repeat": lambda xp, x: xp.repeat(x, 2, axis=1),
    "reshape": lambda xp, x: xp.reshape(x, (3, -1)), "roll": lambda xp, x: xp.roll(x, (1, 2), axis=(0, 1)),
    "squeeze": lambda xp, x: xp.squeeze(x[:, None], axis=1), "stack": lambda xp, x: xp.stack([x, x], axis=-1),
    "tile": lambda xp, x: xp.tile(x, (2, 1)), "unstack": lambda xp, x: xp.unstack(x, axis=1)[0],
    "take": lambda xp, x: xp.take(x, xp.asarray([2, 0]), axis=1),
    "take_along_axis": lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1),
    "where": lambda xp, x: xp.where(x > 0, x, xp.asarray(Y)),
    # sorting, statistics, utilities
    "sort": lambda xp, x: xp.sort(x, axis=0),
    "cumulative_prod": lambda xp, x: xp.cumulative_prod(x, axis=1),
    "cumulative_sum": lambda xp, x: xp.cumulative_sum(x, axis=1, include_initial=True),
    "max": lambda xp, x: xp.max(x, axis=1), "min": lambda xp, x: xp.min(x, axis=(0, 1)),
    "mean": lambda xp, x: xp.mean(x, axis=0, keepdims=True), "prod": lambda xp, x: xp.prod(x), "sum": lambda xp,
    x: xp.sum(x, axis=0),
    "std": lambda xp, x: xp.std(x, axis=1, correction=1), "var": lambda xp, x: xp.var(x, correction=1.0),
    "diff": lambda xp, x: xp.diff(x, axis=1, append=x[:, :1]),
    "pi": lambda xp, x: x * xp.pi + xp.e, "e": lambda xp, x: x * xp.e, "inf": lambda xp, x: xp.minimum(x, xp.inf),
    "nan": lambda xp, x: xp.where(x > 5, xp.nan, x), "newaxis": lambda xp, x: x[:, xp.newaxis],
}  # fmt: skip

# Those that give integers or bools, or no array at all.
OTHERS = {
    **{name: both(name) for name in "equal greater greater_equal less less_equal not_equal".split()},
    **{name: of(name) for name in "isfinite isinf isnan signbit logical_not all any argmin".split()},
    **{name: lambda xp, x, name=name: getattr(xp, name)(x > 0,
        x < 0.5) for name in "logical_and logical_or logical_xor".split()},
    "argmax": lambda xp, x: xp.argmax(x, axis=1), "argsort": lambda xp, x: xp.argsort(x, axis=1),
    "count_nonzero": lambda xp, x: xp.count_nonzero(x > 0, axis=0, keepdims=True),
    "searchsorted": lambda xp, x: xp.searchsorted(xp.sort(x[0]), x[1], side="right"),
    "result_type": lambda xp, x: x.astype(xp.result_type(x, xp.float32)), "can_cast": lambda xp,
    x: x * xp.can_cast(x.dtype, xp.int8),
    "isdtype": lambda xp, x: x * xp.isdtype(x.dtype, "real floating"), "finfo": lambda xp, x: x * xp.finfo(x.dtype).eps,
    "iinfo": lambda xp, x: x * xp.iinfo(xp.int8).max,
}  # fmt: skip
INTEGERS = {
    **{name: lambda xp, n, name=name: getattr(xp, name)(n, xp.asarray([1, 2, 3]))
       for name in "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split()},
    "bitwise_invert": of("bitwise_invert"),
}  # fmt: skip
BY_VALUE = {
    "nonzero": lambda xp, x: xp.nonzero(x > 0), "unique_values": lambda xp, x: xp.sort(xp.unique_values(x)),
    "unique_all": lambda xp, x: tuple(xp.unique_all(x)), "unique_counts": lambda xp, x: tuple(xp.unique_counts(x)),
    "unique_inverse": lambda xp, x: tuple(xp.unique_inverse(x)),
}  # fmt: skip
DTYPES = """
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128
""".split()
MAIN = """
    e inf nan newaxis pi
    arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros
    zeros_like
    astype can_cast finfo iinfo isdtype result_type
    abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or
    bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide
    greater
    greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and
    logical_not
    logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real reciprocal
    remainder round
    sign signbit sin sinh square sqrt subtract tan tanh trunc
    take take_along_axis matmul matrix_transpose tensordot vecdot
    broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack
    tile unstack
    argmax argmin count_nonzero nonzero searchsorted where unique_all unique_counts unique_inverse unique_values
    argsort sort
    cumulative_prod cumulative_sum max mean min prod std sum var all any diff
    __array_namespace_info__
""".split()
STAIRCASES = {"ceil", "floor", "round", "sign", "trunc", "floor_divide", "remainder", "nextafter"}


def namespace(x):
    if isinstance(x, (np.ndarray, np.generic)):  # which versions of the standard NumPy knows depends on its own
        return x.__array_namespace__()
    return x.__array_namespace__(api_version="2024.12")


def on_tracers(call):
    return lambda x: call(namespace(x), x)


@pytest.mark.parametrize("name", [*MAIN, *DTYPES])
def test_the_namespace_has(name):
    names = []

    def f(x):
        names.append(getattr(namespace(x), name))
        return x

    wl.trace(f)(X)
    assert len(names) == 1


def test_every_name_is_in_a_table():
    tested = {*SMOOTH, *OTHERS, *INTEGERS, *BY_VALUE}
    assert tested == {*MAIN} - {"from_dlpack", "__array_namespace_info__"}


@pytest.mark.parametrize("name", SMOOTH)
def test_functions_with_a_derivative(name):
    f, expected = on_tracers(SMOOTH[name]), SMOOTH[name](np, X)
    same(wl.jvp(f, (X,), (X,))[0], expected)
    same(wl.verify(wl.trace(f)(X))(X)[0], expected)
    if name not in STAIRCASES:
        wl.testing.check_grads(f, (X,), order=1)


@pytest.mark.parametrize("name", OTHERS)
def test_functions_without_one(name):
    f, expected = on_tracers(OTHERS[name]), OTHERS[name](np, X)
    same(wl.verify(wl.trace(f)(X))(X)[0], expected)
    same(wl.jvp(f, (X,), (X,))[0], expected)


@pytest.mark.parametrize("name", INTEGERS)
def test_functions_of_integers(name):
    same(wl.verify(wl.trace(on_tracers(INTEGERS[name]))(N))(N)[0], INTEGERS[name](np, N))


@pytest.mark.parametrize("name", BY_VALUE)
def test_functions_whose_shape_depends_on_values(name):
    same(wl.jvp(on_tracers(BY_VALUE[name]), (X,), (X,))[0], BY_VALUE[name](np, X))
    with pytest.raises(wl.NoValueError):
        wl.trace(on_tracers(BY_VALUE[name]))(X)


def test_the_inspection_of_the_namespace():
    def f(x):
        info = namespace(x).__array_namespace_info__()
        assert info.default_device() == x.device == "cpu" and info.capabilities()["boolean indexing"]
        return x

    wl.trace(f)(X)


# The array object ----------------------------------------------------------------------------------------------------

ATTRIBUTES = "dtype device mT ndim shape size T".split()
METHODS = """
    __abs__ __add__ __and__ __array_namespace__ __bool__ __complex__ __dlpack__ __dlpack_device__ __eq__ __float__
    __floordiv__ __ge__ __getitem__ __gt__ __index__ __int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__
    __mul__
    __ne__ __neg__ __or__ __pos__ __pow__ __rshift__ __setitem__ __sub__ __truediv__ __xor__ to_device
""".split()
ARITHMETIC = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "**": lambda a, b: (a + 3) ** b,
}  # fmt: skip
COMPARISONS = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip
BITS = {
    "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}  # fmt: skip


def inplace(symbol):
    """`a op= b`, as a function."""
    scope: dict = {}
    exec(f"def f(a, b):\n    a = a * 1\n    a {symbol}= b\n    return a", scope)
    return scope["f"]


@pytest.mark.parametrize("name", [*ATTRIBUTES, *METHODS])
def test_the_array_has(name):
    def f(x):
        try:
            inspect.getattr_static(type(x), name)
        except AttributeError:
            getattr(x, name)
        return x

    wl.trace(f)(X)


@pytest.mark.parametrize("symbol", ARITHMETIC)
def test_arithmetic(symbol):
    for f in (ARITHMETIC[symbol], inplace(symbol)):
        a, b = (X + 3, Y) if symbol == "**" else (X, Y)
        for out in (wl.jvp(f, (a, b), (a, b))[0], wl.trace(f)(a, b)(a, b)[0]):
            same(out, f(a, b))
        same(wl.trace(lambda a, f=f: f(a, 2))(a)(a)[0], f(a, 2))
        if symbol != "//":
            wl.testing.check_grads(f, (a, b), order=1)
    reflected = lambda b: ARITHMETIC[symbol](2.0, b)
    same(wl.trace(reflected)(Y)(Y)[0], reflected(Y))


@pytest.mark.parametrize("symbol", COMPARISONS)
def test_comparisons(symbol):
    f = COMPARISONS[symbol]
    same(wl.trace(f)(X, Y)(X, Y)[0], f(X, Y))
    same(wl.trace(lambda x: f(0.1, x))(X)(X)[0], f(0.1, X))


@pytest.mark.parametrize("symbol", BITS)
def test_bits(symbol):
    for f in (BITS[symbol], inplace(symbol)):
        same(wl.trace(f)(N, N[::-1])(N, N[::-1])[0], f(N, N[::-1]))
        if symbol in "&|^":
            same(wl.trace(BITS[symbol])(X > 0, Y > 0)(X > 0, Y > 0)[0], BITS[symbol](X > 0, Y > 0))
    same(wl.trace(lambda n: BITS[symbol](6, n))(N)(N)[0], BITS[symbol](6, N))


def test_matrix_products():
    f = lambda a, b: a @ b.mT
    wl.testing.check_grads(f, (X, Y), order=1)
    same(wl.trace(lambda b: X @ b.T)(Y)(Y)[0], X @ Y.T)


def test_unary_operators():
    for f in (lambda x: -x, lambda x: +x, abs):
        same(wl.trace(f)(X)(X)[0], f(X))
        wl.testing.check_grads(f, (X,), order=1)
    same(wl.trace(lambda n: ~n)(N)(N)[0], ~N)


def test_items():
    def f(x):
        x = x * 1.0
        x[0, 1:] = x[1, :2] * 2.0
        x[..., 0] += 1.0
        return x[:, ::-1]

    same(wl.trace(f)(X)(X)[0], f(X))
    wl.testing.check_grads(f, (X,), order=1)


def test_conversions_to_python():
    """They work where they lose nothing, and raise where they would."""
    seen = []

    def f(x, n):
        seen.extend([bool(x[0, 0] > 0), int(n[0, 0]), [10, 20, 30, 40][n[0, 0]], float(n[0, 1]), complex(n[0, 1])])
        return x

    wl.jvp(f, (X, N), (X, None))
    assert seen == [True, 3, 40, 1.0, 1 + 0j]
    for convert in (float, complex):
        with pytest.raises(wl.LostDerivativeError):
            wl.grad(lambda x, convert=convert: convert(x[0, 0]))(X)
    for convert in (bool, int, float, complex, lambda x: [1][x]):
        with pytest.raises(wl.NoValueError):
            wl.trace(lambda x, convert=convert: convert(x[0, 0]))(X)


def test_devices_and_dlpack():
    def f(x):
        assert x.to_device(x.device) is x
        with pytest.raises(ValueError, match="cpu"):
            x.to_device("gpu")
        for take in (lambda: x.__dlpack__(), lambda: x.__dlpack_device__(), lambda: namespace(x).from_dlpack(x)):
            with pytest.raises(wl.LostDerivativeError, match="DLPack"):
                take()
        return x

    wl.trace(f)(X)
    assert isinstance(Tracer(X).T, Tracer)
