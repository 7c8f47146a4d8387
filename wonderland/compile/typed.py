"""Plain typed loops: a function of arrays and numbers in a small subset of Python comes in, native code goes out.

For algorithms that no array operation expresses (colourings, orders, searches in graphs):

    @typed
    def count(indptr, indices, marked):
        total = 0
        for i in range(indptr[0], indptr[1]):
            if marked[indices[i]]:
                total += 1
        return total

Arguments are one-dimensional contiguous arrays (bool, uint8, int32, int64, float32, float64), ints and floats. There
are: assignment to local numbers and to elements, `for` over a `range`, `while`, `if`, `break`, `continue`, `return` of a
number or of nothing; + - * / // %, comparisons, `and or not`, conditional expressions, `len min max abs int float`,
numbers that the module defines, and calls of other typed functions. No allocation: work arrays are arguments. Anything
else is refused with its line.

What differs from Python: numbers are int64 and float64 whatever the arrays' dtypes (integers wrap), a local keeps the
type of its first assignment, an integer divided by 0 gives 0 as in NumPy, and **indices are not checked**: one out of
bounds reads or destroys other memory, and a negative one is only counted from the end if it is a literal. `f.python` is
the plain function, to try with.

Nothing is compiled before the first call with arguments of these types; the GIL is released while native code runs.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import inspect
import itertools
import os
import textwrap
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, NamedTuple, NoReturn

import numpy as np

from wonderland.core.errors import ArgumentError

INT, FLOAT, BOOL = "i64", "double", "i1"
NAMES = {INT: "an int", FLOAT: "a float", BOOL: "a bool"}
C_TYPES = {INT: ctypes.c_int64, FLOAT: ctypes.c_double, BOOL: ctypes.c_bool, None: None}


class Element(NamedTuple):
    """How elements of a dtype lie in memory: LLVM's type, the kind of number they are, conversions on the way."""

    memory: str
    kind: str
    load: str = ""
    store: str = ""


ELEMENTS = {
    np.dtype(np.bool_): Element("i8", BOOL, "trunc", "zext"),
    np.dtype(np.uint8): Element("i8", INT, "zext", "trunc"),
    np.dtype(np.int32): Element("i32", INT, "sext", "trunc"),
    np.dtype(np.int64): Element("i64", INT),
    np.dtype(np.float32): Element("float", FLOAT, "fpext", "fptrunc"),
    np.dtype(np.float64): Element("double", FLOAT),
}
ARITHMETIC = {ast.Add: ("add", "fadd"), ast.Sub: ("sub", "fsub"), ast.Mult: ("mul", "fmul")}
COMPARISONS = {
    ast.Lt: ("slt", "olt"), ast.LtE: ("sle", "ole"), ast.Gt: ("sgt", "ogt"), ast.GtE: ("sge", "oge"),
    ast.Eq: ("eq", "oeq"), ast.NotEq: ("ne", "une"),
}  # fmt: skip
WIDENINGS = {(BOOL, INT): "zext", (BOOL, FLOAT): "uitofp", (INT, FLOAT): "sitofp"}

Kind = Element | str | None  # of an argument: an array's elements, a number; None for anything else


class Value(NamedTuple):
    """A number in the text: its name or literal, and what kind it is."""

    text: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} {self.text}"


class Native(NamedTuple):
    """A function compiled for arguments of some kinds."""

    call: Callable
    written: frozenset[int]
    library: Any


