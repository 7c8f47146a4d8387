"""Functions with an axis, of arrays without axes: they answer, and refuse, what NumPy and SciPy do."""

import inspect
import warnings

import numpy as np
import pytest

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.core.tracer import FUNCTIONS
from wonderland.numpy import fourier, linear_algebra  # noqa: F401  (they register their functions)
from wonderland.scipy import special as wsp

_MORE = {
    "take": (0,), "repeat": (2,), "quantile": (0.5,), "percentile": (50,), "nanquantile": (0.5,),
    "nanpercentile": (50,), "partition": (0,), "argpartition": (0,), "roll": (1,), "delete": (0,), "insert": (0, 1.0),
    "append": (1.0,), "split": (1,), "array_split": (1,), "take_along_axis": (np.array(0),), "linspace": (3.0,),
    "logspace": (2.0,), "geomspace": (2.0,), "cross": (1.0,), "vecdot": (2.0,),
}  # fmt: skip


def _with_axis():
    """All functions of one array in the tables that take an axis, by their full names."""
    for f in FUNCTIONS:
        try:
            parameters = inspect.signature(f).parameters
        except (TypeError, ValueError):
            continue
        if "axis" in parameters and f.__name__ not in ("concatenate", "stack", "compress", "unstack"):
            yield f"{f.__module__}.{f.__name__}", f


AXIS = dict(_with_axis())
NUMBERS = [np.float64(1.25), np.array(1.25), np.float32(-2.0), np.int64(3)]


def answer(f, *args, **options):
    """Values, shapes and dtypes of what a call returns; "refused" if it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = f(*args, **options)
    except Exception:
        return "refused"
    parts = out if isinstance(out, (tuple, list)) else (out,)
    return [(np.shape(p), np.result_type(p), str(np.asarray(p).astype(float).round(6).tolist())) for p in parts]


def first(out):
    return type(out)(map(first, out)) if isinstance(out, (tuple, list)) else out[0]


@pytest.mark.parametrize("axis", [0, -1, 1, None])
@pytest.mark.parametrize("name", AXIS)
def test_an_axis_of_a_number(name, axis):
    original = AXIS[name]
    ours = getattr(wsp, original.__name__) if name.startswith("scipy") else original
    f = lambda x: ours(x, *_MORE.get(original.__name__, ()), axis=axis)
    for x in NUMBERS:
        expected = answer(original, x, *_MORE.get(original.__name__, ()), axis=axis)
        if x.dtype.kind == "f":
            assert answer(lambda x: wl.jvp(f, (x,), (x,))[0], x) == expected, x
        if original is not np.unique and original is not np.trim_zeros:  # whose shapes depend on values
            assert answer(lambda x: first(wl.vmap(f)(np.array([x, x]))), x) == expected, x


REDUCTIONS = {
    "sum": lambda m, x: m.sum(x, axis=0), "prod": lambda m, x: m.prod(x, axis=-1), "max": lambda m, x: m.max(x, axis=0),
    "min": lambda m, x: m.min(x, axis=-1, keepdims=True), "ptp": lambda m, x: m.ptp(x, axis=0),
    "all": lambda m, x: m.all(x, axis=0), "any": lambda m, x: m.any(x, -1), "argmax": lambda m, x: m.argmax(x, axis=0),
    "argmin": lambda m, x: m.argmin(x, axis=-1), "take": lambda m, x: m.take(x, [0, 0], axis=0),
    "squeeze": lambda m, x: m.squeeze(x, axis=0), "repeat": lambda m, x: m.repeat(x, 3, axis=-1),
    "cumsum": lambda m, x: m.cumsum(x, axis=0), "cumulative_sum": lambda m, x: m.cumulative_sum(x),
    "compress": lambda m, x: m.compress([True], x, axis=0), "nanmean": lambda m, x: m.nanmean(x, axis=0),
    "reduce": lambda m, x: np.logaddexp.reduce(x, axis=-1), "count": lambda m, x: m.count_nonzero(x, axis=0),
    "method": lambda m, x: x.sum(axis=0) + x.max(axis=-1) + x.argmax(0),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_compiled_and_eager(name):
    f, x = REDUCTIONS[name], np.float64(1.25)
    expected = answer(f, np, x)
    assert expected != "refused"
    assert answer(wl.jit(lambda x: (f(np, x), f(wnp, x))), x) == expected * 2
    assert answer(f, wnp, x) == expected


def test_their_derivatives():
    def f(x):
        ones = np.sum(x, axis=0) * np.max(x, axis=-1) * np.take(x, 0, axis=0) * np.nanmean(x, axis=0)
        return ones * np.sum(np.repeat(x, 3, axis=0)) * np.squeeze(x, axis=-1)  # 3 x^6

    for run in (lambda g: g, wl.jit):
        assert run(wl.grad(f))(2.0) == 18 * 2.0**5
        assert run(wl.grad(wl.grad(f)))(2.0) == 90 * 2.0**4
    np.testing.assert_array_equal(wl.vmap(wl.grad(f))(np.array([1.0, 2.0])), [18.0, 576.0])


def test_a_norm_over_no_axes_is_refused():
    norm = lambda x: np.linalg.norm(x, axis=())
    for f in (norm, wl.jit(norm), wl.grad(norm)):
        with pytest.raises(ValueError, match="Improper number of dimensions to norm"):
            f(np.float64(2.0))
