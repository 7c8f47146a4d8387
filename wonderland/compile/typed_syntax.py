"""A typed function and the kinds of its arguments come in, functions of LLVM IR go out.

What is in the subset has a method here: `do_...` for a statement, `of_...` for an expression. Locals are variables of
the function, which LLVM turns into registers; so no phi is written.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.compile.ir import BOOL, DOUBLE, FLOAT, LONG, POINTER, VOID, Function, Value, Variable
from wonderland.core.errors import ArgumentError

Kind = np.dtype | type[int]  # of an argument: an array's dtype, or a number

ELEMENTS = {np.dtype(np.int64): LONG, np.dtype(np.float32): FLOAT, np.dtype(np.float64): DOUBLE}
NAMES = {BOOL: "a bool", LONG: "an int", FLOAT: "a float32", DOUBLE: "a float64"}
OPERATORS = {ast.Add: Value.__add__, ast.Sub: Value.__sub__, ast.Mult: Value.__mul__}
COMPARISONS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
SUBSET = "a typed function has assignments, for ... in range, while, if, break, continue, return and calls only"
CALLS = "only typed functions, len of an array, and min and max of two ints can be called"


class Translations:
    """Functions that call each other, each once for arguments of some kinds; the first is exported as `run`."""

    def __init__(self, typed: type):
        self.typed = typed  # the class of functions that can be called
        self.known: dict[tuple[Any, ...], Translation] = {}

    def of(self, python: Callable, kinds: tuple[Kind, ...]) -> Translation:
        key = (python, kinds)
        if key not in self.known:
            name = f"function{len(self.known)}" if self.known else "run"
            self.known[key] = Translation(self, python, kinds, name)
            self.known[key].translate()
        return self.known[key]


class Translation:
    """One function of Python for arguments of some kinds: `code` is what it becomes."""

    together: Translations
    python: Callable[..., Any]
    kinds: tuple[Kind, ...]
    first_line: int

    def __init__(self, together: Translations, python: Callable, kinds: tuple[Kind, ...], name: str):
        self.together, self.python, self.kinds = together, python, kinds
        self.code = Function(name, exported=name == "run")
        self.parameters: list[str] = []
        self.arrays: dict[str, tuple[Kind, Value, Value]] = {}  # with their address and length
        self.locals: dict[str, Variable] = {}
        self.loops: list[tuple[str, str]] = []  # where `break` and `continue` go
        self.written: set[str] = set()  # arrays
        self.complete = False

    def translate(self) -> None:
        try:
            lines, self.first_line = inspect.getsourcelines(self.python)
        except OSError as error:
            raise ArgumentError(f"typed: there is no source of {self.python.__name__}; define it in a file") from error
        definition = ast.parse(textwrap.dedent("".join(lines))).body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise ArgumentError(f"typed takes a function written with def, not {ast.unparse(definition)}")
        if any(isinstance(node, ast.Return) and node.value for node in ast.walk(definition)):
            self.code.returns = LONG
        self.declare(definition)
        self.block(definition.body)
        if self.open and self.code.returns == LONG:
            raise self.error(definition, "it returns an int, but it can end without `return`")
        self.complete: bool = True

    @property
    def open(self) -> bool:
        """Does control reach the end of what is written so far?"""
        return self.code.current.open

    def declare(self, definition: ast.FunctionDef) -> None:
        """Parameters: an array is a pointer and a length, a number is a local that has a value."""
        given = definition.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.defaults:
            raise self.error(definition, "parameters are plain names, without defaults, * or **")
        self.parameters: list[str] = [a.arg for a in given.posonlyargs + given.args]
        if len(self.parameters) != len(self.kinds):
            names = ", ".join(self.parameters)
            count = len(self.parameters)
            raise self.error(definition, f"it takes {count} arguments ({names}), not {len(self.kinds)}")
        # Python's names may have letters that LLVM's don't: parameters are numbered.
        for i, (name, kind) in enumerate(zip(self.parameters, self.kinds)):
            if kind is int:
                self.assign(ast.Name(name), self.code.parameter(f"p{i}", LONG))
            else:
                place, length = self.code.parameter(f"p{i}", POINTER), self.code.parameter(f"p{i}.len", LONG)
                self.arrays[name] = kind, place, length

    def error(self, node: Any, message: str) -> ArgumentError:
        file = os.path.basename(self.python.__code__.co_filename)
        line = self.first_line + node.lineno - 1
        return ArgumentError(f"typed function {self.python.__name__} ({file}:{line}): {message}")

    def local(self, kind: str) -> Variable:
        """A variable that holds 0 when the function starts."""
        code, here = self.code, self.code.current
        code.current = code.head
        made = code.variable(0, kind)
        code.current = here
        return made

    # Statements

    def block(self, statements: list[ast.stmt]) -> None:
        for node in statements:
            if not self.open:
                return
            method = getattr(self, f"do_{type(node).__name__}", None)
            if method is None:
                line = ast.unparse(node).partition("\n")[0]
                raise self.error(node, f"{type(node).__name__} isn't in the subset: {line}; {SUBSET}")
            method(node)

    def do_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.call(node.value)
        elif not isinstance(node.value, ast.Constant):  # docstrings
            raise self.error(node, f"the value of {ast.unparse(node)} isn't used")

    def do_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) > 1:
            raise self.error(node, f"assign to one name or element at a time: {ast.unparse(node)}")
        self.assign(node.targets[0], self.value(node.value))

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.assign(node.target, self.binary(node, self.value(node.target), self.value(node.value)))
        else:
            target = self.target(node.target)
            target.set(self.binary(node, target.get(), self.value(node.value)))

    def assign(self, node: ast.expr, value: Value) -> None:
        if isinstance(node, ast.Name) and node.id not in self.locals and node.id not in self.arrays:
            self.locals[node.id] = self.local(value.type)
        target = self.target(node)
        if value.type != target.type:
            names = NAMES[target.type], NAMES[value.type]
            raise self.error(node, f"{ast.unparse(node)} is {names[0]}, and here it gets {names[1]}")
        target.set(value)

    def target(self, node: ast.expr) -> Variable:
        """Where a number is to be kept."""
        if isinstance(node, ast.Subscript):
            self.written.add(ast.unparse(node.value))
            return self.element(node)
        if not isinstance(node, ast.Name):
            raise self.error(node, f"assign to one name or element at a time, not to {ast.unparse(node)}")
        if node.id in self.arrays:
            raise self.error(node, f"{node.id} is an array; assign to its elements")
        return self.locals[node.id]

    def element(self, node: ast.Subscript) -> Variable:
        """An array's element."""
        name = ast.unparse(node.value)
        if name not in self.arrays:
            raise self.error(node, f"{name} isn't an array argument: {ast.unparse(node)}")
        kind, place, _ = self.arrays[name]
        index, type = self.integer(node.slice), ELEMENTS[kind]
        if index.text.startswith("-"):
            raise self.error(node, f"indices don't count from the end: {ast.unparse(node)}")
        return Variable(self.code, self.code.element(type, place, index), type)

    def do_If(self, node: ast.If) -> None:
        label, ends = self.code.fresh("if"), False
        self.code.branch(self.condition(node.test), f"{label}.yes", f"{label}.no")
        for side, statements in (("yes", node.body), ("no", node.orelse)):
            self.code.start(f"{label}.{side}")
            self.block(statements)
            ends |= self.open
            self.code.jump(f"{label}.end")
        if ends:
            self.code.start(f"{label}.end")

    def do_While(self, node: ast.While) -> None:
        label = self.code.fresh("while")
        self.code.start(label)
        self.code.branch(self.condition(node.test), f"{label}.body", f"{label}.end")
        self.code.start(f"{label}.body")
        self.loop(node, f"{label}.end", label)
        self.code.jump(label)
        self.code.start(f"{label}.end")

    def do_For(self, node: ast.For) -> None:
        start, stop, step = self.range(node)
        counter, label = self.local(LONG), self.code.fresh("for")
        counter.set(start)
        self.code.start(label)
        i = counter.get()
        self.code.branch(i < stop if step > 0 else i > stop, f"{label}.body", f"{label}.end")
        self.code.start(f"{label}.body")
        self.assign(node.target, i)
        self.loop(node, f"{label}.end", f"{label}.after")
        self.code.start(f"{label}.after")
        counter.set(i + step)
        self.code.jump(label)
        self.code.start(f"{label}.end")

    def range(self, node: ast.For) -> tuple[Value, Value, int]:
        call = node.iter
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "range" or not 1 <= len(call.args) <= 3:
            raise self.error(node, f"`for` goes over range(...), not over {ast.unparse(call)}")
        bounds = [self.integer(a) for a in call.args]
        step = bounds[2].text if len(bounds) == 3 else "1"
        if not step.lstrip("-").isdigit() or step == "0":
            raise self.error(node, f"the step of a range is a constant other than 0, not {ast.unparse(call.args[2])}")
        start, stop = bounds[:2] if len(bounds) > 1 else (self.code.constant(0), bounds[0])
        return start, stop, int(step)

    def loop(self, node: ast.For | ast.While, end: str, again: str) -> None:
        if node.orelse:
            raise self.error(node.orelse[0], "loops have no `else` here")
        self.loops.append((end, again))
        self.block(node.body)
        self.loops.pop()

    def do_Break(self, node: ast.Break) -> None:
        self.code.jump(self.loops[-1][0])

    def do_Continue(self, node: ast.Continue) -> None:
        self.code.jump(self.loops[-1][1])

    def do_Return(self, node: ast.Return) -> None:
        if node.value is None and self.code.returns == LONG:
            raise self.error(node, "some `return` gives a number, this one gives none")
        self.code.ret(None if node.value is None else self.integer(node.value))

    # Expressions

    def value(self, node: ast.expr) -> Value:
        method = getattr(self, f"of_{type(node).__name__}", None)
        if method is None:
            raise self.error(node, f"{type(node).__name__} isn't in the subset: {ast.unparse(node)}")
        return method(node)

    def integer(self, node: ast.expr, also: str = LONG) -> Value:
        value = self.value(node)
        if value.type not in (LONG, also):
            raise self.error(node, f"{ast.unparse(node)} is {NAMES[value.type]}, where an int belongs")
        return value

    def condition(self, node: ast.expr) -> Value:
        value = self.integer(node, also=BOOL)
        return value if value.type == BOOL else value.differs(0)

    def of_Constant(self, node: ast.Constant) -> Value:
        if type(node.value) is not int or abs(node.value) >= 2**63:
            raise self.error(node, f"{ast.unparse(node)} is no int of 64 bits")
        return self.code.constant(node.value)

    def of_Name(self, node: ast.Name) -> Value:
        if node.id in self.arrays:
            raise self.error(node, f"{node.id} is an array; take an element or len({node.id}), or pass it on")
        if node.id not in self.locals:
            raise self.error(node, f"there is no local number {node.id} yet")
        return self.locals[node.id].get()

    def of_Subscript(self, node: ast.Subscript) -> Value:
        return self.element(node).get()

    def of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return ~self.condition(node.operand)
        if not isinstance(node.op, ast.USub):
            raise self.error(node, f"{type(node.op).__name__} isn't in the subset: {ast.unparse(node)}")
        if isinstance(node.operand, ast.Constant):
            return self.code.constant(-int(self.integer(node.operand).text))
        return -self.integer(node.operand)

    def of_BinOp(self, node: ast.BinOp) -> Value:
        return self.binary(node, self.value(node.left), self.value(node.right))

    def binary(self, node: ast.BinOp | ast.AugAssign, x: Value, y: Value) -> Value:
        if type(node.op) not in OPERATORS or x.type != y.type or x.type == BOOL:
            what = f"{type(node.op).__name__} of {NAMES[x.type]} and {NAMES[y.type]}"
            raise self.error(node, f"{what} isn't in the subset: {ast.unparse(node)}")
        return OPERATORS[type(node.op)](x, y)

    def of_Compare(self, node: ast.Compare) -> Value:
        how = COMPARISONS.get(type(node.ops[0]))
        if how is None or len(node.ops) > 1:
            raise self.error(node, f"a comparison is of two ints: {ast.unparse(node)}")
        return self.code.compare(how, self.integer(node.left), self.integer(node.comparators[0]))

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        first, *others = node.values
        value = self.value(first)
        if value.type != BOOL:
            what = ast.unparse(first)
            raise self.error(node, f"and/or are of bools, {what} is {NAMES[value.type]}; write {what} != 0")
        if not others:
            return value
        sides = [lambda: self.of_BoolOp(ast.BoolOp(node.op, others, lineno=node.lineno)), lambda: value]
        return self.code.choose(value, *(sides if isinstance(node.op, ast.And) else sides[::-1]))

    def of_IfExp(self, node: ast.IfExp) -> Value:
        sides = lambda: self.integer(node.body), lambda: self.integer(node.orelse)
        return self.code.choose(self.condition(node.test), *sides)

    # Calls

    def of_Call(self, node: ast.Call) -> Value:
        value = self.call(node)
        if value is None:
            raise self.error(node, f"{ast.unparse(node)} returns nothing")
        return value

    def call(self, node: ast.Call) -> Value | None:
        name = ast.unparse(node.func)
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.error(node, f"arguments are positional here: {ast.unparse(node)}")
        if name == "len" and len(node.args) == 1 and ast.unparse(node.args[0]) in self.arrays:
            return self.arrays[ast.unparse(node.args[0])][2]
        if name in ("min", "max") and len(node.args) == 2:
            return getattr(self.code, name)(*map(self.integer, node.args))
        function = self.python.__globals__.get(name)
        if not isinstance(function, self.together.typed):
            raise self.error(node, f"{CALLS}: {ast.unparse(node)}")
        return self.call_typed(function, node)

    def call_typed(self, function: Any, node: ast.Call) -> Value | None:
        kinds: list[Kind] = []
        arguments: list[Value] = []
        names = [ast.unparse(argument) for argument in node.args]
        for name, argument in zip(names, node.args):
            kind, *given = self.arrays[name] if name in self.arrays else (int, self.integer(argument))
            kinds.append(kind)
            arguments += given
        called = self.together.of(function.function, tuple(kinds))
        if not called.complete:
            raise self.error(node, f"{ast.unparse(node.func)} calls itself; write a loop")
        self.written |= {name for name, own in zip(names, called.parameters) if own in called.written}
        value = self.code.call(called.code, *arguments)
        return None if called.code.returns == VOID else value
