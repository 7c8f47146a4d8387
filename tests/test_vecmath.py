"""Vector math against oracles in higher precision: errors in ulp, special values, vectorised loops."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import mpmath
import numpy as np
import pytest
from scipy import special

from wonderland.compile import ir, llvm, vecmath
from wonderland.compile.vecmath import functions as registered

pytestmark = pytest.mark.optimised
FLOAT = {"f32": np.float32, "f64": np.float64}
PAIRS = [(name, dtype) for name in vecmath.VECTOR_FUNCTIONS for dtype in FLOAT]
ONE_ARGUMENT = [name for name, count in vecmath.VECTOR_FUNCTIONS.items() if count == 1]
TWO_ARGUMENTS = [name for name, count in vecmath.VECTOR_FUNCTIONS.items() if count == 2]
BOUND = {"pow": 4.0, "erfc": 4.0, "erfcx": 4.0, "gammaln": 6.0, "digamma": 4.0, "erfcinv": 2.5}
# Of these NumPy has none in long double.
SPECIAL = {"erf", "erfc", "erfcx", "gammaln", "digamma", "erfcinv", "normal_quantile"}


def sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    # glibc's long double pow(-inf, -2^63) is infinite instead of zero: infinities go to the double function.
    in_double = np.power(x.astype(np.float64), y.astype(np.float64))
    return np.where(np.isinf(x) | np.isinf(y), in_double, np.power(x, y))


def exact_erfcinv(y: mpmath.mpf) -> mpmath.mpf:
    """By Newton's method on the logarithm, from SciPy's result."""
    if y > 1:
        return -exact_erfcinv(2 - y)
    x = mpmath.mpf(float(special.erfcinv(max(float(y), 1e-300))))
    for _ in range(8):
        tail = mpmath.erfc(x)
        x += mpmath.log(tail / y) * tail * mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(x * x)
    return x


# In the precision of the argument: float64 for float32 results, long double for float64 results.
ORACLE: dict[str, Callable[..., np.ndarray]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "sigmoid": sigmoid, "tanh": np.tanh, "sinh": np.sinh,
    "cosh": np.cosh, "erf": special.erf, "log": np.log, "log2": np.log2, "log1p": np.log1p, "pow": power,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "arctan": np.arctan, "arctan2": np.arctan2,
    "arcsin": np.arcsin, "arccos": np.arccos, "cbrt": np.cbrt,
    "log10": np.log10, "arcsinh": np.arcsinh, "arccosh": np.arccosh, "arctanh": np.arctanh,
    "hypot": np.hypot, "erfc": special.erfc, "erfcx": special.erfcx, "gammaln": special.gammaln,
    "digamma": special.digamma, "erfcinv": special.erfcinv, "normal_quantile": lambda p: 0.0 - special.ndtri(p),
}  # fmt: skip
EXACT: dict[str, Callable[..., mpmath.mpf]] = {
    "exp": mpmath.exp, "exp2": lambda x: mpmath.mpf(2) ** x, "expm1": mpmath.expm1,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)), "tanh": mpmath.tanh, "sinh": mpmath.sinh,
    "cosh": mpmath.cosh, "erf": mpmath.erf, "log": mpmath.log, "log2": lambda x: mpmath.log(x, 2),
    "log1p": mpmath.log1p, "pow": mpmath.power, "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan,
    "arctan": mpmath.atan, "arctan2": mpmath.atan2, "arcsin": mpmath.asin, "arccos": mpmath.acos,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), "log10": mpmath.log10,
    "arcsinh": mpmath.asinh, "arccosh": mpmath.acosh, "arctanh": mpmath.atanh, "hypot": mpmath.hypot,
    "erfc": mpmath.erfc, "erfcx": lambda x: mpmath.erfc(x) * mpmath.exp(x * x), "gammaln": mpmath.loggamma,
    "digamma": mpmath.digamma, "erfcinv": exact_erfcinv,
    "normal_quantile": lambda p: mpmath.sqrt(2) * exact_erfcinv(2 * p),
}  # fmt: skip


def loop(name: str, dtype: str, positive: bool = False) -> ir.Function:
    """The function on arrays; `positive`: of positive elements alone, by a branch."""
    type, count = ir.FLOATS[dtype], vecmath.VECTOR_FUNCTIONS[name]
    arrays = [(f"a{i}", "ptr noalias") for i in range(count)]
    f = ir.Function(f"loop_{name}_{dtype}", [*arrays, ("out", "ptr noalias"), ("n", "i64")], exported=True)
    *pointers, out, n = f.parameters
    with f.loop(0, n) as i:
        values = [f.load(type, f.element(type, pointer, i)) for pointer in pointers]
        result = lambda: f.call(vecmath.function(name, dtype), *values)
        chosen = f.choose(values[0] > 0.0, result, lambda: values[0]) if positive else result()
        f.store(chosen, f.element(type, out, i))
    return f


def module(pairs: list[tuple[str, str]]) -> ir.Module:
    made = ir.Module()
    for name, dtype in pairs:
        made.add(loop(name, dtype))
    return made


class Functions:
    """All functions on arrays, compiled."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.library = module(pairs).load()

    def __call__(self, name: str, dtype: str, *arrays: np.ndarray) -> np.ndarray:
        arrays = tuple(np.ascontiguousarray(array, FLOAT[dtype]) for array in arrays)
        out = np.empty_like(arrays[0])
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(arrays) + 1), ctypes.c_int64)
        native = signature(self.library.address(f"loop_{name}_{dtype}"))
        native(*[array.ctypes.data for array in arrays], out.ctypes.data, out.size)
        return out


