"""Views, aliasing and NumPy's in-place functions, one feature each: what NumPy does is the oracle."""

import copy

import numpy as np
import pytest
from checking import check

import wonderland as wl

X = np.array([0.3, -0.7, 1.1, 0.4, 0.9, -0.2])
M = np.arange(12.0).reshape(3, 4) * 0.1 + 0.3


def chained_views(x):
    y = x.copy()
    y[1:][::2][0] = x[0] * x[5]
    y[1:][::2][1:] *= 3.0
    return y


def transposed_view(m):
    a = m.copy()
    t = a.T
    t[1] = a[:, 0] ** 2
    t[2:, 0] += 5 * t[0, 0]
    return a


def reshaped_view(m):
    a = m * 1.0
    flat = a.reshape(-1)
    flat[::5] = 0.0
    flat[1:4] *= flat[5:8]
    a.reshape(4, 3)[2] += a[0, 0] + a[1, 2]
    return a, flat


def ravelled_view(m):
    a = m.copy()
    a.ravel()[3] = a[0, 0] * 2
    b = a.flatten()
    b[:] = 0.0  # a copy: a stays
    return a


def reversed_view(x):
    y = x.copy()
    back = y[::-1]
    back[:2] = x[:2] ** 2
    back += 1.0
    return y


def view_of_view_of_view(m):
    a = m.copy()
    inner = a[1:].T[:, 1][1:3]
    inner *= a[0, 0]
    a[2, 1] += inner[0]
    return a, inner


def view_sees_the_base(m):
    a = m.copy()
    row = a[1]
    a *= 2.0
    a[1, 2] = 7.0 * m[0, 0]
    return row * 1.0


def two_views_of_one_array(x):
    y = x.copy()
    left, right = y[:4], y[2:]
    left += right
    right *= left
    return y


def overlap_forwards(x):
    y = x.copy()
    y[1:] = y[:-1]
    return y


def overlap_backwards(x):
    y = x.copy()
    y[:-1] = y[1:]
    return y


def overlap_augmented(x):
    y = x.copy()
    y[1:] += y[:-1]
    y[:-1] -= y[1:]
    return y


def overlap_reversed(x):
    y = x.copy()
    y[:] = y[::-1]
    y += y[::-1]
    return y


def overlap_transposed(m):
    a = m[:, :3] * 1.0
    a += a.T
    a[:] = a.T @ a
    return a


def shifted_by_b(x):
    a, b = x.copy(), x**2
    a[1:] -= b[:-1]
    return a


def swapped_rows(m):
    a = m.copy()
    a[0], a[1] = a[1].copy(), a[0].copy()
    a[[0, 2]] = a[[2, 0]]
    return a


def swapped_without_copies(m):
    """The classic mistake: a view is overwritten before it is read."""
    a = m.copy()
    a[0], a[1] = a[1], a[0]
    return a


def swapped_elements(x):
    y = x.copy()
    y[0], y[3] = y[3], y[0]
    return y


def swapped_columns(m):
    a = m.copy()
    a[:, [0, 1]] = a[:, [1, 0]]
    a[:, 2], a[:, 3] = a[:, 3].copy(), a[:, 2].copy()
    return a


def out_arguments(x):
    c = np.empty(3)
    np.add(x[:3], x[3:], out=c)
    np.multiply(c, c, out=c)
    table = np.zeros((2, 3))
    np.sin(c, out=table[0])
    np.exp(c, out=table[1, :])
    np.subtract(table[0], table[1], table[1])  # by position
    return table


def out_returns_the_array(x):
    c = np.zeros(6)
    d = np.multiply(x, 2.0, out=c)
    d += 1.0
    return c


def out_of_reductions(m):
    totals, products = np.zeros(4), np.empty(3)
    np.sum(m, axis=0, out=totals)
    np.dot(m, totals, out=products)
    np.max(m, axis=1, out=products)
    return totals, products


def converted(x):
    y = np.asarray(x, dtype=float)
    z = np.asanyarray(y)
    w = np.ascontiguousarray(z[::2])
    return np.array([np.sum(y), np.sum(z**2), w[1]])


def from_lists(x):
    rotation = np.array([[np.cos(x[0]), -np.sin(x[0])], [np.sin(x[0]), np.cos(x[0])]])
    v = np.array([x[1], 2.0])
    nested = np.array([[v, 2 * v], [v**2, np.ones(2)]])
    return rotation @ v, nested


