"""Functions that move, join and select elements, beyond the op table: views, methods, errors, odd arguments."""

import numpy as np
import pytest

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.core.tracer import Tracer
from wonderland.testing.op_samples import assert_close

A = np.linspace(-1.0, 1.0, 12).reshape(3, 4)


def same(actual, expected, what=""):
    assert_close(actual, expected, str(what), 1e-12)


def everywhere(f, *args):
    """The function's result in every transformation that keeps values."""
    return [
        wl.jvp(f, args, args)[0],
        wl.vjp(f, *args)[0],
        wl.trace(f)(*args)(*args)[0],
        wl.vmap(f)(*(np.stack([a, a]) for a in args))[0],
        wl.jit(f)(*args),
    ]


# Views ---------------------------------------------------------------------------------------------------------------


def writes(make_view):
    """Write through a view and return its base."""

    def f(a):
        a = np.copy(a)
        view = make_view(a)
        view[...] = np.arange(1.0, view.size + 1).reshape(view.shape)
        view *= 2.0
        a[0] += 100.0
        return np.concatenate([a.ravel(), np.ravel(view)])

    return f


VIEWS = {
    "reshape": lambda a: a.reshape(2, 6), "reshape F": lambda a: np.reshape(a.T, (2, 6), order="F"), "ravel": np.ravel,
    "ravel F": lambda a: np.ravel(a.T, order="F"),
    "reshape a part": lambda a: a[:, :, None].reshape(3, 2, 2)[..., 0].reshape(6),
    "transpose": np.transpose, "permuted": lambda a: np.transpose(a[None], (2, 0, 1)), ".T": lambda a: a.T,
    ".mT": lambda a: a.mT, "matrix_transpose": np.matrix_transpose, "swapaxes": lambda a: a.swapaxes(0, 1),
    "moveaxis": lambda a: np.moveaxis(a, 0, 1), "rollaxis": lambda a: np.rollaxis(a, 1), "flip": np.flip,
    "fliplr": np.fliplr, "flipud": np.flipud, "rot90": np.rot90, "rot90 thrice": lambda a: np.rot90(a, 3),
    "expand_dims": lambda a: np.expand_dims(a, (0, -1)), "squeeze": lambda a: a[None].squeeze(),
    "slice": lambda a: a[::2, ::-1],
    "row": lambda a: a[1], "ellipsis": lambda a: a[..., 2], "whole": lambda a: a[()],
    "new axis": lambda a: a[:, None, 1:3],
    "split": lambda a: np.split(a, 2, axis=1)[1], "array_split": lambda a: np.array_split(a, 2)[0],
    "hsplit": lambda a: np.hsplit(a, [1])[1], "vsplit": lambda a: np.vsplit(a, [1])[1],
    "dsplit": lambda a: np.dsplit(a[None], 2)[0],
    "atleast_3d": np.atleast_3d, "atleast_2d": lambda a: np.atleast_2d(a[1]),
    "broadcast itself": lambda a: np.broadcast_arrays(a, a)[0],
    "trim_zeros": lambda a: np.trim_zeros(a[0]),
}  # fmt: skip
if hasattr(np, "unstack"):
    VIEWS["unstack"] = lambda a: np.unstack(a, axis=1)[2]


@pytest.mark.parametrize("name", [n for n in VIEWS if n not in ("trim_zeros", "broadcast itself")])
def test_writes_go_through(name):
    f = writes(VIEWS[name])
    for out in everywhere(f, A):
        same(out, f(A), name)
    wl.testing.check_grads(f, (A,), order=1)


def test_views_of_one_element():
    def f(a):
        a = np.copy(a)
        last, first = a[-1, -1, ...], a[0, 0]
        last[...] = 7.0
        first += 1.0  # a number, not a view
        return a

    for out in everywhere(f, A):
        same(out, f(A))


@pytest.mark.parametrize("view", [
    lambda a: np.broadcast_to(a, (2, 3, 4)), lambda a: np.diagonal(a), lambda a: a.diagonal(1), lambda a: np.diag(a),
    lambda a: np.broadcast_to(a, (3, 4)),
])  # fmt: skip
def test_read_only_views(view):
    def write(a):
        view(a)[0] = 1.0

    with pytest.raises(ValueError, match="assignment destination is read-only"):
        write(A.copy())
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        wl.jvp(write, (A,), (A,))

    def read_again(a):
        a = np.copy(a)
        v = view(a)
        a[0, 0] = 50.0
        return v + 0.0

    for out in everywhere(read_again, A):
        same(out, read_again(A))


