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
from wonderland.compile.entry_records import NO, NULL, YES, Struct, fill, function, input_of, item, output_of, within
from wonderland.compile.ir import BOOL, BYTE, INT, LONG, POINTER, VOID, External, Function, Module, Value

CALL, RELEASE = "wonderland_entry_call", "wonderland_entry_release"
MALLOC, FREE = External("malloc", POINTER, (LONG,)), External("free", VOID, (POINTER,))


def module(poison: bool) -> Module:
    """`poison` fills memory that the run has to write with NaN (all bits set), so that what it leaves out shows."""
    made = Module(as_written=True)
    made.add(_call(poison))
    made.add(_release())
    return made


# -- scratch memory -------------------------------------------------------------------------------


def _lease() -> Function:
    """A block of scratch memory: the cached one, or a new one, null without memory.

    An idle block has no output objects and no dynamic outputs in it.
    """
    f, (at,) = function("lease", "spec*", POINTER)
    spec = Struct("spec", at)
    cached = f.atomic("xchg", spec.at("cached"), NULL, "acq_rel")
    f.ret_if(cached.differs(None), cached)
    allocation = f.call(MALLOC, spec["block_bytes"] + (CACHE_LINE - 1))
    f.ret_if(allocation.equals(None), NULL)
    block = ((allocation.convert(LONG) + (CACHE_LINE - 1)) & -CACHE_LINE).convert(POINTER)
    fill(f, block, 0, spec["arena"])
    f.store(allocation, Struct("block", block).at("allocation"))
    f.ret(block)
    return f


def _give_back() -> Function:
    f, (at, block) = function("give_back", "spec* block*")
    kept = f.replace_if(Struct("spec", at).at("cached"), NULL, block, "acq_rel acquire")
    with f.unless(kept):
        f.call(FREE, Struct("block", block)["allocation"])
    return f


def _release() -> Function:
    """The entry dies: its cached block goes."""
    f, (at,) = function(RELEASE, "spec*", exported=True)
    block = f.atomic("xchg", Struct("spec", at).at("cached"), NULL, "acq_rel")
    with f.when(block.differs(None)):
        f.call(FREE, Struct("block", block)["allocation"])
    return f


# -- arguments ------------------------------------------------------------------------------------


def _store_weak() -> Function:
    """A Python scalar into its cell; false when it isn't of the exact type, or too long."""
    f, (object, cell, weak) = function("store_weak", "object* cell* weak", BOOL)
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
    f.ret(NO)
    return f


def _fetch() -> Function:
    """One argument into its slot; false if it doesn't fit."""
    f, (at, object, block) = function("fetch", "record* object* block*", BOOL)
    one, given = Struct("input", at), Struct("array", object)
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
    with f.when(descr.place.differs(one["descr"])):
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
    f.ret(YES)
    return f


def _fetch_all() -> Function:
    """All arguments into the slots; false if one doesn't fit, or a written one shares memory with another."""
    f, (at, block, args) = function("fetch_all", "spec* block* args*", BOOL)
    spec, fetch = Struct("spec", at), _fetch()
    inputs = spec["inputs"]
    with f.loop(0, spec["input_count"]) as i:
        f.ret_if(~f.call(fetch, input_of(inputs, i).place, item(f, POINTER, args, i), block), NO)
    f.ret_if(spec["written_count"].equals(0), YES)
    f.ret(f.call(disjoint(), at, block))
    return f


# -- results --------------------------------------------------------------------------------------


def _new_array() -> Function:
    f, (at, dims) = function("new_array", "record* dims*", POINTER)
    one = Struct("output", at)
    descr, nothing = one["descr"], f.constant(0, INT)
    f.call(python.INCREF, descr)
    kind, nd = f.at(python.known("ndarray", np.ndarray)), one["nd"].convert(INT)
    f.ret(f.call(python.NEW_ARRAY, kind, descr, nd, dims, NULL, NULL, nothing, NULL))
    return f


def _make_outputs(new_array: Function, poison: bool) -> Function:
    """Fresh arrays (or cells, or nothing yet) for the outputs; false with a Python error."""
    f, (at, block) = function("make_outputs", "spec* block*", BOOL)
    spec = Struct("spec", at)
    outputs, objects = spec["outputs"], within(block, spec["objects"])
    with f.loop(0, spec["output_count"]) as o:
        one = output_of(outputs, o)
        kind, slot = one["kind"], within(block, one["slot"])
        with f.when(kind.equals(ARRAY)):
            object = f.call(new_array, one.place, one["dims"])
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
    f.ret(YES)
    return f


