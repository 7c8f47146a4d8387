"""The machine code of the native entry: nothing comes in, a module with `CALL` and `RELEASE` goes out.

Its functions read records and objects by the byte offsets of `entry_layout`; the order below is that of a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from wonderland.compile import python_api as python
from wonderland.compile.entry_disjoint import disjoint
from wonderland.compile.entry_layout import ARRAY, CACHE_LINE, CELL, DYNAMIC, RAISED, SCALAR, TAKEN, WEAK_KINDS
from wonderland.compile.ir import BOOL, BYTE, INT, LONG, POINTER, VOID, External, Function, Module, Value
from wonderland.compile.native import NO, NULL, YES, Struct, fill, item, native, record, within

CALL, RELEASE = "wonderland_entry_call", "wonderland_entry_release"
MALLOC, FREE = External("malloc", POINTER, (LONG,)), External("free", VOID, (POINTER,))


def module(poison: bool) -> Module:
    """`poison` fills memory that the run has to write with NaN (all bits set), so that what it leaves out shows."""
    return Module(_call(poison), _release(), as_written=True)


# -- scratch memory -------------------------------------------------------------------------------


@native("spec*", POINTER)
def _lease(f: Function, spec: Struct) -> Value:
    """A block of scratch memory: the cached one, or a new one, null without memory.

    An idle block has no output objects and no dynamic outputs in it.
    """
    cached = f.atomic("xchg", spec.at("cached"), NULL, "acq_rel")
    f.ret_if(cached.differs(None), cached)
    allocation = f.call(MALLOC, spec["block_bytes"] + (CACHE_LINE - 1))
    f.ret_if(allocation.equals(None), NULL)
    block = Struct("block", ((allocation.convert(LONG) + (CACHE_LINE - 1)) & -CACHE_LINE).convert(POINTER))
    fill(f, block, 0, spec["arena"])
    f.store(allocation, block.at("allocation"))
    return block


@native("spec* block*")
def _give_back(f: Function, spec: Struct, block: Struct) -> None:
    with f.unless(f.replace_if(spec.at("cached"), NULL, block, "acq_rel acquire")):
        f.call(FREE, block["allocation"])


@native("spec*", exported=RELEASE)
def _release(f: Function, spec: Struct) -> None:
    """The entry dies: its cached block goes."""
    block = Struct("block", f.atomic("xchg", spec.at("cached"), NULL, "acq_rel"))
    with f.when(block.differs(None)):
        f.call(FREE, block["allocation"])


# -- arguments ------------------------------------------------------------------------------------


@native("object* cell* weak", BOOL)
def _store_weak(f: Function, object: Value, cell: Value, weak: Value) -> Value:
    """A Python scalar into its cell; false when it isn't of the exact type, or too long."""
    found, overflow = Struct("object", object)["type"], f.stack(INT)

    @contextmanager
    def expected(kind: type) -> Iterator[None]:
        with f.when(weak.equals(WEAK_KINDS[kind])):
            f.ret_if(found.differs(f.at(python.known(kind.__name__, kind))), NO)
            yield
            f.ret(YES)

    with expected(float):
        f.store(f.call(python.DOUBLE_OF, object), cell)
    with expected(int):
        integer = f.call(python.LONG_OF, object, overflow)
        f.ret_if(f.load(INT, overflow).differs(0), NO)
        f.store(integer, cell)
    with expected(bool):
        f.store(object.equals(f.at(python.known("True", True))).convert(BYTE, signed=False), cell)
    with expected(complex):
        for i, part in enumerate((python.REAL_OF, python.IMAGINARY_OF)):
            f.store(f.call(part, object), f.element(LONG, cell, i))
    return NO


