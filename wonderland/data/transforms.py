"""Augmentation: functions of a batch and a random generator that return a new batch, `t(batch, rng) -> batch`.

A batch is a tuple (or dict) of arrays, or one array. A transform changes the first of them and passes the others; it
never writes into what it gets, keeps the dtype, and decides anew for each sample. Images are (n, c, h, w), or
(n, h, w, c) with `channels_last=True`. All that is random comes from `rng`, a NumPy Generator.

    augment = data.compose(data.flip(), data.rotate(10), data.crop(8, padding=1))
    loader = data.Loader((images, labels), batch_size=64, shuffle=True, transform=augment)

The transforms of this file move pixels or change their values; those that mix samples are in `transforms_mix.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.warp import identity, resample, rotation, scaling

Rng = np.random.Generator


@dataclass(frozen=True)
class BatchTransform:
    """A transform: `transform(batch, rng)`. Two of the same name and arguments are equal; it can be pickled.

    `takes` says what the first array of a batch must be: "images" (four axes), or "any".
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[tuple[str, Any], ...]
    takes: str = "images"
    floats: bool = False
    channels_last: bool = False

    def __call__(self, batch: Any, rng: np.random.Generator) -> Any:
        """The batch with its first array changed."""
        if not isinstance(rng, np.random.Generator):
            raise ArgumentError(
                f"{self.name}: rng is a NumPy Generator, not {type(rng).__name__}: pass np.random.default_rng(seed)"
            )
        arrays, rebuild = taken_apart(batch, self.name)
        x = self.checked(np.asarray(arrays[0]))
        if self.takes == "pairs":
            return rebuild([*self.function(x, arrays[1:], rng, **dict(self.arguments)), *arrays[2:]])
        if self.takes == "images" and self.channels_last:
            moved = self.function(np.moveaxis(x, -1, 1), rng, **dict(self.arguments))
            return rebuild([np.ascontiguousarray(np.moveaxis(moved, 1, -1)), *arrays[1:]])
        return rebuild([self.function(x, rng, **dict(self.arguments)), *arrays[1:]])

    def checked(self, x: np.ndarray) -> np.ndarray:
        """The first array of a batch, if this transform takes such."""
        if self.takes == "images" and x.ndim != 4:
            axes = "(n, h, w, c)" if self.channels_last else "(n, c, h, w)"
            hint = ": add the axis of channels, x[:, None]" if x.ndim == 3 else ""
            raise ArgumentError(f"{self.name} takes images {axes}, and got an array of shape {x.shape}{hint}")
        if x.ndim == 0:
            raise ArgumentError(f"{self.name} takes an array with an axis of samples, not a number")
        if self.floats and x.dtype.kind != "f":
            raise ArgumentError(
                f"{self.name} takes floating-point numbers, and got {x.dtype}: convert the data first, as in "
                "x.astype(np.float32) / 255"
            )
        return x

    def __repr__(self) -> str:
        arguments = [f"{name}={value!r}" for name, value in self.arguments]
        return f"{self.name}({', '.join([*arguments, *['channels_last=True'] * self.channels_last])})"


def taken_apart(batch: Any, name: str) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The arrays of a batch, and what makes a batch of others like it."""
    if isinstance(batch, dict) and batch:
        return [*batch.values()], lambda arrays: dict(zip(batch, arrays, strict=True))
    if isinstance(batch, (tuple, list)) and batch:
        kind = type(batch)
        if hasattr(batch, "_fields"):
            return [*batch], lambda arrays: kind(*arrays)
        return [*batch], lambda arrays: kind(arrays)
    if isinstance(batch, np.ndarray):
        return [batch], lambda arrays: arrays[0]
    raise ArgumentError(
        f"{name} takes a batch: a tuple, list or dict of arrays, or an array, not {type(batch).__name__}"
    )


def probability(p: float, name: str) -> float:
    """A probability, if it is one."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"{name}: p is a probability between 0 and 1, not {p!r}")
    return float(p)


