"""A typed function and the kinds of its arguments come in, the text of LLVM functions goes out.

What is in the subset has a method here: `do_...` for a statement, `of_...` for an expression.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.compile.typed_text import BOOL, FLOAT, INT, NAMES, WIDENINGS, Element, Text, Value
from wonderland.core.errors import ArgumentError

Kind = Element | str  # of an argument: an array's elements, or a number

OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
SUBSET = "a typed function has assignments, for ... in range, while, if, break, continue, return and calls only"
CALLS = "only typed functions, len of an array, and min, max, abs, int, float of numbers can be called"


class Module:
    """Functions that call each other, each once for arguments of some kinds; the first is exported as `run`."""

    def __init__(self, typed: type):
        self.typed = typed
        self.functions: dict[tuple, Function] = {}

    def function(self, python: Callable, kinds: tuple[Kind, ...]) -> Function:
        key = (python, kinds)
        if key not in self.functions:
            name = f"{python.__name__}.{len(self.functions)}" if self.functions else "run"
            self.functions[key] = Function(self, python, kinds, name)
            self.functions[key].translate()
        return self.functions[key]

    def text(self) -> str:
        return "\n".join(function.text for function in self.functions.values())


class Function(Text):
    """One function for arguments of some kinds."""

    def __init__(self, module: Module, python: Callable, kinds: tuple[Kind, ...], name: str):
        super().__init__()
        self.module, self.python, self.kinds, self.name = module, python, kinds, name
        self.arguments: dict[str, int] = {}  # places
        self.arrays: dict[str, Element] = {}
        self.locals: dict[str, tuple[str, str]] = {}  # slots and kinds
        self.loops: list[tuple[str, str]] = []  # where `break` and `continue` go
        self.written: set[int] = set()  # places of arguments
        self.result: str | None = None  # kind
        self.returned = False
        self.text = ""  # when all is translated

    def translate(self) -> None:
        definition = self.parse()
        parameters = self.declare(definition)
        self.block(definition.body)
        if self.open:
            if self.result is not None:
                raise self.error(definition, f"it returns {NAMES[self.result]}, but it can end without `return`")
            self.write("ret void")
        manner = "internal" if self.name != "run" else "zeroext" if self.result == BOOL else ""
        head = f'define {manner} {self.result or "void"} @"{self.name}"({", ".join(parameters)}) {{'
        self.text = "\n".join([head, *self.slots, *self.lines, "}\n"])

    def parse(self) -> ast.FunctionDef:
        try:
            lines, self.first_line = inspect.getsourcelines(self.python)
        except OSError as error:
            raise ArgumentError(f"typed: there is no source of {self.python.__name__}; define it in a file") from error
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise ArgumentError(f"typed takes a function written with def, not {ast.unparse(tree)}")
        return tree

    def declare(self, definition: ast.FunctionDef) -> list[str]:
        """Parameters: an array is a pointer and a length, a number is a local that has a value."""
        given = definition.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.defaults:
            raise self.error(definition, "parameters are plain names, without defaults, * or **")
        names = [a.arg for a in given.posonlyargs + given.args]
        if len(names) != len(self.kinds):
            raise self.error(definition, f"it takes {len(names)} arguments ({', '.join(names)}), not {len(self.kinds)}")
        parameters = []
        for i, (name, kind) in enumerate(zip(names, self.kinds)):
            self.arguments[name] = i
            if isinstance(kind, Element):
                self.arrays[name] = kind
                parameters += f'ptr %"{name}"', f'i64 %"{name}.len"'
            else:
                value = Value(f'%"{name}"', kind)
                parameters.append(str(value))
                self.set(name, value, definition)
        return parameters

    def error(self, node: Any, message: str) -> ArgumentError:
        file = os.path.basename(self.python.__code__.co_filename)
        line = self.first_line + node.lineno - 1
        return ArgumentError(f"typed function {self.python.__name__} ({file}:{line}): {message}")

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

    def do_Pass(self, node: ast.Pass) -> None:
        pass

    def do_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.call(node.value)
        elif not isinstance(node.value, ast.Constant):  # docstrings
            raise self.error(node, f"the value of {ast.unparse(node)} isn't used")

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value)

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript):
            address, element, name = self.element(node.target)
            value = self.binary(node, self.load_element(address, element), self.value(node.value))
            self.store_element(value, address, element, name, node)
        else:
            self.assign(node.target, self.binary(node, self.value(node.target), self.value(node.value)))

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.set(target.id, value, target)
        elif isinstance(target, ast.Subscript):
            self.store_element(value, *self.element(target), target)
        else:
            raise self.error(target, f"assign to one name or element at a time, not to {ast.unparse(target)}")

    def set(self, name: str, value: Value, node: Any) -> None:
        if name in self.arrays:
            raise self.error(node, f"{name} is an array; assign to its elements")
        if name not in self.locals:
            self.locals[name] = self.slot(value.kind), value.kind
        slot, kind = self.locals[name]
        self.store(self.fit(value, kind, node, f"{name} is {NAMES[kind]} by its first assignment"), slot)

    def fit(self, value: Value, kind: str, node: Any, why: str) -> Value:
        """Converted, if the value is of the same or a narrower kind."""
        if value.kind != kind and (value.kind, kind) not in WIDENINGS:
            hint = "write int(...) here, or make that a float" if value.kind == FLOAT else "make that an int"
            raise self.error(node, f"{why}, and here it gets {NAMES[value.kind]}; {hint}")
        return self.convert(value, kind)

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
        if not (isinstance(node.test, ast.Constant) and node.test.value):
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
        self.branch(self.compare("<" if step > 0 else ">", i, stop), body, end)
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
        if not isinstance(call, ast.Call) or self.called(call) is not range or not 1 <= len(call.args) <= 3:
            raise self.error(node, f"`for` goes over range(...), not over {ast.unparse(call)}")
        bounds = [self.value(a) for a in call.args]
        if any(b.kind != INT for b in bounds):
            raise self.error(node, f"a range is of ints, not {ast.unparse(call)}")
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
        value = None if node.value is None else self.value(node.value)
        if not self.returned:
            self.returned, self.result = True, value and value.kind
        if (value is None) != (self.result is None):
            raise self.error(node, "some `return` gives a number, another gives none")
        if value is None or self.result is None:
            return self.write("ret void")
        self.write(f"ret {self.fit(value, self.result, node, f'the first `return` gives {NAMES[self.result]}')}")

    # Elements of arrays

    def element(self, node: ast.Subscript) -> tuple[str, Element, str]:
        """The address of an element, how it lies there, and the array's name."""
        name = ast.unparse(node.value)
        if name not in self.arrays:
            raise self.error(node, f"{name} isn't an array argument: {ast.unparse(node)}")
        index = self.value(node.slice)
        if index.kind != INT:
            raise self.error(node, f"an index is an int, not {NAMES[index.kind]}: {ast.unparse(node)}")
        if index.text.startswith("-"):  # a literal
            index = self.emit(INT, f'add i64 %"{name}.len", {index.text}')
        element = self.arrays[name]
        return self.emit("ptr", f'getelementptr {element.memory}, ptr %"{name}", {index}').text, element, name

    def load_element(self, address: str, element: Element) -> Value:
        value = self.load(address, element.memory)
        if element.kind == BOOL:
            return self.emit(BOOL, f"icmp ne {value}, 0")
        return self.emit(element.kind, f"{element.load} {value} to {element.kind}") if element.load else value

    def store_element(self, value: Value, address: str, element: Element, name: str, node: Any) -> None:
        value = self.truth(value) if element.kind == BOOL else value
        value = self.fit(value, element.kind, node, f"an element of {name} is {NAMES[element.kind]}")
        if element.store:
            value = self.emit(element.memory, f"{element.store} {value} to {element.memory}")
        self.store(value, address)
        self.written.add(self.arguments[name])

    # Expressions

    def value(self, node: ast.expr) -> Value:
        method = getattr(self, f"of_{type(node).__name__}", None)
        if method is None:
            raise self.error(node, f"{type(node).__name__} isn't in the subset: {ast.unparse(node)}")
        return method(node)

    def condition(self, node: ast.expr) -> Value:
        return self.both_or_either(node, True) if isinstance(node, ast.BoolOp) else self.truth(self.value(node))

    def of_Constant(self, node: ast.Constant) -> Value:
        return self.literal(node.value, node)

    def literal(self, value: Any, node: ast.expr) -> Value:
        if isinstance(value, (bool, np.bool_)):
            return Value("true" if value else "false", BOOL)
        if isinstance(value, (int, np.integer)) and -(2**63) <= value < 2**63:
            return Value(str(int(value)), INT)
        if isinstance(value, (float, np.floating)):
            return Value(f"0x{int(np.float64(value).view(np.uint64)):016X}", FLOAT)
        raise self.error(node, f"{ast.unparse(node)} is no number of 64 bits, but {value!r}")

    def of_Name(self, node: ast.Name) -> Value:
        name = node.id
        if name in self.locals:
            return self.load(*self.locals[name])
        if name in self.arrays:
            raise self.error(node, f"{name} is an array; take an element or len({name}), or pass it on")
        if name in self.python.__code__.co_varnames:
            raise self.error(node, f"{name} is read before anything is assigned to it")
        return self.literal(self.outside(name, node), node)

    def outside(self, name: str, node: ast.expr) -> Any:
        """What a name means where the function was defined."""
        code, names = self.python.__code__, {**vars(builtins), **self.python.__globals__}
        if name in code.co_freevars and self.python.__closure__:
            return self.python.__closure__[code.co_freevars.index(name)].cell_contents
        if name not in names:
            raise self.error(node, f"there is no {name}")
        return names[name]

    def of_Subscript(self, node: ast.Subscript) -> Value:
        return self.load_element(*self.element(node)[:2])

    def of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return self.emit(BOOL, f"xor {self.condition(node.operand)}, true")
        if not isinstance(node.op, ast.USub):
            raise self.error(node, f"{type(node.op).__name__} isn't in the subset: {ast.unparse(node)}")
        if isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, (int, float)):
            return self.literal(-node.operand.value, node)
        return self.negative(self.value(node.operand))

    def of_BinOp(self, node: ast.BinOp) -> Value:
        return self.binary(node, self.value(node.left), self.value(node.right))

    def binary(self, node: ast.BinOp | ast.AugAssign, x: Value, y: Value) -> Value:
        value = self.arithmetic(OPERATORS.get(type(node.op), ""), x, y)
        if value is None:
            kinds = f"{NAMES[x.kind]} and {NAMES[y.kind]}"
            raise self.error(node, f"{type(node.op).__name__} of {kinds} isn't in the subset: {ast.unparse(node)}")
        return value

    def of_Compare(self, node: ast.Compare) -> Value:
        answer, end = self.slot(BOOL), self.label()
        left = self.value(node.left)
        for op, operand in zip(node.ops, node.comparators):
            if type(op) not in COMPARED:
                raise self.error(node, f"{type(op).__name__} isn't in the subset: {ast.unparse(node)}")
            right = self.value(operand)
            self.settle(self.compare(COMPARED[type(op)], left, right), answer, end, True)
            left = right
        return self.settled(answer, end)

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        return self.both_or_either(node, False)

    def both_or_either(self, node: ast.BoolOp, condition: bool) -> Value:
        answer, end = self.slot(BOOL), self.label()
        for operand in node.values:
            value = self.condition(operand) if condition else self.value(operand)
            if value.kind != BOOL:
                what = ast.unparse(operand)
                raise self.error(node, f"and/or are of bools, {what} is {NAMES[value.kind]}; write {what} != 0")
            self.settle(value, answer, end, isinstance(node.op, ast.And))
        return self.settled(answer, end)

    def settle(self, value: Value, answer: str, end: str, going_on: bool) -> None:
        """Keep an answer, which is the last one unless it is `going_on`."""
        self.store(value, answer)
        more = self.label()
        self.branch(value, *((more, end) if going_on else (end, more)))
        self.place(more)

    def settled(self, answer: str, end: str) -> Value:
        self.place(end)
        return self.load(answer, BOOL)

    def of_IfExp(self, node: ast.IfExp) -> Value:
        yes, no, end = self.label(), self.label(), self.label()
        condition = self.condition(node.test)
        self.branch(condition, yes, no)
        slots = []
        for label, branch in ((yes, node.body), (no, node.orelse)):
            self.place(label)
            value = self.value(branch)
            slots.append((self.slot(value.kind), value.kind))
            self.store(value, slots[-1][0])
            self.jump(end)
        self.place(end)
        x, y = self.alike(*(self.load(*slot) for slot in slots), least=BOOL)
        return self.emit(x.kind, f"select {condition}, {x}, {y}")

    # Calls

    def of_Call(self, node: ast.Call) -> Value:
        value = self.call(node)
        if value is None:
            raise self.error(node, f"{ast.unparse(node)} returns nothing")
        return value

    def called(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if not name or name in self.python.__code__.co_varnames:
            raise self.error(node, f"{CALLS}, not {ast.unparse(node.func)}")
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.error(node, f"arguments are positional here: {ast.unparse(node)}")
        return self.outside(name, node)

    def call(self, node: ast.Call) -> Value | None:
        function = self.called(node)
        if isinstance(function, self.module.typed):
            return self.call_typed(function, node)
        if function is len and len(node.args) == 1 and ast.unparse(node.args[0]) in self.arrays:
            return Value(f'%"{ast.unparse(node.args[0])}.len"', INT)
        one, several = any(function is f for f in (abs, int, float)), function is min or function is max
        if not (one and len(node.args) == 1) and not (several and len(node.args) > 1):
            raise self.error(node, f"{CALLS}: {ast.unparse(node)}")
        value, *others = [self.value(a) for a in node.args]
        if function is abs:
            return self.absolute(value)
        if function is int:
            return self.integer(value)
        if function is float:
            return self.convert(value, FLOAT)
        for other in others:
            value = self.extreme("<" if function is min else ">", value, other)
        return value

    def call_typed(self, function: Any, node: ast.Call) -> Value | None:
        kinds: list[Kind] = []
        arguments, places = [], {}
        for i, argument in enumerate(node.args):
            name = ast.unparse(argument)
            if name in self.arrays:
                kinds.append(self.arrays[name])
                arguments += f'ptr %"{name}"', f'i64 %"{name}.len"'
                places[i] = self.arguments[name]
            else:
                (value,) = self.alike(self.value(argument))
                kinds.append(value.kind)
                arguments.append(str(value))
        called = self.module.function(function.function, tuple(kinds))
        if not called.text:
            raise self.error(node, f"{ast.unparse(node.func)} calls itself; write a loop")
        self.written |= {places[i] for i in called.written}
        code = f'call {called.result or "void"} @"{called.name}"({", ".join(arguments)})'
        return self.emit(called.result, code) if called.result else self.write(code)
