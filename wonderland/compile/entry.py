"""The native entry of a compiled Program: flat Python arguments come in, fresh NumPy results go out.

A Program's machine code is `i64 run(ptr slots, ptr arena, ptr table)`. An `Entry` puts a builtin function,
`call`, in front of it. One generic METH_FASTCALL function, compiled once per process from `entry_code`,
serves all entries: it checks each argument against a plain table of 64-bit words (the spec), fetches its data
pointer, makes the outputs, leases scratch memory, runs, and returns. When an argument doesn't fit as it is,
`call` returns `MISS` and has changed nothing; `Entry.convert` then makes it fit, or says why it can't.

The slots, in order: each input's data pointer (and its leading length, if dynamic); each output's data
pointer (if dynamic: a malloc'ed pointer and the leading length, both stored by the run; none if the output is one of
the arguments). The run may store into the slots of dynamic outputs and into no others.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import numpy as np
from numpy.lib.array_utils import byte_bounds

from wonderland.compile import entry_code, llvm
from wonderland.compile.arena import round_up
from wonderland.compile.entry_layout import (
    ALIGNED,
    API,
    ARRAY,
    CACHE_LINE,
    CELL,
    CONTIGUOUS,
    DYNAMIC,
    FEW,
    INPUT_WORDS,
    KNOWN,
    OFFSETS,
    OUTPUT_WORDS,
    SCALAR,
    SPEC_WORDS,
    TAKEN,
    WEAK_KINDS,
    WRITEABLE,
    address_of,
    api_table,
    function_address,
)  # fmt: skip

METH_FASTCALL = 0x80
KIND_ORDER = "bifc"  # a Python scalar fits into a typed 0-d input of its own kind or a later one


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
    """

    type_num: int
    itemsize: int
    shape: tuple[int | None, ...]
    weak: type | None = None
    written: bool = False


@dataclass(frozen=True)
class Output:
    """One result.

    `shape[0]` may be None: the run tells the length. Without axes it is a NumPy scalar. `taken`: the result is the
    written argument at that position; it has no slot of its own.
    """

    dtype: np.dtype
    shape: tuple[int | None, ...]
    taken: int | None = None


def _dynamic(shape: tuple[int | None, ...]) -> bool:
    return bool(shape) and shape[0] is None


def _is_taken(value: Input | Output) -> bool:
    return isinstance(value, Output) and value.taken is not None


def _bytes(shape: tuple[int | None, ...], itemsize: int) -> int:
    """Size of an array, or of a row of it if its length is dynamic."""
    return math.prod(n for n in shape if n is not None) * itemsize


def layout(inputs: Sequence[Input], outputs: Sequence[Output]) -> tuple[list[int], list[int]]:
    """The slot of each input and output; a dynamic one's leading length is in the slot after it."""
    position = 0
    slots: tuple[list[int], list[int]] = [], []
    for found, values in zip(slots, (inputs, outputs), strict=True):
        for value in values:
            found.append(position)
            position += 0 if _is_taken(value) else 2 if _dynamic(value.shape) else 1
    return slots


