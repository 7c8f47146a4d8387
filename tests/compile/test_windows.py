"""Windows in compiled code: products read them where they lie, and so do sums of them; orders of axes are kept."""

import itertools

import numpy as np
import pytest

import wonderland as wl

sliding = np.lib.stride_tricks.sliding_window_view


def steps(function, *args) -> list[str]:
    return [str(step).splitlines()[0] for step in wl.jit(function).inspect(*args).plan.steps]


def numbers(rng, *shape, dtype=np.float32):
    """Small integers: sums of products are exact in any order."""
    return rng.integers(-3, 4, shape).astype(dtype)


def with_gradients(f, ct):
    """The value and all gradients."""

    def both(*args):
        out, pull = wl.vjp(f, *args)
        return out, *pull(ct)

    return both


CONFIGURATIONS = [
    (kernel, stride, dilation, padding, channels)
    for kernel, stride, dilation, padding, channels in itertools.product(
        ((3, 3), (1, 2), (4, 3)), ((1, 1), (2, 1), (3, 2)), ((1, 1), (2, 3)), (0, ((2, 1), (3, 3))), ((1, 18), (5, 4))
    )
    if padding or (kernel[0] - 1) * dilation[0] < 7
]


@pytest.mark.parametrize("configuration", CONFIGURATIONS[:: len(CONFIGURATIONS) // 12], ids=str)
@pytest.mark.parametrize("layout", ["first", "last"])
def test_convolutions_and_their_gradients_are_exact(configuration, layout, rng):
    kernel, stride, dilation, padding, (channels, out) = configuration
    shape = (2, channels, 7, 9) if layout == "first" else (2, 7, 9, channels)
    x, w = numbers(rng, *shape), numbers(rng, out, channels, *kernel)

    def f(x, w):
        return wl.conv(x, w, stride, padding, dilation, channels=layout)

    ct = numbers(rng, *np.shape(f(x, w)))
    for found, expected in zip(wl.jit(with_gradients(f, ct))(x, w), with_gradients(f, ct)(x, w), strict=True):
        np.testing.assert_array_equal(found, expected)


LARGE = [  # kernel, stride, dilation, padding: whole runs of taps don't overlap
    ((40, 3), (16, 1), (1, 1), 0), ((16, 16), (16, 16), (1, 1), 0), ((20, 9), (8, 8), (1, 1), 4),
    ((13, 2), (24, 5), (2, 1), ((3, 5), (0, 1))), ((5, 30), (17, 9), (3, 1), 2), ((19, 19), (18, 20), (1, 2), 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("configuration", "layout"), [*zip(LARGE, 3 * ["first", "last"], strict=True), (LARGE[0], "last")], ids=str
)
def test_large_strides_take_few_steps(configuration, layout, rng):
    """Not one for each phase of the stride, nor for each element of a window."""
    kernel, stride, dilation, padding = configuration
    shape = (2, 3, 50, 45) if layout == "first" else (2, 50, 45, 3)
    x, w = numbers(rng, *shape), numbers(rng, 4, 3, *kernel)
    for f, args in (
        (lambda x, w: wl.conv(x, w, stride, padding, dilation, channels=layout), (x, w)),
        (lambda x: wl.sum_pool(x, kernel, stride, padding, dilation, channels=layout), (x,)),
        (lambda x: wl.max_pool(x, kernel, stride, padding, dilation, channels=layout), (x,)),
        (lambda x: wl.unfold(np.reshape(x, (2, 3, 50, 45)), kernel, dilation, padding, stride), (x,)),
    ):
        both = with_gradients(f, numbers(rng, *np.shape(f(*args))))
        for found, expected in zip(wl.jit(both)(*args), both(*args), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert len(steps(both, *args)) <= 25


def by_conv(x, w):
    return wl.conv(x, w, padding=2)


def by_hand(x, w):
    """As people write it who have no `conv`."""
    windows = sliding(np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2))), w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


def by_tensordot(x, w):
    windows = sliding(np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2))), w.shape[2:], axis=(2, 3))
    return np.moveaxis(np.tensordot(windows, w, ((1, 4, 5), (1, 2, 3))), 3, 1)


