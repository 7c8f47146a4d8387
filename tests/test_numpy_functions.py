"""NumPy's functions on traced arrays, beyond their rows of the op table: other ways to call them mean what they mean on
arrays; and errors that help.

`CALLS` has methods, Python numbers as operands, lists of arrays, constructors, and dtypes that NumPy refuses. Each is
made on plain arrays by NumPy (the oracle), on dual numbers, in a recorded Program, in a batch and compiled through
NumPy's own function, and through the namespace of ours.
"""

import functools
import warnings

import numpy as np
import pytest

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.core import tree
from wonderland.core.program import run

REFUSING = "fabs invert negative positive reciprocal sign".split()  # some dtypes
BINARY = """add bitwise_and bitwise_or bitwise_xor divide equal float_power greater greater_equal less less_equal
    logical_and logical_or maximum minimum multiply not_equal power subtract true_divide""".split()
REDUCTIONS = "all any max mean min std sum var".split()
CONSTRUCTORS = "array asanyarray asarray ascontiguousarray asfortranarray empty eye full identity ones zeros".split()

# Expressions in a and b of shape (3, 4), c (4, 2), v (4,), s (); `f` is the function itself.
CALLS = {
    **{n: ["f(a), f(s)"] for n in REFUSING},
    **{n: ["f(a, 2), f(2, a), f(s, True)"] for n in BINARY},
    **{n: [f"a.{n}(), a.{n}(0), a.{n}(axis=(0, 1)), f(a, 1), s.{n}()"] for n in REDUCTIONS},
    "array": ["f([s, s * 2]), f([[s, 1.0], [2.0, s]]), f(a)"],
    "asanyarray": ["f(a)"],
    "asarray": ["f(a), f([v, v])"],
    "ascontiguousarray": ["f(a.T)"],
    "asfortranarray": ["f(a)"],
    "clip": ["f(a, 0, 2), a.clip(0, 2)"],
    "concatenate": ["f([v, [1.5, 2.5]])", "f([a, c], axis=None)"],
    "copy": ["a.copy()"],
    "dot": ["f(s, a), f(v, c), a.dot(v)"],
    "empty": ["f((2, 3)).shape"],
    "empty_like": ["f(a, dtype='int32') * 0"],
    "eye": ["f(3) @ a"],
    "full": ["f((2, 3), s), f(3, 2.5) + s"],
    "full_like": ["f(a, 3), f(a, s), f(a, 1, dtype='float64')"],
    "identity": ["f(3) @ a"],
    "imag": ["a.imag"],
    "matmul": ["a @ v, v @ c, v @ np.stack([c, c]), np.stack([a, b]) @ c"],
    "ndim": ["f(a) * s"],
    "ones": ["f(3) * s"],
    "ravel": ["a.T.ravel(), s.ravel(), a.flatten()"],
    "real": ["a.real"],
    "reshape": ["f(a, -1), a.reshape(4, 3), a.reshape((6, -1)), f(s, (1, 1))"],
    "shape": ["f(a)[0] * s"],
    "size": ["f(a) * s"],
    "squeeze": ["a[None].squeeze(0)"],
    "stack": ["f([s, s])"],
    "swapaxes": ["a.swapaxes(-1, 0)"],
    "take": ["f(a, [[0, 1], [2, 0]], axis=0), v.take([3, 0])"],
    "transpose": ["a.T, a.transpose(1, 0), a[None].transpose((2, 0, 1)), a[None].mT"],
    "vstack": ["f([a, v])"],
    "where": ["f(a > 1, a, 0), f(v, a, s), f(True, a, b)"],
    "zeros": ["f(3) + s"],
}