def _take_output(new_array: Function) -> Function:
    """Output `o` as a new reference, out of the block; null with a Python error."""
    f, (at, block, args, o) = function("take_output", "spec* block* args* o", POINTER)
    spec, extents = Struct("spec", at), f.stack(LONG, 64)
    one = output_of(spec["outputs"], o)
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
    copy = f.call(new_array, one.place, extents)
    f.ret_if(copy.equals(None), NULL)
    f.copy(Struct("array", copy)["data"], data, one["bytes"] * length)
    f.call(FREE, data)
    f.store(NULL, slot)
    f.ret(copy)
    return f


def _drop_outputs() -> Function:
    """What is left of the outputs goes: after an error, or one in the middle of taking them."""
    f, (at, block) = function("drop_outputs", "spec* block*")
    spec = Struct("spec", at)
    outputs, objects = spec["outputs"], within(block, spec["objects"])
    with f.loop(0, spec["output_count"]) as o:
        one, place = output_of(outputs, o), f.element(POINTER, objects, o)
        with f.when(one["kind"].equals(DYNAMIC)):
            slot = within(block, one["slot"])
            f.call(FREE, f.load(POINTER, slot))
            f.store(NULL, slot)
        object = f.load(POINTER, place)
        with f.when(object.differs(None)):
            f.store(NULL, place)
            f.call(python.DECREF, object)
    return f


def _collect(take_output: Function) -> Function:
    """The single output, or a tuple of them; null with a Python error."""
    f, (at, block, args) = function("collect", "spec* block* args*", POINTER)
    count = Struct("spec", at)["output_count"]
    with f.when(count.equals(1)):
        f.ret(f.call(take_output, at, block, args, f.constant(0)))
    tuple = f.call(python.NEW_TUPLE, count)
    f.ret_if(tuple.equals(None), NULL)
    with f.loop(0, count) as o:
        item = f.call(take_output, at, block, args, o)
        with f.when(item.equals(None)):
            f.call(python.DECREF, tuple)
            f.ret(NULL)
        f.call(python.SET_ITEM, tuple, o, item)
    f.ret(tuple)
    return f


# -- the call -------------------------------------------------------------------------------------


def _call(poison: bool) -> Function:
    f, (self, args, given) = function(CALL, "self* args* given", POINTER, exported=True)
    lease, give_back, drop_outputs, new_array = _lease(), _give_back(), _drop_outputs(), _new_array()
    fetch_all, make_outputs, collect = _fetch_all(), _make_outputs(new_array, poison), _collect(_take_output(new_array))
    at = Struct("array", f.call(python.GET_ITEM, self, f.constant(0)))["data"]
    spec = Struct("spec", at)

    def miss() -> None:
        sentinel = spec["miss"]
        f.call(python.INCREF, sentinel)
        f.ret(sentinel)

    def drop() -> None:
        f.call(drop_outputs, at, block)
        f.call(give_back, at, block)

    with f.when(given.differs(spec["input_count"])):
        miss()
    block = f.call(lease, at)
    with f.when(block.equals(None)):
        f.ret(f.call(python.NO_MEMORY))
    with f.unless(f.call(fetch_all, at, block, args)):
        f.call(give_back, at, block)
        miss()
    with f.unless(f.call(make_outputs, at, block)):
        drop()
        f.ret(NULL)
    code = _run(f, spec, block, poison)
    with f.when(code.equals(RAISED)):
        drop()
        f.ret(NULL)
    f.call(python.CLEAR_ERROR)  # what SciPy's functions noted, if scipy.special.errstate says so
    with f.when(code.differs(0)):
        drop()
        number = f.call(python.INT_FROM_LONG, code)
        f.ret_if(number.equals(None), NULL)
        f.call(python.CALL, spec["on_error"], number)  # it raises
        f.call(python.DECREF, number)
        f.ret(NULL)
    result = f.call(collect, at, block, args)
    with f.when(result.equals(None)):
        drop()
        f.ret(NULL)
    f.call(give_back, at, block)
    f.ret(result)
    return f


def _run(f: Function, spec: Struct, block: Value, poison: bool) -> Value:
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
