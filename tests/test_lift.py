"""`wl.lift` on code as scientists write it, and products with SciPy's sparse matrices.

The oracles are finite differences of the same code run by NumPy alone, closed forms, and dense matrices. Stencils,
solvers of linear systems and Runge-Kutta methods are in `inplace/`.
"""

import contextlib
import copy
import dataclasses
import functools
import importlib
import itertools
import math
import sys
import traceback

import numpy as np
import pytest
import scipy.sparse as sp

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.core.errors import ArgumentError, LostDerivativeError
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import type_of
from wonderland.numpy.lift import lift
from wonderland.numpy.sparse import CompressedRows, sparse_dot
from wonderland.ops import index as index_ops


def finite_difference(f, x):
    """Central differences of order four, by plain NumPy."""
    x = np.asarray(x, float)
    out = np.zeros(x.shape)
    h = 1e-3
    for i in np.ndindex(x.shape):
        e = np.zeros(x.shape)
        e[i] = h
        near, far = f(x + e) - f(x - e), f(x + 2 * e) - f(x - 2 * e)
        out[i] = (8 * near - far) / (12 * h)
    return out


def check(f, x):
    """Reverse and forward mode of the lifted function against finite differences of the plain one."""
    x = np.asarray(x, float)
    expected = finite_difference(f, x)
    np.testing.assert_allclose(wl.grad(lift(f))(x), expected, rtol=1e-7, atol=1e-8)
    direction = np.cos(np.arange(x.size)).reshape(x.shape)
    value, tangent = wl.jvp(lift(f), (x,), (direction,))
    np.testing.assert_allclose(value, f(x), rtol=1e-14)
    np.testing.assert_allclose(tangent, np.sum(expected * direction), rtol=1e-7, atol=1e-8)


X = np.array([0.3, -0.7, 1.1, 0.4, 0.9, -0.2])


# What a user's module looks like.


def diffuse(u, steps=4, dt=0.1):
    u = np.asarray(u, dtype=float)
    for _ in range(steps):
        new = np.zeros_like(u)
        new[1:-1] = u[1:-1] + dt * (u[2:] - 2 * u[1:-1] + u[:-2])
        new[0], new[-1] = u[0], u[-1] ** 2
        u = new
    return u


def energy(u):
    return np.sum(diffuse(u) ** 3)


class Grid:
    """Holds a grid, and private things."""

    def __init__(self, n, scale=1.0):
        self.values = np.zeros(n)
        self.__scale = scale

    def fill(self, x, *rest, power=2):
        for i in range(len(self.values)):
            self.values[i] = self.__scale * x[i] ** power
        return self.total(*rest)

    def total(self, factor=1.0):
        return factor * np.sum(self.values)

    @staticmethod
    def pair(a, b):
        return np.array([a, b])

    @classmethod
    def of(cls, x):
        grid = cls(len(x), scale=3.0)
        grid.fill(x)
        return grid

    def __call__(self, x):
        return np.array([np.sum(x), x[0]])[1] * x[1]


class FinerGrid(Grid):
    def fill(self, x, *rest, power=2):
        out = np.ones(1)
        out[0] = super().fill(x, *rest, power=power)
        return out[0] * x[-1]


@dataclasses.dataclass
class Point:
    x: float
    y: float


def factorial_like(x, n):
    return np.array([x])[0] if n == 0 else factorial_like(x, n - 1) * np.asarray(x + n)


def test_a_matrix_stencil_written_in_place():
    def f(u):
        v = np.empty((3, 2))
        v[:, 0] = u[:3]
        v[:, 1] = u[3:]
        w = v.T
        w[1] *= u[0]  # a view: v changes
        w += 1.0
        return np.sum(v**3)

    check(f, X)


def test_methods_classes_and_private_names():
    check(lambda x: Grid(6, scale=2.0).fill(x, 0.5, power=3), X)
    check(lambda x: FinerGrid(6).fill(x, 0.5), X)
    check(lambda x: Grid.of(x).total() + np.sum(Grid.pair(x[0], x[1]) ** 2), X)
    check(Grid(2), X)
    check(Grid(2).__call__, X)