@pytest.mark.parametrize("copy", [
    lambda a: a.flatten(), lambda a: a.copy(), lambda a: np.roll(a, 1), lambda a: np.repeat(a, 2),
    lambda a: np.tile(a, 2),
    lambda a: a[[0, 1]], lambda a: a.flat[:], lambda a: np.reshape(a, (4, 3)).copy(), lambda a: np.triu(a),
    lambda a: a[a > -9],
    lambda a: np.take(a, [0, 1], 1), lambda a: np.concatenate([a]), lambda a: np.reshape(a, 12, order="F"),
    lambda a: a.T.reshape(-1), lambda a: a.T.ravel(), lambda a: a[:, 1:].reshape(9), lambda a: a[:, 1:].ravel(),
    lambda a: a[0, ::2].ravel(), lambda a: np.broadcast_to(a, (2, 3, 4)).reshape(-1), lambda a: a.ravel("F"),
    lambda a: np.reshape(a, (4, 3), copy=True), lambda a: a.diagonal().ravel(),
    lambda a: np.flip(a).reshape(2, 6)[::-1].ravel(),
])  # fmt: skip
def test_copies_stay(copy):
    def f(a):
        a = np.copy(a)
        kept = copy(a)
        before = np.sum(kept)
        a *= 0.0
        kept[...] = kept + 1.0
        return before + np.sum(a) + np.sum(kept)

    same(wl.jvp(f, (A,), (A,))[0], f(A))


def random_view(rng, x):
    """A function that NumPy may answer with a view of x, or with a copy."""
    axis = int(rng.integers(x.ndim)) if x.ndim else 0
    before = (slice(None),) * axis
    part = (*before, slice(None, None, int(rng.choice([1, 2, -1]))))
    later = (*before, slice(1, None))
    length = int(rng.choice([d for d in range(1, x.size + 1) if x.size % d == 0] or [1]))
    order = str(rng.choice(["C", "F"]))
    choices = [lambda x: x.T, lambda x: x[None], np.ravel]
    if x.size:
        choices.append(lambda x: np.reshape(x, (length, -1), order=order))
    if x.ndim > 1:
        choices += [lambda x: x[part], lambda x: x[later], lambda x: np.swapaxes(x, 0, axis), np.atleast_3d]
        choices += [lambda x: x[(*before, 0)]] if x.shape[axis] else []
    return choices[rng.integers(len(choices))]


def test_views_and_copies_are_numpys():
    """Whatever is done to an array, a write reaches it if and only if it does in NumPy."""
    rng = np.random.default_rng(0)
    reached = []
    for _ in range(600):
        a = np.arange(float(np.prod(shape := rng.integers(1, 5, rng.integers(1, 4))))).reshape(shape)
        handle = Tracer(a.copy())
        view, traced = a, handle
        for _ in range(rng.integers(1, 5)):
            step = random_view(rng, view)
            view, traced = step(view), step(traced)
        view[...], traced[...] = -1.0, -1.0
        assert traced.shape == view.shape
        assert np.array_equal(handle._get(), a)
        reached.append(np.shares_memory(a, view))
    assert 50 < sum(reached) < 550


# Methods and attributes ----------------------------------------------------------------------------------------------

