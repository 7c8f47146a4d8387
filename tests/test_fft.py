"""Fourier transforms on traced arrays: Parseval, convolution, dtypes, errors."""

import numpy as np
import pytest

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.testing import check_grads

NORMS = [None, "backward", "ortho", "forward"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [4, 5])
def test_gradient_of_the_energy_is_parsevals(rng, n, norm):
    """The sum of |X|^2 is a multiple of the sum of |x|^2, by the normalisation; rfft has half of it."""
    x = rng.normal(size=n)
    factor = {"ortho": 1.0, "forward": 1 / n}.get(norm, float(n))
    weights = np.full(n // 2 + 1, 2.0)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    whole = wl.grad(lambda x: np.sum(np.abs(np.fft.fft(x, norm=norm)) ** 2))(x)
    half = wl.grad(lambda x: np.sum(weights * np.abs(np.fft.rfft(x, norm=norm)) ** 2))(x)
    np.testing.assert_allclose(whole, 2 * factor * x)
    np.testing.assert_allclose(half, 2 * factor * x)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "ihfft", "hfft", "irfft", "fft2", "rfftn", "irfftn"])
@pytest.mark.parametrize("norm", NORMS)
def test_transposes_are_exact(rng, name, norm):
    """The Jacobian by columns and by rows is that of the transform's matrix."""
    f = lambda x: getattr(np.fft, name)(x, norm=norm)
    x = rng.normal(size=(3, 4))
    t = rng.normal(size=x.shape)
    if name in ("hfft", "irfft", "irfftn"):
        x, t = x + 1j * rng.normal(size=x.shape), t + 1j * rng.normal(size=x.shape)
    value, pull = wl.vjp(f, x)
    ct = rng.normal(size=value.shape) + (1j * rng.normal(size=value.shape) if value.dtype.kind == "c" else 0)
    (pulled,) = pull(ct)
    assert np.sum(np.real(np.conj(ct) * f(t))) == pytest.approx(np.sum(np.real(np.conj(pulled) * t)))
    np.testing.assert_allclose(wl.jvp(f, (x,), (t,))[1], f(t), atol=1e-14)


def test_convolution_theorem(rng):
    """The gradient through an FFT filter is that of the convolution it computes."""
    x, h, w = rng.normal(size=8), rng.normal(size=3), rng.normal(size=10)
    by_fft = lambda x, h: np.fft.irfft(np.fft.rfft(x, 10) * np.fft.rfft(h, 10), 10)
    np.testing.assert_allclose(by_fft(x, h), np.convolve(x, h))
    grads = wl.grad(lambda x, h: np.sum(w * by_fft(x, h)), (0, 1))
    expected = np.correlate(w, h, "valid"), np.correlate(w, x, "valid")
    for transform in (lambda f: f, wl.jit):
        for found, e in zip(transform(grads)(x, h), expected, strict=True):
            np.testing.assert_allclose(found, e, atol=1e-13)
    check_grads(lambda x, h: np.sum(np.tanh(by_fft(x, h))), (x, h), order=3)


def test_dtypes_are_numpys():
    for dtype in ("bool", "int32", "float32", "float64", "complex64", "complex128"):
        x = np.ones(4, dtype)
        for name in ("fft", "ifft", "irfft", "hfft", *(("rfft", "ihfft") if np.dtype(dtype).kind != "c" else ())):
            f = getattr(np.fft, name)
            assert wl.jit(f)(x).dtype == f(x).dtype, (name, dtype)
    assert wl.grad(lambda x: np.sum(np.abs(np.fft.fft(x))))(np.arange(4, dtype="float32")).dtype == np.float32


def test_shifts_and_frequencies(rng):
    x = rng.normal(size=(4, 5))
    for f, back in ((np.fft.fftshift, np.fft.ifftshift), (np.fft.ifftshift, np.fft.fftshift)):
        np.testing.assert_array_equal(wl.jit(f)(x), f(x))
        np.testing.assert_array_equal(wl.vjp(f, x)[1](x)[0], back(x))
    assert wnp.fft.fftfreq is np.fft.fftfreq
    derivative = lambda x: np.fft.ifft(2j * np.pi * np.fft.fftfreq(len(x), 1 / len(x)) * np.fft.fft(x)).real
    grid = np.arange(16) / 16
    np.testing.assert_allclose(derivative(np.sin(2 * np.pi * grid)), 2 * np.pi * np.cos(2 * np.pi * grid), atol=1e-12)
    assert np.isfinite(wl.grad(lambda x: np.sum(derivative(x) ** 2))(grid)).all()


def test_wonderland_numpy_has_fft():
    assert wl.grad(lambda x: wnp.real(wnp.fft.fft(wnp.array([x, 2 * x]))[0]))(1.0) == pytest.approx(3.0)


def test_errors_are_numpys():
    x = np.ones((3, 4))
    for call, error, words in (
        (lambda x: np.fft.fft(x, 0), ValueError, r"Invalid number of FFT data points \(0\)"),
        (lambda x: np.fft.fft(x[:, :0]), ValueError, r"Invalid number of FFT data points \(0\)"),
        (lambda x: np.fft.irfft(x[:, :1]), ValueError, r"Invalid number of FFT data points \(0\)"),
        (lambda x: np.fft.fft(x, norm="both"), ValueError, "Invalid norm value both"),
        (lambda x: np.fft.fft(x, axis=2), IndexError, "axis 2"),
        (lambda x: np.fft.fftn(x, s=(2,), axes=(0, 1)), ValueError, "different lengths"),
        (lambda x: np.fft.rfft(x * 1j), TypeError, "complex"),
    ):
        with pytest.raises(error, match=words):
            wl.jit(call)(x)
