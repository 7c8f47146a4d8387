"""Attention in compiled code: nodes of queries, keys, values and masks come in, those of the results go out.

Operands are read where they lie if they are contiguous along the width, and copied otherwise. Results lie in memory as
the operands do that they belong to: heads that were split off a row of features can be joined again without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.compile import attention_back, attention_code, attention_few, attention_forward, ir, pool
from wonderland.compile.attention_tiles import FAR, attention_tile, double_bits, queries_of, room_for
from wonderland.compile.gemm_tile import NAMES, ceil_div, types
from wonderland.compile.memory import Buffer
from wonderland.compile.nodes import STEP, Node, Number, Several
from wonderland.compile.scalars import Unsupported
from wonderland.compile.steps import Step
from wonderland.core.types import ArrayType
from wonderland.ops.attention import by_distance, lower_pairs, pairs_seen

LEAST_WORK = 1 << 17  # multiply-adds that are worth a thread
NANOSECONDS = 0.02  # of a multiply-add
FEW_QUERIES = 4  # which wouldn't fill a tile
SEGMENTS_TOGETHER, LEAST_KEYS = 16, 256  # tasks that there should be, if a segment then has so many keys
Shape = tuple[int, ...]
Place = tuple[Buffer, int]  # with an offset in bytes


class Attended(Several):
    """Attention, or the transpose of its derivative: a call of native code over all heads."""

    def __init__(self, name: str, arrays: dict[str, Node], numbers: dict[str, int], room: int, work: float):
        super().__init__()
        self.name: str = name
        self.arrays: dict[str, Node] = arrays  # by the words for them
        self.numbers: dict[str, int] = numbers
        self.room: int = room  # elements of scratch for a piece
        self.work: float = work
        self.words: dict[str, str] = dict(types(attention_code.words_of(name)))
        self.into: tuple[str, ...] = ()  # the words for the results

    @property
    def memory(self) -> tuple[Node, ...]:
        return tuple(n.base for n in self.arrays.values())

    @property
    def nanoseconds(self) -> float:
        return STEP + NANOSECONDS * self.work

    def plan(self, plan: Any, position: int) -> None:
        lanes = max(1, min(self.numbers["total"], pool.size(), int(self.work / LEAST_WORK)))
        scratch = plan.scratch(lanes * self.room * self.made[0].dtype.itemsize + 128)
        places = {name: (plan.memory[n.base], n.layout[0] * n.dtype.itemsize) for name, n in self.arrays.items()}
        made = {name: (plan.own(r), 0) for name, r in zip(self.into, self.made, strict=True)}
        numbers = {**self.numbers, "next": 0, "lanes": lanes, "room": self.room}
        plan.add(RunAttended(self, places, made, scratch, numbers), NANOSECONDS * self.work)

    def __str__(self) -> str:
        return f"{self.name} {', '.join(str(r.type) for r in self.made)}"


class RunAttended(Step):
    """The call."""

    is_long = True

    def __init__(
        self, node: Attended, places: dict[str, Place], made: dict[str, Place], scratch: Buffer, numbers: dict[str, int]
    ):  # fmt: skip
        self.node: Attended = node
        self.places: dict[str, Place] = {**places, **made, "scratch": (scratch, 0)}
        self.changed: list[Buffer] = [scratch, *(buffer for buffer, _ in made.values())]
        self.numbers: dict[str, int] = numbers

    @property
    def touched(self) -> list[Buffer]:
        return [buffer for buffer, _ in self.places.values()]

    @property
    def written(self) -> list[Buffer]:
        return self.changed

    def emit(self, out: Any, f: ir.Function) -> None:
        words = []
        for name, type in self.node.words.items():
            if type == ir.POINTER:
                words.append(out.pointer(f, *self.places[name]) if name in self.places else ir.constant(None, type))
            else:
                words.append(out.entry(f, self.numbers[name]))
        dtype = NAMES[self.node.made[0].dtype.itemsize]
        f.call(attention_code.external(self.node.name, dtype), out.record(f, words))

    def __str__(self) -> str:
        return str(self.node)


def _is_empty(q: Node, k: Node, v: Node) -> bool:
    """Is there no pair of a query and a key?"""
    if 0 in (*q.shape[:-1], k.shape[-2]):
        return True
    if 0 in (q.shape[-1], v.shape[-1]):
        raise Unsupported("rows without numbers")
    return False


def _stacked(builder: Any, x: Node) -> Node:
    """An operand as (batch, heads, time, width), contiguous along the width."""
    x = builder.solid(x)
    x = builder.reshape(x, (math.prod(x.shape[:-3]), *x.shape[-3:]))
    return x if x.shape[-1] == 1 or x.layout[1][-1] == 1 else builder.copy(x)


def _strides(words: str, x: Node) -> dict[str, int]:
    return dict(zip(words.split(), x.layout[1], strict=False))


def _masks(builder: Any, masks: Sequence[Node], shape: Shape, lead: Shape) -> tuple[dict[str, Node], dict[str, int]]:
    """The sum of those that are added, and the conjunction of the others."""
    arrays: dict[str, Node] = {}
    numbers: dict[str, int] = dict.fromkeys("bn bh bt bj mn mh mt mj".split(), 0)
    for mask in masks:
        name = "mask" if mask.dtype.kind == "b" else "bias"
        if name in arrays:
            mask = builder.map(_both if name == "mask" else _sum, [arrays[name], mask], mask.dtype)
        arrays[name] = mask
    for name, mask in arrays.items():
        if any(n != 1 for n in mask.shape[:-3]):
            mask = builder.broadcast(mask, (*lead, *mask.shape[-3:]))
        mask = builder.solid(mask)
        mask = builder.reshape(mask, (math.prod(mask.shape[:-3]), *mask.shape[-3:]))
        arrays[name] = builder.broadcast(mask, shape)
        letter = name[0]
        numbers |= _strides(f"{letter}n {letter}h {letter}t {letter}j", arrays[name])
    return arrays, numbers


def _both(e: Any, x: Any, y: Any) -> Any:
    return e.bit_and(x, y)


def _sum(e: Any, x: Any, y: Any) -> Any:
    return e.add(x, y)


def _sizes(q: Node, k: Node, v: Node, band: tuple[int | None, int | None], scale: float) -> dict[str, int]:
    low, high = band
    return {
        "heads": q.shape[1], "group": q.shape[1] // k.shape[1], "queries": q.shape[2], "keys": k.shape[2],
        "width": q.shape[3], "values": v.shape[3], "scale": double_bits(scale),
        "low": -FAR if low is None else low, "high": FAR if high is None else high,
    }  # fmt: skip


def _time_first(x: Node) -> bool:
    """Do heads lie inside of time?"""
    _, heads, time, _ = x.layout[1]
    return x.shape[1] > 1 and x.shape[2] > 1 and heads < time


def _made(builder: Any, node: Attended, results: dict[str, tuple[Shape, bool]], dtype: np.dtype) -> list[Node]:
    """Results by their words: shape (..., heads, time, width), and whether time comes first in memory."""
    swapped = lambda s: (*s[:-3], s[-2], s[-3], s[-1])
    types = [ArrayType(swapped(s) if first else s, dtype) for s, first in results.values()]
    node.into = tuple(results)
    node.made = made = tuple(map(Node, types))
    for x in (builder.keep(node), *made):
        x.region = builder.region
    axes = [tuple(range(len(t.shape))) for t in types]
    firsts = [first for _, first in results.values()]
    return [builder.transpose(x, swapped(a)) if first else x for x, a, first in zip(made, axes, firsts, strict=True)]


def _result_strides(words: str, shape: Shape, first: bool) -> dict[str, int]:
    """Strides of a result (batch, heads, time, width)."""
    _, heads, time, width = shape
    by_head, by_time = (width, heads * width) if first else (time * width, width)
    return dict(zip(words.split(), (heads * time * width, by_head, by_time), strict=True))


def lower(builder: Any, q: Node, k: Node, v: Node, *masks: Node, band: Any, scale: float) -> tuple[Node, Node]:
    """The result, and the logarithm of the sum of exponentials of each row."""
    shape, lead = (*q.shape[:-1], v.shape[-1]), q.shape[:-3]
    if _is_empty(q, k, v):
        return Number(ArrayType(shape, q.dtype), 0), Number(ArrayType(q.shape[:-1], q.dtype), -np.inf)
    q, k, v = (_stacked(builder, x) for x in (q, k, v))
    n, heads, queries, width = q.shape
    sizes = _sizes(q, k, v, band, scale)
    arrays, strides = _masks(builder, masks, (n, heads, queries, k.shape[2]), lead)
    t = attention_tile(NAMES[q.dtype.itemsize])
    few, first = queries <= FEW_QUERIES, _time_first(q)
    blocks = queries if few else ceil_div(queries, queries_of(t))
    numbers = {
        **sizes, **strides, **_strides("qn qh qt", q), **_strides("kn kh kt", k), **_strides("vn vh vt", v),
        **_result_strides("on oh ot", (n, heads, queries, v.shape[3]), first), "blocks": blocks,
        "total": n * heads * blocks,
    }  # fmt: skip
    room = room_for(attention_few.room(t, k.shape[2]) if few else attention_forward.room(t, width, v.shape[3]))
    work = n * heads * pairs_seen(queries, k.shape[2], band) * (width + v.shape[3])
    node = Attended("attention_few" if few else "attention", {"q": q, "k": k, "v": v, **arrays}, numbers, room, work)
    out, lse = _made(
        builder, node, {"out": ((n, heads, queries, v.shape[3]), first), "lse": ((n, heads, queries), False)}, q.dtype
    )
    return builder.reshape(out, shape), builder.reshape(lse, shape[:-1])


def lower_cotangent(builder: Any, *nodes: Node, moving: tuple[int, ...], band: Any, scale: float) -> tuple[Node, ...]:
    """Cotangents of the operands that move."""
    *own, lse, given, row = nodes
    lead = own[0].shape[:-3]
    if _is_empty(*own[:3]):
        return tuple(Number(ArrayType(own[i].shape, own[i].dtype), 0) for i in moving)
    q, k, v, given = (_stacked(builder, x) for x in (*own[:3], given))
    lse, row = (builder.memory(x) for x in (lse, row))
    (n, heads, queries, width), (_, groups, keys, values) = q.shape, v.shape
    sizes = _sizes(q, k, v, band, scale)
    masks = [lower_pairs(builder, mask, queries, keys) for mask in own[3:]]
    arrays, strides = _masks(builder, masks, (n, heads, queries, keys), lead)
    segments = max(1, min(ceil_div(SEGMENTS_TOGETHER, n * groups), keys // LEAST_KEYS))
    segment = ceil_div(keys, segments)
    results = {
        "dq": ((segments, n, heads, queries, width), _time_first(q)),
        "dk": ((n, groups, keys, width), _time_first(k)), "dv": ((n, groups, keys, values), _time_first(v)),
    }  # fmt: skip
    letters = {"dq": "xn xh xt", "dk": "yn yh yt", "dv": "zn zh zt"}
    for name, (shape, first) in results.items():
        strides |= _result_strides(letters[name], shape[-4:], first)
    along = {i for i in moving if i > 2 and by_distance(own[i].shape, queries, keys)}
    reach = queries + keys - 1
    if along:
        results["dd"] = ((segments, n, heads, reach), False)
    if any(i > 2 and i not in along for i in moving):
        results["dw"] = ((n, heads, queries, keys), False)
    numbers = {
        **sizes, **strides, **_strides("qn qh qt", q), **_strides("kn kh kt", k), **_strides("vn vh vt", v),
        **_strides("gn gh gt", given), "segments": segments, "segment": segment, "part": q.type.size,
        "reach": reach, "span": n * heads * reach,
        "total": n * groups * segments,
    }  # fmt: skip
    room = room_for(attention_back.room(attention_tile(NAMES[q.dtype.itemsize]), width, values, segment))
    work = n * heads * pairs_seen(queries, keys, band) * (3 * width + 2 * values)
    arrays |= {"q": q, "k": k, "v": v, "lse": lse, "given": given, "row": row}
    node = Attended("attention_cotangent", arrays, numbers, room, work)
    made = dict(zip(results, _made(builder, node, results, q.dtype), strict=True))
    if along:
        dd = builder.reduce(made["dd"], (0,), "add")
        made["dd"] = builder.reshape(dd, (n, heads, 1, reach))
    out = []
    for i in moving:
        name, shape = "dq dk dv".split()[i] if i < 3 else "dd" if i in along else "dw", own[i].shape
        x = builder.reduce(made[name], (0,), "add") if name == "dq" else made[name]
        if i > 2:
            x = builder.reshape(x, (*lead, *x.shape[1:]))
            x = builder.reduce(x, tuple(a for a, extent in enumerate(shape) if extent == 1 != x.shape[a]), "add")
        out.append(builder.reshape(x, shape))
    return tuple(out)
