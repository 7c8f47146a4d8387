"""Audio as pictures of time and frequency: short-time Fourier transform, (mel) spectrogram, decibels, MFCC.

Signals (..., samples) come in, (..., frequencies, frames) goes out. All of it is written with NumPy's functions, so it
can be differentiated, compiled and batched like any other: a spectrogram may be a model's first layer, or the loss of
one that makes sound. Conventions are those of SciPy and librosa.

    features = data.mfcc(signal, rate=16000, n_fft=512, hop=160)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.signal import get_window

from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer

Window = str | tuple[Any, ...] | np.ndarray


def _signal(x: Any, name: str) -> Any:
    x = x if isinstance(x, (Tracer, np.ndarray)) else np.asarray(x)
    if x.ndim == 0 or x.dtype.kind not in "fiu":
        raise ArgumentError(f"{name} takes a real signal (..., samples), not {x.dtype} of shape {x.shape}")
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def _window(window: Window, n_fft: int, hop: int | None, dtype: Any, name: str) -> tuple[np.ndarray, int]:
    """The window's values, centred in n_fft, and the hop between frames."""
    if n_fft < 1:
        raise ArgumentError(f"{name}: n_fft is a number of samples, not {n_fft!r}")
    hop = max(n_fft // 4, 1) if hop is None else hop
    if hop < 1:
        raise ArgumentError(f"{name}: hop is a positive number of samples, not {hop!r}")
    named = isinstance(window, (str, tuple))
    values: np.ndarray = np.asarray(get_window(window, n_fft) if named else window)
    if values.ndim != 1 or len(values) > n_fft:
        raise ArgumentError(f"{name}: a window of shape {values.shape} doesn't fit n_fft={n_fft}")
    before = (n_fft - len(values)) // 2
    return np.pad(values, (before, n_fft - len(values) - before)).astype(dtype), hop


def stft(
    x: Any,
    n_fft: int = 512,
    hop: int | None = None,
    window: Window = "hann",
    *,
    center: bool = True,
    mode: str = "constant",
) -> Any:
    """The spectrum of each frame of a signal: (..., samples) to complex (..., n_fft // 2 + 1, frames).

        X[f, m] = sum_k w[k] x[m hop + k] exp(-2 pi i f k / n_fft)

    Frames begin every `hop` samples (n_fft // 4 unless told). `window` is a name of `scipy.signal.get_window`
    (periodic) or an array of at most n_fft numbers. With `center`, frame m is centred at sample m hop: n_fft // 2
    samples are put around the signal, by `np.pad` with `mode`.
    """
    x = _signal(x, "stft")
    values, hop = _window(window, n_fft, hop, x.dtype, "stft")
    if center:
        around = [(0, 0)] * (x.ndim - 1) + [(n_fft // 2, n_fft // 2)]
        x = np.pad(x, around, mode)  # type: ignore[call-overload]
    if x.shape[-1] < n_fft:
        raise ArgumentError(f"stft: a signal of {x.shape[-1]} samples is shorter than a frame of n_fft={n_fft}")
    frames = np.lib.stride_tricks.sliding_window_view(x, n_fft, axis=-1)[..., ::hop, :]
    return np.swapaxes(np.fft.rfft(frames * values), -1, -2)


def istft(
    X: Any,
    hop: int | None = None,
    window: Window = "hann",
    *,
    n_fft: int | None = None,
    center: bool = True,
    length: int | None = None,
) -> Any:
    """The signal whose `stft` (with the same arguments) this is; of a changed one, the nearest in least squares.

        x[t] = sum_m w[t - m hop] x_m[t - m hop] / sum_m w[t - m hop]^2

    (..., frequencies, frames) to (..., samples). `length` cuts the signal, or puts zeros after it. `n_fft` is
    2 (frequencies - 1), unless it was odd. D. Griffin and J. Lim, Signal estimation from modified STFT, 1984.
    """
    X = X if isinstance(X, (Tracer, np.ndarray)) else np.asarray(X)
    if X.ndim < 2 or X.dtype.kind != "c":
        raise ArgumentError(f"istft takes complex spectra (..., frequencies, frames), not {X.dtype} of shape {X.shape}")
    n_fft = int(2 * (X.shape[-2] - 1) if n_fft is None else n_fft)
    if n_fft // 2 + 1 != X.shape[-2]:
        raise ArgumentError(f"istft: n_fft={n_fft} has {n_fft // 2 + 1} frequencies, and X has {X.shape[-2]}")
    values, hop = _window(window, n_fft, hop, np.float32 if X.dtype == np.complex64 else np.float64, "istft")
    squares, covered = values**2, (X.shape[-1] - 1) * hop + n_fft
    if not np.all(np.pad(squares, (0, -n_fft % hop)).reshape(-1, hop).sum(0) > 1e-10 * squares.max()):
        raise ArgumentError(f"istft: windows with a hop of {hop} leave samples out; a smaller hop overlaps more")
    start = n_fft // 2 if center else 0
    stop = covered - start if length is None else min(start + length, covered)
    weight = _overlapped(np.tile(squares, (X.shape[-1], 1)), hop)[start:stop]
    weight = np.where(weight > 1e-10 * squares.max(), weight, 1)  # at the ends no window may have seen a sample
    x = _overlapped(np.fft.irfft(np.swapaxes(X, -1, -2), n_fft) * values, hop)[..., start:stop] / weight
    return x if length is None else np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, length - x.shape[-1])])