def made_like(x):
    a, b = np.zeros_like(x), np.ones_like(x)
    c, d = np.zeros(x.shape), np.full_like(x, 2.0)
    a[0], b[1], c[2], d[3] = x[0], x[1] ** 2, x[2] ** 3, x[3] * x[4]
    e = np.empty(len(x), dtype=x.dtype)
    e.fill(x[5])
    return a + b * c + d * e


def filled(m):
    a = np.zeros((3, 3))
    a[:] = m[:, :3]
    np.fill_diagonal(a, m[0, 0] * m[1, 1])
    b = np.eye(3)
    b.fill(2.0)
    b[1].fill(m[2, 2])
    return a @ b


def copied_to(x):
    y = np.zeros(6)
    np.copyto(y, x)
    np.copyto(y[:3], x[3:] ** 2)
    np.copyto(y, 0.0, where=np.array([True, False] * 3))
    return y


def written_with_new_axes(x):
    a = np.zeros((2, 3))
    a[:, np.newaxis, :] = x.reshape(2, 1, 3)
    a[..., 0] *= 2
    a[0, ...] += a[1, ...]
    return a


def written_by_index_arrays(x):
    y = np.zeros(6)
    y[[3, 0, 5]] = x[:3]
    y[np.array([[1, 2], [4, 4]])] += x[:4].reshape(2, 2)
    grid = np.zeros((3, 3))
    grid[[0, 1, 2], [2, 0, 1]] = y[:3] ** 2
    grid[np.arange(3), np.arange(3)] += x[3:]
    return y, grid


def written_by_mask(x):
    y = x.copy()
    y[y < 0] = 0.0
    y[y > 0.5] **= 2
    y[np.array([True, False, False, True, False, False])] -= x[1]
    return y


def written_part_by_mask(m):
    a = m.copy()
    a[a[:, 0] > 0.5] *= 2
    a[a[:, 1] > 0.5, 1:3] = 0.0
    a[:, np.array([True, False, True, False])] += 1.0
    return a


def augmented_operators(x):
    y = x + 2.0
    y += x
    y -= 0.5
    y *= x
    y /= 3.0
    y **= 2
    z = y[1:4]
    z -= y[0]
    z /= y[5] + 2
    return y


def augmented_names_are_the_same_array(x):
    y = x.copy()
    z = y
    z += 1.0
    z[0] = 5.0
    w = z
    w = w * 2  # a new array: y stays
    return y, w


def integers_beside(x):
    counts = np.zeros(6, dtype=int)
    order = np.array([2, 0, 1, 5, 4, 3])
    for k, i in enumerate(order):
        counts[i] += k
    out = np.zeros(6)
    out[counts] = x
    out[order[:3]] += counts[:3] * x[:3]
    return out


def list_of_rows(x):
    rows = []
    for k in range(3):
        row = np.zeros(6)
        row[k:] = x[: 6 - k]
        rows.append(row)
    rows[0][1] = 7.0 * x[0]
    return np.array(rows), np.vstack(rows), np.concatenate([rows[0], rows[2][1:]])


def work_array_reused(x):
    """What was stored must not change when the work array is used again."""
    work = np.zeros(2)
    kept = []
    for k in range(3):
        work[:] = x[2 * k : 2 * k + 2] ** (k + 1)
        kept.append(work.copy())
    return np.array(kept)


def shared_by_mistake(x):
    """And without the copy it does: all entries are the last one."""
    work = np.zeros(2)
    kept = []
    for k in range(3):
        work[:] = x[2 * k : 2 * k + 2] ** (k + 1)
        kept.append(work)
    return np.array(kept)


def copies(x):
    a, b, c, d = x.copy(), copy.copy(x), copy.deepcopy(x), np.array(x)
    for k, y in enumerate((a, b, c, d)):
        y[k] = 10.0 * x[k]
    state = {"pos": x, "list": [x[:2]]}
    other = copy.deepcopy(state)
    other["pos"][0] = 3.0
    other["list"][0][1] = 4.0
    return a + b + c + d, state["pos"], other["pos"], other["list"][0]


SCALE = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])


def default_argument_array(x, scale=SCALE):
    out = np.zeros_like(scale)
    out += scale * x
    out[out > 1] = 1.0
    return out


