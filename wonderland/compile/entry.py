"""The native entry of a compiled Program: flat Python arguments come in, fresh NumPy results go out.

A Program's machine code is `i64 run(ptr slots, ptr arena, ptr table)`. An `Entry` puts a builtin function,
`call`, in front of it. One generic METH_FASTCALL function, compiled once per process from the IR below,
serves all entries: it checks each argument against a plain table of 64-bit words (the spec), fetches its data
pointer, makes the outputs, leases scratch memory, runs, and returns. When an argument doesn't fit as it is,
`call` returns `MISS` and has changed nothing; `Entry.convert` then makes it fit, or says why it can't.

The slots, in order: each input's data pointer (and its leading length, if dynamic); each output's data
pointer (if dynamic: a malloc'ed pointer and the leading length, both stored by the run); the constants' data
pointers. The run may store into the slots of dynamic outputs and into no others.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import numpy as np

from wonderland.compile import llvm

CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # NumPy's array flags
METH_FASTCALL = 0x80
CACHE_LINE = 64
WEAK_KINDS: dict[type, int] = {float: 1, int: 2, bool: 3, complex: 4}
KIND_ORDER = "bifc"  # a Python scalar fits into a typed 0-d input of its own kind or a later one
ARRAY, SCALAR, DYNAMIC = 0, 1, 2  # kinds of output


class _Miss:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISS"


MISS = _Miss()


@dataclass(frozen=True)
class Input:
    """One flat argument.

    `shape[0]` may be None: any leading length. `weak`: a Python scalar of exactly that type is expected, and
    stored as float64, int64, bool or complex128. `written`: the run writes into the argument's own memory.
    `name` is what errors call it; by default its position.
    """

    type_num: int
    itemsize: int
    shape: tuple[int | None, ...]
    weak: type | None = None
    written: bool = False
    name: str = ""


@dataclass(frozen=True)
class Output:
    """One result. `shape[0]` may be None: the run tells the length. `scalar`: NumPy scalar instead of 0-d."""

    dtype: np.dtype
    shape: tuple[int | None, ...]
    scalar: bool = False


def _dynamic(shape: tuple[int | None, ...]) -> bool:
    return bool(shape) and shape[0] is None


def _bytes(shape: tuple[int | None, ...], itemsize: int) -> int:
    """Size of an array, or of a row of it if its length is dynamic."""
    return math.prod(n for n in shape if n is not None) * itemsize


def layout(
    inputs: Sequence[Input], outputs: Sequence[Output], n_constants: int
) -> tuple[list[int], list[int], list[int]]:
    """The slot of each input, output and constant; a dynamic one's leading length is in the slot after it."""
    position = 0
    slots: list[list[int]] = [[], []]
    for found, values in zip(slots, (inputs, outputs), strict=True):
        for value in values:
            found.append(position)
            position += 2 if _dynamic(value.shape) else 1
    return slots[0], slots[1], list(range(position, position + n_constants))


