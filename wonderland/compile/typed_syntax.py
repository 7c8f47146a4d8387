"""A typed function and the kinds of its arguments come in, the text of LLVM functions goes out.

What is in the subset has a method here: `do_...` for a statement, `of_...` for an expression. Locals live in slots of
the stack, which LLVM turns into registers; so no phi is written.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wonderland.core.errors import ArgumentError

Kind = np.dtype | type[int]  # of an argument: an array's dtype, or a number

BOOL, INT = "i1", "i64"
ELEMENTS = {np.dtype(np.int64): INT, np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
NAMES = {BOOL: "a bool", INT: "an int", "float": "a float32", "double": "a float64"}
OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
COMPARISONS = {ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge", ast.Eq: "eq", ast.NotEq: "ne"}
SUBSET = "a typed function has assignments, for ... in range, while, if, break, continue, return and calls only"
CALLS = "only typed functions, len of an array, and min and max of two ints can be called"


class Value(NamedTuple):
    """A number in the text: its name or literal, and LLVM's type of it."""

    text: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} {self.text}"


class Module:
    """Functions that call each other, each once for arguments of some kinds; the first is exported as `run`."""

    def __init__(self, typed: type):
        self.typed = typed
        self.functions: dict[tuple[Any, ...], Function] = {}

    def function(self, python: Callable, kinds: tuple[Kind, ...]) -> Function:
        key = (python, kinds)
        if key not in self.functions:
            name = f"{python.__name__}.{len(self.functions)}" if self.functions else "run"
            self.functions[key] = Function(self, python, kinds, name)
            self.functions[key].translate()
        return self.functions[key]

    def text(self) -> str:
        return "\n".join(function.text for function in self.functions.values())