def interval(value: Any, name: str, what: str, centre: float | None = None) -> tuple[float, float]:
    """A pair (low, high); of one number a, centre - a to centre + a."""
    try:
        if centre is not None and np.ndim(value) == 0:
            return centre - abs(float(value)), centre + abs(float(value))
        low, high = map(float, value)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name}: {what} is a pair (low, high), not {value!r}") from None
    if not low <= high:
        raise ArgumentError(f"{name}: {what} is a pair (low, high) with low <= high, not {value!r}")
    return low, high


def sizes(size: int | Sequence[int], name: str) -> tuple[int, int]:
    """(height, width) of a number or a pair."""
    try:
        pair = (int(size), int(size)) if isinstance(size, (int, np.integer)) else (int(size[0]), int(size[1]))
    except (TypeError, ValueError, IndexError):
        raise ArgumentError(f"{name}: size is a number of pixels or a pair (height, width), not {size!r}") from None
    if min(pair) < 1:
        raise ArgumentError(f"{name}: size is positive, not {size!r}")
    return pair


def drawn(rng: Rng, limits: tuple[float, float], x: np.ndarray) -> np.ndarray:
    """A number between the limits for each sample, in the dtype of x, shaped to be broadcast against it."""
    return rng.uniform(*limits, len(x)).astype(x.dtype).reshape(-1, *[1] * (x.ndim - 1))


def within(x: np.ndarray, limits: tuple[float, float] | None) -> np.ndarray:
    """The array, with its values between the limits."""
    return x if limits is None else np.clip(x, *limits)


# Moving pixels -------------------------------------------------------------------------------------------------------


def flip(p: float = 0.5, *, vertical: bool = False, channels_last: bool = False) -> BatchTransform:
    """Each image is mirrored with probability `p`: left and right, or with `vertical`, top and bottom.

    data.flip()(images, np.random.default_rng(0))
    """
    arguments = (("p", probability(p, "flip")), ("vertical", bool(vertical)))
    return BatchTransform("flip", _flip, arguments, channels_last=channels_last)


def _flip(x: np.ndarray, rng: Rng, p: float, vertical: bool) -> np.ndarray:
    chosen = rng.random(len(x)) < p
    out = x.copy()
    out[chosen] = x[chosen][:, :, ::-1] if vertical else x[chosen][..., ::-1]
    return out


def rotate(
    degrees: float | Sequence[float] = 10.0, *, fill: float = 0.0, channels_last: bool = False
) -> BatchTransform:
    """Each image is turned about its centre by an angle between -degrees and degrees (or of a pair), anticlockwise.

    Bilinear; what comes in from outside has the value `fill`.
    """
    arguments = (("degrees", interval(degrees, "rotate", "degrees", 0.0)), ("fill", float(fill)))
    return BatchTransform("rotate", _rotate, arguments, floats=True, channels_last=channels_last)


def _rotate(x: np.ndarray, rng: Rng, degrees: tuple[float, float], fill: float) -> np.ndarray:
    return resample(x, rotation(np.deg2rad(rng.uniform(*degrees, len(x)))), fill)


def zoom(
    factor: float | Sequence[float] = (0.8, 1.25), *, fill: float = 0.0, channels_last: bool = False
) -> BatchTransform:
    """Each image is enlarged about its centre by a factor between those of the pair (log-uniform); below 1, shrunk.

    A number f is the pair (1 / f, f). Bilinear; what comes in from outside has the value `fill`.
    """
    pair = (1 / factor, factor) if isinstance(factor, (int, float)) and factor >= 1 else factor
    low, high = interval(pair, "zoom", "factor")
    if low <= 0:
        raise ArgumentError(f"zoom: factors are positive, not {factor!r}")
    return BatchTransform("zoom", _zoom, (("factor", (low, high)), ("fill", float(fill))), floats=True,
                          channels_last=channels_last)  # fmt: skip


def _zoom(x: np.ndarray, rng: Rng, factor: tuple[float, float], fill: float) -> np.ndarray:
    scale = np.exp(rng.uniform(np.log(factor[0]), np.log(factor[1]), len(x)))
    return resample(x, scaling(1 / scale, 1 / scale), fill)


