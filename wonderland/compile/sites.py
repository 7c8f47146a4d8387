"""Sites: the places where compiled code can fail, each with its number, and what they raise."""

from __future__ import annotations

from typing import Any, NoReturn

from wonderland.compile.entry_layout import RAISED

# Error numbers: out of memory, an exception that is set already (RAISED), and then sites.
OUT_OF_MEMORY, FIRST_SITE = 1, RAISED + 1
NO_MEMORY = "no memory for the residuals of a loop"


class Sites:
    """Numbers for the places where compiled code can fail, and what they raise."""

    def __init__(self) -> None:
        self.found: dict[tuple[Any, ...], int] = {}

    def index(self, axis: int, extent: int) -> int:
        return self.found.setdefault((axis, extent), FIRST_SITE + len(self.found))

    def raising(self, kind: type[Exception], message: str) -> int:
        return self.found.setdefault((kind, message), FIRST_SITE + len(self.found))

    def fail(self, code: int) -> NoReturn:
        site, index = code & 0xFFFF, code >> 16
        if site == OUT_OF_MEMORY:
            raise MemoryError(NO_MEMORY)
        axis, extent = list(self.found)[site - FIRST_SITE]
        if isinstance(axis, type):
            raise axis(extent)
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {extent}")
