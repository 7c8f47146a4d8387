"""Hints to LLVM about loops: marks in the text of a module come in, metadata goes out."""

from __future__ import annotations

import re

AS_IT_IS = "!llvm.loop !AS_IT_IS"  # the loop is written as it should run
TWICE = "!llvm.loop !TWICE"  # two turns at a time, after vectorising: each has long chains of dependent operations
_MARK = re.compile(r"!llvm\.loop !(AS_IT_IS|TWICE)\b")


def with_loop_hints(text: str, first: int = 0) -> str:
    """The module with its marks made metadata; `first` is the first number that its metadata doesn't use."""
    hints = [
        f'!{first} = !{{!"llvm.loop.vectorize.enable", i1 false}}',
        f'!{first + 1} = !{{!"llvm.loop.unroll.disable"}}',
        f'!{first + 2} = !{{!"llvm.loop.interleave.count", i32 2}}',
    ]
    means = {"AS_IT_IS": f"!{first}, !{first + 1}", "TWICE": f"!{first + 2}"}

    def numbered(mark: re.Match) -> str:
        number = first + len(hints)
        hints.append(f"!{number} = distinct !{{!{number}, {means[mark[1]]}}}")
        return f"!llvm.loop !{number}"

    text = _MARK.sub(numbered, text)
    return "\n".join([text, *hints, ""]) if len(hints) > 3 else text