def crop(
    size: int | Sequence[int],
    *,
    padding: int = 0,
    mode: str = "constant",
    fill: float = 0.0,
    channels_last: bool = False,
) -> BatchTransform:
    """A part of `size` (or (height, width)) pixels at a random place of each image, with `padding` around it before.

    `mode` is that of `np.pad`: "constant" (with `fill`), "reflect", "edge", ...
    """
    if padding < 0:
        raise ArgumentError(f"crop: padding is a number of pixels, not {padding!r}")
    arguments = (("size", sizes(size, "crop")), ("padding", int(padding)), ("mode", mode), ("fill", fill))
    return BatchTransform("crop", _crop, arguments, channels_last=channels_last)


def _crop(x: np.ndarray, rng: Rng, size: tuple[int, int], padding: int, mode: str, fill: float) -> np.ndarray:
    if padding:
        more = {"constant_values": fill} if mode == "constant" else {}
        around = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
        x = np.pad(x, around, mode, **more)  # type: ignore[call-overload]
    (h, w), (height, width) = size, x.shape[2:]
    if h > height or w > width:
        raise ArgumentError(
            f"crop: there are no {h} x {w} pixels in images of {height} x {width}"
            + (f" (with a padding of {padding})" if padding else ": give padding=")
        )
    top, left = rng.integers(height - h + 1, size=len(x)), rng.integers(width - w + 1, size=len(x))
    samples = np.arange(len(x))[:, None, None]
    rows, columns = (top[:, None] + np.arange(h))[:, :, None], (left[:, None] + np.arange(w))[:, None]
    return np.ascontiguousarray(np.moveaxis(x[samples, :, rows, columns], -1, 1))


def resized_crop(
    size: int | Sequence[int],
    *,
    area: Sequence[float] = (0.08, 1.0),
    ratio: Sequence[float] = (3 / 4, 4 / 3),
    channels_last: bool = False,
) -> BatchTransform:
    """A random part of each image, resized to `size`: a fraction of the `area`, with a `ratio` of width to height.

    The ratio is log-uniform; a part wider or higher than the image is cut to it. Bilinear.
    C. Szegedy et al., Going deeper with convolutions, 2015.
    """
    fraction, shape = interval(area, "resized_crop", "area"), interval(ratio, "resized_crop", "ratio")
    if not 0 < fraction[0] <= fraction[1] <= 1:
        raise ArgumentError(f"resized_crop: area is a pair of fractions in (0, 1], not {area!r}")
    if shape[0] <= 0:
        raise ArgumentError(f"resized_crop: ratios are positive, not {ratio!r}")
    arguments = (("size", sizes(size, "resized_crop")), ("area", fraction), ("ratio", shape))
    return BatchTransform("resized_crop", _resized_crop, arguments, floats=True, channels_last=channels_last)


def _resized_crop(
    x: np.ndarray, rng: Rng, size: tuple[int, int], area: tuple[float, float], ratio: tuple[float, float]
) -> np.ndarray:
    n, (height, width) = len(x), x.shape[2:]
    pixels, shape = rng.uniform(*area, n) * height * width, np.exp(rng.uniform(np.log(ratio[0]), np.log(ratio[1]), n))
    h, w = np.minimum(np.sqrt(pixels / shape), height), np.minimum(np.sqrt(pixels * shape), width)
    top, left = rng.random(n) * (height - h), rng.random(n) * (width - w)
    maps = identity(n)  # in pixels from the centre of the image
    maps[:, 0, 0], maps[:, 1, 1] = h / size[0], w / size[1]
    maps[:, 0, 2], maps[:, 1, 2] = top + h / 2 - height / 2, left + w / 2 - width / 2
    return resample(x, maps, None, size)


def roll(amount: int, *, axis: int = -1) -> BatchTransform:
    """Each sample is shifted along an axis by -amount to amount places; what leaves at one end enters at the other."""
    if amount < 0:
        raise ArgumentError(f"roll: amount is a number of places, not {amount!r}")
    return BatchTransform("roll", _roll, (("amount", int(amount)), ("axis", int(axis))), takes="any")


