"""LLVM's instructions are written in `compile/ir/` and nowhere else; what functions call carries its own address."""

import ast
import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from wonderland.compile import entry_code, foreign, pool, profile, signals
from wonderland.compile.ir import LONG, POINTER, VOID, Function, Module

LONG_TYPE = ctypes.c_int64
PACKAGE = Path(__file__).resolve().parents[2] / "wonderland"
WRITER = PACKAGE / "compile" / "ir"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if WRITER not in path.parents)
INSTRUCTION = re.compile(
    r"\b(?:f(?:add|sub|mul|div|neg|rem|ptosi|ptoui|pext|ptrunc) |[if]cmp |[us](?:div|rem|itofp) |phi |getelementptr|"
    r"bitcast |[zs]ext |trunc |alloca |(?:extract|insert)(?:element|value) |shufflevector |select i1|br (?:label|i1)|"
    r"load \w+, |store [\w<]+ |call \w+ @|(?:define|declare) [\w ]*[@<{]|ret (?:void|\w+ [%0-9]))"
)

ADJACENT = re.compile(r"""["']\s+[rf]?["']""")  # strings that are one


def instructions(source: str) -> Iterator[str]:
    """Text that looks like LLVM's, in strings that aren't docstrings."""
    if not INSTRUCTION.search(ADJACENT.sub("", source)):
        return  # which takes far less time than to parse it
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    described = {ast.get_docstring(n, clean=False) for n in ast.walk(tree) if isinstance(n, documented)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in described:
            yield from INSTRUCTION.findall(node.value)


def test_no_instructions_outside_ir() -> None:
    found = {path.relative_to(PACKAGE).as_posix(): {*instructions(path.read_text(encoding="utf-8"))} for path in FILES}
    assert not {name: words for name, words in found.items() if words}


def test_the_test_knows_instructions() -> None:
    assert len(list(instructions((WRITER / "function.py").read_text(encoding="utf-8")))) > 10


@pytest.mark.parametrize("called", [pool.PARALLEL, signals.POLL, signals.HOST, profile.CLOCK])
def test_functions_of_others_are_found_by_who_calls_them(called):
    caller = Function("caller", [(f"a{i}", type) for i, type in enumerate(called.parameters)], called.returns)
    value = caller.call(called, *caller.parameters)
    caller.ret(None if called.returns == VOID else value)
    module = Module()
    module.add(caller)
    assert module.imports() == {called.name: called.address()} and called.address()


def test_functions_of_scipy_are_found_by_who_calls_them():
    one, same = foreign.function("jv", "double", 2), foreign.function("jv", "double", 2)
    assert one == same and one.text().endswith("memory(none)")
    f = Function("bessel", [("order", "double"), ("x", "double")], "double", exported=True)
    f.ret(f.call(one, *f.parameters, f.constant(0, "i32")) + f.call(same, *f.parameters, f.constant(0, "i32")))
    module = Module()
    module.add(f)
    library = module.load()
    bessel = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(library.address("bessel"))
    assert bessel(0.0, 0.0) == 2.0


def test_the_entry_declares_what_it_calls():
    module = entry_code.module(poison=False)
    assert {"PyObject_CallOneArg", "PyArray_NewFromDescr", "wl_object_ndarray"} <= {*module.imports()}
    assert all(module.imports().values()) and module.exports == [entry_code.CALL, entry_code.RELEASE]


def test_leaving_loops_and_functions():
    """The first index from `start` on with a word of 7 or more; -1 if it is `count` at last."""
    f = Function("find", [("words", POINTER), ("start", LONG), ("count", LONG)], LONG, exported=True)
    words, start, count = f.parameters
    i = f.variable(start)
    with f.forever() as leave:
        f.ret_if(i.get() >= count, f.constant(-1))
        leave(f.load(LONG, f.element(LONG, words, i.get())) >= 7)
        i.add(1)
    f.ret(i.get())
    module = Module()
    module.add(f)
    library = module.load()
    find = ctypes.CFUNCTYPE(LONG_TYPE, ctypes.c_void_p, LONG_TYPE, LONG_TYPE)(library.address("find"))
    array = (LONG_TYPE * 5)(1, 7, 2, 9, 3)
    assert [find(array, start, 5) for start in range(6)] == [1, 1, 3, 3, -1, -1]


def test_a_loop_that_nothing_leaves_ends_the_function():
    f = Function("wait", [("n", LONG)], LONG, exported=True)
    n = f.variable(f.parameters[0])
    with f.forever():
        n.add(1)
        f.ret_if(n.get() > 10, n.get())
    module = Module()
    module.add(f)
    library = module.load()
    assert ctypes.CFUNCTYPE(LONG_TYPE, LONG_TYPE)(library.address("wait"))(3) == 11
