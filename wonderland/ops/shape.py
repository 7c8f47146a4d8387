"""Primitives that move elements without computing: broadcast, reshape, transpose, convert.

All are linear; the compiler sees the first three as views (strides), not as work.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from wonderland.core.level import running
from wonderland.core.primitive import Linear, Primitive
from wonderland.core.program import COMPUTED
from wonderland.core.types import ArrayType, broadcast_shapes, is_differentiable, shape_of, type_of
from wonderland.ops.elementwise import real, unbroadcast
from wonderland.ops.reading import elementwise_pattern
from wonderland.ops.work import view


def zeros_like_type(type: ArrayType, real: bool = False) -> Any:
    """Zeros of a type: one number seen many times, unless `real` memory is wanted (to accumulate into).

    What is recorded has no memory: an array of zeros would be a constant that the Program keeps.
    """
    if real and type.shape and not any(level.once for level in running()):
        return np.zeros(type.shape, type.dtype)
    zero = np.zeros((), type.dtype)[()]
    return _broadcast(zero, type.shape) if type.shape else zero


def moved_pattern(primitive: Primitive) -> Any:
    """The pattern of an operation that only moves elements: what it does to the elements' numbers."""

    def pattern(types: tuple[ArrayType, ...], params: dict) -> list:
        numbers = np.arange(types[0].size).reshape(types[0].shape)
        source = np.asarray(primitive.evaluate(numbers, **params)).ravel()
        return [(np.arange(source.size), source)]

    return pattern


def _broadcast_infer(x: ArrayType, shape: tuple) -> ArrayType:
    try:
        fits = broadcast_shapes(x.shape, shape) == tuple(shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"can't broadcast an array of shape {x.shape} to shape {shape}")
    return ArrayType(tuple(shape), x.dtype)


def _broadcast_batch(size: int, args: tuple, batched: tuple, shape: tuple) -> Any:
    (x,) = args
    rank = len(shape_of(x)) - 1
    x = reshape(x, shape=(shape_of(x)[0], *(1,) * (len(shape) - rank), *shape_of(x)[1:]))
    return broadcast(x, shape=(size, *shape))


def _broadcast(x: Any, shape: tuple) -> Any:
    if not isinstance(x, np.ndarray):
        x = np.asarray(x)[()]  # a NumPy number, which nobody can write to
    if isinstance(x, np.generic) or (type(x) is np.ndarray and x.flags.c_contiguous and x.size):
        strides = _repeating(x.shape, x.strides, shape)
        if strides is not None:
            return np.ndarray(shape, x.dtype, x, 0, strides)  # np.broadcast_to, in an eighth of its time
    return np.broadcast_to(x, shape)


@lru_cache(4096)
def _repeating(shape: tuple, strides: tuple, goal: tuple) -> tuple[int, ...] | None:
    """The strides of an array that is broadcast; None if it can't be."""
    lead = len(goal) - len(shape)
    if lead < 0 or any(m not in (1, n) for m, n in zip(shape, goal[lead:], strict=True)):
        return None
    return (*(0,) * lead, *(0 if m == 1 else s for m, s in zip(shape, strides, strict=True)))


broadcast: Primitive = Primitive(
    "broadcast",
    _broadcast,
    _broadcast_infer,
    linear=(0,),
    balanced=True,
    transpose=lambda ct, x, shape: (unbroadcast(ct, x),),
    batch=_broadcast_batch,
    lower=lambda builder, x, shape: builder.broadcast(x, shape),
    cost=view,
)
broadcast.pattern = moved_pattern(broadcast)


def _one_number(array: Any) -> tuple[Primitive, tuple, dict] | None:
    """One number that is seen many times stays one."""
    if type(array) is not np.ndarray or array.size < 2 or array.strides[-1] != 0 or any(array.strides):
        return None
    return broadcast, (array[(0,) * array.ndim],), {"shape": array.shape}


COMPUTED.append(_one_number)


def _reshape_infer(x: ArrayType, shape: tuple) -> ArrayType:
    if math.prod(shape) != x.size:
        raise ValueError(f"cannot reshape array of size {x.size} (shape {x.shape}) into shape {shape}")
    return ArrayType(tuple(shape), x.dtype)


def _reshape(x: Any, shape: tuple) -> Any:
    if type(x) is not np.ndarray:
        return np.reshape(x, shape)[()] if shape == () else np.reshape(x, shape)
    return x.reshape(shape) if shape else x.reshape(shape)[()]


reshape: Primitive = Primitive(
    "reshape",
    _reshape,
    _reshape_infer,
    linear=(0,),
    balanced=True,
    transpose=lambda ct, x, shape: (reshape(ct, shape=x.shape),),
    batch=lambda size, args, batched, shape: reshape(args[0], shape=(shape_of(args[0])[0], *shape)),
    lower=lambda builder, x, shape: builder.reshape(x, shape),
    cost=view,
)
reshape.pattern = moved_pattern(reshape)


def inverse_permutation(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes this one."""
    out = [0] * len(permutation)
    for i, p in enumerate(permutation):
        out[p] = i
    return tuple(out)


transpose: Primitive = Primitive(
    "transpose",
    lambda x, permutation: np.transpose(x, permutation),
    lambda x, permutation: ArrayType(tuple(x.shape[p] for p in permutation), x.dtype),
    linear=(0,),
    balanced=True,
    transpose=lambda ct, x, permutation: (transpose(ct, permutation=inverse_permutation(permutation)),),
    batch=lambda size, args, batched, permutation: transpose(args[0], permutation=(0, *(p + 1 for p in permutation))),
    lower=lambda builder, x, permutation: builder.transpose(x, permutation),
    cost=view,
)
transpose.pattern = moved_pattern(transpose)


def _convert(x: Any, dtype: np.dtype) -> Any:
    if type(x) is np.ndarray and x.ndim and x.dtype.kind != "c":
        return x.astype(dtype)
    if type_of(x).dtype.kind == "c" and dtype.kind in "fiu":
        x = np.real(x)
    return np.asarray(x).astype(dtype)[()]


def _convert_jvp(primals: tuple, tangents: tuple, dtype: np.dtype) -> tuple[Any, Any]:
    out = convert(primals[0], dtype=dtype)
    return out, convert(tangents[0], dtype=dtype) if is_differentiable(dtype) else None


def _convert_transpose(ct: Any, x: Linear, dtype: np.dtype) -> tuple:
    if type_of(ct).dtype.kind == "c" and x.dtype.kind != "c":
        ct = real(ct)
    return (convert(ct, dtype=x.dtype),)


convert: Primitive = Primitive(
    "convert",
    _convert,
    lambda x, dtype: ArrayType(x.shape, dtype),
    jvp=_convert_jvp,
    transpose=_convert_transpose,
    linear=(0,),
    balanced=True,
    batch=lambda size, args, batched, dtype: convert(args[0], dtype=dtype),
    pattern=elementwise_pattern,
    lower=lambda builder, x, dtype: builder.convert(x, dtype),
)