# Beyond the functions: operators, methods and arguments of ufuncs.
MORE = {
    "operators": "a + b, a - 1, 2 - a, a * v, a / 2, 2 / a, -a, +a, abs(a), a @ c, a**2",
    "comparisons": "a < b, a <= 1, a > v, a >= s, a == b, a != b, 1 < a",
    "plain operands": "np.ones((3, 4)) + a, np.ones((2, 3)) @ a, np.float32(2) * a, [1, 2, 3, 4] * a",
    "astype": "a.astype('float64'), a.astype(int), a.astype(bool), a.astype(complex)",
    "dtype=": "np.sum(a, dtype='float32'), np.mean(a, dtype='float64'), np.add(a, b, dtype='float64')",
    "reduce": "np.add.reduce(a), np.maximum.reduce(a, axis=1), np.minimum.reduce(a, axis=None)",
    "ddof": "np.var(a, ddof=1), np.std(a, axis=0, ddof=1)",
    "attributes": "a.size * a.ndim * a.nbytes * len(a) * a.itemsize * s",
    "iteration": "[row.sum() for row in a] + [x for row in a for x in row] + list(a.flat)",
    "unpacking": "(lambda p, q, *rest: (p + q, rest))(*v)",
    "conj": "a.conj(), a.conjugate()",
    "T of vector": "v.T, s.T",
    "builtins": "sum(v), abs(s)",
}


def compiled(expression, function="ndim"):
    """A function of (NumPy or our namespace, arguments)."""
    return eval(f"lambda np, a, b, c, v, s: (lambda f: ({expression}))(np.{function})")


ALL = [(n, compiled(e, n)) for n, es in CALLS.items() for e in es] + [(n, compiled(e)) for n, e in MORE.items()]
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


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_compiled(dtype):
    """All calls as one function: what NumPy refuses is refused before anything is compiled."""
    args = arguments(dtype)
    fitting = [(name, call) for name, call in ALL if oracle(call, args)[1] is None]
    f = lambda *a: [call(wnp if name in CONSTRUCTORS else np, *a) for name, call in fitting]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        for (name, call), actual in zip(fitting, wl.jit(f)(*args), strict=True):
            same(actual, oracle(call, args)[0], name)


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

    def test_a_strong_tangent_of_a_weak_scalar(self):
        """The tangent of a Python float may come as np.float64: it doesn't make float32 results wider."""
        x, one = np.ones(2, np.float32), np.float64(1)
        f = lambda x, c: x * c
        assert wl.linearize(f, x, 2.0)[1](x, one).dtype == wl.jvp(f, (x, 2.0), (x, one))[1].dtype == np.float32

    def test_derivative_of_a_python_function_of_a_float(self):
        assert wl.grad(lambda x: x**3)(2.0) == 12.0


def record(f):
    return lambda *args: wl.trace(f)(*args)


class TestErrors:
    """Each says what came, what was expected or what to write instead."""

    @pytest.mark.parametrize(
        ("f", "message"),
        [
            (lambda x: x if x.sum() > 0 else -x, "decision.*wl.cond"),
            (lambda x: x[: int(x.sum())], "int.*only its type"),
            (lambda x: [0, 1, 2][x.astype(int)[0]], "index of Python.*only its type"),
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

        with pytest.raises(wl.LostDerivativeError, match=r"wonderland.numpy .*wl.lift"):
            wl.jvp(f, (np.ones(3),), (np.ones(3),))
        with pytest.raises(wl.LostDerivativeError, match=r"a = a \+ b.*wl.lift"):
            wl.jvp(g, (np.ones(3),), (np.ones(3),))

    def test_values_of_duals_are_there(self):
        f = lambda x: x * 2 if x > 0 else -x
        assert wl.grad(f)(3.0) == 2.0 and wl.grad(f)(-3.0) == -1.0
        assert wl.grad(lambda x: x * int(x))(2.5) == 2.0

    @pytest.mark.parametrize(
        ("f", "message"),
        [
            (lambda x: np.roots(x[0]), "np.roots isn't supported.*wonderland.numpy"),
            (lambda x: np.isnat(x), "np.isnat isn't supported"),
            (lambda x: np.subtract.accumulate(x), "np.subtract.accumulate isn't supported"),
            (lambda x: np.add(x, x, where=np.ones(3, bool)), "where"),
        ],
    )
    def test_unsupported(self, f, message):
        for transform in (record, lambda f: lambda x: wl.jvp(f, (x,), (x,))):
            with pytest.raises(TypeError, match=message):
                transform(f)(np.ones((3, 3)))

    def test_unsupported_attribute(self):
        with pytest.raises(AttributeError, match=r"no \.tobytes yet"):
            wl.trace(lambda x: x.tobytes())(np.ones(3))
        with pytest.raises(AttributeError, match=r"no attribute 'nonsense'"):
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
