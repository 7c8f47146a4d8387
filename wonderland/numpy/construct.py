"""Constructors that can hold tracers: `array`, `asarray`, `zeros` and friends of the `wonderland.numpy` namespace.

NumPy offers no hook in `np.array([tracer])` or `np.zeros(n)[i] = tracer`; these functions do what those mean. `wl.lift`
puts them in the place of NumPy's while a function runs.
"""

from __future__ import annotations

from typing import Any

from wonderland.core.errors import LostDerivativeError, user_line
from wonderland.core.level import freeze
from wonderland.core.tracer import METHODS, PROPERTIES, Tracer, concrete, unwrap
from wonderland.core.types import NUMERIC_KINDS, is_python_scalar, shape_of, type_of
from wonderland.numpy.dispatch import array_handle, has_tracer, implements, namespace
from wonderland.numpy.join import as_value
from wonderland.numpy.missing import np
from wonderland.numpy.shape import (
    broadcast_to,
    check_order,
    integers,
    moved_value,
    normalize_axis,
    on_handles,
    reshape_value,
)
from wonderland.numpy.ufuncs import result_dtype
from wonderland.ops import elementwise as ops
from wonderland.ops.math import pow
from wonderland.ops.shape import convert


def _held(made: Any) -> Any:
    """A new array of numbers, as one that can be written with traced values."""
    if type(made) is not np.ndarray or made.dtype.kind not in NUMERIC_KINDS:
        return made
    return array_handle(freeze(made))  # nobody else has it: as an operand it needn't be copied


def array(object: Any, dtype: Any = None, *, copy: Any = True, ndmin: int = 0, **kwargs: Any) -> Any:
    """NumPy's `array`; nested lists with traced entries are stacked. Without `copy=True`, a tracer is itself."""
    if not has_tracer(object):
        return np.array(object, dtype, copy=copy, ndmin=ndmin, **kwargs)
    same = isinstance(object, Tracer) and (dtype is None or np.dtype(dtype) == object.dtype)
    if same and not copy and object.ndim >= ndmin and not object._is_number():
        return object
    value = as_value(object)
    kind = type_of(value)
    if kind.weak or (dtype is not None and np.dtype(dtype) != kind.dtype):
        value = convert(value, dtype=kind.dtype if dtype is None else np.dtype(dtype))
    return array_handle(reshape_value(value, (1,) * (ndmin - len(value.shape)) + value.shape))


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, **kwargs: Any) -> Any:
    """NumPy's `asarray`; a tracer comes back as itself."""
    return array(a, dtype, order=order, copy=copy)


def asanyarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, **kwargs: Any) -> Any:
    """NumPy's `asanyarray`; a tracer comes back as itself."""
    return array(a, dtype, order=order, copy=copy, subok=True)


