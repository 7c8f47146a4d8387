"""Typed loops: native code against the plain Python function on lists, errors, compilation."""

import importlib.util
import itertools
import random
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from wonderland.compile import llvm
from wonderland.compile.typed import typed
from wonderland.core.errors import ArgumentError


def plain(value):
    return value.tolist() if isinstance(value, np.ndarray) else value


def compare(f, *args):
    """Results and arrays afterwards are those of the plain function, which gets lists: Python's own numbers."""
    native, python = [np.copy(a) if isinstance(a, np.ndarray) else a for a in args], list(map(plain, args))
    result, expected = f(*native), f.python(*python)
    assert type(result) is type(expected)
    assert result == expected or (result != result and expected != expected)
    for a, b in zip(native, python):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, np.asarray(b, a.dtype))
    return result


@typed
def sort(x):
    """By insertion."""
    for i in range(1, len(x)):
        j = i
        value = x[i]
        while j > 0 and x[j - 1] > value:
            x[j] = x[j - 1]
            j -= 1
        x[j] = value


@typed
def find(x, value):
    for i in range(len(x)):
        if x[i] == value:
            return i
    return -1


@typed
def swap(x, i, j):
    value = x[i]
    x[i] = x[j]
    x[j] = value


@typed
def reverse(x):
    for i in range(len(x)):
        j = len(x) - 1 - i
        if j <= i:
            break
        swap(x, i, j)


@typed
def nested(x, counts):
    found = 0
    for i in range(len(x)):
        for j in range(len(x) - 1, i, -2):
            if x[i] == x[j]:
                found += 1
                break
            elif (x[i] < x[j] and x[j] < x[i] + 7) or not find(x, i) >= 0:
                counts[i] += 1
            else:
                continue
            counts[j] = min(counts[i], 5)
        if found > 3:
            break
    return found


@typed
def last(n):
    i = 10
    for i in range(n):
        i += 100
    return i


@typed
def guarded(x, i):
    if (i < len(x) and x[i] > 0) or i == -1:
        return 1
    return 0


@typed
def subtract(x, y, scale):
    """Floats are read, multiplied, added, stored."""
    for i in range(len(x)):
        value = y[i] * scale[0]
        x[i] -= value + y[i]


@typed
def polynomial(x):
    return x * x * x - 3 * x + 1


@typed
def bits(x, y):
    return (x * 0x2545F4914F6CDD1D + y) >> 32 & 1023


@pytest.fixture
def draw(rng):
    return lambda n=12, most=10: rng.integers(0, most, n)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 20])
def test_arrays(n, draw):
    for _ in range(5):
        compare(sort, draw(n))
        compare(nested, draw(n), np.zeros(n, int))
        compare(find, draw(n), 4)
    for dtype in (np.int64, np.float32, np.float64):
        compare(reverse, draw(n).astype(dtype))


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
def test_numbers_of_all_types(dtype, rng):
    x, y, scale = (rng.normal(0, 99, 9).astype(dtype) for _ in range(3))
    expected = x - (y * scale[0] + y)
    subtract(x, y, scale)
    np.testing.assert_array_equal(x, expected)


def test_scalars():
    assert find(np.arange(5), np.uint8(3)) == 3
    assert find(np.arange(5), True) == 1
    assert [compare(last, n) for n in (-1, 0, 1, 3)] == [10, 10, 100, 102]
    assert compare(guarded, np.array([1, 0]), 0) == 1
    assert compare(guarded, np.array([1, 0]), 1 << 40) == 0  # the element isn't looked at


def test_integers_wrap():
    for x in (2**40, -(2**50) + 3, 2**63 - 1):
        exact = x**3 - 3 * x + 1
        assert polynomial(x) == (exact + 2**63) % 2**64 - 2**63


def test_bits_of_a_product_that_wrapped():
    for x, y in itertools.product((0, 3, 2**40 + 1), (0, 255, 2**62)):
        assert compare(bits, x, y) == ((x * 0x2545F4914F6CDD1D + y) % 2**64) // 2**32 % 1024


def test_arrays_may_share_memory(draw):
    x = draw(9)
    expected = x.tolist()
    nested.python(expected, expected)
    nested(x, x)
    assert x.tolist() == expected


FUNCTIONS = 12


