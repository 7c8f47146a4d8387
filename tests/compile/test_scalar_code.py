"""Elementwise primitives compiled, at the edges of their dtypes: native code, and what NumPy and SciPy compute."""

import numpy as np
import pytest

import wonderland as wl
import wonderland.scipy.special as sp
from wonderland.compile import ir
from wonderland.compile.emitter import Emitter
from wonderland.compile.scalars import Unsupported, is_native, named
from wonderland.compile.vecmath.formula import where
from wonderland.core.primitive import registry
from wonderland.core.tracer import Tracer, unwrap
from wonderland.testing import op_table

op_table.load()
COUNT = {row.name: len(row.operands) for row in op_table.TABLE}
COMPLEX = {"complex", "complex_reciprocal", "conj", "imag"}
LARGEST = {
    "logaddexp": lambda out, x, y: np.maximum(np.abs(x), np.abs(y)),
    "logaddexp2": lambda out, x, y: np.maximum(np.abs(x), np.abs(y)),
    "zeta": lambda out, s, q: np.where(q < 0, 8.0, 0.0),
    "gammaln": lambda out, x: np.where(np.abs(x) < 3, 4.0, 0.0),  # SciPy's error
    "loggamma": lambda out, x: np.where(np.abs(x) < 3, 4.0, 0.0),
    "log_ndtr": lambda out, x: np.where(x < 100, x.astype(float) ** 2 * np.abs(out), 0.0),  # x / sqrt(2) is rounded
}
# Which depend on the precision, or of which SciPy has another algorithm in single precision.
OWN = {"nextafter", "spacing", "remainder", "floor_divide", "fmod", "betainc", "betaincinv", "erfinv"}
NAMES = sorted(name for name, p in registry.items() if p.elementwise and name not in COMPLEX)
CONVERTED = {"div", "sqrt", "sin"}  # these from every dtype
DTYPES = ("float32", "float64", "bool", "int8", "int32", "int64", "uint8", "uint64")


def edges(dtype):
    """Zeros, ones, extremes, infinities, NaN, subnormal numbers."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        middle = [-64, -7, -3, -2, -1] if dtype.kind == "i" else []
        return np.array(
            [info.min, info.min + 1, *middle, 0, 1, 2, 3, 6, 7, 8, 31, 63, 64, info.max - 1, info.max], dtype
        )
    info = np.finfo(dtype)
    small = [info.smallest_subnormal, info.tiny / 8, info.tiny, 1e-30]
    usual = [0.1, 0.25, 0.4999, 0.5, 0.9, 1.0, 1.5, 2.0, 3.0, 4.75, 20.0, 171.5]
    numbers = np.array([0.0, *small, *usual, 1e5, 1e30, info.max, np.inf], dtype)
    return np.concatenate([numbers, -numbers, np.array([np.nan], dtype)])


def disagreements(got, want, slack):
    """Where numbers differ by more than a few units in the last place and `slack`, or zeros by their signs."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype.kind != "f":
        return np.argwhere(got != want)
    info = np.finfo(want.dtype)
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= 8 * info.eps * np.abs(want) + 4 * info.smallest_subnormal + slack
        same = (got == want) | (near & np.isfinite(want))
        same = (same & ((np.signbit(got) == np.signbit(want)) | (slack > 0))) | (np.isnan(got) & np.isnan(want))
    return np.argwhere(~same)


def bind(primitive):
    """The primitive as a function of arrays and tracers."""

    def f(*args, **params):
        out = primitive(*map(unwrap, args), **params)
        return Tracer(out) if any(isinstance(a, Tracer) for a in args) else out

    return f


def expected(name, args):
    """What eager code gives, single precision as double precision has it, rounded; and by how much that may be off."""
    f = bind(registry[name])
    with np.errstate(all="ignore"):
        want = f(*args)
        if want.dtype == np.float32 and name not in OWN and all(a.dtype.kind == "f" for a in args):
            want = f(*(a.astype(np.float64) for a in args)).astype(np.float32)
        # A sum of numbers that cancel is as exact as they are.
        return want, np.finfo(want.dtype).eps * LARGEST[name](want, *args) if name in LARGEST else 0.0


def edge_arguments(name, dtype):
    """All pairs or triples of edges; None where NumPy has no such loop, or bools and int8 become float16."""
    numbers, count = edges(np.dtype(dtype)), COUNT[name]
    numbers = numbers[::2] if count == 3 else numbers
    args = [np.ascontiguousarray(g) for g in np.meshgrid(*[numbers] * count)]
    if name == "ldexp" and dtype[0] == "f":
        args[1] = np.resize(
            [0, 1, -1, 60, -60, 1000, -1000, 1030, -1080, 2100, -2100, 2**31 - 1, -(2**31)], args[1].shape
        )
    if name == "pow" and dtype[0] == "i":
        args[1] = np.where(args[1] < 0, args[1].dtype.type(5), args[1])
    try:
        with np.errstate(all="ignore"):
            return args if is_native(registry[name].evaluate(*args).dtype) else None
    except TypeError:
        return None