class Entry:
    """A native function in front of `run`.

    `call(*flat_args)` returns the single output, or a tuple of the outputs (always with `always_tuple`), or
    `MISS`. A code other than 0 from the run goes to `on_error`, which raises. Calls are re-entrant, and may
    come from any thread; `call` keeps alive all that it needs.
    """

    def __init__(
        self,
        run: int,
        inputs: Iterable[Input],
        outputs: Iterable[Output],
        constants: list[np.ndarray],
        arena_bytes: int,
        table: np.ndarray,
        on_error: Callable[[int], NoReturn],
        release_gil: bool,
        keep_alive: object,
        always_tuple: bool = False,
    ):
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        native = _native()
        self._dtypes = [native.dtype(one.type_num) if one.weak is None else None for one in self.inputs]
        self._check((*constants, table))
        slots = layout(self.inputs, self.outputs, len(constants))
        self.input_slots, self.output_slots, self.constant_slots = slots
        lengths = sum(_dynamic(value.shape) for value in (*self.inputs, *self.outputs))
        self.slot_count = len(self.inputs) + len(self.outputs) + len(constants) + lengths
        spec = self._spec(constants, arena_bytes)
        _put(
            spec, 0, "spec", run=run, table=_address(table), on_error=id(on_error), miss=id(MISS),
            release_gil=int(release_gil), always_tuple=int(always_tuple),
        )  # fmt: skip
        # The function owns, through its `self`, everything whose address is in the spec: it may outlive the
        # Entry. A tuple, so that the garbage collector sees a cycle through `on_error`.
        objects = (self._dtypes, self.outputs, constants, table, on_error, keep_alive)
        self.call: Callable[..., Any] = native.bind((spec, _Blocks(spec, native.release), *objects))

    def _check(self, arrays: Iterable[np.ndarray]) -> None:
        if not all(array.flags.c_contiguous and array.flags.aligned for array in arrays):
            raise ValueError("constants and the table must be contiguous and aligned")
        for value in (*self.inputs, *self.outputs):
            if any(n is None for n in value.shape[1:]):
                raise ValueError(f"only the first extent may be dynamic: {value}")
        for one, dtype in zip(self.inputs, self._dtypes, strict=True):
            if dtype is None:
                if one.weak not in WEAK_KINDS or one.shape or one.written:
                    raise ValueError(f"a weak input is an unwritten float, int, bool or complex: {one}")
            elif one.itemsize != dtype.itemsize:
                raise ValueError(f"an item of {dtype} has {dtype.itemsize} bytes: {one}")
        for dtype in (*self._dtypes, *(one.dtype for one in self.outputs)):
            if dtype and (dtype.kind not in "biufc" or dtype.itemsize > 16 or not dtype.isnative):
                raise ValueError(f"compiled code has no dtype {dtype!r}")

    def _spec(self, constants: list[np.ndarray], arena_bytes: int) -> np.ndarray:
        """The words that the native function reads: a header, records, constants' addresses, extents."""
        n_in, n_out = len(self.inputs), len(self.outputs)
        extents = [n for value in (*self.inputs, *self.outputs) for n in value.shape]
        at_outputs = SPEC_WORDS + n_in * INPUT_WORDS
        at_constants = at_outputs + n_out * OUTPUT_WORDS
        at_extents = at_constants + len(constants)
        spec = np.zeros(at_extents + len(extents), np.int64)
        spec[at_constants:at_extents] = [_address(array) for array in constants]
        spec[at_extents:] = [-1 if n is None else n for n in extents]

        # A leased block: header, slots, 16-byte cells for scalars, the entry's own notes, the arena.
        slots = CACHE_LINE
        cells = _up(slots + 8 * self.slot_count, 16)
        objects = cells + 16 * (n_in + n_out)
        changed = objects + 8 * n_out
        ranges = _up(changed + 8 * n_in, 16)
        arena = _up(ranges + 16 * n_in, CACHE_LINE)
        base = _address(spec)
        _put(
            spec, 0, "spec", inputs=base + 8 * SPEC_WORDS, input_count=n_in,
            written_count=sum(one.written for one in self.inputs), outputs=base + 8 * at_outputs,
            output_count=n_out, constants=base + 8 * at_constants, constant_count=len(constants),
            constant_slots=slots + 8 * (self.slot_count - len(constants)), objects=objects, changed=changed,
            ranges=ranges, arena=arena, block_bytes=arena + arena_bytes,
        )  # fmt: skip
        dims = base + 8 * at_extents
        for i, (one, dtype, slot) in enumerate(zip(self.inputs, self._dtypes, self.input_slots, strict=True)):
            record = SPEC_WORDS + i * INPUT_WORDS
            flags = CONTIGUOUS | ALIGNED | (WRITEABLE if one.written else 0)
            _put(
                spec, record, "input", nd=len(one.shape), dims=dims, slot=slots + 8 * slot, flags=flags,
                cell=cells + 16 * i, dynamic=int(_dynamic(one.shape)), written=int(one.written),
            )  # fmt: skip
            if one.weak is not None:
                _put(spec, record, "input", weak=WEAK_KINDS[one.weak])
            elif dtype is not None:
                _put(
                    spec, record, "input", descr=id(dtype), num=one.type_num, scalar=id(dtype.type),
                    bytes=_bytes(one.shape, one.itemsize),
                )  # fmt: skip
            dims += 8 * len(one.shape)
        for i, (one, slot) in enumerate(zip(self.outputs, self.output_slots, strict=True)):
            kind = DYNAMIC if _dynamic(one.shape) else SCALAR if one.scalar and not one.shape else ARRAY
            _put(
                spec, at_outputs + i * OUTPUT_WORDS, "output", kind=kind, descr=id(one.dtype), dims=dims,
                nd=len(one.shape), slot=slots + 8 * slot, cell=cells + 16 * (n_in + i),
                bytes=_bytes(one.shape, one.dtype.itemsize),
            )  # fmt: skip
            dims += 8 * len(one.shape)
        return spec

    def convert(self, flat_args: Sequence[Any]) -> Any:
        """The slow way: make every argument fit by a view or a copy, call, and copy written ones back.

        Where two written arguments share memory, the values of the later one are what stays.
        """
        if len(flat_args) != len(self.inputs):
            raise TypeError(f"got {len(flat_args)} arguments, expected {len(self.inputs)}")
        fitted = [self._fit(i, value) for i, value in enumerate(flat_args)]
        result = self.call(*fitted)
        if result is MISS:  # everything fits by now, so a written argument shares memory with another one
            pairs = zip(self.inputs, fitted, strict=True)
            fitted = [value.copy() if one.written else value for one, value in pairs]
            result = self.call(*fitted)
            if result is MISS:
                raise RuntimeError("arguments that were made to fit are refused: a fault of wonderland's")
        for one, value, original in zip(self.inputs, fitted, flat_args, strict=True):
            if one.written and _address(value) != _address(original):
                np.asarray(original)[...] = value
        return result

    def _fit(self, position: int, value: Any) -> Any:
        """`value` as a Python scalar or an ndarray that `call` takes: itself, or a view, or a copy."""
        one, dtype = self.inputs[position], self._dtypes[position]
        if one.weak is not None:
            fits = isinstance(value, one.weak) and not isinstance(value, np.generic)
            if not fits or (one.weak is int and isinstance(value, bool)):
                raise self._misfit(position, value)
            plain = one.weak(value)
            if one.weak is int and not -(2**63) <= plain < 2**63:
                raise OverflowError(f"{self._name(position)}: {plain} does not fit in 64 bits")
            return plain
        assert dtype is not None
        if type(value) in WEAK_KINDS and not one.shape and not one.written:
            if KIND_ORDER.index(dtype.kind.replace("u", "i")) < KIND_ORDER.index(np.dtype(type(value)).kind):
                raise self._misfit(position, value)
            return np.array(value, dtype)
        if not isinstance(value, (np.ndarray, np.generic)) or (one.written and not value.flags.writeable):
            raise self._misfit(position, value)
        if isinstance(value, np.ma.MaskedArray):  # its mask would be dropped without a word
            raise self._misfit(position, value)
        array = np.asarray(value)
        shape = tuple(m if n is None else n for m, n in zip(array.shape, one.shape, strict=False))
        same_rank = array.ndim == len(one.shape)
        if not same_rank or array.shape != shape or array.dtype.newbyteorder("=") != dtype:
            raise self._misfit(position, value)
        if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
            return array if array.dtype.num == dtype.num else array.view(dtype)  # int64 has two numbers
        return np.array(array, dtype, order="C")

    def _name(self, position: int) -> str:
        return self.inputs[position].name or f"argument {position}"

    def _misfit(self, position: int, value: Any) -> TypeError:
        one, dtype = self.inputs[position], self._dtypes[position]
        if dtype is None:
            expected = f"a Python {getattr(one.weak, '__name__', one.weak)}"
        else:
            extents = ", ".join("any" if n is None else str(n) for n in one.shape)
            expected = f"{'a writeable ' if one.written else ''}{dtype.name}[{extents}]"
        came = type(value).__name__
        if isinstance(value, (np.ndarray, np.generic)):
            read_only = "read-only " if one.written and not value.flags.writeable else ""
            came = f"{read_only}{came} {value.dtype.name}[{', '.join(map(str, value.shape))}]"
        return TypeError(f"{self._name(position)}: got {came}, expected {expected}")


