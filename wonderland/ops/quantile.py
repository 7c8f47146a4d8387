"""The normal law's quantile, for samplers: eager and compiled code compute it by the same formulas.

With t = 1 - 2p, in the middle (t up to 0.85) x = t (sqrt(pi/2) + t^2 C(0.7225 - t^2)); in the tail, with
s = sqrt(-2 log p), x = (s - 19/32) - N(s - 2.25), where the difference in brackets is exact and N at most 0.25, and
beyond s = 9.6 x = s - F(s - 9.5). What is rounded is small, so the results are within 1.5 ulp of the truth (SciPy's
within 5), and eager's and compiled code's within 2 of each other. C, N and F are rational functions that interpolate
at Chebyshev's points, to 1e-16.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.ops.elementwise import elementwise, mul
from wonderland.ops.math import exp

AT_HALF, AT_HALF_REST = 1.2533141373155003, -9.164289990229583e-17  # sqrt(pi / 2)
MIDDLE_ENDS, SHIFT, FAR_FROM = 0.85, 0.59375, 9.6
CENTRAL = (
    (0.6093457426749939686, 6.5727826602202558389, 27.545805851794054706, 56.868809554962119206,
     60.650771675434082915, 32.098476907864983611, 7.3744577881760966067, 0.52354476412095471214,
     0.0011929484902102720213),
    (1.0, 12.292702221543291619, 60.500565529438675526, 152.94371882345053585,
     212.22512825342788992, 160.51429261455059017, 61.962499405459309856, 10.50123630075030304,
     0.54209525049980242841),
)  # fmt: skip
NEAR = (
    (0.24820929590092415646, 0.18963911193344273475, -0.0067279718724631463944, -0.047537909344077366308,
     -0.019354380796222210196, -0.0036705739551068744303, -0.00036038190760487414672, -0.000017149533028713432396,
     -3.325825416249629572e-7, -1.7600024397974707333e-9),
    (1.0, 1.6066180632189932789, 1.0756371183180056103, 0.39250212859080157352,
     0.085344732226518833699, 0.011233566530502255602, 0.00085797434738966297873, 0.00003432597370980802779,
     5.9589633820695928315e-7, 2.9749763907359124614e-9),
)  # fmt: skip
FAR = (
    (0.33710481714271072314, 0.099091029749110457082, 0.011099274275647697111, 0.00059925269531954954746,
     0.000016318510046208682324, 2.1478034823098891758e-7, 1.1907740218206602326e-9, 1.9670482169103082486e-12,
     1.314147438430858651e-16),
    (1.0, 0.36768792109244470158, 0.053856195934991139546, 0.0040210418636527834401,
     0.00016299019535348263609, 3.5452103164464725109e-6, 3.8469651979718604457e-8, 1.7685880614657401305e-10,
     2.3219271824125608217e-13),
)  # fmt: skip


_CHUNK = 1 << 14  # elements worked on at a time: what is computed for them stays in the cache


def _evaluate(p: np.ndarray) -> np.ndarray:
    """In float64; the result has p's dtype if that is one of floats."""
    p = np.asarray(p)
    out = np.empty(p.shape, p.dtype if p.dtype.kind == "f" else np.float64)
    flat, results = p.ravel(), out.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            results[part] = _quantiles(flat[part].astype(np.float64))
    return out[()]


def _quantiles(y: np.ndarray) -> np.ndarray:
    mirrored = y > 0.5
    z = np.where(mirrored, 1.0 - y, y)  # exact
    t = 1.0 - 2.0 * z
    missing = (1.0 - t) - 2.0 * z
    square = t * t
    small = square * _ratio(0.7225 - square, CENTRAL) + AT_HALF_REST
    x = t * AT_HALF + (t * small + missing * (AT_HALF + small))
    outer = np.flatnonzero(t > MIDDLE_ENDS)
    if outer.size:
        x[outer] = _tail(z[outer])
    np.negative(x, out=x, where=mirrored)
    return x


def _tail(z: np.ndarray) -> np.ndarray:
    w = -2.0 * np.log(z)
    s = np.sqrt(w)
    rest = (w - s * s - _rounded_off(s)) / (2.0 * s)  # of the root
    x = (s - SHIFT) - (_ratio(s - 2.25, NEAR) - rest)
    far = np.flatnonzero(~(s < FAR_FROM))
    if far.size:
        x[far] = s[far] - _ratio(s[far] - 9.5, FAR)
    x[z == 0.0] = np.inf
    return x


def _rounded_off(s: np.ndarray) -> np.ndarray:
    """What rounding took off s * s (Dekker)."""
    big = s * 134217729.0
    high = big - (big - s)
    low = s - high
    return ((high * high - s * s) + 2.0 * high * low) + low * low


def _ratio(x: np.ndarray, of: tuple) -> np.ndarray:
    top, bottom = _polynomial(x, of[0]), _polynomial(x, of[1])
    return np.divide(top, bottom, out=top)


def _polynomial(x: np.ndarray, coefficients: tuple) -> np.ndarray:
    """By Horner's rule; the coefficient of the highest power comes last."""
    out = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        out *= x
        out += c
    return out


# The x that a normal variable exceeds with probability p.
normal_quantile: Any = elementwise(
    "normal_quantile", _evaluate, (lambda out, p: mul(-math.sqrt(2.0 * math.pi), exp(mul(0.5, mul(out, out)))),),
    emit=lambda e, p: e.call("normal_quantile", p),
)  # fmt: skip
