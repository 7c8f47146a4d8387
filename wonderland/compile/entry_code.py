"""The machine code of the native entry: LLVM IR.

`IR` is written in LLVM's language with a few shorthands (`expand` spells them out) and reads records and objects by the
byte offsets of `entry_layout`.
"""

from __future__ import annotations

import itertools
import re

from wonderland.compile.entry_layout import FEW, INPUT_WORDS, KNOWN, OFFSETS, OUTPUT_WORDS, RAISED

# What the IR below is written in, besides LLVM's own instructions: a pattern of a line, and the lines it
# means, which may use the patterns after it. NEW is a fresh number.
_SHORTHANDS = {
    # `loop %i 0 %n` ... `end %i`: count up; a branch to %i.step continues.
    r"loop %(\S+) (\S+) (\S+)": r"""br label %\1.from
        \1.from: br label %\1.head
        \1.head: %\1 = phi i64 [ \2, %\1.from ], [ %\1.next, %\1.step ]
        when slt i64 %\1, \3 then %\1.body else %\1.done
        \1.body:""",
    r"end %(\S+)": r"""br label %\1.step
        \1.step: %\1.next = add i64 %\1, 1
        br label %\1.head
        \1.done:""",
    # Go to %miss unless a condition holds; compare and branch.
    r"require (\w+ \w+ \S+, \S+)": r"""%fit.NEW = icmp \1
        require %fit.NEW""",
    r"require (%\S+)": r"""br i1 \1, label %fits.NEW, label %miss
        fits.NEW:""",
    r"when (\w+ \w+ \S+, \S+) then (\S+) else (\S+)": r"""%when.NEW = icmp \1
        br i1 %when.NEW, label \2, label \3""",
    # The place in a block whose offset is in a field; an item of an array.
    r"(\S+) = within (\S+) (\S+) (\S+)": r"""\1.offset = at i64 \3 \4
        \1 = getelementptr i8, ptr \2, i64 \1.offset""",
    r"(\S+) = item (\S+) (\S+) (\S+)": r"""\1.at = getelementptr \2, ptr \3, i64 \4
        \1 = load \2, ptr \1.at""",
    # Load, store or address a field of a record.
    r"(\S+) = at (\S+) (\S+) (\S+)": r"""\1.at = field \3 \4
        \1 = load \2, ptr \1.at""",
    r"put (\S+) (\S+), (\S+) (\S+)": r"""%put.NEW = field \3 \4
        store \1 \2, ptr %put.NEW""",
    r"(\S+) = field (\S+) (\S+)": r"\1 = getelementptr i8, ptr \2, i64 OFFSET.\3",
}


_NUMBERS = {"INPUT_WORDS": INPUT_WORDS, "OUTPUT_WORDS": OUTPUT_WORDS, "KNOWN": KNOWN, "FEW": FEW, "RAISED": RAISED}


def expand(text: str, poison: bool = False) -> str:
    """Plain LLVM IR of text with shorthands.

    `poison` fills memory that the run has to write with NaN (all bits set), so that what it leaves out shows.
    """
    fill = r"call void @llvm.memset.p0.i64(ptr \1, i8 -1, i64 \2, i1 false)" if poison else ""
    text = re.sub(r"(?m)^ *poison (\S+) (\S+)$", fill, text)
    numbers = itertools.count()
    for pattern, meaning in _SHORTHANDS.items():

        def lines(match: re.Match[str], meaning: str = meaning) -> str:
            return match.expand(meaning).replace("NEW", str(next(numbers)))

        text = re.sub(rf"(?m)^ *{pattern}$", lines, text)
    text = re.sub(r"OFFSET\.(\S+)", lambda m: str(OFFSETS[m[1]]), text)
    return re.sub("|".join(_NUMBERS), lambda m: str(_NUMBERS[m[0]]), text)


