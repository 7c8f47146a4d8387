"""Nothing outside an operator's block knows it by name: what is asked of an operator is a fact or a slot of it."""

import ast
from pathlib import Path

import pytest

from wonderland.core.primitive import registry
from wonderland.testing import op_table

op_table.load()

PACKAGE = Path(__file__).resolve().parent.parent / "wonderland"
FREE = ("ops", "testing")  # where the blocks and their rows are
NUMPYS = ("numpy", "scipy")  # whose strings are names of NumPy's and SciPy's functions
FREE_FILES = {
    "studio/sympy_functions.py",  # a dictionary of primitives and SymPy's functions
    "studio/to_sympy.py",
    "numpy/ufuncs.py",  # it walks all primitives and reads their slots
}


LITERALS = (ast.Constant, ast.Set, ast.Tuple, ast.List, ast.Dict, ast.Call)


def words(node):
    """The strings of a literal: one, those of a collection, the keys of a dict, or "a b".split()."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, (ast.Set, ast.Tuple, ast.List, ast.Dict)):
        items = node.keys if isinstance(node, ast.Dict) else node.elts
        found = [item.value if isinstance(item, ast.Constant) else None for item in items]
        return found if all(isinstance(word, str) for word in found) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
        return node.func.value.value.split() if words(node.func.value) else []
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("set", "frozenset") and len(node.args) == 1:
        return words(node.args[0])
    return []


def is_name(node):
    """Is it `primitive.name`, or another thing's?"""
    return isinstance(node, ast.Attribute) and node.attr == "name"


def aliases(nodes):
    """Variables that are `...primitive.name`: `primitive, name = e.primitive, e.primitive.name`."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                for variable, value in pairs:
                    if isinstance(variable, ast.Name) and is_name(value) and "primitive" in ast.unparse(value):
                        yield variable.id


def faults_of(source, layer):
    """(line, what) of each place of a file that knows operators by their names."""
    nodes = [*ast.walk(ast.parse(source))]
    known = {*aliases(nodes)}
    found = {}
    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            named = any(is_name(side) or (isinstance(side, ast.Name) and side.id in known) for side in sides)
            if named and any(word in registry for side in sides for word in words(side)):
                found[node.lineno] = "compares a name"
        elif isinstance(node, ast.Match) and is_name(node.subject):
            cases = [p.value for p in ast.walk(node) if isinstance(p, ast.MatchValue)]
            if any(word in registry for case in cases for word in words(case)):
                found[node.lineno] = "matches a name"
        elif isinstance(node, ast.ImportFrom) and any(alias.name == "registry" for alias in node.names):
            found[node.lineno] = "looks primitives up"
        elif isinstance(node, ast.Attribute) and node.attr == "registry":
            found[node.lineno] = "looks primitives up"
        listed = words(node) if isinstance(node, LITERALS) and layer not in NUMPYS else ()
        if len(listed) > 1 and all(word in registry for word in listed):
            # In the compiler, scalar operations are LLVM's and the C library's words as well.
            if layer != "compile" or not all(registry[word].elementwise for word in listed):
                found[node.lineno] = "lists names"
    return sorted(found.items())


def test_no_operator_is_known_by_its_name():
    faults = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] not in FREE and place.as_posix() not in FREE_FILES:
            faults += [f"{place}:{line} {what}" for line, what in faults_of(path.read_text("utf-8"), place.parts[0])]
    assert not faults, "\n".join(faults) + "\nMake it a fact or a slot of Primitive, or compare primitives themselves."


@pytest.mark.parametrize(
    ("layer", "code", "faults"),
    [
        ("transform", "if equation.primitive.name == 'jit':\n    pass", 1),
        ("transform", "turned = e.primitive.name in ('conj', 'sign')", 1),
        ("compile", "any('scan' != p.name for p in ps)", 1),
        ("studio", "primitive, name = e.primitive, e.primitive.name\nsource = name in ('convert', 'no operator')", 1),
        ("studio", "match p.name:\n    case 'scan':\n        pass", 1),
        ("transform", "BALANCED = {\n    'add', 'mul',\n}", 1),
        ("transform", "CALLS = frozenset({'checkpoint', 'cond'})", 1),
        ("control", "HOLDING = {'cond': f, 'scan': g}", 1),
        ("core", "NAMES = 'add sub mul'.split()", 1),
        ("compile", "RULES = {'add': (f,), 'transpose': (g,)}", 1),
        ("core", "from wonderland.core.primitive import Primitive, registry", 1),
        ("sparse", "import wonderland\nwonderland.core.primitive.registry['sin']", 1),
        ("compile", "FLOAT = {'eq': 'oeq', 'lt': 'olt'}", 0),
        ("numpy", "for name in ('eq', 'ne'):\n    operator(name)", 0),
        ("transform", "ORDERS = ('forward', 'reverse')\nif plan.name == 'jacobian':\n    pass", 0),
        ("core", "kwargs.pop('where', True)\nnames = ('add', 'no operator')", 0),
        ("transform", "if equation.primitive is name_p:\n    pass", 0),
    ],
)
def test_the_check_sees(layer, code, faults):
    assert len(faults_of(code, layer)) == faults
