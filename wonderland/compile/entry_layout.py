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
WEAK_KINDS: dict[type | None, int] = {None: 0, float: 1, int: 2, bool: 3, complex: 4}  # kinds of input
ARRAY, SCALAR, DYNAMIC, TAKEN = 0, 1, 2, 3  # kinds of output


def address_of(array: np.ndarray) -> int:
    """Where an array's data is."""
    return array.__array_interface__["data"][0]


def python_function(name: str, returns: Any, *parameters: Any) -> Any:
    """A function of Python's C API that ctypes calls."""
    return ctypes.PYFUNCTYPE(returns, *parameters)((name, ctypes.pythonapi))


# Indices into NumPy's C API table (numpy/__multiarray_api.h), the same in every NumPy 2.
API = {"PyArray_Type": 2, "PyArray_Scalar": 60, "PyArray_ScalarAsCtype": 62, "PyArray_NewFromDescr": 94}

# Fields: byte offset and LLVM's type. Offsets in Python objects count from the head, which is longer in free-threaded
# builds.
_HEAD = object.__basicsize__
FIELDS = {
    "object.type": (_HEAD - 8, "ptr"),
    "array.data": (_HEAD, "ptr"),
    "array.nd": (_HEAD + 8, "i32"),
    "array.dims": (_HEAD + 16, "ptr"),
    "array.descr": (_HEAD + 40, "ptr"),
    "array.flags": (_HEAD + 48, "i32"),
    "descr.order": (_HEAD + 10, "i8"),
    "descr.num": (_HEAD + 12, "i32"),
}

# Records of 64-bit words; pointers have a `*`.
RECORDS = {
    "spec": "run* table* on_error* miss* release_gil inputs* input_count checked_count outputs* output_count captured* "
    "range_count slot_bytes objects changed known ranges arena block_bytes cached*",
    "input": "weak descr* num scalar* flags nd dims* slot cell bytes dynamic written group",
    "output": "kind descr* nd dims* slot cell bytes taken",
    "block": "allocation* calls",  # the header of a leased block; its slots start at CACHE_LINE
}
WORDS = {record: len(names.split()) for record, names in RECORDS.items()}
for _record, _names in RECORDS.items():
    for _i, _name in enumerate(_names.split()):
        FIELDS[f"{_record}.{_name.rstrip('*')}"] = 8 * _i, "ptr" if _name.endswith("*") else "i64"
KNOWN = 4  # calls whose arguments are known to be disjoint, per block
FEW = 16  # arguments that moved since such a call and are compared with all others; if more did, all are sorted


def api_table() -> Any:
    """NumPy's C API table, as an array of addresses."""
    capsule: Any = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    pointer = python_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return (ctypes.c_void_p * (max(API.values()) + 1)).from_address(pointer(capsule, None))


def check_layout() -> None:
    """Read an array by the offsets the native code will use."""

    kinds = {"ptr": ctypes.c_size_t, "i32": ctypes.c_int32, "i8": ctypes.c_uint8}

    def read(object: Any, field: str) -> int:
        offset, type = FIELDS[field]
        return kinds[type].from_address(id(object) + offset).value

    array = np.zeros((2, 3), np.float32)
    wanted = CONTIGUOUS | ALIGNED | WRITEABLE
    found = {
        "pointers of 8 bytes": ctypes.sizeof(ctypes.c_void_p) == 8,
        "type": read(array, "object.type") == id(np.ndarray),
        "data": read(array, "array.data") == address_of(array),
        "nd": read(array, "array.nd") == 2,
        "dimensions": tuple((ctypes.c_int64 * 2).from_address(read(array, "array.dims"))) == (2, 3),
        "descr": read(array, "array.descr") == id(array.dtype),
        "flags": read(array, "array.flags") & wanted == wanted,
        "byteorder": chr(read(array.dtype, "descr.order")) == "=",
        "type_num": read(array.dtype, "descr.num") == array.dtype.num,
        "C API table": api_table()[API["PyArray_Type"]] == id(np.ndarray),
    }
    wrong = [name for name, fits in found.items() if not fits]
    if wrong:
        versions = f"NumPy {np.__version__} on Python {sys.version.split()[0]}"
        raise ImportError(f"{versions} lays out arrays in a way unknown here: {', '.join(wrong)}")


check_layout()
