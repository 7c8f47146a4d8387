"""NumPy's functions on traced arrays mean what they mean on arrays: values, shapes, dtypes; and errors that help.

`CALLS` has, for every name of `wonderland.numpy`, calls that are made four times: on plain arrays by NumPy (the
oracle), on dual numbers and in a recorded Program through NumPy's own function, and through the namespace of ours.
"""

import functools
import warnings

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.core import tree
from wonderland.core.program import run

UNARY = """absolute abs conj conjugate cos exp fabs invert isfinite isnan log logical_not negative positive reciprocal
    sign sin sqrt square tanh""".split()
BINARY = """add bitwise_and bitwise_or bitwise_xor divide equal float_power greater greater_equal less less_equal logical_and
    logical_or maximum minimum multiply not_equal power subtract true_divide""".split()
REDUCTIONS = "all any amax amin max mean min std sum var".split()
CONSTRUCTORS = """array asanyarray asarray ascontiguousarray asfortranarray empty eye full identity ones zeros""".split()


def method(name, *args, **kwargs):
    return lambda np, a, b, c, v, s: getattr(a, name)(*args, **kwargs)


# Arguments: a and b of shape (3, 4), c (4, 2), v (4,), s ().
CALLS = {
    **{n: [lambda np, a, b, c, v, s, n=n: (getattr(np, n)(a), getattr(np, n)(s))] for n in UNARY},
    **{
        n: [
            lambda np, a, b, c, v, s, n=n: (getattr(np, n)(a, b), getattr(np, n)(a, v), getattr(np, n)(s, a)),
            lambda np, a, b, c, v, s, n=n: (getattr(np, n)(a, 2), getattr(np, n)(2, a), getattr(np, n)(s, True)),
        ]
        for n in BINARY
    },
    **{
        n: [
            lambda np, a, b, c, v, s, n=n: (getattr(np, n)(a), getattr(np, n)(s)),
            lambda np, a, b, c, v, s, n=n: (getattr(np, n)(a, axis=0), getattr(np, n)(a, 1), getattr(np, n)(a, (0, 1))),
            lambda np, a, b, c, v, s, n=n: (getattr(np, n)(a, axis=-1, keepdims=True), getattr(np, n)(a, keepdims=True)),
            lambda np, a, b, c, v, s, n=n: getattr(a, n.removeprefix("a") if n in ("amax", "amin") else n)(axis=0),
        ]
        for n in REDUCTIONS
    },
    "array": [lambda np, a, b, c, v, s: (np.array([s, s * 2]), np.array([[s, 1.0], [2.0, s]]), np.array(a))],
    "asarray": [lambda np, a, b, c, v, s: (np.asarray(a), np.asarray([v, v]))],
    "asanyarray": [lambda np, a, b, c, v, s: np.asanyarray(a)],
    "ascontiguousarray": [lambda np, a, b, c, v, s: np.ascontiguousarray(a.T)],
    "asfortranarray": [lambda np, a, b, c, v, s: np.asfortranarray(a)],
    "atleast_1d": [lambda np, a, b, c, v, s: (np.atleast_1d(s), np.atleast_1d(a))],
    "broadcast_to": [lambda np, a, b, c, v, s: (np.broadcast_to(v, (3, 4)), np.broadcast_to(s, (2,)))],
    "clip": [
        lambda np, a, b, c, v, s: (np.clip(a, 0, 2), np.clip(a, None, 1), np.clip(a, a_min=1, a_max=2)),
        method("clip", 0, 2),
    ],
    "concatenate": [
        lambda np, a, b, c, v, s: (np.concatenate([a, b]), np.concatenate((a, b), axis=1), np.concatenate([v, v], -1)),
        lambda np, a, b, c, v, s: np.concatenate([a, c], axis=None),
        lambda np, a, b, c, v, s: np.concatenate([v, [1.5, 2.5]]),
    ],
    "copy": [lambda np, a, b, c, v, s: np.copy(a), method("copy")],
    "dot": [
        lambda np, a, b, c, v, s: (np.dot(a, c), np.dot(a, v), np.dot(v, v), np.dot(s, a), np.dot(v, c)),
        lambda np, a, b, c, v, s: a.dot(v),
    ],
    "empty": [lambda np, a, b, c, v, s: np.empty((2, 3)).shape],
    "empty_like": [lambda np, a, b, c, v, s: (np.empty_like(a) * 0 + a, np.empty_like(a, dtype="int32") * 0)],
    "expand_dims": [lambda np, a, b, c, v, s: (np.expand_dims(a, 0), np.expand_dims(a, -1), np.expand_dims(v, (0, 2)))],
    "eye": [lambda np, a, b, c, v, s: np.eye(3) @ a],
    "full": [lambda np, a, b, c, v, s: (np.full((2, 3), s), np.full(3, 2.5) + s)],
    "full_like": [lambda np, a, b, c, v, s: (np.full_like(a, 3), np.full_like(a, s), np.full_like(a, 1, dtype="float64"))],
    "hstack": [lambda np, a, b, c, v, s: (np.hstack([a, b]), np.hstack([v, v]))],
    "identity": [lambda np, a, b, c, v, s: np.identity(3) @ a],
    "imag": [lambda np, a, b, c, v, s: (np.imag(a), a.imag)],
    "inner": [lambda np, a, b, c, v, s: (np.inner(v, v), np.inner(a, b), np.inner(s, a))],
    "matmul": [
        lambda np, a, b, c, v, s: (np.matmul(a, c), a @ v, v @ c, v @ v),
        lambda np, a, b, c, v, s: (np.stack([a, b]) @ c, np.stack([a, b]) @ np.stack([c, c]), v @ np.stack([c, c])),
    ],
    "moveaxis": [lambda np, a, b, c, v, s: (np.moveaxis(a[None], 0, -1), np.moveaxis(a[None], [0, 1], [1, 0]))],
    "ndim": [lambda np, a, b, c, v, s: np.ndim(a) * s],
    "ones": [lambda np, a, b, c, v, s: np.ones(3) * s],
    "ones_like": [lambda np, a, b, c, v, s: (np.ones_like(a), np.ones_like(a, dtype=bool))],
    "outer": [lambda np, a, b, c, v, s: (np.outer(v, v), np.outer(a, v))],
    "ravel": [lambda np, a, b, c, v, s: (np.ravel(a), a.T.ravel(), s.ravel() if hasattr(s, "ravel") else s), method("flatten")],
    "real": [lambda np, a, b, c, v, s: (np.real(a), a.real)],
    "reshape": [
        lambda np, a, b, c, v, s: (np.reshape(a, (2, 6)), np.reshape(a, -1), a.reshape(4, 3), a.reshape((6, -1))),
        lambda np, a, b, c, v, s: np.reshape(s, (1, 1)),
    ],
    "shape": [lambda np, a, b, c, v, s: np.shape(a)[0] * s],
    "size": [lambda np, a, b, c, v, s: np.size(a) * s],
    "squeeze": [lambda np, a, b, c, v, s: (np.squeeze(a[None]), np.squeeze(a[:, None], axis=1), a[None].squeeze(0))],
    "stack": [lambda np, a, b, c, v, s: (np.stack([a, b]), np.stack([a, b], axis=1), np.stack([v, v], -1), np.stack([s, s]))],
    "swapaxes": [lambda np, a, b, c, v, s: (np.swapaxes(a, 0, 1), a.swapaxes(-1, 0))],
    "take": [
        lambda np, a, b, c, v, s: (np.take(a, [0, 5, -1]), np.take(a, [[0, 1], [2, 0]], axis=0), np.take(a, 2, axis=1)),
        lambda np, a, b, c, v, s: v.take([3, 0]),
    ],
    "tensordot": [
        lambda np, a, b, c, v, s: (np.tensordot(a, c, 1), np.tensordot(a, b), np.tensordot(a, b, axes=([0, 1], [0, 1]))),
        lambda np, a, b, c, v, s: (np.tensordot(a, b, axes=(0, 0)), np.tensordot(a, b, axes=((1, 0), (-1, 0)))),
    ],
    "transpose": [
        lambda np, a, b, c, v, s: (np.transpose(a), a.T, a.transpose(1, 0), a[None].transpose((2, 0, 1)), a[None].mT),
        lambda np, a, b, c, v, s: np.transpose(a[None], (1, 2, 0)),
    ],
    "vstack": [lambda np, a, b, c, v, s: (np.vstack([a, b]), np.vstack([v, v]), np.vstack([a, v]))],
    "where": [
        lambda np, a, b, c, v, s: (np.where(a > b, a, b), np.where(a > 1, a, 0), np.where(v, a, s), np.where(True, a, b)),
    ],
    "zeros": [lambda np, a, b, c, v, s: np.zeros(3) + s],
    "zeros_like": [lambda np, a, b, c, v, s: (np.zeros_like(a), np.zeros_like(a, dtype=float))],
}  # fmt: skip

