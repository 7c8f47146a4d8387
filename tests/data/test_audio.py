"""Spectra of audio, against SciPy, closed forms and (where it is installed) librosa; and their derivatives."""

import numpy as np
import pytest
import scipy.fft
import scipy.signal

import wonderland as wl
from wonderland import data
from wonderland.testing import check_grads

WINDOWS = ["hann", "hamming", ("gaussian", 20.0), "boxcar"]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(("n_fft", "hop"), [(64, 16), (64, 24), (63, 10)])
def test_stft_is_scipys_and_its_inverse_gives_the_signal(rng, n_fft, hop, window):
    x = rng.normal(size=(2, 500))
    X = data.stft(x, n_fft, hop, window)
    values = scipy.signal.get_window(window, n_fft)
    _, _, expected = scipy.signal.stft(
        x, window=window, nperseg=n_fft, noverlap=n_fft - hop, boundary="zeros", padded=False
    )
    np.testing.assert_allclose(X, expected * values.sum(), atol=1e-12)
    back = data.istft(X, hop, window, n_fft=n_fft, length=500)
    np.testing.assert_allclose(back, x, atol=1e-12)
    changed = X * rng.random(X.shape)
    _, expected = scipy.signal.istft(
        changed / values.sum(), window=window, nperseg=n_fft, noverlap=n_fft - hop, boundary=True
    )
    found = data.istft(changed, hop, window, n_fft=n_fft)
    np.testing.assert_allclose(found, expected[:, : found.shape[-1]], atol=1e-12)


def test_stft_is_its_formula(rng):
    x, window = rng.normal(size=40), rng.random(7)
    X = data.stft(x, 8, 5, window, center=False)  # a window of 7 numbers in frames of 8: none before, one zero after
    k = np.arange(8)
    for m in range(X.shape[1]):
        frame = np.pad(window, (0, 1)) * x[5 * m : 5 * m + 8]
        np.testing.assert_allclose(X[:, m], np.exp(-2j * np.pi * np.outer(np.arange(5), k) / 8) @ frame, atol=1e-13)
    assert X.shape == (5, 7)
    reflected = data.stft(x, 8, 4, mode="reflect")
    np.testing.assert_allclose(reflected, data.stft(np.pad(x, 4, "reflect"), 8, 4, center=False))


def test_a_tone_is_at_its_frequency():
    rate, tone = 8000, 1000.0
    x = np.sin(2 * np.pi * tone * np.arange(4000) / rate)
    power = data.spectrogram(x, 256, 64, "boxcar", center=False)
    assert np.all(np.argmax(power, 0) == 32)  # 1000 Hz of bins of 8000 / 256
    np.testing.assert_allclose(power[32], (256 / 2) ** 2)
    np.testing.assert_allclose(data.spectrogram(x, 256, 64, power=1.0) ** 2, data.spectrogram(x, 256, 64), atol=1e-9)
    mels = data.mel_spectrogram(x, rate, 512, n_mels=20)
    centres = data.mel_to_hz(np.linspace(0, data.hz_to_mel(rate / 2), 22))[1:-1]
    assert np.all(np.argmax(mels, 0) == np.argmin(np.abs(data.hz_to_mel(centres) - data.hz_to_mel(tone))))


def test_mels():
    assert data.hz_to_mel(700.0, "htk") == pytest.approx(2595 * np.log10(2))
    np.testing.assert_allclose(data.hz_to_mel([0.0, 200.0, 1000.0, 6400.0]), [0, 3, 15, 42])  # M. Slaney, 1998
    f = np.linspace(0, 10000, 77)
    for scale in ("htk", "slaney"):
        np.testing.assert_allclose(data.mel_to_hz(data.hz_to_mel(f, scale), scale), f, atol=1e-9)


@pytest.mark.parametrize("scale", ["htk", "slaney"])
def test_filters_are_triangles_of_area_one_that_add_up(scale):
    rate, n_fft, n_mels = 16000, 4096, 30
    f = np.fft.rfftfreq(n_fft, 1 / rate)
    corners = data.mel_to_hz(np.linspace(data.hz_to_mel(100, scale), data.hz_to_mel(7000, scale), n_mels + 2), scale)
    plain = data.mel_filterbank(rate, n_fft, n_mels, 100, 7000, scale=scale, norm=None, dtype=np.float64)
    inside = (f >= corners[1]) & (f <= corners[-2])
    np.testing.assert_allclose(plain.sum(0)[inside], 1)
    assert np.all(plain[:, (f < 100) | (f > 7000)] == 0)
    for k, row in enumerate(plain):
        np.testing.assert_allclose(row, np.interp(f, corners[k : k + 3], [0, 1, 0], 0, 0), atol=1e-12)
    filters = data.mel_filterbank(rate, n_fft, n_mels, 100, 7000, scale=scale)
    assert filters.dtype == np.float32
    np.testing.assert_allclose(filters.sum(1) * f[1], 1, rtol=0.02)


def test_decibels():
    power = np.array([1.0, 10.0, 1e-3, 1e-12, 100.0])
    np.testing.assert_allclose(data.power_to_db(power, top=None), [0, 10, -30, -100, 20])
    np.testing.assert_allclose(data.power_to_db(power), [0, 10, -30, -60, 20])
    np.testing.assert_allclose(data.power_to_db(power, reference="max", top=40), [-20, -10, -40, -40, 0])
    np.testing.assert_allclose(data.power_to_db(power, reference=10.0, top=None), [-10, 0, -40, -110, 10])


