"""What `vjp`, `linearize` and `hvp_at` keep is the value of that time: the caller may change arrays afterwards."""

import numpy as np
import pytest
import scipy.sparse

import wonderland as wl


@wl.register_mutable
class Weights:
    def __init__(self, *values):
        self.w = np.array(values)
        self.inner = {"b": np.array([1.0, -1.0])}


def tenfold(*arrays):
    for a in arrays:
        a *= 10


def test_a_mutable_object_updated_before_the_pull():
    m = Weights(1.0, 2.0)
    f = lambda m, x: np.sum(m.w**2 * x + m.inner["b"] * m.w)
    value, pull = wl.vjp(f, m, np.ones(2))
    assert value == 4.0
    tenfold(m.w, m.inner["b"])
    of_m, of_x = pull(1.0)
    np.testing.assert_array_equal(of_m.w, [3.0, 3.0])  # 2 w x + b
    np.testing.assert_array_equal(of_m.inner["b"], [1.0, 2.0])
    np.testing.assert_array_equal(of_x, [1.0, 4.0])

    m = Weights(1.0, 2.0)
    _, push = wl.linearize(lambda m: np.sum(m.w**2), m)
    tenfold(m.w)
    assert push(Weights(1.0, 1.0)) == 6.0
    m = Weights(1.0, 2.0)
    product = wl.hvp_at(lambda m: np.sum(m.w**3), m)
    tenfold(m.w)
    np.testing.assert_array_equal(product(Weights(1.0, 1.0)).w, [6.0, 12.0])


def test_an_object_that_the_function_itself_updates():
    m = Weights(1.0, 2.0)

    def f(m):
        value = np.sum(m.w**2)
        m.w = m.w * 5.0
        return value

    _, pull = wl.vjp(f, m)
    np.testing.assert_array_equal(m.w, [5.0, 10.0])
    tenfold(m.w)
    np.testing.assert_array_equal(pull(1.0)[0].w, [2.0, 4.0])


