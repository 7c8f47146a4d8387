"""Elementwise primitives: one line or one small block each, with NumPy's broadcasting and promotion.

`elementwise` derives infer, jvp, transpose, batch, pattern and lower from what is written: the NumPy function, the
partial derivatives (functions of the result and the operands) or the fact that it is linear, and the scalar code that
the compiler emits (`e` is the compiler's emitter: `e.add(x, y)`, `e.call("exp", x)`).
"""

from __future__ import annotations

from cmath import isfinite
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from wonderland.core.level import freeze
from wonderland.core.primitive import Linear, Primitive
from wonderland.core.program import Var
from wonderland.core.types import (
    PYTHON_SCALARS,
    ArrayType,
    broadcast_shapes,
    promote,
    shape_of,
    type_of,
)
from wonderland.ops.reading import (
    complex_pattern,
    elementwise_pattern,
    product_pattern,
    quotient_pattern,
    reads_nothing,
    where_pattern,
)
from wonderland.ops.work import each, view

_COMPUTED_AS = {"f": "biuf", "c": "c"}  # kind of result -> kinds of operands that are converted to its dtype first
_NUMBERS = {*PYTHON_SCALARS, np.float64}  # whose finiteness is asked at once
_PYTHON_ONES = {"b": True, "i": 1, "u": 1, "f": 1.0, "c": 1j}


def elementwise(
    name: str,
    evaluate: Callable,
    derivatives: tuple[Callable[..., Any], ...] = (),
    *,
    emit: Callable | None = None,
    linear: tuple[int, ...] = (),
    jvp: Callable | None = None,
    transpose: Callable | None = None,
    compute: Callable | None = None,
    pattern: Callable | None = None,
    **facts: Any,
) -> Primitive:
    """An elementwise primitive.

    `derivatives[i](out, *operands)` is the partial derivative with respect to operand i. `compute(types, out_dtype)`
    gives the dtypes to which the compiler converts the operands before `emit`; by default the promoted one.
    """
    dtypes: dict[tuple, np.dtype] = {}

    def learn(key: tuple, types: tuple[ArrayType, ...]) -> np.dtype:
        """NumPy itself says which dtype comes out of which."""
        samples = [_PYTHON_ONES[t.dtype.kind] if t.weak else np.ones(1, t.dtype) for t in types]
        with np.errstate(all="ignore"):  # a sample may be a singular point
            dtypes[key] = np.asarray(evaluate(*samples)).dtype
        return dtypes[key]

    def result_dtype(types: tuple[ArrayType, ...]) -> np.dtype:
        key = tuple([(t.dtype, t.weak) for t in types])
        return dtypes.get(key) or learn(key, types)

    def infer(*types: ArrayType) -> ArrayType:
        x = types[0]
        if len(types) != 2:
            shape = broadcast_shapes(*[t.shape for t in types])
            return ArrayType(shape, result_dtype(types), all(t.weak for t in types))
        y = types[1]  # by far the most: no loops for these
        key = (x.dtype, x.weak, y.dtype, y.weak)
        dtype = dtypes.get(key) or learn(key, types)
        if y.shape != x.shape and y.shape != ():
            return ArrayType(broadcast_shapes(x.shape, y.shape), dtype, x.weak and y.weak)
        return x if dtype is x.dtype and not x.weak else ArrayType(x.shape, dtype, x.weak and y.weak)

    def default_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        out = primitive(*primals)
        if len(primals) == 1:
            return out, scale(tangents[0], derivatives[0](out, primals[0]), out)
        total = None
        for i, t in enumerate(tangents):
            if t is not None:
                term = scale(t, derivatives[i](out, *primals), out)
                total = term if total is None else as_tangent(out, add, total, term)
        return out, total

    def lower(builder: Any, *nodes: Any) -> Any:
        types = tuple(n.type for n in nodes)
        out = result_dtype(types)
        targets = compute(types, out) if compute else (promote(*types)[0],) * len(types)
        if not compute and targets[0].kind in _COMPUTED_AS.get(out.kind, ""):
            targets = (out,) * len(types)
        small = targets[0].kind in "iu" and targets[0] != np.uint64
        if not compute and out.kind == "b" and small and any(t.weak for t in types):  # Python integers, by value
            targets = (np.dtype(np.int64),) * len(types)
        return builder.map(emit, [builder.convert(n, d) for n, d in zip(nodes, targets, strict=True)], out)

    if jvp is None and derivatives:
        jvp = default_jvp
    primitive = Primitive(
        name,
        evaluate,
        infer,
        jvp=jvp,
        transpose=transpose,
        batch=lambda size, args, batched: primitive(*align(args, batched)),
        pattern=pattern or elementwise_pattern,
        lower=lower if emit else None,
        elementwise=True,
        linear=linear,
        **facts,
    )
    return primitive