class _Blocks:
    """Gives an entry's cached block back when the entry's function dies."""

    __slots__ = ("_release", "_spec")

    def __init__(self, spec: np.ndarray, release: Callable[[int], None]):
        self._spec, self._release = spec, release

    def __del__(self) -> None:
        self._release(_address(self._spec))


def _put(spec: np.ndarray, position: int, record: str, **fields: int) -> None:
    for field, value in fields.items():
        spec[position + OFFSETS[f"{record}.{field}"] // 8] = value


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Native:
    """The loaded code, and what Python needs of it.

    It is never unloaded: functions made from it may be called until the interpreter is gone.
    """

    def __init__(self) -> None:
        api, pythonapi = _api(), ctypes.pythonapi
        names = re.findall(r"(?m)^declare \S+ @(Py\w+)\(", IR)
        imports = {name: api[API[name]] for name in names if name in API}
        imports |= {name: _function(getattr(pythonapi, name)) for name in names if name not in API}
        imports |= {"PyArray_Type": id(np.ndarray), "PyFloat_Type": id(float), "PyLong_Type": id(int)}
        imports |= {"PyBool_Type": id(bool), "PyComplex_Type": id(complex), "Py_True": id(True)}
        imports |= {"RuntimeError_Type": id(RuntimeError)}
        call, release = "wonderland_entry_call", "wonderland_entry_release"
        self.library = llvm.compile_library(_expand(IR), [call, release], imports)
        self.method = _Method(b"call", self.library.address(call), METH_FASTCALL, None)
        self.release = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self.library.address(release))
        self.dtype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int)(api[API["PyArray_DescrFromType"]])
        self._new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            _function(pythonapi.PyCFunction_NewEx)
        )
        pythonapi.Py_IncRef(ctypes.py_object(self))

    def bind(self, owned: tuple[Any, ...]) -> Callable[..., Any]:
        return self._new(ctypes.addressof(self.method), owned, None)