# Functions of x with an array w that they capture; f'(1) with respect to x is `expected` for the array as it is now.
W = lambda: np.array([2.0, 3.0])
CAPTURED = {
    "product": (lambda x, w: x * w, W, [2.0, 3.0]),
    "a read-only view": (lambda x, w: x * np.broadcast_to(w, (2, 2)), W, [4.0, 6.0]),
    "reversed": (lambda x, w: x * w[::-1], W, [3.0, 2.0]),
    "indices": (lambda x, w: x[w], lambda: np.array([1, 1]), [0.0, 2.0]),
    "a mask": (lambda x, w: np.where(w > 2.5, x, 0.0), W, [0.0, 1.0]),
    "jit": (lambda x, w: wl.jit(lambda x: x * w)(x), W, [2.0, 3.0]),
    "checkpoint": (lambda x, w: wl.checkpoint(lambda x: x * x * w)(x), W, [4.0, 6.0]),
    "scan": (lambda x, w: wl.scan(lambda c, _: (c * w, None), x, length=2)[0], W, [4.0, 9.0]),
    "cond": (lambda x, w: wl.cond(x[0] > 0, lambda x: x * w, lambda x: x, x), W, [2.0, 3.0]),
    "while_loop": (
        lambda x, w: wl.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] * w), (0, x))[1], W, [4.0, 9.0],
    ),
    "a sparse matrix": (lambda x, w: scipy.sparse.csr_array(([*w], ([0, 1], [0, 1]))) @ x, W, [2.0, 3.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_arrays_and_arguments_updated_before_the_pull(name):
    f, make, expected = CAPTURED[name]
    w, x = make(), np.ones(2)
    _, pull = wl.vjp(lambda x: np.sum(f(x, w)), x)
    _, push = wl.linearize(lambda x: f(x, w), x)
    w += 1
    x *= 10
    if name == "indices":
        w -= 2
    np.testing.assert_array_equal(pull(1.0)[0], expected)
    assert np.sum(push(np.ones(2))) == sum(expected)


VIEWS = {
    "itself": lambda x: x,
    "transposed": lambda x: x.T,
    "a slice": lambda x: x[1:],
    "reversed": lambda x: x[::-1],
    "reshaped": lambda x: np.reshape(x, -1),
    "repeated": lambda x: np.broadcast_to(x, (2, *x.shape)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_arguments(name):
    view = VIEWS[name]
    f = lambda x: np.sum(view(x) ** 3)
    start = np.arange(1.0, 7.0).reshape(3, 2)
    gradient = wl.grad(f)(start)
    x = start.copy()
    _, pull = wl.vjp(f, x)
    _, push = wl.linearize(f, x)
    product = wl.hvp_at(f, x)
    tenfold(x)
    np.testing.assert_array_equal(pull(1.0)[0], gradient)
    np.testing.assert_allclose(push(np.ones((3, 2))), np.sum(gradient))
    np.testing.assert_array_equal(product(np.ones((3, 2))), 2.0 * gradient / start)


@pytest.mark.parametrize("strategy", ["forward_over_reverse", "reverse_over_forward", "reverse_over_reverse"])
def test_every_strategy_of_hvp_at(strategy):
    x = np.array([1.0, 2.0])
    product = wl.hvp_at(lambda x: np.sum(x**3), x, strategy=strategy)
    tenfold(x)
    np.testing.assert_array_equal(product(np.ones(2)), [6.0, 12.0])


def test_results_are_the_callers_own():
    x = np.array([0.0, 1.0])
    for f in (np.exp, lambda x: np.exp(x)[::-1], lambda x: (np.exp(x), np.exp(x).T)[1]):
        value, pull = wl.vjp(f, x)
        value *= 10
        np.testing.assert_allclose(pull(np.ones(2))[0], np.exp(x))
    value, pull, aux = wl.vjp(lambda x: (np.sum(x**2), x), x, has_aux=True)
    aux *= 10
    np.testing.assert_array_equal(pull(1.0)[0], 2 * x)


def test_only_what_is_needed_is_copied():
    """A linear function of a big argument keeps nothing of it, and grad, which is done at once, copies nothing."""
    from wonderland.core.functions import Call
    from wonderland.transform.derivatives import Linearized
    from wonderland.transform.residuals import can_change, keep

    x, y = np.ones(1000), np.ones(1000)
    call = Call(lambda x, y: np.sum(2.0 * x + y * y), (x, y), {})
    tape = Linearized(call, [True, True]).program
    shared = lambda: [a.value for e in tape.equations for a in e.inputs if can_change(getattr(a, "value", None))]
    assert shared() and all(np.shares_memory(value, y) for value in shared())
    keep(tape)
    assert not shared()


def read_only_view(w):
    view = w[:]
    view.flags.writeable = False
    return view


@pytest.mark.parametrize("view", [lambda w: np.broadcast_to(w, (2, 3)), read_only_view])
def test_a_read_only_view_of_an_array_that_changes(view):
    w = np.ones(3)

    def f(x):
        nonlocal w
        a = x * view(w)
        w *= 5
        return np.sum(a * w)

    np.testing.assert_array_equal(wl.grad(f)(np.ones((2, 3))), np.full((2, 3), 5.0))


def test_what_can_change(tmp_path):
    """One rule says what a tape copies and what `vjp` does: memory that nobody can write to is kept."""
    from wonderland.transform.residuals import can_change

    np.save(tmp_path / "a.npy", W())
    mapped, buffer = (lambda mode: np.load(tmp_path / "a.npy", mmap_mode=mode)), np.frombuffer(bytearray(16))
    assert not any(map(can_change, (np.frombuffer(bytes(16)), np.frombuffer(bytes(16))[1:], 2.0, None)))
    w = W()
    assert all(map(can_change, (mapped("r"), np.asarray(mapped("r"))[1:], np.asarray(memoryview(w).toreadonly()))))
    assert all(map(can_change, (w, read_only_view(w), buffer, read_only_view(buffer), read_only_view(mapped("r+")))))
    assert not can_change(read_only_view(w), {id(w)})


def test_a_read_only_view_through_the_buffer_protocol_is_kept_as_it_was():
    w = np.ones(4)
    seen = np.asarray(memoryview(w).toreadonly())
    _, back = wl.vjp(lambda x: x * seen, np.ones(4))
    w[:] = 5
    np.testing.assert_array_equal(back(np.ones(4))[0], np.ones(4))
