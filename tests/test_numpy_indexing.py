"""Indexing, views and writing in place on traced arrays: as in NumPy, whatever the index."""

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.core.program import run
from wonderland.testing.op_samples import assert_close


def same(actual, expected, what=""):
    assert_close(actual, expected, str(what), 1e-12)


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
            choices.append(shapes.flatmap(lambda s: hnp.arrays(np.int64, s, elements=st.integers(-extent, extent - 1))))
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
    news = st.sampled_from([None, None, True, np.True_, False] if arrays else [None])
    for _ in range(data.draw(st.integers(0, 2))):
        entries.insert(data.draw(st.integers(0, len(entries))), data.draw(news))
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
    @hypothesis.settings(max_examples=120)
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
    @hypothesis.settings(max_examples=120)
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
    @hypothesis.settings(max_examples=60)
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

    @hypothesis.given(st.data())
    @hypothesis.settings(max_examples=25)
    def test_compiled(self, data):
        """Reading, writing and the gradient of both in one native call."""
        shape = data.draw(SHAPES)
        x = np.arange(np.prod(shape), dtype=float).reshape(shape)
        read, written = random_index(data, shape), random_index(data, shape)
        hypothesis.assume(is_valid(x, read) and is_valid(x, written))

        def f(x):
            x = x * 2.0
            part = x[read]
            x[written] = 1.0
            x[written] += np.sum(part)
            return np.sum(x * x) + np.sum(part)

        same(wl.jit(f)(x), f(x), (read, written))
        same(wl.jit(wl.grad(f))(x), wl.grad(f)(x), (read, written))

    def test_traced_indices(self):
        x, i = np.arange(12.0).reshape(3, 4), np.array([2, 0, -1])
        for f in (lambda x, i: x[i], lambda x, i: x[:, i], lambda x, i: x[i, 1], lambda x, i: x[i, ::2],
                  lambda x, i: x[i[0]], lambda x, i: x[0, i[1] + 1]):  # fmt: skip
            same(run(wl.trace(f)(x, i), (x, i))[0], f(x, i))
            same(wl.jvp(f, (x, i), (x, None))[0], f(x, i))
            same(wl.vmap(f)(np.stack([x, x]), np.stack([i, i]))[1], f(x, i))
            same(wl.vmap(f, (None, 0))(x, np.stack([i, i]))[1], f(x, i))
        same(wl.vmap(lambda i: wnp.take(x, i, axis=0))(i), x[i])  # a plain array by traced indices

    def test_writing_where_an_index_occurs_twice(self):
        """The last one written stays, and only it has a derivative."""

        def f(u):
            x = wnp.zeros(3)
            x[np.array([0, 1, 0])] = u
            return x

        u = np.array([1.0, 2.0, 3.0])
        same(np.asarray(f(u)), np.array([3.0, 2.0, 0.0]))
        same(wl.jacobian(f)(u), np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0.0]]))

    def test_boolean_masks(self):
        x = np.array([[1.0, -2.0], [-3.0, 4.0]])

        def f(x):
            x = x * 1.0
            x[x < 0] *= 10.0
            return x[x > 0], x

        same(wl.jvp(f, (x,), (x,))[0], f(x))
        same(wl.grad(lambda x: np.sum(f(x)[1]))(x), np.array([[1.0, 10], [10, 1]]))


X = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "index",
    [
        (), ..., (..., None), True, False, (True, 0), (slice(None), True, [0, 1]), (True, slice(None), [0, 1]),
        np.array(True), np.array(1), (0, np.array(1)), (np.intp(1), ..., -1), (slice(None), [0, 1, 2], ..., [0, 1, 2]),
        ([0, 1], ..., [0, 1]), ([0, 1], None, [0, 1]), (None, [1], 0), (0, [1, 2]), (0, slice(None), [1, 2]),
        X > 11, X[:, :, 0] > 3, (slice(None), X[0] > 5), (1, X[0] > 5), (X[:, :, 0] > 3, [0, 0, 1, 1, 2]),
        (X[:, :, 0] > 3, slice(1, 3)),
        (..., np.array([True, False, True, False])), (slice(None, None, -1), slice(2, None, -2), slice(-1, -5, -1)),
        [], (slice(0), [0]), np.zeros((0, 2), int), np.array([[0, -1]], np.int8), np.array([1, 0], np.uint64),
        [[0], [1]],
        ([[0], [1]], [0, 2], slice(None)), (np.array([False, False]),), slice(5, 1), (slice(1, 1), 0),
    ],
    ids=str,
)  # fmt: skip
def test_every_form_of_index(index):
    def write(x):
        x = np.copy(x)
        x[index] = np.sum(x[index]) + 1.0
        return x

    for f in (lambda x: x[index], write):
        expected = f(X)
        same(wl.jvp(f, (X,), (X,))[0], expected)
        same(wl.trace(f)(X)(X)[0], expected)
        same(wl.vmap(f)(np.stack([X, X + 1.0]))[0], expected)
        wl.testing.check_grads(f, (X,), order=1)


@pytest.mark.parametrize(("index", "message"), [
    (2, "index 2 is out of bounds for axis 0 with size 2"),
    ((None, 0, -4), "index -4 is out of bounds for axis 1 with size 3"),
    ((0, [0, 3]), "index 3 is out of bounds for axis 1 with size 3"),
    ((0, 0, 0, 0), "too many indices for array: array is 3-dimensional, but 4 were indexed"),
    ((..., ...), "an index can only have a single ellipsis"),
    (np.array([True, False, True]), "boolean index did not match indexed array along axis 0; size of axis is 2"),
    ((slice(None), np.array([True, False])), "did not match indexed array along axis 1; size of axis is 3"),
    (([0, 1], [0, 1, 2]), "shape mismatch: indexing arrays could not be broadcast together with shapes"),
    (1.0, "only integers, slices"),
    ("a", "only integers, slices"),
    (np.array([0.5]), "arrays used as indices must be of integer"),
])  # fmt: skip
def test_wrong_indices(index, message):
    with pytest.raises(IndexError, match="only integers|arrays used" if "arrays used" in message else message[-25:]):
        X[index]
    for f in (lambda x: x[index], lambda x: np.copy(x).__setitem__(index, 0.0)):
        with pytest.raises(IndexError) as error:
            wl.jvp(f, (X,), (X,))
        assert message in str(error.value)


@pytest.mark.parametrize(("index", "value", "message"), [
    (0, np.ones(3), r"could not broadcast input array from shape \(3,\) into shape \(3,\s?4\)"),
    ([0, 1], np.ones((3, 3)), "value array of shape .* could not be broadcast to indexing result of shape"),
])  # fmt: skip
def test_values_that_do_not_fit(index, value, message):
    def f(x):
        x = np.copy(x)
        x[index] = value
        return x

    for run_it in (f, wl.trace(f), lambda x: wl.jvp(f, (x,), (x,))):
        with pytest.raises(ValueError, match=message):
            run_it(X)


def test_complex_values_do_not_become_real():
    with pytest.raises(TypeError, match="complex"):
        wl.trace(lambda x: x.__setitem__(0, 1j))(X)


