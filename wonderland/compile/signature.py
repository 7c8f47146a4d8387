"""The arguments and results of a compiled Program: where each is, and which arguments are written."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

import numpy as np

from wonderland.compile.entry import Input, Output, layout
from wonderland.compile.memory import Buffer
from wonderland.compile.nodes import Leaf, Node, Number
from wonderland.core.program import Program
from wonderland.core.types import ArrayType

PYTHON_TYPES = {"f": float, "i": int, "b": bool, "c": complex}


class Signature:
    """What the native function takes and returns, and the slots that the entry hands its pointers in."""

    def __init__(self, program: Program, written: dict[int, int], taken: Container[int], groups: Sequence[int] = ()):
        self.written = written
        # The outputs that are returned; others are only written into arguments.
        returned = {i: t for i, t in enumerate(program.output_types) if i not in written or i in taken}
        self.inputs: list[Input] = [
            _input(v.type, i in written.values(), groups[i] if groups else 0) for i, v in enumerate(program.inputs)
        ]
        self.outputs: list[Output] = [Output(t.dtype, t.shape, written.get(i)) for i, t in returned.items()]
        in_slots, out_slots = layout(self.inputs, self.outputs)
        self.leaves: list[Leaf] = [Leaf(ArrayType(v.type.shape, v.type.dtype)) for v in program.inputs]
        self.slots: list[Buffer] = [Buffer("slot", 0, slot) for slot in in_slots]
        self._out_slots: dict[int, int] = dict(zip(returned, out_slots, strict=True))

    @property
    def nodes(self) -> list[Node]:
        """The arguments, for lowering."""
        return [Number(leaf.type, 0) if 0 in leaf.shape else leaf for leaf in self.leaves]

    def slot(self, output: int) -> int:
        """Where the pointer to a result's memory is."""
        return self._out_slots[output]

    def replaced(self, output: int) -> Leaf | None:
        """The argument that an output is written into."""
        return self.leaves[self.written[output]] if output in self.written else None

    @property
    def result_bytes(self) -> int:
        """Of fresh results, those of dynamic length aside."""
        fresh = [out for out in self.outputs if out.taken is None]
        return sum(math.prod(n for n in out.shape if n is not None) * out.dtype.itemsize for out in fresh)


def _input(type: ArrayType, written: bool, group: int) -> Input:
    weak = PYTHON_TYPES[type.dtype.kind] if type.weak else None
    return Input(np.dtype(type.dtype.char), type.shape, weak, written, group)  # the very object that arrays have
