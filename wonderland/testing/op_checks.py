"""Everything that must hold for a row of the op table: `check_operator(row)` runs it all.

Each `check_*` takes a `Sample` (a row, a case, a dtype, a layout: concrete arguments) and raises an AssertionError if a
rule of the primitive disagrees with another one, with NumPy, or with central differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

import wonderland as wl
from wonderland.core import tree
from wonderland.core.primitive import registry
from wonderland.core.program import run, verify
from wonderland.core.types import is_python_scalar, type_of
from wonderland.ops.pattern import program_reads
from wonderland.testing.check_grads import inner, is_inexact, numeric_jvp, random_like
from wonderland.testing.compiled_checks import check_compiled, check_special_values
from wonderland.testing.op_samples import (
    Sample,
    assert_close,
    chosen_alone,
    is_excluded,
    is_wide,
    mixed_samples,
    quiet,
    samples,
    scalar_of,
    widened,
)
from wonderland.testing.op_table import Row
from wonderland.transform.programs import batch_program, jvp_program, linearize_program, transpose_program

NUMERIC_TOLERANCE = 1e-7  # against central differences, which are always taken in float64


@quiet
def check_value(s: Sample) -> None:
    """`evaluate` is the reference's value, and `infer` (what `trace` uses) tells its type."""
    args = s.args()
    before = [np.array(a) for a in args]
    out = s.function(*args)
    if s.row.reference is not None:
        assert_close(out, s.row.reference(*args, **s.case.params), f"{s}: the value", s.tolerance, dtypes=False)
    assert all(np.array_equal(a, b) for a, b in zip(args, before)), f"{s}: the operands were changed"
    if is_excluded(s, "recording"):
        return
    program = wl.trace(s.function)(*args)
    verify(program)
    for inferred, value in zip(program.output_types, tree.leaves(out), strict=True):
        actual = type_of(value)
        assert inferred.dtype == actual.dtype, f"{s}: inferred {inferred}, evaluated to {actual}"
        assert _fits(inferred.shape, actual.shape), f"{s}: inferred {inferred}, evaluated to {actual}"
        if actual.shape == ():
            assert not isinstance(value, np.ndarray), f"{s}: a 0-d result is a scalar in NumPy, not an array"
    assert_close(run(program, args), tuple(tree.leaves(out)), f"{s}: the recorded Program", s.tolerance)


def _fits(inferred: tuple, actual: tuple) -> bool:
    return len(inferred) == len(actual) and all(m is None or m == n for m, n in zip(inferred, actual))


@quiet
def check_forward(s: Sample) -> None:
    """The jvp is that of central differences, taken in float64; tangents have the dtype of what they belong to."""
    args = s.args()
    chosen = s.differentiated(args)
    if is_excluded(s, "derivatives", "forward mode") or not chosen:
        return
    wide = s.args("complex128" if s.dtype.startswith("complex") else "float64")
    wide = widened(args, wide)
    f, point = chosen_alone(s.function, args, chosen)
    g, wide_point = chosen_alone(s.function, wide, chosen)
    for group in [tuple(range(len(chosen))), *((i,) for i in range(len(chosen)) if len(chosen) > 1)]:
        tangents = random_like(wide_point, np.random.default_rng(1))
        tangents = tuple(t if i in group else np.zeros_like(t)[()] for i, t in enumerate(tangents))
        narrow = tuple(np.asarray(t).astype(np.result_type(a))[()] for t, a in zip(tangents, point))
        narrow = tuple(t.item() if is_python_scalar(a) else t for t, a in zip(narrow, point))
        given = tuple(t if i in group else None for i, t in enumerate(narrow))
        out, pushed = wl.jvp(f, point, given)
        for o, t in zip(tree.leaves(out), tree.leaves(pushed), strict=True):
            assert np.result_type(o) == np.result_type(t), f"{s}: a tangent {t.dtype} of a value {np.result_type(o)}"
        value = f(*point)
        assert_close(out, value, f"{s}: the value inside jvp", s.tolerance)
        if "central differences" not in s.row.excluded:
            exact = wl.jvp(g, wide_point, tangents)[1]
            expected = numeric_jvp(g, wide_point, tangents)
            what = f"{s}: jvp against central differences, operands {group}"
            assert_close(exact, expected, what, NUMERIC_TOLERANCE, dtypes=False)
            what = f"{s}: jvp in {s.dtype} against float64, operands {group}"
            assert_close(pushed, exact, what, min(1e-5, s.tolerance), dtypes=False)