# Beyond the functions: operators, methods and arguments of ufuncs.
MORE = {
    "operators": lambda np, a, b, c, v, s: (a + b, a - 1, 2 - a, a * v, a / 2, 2 / a, -a, +a, abs(a), a @ c, a**2),
    "comparisons": lambda np, a, b, c, v, s: (a < b, a <= 1, a > v, a >= s, a == b, a != b, 1 < a),
    "plain operands": lambda np, a, b, c, v, s: (np.ones((3, 4)) + a, np.ones((2, 3)) @ a, np.float32(2) * a, [1, 2, 3, 4] * a),
    "astype": lambda np, a, b, c, v, s: (a.astype("float64"), a.astype(int), a.astype(bool), a.astype(complex)),
    "dtype=": lambda np, a, b, c, v, s: (np.sum(a, dtype="float32"), np.mean(a, dtype="float64"), np.add(a, b, dtype="float64")),
    "reduce": lambda np, a, b, c, v, s: (np.add.reduce(a), np.maximum.reduce(a, axis=1), np.minimum.reduce(a, axis=None)),
    "ddof": lambda np, a, b, c, v, s: (np.var(a, ddof=1), np.std(a, axis=0, ddof=1)),
    "attributes": lambda np, a, b, c, v, s: a.size * a.ndim * a.nbytes * len(a) * a.itemsize * s,
    "iteration": lambda np, a, b, c, v, s: [row.sum() for row in a] + [x for row in a for x in row] + list(a.flat),
    "unpacking": lambda np, a, b, c, v, s: (lambda p, q, *rest: (p + q, rest))(*v),
    "conj": lambda np, a, b, c, v, s: (a.conj(), a.conjugate()),
    "T of vector": lambda np, a, b, c, v, s: (v.T, s.T if hasattr(s, "T") else s),
    "builtins": lambda np, a, b, c, v, s: (sum(v), max(v[:2], key=lambda x: float(x.dtype == 0)), abs(s)),
}  # fmt: skip
ALL = [(n, f) for n, fs in CALLS.items() for f in fs] + list(MORE.items())
DTYPES = "float64 float32 int64 int32 bool complex128".split()