def ufunc(f: np.ufunc, derivatives: tuple[Callable[..., Any], ...] = (), *, name: str = "", **rest: Any) -> Primitive:
    """The primitive that is a function of NumPy's or SciPy's: its values, and its calls on traced arrays."""
    module = "np" if getattr(np, f.__name__, None) is f else "scipy.special"
    return elementwise(name or f.__name__, f, derivatives, ufunc=f"{module}.{f.__name__}", **rest)


def scale(tangent: Any, derivative: Any, out: Any) -> Any:
    """A tangent times a derivative, as the tangent of `out`.

    Where the tangent is 0 the result is, even if the derivative is infinite.
    """
    kind = type(derivative)
    if not (_finite(derivative) if kind is np.ndarray else kind in _NUMBERS and isfinite(derivative)):
        return like(masked_mul(tangent, derivative), out)
    return as_tangent(out, mul, tangent, derivative)  # nothing to mask: the cheaper product


def masked(tangent: Any, derivative: Any) -> Any:
    """The product of `scale`, whatever its type."""
    known = type(derivative) is np.ndarray or type(derivative) in PYTHON_SCALARS
    return mul(tangent, derivative) if known and np.all(np.isfinite(derivative)) else masked_mul(tangent, derivative)


def as_tangent(out: Any, primitive: Primitive, *operands: Any) -> Any:
    """A linear operation on tangents, the first operand among them, as the tangent of `out`."""
    tape: Any = operands[0].level if type(operands[0]) is Var else None
    if tape is not None and tape.residuals is not None:  # one of a function that runs on values
        found = tape.residuals.tangent(tape, primitive, operands, out)
        if found is not None:
            return found
    return like(primitive(*operands), out)


def _finite(x: Any) -> bool:
    """Is nothing in it infinite or NaN? (An overflow of the sum says no, which is safe.)"""
    if x.size < 4096:  # where what counts is the number of calls
        x = x.ravel()
        return isfinite(x.dot(x))
    return isfinite(np.add.reduce(x, axis=None))


def align(args: tuple[Any, ...], batched: tuple[bool, ...]) -> list[Any]:
    """Give batched operands singleton axes behind the batch, so that broadcasting still pairs up the others."""
    rank = max(len(shape_of(a)) - b for a, b in zip(args, batched, strict=True))
    out = []
    for a, b in zip(args, batched, strict=True):
        shape = shape_of(a)
        if b and len(shape) - 1 < rank:
            a = _shape.reshape(a, shape=(shape[0], *(1,) * (rank - len(shape) + 1), *shape[1:]))
        out.append(a)
    return out


def like(value: Any, model: Any) -> Any:
    """A tangent brought to the shape and dtype of its primal."""
    if value is None:
        return None
    actual = value.type if type(value) is Var else type_of(value)
    target = model if type(model) is np.ndarray else type_of(model)
    if actual.shape == target.shape and actual.dtype is target.dtype:
        return value
    if actual.dtype is not target.dtype and actual.dtype != target.dtype:
        value = _shape.convert(value, dtype=target.dtype)
    if actual.shape != target.shape:
        value = _shape.broadcast(value, shape=target.shape)
    return value


@lru_cache(4096)
def _repeated_axes(shape: tuple, goal: tuple) -> tuple[int, ...]:
    extra = len(shape) - len(goal)
    return tuple(i for i, extent in enumerate(shape) if i < extra or (goal[i - extra] == 1 and extent != 1))


def unbroadcast(ct: Any, goal: Linear) -> Any:
    """The transpose of broadcasting and promotion: sum over the repeated axes, convert back."""
    actual = ct if type(ct) is np.ndarray else type_of(ct)
    if actual.shape == goal.shape and actual.dtype is goal.dtype:
        return ct
    if actual.shape != goal.shape:
        axes = _repeated_axes(actual.shape, goal.shape)
        if axes:
            ct = _reduce.sum(ct, axes=axes)
        if shape_of(ct) != goal.shape:
            ct = _shape.reshape(ct, shape=goal.shape)
    if actual.dtype != goal.dtype:
        if actual.dtype.kind == "c" and goal.dtype.kind != "c":
            ct = real(ct)
        if type_of(ct).dtype != goal.dtype:
            ct = _shape.convert(ct, dtype=goal.dtype)
    return ct