@quiet
def check_reverse(s: Sample) -> None:
    """<cotangent, jvp> = <vjp, tangent>, jointly and operand by operand; cotangents have their operand's type."""
    args = s.args()
    chosen = s.differentiated(args)
    if is_excluded(s, "derivatives") or not chosen:
        return
    for group in [chosen, *([i] for i in chosen if len(chosen) > 1)]:
        f, point = chosen_alone(s.function, args, group)
        rng = np.random.default_rng(2)
        tangents = random_like(point, rng)
        if is_excluded(s, "forward mode"):
            out, pushed = f(*point), numeric_jvp(f, point, tangents)
        else:
            out, pushed = wl.jvp(f, point, tangents)
        cotangent = random_like(out, rng)
        value, pull = wl.vjp(f, *point)
        assert_close(value, out, f"{s}: the value inside vjp", s.tolerance)
        pulled = pull(cotangent)
        for p, a in zip(pulled, point, strict=True):
            assert type_of(p).shape == type_of(a).shape, f"{s}: a cotangent {type_of(p)} of {type_of(a)}"
            assert type_of(p).dtype == type_of(a).dtype, f"{s}: a cotangent {type_of(p)} of {type_of(a)}"
        # Sums of many products, of which the rounding errors add up.
        scale = max(1.0, *(float(np.max(np.abs(t), initial=0.0)) for t in (*tree.leaves(pushed), *pulled)))
        limit = 10 * scale * s.tolerance + (1e-2 * s.tolerance**0.5 if is_excluded(s, "forward mode") else 0.0)
        forward, reverse = inner(cotangent, pushed), inner(pulled, tangents)
        assert abs(forward - reverse) <= limit, f"{s}: <ct, jvp> = {forward}, <vjp, t> = {reverse}, operands {group}"
        if is_excluded(s, "forward mode"):
            continue
        _, push = wl.linearize(f, *point)
        assert_close(push(*tangents), pushed, f"{s}: linearize against jvp", s.tolerance)


@quiet
def check_second_order(s: Sample) -> None:
    """v^T H u by all four nestings of forward and reverse, and by central differences of the gradient."""
    args = s.args()
    chosen = s.differentiated(args)
    if is_excluded(s, "derivatives", "forward mode") or not chosen:
        return
    if s.dtype not in ("float64", "complex128") or not is_wide(s):
        return
    f, point = chosen_alone(s.function, args, chosen)
    rng = np.random.default_rng(3)
    scalar = scalar_of(f, random_like(f(*point), rng))
    u, v = random_like(point, rng), random_like(point, rng)
    numbers = tuple(range(len(point)))
    gradient = wl.grad(scalar, numbers)
    along = lambda direction: lambda *x: wl.jvp(scalar, x, direction)[1]
    dotted = lambda *x: sum(np.sum(np.real(np.conj(a) * g)) for a, g in zip(u, gradient(*x)))
    found = {
        "forward over forward": wl.jvp(along(u), point, v)[1],
        "forward over reverse": inner(u, wl.jvp(gradient, point, v)[1]),
        "reverse over forward": inner(v, wl.grad(along(u), numbers)(*point)),
        "reverse over reverse": inner(v, wl.grad(dotted, numbers)(*point)),
    }
    if "central differences" not in s.row.excluded:
        expected = inner(u, numeric_jvp(gradient, point, v))
        scale = max(1.0, abs(expected), inner(*(tree.tree_map(np.abs, gradient(*point)),) * 2) ** 0.5)
        for name, value in found.items():
            assert abs(value - expected) <= 1e-6 * scale, f"{s}: {name}: v^T H u = {value}, differences: {expected}"
    first = found["forward over forward"]
    for name, value in found.items():
        assert abs(value - first) <= 1e-9 * max(1.0, abs(first)), f"{s}: v^T H u: {found}, {name} differs"