@functools.cache
def arguments(dtype):
    rng = np.random.default_rng(0)
    out = []
    for shape in ((3, 4), (3, 4), (4, 2), (4,), ()):
        x = rng.uniform(0.5, 3, shape) + (1j * rng.uniform(0.5, 1, shape) if dtype == "complex128" else 0)
        out.append(np.round(x, 3 if dtype[0] in "fc" else 0).astype(dtype)[()])
    return tuple(out)


def same(actual, expected, what=""):
    actual, structure = tree.flatten(actual)
    expected, wanted = tree.flatten(expected)
    assert structure == wanted, what
    for a, b in zip(actual, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), what
        np.testing.assert_allclose(a, b, rtol=2e-3 if b.dtype == np.float16 else 1e-5, atol=1e-6, err_msg=what)


def oracle(f, args):
    """NumPy's result, or the exception by which NumPy refuses."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        try:
            return f(np, *args), None
        except (TypeError, ValueError) as e:
            return None, e


def test_every_name_is_called():
    assert sorted(dir(wnp)) == sorted({*CALLS} & {*dir(wnp)})
    assert not {*CALLS} - {*dir(wnp)}


@pytest.mark.parametrize(("name", "call"), ALL, ids=[f"{n}-{i}" for i, (n, _) in enumerate(ALL)])
class TestFunctions:
    def test_on_dual_numbers(self, name, call):
        def dual(f, args):
            out, tangent = wl.jvp(f, args, args)  # the arguments will do as directions
            for o, t in zip(tree.leaves(out), tree.leaves(tangent), strict=True):
                assert np.shape(o) == np.shape(t) and np.result_type(o) == np.result_type(t)
            return out

        self.check(name, call, dual)

    def test_recorded(self, name, call):
        def recorded(f, args):
            structure = []

            def flat(*a):
                leaves, found = tree.flatten(f(*a))
                structure.append(found)
                return leaves

            program = wl.verify(wl.trace(flat)(*args))
            outs = run(program, args)
            assert [np.result_type(o) for o in outs] == [t.dtype for t in program.output_types]
            return structure[0].unflatten(outs)

        self.check(name, call, recorded)

    def test_batched(self, name, call):
        def batched(f, args):
            out = wl.vmap(f)(*(np.stack([a, a]) for a in args))
            return tree.tree_map(lambda x: x[1], out)

        self.check(name, call, batched)

    def test_our_namespace_on_arrays(self, name, call):
        self.check(name, call, lambda f, args: plain(f(*args)), ours=True)

    def check(self, name, call, how, ours=False):
        namespace = wnp if ours or name in CONSTRUCTORS else np
        f = lambda *a: call(namespace, *a)
        for dtype in DTYPES:
            args = arguments(dtype)
            expected, refusal = oracle(call, args)
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
                if refusal is not None:
                    with pytest.raises((TypeError, ValueError)):
                        how(f, args)
                        pytest.fail(f"{dtype}: NumPy raises {refusal!r}")
                else:
                    same(how(f, args), expected, dtype)


def plain(result):
    """Arrays made by constructors of our namespace are held by tracers, outside of transformations too."""
    return tree.tree_map(lambda x: np.asarray(x) if isinstance(x, wl.core.tracer.Tracer) else x, result)


class TestPythonScalarsAreWeak:
    """NEP 50: a Python scalar takes the dtype of its partner, also as an argument of a transformed function."""

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("scalar", [2, 2.5, True, 1j], ids=str)
    @pytest.mark.parametrize("f", [lambda x, c: x * c, lambda x, c: c + x, lambda x, c: np.where(x > 0, x, c)])
    def test_with_arrays(self, f, scalar, dtype):
        x = np.ones(3, dtype)
        expected = f(x, scalar)
        for out in (
            wl.jvp(lambda x: f(x, scalar), (x,), (None,))[0],  # captured
            wl.jvp(f, (x, scalar), (None, None))[0],  # an argument
            wl.vmap(f, (0, None))(x, scalar),
            run(wl.trace(f)(x, scalar), (x, scalar))[0],
        ):
            assert out.dtype == expected.dtype
            np.testing.assert_array_equal(out, expected)

    @pytest.mark.parametrize(
        "f",
        [
            lambda x: x * 2, lambda x: x + 1.5, lambda x: np.sin(x), lambda x: np.add(x, 1), lambda x: -x,
            lambda x: np.float32(2) * x, lambda x: np.sin(x) * np.float32(2), lambda x: x**2, lambda x: np.sum(x),
            lambda x: x / 3, lambda x: np.maximum(x, 1),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("x", [2.0, 3], ids=["float", "int"])
    def test_a_scalar_argument_gives_numpys_type(self, f, x):
        expected = f(x)
        for out in (wl.jvp(f, (x,), (None,))[0], run(wl.trace(f)(x), (x,))[0]):
            assert np.result_type(out) == np.result_type(expected) and np.isclose(out, expected)
            assert isinstance(out, np.generic) == isinstance(expected, np.generic)

    def test_learning_rate(self):
        """A float argument of a step on float32 weights leaves them float32, and has a gradient of its own."""
        w = np.ones(3, np.float32)
        step = lambda w, rate: w - rate * (w * 2)
        assert wl.vjp(step, w, 0.1)[0].dtype == np.float32
        gradient = wl.grad(lambda w, rate: np.sum(step(w, rate)), argnums=(0, 1))(w, 0.1)
        assert gradient[0].dtype == np.float32 and np.isclose(gradient[1], -6)

    def test_derivative_of_a_python_function_of_a_float(self):
        assert wl.grad(lambda x: x**3)(2.0) == 12.0


def index_of(data, extent, arrays):
    """A random entry of an index for an axis."""
    integers = st.integers(-extent, extent - 1) if extent else st.nothing()
    bounds = st.none() | st.integers(-extent - 2, extent + 2)
    steps = st.none() | st.integers(-3, 3).filter(bool)
    choices = [st.builds(slice, bounds, bounds, steps), st.just(slice(None))]
    if extent:
        choices.append(integers)
        if arrays:
            shapes = st.sampled_from([(3,), (2, 1), (1,), (2, 3)])
            choices.append(
                shapes.flatmap(lambda s: hnp.arrays(np.int64, s, elements=st.integers(-extent, extent - 1)))
            )
            choices.append(st.lists(st.integers(0, extent - 1), min_size=3, max_size=3))
            choices.append(hnp.arrays(bool, extent).filter(lambda m: m.sum() == 3))
    return data.draw(st.one_of(choices))


def random_index(data, shape, arrays=True):
    """A random index of an array of a shape: ints, slices, arrays, masks, new axes, an ellipsis."""
    count = data.draw(st.integers(0, len(shape)))
    dots = data.draw(st.booleans())
    split = data.draw(st.integers(0, count)) if dots else count
    first = [index_of(data, n, arrays) for n in shape[:split]]
    rest = shape[len(shape) - (count - split) :] if dots and count > split else ()
    entries = first + ([Ellipsis] if dots else []) + [index_of(data, n, arrays) for n in rest]
    for _ in range(data.draw(st.integers(0, 2))):
        entries.insert(data.draw(st.integers(0, len(entries))), None)
    return entries[0] if len(entries) == 1 and data.draw(st.booleans()) else tuple(entries)


def is_valid(x, index):
    try:
        x[index]
        return True
    except IndexError:
        return False  # index arrays that don't broadcast together


SHAPES = st.sampled_from([(5,), (3, 4), (2, 3, 4), (1, 3), (3, 0), (4, 1, 3)])


class TestIndexing:
    @hypothesis.given(st.data())
    @hypothesis.settings(max_examples=300)
    def test_reading(self, data):
        shape = data.draw(SHAPES)
        x = np.arange(np.prod(shape), dtype=float).reshape(shape)
        index = random_index(data, shape)
        hypothesis.assume(is_valid(x, index))
        f = lambda x: x[index]
        same(wl.jvp(f, (x,), (x,)), (x[index],) * 2, index)
        same(run(wl.verify(wl.trace(f)(x)), (x,))[0], x[index])
        same(wl.vmap(f)(np.stack([x, x + 1]))[1], x[index] + 1)
        # The gradient of a weighted sum puts the weights where they were read.
        weights = np.arange(1.0, x[index].size + 1).reshape(x[index].shape)
        expected = np.zeros(shape)
        np.add.at(expected, index, weights)
        same(wl.grad(lambda x: np.sum(x[index] * weights))(x), expected)

    @hypothesis.given(st.data())
    @hypothesis.settings(max_examples=300)
    def test_writing(self, data):
        shape = data.draw(SHAPES)
        x = np.arange(np.prod(shape), dtype=float).reshape(shape)
        index = random_index(data, shape)
        hypothesis.assume(is_valid(x, index))
        part = x[index].shape
        value_shape = part[data.draw(st.integers(0, len(part))) :]
        u = -1.0 - np.arange(np.prod(value_shape, dtype=int)).reshape(value_shape)

        def f(x, u):
            x = x.copy()
            x[index] = u
            return x

        expected = f(x, u)
        same(wl.jvp(f, (x, u), (x, u)), (expected, expected), index)
        same(run(wl.verify(wl.trace(f)(x, u)), (x, u))[0], expected)
        same(wl.vmap(f)(np.stack([x, x]), np.stack([u - 1, u]))[1], expected)
        wl.testing.check_grads(f, (x, u), order=1, modes=("reverse",))

    @hypothesis.given(st.data())
    @hypothesis.settings(max_examples=100)
    def test_adding_in_place(self, data):
        """`x[i] += u` writes once where an index occurs twice, as NumPy does."""
        shape = data.draw(SHAPES)
        x = np.arange(np.prod(shape), dtype=float).reshape(shape)
        index = random_index(data, shape)
        hypothesis.assume(is_valid(x, index))

        def f(x):
            x = x.copy()
            x[index] += 2.0
            return x

        same(wl.jvp(f, (x,), (x,))[0], f(x), index)

    def test_traced_indices(self):
        x, i = np.arange(12.0).reshape(3, 4), np.array([2, 0, -1])
        for f in (lambda x, i: x[i], lambda x, i: x[:, i], lambda x, i: x[i, 1], lambda x, i: x[i, ::2],
                  lambda x, i: x[i[0]], lambda x, i: x[0, i[1] + 1]):  # fmt: skip
            same(run(wl.trace(f)(x, i), (x, i))[0], f(x, i))
            same(wl.jvp(f, (x, i), (x, None))[0], f(x, i))
            same(wl.vmap(f, (None, 0))(x, np.stack([i, i]))[1], f(x, i))

    def test_writing_where_an_index_occurs_twice(self):
        """The last one written stays, and only it has a derivative."""

        def f(u):
            x = wnp.zeros(3)
            x[np.array([0, 1, 0])] = u
            return x

        u = np.array([1.0, 2.0, 3.0])
        same(plain(f(u)), np.array([3.0, 2.0, 0.0]))
        same(wl.jacobian(f)(u), np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0.0]]))

    def test_boolean_masks(self):
        x = np.array([[1.0, -2.0], [-3.0, 4.0]])

        def f(x):
            x = x * 1.0
            x[x < 0] *= 10.0
            return x[x > 0], x

        same(wl.jvp(f, (x,), (x,))[0], f(x))
        same(wl.grad(lambda x: np.sum(f(x)[1]))(x), np.array([[1.0, 10], [10, 1]]))


def transformed(f, *args):
    """The function's result in every transformation that keeps values."""
    return [
        wl.jvp(f, args, args)[0],
        wl.vjp(f, *args)[0],
        wl.trace(f)(*args)(*args)[0],
        wl.vmap(f)(*(np.stack([a, a]) for a in args))[0],
    ]