def _function(pointer: Any) -> int:
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    assert address is not None
    return address


@cache
def _compiled() -> _Native:
    return _Native()


def _native() -> _Native:
    with llvm.lock:  # `cache` alone would let two threads compile
        return _compiled()


# From here on: the native code, and the records that it shares with Python.

# Indices into NumPy's C API table (numpy/__multiarray_api.h), the same in every NumPy 2.
API = {
    "PyArray_Type": 2,
    "PyArray_DescrFromType": 45,
    "PyArray_Scalar": 60,
    "PyArray_ScalarAsCtype": 62,
    "PyArray_NewFromDescr": 94,
}

# Byte offsets. Those of Python objects count from the head, which is longer in free-threaded builds.
_HEAD = object.__basicsize__
OFFSETS = {
    "object.type": _HEAD - 8,
    "array.data": _HEAD,
    "array.nd": _HEAD + 8,
    "array.dims": _HEAD + 16,
    "array.descr": _HEAD + 40,
    "array.flags": _HEAD + 48,
    "descr.order": _HEAD + 10,
    "descr.num": _HEAD + 12,
}


def _words(record: str, names: str) -> int:
    """Register the fields of a record of 64-bit words; returns its size in words."""
    OFFSETS.update((f"{record}.{name}", 8 * i) for i, name in enumerate(names.split()))
    return len(names.split())


SPEC_WORDS = _words(
    "spec",
    "run table on_error miss release_gil always_tuple inputs input_count written_count outputs output_count "
    "constants constant_count constant_slots objects changed ranges arena block_bytes cached",
)
INPUT_WORDS = _words("input", "weak descr num scalar flags nd dims slot cell bytes dynamic written")
OUTPUT_WORDS = _words("output", "kind descr nd dims slot cell bytes")
_words("block", "allocation disjoint")  # the header of a leased block; its slots start at CACHE_LINE


def _api() -> Any:
    """NumPy's C API table, as an array of addresses."""
    capsule: Any = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        _function(ctypes.pythonapi.PyCapsule_GetPointer)
    )
    return (ctypes.c_void_p * (max(API.values()) + 1)).from_address(pointer(capsule, None))