@pytest.mark.parametrize("f", [by_conv, by_hand, by_tensordot])
def test_windows_are_never_stored(f, rng):
    x, w = numbers(rng, 4, 16, 20, 20), numbers(rng, 24, 16, 5, 5)
    ct = numbers(rng, 4, 24, 20, 20)
    found = wl.jit(with_gradients(f, ct)).inspect(x, w)
    assert sum("product of windows" in str(step) for step in found.plan.steps) == 3
    assert found.arena_bytes < 6 * max(x.nbytes, ct.nbytes)  # all windows take 25 times the memory of x
    for one, other in zip(wl.jit(with_gradients(f, ct))(x, w), with_gradients(by_conv, ct)(x, w), strict=True):
        np.testing.assert_array_equal(one, other)


def test_depthwise_sums_stay_in_registers(rng):
    x, w = numbers(rng, 4, 16, 20, 20), numbers(rng, 16, 1, 3, 3)
    ct = numbers(rng, 4, 16, 20, 20)

    def f(x, w):
        return wl.conv(x, w, padding=1, groups=16)

    found = wl.jit(with_gradients(f, ct)).inspect(x, w)
    assert not any("product" in str(step) for step in found.plan.steps)
    assert found.arena_bytes < 6 * x.nbytes
    for one, other in zip(wl.jit(with_gradients(f, ct))(x, w), with_gradients(f, ct)(x, w), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("multiplier", [2, 3])
def test_depthwise_with_several_results_for_each_channel(layout, multiplier, rng):
    x, w = numbers(rng, 2, 9, 10, 16), numbers(rng, 16 * multiplier, 1, 3, 3)
    x = x if layout == "last" else np.moveaxis(x, -1, 1)

    def f(x, w):
        return wl.conv(x, w, padding=1, groups=16, channels=layout)

    ct = numbers(rng, *np.shape(f(x, w)))
    for one, other in zip(wl.jit(with_gradients(f, ct))(x, w), with_gradients(f, ct)(x, w), strict=True):
        np.testing.assert_array_equal(one, other)
    y = numbers(rng, 16, multiplier, 3)
    products = lambda x, y: np.einsum("tcw,cmw->tcm", sliding(x, 3, axis=0), y)
    np.testing.assert_array_equal(wl.jit(products)(x[0].reshape(90, 16), y), products(x[0].reshape(90, 16), y))
    over = lambda x, y: wl.conv_transpose(x.T, y, stride=2, groups=16, dilation=2)
    np.testing.assert_array_equal(wl.jit(over)(x[0].reshape(90, 16), y), over(x[0].reshape(90, 16), y))


def test_one_by_one_kernels_move_nothing(rng):
    x, w = numbers(rng, 4, 16, 20, 20), numbers(rng, 24, 16, 1, 1)
    assert steps(wl.conv, x, w) == ["4 products 24x16 by 16x400, float32"]


def test_between_layers_channels_stay_last(rng):
    """Only what comes in and goes out has another order; bias and activation run on the rows of the product."""
    x, w, v, b = numbers(rng, 4, 16, 20, 20), numbers(rng, 24, 16, 3, 3), numbers(rng, 16, 24, 3, 3), numbers(rng, 24)

    def network(x, w, v, b):
        hidden = wl.max_pool(np.maximum(wl.conv(x, w, padding=1) + b[:, None, None], 0), 2)
        return np.mean(wl.conv(hidden, v), axis=(2, 3))

    found = wl.jit(network).inspect(x, w, v, b)
    assert not any("transposing" in str(step) for step in found.plan.steps)
    assert sum("then on its rows" in str(step) for step in found.plan.steps) >= 1
    np.testing.assert_allclose(wl.jit(network)(x, w, v, b), network(x, w, v, b), rtol=1e-6)


def test_channels_stay_last_through_residual_layers(rng):
    """The given images are moved once; 1x1 kernels, and sums with what was given, keep the order of the layers."""
    x, ws = numbers(rng, 4, 24, 20, 20), [numbers(rng, 24, 24, k, k) for k in (3, 1, 3)]

    def network(x, *ws):
        for w in ws:
            x = np.maximum(x + wl.conv(x, w, padding="same") / 64, 0)
        return np.mean(x, axis=(2, 3))

    found = wl.jit(network).inspect(x, *ws)
    assert sum("transposing" in str(step) for step in found.plan.steps) <= 1
    np.testing.assert_allclose(wl.jit(network)(x, *ws), network(x, *ws), rtol=1e-5)


def test_state_keeps_its_order(rng):
    """An optimiser's moments aren't moved to the order of a gradient, however it was computed."""
    x, w, m = numbers(rng, 2, 64, 8, 8), numbers(rng, 64, 64, 3, 3), numbers(rng, 64, 64, 3, 3)

    def update(x, w, m):
        m = 0.5 * m + wl.grad(lambda w: np.sum(wl.conv(x, w) ** 2))(w)
        return w - 0.25 * m, m

    found = wl.jit(update).inspect(x, w, m).plan.steps
    assert sum(str(step).count("transposing") for step in found) == 1  # of the gradient
    for got, want in zip(wl.jit(update)(x, w, m), update(x, w, m), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("channels", [3, 16, 30, 60, 200])
def test_any_number_of_channels(channels, rng):
    """Each has its form of tile, and many are packed."""
    x, w = numbers(rng, 3, 10, 9, 8), numbers(rng, channels, 10, 3, 2)
    ct = numbers(rng, 3, channels, 9, 8)
    f = with_gradients(lambda x, w: wl.conv(x, w, padding=((1, 1), (1, 0))), ct)
    for got, want in zip(wl.jit(f)(x, w), f(x, w), strict=True):
        np.testing.assert_array_equal(got, want)


def test_another_batch_has_the_same_code(rng):
    w = numbers(rng, 24, 16, 5, 5)
    texts = set()
    for n in (64, 40):
        x, ct = numbers(rng, n, 16, 20, 20), numbers(rng, n, 24, 20, 20)
        texts.add(wl.jit(lambda x, w, ct: with_gradients(by_conv, ct)(x, w)).inspect(x, w, ct).ir)
    assert len(texts) == 1


def test_another_batch_of_a_long_step_has_the_same_code(rng):
    """Where signals are looked at depends on kinds of steps, not on how long they take."""
    ws = [numbers(rng, 24, 24, 3, 3) for _ in range(4)]

    def loss(ws, x):
        for w in ws:
            x = np.maximum(wl.conv(x, w, padding=1), 0)
        return np.mean(x**2)

    texts = {wl.jit(wl.grad(loss)).inspect(ws, numbers(rng, n, 24, 32, 32)).ir for n in (64, 50, 40)}
    assert len(texts) == 1 and "wl_poll" in texts.pop()


SHAPES = [(64, 64), (65, 67), (9, 1000), (1000, 11), (3, 40, 41), (4, 16, 7, 30), (2, 3, 5, 6, 70)]


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [*itertools.product(SHAPES, ("f4", "f8")), *itertools.product(SHAPES[1::4], ("i4", "i8", "u2", "?", "c8", "c16"))],
    ids=str,
)
def test_transposed_copies(shape, dtype, rng):
    x = rng.integers(0, 100, shape).astype(dtype)
    f = wl.jit(lambda x, order: np.transpose(x, order), static_argnums=1)
    orders = [tuple(reversed(range(x.ndim))), (*range(1, x.ndim), 0), (x.ndim - 1, *range(x.ndim - 1))]
    for order in orders:
        np.testing.assert_array_equal(f(x, order), np.transpose(x, order))
    np.testing.assert_array_equal(wl.jit(lambda x: x[::-1, 1:].T)(x), x[::-1, 1:].T)


def test_transposed_copies_go_through_registers(rng):
    x = rng.normal(size=(40, 100, 60))
    assert steps(lambda x: np.swapaxes(x, 1, 2), x) == ["kernel transposing 40 of [60, 100], parallel"]


def test_what_is_read_twice_is_moved_once(rng):
    x, m = rng.normal(size=(2, 300, 300))
    found = steps(lambda x, m: (np.tanh(x).T + m, np.tanh(x).T * m), x, m)
    assert sum("transposing" in step for step in found) == 1


def test_functions_keep_the_order_of_what_was_computed(rng):
    """As NumPy's do. A given array decides, if it is as large."""
    a, b = rng.normal(size=(2, 90, 90))
    found = wl.jit(lambda a, b: np.sum(np.exp((a @ b).T) * 2, axis=0)).inspect(a, b)
    assert not any("transposing" in str(step) for step in found.plan.steps)
    np.testing.assert_allclose(wl.jit(lambda a, b: np.exp((a @ b).T) + a)(a, b), np.exp((a @ b).T) + a, rtol=1e-12)