def test_a_class_without_an_init_of_its_own():
    def f(x):
        point = Point(x[0], y=x[1])
        return np.array([point.x, point.y])[1] * point.x

    check(f, X)


def test_closures_defaults_and_globals_are_live():
    factor = 2.0

    def inner(x, *, shift=1.0, **options):
        return np.array([x[0] * factor, x[1] + shift, options.get("extra", 0.0)])

    def f(x, scale=3.0):
        total = 0.0

        def add(v):
            nonlocal total
            total = total + np.array([v])[0]

        for v in inner(x, extra=x[2]):
            add(scale * v**2)
        return total

    check(f, X)
    before = wl.grad(lift(f))(X)
    factor = 4.0
    assert wl.grad(lift(f))(X)[0] == 4 * before[0]


def test_recursion_lambdas_comprehensions_and_generators():
    def first_squared(v):
        return np.array([v, v])[0] ** 2

    def parts(x):
        for i in range(3):
            yield np.array([x[i], x[i + 1]])

    check(lambda x: factorial_like(x[0], 3), X)
    check(lambda x: (lambda y: np.array([y[0], y[1] ** 2]))(x)[1] + (lambda y: np.array([y[2]]))(x)[0], X)
    check(lambda x: np.sum(np.array([np.asarray(v) ** 2 for v in x])), X)
    check(lambda x: sum(p[0] * np.sin(p[1]) for p in parts(x)), X)
    check(lambda x: sum(map(first_squared, x)), X)
    check(lambda x: functools.reduce(lambda a, b: np.array([a * b, b])[0], list(x)), X)


def test_two_lambdas_on_a_line():
    pair = (lambda x: np.array([x[0]])[0] ** 2, lambda x: np.array([x[1]])[0] ** 3)
    np.testing.assert_allclose(wl.grad(lift(pair[0]))(X)[:2], [2 * X[0], 0])
    np.testing.assert_allclose(wl.grad(lift(pair[1]))(X)[:2], [0, 3 * X[1] ** 2])


def test_partial_star_arguments_and_decorators():
    def logged(g):
        @functools.wraps(g)
        def wrapper(*args, **kwargs):
            return g(*args, **kwargs)

        return wrapper

    @logged
    def weighted(w, x, *, power):
        out = np.full(2, 1.0)
        out[:] = w * np.array(x[:2]) ** power
        return np.sum(out)

    options = {}
    check(functools.partial(weighted, 2.0, power=3), X)
    check(lambda x: functools.partial(weighted, power=2)(*[x[0], x], **options), X)


def test_constructors():
    def f(x):
        a = np.array([[1.0, 2.0], [3.0, 4.0]])
        a[0, 1] = x[0]
        b = np.eye(2)
        b[1] += x[:2]
        c = np.full((2,), x[1])
        d = np.ascontiguousarray(x[0])
        assert d.shape == (1,)
        e = np.array(x[2], ndmin=2)
        assert e.shape == (1, 1)
        g = np.ones_like(x)
        g[0] = x[3]
        h = np.full_like(x, x[4])
        h[1] = 2.0
        plain = np.arange(3.0)
        i = plain.copy()
        i[2] = x[5]
        j = np.copy(plain)
        j[0] = x[5] ** 2
        k = np.asarray([1, 2, 3], dtype=float)
        k[0] = x[0] * x[1]
        n = np.zeros(np.array([2, 3])[1])  # a size out of an array
        n[2] = x[1]
        return np.sum(a @ b @ c) + d[0] ** 2 * e[0, 0] + np.sum(g * h) + np.sum((i + j) ** 3) + k[0] ** 2 + n[2]

    check(f, X)


def test_a_copy_is_a_copy_and_asarray_is_not():
    def copied(x):
        y, z = np.array(x, copy=True), np.array(x)
        y[0] = 10.0
        z *= 0.0
        return np.sum(x**2)

    def itself(x):
        y = np.array(x)
        z = np.asarray(y, dtype=float)
        z[0] = 10.0
        return np.sum(y**2)

    np.testing.assert_allclose(wl.grad(lift(copied))(X), 2 * X)
    np.testing.assert_allclose(wl.grad(lift(itself))(X), [0, *2 * X[1:]])