def chosen_dtypes(name):
    """All of them, or one of the integers where they all become floating-point numbers first."""
    args = edge_arguments(name, "int64")
    with np.errstate(all="ignore"):
        floats = args is not None and registry[name].evaluate(*args).dtype.kind == "f"
    return ("float32", "float64", "int64") if floats and name not in CONVERTED else DTYPES


@pytest.mark.optimised
@pytest.mark.parametrize("name", NAMES)
def test_edges(name):
    """All dtypes in one function, which takes less time to compile than one by one."""
    every = [args for args in (edge_arguments(name, dtype) for dtype in chosen_dtypes(name)) if args is not None]
    f = bind(registry[name])
    compiled = wl.jit(lambda every: [f(*args) for args in every])
    assert not compiled.inspect(every).fallbacks
    for args, got in zip(every, compiled(every), strict=True):
        want, slack = expected(name, args)
        wrong = disagreements(got, want, slack)
        for place in wrong[:1]:
            at, few = tuple(place), f"({len(wrong)} such)"
            raise AssertionError(
                f"{name} {args[0].dtype}: {got[at]!r} for {[a[at] for a in args]}, eagerly {want[at]!r} {few}"
            )


def test_code_of_another_dtype_than_its_memory_is_refused():
    """It would write half of the memory, and nobody would notice."""
    e = Emitter(ir.Function("f"))
    for given, memory in (("float32", "float64"), ("int32", "uint32"), ("complex64", "float32"), ("bool", "uint8")):
        with pytest.raises(RuntimeError, match=f"puts {given} into memory of {memory}"):
            e.store(named("%x", np.dtype(given)), ir.Value(ir.POINTER, "%p"), np.dtype(memory))
    assert not e.f.body.lines


def test_a_rule_that_lowers_to_another_type_is_refused(monkeypatch):
    monkeypatch.setattr(registry["sin"], "lower", lambda builder, x: builder.convert(x, np.dtype(np.float32)))
    with pytest.raises(RuntimeError, match=r"sin is lowered to f32\[2\] instead of f64\[2\]"):
        wl.jit(lambda x: np.sin(x))(np.ones(2))


class TestOperators:
    """`x + y` of scalars is `e.add(x, y)`: to the letter, with numbers of Python too."""

    def written(self, f, *dtypes):
        e = Emitter(ir.Function("f"))
        result = f(e, *(named(f"%x{i}", np.dtype(d), e) for i, d in enumerate(dtypes)))
        return e.f.body.lines, result.dtype, [part.text for part in result.parts], e.cost

    @pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
    def test_arithmetic(self, dtype):
        by_operators = lambda e, x, y: 2.0 * x + y / (1 - abs(x).convert(x.dtype)) - (-y)

        def by_methods(e, x, y):
            double = e.mul(x, e.constant(2.0, x))
            quotient = e.div(y, e.sub(e.constant(1, x), e.convert(e.abs(x), x.dtype)))
            return e.sub(e.add(double, quotient), e.neg(y))

        assert self.written(by_operators, dtype, dtype) == self.written(by_methods, dtype, dtype)

    @pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
    def test_bits(self, dtype):
        by_operators = lambda e, x, y: (~x & y | 3) ^ x << 1 >> y

        def by_methods(e, x, y):
            left = e.bit_or(e.bit_and(e.invert(x), y), e.constant(3, x))
            return e.bit_xor(left, e.shift_right(e.shift_left(x, e.constant(1, x)), y))

        assert self.written(by_operators, dtype, dtype) == self.written(by_methods, dtype, dtype)

    @pytest.mark.parametrize("dtype", ["uint8", "int32", "float64", "complex128"])
    def test_conditions(self, dtype):
        by_operators = lambda e, x, y: where((x > 0) & x.differs(y) | (y <= 1), x, 7)

        def by_methods(e, x, y):
            both = e.bit_and(e.compare("gt", x, e.constant(0, x)), e.compare("ne", x, y))
            return e.select(e.bit_or(both, e.compare("le", y, e.constant(1, y))), x, e.constant(7, x))

        assert self.written(by_operators, dtype, dtype) == self.written(by_methods, dtype, dtype)

    def test_a_product_becomes_part_of_a_sum(self):
        lines, _, _, _ = self.written(lambda e, x, y: x * y + 1.0, "float64", "float64")
        assert "fmuladd" in lines[-1]

    def test_types_that_do_not_meet(self):
        with pytest.raises(TypeError, match="double meets float"):
            self.written(lambda e, x, y: x + y, "float64", "float32")
        with pytest.raises(Unsupported, match="no such operation on complex128"):
            self.written(lambda e, x, y: x + y, "float64", "complex128")


