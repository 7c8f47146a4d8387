"""`wl.attention`: arrays or traced arrays of queries, keys and values come in, the weighted means of values go out."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from wonderland.core.functions import handles
from wonderland.core.types import promote, shape_of, type_of
from wonderland.numpy.join import as_value
from wonderland.numpy.reduce import as_dtype
from wonderland.ops import attention as ops
from wonderland.ops.elementwise import mul
from wonderland.ops.shape import broadcast, reshape


def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    bias: Any = None,
    causal: bool = False,
    scale: Any = None,
    window: int | tuple[int | None, int | None] | None = None,
    align: str = "end",
    by_distance: Any = None,
) -> Any:
    """Scaled dot-product attention, `softmax(scale * q @ k.T + bias) @ v` for each head.

    The conventions are PyTorch's: `q` is (..., heads, queries, width), `k` (..., groups, keys, width), `v` (...,
    groups, keys, value width), and the result (..., heads, queries, value width). `scale` is 1 / sqrt(width) unless it
    is given. Heads may be a multiple of groups: those that follow each other share keys and values. Leading axes are
    broadcast.

    A boolean `mask` is True where a query sees a key; one of floats is added to the logits, and so is `bias`. Both are
    broadcast to (..., heads, queries, keys). With `causal`, a query sees the keys up to its own place; with `window`,
    an integer, only that many of the latest keys up to its own, and with `window` = (left, right) so many keys before
    and after its own (None: all). If there are more keys than queries, the last query is at the last key, as it is
    with a cache of keys; `align="start"` puts the first query at the first key, as PyTorch does.

    `by_distance`, (..., heads, queries + keys - 1), is a bias that depends on the places of key and query by their
    difference: its number m is for the keys j and queries i with j - i = m - (queries - 1). It is broadcast, too, but
    for the last axis.

    A query that sees nothing gets zeros, and so do its gradients. In compiled code, forward and backward, memory grows
    with the number of queries and keys, not with their product.
    """
    arrays = [as_value(x) for x in (q, k, v)]
    extra = [_of_kind(name, x) for name, x in (("mask", mask), ("bias", bias)) if x is not None]
    distances = [] if by_distance is None else [_of_kind("bias", by_distance)]
    lead, queries, keys, width = _shapes(arrays, extra, distances)
    extra += [reshape(x, shape=(*shape_of(x)[:-1], 1, shape_of(x)[-1])) for x in distances]
    dtype = promote(*map(type_of, (*arrays, *(x for x in extra if type_of(x).dtype.kind != "b"))))[0]
    dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
    arrays = [_spread(as_dtype(x, dtype), lead) for x in arrays]
    masks = [_mask(x, dtype, len(lead) + 3) for x in extra]
    if scale is None:
        scale = 1.0 / math.sqrt(max(width, 1))
    elif not isinstance(scale, (int, float, np.integer, np.floating)):
        arrays[0], scale = _scaled(arrays[0], as_value(scale), dtype), 1.0
    band = _band(causal, window, align, keys - queries)
    out = ops.attention(*arrays, *masks, band=band, scale=float(scale))[0]
    return handles([out])[0]


def _of_kind(name: str, x: Any) -> Any:
    """A mask or bias whose numbers have one meaning only; numbers of Python's are weak, and decide no dtype."""
    x = x if type(x) in (int, float) else as_value(x)
    kind = type_of(x).dtype.kind
    if name == "mask" and kind in "iu":
        raise TypeError(
            "attention: a mask of bools says which keys are seen, one of floats is added to the logits; got integers, "
            f"{type_of(x)}: write mask.astype(bool), or bias=mask if they are to be added"
        )
    if name == "bias" and kind == "b":
        raise TypeError(f"attention: a bias is added to the logits, got bools, {type_of(x)}: as a mask they are mask=")
    return x