def _roll(x: np.ndarray, rng: Rng, amount: int, axis: int) -> np.ndarray:
    if not -x.ndim <= axis < x.ndim or axis % x.ndim == 0:
        raise ArgumentError(f"roll: axis {axis} isn't an axis of the samples of an array of shape {x.shape}")
    shift = rng.integers(-amount, amount + 1, size=len(x)).reshape(-1, *[1] * (x.ndim - 1))
    places = np.arange(x.shape[axis]).reshape(-1, *[1] * (x.ndim - 1 - axis % x.ndim))
    return np.take_along_axis(x, (places - shift) % x.shape[axis], axis)


# Changing values -----------------------------------------------------------------------------------------------------


def contrast(
    amount: float | Sequence[float] = 0.2, *, limits: Sequence[float] | None = None, channels_last: bool = False
) -> BatchTransform:
    """Each image is m + f (x - m): m its mean, f between 1 - amount and 1 + amount (or of a pair).

    `limits`, as (0, 1), are where values end.
    """
    return _of_values("contrast", _contrast, amount, limits, channels_last)


def _contrast(x: np.ndarray, rng: Rng, amount: tuple[float, float], limits: Any) -> np.ndarray:
    mean = x.mean((1, 2, 3), keepdims=True)
    return within(mean + drawn(rng, amount, x) * (x - mean), limits)


def _of_values(name: str, function: Callable, amount: Any, limits: Any, channels_last: bool) -> BatchTransform:
    low, high = interval(amount, name, "amount", 1.0)
    ends = None if limits is None else interval(limits, name, "limits")
    return BatchTransform(name, function, (("amount", (max(low, 0.0), high)), ("limits", ends)), floats=True,
                          channels_last=channels_last)  # fmt: skip


def jitter(
    brightness: float = 0.2,
    saturation: float = 0.0,
    hue: float = 0.0,
    *,
    limits: Sequence[float] | None = None,
    channels_last: bool = False,
) -> BatchTransform:
    """Each image in another light: times 1 ± brightness, colours stronger or weaker by 1 ± saturation, turned by hue.

    Colours are those of three channels: saturation moves to or from their grey, 0.299 r + 0.587 g + 0.114 b; `hue` is
    a fraction of the circle of hues, at most 1/2. `limits`, as (0, 1), are where values end.
    """
    for value, what in ((brightness, "brightness"), (saturation, "saturation"), (hue, "hue")):
        if not 0 <= value <= (0.5 if what == "hue" else np.inf):
            raise ArgumentError(f"jitter: {what} isn't negative{' nor over 1/2' * (what == 'hue')}, unlike {value!r}")
    ends = None if limits is None else interval(limits, "jitter", "limits")
    arguments = (("brightness", brightness), ("saturation", saturation), ("hue", hue), ("limits", ends))
    return BatchTransform("jitter", _jitter, arguments, floats=True, channels_last=channels_last)


def _jitter(x: np.ndarray, rng: Rng, brightness: float, saturation: float, hue: float, limits: Any) -> np.ndarray:
    if (saturation or hue) and x.shape[1] != 3:
        raise ArgumentError(
            f"jitter: saturation and hue are of images with three channels, not {x.shape[1]} (shape {x.shape}, "
            "channels first); is it channels_last=True?"
        )
    out = x * drawn(rng, (max(0.0, 1 - brightness), 1 + brightness), x)
    if saturation:
        pale = grey(out)
        out = pale + drawn(rng, (max(0.0, 1 - saturation), 1 + saturation), x) * (out - pale)
    if hue:
        out = turned(out, drawn(rng, (-hue, hue), x))
    return within(out, limits)


def grey(x: np.ndarray) -> np.ndarray:
    """The brightness of images (n, c, h, w), as (n, 1, h, w): of three channels as the eye sees them (ITU-R 601)."""
    if x.shape[1] != 3:
        return x.mean(1, keepdims=True)
    return np.tensordot(np.array([0.299, 0.587, 0.114], x.dtype), x, (0, 1))[:, None]