def conjugate(x: Any) -> Any:
    """The complex conjugate, for the transposes of products; real values as they are."""
    real = x.dtype.kind != "c" if type(x) not in PYTHON_SCALARS else type(x) is not complex
    return x if real else conj(x)


def _product_transpose(ct: Any, x: Any, y: Any) -> tuple:
    if isinstance(x, Linear):
        return unbroadcast(mul(ct, conjugate(y)), x), None
    return None, unbroadcast(mul(ct, conjugate(x)), y)


def _sum_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (s, t), out = tangents, add(*primals)
    return out, like(t if s is None else s, out) if s is None or t is None else as_tangent(out, add, s, t)


def _difference_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (s, t), out = tangents, sub(*primals)
    if s is not None and t is not None:
        return out, as_tangent(out, sub, s, t)
    return out, like(s, out) if t is None else as_tangent(out, neg, t)


def _sum_taylor(out: Any, x: Any, y: Any) -> Callable:
    return lambda k: like(_series.plus(x[k], y[k]), out[0])


def _difference_taylor(out: Any, x: Any, y: Any) -> Callable:
    return lambda k: like(x[k] if y[k] is None else neg(y[k]) if x[k] is None else sub(x[k], y[k]), out[0])


def _where_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    condition, x, y = primals
    out = where(condition, x, y)
    _, s, t = tangents
    if s is None and t is None:
        return out, None
    # The branch that wasn't taken contributes a structural zero, whatever its derivative is.
    return out, like(where(condition, 0.0 if s is None else s, 0.0 if t is None else t), out)


def _where_transpose(ct: Any, condition: Any, x: Any, y: Any) -> tuple:
    zero = np.zeros((), type_of(ct).dtype)[()]
    return (
        None,
        unbroadcast(where(condition, ct, zero), x) if isinstance(x, Linear) else None,
        unbroadcast(where(condition, zero, ct), y) if isinstance(y, Linear) else None,
    )


neg: Primitive = ufunc(
    np.negative, name="neg", emit=lambda e, x: e.neg(x), linear=(0,), cost=each(additions=1),
    transpose=lambda ct, x: (neg(ct),),
    balanced=True,
)  # fmt: skip
add: Primitive = ufunc(
    np.add, emit=lambda e, x, y: e.add(x, y), linear=(0, 1), cost=each(additions=1),
    jvp=_sum_jvp, taylor=_sum_taylor,
    transpose=lambda ct, x, y: (
        unbroadcast(ct, x) if isinstance(x, Linear) else None,
        unbroadcast(ct, y) if isinstance(y, Linear) else None,
    ),
    balanced=True,
)  # fmt: skip
sub: Primitive = ufunc(
    np.subtract, name="sub", emit=lambda e, x, y: e.sub(x, y), linear=(0, 1), cost=each(additions=1),
    jvp=_difference_jvp, taylor=_difference_taylor,
    transpose=lambda ct, x, y: (
        unbroadcast(ct, x) if isinstance(x, Linear) else None,
        neg(unbroadcast(ct, y)) if isinstance(y, Linear) else None,
    ),
    balanced=True,
)  # fmt: skip
mul: Primitive = ufunc(
    np.multiply, (lambda out, x, y: y, lambda out, x, y: x), name="mul", emit=lambda e, x, y: e.mul(x, y),
    transpose=_product_transpose, bilinear=True, cost=each(multiplications=1),
    pattern=product_pattern, balanced=True,
)  # fmt: skip


def _masked_mul(t: Any, d: Any) -> Any:
    out = np.multiply(t, d)
    if _finite(out):  # nothing to mask
        return out
    return np.where(np.logical_or(np.equal(t, 0), np.equal(d, 0)), np.zeros((), out.dtype), out)[()]