@pytest.fixture(scope="module")
def functions() -> Functions:
    return Functions(PAIRS)


def ulp_errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """|got - want| in units of the last place of want in got's type; infinite where NaN or infinity is wrong.

    What lies beyond the largest float by half an ulp or more has to be infinite, and nothing else may be.
    """
    info = np.finfo(got.dtype)
    wide = want.dtype.type
    with np.errstate(all="ignore"):
        overflows = abs(want) >= wide(info.max) * (1 + wide(info.eps) / 4)
        exponent = np.frexp(want)[1]
        # frexp of numbers beyond the range is unspecified: those aren't compared by distance.
        unit = np.ldexp(wide(1), np.maximum(exponent - 1, info.minexp) - info.nmant)
        errors = (abs(got.astype(wide) - want) / unit).astype(np.float64)
        agrees = np.where(overflows, got == np.sign(want) * np.inf, np.isfinite(got))
    errors[overflows] = 0.0
    errors[~agrees] = np.inf
    errors[np.isnan(want)] = np.where(np.isnan(got[np.isnan(want)]), 0.0, np.inf)
    return errors


def check(name: str, got: np.ndarray, want: np.ndarray, *arguments: np.ndarray) -> None:
    errors = ulp_errors(got, want)
    worst = int(np.argmax(errors))
    at = [argument[worst] for argument in arguments]
    assert errors[worst] <= BOUND.get(name, 2.0), f"{name}{at!r}: {got[worst]!r}, exactly {want[worst]!r}"
    wrong = np.flatnonzero((want == 0) & (got == 0) & (np.signbit(got) != np.signbit(want)))
    assert not wrong.size, f"{name}: sign of zero at {[argument[wrong[:5]] for argument in arguments]}"


def specials(dtype: str) -> np.ndarray:
    """Special values, limits of ranges and of formulas, with their neighbours and negatives."""
    values = [
        0,
        0.3465735,
        0.5,
        0.5625,
        0.70710678,
        0.7853981,
        0.875,
        1,
        1.41421356,
        1.5,
        2,
        3,
        np.pi / 2,
        np.pi,
        3.95,
    ]
    values += [
        5.95,
        17,
        20,
        37,
        40,
        88.02969,
        88.72284,
        89.41599,
        103.9721,
        104,
        709.782712893384,
        710.4758600739439,
    ]
    values += [
        745.1332191019412,
        746,
        126,
        127,
        128,
        149,
        150,
        1022,
        1023,
        1024,
        1074,
        1075,
        np.inf,
        np.nan,
        1e22,
    ]
    values += [
        5e-324,
        1e-310,
        2.2250738585072014e-308,
        1e-45,
        1e-40,
        1.1754943508222875e-38,
        3.4028234663852886e38,
        1e300,
    ]
    values += [2.0**k for k in (-60, -30, 22, 23, 24, 25, 31, 39, 40, 41, 51, 52, 53, 54, 60, 63, 64)]
    with np.errstate(all="ignore"):
        centre = np.array(values).astype(FLOAT[dtype])
        up, down = np.nextafter(centre, FLOAT[dtype](np.inf)), np.nextafter(centre, FLOAT[dtype](-np.inf))
    positive = np.concatenate([centre, up, down])
    return np.concatenate([positive, -positive])