def test_mfcc_is_the_cosine_transform_of_decibels(rng):
    x = rng.normal(size=(2, 3000)).astype(np.float32)
    found = data.mfcc(x, 16000, 13, 400, 160, n_mels=26)
    assert found.dtype == np.float32 and found.shape == (2, 13, 19)
    decibels = data.power_to_db(data.mel_spectrogram(x, 16000, 400, 160, n_mels=26))
    np.testing.assert_allclose(found, scipy.fft.dct(decibels, axis=-2, norm="ortho")[:, :13], rtol=1e-3, atol=1e-3)
    full = data.dct_matrix(6, 6)
    np.testing.assert_allclose(full, scipy.fft.dct(np.eye(6), axis=0, norm="ortho"), atol=1e-14)
    np.testing.assert_allclose(full @ full.T, np.eye(6), atol=1e-14)


def test_the_gradient_of_energy_is_parsevals(rng):
    """The energy of all frames (both halves of the spectrum) is n_fft sum_t (sum_m w[t - m hop]^2) x[t]^2."""
    x, n_fft, hop = rng.normal(size=100), 16, 4
    halves = np.where(np.isin(np.arange(9), [0, 8]), 1.0, 2.0)[:, None]
    energy = lambda x: np.sum(halves * data.spectrogram(x, n_fft, hop, center=False))
    weight, window = np.zeros(100), scipy.signal.get_window("hann", n_fft)
    for start in range(0, 100 - n_fft + 1, hop):
        weight[start : start + n_fft] += window**2
    np.testing.assert_allclose(energy(x), n_fft * np.sum(weight * x**2))
    for gradient in (wl.grad(energy), wl.jit(wl.grad(energy))):
        np.testing.assert_allclose(gradient(x), 2 * n_fft * weight * x, atol=1e-10)


def test_derivatives_compiled_and_batched(rng):
    x = rng.normal(size=120)
    features = lambda x: data.mfcc(x, 8000, 3, 32, 16, n_mels=6)
    check_grads(lambda x: np.sum(np.sin(features(x) / 20)), (x,), order=2)
    resynthesis = lambda x: data.istft(data.stft(x, 32, 8) * np.linspace(0, 1, 17)[:, None], 8, length=120)
    check_grads(lambda x: np.sum(np.tanh(resynthesis(x))), (x,))
    np.testing.assert_allclose(wl.jit(features)(x), features(x), rtol=1e-9)
    several = rng.normal(size=(3, 120))
    np.testing.assert_allclose(wl.vmap(lambda x: data.stft(x, 32))(several), data.stft(several, 32), atol=1e-12)
    silent = wl.grad(lambda x: np.sum(data.spectrogram(x, 32, power=1.0)))(np.zeros(120))
    np.testing.assert_array_equal(silent, 0)


def test_librosas_numbers(rng):
    librosa = pytest.importorskip("librosa")
    x, rate = rng.normal(size=4000).astype(np.float32), 16000
    np.testing.assert_allclose(data.stft(x, 512, 128), librosa.stft(x, n_fft=512, hop_length=128), atol=1e-4)
    for htk in (False, True):
        mels = librosa.filters.mel(sr=rate, n_fft=512, n_mels=40, htk=htk)
        found = data.mel_filterbank(rate, 512, 40, scale="htk" if htk else "slaney")
        np.testing.assert_allclose(found, mels, atol=1e-8)
    expected = librosa.feature.mfcc(y=x, sr=rate, n_mfcc=13, n_fft=512, hop_length=128, n_mels=40)
    np.testing.assert_allclose(data.mfcc(x, rate, 13, 512, 128), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: data.stft(np.ones(10), 32, center=False), "10 samples is shorter than a frame of n_fft=32"),
    (lambda: data.stft(np.ones(99) * 1j, 32), "takes a real signal"),
    (lambda: data.stft(np.ones(99), 32, 0), "hop is a positive number"),
    (lambda: data.stft(np.ones(99), 32, window=np.ones(33)), r"a window of shape \(33,\) doesn't fit"),
    (lambda: data.istft(np.ones((17, 4))), "takes complex spectra"),
    (lambda: data.istft(np.ones((17, 4), complex), n_fft=40), "n_fft=40 has 21 frequencies, and X has 17"),
    (lambda: data.istft(np.ones((17, 4), complex), 40), "a hop of 40 leave samples out"),
    (lambda: data.mel_filterbank(8000, 64, 60), "filter 0 is between two frequencies .* fewer mels than 60"),
    (lambda: data.mel_filterbank(8000, high=5000), "low < high <= rate / 2"),
    (lambda: data.hz_to_mel(3.0, "bark"), '"slaney" or "htk"'),
    (lambda: data.power_to_db(1.0, reference="loudest"), 'reference is a power or "max"'),
    (lambda: data.mfcc(np.ones(99), 8000, 50, 64, n_mels=8), "8 numbers have 1 to 8 coefficients, not 50"),
])  # fmt: skip
def test_wrong_arguments(call, message):
    with pytest.raises(wl.ArgumentError, match=message):
        call()