def test_asarray_of_a_plain_array_is_that_array():
    def f(x):
        plain = np.arange(2.0) + 1
        np.asarray(plain)[0] = 5.0
        return np.sum(x[:2] * plain)

    np.testing.assert_allclose(wl.grad(lift(f))(X)[:2], [5, 2])


def test_arrays_of_other_things_stay_numpys():
    def f(x):
        words = np.array(["a", "b"])
        objects = np.empty(2, dtype=object)
        objects[0] = "x"
        assert type(words) is np.ndarray and type(objects) is np.ndarray
        return x[np.array([0, 1])][1] * len(words)

    assert wl.grad(lift(f))(X)[1] == 2


def test_without_a_transformation_it_is_the_function():
    def f(x):
        out = np.zeros(3)
        out[:] = x[:3]
        return {"out": out, "kind": type(out), "n": 3}

    result = lift(f)(X)
    assert type(result["out"]) is np.ndarray and result["out"].flags.writeable and result["kind"] is np.ndarray
    np.testing.assert_array_equal(result["out"], X[:3])


def test_handles_outside_of_a_transformation_come_back_as_arrays():
    def f(x):
        out = np.zeros(3)
        out[:] = 2 * x
        return out, [out[:2], "text"], x

    out, (part, text), same = lift(f)(wnp.ones(3))
    assert all(type(a) is np.ndarray and a.flags.writeable for a in (out, part, same)) and text == "text"
    part[0] = 7.0
    np.testing.assert_array_equal(out, [2, 2, 2])


def test_other_transformations():
    lifted = lift(diffuse)
    jacobian = wl.jacobian(lifted)(X)
    expected = np.stack([finite_difference(lambda x, i=i: diffuse(x)[i], X) for i in range(6)])
    np.testing.assert_allclose(jacobian, expected, atol=1e-9)
    batch = np.stack([X, 2 * X, X**2])
    np.testing.assert_allclose(wl.vmap(lifted)(batch), [diffuse(row) for row in batch], rtol=1e-14)
    program = wl.trace(lifted)(X)
    np.testing.assert_allclose(program(X)[0], diffuse(X), rtol=1e-14)
    second = wl.jacobian(wl.grad(lift(energy)))(X)
    np.testing.assert_allclose(second, second.T, atol=1e-12)


def test_a_derivative_taken_inside():
    def potential(q):
        out = np.zeros(2)
        out[:] = q**3
        return np.sum(out)

    def f(x):
        return np.sum(wl.grad(potential)(x[:2]) ** 2)

    np.testing.assert_allclose(wl.grad(lift(f))(X)[:2], 36 * X[:2] ** 3)


def test_lifted_functions_calling_lifted_functions():
    make = lift(lambda n: np.zeros(n))

    def f(x):
        out = make(2)
        out[0] = x[0] ** 2
        return np.sum(out)

    assert wl.grad(lift(f))(X)[0] == 2 * X[0]
    assert lift(make).__wrapped__ is make.__wrapped__

    @functools.wraps(make)
    def doubled(n):
        return 2 * make(n) + 1

    np.testing.assert_array_equal(lift(doubled)(wnp.array(2)), [1, 1])


def test_a_closure_that_outlives_the_call_is_ordinary_code():
    made = []

    def f(x):
        def later():
            return np.zeros(2)

        made.append(later)
        assert isinstance(later(), Tracer)
        return x[0]

    wl.grad(lift(f))(X)
    assert type(made[0]()) is np.ndarray


def test_numpy_is_left_alone_and_libraries_run_as_they_are():
    originals = {name: getattr(np, name) for name in dir(np)}

    def f(x):
        grid = np.linspace(0.0, 1.0, 4)
        weights = np.array([1.0, 2.0, 3.0, 4.0])
        fixed = np.linalg.solve(np.diag(weights), grid)
        return np.sum(x[:4] * fixed) + dataclasses.replace(Point(1.0, 2.0), x=3.0).x

    check(f, X)
    assert all(getattr(np, name) is value for name, value in originals.items())