def _check_layout() -> None:
    """Read an array by the offsets the native code will use."""

    def read(address: int, field: str, kind: Any) -> int:
        return kind.from_address(address + OFFSETS[field]).value

    array = np.zeros((2, 3), np.float32)
    pointer, integer = ctypes.c_size_t, ctypes.c_int32
    dims = read(id(array), "array.dims", pointer)
    wanted = CONTIGUOUS | ALIGNED | WRITEABLE
    found = {
        "pointers of 8 bytes": ctypes.sizeof(pointer) == 8,
        "type": read(id(array), "object.type", pointer) == id(np.ndarray),
        "data": read(id(array), "array.data", pointer) == _address(array),
        "nd": read(id(array), "array.nd", integer) == 2,
        "dimensions": tuple((ctypes.c_int64 * 2).from_address(dims)) == (2, 3),
        "descr": read(id(array), "array.descr", pointer) == id(array.dtype),
        "flags": read(id(array), "array.flags", integer) & wanted == wanted,
        "byteorder": chr(read(id(array.dtype), "descr.order", ctypes.c_uint8)) == "=",
        "type_num": read(id(array.dtype), "descr.num", integer) == array.dtype.num,
        "C API table": _api()[API["PyArray_Type"]] == id(np.ndarray),
    }
    wrong = [name for name, fits in found.items() if not fits]
    if wrong:
        versions = f"NumPy {np.__version__} on Python {sys.version.split()[0]}"
        raise ImportError(f"{versions} lays out arrays in a way unknown here: {', '.join(wrong)}")


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


def _expand(text: str) -> str:
    """Plain LLVM IR of text with shorthands."""
    numbers = itertools.count()
    for pattern, meaning in _SHORTHANDS.items():

        def lines(match: re.Match[str], meaning: str = meaning) -> str:
            return match.expand(meaning).replace("NEW", str(next(numbers)))

        text = re.sub(rf"(?m)^ *{pattern}$", lines, text)
    text = re.sub(r"OFFSET\.(\S+)", lambda m: str(OFFSETS[m[1]]), text)
    return text.replace("INPUT_WORDS", str(INPUT_WORDS)).replace("OUTPUT_WORDS", str(OUTPUT_WORDS))


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
declare ptr @PyErr_NoMemory()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyArray_Scalar(ptr, ptr, ptr)
declare void @PyArray_ScalarAsCtype(ptr, ptr)
declare ptr @PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @qsort(ptr, i64, i64, ptr)
declare i32 @llvm.ucmp.i32.i64(i64, i64)
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

; One argument into its slot: 0 as in the block's last call, 1 another address or length, 2 it doesn't fit.
define internal i64 @fetch(ptr %record, ptr %object, ptr %block) {
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
  %before.cell = load ptr, ptr %slot
  store ptr %cell, ptr %slot
  %moved.cell = icmp ne ptr %before.cell, %cell
  %moved.cell.word = zext i1 %moved.cell to i64
  ret i64 %moved.cell.word
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
  %before = load ptr, ptr %slot
  store ptr %data, ptr %slot
  %moved = icmp ne ptr %before, %data
  %moved.word = zext i1 %moved to i64
  when ne i64 %dynamic, 0 then %length else %static
static:
  ret i64 %moved.word
length:
  %leading = load i64, ptr %dims
  %slot.length = getelementptr i64, ptr %slot, i64 1
  %leading.before = load i64, ptr %slot.length
  store i64 %leading, ptr %slot.length
  %resized = icmp ne i64 %leading, %leading.before
  %different = or i1 %moved, %resized
  %different.word = zext i1 %different to i64
  ret i64 %different.word
miss:
  ret i64 2
}

; The bytes [start, end) of an argument, as start and 2 * end + written; an empty one or a Python scalar has 0
; for the second.
define internal { i64, i64 } @range(ptr %record, ptr %block) {
entry:
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
  %count = phi i64 [ 1, %entry ], [ %rows, %length ]
  %size = mul i64 %bytes, %count
  %end = add i64 %start, %size
  %twice = shl i64 %end, 1
  %tagged = or i64 %twice, %written
  %empty = icmp eq i64 %size, 0
  %tail = select i1 %empty, i64 0, i64 %tagged
  %first = insertvalue { i64, i64 } poison, i64 %start, 0
  %both = insertvalue { i64, i64 } %first, i64 %tail, 1
  ret { i64, i64 } %both
}

