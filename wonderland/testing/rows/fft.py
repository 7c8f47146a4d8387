"""Rows of the op table: discrete Fourier transforms."""

from __future__ import annotations

import numpy as np

import wonderland.numpy.fourier  # noqa: F401  (registers the functions)
from wonderland.ops import fft as transforms  # noqa: F401  (registers the primitives)
from wonderland.testing.op_table import add, function
from wonderland.testing.samples import case, reals

_quarter_turns = {"pattern exact": "the real part of a quarter turn is zero"}

add(
    "fft", reals, dtypes="c",
    reference=lambda x, axes, inverse, norm: (np.fft.ifftn if inverse else np.fft.fftn)(x, axes=axes, norm=norm),
    cases=[
        case((5,), axes=(0,), inverse=False, norm="backward"), case((2, 4), axes=(1,), inverse=True, norm="backward"),
        case((3, 2, 4), axes=(0, 2), inverse=False, norm="ortho"),
        case((2, 3), axes=(0, 1), inverse=True, norm="forward"),
        case((0, 3), axes=(1,), inverse=False, norm="forward"), case((1,), axes=(0,), inverse=True, norm="backward"),
    ],
)  # fmt: skip
add(
    "rfft", reals, dtypes="f", excluded=_quarter_turns,
    reference=lambda x, axis, norm: np.fft.rfft(x, axis=axis, norm=norm),
    cases=[
        case((5,), axis=0, norm="backward"), case((3, 4), axis=1, norm="ortho"), case((6, 2), axis=0, norm="forward"),
        case((1,), axis=0, norm="backward"), case((2,), axis=0, norm="backward"), case((0, 3), axis=1, norm="ortho"),
    ],
)  # fmt: skip
add(
    "irfft", reals, dtypes="c", excluded=_quarter_turns,
    reference=lambda x, axis, n, norm: np.fft.irfft(x, n, axis=axis, norm=norm),
    cases=[
        case((3,), axis=0, n=5, norm="backward"), case((2, 3), axis=1, n=4, norm="ortho"),
        case((4, 2), axis=0, n=6, norm="forward"), case((1,), axis=0, n=1, norm="backward"),
        case((2,), axis=0, n=2, norm="backward"), case((0, 3), axis=1, n=4, norm="ortho"),
    ],
)  # fmt: skip

_ONE = [
    case((6,)), case((5,), n=3), case((3,), n=7), case((3, 4), axis=0), case((3, 4), norm="ortho"), case((0, 3)),
    case((2, 5), n=4, axis=0, norm="forward"), case((1,), n=2),
]  # fmt: skip
_SEVERAL = [
    case((3, 4)), case((2, 3, 4), s=(2, 5), axes=(1, 2)), case((2, 3, 4), axes=(0, 1), norm="ortho"),
    case((3, 4), s=(4, 3), axes=(0, 1), norm="forward"), case((0, 3, 2), axes=(1, 2)),
]  # fmt: skip
_TWICE = [case((3, 4), axes=(0, 0)), case((3,), axes=(0,))]

for _name in ("fft", "ifft", "hfft", "irfft"):
    function(getattr(np.fft, _name), reals, cases=_ONE if "r" not in _name and "h" not in _name else _ONE[:-1])
for _name in ("rfft", "ihfft"):
    function(getattr(np.fft, _name), reals, cases=_ONE, dtypes="bif")
for _name in ("fft2", "ifft2", "irfft2"):
    function(getattr(np.fft, _name), reals, cases=_SEVERAL)
for _name in ("fftn", "ifftn"):
    function(getattr(np.fft, _name), reals, cases=[*_SEVERAL, *_TWICE])
function(np.fft.irfftn, reals, cases=[*_SEVERAL, case((3,), axes=(0,))])
for _name in ("rfft2", "rfftn"):
    function(getattr(np.fft, _name), reals, cases=_SEVERAL, dtypes="bif")
for _name in ("fftshift", "ifftshift"):
    function(
        getattr(np.fft, _name), reals,
        cases=[case((4,)), case((5,)), case((3, 4)), case((3, 4), axes=1), case((2, 3, 5), axes=(0, 2)), case((0, 3))],
    )  # fmt: skip