# The product through which derivatives are applied: 0 where a factor is 0, even if the other is infinite or NaN. It is
# what keeps a branch that `where` didn't take out of the gradient, whatever happened there: its tangent or cotangent is
# 0, and in derivatives of derivatives that can be either factor.
masked_mul: Primitive = elementwise(
    "masked_mul", _masked_mul,
    emit=lambda e, t, d: e.select(
        e.bit_or(e.compare("eq", t, e.constant(0, t)), e.compare("eq", d, e.constant(0, d))),
        e.constant(0, t),
        e.mul(t, d),
    ),
    jvp=lambda primals, tangents: (masked_mul(*primals), like(_masked_tangent(primals, tangents), _product(*primals))),
    transpose=lambda ct, t, d: (
        (unbroadcast(masked_mul(ct, conjugate(d)), t), None)
        if isinstance(t, Linear)
        else (None, unbroadcast(masked_mul(conjugate(t), ct), d))
    ),
    pattern=product_pattern,
    bilinear=True,
    cost=each(multiplications=1),
    balanced=True,
)  # fmt: skip


def _product(t: Any, d: Any) -> Any:
    zero = freeze(np.zeros((), promote(type_of(t), type_of(d))[0]))
    return np.broadcast_to(zero, broadcast_shapes(shape_of(t), shape_of(d)))


def _masked_tangent(primals: tuple, tangents: tuple) -> Any:
    (t, d), (t_dot, d_dot) = primals, tangents
    first = None if t_dot is None else masked_mul(t_dot, d)
    second = None if d_dot is None else masked_mul(t, d_dot)
    return second if first is None else first if second is None else add(first, second)


def _div_transpose(ct: Any, x: Any, y: Any) -> tuple:
    return unbroadcast(div(ct, conjugate(y)), x), None


def _div_taylor(out: Any, x: Any, y: Any) -> Callable:
    # The convolution of y and the quotient is x.
    if y.constant:
        return lambda k: None if x[k] is None else like(div(x[k], y[0]), out[0])
    inverse = _reciprocal(y[0])

    def coefficient(k: int) -> Any:
        known = _series.convolve(y, out, k, first=1)
        rest = x[k] if known is None else neg(known) if x[k] is None else sub(x[k], known)
        return None if rest is None else like(masked(rest, inverse), out[0])

    return coefficient


div: Primitive = ufunc(
    np.true_divide,
    (lambda out, x, y: _reciprocal(y), lambda out, x, y: neg(div(out, y))),
    name="div", emit=lambda e, x, y: e.div(x, y), transpose=_div_transpose, linear=(0,), taylor=_div_taylor,
    cost=each(multiplications=1), pattern=quotient_pattern, balanced=True,
)  # fmt: skip


def _reciprocal(y: Any) -> Any:
    one = 1.0 if type(y) in PYTHON_SCALARS else np.ones((), type_of(y).dtype)[()]
    return div(one, y)


exp: Primitive = ufunc(np.exp, (lambda out, x: out,), emit=lambda e, x: e.call("exp", x))
log: Primitive = ufunc(np.log, (lambda out, x: _reciprocal(x),), emit=lambda e, x: e.call("log", x))
tanh: Primitive = ufunc(np.tanh, (lambda out, x: sub(1.0, mul(out, out)),), emit=lambda e, x: e.call("tanh", x))
sin: Primitive = ufunc(np.sin, (lambda out, x: cos(x),), emit=lambda e, x: e.call("sin", x))
cos: Primitive = ufunc(np.cos, (lambda out, x: neg(sin(x)),), emit=lambda e, x: e.call("cos", x))
sqrt: Primitive = ufunc(np.sqrt, (lambda out, x: div(0.5, out),), emit=lambda e, x: e.sqrt(x))


def _extremum_jvp(extremum: Callable) -> Callable:
    """The tangent of the winner, selected (the loser's may be infinite); the mean of both at a tie."""

    def jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        (x, y), out = primals, extremum(*primals)
        s, t = (0.0 if tangent is None else tangent for tangent in tangents)
        winner = where(eq(x, out), s, t)
        return out, like(where(eq(x, y), mul(0.5, add(s, t)), winner), out)

    return jvp


maximum: Primitive = ufunc(
    np.maximum, emit=lambda e, x, y: e.maximum(x, y), jvp=_extremum_jvp(lambda x, y: maximum(x, y)),
    piecewise_linear=True,
)  # fmt: skip
minimum: Primitive = ufunc(
    np.minimum, emit=lambda e, x, y: e.minimum(x, y), jvp=_extremum_jvp(lambda x, y: minimum(x, y)),
    piecewise_linear=True,
)  # fmt: skip


