"""The inverse of erfc for `vecmath`: the tail's probability comes in, the quantile goes out.

In the middle x = t (c + w P(w)) with t = 1 - y, c = sqrt(pi) / 2 and, for float, w = -log(1 - t^2) (Giles 2010), for
double w = t^2: what is added to c is small, and with it the effect of its rounding. The tail has r - R(r), of a small R
again, with r = sqrt(-log y) for float, and for double the rational functions of Wichura's algorithm AS 241 (1988).
"""

from __future__ import annotations

import math

from wonderland.compile.vecmath_emit import Value, fast_two_sum, fma, polynomial, sqrt, where
from wonderland.compile.vecmath_log import log

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

# double: for t up to 0.85, by 0.7225 - t^2; then for the normal quantile, by r - 1.6 and r - 5.
CENTRAL = (
    (0.43087250673264125122, 4.6474570174178632289, 19.475997553941187697, 40.206202037899880099,
     42.877169748017687399, 22.690341452122262415, 5.212541336192588328, 0.3700259655048028745,
     0.0008430251066303026731),
    (1.0, 12.29223300411568452, 60.495615003443043387, 152.92357220149111005,
     212.18511503495334156, 160.47372929647669751, 61.942408244192090206, 10.497008354952418619,
     0.54183144111199788404),
)  # fmt: skip
NEAR = (
    (1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
     1.27045825245236838258, 0.241780725177450611770, 0.0227238449892691845833, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550,
     0.148103976427480074590, 0.0151986665636164571966, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
FAR = (
    (6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 0.296560571828504891230,
     0.0265321895265761230930, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 0.599832206555887937690, 0.136929880922735805310, 0.0148753612908506148525,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def erfcinv(y: Value) -> Value:
    """The x with erfc(x) = y: infinite at 0 and 2, NaN outside."""
    mirrored = y >= 1.0  # at 1 it is -0.0, as in SciPy
    z = where(mirrored, 2.0 - y, y)  # exact
    x = _of_float(z) if y.kind == "float" else _of_double(z)
    # SciPy halves a double first: the smallest one, 5e-324, is 0 for it.
    x = where(z.equals(0.0) if y.kind == "float" else (z >= 0.0) & (z < 1e-323), math.inf, x)
    return where(mirrored, -x, x)


def _of_float(z: Value) -> Value:
    """For z from 0 to 1."""
    far = z < TAIL_BELOW
    w = -log(where(far, z, z * (2.0 - z)))
    r = sqrt(w)
    shifted = r - 2.375
    tail = r - polynomial(shifted, TAIL[0]) / polynomial(shifted, TAIL[1])
    small = (w * polynomial(w, MIDDLE)).convert("double")
    middle = (1.0 - z.convert("double")) * (AT_ZERO + small)
    return where(far, tail, middle.convert("float"))


def _of_double(z: Value) -> Value:
    t, missing = fast_two_sum(z.like(1.0), -z)
    square = t * t
    outside = t > 0.85
    w = math.log(2.0) - log(z)
    r = sqrt(w)
    far = r > 5.0
    tail = where(far, _ratio(r - 5.0, FAR, 0.5**0.5), _ratio(r - 1.6, NEAR, 0.5**0.5))
    factor = fma(square, _ratio(0.7225 - square, CENTRAL), AT_ZERO)
    return where(outside, tail, fma(t, factor, missing * factor))


def _ratio(x: Value, of: tuple, factor: float = 1.0) -> Value:
    return polynomial(x, [c * factor for c in of[0]]) / polynomial(x, of[1])
