"""NumPy's elementwise functions and operators on traced arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.tracer import METHODS, PROPERTIES, Tracer
from wonderland.core.types import type_of
from wonderland.numpy.dispatch import implements, operator, view_function
from wonderland.ops import elementwise as ops
from wonderland.ops.shape import convert, zeros_like_type

for _ufunc, _primitive in {
    np.negative: ops.neg, np.add: ops.add, np.subtract: ops.sub, np.multiply: ops.mul, np.true_divide: ops.div,
    np.exp: ops.exp, np.log: ops.log, np.tanh: ops.tanh, np.sin: ops.sin, np.cos: ops.cos, np.sqrt: ops.sqrt,
    np.maximum: ops.maximum, np.minimum: ops.minimum, np.absolute: ops.abs, np.sign: ops.sign,
    np.equal: ops.eq, np.not_equal: ops.ne, np.less: ops.lt, np.less_equal: ops.le, np.greater: ops.gt,
    np.greater_equal: ops.ge, np.conjugate: ops.conj, np.bitwise_and: ops.bitwise_and, np.bitwise_or: ops.bitwise_or,
    np.bitwise_xor: ops.bitwise_xor, np.invert: ops.invert,
}.items():  # fmt: skip
    implements(_ufunc)(_primitive)

for _name, _primitive in {
    "add": ops.add, "sub": ops.sub, "mul": ops.mul, "truediv": ops.div, "and": ops.bitwise_and,
    "or": ops.bitwise_or, "xor": ops.bitwise_xor,
}.items():  # fmt: skip
    operator(_name, _primitive)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    operator(_name, ops.comparisons[_name], reverse=False)

METHODS["__neg__"] = lambda self: Tracer(ops.neg(self._get()))
METHODS["__pos__"] = lambda self: Tracer(self._get())
METHODS["__abs__"] = lambda self: Tracer(ops.abs(self._get()))
METHODS["__invert__"] = lambda self: Tracer(ops.invert(self._get()))


def _as_result(ufunc: np.ufunc, x: Any) -> Any:
    """An operand in the dtype of the result that NumPy's function has for it (bools often become int8)."""
    dtype = ufunc(*(np.ones(1, type_of(x).dtype),) * ufunc.nin).dtype
    return x if dtype == type_of(x).dtype else convert(x, dtype=dtype)


@implements(np.power)
def power(x: Any, y: Any) -> Any:
    return ops.pow(x, y)


def _operator_pow(x: Any, y: Any) -> Any:
    # As NumPy's operator: a square root where the exponent is 0.5, which differs from the power at -0.0 and -inf.
    if isinstance(y, float) and y == 0.5 and type_of(x).dtype.kind in "fc":
        return ops.sqrt(x)
    return power(x, y)


operator("pow", _operator_pow)


@implements(np.float_power)
def float_power(x: Any, y: Any) -> Any:
    return ops.pow(_as_result(np.float_power, x), _as_result(np.float_power, y))


@implements(np.positive)
def positive(x: Any) -> Any:
    return _as_result(np.positive, x)


@implements(np.square)
def square(x: Any) -> Any:
    x = _as_result(np.square, x)
    return ops.mul(x, x)


@implements(np.reciprocal)
def reciprocal(x: Any) -> Any:
    x = _as_result(np.reciprocal, x)
    one = np.ones((), type_of(x).dtype)[()]
    if type_of(x).dtype.kind in "iu":  # 1 // x: x itself for 1 and -1
        unit = ops.eq(x, one) if type_of(x).dtype.kind == "u" else ops.bitwise_or(ops.eq(x, one), ops.eq(x, -one))
        return ops.where(unit, x, ops.sub(one, one))
    return ops.div(one, x)


@implements(np.fabs)
def fabs(x: Any) -> Any:
    return ops.abs(_as_result(np.fabs, x))


def _boolean(x: Any) -> Any:
    return x if type_of(x).dtype == bool else ops.ne(x, 0)


@implements(np.logical_and)
def logical_and(x: Any, y: Any) -> Any:
    return ops.bitwise_and(_boolean(x), _boolean(y))


@implements(np.logical_or)
def logical_or(x: Any, y: Any) -> Any:
    return ops.bitwise_or(_boolean(x), _boolean(y))


@implements(np.logical_not)
def logical_not(x: Any) -> Any:
    return ops.invert(_boolean(x))


@implements(np.isnan)
def isnan(x: Any) -> Any:
    return ops.ne(x, x)


@implements(np.isfinite)
def isfinite(x: Any) -> Any:
    return ops.eq(x, x) if type_of(x).dtype.kind in "biu" else ops.eq(ops.sub(x, x), 0)


@implements(np.where)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None or y is None:
        raise TypeError("np.where(condition) alone has a result whose shape depends on values; give x and y too")
    return ops.where(_boolean(condition), x, y)


@implements(np.clip, method="clip")
def clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = a_min if min is None else min, a_max if max is None else max
    if low is not None:
        x = ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


@view_function(np.real)
def real(x: Tracer) -> Tracer:
    return Tracer(ops.real(x._get())) if x.dtype.kind == "c" else x


@implements(np.imag)
def imag(x: Any) -> Any:
    return ops.imag(x) if type_of(x).dtype.kind == "c" else zeros_like_type(type_of(x))


PROPERTIES["real"] = real
PROPERTIES["imag"] = lambda self: Tracer(imag(self._get()))
METHODS["conj"] = METHODS["conjugate"] = lambda self: Tracer(ops.conjugate(self._get()))


def astype(self: Tracer, dtype: Any, copy: bool = True) -> Tracer:
    """NumPy's `astype`."""
    if not copy and np.dtype(dtype) == self.dtype:
        return self
    return Tracer(convert(self._get(), dtype=np.dtype(dtype)))


METHODS["astype"] = astype
METHODS["copy"] = METHODS["__copy__"] = lambda self: Tracer(self._get())
METHODS["__deepcopy__"] = lambda self, memo: Tracer(self._get())


@implements(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return a
