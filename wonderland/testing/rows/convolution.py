"""Rows of the op table: convolution, pooling, patches, resizing, and scipy.signal's convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.signal

import wonderland as wl
from wonderland.scipy import signal as ours
from wonderland.testing.convolutions import conv_by_definition, pool_by_definition
from wonderland.testing.op_table import add, function
from wonderland.testing.samples import case, reals

# Convolution ---------------------------------------------------------------------------------------------------------

_ONE = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,)}
_TWO = {"stride": (2, 1), "padding": ((1, 1), (0, 2)), "dilation": (1, 2)}
_CONVOLUTIONS = [
    case((1, 2, 5), (2, 2, 3), **_ONE),
    case((2, 2, 4, 5), (2, 1, 3, 2), **_TWO, groups=2),
    case((1, 4, 4, 5), (4, 2, 1, 1), **_TWO, groups=2),
    case((0, 2, 5), (1, 2, 3), **_ONE),
]
add(
    "windows", reals, reals, function=wl.conv, reference=conv_by_definition, label="conv", dtypes="ifc",
    cases=_CONVOLUTIONS,
)  # fmt: skip
add(
    "windows", reals, reals, label="conv (channels last)", dtypes="fc",
    function=lambda x, w, **p: wl.conv(x, w, channels="last", **p),
    reference=lambda x, w, **p: np.moveaxis(conv_by_definition(np.moveaxis(x, -1, 1), w, **p), 1, -1),
    cases=[case((1, 5, 2), (2, 2, 3), **_ONE), case((2, 4, 5, 2), (4, 1, 3, 2), **_TWO, groups=2)],
)  # fmt: skip
add(
    "windows", reals, reals, label="conv (fft)", dtypes="fc",
    function=lambda x, w, **p: wl.conv(x, w, method="fft", **p), reference=conv_by_definition,
    excluded={"pattern exact": "a spectrum depends on all elements"},
    cases=[
        case((1, 2, 5), (2, 2, 3), **_ONE),
        case((1, 2, 6), (2, 1, 4), stride=(2,), padding=((1, 2),), dilation=(1,), groups=2),
    ],
)  # fmt: skip


def _transposed(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int = 1) -> Any:
    """The transpose of the matrix of a convolution."""
    extents = [
        (n - 1) * s - sum(p) + d * (k - 1) + 1
        for n, k, s, p, d in zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=True)
    ]
    shape = (1, w.shape[1] * groups, *extents)
    units = np.eye(int(np.prod(shape)), dtype=w.dtype).reshape(-1, *shape)
    columns = np.array([conv_by_definition(e, w, stride, padding, dilation, groups) for e in units])
    return (x.reshape(len(x), -1) @ columns.reshape(len(units), -1).T).reshape(len(x), *shape[1:])


add(
    "fold", reals, reals, label="conv_transpose", dtypes="fc", reference=_transposed,
    function=lambda x, w, stride, padding, dilation, groups=1:
        wl.conv_transpose(x, w, stride, padding, 0, groups, dilation),
    cases=[
        case((2, 2, 4), (2, 3, 2), stride=(2,), padding=((1, 0),), dilation=(1,)),
        case((1, 2, 3, 2), (2, 1, 3, 2), stride=(1, 2), padding=((1, 1), (0, 1)), dilation=(1, 2), groups=2),
    ],
)  # fmt: skip

# Pooling, patches, resizing ------------------------------------------------------------------------------------------

_POOLS = [
    case((1, 2, 5), size=(2,), stride=(2,), padding=((0, 0),), dilation=(1,)),
    case((1, 2, 4, 5), size=(3, 2), stride=(1, 2), padding=((1, 1), (0, 1)), dilation=(1, 2)),
]
for _pool, _reduce in ((wl.max_pool, np.max), (wl.sum_pool, np.sum)):
    add(
        "first_max" if _pool is wl.max_pool else "windows", reals, function=_pool, label=_pool.__name__, dtypes="if",
        reference=lambda x, _reduce=_reduce, **p: pool_by_definition(_reduce, x, **p), cases=_POOLS,
        excluded={"pattern exact": "which operand is read depends on values"} if _pool is wl.max_pool else {},
    )  # fmt: skip
add(
    "windows", reals, label="mean_pool", reference=lambda x, **p: pool_by_definition(np.mean, x, **p), dtypes="f",
    function=lambda x, **p: wl.mean_pool(x, count_include_pad=False, **p), cases=_POOLS,
)  # fmt: skip


def _resized(x: Any, shape: Any, method: str, align_corners: bool = False) -> Any:
    """Along each axis by `np.interp`."""
    for axis, (n, m) in enumerate(zip(x.shape[2:], shape, strict=True), 2):
        places = np.arange(m) * (n - 1) / max(m - 1, 1) if align_corners else (np.arange(m) + 0.5) * n / m - 0.5
        if method == "nearest":
            x = np.take(x, np.floor(np.arange(m) * (n / m) + 1e-9).astype(int), axis)
        else:
            x = np.apply_along_axis(lambda row, n=n, at=places: np.interp(at, np.arange(n), row), axis, x)
    return x


add(
    "gather", reals, function=wl.resize, reference=_resized, dtypes="f", label="resize",
    cases=[
        case((1, 2, 5), shape=(7,), method="nearest"), case((1, 1, 4, 5), shape=(3, 8), method="linear"),
        case((1, 2, 5), shape=(8,), method="linear", align_corners=True),
    ],
)  # fmt: skip
add(
    "windows", reals, function=lambda x, **p: wl.fold(wl.unfold(x, **p), x.shape[-1:], **p), label="fold of unfold",
    reference=lambda x, size, stride, padding: x * _covered(x.shape[-1], size, stride, padding), dtypes="f",
    cases=[case((2, 2, 7), size=(3,), stride=(1,), padding=1), case((1, 1, 6), size=(2,), stride=(2,), padding=0)],
)  # fmt: skip


def _covered(n: int, size: Any, stride: Any, padding: int) -> np.ndarray:
    """How many windows each element is in."""
    starts = range(-padding, n + padding - size[0] + 1, stride[0])
    return np.array([sum(start <= i < start + size[0] for start in starts) for i in range(n)], np.float32)


# scipy.signal --------------------------------------------------------------------------------------------------------

_MODES = [((5,), (3,), "full"), ((2,), (4,), "valid"), ((2,), (4,), "same"), ((4, 5), (2, 3), "same")]
for _f, _ours in ((scipy.signal.convolve, ours.convolve), (scipy.signal.correlate, ours.correlate)):
    function(
        _f, reals, reals, call=_ours, dtypes="ifc",
        cases=[case(x, y, mode=mode) for x, y, mode in (*_MODES, ((4, 2), (2, 1), "valid"))],
    )  # fmt: skip
    function(
        _f, reals, reals, dtypes="fc", label=f"scipy.signal.{_f.__name__} (fft)",
        call=lambda x, y, _ours=_ours, **p: _ours(x, y, method="fft", **p),
        cases=[case(x, y, mode=mode) for x, y, mode in _MODES[1:]],
        excluded={"pattern exact": "a spectrum depends on all elements"},
    )  # fmt: skip
for _f, _ours in ((scipy.signal.convolve2d, ours.convolve2d), (scipy.signal.correlate2d, ours.correlate2d)):
    function(
        _f, reals, reals, call=_ours, dtypes="ifc",
        cases=[
            case((4, 5), (2, 3), mode="full"), case((4, 3), (3, 2), mode="same", boundary="wrap"),
            case((3, 4), (2, 3), mode="full", boundary="symm"), case((2, 2), (3, 4), mode="valid"),
            case((3, 4), (2, 3), mode="same", fillvalue=2),
        ],
    )  # fmt: skip
