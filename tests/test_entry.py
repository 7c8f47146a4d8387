"""The native entry: hand-written run functions behind it, NumPy and brute force as oracles."""

import gc
import itertools
import os
import re
import subprocess
import sys
import threading
import weakref
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wonderland.compile import llvm
from wonderland.compile.entry import MISS, Entry, Input, Output, layout

F64 = np.dtype(np.float64)
TABLE = np.zeros(4, np.int64)


def slot(name: str, index: int, kind: str = "ptr") -> str:
    return f"""
  %{name}.slot = getelementptr ptr, ptr %slots, i64 {index}
  %{name} = load {kind}, ptr %{name}.slot"""


RUNS = f"""
declare ptr @malloc(i64)
declare i32 @sched_yield()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define i64 @nothing(ptr %slots, ptr %arena, ptr %table) {{
  ret i64 0
}}

define i64 @fail(ptr %slots, ptr %arena, ptr %table) {{
  ret i64 7
}}

; what the last word of an arena of 4096 bytes holds
define i64 @arena(ptr %slots, ptr %arena, ptr %table) {{
  {slot("o", 0)}
  %last = getelementptr i64, ptr %arena, i64 511
  %word = load i64, ptr %last
  store i64 %word, ptr %o
  ret i64 0
}}

; two arrays of 6 doubles in, their sum out
define i64 @add(ptr %slots, ptr %arena, ptr %table) {{
  {slot("a", 0)} {slot("b", 1)} {slot("o", 2)}
  %x = load <6 x double>, ptr %a, align 8
  %y = load <6 x double>, ptr %b, align 8
  %z = fadd <6 x double> %x, %y
  store <6 x double> %z, ptr %o, align 8
  ret i64 0
}}

; w is written: w += x, and the first element of the old w is the scalar output
define i64 @update(ptr %slots, ptr %arena, ptr %table) {{
  {slot("w", 0)} {slot("x", 1)} {slot("o", 2)}
  %u = load <6 x double>, ptr %w, align 8
  %v = load <6 x double>, ptr %x, align 8
  %s = fadd <6 x double> %u, %v
  store <6 x double> %s, ptr %w, align 8
  %first = extractelement <6 x double> %u, i64 0
  store double %first, ptr %o
  ret i64 0
}}

; 16 bytes in, as they are, 16 bytes out
define i64 @copy16(ptr %slots, ptr %arena, ptr %table) {{
  {slot("a", 0)} {slot("o", 1)}
  call void @llvm.memcpy.p0.p0.i64(ptr %o, ptr %a, i64 16, i1 false)
  ret i64 0
}}

; a dynamic array of doubles in, the array and then itself out; table[0] is the code returned
define i64 @twice(ptr %slots, ptr %arena, ptr %table) {{
  {slot("a", 0)} {slot("n", 1, "i64")}
  %bytes = mul i64 %n, 8
  %all = mul i64 %n, 16
  %p = call ptr @malloc(i64 %all)
  %half = getelementptr i8, ptr %p, i64 %bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr %a, i64 %bytes, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %half, ptr %a, i64 %bytes, i1 false)
  %p.at = getelementptr ptr, ptr %slots, i64 2
  store ptr %p, ptr %p.at
  %n2 = mul i64 %n, 2
  %n.at = getelementptr ptr, ptr %slots, i64 3
  store i64 %n2, ptr %n.at
  %code = load i64, ptr %table
  ret i64 %code
}}

; the table's second word, and the arena's address modulo 64
define i64 @context(ptr %slots, ptr %arena, ptr %table) {{
  {slot("o", 0)} {slot("p", 1)}
  %t.at = getelementptr i64, ptr %table, i64 1
  %t = load i64, ptr %t.at
  store i64 %t, ptr %o
  %address = ptrtoint ptr %arena to i64
  %rest = and i64 %address, 63
  store i64 %rest, ptr %p
  ret i64 0
}}

; fills the arena (4096 bytes) with the input byte, lets others run, and fails if a byte has changed
define i64 @exclusive(ptr %slots, ptr %arena, ptr %table) {{
entry:
  {slot("a", 0)} {slot("o", 1)}
  %byte = load i8, ptr %a
  call void @llvm.memset.p0.i64(ptr %arena, i8 %byte, i64 4096, i1 false)
  %ignored = call i32 @sched_yield()
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %same ]
  %done = icmp eq i64 %i, 4096
  br i1 %done, label %fine, label %look
look:
  %at = getelementptr i8, ptr %arena, i64 %i
  %found = load volatile i8, ptr %at
  %equal = icmp eq i8 %found, %byte
  br i1 %equal, label %same, label %changed
same:
  %next = add i64 %i, 1
  br label %loop
changed:
  ret i64 1
fine:
  %wide = zext i8 %byte to i64
  store i64 %wide, ptr %o
  ret i64 0
}}

; counts itself in table[2], and waits (not for ever) until table[3] is set
define i64 @wait(ptr %slots, ptr %arena, ptr %table) {{
entry:
  %started = getelementptr i64, ptr %table, i64 2
  %count = atomicrmw add ptr %started, i64 1 seq_cst
  %flag = getelementptr i64, ptr %table, i64 3
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %set = load atomic i64, ptr %flag seq_cst, align 8
  %go = icmp ne i64 %set, 0
  br i1 %go, label %fine, label %again
again:
  %next = add i64 %i, 1
  %ignored = call i32 @sched_yield()
  %long = icmp sgt i64 %next, 20000000
  br i1 %long, label %never, label %loop
never:
  ret i64 1
fine:
  ret i64 0
}}
"""
LIBRARY = llvm.compile_library(RUNS, re.findall(r"define i64 @(\w+)", RUNS))