def test_unhashable_and_odd_callables():
    class Odd:
        __hash__ = None

        def __eq__(self, other):
            raise AssertionError("never compared")

        def __call__(self, x):
            return np.array([x[0], 1.0])

    odd = Odd()
    check(lambda x: np.sum(odd(x) ** 2) + max([1.0, 2.0], key=lambda v: -v) * x[1], X)


def test_without_source():
    space = {"np": np}
    exec("def made(x):\n    return np.sum(np.asarray(x) ** 2)\n\ndef fine(x):\n    return np.sum(x ** 2)", space)
    with pytest.raises(ArgumentError, match=r"source code of made.*wonderland\.numpy"):
        lift(space["made"])
    with pytest.raises(ArgumentError, match="takes a function, not int"):
        lift(3)
    fine, made = space["fine"], space["made"]
    np.testing.assert_allclose(wl.grad(lift(lambda x: fine(np.array(x))))(X), 2 * X)
    with pytest.raises(LostDerivativeError):  # as it is, which is refused, never silently wrong
        wl.grad(lift(lambda x: made(x)))(X)


def test_unlifted_code_is_told_to_lift():
    with pytest.raises(LostDerivativeError, match=r"test_lift\.py:\d+.*wl\.lift"):
        wl.grad(energy)(X)

    def path(y):
        rows = np.zeros((2, len(y)))
        rows[0] = y
        return rows[1, 0]

    with pytest.raises(LostDerivativeError, match=r"wl\.lift"):
        wl.grad(path)(X[:2])

    def fill(x):
        out = np.zeros(3)
        out[0] = x[0]
        return np.sum(out)

    with pytest.raises(LostDerivativeError, match=r"wl\.lift"):
        wl.grad(fill)(X)
    with pytest.raises(LostDerivativeError, match=r"float\(\)"):
        wl.grad(lift(lambda x: float(x[0])))(X)


def test_tracebacks_show_the_users_lines():
    def broken(x):
        out = np.zeros(2)

        raise RuntimeError(str(out.shape))  # the line

    def f(x):
        return broken(
            np.array(x),
        )

    with pytest.raises(RuntimeError) as caught:
        wl.grad(lift(f))(X)
    frames = [t for t in traceback.extract_tb(caught.tb) if t.filename == __file__]
    assert [t.name for t in frames[-2:]] == ["f", "broken"]
    assert frames[-1].lineno == broken.__code__.co_firstlineno + 3
    assert frames[-1].line.endswith("# the line")
    assert frames[-2].lineno == f.__code__.co_firstlineno + 1
    # No frames of ours between a caller and what it calls: depth and warnings' stacklevels are the user's.
    all_frames = traceback.extract_tb(caught.tb)
    assert [t.name for t in all_frames[-2:]] == ["f", "broken"]


def test_frames_are_the_users():
    def f(x):
        local = 3
        assert locals()["local"] == local and sys._getframe().f_code.co_name == "f"
        return np.array(x)[0] * eval("local")

    assert wl.grad(lift(f))(X)[0] == 3


def test_lift_keeps_name_and_documentation():
    assert lift(energy).__name__ == "energy" and lift(energy).__wrapped__ is energy


# Calls into libraries that have no hook.


def test_lists_of_traced_numbers():
    def f(x):
        a, b = x[0], x[1]
        total = np.sum([a, b**2, 3.0]) + np.mean([[a, b], [b, 1.0]]) + np.max([a, b, x[2]])
        rows = np.zeros((2, 2))
        rows[0] = [1.0, a]
        total = total + np.sum(rows**2)
        return total + np.dot([a, b], [b, 2.0]) * np.linalg.norm([a, b]) + np.sin([a, b])[1] + np.prod((a, b))

    check(f, X)