class Typed:
    """A function compiled on its first call for each combination of argument types; `python` is the plain one."""

    def __init__(self, python: Callable):
        self.python = python
        self.native: dict[tuple[Kind, ...], Native] = {}
        update_wrapper(self, python)

    def __call__(self, *args: Any) -> Any:
        kinds = tuple(map(_kind, args))
        native = self.native.get(kinds) or self._compile(kinds, args)
        flat = []
        for i, (value, kind) in enumerate(zip(args, kinds)):
            if not isinstance(kind, Element):
                flat.append(self._number(i, value))
                continue
            flags = value.flags
            if value.ndim != 1 or not flags.c_contiguous or not flags.aligned:
                self._refuse(i, value, "a one-dimensional contiguous array. Write np.ascontiguousarray(x.ravel())")
            if i in native.written and not flags.writeable:
                self._refuse(i, value, "an array to write into, but this one is read-only. Pass a copy")
            flat += value.ctypes.data, len(value)
        return native.call(*flat)

    def ir(self, *args: Any) -> str:
        """The text that LLVM gets for arguments of these types."""
        return self._translate(tuple(map(_kind, args)), args)[0]

    def _translate(self, kinds: tuple[Kind, ...], args: tuple) -> tuple[str, Function]:
        for i, (value, kind) in enumerate(zip(args, kinds)):
            if kind is None:
                *most, last = map(str, ELEMENTS)
                self._refuse(i, value, f"an int, a float, or an array of {', '.join(most)} or {last}")
        module: dict[tuple, Function] = {}
        function = _translated(self, kinds, module)
        return "\n".join(f.text for f in module.values()), function

    def _compile(self, kinds: tuple[Kind, ...], args: tuple) -> Native:
        from wonderland.compile import llvm  # on the first call, not on import

        with llvm.lock:
            if kinds not in self.native:
                text, function = self._translate(kinds, args)
                library = llvm.compile_library(text, ["run"], quick=True)
                types = [t for k in kinds for t in (_ARRAY if isinstance(k, Element) else (C_TYPES[k],))]
                call = ctypes.CFUNCTYPE(C_TYPES[function.result], *types)(library.address("run"))
                self.native[kinds] = Native(call, frozenset(function.written), library)
            return self.native[kinds]

    def _number(self, i: int, value: Any) -> Any:
        if isinstance(value, (float, np.floating)):
            return float(value)
        if not -(2**63) <= value < 2**63:
            self._refuse(i, value, "an int of 64 bits")
        return int(value)

    def _refuse(self, i: int, value: Any, expected: str) -> NoReturn:
        names = list(inspect.signature(self.python).parameters)
        name = names[i] if i < len(names) else f"number {i}"
        what = type(value).__name__ if not isinstance(value, np.ndarray) else f"{value.dtype}{list(value.shape)}"
        if isinstance(value, np.ndarray) and value.ndim == 1 and not value.flags.c_contiguous:
            what = f"non-contiguous {what}"
        raise ArgumentError(f"{self.python.__name__}: argument {name} is {what}; expected is {expected}.")


_ARRAY = (ctypes.c_void_p, ctypes.c_int64)


def _kind(value: Any) -> Kind:
    if isinstance(value, np.ndarray):
        return ELEMENTS.get(value.dtype)
    if isinstance(value, (int, np.integer, np.bool_)):
        return INT
    return FLOAT if isinstance(value, (float, np.floating)) else None


def typed(python: Callable) -> Typed:
    """Decorate a function of plain loops on arrays and numbers: it runs as native code (see the module's text)."""
    return Typed(python)


def _translated(function: Typed, kinds: tuple[Kind, ...], module: dict[tuple, Function]) -> Function:
    """The function for arguments of these kinds, as part of a module in which it stands once."""
    key = (function, kinds)
    if key not in module:
        name = f"f{len(module)}.{function.python.__name__}" if module else "run"
        module[key] = Function(function.python, kinds, name, module)
        module[key].translate()
    return module[key]


