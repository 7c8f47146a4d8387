"""Elementwise primitives compiled, at the edges of their dtypes: native code, and what NumPy and SciPy compute."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile.emitter import is_native
from wonderland.core.primitive import registry
from wonderland.core.tracer import Tracer, unwrap
from wonderland.testing import op_table

op_table.load()
COUNT = {row.name: len(row.operands) for row in op_table.TABLE}
COMPLEX = {"complex", "conj", "imag"}
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
DTYPES = ("float32", "float64", "bool", "int8", "int32", "int64", "uint8", "uint64")


def edges(dtype):
    """Zeros, ones, extremes, infinities, NaN, subnormal numbers."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        middle = [-64, -7, -3, -2, -1] if dtype.kind == "i" else []
        return np.array([info.min, info.min + 1, *middle, 0, 1, 2, 3, 6, 7, 8, 31, 63, 64, info.max - 1, info.max], dtype)
    info = np.finfo(dtype)
    small = [info.smallest_subnormal, info.tiny / 8, info.tiny, 1e-30]
    sizes = [0.0, *small, 0.1, 0.25, 0.4999, 0.5, 0.9, 1.0, 1.5, 2.0, 3.0, 4.75, 20.0, 171.5, 1e5, 1e30, info.max, np.inf]
    numbers = np.array(sizes, dtype)
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


def compare(name, args, **params):
    """Native, and as eager code has it; single precision as double precision has it, rounded."""
    f = bind(registry[name])
    compiled = wl.jit(lambda *x: f(*x, **params))
    assert not compiled.inspect(*args).fallbacks
    with np.errstate(all="ignore"):
        want = f(*args, **params)
        if want.dtype == np.float32 and name not in OWN and all(a.dtype.kind == "f" for a in args):
            want = f(*(a.astype(np.float64) for a in args), **params).astype(np.float32)
        # A sum of numbers that cancel is as exact as they are.
        slack = np.finfo(want.dtype).eps * LARGEST[name](want, *args) if name in LARGEST else 0.0
    got = compiled(*args)
    wrong = disagreements(got, want, slack)
    for place in wrong[:1]:
        at = tuple(place)
        raise AssertionError(
            f"{name} {args[0].dtype}: {got[at]!r} for {[a[at] for a in args]}, eagerly {want[at]!r} ({len(wrong)} such)"
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_edges(name, dtype):
    numbers, count = edges(np.dtype(dtype)), COUNT[name]
    numbers = numbers[::2] if count == 3 else numbers
    args = [np.ascontiguousarray(g) for g in np.meshgrid(*[numbers] * count)]
    if name == "ldexp" and dtype[0] == "f":
        args[1] = np.resize([0, 1, -1, 60, -60, 1000, -1000, 1030, -1080, 2100, -2100, 2**31 - 1, -(2**31)], args[1].shape)
    if name == "pow" and dtype[0] == "i":
        args[1] = np.where(args[1] < 0, args[1].dtype.type(5), args[1])
    try:
        with np.errstate(all="ignore"):
            out = registry[name].evaluate(*args)
    except TypeError:
        return  # NumPy has no such loop
    if is_native(out.dtype):  # bools and int8 become float16
        compare(name, args)
