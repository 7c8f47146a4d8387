"""A typed function and the kinds of its arguments come in, functions of LLVM IR go out.

What is in the subset has a method here: `do_...` for a statement, `of_...` for an expression. Locals are variables of
the function, which LLVM turns into registers; so no phi is written.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wonderland.compile.ir import BOOL, DOUBLE, FLOAT, LONG, POINTER, VOID, Function, Value, Variable
from wonderland.core.errors import ArgumentError

Kind = np.dtype | type[int]  # of an argument: an array's dtype, or a number

ELEMENTS = {np.dtype(np.int64): LONG, np.dtype(np.float32): FLOAT, np.dtype(np.float64): DOUBLE}
NAMES = {BOOL: "a bool", LONG: "an int", FLOAT: "a float32", DOUBLE: "a float64"}
OPERATORS = {ast.Add: Value.__add__, ast.Sub: Value.__sub__, ast.Mult: Value.__mul__}
OF_BITS = {ast.BitAnd: Value.__and__, ast.RShift: Value.__rshift__}
COMPARISONS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
SUBSET = "a typed function has assignments, for ... in range, while, if, break, continue, return and calls only"
CALLS = "only typed functions, len of an array, and min and max of two ints can be called"


class Translation:
    """One function of Python for arguments of some kinds: `code` is what it becomes.

    `known` are the translations of functions that call each other, by function and kinds, None while one is made; the
    first is exported as `run`. `typed` is the class of functions that can be called.
    """

    def __init__(self, python: Callable, kinds: tuple[Kind, ...], typed: type, known: dict[Any, Any]):
        name = f"function{len(known)}" if known else "run"
        known[python, kinds] = None
        self.python, self.kinds, self.typed, self.known = python, kinds, typed, known
        self.code = Function(name, exported=name == "run")
        self.arrays: dict[str, tuple[Kind, Value, Value]] = {}  # with their address and length
        self.locals: dict[str, Variable] = {}
        self.loops: list[tuple[str, str]] = []  # where `break` and `continue` go
        self.written: set[str] = set()  # arrays
        self.translate()
        known[python, kinds] = self

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
            names = f"{len(self.parameters)} arguments ({', '.join(self.parameters)})"
            raise self.error(definition, f"it takes {names}, not {len(self.kinds)}")
        # Python's names may have letters that LLVM's don't: parameters are numbered.
        for i, (name, kind) in enumerate(zip(self.parameters, self.kinds)):
            if kind is int:
                self.assign(ast.Name(name), self.code.parameter(f"p{i}", LONG))
            else:
                place, length = self.code.parameter(f"p{i}", POINTER), self.code.parameter(f"p{i}.len", LONG)
                self.arrays[name] = kind, place, length

    def error(self, node: Any, message: str) -> ArgumentError:
        """What is wrong at a node; {} in the message is its source."""
        file = os.path.basename(self.python.__code__.co_filename)
        line = self.first_line + node.lineno - 1
        message = message.replace("{}", ast.unparse(node).partition("\n")[0])
        return ArgumentError(f"typed function {self.python.__name__} ({file}:{line}): {message}")

    def refuse_if(self, wrong: Any, node: ast.AST, message: str) -> None:
        if wrong:
            raise self.error(node, message)

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
                raise self.error(node, f"{type(node).__name__} isn't in the subset: {{}}; {SUBSET}")
            method(node)

    def do_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.call(node.value)
        elif not isinstance(node.value, ast.Constant):  # docstrings
            raise self.error(node, "the value of {} isn't used")

    def do_Assign(self, node: ast.Assign) -> None:
        self.refuse_if(len(node.targets) > 1, node, "assign to one name or element at a time: {}")
        self.assign(node.targets[0], self.value(node.value))

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        target = self.target(node.target)
        target.set(self.binary(node, target.get(), self.value(node.value)))

    def assign(self, node: ast.expr, value: Value) -> None:
        if isinstance(node, ast.Name) and node.id not in self.locals and node.id not in self.arrays:
            self.locals[node.id] = self.local(value.type)
        target = self.target(node)
        if value.type != target.type:
            raise self.error(node, f"{{}} is {NAMES[target.type]}, and here it gets {NAMES[value.type]}")
        target.set(value)

    def target(self, node: ast.expr) -> Variable:
        """Where a number is to be kept."""
        if isinstance(node, ast.Subscript):
            self.written.add(ast.unparse(node.value))
            return self.element(node)
        if not isinstance(node, ast.Name):
            raise self.error(node, "assign to one name or element at a time, not to {}")
        self.refuse_if(node.id in self.arrays, node, "{} is an array; assign to its elements")
        self.refuse_if(node.id not in self.locals, node, "there is no local number {} yet")
        return self.locals[node.id]

    def element(self, node: ast.Subscript) -> Variable:
        """An array's element."""
        name = ast.unparse(node.value)
        self.refuse_if(name not in self.arrays, node, f"{name} isn't an array argument: {{}}")
        kind, place, _ = self.arrays[name]
        index, type = self.integer(node.slice), ELEMENTS[kind]
        self.refuse_if(index.text.startswith("-"), node, "indices don't count from the end: {}")
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
        with self.loop(node, label, self.condition(node.test), label):
            self.block(node.body)

    def do_For(self, node: ast.For) -> None:
        start, stop, step = self.range(node)
        counter, label = self.local(LONG), self.code.fresh("for")
        counter.set(start)
        self.code.start(label)
        i = counter.get()
        with self.loop(node, label, i < stop if step > 0 else i > stop, f"{label}.after"):
            self.assign(node.target, i)
            self.block(node.body)
            self.code.start(f"{label}.after")
            counter.set(i + step)

    @contextmanager
    def loop(self, node: ast.For | ast.While, label: str, condition: Value, again: str) -> Iterator[None]:
        """The turns of a loop whose head is at a label; `continue` goes to `again`."""
        if node.orelse:
            raise self.error(node.orelse[0], "loops have no `else` here")
        self.code.branch(condition, f"{label}.body", f"{label}.end")
        self.code.start(f"{label}.body")
        self.loops.append((f"{label}.end", again))
        yield
        self.loops.pop()
        self.code.jump(label)
        self.code.start(f"{label}.end")

    def range(self, node: ast.For) -> tuple[Value, Value, int]:
        call = node.iter
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "range" or not 1 <= len(call.args) <= 3:
            raise self.error(call, "`for` goes over range(...), not over {}")
        bounds = [self.integer(a) for a in call.args]
        step = bounds[2].text if len(bounds) == 3 else "1"
        if not step.lstrip("-").isdigit() or step == "0":
            raise self.error(call.args[2], "the step of a range is a constant other than 0, not {}")
        start, stop = bounds[:2] if len(bounds) > 1 else (self.code.constant(0), bounds[0])
        return start, stop, int(step)

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
            raise self.error(node, f"{type(node).__name__} isn't in the subset: {{}}")
        return method(node)

    def integer(self, node: ast.expr, also: str = LONG) -> Value:
        value = self.value(node)
        self.refuse_if(value.type not in (LONG, also), node, f"{{}} is {NAMES[value.type]}, where an int belongs")
        return value

    def condition(self, node: ast.expr) -> Value:
        value = self.integer(node, also=BOOL)
        return value if value.type == BOOL else value.differs(0)

    def of_Constant(self, node: ast.Constant) -> Value:
        self.refuse_if(type(node.value) is not int or abs(node.value) >= 2**63, node, "{} is no int of 64 bits")
        return self.code.constant(node.value)

    def of_Name(self, node: ast.Name) -> Value:
        self.refuse_if(node.id in self.arrays, node, "{} is an array; take an element or len({}), or pass it on")
        self.refuse_if(node.id not in self.locals, node, "there is no local number {} yet")
        return self.locals[node.id].get()

    def of_Subscript(self, node: ast.Subscript) -> Value:
        return self.element(node).get()

    def of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return ~self.condition(node.operand)
        self.refuse_if(not isinstance(node.op, ast.USub), node, f"{type(node.op).__name__} isn't in the subset: {{}}")
        if isinstance(node.operand, ast.Constant):
            return self.code.constant(-int(self.integer(node.operand).text))
        return -self.integer(node.operand)

    def of_BinOp(self, node: ast.BinOp) -> Value:
        return self.binary(node, self.value(node.left), self.value(node.right))

    def binary(self, node: ast.BinOp | ast.AugAssign, x: Value, y: Value) -> Value:
        operators = OPERATORS | OF_BITS if x.type == LONG else OPERATORS
        if type(node.op) not in operators or x.type != y.type or x.type == BOOL:
            what = f"{type(node.op).__name__} of {NAMES[x.type]} and {NAMES[y.type]}"
            raise self.error(node, f"{what} isn't in the subset: {{}}")
        return operators[type(node.op)](x, y)

    def of_Compare(self, node: ast.Compare) -> Value:
        how = COMPARISONS.get(type(node.ops[0]), "")
        self.refuse_if(not how or len(node.ops) > 1, node, "a comparison is of two ints: {}")
        return self.code.compare(how, self.integer(node.left), self.integer(node.comparators[0]))

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        first, *others = node.values
        value = self.value(first)
        if value.type != BOOL:
            raise self.error(first, f"and/or are of bools, {{}} is {NAMES[value.type]}; write {{}} != 0")
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
            raise self.error(node, "{} returns nothing")
        return value

    def call(self, node: ast.Call) -> Value | None:
        name = ast.unparse(node.func)
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.error(node, "arguments are positional here: {}")
        if name == "len" and len(node.args) == 1 and ast.unparse(node.args[0]) in self.arrays:
            return self.arrays[ast.unparse(node.args[0])][2]
        if name in ("min", "max") and len(node.args) == 2:
            return getattr(self.code, name)(*map(self.integer, node.args))
        function = self.python.__globals__.get(name)
        self.refuse_if(not isinstance(function, self.typed), node, f"{CALLS}: {{}}")
        return self.call_typed(function, node)

    def call_typed(self, function: Any, node: ast.Call) -> Value | None:
        kinds: list[Kind] = []
        arguments: list[Value] = []
        names = [ast.unparse(argument) for argument in node.args]
        for name, argument in zip(names, node.args):
            kind, *given = self.arrays[name] if name in self.arrays else (int, self.integer(argument))
            kinds.append(kind)
            arguments += given
        key = function.function, tuple(kinds)
        called = self.known[key] if key in self.known else Translation(*key, self.typed, self.known)
        self.refuse_if(called is None, node.func, "{} calls itself; write a loop")
        self.written |= {name for name, own in zip(names, called.parameters) if own in called.written}
        value = self.code.call(called.code, *arguments)
        return None if called.code.returns == VOID else value
