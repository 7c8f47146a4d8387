"""Functions of LLVM IR: calls of Python come in, instructions go out. This is the one module that writes them.

A `Function` has arithmetic, memory, loops, conditions and variables (on the stack; LLVM turns them into registers), and
knows what it calls. It is written from top to bottom, or (loop nests) in several open `Block`s at once. Nothing has
fast-math flags unless they are given: every operation rounds once, as written.
"""

from __future__ import annotations  # noqa: I001

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from wonderland.compile.ir.values import (
    BOOL, LONG, OF_FLOATS, POINTER, VOID, External, Global, Number, Value,
    bytes_of, constant, is_float, is_number, lanes_of, mangled, vector,
)  # fmt: skip

# Hints about loops.
AS_IT_IS = "as it is"  # the loop is written as it should run
INTERLEAVED = "interleaved"  # several turns at a time, after vectorising: each has long chains of dependent operations

# The attributes of a function that runs rarely, and shortly: LLVM translates it as it is, in a sixth of the time.
RARE = "noinline optnone"


@dataclass(eq=False, slots=True)
class Block:
    """Instructions under construction: lines so far, the label that control is at, whether it gets to the end."""

    label: str
    lines: list[str] = field(default_factory=list)
    open: bool = True


class Hinted(str):
    """The branch back to the head of a loop, with a hint about the loop."""

    __slots__ = ("hint",)
    hint: str


@dataclass(eq=False, slots=True)
class Variable:
    """A value that changes: a place on the stack, which LLVM turns into a register."""

    code: Function
    place: Value
    type: str

    def get(self) -> Value:
        return self.code.load(self.type, self.place)

    def set(self, value: Number) -> None:
        self.code.store(value if isinstance(value, Value) else constant(value, self.type), self.place)

    def add(self, value: Number) -> None:
        self.set(self.get() + value)


@cache
def _intrinsic(name: str, returns: str, over: tuple[str, ...], parameters: tuple[str, ...]) -> External:
    return External(".".join([f"llvm.{name}", *map(mangled, over)]), returns, parameters)


def _folding(name: str, neutral: int) -> Any:
    """An operation that leaves integers alone if the second operand is this one."""

    def operation(f: Function, x: Value, y: Number, flags: str = "") -> Value:
        if is_number(y, neutral) and not is_float(x.type):
            return x
        return f._binary(x, y, f"f{name}", name, flags)

    return operation


def _operation(of_floats: str, of_integers: str, of_signed: str = "") -> Any:
    """An operation, which may be another one for integers that are `signed`."""
    return lambda f, x, y, signed=False: f._binary(x, y, of_floats, (signed and of_signed) or of_integers)


