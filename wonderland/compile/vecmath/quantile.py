"""The inverse of erfc for `vecmath`: the tail's probability comes in, the quantile goes out.

For float in the middle x = t (c + w P(w)) with t = 1 - y, c = sqrt(pi) / 2 and w = -log(1 - t^2) (Giles 2010): what is
added to c is small, and with it the effect of its rounding. The tail has r - R(r), of a small R again, with
r = sqrt(-log y). For double it is the normal quantile, whose formulas are those of `ops/quantile.py`.
"""

from __future__ import annotations

import math

from wonderland.compile.ir import Value
from wonderland.compile.vecmath.formula import fast_two_sum, fma, polynomial, sqrt, where
from wonderland.compile.vecmath.functions import vector_function
from wonderland.compile.vecmath.log import log
from wonderland.ops.quantile import AT_HALF, AT_HALF_REST, CENTRAL, FAR, FAR_FROM, MIDDLE_ENDS, NEAR, SHIFT

AT_ZERO = 0.5 * math.sqrt(math.pi)

# float: the polynomial is for w up to 5, the rational function in r - 2.375 for r from there to 10.25.
MIDDLE = (
    0.232013660145, 0.0115495523283, -0.00233631156808, -0.000125215359877, 4.3143899593e-5,
    4.50212630773e-6, -2.08589768368e-6, 2.33379613778e-7, -9.36771715721e-9,
)  # fmt: skip
TAIL = (
    (0.313396433107, 0.217634647182, 0.0383850396063, 0.00148449619299, 2.4453043251e-6),
    (1.0, 0.847807292435, 0.239888350957, 0.0235588699317, 0.000560919078538),
)
TAIL_BELOW = 0.0035


@vector_function
def erfcinv(y: Value) -> Value:
    """The x with erfc(x) = y: infinite at 0 and 2, NaN outside."""
    return _scaled_erfcinv(y, 1.0)


def _scaled_erfcinv(y: Value, scale: float) -> Value:
    """A float is scaled before it is rounded."""
    mirrored = y >= 1.0  # at 1 it is -0.0, as in SciPy
    z = where(mirrored, 2.0 - y, y)  # exact
    if y.type == "float":
        x = _of_float(z, scale)
    else:
        x = _of_double(z, fma(log(z), -2.0, 2.0 * math.log(2.0))) * math.sqrt(0.5)
    # SciPy halves a double first: the smallest one, 5e-324, is 0 for it.
    x = where(z.equals(0.0) if y.type == "float" else (z >= 0.0) & (z < 1e-323), math.inf, x)
    return where(mirrored, -x, x)


def _of_float(z: Value, scale: float) -> Value:
    """For z from 0 to 1."""
    far = z < TAIL_BELOW
    w = -log(where(far, z, z * (2.0 - z)))
    r = sqrt(w)
    shifted = r - 2.375
    tail = r.convert("double") - _ratio(shifted, TAIL).convert("double")
    small = (w * polynomial(w, MIDDLE)).convert("double")
    middle = (1.0 - z.convert("double")) * (AT_ZERO + small)
    return (where(far, tail, middle) * scale).convert("float")


@vector_function
def normal_quantile(p: Value) -> Value:
    """The x that a normal variable exceeds with probability p: infinite at 0 and 1, NaN outside."""
    if p.type == "float":
        return _scaled_erfcinv(p * 2.0, math.sqrt(2.0)) + 0.0  # without the sign of a zero
    mirrored = p > 0.5
    z = where(mirrored, 1.0 - p, p)  # exact
    x = where(z.equals(0.0), math.inf, _of_double(z * 2.0, log(z) * -2.0))
    return where(mirrored, -x, x)


def _of_double(y: Value, w: Value) -> Value:
    """The normal quantile for y / 2 from 0 to 1/2, of which -w / 2 is the logarithm."""
    t, missing = fast_two_sum(y.like(1.0), -y)
    square = t * t
    small = fma(square, _ratio(0.7225 - square, CENTRAL), AT_HALF_REST)
    s = sqrt(w)
    rest = fma(-s, s, w) / (s + s)  # of the root
    near = (s - SHIFT) - (_ratio(s - 2.25, NEAR) - rest)
    tail = where(s < FAR_FROM, near, s - _ratio(s - 9.5, FAR))
    return where(t > MIDDLE_ENDS, tail, fma(t, AT_HALF, fma(missing, AT_HALF + small, t * small)))


def _ratio(x: Value, of: tuple) -> Value:
    return polynomial(x, of[0]) / polynomial(x, of[1])