def _shapes(arrays: list, extra: list, distances: list) -> tuple[tuple[int, ...], int, int, int]:
    """Leading axes, queries, keys and width, if all fit."""
    q, k, v = map(shape_of, arrays)
    told = f"q {q}, k {k}, v {v}"
    if min(map(len, (q, k, v))) < 3:
        raise ValueError(f"attention takes (..., heads, time, width), got {told}: for one head write q[None]")
    if q[-1] != k[-1] or k[-3:-1] != v[-3:-1]:
        raise ValueError(
            f"attention: q and k have the same width, k and v the same groups and keys, got {told}. The axes are "
            "(..., heads, time, width): from (..., time, heads, width) they come by np.swapaxes(x, -3, -2)."
        )
    if q[-3] != k[-3] and (k[-3] == 0 or q[-3] % k[-3]):
        raise ValueError(f"attention: the heads of q are a multiple of those of k and v, got {told}")
    for x in (*arrays, *distances, *(x for x in extra if type_of(x).dtype.kind != "b")):
        if type_of(x).dtype.kind not in "fiu":
            raise TypeError(f"attention is of real numbers, and masks of those or of bools; got {type_of(x)}")
    leads = q[:-3], k[:-3], v[:-3], *(shape_of(x)[:-3] for x in extra), *(shape_of(x)[:-2] for x in distances)
    try:
        lead = np.broadcast_shapes(*leads)
    except ValueError:
        told = ", ".join([told, *(f"a mask or bias {shape_of(x)}" for x in (*extra, *distances))])
        raise ValueError(f"attention: the axes before the heads are broadcast, and can't be here: {told}") from None
    whole = (*lead, q[-3], q[-2], k[-2])
    for shape in map(shape_of, extra):
        if any(n not in (1, of) for n, of in zip(shape[:-4:-1], whole[::-1], strict=False)):
            raise ValueError(f"attention: a mask is broadcast to (..., heads, queries, keys) = {whole}, got {shape}")
    for shape in map(shape_of, distances):
        if shape[-1:] != (max(q[-2] + k[-2] - 1, 0),) or (len(shape) > 1 and shape[-2] not in (1, q[-3])):
            wanted = f"(..., {q[-3]}, {q[-2] + k[-2] - 1})"
            raise ValueError(f"attention: by_distance is (..., heads, queries + keys - 1), here {wanted}, got {shape}")
    return lead, q[-2], k[-2], q[-1]


def _scaled(q: Any, scale: Any, dtype: np.dtype) -> Any:
    shape, own = shape_of(q), shape_of(scale)
    if type_of(scale).dtype.kind not in "fiu":
        raise TypeError(f"attention: a scale is a real number, or an array of those, got {type_of(scale)}")
    if len(own) > len(shape) or any(n not in (1, of) for n, of in zip(own[::-1], shape[::-1], strict=False)):
        raise ValueError(f"attention: a scale is a number, or broadcast to the queries, {shape}, got {own}")
    return as_dtype(mul(q, scale), dtype)


def _spread(x: Any, lead: tuple[int, ...]) -> Any:
    shape = (*lead, *shape_of(x)[-3:])
    return x if shape_of(x) == shape else broadcast(x, shape=shape)


def _mask(x: Any, dtype: np.dtype, rank: int) -> Any:
    """With as many axes as the queries, of extent 1 where it is broadcast."""
    x = x if type_of(x).dtype.kind == "b" else as_dtype(x, dtype)
    missing = rank - len(shape_of(x))
    return reshape(x, shape=(1,) * missing + shape_of(x)) if missing else x


def _band(causal: bool, window: Any, align: str, shift: int) -> tuple[int | None, int | None]:
    """The first and the last key that a query sees, counted from the query's number."""
    if align not in ("start", "end"):
        raise ValueError(f'attention: align is "end" or "start", got {align!r}')
    left, right = ends_of(window)
    right = 0 if causal else right
    shift = shift if align == "end" else 0
    return None if left is None else shift - left, None if right is None else shift + right


def ends_of(window: Any) -> tuple[int | None, int | None]:
    """How many keys before and after its own a query sees; None: all."""
    if window is None:
        return None, None
    try:
        ends = tuple(window) if isinstance(window, (tuple, list)) else (operator.index(window) - 1, 0)
        ends = tuple(n if n is None else operator.index(n) for n in ends)
        fits = len(ends) == 2 and all(n is None or n >= 0 for n in ends)
    except TypeError:
        ends, fits = (None, None), False
    if not fits:
        raise ValueError(f"attention: a window is a positive number of keys, or (left, right), got {window!r}")
    return ends  # type: ignore[return-value]