def views_transposed(a):
    a = a * 1.0
    d = a.T
    d[1] = 7.0
    return a


def views_both_ways(a):
    a = a * 1.0
    row, column = a[1], a[:, 2]
    row *= 2.0
    column[:] = -row[:3]
    a[0, 0] = 100.0
    return np.concatenate([row, column, a.ravel()])


def views_of_views(a):
    a = a * 1.0
    part = a[1:, ::-1][:, 1:]
    part += 10.0
    part[0][1] = 5.0
    return a - part.sum()


def views_reread(a):
    a = a * 1.0
    flat = a.reshape(-1)
    before = flat.sum()
    a += 1.0
    after = flat.sum()
    flat[3] = 0.0
    return a * before + after


def copies_stay(a):
    a = a * 1.0
    kept, picked = a.copy(), a[[0, 1]]
    flat = a.flatten()
    a[...] = 0.0
    return np.sum(kept) + np.sum(picked) + np.sum(flat) + a


def out_argument(a):
    out = a * 0.0
    np.multiply(a, 2.0, out=out)
    np.add(out, a, out=out[...])
    np.exp(out[0], out=out[0])
    return out


def augmented(a):
    b = a * 1.0
    c = b
    c += 1.0
    c *= a
    c -= 0.5
    c /= 2.0
    c **= 2
    b[1] @= np.eye(4)
    return b


