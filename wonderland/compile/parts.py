"""Large modules in parts: the text of a module comes in, texts that LLVM works on at the same time go out.

Where a module is cut depends on its text alone, never on the number of threads: what is on disk, and what code
computes, doesn't change with the machine's load. Nor do the parts change what LLVM makes of a function. One that is
never inlined is in one part, and declared in the others that call it; one that may be inlined, or is kept for the
vectoriser, is in each part that calls it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PART = 50_000  # characters, about, of what LLVM takes its time for
VARIABLE = " = internal global "  # of a module, which must have one of it: as it is, it isn't cut

_FUNCTION = re.compile(r"^define .*?^}$", re.M | re.S)
_NAME = re.compile(r"[@(]([\w.]+)")  # of what is called or, in a call's attribute, of a variant for vectors
_NUMBER = re.compile(r"!(\d+)")  # of metadata


@dataclass(eq=False)
class _Piece:
    """A function: its text, and what that says about where it may be."""

    text: str

    def __post_init__(self) -> None:
        self.head: str = self.text.partition("\n")[0]
        self.name, *self.uses = dict.fromkeys(_NAME.findall(self.text))
        self.optimised: bool = "optnone" not in self.head
        self.weight: int = len(self.text) // (1 if self.optimised else 8)
        self.kept: bool = self.head.startswith("define hidden")  # for the vectoriser, who finds it in the same module
        exported = not self.kept and not self.head.startswith("define internal")
        self.apart: bool = exported or ("noinline" in self.head and not self.kept)  # is it in one part alone?

    def definition(self) -> str:
        """With its linkage in a part: other parts find it, or may have it as well."""
        if self.apart:
            return self.text.replace("define internal", "define", 1)
        return self.text.replace("define hidden", "define weak_odr hidden", 1)

    def declaration(self) -> str:
        line = self.head.removesuffix("{").rstrip()
        return line.replace("define internal", "declare", 1).replace("define", "declare", 1)


def cut(text: str) -> list[str]:
    """The texts of a module's parts; itself, if it isn't large."""
    if len(text) < PART or VARIABLE in text:
        return [text]
    found = list(_FUNCTION.finditer(text))
    functions = {f.name: f for f in (_Piece(match[0]) for match in found)}
    count = round(sum(f.weight for f in functions.values()) / PART)
    if count < 2:
        return [text]
    inlined = {name for f in functions.values() if f.optimised for name in f.uses}
    for f in functions.values():
        f.apart = f.apart or (f.name not in inlined and not f.kept)
    groups = [_with_inlined(f, functions) for f in functions.values() if f.apart]
    weights, parts = [0] * count, [set() for _ in range(count)]
    for group in sorted(groups, key=_weight, reverse=True):
        lightest = weights.index(min(weights))
        parts[lightest] |= group
        weights[lightest] += _weight(group)
    head, tail = text[: found[0].start()].splitlines(), text[found[-1].end() :].splitlines()
    return [_text([f for f in functions.values() if f in part], functions, head, tail) for part in parts if part]


def _with_inlined(f: _Piece, functions: dict[str, _Piece]) -> set[_Piece]:
    """A function, and what may be inlined into it."""
    group, todo = {f}, [f]
    while todo:
        used = (functions[name] for name in todo.pop().uses if name in functions)
        new = [g for g in used if not g.apart and g not in group]
        group.update(new)
        todo += new
    return group


def _weight(group: set[_Piece]) -> int:
    return sum(f.weight for f in group)


def _text(part: list[_Piece], functions: dict[str, _Piece], head: list[str], tail: list[str]) -> str:
    """The text of a part: of the lines before and after all functions those that it needs."""
    used = {name for f in part for name in f.uses}
    lines = [line for line in head if not (name := _NAME.search(line)) or name[1] in used]
    lines += [f.declaration() for f in functions.values() if f.name in used and f not in part]
    lines += [f.definition() for f in part]
    numbers = {number for f in part for number in _NUMBER.findall(f.text)}
    metadata = {line: _NUMBER.findall(line) for line in tail}
    for own, *others in filter(None, metadata.values()):  # those that all loops refer to are the first
        numbers.update(others if own in numbers else ())
    lines += [line for line, found in metadata.items() if not found or found[0] in numbers]
    return "\n".join([*lines, ""])