def _overlapped(frames: Any, hop: int) -> Any:
    """Frames (..., m, n) added up, each `hop` after the one before: pieces of `hop` samples are consecutive signals."""
    count, n = frames.shape[-2:]
    pieces = -(-n // hop)
    lead = [(0, 0)] * (frames.ndim - 2)
    frames = np.pad(frames, [*lead, (0, 0), (0, pieces * hop - n)])
    out: Any = 0
    for k in range(pieces):
        piece = frames[..., k * hop : (k + 1) * hop].reshape(*frames.shape[:-2], count * hop)
        out = out + np.pad(piece, [*lead, (k * hop, (pieces - 1 - k) * hop)])
    return out


def spectrogram(
    x: Any,
    n_fft: int = 512,
    hop: int | None = None,
    window: Window = "hann",
    *,
    power: float = 2.0,
    center: bool = True,
    mode: str = "constant",
) -> Any:
    """|stft(x)|^power: (..., samples) to real (..., n_fft // 2 + 1, frames). Power 2 is energy, 1 is magnitude."""
    X = stft(x, n_fft, hop, window, center=center, mode=mode)
    energy = np.real(X) ** 2 + np.imag(X) ** 2
    if power == 2:
        return energy
    safe = np.where(energy > 0, energy, 1)  # the derivative of sqrt isn't finite at 0
    return np.where(energy > 0, safe ** (power / 2), 0 * energy)


def hz_to_mel(frequency: Any, scale: str = "slaney") -> Any:
    """Pitch as heard: "htk" is 2595 log10(1 + f / 700), "slaney" linear to 1000 Hz (15 mel) and logarithmic above."""
    f = np.asarray(frequency, float)
    if _scale(scale) == "htk":
        return 2595 * np.log10(1 + f / 700)
    return np.where(f < 1000, 3 * f / 200, 15 + 27 * np.log(np.maximum(f, 1000) / 1000) / np.log(6.4))


def mel_to_hz(mel: Any, scale: str = "slaney") -> Any:
    """The frequency of a pitch: the inverse of `hz_to_mel`."""
    m = np.asarray(mel, float)
    if _scale(scale) == "htk":
        return 700 * (10 ** (m / 2595) - 1)
    return np.where(m < 15, 200 * m / 3, 1000 * np.exp(np.log(6.4) * (np.maximum(m, 15) - 15) / 27))


def _scale(scale: str) -> str:
    if scale not in ("htk", "slaney"):
        raise ArgumentError(f'the scale of mels is "slaney" or "htk", not {scale!r}')
    return scale


def mel_filterbank(
    rate: float,
    n_fft: int = 512,
    n_mels: int = 80,
    low: float = 0.0,
    high: float | None = None,
    *,
    scale: str = "slaney",
    norm: str | None = "slaney",
    dtype: Any = np.float32,
) -> np.ndarray:
    """Triangles over frequencies, equally spaced in mel: a matrix (n_mels, n_fft // 2 + 1).

    From `low` to `high` (rate / 2 unless told) Hz. `norm="slaney"` gives each triangle the area 1 (in Hz); with None
    its height is 1.
    """
    high = rate / 2 if high is None else high
    if not 0 <= low < high <= rate / 2:
        raise ArgumentError(f"mel_filterbank: 0 <= low < high <= rate / 2, not low={low}, high={high}, rate={rate}")
    if norm not in ("slaney", None):
        raise ArgumentError(f'mel_filterbank: norm is "slaney" or None, not {norm!r}')
    if n_mels < 1:
        raise ArgumentError(f"mel_filterbank: n_mels is a number of filters, not {n_mels!r}")
    corners = mel_to_hz(np.linspace(hz_to_mel(low, scale), hz_to_mel(high, scale), n_mels + 2), scale)
    left, middle, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    f = np.fft.rfftfreq(n_fft, 1 / rate)
    weights = np.maximum(0, np.minimum((f - left) / (middle - left), (right - f) / (right - middle)))
    if norm == "slaney":
        weights = weights * 2 / (right - left)
    if not np.all(weights.max(1) > 0):
        empty = int(np.argmax(weights.max(1) == 0))
        raise ArgumentError(
            f"mel_filterbank: filter {empty} is between two frequencies of n_fft={n_fft}: take fewer mels than "
            f"{n_mels}, or a larger n_fft"
        )
    return weights.astype(dtype)


def mel_spectrogram(
    x: Any,
    rate: float,
    n_fft: int = 512,
    hop: int | None = None,
    window: Window = "hann",
    *,
    n_mels: int = 80,
    low: float = 0.0,
    high: float | None = None,
    scale: str = "slaney",
    norm: str | None = "slaney",
    power: float = 2.0,
    center: bool = True,
    mode: str = "constant",
) -> Any:
    """A spectrogram with mel frequencies: (..., samples) to (..., n_mels, frames)."""
    found = spectrogram(x, n_fft, hop, window, power=power, center=center, mode=mode)
    return mel_filterbank(rate, n_fft, n_mels, low, high, scale=scale, norm=norm, dtype=found.dtype) @ found


def power_to_db(power: Any, *, reference: float | str = 1.0, floor: float = 1e-10, top: float | None = 80.0) -> Any:
    """10 log10(power / reference): decibels. `reference="max"` makes the loudest 0.

    Power below `floor` counts as that; what is more than `top` decibels below the loudest is raised to there (of the
    whole array), unless `top` is None.
    """
    power = power if isinstance(power, (Tracer, np.ndarray)) else np.asarray(power)
    if not floor > 0:
        raise ArgumentError(f"power_to_db: floor is positive, not {floor!r}")
    if isinstance(reference, str) and reference != "max":
        raise ArgumentError(f'power_to_db: reference is a power or "max", not {reference!r}')
    decibels = 10 * np.log10(np.maximum(power, floor))
    if reference == "max":
        decibels = decibels - np.max(decibels)
    elif reference != 1.0:
        decibels = decibels - 10 * np.log10(max(float(reference), floor))
    return decibels if top is None else np.maximum(decibels, np.max(decibels) - top)


def dct_matrix(rows: int, n: int, dtype: Any = np.float64) -> np.ndarray:
    """The first rows of the orthonormal DCT-II of n numbers: sqrt(2 / n) cos(pi k (j + 1/2) / n), or sqrt(1 / n)."""
    if not 1 <= rows <= n:
        raise ArgumentError(f"dct_matrix: {n} numbers have 1 to {n} coefficients, not {rows}")
    matrix = np.sqrt(2 / n) * np.cos(np.pi / n * np.outer(np.arange(rows), np.arange(n) + 0.5))
    matrix[0] = np.sqrt(1 / n)
    return matrix.astype(dtype)


def mfcc(
    x: Any,
    rate: float,
    n_mfcc: int = 13,
    n_fft: int = 512,
    hop: int | None = None,
    window: Window = "hann",
    *,
    n_mels: int = 40,
    low: float = 0.0,
    high: float | None = None,
    scale: str = "slaney",
    norm: str | None = "slaney",
    top: float | None = 80.0,
    center: bool = True,
    mode: str = "constant",
) -> Any:
    """Mel-frequency cepstral coefficients: the DCT-II of a mel spectrogram in decibels, (..., n_mfcc, frames).

    S. Davis and P. Mermelstein, Comparison of parametric representations for monosyllabic word recognition, 1980.
    """
    mels = mel_spectrogram(x, rate, n_fft, hop, window, n_mels=n_mels, low=low, high=high, scale=scale, norm=norm,
                           center=center, mode=mode)  # fmt: skip
    decibels = power_to_db(mels, top=top)
    return dct_matrix(n_mfcc, n_mels, decibels.dtype) @ decibels