def swapped(a):
    a = a * 1.0
    a[0], a[1] = a[1].copy(), a[0].copy()
    return a


def moved_axes(a):
    a = a * 1.0
    np.moveaxis(a[None], 0, -1)[1, 2] = 3.0
    np.swapaxes(a, 0, 1)[3] = 4.0
    np.expand_dims(a, 0)[0, 0, 0] = 5.0
    a.squeeze()[2, 2] = 6.0
    return a


def loops_write(a):
    out = a * 0.0
    for i in range(3):
        for j in range(4):
            out[i, j] = a[i, j] * i + (out[i, j - 1] if j else 0.0)
    return out


class TestViews:
    """What is a view in NumPy is one here: writes go through, both ways."""

    @pytest.mark.parametrize(
        "f",
        [
            views_transposed, views_both_ways, views_of_views, views_reread, copies_stay, out_argument, augmented,
            swapped, moved_axes, loops_write,
        ],
    )  # fmt: skip
    def test_as_in_numpy(self, f):
        a = np.linspace(-1, 1, 12).reshape(3, 4)
        expected = f(a)
        for out in transformed(f, a):
            same(out, expected)
        wl.testing.check_grads(f, (a,), order=2)

    def test_the_callers_array_is_not_written(self):
        a = np.ones(3)

        def f(x):
            x *= 3.0
            x[0] = 0.0
            return np.sum(x)

        assert wl.grad(f)(a).tolist() == [0.0, 3.0, 3.0]
        assert a.tolist() == [1.0, 1.0, 1.0]

    def test_arguments_that_are_not_differentiated_are_read_only(self):
        def f(x, scratch):
            scratch *= 2.0
            return np.sum(x * scratch)

        with pytest.raises((ValueError, TypeError)):
            wl.grad(f)(np.ones(3), np.ones(3))

    def test_a_scalar_is_replaced_not_written(self):
        def f(x):
            y = x
            x += 1.0
            return y * 10.0 + x

        assert wl.jvp(f, (2.0,), (1.0,)) == (f(2.0), 11.0)
        same(wl.jvp(f, (np.float64(2),), (np.float64(1),))[0], f(np.float64(2)))

    def test_dtype_of_the_written_array_stays(self):
        def f(x):
            x = x.astype(np.float32)
            x[0] = np.float64(0.1)
            x += np.arange(3.0)
            return x

        same(wl.jvp(f, (np.ones(3),), (np.ones(3),))[0], f(np.ones(3)))


