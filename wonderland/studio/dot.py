"""`to_dot`: the computational graph of a Program, as text for Graphviz.

A Program comes in; a `digraph` goes out, with a node for each input, constant, equation and output, and an edge
from where a value is made to each place where it is used. Programs inside equations (loop bodies, branches, jitted
functions) are boxes of their own, tied to their equation by a dashed line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wonderland.core.printing import Printer
from wonderland.core.program import Atom, Equation, Program, Var, drawing, subprograms

_STYLES = {
    "input": 'shape=ellipse, style=filled, fillcolor="#d6e9f8"',
    "constant": 'shape=ellipse, style="filled,dashed", fillcolor="#eeeeee"',
    "equation": 'shape=box, style="filled,rounded", fillcolor="#ffffff"',
    "output": 'shape=ellipse, style=filled, fillcolor="#d9f2d9"',
}


@drawing.fill
def to_dot(program: Program, name: str = "program") -> str:
    """The graph of a Program in Graphviz's language: save it as `graph.dot` and run `dot -Tsvg graph.dot`."""
    lines = [f"digraph {_quoted(name)} {{", "  rankdir=TB;", '  node [fontname="monospace", fontsize=11];']
    lines.append('  edge [fontname="monospace", fontsize=9, color="#555555"];')
    lines += [f"  {line}" for line in _graph(program, "n")]
    return "\n".join([*lines, "}", ""])


def _graph(program: Program, prefix: str) -> Iterator[str]:
    """The statements of one Program; `prefix` keeps the nodes of nested ones apart."""
    printer = Printer()
    made: dict[Var, str] = {}  # the node that a variable comes from
    for role, variables in (("input", program.inputs), ("constant", [v for v, _ in program.constants])):
        for var in variables:
            made[var] = f"{prefix}_{role}{len(made)}"
            yield _node(made[var], f"{printer.name(var)}\n{var.type}", role)
    for number, equation in enumerate(program.equations):
        node = f"{prefix}_e{number}"
        yield _node(node, _label(printer, equation), "equation")
        yield from _edges(made, equation.inputs, node)
        made.update(dict.fromkeys(equation.outputs, node))
        for i, inner in enumerate(subprograms(equation)):
            box = f"{node}_p{i}"
            yield f"subgraph cluster_{box} {{"
            yield f'  label={_quoted(f"{equation.primitive.name}, Program {i}")}; fontname="monospace"; fontsize=10;'
            yield '  style=rounded; color="#999999";'
            yield f'  {box} [shape=point, color="#999999"];'
            yield from (f"  {line}" for line in _graph(inner, box))
            yield "}"
            yield f'{node} -> {box} [style=dashed, arrowhead=none, color="#999999"];'
    for i, atom in enumerate(program.outputs):
        node = f"{prefix}_out{i}"
        yield _node(node, f"return {printer.name(atom)}\n{atom.type}", "output")
        yield from _edges(made, [atom], node)


def _label(printer: Printer, equation: Equation) -> str:
    """The primitive with its parameters, literal operands in their places, and what it makes."""
    shown, _ = printer.params(equation.params)
    operands = " ".join(map(printer.name, equation.inputs))
    outputs = ", ".join(map(printer.typed, equation.outputs))
    return f"{equation.primitive.name} {operands}".rstrip() + (f"\n{shown}" if shown else "") + f"\n{outputs}"


def _edges(made: dict[Var, str], atoms: Iterable[Atom], node: str) -> Iterator[str]:
    for atom in atoms:
        if isinstance(atom, Var):
            yield f"{made[atom]} -> {node};"


def _node(node: str, label: str, role: str) -> str:
    return f"{node} [label={_quoted(label)}, {_STYLES[role]}];"


def _quoted(text: str) -> str:
    """A string of Graphviz's: quotes and backslashes escaped, lines centred."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
