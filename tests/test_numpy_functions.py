"""NumPy's functions on traced arrays mean what they mean on arrays: values, shapes, dtypes; and errors that help.

`CALLS` has, for every name of `wonderland.numpy`, calls that are made four times: on plain arrays by NumPy (the
oracle), on dual numbers and in a recorded Program through NumPy's own function, and through the namespace of ours.
"""

import functools

import numpy as np
import pytest

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.core import tree
from wonderland.core.program import run

UNARY = """absolute abs conj conjugate cos exp fabs invert isfinite isnan log logical_not negative positive reciprocal
    sign sin sqrt square tanh""".split()
BINARY = """add bitwise_and bitwise_or bitwise_xor divide equal greater greater_equal less less_equal logical_and
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
    "float_power": lambda np, a, b, c, v, s: np.float_power(a, 2),
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


def same(actual, expected, exact_type=True):
    actual, structure = tree.flatten(actual)
    expected, wanted = tree.flatten(expected)
    assert structure == wanted
    for a, b in zip(actual, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-3 if b.dtype == np.float16 else 1e-5, atol=1e-6)


def oracle(f, args):
    """NumPy's result, or the exception by which NumPy refuses."""
    with np.errstate(all="ignore"):
        try:
            return f(np, *args), None
        except (TypeError, ValueError) as e:
            return None, e


def test_every_name_is_called():
    assert sorted(dir(wnp)) == sorted({*CALLS} & {*dir(wnp)})
    assert not {*CALLS} - {*dir(wnp)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "call"), ALL, ids=[f"{n}-{i}" for i, (n, _) in enumerate(ALL)])
class TestFunctions:
    def test_on_dual_numbers(self, name, call, dtype):
        self.check(name, call, dtype, lambda f, args: wl.jvp(f, args, (None,) * 5)[0])

    def test_recorded(self, name, call, dtype):
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

        self.check(name, call, dtype, recorded)

    def test_batched(self, name, call, dtype):
        def batched(f, args):
            out = wl.vmap(f)(*(np.stack([a, a]) for a in args))
            return tree.tree_map(lambda x: x[1], out)

        self.check(name, call, dtype, batched)

    def test_our_namespace_on_arrays(self, name, call, dtype):
        self.check(name, call, dtype, lambda f, args: f(*args), ours=True)

    def check(self, name, call, dtype, how, ours=False):
        args = arguments(dtype)
        expected, refusal = oracle(call, args)
        if name in CONSTRUCTORS:
            ours = True
        f = lambda *a: call(wnp if ours else np, *a)
        with np.errstate(all="ignore"):
            if refusal is not None:
                with pytest.raises((TypeError, ValueError)):
                    how(f, args)
                return
            same(how(f, args), expected)
