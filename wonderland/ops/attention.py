"""Attention: out = softmax(scale q k^T + masks) v for each head, and the two linear maps of its derivatives.

Queries are (..., heads, queries, width), keys (..., groups, keys, width), values (..., groups, keys, value width), with
the same leading axes; heads is a multiple of groups, and heads that follow each other share the keys of a group. Masks
have as many axes, (..., heads, queries, keys), or 1 in the place of any extent: floats are added to the logits, bools
say which keys are seen. One of floats may have a number for each distance j - i instead of each pair, from
-(queries - 1) on, as (..., heads, 1, queries + keys - 1) (`by_distance`). By `band` = (low, high) query i sees the keys
j with low <= j - i <= high (None: no bound).

`lse` is the logarithm of the sum of the exponentials of each row, -inf where nothing is seen. It makes probabilities of
logits, p = exp(s - lse), tile by tile: neither they nor the logits are stored by compiled code. A change of the logits,
ds, changes lse by the row sums of p ds and the result by (p ds) v - dlse out. `attention_tangent` is the map from the
changes of the operands to (p ds) v + p dv and those row sums; `attention_cotangent` is its transpose. Derivatives of
the two, for the second order, are the plain formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from wonderland.core.primitive import Primitive
from wonderland.core.program import Program, Record
from wonderland.core.types import ArrayType, is_differentiable, shape_of, type_of
from wonderland.ops.dot import dot
from wonderland.ops.elementwise import add, div, eq, exp, log, maximum, mul, sub, unbroadcast, where
from wonderland.ops.index import slice as slice_primitive
from wonderland.ops.matrices import as_columns, total
from wonderland.ops.pattern import as_type, known
from wonderland.ops.reduce import max as reduce_max
from wonderland.ops.reduce import sum as reduce_sum
from wonderland.ops.shape import broadcast, reshape, zeros_like_type
from wonderland.ops.windows import fold, windows
from wonderland.ops.work import Work, work

Band = tuple[int | None, int | None]
_EACH = {"strides": (1,), "dilations": (1,), "padding": ((0, 0),)}  # windows at all places

# Formulas of values, in which None is zero ----------------------------------------------------------------------------


def _product(x: Any, y: Any, of_x: int = -1, of_y: int = -2) -> Any:
    """Matrices x y; other axes to sum over make it x y^T or x^T y."""
    if x is None or y is None:
        return None
    rank = len(shape_of(x))
    axes = tuple(range(rank - 2))
    return dot(x, y, contract=((of_x % rank,), (of_y % rank,)), batch=(axes, axes))


def _times(x: Any, y: Any) -> Any:
    return None if x is None or y is None else mul(x, y)


class _Heads:
    """Heads of one group become further queries of one head, so that its keys and values aren't repeated."""

    def __init__(self, q: Any, k: Any):
        (self.heads, self.queries), (self.groups, self.keys) = shape_of(q)[-3:-1], shape_of(k)[-3:-1]

    def joined(self, x: Any, axis: int = -3) -> Any:
        """What queries have, (..., heads, queries, width); of rows the axis of heads is the last but one."""
        if x is None or self.heads == self.groups:
            return x
        shape = shape_of(x)
        many = self.heads // self.groups * shape[axis + 1]
        return reshape(x, shape=(*shape[:axis], self.groups, many, *shape[len(shape) + axis + 2 :]))

    def split(self, x: Any) -> Any:
        """The other way."""
        if x is None or self.heads == self.groups:
            return x
        *lead, _, _, width = shape_of(x)
        return reshape(x, shape=(*lead, self.heads, self.queries, width))

    def operands(self, values: Sequence[Any]) -> list[Any]:
        """Queries, keys, values and masks, or changes of them."""
        q, k, v, *masks = values
        return [self.joined(q), k, v, *map(self._mask, masks)]

    def _mask(self, x: Any) -> Any:
        x = x if x is None else of_pairs(x, self.queries, self.keys)
        if x is None or self.heads == self.groups:
            return x
        *lead, _, _, keys = shape_of(x)
        return self.joined(broadcast(x, shape=(*lead, self.heads, self.queries, keys)))


