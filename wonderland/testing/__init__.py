"""Testing derivatives and operators: what the tests of wonderland are made of, for users' code too.

`check_grads` checks the derivatives of a function; `op_table` has a row for each primitive and each NumPy
function, and `check_operator` runs everything there is to check for one row; `problems` is a set of functions from the
literature on which derivatives are compared; `colorings` says what colourings of sparse matrices have to be.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wonderland.core.tracebacks import publish as _publish
from wonderland.testing.check_grads import check_grads
from wonderland.testing.op_checks import check_operator
from wonderland.testing.op_table import TABLE, Row, add, function

if TYPE_CHECKING:
    from wonderland.testing import colorings, problems
    from wonderland.testing.random_programs import random_program

__all__ = [
    "check_grads", "check_operator", "Row", "TABLE", "add", "function", "colorings", "problems", "random_program",
]  # fmt: skip

_publish(__name__, globals(), ["check_grads", "check_operator"])


def __getattr__(name: str) -> Any:
    if name == "random_program":  # not before: the module is a command as well
        from wonderland.testing.random_programs import random_program

        return random_program
    if name in ("colorings", "problems"):
        return import_module(f"wonderland.testing.{name}")
    raise AttributeError(f"module 'wonderland.testing' has no attribute {name!r}")
