"""NumPy's elementwise functions and operators on traced arrays."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from operator import index
from typing import Any

from wonderland.core.tracer import METHODS, Tracer, concrete, set_on_class
from wonderland.core.types import PYTHON_SCALARS, broadcast_shapes, shape_of, type_of
from wonderland.numpy.dispatch import implements, make_view, on_handles, operator, set_operator
from wonderland.numpy.missing import np
from wonderland.numpy.ufuncs import implement_primitives, of_dtype, result_dtype
from wonderland.ops import elementwise as ops
from wonderland.ops import integer, math, special
from wonderland.ops.reduce import sum
from wonderland.ops.shape import convert, zeros_like_type

implement_primitives("np", np)

for _name, _primitive in {
    "add": ops.add, "sub": ops.sub, "mul": ops.mul, "truediv": ops.div, "and": ops.bitwise_and,
    "or": ops.bitwise_or, "xor": ops.bitwise_xor, "floordiv": integer.floor_divide, "mod": integer.remainder,
    "lshift": integer.left_shift, "rshift": integer.right_shift,
}.items():  # fmt: skip
    operator(_name, _primitive)
for _primitive in (ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge):
    operator(_primitive.name, _primitive, reverse=False)

set_operator("__neg__", lambda self: Tracer(ops.neg(self._get())))
set_operator("__pos__", lambda self: Tracer(self._get()))
set_operator("__abs__", lambda self: Tracer(ops.abs(self._get())))
set_operator("__invert__", lambda self: Tracer(ops.invert(self._get())))


def _as_result(ufunc: np.ufunc, x: Any) -> Any:
    """An operand in the dtype of the result that NumPy's function has for it (bools often become int8)."""
    dtype = result_dtype(ufunc, *(np.ones(1, type_of(x).dtype),) * ufunc.nin)
    return x if dtype == type_of(x).dtype else convert(x, dtype=dtype)


# Powers and products -------------------------------------------------------------------------------------------------


_BOOL = np.dtype(bool)


def _operator_pow(x: Any, y: Any) -> Any:
    # As NumPy's operator: a square root where the exponent is 0.5, which differs from the power at -0.0 and -inf.
    if type(y) is float and y == 0.5 and type_of(x).dtype.kind in "fc":
        return ops.sqrt(x)
    if type(y) is int and y == 2 and getattr(x, "dtype", None) is _BOOL:
        return square(x)  # in int8, as NumPy's operator has it
    return math.pow(x, y)


operator("pow", _operator_pow)


@implements(np.float_power)
def float_power(x: Any, y: Any) -> Any:
    return math.pow(_as_result(np.float_power, x), _as_result(np.float_power, y))


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
    dtype = type_of(x).dtype
    one = np.ones((), dtype)[()]
    if dtype.kind in "iu":  # 1 // x: x itself for 1 and -1; 0 has no reciprocal, but NumPy has a value for it
        unit = ops.eq(x, one) if dtype.kind == "u" else ops.bitwise_or(ops.eq(x, one), ops.eq(x, -one))
        with np.errstate(all="ignore"):
            of_zero = np.reciprocal(np.zeros(1, dtype))[0]
        return ops.where(unit, x, ops.where(ops.eq(x, 0), of_zero, np.zeros((), dtype)[()]))
    return math.complex_reciprocal(x) if dtype.kind == "c" else ops.div(one, x)


@implements(np.fabs)
def fabs(x: Any) -> Any:
    return ops.abs(_as_result(np.fabs, x))


@implements(np.deg2rad)
@implements(np.radians)
def deg2rad(x: Any) -> Any:
    return ops.mul(_as_result(np.deg2rad, x), np.pi / 180.0)


@implements(np.rad2deg)
@implements(np.degrees)
def rad2deg(x: Any) -> Any:
    return ops.mul(_as_result(np.rad2deg, x), 180.0 / np.pi)


@implements(np.sinc)
def sinc(x: Any) -> Any:
    return math.sinc(ops.mul(np.pi, x), order=0)


# Parts: quotient and remainder, fraction, mantissa -------------------------------------------------------------------


@implements(np.divmod)
def divmod(x: Any, y: Any) -> tuple[Any, ...]:
    return integer.floor_divide(x, y), integer.remainder(x, y)


