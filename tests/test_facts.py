"""The structural facts that primitives claim (elementwise, linear, ...) hold for numbers."""

import numpy as np
import pytest

from wonderland.core import tree
from wonderland.core.primitive import registry
from wonderland.core.types import is_python_scalar
from wonderland.testing import op_table
from wonderland.testing.op_checks import samples
from wonderland.testing.op_table import TABLE, Row
from wonderland.testing.samples import broadcast_cases, reals

op_table.load()
ROWS = [row for row in TABLE if row.function is None]


def claiming(fact):
    rows = [row for row in ROWS if getattr(registry[row.name], fact)]
    assert rows, fact
    return pytest.mark.parametrize("row", rows, ids=lambda row: str(row).replace(" ", "_"))


def test_every_primitive_with_a_fact_is_tried():
    facts = ("elementwise", "linear", "bilinear", "zero_preserving", "monotone")
    claimed = {name for name, p in registry.items() if any(getattr(p, fact) for fact in facts)}
    assert claimed <= {row.name for row in ROWS}


def points(row, dtypes="float64 complex128"):
    """(function, arguments, tolerance) for each sample."""
    names = [name for name in dtypes.split() if name in row.dtype_names()] or row.dtype_names()[-1:]
    for sample in samples(row, names, ("contiguous",)):
        yield sample.function, sample.args(), sample.tolerance


def close(a, b):
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10)
    return True


@claiming("elementwise")
def test_elementwise(row):
    """Shape by broadcasting, and each element computed from its own operands alone gives the same."""
    for f, args, tolerance in points(row, "bool int32 float32 float64 complex128"):
        with np.errstate(all="ignore"):
            out = np.asarray(f(*args))
        strong = [np.asarray(a) for a in args]
        assert out.shape == np.broadcast_shapes(*(a.shape for a in strong))
        full = np.broadcast_arrays(*strong)
        for place in np.ndindex(out.shape):
            with np.errstate(all="ignore"):
                one = f(*(a if is_python_scalar(a) else b[place] for b, a in zip(full, args)))
            assert np.ndim(one) == 0 and np.isclose(one, out[place], tolerance, tolerance, equal_nan=True)


@claiming("linear")
def test_linear(row):
    """f(a x + b y) = a f(x) + b f(y), in all the linear operands at once, the others fixed."""
    linear = {i % len(row.operands) for i in registry[row.name].linear}
    for f, args, tolerance in points(row):
        rng = np.random.default_rng(0)
        if np.result_type(f(*args)).kind not in "fc":
            continue  # rounding to integers isn't, and has no derivative
        other = [rng.normal(size=np.shape(a))[()] if i in linear else a for i, a in enumerate(args)]
        a, b = 2.5, -1.5  # exact in float32 as well; real: over the complex numbers some are only real-linear
        mixed = [a * x + b * y if i in linear else x for i, (x, y) in enumerate(zip(args, other))]
        expected = a * np.asarray(f(*args)) + b * np.asarray(f(*other))
        np.testing.assert_allclose(f(*mixed), expected, rtol=tolerance, atol=tolerance)


@claiming("bilinear")
def test_bilinear(row):
    for f, (x, y), _ in points(row):
        for a in (x, y):
            assert np.result_type(a).kind in "fc"
        u = np.random.default_rng(0).normal(size=np.shape(x))[()]
        v = np.random.default_rng(1).normal(size=np.shape(y))[()]
        assert close(f(2.5 * x - 1.5 * u, y), 2.5 * np.asarray(f(x, y)) - 1.5 * np.asarray(f(u, y)))
        assert close(f(x, 2.5 * y - 1.5 * v), 2.5 * np.asarray(f(x, y)) - 1.5 * np.asarray(f(x, v)))


@claiming("zero_preserving")
def test_zero_preserving(row):
    """Zeros in all floating-point operands give zeros."""
    for f, args, _ in points(row):
        zeros = [np.zeros_like(a)[()] if np.result_type(a).kind in "fc" else a for a in args]
        assert all(not np.any(leaf) for leaf in tree.leaves(f(*zeros)))


@claiming("monotone")
def test_monotone(row):
    """Larger operands don't give smaller results."""
    rng = np.random.default_rng(0)
    for f, args, _ in points(row, "float32 float64"):
        if any(np.result_type(a).kind != "f" for a in args):
            continue
        for _ in range(5):
            more = [a + np.asarray(rng.exponential(size=np.shape(a)), np.result_type(a)) for a in args]
            for low, high in zip(tree.leaves(f(*args)), tree.leaves(f(*more)), strict=True):
                assert np.all(low <= high)


def test_the_check_sees_false_claims():
    """What the tests above do finds facts that don't hold."""
    row = lambda name, count: Row(name, (reals,) * count, broadcast_cases(count))
    for check, name, count in (
        (test_monotone, "sin", 1), (test_zero_preserving, "cos", 1), (test_bilinear, "maximum", 2),
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            check(row(name, count))
    with pytest.raises(AssertionError):
        test_elementwise(Row("sum", (reals,), next(r for r in ROWS if r.name == "sum").cases))
