"""Every row of the op table, in its dtypes, shapes and layouts, against every check; and adding a row."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.compile.scalars import is_native
from wonderland.core import tree
from wonderland.core.primitive import registry
from wonderland.ops.elementwise import elementwise, mul
from wonderland.ops.reduce import spread, sum
from wonderland.testing import check_grads, check_operator, op_table
from wonderland.testing.check_grads import is_inexact
from wonderland.testing.compiled_checks import WIDER, check_compiled, check_special_values, compare_compiled
from wonderland.testing.op_checks import (
    CHECKS,
    check_batch,
    check_batched_gradient,
    check_forward,
    check_mixed_dtypes,
    check_pattern,
    check_programs,
    check_reverse,
    check_second_order,
    check_value,
)
from wonderland.testing.op_samples import assert_close, mixed_samples, of_each_kind, samples
from wonderland.testing.op_table import TABLE
from wonderland.testing.samples import LAYOUTS, case, reals

op_table.load()

ROWS = [(row, dtype) for row in TABLE for dtype in row.dtype_names()]
COMPILED = [(row, dtype) for row, dtype in ROWS if dtype in ("float32", "float64", "complex128", "int64", "bool")]
NATIVE = [  # one dtype by all of LLVM's passes; the slow run has all by all
    pytest.param(row, dtype, marks=getattr(pytest.mark, "optimised" if dtype == "float64" else "slow"))
    if dtype in ("float32", "float64", "int32", "complex64")
    else (row, dtype)
    for row, dtype in ROWS
    if "recording" not in row.excluded
]


def name(value):
    return value.__name__.removeprefix("check_") if callable(value) else str(value).replace(" ", "_")


@pytest.mark.parametrize(("row", "dtype"), ROWS, ids=name)
def test_rules(row, dtype):
    """Each failure names the check and the sample. `test_everything` has all checks in all layouts and precisions.

    Derivatives and batches of shapes that differ in sizes alone are the same code in every dtype: one dtype has all.
    What is made of first derivatives and batches needs one shape of each kind.
    """
    first = dtype == "float64" or "f" not in row.dtypes
    for check in checks_of(row, dtype):
        if check is check_value or (first and check is check_forward):
            chosen = samples(row, [dtype])
        elif first and check not in (check_second_order, check_batched_gradient):
            chosen = samples(row, [dtype], LAYOUTS[:1])
        else:
            chosen = of_each_kind(row, dtype)
        for sample in chosen:
            check(sample)


def checks_of(row, dtype):
    """Single precision is another dtype of values, tangents and cotangents; all else is the same code as in double.

    So is, in complex numbers, what is made of batches; and patterns have no dtype.
    """
    if dtype[0] not in "fc" or "derivatives" in row.excluded:
        return (check_value,) if dtype == "int32" else (check_value, check_batch, check_programs)
    if dtype in ("float32", "complex64"):
        return check_value, check_forward, check_reverse
    if dtype == "complex128" and "f" in row.dtypes:
        return [check for check in CHECKS if check not in (check_batched_gradient, check_pattern)]
    return CHECKS


@pytest.mark.parametrize(("row", "dtype"), COMPILED, ids=name)
def test_compiled(row, dtype):
    """The largest case, and not contiguous; batches, which all dtypes have alike, in one. The slow run has all."""
    layout = {"float64": "transposed", "complex128": "reversed", "int64": "reversed"}.get(dtype, "strided")
    for sample in samples(row, [dtype], (layout,)):
        check_compiled(sample, batched=dtype == "float64" or "f" not in row.dtypes)


# What NumPy and SciPy evaluate between native code: decompositions and what is made of them, FFTs.
EVALUATED = set("lstsq adjugate adjugate_tangent expm expm_tangent eig svd fft rfft irfft sparse_solve".split())
EVALUATED_COMPLEX = EVALUATED | set(
    "solve lu lu_solve cholesky_or_nan cholesky slogdet det eigh qr triangular_solve banded_solve sparse_dot sort "
    "argsort argmax sinc prod cumprod cumsum recurrence erf erfc erfi bessel_i bessel_ie bessel_j bessel_y bessel_k "
    "bessel_ke".split()
)


@pytest.mark.parametrize(("row", "dtype"), NATIVE, ids=name)
def test_all_cases_are_native(row, dtype):
    """The shapes and parameters of a row compiled as one function, which takes less time than one by one."""
    cases = list(samples(row, [dtype], LAYOUTS[:1]))
    args = [s.args() for s in cases]
    f = lambda *every: [tree.leaves(s.function(*a)) for s, a in zip(cases, every, strict=True)]
    jitted = wl.jit(f)
    with np.errstate(all="ignore"):
        expected, actual = f(*args), jitted(*args)
        for s, a, e in zip(cases, actual, expected, strict=True):
            assert_close(a, e, f"{s}: jit", s.tolerance)
    if all(is_native(np.result_type(out)) for out in tree.leaves(expected)):
        assert set(jitted.inspect(*args).fallbacks) <= (EVALUATED_COMPLEX if dtype[0] == "c" else EVALUATED)


ELEMENTWISE = [row for row in TABLE if registry[row.name].elementwise]


@pytest.mark.parametrize("row", [row for row in ELEMENTWISE if len(row.operands) > 1], ids=name)
def test_mixed_dtypes(row):
    for sample in mixed_samples(row):
        check_mixed_dtypes(sample)


@pytest.mark.optimised
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("row", [row for row in ELEMENTWISE if "f" in row.dtypes], ids=name)
def test_special_values_compiled(row, dtype):
    check_special_values(row, dtype)


def bits(out):
    """How many bits its longest number has: 24, 53, 64."""
    halves = [part[np.isfinite(part)] for part in (np.real(out), np.imag(out))]
    fits = lambda dtype: all(np.array_equal(half, half.astype(dtype)) for half in halves)
    return 24 if fits("float32") else 53 if fits("float64") else 64


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_a_wider_evaluation_is_wider(dtype):
    """What `check_compiled` takes for exact isn't eager's own value again, of which the error is zero."""
    declared = {"higher precision", "recording"}
    found = []
    for row in (*TABLE, *op_table.NUMPY):
        if row.name in ("convert", "np.astype", "np.empty_like") or str(row) == "np.concatenate (dtype)":
            continue  # to another dtype
        outs = []
        for sample in samples(row, [dtype], LAYOUTS[:1]) if not declared & set(row.excluded) else ():
            args = [a * (1 + np.longdouble(2) ** -58) if is_inexact(a) else a for a in sample.args(WIDER[dtype])]
            with np.errstate(all="ignore"):
                outs += [out for out in tree.leaves(sample.function(*args)) if is_inexact(out)]
        if max(map(bits, outs), default=0) == 53:
            found.append(str(row))
    assert not found, f'to be declared as excluded={{"higher precision": why}}: {found}'


class TestComparingCompiledCode:
    """A limit that is zero, infinite or NaN by luck is none."""

    def test_an_overflow_hides_no_error(self):
        f = lambda x: np.exp(x) * (1.0 if type(x) is np.ndarray else 1.001)
        x = np.array([100.0, 1.0], np.float32)
        with np.errstate(over="ignore"), pytest.raises(AssertionError, match="instead of"):
            compare_compiled(f, (x,), (x.astype(np.float64),), "exp", 0.0)

    def test_infinite_and_undefined_values_are_as_in_numpy(self):
        x = np.array([-1, -2, 1, 2])
        with np.errstate(all="ignore"):
            compare_compiled(np.log1p, (x,), (x,), "log1p", 0.0)
            with pytest.raises(AssertionError, match="instead of"):
                wrong = lambda x: np.log1p(x) * (1.0 if type(x) is np.ndarray else -1.0)
                compare_compiled(wrong, (x[:1],), (x[:1],), "-log1p", 0.0)

    @pytest.mark.parametrize(("excess", "fair"), [(1, True), (100, False)])
    def test_where_eager_happens_to_be_exact(self, excess, fair):
        """(x + 1) - 1 keeps few digits of a small number; at powers of two, all."""
        eps = np.finfo(np.float64).eps
        f = lambda x: ((x + 1) - 1) + (0.0 if type(x) is np.ndarray else excess * eps)
        x = np.array([2.0**-20])
        if fair:
            compare_compiled(f, (x,), (x.astype(np.longdouble),), "f", 0.0)
        else:
            with pytest.raises(AssertionError, match="usually right to"):
                compare_compiled(f, (x,), (x.astype(np.longdouble),), "f", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("row", TABLE, ids=name)
def test_everything(row):
    check_operator(row, compiled=True)


@pytest.fixture
def temporary():
    """Operators made in a test are gone after it."""
    names, rows = set(registry), list(TABLE)
    yield
    for added in set(registry) - names:
        del registry[added]
    TABLE[:] = rows


def test_adding_an_operator_is_one_block_and_one_row(temporary):
    new_cosh = elementwise("new_cosh", np.cosh, (lambda out, x: new_sinh(x),))
    new_sinh = elementwise("new_sinh", np.sinh, (lambda out, x: new_cosh(x),))
    check_operator(op_table.add("new_sinh", reals, reference=np.sinh), compiled=True)


@pytest.mark.parametrize(
    ("derivative", "message"),
    [
        (lambda out, x: out, "central differences"),
        (lambda out, x: registry["stop_gradient"](registry["cos"](x)), r"v\^T H u"),
        (lambda out, x: registry["convert"](x, dtype=np.dtype("float32")), "dtype|central differences"),
    ],
)
def test_a_wrong_rule_is_found(temporary, derivative, message):
    elementwise("wrong", np.sin, (derivative,))
    with pytest.raises(AssertionError, match=message):
        check_operator(op_table.add("wrong", reals), dtypes=["float64"])


def test_a_wrong_transpose_batch_pattern_and_infer_are_found(temporary):
    def fault(dtypes=("float64",), reference=None, **rules):
        kept = {k: getattr(sum, k) for k in ("infer", "transpose", "batch", "pattern")}
        wl.Primitive("wrong", sum.evaluate, linear=(0,), **{**kept, **rules})
        row = op_table.add("wrong", reals, cases=[case((3, 4), axes=(1,))], reference=reference)
        with pytest.raises((AssertionError, ValueError)) as caught:
            check_operator(row, dtypes=dtypes)
        return str(caught.value)

    assert "<vjp, t>" in fault(transpose=lambda ct, x, axes: (spread(mul(2.0, ct), x.shape, axes),))
    assert "vmap" in fault(batch=lambda size, args, batched, axes: sum(args[0], axes=axes))
    assert "misses" in fault(pattern=lambda types, params: [(np.array([0]), np.array([0]))])
    assert "inferred" in fault(infer=lambda x, axes: x)
    assert "the value" in fault(reference=lambda x, axes: np.sum(x, axes) + 1)


class TestCheckGrads:
    def test_accepts_right_derivatives_of_trees(self):
        f = lambda x, tree: {"a": np.sin(x) * tree["w"], "b": np.sum(tree["v"] ** 3) * tree["n"]}
        check_grads(f, (np.linspace(0.1, 1, 3), {"w": np.ones(3), "v": np.array([0.3, 0.7]), "n": 3}), order=3)

    @pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
    def test_accepts_right_derivatives_in(self, dtype):
        x = (np.linspace(0.3, 1.5, 6).reshape(2, 3) * (1 + 0.4j if dtype == "complex128" else 1)).astype(dtype)
        check_grads(lambda x: np.exp(np.sin(x)) / x + np.abs(x), (x,))

    def test_accepts_python_scalars_and_no_elements(self):
        check_grads(lambda x, y: x * y**2, (2.0, np.ones(3)))
        check_grads(np.sin, (np.ones((0, 3)),))

    def test_names_mode_order_argument_and_numbers(self):
        @wl.custom_jvp
        def f(x, y):
            return np.sin(x) * y

        @f.defjvp
        def rule(primals, tangents):
            (x, y), (s, t) = primals, tangents
            return f(x, y), np.cos(x) * s * y * 1.01 + np.sin(x) * t

        with pytest.raises(AssertionError, match=r"forward mode is wrong, order 1 \(forward\), in argument 0 .*jvp"):
            check_grads(f, (np.ones(3), np.ones(3)))

    def test_finds_a_wrong_reverse_mode(self):
        @wl.custom_vjp
        def f(x, y):
            return np.sin(x) * y

        f.defjvp(lambda p, t: (f(*p), np.cos(p[0]) * t[0] * p[1] + np.sin(p[0]) * t[1]))
        f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (np.cos(r[0]) * r[1] * ct, 2 * np.sin(r[0]) * ct))
        with pytest.raises(AssertionError, match=r"reverse mode is wrong, order 1 .* in argument 1 .*<cotangent"):
            check_grads(f, (np.ones(3), np.ones(3)), order=1)

    def test_reverse_mode_alone_needs_no_forward_mode(self):
        @wl.custom_vjp
        def f(x, y):
            return np.sin(x) * y

        point = (np.linspace(0.3, 1, 3), np.ones(3))
        f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (np.cos(r[0]) * r[1] * ct, np.sin(r[0]) * ct))
        check_grads(f, point, modes=("reverse",))
        f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (np.cos(r[0]) * r[1] * ct, 1.01 * np.sin(r[0]) * ct))
        with pytest.raises(AssertionError, match=r"reverse mode is wrong, order 1 .* in argument 1 .*differences"):
            check_grads(f, point, modes=("reverse",))

    def test_finds_a_fault_of_second_order_only(self):
        @wl.custom_jvp
        def f(x):
            return np.sin(x)

        f.defjvp(lambda p, t: (f(*p), np.cos(wl.stop_gradient(p[0])) * t[0]))
        check_grads(f, (np.ones(2),), order=1)
        with pytest.raises(AssertionError, match="order 2"):
            check_grads(f, (np.ones(2),), order=2)

    @pytest.mark.parametrize("modes", [("forward", "reverse"), ("reverse",)])
    @pytest.mark.parametrize(("dtype", "distance"), [("float64", 1e-4), ("float64", -1e-6), ("float32", 1e-2)])
    @pytest.mark.parametrize(
        "f",
        [
            lambda x: np.maximum(x, 0.0) + 1.0,
            np.abs,
            lambda x: np.sum(np.where(x > 0, x**3 + 2 * x, np.sin(x))) + 3.0,
            lambda x: np.max(x) * np.sum(x),
        ],
        ids=["relu", "abs", "piecewise", "max"],
    )
    def test_a_kink_nearby_does_no_harm(self, f, dtype, distance, modes):
        check_grads(f, (np.array([distance, 2 * distance, -0.7, -1.2], dtype),), modes=modes)

    @pytest.mark.parametrize("modes", [("forward", "reverse"), ("reverse",)])
    @pytest.mark.parametrize(
        ("f", "x", "kind"),
        [
            (lambda x: np.where(x >= 0, 2 * x, -x), np.array([0.5, 0.0]), "kink"),
            (lambda x: np.where(x >= 0, 2 * x, -x) + 1.0, np.array([0.5, 1e-12]), "kink"),
            (np.max, np.array([1.0, 1.0, 0.3, 1.0]), "kink"),
            (np.abs, np.array([0.0, -0.4]), "jump"),  # the derivative at 0, 0, is as good as any; then it jumps
            (lambda x: np.floor(x), np.array([0.5, 2.0]), "jump"),
        ],
        ids=["relu-like", "within rounding", "ties", "abs", "floor"],
    )
    def test_a_kink_is_called_one(self, f, x, kind, modes):
        message = rf"mode can't be checked, order \d .* in argument 0 .* a {kind}\? .* on either side are .* and "
        with pytest.raises(AssertionError, match=message):
            check_grads(f, (x,), modes=modes)

    @pytest.mark.parametrize("modes", [("forward", "reverse"), ("reverse",)])
    @pytest.mark.parametrize("factor", [0.0, 0.5, 1.00001, -3.0])
    @pytest.mark.parametrize("constant", [0.0, 1e6])
    def test_a_wrong_gradient_is_blamed(self, factor, constant, modes):
        """However small the derivative is beside the value, and wherever the kinks are."""
        f = wl.custom_jvp(lambda x: np.maximum(x, 0.0) * x + constant)
        f.defjvp(lambda p, t: (f(*p), 2 * factor * np.maximum(p[0], 0.0) * t[0]))
        with pytest.raises(AssertionError, match=f"{modes[0]} mode is wrong, order 1 .* they differ by"):
            check_grads(f, (np.array([1.3, -0.4, 1e-5, 700.0]),), modes=modes)

    @pytest.mark.parametrize("modes", [("forward", "reverse"), ("reverse",)])
    def test_a_wrong_gradient_on_a_kink_is_blamed(self, modes):
        """The slopes on either side are 0 and 1: a gradient of 2 is neither, nor between them."""
        f = wl.custom_jvp(lambda x: np.maximum(x, 0.0))
        f.defjvp(lambda p, t: (f(*p), 2.0 * t[0]))
        with pytest.raises(AssertionError, match=f"{modes[0]} mode is wrong, order 1"):
            check_grads(f, (np.array([0.0]),), modes=modes)

    def test_a_domain_that_ends_nearby_does_no_harm(self):
        with np.errstate(invalid="ignore"):
            check_grads(np.sqrt, (np.array([1e-4, 2.0]),), order=1)
            check_grads(np.sqrt, (np.array([1e-9]),))
            for modes in (("forward",), ("reverse",)):
                check_grads(np.log, (np.array([1e-8, 2.0]),), order=1, modes=modes)

    @pytest.mark.parametrize("f, x", [(np.sqrt, 0.0), (np.arcsin, 1.0), (np.log, -1.0)])
    def test_the_edge_of_a_domain_is_called_one(self, f, x):
        message = r"mode can't be checked, order 1 .* the edge of the domain\? .* on either side are .* and "
        with np.errstate(all="ignore"), pytest.raises(AssertionError, match=message):
            check_grads(f, (np.array([0.5, x]),))

    def test_a_wrong_gradient_near_the_edge_of_a_domain_is_blamed(self):
        f = wl.custom_jvp(lambda x: np.log(x))
        f.defjvp(lambda p, t: (f(*p), 1.01 * t[0] / p[0]))
        with np.errstate(invalid="ignore"), pytest.raises(AssertionError, match=r"is wrong, order 1 .* differ by \d"):
            check_grads(f, (np.array([1e-8]),))

    def test_refuses_what_it_cannot_check(self):
        with pytest.raises(TypeError, match="floating-point"):
            check_grads(lambda x: x, (np.arange(3),))
        with pytest.raises(TypeError, match="tuple"):
            check_grads(np.sin, np.ones(3))
        with pytest.raises(ValueError, match="modes"):
            check_grads(np.sin, (1.0,), modes=("backward",))