def samples(dtype: str, count: int, seed: int) -> np.ndarray:
    """Random bit patterns, and more where functions change."""
    rng = np.random.default_rng(seed)
    bits = np.uint32 if dtype == "f32" else np.uint64
    any_bits = rng.integers(0, np.iinfo(bits).max, count, dtype=bits, endpoint=True).view(FLOAT[dtype])
    ranges = [rng.uniform(-width, width, count) for width in (0.7, 2, 10, 110 if dtype == "f32" else 760)]
    near_one = 1 + rng.normal(size=count) * 10.0 ** rng.uniform(-8, 0, count)
    return np.concatenate([any_bits, specials(dtype), *[x.astype(FLOAT[dtype]) for x in [*ranges, near_one]]])


def pairs_of_samples(dtype: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Any two samples, all pairs of special values, and powers that come near overflow and underflow."""
    x, y = samples(dtype, count, 1), np.random.default_rng(3).permutation(samples(dtype, count, 2))
    first, second = (grid.ravel() for grid in np.meshgrid(specials(dtype), specials(dtype)))
    rng = np.random.default_rng(4)
    base = np.exp(rng.uniform(-20, 20, count))
    exponent = rng.uniform(-1.07, 1.07, count) * (88 if dtype == "f32" else 709) / np.log(base)
    near_one = 1 + rng.uniform(-1e-3, 1e-3, count)
    large = rng.uniform(-1.07, 1.07, count) * (88 if dtype == "f32" else 709) / np.log(near_one)
    groups = [(x, y), (first, second), (base, exponent), (near_one, large)]
    with np.errstate(over="ignore"):
        columns = [np.concatenate([group[i].astype(FLOAT[dtype]) for group in groups]) for i in (0, 1)]
    return columns[0], columns[1]


def arguments_of(name: str, dtype: str, count: int) -> tuple[np.ndarray, ...]:
    return pairs_of_samples(dtype, count) if name in TWO_ARGUMENTS else (samples(dtype, count, 0),)


@pytest.mark.parametrize("name", vecmath.VECTOR_FUNCTIONS)
def test_float32_within_ulps_of_float64(functions: Functions, name: str) -> None:
    arguments = arguments_of(name, "f32", 200_000)
    with np.errstate(all="ignore"):
        want = ORACLE[name](*[x.astype(np.float64) for x in arguments])
    check(name, functions(name, "f32", *arguments), want, *arguments)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than double here")
@pytest.mark.parametrize("name", [name for name in vecmath.VECTOR_FUNCTIONS if name not in SPECIAL])
def test_float64_within_ulps_of_long_double(functions: Functions, name: str) -> None:
    arguments = arguments_of(name, "f64", 60_000)
    with np.errstate(all="ignore"):
        want = ORACLE[name](*[x.astype(np.longdouble) for x in arguments])
    check(name, functions(name, "f64", *arguments), want, *arguments)


def exact(name: str, *arguments: np.ndarray) -> Iterator[mpmath.mpf]:
    with mpmath.workprec(1200 if name in ("sin", "cos", "tan") else 160):
        for numbers in zip(*arguments, strict=True):
            yield EXACT[name](*[mpmath.mpf(float(number)) for number in numbers])


@pytest.mark.parametrize("name", vecmath.VECTOR_FUNCTIONS)
def test_float64_within_ulps_of_mpmath(functions: Functions, name: str) -> None:
    """Fewer points, and an oracle that shares nothing with libm."""
    rng = np.random.default_rng(5)
    if name in ("arcsin", "arccos", "arctanh"):
        x = rng.uniform(-1, 1, 500)
    elif name == "arccosh":
        x = 1 + np.exp(rng.uniform(-30, 30, 500))
    elif name in ("gammaln", "digamma"):  # right of the poles, between which both are differences
        x = np.concatenate(
            [rng.uniform(0, 30, 400), 1 + rng.normal(size=50) * 1e-5, 10.0 ** rng.uniform(-300, 300, 100)]
        )
    elif name == "erfc":
        x = rng.uniform(-6, 26.5, 500)
    elif name == "erfcinv":
        x = np.concatenate([rng.uniform(0, 2, 300), np.exp(rng.uniform(-744, 0, 200)), 1 + rng.normal(size=99) * 1e-5])
    elif name == "normal_quantile":
        x = np.concatenate([rng.uniform(0, 1, 500), np.exp(rng.uniform(-740, 0, 200)), 0.5 + rng.normal(size=9) * 1e-5])
    elif name in ("log", "log2", "log10", "pow"):
        x = np.exp(rng.uniform(-30, 30, 400))
    elif name == "log1p":
        x = np.concatenate([rng.uniform(-0.999, 3, 300), np.exp(rng.uniform(-30, 30, 100))])
    else:
        x = np.concatenate([rng.uniform(-8, 8, 300), rng.uniform(0.8, 1.0, 200), rng.normal(size=100) * 1e-5])
    if name in ("sin", "cos", "tan"):
        # Among them the double closest to a multiple of pi/2.
        x = np.concatenate(
            [x, [6381956970095103.0 * 2.0**797, 1e22, 2.0**40, 1.7e308], 10.0 ** rng.uniform(5, 308, 300)]
        )
    arguments = (x, rng.uniform(-23, 23, x.size))[: vecmath.VECTOR_FUNCTIONS[name]]
    got = functions(name, "f64", *arguments)
    for i, want in enumerate(exact(name, *arguments)):
        error = abs(mpmath.mpf(float(got[i])) - want) / float(np.spacing(abs(float(want))))
        assert error <= BOUND.get(name, 2.0), f"{name}{[a[i] for a in arguments]}: {got[i]!r}, exactly {want}"


@pytest.mark.parametrize("dtype", FLOAT)
def test_special_values_are_numpys(functions: Functions, dtype: str) -> None:
    inf, nan = np.inf, np.nan
    table = {
        "exp": [(-inf, 0.0), (inf, inf), (0.0, 1.0), (-0.0, 1.0)],
        "expm1": [(-inf, -1.0), (inf, inf), (0.0, 0.0), (-0.0, -0.0)],
        "exp2": [(-inf, 0.0), (inf, inf), (3.0, 8.0), (-1.0, 0.5)],
        "sigmoid": [(-inf, 0.0), (inf, 1.0), (0.0, 0.5)],
        "tanh": [(-inf, -1.0), (inf, 1.0), (0.0, 0.0), (-0.0, -0.0)],
        "sinh": [(-inf, -inf), (inf, inf), (0.0, 0.0), (-0.0, -0.0)],
        "cosh": [(-inf, inf), (inf, inf), (0.0, 1.0)],
        "erf": [(-inf, -1.0), (inf, 1.0), (0.0, 0.0), (-0.0, -0.0)],
        "log": [(0.0, -inf), (-0.0, -inf), (inf, inf), (-1.0, nan), (-inf, nan), (1.0, 0.0)],
        "log2": [(0.0, -inf), (inf, inf), (-1.0, nan), (8.0, 3.0), (2.0**-126, -126.0)],
        "log1p": [(-1.0, -inf), (inf, inf), (-2.0, nan), (-inf, nan), (0.0, 0.0), (-0.0, -0.0)],
        "sin": [(inf, nan), (-inf, nan), (0.0, 0.0), (-0.0, -0.0)],
        "cos": [(inf, nan), (-inf, nan), (0.0, 1.0), (-0.0, 1.0)],
        "tan": [(inf, nan), (-inf, nan), (0.0, 0.0), (-0.0, -0.0)],
        "arctan": [(inf, np.pi / 2), (-inf, -np.pi / 2), (1.0, np.pi / 4), (0.0, 0.0), (-0.0, -0.0)],
        "arcsin": [(inf, nan), (-inf, nan), (1.5, nan), (1.0, np.pi / 2), (0.0, 0.0), (-0.0, -0.0)],
        "arccos": [(inf, nan), (-inf, nan), (-1.5, nan), (1.0, 0.0), (-1.0, np.pi), (0.0, np.pi / 2)],
        "log10": [(0.0, -inf), (inf, inf), (-1.0, nan), (1000.0, 3.0), (1.0, 0.0)],
        "arcsinh": [(inf, inf), (-inf, -inf), (0.0, 0.0), (-0.0, -0.0)],
        "arccosh": [(inf, inf), (-inf, nan), (0.5, nan), (-2.0, nan), (1.0, 0.0)],
        "arctanh": [(1.0, inf), (-1.0, -inf), (1.5, nan), (inf, nan), (0.0, 0.0), (-0.0, -0.0)],
        "erfc": [(-inf, 2.0), (inf, 0.0), (0.0, 1.0), (-0.0, 1.0)],
        "erfcx": [(-inf, inf), (inf, 0.0), (0.0, 1.0), (-30.0, inf)],
        "gammaln": [(inf, inf), (0.0, inf), (-0.0, inf), (-3.0, inf), (1.0, 0.0), (2.0, 0.0), (-inf, -inf)],
        "digamma": [(inf, inf), (0.0, -inf), (-0.0, inf), (-3.0, nan)],
        "erfcinv": [(0.0, inf), (-0.0, inf), (2.0, -inf), (1.0, -0.0), (-1.0, nan), (2.5, nan), (inf, nan)],
        "normal_quantile": [(0.0, inf), (-0.0, inf), (1.0, -inf), (-1.0, nan), (1.5, nan), (inf, nan)],
        "cbrt": [(inf, inf), (-inf, -inf), (27.0, 3.0), (0.0, 0.0), (-0.0, -0.0)],
    }
    for name, rows in table.items():
        x, want = np.array([*rows, (nan, nan)], FLOAT[dtype]).T
        got = functions(name, dtype, x)
        np.testing.assert_array_equal(got, want, err_msg=name)
        np.testing.assert_array_equal(np.signbit(got[:-1])[want[:-1] == 0], np.signbit(want[:-1])[want[:-1] == 0], name)


@pytest.mark.parametrize("dtype", FLOAT)
def test_pow_special_values_are_cs(functions: Functions, dtype: str) -> None:
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 5, 2.0**23 + 1, 2.0**24, 2.0**52 + 1, 2.0**53, 1e38, np.inf, np.nan]
    signed = np.array([*values, *[-value for value in values]], FLOAT[dtype])
    x, y = (grid.ravel() for grid in np.meshgrid(signed, signed))
    got = functions("pow", dtype, x, y)
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    for test in (np.isnan, np.isinf, np.signbit, lambda z: z == 0, lambda z: z == 1):
        keep = slice(None) if test is np.isnan else ~np.isnan(want)
        np.testing.assert_array_equal(test(got)[keep], test(want)[keep])


def test_exact_results_are_exact(functions: Functions) -> None:
    for dtype, low, high in (("f32", -149, 127), ("f64", -1074, 1023)):
        n = np.arange(low, high + 1).astype(FLOAT[dtype])
        powers = np.ldexp(FLOAT[dtype](1), n.astype(int))
        np.testing.assert_array_equal(functions("exp2", dtype, n), powers)
        np.testing.assert_array_equal(functions("log2", dtype, powers), n)
        np.testing.assert_array_equal(functions("pow", dtype, np.full_like(n, 2), n), powers)
        digits = np.arange(0, 11 if dtype == "f32" else 23).astype(FLOAT[dtype])
        np.testing.assert_array_equal(functions("log10", dtype, 10.0**digits), digits)
        small = np.arange(-12, 13).astype(FLOAT[dtype])
        for exponent in (1, 2, 3):
            np.testing.assert_array_equal(
                functions("pow", dtype, small, np.full_like(small, exponent)), small**exponent
            )


def test_float32_tanh_at_its_worst(functions: Functions) -> None:
    """All floats just below 1/8, 1/4 and 1/2 in the result, where the roundings of the quotient weigh most."""
    for centre in (0.1256, 0.2554, 0.5190):
        middle = int(np.float32(centre).view(np.uint32))
        x = np.arange(middle - 50_000, middle + 50_000, dtype=np.uint32).view(np.float32)
        got = functions("tanh", "f32", x)
        check("tanh", got, np.tanh(x.astype(np.float64)), x)
        np.testing.assert_array_equal(functions("tanh", "f32", -x), -got)


def calls_of_optimised(function: ir.Function) -> set[str]:
    """What the optimised function calls."""
    module = ir.Module()
    module.add(function)
    optimised = str(llvm.optimize(module.text()))
    body = re.search(rf"define[^\n]*@{function.name}\(.*?^}}", optimised, re.DOTALL | re.MULTILINE)
    assert body, f"{function.name} is gone"
    return set(re.findall(r"call [^@\n]*@([\w.]+)\(", body[0]))


needs_fma = pytest.mark.skipif(
    platform.machine() == "x86_64" and llvm.vector_bytes() < 32, reason="without FMA nothing vectorises"
)


@needs_fma
@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_loop_is_vectorised(name: str, dtype: str) -> None:
    calls = calls_of_optimised(loop(name, dtype))
    foreign = {call for call in calls if not call.startswith(("llvm.", "wl_"))}
    assert not foreign, f"calls {foreign}"
    assert any(re.fullmatch(r"llvm\.fma\.v\d+f(32|64)", call) for call in calls)


@needs_fma
def test_loop_with_a_branch_is_vectorised() -> None:
    """Functions that call another one for large arguments too: it may run where the branch isn't taken."""
    calls = calls_of_optimised(loop("sin", "f64", positive=True))
    assert any(call.startswith("llvm.fma.v") for call in calls)


def test_a_module_has_what_its_functions_need_once() -> None:
    text = module([("sin", "f32"), ("cos", "f32"), ("sin", "f64"), ("exp", "f64")]).text()
    defined = re.findall(r"(?:define|declare) .*?@([\w.]+)\(", text) + re.findall(r"^@(\w+) =", text, re.MULTILINE)
    assert len(defined) == len(set(defined))
    assert {"wl_sin_f32", "wl_sin_large_f32_v8", "wl_cos_f32", "wl_exp_f64", "wl_two_over_pi"} <= set(defined)


def test_a_function_registers_by_decorator(monkeypatch) -> None:
    """It is written once for each type, inlined if it is straight, and knows what it needs and costs."""
    monkeypatch.setattr(registered, "WRITERS", dict(registered.WRITERS))
    monkeypatch.setattr(registered, "VECTOR_FUNCTIONS", dict(registered.VECTOR_FUNCTIONS))
    monkeypatch.setattr(registered, "_written", {})

    @registered.vector_function
    def times_exp(x: ir.Value, y: ir.Value) -> ir.Value:
        return x * registered.call("exp", y)

    @registered.routine(cost=99)
    def halved(most: float, x: ir.Value) -> ir.Value:
        """Until it is small."""
        return x.code.repeat([x], lambda x: ([x * 0.5], x * 0.5 > most))[0]

    made = registered.function("times_exp", "f32")
    assert made is registered.function("times_exp", "f32") is not registered.function("times_exp", "f64")
    assert (made.name, made.returns, made.attributes, made.cost) == ("wl_times_exp_f32", "float", "alwaysinline", 12)
    assert list(made.needs) == ["wl_exp_f32"]
    assert registered.VECTOR_FUNCTIONS["times_exp"] == 2

    made = registered.written("halved", ("double",), (3.0,))
    assert (made.attributes, made.cost) == ("noinline", 99)
    exported = ir.Function("halved", [("x", "double")], "double", exported=True)
    exported.ret(exported.call(made, *exported.parameters))
    together = ir.Module()
    together.add(exported)
    library = together.load()
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(library.address("halved"))(20.0) == 2.5


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names an x86 CPU")
def test_right_without_fma_instructions() -> None:
    """The oldest x86-64: `llvm.fma` becomes a call to libm."""
    program = """
import numpy as np
from tests.test_vecmath import Functions, FLOAT, ORACLE, ulp_errors
pairs = [(n, d) for n in ("exp", "log", "sin", "pow") for d in FLOAT]
functions = Functions(pairs)
x = np.linspace(0.01, 80, 500)
for name, dtype in pairs:
    arguments = (x, x / 80)[: 2 if name == "pow" else 1]
    arguments = [a.astype(FLOAT[dtype]) for a in arguments]
    want = ORACLE[name](*[a.astype(np.longdouble) for a in arguments])
    assert ulp_errors(functions(name, dtype, *arguments), want).max() < 2, (name, dtype)
"""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = os.environ | {"WONDERLAND_CPU": "x86-64", "PYTHONPATH": root}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_every_float32(functions: Functions, name: str) -> None:
    step = 1 << 22
    for start in range(0, 1 << 32, step):
        x = (np.arange(step, dtype=np.uint32) + np.uint32(start)).view(np.float32)
        with np.errstate(all="ignore"):
            want = ORACLE[name](x.astype(np.float64))
        check(name, functions(name, "f32", x), want, x)