def test_lists_that_numpy_understands_itself():
    def f(x):
        rows = np.stack([x[:2], x[2:4]])
        rows[0, 0] = x[5] ** 2
        return np.sum(np.concatenate([rows[0], x], axis=0) ** 2) + np.sum(np.vstack((rows, rows)) ** 3)

    check(f, X)


def test_arrays_that_numpy_makes_can_be_written():
    plain = np.array([1.0, 4.0, 9.0])

    def f(x):
        grid = np.linspace(0.0, 1.0, 4)
        grid[-1] = x[0]
        steps = np.arange(0.0, 3.0)
        steps *= x[1]
        roots = np.sqrt(plain)
        roots[1:] += x[2:4]
        first, second = np.meshgrid(grid, steps)
        first[0] = x[2]
        noise = np.random.default_rng(3).normal(size=3)
        noise *= x[4]
        powers = plain.cumsum()
        powers[0] = x[5]
        deep = copy.deepcopy(plain)
        deep[0] = x[0]
        return np.sum(first * second) + np.sum(steps * roots) + np.sum(noise) + powers @ deep

    check(f, X)


def test_integers_and_views_that_numpy_makes_stay_numpys():
    plain = np.arange(4.0)

    def f(x):
        order = np.arange(3)
        lookup = {int(k): k for k in order}
        view = plain.reshape(2, 2)
        assert type(order) is np.ndarray and type(view) is np.ndarray and np.shares_memory(view, plain)
        assert type(np.broadcast_to(plain, (2, 4))) is np.ndarray and len(lookup) == 3
        view[0, 0] = 7.0
        return np.sum(x[:4] * plain)

    np.testing.assert_array_equal(wl.grad(lift(f))(X)[:4], [7, 1, 2, 3])


def test_methods_of_plain_arrays_with_traced_arguments():
    weights = np.array([1.0, -2.0, 0.5, 3.0, 1.5, 2.5])

    def f(x):
        return weights.dot(x) ** 2 + np.sum(weights.clip(x[0], 2.0) ** 2)

    check(f, X)


def test_functions_of_math():
    def f(x):
        a = math.sqrt(x[0]) * math.sin(x[1]) + math.exp(x[2]) ** 2 + math.log(x[3], 2.0)
        return a + math.atan2(x[4], x[5]) * math.floor(3 * x[2]) + math.hypot(x[0], x[1]) + math.pi

    check(f, X)
    assert lift(f)(X) == f(X)


def test_numpys_scalar_types():
    def f(x):
        return np.float64(x[0]) ** 2 + np.sum(np.float64(x) * 2) + np.float64(3)

    check(f, X)
    single = wl.jvp(lift(lambda x: np.float32(x)), (X,), (X,))
    assert all(a.dtype == np.float32 for a in single)


def test_functions_of_scipy():
    special, linalg = pytest.importorskip("scipy.special"), pytest.importorskip("scipy.linalg")

    def f(x):
        p = special.softmax(x[:3])
        a = np.outer(x[:3], x[:3]) + np.eye(3)
        return special.logsumexp(x) + p @ linalg.solve(a, x[3:]) + special.logsumexp([x[0], 2.0])

    check(f, X)


def test_iterators_lists_and_out_tuples():
    def f(x):
        table = np.zeros((2, 3))
        for (i, j), v in np.ndenumerate(x.reshape(2, 3)):
            table[i, j] = v * (i + 2 * j)
        table += [[x[0], 1.0, 2.0], [0.0, x[1], x[2]]]
        np.add(table, x[5], out=(table,))
        squares = np.fromiter((v**2 for v in x), float)
        return np.sum(table**2) + np.sum(squares * np.fromiter(range(6), float))

    check(f, X)


@np.vectorize
def ramp(x, slope):
    return slope * x**2 if x > 0 else np.array([x, 0.0])[0]


def test_vectorize():
    check(lambda x: np.sum(ramp(x.reshape(2, 3), x[3]) ** 2), X)
    both = np.vectorize(lambda v: (v, v**3))
    check(lambda x: np.sum(both(x)[0] * both(x)[1]), X)
    np.testing.assert_array_equal(lift(lambda x: ramp(x, 2.0))(X), ramp(X, 2.0))


