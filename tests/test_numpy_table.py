"""Every NumPy and SciPy function that works on traced arrays: its row of the op table against the checks.

The functions are built of primitives, whose rules have their own, wider tests (test_ops.py).
"""

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.tracer import FUNCTIONS, UFUNCS
from wonderland.testing import op_table
from wonderland.testing.compiled_checks import check_compiled
from wonderland.testing.op_checks import (
    check_batch,
    check_batched_gradient,
    check_forward,
    check_reverse,
    check_second_order,
    check_value,
)
from wonderland.testing.op_samples import of_each_kind, samples

op_table.load()
ROWS = op_table.NUMPY
NO_ROW = {np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj, np.result_type, np.can_cast}  # no arrays come out


def largest(row, dtype):
    """The case with most elements."""
    found = list(samples(row, [dtype], ("transposed",)))
    return found[0] if found else None


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_value_and_type(row):
    for sample in samples(row):
        check_value(sample)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_vmap(row):
    for dtype in row.dtype_names()[-1:]:
        for sample in samples(row, [dtype], ("contiguous",)):
            check_batch(sample)


def has_derivative(row):
    return "derivatives" not in row.excluded and set(row.dtypes) & set("fc")


@pytest.mark.parametrize("row", [row for row in ROWS if has_derivative(row)], ids=str)
def test_derivatives(row):
    """Single precision for one case: dtypes of tangents and cotangents. `test_everything` has it for all."""
    if is_primitive(row):
        return
    real = "f" in row.dtypes
    for sample in (*samples(row, ["float64"], ("contiguous",)), *of_each_kind(row, "complex128")):
        check_forward(sample)
        check_reverse(sample)
    narrow, double = largest(row, "float32" if real else "complex64"), largest(row, "float64" if real else "complex128")
    check_forward(narrow)
    check_reverse(narrow)
    check_forward(double)
    check_second_order(double)
    check_batched_gradient(double)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_compiled(row):
    """In double precision: what they are made of, the primitives, is tested in both, and in batches."""
    names = row.dtype_names()
    if not is_primitive(row):
        check_compiled(largest(row, "float64" if "float64" in names else names[0]), batched=False)


def is_primitive(row):
    """Does the function come to one primitive? Its derivatives and code are those of its own row, in `test_ops.py`."""
    if "recording" in row.excluded:
        return False
    with np.errstate(all="ignore"):
        return all(len(wl.trace(s.function)(*s.args()).equations) <= 1 for s in samples(row, None, ("contiguous",)))


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_everything(row):
    """In every precision, compiled by all of LLVM's passes, and whether or not the function is one primitive."""
    for sample in samples(row, None, ("contiguous",)):
        if has_derivative(row):
            check_forward(sample)
            check_reverse(sample)
    for dtype in row.dtype_names():
        sample = largest(row, dtype)
        if has_derivative(row):
            check_forward(sample)
            check_second_order(sample)
            check_batched_gradient(sample)
        check_compiled(sample)


def test_every_function_has_a_row():
    known = {row.original for row in ROWS} | NO_ROW
    public = {f for f in (*FUNCTIONS, *UFUNCS) if not isinstance(f, tuple) and not f.__name__.startswith("_")}
    missing = public - known
    assert not missing, sorted(op_table.name_of(f) for f in missing)


def test_every_row_has_a_function():
    assert not [str(row) for row in ROWS if row.original not in FUNCTIONS and row.original not in UFUNCS]


def test_labels_differ():
    labels = [str(row) for row in ROWS]
    assert len(labels) == len(set(labels)), sorted(n for n in labels if labels.count(n) > 1)