METHODS = {
    "reshape": lambda a: a.reshape((6, 2)), "reshape ints": lambda a: a.reshape(6, -1), "ravel": lambda a: a.ravel("F"),
    "flatten": lambda a: a.flatten("F"), "transpose": lambda a: a.transpose(1, 0),
    "transpose none": lambda a: a.transpose(),
    "swapaxes": lambda a: a.swapaxes(0, -1), "squeeze": lambda a: a[:1].squeeze(0),
    "repeat": lambda a: a.repeat(2, axis=0),
    "diagonal": lambda a: a.diagonal(1), "trace": lambda a: a.trace(), "take": lambda a: a.take([0, 5, -1]),
    "take clip": lambda a: a.take([0, 9], axis=1, mode="clip"), "astype": lambda a: a.astype(np.float32),
    "compress": lambda a: a.compress([True, False, True], axis=0), "copy": lambda a: a.copy(), "item": lambda a: a,
    "choose": lambda a: (a > 0).choose([a, -a]), "mT": lambda a: a.mT @ a, "flat": lambda a: np.stack(list(a.flat)),
    "flat read": lambda a: a.flat[[0, 7]] + a.flat[3], "to_device": lambda a: a.to_device("cpu"),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    f = METHODS[name]
    for out in everywhere(f, A):
        same(out, f(A), name)


def test_writing_methods():
    def f(a):
        a = np.copy(a)
        a.put([0, 5], [7.0, 8.0])
        a[2].fill(3.0)
        a.flat[1] = 9.0
        a.flat[[2, 3, 4]] = [5.0, 6.0]
        a.flat[6:9] = np.ones((1, 3))
        np.fill_diagonal(a, [1.0, 2.0, 3.0])
        return a

    for out in everywhere(f, A):
        same(out, f(A))


def test_attributes():
    def f(a):
        assert a.T.shape == (4, 3) and a.mT.shape == (4, 3) and a.device == "cpu" and len(a.flat) == 12
        assert a.itemsize == 8 and a.nbytes == 96 and np.size(a, 1) == 4 and np.ndim(a) == 2
        assert np.result_type(a, np.float32) == np.float64 and np.can_cast(a, np.complex128)
        assert wnp.finfo(a).eps == np.finfo(float).eps and not np.iscomplexobj(a) and np.isrealobj(a)
        return a.nonzero()[0].sum() * a

    same(wl.jvp(f, (A,), (A,))[0], np.nonzero(A)[0].sum() * A)


def test_weak_scalars_in_result_type():
    def f(x):
        assert np.result_type(x, np.float32) == np.float32
        return x

    wl.grad(f)(2.0)


def test_contains():
    def f(a):
        assert 2.0 in a and 5.0 not in a
        return a

    wl.jvp(f, (np.array([[1.0, 2.0]]),), (np.ones((1, 2)),))


def test_conversions_refuse_to_lose_a_derivative():
    for convert in (lambda a: a.item(), lambda a: a.tolist(), lambda a: a.__dlpack__(), np.from_dlpack):
        with pytest.raises(wl.LostDerivativeError):
            wl.grad(lambda a, convert=convert: convert(a[:1]))(np.ones(1))
    with pytest.raises(ValueError, match='Only "cpu" is allowed'):
        wl.grad(lambda a: a.to_device("gpu"))(np.ones(1))


# Odd arguments -------------------------------------------------------------------------------------------------------


def test_orders():
    for order in "CF":
        f = lambda a, order=order: np.reshape(a, (2, 6), order=order)
        same(wl.jvp(f, (A,), (A,))[0], f(A))
        f = lambda a, order=order: np.ravel(a, order=order)
        same(wl.jvp(f, (A,), (A,))[0], f(A))
    with pytest.raises(ValueError, match="order must be one of 'C', 'F', 'A', or 'K'"):
        wl.trace(lambda a: a.reshape(12, order="X"))(A)


def test_nested_lists_with_traced_entries():
    def f(a):
        return np.concatenate([[a[0, 0], 2.0], a[1]]) + np.sum(np.stack([[a[0, 1], a[0, 2]], a[2, :2]]))

    same(wl.jvp(f, (A,), (A,))[0], f(A))
    same(wl.trace(f)(A)(A)[0], f(A))


def test_blocks():
    def f(a):
        return np.block([[a, np.zeros((3, 1))], [np.ones(4), 5.0]])

    for out in everywhere(f, A):
        same(out, f(A))
    same(wl.jvp(lambda a: np.block(a), (A,), (A,))[0], A)


def test_traced_parameters_that_have_values():
    """Counts and sizes computed from traced numbers, in an eager derivative."""

    def f(a):
        n = np.argmax(a[0])
        return (
            np.repeat(a, n, axis=0)[: n - 1]
            + np.roll(a, n, axis=1)[0]
            + np.reshape(a, (n, -1))[0, 0]
            + np.tile(a, n)[0, 0]
        )

    same(wl.jvp(f, (A,), (A,))[0], f(A))


def test_pad_with_traced_values():
    def f(a, v):
        return wnp.pad(a, ((1, 0), (0, 2)), constant_values=v)

    same(wl.jvp(lambda v: f(A, v), (7.0,), (1.0,))[0], f(A, 7.0))
    same(wl.grad(lambda v: np.sum(f(A, v)))(7.0), 12.0)
    g = lambda a, v: wnp.pad(a, 1, constant_values=((v, 1.0), (2.0, v)))
    same(wl.jvp(g, (A, 7.0), (A, 1.0))[0], g(A, 7.0))
    same(wl.jvp(lambda a: np.pad(a, {0: 1, -1: (0, 2)}), (A,), (A,))[0], np.pad(A, ((1, 1), (0, 2))))
    same(wl.jvp(lambda a: np.pad(a, 1, mode="empty")[1:-1, 1:-1], (A,), (A,))[0], A)


def test_creation_from_traced_numbers():
    f = lambda a, b: (np.linspace(a, b, 5), wnp.arange(a, 3.0, b), wnp.full((2,), a), np.linspace(a, b, 3, dtype=int))
    same(wl.jvp(f, (0.5, 0.75), (1.0, 1.0))[0], f(0.5, 0.75))
    same(wl.grad(lambda b: np.sum(np.linspace(0.0, b, 5)))(1.0), 2.5)
    same(wl.grad(lambda s: np.sum(wnp.arange(0.0, 1.0, s)))(0.25), 6.0)
    assert wl.jvp(lambda a: np.linspace(a, np.float32(1), 3), (np.float32(0),), (np.float32(1),))[0].dtype == np.float32


def test_piecewise():
    def f(x):
        return np.piecewise(x, [x < 0, (x >= 0) & (x < 2)], [lambda x: -x, lambda x: np.sqrt(x), 5.0])

    x = np.array([-1.5, 0.25, 1.0, 3.0])
    same(wl.jvp(f, (x,), (x,))[0], f(x))
    same(wl.jit(f)(x), f(x))
    for gradient in (wl.grad(lambda x: np.sum(f(x))), wl.jit(wl.grad(lambda x: np.sum(f(x))))):
        same(gradient(x), np.array([-1.0, 1.0, 0.5, 0.0]))
    g = lambda x, k: np.piecewise(x, x > 1, [lambda x, k: k * x, 0.0], k)
    same(wl.jvp(g, (x, 2.0), (x, 1.0))[0], g(x, 2.0))


def test_unique():
    x = np.array([3.0, 1.0, 3.0, 2.0, 1.0])
    same(wl.jacobian(np.unique)(x), np.eye(5)[[1, 3, 0]])
    found = wl.jvp(lambda x: tuple(np.unique_all(x)), (x,), (x,))[0]
    same(found, tuple(np.unique_all(x)))

    def names(x):
        found = np.unique_counts(x)
        return found.values * found.counts

    same(wl.jvp(names, (x,), (x,))[0], names(x))
    same(wl.jvp(lambda x: np.sort(np.unique_values(x)), (x,), (x,))[0], np.array([1.0, 2.0, 3.0]))


def test_shapes_that_depend_on_values():
    x = np.array([1.0, -2.0, 3.0])
    for f in (np.nonzero, np.flatnonzero, np.argwhere, np.unique, lambda x: np.compress(x > 0, x),
              lambda x: np.extract(x > 0, x), lambda x: x[x > 0], lambda x: np.repeat(x, (x > 0).astype(int)),
              np.trim_zeros):  # fmt: skip
        wl.jvp(f, (x,), (x,))
        for transform in (wl.trace, wl.vmap, wl.jit):
            with pytest.raises(wl.NoValueError):
                transform(f)(np.stack([x, x]) if transform is wl.vmap else x)


def test_choose_out_of_range():
    choices = [np.ones(2), np.zeros(2)]
    for i in ([0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="invalid entry in choice array"):
            wl.jvp(lambda c, i=i: np.choose(np.array(i), [c, choices[1]]), (choices[0],), (choices[0],))
        with pytest.raises(IndexError):
            wl.jit(lambda i: np.choose(i, choices))(np.array(i))


@pytest.mark.parametrize(("f", "kind", "message"), [
    (lambda a: a.reshape(5, 2), ValueError, "cannot reshape array of size 12"),
    (lambda a: a.reshape(-1, -1), ValueError, "can only specify one unknown dimension"),
    (lambda a: a.reshape(5, -1), ValueError, "cannot reshape array of size 12 into shape"),
    (lambda a: np.transpose(a, (0,)), ValueError, "axes .* don't match array"),
    (lambda a: np.transpose(a, (0, 0)), ValueError, "repeated axis in transpose"),
    (lambda a: np.moveaxis(a, (0, 1), 0), ValueError, "must have the same number of elements"),
    (lambda a: np.squeeze(a, 0), ValueError, "cannot select an axis to squeeze out"),
    (lambda a: np.expand_dims(a, 5), np.exceptions.AxisError, "axis 5 is out of bounds for array of dimension 3"),
    (lambda a: np.flip(a, 2), np.exceptions.AxisError, "axis 2 is out of bounds for array of dimension 2"),
    (lambda a: np.concatenate([a, a[0]]), ValueError, "must have same number of dimensions"),
    (lambda a: np.concatenate([a, a[:, :2]]), ValueError, "along dimension 1, the array at index 0 has size 4"),
    (lambda a: np.concatenate([a[0, 0], a[0]]), ValueError, "zero-dimensional arrays cannot be concatenated"),
    (lambda a: np.stack([a, a[0]]), ValueError, "all input arrays must have the same shape"),
    (lambda a: np.split(a, 2), ValueError, "array split does not result in an equal division"),
    (lambda a: np.vsplit(a[0], 2), ValueError, "vsplit only works on arrays of 2 or more dimensions"),
    (lambda a: np.broadcast_to(a, (2, 2)), ValueError, "broadcast"),
    (lambda a: np.repeat(a, [1, 2], axis=0), ValueError, "operands could not be broadcast together"),
    (lambda a: np.repeat(a, -1), ValueError, "negative"),
    (lambda a: np.pad(a, -1), ValueError, "index can't contain negative values"),
    (lambda a: np.pad(a, 1.5), TypeError, "`pad_width` must be of integral type"),
    (lambda a: np.pad(a, 1, mode="nowhere"), ValueError, "mode 'nowhere' is not supported"),
    (lambda a: np.pad(a, 1, mode="edge", constant_values=1), ValueError,
        "unsupported keyword arguments for mode 'edge'"),
    (lambda a: np.pad(a, 1, mode=lambda *x: None), TypeError, "takes no function as mode"),
    (lambda a: np.pad(a[:0], 1, mode="edge"), ValueError, "can't extend empty axis 0"),
    (lambda a: np.diag(a[None]), ValueError, "Input must be 1- or 2-d"),
    (lambda a: np.diagonal(a[0]), ValueError, "diag requires an array of at least two dimensions"),
    (lambda a: np.diagonal(a, axis1=1, axis2=1), ValueError, "axis1 and axis2 cannot be the same"),
    (lambda a: np.take(a, 12), IndexError, "index 12 is out of bounds for axis 0 with size 12"),
    (lambda a: np.take(a, 0, mode="no"), ValueError, "clipmode must be one of"),
    (lambda a: np.take(a, 0.5), TypeError, "Cannot cast array data"),
    (lambda a: np.take_along_axis(a, np.zeros(2, int), 0), ValueError, "must have the same number of dimensions"),
    (lambda a: np.select([a], [a]), TypeError, "should be boolean ndarray"),
    (lambda a: np.select([a > 0], [a, a]), ValueError, "list of cases must be same length"),
    (lambda a: np.zeros_like(a, device="gpu"), ValueError, 'Only "cpu" is allowed'),
    (lambda a: np.copyto(np.zeros(3), a[0, :3]), wl.LostDerivativeError, r"np\.copyto .* plain array of shape \(3,\)"),
    (lambda a: np.rot90(a, axes=(0, 0)), ValueError, "Axes must be different"),
    (lambda a: a.mT.reshape(12).mT, ValueError, "matrix transpose with ndim < 2 is undefined"),
    (lambda a: np.meshgrid(a[0], a[0], indexing="no"), ValueError, "Valid values for `indexing`"),
    (lambda a: np.linspace(a, a, -1), ValueError, "must be non-negative"),
    (lambda a: np.block([[a], a]), ValueError, "List depths are mismatched"),
])  # fmt: skip
def test_errors_in_numpys_words(f, kind, message):
    for transform in (wl.trace, lambda f: lambda a: wl.jvp(f, (a,), (a,))):
        with pytest.raises(kind, match=message):
            transform(f)(A)


def test_plain_arrays_stay_plain():
    for out in (
        wnp.concat([A, A]),
        wnp.flip(A),
        wnp.pad(A, 1),
        wnp.select([A > 0], [A]),
        wnp.split(A, 3)[0],
        wnp.arange(3),
    ):
        assert type(out) is np.ndarray
    assert not isinstance(wnp.select, type(np))  # the function, not the module
    assert isinstance(wnp.concat([Tracer(A), A]), Tracer)