@native("record* object* block*", BOOL)
def _fetch(f: Function, place: Value, object: Value, block: Struct) -> Value:
    """One argument into its slot; false if it doesn't fit."""
    one, given = Struct("input", place), Struct("array", object)
    slot, cell = within(block, one["slot"]), within(block, one["cell"])
    weak, nd = one["weak"], one["nd"]
    with f.when(weak.differs(0)):
        f.ret_if(~f.call(_store_weak(), object, cell, weak), NO)
        f.store(cell, slot)
        f.ret(YES)
    type = Struct("object", object)["type"]
    with f.when(type.differs(f.at(python.known("ndarray", np.ndarray)))):
        f.ret_if(type.differs(one["scalar"]), NO)
        f.ret_if((nd | one["written"]).differs(0), NO)
        f.call(python.READ_SCALAR, object, cell)
        f.store(cell, slot)
        f.ret(YES)
    flags = one["flags"].convert(INT)
    f.ret_if((given["flags"] & flags).differs(flags), NO)
    descr = Struct("descr", given["descr"])
    with f.when(descr.differs(one["descr"])):
        f.ret_if(descr["num"].differs(one["num"].convert(INT)), NO)
        order = descr["order"]
        f.ret_if(order.differs(ord("=")) & order.differs(ord("|")), NO)
    f.ret_if(given["nd"].convert(LONG, signed=False).differs(nd), NO)
    dims, extents, dynamic = given["dims"], one["dims"], one["dynamic"]
    with f.loop(dynamic, nd) as i:
        f.ret_if(item(f, LONG, dims, i).differs(item(f, LONG, extents, i)), NO)
    f.store(given["data"], slot)
    with f.when(dynamic.differs(0)):
        f.store(f.load(LONG, dims), f.element(LONG, slot, 1))
    return YES


@native("spec* block* args*", BOOL)
def _fetch_all(f: Function, spec: Struct, block: Struct, args: Value) -> Value:
    """All arguments into the slots; false if one doesn't fit, or shares memory that it mustn't."""
    inputs, fetch = spec["inputs"], _fetch()
    with f.loop(0, spec["input_count"]) as i:
        f.ret_if(~f.call(fetch, record("input", inputs, i), item(f, POINTER, args, i), block), NO)
    f.ret_if(spec["checked_count"].equals(0), YES)
    return f.call(disjoint(), spec, block)


# -- results --------------------------------------------------------------------------------------


@native("record* dims*", POINTER)
def _new_array(f: Function, place: Value, dims: Value) -> Value:
    one = Struct("output", place)
    descr, nothing = one["descr"], f.constant(0, INT)
    f.call(python.INCREF, descr)
    kind, nd = f.at(python.known("ndarray", np.ndarray)), one["nd"].convert(INT)
    return f.call(python.NEW_ARRAY, kind, descr, nd, dims, NULL, NULL, nothing, NULL)


@native("spec* block*", BOOL)
def _make_outputs(f: Function, spec: Struct, block: Struct, new_array: Function, poison: bool) -> Value:
    """Fresh arrays (or cells, or nothing yet) for the outputs; false with a Python error."""
    outputs, objects = spec["outputs"], within(block, spec["objects"])
    with f.loop(0, spec["output_count"]) as o:
        one = record("output", outputs, o)
        kind, slot = one["kind"], within(block, one["slot"])
        with f.when(kind.equals(ARRAY)):
            object = f.call(new_array, one, one["dims"])
            f.ret_if(object.equals(None), NO)
            f.store(object, f.element(POINTER, objects, o))
            data = Struct("array", object)["data"]
            f.store(data, slot)
            if poison:
                fill(f, data, -1, one["bytes"])
        with f.when(kind.equals(SCALAR)):
            cell = within(block, one["cell"])
            f.store(cell, slot)
            if poison:
                fill(f, cell, -1, CELL)
        with f.when(kind.equals(DYNAMIC)):
            f.store(f.constant(0), f.element(LONG, slot, 1))
    return YES


@native("spec* block* args* o", POINTER)
def _take_output(f: Function, spec: Struct, block: Struct, args: Value, o: Value, new_array: Function) -> Value:
    """Output `o` as a new reference, out of the block; null with a Python error."""
    extents = f.stack(LONG, 64)
    one = record("output", spec["outputs"], o)
    kind, slot = one["kind"], within(block, one["slot"])
    with f.when(kind.equals(ARRAY)):
        place = f.element(POINTER, within(block, spec["objects"]), o)
        object = f.load(POINTER, place)
        f.store(NULL, place)
        f.ret(object)
    with f.when(kind.equals(TAKEN)):
        argument = item(f, POINTER, args, one["taken"])
        f.call(python.INCREF, argument)
        f.ret(argument)
    data = f.load(POINTER, slot)
    with f.when(kind.equals(SCALAR)):
        f.ret(f.call(python.SCALAR, data, one["descr"], NULL))
    f.copy(extents, one["dims"], one["nd"] * 8)
    length = f.load(LONG, f.element(LONG, slot, 1))
    f.store(length, extents)
    copy = f.call(new_array, one, extents)
    f.ret_if(copy.equals(None), NULL)
    f.copy(Struct("array", copy)["data"], data, one["bytes"] * length)
    f.call(FREE, data)
    f.store(NULL, slot)
    return copy