class TestMasksWithoutValues:
    """Under jit and vmap, numbers can be written through a mask; what has a shape that depends on it raises."""

    X = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]])

    @pytest.mark.parametrize("write", [
        lambda x: x.__setitem__(x < 0, 7.0),
        lambda x: x.__setitem__(x < 0, np.sum(x)),
        lambda x: x.__setitem__(x < 0, [7.0]),
        lambda x: x.__setitem__(x[:, 0] < 0, x[0] * 2.0),
        lambda x: x.__setitem__((slice(None), x[0] < 0), 5.0),
        lambda x: x.__setitem__((0, x[0] > 0), x[1, 1]),
        lambda x: x.__setitem__((x[:, 1] > 0, slice(1, None)), 5.0),
        lambda x: x.__setitem__((..., x[0] > 0), x[:, :1]),
        lambda x: x.__setitem__((None, x > 0), 1.5),
    ])  # fmt: skip
    def test_numbers(self, write):
        def f(x):
            x = np.copy(x)
            write(x)
            return x

        expected = f(self.X)
        same(wl.jit(f)(self.X), expected)
        same(wl.vmap(f)(np.stack([self.X + 1, self.X]))[1], expected)
        scalar = lambda x: np.sum(f(x) ** 2)
        same(wl.jit(wl.grad(scalar))(self.X), wl.grad(scalar)(self.X))
        wl.testing.check_grads(f, (self.X,), order=1)

    @pytest.mark.parametrize("use", [
        lambda x: x[x > 0],
        lambda x: x.__setitem__(x > 0, np.ones(3)),
        lambda x: x.__setitem__((x[:, 0] > 0, x[0] > 0), 1.0),
        lambda x: x.__setitem__((x[:, 0] > 0, [0, 1]), 1.0),
    ])  # fmt: skip
    def test_what_needs_the_mask(self, use):
        for transform in (wl.trace, wl.jit):
            with pytest.raises(wl.NoValueError, match=r"np\.where\(mask, new, x\)"):
                transform(use)(self.X)

    def test_augmented_assignment(self):
        def f(x):
            x = x * 1.0
            x[x < 0] *= 10.0
            x[x > 2] += 1.0
            return x

        same(wl.jvp(f, (self.X,), (self.X,))[0], f(self.X))
        wl.testing.check_grads(f, (self.X,), order=1)
        with pytest.raises(wl.NoValueError, match=r"np\.where"):
            wl.jit(f)(self.X)


class TestTracedNumbersAsIndices:
    def test_a_row_is_a_view(self):
        """x[i] is a view in NumPy, also where i isn't known."""

        def f(x, i):
            x = x * 1.0
            row = x[i]
            row *= 2.0
            x[i + 1, 0] = 9.0
            x[:, i][0] = -1.0
            x[i][1] += x[i, 2]
            return x + row[3]

        x, i = np.arange(12.0).reshape(3, 4), np.int64(1)
        expected = f(x, i)
        same(wl.jit(f)(x, i), expected)
        same(wl.jvp(lambda x: f(x, i), (x,), (x,))[0], expected)
        same(wl.vmap(f, (None, 0))(x, np.array([0, 1]))[1], expected)
        gradient = lambda x, i: wl.grad(lambda x: np.sum(f(x, i) ** 2))(x)
        same(wl.jit(gradient)(x, i), gradient(x, i))

    def test_lists_of_them(self):
        f = lambda x, i: x[[i, 0]] + x[i : i + 1] if not isinstance(i, np.ndarray) else x[[i, 0]]
        x = np.arange(4.0)
        same(wl.jvp(lambda x: f(x, 2), (x,), (x,))[0], f(x, 2))
        g = lambda x, i: x[[i, 0, i - 1]]
        same(wl.jit(g)(x, np.int64(2)), x[[2, 0, 1]])

    def test_bounds_of_slices(self):
        def f(x, n):
            return x[: n + 1] * x[n:0:-1][0]

        x = np.arange(5.0)
        same(wl.jvp(f, (x, np.int64(3)), (x, None))[0], f(x, 3))
        with pytest.raises(wl.NoValueError, match="a slice bound"):
            wl.jit(f)(x, np.int64(3))

    def test_out_of_range_in_compiled_code(self):
        with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 3"):
            wl.jit(lambda x, i: x[i])(np.arange(3.0), np.int64(5))


def test_flat():
    def f(x):
        x = x * 1.0
        x.T.flat[1:4] = [10.0, 20.0, 30.0]
        x[:, 1:].flat[[0, -1]] = 5.0
        x.flat[x.flat[:] > 20.0] = 0.0
        return x * x.flat[3] + sum(v * i for i, v in enumerate(x.flat))

    x = np.arange(6.0).reshape(2, 3)
    same(wl.jvp(f, (x,), (x,))[0], f(x))
    wl.testing.check_grads(f, (x,), order=1)


def transformed(f, *args):
    """The function's result in every transformation that keeps values."""
    return [
        wl.jvp(f, args, args)[0],
        wl.vjp(f, *args)[0],
        wl.trace(f)(*args)(*args)[0],
        wl.vmap(f)(*(np.stack([a, a]) for a in args))[0],
        wl.jit(f)(*args),
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
