"""Elementwise primitives: one line or one small block each, with NumPy's broadcasting and promotion.

`elementwise` derives infer, jvp, transpose, batch, pattern and lower from what is written: the NumPy function, the
partial derivatives (functions of the result and the operands) or the fact that it is linear, and the scalar code that
the compiler emits (`e` is the compiler's emitter: `e.add(x, y)`, `e.call("exp", x)`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from wonderland.core.primitive import Linear, Primitive
from wonderland.core.program import Tape, Var
from wonderland.core.types import (
    PYTHON_SCALARS,
    ArrayType,
    broadcast_shapes,
    is_differentiable,
    promote,
    shape_of,
    type_of,
)
from wonderland.ops.work import each, view

_PYTHON_ONES = {"b": True, "i": 1, "u": 1, "f": 1.0, "c": 1j}


def elementwise(
    name: str,
    evaluate: Callable,
    derivatives: tuple[Callable, ...] = (),
    *,
    emit: Callable | None = None,
    linear: tuple[int, ...] = (),
    jvp: Callable | None = None,
    transpose: Callable | None = None,
    compute: Callable | None = None,
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
            return out, like(scale(tangents[0], derivatives[0](out, primals[0])), out)
        total = None
        for t, derivative in zip(tangents, derivatives, strict=True):
            if t is not None:
                term = scale(t, derivative(out, *primals))
                total = term if total is None else combine(add, total, term)
        return out, like(total, out)

    def lower(builder: Any, *nodes: Any) -> Any:
        types = tuple(n.type for n in nodes)
        out = result_dtype(types)
        targets = compute(types, out) if compute else (promote(*types)[0],) * len(types)
        if not compute and out.kind == "f" and targets[0].kind in "biu":
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
        pattern=elementwise_pattern,
        lower=lower if emit else None,
        elementwise=True,
        linear=linear,
        **facts,
    )
    return primitive


def scale(tangent: Any, derivative: Any) -> Any:
    """A tangent times a derivative; where the tangent is 0 the result is, even if the derivative is infinite."""
    kind = type(derivative)
    if kind is np.ndarray:
        known = _finite(derivative)
    else:
        known = kind in PYTHON_SCALARS and isfinite(derivative.real) and isfinite(derivative.imag)
    if not known:
        return masked_mul(tangent, derivative)
    # Nothing to mask: the cheaper product; on a tape without asking for its type, which is the tangent's.
    if type(tangent) is Var and type(tangent.level) is Tape:
        goal = tangent.type
        if derivative.shape == goal.shape and derivative.dtype is goal.dtype if kind is np.ndarray else kind is float:
            return tangent.level.equation(mul, (tangent, tangent.level.atom(derivative)), goal, {})
    return mul(tangent, derivative)


def combine(primitive: Primitive, s: Any, t: Any) -> Any:
    """A sum or difference of tangents; on a tape, of those of one type, without asking for its type."""
    if type(s) is Var and type(t) is Var and s.level is t.level and type(s.level) is Tape:
        if s.type.shape == t.type.shape and s.type.dtype is t.type.dtype and not s.type.weak:
            return s.level.equation(primitive, (s, t), s.type, {})
    return primitive(s, t)


def _finite(x: Any) -> bool:
    """Is nothing in it infinite or NaN? (An overflow of the sum says no, which is safe.)"""
    if x.size < 4096:  # where what counts is the number of calls
        x = x.reshape(-1)
        return isfinite(np.abs(x.dot(x)))
    return isfinite(np.abs(np.add.reduce(x, axis=None)))


def align(args: tuple, batched: tuple[bool, ...]) -> list:
    """Give batched operands singleton axes behind the batch, so that broadcasting still pairs up the others."""
    rank = max(len(shape_of(a)) - b for a, b in zip(args, batched, strict=True))
    out = []
    for a, b in zip(args, batched, strict=True):
        shape = shape_of(a)
        if b and len(shape) - 1 < rank:
            a = _shape.reshape(a, shape=(shape[0], *(1,) * (rank - len(shape) + 1), *shape[1:]))
        out.append(a)
    return out


def elementwise_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    """Output element i reads element i of each operand, as broadcast."""
    shape = broadcast_shapes(*(t.shape for t in types))
    size = int(np.prod(shape))
    rows = np.arange(size)
    return [
        (rows, np.broadcast_to(np.arange(t.size).reshape(t.shape), shape).ravel())
        if is_differentiable(t.dtype)
        else None
        for t in types
    ]


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


def unbroadcast(ct: Any, target: Linear) -> Any:
    """The transpose of broadcasting and promotion: sum over the repeated axes, convert back."""
    goal = target.type
    actual = ct if type(ct) is np.ndarray else type_of(ct)
    if actual.shape == goal.shape and actual.dtype is goal.dtype:
        return ct
    if actual.shape != goal.shape:
        extra = len(actual.shape) - len(goal.shape)
        axes = tuple(
            i for i, extent in enumerate(actual.shape) if i < extra or (goal.shape[i - extra] == 1 and extent != 1)
        )
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
    return out, like(s if t is None else t if s is None else combine(add, s, t), out)


def _difference_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (s, t), out = tangents, sub(*primals)
    return out, like(s if t is None else neg(t) if s is None else combine(sub, s, t), out)


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


neg = elementwise(
    "neg", np.negative, emit=lambda e, x: e.neg(x), linear=(0,), zero_preserving=True, cost=each(additions=1),
    transpose=lambda ct, x: (neg(ct),),
)  # fmt: skip
add = elementwise(
    "add", np.add, emit=lambda e, x, y: e.add(x, y), linear=(0, 1), zero_preserving=True, cost=each(additions=1),
    jvp=_sum_jvp,
    transpose=lambda ct, x, y: tuple(unbroadcast(ct, a) if isinstance(a, Linear) else None for a in (x, y)),
)  # fmt: skip
sub = elementwise(
    "sub", np.subtract, emit=lambda e, x, y: e.sub(x, y), linear=(0, 1), zero_preserving=True, cost=each(additions=1),
    jvp=_difference_jvp,
    transpose=lambda ct, x, y: (
        unbroadcast(ct, x) if isinstance(x, Linear) else None,
        unbroadcast(neg(ct), y) if isinstance(y, Linear) else None,
    ),
)  # fmt: skip
mul = elementwise(
    "mul", np.multiply, (lambda out, x, y: y, lambda out, x, y: x), emit=lambda e, x, y: e.mul(x, y),
    transpose=_product_transpose, bilinear=True, zero_preserving=True, cost=each(multiplications=1),
)  # fmt: skip


def _masked_mul(t: Any, d: Any) -> Any:
    out = np.multiply(t, d)
    if _finite(out):  # nothing to mask
        return out
    return np.where(np.logical_or(np.equal(t, 0), np.equal(d, 0)), np.zeros((), out.dtype), out)[()]


# The product through which derivatives are applied: 0 where a factor is 0, even if the other is infinite or NaN. It is
# what keeps a branch that `where` didn't take out of the gradient, whatever happened there: its tangent or cotangent is
# 0, and in derivatives of derivatives that can be either factor.
masked_mul = elementwise(
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
    bilinear=True,
    zero_preserving=True,
    cost=each(multiplications=1),
)  # fmt: skip


def _product(t: Any, d: Any) -> Any:
    return np.broadcast_to(np.zeros((), promote(type_of(t), type_of(d))[0]), broadcast_shapes(shape_of(t), shape_of(d)))


def _masked_tangent(primals: tuple, tangents: tuple) -> Any:
    (t, d), (t_dot, d_dot) = primals, tangents
    first = None if t_dot is None else masked_mul(t_dot, d)
    second = None if d_dot is None else masked_mul(t, d_dot)
    return second if first is None else first if second is None else add(first, second)


def _div_transpose(ct: Any, x: Any, y: Any) -> tuple:
    return unbroadcast(div(ct, conjugate(y)), x), None


div = elementwise(
    "div", np.true_divide,
    (lambda out, x, y: _reciprocal(y), lambda out, x, y: neg(div(out, y))),
    emit=lambda e, x, y: e.div(x, y), transpose=_div_transpose, linear=(0,), cost=each(multiplications=1),
)  # fmt: skip


def _reciprocal(y: Any) -> Any:
    one = 1.0 if type(y) in PYTHON_SCALARS else np.ones((), type_of(y).dtype)[()]
    return div(one, y)


exp = elementwise("exp", np.exp, (lambda out, x: out,), emit=lambda e, x: e.call("exp", x), monotone=True)
log = elementwise(
    "log", np.log, (lambda out, x: _reciprocal(x),), emit=lambda e, x: e.call("log", x),
    monotone=True,
)  # fmt: skip
tanh = elementwise(
    "tanh", np.tanh, (lambda out, x: sub(1.0, mul(out, out)),), emit=lambda e, x: e.call("tanh", x),
    monotone=True, zero_preserving=True,
)  # fmt: skip
sin = elementwise("sin", np.sin, (lambda out, x: cos(x),), emit=lambda e, x: e.call("sin", x), zero_preserving=True)
cos = elementwise("cos", np.cos, (lambda out, x: neg(sin(x)),), emit=lambda e, x: e.call("cos", x))
sqrt = elementwise(
    "sqrt", np.sqrt, (lambda out, x: div(0.5, out),), emit=lambda e, x: e.sqrt(x),
    monotone=True, zero_preserving=True,
)  # fmt: skip


def _pow_base_derivative(out: Any, x: Any, y: Any) -> Any:
    # y x^(y-1), and 0 where y is 0: x^0 = 1 for every x.
    if type(y) in PYTHON_SCALARS:
        return 0.0 if y == 0 else mul(y, x) if y == 2 else mul(y, pow(x, y - 1))
    return where(eq(y, 0), 0.0, mul(y, pow(x, sub(y, 1))))


def _pow_exponent_derivative(out: Any, x: Any, y: Any) -> Any:
    # x^y log x, and 0 at x = 0, where x^y stays 0 for every y > 0.
    return where(eq(x, 0), 0.0, mul(out, log(x)))


def _power(x: Any, y: Any) -> Any:
    if type(y) is int and y == 2 and type(x) is np.ndarray and x.dtype.kind in "fc":
        return np.square(x)  # the same, in half the time
    return np.power(x, y)


pow = elementwise(
    "pow", _power, (_pow_base_derivative, _pow_exponent_derivative),
    emit=lambda e, x, y: e.power(x, y), compute=lambda types, out: (out, out),
)  # fmt: skip


def _extremum_jvp(extremum: Callable) -> Callable:
    """The tangent of the winner, selected (the loser's may be infinite); the mean of both at a tie."""

    def jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        (x, y), out = primals, extremum(*primals)
        s, t = (0.0 if tangent is None else tangent for tangent in tangents)
        winner = where(eq(x, out), s, t)
        return out, like(where(eq(x, y), mul(0.5, add(s, t)), winner), out)

    return jvp


maximum = elementwise(
    "maximum", np.maximum, emit=lambda e, x, y: e.maximum(x, y), jvp=_extremum_jvp(lambda x, y: maximum(x, y)),
    monotone=True, zero_preserving=True,
)  # fmt: skip
minimum = elementwise(
    "minimum", np.minimum, emit=lambda e, x, y: e.minimum(x, y), jvp=_extremum_jvp(lambda x, y: minimum(x, y)),
    monotone=True, zero_preserving=True,
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


sign = elementwise("sign", np.sign, emit=lambda e, x: e.sign(x), jvp=_sign_jvp, monotone=True)


def _abs_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    out = abs(x)
    if type_of(x).dtype.kind == "c":  # Re(conj(z) t) / |z|, and 0 at 0
        inverse = where(eq(out, 0), 0.0, div(1.0, out))
        return out, mul(real(mul(conj(x), t)), inverse)
    return out, scale(t, sign(x))


abs = elementwise("abs", np.abs, emit=lambda e, x: e.abs(x), jvp=_abs_jvp, zero_preserving=True)

conj = elementwise(
    "conj", np.conjugate, linear=(0,), transpose=lambda ct, x: (conjugate(ct),), zero_preserving=True,
    emit=lambda e, x: e.conj(x),
)  # fmt: skip
real = elementwise(
    "real", lambda x: np.array(np.real(x))[()], linear=(0,), zero_preserving=True, emit=lambda e, x: e.real(x),
    transpose=lambda ct, z: (_shape.convert(ct, dtype=z.dtype),),
)  # fmt: skip
imag = elementwise(
    "imag", lambda x: np.array(np.imag(x))[()], linear=(0,), zero_preserving=True,
    transpose=lambda ct, z: (
        mul(_shape.convert(ct, dtype=z.dtype), 1j) if z.dtype.kind == "c" else None,
    ),
    emit=lambda e, x: e.imag(x),
)  # fmt: skip


def _no_tangent(name: str) -> Callable:
    def jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        return comparisons[name](*primals), None

    return jvp


def _comparison(name: str, ufunc: Callable) -> Primitive:
    return elementwise(name, ufunc, emit=lambda e, x, y: e.compare(name, x, y), jvp=_no_tangent(name))


comparisons: dict[str, Primitive] = {}
for _name, _ufunc in {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal
}.items():  # fmt: skip
    comparisons[_name] = _comparison(_name, _ufunc)
eq, ne, lt, le, gt, ge = comparisons.values()

for _name, _ufunc, _emit in (
    ("bitwise_and", np.bitwise_and, lambda e, x, y: e.bit_and(x, y)),
    ("bitwise_or", np.bitwise_or, lambda e, x, y: e.bit_or(x, y)),
    ("bitwise_xor", np.bitwise_xor, lambda e, x, y: e.bit_xor(x, y)),
    ("invert", np.invert, lambda e, x: e.invert(x)),
):
    comparisons[_name] = elementwise(_name, _ufunc, emit=_emit, jvp=_no_tangent(_name))
bitwise_and, bitwise_or, bitwise_xor, invert = (
    comparisons[n] for n in ("bitwise_and", "bitwise_or", "bitwise_xor", "invert")
)

where = elementwise(
    "where",
    lambda condition, x, y: np.where(condition, x, y)[()],
    emit=lambda e, c, x, y: e.select(c, x, y),
    jvp=_where_jvp,
    transpose=_where_transpose,
    linear=(1, 2),
    compute=lambda types, out: (np.dtype(bool), out, out),
)

stop_gradient = elementwise(
    "stop_gradient", np.positive, emit=lambda e, x: x, jvp=lambda p, t: (p[0], None), zero_preserving=True,
    monotone=True, cost=view,
)  # fmt: skip

from wonderland.ops import reduce as _reduce  # noqa: E402  (mutual: rules of one family use the other)
from wonderland.ops import shape as _shape  # noqa: E402