def plain_arrays_written_beside(x):
    """A plain array changed between two uses: each use saw its own numbers."""
    w = np.ones(6)
    a = x * w
    w *= 5
    return np.sum(a * w)


def complex_work_array(x):
    z = np.zeros(3, dtype=complex)
    z[:] = x[:3]
    z *= 1j
    z += x[3:]
    z[1] = z[0] * np.conj(z[2])
    return np.real(z * np.conj(z))


def in_float32(x):
    a = np.zeros(6, dtype=np.float32)
    a[:] = x  # rounded when written
    return a.astype(float) * x


FUNCTIONS_OF_X = [
    chained_views, reversed_view, two_views_of_one_array, overlap_forwards, overlap_backwards, overlap_augmented,
    overlap_reversed, shifted_by_b, swapped_elements, out_arguments, out_returns_the_array, converted, from_lists,
    made_like, copied_to, written_with_new_axes, written_by_index_arrays, augmented_operators,
    augmented_names_are_the_same_array, integers_beside, list_of_rows, work_array_reused, shared_by_mistake, copies,
    plain_arrays_written_beside, complex_work_array,
]  # fmt: skip
FUNCTIONS_OF_A_MATRIX = [
    transposed_view, reshaped_view, ravelled_view, view_of_view_of_view, view_sees_the_base, overlap_transposed,
    swapped_rows, swapped_without_copies, swapped_columns, out_of_reductions, filled,
]  # fmt: skip


@pytest.mark.parametrize("f", FUNCTIONS_OF_X, ids=lambda f: f.__name__)
def test_of_a_vector(f):
    check(f, X)


@pytest.mark.parametrize("f", FUNCTIONS_OF_A_MATRIX, ids=lambda f: f.__name__)
def test_of_a_matrix(f):
    check(f, M)


@pytest.mark.parametrize("f", [written_by_mask, default_argument_array])
def test_masks_of_values(f):
    check(f, X, jit=False, vmap=False)


def test_masks_of_rows():
    check(written_part_by_mask, M, jit=False, vmap=False)


def test_a_float32_work_array():
    """Writing rounds; the derivative of rounding is one."""
    value, tangent = wl.jvp(wl.lift(in_float32), (X,), (np.ones(6),))
    np.testing.assert_array_equal(value, in_float32(X))
    np.testing.assert_allclose(tangent, 2 * X, rtol=1e-7)


def test_results_are_arrays_of_the_callers_own():
    def f(x):
        y = x.copy()
        return y, y[1:], y.T

    for transformed in (lambda x: wl.jvp(wl.lift(f), (x,), (x,))[0], wl.jit(wl.lift(f))):
        whole, part, same = transformed(X)
        whole[:] = 0.0
        np.testing.assert_array_equal(part, X[1:])
        np.testing.assert_array_equal(same, X)


def test_errors_are_numpys():
    def too_long(x):
        out = np.zeros(3)
        out[:] = x
        return out

    def wrong_index(x):
        out = np.zeros(3)
        out[3] = x[0]
        return out

    def grows(x):
        out = np.zeros(1)
        out += x
        return out

    def wrong_kind(x):
        out = np.zeros(6, dtype=int)
        out += x
        return out

    def wrong_out(x):
        return np.add(x, 1.0, out=np.zeros(3))

    for f in (too_long, wrong_index, grows, wrong_kind, wrong_out):
        with pytest.raises(Exception) as plain:
            f(X)
        kind = next(c for c in plain.type.__mro__ if c.__module__ == "builtins")
        with pytest.raises(kind):
            wl.grad(wl.lift(lambda x, f=f: np.sum(f(x))))(X)


def test_a_failed_write_leaves_the_array_as_it_was():
    def f(x):
        y = x.copy()
        y *= 2.0
        for bad in (lambda: y.__setitem__(slice(0, 2), np.ones(3)), lambda: y.__setitem__(17, 0.0)):
            with pytest.raises((ValueError, IndexError)):
                bad()
        return np.sum(y**2)

    np.testing.assert_allclose(wl.grad(wl.lift(f))(X), 8 * X)


def test_integers_written_with_floats_are_cut_off_as_numpy_does():
    def f(x):
        out = np.zeros(3, dtype=int)
        out[:] = x[:3] * 10
        return x[0] * out[2]

    assert wl.grad(wl.lift(f))(X)[0] == 11