class Function:
    """Python's syntax tree to the text of one LLVM function.

    Locals live in slots of the stack, which LLVM turns into registers; so no phi is written here.
    """

    def __init__(self, python: Callable, kinds: tuple[Kind, ...], name: str, module: dict[tuple, Function]):
        self.python, self.kinds, self.name, self.module = python, kinds, name, module
        self.arrays: dict[str, Element] = {}
        self.places: dict[str, int] = {}  # of arguments
        self.locals: dict[str, str] = {}  # kinds
        self.written: set[int] = set()  # arguments
        self.result: str | None = None
        self.returned = False
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.loops: list[tuple[str, str]] = []  # where `break` and `continue` go
        self.open = True  # does control reach the end of what is written so far?
        self.targets: set[str] = set()
        self.numbers = itertools.count()
        self.text = ""
        self.first = 1

    def translate(self) -> None:
        """Fill in text, result and written arguments."""
        definition = self.parse()
        self.parameters = self.declare(definition)
        self.block(definition.body)
        if self.open:
            if self.result is not None:
                raise self.error(definition, f"it returns {NAMES[self.result]} but can reach its end without `return`")
            self.write("ret void")
        linkage = "" if self.name == "run" else "internal "
        self.text = "\n".join([
            f'define {linkage}{self.result or "void"} @"{self.name}"({", ".join(self.parameters)}) {{',
            *self.slots, *self.lines, "}", "",
        ])  # fmt: skip

    def parse(self) -> ast.FunctionDef:
        try:
            lines, self.first = inspect.getsourcelines(self.python)
        except (OSError, TypeError) as error:
            raise ArgumentError(f"typed: there is no source of {self.python!r}; define it in a file") from error
        definition = ast.parse(textwrap.dedent("".join(lines))).body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise ArgumentError(f"typed takes a function written with def, not {type(definition).__name__}")
        return definition

    def declare(self, definition: ast.FunctionDef) -> list[str]:
        """Arguments: an array is a pointer and a length, a number a local that has a value."""
        given = definition.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.defaults:
            raise self.error(definition, "parameters are plain names, without defaults, * or **")
        names = [a.arg for a in given.posonlyargs + given.args]
        if len(names) != len(self.kinds):
            raise self.error(definition, f"takes {len(names)} arguments ({', '.join(names)}), not {len(self.kinds)}")
        parameters = []
        for i, (name, kind) in enumerate(zip(names, self.kinds)):
            self.places[name] = i
            if isinstance(kind, Element):
                self.arrays[name] = kind
                parameters += f'ptr %"{name}"', f'i64 %"{name}.len"'
            else:
                value = Value(f'%"{name}"', kind or INT)
                parameters.append(str(value))
                self.set(name, value, definition)
        return parameters

    def error(self, node: Any, message: str) -> ArgumentError:
        line = self.first + getattr(node, "lineno", 1) - 1
        place = f"{os.path.basename(self.python.__code__.co_filename)}:{line}"
        return ArgumentError(f"typed function {self.python.__name__} ({place}): {message}")

    # Text

    def write(self, line: str) -> None:
        self.lines.append(f"  {line}")
        self.open = not line.startswith(("ret ", "br "))

    def emit(self, kind: str, code: str) -> Value:
        name = f"%.{next(self.numbers)}"
        self.write(f"{name} = {code}")
        return Value(name, kind)

    def slot(self, kind: str, name: str = "") -> str:
        place = f'%"{name}.{next(self.numbers)}"'
        self.slots += f"  {place} = alloca {kind}", f"  store {kind} zeroinitializer, ptr {place}"
        return place

    def label(self) -> str:
        return f"L{next(self.numbers)}"

    def jump(self, label: str) -> None:
        if self.open:
            self.targets.add(label)
            self.write(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        self.targets |= {yes, no}
        self.write(f"br i1 {condition.text}, label %{yes}, label %{no}")

    def place(self, label: str) -> None:
        """Go on at a label, if anything goes there."""
        self.jump(label)
        if label in self.targets:
            self.lines.append(f"{label}:")
            self.open = True

    # Names and elements

    def set(self, name: str, value: Value, node: Any) -> None:
        if name in self.arrays:
            raise self.error(node, f"{name} is an array argument; assign to its elements")
        if name not in self.locals:
            self.locals[name] = value.kind
            self.slots += (f'  %"{name}.slot" = alloca {value.kind}',)
            self.slots += (f'  store {value.kind} zeroinitializer, ptr %"{name}.slot"',)
        kind = self.locals[name]
        if kind != value.kind and (value.kind, kind) not in WIDENINGS:
            hint = f"float({name}) or 0.0" if value.kind == FLOAT else "int(...)"
            first = f"{name} is {NAMES[kind]} by its first assignment and {NAMES[value.kind]} is assigned here"
            raise self.error(node, f"{first}; start with {hint}")
        self.write(f'store {self.convert(value, kind)}, ptr %"{name}.slot"')

    def convert(self, value: Value, kind: str) -> Value:
        if value.kind == kind:
            return value
        return self.emit(kind, f"{WIDENINGS[value.kind, kind]} {value} to {kind}")

    def element(self, node: ast.Subscript) -> tuple[str, Element, str]:
        """The address of an element, how it lies there, and the array's name."""
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name not in self.arrays:
            raise self.error(node, f"only array arguments have elements, not {ast.unparse(node.value)}")
        index = node.slice
        place = self.value(index)
        if place.kind != INT:
            raise self.error(node, f"the index {ast.unparse(index)} is {NAMES[place.kind]}, not an int")
        if isinstance(index, ast.UnaryOp) and isinstance(index.operand, ast.Constant):
            place = self.emit(INT, f'add i64 %"{name}.len", {place.text}')
        element = self.arrays[name]
        return self.emit("ptr", f'getelementptr {element.memory}, ptr %"{name}", {place}').text, element, name

    def load(self, address: str, element: Element) -> Value:
        value = self.emit(element.memory, f"load {element.memory}, ptr {address}")
        return self.emit(element.kind, f"{element.load} {value} to {element.kind}") if element.load else value

    def store(self, value: Value, address: str, element: Element, name: str, node: Any) -> None:
        if element.kind == BOOL:
            value = self.truth(value)
        if value.kind == FLOAT != element.kind:
            raise self.error(node, f"a float is stored in {name}, an array of ints; write int(...)")
        value = self.convert(value, element.kind)
        if element.store:
            value = self.emit(element.memory, f"{element.store} {value} to {element.memory}")
        self.write(f"store {value}, ptr {address}")
        self.written.add(self.places[name])

    def outside(self, name: str) -> Any:
        """What a name means where the function was defined."""
        free = self.python.__code__.co_freevars
        if name in free:
            return (self.python.__closure__ or ())[free.index(name)].cell_contents
        return self.python.__globals__.get(name, vars(builtins).get(name))

    # Statements

    def block(self, statements: list[ast.stmt]) -> None:
        for node in statements:
            if not self.open:
                return
            method = getattr(self, f"do_{type(node).__name__}", None)
            if method is None:
                raise self.error(node, f"{type(node).__name__} isn't in the subset: {_first_line(node)}")
            method(node)

    def do_Pass(self, node: ast.Pass) -> None:
        pass

    def do_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.call(node.value)
        elif not isinstance(node.value, ast.Constant):
            raise self.error(node, f"the value of {ast.unparse(node)} is lost")

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value)

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.set(target.id, value, target)
        elif isinstance(target, ast.Subscript):
            address, element, name = self.element(target)
            self.store(value, address, element, name, target)
        else:
            raise self.error(target, f"assign to one name or element at a time, not to {ast.unparse(target)}")

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript):
            address, element, name = self.element(node.target)
            value = self.binary(node.op, self.load(address, element), self.value(node.value), node)
            self.store(value, address, element, name, node)
        else:
            old = self.value(ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node))
            self.assign(node.target, self.binary(node.op, old, self.value(node.value), node))

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
        counter = self.slot(INT, "range")
        self.write(f"store {start}, ptr {counter}")
        test, body, after, end = self.label(), self.label(), self.label(), self.label()
        self.place(test)
        i = self.emit(INT, f"load i64, ptr {counter}")
        self.branch(self.emit(BOOL, f"icmp {'slt' if step > 0 else 'sgt'} {i}, {stop.text}"), body, end)
        self.place(body)
        self.assign(node.target, i)
        self.loop(node, end, after)
        self.place(after)
        if self.open:
            self.write(f"store {self.emit(INT, f'add {i}, {step}')}, ptr {counter}")
        self.jump(test)
        self.place(end)

    def range(self, node: ast.For) -> tuple[Value, Value, int]:
        call = node.iter
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "range" and 1 <= len(call.args) <= 3):
            raise self.error(node, f"`for` goes over range(...), not {ast.unparse(call)}")
        bounds = [self.value(a) for a in call.args[:2]]
        if any(b.kind != INT for b in bounds):
            raise self.error(node, f"bounds are ints: {ast.unparse(call)}")
        step = self.value(call.args[2]).text if len(call.args) == 3 else "1"
        if not step.lstrip("-").isdigit() or int(step) == 0:
            raise self.error(node, f"the step of a range is a literal or constant int, not 0: {ast.unparse(call)}")
        start, stop = bounds if len(bounds) == 2 else (Value("0", INT), bounds[0])
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
        empty = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        value = None if empty or node.value is None else self.value(node.value)
        kind = value and value.kind
        if not self.returned:
            self.result, self.returned = kind, True
        if value is None and self.result is None:
            return self.write("ret void")
        if value is None or (kind != self.result and (kind, self.result) not in WIDENINGS):
            raise self.error(node, f"returns {NAMES.get(kind or '', 'nothing')}; another `return` gives "
                             f"{NAMES.get(self.result or '', 'nothing')}")  # fmt: skip
        self.write(f"ret {self.convert(value, self.result or INT)}")

    # Expressions

    def value(self, node: ast.expr) -> Value:
        method = getattr(self, f"of_{type(node).__name__}", None)
        if method is None:
            raise self.error(node, f"{type(node).__name__} isn't in the subset: {ast.unparse(node)}")
        return method(node)

    def of_Constant(self, node: ast.Constant) -> Value:
        return self.literal(node.value, node)

    def literal(self, value: Any, node: ast.expr) -> Value:
        if isinstance(value, (bool, np.bool_)):
            return Value("true" if value else "false", BOOL)
        if isinstance(value, (int, np.integer)) and -(2**63) <= value < 2**63:
            return Value(str(int(value)), INT)
        if isinstance(value, (float, np.floating)):
            return Value(f"0x{np.float64(value).view(np.uint64):016X}", FLOAT)
        raise self.error(node, f"{ast.unparse(node)} is {value!r}; only numbers of 64 bits are values here")

    def of_Name(self, node: ast.Name) -> Value:
        name = node.id
        if name in self.locals:
            return self.emit(self.locals[name], f'load {self.locals[name]}, ptr %"{name}.slot"')
        if name in self.arrays:
            raise self.error(node, f"{name} is an array; take elements of it, len({name}), or pass it on")
        if name in self.python.__code__.co_varnames:
            raise self.error(node, f"{name} is read before anything is assigned to it")
        return self.literal(self.outside(name), node)

    def of_Subscript(self, node: ast.Subscript) -> Value:
        return self.load(*self.element(node)[:2])

    def of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return self.emit(BOOL, f"xor {self.condition(node.operand)}, true")
        if isinstance(node.op, ast.USub):
            if isinstance(node.operand, ast.Constant) and type(node.operand.value) in (int, float):
                return self.literal(-node.operand.value, node)
            value = self.value(node.operand)
            if value.kind == FLOAT:
                return self.emit(FLOAT, f"fneg {value}")
            return self.emit(INT, f"sub i64 0, {self.convert(value, INT).text}")
        raise self.error(node, f"{type(node.op).__name__} isn't in the subset: {ast.unparse(node)}")

    def of_BinOp(self, node: ast.BinOp) -> Value:
        return self.binary(node.op, self.value(node.left), self.value(node.right), node)

    def binary(self, op: ast.operator, x: Value, y: Value, node: Any) -> Value:
        x, y = self.alike(x, y, FLOAT if isinstance(op, ast.Div) else INT)
        if isinstance(op, ast.Div):
            return self.emit(FLOAT, f"fdiv {x}, {y.text}")
        if type(op) in ARITHMETIC:
            return self.emit(x.kind, f"{ARITHMETIC[type(op)][x.kind == FLOAT]} {x}, {y.text}")
        if not isinstance(op, (ast.FloorDiv, ast.Mod)) or x.kind == FLOAT:
            of = " of floats" if x.kind == FLOAT else ""
            raise self.error(node, f"{type(op).__name__}{of} isn't in the subset: {ast.unparse(node)}")
        return self.divide(x, y, isinstance(op, ast.Mod))

    def alike(self, x: Value, y: Value, least: str) -> tuple[Value, Value]:
        kind = FLOAT if FLOAT in (x.kind, y.kind, least) else least if least == INT else x.kind
        return self.convert(x, kind), self.convert(y, kind)

    def divide(self, x: Value, y: Value, remainder: bool) -> Value:
        """Floor division or its remainder. Processors stop at divisors 0 and, for one dividend, -1."""
        literal = y.text.isdigit() and y.text != "0"
        if not literal:
            near = self.emit(INT, f"add {y}, 1")
            odd = self.emit(BOOL, f"icmp ult {near}, 2")
            zero = self.emit(BOOL, f"icmp eq {y}, 0")
            given, y = y, self.emit(INT, f"select {odd}, i64 1, {y}")
            minus = self.emit(INT, f"sub i64 0, {x.text}")
            special = self.emit(INT, f"select {zero}, i64 0, {minus}")
        else:
            given, odd, special = y, Value("false", BOOL), Value("0", INT)
        quotient, rest = self.emit(INT, f"sdiv {x}, {y.text}"), self.emit(INT, f"srem {x}, {y.text}")
        signs = self.emit(INT, f"xor {rest}, {given.text}")
        apart = self.emit(BOOL, f"icmp slt {signs}, 0")
        inexact = self.emit(BOOL, f"icmp ne {rest}, 0")
        below = self.emit(BOOL, f"and {apart}, {inexact.text}")
        if remainder:
            return self.emit(INT, f"add {rest}, {self.emit(INT, f'select {below}, {y}, i64 0').text}")
        floor = self.emit(INT, f"add {quotient}, {self.emit(INT, f'sext {below} to i64').text}")
        return self.emit(INT, f"select {odd}, {special}, {floor}")

    def of_Compare(self, node: ast.Compare) -> Value:
        answer, end = self.slot(BOOL), self.label()
        left = self.value(node.left)
        for i, (op, operand) in enumerate(zip(node.ops, node.comparators)):
            if type(op) not in COMPARISONS:
                raise self.error(node, f"{type(op).__name__} isn't in the subset: {ast.unparse(node)}")
            right = self.value(operand)
            x, y = self.alike(left, right, INT)
            how = COMPARISONS[type(op)]
            holds = self.emit(
                BOOL, f"fcmp {how[1]} {x}, {y.text}" if x.kind == FLOAT else f"icmp {how[0]} {x}, {y.text}"
            )
            if len(node.ops) == 1:
                return holds
            left = right
            self.settle(answer, holds, end, True, i + 1 == len(node.ops))
        return self.emit(BOOL, f"load i1, ptr {answer}")

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        answer, end = self.slot(BOOL), self.label()
        for i, operand in enumerate(node.values):
            value = self.value(operand)
            if value.kind != BOOL:
                raise self.error(node, f"and/or join comparisons and bools; {ast.unparse(operand)} is "
                                 f"{NAMES[value.kind]}: write {ast.unparse(operand)} != 0")  # fmt: skip
            self.settle(answer, value, end, isinstance(node.op, ast.And), i + 1 == len(node.values))
        return self.emit(BOOL, f"load i1, ptr {answer}")

    def settle(self, answer: str, value: Value, end: str, go_on_if: bool, last: bool) -> None:
        """Keep an answer; what follows is evaluated only if it is `go_on_if`."""
        self.write(f"store {value}, ptr {answer}")
        if last:
            return self.place(end)
        following = self.label()
        self.branch(value, *((following, end) if go_on_if else (end, following)))
        self.place(following)

    def condition(self, node: ast.expr) -> Value:
        return self.truth(self.value(node))

    def truth(self, value: Value) -> Value:
        if value.kind == BOOL:
            return value
        return self.emit(BOOL, f"fcmp une {value}, 0.0" if value.kind == FLOAT else f"icmp ne {value}, 0")

    def of_IfExp(self, node: ast.IfExp) -> Value:
        yes, no, end = self.label(), self.label(), self.label()
        self.branch(self.condition(node.test), yes, no)
        self.place(yes)
        x = self.value(node.body)
        answer = self.slot(x.kind)
        self.write(f"store {x}, ptr {answer}")
        self.jump(end)
        self.place(no)
        y = self.value(node.orelse)
        if y.kind != x.kind and (y.kind, x.kind) not in WIDENINGS:
            raise self.error(
                node, f"one of its values is {NAMES[x.kind]}, the other {NAMES[y.kind]}: {ast.unparse(node)}"
            )
        self.write(f"store {self.convert(y, x.kind)}, ptr {answer}")
        self.place(end)
        return self.emit(x.kind, f"load {x.kind}, ptr {answer}")

    def of_Call(self, node: ast.Call) -> Value:
        value = self.call(node)
        if value is None:
            raise self.error(node, f"{ast.unparse(node)} returns nothing")
        return value

    def call(self, node: ast.Call) -> Value | None:
        function = self.outside(node.func.id) if isinstance(node.func, ast.Name) else None
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.error(node, f"calls have positional arguments only: {ast.unparse(node)}")
        if isinstance(function, Typed):
            return self.call_typed(function, node)
        if function is len and len(node.args) == 1 and ast.unparse(node.args[0]) in self.arrays:
            return Value(f'%"{ast.unparse(node.args[0])}.len"', INT)
        if function not in (min, max, abs, int, float):
            raise self.error(node, f"no typed function, nor len min max abs int float: {ast.unparse(node)}")
        values = [self.value(a) for a in node.args]
        if function in (min, max) and len(values) > 1:
            while len(values) > 1:
                values[:2] = [self.extreme(values[0], values[1], function is min)]
            return values[0]
        if len(values) != 1 or function in (min, max):
            raise self.error(node, f"the number of arguments is wrong: {ast.unparse(node)}")
        value = values[0]
        if function is float:
            return self.convert(value, FLOAT)
        if value.kind != FLOAT:
            value = self.convert(value, INT)
            return value if function is int else self.extreme(value, self.emit(INT, f"sub i64 0, {value.text}"), False)
        if function is int:
            return self.emit(INT, f"fptosi {value} to i64")
        return self.emit(FLOAT, f"call double @llvm.fabs.f64({value})")

    def extreme(self, x: Value, y: Value, least: bool) -> Value:
        x, y = self.alike(x, y, INT)
        how = "lt" if least else "gt"
        better = self.emit(BOOL, f"fcmp o{how} {y}, {x.text}" if x.kind == FLOAT else f"icmp s{how} {y}, {x.text}")
        return self.emit(x.kind, f"select {better}, {y}, {x}")

    def call_typed(self, function: Typed, node: ast.Call) -> Value | None:
        kinds, arguments, arrays = [], [], {}
        for i, argument in enumerate(node.args):
            name = argument.id if isinstance(argument, ast.Name) else ""
            if name in self.arrays:
                kinds.append(self.kinds[self.places[name]])
                arguments += f'ptr %"{name}"', f'i64 %"{name}.len"'
                arrays[i] = self.places[name]
            else:
                value = self.value(argument)
                value = self.convert(value, INT) if value.kind == BOOL else value
                kinds.append(value.kind)
                arguments.append(str(value))
        called = _translated(function, tuple(kinds), self.module)
        if not called.text:
            raise self.error(node, f"{ast.unparse(node.func)} calls itself; write a loop")
        self.written |= {arrays[i] for i in called.written}
        code = f'call {called.result or "void"} @"{called.name}"({", ".join(arguments)})'
        return self.emit(called.result, code) if called.result else self.write(code)


def _first_line(node: ast.stmt) -> str:
    return ast.unparse(node).partition("\n")[0]
