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
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import Any, NoReturn

import numpy as np
from numpy.lib.array_utils import byte_bounds

from wonderland.compile import entry_code, llvm
from wonderland.compile import entry_layout as records
from wonderland.compile.entry_layout import CACHE_LINE, CELL, WEAK_KINDS, address_of
from wonderland.compile.ir import Resident
from wonderland.compile.memory import round_up

METH_FASTCALL = 0x80
LARGEST_KEPT = (32 << 20) - (1 << 13)  # bytes
KIND_ORDER = "bifc"  # a Python scalar fits into a typed 0-d input of its own kind or a later one


class _Miss:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISS"


MISS = _Miss()


@dataclass(frozen=True)
class _EntryValue:
    dtype: np.dtype
    shape: tuple[int | None, ...]

    @property
    def dynamic(self) -> bool:
        return self.shape[:1] == (None,)

    @property
    def slots(self) -> int:
        return 2 if self.dynamic else 1

    def record(self) -> dict[str, int]:
        """The fields of its record that it knows; `bytes` are those of a row if the length is dynamic."""
        size = math.prod(n for n in self.shape if n is not None) * self.dtype.itemsize
        return {"descr": id(self.dtype), "nd": len(self.shape), "bytes": size}


@dataclass(frozen=True)
class Input(_EntryValue):
    """One flat argument.

    `shape[0]` may be None: any leading length. `weak`: a Python scalar of exactly that type is expected, and
    stored as float64, int64, bool or complex128. `written`: the run writes into the argument's own memory. `group`: a
    number, if inputs of the same number share no memory: an array in two places of a Module is one input.
    """

    weak: type | None = None
    written: bool = False
    group: int = 0

    def record(self) -> dict[str, int]:
        flags = records.CONTIGUOUS | records.ALIGNED | (records.WRITEABLE if self.written else 0)
        own = {"weak": WEAK_KINDS[self.weak], "num": self.dtype.num, "scalar": id(self.dtype.type), "flags": flags}
        own |= {"dynamic": self.dynamic, "written": self.written, "group": self.group}
        return super().record() | own | ({"bytes": 0} if self.weak else {})


@dataclass(frozen=True)
class Output(_EntryValue):
    """One result.

    `shape[0]` may be None: the run tells the length. Without axes it is a NumPy scalar. `taken`: the result is the
    written argument at that position; it has no slot of its own.
    """

    taken: int | None = None

    @property
    def slots(self) -> int:
        return super().slots if self.taken is None else 0

    def record(self) -> dict[str, int]:
        kind = records.DYNAMIC if self.dynamic else records.ARRAY if self.shape else records.SCALAR
        return super().record() | {"kind": kind if self.taken is None else records.TAKEN, "taken": self.taken or 0}