def record(f):
    return lambda *args: wl.trace(f)(*args)


class TestErrors:
    """Each says what came, what was expected or what to write instead."""

    @pytest.mark.parametrize(
        ("f", "message"),
        [
            (lambda x: x if x.sum() > 0 else -x, "decision.*wl.cond"),
            (lambda x: x[: int(x.sum())], "int.*only its type"),
            (lambda x: [0, 1, 2][x.astype(int)[0]], "index or range.*only its type"),
            (lambda x: x[x > 0], "boolean mask"),
            (lambda x: float(x[0]), "float.*only its type"),
            (lambda x: np.asarray(x), "only its type"),
            (lambda x: np.array([x[0], x[1]]), "only its type"),
        ],
    )
    def test_values_while_recording(self, f, message):
        for transform in (record, wl.vmap):
            x = np.ones((3, 3)) if transform is wl.vmap else np.ones(3)
            with pytest.raises(wl.NoValueError, match=message) as caught:
                transform(f)(x)
            assert "test_numpy_functions.py:" in str(caught.value)  # the user's line

    @pytest.mark.parametrize(
        "f",
        [
            lambda x: float(x[0]), lambda x: np.asarray(x), lambda x: np.array([x[0], 1.0]), lambda x: x.item(0),
            lambda x: x.tolist(), lambda x: complex(x[0]), lambda x: np.add(x, x, out=np.zeros(3)),
        ],
    )  # fmt: skip
    def test_a_derivative_is_never_dropped(self, f):
        with pytest.raises((wl.LostDerivativeError, TypeError)):
            wl.jvp(f, (np.ones(3),), (np.ones(3),))

    def test_plain_array_written_with_a_traced_value(self):
        def f(x):
            a = np.zeros(3)
            a[0] = x[0]
            return a

        def g(x):
            a = np.zeros(3)
            a += x
            return a

        for function in (f, g):
            with pytest.raises(wl.LostDerivativeError, match="wonderland.numpy.*wl.lift|wl.lift"):
                wl.jvp(function, (np.ones(3),), (np.ones(3),))

    def test_values_of_duals_are_there(self):
        f = lambda x: x * 2 if x > 0 else -x
        assert wl.grad(f)(3.0) == 2.0 and wl.grad(f)(-3.0) == -1.0
        assert wl.grad(lambda x: x * int(x))(2.5) == 2.0

    @pytest.mark.parametrize(
        ("f", "message"),
        [
            (lambda x: np.linalg.qr(x), "np.linalg.qr isn't supported.*wonderland.numpy"),
            (lambda x: np.spacing(x), "np.spacing isn't supported"),
            (lambda x: np.multiply.accumulate(x), "np.multiply.accumulate isn't supported"),
            (lambda x: np.sum(x, where=np.ones(3, bool)), "where"),
            (lambda x: np.add(x, x, where=np.ones(3, bool)), "where"),
        ],
    )
    def test_unsupported(self, f, message):
        for transform in (record, lambda f: lambda x: wl.jvp(f, (x,), (x,))):
            with pytest.raises(TypeError, match=message):
                transform(f)(np.ones((3, 3)))

    def test_unsupported_attribute(self):
        with pytest.raises(AttributeError, match="no .partition yet"):
            wl.trace(lambda x: x.partition(2))(np.ones(3))
        with pytest.raises(AttributeError, match="^nonsense$"):
            wl.trace(lambda x: x.nonsense)(np.ones(3))

    @pytest.mark.parametrize(
        ("f", "error"),
        [
            (lambda x: x[3], IndexError),
            (lambda x: x[0, 0, 0], IndexError),
            (lambda x: x[-4], IndexError),
            (lambda x: x[[0, 3]], IndexError),
            (lambda x: x["a"], IndexError),
            (lambda x: x[1.0], IndexError),
            (lambda x: x[..., ...], IndexError),
            (lambda x: x.reshape(5), ValueError),
            (lambda x: x @ np.ones(4), ValueError),
            (lambda x: x + np.ones(4), ValueError),
            (lambda x: np.sum(x, axis=2), ValueError),
            (lambda x: np.sum(x, axis=(0, 0)), ValueError),
            (lambda x: np.concatenate([x, np.ones((2, 4))]), ValueError),
            (lambda x: np.stack([x, np.ones(3)]), ValueError),
            (lambda x: np.squeeze(x, 0), ValueError),
            (lambda x: np.broadcast_to(x, (4, 5)), ValueError),
            (lambda x: np.transpose(x, (0, 0)), ValueError),
            (lambda x: np.max(x[:0]), ValueError),
            (lambda x: x.__setitem__(0, np.ones(4)), ValueError),
            (lambda x: x.__iadd__(np.ones((2, 3, 3))), ValueError),
            (lambda x: len(x[0, 0]), TypeError),
            (lambda x: list(x[0, 0]), TypeError),
            (lambda x: hash(x), TypeError),
            (lambda x: np.where(x), TypeError),
        ],
    )
    def test_as_numpy(self, f, error):
        """The same class of exception as NumPy's, recorded and on dual numbers."""
        x = np.ones((3, 3))
        for transform in (record, lambda f: lambda x: wl.jvp(f, (x,), (x,))):
            with pytest.raises(error):
                transform(f)(x)

    def test_leaked_tracer(self):
        kept = []
        wl.grad(lambda x: kept.append(x) or x * 2.0)(1.0)
        with pytest.raises(wl.LeakedTracerError, match="return it from the function"):
            kept[0] + 1.0
        wl.trace(lambda x: kept.append(x) or x)(1.0)
        with pytest.raises(wl.LeakedTracerError):
            np.sin(kept[1])