class Function:
    """One function for arguments of some kinds."""

    module: Module
    python: Callable[..., Any]
    kinds: tuple[Kind, ...]
    name: str
    first_line: int

    def __init__(self, module: Module, python: Callable, kinds: tuple[Kind, ...], name: str):
        self.module, self.python, self.kinds, self.name = module, python, kinds, name
        self.arrays: dict[str, Kind] = {}
        self.locals: dict[str, tuple[str, str]] = {}  # slots and kinds
        self.loops: list[tuple[str, str]] = []  # where `break` and `continue` go
        self.written: set[str] = set()  # arrays
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.open = True  # does control reach the end of what is written so far?
        self.targets: set[str] = set()  # labels that something jumps to
        self.numbers: Any = itertools.count()
        self.text = ""  # when all is translated

    def translate(self) -> None:
        try:
            lines, self.first_line = inspect.getsourcelines(self.python)
        except OSError as error:
            raise ArgumentError(f"typed: there is no source of {self.python.__name__}; define it in a file") from error
        definition = ast.parse(textwrap.dedent("".join(lines))).body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise ArgumentError(f"typed takes a function written with def, not {ast.unparse(definition)}")
        self.returns: bool = any(isinstance(node, ast.Return) and node.value for node in ast.walk(definition))
        parameters = self.declare(definition)
        self.block(definition.body)
        if self.open and self.returns:
            raise self.error(definition, "it returns an int, but it can end without `return`")
        if self.open:
            self.write("ret void")
        manner = "internal " if self.name != "run" else ""
        head = f'define {manner}{INT if self.returns else "void"} @"{self.name}"({", ".join(parameters)}) {{'
        self.text: str = "\n".join([head, *self.slots, *self.lines, "}\n"])

    def declare(self, definition: ast.FunctionDef) -> list[str]:
        """Parameters: an array is a pointer and a length, a number is a local that has a value."""
        given = definition.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.defaults:
            raise self.error(definition, "parameters are plain names, without defaults, * or **")
        self.parameters: list[str] = [a.arg for a in given.posonlyargs + given.args]
        if len(self.parameters) != len(self.kinds):
            names = ", ".join(self.parameters)
            count = len(self.parameters)
            raise self.error(definition, f"it takes {count} arguments ({names}), not {len(self.kinds)}")
        parameters = []
        for name, kind in zip(self.parameters, self.kinds):
            if kind is int:
                value = Value(f'%"{name}"', INT)
                parameters.append(str(value))
                self.assign(ast.Name(name), value)
            else:
                self.arrays[name] = kind
                parameters += f'ptr %"{name}"', f'i64 %"{name}.len"'
        return parameters

    def error(self, node: Any, message: str) -> ArgumentError:
        file = os.path.basename(self.python.__code__.co_filename)
        line = self.first_line + node.lineno - 1
        return ArgumentError(f"typed function {self.python.__name__} ({file}:{line}): {message}")

    # Text

    def write(self, line: str) -> None:
        self.lines.append(f"  {line}")
        self.open = not line.startswith(("ret ", "br "))

    def emit(self, kind: str, code: str) -> Value:
        name = f"%.{next(self.numbers)}"
        self.write(f"{name} = {code}")
        return Value(name, kind)

    def slot(self, kind: str) -> str:
        """A place on the stack that holds 0 when the function starts."""
        name = f"%.{next(self.numbers)}"
        self.slots += f"  {name} = alloca {kind}", f"  store {kind} zeroinitializer, ptr {name}"
        return name

    def load(self, address: str, kind: str) -> Value:
        return self.emit(kind, f"load {kind}, ptr {address}")

    def store(self, value: Value, address: str) -> None:
        self.write(f"store {value}, ptr {address}")

    def label(self) -> str:
        return f"L{next(self.numbers)}"

    def jump(self, label: str) -> None:
        if self.open:
            self.targets.add(label)
            self.write(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        self.targets |= {yes, no}
        self.write(f"br {condition}, label %{yes}, label %{no}")

    def place(self, label: str) -> None:
        """Go on at a label, if anything goes there."""
        self.jump(label)
        if label in self.targets:
            self.lines.append(f"{label}:")
            self.open: bool = True

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
            address, kind = self.target(node.target)
            self.store(self.binary(node, self.load(address, kind), self.value(node.value)), address)

    def assign(self, node: ast.expr, value: Value) -> None:
        if isinstance(node, ast.Name) and node.id not in self.locals and node.id not in self.arrays:
            self.locals[node.id] = self.slot(value.kind), value.kind
        address, kind = self.target(node)
        if value.kind != kind:
            raise self.error(node, f"{ast.unparse(node)} is {NAMES[kind]}, and here it gets {NAMES[value.kind]}")
        self.store(value, address)

    def target(self, node: ast.expr) -> tuple[str, str]:
        """Where a number is to be kept, and its kind."""
        if isinstance(node, ast.Subscript):
            self.written.add(ast.unparse(node.value))
            return self.element(node)
        if not isinstance(node, ast.Name):
            raise self.error(node, f"assign to one name or element at a time, not to {ast.unparse(node)}")
        if node.id in self.arrays:
            raise self.error(node, f"{node.id} is an array; assign to its elements")
        return self.locals[node.id]

    def element(self, node: ast.Subscript) -> tuple[str, str]:
        """The address of an array's element, and its kind."""
        name = ast.unparse(node.value)
        if name not in self.arrays:
            raise self.error(node, f"{name} isn't an array argument: {ast.unparse(node)}")
        index, kind = self.integer(node.slice), ELEMENTS[self.arrays[name]]
        if index.text.startswith("-"):
            raise self.error(node, f"indices don't count from the end: {ast.unparse(node)}")
        return self.emit("ptr", f'getelementptr {kind}, ptr %"{name}", {index}').text, kind

    def do_If(self, node: ast.If) -> None:
        yes, no, end = self.label(), self.label(), self.label()
        self.branch(self.condition(node.test), yes, no)
        self.place(yes)
        self.block(node.body)
        self.jump(end)
        self.place(no)
        self.block(node.orelse)
        self.place(end)

    def do_While(self, node: ast.While) -> None:
        test, body, end = self.label(), self.label(), self.label()
        self.place(test)
        self.branch(self.condition(node.test), body, end)
        self.place(body)
        self.loop(node, end, test)
        self.jump(test)
        self.place(end)

    def do_For(self, node: ast.For) -> None:
        start, stop, step = self.range(node)
        counter = self.slot(INT)
        self.store(start, counter)
        test, body, after, end = self.label(), self.label(), self.label(), self.label()
        self.place(test)
        i = self.load(counter, INT)
        self.branch(self.emit(BOOL, f"icmp {'slt' if step > 0 else 'sgt'} {i}, {stop.text}"), body, end)
        self.place(body)
        self.assign(node.target, i)
        self.loop(node, end, after)
        self.place(after)
        if self.open:
            self.store(self.emit(INT, f"add {i}, {step}"), counter)
        self.jump(test)
        self.place(end)

    def range(self, node: ast.For) -> tuple[Value, Value, int]:
        call = node.iter
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "range" or not 1 <= len(call.args) <= 3:
            raise self.error(node, f"`for` goes over range(...), not over {ast.unparse(call)}")
        bounds = [self.integer(a) for a in call.args]
        step = bounds[2].text if len(bounds) == 3 else "1"
        if not step.lstrip("-").isdigit() or step == "0":
            raise self.error(node, f"the step of a range is a constant other than 0, not {ast.unparse(call.args[2])}")
        start, stop = bounds[:2] if len(bounds) > 1 else (Value("0", INT), bounds[0])
        return start, stop, int(step)

    def loop(self, node: ast.For | ast.While, end: str, again: str) -> None:
        if node.orelse:
            raise self.error(node.orelse[0], "loops have no `else` here")
        self.loops.append((end, again))
        self.block(node.body)
        self.loops.pop()

    def do_Break(self, node: ast.Break) -> None:
        self.jump(self.loops[-1][0])

    def do_Continue(self, node: ast.Continue) -> None:
        self.jump(self.loops[-1][1])

    def do_Return(self, node: ast.Return) -> None:
        if node.value is None and self.returns:
            raise self.error(node, "some `return` gives a number, this one gives none")
        self.write(f"ret {'void' if node.value is None else self.integer(node.value)}")

    # Expressions

    def value(self, node: ast.expr) -> Value:
        method = getattr(self, f"of_{type(node).__name__}", None)
        if method is None:
            raise self.error(node, f"{type(node).__name__} isn't in the subset: {ast.unparse(node)}")
        return method(node)

    def integer(self, node: ast.expr, also: str = INT) -> Value:
        value = self.value(node)
        if value.kind not in (INT, also):
            raise self.error(node, f"{ast.unparse(node)} is {NAMES[value.kind]}, where an int belongs")
        return value

    def condition(self, node: ast.expr) -> Value:
        value = self.integer(node, also=BOOL)
        return value if value.kind == BOOL else self.emit(BOOL, f"icmp ne {value}, 0")

    def of_Constant(self, node: ast.Constant) -> Value:
        if type(node.value) is not int or abs(node.value) >= 2**63:
            raise self.error(node, f"{ast.unparse(node)} is no int of 64 bits")
        return Value(str(node.value), INT)

    def of_Name(self, node: ast.Name) -> Value:
        if node.id in self.arrays:
            raise self.error(node, f"{node.id} is an array; take an element or len({node.id}), or pass it on")
        if node.id not in self.locals:
            raise self.error(node, f"there is no local number {node.id} yet")
        return self.load(*self.locals[node.id])

    def of_Subscript(self, node: ast.Subscript) -> Value:
        return self.load(*self.element(node))

    def of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return self.emit(BOOL, f"xor {self.condition(node.operand)}, true")
        if not isinstance(node.op, ast.USub):
            raise self.error(node, f"{type(node.op).__name__} isn't in the subset: {ast.unparse(node)}")
        if isinstance(node.operand, ast.Constant):
            return Value(f"-{self.integer(node.operand).text}", INT)
        return self.emit(INT, f"sub i64 0, {self.integer(node.operand).text}")

    def of_BinOp(self, node: ast.BinOp) -> Value:
        return self.binary(node, self.value(node.left), self.value(node.right))

    def binary(self, node: ast.BinOp | ast.AugAssign, x: Value, y: Value) -> Value:
        if type(node.op) not in OPERATORS or x.kind != y.kind or x.kind == BOOL:
            what = f"{type(node.op).__name__} of {NAMES[x.kind]} and {NAMES[y.kind]}"
            raise self.error(node, f"{what} isn't in the subset: {ast.unparse(node)}")
        return self.emit(x.kind, f"{'' if x.kind == INT else 'f'}{OPERATORS[type(node.op)]} {x}, {y.text}")

    def of_Compare(self, node: ast.Compare) -> Value:
        op = COMPARISONS.get(type(node.ops[0]))
        if op is None or len(node.ops) > 1:
            raise self.error(node, f"a comparison is of two ints: {ast.unparse(node)}")
        return self.emit(BOOL, f"icmp {op} {self.integer(node.left)}, {self.integer(node.comparators[0]).text}")

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        answer, end = self.slot(BOOL), self.label()
        for operand in node.values:
            value = self.value(operand)
            if value.kind != BOOL:
                what = ast.unparse(operand)
                raise self.error(node, f"and/or are of bools, {what} is {NAMES[value.kind]}; write {what} != 0")
            self.store(value, answer)
            more = self.label()
            self.branch(value, *((more, end) if isinstance(node.op, ast.And) else (end, more)))
            self.place(more)
        self.place(end)
        return self.load(answer, BOOL)

    def of_IfExp(self, node: ast.IfExp) -> Value:
        yes, no, end, slot = self.label(), self.label(), self.label(), self.slot(INT)
        self.branch(self.condition(node.test), yes, no)
        for label, branch in ((yes, node.body), (no, node.orelse)):
            self.place(label)
            self.store(self.integer(branch), slot)
            self.jump(end)
        self.place(end)
        return self.load(slot, INT)

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
            return Value(f'%"{ast.unparse(node.args[0])}.len"', INT)
        if name in ("min", "max") and len(node.args) == 2:
            x, y = map(self.integer, node.args)
            return self.emit(INT, f"call i64 @llvm.s{name}.i64({x}, {y})")
        function = self.python.__globals__.get(name)
        if not isinstance(function, self.module.typed):
            raise self.error(node, f"{CALLS}: {ast.unparse(node)}")
        return self.call_typed(function, node)

    def call_typed(self, function: Any, node: ast.Call) -> Value | None:
        kinds: list[Kind] = []
        arguments = []
        names = [ast.unparse(argument) for argument in node.args]
        for name, argument in zip(names, node.args):
            kinds.append(self.arrays.get(name, int))
            arguments += (
                (f'ptr %"{name}"', f'i64 %"{name}.len"') if name in self.arrays else (str(self.integer(argument)),)
            )
        called = self.module.function(function.function, tuple(kinds))
        if not called.text:
            raise self.error(node, f"{ast.unparse(node.func)} calls itself; write a loop")
        self.written |= {name for name, own in zip(names, called.parameters) if own in called.written}
        code = f'@"{called.name}"({", ".join(arguments)})'
        return self.emit(INT, f"call i64 {code}") if called.returns else self.write(f"call void {code}")