@quiet
def check_batch(s: Sample) -> None:
    """vmap is the loop, for every choice of batched operands, along the first and the last axis."""
    if is_excluded(s, "recording"):
        return
    count = len(s.case.shapes)
    for flags in itertools.product((True, False), repeat=count):
        if not any(flags) or any(b and shape is None for b, shape in zip(flags, s.case.shapes)):
            continue
        args = s.args(batch=flags)
        each = [s.function(*(a[i] if b else a for a, b in zip(args, flags))) for i in range(3)]
        expected = tree.tree_map(lambda *xs: np.stack(xs), each[0], *each[1:])
        out = wl.vmap(s.function, in_axes=tuple(0 if b else None for b in flags))(*args)
        assert_close(out, expected, f"{s}: vmap over operands {flags}", s.tolerance)
        last = [np.moveaxis(a, 0, -1) if b else a for a, b in zip(args, flags)]
        out = wl.vmap(s.function, in_axes=tuple(-1 if b else None for b in flags), out_axes=-1)(*last)
        moved = tree.tree_map(lambda x: np.moveaxis(x, 0, -1), expected)
        assert_close(out, moved, f"{s}: vmap along the last axis over operands {flags}", s.tolerance)


@quiet
def check_batched_gradient(s: Sample) -> None:
    """vmap of grad and grad of vmap are the loop of gradients."""
    chosen = s.differentiated(s.args())
    if is_excluded(s, "derivatives", "recording") or not chosen:
        return
    flags = [shape is not None for shape in s.case.shapes]
    args = s.args(batch=flags)
    weights = random_like(s.function(*s.args()), np.random.default_rng(4))
    scalar = scalar_of(s.function, weights)
    gradient = wl.grad(scalar, tuple(chosen))
    each = [gradient(*(a[i] if b else a for a, b in zip(args, flags))) for i in range(3)]
    axes = tuple(0 if b else None for b in flags)
    expected = tree.tree_map(lambda *xs: np.stack(xs), each[0], *each[1:])
    assert_close(wl.vmap(gradient, axes)(*args), expected, f"{s}: vmap of grad", s.tolerance)
    whole = wl.grad(lambda *a: np.sum(wl.vmap(scalar, axes)(*a)), tuple(chosen))(*args)
    for i, w, e in zip(chosen, whole, expected):
        e = e if flags[i] else np.sum(e, axis=0, dtype=e.dtype)
        assert_close(w, e, f"{s}: grad of vmap, operand {i}", s.tolerance)


@quiet
def check_pattern(s: Sample) -> None:
    """The sparsity pattern contains the nonzero entries of the Jacobian, and no others where it can be exact."""
    args = s.args()
    chosen = s.differentiated(args)
    if is_excluded(s, "derivatives", "recording") or not chosen:
        return
    f, point = chosen_alone(s.function, args, chosen)
    reads = program_reads(wl.trace(f)(*point)).toarray()
    outs = tree.leaves(f(*point))
    mode = "reverse" if is_excluded(s, "forward mode") else "auto"
    jacobians = wl.jacobian(lambda *x: tuple(tree.leaves(f(*x))), tuple(range(len(point))), mode)(*point)
    shape = sum(map(np.size, outs)), sum(map(np.size, point))
    assert reads.shape == shape, f"{s}: a pattern of shape {reads.shape} instead of {shape}"
    bands = np.split(reads, np.cumsum([np.size(out) for out in outs])[:-1])
    for out, band, blocks in zip(outs, bands, jacobians, strict=True):
        parts = np.split(band, np.cumsum([np.size(x) for x in point])[:-1], axis=1)
        for x, possible, block in zip(point, parts, blocks, strict=True):
            nonzero = np.reshape(block, (np.size(out), np.size(x))) != 0
            assert not np.any(nonzero & ~possible), f"{s}: the pattern misses entries of the Jacobian"
            if "pattern exact" not in s.row.excluded:
                assert np.array_equal(nonzero, possible), f"{s}: the pattern has entries that are always zero"