def by_distance(shape: tuple[int, ...], queries: int, keys: int) -> bool:
    """Has a mask of this shape a number for each distance, instead of each pair? No others have such a shape."""
    return queries > 1 and keys > 0 and shape[-2:] == (1, queries + keys - 1)


def of_pairs(x: Any, queries: int, keys: int) -> Any:
    """A mask (..., queries, keys), or with 1 in the place of them; of one by distance a view."""
    shape = shape_of(x)
    if not by_distance(shape, queries, keys):
        return x
    found = windows(x, axes=(len(shape) - 1,), sizes=(keys,), **_EACH)  # (..., 1, queries, keys), by query + key
    found = reshape(found, shape=(*shape[:-2], queries, keys))
    return slice_primitive(found, index=_backwards(shape_of(found)))


def _of_distances(x: Any, shape: tuple[int, ...]) -> Any:
    """The transpose of `of_pairs`."""
    *lead, queries, keys = shape_of(x)
    x = reshape(slice_primitive(x, index=_backwards(shape_of(x))), shape=(*lead, 1, queries, keys))
    return fold(x, shape=shape, axes=(len(shape) - 1,), sizes=(keys,), **_EACH)


def _backwards(shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The last query first."""
    whole = [slice(0, n, 1) for n in shape]
    return *whole[:-2], slice(shape[-2] - 1, None, -1), whole[-1]


def band_mask(queries: int, keys: int, band: Band) -> np.ndarray:
    """Which keys each query sees."""
    place = np.arange(keys) - np.arange(queries)[:, None]
    low, high = band
    return (place >= (-queries if low is None else low)) & (place <= (keys if high is None else high))


def pairs_seen(queries: int, keys: int, band: Band) -> int:
    """How many there are of a query and a key that it sees, masks apart."""
    low, high = band
    i = np.arange(queries)
    first = np.maximum(i + (-queries if low is None else low), 0)
    last = np.minimum(i + (keys if high is None else high), keys - 1)
    return int(np.sum(np.maximum(last - first + 1, 0)))


def _logits(q: Any, k: Any, masks: Sequence[Any], queries: int, band: Band, scale: float) -> Any:
    s = _product(mul(q, scale), k, -1, -1)
    nothing = np.asarray(-np.inf, type_of(s).dtype)[()]
    for mask in sorted(masks, key=lambda mask: type_of(mask).dtype.kind == "b"):  # bools hide what is added, too
        s = where(mask, s, nothing) if type_of(mask).dtype.kind == "b" else add(s, mask)
    if band == (None, None):
        return s
    rows, keys = shape_of(s)[-2:]
    return where(np.tile(band_mask(queries, keys, band), (rows // max(queries, 1), 1)), s, nothing)


def _probabilities(q: Any, k: Any, masks: Sequence[Any], lse: Any, queries: int, band: Band, scale: float) -> Any:
    infinite = np.asarray(np.inf, type_of(lse).dtype)[()]
    shift = where(eq(lse, -infinite), infinite, lse)  # exp(-inf - inf) is 0, where nothing is seen
    return exp(sub(_logits(q, k, masks, queries, band, scale), as_columns(shift)))


def _change(q: Any, k: Any, moved: Sequence[Any], scale: float) -> Any:
    """The change of the logits, from those of queries, keys and masks."""
    dq, dk, _, *masks = moved
    products = _product(dq, k, -1, -1), _product(q, dk, -1, -1)
    return total(*(_times(x, scale) for x in products), *masks)


def _row_sums(x: Any) -> Any:
    return None if x is None else reduce_sum(x, axes=(len(shape_of(x)) - 1,))


def _moved(values: Sequence[Any], moving: Sequence[int], count: int) -> list[Any]:
    """One value for each of `count` operands: None for those that don't move."""
    given = dict(zip(moving, values, strict=True))
    return [given.get(i) for i in range(count)]


# The plain formula ----------------------------------------------------------------------------------------------------


def _types(q: ArrayType, k: ArrayType, v: ArrayType, *rest: ArrayType, **params: Any) -> tuple[ArrayType, ArrayType]:
    return ArrayType((*q.shape[:-1], v.shape[-1]), q.dtype), ArrayType(q.shape[:-1], q.dtype)


def _formula(q: Any, k: Any, v: Any, *masks: Any, band: Band, scale: float) -> tuple[Any, Any]:
    rows, heads = type_of(q), _Heads(q, k)
    q, k, v, *joined = heads.operands((q, k, v, *masks))
    s = _logits(q, k, joined, heads.queries, band, scale)
    axes, dtype = (len(shape_of(s)) - 1,), rows.dtype
    lowest = np.asarray(np.finfo(dtype).min, dtype)[()]  # no -inf, which less itself is NaN
    top = maximum(reduce_max(s, axes=axes), lowest) if shape_of(s)[-1] else np.full(shape_of(s)[:-1], lowest)
    p = exp(sub(s, as_columns(top)))
    sums = reduce_sum(p, axes=axes)
    nothing = eq(sums, 0)
    inverse = where(nothing, np.zeros((), dtype)[()], div(1.0, where(nothing, np.ones((), dtype)[()], sums)))
    lse = add(top, where(nothing, np.asarray(-np.inf, dtype)[()], log(where(nothing, np.ones((), dtype)[()], sums))))
    return heads.split(mul(_product(p, v), as_columns(inverse))), reshape(lse, shape=rows.shape[:-1])


def _jvp(primals: tuple, tangents: tuple, **params: Any) -> tuple[Any, Any]:
    out, lse = attention(*primals, **params)
    moving = tuple(i for i, t in enumerate(tangents) if t is not None)
    moved, change = attention_tangent(*primals, lse, *(tangents[i] for i in moving), moving=moving, **params)
    return (out, lse), (sub(moved, mul(out, as_columns(change))), change)


# The two maps of the derivatives --------------------------------------------------------------------------------------


def _tangent(*operands: Any, moving: tuple[int, ...], band: Band, scale: float) -> tuple[Any, Any]:
    count = len(operands) - 1 - len(moving)
    heads, lse = _Heads(*operands[:2]), operands[count]
    q, k, v, *masks = heads.operands(operands[:count])
    moved = heads.operands(_moved(operands[count + 1 :], moving, count))
    p = _probabilities(q, k, masks, heads.joined(lse, -2), heads.queries, band, scale)
    change = _times(p, _change(q, k, moved, scale))
    rows = zeros_like_type(type_of(lse)) if change is None else reshape(_row_sums(change), shape=shape_of(lse))
    return heads.split(total(_product(change, v), _product(p, moved[2]))), rows


def _change_of_p(p: Any, change: Any, lse: Any) -> Any:
    return _times(p, change if lse is None else sub(0.0 if change is None else change, as_columns(lse)))


def _tangent_jvp(primals: tuple, tangents: tuple, moving: tuple[int, ...], **params: Any) -> tuple[Any, Any]:
    out = attention_tangent(*primals, moving=moving, **params)
    count = len(primals) - 1 - len(moving)
    parts, given = [], dict(zip(moving, tangents[count + 1 :], strict=True))
    given = {i: t for i, t in given.items() if t is not None}
    if given:
        parts.append(attention_tangent(*primals[: count + 1], *given.values(), moving=tuple(given), **params))
    if any(t is not None for t in tangents[: count + 1]):
        heads, scale = _Heads(*primals[:2]), params["scale"]
        q, k, v, *masks = heads.operands(primals[:count])
        of_q, of_k, of_v, *of_masks = heads.operands(tangents[:count])
        dq, dk, dv, *_ = moved = heads.operands(_moved(primals[count + 1 :], moving, count))
        lse, of_lse = (heads.joined(x[count], -2) for x in (primals, tangents))
        p = _probabilities(q, k, masks, lse, heads.queries, **params)
        dp = _change_of_p(p, _change(q, k, (of_q, of_k, None, *of_masks), scale), of_lse)
        ds = _change(q, k, moved, scale)
        change = total(_times(dp, ds), _times(p, _change(of_q, of_k, (dq, dk, None), scale)))
        result = total(_product(change, v), _product(_times(p, ds), of_v), _product(dp, dv))
        rows = None if change is None else reshape(_row_sums(change), shape=shape_of(primals[count]))
        parts.append((heads.split(result), rows))
    return out, tuple(total(*terms) for terms in zip(*parts, strict=True))


def _tangent_transpose(cts: Sequence[Any], *operands: Any, moving: tuple[int, ...], **params: Any) -> tuple:
    given = operands[: -len(moving)]
    cts = [zeros_like_type(t) if ct is None else ct for ct, t in zip(cts, _types(*map(type_of, given)), strict=True)]
    return *(None for _ in given), *attention_cotangent(*given, *cts, moving=moving, **params)


def _cotangent_types(*operands: ArrayType, moving: tuple[int, ...], **params: Any) -> tuple[ArrayType, ...]:
    return tuple(ArrayType(operands[i].shape, operands[i].dtype) for i in moving)


def _fitted(found: Sequence[Any], heads: _Heads, operands: Sequence[Any], moving: tuple[int, ...]) -> tuple:
    """Cotangents of the operands that move; all masks have the last one."""
    of_q, of_k, of_v, of_masks = found
    found = heads.split(of_q), of_k, of_v, heads.split(of_masks)
    return tuple(
        found[i] if i < 3 or found[3] is None else _like(found[3], type_of(operands[i]), heads)
        for i in moving
    )  # fmt: skip


def _like(x: Any, mask: ArrayType, heads: _Heads) -> Any:
    """The cotangent of all pairs as that of a mask."""
    if not by_distance(mask.shape, heads.queries, heads.keys):
        return unbroadcast(x, mask)
    pairs = ArrayType((*mask.shape[:-2], heads.queries, heads.keys), mask.dtype)
    return _of_distances(unbroadcast(x, pairs), mask.shape)


def _cotangent(*operands: Any, moving: tuple[int, ...], band: Band, scale: float) -> tuple:
    *own, lse, ct, row = operands
    heads = _Heads(*own[:2])
    q, k, v, *masks = heads.operands(own)
    ct, row = heads.joined(ct), heads.joined(row, -2)
    p = _probabilities(q, k, masks, heads.joined(lse, -2), heads.queries, band, scale)
    w = mul(p, add(_product(ct, v, -1, -1), as_columns(row)))
    found = _times(_product(w, k), scale), _times(_product(w, q, -2, -2), scale), _product(p, ct, -2, -2), w
    return _fitted(found, heads, own, moving)


def _cotangent_jvp(primals: tuple, tangents: tuple, moving: tuple[int, ...], **params: Any) -> tuple[Any, Any]:
    out = attention_cotangent(*primals, moving=moving, **params)
    *own, lse, ct, row = primals
    *of_own, of_lse, of_ct, of_row = tangents
    parts = []
    if of_ct is not None or of_row is not None:
        cts = [zeros_like_type(type_of(x)) if t is None else t for x, t in ((ct, of_ct), (row, of_row))]
        parts.append(attention_cotangent(*own, lse, *cts, moving=moving, **params))
    if any(t is not None for t in (*of_own, of_lse)):
        heads, scale = _Heads(*own[:2]), params["scale"]
        q, k, v, *masks = heads.operands(own)
        of_q, of_k, of_v, *of_masks = heads.operands(of_own)
        ct, (lse, row, of_lse) = heads.joined(ct), (heads.joined(x, -2) for x in (lse, row, of_lse))
        p = _probabilities(q, k, masks, lse, heads.queries, **params)
        dp = _change_of_p(p, _change(q, k, (of_q, of_k, None, *of_masks), scale), of_lse)
        e = add(_product(ct, v, -1, -1), as_columns(row))
        w, dw = mul(p, e), total(_times(dp, e), _times(p, _product(ct, of_v, -1, -1)))
        of_queries = total(_product(dw, k), _product(w, of_k))
        of_keys = total(_product(dw, q, -2, -2), _product(w, of_q, -2, -2))
        found = _times(of_queries, scale), _times(of_keys, scale), _product(dp, ct, -2, -2), dw
        parts.append(_fitted(found, heads, own, moving))
    return out, tuple(total(*terms) for terms in zip(*parts, strict=True))


def _cotangent_transpose(cts: Sequence[Any], *operands: Any, moving: tuple[int, ...], **params: Any) -> tuple:
    given = operands[:-2]
    moved = {i: ct for i, ct in zip(moving, cts, strict=True) if ct is not None}
    return *(None for _ in given), *attention_tangent(*given, *moved.values(), moving=tuple(moved), **params)


# What the three share -------------------------------------------------------------------------------------------------


def _batch(primitive: Primitive, extra: Callable[[dict], int]) -> Callable:
    """A batch is one more leading axis. A mask that isn't batched has extent 1 there, if no cotangent of it is asked
    for, which each element of the batch has its own of."""

    def rule(size: int, args: tuple, batched: tuple, **params: Any) -> tuple:
        masks = range(3, len(args) - extra(params))
        full = []
        for i, (x, flag) in enumerate(zip(args, batched, strict=True)):
            repeated = i not in masks or i in params.get("moving", ())
            if not flag:
                shape = shape_of(x)
                x = broadcast(x, shape=(size, *shape)) if repeated else reshape(x, shape=(1, *shape))
            full.append(x)
        out = primitive(*full, **params)
        return out, (True,) * len(out)

    return rule


def _pattern(extra: Callable[[dict], int], cotangent: bool = False) -> Callable:
    """A query and a key that it sees read each other: all of their numbers, and those of the row and the mask."""

    def rule(types: tuple, params: dict) -> list:
        kinds = [as_type(t) for t in types]
        count, moving = len(types) - extra(params), params.get("moving", ())
        q, k = kinds[:2]
        lead, heads, keys = q.shape[:-3], q.shape[-3], k.shape[-2]
        grid = (*lead, heads, q.shape[-2], keys)
        seen = np.broadcast_to(band_mask(q.shape[-2], keys, params["band"]), grid)
        for mask in types[3:count]:
            if mask.dtype.kind == "b" and known(mask) is not None:
                seen = seen & mask

        def numbers(t: ArrayType, role: str) -> np.ndarray:
            """Those of its elements that belong to each pair that is seen, (pairs, numbers)."""
            each = np.arange(t.size).reshape(t.shape)
            if role == "mask":
                each = of_pairs(each, q.shape[-2], keys)
            if role == "keys":
                each = np.repeat(each, heads // max(t.shape[-3], 1), axis=-3)[..., None, :, :]
            elif role == "queries":
                each = each[..., None, :]
            else:
                each = each[..., None] if role == "mask" else each[..., None, None]
            return np.broadcast_to(each, (*grid, each.shape[-1]))[seen]

        own = ["queries", "keys", "keys", *["mask"] * (count - 3)]
        after = ["rows", "queries", "rows"] if cotangent else ["rows", *(own[i] for i in moving)]
        roles = [*own, *after] if extra(params) else own
        outs = [(kinds[i], own[i]) for i in moving] if cotangent else zip(_types(*kinds), ["queries", "rows"])
        rows = []
        for out, role in outs:
            places = numbers(out, role)
            row = []
            for t, of in zip(kinds, roles, strict=True):
                read = numbers(t, of)
                pair = np.broadcast_arrays(places[:, :, None], read[:, None, :])
                row.append(tuple(x.ravel() for x in pair) if is_differentiable(t.dtype) else None)
            rows.append(row)
        return rows

    return rule


def _cost(products: Callable[[dict], tuple[int, int]]) -> Callable:
    """So many products along the width, and along that of values; one exponential for each pair."""

    def rule(types: Sequence[ArrayType], outs: Sequence[ArrayType], params: dict) -> Work:
        of_width, of_values = products(params)
        *lead, queries, width = types[0].shape
        pairs = math.prod(lead) * pairs_seen(queries, types[1].shape[-2], params["band"])
        each = of_width * width + of_values * types[2].shape[-1]
        return work(types[0], pairs * (each + 1), pairs * each, pairs)

    return rule


@cache
def _recorded(formula: Callable, types: tuple[ArrayType, ...], **params: Any) -> Program:
    with Record() as level:
        inputs = [level.variable(t) for t in types]
        return level.finish(inputs, list(formula(*inputs, **params)))


def _plainly(formula: Callable) -> Callable:
    """Lowered as the formula that it is."""

    def lower(builder: Any, *nodes: Any, **params: Any) -> Any:
        return builder.program(_recorded(formula, tuple(ArrayType(n.shape, n.dtype) for n in nodes), **params), nodes)

    return lower


def _lower(builder: Any, q: Any, *nodes: Any, **params: Any) -> Any:
    k, v, *masks = nodes
    return builder.attention(q, k, v, *(lower_pairs(builder, m, q.shape[-2], k.shape[-2]) for m in masks), **params)


def lower_pairs(builder: Any, mask: Any, queries: int, keys: int) -> Any:
    """`of_pairs` in compiled code."""
    if not by_distance(mask.shape, queries, keys):
        return mask
    formula = _recorded(_one_of_pairs, (ArrayType(mask.shape, mask.dtype),), queries=queries, keys=keys)
    return builder.program(formula, [mask])[0]


def _one_of_pairs(x: Any, queries: int, keys: int) -> list[Any]:
    return [of_pairs(x, queries, keys)]


attention: Primitive = Primitive(
    "attention",
    _formula,
    _types,
    multiple=True,
    jvp=_jvp,
    pattern=_pattern(lambda params: 0),
    cost=_cost(lambda params: (1, 1)),
    lower=_lower,
    impossible={"transpose": "it isn't linear"},
)
attention.batch = _batch(attention, lambda params: 0)

attention_tangent: Primitive = Primitive(
    "attention_tangent",
    _tangent,
    _types,
    multiple=True,
    jvp=_tangent_jvp,
    transpose=_tangent_transpose,
    pattern=_pattern(lambda params: 1 + len(params["moving"])),
    cost=_cost(lambda params: (1 + sum(i < 2 for i in params["moving"]), 1 + (2 in params["moving"]))),
    lower=_plainly(_tangent),
)
attention_tangent.batch = _batch(attention_tangent, lambda params: 1 + len(params["moving"]))

attention_cotangent: Primitive = Primitive(
    "attention_cotangent",
    _cotangent,
    _cotangent_types,
    multiple=True,
    jvp=_cotangent_jvp,
    transpose=_cotangent_transpose,
    pattern=_pattern(lambda params: 3, cotangent=True),
    cost=_cost(lambda params: (1 + sum(i < 2 for i in params["moving"]), 1 + (2 in params["moving"]))),
    lower=lambda builder, *nodes, **params: builder.attention_cotangent(*nodes, **params),
)
attention_cotangent.batch = _batch(attention_cotangent, lambda params: 3)