def layout(inputs: Sequence[Input], outputs: Sequence[Output]) -> tuple[list[int], list[int]]:
    """The slot of each input and output; a dynamic one's leading length is in the slot after it."""
    slots = list(accumulate((value.slots for value in (*inputs, *outputs)), initial=0))
    return slots[: len(inputs)], slots[len(inputs) : -1]


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
        self, run: int, inputs: Iterable[Input], outputs: Iterable[Output], arena_bytes: int, table: np.ndarray,
        on_error: Callable[[int], NoReturn], release_gil: bool, keep_alive: object, captured: Iterable[np.ndarray] = (),
    ):  # fmt: skip
        """`captured`: arrays whose memory the run reads by itself, so written arguments must not share it."""
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._check(table)
        self.input_slots, self.output_slots = layout(self.inputs, self.outputs)
        self.slot_count: int = sum(value.slots for value in (*self.inputs, *self.outputs))
        captured = [array for array in captured if array.size]

        def fail(code: int) -> NoReturn:
            on_error(code)
            raise RuntimeError(f"compiled code failed with code {code} and nothing was raised")

        fields = {"run": run, "table": address_of(table), "on_error": id(fail), "miss": id(MISS)}
        spec, *others = self._spec(captured, arena_bytes, fields | {"release_gil": release_gil})
        # The function owns, through its `self`, everything whose address is in the spec: it may outlive the
        # Entry. A tuple, so that the garbage collector sees a cycle through `on_error`.
        native = _native()
        objects = (others, self.inputs, self.outputs, captured, table, fail, keep_alive)
        self.call: Callable[..., Any] = native.bind((spec, _Blocks(spec, native.release), *objects))

    def _check(self, table: np.ndarray) -> None:
        if not (table.flags.c_contiguous and table.flags.aligned):
            raise ValueError("the table must be contiguous and aligned")
        for value in (*self.inputs, *self.outputs):
            dtype = value.dtype
            if None in value.shape[1:]:
                raise ValueError(f"only the first extent may be dynamic: {value}")
            if dtype.kind not in "biufc" or dtype.itemsize > CELL or not dtype.isnative:
                raise ValueError(f"compiled code has no dtype {dtype!r}")
        for one in self.inputs:
            if one.weak not in WEAK_KINDS or (one.weak and (one.shape or one.written)):
                raise ValueError(f"a weak input is an unwritten float, int, bool or complex: {one}")
        for one in self.outputs:
            if one.taken is not None and not self.inputs[one.taken].written:
                raise ValueError(f"a result that is an argument is a written one: {one}")

    def _spec(self, captured: list[np.ndarray], arena_bytes: int, fields: dict[str, int]) -> list[np.ndarray]:
        """The words that the native function reads: a header, and the inputs, outputs, ranges and extents it tells."""
        n_in, n_out, values = len(self.inputs), len(self.outputs), (*self.inputs, *self.outputs)
        ranges = np.array([(start, 2 * end) for start, end in map(byte_bounds, captured)], np.int64)
        extents = np.array([-1 if n is None else n for value in values for n in value.shape], np.int64)

        # A leased block: header, slots, cells for scalars, the entry's own notes, the arena. The notes: result objects,
        # arguments that moved, the inputs' slots of earlier calls, ranges to sort.
        cells = round_up(CACHE_LINE + 8 * self.slot_count, 16)
        objects = cells + CELL * (n_in + n_out)
        changed = objects + 8 * n_out
        known = changed + 8 * (records.FEW + 1)
        checked = sum(one.written or one.group > 0 for one in self.inputs)
        slot_bytes = 8 * sum(one.slots for one in self.inputs)
        to_sort = round_up(known + (records.KNOWN * slot_bytes if checked else 0), 16)
        n_ranges = n_in + len(captured)
        arena = round_up(to_sort + (32 * (n_ranges + 1) if checked else 0), CACHE_LINE)

        words, dims = [], address_of(extents)
        for i, (value, slot) in enumerate(zip(values, (*self.input_slots, *self.output_slots), strict=True)):
            place = {"dims": dims, "slot": CACHE_LINE + 8 * slot, "cell": cells + CELL * i}
            words.append(_words("input" if i < n_in else "output", value.record() | place))
            dims += 8 * len(value.shape)
        inputs, outputs = np.array(words[:n_in], np.int64), np.array(words[n_in:], np.int64)
        fields |= {
            "inputs": address_of(inputs), "input_count": n_in, "checked_count": checked,
            "captured": address_of(ranges), "range_count": n_ranges, "outputs": address_of(outputs),
            "output_count": n_out, "slot_bytes": slot_bytes, "objects": objects, "changed": changed, "known": known,
            "ranges": to_sort, "arena": arena, "block_bytes": arena + arena_bytes,
        }  # fmt: skip
        return [np.array(_words("spec", fields), np.int64), inputs, outputs, ranges, extents]

    def convert(self, flat_args: Sequence[Any]) -> Any:
        """The slow way: make every argument fit by a view or a copy, call, and copy written ones back.

        Where two written arguments share memory, the values of the later one are what stays.
        """
        if len(flat_args) != len(self.inputs):
            raise TypeError(f"got {len(flat_args)} arguments, expected {len(self.inputs)}")
        fitted = [self._fit(i, value) for i, value in enumerate(flat_args)]
        result = self.call(*fitted)
        if result is MISS:  # everything fits by now, so an argument shares memory that it mustn't
            pairs = zip(self.inputs, fitted, strict=True)
            fitted = [value.copy() if one.written or one.group else value for one, value in pairs]
            result = self.call(*fitted)
            if result is MISS:
                raise RuntimeError("arguments that were made to fit are refused: a fault of wonderland's")
        for one, value, original in zip(self.inputs, fitted, flat_args, strict=True):
            if one.written and address_of(value) != address_of(original):
                np.asarray(original)[...] = value
        return result

    def _fit(self, position: int, value: Any) -> Any:
        """`value` as a Python scalar or an ndarray that `call` takes: itself, or a view, or a copy."""
        one, dtype = self.inputs[position], self.inputs[position].dtype
        if one.weak is not None:
            fits = isinstance(value, one.weak) and not isinstance(value, np.generic)
            if not fits or (one.weak is int and isinstance(value, bool)):
                raise self._misfit(position, value)
            plain = one.weak(value)
            if one.weak is int and not -(2**63) <= plain < 2**63:
                raise OverflowError(f"argument {position}: {plain} does not fit in 64 bits")
            return plain
        if type(value) in WEAK_KINDS and not one.shape and not one.written:
            if KIND_ORDER.index(dtype.kind.replace("u", "i")) < KIND_ORDER.index(np.dtype(type(value)).kind):
                raise self._misfit(position, value)
            return np.array(value, dtype)
        masked = isinstance(value, np.ma.MaskedArray)  # its mask would be dropped without a word
        if masked or not isinstance(value, (np.ndarray, np.generic)) or (one.written and not value.flags.writeable):
            raise self._misfit(position, value)
        array = np.asarray(value)
        shape = (*array.shape[:1], *one.shape[1:]) if one.dynamic else one.shape
        if array.shape != shape or array.dtype.newbyteorder("=") != dtype:
            raise self._misfit(position, value)
        if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
            return array if array.dtype.num == dtype.num else array.view(dtype)  # int64 has two numbers
        return np.array(array, dtype, order="C")

    def _misfit(self, position: int, value: Any) -> TypeError:
        one = self.inputs[position]
        extents = ", ".join("any" if n is None else str(n) for n in one.shape)
        expected = f"{'a writeable ' if one.written else ''}{one.dtype.name}[{extents}]"
        if one.weak is not None:
            expected = f"a Python {one.weak.__name__}"
        came = type(value).__name__
        if isinstance(value, (np.ndarray, np.generic)):
            read_only = "read-only " if one.written and not value.flags.writeable else ""
            came = f"{read_only}{came} {value.dtype.name}[{', '.join(map(str, value.shape))}]"
        return TypeError(f"argument {position}: got {came}, expected {expected}")