def _operator_divmod(reflected: bool) -> Any:
    def method(self: Tracer, other: Any) -> Any:
        quotient, rest = ("__rfloordiv__", "__rmod__") if reflected else ("__floordiv__", "__mod__")
        first = METHODS[quotient](self, other)
        return first if first is NotImplemented else (first, METHODS[rest](self, other))

    return method


set_operator("__divmod__", _operator_divmod(False))
set_operator("__rdivmod__", _operator_divmod(True))


@implements(np.modf)
def modf(x: Any) -> tuple[Any, ...]:
    x = _as_result(np.modf, x)
    infinite = isinf(x)
    fraction = integer.fmod(ops.where(infinite, 0.0, x), 1.0)
    return ops.where(infinite, integer.copysign(0.0, x), fraction), integer.trunc(x)


@implements(np.frexp)
def frexp(x: Any) -> tuple[Any, ...]:
    n = integer.exponent(x)
    return integer.ldexp(x, ops.neg(n)), n


# Rounding and choosing -----------------------------------------------------------------------------------------------


@implements(np.round, method="round")
@implements(np.around)
def round(a: Any, decimals: int = 0) -> Any:
    dtype, decimals = type_of(a).dtype, index(decimals)
    if dtype.kind in "iu" and decimals >= 0:
        return a
    if dtype.kind == "c":
        return math.complex(round(ops.real(a), decimals), round(ops.imag(a), decimals))
    if decimals == 0:
        return integer.rint(a)
    if dtype.kind == "b":
        raise TypeError(f"np.round(a, {decimals}) of bools: convert them first, with a.astype(float)")
    unit = 10.0 ** abs(decimals)
    if decimals > 0:
        return ops.div(integer.rint(ops.mul(a, unit)), unit)
    out = ops.mul(integer.rint(ops.div(a, unit)), unit)
    return convert(out, dtype=dtype) if dtype.kind in "iu" else out


def _operator_round(self: Tracer, ndigits: Any = None) -> Any:
    if self.shape:
        raise TypeError(f"round() takes a number, not an array of shape {self.shape}; np.round takes arrays")
    return builtins.round(self._concrete("round()")) if ndigits is None else METHODS["round"](self, ndigits)


set_operator("__round__", _operator_round)


@implements(np.fix)
def fix(x: Any) -> Any:
    return integer.trunc(x)


@implements(np.fmax)
def fmax(x: Any, y: Any) -> Any:
    return ops.where(isnan(x), y, ops.where(isnan(y), x, ops.maximum(x, y)))


@implements(np.fmin)
def fmin(x: Any, y: Any) -> Any:
    return ops.where(isnan(x), y, ops.where(isnan(y), x, ops.minimum(x, y)))


@implements(np.clip, method="clip")
def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None, **options: Any) -> Any:
    """minimum(maximum(a, low), high), whose derivative at a bound is that of a tie: a half."""
    left = [name for name, value in options.items() if value is not None and value is not True]
    if left:
        raise TypeError(f"np.clip on traced arrays takes no {', '.join(left)}=")
    bounds = [None if bound is np._NoValue else bound for bound in (a_min, a_max, min, max)]
    if any(bound is not None for bound in bounds[:2]) and any(bound is not None for bound in bounds[2:]):
        raise ValueError("Passing `min` or `max` keyword argument when `a_min` and `a_max` are provided is forbidden.")
    low, high = bounds[0] if bounds[2] is None else bounds[2], bounds[1] if bounds[3] is None else bounds[3]
    a = _array(a)
    dtype = type_of(a).dtype
    if dtype.kind in "iu":  # as NumPy: Python's integers may be out of bounds
        low = None if type(low) is int and low <= np.iinfo(dtype).min else low
        high = None if type(high) is int and high >= np.iinfo(dtype).max else high
    if low is not None:
        a = ops.maximum(a, _array(low))
    return a if high is None else ops.minimum(a, _array(high))


@implements(np.heaviside)
def heaviside(x: Any, y: Any) -> Any:
    dtype = result_dtype(np.heaviside, x, y)
    x, y = of_dtype(x, dtype), of_dtype(y, dtype)
    step = ops.where(ops.gt(x, 0), 1.0, ops.where(ops.eq(x, 0), y, x))  # x where it is NaN
    return ops.where(ops.lt(x, 0), 0.0, step)