class TestIntegerPowers:
    def test_negative_exponents_raise_as_in_numpy(self):
        f = wl.jit(lambda x, y: x**y)
        x, y = np.array([1, 2, 3]), np.array([2, -1, 0])
        with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
            f(x, y)
        np.testing.assert_array_equal(f(x, np.abs(y)), x ** np.abs(y))
        with pytest.raises(ValueError, match="negative integer powers"):
            wl.jit(lambda x: x**-2)(x)

    def test_constant_exponents_and_wrapping(self):
        for dtype in (np.int8, np.uint16, np.int64):
            x = np.arange(-7, 9).astype(dtype)
            for n in (0, 1, 2, 3, 10, 61):
                f = wl.jit(lambda x: x**n)  # noqa: B023
                np.testing.assert_array_equal(f(x), x**n)
                assert not f.inspect(x).fallbacks

    def test_inside_a_loop(self):
        f = lambda x: wl.fori_loop(0, 5, lambda i, c: c + x ** (i % 3), np.zeros_like(x))
        x = np.arange(4)
        np.testing.assert_array_equal(wl.jit(f)(x), f(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
class TestCompositions:
    """A few special functions through the other parts of the engine."""

    X = np.linspace(0.15, 0.85, 37)

    def check(self, f, *args):
        compiled = wl.jit(f)
        assert not compiled.inspect(*args).fallbacks
        got, want = compiled(*args), f(*args)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-5 if want.dtype == np.float32 else 1e-12)

    @pytest.mark.parametrize("name", ["erfc", "erfinv", "erfcx", "log_ndtr", "gammaln", "digamma", "logit", "gamma"])
    def test_derivatives(self, name, dtype):
        function, x = getattr(sp, name), self.X.astype(dtype)
        f = lambda x: np.sum(function(x))
        self.check(wl.grad(f), x)
        self.check(wl.grad(lambda x: np.sum(wl.grad(f)(x) ** 2)), x)

    def test_derivatives_of_two_arguments(self, dtype):
        x, y = self.X.astype(dtype), self.X[::-1].astype(dtype)
        for f in (sp.rel_entr, sp.betaln, np.logaddexp2, np.hypot):
            self.check(wl.grad(lambda x, y: np.sum(f(x, y))), x, y)  # noqa: B023
            self.check(wl.grad(lambda x, y: np.sum(f(x, y)), 1), x, y)  # noqa: B023
        self.check(wl.grad(lambda y: np.sum(sp.gammainc(x, y))), y)
        self.check(wl.grad(lambda x: np.sum(np.remainder(x, 0.3) * np.sinc(x))), x)
        self.check(wl.grad(lambda x: np.sum(sp.jv(0, x) + sp.kv(1, x) + sp.iv(2, x))), x)

    def test_vmap(self, dtype):
        x, a = self.X.astype(dtype)[:36].reshape(4, 9), np.arange(1, 5).astype(dtype)
        self.check(wl.vmap(lambda x, a: sp.gammaincc(a, x) + sp.erfc(x) * sp.zeta(a + 1, x)), x, a)
        self.check(wl.vmap(wl.grad(lambda x: np.sum(sp.gammaln(x) * sp.erfcx(x)))), x)

    def test_in_scan(self, dtype):
        xs = self.X.astype(dtype)

        def loss(start, xs):
            step = lambda c, x: (0.5 * c + 0.3 * sp.erfc(x * c), sp.gammaln(2 + c) + sp.digamma(c + x) * sp.erfinv(x))
            c, ys = wl.scan(step, start, xs)
            return c + np.sum(ys)

        self.check(loss, xs[0], xs)
        self.check(wl.grad(loss, 1), xs[0], xs)

    def test_layouts(self, dtype):
        x = np.linspace(0.1, 3, 60).reshape(6, 10).astype(dtype)
        f = lambda x, y: sp.gammaln(x) + sp.beta(x, y) + np.floor_divide(x, y) + np.nextafter(x, y)
        self.check(f, x[::-1, ::2], x.T[::2, :6].T)
        self.check(f, x[:0], x[:0])
        self.check(f, x[1, 2], x[3, 4])
        self.check(f, x[:, :1], x[:1])
        large = np.resize(x, 20_000)
        self.check(f, large, large[::-1])