class Writer:
    """Random functions of an int array and two ints, in the subset."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = ["p", "q"]
        self.fresh = (f"v{i}" for i in itertools.count())

    def number(self, depth):
        pick = self.random.choice
        if depth == 0 or self.random.random() < 0.15:
            return pick([pick(self.names), pick(self.names), str(self.random.randint(-9, 9)), "len(x)"])
        a, b = (self.number(depth - 1) for _ in range(2))
        return pick([
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"min({a}, {b})", f"max({a}, {b})", f"(-{a})",
            f"x[{self.index(a)}]", f"({a} if {self.test(depth - 1)} else {b})",
        ])  # fmt: skip

    def small(self, depth):
        return f"max(-99, min({self.number(depth)}, 99))"

    def index(self, number):
        return f"max(0, min({number}, len(x) - 1))"

    def test(self, depth):
        a, b = (self.number(max(depth - 1, 0)) for _ in range(2))
        if depth <= 0:
            return f"{a} < {b}"
        first, second = self.test(depth - 1), self.test(depth - 1)
        return self.random.choice([
            f"{a} <= {b}", f"{a} != {b}", f"{a} > {b}", f"{a} == {b}", f"(not {first})",
            f"({first} and {second})", f"({first} or {second})", f"(not {b} and {second})",
        ])  # fmt: skip

    def block(self, depth, indent, loop):
        lines = []
        for _ in range(self.random.randint(1, 3)):
            lines += self.statement(depth, indent, loop)
        return lines

    def statement(self, depth, indent, loop):
        space, new = "    " * indent, next(self.fresh)
        kind = self.random.choice(
            ["set", "element", "add"] if depth == 0 else ["set", "if", "for", "while", "exit", "else"]
        )
        if kind == "set":
            line = f"{space}{new} = {self.small(2)}"
            self.names.append(new) if indent == 1 else None
            return [line]
        if kind == "element":
            return [f"{space}x[{self.index(self.number(1))}] {self.random.choice(['=', '+=', '-='])} {self.small(2)}"]
        if kind == "add":
            return [f"{space}p = {self.small(2)}"]
        if kind == "exit":
            exits = ["return p + q"] + ["break", "continue"] * 2 * loop
            return [f"{space}if {self.test(1)}:", f"{space}    {self.random.choice(exits)}"]
        if kind == "while":
            head = [f"{space}{new} = {self.random.randint(0, 6)}", f"{space}while {new} > 0 and {self.test(1)}:"]
            return head + [f"{space}    {new} -= 1", *self.block(depth - 1, indent + 1, True)]
        if kind == "for":
            step = self.random.choice([1, 2, 3])
            few = f"min({self.number(1)}, 5)"
            bounds = self.random.choice([few, f"-2, {few}, {step}", f"9, 1, -{step}"])
            return [f"{space}for q in range({bounds}):", *self.block(depth - 1, indent + 1, True)]
        lines = [f"{space}if {self.test(2)}:", *self.block(depth - 1, indent + 1, loop)]
        if kind == "else":
            lines += [f"{space}elif {self.test(1)}:", *self.block(depth - 1, indent + 1, loop)]
            lines += [f"{space}else:", *self.block(depth - 1, indent + 1, loop)]
        return lines

    def function(self, name):
        body = [line for _ in range(4) for line in self.statement(3, 1, False)]
        return "\n".join([f"def {name}(x, p, q):", *body, f"    return {self.number(2)}", ""])


def written(path, source):
    """A module of this source: what is typed has a file."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_random_functions(tmp_path, rng):
    source = "\n\n".join(Writer(seed).function(f"f{seed}") for seed in range(FUNCTIONS))
    module = written(tmp_path / "random_functions.py", source)
    for seed in range(FUNCTIONS):
        f = typed(getattr(module, f"f{seed}"))
        for _ in range(10):
            x = rng.integers(-20, 20, rng.integers(1, 9))
            compare(f, x, int(rng.integers(-20, 20)), int(rng.integers(-20, 20)))


# What is refused: bodies of functions of an array x and an int n, with the line at fault

WRONG = [
    ("return y", 1, "there is no local number y yet"),
    ("flag = n > 0\nflag = n", 2, "flag is a bool, and here it gets an int"),
    ("return [1, 2]", 1, r"List isn't in the subset: \[1, 2\]"),
    ("y = [v + 1 for v in x]", 1, "ListComp isn't in the subset"),
    ("n, m = 1, 2", 1, "Tuple isn't in the subset"),
    ("n = m = 1", 1, "assign to one name or element at a time: n = m = 1"),
    ("for v in x:\n    n = v", 1, r"`for` goes over range\(...\), not over x"),
    ("for i in range(0, n, n):\n    n = i", 1, "the step of a range is a constant other than 0, not n"),
    ("while n > 0:\n    n -= 1\nelse:\n    n = 3", 4, "loops have no `else`"),
    ("return x[1:]", 1, "Slice isn't in the subset: 1:"),
    ("return x + 1", 1, r"x is an array; take an element or len\(x\)"),
    ("x = 3", 1, "x is an array; assign to its elements"),
    ("return x[1.0]", 1, "1.0 is no int of 64 bits"),
    ("return x[-1]", 1, r"indices don't count from the end: x\[-1\]"),
    ("return n[0]", 1, r"n isn't an array argument: n\[0\]"),
    ("x[0] = n > 0", 1, r"x\[0\] is an int, and here it gets a bool"),
    ("return x.size", 1, "Attribute isn't in the subset: x.size"),
    ("return np.sum(x)", 1, r"only typed functions, len of an array.*: np.sum\(x\)"),
    ("return sum(x)", 1, r"only typed functions.*: sum\(x\)"),
    ("return find(x, value=3)", 1, "arguments are positional here"),
    ("return min(n)", 1, r".*of two ints can be called: min\(n\)"),
    ("if n > 0:\n    return 1\nreturn", 3, "some `return` gives a number, this one gives none"),
    ("if n > 0:\n    return 1", 0, "it returns an int, but it can end without `return`"),
    ("return n > 0", 1, "n > 0 is a bool, where an int belongs"),
    ("return n and 3", 1, "and/or are of bools, n is an int; write n != 0"),
    ("return n**2", 1, r"Pow of an int and an int isn't in the subset: n \*\* 2"),
    ("return n | 2", 1, "BitOr of an int and an int"),
    ("return n // 2", 1, "FloorDiv of an int and an int"),
    ("return ~n", 1, "Invert isn't in the subset: ~n"),
    ("return 1 if 0 < n < 3 else 2", 1, "a comparison is of two ints: 0 < n < 3"),
    ("return 1 if n is n else 0", 1, "a comparison is of two ints: n is n"),
    ("return sort(x) + 1", 1, r"sort\(x\) returns nothing"),
    ("with x:\n    pass", 1, "With isn't in the subset: with x:; a typed function has assignments"),
    ("n + 1", 1, r"the value of n \+ 1 isn't used"),
    ("return 18446744073709551616", 1, "18446744073709551616 is no int of 64 bits"),
    ("def wrong(x, n=1):\n    return n", 0, "parameters are plain names"),
    ("def wrong(x):\n    return 1", 0, r"it takes 1 arguments \(x\), not 2"),
]