def turned(x: np.ndarray, hue: np.ndarray) -> np.ndarray:
    """Images of three channels with all hues turned; value and saturation (of HSV) stay."""
    high, low = x.max(1, keepdims=True), x.min(1, keepdims=True)
    spread = high - low
    r, g, b = x[:, :1], x[:, 1:2], x[:, 2:]
    safe = np.where(spread == 0, 1, spread)
    sector = np.where(high == r, (g - b) / safe, np.where(high == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    # Channel k of (hue, saturation, value): value - spread * clip(min(s, 4 - s), 0, 1), s = (k + 6 hue) mod 6.
    s = (np.array([5, 3, 1], x.dtype).reshape(1, 3, 1, 1) + sector + 6 * hue) % 6
    return high - spread * np.clip(np.minimum(s, 4 - s), 0, 1)


def gaussian_noise(sigma: float = 0.1) -> BatchTransform:
    """x + eps, eps ~ N(0, sigma^2), of arrays of any shape.

    For a linear model and squared errors, this is ridge regression in expectation: E |X'w - y|^2 / n = |Xw - y|^2 / n +
    sigma^2 |w|^2. C. Bishop, Training with noise is equivalent to Tikhonov regularization, 1995.
    """
    if not sigma >= 0:
        raise ArgumentError(f"gaussian_noise: sigma is a standard deviation, not {sigma!r}")
    return BatchTransform("gaussian_noise", _gaussian_noise, (("sigma", float(sigma)),), takes="any", floats=True)


def _gaussian_noise(x: np.ndarray, rng: Rng, sigma: float) -> np.ndarray:
    dtype = x.dtype.type if x.dtype in (np.float32, np.float64) else np.float32
    return x + (rng.standard_normal(x.shape, dtype) * dtype(sigma)).astype(x.dtype, copy=False)


def cutout(size: int | Sequence[int], *, fill: float = 0.0, channels_last: bool = False) -> BatchTransform:
    """A square of `size` (or (height, width)) pixels of each image has the value `fill`.

    Its centre is any pixel, so a part of it may be outside of the image.
    T. DeVries and G. Taylor, Improved regularization of convolutional neural networks with cutout, 2017.
    """
    arguments = (("size", sizes(size, "cutout")), ("fill", fill))
    return BatchTransform("cutout", _cutout, arguments, channels_last=channels_last)


def _cutout(x: np.ndarray, rng: Rng, size: tuple[int, int], fill: float) -> np.ndarray:
    (height, width), (h, w) = x.shape[2:], size
    top, left = rng.integers(height, size=len(x)) - h // 2, rng.integers(width, size=len(x)) - w // 2
    return np.where(box(top, left, top + h, left + w, (height, width)), x.dtype.type(fill), x)


def box(top: Any, left: Any, bottom: Any, right: Any, shape: tuple[int, int]) -> np.ndarray:
    """Which pixels are in rows top to bottom and columns left to right, for each sample: (n, 1, h, w)."""
    rows, columns = np.arange(shape[0]), np.arange(shape[1])
    down = (rows >= top[:, None]) & (rows < bottom[:, None])
    across = (columns >= left[:, None]) & (columns < right[:, None])
    return (down[:, :, None] & across[:, None])[:, None]


def normalize(
    mean: float | Sequence[float], std: float | Sequence[float], *, channels_last: bool = False
) -> BatchTransform:
    """(x - mean) / std, with a number for each channel (or one for all); nothing is random here."""
    m, s = (tuple(np.atleast_1d(np.asarray(value, float)).tolist()) for value in (mean, std))
    if len(m) != len(s) and 1 not in (len(m), len(s)):
        raise ArgumentError(f"normalize: mean has {len(m)} numbers and std {len(s)}: one for each channel")
    if not all(value > 0 for value in s):
        raise ArgumentError(f"normalize: std is positive, not {std!r}")
    return BatchTransform("normalize", _normalize, (("mean", m), ("std", s)), floats=True, channels_last=channels_last)


def _normalize(x: np.ndarray, rng: Rng, mean: tuple[float, ...], std: tuple[float, ...]) -> np.ndarray:
    if (count := max(len(mean), len(std))) not in (1, x.shape[1]):
        raise ArgumentError(
            f"normalize: there are numbers for {count} channels, and {x.shape[1]} channels in images of shape "
            f"{x.shape} (channels first); is it channels_last=True?"
        )
    m, s = (np.array(value, x.dtype).reshape(-1, 1, 1) for value in (mean, std))
    return (x - m) / s