class Failed(Exception):
    pass


def on_error(code):
    raise Failed(code)


def array_of(dtype, *shape, written=False, group=0):
    return Input(np.dtype(dtype), shape, written=written, group=group)


def weak(kind):
    return Input(np.dtype(kind), (), weak=kind)


def entry(run, inputs, outputs=(), arena=0, table=TABLE, error=on_error, gil=False, captured=()):
    address = LIBRARY.address(run)
    return Entry(address, inputs, outputs, arena, table, error, gil, LIBRARY, captured)


def adder():
    return entry("add", [array_of(F64, 2, 3), array_of(F64, 2, 3)], [Output(F64, (2, 3))])


def updater(**rest):
    inputs = [array_of(F64, 6, written=True), array_of(F64, 6)]
    return entry("update", inputs, [Output(F64, ())], **rest)


def six(start=0.0):
    return np.arange(6.0) + start


reads_memory = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Results


def test_adds():
    call = adder().call
    a, b = six().reshape(2, 3), six(10).reshape(2, 3)
    result = call(a, b)
    assert type(result) is np.ndarray and result.flags.owndata and result.flags.writeable
    np.testing.assert_array_equal(result, a + b)
    assert not np.shares_memory(result, call(a, b))


def test_layout():
    inputs = [array_of(F64, 3), array_of(F64, None, 2), weak(float)]
    outputs = [Output(F64, (None,)), Output(F64, ())]
    assert layout(inputs, outputs) == ([0, 1, 3], [4, 6])
    one = entry("nothing", inputs, outputs)
    assert one.slot_count == 7
    assert (one.input_slots, one.output_slots) == layout(inputs, outputs)


def test_memory_that_a_run_has_to_write_holds_nan():
    """So that an element which compiled code leaves out shows, in this and in every other test."""
    outputs = [Output(F64, (3, 2)), Output(F64, ()), Output(np.dtype(np.complex64), (2,))]
    one = entry("nothing", [], outputs)
    for _ in range(2):
        result = one.call()
        assert all(np.all(np.isnan(r)) for r in result)
    assert entry("arena", [], [Output(np.dtype(np.int64), ())], arena=4096).call() == -1


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_number_of_outputs(count):
    outputs = [Output(np.dtype(np.int32), (i, 2)) for i in range(count)]
    result = entry("nothing", [], outputs).call()
    if count == 1:
        result = (result,)
    assert type(result) is tuple and [r.shape for r in result] == [(i, 2) for i in range(count)]
    assert all(r.dtype == np.int32 for r in result)