def test_numpys_functions_that_call_the_users():
    def first_two(v):
        return np.array([v[0] ** 2, v[1]])

    check(lambda x: np.sum(np.apply_along_axis(first_two, 1, x.reshape(2, 3))), X)


def test_sorting_with_a_key_and_running_sums():
    def size(v):
        return np.array([v, 1.0])[0] ** 2

    check(lambda x: sorted(x, key=size)[0] + max(list(x), key=size) ** 2, X)
    check(lambda x: list(itertools.accumulate(list(x), lambda a, b: np.array([a * b, 0.0])[0]))[-1], X)


@dataclasses.dataclass
class Rod:
    n: int
    scale: float = 2.0

    def __post_init__(self):
        self.u = np.zeros(self.n)

    def filled(self, x):
        self.u[1:-1] = self.scale * x[: self.n - 2]
        return self.u


def test_dataclass_with_work_arrays():
    def f(x):
        rod = Rod(5)
        assert "__post_init__" not in vars(rod)
        return np.sum(rod.filled(x) ** 2)

    check(f, X)


class Model:
    def __init__(self, rate):
        self.rate = rate

    @wl.lift
    def loss(self, x):
        out = np.zeros(2)
        out[0], out[1] = self.rate * x[0], x[1] ** 2
        return out @ out


def test_lift_as_the_decorator_of_a_method():
    model = Model(3.0)
    np.testing.assert_allclose(wl.grad(model.loss)(X)[:2], [18 * X[0], 4 * X[1] ** 3])
    assert model.loss(X) == Model.loss(model, X)
    check(lambda x: lift(Model)(2.0).loss(x), X)