@implements(np.where)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return np.nonzero(concrete(condition, "np.where(condition), whose result has a shape that depends on values"))
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    return ops.where(_boolean(condition), _array(x), _array(y))


def _array(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, (list, tuple)) else x


@on_handles(np.nan_to_num)
def nan_to_num(x: Tracer, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Tracer:
    value = x._get()
    dtype = type_of(value).dtype
    if dtype.kind not in "fc":
        return Tracer(value) if copy else x
    limits = np.finfo(dtype)
    largest = float(limits.max) if posinf is None else posinf
    smallest = float(limits.min) if neginf is None else neginf
    fills = [a._get() if isinstance(a, Tracer) else _array(a) for a in (nan, largest, smallest)]

    def finite(part: Any) -> Any:
        kind = type_of(part).dtype
        tests = (isnan(part), ops.eq(part, np.inf), ops.eq(part, -np.inf))
        for test, fill in zip(tests, fills, strict=True):
            part = ops.where(test, fill if type(fill) in PYTHON_SCALARS else convert(fill, dtype=kind), part)
        return part

    new = math.complex(finite(ops.real(value)), finite(ops.imag(value))) if dtype.kind == "c" else finite(value)
    if copy:
        return Tracer(new)
    x[...] = Tracer(new)
    return x


# Bools ---------------------------------------------------------------------------------------------------------------


def _boolean(x: Any) -> Any:
    return x if type_of(x).dtype == bool else ops.ne(x, 0)


@implements(np.logical_and)
def logical_and(x: Any, y: Any) -> Any:
    return ops.bitwise_and(_boolean(x), _boolean(y))


@implements(np.logical_or)
def logical_or(x: Any, y: Any) -> Any:
    return ops.bitwise_or(_boolean(x), _boolean(y))


@implements(np.logical_xor)
def logical_xor(x: Any, y: Any) -> Any:
    return ops.bitwise_xor(_boolean(x), _boolean(y))


@implements(np.logical_not)
def logical_not(x: Any) -> Any:
    return ops.invert(_boolean(x))


@implements(np.isnan)
def isnan(x: Any) -> Any:
    return ops.ne(x, x)


def _parts(x: Any) -> tuple:
    return (ops.real(x), ops.imag(x)) if type_of(x).dtype.kind == "c" else (x,)


@implements(np.isfinite)
def isfinite(x: Any) -> Any:
    if type_of(x).dtype.kind in "biu":
        return ops.eq(x, x)
    tests = [ops.lt(ops.abs(part), np.inf) for part in _parts(x)]
    return tests[0] if len(tests) == 1 else ops.bitwise_and(*tests)


@implements(np.isinf)
def isinf(x: Any) -> Any:
    if type_of(x).dtype.kind in "biu":
        return ops.ne(x, x)
    tests = [ops.eq(ops.abs(part), np.inf) for part in _parts(x)]
    return tests[0] if len(tests) == 1 else ops.bitwise_or(*tests)


def _equals(x: Any, infinity: float) -> Any:
    dtype = type_of(x).dtype
    if dtype.kind == "c":
        raise TypeError(f"This operation is not supported for {dtype} values because it would be ambiguous.")
    return ops.ne(x, x) if dtype.kind in "biu" else ops.eq(x, infinity)


@implements(np.isposinf)
def isposinf(x: Any) -> Any:
    return _equals(x, np.inf)


@implements(np.isneginf)
def isneginf(x: Any) -> Any:
    return _equals(x, -np.inf)


@implements(np.iscomplex)
def iscomplex(x: Any) -> Any:
    return ops.ne(ops.imag(x), 0)


@implements(np.isreal)
def isreal(x: Any) -> Any:
    return ops.eq(ops.imag(x), 0)


def _all(x: Any) -> Any:
    """Are all true? Counted, since an empty array has no minimum."""
    rank = len(shape_of(x))
    return ops.eq(sum(convert(ops.invert(x), dtype=np.dtype(int)), axes=tuple(range(rank))), 0) if rank else x


@implements(np.isclose)
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    x, y = _array(a), _array(b)
    if type_of(y).dtype.kind in "biu":  # the smallest integer has no absolute value
        y = ops.mul(1.0, y) if type_of(y).weak else convert(y, dtype=np.result_type(type_of(y).dtype, 1.0))
    with np.errstate(invalid="ignore"):
        near = ops.le(ops.abs(ops.sub(x, y)), ops.add(atol, ops.mul(rtol, ops.abs(y))))
    out = ops.bitwise_or(ops.bitwise_and(near, isfinite(y)), ops.eq(x, y))
    return ops.bitwise_or(out, ops.bitwise_and(isnan(x), isnan(y))) if equal_nan else out


@implements(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    return _all(isclose(a, b, rtol, atol, equal_nan))


@implements(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = _array(a1), _array(a2)
    if shape_of(x) != shape_of(y):
        return False
    same = ops.eq(x, y)
    return _all(ops.bitwise_or(same, ops.bitwise_and(isnan(x), isnan(y))) if equal_nan else same)


@implements(np.array_equiv)
def array_equiv(a1: Any, a2: Any) -> Any:
    x, y = _array(a1), _array(a2)
    try:
        broadcast_shapes(shape_of(x), shape_of(y))
    except ValueError:
        return False
    return _all(ops.eq(x, y))


# Complex numbers -----------------------------------------------------------------------------------------------------


@on_handles(np.real)
def real(val: Tracer) -> Tracer:
    """The real part: a view, as NumPy's (writing to `x.real` writes to x)."""
    if val.dtype.kind != "c":
        return val
    return make_view(val, ops.real, lambda box, new: math.complex(new, ops.imag(box[0])))


@on_handles(np.imag)
def imag(val: Tracer) -> Tracer:
    """The imaginary part: a view, as NumPy's; of real numbers it is zeros, and no view."""
    if val.dtype.kind != "c":
        return Tracer(zeros_like_type(val.type))
    return make_view(val, ops.imag, lambda box, new: math.complex(ops.real(box[0]), new))


def _assign(part: Callable) -> Callable:
    def assign(self: Tracer, value: Any) -> None:
        if part is imag and self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        part(self)[...] = value

    return assign


for _name, _part in {"real": real, "imag": imag}.items():
    set_on_class(_name, property(_part, _assign(_part)))  # for `z.real = x`
METHODS["conj"] = METHODS["conjugate"] = lambda self: Tracer(ops.conjugate(self._get()))


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    complex = type_of(z).dtype.kind == "c"
    out = math.arctan2(ops.imag(z), ops.real(z)) if complex else math.arctan2(0, z)
    return ops.mul(out, 180.0 / np.pi) if deg else out


@implements(np.real_if_close)
def real_if_close(a: Any, tol: float = 100) -> Any:
    dtype = type_of(a).dtype
    if dtype.kind != "c":
        return a
    limit = np.finfo(dtype).eps * tol if tol > 1 else tol
    part = concrete(ops.imag(a), "np.real_if_close, whose result has a dtype that depends on values")
    return ops.real(a) if np.all(np.abs(part) < limit) else a


# Bessel's, and copies ------------------------------------------------------------------------------------------------


@implements(np.i0)
def i0(x: Any) -> Any:
    dtype = type_of(x).dtype
    if dtype.kind == "c":
        raise TypeError("i0 not supported for complex values")
    return special.bessel_i(0, x if dtype.kind == "f" else convert(x, dtype=np.dtype(float)))


def astype(
    self: Tracer, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
) -> Tracer:
    """NumPy's `astype`."""
    target = np.dtype(dtype)
    if not np.can_cast(self.dtype, target, casting):  # type: ignore[arg-type]
        raise TypeError(f"Cannot cast array data from {self.dtype!r} to {target!r} according to the rule {casting!r}")
    return self if not copy and target == self.dtype else _as_it_was(self, convert(self._get(), dtype=target))


def _as_it_was(source: Tracer, value: Any) -> Tracer:
    """A new handle; of an array without axes another one (not a number, which can't be written)."""
    handle = Tracer(value)
    handle._array = not source._is_number()
    return handle


METHODS["astype"] = astype
METHODS["copy"] = METHODS["__copy__"] = lambda self, order="C": _as_it_was(self, self._get())
METHODS["__deepcopy__"] = lambda self, memo: _as_it_was(self, self._get())


@implements(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return a


@on_handles(np.astype)
def _astype(x: Tracer, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tracer:
    return astype(x, dtype, copy=copy)