; Few arguments moved since the block's last call: each against all.
define internal i1 @disjoint_few(ptr %spec, ptr %block, i64 %moved) {
  %inputs = at ptr %spec spec.inputs
  %count = at i64 %spec spec.input_count
  %changed = within %block %spec spec.changed
  loop %c 0 %moved
    %index = item i64 %changed %c
    %one = getelementptr [INPUT_WORDS x i64], ptr %inputs, i64 %index
    %mine = call { i64, i64 } @range(ptr %one, ptr %block)
    %start = extractvalue { i64, i64 } %mine, 0
    %tail = extractvalue { i64, i64 } %mine, 1
    %end = lshr i64 %tail, 1
    loop %j 0 %count
      %other = getelementptr [INPUT_WORDS x i64], ptr %inputs, i64 %j
      %theirs = call { i64, i64 } @range(ptr %other, ptr %block)
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

; Ranges by their start, for qsort.
define internal i32 @compare(ptr %a, ptr %b) {
  %a.start = load i64, ptr %a
  %b.start = load i64, ptr %b
  %order = call i32 @llvm.ucmp.i32.i64(i64 %a.start, i64 %b.start)
  ret i32 %order
}

; All arguments: sort their ranges by start, then sweep. O(n log n): 600 arrays are normal.
define internal i1 @disjoint_all(ptr %spec, ptr %block) {
  %inputs = at ptr %spec spec.inputs
  %count = at i64 %spec spec.input_count
  %ranges = within %block %spec spec.ranges
  loop %i 0 %count
    %record = getelementptr [INPUT_WORDS x i64], ptr %inputs, i64 %i
    %range = call { i64, i64 } @range(ptr %record, ptr %block)
    %range.at = getelementptr { i64, i64 }, ptr %ranges, i64 %i
    store { i64, i64 } %range, ptr %range.at
  end %i
  call void @qsort(ptr %ranges, i64 %count, i64 16, ptr @compare)
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
  %changed = within %block %spec spec.changed
  %counter = alloca i64
  store i64 0, ptr %counter
  loop %i 0 %count
    %object = item ptr %args %i
    %record = getelementptr [INPUT_WORDS x i64], ptr %inputs, i64 %i
    %state = call i64 @fetch(ptr %record, ptr %object, ptr %block)
    require ne i64 %state, 2
    %position = load i64, ptr %counter
    %place = getelementptr i64, ptr %changed, i64 %position
    store i64 %i, ptr %place
    %position.next = add i64 %position, %state
    store i64 %position.next, ptr %counter
  end %i
  %writers = at i64 %spec spec.written_count
  when ne i64 %writers, 0 then %compare else %apart
compare:
  ; The slots of the block's last call, if found disjoint, are a cache: only what moved since is checked.
  %moved = load i64, ptr %counter
  %known = at i64 %block block.disjoint
  %is_known = icmp ne i64 %known, 0
  %few = icmp sle i64 %moved, 16
  %incremental = and i1 %is_known, %few
  br i1 %incremental, label %some, label %every
some:
  %apart.some = call i1 @disjoint_few(ptr %spec, ptr %block, i64 %moved)
  require %apart.some
  br label %apart
every:
  %apart.every = call i1 @disjoint_all(ptr %spec, ptr %block)
  require %apart.every
  put i64 1, %block block.disjoint
  br label %apart
apart:
  ret i1 true
miss:
  put i64 0, %block block.disjoint
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
    switch i64 %kind, label %array [ i64 1, label %scalar i64 2, label %dynamic ]
  scalar:
    %cell = within %block %record output.cell
    store ptr %cell, ptr %slot
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
define internal ptr @take_output(ptr %spec, ptr %block, i64 %o) {
  %extents = alloca [64 x i64]
  %outputs = at ptr %spec spec.outputs
  %record = getelementptr [OUTPUT_WORDS x i64], ptr %outputs, i64 %o
  %kind = at i64 %record output.kind
  %slot = within %block %record output.slot
  %data = load ptr, ptr %slot
  switch i64 %kind, label %array [ i64 1, label %scalar i64 2, label %dynamic ]
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

define internal ptr @collect(ptr %spec, ptr %block) {
  %count = at i64 %spec spec.output_count
  %always = at i64 %spec spec.always_tuple
  %single = icmp eq i64 %count, 1
  %bare = icmp eq i64 %always, 0
  %alone = and i1 %single, %bare
  br i1 %alone, label %one, label %many
one:
  %output = call ptr @take_output(ptr %spec, ptr %block, i64 0)
  ret ptr %output
many:
  %tuple = call ptr @PyTuple_New(i64 %count)
  require ne ptr %tuple, null
  loop %o 0 %count
    %item = call ptr @take_output(ptr %spec, ptr %block, i64 %o)
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
  when eq i64 %code, 0 then %collecting else %failed
collecting:
  %result = call ptr @collect(ptr %spec, ptr %block)
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

_check_layout()