@quiet
def check_programs(s: Sample) -> None:
    """Every transformed Program passes `verify`, and computes what the transformation does eagerly."""
    if is_excluded(s, "recording"):
        return
    args = s.args()
    program = verify(wl.trace(s.function)(*args))
    if program.constants:
        return
    size = 3
    flags = tuple(not t.weak for t in program.input_types)
    if any(flags):
        verify(batch_program(program, size, flags, (True,) * len(program.outputs))[0])
    chosen = s.differentiated(args)
    if is_excluded(s, "derivatives", "forward mode") or not chosen:
        return
    nonzero = tuple(i in chosen for i in range(len(args)))
    fill = (False,) * len(program.outputs)
    forward, has_tangent = jvp_program(program, nonzero, fill)
    verify(forward)
    tangents = random_like(tuple(args[i] for i in chosen), np.random.default_rng(5))
    f, point = chosen_alone(s.function, args, chosen)
    value, pushed = wl.jvp(f, point, tangents)
    kept = [t for t, flag in zip(tree.leaves(pushed), has_tangent) if flag]
    outs = run(forward, (*args, *tangents))
    assert_close(outs, tuple(tree.leaves(value) + kept), f"{s}: the Program of jvp", s.tolerance)
    primal, linear, has_tangent, count = linearize_program(program, nonzero, fill)
    verify(primal)
    verify(linear, linear.inputs[count:])
    values = run(primal, args)
    residuals = values[len(program.outputs) :]
    pushed_again = run(linear, (*residuals, *tangents))
    assert_close(pushed_again, tuple(kept), f"{s}: the linear Program", s.tolerance)
    known = (*(False,) * count, *(True,) * len(chosen))
    back, _ = transpose_program(linear, known, (True,) * len(linear.outputs), (True,) * sum(known))
    verify(back)
    cotangents = random_like(tuple(kept), np.random.default_rng(6))
    pulled = run(back, (*residuals, *cotangents))
    scale = max(1.0, *(float(np.max(np.abs(t), initial=0.0)) for t in (*kept, *pulled)))
    limit = 10 * scale * s.tolerance
    assert abs(inner(cotangents, tuple(kept)) - inner(pulled, tangents)) <= limit, f"{s}: the transposed Program"


@quiet
def check_mixed_dtypes(s: Sample) -> None:
    """With operands of different dtypes, types, tangents and cotangents are as they should be."""
    args = s.args()
    try:
        out = s.function(*args)
    except (TypeError, ValueError):
        return  # NumPy refuses
    assert wl.trace(s.function)(*args).output_types[0].dtype == out.dtype, f"{s}: inferred another dtype"
    chosen = s.differentiated(args)
    if not chosen or not is_inexact(out):
        return
    f, point = chosen_alone(s.function, args, chosen)
    tangents = random_like(point, np.random.default_rng(8))
    value, pushed = wl.jvp(f, point, tangents)
    assert value.dtype == pushed.dtype == out.dtype, f"{s}: a tangent of dtype {pushed.dtype}"
    cotangent = random_like(value, np.random.default_rng(9))
    pulled = wl.vjp(f, *point)[1](cotangent)
    for p, a in zip(pulled, point, strict=True):
        assert np.result_type(p) == np.result_type(a), f"{s}: a cotangent {np.result_type(p)} of {np.result_type(a)}"
    forward, reverse = inner(cotangent, pushed), inner(pulled, tangents)
    if not np.isfinite(forward):
        return  # a bool divided by, a power of 255
    scale = max(1.0, *(float(np.max(np.abs(t))) for t in (pushed, *pulled)))
    assert abs(forward - reverse) <= 1e-4 * scale, f"{s}: <ct, jvp> = {forward}, <vjp, t> = {reverse}"


CHECKS: tuple[Callable[[Sample], None], ...] = (
    check_value,
    check_forward,
    check_reverse,
    check_second_order,
    check_batch,
    check_batched_gradient,
    check_pattern,
    check_programs,
)


def check_operator(row: Row, dtypes: Sequence[str] | None = None, compiled: bool = False) -> None:
    """Run every check for a row of the table in all its dtypes, shapes and layouts; with `compiled`, jit too."""
    for s in samples(row, dtypes):
        for check in CHECKS:
            check(s)
        if compiled:
            check_compiled(s)
    if registry[row.name].elementwise:
        for s in mixed_samples(row):
            check_mixed_dtypes(s)
        for dtype in ("float32", "float64"):
            if compiled and dtype in row.dtype_names():
                check_special_values(row, dtype)