@native("spec* block*")
def _drop_outputs(f: Function, spec: Struct, block: Struct) -> None:
    """What is left of the outputs goes: after an error, or one in the middle of taking them."""
    outputs, objects = spec["outputs"], within(block, spec["objects"])
    with f.loop(0, spec["output_count"]) as o:
        one, place = record("output", outputs, o), f.element(POINTER, objects, o)
        with f.when(one["kind"].equals(DYNAMIC)):
            slot = within(block, one["slot"])
            f.call(FREE, f.load(POINTER, slot))
            f.store(NULL, slot)
        object = f.load(POINTER, place)
        with f.when(object.differs(None)):
            f.store(NULL, place)
            f.call(python.DECREF, object)


@native("spec* block* args*", POINTER)
def _collect(f: Function, spec: Struct, block: Struct, args: Value, take_output: Function) -> Value:
    """The single output, or a tuple of them; null with a Python error."""
    count = spec["output_count"]
    with f.when(count.equals(1)):
        f.ret(f.call(take_output, spec, block, args, f.constant(0)))
    tuple = f.call(python.NEW_TUPLE, count)
    f.ret_if(tuple.equals(None), NULL)
    with f.loop(0, count) as o:
        item = f.call(take_output, spec, block, args, o)
        with f.when(item.equals(None)):
            f.call(python.DECREF, tuple)
            f.ret(NULL)
        f.call(python.SET_ITEM, tuple, o, item)
    return tuple


# -- the call -------------------------------------------------------------------------------------


@native("self* args* given", POINTER, exported=CALL)
def _call(f: Function, self: Value, args: Value, given: Value, poison: bool) -> Value:
    give_back, drop_outputs, new_array = _give_back(), _drop_outputs(), _new_array()
    spec = Struct("spec", Struct("array", f.call(python.GET_ITEM, self, f.constant(0)))["data"])

    def miss() -> None:
        sentinel = spec["miss"]
        f.call(python.INCREF, sentinel)
        f.ret(sentinel)

    def drop() -> None:
        f.call(drop_outputs, spec, block)
        f.call(give_back, spec, block)

    def leave_if(raised: Value) -> None:
        with f.when(raised):
            drop()
            f.ret(NULL)

    with f.when(given.differs(spec["input_count"])):
        miss()
    block = Struct("block", f.call(_lease(), spec))
    with f.when(block.equals(None)):
        f.ret(f.call(python.NO_MEMORY))
    with f.unless(f.call(_fetch_all(), spec, block, args)):
        f.call(give_back, spec, block)
        miss()
    leave_if(~f.call(_make_outputs(new_array, poison), spec, block))
    code = _run(f, spec, block, poison)
    leave_if(code.equals(RAISED))
    f.call(python.CLEAR_ERROR)  # what SciPy's functions noted, if scipy.special.errstate says so
    with f.when(code.differs(0)):
        drop()
        number = f.call(python.INT_FROM_LONG, code)
        f.ret_if(number.equals(None), NULL)
        f.call(python.CALL, spec["on_error"], number)  # it raises
        f.call(python.DECREF, number)
        f.ret(NULL)
    result = f.call(_collect(_take_output(new_array)), spec, block, args)
    leave_if(result.equals(None))
    f.call(give_back, spec, block)
    return result


def _run(f: Function, spec: Struct, block: Struct, poison: bool) -> Value:
    """Run the Program's code, without the GIL if it takes long."""
    run, arena = spec["run"], within(block, spec["arena"])
    if poison:
        fill(f, arena, -1, spec["block_bytes"] - spec["arena"])
    given = f.element(BYTE, block, CACHE_LINE), arena, spec["table"]

    def released() -> Value:
        thread = f.call(python.SAVE_THREAD)
        code = f.call_at(run, LONG, *given)
        f.call(python.RESTORE_THREAD, thread)
        return code

    return f.choose(spec["release_gil"].equals(0), lambda: f.call_at(run, LONG, *given), released)
