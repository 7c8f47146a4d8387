"""Arguments that share no memory: the slots of a call come in, a function that tells goes out.

Written arguments share none with anything, and those of a group none with each other: which arrays of a Module are the
same is part of what was compiled, also where nothing is written.
A range is the bytes [start, end) of an array, as two words: start and 2 * end + (is it written, or in a group?); the
second is 0 if the array is empty or a Python scalar.
"""

from __future__ import annotations

from wonderland.compile.entry_layout import CACHE_LINE, FEW, KNOWN
from wonderland.compile.ir import BOOL, BYTE, INT, LONG, POINTER, External, Function, Value, array
from wonderland.compile.native import NO, YES, Struct, item, native, record, within

RANGE = array(LONG, 2)
COMPARE = External("memcmp", INT, (POINTER, POINTER, LONG))


@native("spec* block*", BOOL)
def disjoint(f: Function, spec: Struct, block: Struct) -> Value:
    """Does every written argument share memory with nothing else, and none with another one of its group?

    The slots of the block's last calls that were found so are kept: calls with the same arrays, of one model or of a
    few in turn, aren't checked again, and of calls like an earlier one only what moved.
    """
    slots = f.element(BYTE, block, CACHE_LINE)
    known, size, calls = within(block, spec["known"]), spec["slot_bytes"], block["calls"]
    kept = f.min(calls, KNOWN, signed=False)
    with f.loop(0, kept) as k:
        f.ret_if(f.call(COMPARE, slots, f.element(BYTE, known, k * size), size).equals(0), YES)
    f.ret_if(~f.call(_compare(), spec, block, kept), NO)
    f.copy(f.element(BYTE, known, (calls % KNOWN) * size), slots, size)
    f.store(calls + 1, block.at("calls"))
    return YES


@native("spec* block* kept", BOOL)
def _compare(f: Function, spec: Struct, block: Struct, kept: Value) -> Value:
    """Only what moved since one of the `kept` calls, if that is little, otherwise all."""
    count, ranges, meets = spec["range_count"], _ranges(f, spec, block), _meets()
    with f.loop(0, kept) as k:
        earlier = f.element(BYTE, within(block, spec["known"]), k * spec["slot_bytes"])
        some = f.call(_moved(), spec, block, earlier)
        with f.when(some <= FEW):
            f.ret(f.call(_disjoint_few(meets), spec, ranges, within(block, spec["changed"]), some))
    f.ret_if(f.call(_disjoint_all(), ranges, count), YES)
    _ranges(f, spec, block)  # they were sorted; and that was too strict where arguments of two groups meet
    with f.loop(0, spec["input_count"]) as i:
        f.ret_if(f.call(meets, spec, ranges, i), NO)
    return YES


def _ranges(f: Function, spec: Struct, block: Struct) -> Value:
    """The ranges of the arguments, then of the arrays that the code reads by itself, into the block."""
    inputs, count, ranges = spec["inputs"], spec["input_count"], within(block, spec["ranges"])
    with f.loop(0, count) as i:
        one, place = record("input", inputs, i), f.element(RANGE, ranges, i)
        slot, size = within(block, one["slot"]), f.variable(one["bytes"])
        with f.when(one["dynamic"].differs(0)):
            size.set(size.get() * f.load(LONG, f.element(LONG, slot, 1)))
        start, size = f.load(LONG, slot), size.get()
        f.store(start, place)
        alone = (one["written"] | one["group"]).differs(0).convert(LONG, signed=False)
        f.store(f.select(size.equals(0), 0, (start + size) << 1 | alone), f.element(LONG, place, 1))
    f.copy(f.element(RANGE, ranges, count), spec["captured"], (spec["range_count"] - count) * 16)
    return ranges


def _range(f: Function, ranges: Value, i: Value) -> tuple[Value, Value, Value]:
    """Start, end, and the second word."""
    place = f.element(RANGE, ranges, i)
    tail = f.load(LONG, f.element(LONG, place, 1))
    return f.load(LONG, place), tail >> 1, tail