class Entry:
    """A native function in front of `run`.

    `call(*flat_args)` returns the single output, or a tuple of the outputs, or `MISS`. A code other than 0 from
    the run goes to `on_error`, which raises. Calls are re-entrant, and may come from any thread; `call` keeps alive
    all that it needs.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    input_slots: list[int]
    output_slots: list[int]

    def __init__(
        self,
        run: int,
        inputs: Iterable[Input],
        outputs: Iterable[Output],
        arena_bytes: int,
        table: np.ndarray,
        on_error: Callable[[int], NoReturn],
        release_gil: bool,
        keep_alive: object,
        captured: Iterable[np.ndarray] = (),
    ):
        """`captured`: arrays whose memory the run reads by itself, so written arguments must not share it."""
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        native = _native()
        self._dtypes = [native.dtype(one.type_num) if one.weak is None else None for one in self.inputs]
        self._check(table)
        self.input_slots, self.output_slots = layout(self.inputs, self.outputs)
        values = [value for value in (*self.inputs, *self.outputs) if not _is_taken(value)]
        self.slot_count: int = len(values) + sum(_dynamic(value.shape) for value in values)
        captured = [array for array in captured if array.size]

        def fail(code: int) -> NoReturn:
            on_error(code)
            raise RuntimeError(f"compiled code failed with code {code} and nothing was raised")

        spec = self._spec(captured, arena_bytes)
        _put(
            spec, 0, "spec", run=run, table=address_of(table), on_error=id(fail), miss=id(MISS),
            release_gil=int(release_gil),
        )  # fmt: skip
        # The function owns, through its `self`, everything whose address is in the spec: it may outlive the
        # Entry. A tuple, so that the garbage collector sees a cycle through `on_error`.
        objects = (self._dtypes, self.outputs, captured, table, fail, keep_alive)
        self.call: Callable[..., Any] = native.bind((spec, _Blocks(spec, native.release), *objects))

    def _check(self, table: np.ndarray) -> None:
        if not (table.flags.c_contiguous and table.flags.aligned):
            raise ValueError("the table must be contiguous and aligned")
        for value in (*self.inputs, *self.outputs):
            if any(n is None for n in value.shape[1:]):
                raise ValueError(f"only the first extent may be dynamic: {value}")
        for one, dtype in zip(self.inputs, self._dtypes, strict=True):
            if dtype is None:
                if one.weak not in WEAK_KINDS or one.shape or one.written:
                    raise ValueError(f"a weak input is an unwritten float, int, bool or complex: {one}")
            elif one.itemsize != dtype.itemsize:
                raise ValueError(f"an item of {dtype} has {dtype.itemsize} bytes: {one}")
        for one in self.outputs:
            if one.taken is not None and not self.inputs[one.taken].written:
                raise ValueError(f"a result that is an argument is a written one: {one}")
        for dtype in (*self._dtypes, *(one.dtype for one in self.outputs)):
            if dtype and (dtype.kind not in "biufc" or dtype.itemsize > CELL or not dtype.isnative):
                raise ValueError(f"compiled code has no dtype {dtype!r}")

    def _spec(self, captured: list[np.ndarray], arena_bytes: int) -> np.ndarray:
        """The words that the native function reads: a header, records, ranges, extents."""
        n_in, n_out = len(self.inputs), len(self.outputs)
        extents = [n for value in (*self.inputs, *self.outputs) for n in value.shape]
        at_outputs = SPEC_WORDS + n_in * INPUT_WORDS
        at_captured = at_outputs + n_out * OUTPUT_WORDS
        at_extents = at_captured + 2 * len(captured)
        spec = np.zeros(at_extents + len(extents), np.int64)
        bounds = [byte_bounds(array) for array in captured]
        spec[at_captured:at_extents] = [word for start, end in bounds for word in (start, 2 * end)]
        spec[at_extents:] = [-1 if n is None else n for n in extents]

        # A leased block: header, slots, cells for scalars, the entry's own notes, the arena. The notes: result objects,
        # arguments that moved, the inputs' slots of earlier calls, ranges to sort.
        slots = CACHE_LINE
        cells = round_up(slots + 8 * self.slot_count, 16)
        objects = cells + CELL * (n_in + n_out)
        changed = objects + 8 * n_out
        known = changed + 8 * (FEW + 1)
        writers = sum(one.written for one in self.inputs)
        slot_bytes = 8 * (n_in + sum(_dynamic(one.shape) for one in self.inputs))
        ranges = round_up(known + (KNOWN * slot_bytes if writers else 0), 16)
        n_ranges = n_in + len(captured)
        arena = round_up(ranges + (32 * (n_ranges + 1) if writers else 0), CACHE_LINE)
        base = address_of(spec)
        _put(
            spec, 0, "spec", inputs=base + 8 * SPEC_WORDS, input_count=n_in,
            written_count=writers, captured=base + 8 * at_captured, range_count=n_ranges,
            outputs=base + 8 * at_outputs, output_count=n_out, slot_bytes=slot_bytes, objects=objects,
            changed=changed, known=known, ranges=ranges, arena=arena, block_bytes=arena + arena_bytes,
        )  # fmt: skip
        dims = base + 8 * at_extents
        for i, (one, dtype, slot) in enumerate(zip(self.inputs, self._dtypes, self.input_slots, strict=True)):
            record = SPEC_WORDS + i * INPUT_WORDS
            flags = CONTIGUOUS | ALIGNED | (WRITEABLE if one.written else 0)
            _put(
                spec, record, "input", nd=len(one.shape), dims=dims, slot=slots + 8 * slot, flags=flags,
                cell=cells + CELL * i, dynamic=int(_dynamic(one.shape)), written=int(one.written),
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
            kind = DYNAMIC if _dynamic(one.shape) else ARRAY if one.shape else SCALAR
            kind = kind if one.taken is None else TAKEN
            _put(
                spec, at_outputs + i * OUTPUT_WORDS, "output", kind=kind, descr=id(one.dtype), dims=dims,
                nd=len(one.shape), slot=slots + 8 * slot, cell=cells + CELL * (n_in + i),
                bytes=_bytes(one.shape, one.dtype.itemsize), taken=one.taken or 0,
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
        if result is MISS:  # everything fits by now, so a written argument shares memory with something else
            pairs = zip(self.inputs, fitted, strict=True)
            fitted = [value.copy() if one.written else value for one, value in pairs]
            result = self.call(*fitted)
            if result is MISS:
                raise RuntimeError("arguments that were made to fit are refused: a fault of wonderland's")
        for one, value, original in zip(self.inputs, fitted, flat_args, strict=True):
            if one.written and address_of(value) != address_of(original):
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
                raise OverflowError(f"argument {position}: {plain} does not fit in 64 bits")
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
        return TypeError(f"argument {position}: got {came}, expected {expected}")


class _Blocks:
    """Gives an entry's cached block back when the entry's function dies."""

    __slots__ = ("_release", "_spec")

    def __init__(self, spec: np.ndarray, release: Callable[[int], None]):
        self._spec, self._release = spec, release

    def __del__(self, address_of: Callable[[np.ndarray], int] = address_of) -> None:
        self._release(address_of(self._spec))  # bound above: at the interpreter's exit globals are gone


def _put(spec: np.ndarray, position: int, record: str, **fields: int) -> None:
    for field, value in fields.items():
        spec[position + OFFSETS[f"{record}.{field}"] // 8] = value


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _EntryCode:
    """The loaded code, and what Python needs of it.

    It is never unloaded: functions made from it may be called until the interpreter is gone.
    """

    def __init__(self) -> None:
        self.library = entry_code.module(os.environ.get("WONDERLAND_POISON", "0") not in ("", "0")).load()
        call, release = self.library.address(entry_code.CALL), self.library.address(entry_code.RELEASE)
        self.method = _Method(b"call", call, METH_FASTCALL, None)
        self.release = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(release)
        self.dtype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int)(api_table()[API["PyArray_DescrFromType"]])
        self._new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            function_address(ctypes.pythonapi.PyCFunction_NewEx)
        )
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def bind(self, owned: tuple[Any, ...]) -> Callable[..., Any]:
        return self._new(ctypes.addressof(self.method), owned, None)


@cache
def _compiled() -> _EntryCode:
    return _EntryCode()


def _native() -> _EntryCode:
    with llvm.lock:  # `cache` alone would let two threads compile
        return _compiled()
