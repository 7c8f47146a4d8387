"""Convolution, pooling, patches, resizing: what they mean, what they are, and what is said if they can't be."""

import numpy as np
import pytest
import scipy.signal

import wonderland as wl
from wonderland.ops import dot as products
from wonderland.scipy import signal
from wonderland.testing.convolutions import conv_by_definition


@pytest.fixture
def images(rng):
    return rng.normal(size=(2, 3, 7, 6))


def weights(rng, *shape):
    return rng.normal(size=shape)


# What a convolution is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
def test_where_the_input_moves_the_result_moves(transform, images, rng):
    """Translation equivariance: along an axis that is closed to a circle, for any shift."""
    w = weights(rng, 4, 3, 3, 2)
    f = transform(lambda x: wl.conv(x, w, padding=((1, 1), (1, 0)), padding_mode="circular"))
    for shift in (1, 5):
        np.testing.assert_allclose(
            f(np.roll(images, shift, -1)), np.roll(f(images), shift, -1), rtol=1e-12, atol=1e-12
        )  # fmt: skip


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
def test_two_convolutions_are_one_with_a_larger_kernel(transform, images, rng):
    a, b = weights(rng, 4, 3, 3, 2), weights(rng, 5, 4, 2, 2)
    # The kernel of both, one after the other, is a convolution (not a correlation) of the two, summed over channels.
    both = transform(lambda a, b: wl.conv(np.swapaxes(a, 0, 1), b[:, :, ::-1, ::-1], padding=1))(a, b)
    found = transform(wl.conv)(images, np.swapaxes(both, 0, 1))
    one_by_one = transform(lambda x, a, b: wl.conv(wl.conv(x, a), b))(images, a, b)
    np.testing.assert_allclose(found, one_by_one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("channels", ["first", "last"])
def test_one_by_one_is_a_dense_layer(channels, transform, images, rng):
    w, b = weights(rng, 4, 3, 1, 1), weights(rng, 4)
    x = images if channels == "first" else np.moveaxis(images, 1, -1)
    dense = np.moveaxis(images, 1, -1) @ w[:, :, 0, 0].T + b
    found = transform(lambda x, w, b: wl.conv(x, w, bias=b, channels=channels))(x, w, b)
    np.testing.assert_allclose(found if channels == "last" else np.moveaxis(found, 1, -1), dense, rtol=1e-12)
    program = str(wl.trace(lambda x, w: wl.conv(x, w, channels=channels))(x, w))
    assert "dot" in program and "windows" not in program


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("dilation", [1, 2])
def test_causal_is_a_kernel_without_its_future(dilation, transform, rng):
    x, w = rng.normal(size=(2, 3, 9)), weights(rng, 4, 3, 3)
    both_sides = np.concatenate([w, np.zeros((4, 3, 2))], -1)  # its last two elements see what comes later
    padded = lambda padding: transform(lambda x, w: wl.conv(x, w, padding=padding, dilation=dilation))
    np.testing.assert_allclose(padded("causal")(x, w), padded("same")(x, both_sides), rtol=1e-12, atol=1e-12)
    reads = wl.sparse.jacobian_pattern(lambda row: wl.conv(row[None], w[:1, :1], padding="causal")[0], x[0, 0])
    assert (reads.toarray() == np.tri(9, dtype=bool) & ~np.tri(9, k=-3, dtype=bool)).all()


def test_the_definition(images, rng):
    arguments = {"stride": (2, 1), "padding": ((1, 2), (0, 1)), "dilation": (1, 2)}
    w = weights(rng, 6, 1, 3, 2)
    expected = conv_by_definition(images, w, **arguments, groups=3)
    np.testing.assert_allclose(wl.conv(images, w, **arguments, groups=3), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("channels", ["first", "last"])
@pytest.mark.parametrize("out", [1, 2])
def test_few_channels_of_many(out, channels, rng):
    """They are computed tap by tap; derivatives are those of the definition, whose windows are written out."""
    x, w = rng.normal(size=(2, 9, 6, 5)), weights(rng, out, 9, 3, 2)
    options = {"padding": ((1, 2), (0, 1)), "dilation": (1, 2)}

    def conv(x, w):
        moved = x if channels == "first" else np.moveaxis(x, 1, -1)
        y = wl.conv(moved, w, **options, channels=channels)
        return y if channels == "first" else np.moveaxis(y, -1, 1)

    expected = conv_by_definition(x, w, **options, stride=(1, 1), groups=1)
    y, pull = wl.vjp(wl.jit(conv), x, w)
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(conv(x, w), expected, rtol=1e-12, atol=1e-12)
    assert not any("windows" in str(step) for step in wl.jit(conv).inspect(x, w).plan.steps)
    ct, dx, dw = (rng.normal(size=a.shape) for a in (expected, x, w))
    definition = lambda x, w: conv_by_definition(x, w, **options, stride=(1, 1), groups=1)
    moved = np.sum(ct * (definition(dx, w) + definition(x, dw)))  # it is linear in each
    np.testing.assert_allclose(sum(np.sum(d * g) for d, g in zip((dx, dw), pull(ct), strict=True)), moved, rtol=1e-10)


def test_a_matrix_of_diagonals(rng):
    """x -> conv(x) is a matrix with the kernel along its diagonals, found sparse, and conv_transpose its transpose."""
    x, w = rng.normal(size=12), weights(rng, 1, 1, 3)
    f = lambda x: wl.conv(x[None], w, 2)[0]
    toeplitz = wl.sparse.jacobian(f)(x)
    expected = np.zeros((5, 12))
    for i in range(5):
        expected[i, 2 * i : 2 * i + 3] = w[0, 0]
    np.testing.assert_array_equal(toeplitz.toarray(), expected)
    assert toeplitz.nnz == 15
    y = rng.normal(size=5)
    np.testing.assert_allclose(wl.conv_transpose(y[None], w, 2, output_padding=1)[0], expected.T @ y, rtol=1e-12)


PATTERNS = {
    "stride": {"stride": 2, "padding": 1},
    "dilation": {"dilation": (1, 2), "padding": ((0, 1), (2, 2))},
    "input dilation": {"input_dilation": 2},
    "circular": {"padding": 2, "padding_mode": "circular"},
    "reflect": {"padding": 1, "padding_mode": "reflect", "stride": (1, 3)},
    "replicate": {"padding": ((2, 0), (1, 3)), "padding_mode": "replicate"},
    "channels last": {"channels": "last", "padding": 1},
    "groups": {"groups": 2, "padding": "same"},
    "groups, channels last": {"groups": 2, "channels": "last", "stride": (2, 1)},
    "transposed": {"stride": (2, 3), "padding": 1, "output_padding": (1, 0)},
    "transposed, groups": {"groups": 2, "dilation": (1, 2), "output_padding": (0, 1)},
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_are_exact(name, rng):
    """In the image, in the weights, and of the gradient in both: what can't be anything but 0 isn't in the pattern."""
    conv, arguments = wl.conv_transpose if "transposed" in name else wl.conv, PATTERNS[name]
    x, w = rng.uniform(1, 2, (1, 2, 5, 4)), rng.uniform(1, 2, (2, 2 // arguments.get("groups", 1), 3, 2))
    x = np.moveaxis(x, 1, -1) if "channels last" in name else x
    for f, point in (
        (lambda x: conv(x, w, **arguments), x), (lambda w: conv(x, w, **arguments), w),
        (wl.grad(lambda x: np.sum(conv(x, w, **arguments) ** 2)), x),
        (wl.grad(lambda w: np.sum(conv(x, w, **arguments) ** 2)), w),
    ):  # fmt: skip
        found = wl.sparse.jacobian_pattern(f, point).toarray()
        expected = wl.jacobian(f)(point).reshape(found.shape) != 0
        np.testing.assert_array_equal(found, expected)


def test_depthwise_patterns_keep_channels_apart(rng):
    x, w = rng.normal(size=(3, 4)), weights(rng, 3, 1, 2)
    found = wl.sparse.jacobian_pattern(lambda x: wl.conv(x, w, groups=3), x).toarray().reshape(3, 3, 3, 4)
    for out, channel in np.ndindex(3, 3):
        assert found[out, :, channel].any() == (out == channel)


# Ways of computing it -------------------------------------------------------------------------------------------------


def test_long_kernels_are_applied_by_transforms(rng):
    x, w = rng.normal(size=(1, 1, 8000)), weights(rng, 1, 1, 4000)
    assert "rfft" in str(wl.trace(wl.conv)(x, w)) and "rfft" not in str(wl.trace(wl.conv)(x, w[..., :50]))
    short = x[..., :4000]  # of which there is a single window, without the padding
    assert "rfft" in str(wl.trace(lambda x, w: wl.conv(x, w, padding="causal"))(short, w))
    expected = scipy.signal.correlate(x[0, 0], w[0, 0], "valid")
    for found in (wl.conv(x, w), wl.conv(x, w, method="direct"), wl.jit(wl.conv)(x, w)):
        np.testing.assert_allclose(found[0, 0], expected, rtol=1e-10, atol=1e-10)


def test_products_of_many_windows_are_computed_in_parts(images, rng, monkeypatch):
    """With 64 MB of windows, in eager code; here with 256 bytes."""
    w = weights(rng, 4, 3, 3, 2)

    def run():
        gradients = wl.grad(lambda x, w: np.sum(wl.conv(x, w, padding=1) ** 2), (0, 1))(images, w)
        return wl.conv(images, w, padding=1), wl.conv(np.moveaxis(images, 1, -1), w, channels="last"), *gradients

    expected = run()
    monkeypatch.setattr(products, "_LARGE", 256)
    for found, other in zip(run(), expected, strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
def test_steps_that_are_never_taken_may_be_huge(transform, images, rng):
    """More bytes than there are numbers for them: the stride of one window, the dilation of one element."""
    w = weights(rng, 4, 3, 1, 2)
    f = lambda steps: transform(wl.grad(lambda x, w: np.sum(np.sin(wl.conv(x, w, *steps))), (0, 1)))(images, w)
    for found, expected in zip(f(((9, 2**62), 0, (2**62, 1))), f((9, 0, 1)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_batch_is_a_vmap(images, rng):
    w = weights(rng, 2, 4, 3, 3, 2)  # one for each image
    found = wl.vmap(lambda x, w: wl.conv(x, w, 2, 1))(images, w)
    np.testing.assert_allclose(found[1], wl.conv(images[1], w[1], 2, 1), rtol=1e-12)
    stacked = np.stack([images, -images])  # two batch axes
    np.testing.assert_allclose(wl.conv(stacked, w[0])[1], wl.conv(-images, w[0]), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32"])
def test_dtypes_are_kept(dtype, images, rng):
    x, w = (10 * images).astype(dtype), (10 * weights(rng, 4, 3, 2, 2)).astype(dtype)
    expected = conv_by_definition(x, w, (1, 1), ((0, 0),) * 2, (1, 1))
    for f in (wl.conv, wl.jit(wl.conv)):
        assert f(x, w).dtype == dtype
        np.testing.assert_allclose(f(x, w), expected, rtol=1e-5, atol=1e-3)


# Pooling, patches, resizing -------------------------------------------------------------------------------------------


def test_pooling_of_all_is_a_reduction_of_all(images):
    np.testing.assert_array_equal(wl.max_pool(images), images.max((2, 3), keepdims=True))
    np.testing.assert_array_equal(wl.max_pool(images[0], np.array([7, 6])), images[0].max((1, 2), keepdims=True))
    np.testing.assert_allclose(wl.mean_pool(images), images.mean((2, 3), keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(
        wl.sum_pool(np.moveaxis(images, 1, -1), channels="last")[:, 0, 0], images.sum((2, 3)), rtol=1e-12
    )  # fmt: skip


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "float16", "float32", "complex64"])
def test_pooling_of_all_has_numpys_dtypes(dtype, transform):
    """Small integers, as images have them, don't overflow."""
    x = np.full((1, 2, 20, 30), 100).astype(dtype)
    for ours, theirs in ((wl.sum_pool, np.sum), (wl.mean_pool, np.mean)):
        found, expected = transform(ours)(x), theirs(x, axis=(2, 3), keepdims=True)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_the_mean_is_a_convolution_with_equal_weights(images):
    w = np.full((3, 1, 2, 3), 1 / 6)
    np.testing.assert_allclose(
        wl.mean_pool(images, (2, 3), (1, 2), (1, 1)), wl.conv(images, w, (1, 2), 1, groups=3), rtol=1e-12
    )


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("size", [2, 9])
def test_the_first_maximum_has_the_derivative(size, transform):
    """In the order of memory; windows of 81 elements aren't read element by element."""
    gradient = transform(wl.grad(lambda x: np.sum(wl.max_pool(x, size))))(np.ones((1, 2, 9, 9)))
    expected = np.zeros((9, 9))
    expected[: 9 // size * size : size, : 9 // size * size : size] = 1
    np.testing.assert_array_equal(gradient, np.broadcast_to(expected, (1, 2, 9, 9)))


def test_padding_wins_no_maximum(images):
    assert (wl.max_pool(-np.abs(images), 3, 2, 1) < 0).all()
    whole = -np.abs(10 * images).astype(np.int16) - 1
    assert wl.max_pool(whole, 3, 2, 1).dtype == np.int16 and (wl.max_pool(whole, 3, 2, 1) < 0).all()
    assert (wl.max_pool(images > 0, 2) == (wl.max_pool(images, 2) > 0)).all()


def test_unfold_and_a_product_are_a_convolution(images, rng):
    w = weights(rng, 4, 3, 3, 2)
    patches = wl.unfold(images, (3, 2), padding=1, stride=2)  # (batch, channels * window, places)
    found = (w.reshape(4, -1) @ patches).reshape(2, 4, 4, 4)
    np.testing.assert_allclose(found, wl.conv(images, w, 2, 1), rtol=1e-12, atol=1e-12)
    back = wl.linear_transpose(lambda x: wl.unfold(x, (3, 2), padding=1, stride=2), images)
    np.testing.assert_allclose(back(patches)[0], wl.fold(patches, (7, 6), (3, 2), padding=1, stride=2), rtol=1e-12)


def test_linear_resizing_keeps_linear_images():
    x = np.add.outer(2.0 * np.arange(5), np.arange(4))[None, None]
    found = wl.resize(x, (9, 7), "linear", align_corners=True)
    np.testing.assert_allclose(found[0, 0], np.add.outer(np.arange(9), np.arange(7) / 2), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(wl.resize(x, (10, 8)), x.repeat(2, 2).repeat(2, 3))
    last = wl.resize(np.moveaxis(x, 1, -1), 2, channels="last")
    np.testing.assert_array_equal(last[0, ..., 0], x[0, 0, [0, 2]][:, ::2])


# SciPy's convolutions -------------------------------------------------------------------------------------------------


def test_scipys_functions_work_under_their_names_when_lifted(rng):
    x, y = rng.normal(size=(5, 4)), rng.normal(size=(2, 3))
    loss = lambda x: np.sum(scipy.signal.convolve2d(x, y, "same", "symm") ** 2)
    found = wl.grad(wl.lift(loss))(x)
    step = 1e-6 * (np.arange(20).reshape(5, 4) == 7)
    assert found[1, 3] == pytest.approx((loss(x + step) - loss(x - step)) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["convolve2d", "correlate2d"])
def test_what_is_around_integers_may_have_a_fraction(name, transform, rng):
    """If the result has one."""
    x, y = rng.integers(0, 9, (4, 5)), rng.normal(size=(3, 2))
    found = transform(lambda x, y: getattr(signal, name)(x, y, fillvalue=1.5))(x, y)
    np.testing.assert_allclose(found, getattr(scipy.signal, name)(x, y, fillvalue=1.5), rtol=1e-12)


def test_spectra_have_the_precision_of_the_result(rng):
    """SciPy's have that of each operand."""
    x, y = rng.normal(size=50), rng.normal(size=9).astype("float32")
    found = wl.jit(lambda x, y: signal.convolve(x, y, method="fft"))(x, y)
    np.testing.assert_allclose(found, np.convolve(x, y.astype(float)), rtol=1e-12, atol=1e-12)


# Errors ---------------------------------------------------------------------------------------------------------------

X, W = np.zeros((2, 4, 5, 5)), np.zeros((6, 4, 3, 3))
ERRORS = {
    "has 4 channels (axis 1); w.shape[1] * groups is 3": lambda: wl.conv(X, np.zeros((6, 3, 3, 3))),
    "groups=4 must divide the number of output channels": lambda: wl.conv(X, np.zeros((6, 1, 3, 3)), groups=4),
    "windows of 3 elements (dilation 3, so 7 long) don't fit into axis 2 of 5": lambda: wl.conv(X, W, dilation=3),
    "stride=(1, 2, 3): expected one integer or 2": lambda: wl.conv(X, W, (1, 2, 3)),
    "stride=0: expected integers of at least 1": lambda: wl.conv(X, W, 0),
    "padding='same' needs stride=1": lambda: wl.conv(X, W, 2, "same"),
    "padding is 'same', 'valid', 'causal' or numbers": lambda: wl.conv(X, W, padding="SAME"),
    "expected one integer, or for each of the 2 spatial axes": lambda: wl.conv(X, W, padding=(1, 2, 3, 4)),
    "padding_mode is one of 'zeros', 'circular'": lambda: wl.conv(X, W, padding_mode="wrap"),
    "channels is 'first' or 'last'": lambda: wl.conv(X, W, channels="middle"),
    "bias has shape (4,); expected (6,)": lambda: wl.conv(X, W, bias=np.zeros(4)),
    "expected an axis for channels": lambda: wl.conv(X[0, 0], W),
    "expected two axes for channels, and one or more of a kernel": lambda: wl.conv(X, W[0, 0]),
    "output_padding=2 must be smaller than the stride": lambda: wl.conv_transpose(X, W[:4], 2, 0, 2),
    "padding (9, 9) leaves nothing": lambda: wl.conv_transpose(X, W[:4], padding=9),
    "padding=2 is more than half of a window": lambda: wl.max_pool(X, 3, 1, 2),
    "give one size for each spatial axis": lambda: wl.max_pool(X[0, 0], 2),
    "stride=1.5: expected integers": lambda: wl.conv(X, W, stride=1.5),
    "padding='same': expected integers": lambda: wl.conv_transpose(X, W[:4], padding="same"),
    "have no order": lambda: wl.max_pool(X + 1j, 2),
    "x has shape (2, 4, 25); expected (batch, channels * 9, places)": lambda: wl.fold(X.reshape(2, 4, 25), (5, 5), 3),
    "has 25 places; images of shape (4, 4) have (3, 3) windows": lambda: wl.fold(X.reshape(2, 4, 25), (4, 4), 2),
    "method is 'nearest' or 'linear'": lambda: wl.resize(X, 3, "cubic"),
    "x has shape (5, 5); expected (batch, channels, *spatial)": lambda: wl.resize(X[0, 0], 3),
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors_say_what_is_wrong(message):
    with pytest.raises((ValueError, TypeError)) as error:
        ERRORS[message]()
    assert message in str(error.value)
