"""The compiler's shape: one room for each kind of thing, so that a new one is added in one file.

A kind of kernel and an elementwise operator with native vector code are each added in a temporary module and work
eagerly, differentiated, batched, compiled and sparse-traced. A misspelt name in an operator's native code raises.
"""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.primitive import registry
from wonderland.ops.elementwise import elementwise
from wonderland.testing import check_grads

PACKAGE = Path(__file__).resolve().parents[2] / "wonderland"
MOST_LINES_OF_A_FILE, MOST_LINES_OF_A_CLASS = 500, 400

WINDOWED_SUM = '''
"""Sums of `width` neighbours along the last axis: a primitive, a node that runs as a whole, and its kernel."""

import math

import numpy as np

from wonderland.compile import ir
from wonderland.compile.emitter import memory_type
from wonderland.compile.kernel import Kernel
from wonderland.compile.loops import Loops
from wonderland.compile.nodes import Whole
from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType


class WindowedSum(Whole):
    """out[..., i] = x[..., i] + ... + x[..., i + width - 1]"""

    def __init__(self, type, x, width):
        super().__init__(type)
        self.x, self.width = x, width

    @property
    def memory(self):
        return (self.x,)

    @property
    def nanoseconds(self):
        return float(math.prod(self.shape))

    def plan(self, plan, position):
        plan.add_kernel(WindowKernel(self, plan.memory[self.x], plan.own(self)))


class WindowKernel(Kernel):
    """The sum moves along a row: one number comes in, one goes out."""

    def __init__(self, node, x, out):
        super().__init__()
        self.node, self.params, self.written = node, [(x, 0), (out, 0)], {out}
        self.work = node.nanoseconds
        self.share_work(math.prod(node.shape[:-1]), 8)

    def describe(self):
        return f"windowed sum of {self.node.width} over {list(self.node.shape)}"

    def write(self):
        loops = Loops(self, "noinline")
        f, node = loops.f, self.node
        n, m = node.x.shape[-1], node.shape[-1]
        type = memory_type(node.dtype)
        with f.loop(loops.parameter("begin"), loops.parameter("end")) as row:
            x = f.element(type, loops.parameters["p0"], row * loops.tabled(("n",), n))
            out = f.element(type, loops.parameters["p1"], row * loops.tabled(("m",), m))
            with f.loop(0, loops.tabled(("m",), m)) as i:
                total = f.variable(ir.constant(0, type))
                with f.loop(i, i + node.width) as j:
                    total.set(total.get() + f.load(type, f.element(type, x, j)))
                f.store(total.get(), f.element(type, out, i))
        return f


def _windowed(x, width):
    return np.lib.stride_tricks.sliding_window_view(x, width, axis=-1).sum(axis=-1)


def _padded(ct, width):
    """The transpose is a windowed sum of the cotangent between zeros."""
    return windowed_sum(pad(ct, width=width), width=width)


def _infer(x, width):
    return ArrayType((*x.shape[:-1], x.shape[-1] - width + 1), x.dtype)


def _pad(x, width):
    return np.pad(x, [(0, 0)] * (np.ndim(x) - 1) + [(width - 1, width - 1)])


pad = Primitive(
    "windowed_pad", _pad, lambda x, width: ArrayType((*x.shape[:-1], x.shape[-1] + 2 * width - 2), x.dtype),
    linear=(0,), transpose=lambda ct, x, width: (cut(ct, width=width),),
    batch=lambda size, args, batched, width: pad(*args, width=width),
)
cut = Primitive(
    "windowed_cut", lambda x, width: np.array(x[..., width - 1 : x.shape[-1] - width + 1]),
    lambda x, width: ArrayType((*x.shape[:-1], x.shape[-1] - 2 * width + 2), x.dtype),
    linear=(0,), transpose=lambda ct, x, width: (pad(ct, width=width),),
    batch=lambda size, args, batched, width: cut(*args, width=width),
)
windowed_sum = Primitive(
    "windowed_sum",
    _windowed,
    _infer,
    linear=(0,),
    transpose=lambda ct, x, width: (_padded(ct, width),),
    batch=lambda size, args, batched, width: windowed_sum(*args, width=width),
    lower=lambda builder, x, width: builder.keep(
        WindowedSum(ArrayType((*x.shape[:-1], x.shape[-1] - width + 1), x.dtype), builder.memory(x), width)
    ),
)
windowed_sum.pattern = lambda types, params: [_reads(types[0], params["width"])]


def _reads(x, width):
    places = np.arange(math.prod(x.shape)).reshape(x.shape)
    windows = np.lib.stride_tricks.sliding_window_view(places, width, axis=-1)
    return np.repeat(np.arange(windows[..., 0].size), width), windows.ravel()
'''

VECTOR_OPERATOR = '''
"""log cosh x = |x| + log1p(e^-2|x|) - log 2, by vector code of its own."""

import math

import numpy as np

from wonderland.compile.vecmath.formula import fabs
from wonderland.compile.vecmath.functions import vector_function
from wonderland.compile.vecmath.log import log1p
from wonderland.compile.vecmath.exp import exp
from wonderland.ops.elementwise import elementwise, tanh


@vector_function
def log_cosh(x):
    size = fabs(x)
    return size + (log1p(exp(size * -2.0)) - math.log(2.0))


log_cosh_p = elementwise(
    "log_cosh", lambda x: np.logaddexp(x, -x) - np.log(2.0).astype(np.result_type(x)), (lambda out, x: tanh(x),),
    emit=lambda e, x: e.call("log_cosh", x),
)
'''


