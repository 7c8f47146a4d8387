"""Sites: the places where compiled code can fail, each with its number, and what they raise."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from wonderland.compile.entry_layout import RAISED

# Error numbers: out of memory, an exception that is set already (RAISED), and then sites.
OUT_OF_MEMORY, FIRST_SITE = 1, RAISED + 1
NO_MEMORY = "no memory for the residuals of a loop"


class OfStack(NamedTuple):
    """What is said of one of many: of a matrix in a stack of this shape, for example."""

    message: str
    shape: tuple[int, ...]

    def about(self, number: int) -> str:
        place = tuple(int(i) for i in np.unravel_index(number, self.shape))
        return f"{self.message}, number {place} of the stack"


class Sites(dict[tuple[Any, Any], int]):
    """Numbers by what goes wrong: an exception's class and message; or an axis and its size, if an index is outside."""

    def number(self, kind: Any, message: Any) -> int:
        return self.setdefault((kind, message), FIRST_SITE + len(self))

    def fail(self, code: int) -> NoReturn:
        site, index = code & 0xFFFF, code >> 16
        if site == OUT_OF_MEMORY:
            raise MemoryError(NO_MEMORY)
        kind, message = list(self)[site - FIRST_SITE]
        if isinstance(kind, type):
            raise kind(message.about(index) if isinstance(message, OfStack) else message)
        raise IndexError(f"index {index} is out of bounds for axis {kind} with size {message}")