@pytest.mark.parametrize(("source", "line", "message"), WRONG)
def test_refused_with_its_line(source, line, message, tmp_path):
    if not source.startswith("def"):
        source = "def wrong(x, n):\n" + textwrap.indent(source, "    ")
    module = written(tmp_path / "refused.py", source)
    module.find, module.sort = find, sort
    with pytest.raises(ArgumentError, match=rf"typed function wrong \(refused.py:{1 + line}\): {message}"):
        typed(module.wrong)(np.arange(4), 3)


@typed
def endless(n):
    return endless(n - 1)


def test_no_recursion():
    with pytest.raises(ArgumentError, match="endless calls itself; write a loop"):
        endless(3)


def test_no_source():
    names = {}
    exec("def f(n):\n    return n", names)
    with pytest.raises(ArgumentError, match="no source of f; define it in a file"):
        typed(names["f"])(1)
    with pytest.raises(ArgumentError, match=r"takes a function written with def, not typed\(lambda"):
        typed(lambda n: n)(1)
    with pytest.raises(ArgumentError, match="takes a function written with def, not int"):
        typed(3)  # pyright: ignore


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "argument x is list; it takes an int or an array of int64, float32, float64"),
        (np.zeros(3, complex), r"argument x is complex128\[3\]; it takes an int"),
        (np.zeros(3, ">i8"), r"argument x is >i8\[3\]"),
        (np.zeros((2, 2)), r"argument x is float64\[2, 2\]; it takes a one-dimensional, contiguous array"),
        (np.zeros(()), r"argument x is float64\[\]; it takes a one-dimensional"),
        (np.zeros(6)[::2], r"argument x is non-contiguous float64\[3\]; it takes a one-dimensional, contiguous"),
        (
            np.zeros(25, np.uint8)[1:].view(np.int64),
            r"argument x is int64\[3\]; it takes a one-dimensional, contiguous",
        ),
        (np.broadcast_to(1, 1), r"argument x is int64\[1\]; it takes an array to write into, this one is read-only"),
    ],
)
def test_wrong_arguments(value, message):
    with pytest.raises(ArgumentError, match=f"^reverse: {message}"):
        reverse(value)


def test_arrays_that_are_only_read_may_be_read_only():
    x = np.arange(5)
    x.flags.writeable = False
    assert find(x, 3) == 3


@typed
def größe(größen, v1):
    Σ = 0
    for í in range(größe_bis(größen, v1)):
        Σ += größen[í]
    return Σ


@typed
def größe_bis(p0, s1):
    return min(len(p0), s1)


def test_names_may_have_any_letters_and_be_those_of_the_generated_code():
    assert größe(np.arange(5), 4) == 6


# Compilation


def test_the_function_keeps_its_name():
    assert sort.__name__ == "sort" and sort.__doc__.startswith("By insertion")


def test_compiled_once_per_types_by_whichever_thread(monkeypatch):
    made, compile_library = [], llvm.compile_library
    monkeypatch.setattr(llvm, "compile_library", lambda *args, **kw: made.append(1) or compile_library(*args, **kw))
    fresh = typed(reverse.function)
    assert not made
    barrier, answers = threading.Barrier(8), []

    def run():
        barrier.wait()
        for dtype in (np.int64, np.float32):
            answers.append(np.arange(100, dtype=dtype))
            fresh(answers[-1])

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 16 and all(x[0] == 99 for x in answers) and len(made) == 2


@typed
def wander(n):
    x = 1
    for _ in range(n):
        x = x * x + 12345
    return x


def test_other_threads_run_meanwhile():
    wander(1)
    thread, turns = threading.Thread(target=wander, args=(30_000_000,)), 0
    thread.start()
    while thread.is_alive():
        turns += 1
    assert turns > 1000


def test_importing_compiles_nothing():
    code = "import sys, wonderland.sparse.orders; print('llvmlite' in sys.modules)"
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False"]
