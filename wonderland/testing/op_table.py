"""The op table: a row per primitive and per NumPy function, from which every test of operators is made.

A row says what the operands may be, in which shapes and dtypes to try them, and what to compare with. Adding an
operator is one line in a file of `rows/` (or, for one of your own, one call of `add` from anywhere) beside its block in
`ops/`; a function of NumPy's that is built of primitives has a line too:

    add("sinh", reals, reference=np.sinh, dtypes="bifc")
    function(np.roll, reals, cases=[case((5,), shift=2), case((3, 4), shift=(1, 2), axis=(0, 1))])

`check_operator(row)` then runs everything there is to check about it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from wonderland.core.level import Traced
from wonderland.core.primitive import registry
from wonderland.core.tracer import Tracer, unwrap
from wonderland.testing.samples import Case, Operand, broadcast_cases

DTYPES = {"b": ("bool",), "i": ("int32", "int64"), "f": ("float32", "float64"), "c": ("complex64", "complex128")}


@dataclass(frozen=True)
class Row:
    """One primitive (or one use of it): how to sample its operands and what holds for it."""

    name: str  # the primitive's name in the registry
    operands: tuple[Operand, ...]
    cases: tuple[Case, ...]
    dtypes: str = "bifc"  # the kinds of dtype it is defined for
    reference: Callable | None = None  # the NumPy function: reference(*operands, **params)
    function: Callable | None = None  # how to call it, if not as primitive(*operands, **params)
    label: str = ""  # tells rows of one primitive (or of one NumPy function) apart
    excluded: dict[str, str] = field(default_factory=dict)  # check -> why it doesn't apply
    original: Any = None  # of a row for a function of NumPy or SciPy: that function
    family: str = ""  # the file of `rows/` that it is in: how the page of supported functions groups them

    def __str__(self) -> str:
        return self.label or self.name

    def dtype_names(self) -> list[str]:
        """The dtypes to try, floating-point ones last."""
        return [name for kind in self.dtypes for name in DTYPES[kind]]

    def call(self, params: dict[Any, Any]) -> Callable:
        """The operator as a function of arrays or traced arrays."""
        if self.function is not None:
            return lambda *args: self.function(*args, **params)  # type: ignore[misc]
        primitive = registry[self.name]

        def function(*args: Any) -> Any:
            out = primitive(*map(unwrap, args), **params)
            return tuple(map(_handle, out)) if primitive.multiple else _handle(out)

        return function


def _handle(value: Any) -> Any:
    return Tracer(value) if isinstance(value, Traced) else value


TABLE: list[Row] = []  # the primitives
NUMPY: list[Row] = []  # NumPy's and SciPy's functions: what they compute for traced arrays is what they compute


def add(name: str, *operands: Operand, cases: Sequence[Case] = (), **rest: Any) -> Row:
    """Add a row to the table; without `cases` the operator is elementwise and gets the usual shapes."""
    row = Row(name, operands, tuple(cases) or broadcast_cases(len(operands)), **rest)
    TABLE.append(row)
    return row


def function(original: Any, *operands: Operand, cases: Sequence[Case] = (), call: Any = None, **rest: Any) -> Row:
    """Add a row for a function of NumPy or SciPy, called as `call(*operands, **params)` (by default, as itself).

    On plain arrays it is NumPy's own: that is what its value and type on traced arrays are compared with.
    """
    shapes = tuple(cases) or broadcast_cases(len(operands))
    family = sys._getframe(1).f_globals["__name__"].rpartition(".")[2]
    row = Row(name_of(original), operands, shapes, function=call or original, original=original, family=family, **rest)
    NUMPY.append(row)
    return row


def name_of(original: Any) -> str:
    """How people write a function: np.sum, np.linalg.norm, scipy.special.erf."""
    module = getattr(original, "__module__", None) or "scipy.special"  # whose ufuncs don't say
    module = next((m for m in ("scipy.special", "scipy.linalg", "scipy.signal") if module.startswith(m)), module)
    return f"{module}.{original.__name__}".replace("numpy.", "np.", 1)


def load() -> None:
    """Read all rows: every file of `wonderland/testing/rows`."""
    from wonderland.testing import rows

    for module in iter_modules(rows.__path__):
        import_module(f"{rows.__name__}.{module.name}")