def test_zero_dimensions_and_zero_size():
    shape = (2, 0, 3)
    call = entry("nothing", [array_of(F64, *shape, written=True)] * 2, [Output(F64, shape)]).call
    same = np.zeros(shape)
    assert call(same, same).shape == shape  # nothing is shared where there is nothing
    assert type(entry("nothing", [], [Output(F64, ())]).call()) is np.float64


def test_table_and_arena():
    table = np.array([0, 42, 0, 0])
    outputs = [Output(np.dtype(np.int64), ())] * 2
    for arena in (0, 1, 64, 1000):
        one = entry("context", [], outputs, arena, table)
        assert one.call() == (42, 0) == one.call()


DTYPES = [np.dtype(c) for c in "?bBhHiIlLqQefdFD"]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.char)
def test_every_dtype_as_array_and_scalar(dtype):
    one = entry("copy16", [array_of(dtype)], [Output(dtype, ())])
    # An array of 16 bytes behind the 0-d view: the run copies 16 bytes.
    backing = np.ones(16 // dtype.itemsize, dtype)
    for argument in (backing[:1].reshape(()), dtype.type(1)):
        result = one.call(argument)
        assert type(result) is dtype.type and result == 1
    other = np.dtype(np.float32 if dtype != np.float32 else np.float64)
    assert one.call(other.type(1)) is MISS and one.call(np.ones((), other)) is MISS
    with pytest.raises(TypeError, match="argument 0"):
        one.convert([other.type(1)])


@pytest.mark.parametrize("value", [1.5, -3, 2**63 - 1, -(2**63), True, False, 1 - 2j, float("inf")])
def test_python_scalars(value):
    kind = type(value)
    dtype = np.dtype({float: "d", int: "q", bool: "?", complex: "D"}[kind])
    one = entry("copy16", [weak(kind)], [Output(dtype, ())])
    assert one.call(value) == value == one.convert([value])
    for wrong in (1.5, 1, True, 1j, np.float64(1), np.True_, six(), None):
        if type(wrong) is not kind:
            assert one.call(wrong) is MISS
            with pytest.raises(TypeError, match=f"expected a Python {kind.__name__}"):
                one.convert([wrong])


def test_python_int_of_more_than_64_bits():
    one = entry("copy16", [weak(int)], [Output(np.dtype(np.int64), ())])
    for value in (2**63, -(2**63) - 1, 10**40):
        assert one.call(value) is MISS
        with pytest.raises(OverflowError, match=str(value)):
            one.convert([value])


def test_subclasses_of_python_scalars():
    class Colour(IntEnum):
        RED = 3

    one = entry("copy16", [weak(int)], [Output(np.dtype(np.int64), ())])
    assert one.call(Colour.RED) is MISS
    assert one.convert([Colour.RED]) == 3


# Misses


class Sub(np.ndarray):
    pass


def misaligned(array):
    buffer = np.zeros(array.nbytes + 1, np.uint8)[1:]
    view = buffer.view(array.dtype).reshape(array.shape)
    view[...] = array
    assert not view.flags.aligned
    return view


CONVERTIBLE = {
    "transposed": lambda a: a.T.copy().T,
    "strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "negative": lambda a: a[::-1].copy()[::-1],
    "misaligned": misaligned,
    "swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "subclass": lambda a: a.view(Sub),
}


@pytest.mark.parametrize("make", CONVERTIBLE.values(), ids=CONVERTIBLE.keys())
def test_converted_argument(make):
    one = adder()
    a, b = six().reshape(2, 3), six(10).reshape(2, 3)
    assert one.call(make(a), b) is MISS
    np.testing.assert_array_equal(one.convert([make(a), b]), a + b)


@pytest.mark.parametrize("make", CONVERTIBLE.values(), ids=CONVERTIBLE.keys())
def test_converted_written_argument(make):
    inputs = [array_of(F64, 2, 3, written=True), array_of(F64, 2, 3)]
    one = entry("update", inputs, [Output(F64, ())])
    w, x = make(six(1).reshape(2, 3)), six(10).reshape(2, 3)
    before = np.array(w)
    assert one.call(w, x) is MISS
    np.testing.assert_array_equal(np.array(w), before)
    assert one.convert([w, x]) == 1.0
    np.testing.assert_array_equal(np.array(w), before + x)


def test_aliases_of_a_type_are_views():
    dtype = np.dtype("q") if np.dtype("l").num == np.dtype(np.int64).num else np.dtype("l")
    one = entry("nothing", [array_of(np.int64, 3, written=True)], [])
    alias = np.zeros(3, dtype)
    assert dtype == np.int64 and one.call(alias) is MISS and one.convert([alias]) == ()


REFUSED = {
    "float32": six().reshape(2, 3).astype(np.float32),
    "int64": np.zeros((2, 3), np.int64),
    "object": np.zeros((2, 3), object),
    "rank": six(),
    "rank 3": np.zeros((1, 2, 3)),
    "extent": np.zeros((2, 4)),
    "0-d": np.array(1.0),
    "list": [[1.0, 2.0, 3.0]] * 2,
    "None": None,
    "float": 1.0,
    "scalar": np.float64(1),
    "string": "abc",
    "masked": np.ma.masked_array(six().reshape(2, 3), mask=True),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED.keys())
def test_refused_argument(value):
    one, good = adder(), six().reshape(2, 3)
    references = sys.getrefcount(value), sys.getrefcount(good), sys.getrefcount(MISS)
    for _ in range(100):
        assert one.call(value, good) is MISS and one.call(good, value) is MISS
    after = sys.getrefcount(value), sys.getrefcount(good), sys.getrefcount(MISS)
    # Others hold None and small constants too, and come and go; a leak would be 200.
    assert all(abs(a - b) < 50 for a, b in zip(after, references, strict=True))
    with pytest.raises(TypeError, match=r"argument 1: got .*, expected float64\[2, 3\]"):
        one.convert([good, value])


def test_messages():
    one = updater()
    read_only = six()
    read_only.flags.writeable = False
    assert one.call(read_only, six()) is MISS
    expected = r"argument 0: got read-only ndarray float64\[6\], expected a writeable float64\[6\]"
    with pytest.raises(TypeError, match=expected):
        one.convert([read_only, six()])
    one.call(six(), read_only)
    with pytest.raises(TypeError, match=r"argument 1: got ndarray float32\[2\], expected float64\[6\]"):
        one.convert([six(), np.zeros(2, np.float32)])
    with pytest.raises(TypeError, match="got 1 arguments, expected 2"):
        one.convert([six()])
    assert one.call() is MISS and one.call(six(), six(), six()) is MISS
    with pytest.raises(TypeError, match="keyword"):
        one.call(six(), x=six())


def test_python_scalar_into_typed_input():
    one = entry("copy16", [array_of(np.float32)], [Output(np.dtype(np.float32), ())])
    assert one.call(2.5) is MISS
    assert one.convert([2.5]) == 2.5 and one.convert([3]) == 3
    with pytest.raises(TypeError, match="got complex"):
        one.convert([1j])
    small = entry("copy16", [array_of(np.int8)], [Output(np.dtype(np.int8), ())])
    assert small.convert([-7]) == -7
    with pytest.raises(OverflowError):
        small.convert([300])
    with pytest.raises(TypeError, match="got float"):
        small.convert([1.0])


def test_written_scalar_is_refused():
    one = entry("nothing", [array_of(F64, written=True)])
    assert one.call(np.float64(1)) is MISS
    for value in (np.float64(1), 1.0):
        with pytest.raises(TypeError):
            one.convert([value])


# Written arguments and shared memory


def test_writes_in_place():
    call, w, x = updater().call, six(5), six()
    for step in range(4):
        assert call(w, x) == 5 + step * x[0]
    np.testing.assert_array_equal(w, six(5) + 4 * x)


def test_shared_memory_is_copied():
    one = updater()
    w = six(1)
    assert one.call(w, w) is MISS
    np.testing.assert_array_equal(w, six(1))
    assert one.convert([w, w]) == 1
    np.testing.assert_array_equal(w, 2 * six(1))
    buffer = np.arange(8.0)
    assert one.call(buffer[:6], buffer[2:]) is MISS
    assert one.convert([buffer[:6], buffer[2:]]) == 0
    np.testing.assert_array_equal(buffer, [2, 4, 6, 8, 10, 12, 6, 7])
    buffer = np.arange(12.0)
    assert one.call(buffer[:6], buffer[6:]) == 0  # neighbours are apart
    np.testing.assert_array_equal(buffer[:6], six() + six(6))


def test_longer_argument_at_the_same_address():
    call = entry("nothing", [array_of(F64, None, written=True), array_of(F64, None)]).call
    buffer = np.zeros(10)
    assert call(buffer[:4], buffer[4:]) == ()
    assert call(buffer[:5], buffer[4:]) is MISS
    assert call(buffer[:4], buffer[4:]) == ()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_disjointness_against_brute_force(data):
    """A sequence of calls on one entry, so that what it remembers of earlier ones is tested too."""
    count = data.draw(st.integers(1, 24))
    written = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    groups = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    buffer = np.zeros(data.draw(st.sampled_from([8, 60, 2000])), np.uint8)
    piece = st.tuples(st.integers(0, len(buffer)), st.integers(0, 6))
    captured = [buffer[start : start + length] for start, length in data.draw(st.lists(piece, max_size=3))]
    inputs = [array_of(np.uint8, None, written=w, group=g) for w, g in zip(written, groups, strict=True)]
    one = entry("nothing", inputs, captured=captured)
    pieces = data.draw(st.lists(piece, min_size=count, max_size=count))
    earlier = []
    for _ in range(8):
        arguments = [buffer[start : start + length] for start, length in pieces]
        clash = any(
            (written[i] or written[j] or groups[i] == groups[j] != 0) and np.shares_memory(arguments[i], arguments[j])
            for i, j in itertools.combinations(range(count), 2)
        ) or any(np.shares_memory(a, c) for a, w in zip(arguments, written, strict=True) for c in captured if w)
        assert (one.call(*arguments) is MISS) == clash
        assert one.convert(arguments) == ()
        earlier.append(list(pieces))
        pieces = data.draw(st.sampled_from(earlier))[:]
        for i in data.draw(st.lists(st.integers(0, count - 1), max_size=count)):
            pieces[i] = data.draw(piece)


def test_many_written_arguments():
    inputs = [array_of(F64, 4, written=True)] * 600
    call = entry("nothing", inputs).call
    rows = list(np.zeros((600, 4)))
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert call(*rows) == () == call(*rows)
        assert call(*rows[:300], rows[17], *rows[301:]) is MISS
        rng.shuffle(rows)
    captured = entry("nothing", inputs, captured=[np.zeros(4), rows[7][::3]]).call
    assert captured(*rows) is MISS and captured(*rows[:7], np.zeros(4), *rows[8:]) == ()


def test_results_that_are_arguments():
    inputs = [array_of(F64, 6, written=True), array_of(F64, 6)]
    outputs = [Output(F64, (6,), taken=0), Output(F64, ())]
    assert layout(inputs, outputs) == ([0, 1], [2, 2])
    one = entry("update", inputs, outputs)
    a, b = six(), six(10)
    references, before = sys.getrefcount(a), a.copy()
    for _ in range(50):
        found, first = one.call(a, b)
        assert found is a and first == before[0]
        np.testing.assert_array_equal(a, before + b)
        before = a.copy()
        assert one.call(a, a) is MISS
    del found
    assert sys.getrefcount(a) == references
    backwards = a[::-1].copy()[::-1]
    copied, first = one.convert([backwards, b])
    assert first == a[0] and copied is not backwards
    np.testing.assert_array_equal(copied, a + b)
    alone = entry("nothing", [array_of(F64, 6, written=True)], [Output(F64, (6,), taken=0)])
    assert alone.call(a) is a
    with pytest.raises(ValueError, match="is a written one"):
        entry("nothing", [array_of(F64, 6)], [Output(F64, (6,), taken=0)])


# Dynamic lengths


@pytest.mark.parametrize("length", [0, 1, 5, 1000])
def test_dynamic_length(length):
    table = TABLE.copy()
    one = entry("twice", [array_of(F64, None)], [Output(F64, (None,))], table=table)
    a = np.random.default_rng(length).normal(size=length)
    for _ in range(3):
        result = one.call(a)
        np.testing.assert_array_equal(result, np.concatenate([a, a]))
        assert result.flags.owndata
    assert one.call(a.reshape(-1, 1)) is MISS
    np.testing.assert_array_equal(one.convert([np.repeat(a, 2)[::2]]), np.concatenate([a, a]))


def test_dynamic_rows():
    table = TABLE.copy()
    one = entry("twice", [array_of(F64, None, 1)], [Output(F64, (None, 1))], table=table)
    a = six().reshape(6, 1)
    np.testing.assert_array_equal(one.call(a), np.concatenate([a, a]))


# Errors


def test_error_code():
    table = np.array([7, 0, 0, 0])
    outputs = [Output(F64, (None,)), Output(F64, (3,))]
    one = entry("twice", [array_of(F64, None)], outputs, table=table)
    with pytest.raises(Failed) as caught:
        one.call(six())
    assert caught.value.args == (7,) and type(caught.value.args[0]) is int
    table[0] = -(2**40)
    with pytest.raises(Failed, match=str(-(2**40))):
        one.call(six())
    table[0] = 0
    assert len(one.call(six())) == 2


def test_error_code_is_not_leaked():
    codes = []

    def remember(code):
        codes.append(code)
        raise Failed

    one = entry(
        "twice", [array_of(F64, None)], [Output(F64, (None,))], table=np.array([2**40]), error=remember
    )
    with pytest.raises(Failed):
        one.call(six())
    fresh = [int("1" + "0" * 12)]
    assert codes == [2**40] and sys.getrefcount(codes[0]) == sys.getrefcount(fresh[0])


def test_error_handler_that_returns():
    with pytest.raises(RuntimeError, match="code 7 and nothing was raised"):
        entry("fail", [], error=lambda code: None).call()


def test_error_leaves_converted_arguments_alone():
    inputs = [array_of(F64, 2, 3, written=True)]
    w = six().reshape(3, 2).T
    with pytest.raises(Failed):
        entry("fail", inputs).convert([w])
    np.testing.assert_array_equal(w, six().reshape(3, 2).T)


def test_out_of_memory():
    with pytest.raises(MemoryError):
        entry("nothing", [], [Output(F64, (3,)), Output(F64, (2**57,))]).call()
    with pytest.raises(MemoryError):
        entry("nothing", [], arena=2**60).call()


def test_rejected_specifications():
    for inputs, outputs, table in [
        ([array_of(F64, 3, None)], [], TABLE),
        ([], [Output(F64, (3, None))], TABLE),
        ([Input(F64, (3,), weak=float)], [], TABLE),
        ([Input(F64, (), weak=float, written=True)], [], TABLE),
        ([Input(F64, (), weak=str)], [], TABLE),
        ([array_of(">f8", 3)], [], TABLE),
        ([array_of("datetime64[s]", 3)], [], TABLE),
        ([], [Output(np.dtype(">f8"), (3,))], TABLE),
        ([], [Output(np.dtype(object), (3,))], TABLE),
        ([], [], np.zeros((4, 4), np.int64)[:, 1]),
    ]:
        with pytest.raises(ValueError):
            entry("nothing", inputs, outputs, table=table)


# References and memory


def test_references():
    one = adder()
    a, b = six().reshape(2, 3), six(10).reshape(2, 3)
    counted = (a, b, F64, MISS, np.ndarray, one.call, on_error)

    def references():
        return [sys.getrefcount(value) for value in counted]

    failing = entry("fail", [array_of(F64, 2, 3)], [Output(F64, (2, 3))])
    gc.collect()  # what earlier tests left must not die meanwhile
    before = references()
    for _ in range(1000):
        result = one.call(a, b)
        assert one.call(a.T, b) is MISS
        with pytest.raises(Failed):
            failing.call(a)
    fresh = a + b
    assert sys.getrefcount(result) == sys.getrefcount(fresh)
    del result, fresh
    assert references() == before


@reads_memory
def test_memory_stays_flat():
    table = np.array([0, 0, 0, 0])
    outputs = [Output(F64, (None,)), Output(F64, (64,)), Output(F64, ())]
    one = entry("twice", [array_of(F64, None)], outputs, arena=4096, table=table)
    good, bad = np.zeros(64), np.zeros((8, 8))
    shared = updater(arena=512)

    def calls(n):
        for _ in range(n):
            table[0] = 0
            one.call(good)
            one.call(bad)
            shared.call(good[:6], good[3:9])
            table[0] = 1
            with pytest.raises(Failed):
                one.call(good)

    calls(2000)
    before = resident()
    calls(25000)
    assert resident() - before < 2**20  # a lost array a call would be 15 megabytes or more


@reads_memory
def test_entries_give_their_memory_back():
    def entries(n):
        for _ in range(n):
            one = updater(arena=2**20)
            one.call(six(), six())
            # The arena counts only once touched.
            assert entry("exclusive", [array_of(np.uint8)], [Output(np.dtype("q"), ())], arena=2**16).call(
                np.uint8(3)
            )

    entries(100)
    before = resident()
    entries(1000)
    assert resident() - before < 2**22


def test_function_outlives_entry():
    call = updater(table=np.zeros(4, np.int64)).call
    gc.collect()
    w = six(2)
    assert call(w, six()) == 2


def test_cycle_through_error_handler_is_collected():
    class Owner:
        def fail(self, code):
            raise Failed(code)

    owner = Owner()
    owner.entry = entry("fail", [], error=owner.fail)
    with pytest.raises(Failed):
        owner.entry.call()
    alive = weakref.ref(owner)
    del owner
    gc.collect()
    assert alive() is None


# Threads and processes


@pytest.mark.parametrize("gil", [False, True])
def test_eight_threads(gil):
    call = entry(
        "exclusive", [array_of(np.uint8)], [Output(np.dtype("q"), ())], arena=4096, gil=gil
    ).call
    wrong = []

    def work(byte):
        for _ in range(300):
            if call(byte) != byte:
                wrong.append(byte)

    threads = [threading.Thread(target=work, args=(np.uint8(i + 1),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_releases_the_interpreter_lock():
    table = np.zeros(4, np.int64)
    call = entry("wait", [], table=table, gil=True).call
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    while not table[2]:
        pass
    table[3] = 1  # reachable only while the other thread runs without the lock
    thread.join()
    assert results == [()]


@reads_memory
def test_blocks_of_concurrent_calls_are_freed():
    table = np.zeros(4, np.int64)
    call = entry("wait", [], arena=2**16, table=table, gil=True).call

    def rounds(n):
        for _ in range(n):
            table[2:] = 0
            threads = [threading.Thread(target=call) for _ in range(4)]
            for thread in threads:
                thread.start()
            while table[2] < 4:
                pass
            table[3] = 1
            for thread in threads:
                thread.join()

    rounds(20)
    before = resident()
    rounds(150)
    assert resident() - before < 2**20  # three lost blocks a round would be two megabytes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_fork():
    call, w = updater(arena=1000, gil=True).call, six(1)
    call(w, six())
    child = os.fork()
    if child == 0:
        ok = call(w, six()) == 1 and call(six(3), six()) == 3 and updater().call(six(4), six()) == 4
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert call(w, six()) == 1


def test_interpreter_exit_with_entries_alive():
    code = (
        "import numpy as np, sys; sys.path.insert(0, 'tests')\n"
        "import test_entry as t\n"
        "t.KEPT = t.updater(arena=1000)\n"
        "from wonderland.compile import entry; entry._compiled.cache_clear()\n"
        "print(t.KEPT.call(t.six(3), t.six()))\n"
        "class Late:\n"
        "    def __del__(self, call=t.KEPT.call, a=t.six(8), b=t.six()): print(call(a, b))\n"
        "np.late = Late()\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = os.environ | {"PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[0] == "3.0"


def test_known_layout_is_checked(monkeypatch):
    from wonderland.compile import entry_layout as module

    monkeypatch.setitem(module.FIELDS, "array.dims", module.FIELDS["array.data"])
    with pytest.raises(ImportError, match="dimensions"):
        module.check_layout()