IR = r"""
@PyArray_Type = external global i8
@PyFloat_Type = external global i8
@PyLong_Type = external global i8
@PyBool_Type = external global i8
@PyComplex_Type = external global i8
@Py_True = external global i8
@RuntimeError_Type = external global i8
@unraised = private constant [59 x i8] c"compiled code failed with code %lld and nothing was raised\00"

declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare double @PyComplex_RealAsDouble(ptr)
declare double @PyComplex_ImagAsDouble(ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare ptr @PyErr_Format(ptr, ptr, ...)
declare void @PyErr_Clear()
declare ptr @PyErr_NoMemory()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyArray_Scalar(ptr, ptr, ptr)
declare void @PyArray_ScalarAsCtype(ptr, ptr)
declare ptr @PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; A block of scratch memory: the cached one, or a new one, null without memory. An idle block has no output
; objects and no dynamic outputs in it, and its constants' slots are filled.
define internal ptr @lease(ptr %spec) {
  %place = field %spec spec.cached
  %cached = atomicrmw xchg ptr %place, ptr null acq_rel
  when eq ptr %cached, null then %allocate else %found
found:
  ret ptr %cached
allocate:
  %bytes = at i64 %spec spec.block_bytes
  %room = add i64 %bytes, 63
  %allocation = call ptr @malloc(i64 %room)
  when eq ptr %allocation, null then %none else %fill
none:
  ret ptr null
fill:
  %address = ptrtoint ptr %allocation to i64
  %beyond = add i64 %address, 63
  %aligned = and i64 %beyond, -64
  %block = inttoptr i64 %aligned to ptr
  %arena = at i64 %spec spec.arena
  call void @llvm.memset.p0.i64(ptr %block, i8 0, i64 %arena, i1 false)
  put ptr %allocation, %block block.allocation
  %constants = at ptr %spec spec.constants
  %count = at i64 %spec spec.constant_count
  %slots = within %block %spec spec.constant_slots
  %size = mul i64 %count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %slots, ptr %constants, i64 %size, i1 false)
  ret ptr %block
}

define internal void @give_back(ptr %spec, ptr %block) {
  %place = field %spec spec.cached
  %swap = cmpxchg ptr %place, ptr null, ptr %block acq_rel acquire
  %kept = extractvalue { ptr, i1 } %swap, 1
  br i1 %kept, label %done, label %surplus
surplus:
  %allocation = at ptr %block block.allocation
  call void @free(ptr %allocation)
  br label %done
done:
  ret void
}

; The entry dies: its cached block goes.
define void @wonderland_entry_release(ptr %spec) {
  %place = field %spec spec.cached
  %block = atomicrmw xchg ptr %place, ptr null acq_rel
  when eq ptr %block, null then %done else %cached
cached:
  %allocation = at ptr %block block.allocation
  call void @free(ptr %allocation)
  br label %done
done:
  ret void
}

; A Python scalar into its cell; false when it isn't of the exact type, or too long.
define internal i1 @store_weak(i64 %weak, ptr %object, ptr %cell) {
  %overflow = alloca i32
  %type = at ptr %object object.type
  switch i64 %weak, label %miss [ i64 1, label %float i64 2, label %int
                                  i64 3, label %bool i64 4, label %complex ]
float:
  require eq ptr %type, @PyFloat_Type
  %real = call double @PyFloat_AsDouble(ptr %object)
  store double %real, ptr %cell
  ret i1 true
int:
  require eq ptr %type, @PyLong_Type
  %integer = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %over = load i32, ptr %overflow
  require eq i32 %over, 0
  store i64 %integer, ptr %cell
  ret i1 true
bool:
  require eq ptr %type, @PyBool_Type
  %truth = icmp eq ptr %object, @Py_True
  %byte = zext i1 %truth to i8
  store i8 %byte, ptr %cell
  ret i1 true
complex:
  require eq ptr %type, @PyComplex_Type
  %re = call double @PyComplex_RealAsDouble(ptr %object)
  %im = call double @PyComplex_ImagAsDouble(ptr %object)
  store double %re, ptr %cell
  %second = getelementptr double, ptr %cell, i64 1
  store double %im, ptr %second
  ret i1 true
miss:
  ret i1 false
}

; One argument into its slot; false if it doesn't fit.
define internal i1 @fetch(ptr %record, ptr %object, ptr %block) {
  %slot = within %block %record input.slot
  %cell = within %block %record input.cell
  %nd = at i64 %record input.nd
  %weak = at i64 %record input.weak
  when eq i64 %weak, 0 then %typed else %python
python:
  %stored = call i1 @store_weak(i64 %weak, ptr %object, ptr %cell)
  require %stored
  br label %in_cell
typed:
  %type = at ptr %object object.type
  when eq ptr %type, @PyArray_Type then %array else %scalar
scalar:
  %scalar.type = at ptr %record input.scalar
  require eq ptr %type, %scalar.type
  require eq i64 %nd, 0
  %written = at i64 %record input.written
  require eq i64 %written, 0
  call void @PyArray_ScalarAsCtype(ptr %object, ptr %cell)
  br label %in_cell
in_cell:
  store ptr %cell, ptr %slot
  ret i1 true
array:
  %flags = at i32 %object array.flags
  %needed.word = at i64 %record input.flags
  %needed = trunc i64 %needed.word to i32
  %has = and i32 %flags, %needed
  require eq i32 %has, %needed
  %descr = at ptr %object array.descr
  %canonical = at ptr %record input.descr
  when eq ptr %descr, %canonical then %shape else %look
look:
  %num = at i32 %descr descr.num
  %num.word = at i64 %record input.num
  %num.needed = trunc i64 %num.word to i32
  require eq i32 %num, %num.needed
  %order = at i8 %descr descr.order
  %native = icmp eq i8 %order, 61
  %without = icmp eq i8 %order, 124
  %readable = or i1 %native, %without
  require %readable
  br label %shape
shape:
  %rank = at i32 %object array.nd
  %rank.word = zext i32 %rank to i64
  require eq i64 %rank.word, %nd
  %dims = at ptr %object array.dims
  %extents = at ptr %record input.dims
  %dynamic = at i64 %record input.dynamic
  loop %i %dynamic %nd
    %n = item i64 %dims %i
    %n.needed = item i64 %extents %i
    require eq i64 %n, %n.needed
  end %i
  %data = at ptr %object array.data
  store ptr %data, ptr %slot
  when ne i64 %dynamic, 0 then %length else %static
length:
  %leading = load i64, ptr %dims
  %slot.length = getelementptr i64, ptr %slot, i64 1
  store i64 %leading, ptr %slot.length
  br label %static
static:
  ret i1 true
miss:
  ret i1 false
}

; The bytes [start, end) of an argument or, after the arguments, of an array that the code reads by itself: as start
; and 2 * end + written; an empty one or a Python scalar has 0 for the second.
define internal { i64, i64 } @range(ptr %spec, ptr %block, i64 %index) {
entry:
  %inputs = at ptr %spec spec.inputs
  %count = at i64 %spec spec.input_count
  when slt i64 %index, %count then %argument else %captured
captured:
  %ranges = at ptr %spec spec.captured
  %position = sub i64 %index, %count
  %fixed.at = getelementptr { i64, i64 }, ptr %ranges, i64 %position
  %fixed = load { i64, i64 }, ptr %fixed.at
  ret { i64, i64 } %fixed
argument:
  %record = getelementptr [INPUT_WORDS x i64], ptr %inputs, i64 %index
  %slot = within %block %record input.slot
  %start = load i64, ptr %slot
  %bytes = at i64 %record input.bytes
  %dynamic = at i64 %record input.dynamic
  %written = at i64 %record input.written
  when eq i64 %dynamic, 0 then %sized else %length
length:
  %slot.length = getelementptr i64, ptr %slot, i64 1
  %rows = load i64, ptr %slot.length
  br label %sized
sized:
  %many = phi i64 [ 1, %argument ], [ %rows, %length ]
  %size = mul i64 %bytes, %many
  %end = add i64 %start, %size
  %twice = shl i64 %end, 1
  %tagged = or i64 %twice, %written
  %empty = icmp eq i64 %size, 0
  %tail = select i1 %empty, i64 0, i64 %tagged
  %first = insertvalue { i64, i64 } poison, i64 %start, 0
  %both = insertvalue { i64, i64 } %first, i64 %tail, 1
  ret { i64, i64 } %both
}

; Which arguments are elsewhere than in an earlier call, into the block's list; their number, FEW + 1 if more than FEW.
define internal i64 @moved(ptr %spec, ptr %block, ptr %earlier) {
  %inputs = at ptr %spec spec.inputs
  %count = at i64 %spec spec.input_count
  %changed = within %block %spec spec.changed
  %counter = alloca i64
  store i64 0, ptr %counter
  loop %i 0 %count
    %record = getelementptr [INPUT_WORDS x i64], ptr %inputs, i64 %i
    %slot = within %block %record input.slot
    %distance = sub i64 %slot.offset, 64
    %before = getelementptr i8, ptr %earlier, i64 %distance
    %word = load i64, ptr %slot
    %word.before = load i64, ptr %before
    when eq i64 %word, %word.before then %same else %differs
  same:
    %dynamic = at i64 %record input.dynamic
    when eq i64 %dynamic, 0 then %i.step else %length
  length:
    %rows = item i64 %slot 1
    %rows.before = item i64 %before 1
    when eq i64 %rows, %rows.before then %i.step else %differs
  differs:
    %found = load i64, ptr %counter
    %place = getelementptr i64, ptr %changed, i64 %found
    store i64 %i, ptr %place
    %found.next = add i64 %found, 1
    store i64 %found.next, ptr %counter
    when sgt i64 %found.next, FEW then %i.done else %i.step
  end %i
  %total = load i64, ptr %counter
  ret i64 %total
}

; Few arguments moved since an earlier call: each against all.
define internal i1 @disjoint_few(ptr %spec, ptr %block, i64 %moved) {
  %count = at i64 %spec spec.range_count
  %changed = within %block %spec spec.changed
  loop %c 0 %moved
    %index = item i64 %changed %c
    %mine = call { i64, i64 } @range(ptr %spec, ptr %block, i64 %index)
    %start = extractvalue { i64, i64 } %mine, 0
    %tail = extractvalue { i64, i64 } %mine, 1
    %end = lshr i64 %tail, 1
    loop %j 0 %count
      %theirs = call { i64, i64 } @range(ptr %spec, ptr %block, i64 %j)
      %their.start = extractvalue { i64, i64 } %theirs, 0
      %their.tail = extractvalue { i64, i64 } %theirs, 1
      %their.end = lshr i64 %their.tail, 1
      %either = or i64 %tail, %their.tail
      %bit = and i64 %either, 1
      %written = icmp ne i64 %bit, 0
      %left = icmp ult i64 %start, %their.end
      %right = icmp ult i64 %their.start, %end
      %is_other = icmp ne i64 %index, %j
      %meets = and i1 %left, %right
      %counts = and i1 %written, %is_other
      %clash = and i1 %meets, %counts
      %fine = xor i1 %clash, true
      require %fine
    end %j
  end %c
  ret i1 true
miss:
  ret i1 false
}

; Sort ranges by their start, by merging runs of 1, 2, 4, ...: from one half of the space to the other and back.
; Returns the half with the result. A run's end may be looked at, so each half has room for one more.
define internal ptr @sort(ptr %ranges, i64 %count) {
entry:
  %room = add i64 %count, 1
  %second = getelementptr { i64, i64 }, ptr %ranges, i64 %room
  br label %pass
pass:
  %width = phi i64 [ 1, %entry ], [ %twice, %passed ]
  %from = phi ptr [ %ranges, %entry ], [ %to, %passed ]
  %to = phi ptr [ %second, %entry ], [ %from, %passed ]
  when slt i64 %width, %count then %begin else %sorted
begin:
  %twice = shl i64 %width, 1
  br label %pair
pair:
  %low = phi i64 [ 0, %begin ], [ %low.next, %merged ]
  when slt i64 %low, %count then %merge else %passed
merge:
  %middle.full = add i64 %low, %width
  %middle = call i64 @llvm.smin.i64(i64 %middle.full, i64 %count)
  %low.next = add i64 %low, %twice
  %high = call i64 @llvm.smin.i64(i64 %low.next, i64 %count)
  br label %next
next:
  %k = phi i64 [ %low, %merge ], [ %k.next, %take ]
  %i = phi i64 [ %low, %merge ], [ %i.next, %take ]
  %j = phi i64 [ %middle, %merge ], [ %j.next, %take ]
  when slt i64 %k, %high then %take else %merged
take: ; without branches: which one is next is a coin's toss
  %i.at = getelementptr { i64, i64 }, ptr %from, i64 %i
  %j.at = getelementptr { i64, i64 }, ptr %from, i64 %j
  %i.start = load i64, ptr %i.at
  %j.start = load i64, ptr %j.at
  %i.left = icmp slt i64 %i, %middle
  %j.empty = icmp sge i64 %j, %high
  %smaller = icmp ule i64 %i.start, %j.start
  %first = or i1 %j.empty, %smaller
  %is_i = and i1 %i.left, %first
  %taken = select i1 %is_i, ptr %i.at, ptr %j.at
  %k.at = getelementptr { i64, i64 }, ptr %to, i64 %k
  call void @llvm.memcpy.p0.p0.i64(ptr %k.at, ptr %taken, i64 16, i1 false)
  %i.step = zext i1 %is_i to i64
  %j.step = xor i64 %i.step, 1
  %i.next = add i64 %i, %i.step
  %j.next = add i64 %j, %j.step
  %k.next = add i64 %k, 1
  br label %next
merged:
  br label %pair
passed:
  br label %pass
sorted:
  ret ptr %from
}

; All of them: sort the ranges by start, then sweep. O(n log n): 600 arrays are normal.
define internal i1 @disjoint_all(ptr %spec, ptr %block) {
  %count = at i64 %spec spec.range_count
  %unsorted = within %block %spec spec.ranges
  loop %i 0 %count
    %range = call { i64, i64 } @range(ptr %spec, ptr %block, i64 %i)
    %range.at = getelementptr { i64, i64 }, ptr %unsorted, i64 %i
    store { i64, i64 } %range, ptr %range.at
  end %i
  %ranges = call ptr @sort(ptr %unsorted, i64 %count)
  br label %sweep
sweep:
  %s = phi i64 [ 0, %i.done ], [ %s.next, %swept ]
  %reach = phi i64 [ 0, %i.done ], [ %reach.next, %swept ]
  %reach.written = phi i64 [ 0, %i.done ], [ %reach.written.next, %swept ]
  when slt i64 %s, %count then %check else %disjoint
check:
  %s.at = getelementptr { i64, i64 }, ptr %ranges, i64 %s
  %s.start = load i64, ptr %s.at
  %s.tail.at = getelementptr i64, ptr %s.at, i64 1
  %s.tail = load i64, ptr %s.tail.at
  %s.end = lshr i64 %s.tail, 1
  %s.bit = and i64 %s.tail, 1
  %s.written = icmp ne i64 %s.bit, 0
  %meets.any = icmp ult i64 %s.start, %reach
  %meets.written = icmp ult i64 %s.start, %reach.written
  %clash.mine = and i1 %s.written, %meets.any
  %clash = or i1 %clash.mine, %meets.written
  %empty = icmp eq i64 %s.tail, 0
  %full = xor i1 %empty, true
  %bad = and i1 %clash, %full
  %fine = xor i1 %bad, true
  require %fine
  br label %swept
swept:
  %further = icmp ugt i64 %s.end, %reach
  %reach.next = select i1 %further, i64 %s.end, i64 %reach
  %further.written.end = icmp ugt i64 %s.end, %reach.written
  %further.written = and i1 %further.written.end, %s.written
  %reach.written.next = select i1 %further.written, i64 %s.end, i64 %reach.written
  %s.next = add i64 %s, 1
  br label %sweep
disjoint:
  ret i1 true
miss:
  ret i1 false
}

; All arguments into the slots; false if one doesn't fit, or a written one shares memory with another.
define internal i1 @fetch_all(ptr %spec, ptr %block, ptr %args) {
  %inputs = at ptr %spec spec.inputs
  %count = at i64 %spec spec.input_count
  loop %i 0 %count
    %object = item ptr %args %i
    %record = getelementptr [INPUT_WORDS x i64], ptr %inputs, i64 %i
    %fits = call i1 @fetch(ptr %record, ptr %object, ptr %block)
    require %fits
  end %i
  %writers = at i64 %spec spec.written_count
  when ne i64 %writers, 0 then %compare else %apart
compare:
  %disjoint = call i1 @disjoint(ptr %spec, ptr %block)
  ret i1 %disjoint
apart:
  ret i1 true
miss:
  ret i1 false
}

; Does every written argument share memory with nothing else? The slots of the block's last calls that were found so
; are kept: calls with the same arrays, of one model or of a few in turn, aren't checked again, and of calls like an
; earlier one only what moved.
define internal i1 @disjoint(ptr %spec, ptr %block) {
  %slots = getelementptr i8, ptr %block, i64 64
  %known = within %block %spec spec.known
  %bytes = at i64 %spec spec.slot_bytes
  %calls = at i64 %block block.calls
  %kept.all = icmp ult i64 %calls, KNOWN
  %kept = select i1 %kept.all, i64 %calls, i64 KNOWN
  loop %k 0 %kept
    %k.offset = mul i64 %k, %bytes
    %k.at = getelementptr i8, ptr %known, i64 %k.offset
    %order = call i32 @memcmp(ptr %slots, ptr %k.at, i64 %bytes)
    when eq i32 %order, 0 then %apart else %k.step
  end %k
  loop %l 0 %kept
    %l.offset = mul i64 %l, %bytes
    %l.at = getelementptr i8, ptr %known, i64 %l.offset
    %moved = call i64 @moved(ptr %spec, ptr %block, ptr %l.at)
    when sle i64 %moved, FEW then %some else %l.step
  some:
    %apart.some = call i1 @disjoint_few(ptr %spec, ptr %block, i64 %moved)
    require %apart.some
    br label %keep
  end %l
  %apart.every = call i1 @disjoint_all(ptr %spec, ptr %block)
  require %apart.every
  br label %keep
keep:
  %place = urem i64 %calls, KNOWN
  %place.offset = mul i64 %place, %bytes
  %place.at = getelementptr i8, ptr %known, i64 %place.offset
  call void @llvm.memcpy.p0.p0.i64(ptr %place.at, ptr %slots, i64 %bytes, i1 false)
  %calls.next = add i64 %calls, 1
  put i64 %calls.next, %block block.calls
  br label %apart
apart:
  ret i1 true
miss:
  ret i1 false
}

; Fresh arrays (or cells, or nothing yet) for the outputs; false with a Python error.
define internal i1 @make_outputs(ptr %spec, ptr %block) {
  %outputs = at ptr %spec spec.outputs
  %count = at i64 %spec spec.output_count
  %objects = within %block %spec spec.objects
  loop %o 0 %count
    %record = getelementptr [OUTPUT_WORDS x i64], ptr %outputs, i64 %o
    %kind = at i64 %record output.kind
    %slot = within %block %record output.slot
    switch i64 %kind, label %array [ i64 1, label %scalar i64 2, label %dynamic i64 3, label %o.step ]
  scalar:
    %cell = within %block %record output.cell
    store ptr %cell, ptr %slot
    poison %cell 32
    br label %o.step
  dynamic:
    %slot.length = getelementptr i64, ptr %slot, i64 1
    store i64 0, ptr %slot.length
    br label %o.step
  array:
    %dims = at ptr %record output.dims
    %object = call ptr @new_array(ptr %record, ptr %dims)
    require ne ptr %object, null
    %object.at = getelementptr ptr, ptr %objects, i64 %o
    store ptr %object, ptr %object.at
    %data = at ptr %object array.data
    store ptr %data, ptr %slot
    %bytes = at i64 %record output.bytes
    poison %data %bytes
  end %o
  ret i1 true
miss:
  ret i1 false
}

define internal ptr @new_array(ptr %record, ptr %dims) {
  %descr = at ptr %record output.descr
  %nd = at i64 %record output.nd
  %rank = trunc i64 %nd to i32
  call void @Py_IncRef(ptr %descr)
  %array = call ptr @PyArray_NewFromDescr(ptr @PyArray_Type, ptr %descr, i32 %rank, ptr %dims, ptr null,
                                          ptr null, i32 0, ptr null)
  ret ptr %array
}

; Output %o as a new reference, out of the block; null with a Python error.
define internal ptr @take_output(ptr %spec, ptr %block, ptr %args, i64 %o) {
  %extents = alloca [64 x i64]
  %outputs = at ptr %spec spec.outputs
  %record = getelementptr [OUTPUT_WORDS x i64], ptr %outputs, i64 %o
  %kind = at i64 %record output.kind
  %slot = within %block %record output.slot
  %data = load ptr, ptr %slot
  switch i64 %kind, label %array [ i64 1, label %scalar i64 2, label %dynamic i64 3, label %taken ]
taken:
  %input = at i64 %record output.taken
  %argument = item ptr %args %input
  call void @Py_IncRef(ptr %argument)
  ret ptr %argument
array:
  %objects = within %block %spec spec.objects
  %object = item ptr %objects %o
  store ptr null, ptr %object.at
  ret ptr %object
scalar:
  %descr = at ptr %record output.descr
  %number = call ptr @PyArray_Scalar(ptr %data, ptr %descr, ptr null)
  ret ptr %number
dynamic:
  %dims = at ptr %record output.dims
  %nd = at i64 %record output.nd
  %dims.bytes = mul i64 %nd, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %extents, ptr %dims, i64 %dims.bytes, i1 false)
  %slot.length = getelementptr i64, ptr %slot, i64 1
  %length = load i64, ptr %slot.length
  store i64 %length, ptr %extents
  %copy = call ptr @new_array(ptr %record, ptr %extents)
  require ne ptr %copy, null
  %target = at ptr %copy array.data
  %row = at i64 %record output.bytes
  %size = mul i64 %row, %length
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %data, i64 %size, i1 false)
  call void @free(ptr %data)
  store ptr null, ptr %slot
  ret ptr %copy
miss:
  ret ptr null
}

; What is left of the outputs goes: after an error, or one in the middle of taking them.
define internal void @drop_outputs(ptr %spec, ptr %block) {
  %outputs = at ptr %spec spec.outputs
  %count = at i64 %spec spec.output_count
  %objects = within %block %spec spec.objects
  loop %o 0 %count
    %record = getelementptr [OUTPUT_WORDS x i64], ptr %outputs, i64 %o
    %kind = at i64 %record output.kind
    when eq i64 %kind, 2 then %dynamic else %array
  dynamic:
    %slot = within %block %record output.slot
    %data = load ptr, ptr %slot
    call void @free(ptr %data)
    store ptr null, ptr %slot
    br label %o.step
  array:
    %object = item ptr %objects %o
    when eq ptr %object, null then %o.step else %drop
  drop:
    store ptr null, ptr %object.at
    call void @Py_DecRef(ptr %object)
  end %o
  ret void
}

define internal ptr @collect(ptr %spec, ptr %block, ptr %args) {
  %count = at i64 %spec spec.output_count
  %single = icmp eq i64 %count, 1
  br i1 %single, label %one, label %many
one:
  %output = call ptr @take_output(ptr %spec, ptr %block, ptr %args, i64 0)
  ret ptr %output
many:
  %tuple = call ptr @PyTuple_New(i64 %count)
  require ne ptr %tuple, null
  loop %o 0 %count
    %item = call ptr @take_output(ptr %spec, ptr %block, ptr %args, i64 %o)
    when eq ptr %item, null then %abandon else %set
  set:
    %ignored = call i32 @PyTuple_SetItem(ptr %tuple, i64 %o, ptr %item)
  end %o
  ret ptr %tuple
abandon:
  call void @Py_DecRef(ptr %tuple)
  br label %miss
miss:
  ret ptr null
}

define internal ptr @fail(ptr %spec, i64 %code) {
  %on_error = at ptr %spec spec.on_error
  %number = call ptr @PyLong_FromLongLong(i64 %code)
  require ne ptr %number, null
  %result = call ptr @PyObject_CallOneArg(ptr %on_error, ptr %number)
  call void @Py_DecRef(ptr %number)
  require ne ptr %result, null
  call void @Py_DecRef(ptr %result)
  %ignored = call ptr (ptr, ptr, ...) @PyErr_Format(ptr @RuntimeError_Type, ptr @unraised, i64 %code)
  br label %miss
miss:
  ret ptr null
}

define ptr @wonderland_entry_call(ptr %self, ptr %args, i64 %given) {
  %words = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %spec = at ptr %words array.data
  %expected = at i64 %spec spec.input_count
  require eq i64 %given, %expected
  %block = call ptr @lease(ptr %spec)
  when ne ptr %block, null then %fetching else %no_memory
fetching:
  %fit = call i1 @fetch_all(ptr %spec, ptr %block, ptr %args)
  br i1 %fit, label %making, label %misfit
making:
  %made = call i1 @make_outputs(ptr %spec, ptr %block)
  br i1 %made, label %running, label %unmade
running:
  %run = at ptr %spec spec.run
  %table = at ptr %spec spec.table
  %arena = within %block %spec spec.arena
  %slots = getelementptr i8, ptr %block, i64 64
  %block.bytes = at i64 %spec spec.block_bytes
  %arena.bytes = sub i64 %block.bytes, %arena.offset
  poison %arena %arena.bytes
  %release = at i64 %spec spec.release_gil
  when eq i64 %release, 0 then %holding else %releasing
holding:
  %code.holding = call i64 %run(ptr %slots, ptr %arena, ptr %table)
  br label %ran
releasing:
  %thread = call ptr @PyEval_SaveThread()
  %code.releasing = call i64 %run(ptr %slots, ptr %arena, ptr %table)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran
ran:
  %code = phi i64 [ %code.holding, %holding ], [ %code.releasing, %releasing ]
  when eq i64 %code, RAISED then %unmade else %heard
heard:
  call void @PyErr_Clear() ; what SciPy's functions noted, if scipy.special.errstate says so
  when eq i64 %code, 0 then %collecting else %failed
collecting:
  %result = call ptr @collect(ptr %spec, ptr %block, ptr %args)
  when ne ptr %result, null then %done else %unmade
done:
  call void @give_back(ptr %spec, ptr %block)
  ret ptr %result
unmade:
  call void @drop_outputs(ptr %spec, ptr %block)
  call void @give_back(ptr %spec, ptr %block)
  ret ptr null
failed:
  call void @drop_outputs(ptr %spec, ptr %block)
  call void @give_back(ptr %spec, ptr %block)
  %raised = call ptr @fail(ptr %spec, i64 %code)
  ret ptr %raised
no_memory:
  %memory_error = call ptr @PyErr_NoMemory()
  ret ptr null
misfit:
  call void @give_back(ptr %spec, ptr %block)
  br label %miss
miss:
  %sentinel.spec = at ptr %spec spec.miss
  call void @Py_IncRef(ptr %sentinel.spec)
  ret ptr %sentinel.spec
}
"""