@pytest.fixture
def added(tmp_path):
    """A function that imports a module from its text; what it registers goes afterwards."""
    before, count = {*registry}, 0

    def add(text):
        nonlocal count
        count += 1
        path = tmp_path / f"added{count}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield add
    for name in {*registry} - before:
        del registry[name]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_kind_of_kernel_is_one_file(added, dtype, rng):
    module = added(WINDOWED_SUM)
    f = lambda x: wl.as_function(module.windowed_sum)(x, width=3)
    x = rng.standard_normal((50, 20)).astype(dtype)
    expected = np.lib.stride_tricks.sliding_window_view(x, 3, axis=-1).sum(axis=-1)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(f(x), expected, **tolerance)
    compiled = wl.jit(lambda x: np.tanh(f(2 * x)) + 1)
    np.testing.assert_allclose(compiled(x), np.tanh(2 * expected) + 1, **tolerance)
    inspected = compiled.inspect(x)
    assert not inspected.fallbacks and "windowed sum of 3" in str(inspected)
    loss = lambda x: np.sum(f(x) ** 2)
    gradient = wl.grad(loss)(x)
    np.testing.assert_allclose(wl.jit(wl.grad(loss))(x), gradient, **tolerance)
    np.testing.assert_allclose(wl.vmap(f)(x), expected, **tolerance)
    np.testing.assert_allclose(wl.jit(wl.vmap(f))(x), expected, **tolerance)
    if dtype == np.float64:
        check_grads(loss, (x[:2, :6],))
        pattern = wl.sparse.jacobian_pattern(f, x[0]).toarray()
        assert np.array_equal(pattern, wl.jacobian(f)(x[0]) != 0)


def test_an_operator_with_vector_code_is_one_file(added, rng):
    module = added(VECTOR_OPERATOR)
    f = wl.as_function(module.log_cosh_p)
    for dtype, tolerance in ((np.float64, 1e-14), (np.float32, 1e-6)):
        x = rng.uniform(0.5, 20, (4, 300)).astype(dtype)
        expected = np.log(np.cosh(x.astype(np.float64)))
        np.testing.assert_allclose(f(x), expected, rtol=10 * tolerance)
        np.testing.assert_allclose(wl.jit(f)(x), expected, rtol=10 * tolerance)
        assert not wl.jit(f).inspect(x).fallbacks and "wl_log_cosh" in wl.jit(f).inspect(x).ir
    np.testing.assert_allclose(wl.vmap(wl.grad(f))(x[0]), np.tanh(x[0]), rtol=1e-6)
    np.testing.assert_allclose(wl.jit(wl.vmap(wl.grad(f)))(x[0]), np.tanh(x[0]), rtol=1e-6)
    check_grads(f, (rng.uniform(0.5, 3, 4),))
    assert np.array_equal(wl.sparse.jacobian_pattern(f, x[0, :5]).toarray(), np.eye(5, dtype=bool))


@pytest.mark.parametrize(
    ("name", "emit"),
    [("misspelt_method", lambda e, x: e.mutliply(x, x)), ("misspelt_function", lambda e, x: e.call("tahn", x))],
)
def test_a_misspelt_name_raises(added, name, emit):
    operator = wl.as_function(elementwise(name, np.tanh, emit=emit))
    with pytest.raises(AttributeError, match=r"mutliply|tahn"):
        wl.jit(operator)(np.ones(3))
    del registry[name]


def test_a_condition_of_python_raises(added):
    operator = wl.as_function(elementwise("branching", np.abs, emit=lambda e, x: x if x > 0 else e.neg(x)))
    with pytest.raises(TypeError, match="known when it runs"):
        wl.jit(operator)(np.ones(3))


def test_why_numpy_evaluates_is_kept():
    found = wl.jit(lambda x: np.linalg.svd(x)[1]).inspect(np.eye(3))
    assert found.reasons == {"svd": "there is no code for it"} and "svd (there is no code for it)" in str(found)
    half = wl.jit(lambda x: np.tanh(x) + 1).inspect(np.ones(3, np.float16))
    assert {*half.reasons.values()} == {"compiled code has no float16"}


def classes():
    """(name, bases, lines) of the package's classes."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py")))
    for text in texts:
        for node in ast.walk(ast.parse(text)) if "class " in text else ():
            if isinstance(node, ast.ClassDef):
                bases = [base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases]
                yield node.name, bases, node.end_lineno - node.lineno + 1


def test_no_class_is_long():
    """With its bases: a class spread over several files by inheritance is one large class.

    Layers, models and optimisers are built on `Module`, estimators on `Regressor` or `Classifier`, as users' own are:
    these count once.
    """
    known = {name: (bases, lines) for name, bases, lines in classes()}

    def whole(name):
        """The class and all that it inherits from."""
        return {name}.union(*(whole(base) for base in known.get(name, ((), 0))[0]))

    foundations = [whole(name) for name in ("Module", "Regressor", "Classifier")]

    def length(name):
        parts = whole(name).difference(*(f for f in foundations if name not in f))
        return sum(known[part][1] for part in parts if part in known)

    assert not {name: length(name) for name in known if length(name) > MOST_LINES_OF_A_CLASS}


def test_no_file_is_long():
    lengths = {path.relative_to(PACKAGE).as_posix(): path.read_text().count("\n") for path in PACKAGE.rglob("*.py")}
    assert not {name: n for name, n in lengths.items() if n > MOST_LINES_OF_A_FILE}