@dataclass(eq=False)
class _Blocks:
    """Gives an entry's cached block back when the entry's function dies."""

    spec: np.ndarray
    release: Callable[[int], None]

    def __del__(self, address_of: Callable[[np.ndarray], int] = address_of) -> None:
        self.release(address_of(self.spec))  # bound above: at the interpreter's exit globals are gone


def _words(record: str, fields: dict[str, int]) -> list[int]:
    """A record of these fields; others are 0."""
    words = [0] * records.WORDS[record]
    for field, value in fields.items():
        words[records.FIELDS[f"{record}.{field}"][0] // 8] = value
    return words


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


CODE = Resident(lambda: entry_code.module(os.environ.get("WONDERLAND_POISON", "0") not in ("", "0")))


class _EntryCode:
    """What Python needs of the loaded code.

    Like that it stays: functions made from it may be called until the interpreter is gone.
    """

    def __init__(self) -> None:
        library = CODE.load()
        call, release = library.address(entry_code.CALL), library.address(entry_code.RELEASE)
        self.method = _Method(b"call", call, METH_FASTCALL, None)
        self.release = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(release)
        new = records.python_function("PyCFunction_New", ctypes.py_object, ctypes.c_void_p, ctypes.py_object)
        self.bind = partial(new, ctypes.addressof(self.method))  # to a tuple of what it owns
        _keep_freed_memory()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


def _keep_freed_memory() -> None:
    """Results of some megabytes are made and freed by every call; their pages needn't come anew from the system.

    glibc keeps blocks up to the size of the largest one that was mapped by itself and freed so far (at most 32 MB), and
    twice that at the end of its heap: freeing one, which is never touched, tells it. Others have their own ways.
    """
    if sys.platform == "linux":
        c = ctypes.CDLL(None)
        c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
        c.free(c.malloc(LARGEST_KEPT))


_compiled = cache(_EntryCode)


def _native() -> _EntryCode:
    with llvm.lock:  # `cache` alone would let two threads compile
        return _compiled()
