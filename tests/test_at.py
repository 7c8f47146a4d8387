"""`wl.at(x)[index].op(value)` against NumPy's `ufunc.at`, and the `at` of ufuncs on traced arrays."""

import numpy as np
import pytest

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.core.program import run
from wonderland.core.tracer import Tracer
from wonderland.numpy.at import at
from wonderland.testing.op_samples import assert_close

UFUNCS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "mul": np.multiply, "divide": np.divide,
    "power": np.power, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
I, J = np.array([2, 0, 2, -1, 2]), np.array([[1], [3]])
INDICES = {
    "int": 1, "negative": -2, "slice": slice(0, 3, 2), "backwards": slice(None, None, -2), "ellipsis": ...,
    "duplicates": I,
    "list": [0, 0], "pairs": (I, [0, 1, 0, 1, 0]), "outer": (J, [0, 2]), "column": (slice(None), [1, 1, 0]),
    "row": (1, [0, 0]),
    "apart": ([0, 0], slice(None), None, [1, 1]), "none": (None, 2), "mask": np.array([True, False, True, True]),
    "rows and mask": (slice(1, 3), np.array([True, False, True])), "empty": np.zeros(0, int),
}  # fmt: skip


def same(actual, expected, what=""):
    assert_close(actual, expected, str(what), 1e-12)


def x_of(index):
    return np.linspace(0.5, 2.0, 12 * (3 if index == "apart" else 1)).reshape((4, 3, 3) if index == "apart" else (4, 3))


def expected(name, x, index, v):
    out = np.array(x)
    if name == "set":
        out[index] = v
    else:
        UFUNCS[name].at(out, index, v)
    return out


def values(x, index):
    """Positive numbers of the shape that an index selects, none of them equal to another or to one of x."""
    shape = x[index].shape
    return 0.61 + 1.3 * np.random.default_rng(1).permutation(int(np.prod(shape))).reshape(shape) / max(
        1, np.prod(shape)
    )


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("name", ["set", *UFUNCS])
def test_as_numpy(name, index):
    x, i = x_of(index), INDICES[index]
    for v in (values(x, i), 1.37):
        f = lambda x, v: getattr(at(x)[i], name)(v)
        out = f(x, v)
        assert type(out) is np.ndarray and out.flags.writeable
        same(out, expected(name, x, i, v), (name, index))
        same(run(wl.verify(wl.trace(f)(x, v)), (x, v))[0], out)
        same(wl.vmap(f, (0, None))(np.stack([x, x + 1]), v)[0], out)
        wl.testing.check_grads(f, (x, v), order=2)


@pytest.mark.parametrize("name", ["add", "multiply", "max", "min", "divide", "set"])
def test_traced_indices(name):
    """Under jit and vmap over the indices nothing is known about which of them are equal."""
    x, v = np.linspace(0.5, 2.0, 12).reshape(4, 3), np.linspace(0.7, 1.9, 15).reshape(5, 3)
    i = np.array([[2, 0, 2, -1, 2], [0, 1, 2, 3, -1]])
    f = lambda x, i, v: getattr(at(x)[i], name)(v)
    loop = np.stack([expected(name, x, k, v) for k in i])
    same(wl.vmap(f, (None, 0, None))(x, i, v), loop)
    for k, out in zip(i, loop):
        same(wl.jit(f)(x, k, v), out)
        gradient = wl.grad(lambda x, v, k=k: np.sum(f(x, k, v) ** 3), (0, 1))(x, v)
        same(wl.jit(wl.grad(lambda x, k, v: np.sum(f(x, k, v) ** 3), (0, 2)))(x, k, v), gradient)


def test_zeros_among_the_factors():
    """The derivative of a product with respect to a factor is the product of the others, whatever is zero."""
    x = np.array([2.0, 3.0, 5.0])
    i = np.array([0, 0, 1, 1, 1, 2])
    v = np.array([0.0, 7.0, 0.0, 0.0, 4.0, 6.0])
    jacobian = wl.jacobian(lambda v: at(x)[i].mul(v))(v)
    same(jacobian, np.array([[14.0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 5.0]]))
    hessian = wl.jacobian(wl.jacobian(lambda v: at(x)[i].mul(v)))(v)
    same(hessian[0][:2, :2], np.array([[0, 2.0], [2.0, 0]]))
    same(hessian[1][2:5, 2:5], np.array([[0, 12.0, 0], [12.0, 0, 0], [0, 0, 0]]))


def test_ties_are_shared():
    x, i = np.array([1.0, 5.0]), np.array([0, 0, 0, 1])
    v = np.array([1.0, 0.0, 1.0, 7.0])
    dx, dv = wl.jacobian(lambda x, v: at(x)[i].max(v), (0, 1))(x, v)
    same(dx, np.array([[1 / 3, 0], [0, 0]]))
    same(dv, np.array([[1 / 3, 0, 1 / 3, 0], [0, 0, 0, 1.0]]))
    dx, dv = wl.jacobian(lambda x, v: at(x)[i].min(v), (0, 1))(-x, -v)
    same(dx, np.array([[1 / 3, 0], [0, 0]]))
    same(dv, np.array([[1 / 3, 0, 1 / 3, 0], [0, 0, 0, 1.0]]))


def test_set_keeps_the_last():
    f = lambda v: at(np.zeros(3))[[0, 1, 0]].set(v)
    same(wl.jacobian(f)(np.arange(3.0)), np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0.0]]))