def ascontiguousarray(a: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """NumPy's `ascontiguousarray`, which makes numbers arrays of one element."""
    return array(a, dtype, order="C", copy=None, ndmin=1)


def asfortranarray(a: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """NumPy's `asfortranarray`, with one axis at least; a traced array's order of memory isn't the user's to choose."""
    return array(a, dtype, order="F", copy=None, ndmin=1)


def _holding(make: Any) -> Any:
    """A constructor whose result can be written with traced values."""

    def constructor(*args: Any, **kwargs: Any) -> Any:
        if has_tracer(args) or has_tracer(tuple(kwargs.values())):
            if make is np.full:
                return _traced_full(*args, **kwargs)
            args, kwargs = _numbers(make, (args, kwargs))
        return _held(make(*args, **kwargs))

    constructor.__name__ = make.__name__
    constructor.__doc__ = f"NumPy's `{make.__name__}`; the result can be written with traced values."
    return constructor


def _numbers(make: Any, item: Any) -> Any:
    """Sizes: traced integers that have a value will do."""
    if isinstance(item, (list, tuple)):
        return type(item)(_numbers(make, i) for i in item)
    if isinstance(item, dict):
        return {name: _numbers(make, i) for name, i in item.items()}
    if isinstance(item, Tracer) and item.dtype.kind in "iu":
        return concrete(item._get(), f"a size in np.{make.__name__}")
    if isinstance(item, Tracer):
        raise TypeError(f"np.{make.__name__}: sizes must be integers, not {item.type}")
    return item


def _traced_full(shape: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    value = unwrap(fill_value)
    if dtype is not None:
        value = convert(value, dtype=np.dtype(dtype))
    shape = _numbers(np.full, shape)
    return array_handle(broadcast_to(value, tuple(shape) if np.ndim(shape) else (int(shape),)))


def held_result(make: Any, owner: Any = None) -> Any:
    """Of a function (or a method of `owner`) that makes arrays from arrays: new ones hold traced values."""

    def constructor(*args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        source = (*args, *kwargs.values())[0] if owner is None else owner
        # np.asarray(a) of a plain array is that array: a write to it must reach a.
        return made if isinstance(source, np.ndarray) and np.may_share_memory(source, made) else _held(made)

    constructor.__name__ = make.__name__
    return constructor


# Like another array ---------------------------------------------------------------------------------------------------


def check_device(device: Any) -> None:
    """There is one device."""
    if device not in (None, "cpu"):
        raise ValueError(f'Device not understood. Only "cpu" is allowed, but received: {device}')


def _full_like(a: Any, value: Any, dtype: Any, order: Any, shape: Any, device: Any) -> Any:
    check_device(device)
    check_order(order)
    kind = type_of(a)
    goal = kind.shape if shape is None else integers(shape)
    if min(goal, default=0) < 0:
        raise ValueError("negative dimensions are not allowed")
    return broadcast_to(convert(value, dtype=np.dtype(dtype) if dtype is not None else kind.dtype), goal)


def _like(original: Any, value: int) -> None:
    @implements(original)
    def like(
        a: Any, /, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
    ) -> Any:
        return _full_like(a, value, dtype, order, shape, device)


_like(np.zeros_like, 0)
_like(np.ones_like, 1)
_like(np.empty_like, 0)


@implements(np.full_like)
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *,
    device: Any = None,
) -> Any:  # fmt: skip
    return _full_like(a, as_value(fill_value), dtype, order, shape, device)


# Ranges --------------------------------------------------------------------------------------------------------------


@implements(np.linspace)
def linspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
    axis: int = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    check_device(device)
    (num,) = integers(num, "the number of samples")
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    start, stop = (end if is_python_scalar(end) else as_value(end) for end in (start, stop))
    kind = result_dtype(np.true_divide, start, stop)
    width = ops.sub(convert(stop, dtype=kind), convert(start, dtype=kind))
    places = np.arange(num, dtype=kind).reshape((num,) + (1,) * len(shape_of(width)))
    parts = num - 1 if endpoint else num
    step = ops.div(width, float(parts)) if parts > 0 else ops.mul(width, np.nan)
    out = ops.add(ops.mul(places, step if parts > 0 else width), start)
    if endpoint and num > 1:  # the end itself, not what rounding makes of it
        out = ops.where(np.equal(places, num - 1), stop, out)
    dtype = np.dtype(kind if dtype is None else dtype)
    if dtype.kind in "iu":
        out = unwrap(np.floor(Tracer(out)))
    out = moved_value(convert(out, dtype=dtype), 0, normalize_axis(axis, len(shape_of(out))))
    return (out, step) if retstep else out


@implements(np.logspace)
def logspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    if shape_of(as_value(base)):
        raise TypeError("np.logspace on traced arrays takes a number as base; write base ** np.linspace(start, stop)")
    out = pow(unwrap(base), linspace(start, stop, num, endpoint, axis=axis))
    return out if dtype is None else convert(out, dtype=np.dtype(dtype))


@implements(np.geomspace)
def geomspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    start, stop = as_value(start), as_value(stop)
    kind = np.result_type(type_of(start).dtype, type_of(stop).dtype, np.float64)
    start, stop = convert(start, dtype=kind), convert(stop, dtype=kind)
    steps = linspace(np.zeros(()), np.ones(()), num, endpoint)
    places = reshape_value(steps, (*shape_of(steps), *(1,) * len(shape_of(ops.add(start, stop)))))
    out = ops.mul(start, pow(ops.div(stop, start), places))
    if endpoint:
        out = ops.where(np.equal(places, 1.0), stop, out)
    out = moved_value(out, 0, normalize_axis(axis, len(shape_of(out))))
    return out if dtype is None else convert(out, dtype=np.dtype(dtype))


def arange(*args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
    """NumPy's `arange`; bounds and step may be traced where they have values."""
    if not (has_tracer(args) or has_tracer(tuple(kwargs.values()))):
        return np.arange(*args, dtype=dtype, **kwargs)
    check_device(device)
    given = dict(zip(("stop",) if len(args) == 1 else ("start", "stop", "step"), args, strict=False)) | kwargs
    start, step = (unwrap(given.get(name, default)) for name, default in (("start", 0), ("step", 1)))
    known = [concrete(unwrap(v), "a bound of np.arange (the result's shape depends on it)")
             for v in (start, given["stop"], step)]  # fmt: skip
    kind = np.arange(*known).dtype if dtype is None else np.dtype(dtype)
    places = np.arange(len(np.arange(*known)), dtype=kind)
    return Tracer(ops.add(convert(start, dtype=kind), ops.mul(places, convert(step, dtype=kind))))


# Conversions and types -----------------------------------------------------------------------------------------------


@on_handles(np.astype)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    check_device(device)
    return x.astype(dtype, copy=copy)


def _kind(item: Any) -> Any:
    """An operand of `result_type`: an array's dtype, a weak scalar as the scalar of Python's that it stands for."""
    if not isinstance(item, Tracer):
        return item
    return {"b": True, "i": 1, "u": 1, "f": 1.0, "c": 1j}[item.dtype.kind] if item.type.weak else item.dtype


@on_handles(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    return np.result_type(*map(_kind, arrays_and_dtypes))


@on_handles(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    return np.can_cast(*(item.dtype if isinstance(item, Tracer) else item for item in (from_, to)), casting=casting)


def _of_dtype(info: Any) -> Any:
    """`finfo` and `iinfo`, of a traced array's dtype too."""

    def limits(type: Any) -> Any:
        return info(type.dtype if isinstance(type, Tracer) else type)

    limits.__name__, limits.__doc__ = info.__name__, f"NumPy's `{info.__name__}`, of traced arrays too."
    return limits


namespace["arange"] = arange
namespace["finfo"], namespace["iinfo"] = _of_dtype(np.finfo), _of_dtype(np.iinfo)
PROPERTIES["device"] = lambda self: "cpu"


def _to_device(self: Tracer, device: Any, /, *, stream: Any = None) -> Tracer:
    check_device(device)
    if stream is not None:
        raise ValueError("The stream argument in to_device() is not supported")
    return self


def _refuse_dlpack(self: Tracer, *args: Any, **kwargs: Any) -> Any:
    raise LostDerivativeError(
        f"a traced array can't be handed out by DLPack{user_line()}: its derivative would be lost. Convert what the "
        "transformed function returns instead."
    )


METHODS["to_device"] = _to_device
METHODS["__dlpack__"] = METHODS["__dlpack_device__"] = _refuse_dlpack

# What lift puts in the place of NumPy's ------------------------------------------------------------------------------

LIFTED: dict[Any, Any] = {}  # NumPy's constructor -> ours
for _name in "zeros ones empty full eye identity".split():
    namespace[_name] = LIFTED[getattr(np, _name)] = _holding(getattr(np, _name))
for _convert in (array, asarray, asanyarray, ascontiguousarray, asfortranarray):
    namespace[_convert.__name__] = _convert
_NAMES = "array asarray asanyarray ascontiguousarray asfortranarray copy zeros_like ones_like empty_like full_like"
for _name in filter(namespace.__contains__, _NAMES.split()):
    LIFTED[getattr(np, _name)] = held_result(namespace[_name])
