"""The functions of attention: an element type comes in, a module of LLVM IR or the address of its code goes out.

    void wl_attention_f32(ptr words)            the words of `attention_forward`, 8 bytes each
    void wl_attention_few_f32(ptr words)        the same, for few queries
    void wl_attention_cotangent_f32(ptr words)  those of `attention_back`

All sizes are among the words, so that one function does all of it. Which task does what depends on them alone: results
are the same to the bit for any number of threads.
"""

from __future__ import annotations

from functools import cache, partial

from wonderland.compile import attention_back, attention_few, attention_forward, ir, pool
from wonderland.compile.attention_tiles import attention_tile
from wonderland.compile.gemm_tile import Fields, Tile, begin
from wonderland.compile.ir import POINTER, RARE, VOID, Function


@cache
def external(name: str, dtype: str) -> ir.External:
    """One of the functions, for those who call it from other modules."""
    return ir.Resident(partial(definition, name, dtype)).external(f"wl_{name}_{dtype}", VOID, (POINTER,))


def definition(name: str, dtype: str) -> ir.Module:
    """One of the functions, and what it calls."""
    t = attention_tile(dtype)
    work = {"attention": attention_forward.block, "attention_few": attention_few.row}.get(name, attention_back.segment)
    return ir.Module(_run(t, name, words_of(name), work(t)), as_written=True)


def words_of(name: str) -> str:
    """What one of the functions is given."""
    return attention_back.WORDS if name == "attention_cotangent" else attention_forward.WORDS


def _run(t: Tile, name: str, words: str, work: Function) -> Function:
    """Tasks 0 to `total`, on as many threads as there are, but no more than `lanes`.

    A lane takes tasks until there are none left, so that only lanes that a thread has found touch their scratch, of
    `room` elements each.
    """
    lane, (context, number) = begin(t, "lane", "context& number", RARE)
    total, room, scratch = Fields(lane, t, words, context).get("total room scratch")
    own = scratch.aligned().at(number * room)
    with lane.forever() as leave:
        task = lane.atomic("add", context, lane.constant(1), "monotonic")  # `next`, the first word
        leave(task >= total)
        lane.call(work, context, task, own)
    f, (context,) = begin(t, f"wl_{name}_{t.dtype}", "words&", RARE, exported=True)
    f.call(pool.PARALLEL, f.at(lane), context, *Fields(f, t, words, context).get("lanes"))
    return f
