"""The records that the native entry and Python share, and where Python and NumPy objects have their fields.

Both as byte offsets in `OFFSETS`; those of arrays are checked against a real one when this module is loaded.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from typing import Any

import numpy as np

CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # NumPy's array flags
RAISED = 2  # what a run returns when an exception is set already
CACHE_LINE = 64
CELL = 32  # bytes for a scalar: a complex of two long doubles is the widest
WEAK_KINDS: dict[type, int] = {float: 1, int: 2, bool: 3, complex: 4}
ARRAY, SCALAR, DYNAMIC, TAKEN = 0, 1, 2, 3  # kinds of output


def address_of(array: np.ndarray) -> int:
    """Where an array's data is."""
    return array.__array_interface__["data"][0]


def function_address(pointer: Any) -> int:
    """Where a C function of ctypes is."""
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    assert address is not None
    return address


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


# LLVM's types of those fields that aren't words of 64 bits.
TYPES = {"array.nd": "i32", "array.flags": "i32", "descr.order": "i8", "descr.num": "i32"}
TYPES |= dict.fromkeys(("object.type", "array.data", "array.dims", "array.descr"), "ptr")


def _words(record: str, names: str) -> int:
    """Register the fields of a record of 64-bit words, `*` after a pointer's; returns its size in words."""
    for i, name in enumerate(names.split()):
        OFFSETS[f"{record}.{name.rstrip('*')}"] = 8 * i
        if name.endswith("*"):
            TYPES[f"{record}.{name.rstrip('*')}"] = "ptr"
    return len(names.split())


SPEC_WORDS = _words(
    "spec",
    "run* table* on_error* miss* release_gil inputs* input_count written_count outputs* output_count captured* "
    "range_count slot_bytes objects changed known ranges arena block_bytes cached*",
)
INPUT_WORDS = _words("input", "weak descr* num scalar* flags nd dims* slot cell bytes dynamic written")
OUTPUT_WORDS = _words("output", "kind descr* nd dims* slot cell bytes taken")
_words("block", "allocation* calls")  # the header of a leased block; its slots start at CACHE_LINE
KNOWN = 4  # calls whose arguments are known to be disjoint, per block
FEW = 16  # arguments that moved since such a call and are compared with all others; if more did, all are sorted


def api_table() -> Any:
    """NumPy's C API table, as an array of addresses."""
    capsule: Any = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        function_address(ctypes.pythonapi.PyCapsule_GetPointer)
    )
    return (ctypes.c_void_p * (max(API.values()) + 1)).from_address(pointer(capsule, None))


def check_layout() -> None:
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
        "data": read(id(array), "array.data", pointer) == address_of(array),
        "nd": read(id(array), "array.nd", integer) == 2,
        "dimensions": tuple((ctypes.c_int64 * 2).from_address(dims)) == (2, 3),
        "descr": read(id(array), "array.descr", pointer) == id(array.dtype),
        "flags": read(id(array), "array.flags", integer) & wanted == wanted,
        "byteorder": chr(read(id(array.dtype), "descr.order", ctypes.c_uint8)) == "=",
        "type_num": read(id(array.dtype), "descr.num", integer) == array.dtype.num,
        "C API table": api_table()[API["PyArray_Type"]] == id(np.ndarray),
    }
    wrong = [name for name, fits in found.items() if not fits]
    if wrong:
        versions = f"NumPy {np.__version__} on Python {sys.version.split()[0]}"
        raise ImportError(f"{versions} lays out arrays in a way unknown here: {', '.join(wrong)}")


check_layout()