def test_get_and_apply():
    x = np.arange(6.0).reshape(2, 3)
    part = at(x)[1].get()
    part[0] = 100.0  # a new array
    assert x[1, 0] == 3.0
    same(at(x)[:, [0, 2]].apply(np.square), np.array([[0.0, 1, 4], [9, 4, 25]]))
    same(wl.grad(lambda x: np.sum(at(x)[0].apply(np.sin)))(x), np.stack([np.cos(x[0]), np.ones(3)]))
    assert at([1, 2, 3])[0].set(9).tolist() == [9, 2, 3]


def test_x_is_not_changed():
    def f(x):
        y = at(x)[0].add(10.0)
        return np.sum(x * y)

    same(wl.grad(f)(np.ones(2)), np.array([12.0, 2.0]))
    x = np.zeros(3)
    at(x)[1].set(5.0)
    assert not x.any()


def test_dtypes():
    assert at(np.arange(3))[0].set(1.7).tolist() == [1, 1, 2]  # as NumPy's assignment
    for name in ("add", "multiply", "divide"):
        with pytest.raises(TypeError, match="Cannot cast ufunc"):
            getattr(at(np.arange(3))[0], name)(1.5)
    assert at(np.zeros(2, np.float32))[0].add(np.float64(1)).dtype == np.float32
    assert at(np.arange(3, dtype=np.uint8))[[0, 0]].min(np.uint8(1)).tolist() == [0, 1, 2]
    assert at(np.arange(3) > 0)[[0, 0]].max(True).tolist() == [True, True, True]
    same(at(np.ones(2, complex))[[0, 0]].mul(1j), np.array([-1.0, 1.0 + 0j]))


def test_nan_stays():
    out = at(np.zeros(2))[[0, 0]].max(np.array([np.nan, 1.0]))
    assert np.isnan(out[0]) and out[1] == 0


def test_masks_without_values():
    """Where a mask has no value, numbers can still be written through it."""
    x = np.array([[1.0, -2.0], [-3.0, 4.0]])
    for name, result in {"set": [[1, 10], [10, 4]], "add": [[1, 8], [7, 4]], "mul": [[1, -20], [-30, 4]],
                         "max": [[1, 10], [10, 4]]}.items():  # fmt: skip
        f = lambda x, name=name: getattr(at(x)[x < 0], name)(10.0)
        same(wl.jit(f)(x), np.array(result, float))
        same(wl.vmap(f)(np.stack([x, x]))[1], np.array(result, float))
        gradient = wl.grad(lambda x, f=f: np.sum(f(x) ** 2))
        same(wl.jit(gradient)(x), gradient(x))
    with pytest.raises(wl.NoValueError, match=r"np\.where"):
        wl.jit(lambda x: at(x)[x < 0].set(np.array([1.0, 2.0])))(x)


class TestUfuncAt:
    @pytest.mark.parametrize("ufunc", dict.fromkeys(UFUNCS.values()), ids=str)
    def test_in_place(self, ufunc):
        x, v = np.linspace(0.5, 2.0, 4), np.linspace(0.7, 1.9, 5)

        def f(x, v):
            out = x * 1.0
            ufunc.at(out, I, v)
            ufunc.at(out, slice(1, 3), 1.1)
            return out

        same(wl.jvp(f, (x, v), (x, v))[0], f(x, v))
        same(wl.jit(f)(x, v), f(x, v))
        wl.testing.check_grads(f, (x, v), order=2)

    def test_through_a_view(self):
        def f(x):
            out = wnp.zeros((2, 3))
            np.add.at(out.T, ([0, 0, 2], [1, 1, 0]), x)
            return out

        same(wl.jacobian(lambda x: np.sum(f(x) * np.arange(6.0).reshape(2, 3)))(np.ones(3)), np.array([3.0, 3.0, 2.0]))

    def test_a_plain_array_refuses(self):
        with pytest.raises(wl.LostDerivativeError, match=r"np\.add\.at"):
            wl.grad(lambda x: np.add.at(np.zeros(3), [0], x))(1.0)

    def test_assembly(self):
        """A stiffness matrix from elements, as finite-element codes write it."""
        edges = np.array([[0, 1], [1, 2], [2, 3], [0, 2]])

        def energy(k):
            matrix = wnp.zeros((4, 4))
            block = np.array([[1.0, -1.0], [-1.0, 1.0]])
            np.add.at(matrix, (edges[:, :, None], edges[:, None, :]), k[:, None, None] * block)
            return np.sum(matrix**2)

        wl.testing.check_grads(energy, (np.array([1.0, 2.0, 0.5, 3.0]),), order=2)


def test_results_of_tracers_are_tracers():
    def f(x):
        assert isinstance(at(x)[0].set(1.0), Tracer)
        assert isinstance(at(np.zeros(3))[0].set(x[0]), Tracer)
        return x

    wl.jvp(f, (np.ones(3),), (np.ones(3),))


@pytest.mark.parametrize(("index", "message"), [
    (5, "index 5 is out of bounds for axis 0 with size 4"),
    ((0, [1, 3]), "index 3 is out of bounds for axis 1 with size 3"),
    ((0, 0, 0), "too many indices for array: array is 2-dimensional, but 3 were indexed"),
    (1.5, "only integers, slices"),
])  # fmt: skip
def test_wrong_indices(index, message):
    with pytest.raises(IndexError, match=message):
        at(np.zeros((4, 3)))[index].set(0.0)