class Function:
    """A function that is being written. `head` comes before `body`; code goes into `current`."""

    def __init__(
        self, name: str, parameters: Iterable[tuple[str, str]] = (), returns: str = VOID, *, exported: bool = False,
        hidden: bool = False, attributes: str = "", hint: str = "",
    ):  # fmt: skip
        """`parameters` are (name, type), a type with its attributes: `("x", "ptr noalias")`; `hint`: of all loops.

        `hidden`: nothing outside its module finds it, but LLVM keeps it even while nothing calls it.
        """
        self.name: str = name
        self.returns: str = returns
        self.exported: bool = exported
        self.hidden: bool = hidden
        self.attributes: str = attributes
        self.hint: str = hint
        self.narrow: bool = False  # are its loops too short for the widest vectors?
        self.cost: int = 0  # of a call, in additions, where that is known
        self._typed: list[str] = []  # parameters as the text has them
        self.parameters: list[Value] = []
        for word, type in parameters:
            self.parameter(word, type)
        self.needs: dict[str, Function | External | Global] = {}
        self.head: Block = Block("entry")
        self.body: Block = Block("entry")
        self.current: Block = self.body
        self._count: int = 0

    def parameter(self, name: str, type: str) -> Value:
        """One parameter more."""
        self._typed.append(f"{type} %{name}")
        alone = type.partition(">")[0] + ">" if type[0] == "<" else type.split()[0]  # `ptr` of `ptr noalias`
        self.parameters.append(Value(alone, f"%{name}", self))
        return self.parameters[-1]

    def lines(self) -> list[str]:
        linkage = "" if self.exported else "hidden " if self.hidden else "internal "
        attributes = f" {self.attributes}" if self.attributes else ""
        last = ["  ret void"] if self.body.open and self.returns == VOID else []
        define = f"define {linkage}{self.returns} @{self.name}({', '.join(self._typed)}){attributes} {{"
        return [define, "entry:", *self.head.lines, *self.body.lines, *last, "}"]

    # -- the text ---------------------------------------------------------------------------------

    def fresh(self, prefix: str) -> str:
        """A name that is new here."""
        self._count += 1
        return f"{prefix}{self._count}"

    def _do(self, line: str) -> None:
        self.current.lines.append(f"  {line}")

    def _let(self, type: str, instruction: str) -> Value:
        self._count += 1
        name = f"%v{self._count}"
        self.current.lines.append(f"  {name} = {instruction}")
        return Value(type, name, self)

    def constant(self, value: Any, type: str = LONG) -> Value:
        return constant(value, type, self)

    def integer(self, value: Number) -> Value:
        """A number of 64 bits."""
        return value if isinstance(value, Value) else constant(value, LONG, self)

    # -- arithmetic -------------------------------------------------------------------------------

    def _binary(self, x: Value, y: Any, of_floats: str, of_integers: str, flags: str = "") -> Value:
        operation = of_floats if is_float(x.type) else of_integers
        if not operation:
            raise TypeError(f"compiled code: no such operation on {x.type}")
        words = f"{operation} {flags} " if flags else f"{operation} "
        return self._let(x.type, f"{words}{x.type} {x.text}, {x.like(y).text}")

    add: Any = _folding("add", 0)
    sub: Any = _folding("sub", 0)
    mul: Any = _folding("mul", 1)

    div: Any = _operation("fdiv", "udiv", "sdiv")
    remainder: Any = _operation("frem", "urem", "srem")
    bit_and: Any = _operation("", "and")
    bit_or: Any = _operation("", "or")
    bit_xor: Any = _operation("", "xor")
    shift_left: Any = _operation("", "shl")
    shift_right: Any = _operation("", "lshr", "ashr")

    def neg(self, x: Value) -> Value:
        return self._let(x.type, f"fneg {x}") if is_float(x.type) else self.sub(x.like(0), x)

    def compare(self, how: str, x: Value, y: Number, signed: bool = True) -> Value:
        """`how`: eq, ne, lt, le, gt or ge."""
        lanes, _ = lanes_of(x.type)
        sign = "" if how in ("eq", "ne") else "s" if signed else "u"
        words = f"fcmp {OF_FLOATS[how]}" if is_float(x.type) else f"icmp {sign}{how}"
        return self._let(vector(BOOL, lanes) if lanes else BOOL, f"{words} {x}, {x.like(y).text}")

    def unordered(self, x: Value, y: Value) -> Value:
        """Is one of them NaN?"""
        return self._let(BOOL, f"fcmp uno {x}, {y.text}")

    def select(self, condition: Value, x: Number, y: Number) -> Value:
        """Both sides are computed."""
        x = x if isinstance(x, Value) else y.like(x)  # type: ignore[arg-type]
        return self._let(x.type, f"select {condition}, {x}, {x.like(y)}")

    def convert(self, x: Value, type: str, signed: bool = True) -> Value:
        if type == x.type:
            return x
        if POINTER in (type, x.type):
            operation = "inttoptr" if type == POINTER else "ptrtoint"
        elif is_float(x.type):
            to_float = "fpext" if bytes_of(type) > bytes_of(x.type) else "fptrunc"
            operation = to_float if is_float(type) else "fptosi" if signed else "fptoui"
        elif is_float(type):
            operation = "sitofp" if signed else "uitofp"
        else:
            wider = int(lanes_of(type)[1][1:]) > int(lanes_of(x.type)[1][1:])
            operation = ("sext" if signed else "zext") if wider else "trunc"
        return self._let(type, f"{operation} {x} to {type}")

    def bitcast(self, x: Value, type: str) -> Value:
        return x if type == x.type else self._let(type, f"bitcast {x} to {type}")

    def min(self, x: Value, y: Number, signed: bool = True) -> Value:
        return self.intrinsic("smin" if signed else "umin", x, x.like(y))

    def max(self, x: Value, y: Number, signed: bool = True) -> Value:
        return self.intrinsic("smax" if signed else "umax", x, x.like(y))

    # -- vectors ----------------------------------------------------------------------------------

    def splat(self, x: Value, lanes: int) -> Value:
        """A number in all lanes."""
        type = vector(x.type, lanes)
        one = self._let(type, f"insertelement {type} poison, {x}, i64 0")
        return self._let(type, f"shufflevector {one}, {type} poison, <{lanes} x i32> zeroinitializer")

    def shuffle(self, x: Value, y: Value, order: Sequence[int]) -> Value:
        """Some lanes of x and y, which are numbered one after the other."""
        indices = ", ".join(f"i32 {i}" for i in order)
        type = vector(lanes_of(x.type)[1], len(order))
        return self._let(type, f"shufflevector {x}, {y}, <{len(order)} x i32> <{indices}>")

    def extract(self, x: Value, lane: Number) -> Value:
        """The number in a lane."""
        return self._let(lanes_of(x.type)[1], f"extractelement {x}, {self.integer(lane)}")

    def insert(self, x: Value, number: Value, lane: Number) -> Value:
        """The vector with another number in a lane."""
        return self._let(x.type, f"insertelement {x}, {number}, {self.integer(lane)}")

    def lanes(self, values: Sequence[int], type: str = LONG) -> Value:
        """A vector of constants."""
        items = ", ".join(str(constant(v, type)) for v in values)
        return Value(vector(type, len(values)), f"<{items}>", self)

    # -- memory -----------------------------------------------------------------------------------

    def load(self, type: str, pointer: Value, align: int = 0, invariant: bool = False, order: str = "") -> Value:
        """`invariant`: the memory never changes; `order`: that of an atomic access, such as "acquire"."""
        atomic, how = ("atomic ", f" {order}") if order else ("", "")
        kept = ", !invariant.load !0" if invariant else ""
        return self._let(type, f"load {atomic}{type}, {pointer}{how}, align {align or bytes_of(type)}{kept}")

    def store(self, value: Value, pointer: Value, align: int = 0, order: str = "") -> None:
        atomic, how = ("atomic ", f" {order}") if order else ("", "")
        self._do(f"store {atomic}{value}, {pointer}{how}, align {align or bytes_of(value.type)}")

    def element(self, type: str, pointer: Value, index: Number, inbounds: bool = True) -> Value:
        """The address of an element of an array."""
        if is_number(index, 0):
            return pointer
        words = "getelementptr inbounds" if inbounds else "getelementptr"
        return self._let(POINTER, f"{words} {type}, {pointer}, {self.integer(index)}")

    def stack(self, type: str, count: Number = 1, align: int = 0) -> Value:
        """Memory that lasts as long as the call."""
        name = f"%{self.fresh('s')}"
        many = "" if is_number(count, 1) else f", {self.integer(count)}"
        aligned = f", align {align}" if align else ""
        self.head.lines.append(f"  {name} = alloca {type}{many}{aligned}")
        return Value(POINTER, name, self)

    def variable(self, start: Number, type: str = LONG) -> Variable:
        start = start if isinstance(start, Value) else constant(start, type, self)
        made = Variable(self, self.stack(start.type), start.type)
        made.set(start)
        return made

    def at(self, item: Function | External | Global) -> Value:
        """The address of a function, variable or table."""
        self.needs[item.name] = item
        return Value(POINTER, f"@{item.name}", self)

    def atomic(self, operation: str, pointer: Value, value: Value, order: str) -> Value:
        """Add, sub or xchg a word in memory; its value before."""
        return self._let(value.type, f"atomicrmw {operation} {pointer}, {value} {order}, align {bytes_of(value.type)}")

    def replace_if(self, pointer: Value, old: Value, new: Value, orders: str) -> Value:
        """Replace a word of memory if it has a value; did it?"""
        pair = self._let("", f"cmpxchg {pointer}, {old}, {new} {orders}, align {bytes_of(old.type)}")
        return self._let(BOOL, f"extractvalue {{ {old.type}, i1 }} {pair.text}, 1")

    def fence(self, order: str) -> None:
        """Accesses before and after it don't change places."""
        self._do(f"fence {order}")

    # -- calls ------------------------------------------------------------------------------------

    def call(self, callee: Function | External, *args: Value, flags: str = "", attributes: str = "") -> Value:
        self.needs[callee.name] = callee
        return self.call_at(f"@{callee.name}", callee.returns, *args, flags=flags, attributes=attributes)

    def call_at(self, callee: Value | str, returns: str, *args: Value, flags: str = "", attributes: str = "") -> Value:
        """Call the function at an address."""
        place = callee.text if isinstance(callee, Value) else callee
        text = f"call {flags + ' ' if flags else ''}{returns} {place}({', '.join(map(str, args))})"
        text += f" {attributes}" if attributes else ""
        if returns != VOID:
            return self._let(returns, text)
        self._do(text)
        return Value(VOID, "", self)

    def intrinsic(self, name: str, *args: Value, returns: str = "", over: Sequence[str] = (), flags: str = "") -> Value:
        """A function that LLVM knows. It returns the type of its first argument, and is named by it, or by `over`."""
        returns = returns or args[0].type
        function = _intrinsic(name, returns, tuple(over) or (returns,), tuple(a.type for a in args))
        return self.call(function, *args, flags=flags)

    def copy(self, to: Value, source: Value, size: Number) -> None:
        """Bytes from one place to another."""
        args = (to, source, self.integer(size), constant(False, BOOL))
        self.intrinsic("memcpy", *args, returns=VOID, over=(POINTER, POINTER, LONG))

    # -- control ----------------------------------------------------------------------------------

    def start(self, label: str) -> None:
        """What follows is at a label; control that gets here goes there."""
        self.jump(label)
        self.current.lines.append(f"{label}:")
        self.current.label, self.current.open = label, True

    def jump(self, label: str, hint: str = "") -> None:
        if self.current.open:
            self._end(f"br label %{label}", hint)

    def branch(self, condition: Value, yes: str, no: str, hint: str = "") -> None:
        self._end(f"br {condition}, label %{yes}, label %{no}", hint)

    def switch(self, value: Value, labels: Sequence[str]) -> None:
        """To the label with this number; others to the last."""
        cases = " ".join(f"{value.type} {i}, label %{label}" for i, label in enumerate(labels))
        self._end(f"switch {value}, label %{labels[-1]} [ {cases} ]")

    def ret(self, value: Value | None = None) -> None:
        self._end("ret void" if value is None else f"ret {value}")

    def ret_if(self, condition: Value, value: Value | None = None) -> None:
        with self.when(condition):
            self.ret(value)

    def _end(self, text: str, hint: str = "") -> None:
        line = Hinted(f"  {text}")
        line.hint = hint
        self.current.lines.append(line if hint else str(line))
        self.current.open = False

    def phi(self, *sources: tuple[Value, str]) -> Value:
        """The value that belongs to the label from which control came."""
        type = sources[0][0].type
        return self._let(type, f"phi {type} {', '.join(f'[ {value.text}, %{label} ]' for value, label in sources)}")

    def repeat(self, start: Sequence[Value], step: Callable[..., tuple[Sequence[Value], Value]]) -> list[Value]:
        """`values, more = step(*values)` at least once, and again as long as `more`; the values at the end."""
        before, head, exit = self.current.label, self.fresh("loop"), self.fresh("done")
        self.start(head)
        at, values = self._phis([x.type for x in start])
        following, more = step(*values)
        self._carry(at, values, start, before, following)
        self.branch(more, head, exit)
        self.start(exit)
        return list(following)

    @contextmanager
    def loop(self, start: Number, stop: Number, step: Number = 1, hint: str = "") -> Iterator[Value]:
        """for (i = start; i < stop; i += step)"""
        start, before, head = self.integer(start), self.current.label, self.fresh("loop")
        self.start(head)
        at, (index,) = self._phis([LONG])
        self.branch(index < stop, f"{head}.body", f"{head}.exit")
        self.start(f"{head}.body")
        yield index
        self._carry(at, [index], [start], before, [index + step])
        self.jump(head, hint or self.hint)
        self.start(f"{head}.exit")

    def nest(
        self, outer: Block, inner: Block, index: Value, start: Value, stop: Value,
        carried: Sequence[tuple[Value, Value, Value]] = (), hint: str = "",
    ) -> None:  # fmt: skip
        """Put a loop, whose inside is written in a block of its own, into the block around it. It runs at least once.

        `carried` are (value in this turn, in the first one, in the next one).
        """
        head, before = index.text[1:-2], outer.label
        self.current = inner
        more = (following := self.add(index, 1, "nuw nsw")).below(stop)
        self.branch(more, head, f"{head}.exit", hint)
        self.current = outer
        self.start(head)
        for now, first, after in ((index, start, following), *carried):
            sources = f"[ {first.text}, %{before} ], [ {after.text}, %{inner.label} ]"
            self.current.lines.append(f"  {now.text} = phi {now.type} {sources}")
        self.current.lines += inner.lines
        self.current.open = False
        self.start(f"{head}.exit")

    def inside(self, prefix: str) -> tuple[Block, Value]:
        """The block of a loop for `nest`, and the loop's index."""
        head = self.fresh(prefix)
        return Block(head), Value(LONG, f"%{head}.i", self)

    def _phis(self, types: Sequence[str]) -> tuple[int, list[Value]]:
        """Values at the head of a loop, and the place of their lines, which are written at its end."""
        at, values = len(self.current.lines), [Value(type, f"%{self.fresh('v')}", self) for type in types]
        self.current.lines += [v.text for v in values]
        return at, values

    def _carry(self, at: int, values: Sequence[Value], start: Sequence[Value], before: str, after: Sequence[Value]):
        for i, (now, first, following) in enumerate(zip(values, start, after, strict=True)):
            sources = f"[ {first.text}, %{before} ], [ {following.text}, %{self.current.label} ]"
            self.current.lines[at + i] = f"  {now.text} = phi {now.type} {sources}"

    @contextmanager
    def forever(self) -> Iterator[Callable[..., None]]:
        """Again and again: `with f.forever() as leave`, and `leave(condition)` or `leave()` ends it."""
        head, left = self.fresh("again"), set()

        def leave(condition: Value | None = None) -> None:
            left.add(f"{head}.exit")
            if condition is None:
                return self.jump(f"{head}.exit")
            stay = self.fresh("stay")
            self.branch(condition, f"{head}.exit", stay)
            return self.start(stay)

        self.start(head)
        yield leave
        self.jump(head)
        for label in left:
            self.start(label)

    @contextmanager
    def again_while(self, condition: Callable[[], Value]) -> Iterator[None]:
        """As long as a condition holds, which is computed before each turn."""
        head = self.fresh("while")
        self.start(head)
        self.branch(condition(), f"{head}.body", f"{head}.exit")
        self.start(f"{head}.body")
        yield
        self.jump(head)
        self.start(f"{head}.exit")

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        label = self.fresh("when")
        self.branch(condition, label, f"{label}.exit")
        self.start(label)
        yield
        self.start(f"{label}.exit")

    def unless(self, condition: Value) -> Any:
        return self.when(~condition)

    def choose(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """One of two values, of which only the one that is wanted is computed."""
        labels, join, found = [self.fresh("case"), self.fresh("case")], self.fresh("join"), []
        self.branch(condition, *labels)
        for label, side in zip(labels, (yes, no), strict=True):
            self.start(label)
            found.append((side(), self.current.label))
            self.jump(join)
        self.start(join)
        return self.phi(*found)
