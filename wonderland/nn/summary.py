"""`nn.summary`: which Modules a call goes through, what they return, and how many parameters they have."""

from __future__ import annotations

import copy
from typing import Any

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.tracer import Tracer
from wonderland.nn.module import Module, evaluating


def summary(model: Any, *args: Any, **kwargs: Any) -> str:
    """A table of the Modules that `model(*args, **kwargs)` calls: name, class, shape of the result, parameters.

    It runs a copy of the model in evaluation mode: nothing changes. A Module that is called several times has a row for
    each; its parameters count once.
    """
    if not isinstance(model, Module):
        raise ArgumentError(f"nn.summary takes a Module and the arguments of a call, got {type(model).__name__}")
    watched = copy.deepcopy(model)
    rows: list[list[Any]] = []
    for name, node, count in [(name, node, _count(node)) for name, node in watched.named_modules()]:
        _watch(node, name, rows, count)
    with evaluating(watched):
        watched(*args, **kwargs)
    lines = [["module", "class", "result", "parameters"]]
    lines += [[name or "(all)", kind, shape, f"{count:,}"] for name, kind, shape, count in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    text = ["  ".join([*map(str.ljust, line[:3], widths), line[3].rjust(widths[3])]) for line in lines]
    trained = sum(array.size for array in model.parameters(trainable=True))
    total, size = sum(array.size for array in model.parameters()), sum(array.nbytes for array in model.state().values())
    text.append(f"{total:,} parameters, {trained:,} of them trained; {size:,} bytes with buffers")
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def _count(node: Any) -> int:
    return sum(array.size for array in node.parameters())


def _watch(node: Any, name: str, rows: list[list[Any]], count: int) -> None:
    """Have a row for each call of a Module, in the order in which calls begin."""
    cls: Any = type(node)

    def watching(self: Any, *args: Any, **kwargs: Any) -> Any:
        row = [name, cls.__name__, "", count]
        rows.append(row)
        out = cls.__call__(self, *args, **kwargs)
        row[2] = _shapes(out)
        return out

    node.__class__ = type(cls.__name__, (cls,), {"__call__": watching, "__module__": cls.__module__})


def _shapes(out: Any) -> str:
    shapes = [
        str(tuple(getattr(leaf, "shape", ()))) for leaf in tree.leaves(out) if not isinstance(leaf, (Tracer, str))
    ]
    return ", ".join(shapes)
