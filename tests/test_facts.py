"""The structural facts that primitives claim (elementwise, linear, ...) hold for numbers."""

import numpy as np
import pytest

import wonderland as wl
from wonderland.core import tree
from wonderland.core.primitive import registry
from wonderland.core.types import is_python_scalar
from wonderland.testing import op_table
from wonderland.testing.op_samples import samples
from wonderland.testing.op_table import TABLE, Row
from wonderland.testing.samples import broadcast_cases, reals
from wonderland.transform.finite_difference import not_analytic

op_table.load()
ROWS = [row for row in TABLE if row.function is None]


def claiming(fact):
    rows = [row for row in ROWS if getattr(registry[row.name], fact)]
    assert rows, fact
    return pytest.mark.parametrize("row", rows, ids=lambda row: str(row).replace(" ", "_"))


def test_every_primitive_with_a_fact_is_tried():
    facts = ("elementwise", "linear", "bilinear", "piecewise_linear", "balanced")
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


@claiming("piecewise_linear")
def test_piecewise_linear(row):
    """Around a point without ties, f(x + h) - f(x) is linear in h."""
    rng = np.random.default_rng(0)
    for f, args, _ in points(row, "float64"):
        moved = [a if np.result_type(a).kind != "f" else 1e-3 * rng.uniform(-1, 1, np.shape(a)) for a in args]
        shifts = [
            np.asarray(f(*[a if a is h else a + c * h for a, h in zip(args, moved)])) - np.asarray(f(*args))
            for c in (1.0, -0.5)
        ]
        np.testing.assert_allclose(shifts[0], -2 * shifts[1], rtol=1e-9, atol=1e-12)


def of_some(f, args, moving):
    """The function of these operands alone, the others as they are; and their values."""
    values = tuple(np.asarray(args[i]) for i in moving)
    return lambda *new: f(*(new[moving.index(i)] if i in moving else a for i, a in enumerate(args))), values


@claiming("balanced")
def test_balanced(row):
    """The transpose takes as many multiplications, in the operands in which it is linear."""
    primitive = registry[row.name]
    for f, args, _ in points(row):
        for moving in ([0], [1]) if primitive.bilinear else ([i % len(args) for i in primitive.linear],):
            part, values = of_some(f, args, moving)
            out = part(*values)
            if np.result_type(out).kind in "fc" and all(v.dtype.kind in "fc" for v in values):
                back = wl.cost(wl.linear_transpose(part, *values), out)
                assert back.multiplications == wl.cost(part, *values).multiplications


# A value that a rule captures has no derivative at all.
COMPLEX = [row for row in TABLE if "complex128" in row.dtype_names() and row.name != "captured"]


@pytest.mark.parametrize("row", COMPLEX, ids=lambda row: str(row).replace(" ", "_"))
def test_analytic(row):
    """The derivative along i v is i times that along v; of what isn't claimed to be analytic it isn't, somewhere."""
    fact, turned = registry[row.name].analytic, False
    for sample in samples(row, ["complex128"], ("contiguous",)):
        args = sample.args()
        part, values = of_some(sample.function, args, [i for i, a in enumerate(args) if np.result_type(a).kind == "c"])
        rng = np.random.default_rng(0)
        along = [rng.normal(size=v.shape) + 1j * rng.normal(size=v.shape) for v in values]
        with np.errstate(all="ignore"):
            out, real = wl.jvp(part, values, tuple(along))
            _, imaginary = wl.jvp(part, values, tuple(1j * v for v in along))
        pairs = zip(tree.leaves(out), tree.leaves(real), tree.leaves(imaginary), strict=True)
        found = all(
            np.allclose(1j * x, y, rtol=1e-6, atol=1e-6, equal_nan=True)
            for o, x, y in pairs
            if np.result_type(o).kind == "c"
        )
        assert found or any(not_analytic(wl.trace(part)(*values)))
        turned |= not found
    assert turned or fact is True


def test_false_claims_of_balance_and_of_analytic_functions_are_seen(monkeypatch):
    row_of = lambda name: next(row for row in TABLE if row.name == name)
    monkeypatch.setattr(registry["neg"], "transpose", lambda ct, x: (registry["mul"](-1.0, ct),))
    monkeypatch.setattr(registry["conj"], "analytic", True)
    monkeypatch.setattr(registry["sin"], "analytic", False)
    for check, name in ((test_balanced, "neg"), (test_analytic, "conj"), (test_analytic, "sin")):
        with pytest.raises(AssertionError):
            check(row_of(name))


def test_the_check_sees_false_claims():
    """What the tests above do finds facts that don't hold."""
    row = lambda name, count: Row(name, (reals,) * count, broadcast_cases(count))
    for check, name, count in ((test_bilinear, "maximum", 2), (test_piecewise_linear, "sin", 1)):
        with pytest.raises(AssertionError):
            check(row(name, count))
    with pytest.raises(AssertionError):
        test_elementwise(Row("sum", (reals,), next(r for r in ROWS if r.name == "sum").cases))