def test_functions_of_another_module_of_the_users(tmp_path, monkeypatch):
    source = (
        "import numpy as np\ndef potential(q):\n    out = np.zeros(len(q))\n    out[:] = q**2\n    return out.sum()\n"
    )
    (tmp_path / "users_physics.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    physics = importlib.import_module("users_physics")
    check(lambda x: physics.potential(x) * x[0], X)


def test_context_managers_exceptions_and_keyword_only_arguments():
    @contextlib.contextmanager
    def workspace(n):
        yield np.zeros(n)

    def inner(x, /, *args, shift, **options):
        try:
            with workspace(3) as w, np.errstate(all="ignore"):
                w[:] = x[:3] + shift
                if options["fail"]:
                    raise KeyError("inside")
        except KeyError:
            w[0] = 0.0
        else:
            w[1] = 1.0
        finally:
            w *= 2
        return w

    def f(x):
        return np.sum(inner(x, shift=x[3], fail=True) ** 2) + np.sum(inner(x, shift=1.0, fail=False) ** 3)

    check(f, X)


# The cost of one element.


@pytest.fixture
def copies(monkeypatch):
    """Counts functional updates that copy the array, and those that write to it in place."""
    counts = {"arrays": 0, "updates": 0}

    def counting(primitive):
        evaluate, update = primitive.evaluate, primitive.update

        def counted_evaluate(x, *args, **params):
            counts["arrays"] += 1
            return evaluate(x, *args, **params)

        def counted_update(x, *args, **params):
            counts["updates"] += 1
            return update(x, *args, **params)

        monkeypatch.setattr(primitive, "evaluate", counted_evaluate)
        monkeypatch.setattr(primitive, "update", counted_update)

    counting(index_ops.scatter_slice)
    counting(index_ops.scatter)
    return counts


def write_elements(x):
    out = np.zeros(len(x))
    for i in range(50):
        out[i] = x[i] * 2
    return np.sum(out)


def read_and_write_elements(x):
    out = np.array(x)
    for i in range(1, 50):
        out[i] = out[i - 1] * x[i] + out[i]
    return np.sum(out**2)


def add_in_place(x):
    out = np.zeros(len(x))
    for i in range(50):
        out[i] += np.sin(x[i]) * x[i + 1]
    return np.sum(out)


def write_short_slices(x):
    out = np.zeros(len(x))
    for i in range(0, 100, 2):
        out[i : i + 2] = x[i : i + 2] * out[i + 2 : i + 4] + x[i]
    return np.sum(out)


def write_by_index_arrays(x):
    out = np.zeros(len(x))
    for i in range(50):
        out[np.array([i, i + 1])] = x[np.array([i + 1, i])] * 3.0
    return np.sum(out)


LOOPS = [write_elements, read_and_write_elements, add_in_place, write_short_slices, write_by_index_arrays]


@pytest.mark.parametrize("f", LOOPS)
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_one_element_costs_one_element(f, mode, copies):
    for n in (10**3, 10**6):
        x = np.linspace(0.1, 0.9, n)
        copies.update(arrays=0, updates=0)
        if mode == "reverse":
            wl.grad(lift(f))(x)
        else:
            wl.jvp(lift(f), (x,), (np.ones(n),))
        assert copies["arrays"] <= 4, (n, copies)
        assert copies["updates"] >= 90, (n, copies)


@pytest.mark.parametrize("f", LOOPS)
def test_the_loops_are_right(f):
    x = np.linspace(0.1, 0.9, 110)
    gradient = wl.grad(lift(f))(x)
    direction = np.cos(np.arange(110))
    h = 1e-4
    expected = (f(x + h * direction) - f(x - h * direction)) / (2 * h)
    np.testing.assert_allclose(gradient @ direction, expected, rtol=1e-6)


# Sparse matrices.

DENSE = np.array([[1.0, 0.0, 2.0, 0.0], [0.0, 0.0, -1.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
FORMATS = [sp.csr_matrix, sp.csc_array, sp.coo_matrix, sp.dia_array, sp.lil_array, sp.bsr_matrix]


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("k", [None, 1, 2])
def test_sparse_products(make, k, rng):
    matrix = make(DENSE)
    x = rng.normal(size=(4,) if k is None else (4, k))
    y = rng.normal(size=(3,) if k is None else (k, 3))
    for sparse, dense, at in (
        (lambda v: matrix @ v, lambda v: DENSE @ v, x),
        (lambda v: v @ matrix, lambda v: v @ DENSE, y),
        (lambda v: matrix.dot(v), lambda v: DENSE @ v, x),
    ):
        value, tangent = wl.jvp(sparse, (at,), (np.cos(at),))
        np.testing.assert_allclose(value, dense(at), rtol=1e-14)
        np.testing.assert_allclose(tangent, dense(np.cos(at)), rtol=1e-14)
        gradients = [wl.grad(lambda v, f=f: np.sum(np.sin(f(v))))(at) for f in (sparse, dense)]
        np.testing.assert_allclose(*gradients, rtol=1e-13)
        jacobians = [wl.jacobian(f)(at) for f in (sparse, dense)]
        np.testing.assert_allclose(*jacobians, rtol=1e-14)
        batch = np.stack([at, 2 * at, at**2])
        np.testing.assert_allclose(wl.vmap(sparse)(batch), [dense(v) for v in batch], rtol=1e-14)
        program = wl.verify(wl.trace(sparse)(at))
        np.testing.assert_allclose(program(at)[0], dense(at), rtol=1e-14)


def test_sparse_matrix_times_is_the_matrix_product():
    x = np.arange(4.0)
    gradient = wl.grad(lambda v: np.sum(np.sin(sp.csr_matrix(DENSE) * v)))(x)
    np.testing.assert_allclose(gradient, DENSE.T @ np.cos(DENSE @ x))
    with pytest.raises(TypeError):  # of sparse arrays it is the elementwise product, which isn't supported
        wl.grad(lambda v: np.sum(sp.csr_array(DENSE) * v))(x)


def test_complex_sparse_products():
    def squares(z):
        return np.sum(np.real(z * np.conj(z)))

    dense = DENSE * (1 + 2j)
    z = np.array([1.0 + 1j, 2.0, -1j, 0.5])
    for at in (z, z.real.copy()):
        both = [wl.grad(lambda v, m=m: squares(m @ v))(at) for m in (sp.csr_array(dense), dense)]
        np.testing.assert_allclose(*both, rtol=1e-13)
        assert both[0].dtype == at.dtype


def test_dtypes_shapes_and_patterns_of_sparse_products():
    x = np.ones(4, np.float32)
    single = wl.jvp(lambda v: sp.csr_array(DENSE.astype(np.float32)) @ v, (x,), (x,))
    assert all(a.dtype == np.float32 for a in single)
    with pytest.raises(ValueError, match=r"shape \(3, 4\).*shape \(3,\)"):
        wl.grad(lambda v: np.sum(sp.csr_array(DENSE) @ v))(np.ones(3))


def test_patterns_of_sparse_products():
    """Which elements of x an element of the product can depend on: where its Jacobian isn't zero."""
    for f, n in (
        (lambda v: sp.csr_array(DENSE) @ v, 4),
        (lambda v: v @ sp.coo_array(DENSE), 3),
        (lambda v: sp.csc_array(DENSE) @ v.reshape((4, 2)), 8),
    ):
        (equation,) = (e for e in wl.trace(f)(np.ones(n)).equations if e.primitive is sparse_dot)
        _, (rows, columns) = sparse_dot.pattern([a.type for a in equation.inputs], equation.params)
        reads = np.zeros((equation.outputs[0].type.size, n), bool)
        reads[rows, columns] = True
        np.testing.assert_array_equal(reads, wl.jacobian(lambda v, f=f: f(v).ravel())(np.ones(n)) != 0)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("k", [None, 2])
def test_the_numbers_of_a_sparse_matrix_have_derivatives_too(transposed, k, rng):
    matrix = sp.csr_array(DENSE)
    structure = CompressedRows(matrix.indices, matrix.indptr, matrix.shape)
    x = rng.normal(size=((3 if transposed else 4),) + (() if k is None else (k,)))

    def sparse(data, x):
        return Tracer(sparse_dot(unwrap(data), unwrap(x), structure=structure, transposed=transposed))

    def dense(data, x):
        matrix = wnp.zeros(DENSE.shape)
        matrix[DENSE != 0] = data
        return (matrix.T if transposed else matrix) @ x

    for argnums in (0, 1):
        jacobians = [
            wl.jacobian(f, argnums, mode=m)(matrix.data, x) for f in (sparse, dense) for m in ("forward", "reverse")
        ]
        for other in jacobians[1:]:
            np.testing.assert_allclose(jacobians[0], other, atol=1e-14)
    seconds = [wl.jacobian(wl.grad(lambda d, x, f=f: np.sum(np.sin(f(d, x))))) for f in (sparse, dense)]
    np.testing.assert_allclose(*(second(matrix.data, x) for second in seconds), atol=1e-13)
    data = np.stack([matrix.data, 2 * matrix.data])
    for axes, arguments in (((0, None), (data, x)), ((0, 0), (data, np.stack([x, x**2])))):
        np.testing.assert_allclose(*(wl.vmap(f, axes)(*arguments) for f in (sparse, dense)), atol=1e-14)
    reads = np.zeros((sparse(matrix.data, x).size, matrix.nnz), bool)
    types = [type_of(matrix.data), type_of(x)]
    reads[sparse_dot.pattern(types, {"structure": structure, "transposed": transposed})[0]] = True
    np.testing.assert_array_equal(reads, (wl.jacobian(sparse)(matrix.data, x) != 0).reshape(reads.shape))


def test_a_sparse_matrix_that_changes_later():
    matrix = sp.csr_array(DENSE)

    def f(v):
        out = np.sum(matrix @ v)
        matrix.data *= 5
        return out

    np.testing.assert_allclose(wl.grad(f)(np.ones(4)), DENSE.sum(0))


def test_conversion_of_tracers_is_still_refused():
    with pytest.raises(LostDerivativeError):
        wl.grad(lambda v: np.sum(np.asanyarray(v)))(X)
