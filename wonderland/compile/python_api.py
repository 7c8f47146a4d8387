"""What native code uses of Python and NumPy: names and C signatures come in, `External`s with addresses go out."""

from __future__ import annotations

import ctypes

from wonderland.compile.entry_layout import API, api_table
from wonderland.compile.ir import DOUBLE, INT, LONG, POINTER, VOID, External


def _function(name: str, returns: str, *parameters: str) -> External:
    def address() -> int:
        if name in API:
            return api_table()[API[name]]
        return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0

    return External(name, returns, parameters, address=address)


def known(name: str, value: object) -> External:
    """An object that lives as long as the process."""
    return External(f"wl_object_{name}", address=lambda: id(value))


INCREF = _function("Py_IncRef", VOID, POINTER)
DECREF = _function("Py_DecRef", VOID, POINTER)
CALL = _function("PyObject_CallOneArg", POINTER, POINTER, POINTER)

NEW_TUPLE = _function("PyTuple_New", POINTER, LONG)
SET_ITEM = _function("PyTuple_SetItem", INT, POINTER, LONG, POINTER)
GET_ITEM = _function("PyTuple_GetItem", POINTER, POINTER, LONG)

DOUBLE_OF = _function("PyFloat_AsDouble", DOUBLE, POINTER)
LONG_OF = _function("PyLong_AsLongLongAndOverflow", LONG, POINTER, POINTER)
REAL_OF = _function("PyComplex_RealAsDouble", DOUBLE, POINTER)
IMAGINARY_OF = _function("PyComplex_ImagAsDouble", DOUBLE, POINTER)
INT_FROM_LONG = _function("PyLong_FromLongLong", POINTER, LONG)
INT_FROM_POINTER = _function("PyLong_FromVoidPtr", POINTER, POINTER)

TAKE_GIL = _function("PyGILState_Ensure", INT)
DROP_GIL = _function("PyGILState_Release", VOID, INT)
SAVE_THREAD = _function("PyEval_SaveThread", POINTER)
RESTORE_THREAD = _function("PyEval_RestoreThread", VOID, POINTER)

CHECK_SIGNALS = _function("PyErr_CheckSignals", INT)
CLEAR_ERROR = _function("PyErr_Clear", VOID)
NO_MEMORY = _function("PyErr_NoMemory", POINTER)

SCALAR = _function("PyArray_Scalar", POINTER, POINTER, POINTER, POINTER)
READ_SCALAR = _function("PyArray_ScalarAsCtype", VOID, POINTER, POINTER)
NEW_ARRAY = _function(
    "PyArray_NewFromDescr", POINTER, POINTER, POINTER, INT, POINTER, POINTER, POINTER, INT, POINTER
)  # fmt: skip