@native("spec* block* earlier*", LONG)
def _moved(f: Function, spec: Struct, block: Struct, earlier: Value) -> Value:
    """Which arguments are elsewhere than in an earlier call, into the block's list.

    Returns their number, FEW + 1 if more than FEW.
    """
    found, inputs, changed = f.variable(0), spec["inputs"], within(block, spec["changed"])
    with f.loop(0, spec["input_count"]) as i:
        one = record("input", inputs, i)
        slots = f.element(BYTE, block, one["slot"]), f.element(BYTE, earlier, one["slot"] - CACHE_LINE)
        differs = f.variable(f.load(LONG, slots[0]).differs(f.load(LONG, slots[1])))
        with f.when(one["dynamic"].differs(0)):
            now, before = (f.load(LONG, f.element(LONG, slot, 1)) for slot in slots)
            differs.set(differs.get() | now.differs(before))
        with f.when(differs.get()):
            f.store(i, f.element(LONG, changed, found.get()))
            found.add(1)
            f.ret_if(found.get() > FEW, found.get())
    return found.get()


@native("spec* ranges* changed* moved", BOOL)
def _disjoint_few(f: Function, spec: Struct, ranges: Value, changed: Value, moved: Value, meets: Function) -> Value:
    """Few arguments moved since an earlier call: each against all."""
    with f.loop(0, moved) as c:
        f.ret_if(f.call(meets, spec, ranges, item(f, LONG, changed, c)), NO)
    return YES


@native("spec* ranges* mine", BOOL)
def _meets(f: Function, spec: Struct, ranges: Value, mine: Value) -> Value:
    """Does an argument share memory that it mustn't share?"""
    own, inputs, count = record("input", spec["inputs"], mine), spec["inputs"], spec["input_count"]
    start, end, _ = _range(f, ranges, mine)
    with f.loop(0, spec["range_count"]) as i:
        other_start, other_end, _ = _range(f, ranges, i)
        with f.when(start.below(other_end) & other_start.below(end) & mine.differs(i)):
            f.ret_if(own["written"].differs(0), YES)
            with f.when(i < count):
                other = record("input", inputs, i)
                f.ret_if(other["written"].differs(0), YES)
                f.ret_if(own["group"].differs(0) & own["group"].equals(other["group"]), YES)
    return NO


@native("ranges* count", BOOL)
def _disjoint_all(f: Function, unsorted: Value, count: Value) -> Value:
    """All of them: sort the ranges by start, then sweep. O(n log n): 600 arrays are normal."""
    ranges = f.call(_sort(), unsorted, count)
    reach, reach_alone = f.variable(0), f.variable(0)
    with f.loop(0, count) as i:
        start, end, tail = _range(f, ranges, i)
        alone = (tail & 1).differs(0)
        clash = alone & start.below(reach.get()) | start.below(reach_alone.get())
        f.ret_if(clash & tail.differs(0), NO)
        reach.set(f.max(reach.get(), end, signed=False))
        reach_alone.set(f.max(reach_alone.get(), f.select(alone, end, 0), signed=False))
    return YES


@native("ranges* count", POINTER)
def _sort(f: Function, ranges: Value, count: Value) -> Value:
    """Sort ranges by their start, by merging runs of 1, 2, 4, ...: from one half of the space to the other and back.

    Returns the half with the result. A run's end may be looked at, so each half has room for one more.
    """
    source, target, width = f.variable(ranges), f.variable(f.element(RANGE, ranges, count + 1)), f.variable(1)
    with f.again_while(lambda: width.get() < count):
        half, here, there = width.get(), source.get(), target.get()
        with f.loop(0, count, half << 1) as low:
            middle, high = f.min(low + half, count), f.min(low + (half << 1), count)
            left, right = f.variable(low), f.variable(middle)
            with f.loop(low, high) as k:  # without branches: which one is next is a coin's toss
                i, j = left.get(), right.get()
                i_at, j_at = f.element(RANGE, here, i), f.element(RANGE, here, j)
                smaller = f.compare("le", f.load(LONG, i_at), f.load(LONG, j_at), signed=False)
                is_left = (i < middle) & ((j >= high) | smaller)
                f.copy(f.element(RANGE, there, k), f.select(is_left, i_at, j_at), 16)
                step = is_left.convert(LONG, signed=False)
                left.set(i + step)
                right.set(j + (step ^ 1))
        width.set(half << 1)
        source.set(there)
        target.set(here)
    return source.get()
