"""Functions that others have compiled: the name of one comes in, the address of SciPy's C code goes out.

`scipy.special.cython_special` offers its functions to C as capsules, each named by its C signature. They are called
element by element; they know nothing of Python's interpreter (as long as `scipy.special.errstate` is the default, which
ignores errors) and so run on any thread. Code refers to them by a symbol; the address is given when it is linked.
`scipy.linalg` offers the routines of BLAS and LAPACK in the same way; they take addresses, and are called for a matrix.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache, partial
from importlib import import_module

from wonderland.compile.ir import INT, POINTER, VOID, External
from wonderland.core.forks import loading

PREFIX = "wl_foreign_"
_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@cache
def address(name: str, kind: str, count: int) -> int:
    """The address of the function of `count` numbers of one kind; 0 if this SciPy has none of that signature."""
    with loading():
        from scipy.special import cython_special

    # A function for several types comes under a mangled name for each. The last argument is Cython's own.
    signature = f"{kind} ({f'{kind}, ' * count}int __pyx_skip_dispatch)".encode()
    for key, capsule in cython_special.__pyx_capi__.items():
        if re.fullmatch(rf"(__pyx_fuse_\d+)?{name}", key) and _name_of(capsule) == signature:
            return _pointer_of(capsule, signature)
    return 0


def function(name: str, kind: str, count: int) -> External:
    """The function as code calls it; the last argument is Cython's own, a zero."""
    find = partial(address, name, kind, count)
    return External(f"{PREFIX}{kind}_{name}", kind, (kind,) * count + (INT,), "nounwind willreturn memory(none)", find)


@cache
def _routine_address(name: str) -> int:
    with loading():
        modules = [import_module(f"scipy.linalg.cython_{kind}") for kind in ("lapack", "blas")]

    found = {key: capsule for module in modules for key, capsule in module.__pyx_capi__.items()}
    return _pointer_of(found[name], _name_of(found[name]))


def routine(name: str, count: int) -> External:
    """A routine of BLAS or LAPACK, of `count` addresses."""
    find = partial(_routine_address, name)
    return External(f"{PREFIX}{name}", VOID, (POINTER,) * count, "nounwind", find)
