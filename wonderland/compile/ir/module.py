"""Modules of LLVM IR: functions and all they need come in, text for LLVM goes out, or the loaded code.

What a module declares, imports and says about loops and the CPU is data here, and becomes text once, at the end.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager

from wonderland.compile import llvm
from wonderland.compile.ir.function import AS_IT_IS, INTERLEAVED, Function, Hinted
from wonderland.compile.ir.values import External, Global

Item = Function | External | Global

_METADATA = [
    "!0 = !{}",
    '!1 = !{!"llvm.loop.vectorize.enable", i1 false}',
    '!2 = !{!"llvm.loop.unroll.disable"}',
    '!3 = !{!"llvm.loop.interleave.count", i32 4}',
]
_HINTS = {AS_IT_IS: "!1, !2", INTERLEAVED: "!3"}


class Module:
    """What is compiled together: functions and all they need. `exports` are found by name in the loaded code."""

    def __init__(self, *items: Item, as_written: bool = False):
        self.as_written: bool = as_written  # its loops need no vectorising, unrolling or inlining
        self.items: dict[str, Item] = {}
        self._shared: dict[str, Function] = {}
        self._text: str = ""  # when it is complete
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        """A function, and what it calls: now, so it has to be complete."""
        if item.name in self.items:
            known = self.items[item.name]
            if known is not item and known != item:
                raise RuntimeError(f"two different things of compiled code are called {item.name}")
            return
        self.items[item.name], self._text = item, ""
        for needed in item.needs.values() if isinstance(item, Function) else ():
            self.add(needed)

    def share(self, function: Function, prefix: str) -> Function:
        """A function without a name: the one there is, if its code is the same."""
        function.name = ""
        text = "\n".join(f"{line}{getattr(line, 'hint', '')}" for line in function.lines())
        if text not in self._shared:
            self._shared[text] = function
            function.name = f"{prefix}{len(self._shared) - 1}"
            self.add(function)
        return self._shared[text]

    @property
    def exports(self) -> list[str]:
        return [item.name for item in self.items.values() if isinstance(item, Function) and item.exported]

    def imports(self) -> dict[str, int]:
        """The addresses that the linker has to be told."""
        external = [item for item in self.items.values() if isinstance(item, External)]
        return {item.name: item.address() for item in external if item.address is not None}

    def text(self) -> str:
        self._text = self._text or self._write()
        return self._text

    def _write(self) -> str:
        # What functions say about the CPU: vectors as wide as its registers (LLVM would take half of 64 bytes); narrow.
        target = [f'"prefer-vector-width"="{width}"' for width in ((512, 256) if llvm.vector_bytes() == 64 else ())]
        metadata = list(_METADATA)
        lines = [llvm.AS_WRITTEN] if self.as_written else []
        functions = [item for item in self.items.values() if isinstance(item, Function)]
        lines += sorted(item.text() for item in self.items.values() if not isinstance(item, Function))
        for function in functions:
            define, *rest = function.lines()
            lines += ["", f"{define.removesuffix('{')}#{int(function.narrow)} {{" if target else define]
            for line in rest:
                if isinstance(line, Hinted):
                    number = len(metadata)
                    metadata.append(f"!{number} = distinct !{{!{number}, {_HINTS[line.hint]}}}")
                    line = f"{line}, !llvm.loop !{number}"
                lines.append(line)
        lines += ["", *(f"attributes #{i} = {{ {words} }}" for i, words in enumerate(target)), *metadata, ""]
        return "\n".join(lines)

    def load(self) -> llvm.Library:
        """Its machine code in this process."""
        with together(self):
            return llvm.compile_library(self.text(), self.exports, self.imports())


class Resident:
    """A module that is loaded once in a process, for others to call, and stays: its addresses are handed out for good.

    `begin` is called with its machine code before anybody else gets it.
    """

    def __init__(self, make: Callable[[], Module], begin: Callable[[llvm.Library], object] | None = None):
        self._make, self._begin, self._module = make, begin, None
        self.library: llvm.Library | None = None

    def external(self, name: str, returns: str, parameters: tuple[str, ...], attributes: str = "") -> External:
        """One of its functions."""
        return External(name, returns, parameters, attributes, lambda: self.load().address(name), self)

    @property
    def module(self) -> Module:
        """What it is loaded from; in the end it isn't kept."""
        if self._module is None:
            self._module = self._make()
        return self._module

    def load(self) -> llvm.Library:
        with llvm.lock:
            if self.library is None:
                library = self.module.load()
                # It outlives everything: threads may be inside it when the interpreter clears its modules.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
                if self._begin is not None:
                    self._begin(library)
                self.library, self._module = library, None
            return self.library


def together(*wanted: Module | Resident) -> AbstractContextManager[None]:
    """While this lasts, the object code of modules and of all that they import is at hand: LLVM makes it at once."""
    todo, seen, texts = list(wanted), set(wanted), []
    while todo:
        module = todo.pop()
        if isinstance(module, Resident):
            if module.library is not None:
                continue
            module = module.module
        texts.append(module.text())
        codes = {item.code for item in module.items.values() if isinstance(item, External) and item.code} - seen
        seen |= codes
        todo += codes
    return llvm.at_hand(texts)
