"""Unrolled Python loops: a function is recorded, and if its Program is long, the line that made it so comes out.

Only every so many equations the stack is looked at, which costs nothing noticeable and finds the line of a long loop.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from wonderland.core.tracebacks import user_frame

MANY = 5000  # equations from which a person should know
EVERY = 61  # equations between two looks at the stack; a prime, so that every line of a loop is met
SECONDS = 4e-4  # to compile an equation, about


class Lines:
    """Which lines of the user's write the equations of a Record: `Record(name, first=lines.look)` asks now and then."""

    def __init__(self) -> None:
        self.count: int = 0
        self.places: Counter[tuple[int, str, int]] = Counter()  # (depth of the stack, file, line) -> looks

    def look(self, *operation: Any) -> None:
        self.count += 1
        frame = None if self.count % EVERY else user_frame()
        if frame is None:
            return
        file, line, depth = frame.f_code.co_filename, frame.f_lineno, 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        self.places[depth, file, line] += 1

    def advice(self, name: str, count: int) -> str | None:
        """What to say about a Program of so many equations; nothing if it is short, or no line stands out."""
        total = self.places.total()
        often = [place for place, looks in self.places.items() if looks * 10 >= total]
        if count < MANY or not often:
            return None
        # The backward pass is written at the line that calls for the derivative: the loop is further inside.
        depth = max(place[0] for place in often)
        place = max((p for p in often if p[0] == depth), key=lambda p: self.places[p])
        share = round(count * self.places[place] / total, -2)
        return (
            f"{name} has {count} equations, about {share:.0f} of them from {os.path.basename(place[1])}:{place[2]}. "
            f"jit unrolls a Python loop; to compile this takes about {max(count * SECONDS, 1):.0f} s. wl.scan, "
            "wl.fori_loop and wl.while_loop compile the body of a loop once."
        )