def _sign_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    out = sign(x)
    if type_of(x).dtype.kind != "c":
        return out, None
    # z / |z| turns with z: (t - s Re(conj(s) t)) / |z|, and 0 at 0
    size = abs(x)
    along = mul(out, real(mul(conj(out), t)))
    return out, mul(sub(t, along), where(eq(size, 0), 0.0, div(1.0, size)))


sign: Primitive = ufunc(
    np.sign, emit=lambda e, x: e.sign(x), jvp=_sign_jvp, pattern=complex_pattern, analytic=False
)


def _abs_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    out = abs(x)
    if type_of(x).dtype.kind == "c":  # Re(conj(z) t) / |z|, and 0 at 0
        inverse = where(eq(out, 0), 0.0, div(1.0, out))
        return out, mul(real(mul(conj(x), t)), inverse)
    return out, scale(t, sign(x), out)


abs: Primitive = ufunc(np.abs, name="abs", emit=lambda e, x: e.abs(x), jvp=_abs_jvp, piecewise_linear=True)

conj: Primitive = ufunc(
    np.conjugate, name="conj", linear=(0,), transpose=lambda ct, x: (conjugate(ct),), emit=lambda e, x: e.conj(x),
    analytic=False,
)  # fmt: skip
real: Primitive = elementwise(
    "real", lambda x: np.array(np.real(x))[()], linear=(0,), emit=lambda e, x: e.real(x),
    transpose=lambda ct, z: (_shape.convert(ct, dtype=z.dtype),),
)  # fmt: skip
imag: Primitive = elementwise(
    "imag", lambda x: np.array(np.imag(x))[()], linear=(0,),
    transpose=lambda ct, z: (
        mul(_shape.convert(ct, dtype=z.dtype), 1j) if z.dtype.kind == "c" else None,
    ),
    emit=lambda e, x: e.imag(x), pattern=complex_pattern,
)  # fmt: skip


def steps(f: np.ufunc, **rest: Any) -> Primitive:
    """NumPy's function, whose derivative is zero wherever there is one."""
    primitive = ufunc(f, jvp=lambda primals, tangents: (primitive(*primals), None), pattern=reads_nothing, **rest)
    return primitive


eq: Primitive = steps(np.equal, name="eq", emit=lambda e, x, y: e.compare("eq", x, y))
ne: Primitive = steps(np.not_equal, name="ne", emit=lambda e, x, y: e.compare("ne", x, y))
lt: Primitive = steps(np.less, name="lt", emit=lambda e, x, y: e.compare("lt", x, y))
le: Primitive = steps(np.less_equal, name="le", emit=lambda e, x, y: e.compare("le", x, y))
gt: Primitive = steps(np.greater, name="gt", emit=lambda e, x, y: e.compare("gt", x, y))
ge: Primitive = steps(np.greater_equal, name="ge", emit=lambda e, x, y: e.compare("ge", x, y))

bitwise_and: Primitive = steps(np.bitwise_and, emit=lambda e, x, y: e.bit_and(x, y))
bitwise_or: Primitive = steps(np.bitwise_or, emit=lambda e, x, y: e.bit_or(x, y))
bitwise_xor: Primitive = steps(np.bitwise_xor, emit=lambda e, x, y: e.bit_xor(x, y))
invert: Primitive = steps(np.invert, emit=lambda e, x: e.invert(x))

where: Primitive = elementwise(
    "where",
    lambda condition, x, y: np.where(condition, x, y)[()],
    emit=lambda e, c, x, y: e.select(c, x, y),
    jvp=_where_jvp,
    transpose=_where_transpose,
    linear=(1, 2),
    balanced=True,
    compute=lambda types, out: (np.dtype(bool), out, out),
    pattern=where_pattern,
)

stop_gradient: Primitive = elementwise(
    "stop_gradient", np.positive, emit=lambda e, x: x, jvp=lambda p, t: (stop_gradient(*p), None),
    cost=view, pattern=reads_nothing, stops=lambda params: (0,),
)  # fmt: skip

from wonderland.ops import reduce as _reduce  # noqa: E402  (mutual: rules of one family use the other)
from wonderland.ops import series as _series  # noqa: E402
from wonderland.ops import shape as _shape  # noqa: E402
