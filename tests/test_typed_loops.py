"""Typed loops: native code against the plain Python function on lists, errors, compilation."""

import importlib.util
import itertools
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from wonderland.compile import llvm
from wonderland.compile.typed import typed
from wonderland.core.errors import ArgumentError

LIMIT = 7
HALF = 0.5
DOWN = -2
UNKNOWN = "text"


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
def dot(x, y):
    total = 0.0
    for i in range(min(len(x), len(y))):
        total += x[i] * y[i]
    return total


@typed
def sort(x):
    """By insertion: while, and, chained conditions."""
    for i in range(1, len(x)):
        j = i
        value = x[i]
        while j > 0 and x[j - 1] > value:
            x[j] = x[j - 1]
            j -= 1
        x[j] = value


@typed
def search(x, value):
    low = 0
    high = len(x)
    while low < high:
        middle = (low + high) // 2
        if x[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@typed
def sieve(prime):
    for i in range(len(prime)):
        prime[i] = i > 1
    for i in range(2, len(prime)):
        if not prime[i]:
            continue
        for j in range(i + i, len(prime)):
            if j % i == 0:
                prime[j] = False


@typed
def first_repeated(x, seen):
    for i in range(len(x)):
        if seen[x[i]]:
            return i
        seen[x[i]] = 1
    return -1


@typed
def has(x, value):
    for i in range(len(x)):
        if x[i] == value:
            return True
    return False


@typed
def swap(x, i, j):
    value = x[i]
    x[i] = x[j]
    x[j] = value


@typed
def reverse(x):
    for i in range(len(x) // 2):
        swap(x, i, len(x) - 1 - i)


@typed
def nested(x, counts):
    found = 0
    for i in range(len(x)):
        for j in range(len(x) - 1, i, DOWN):
            if x[i] == x[j]:
                found += 1
                break
            elif x[i] < x[j] < x[i] + LIMIT or not has(x, i):
                counts[i] += 1
            else:
                continue
            counts[j] = counts[i] = counts[i] % 5
        if found > 3:
            break
    return found


@typed
def until(x):
    steps = 0
    n = x
    while True:
        if n == 1:
            return steps
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1


@typed
def mixed(x, k):
    best = x[0]
    for i in range(len(x)):
        best = max(best, x[i] * k, i)
        x[i] = -best / (abs(x[i]) + 1) if i % 3 else HALF
    return min(best, k) + x[-1]


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
def numbers_as_conditions(x):
    count = 0
    for i in range(len(x)):
        if (x[i] and not count) or (x[i] and x[i] % 3):
            count += 1
    return count


@typed
def booleans(x):
    flag = len(x) > 2
    count = 0
    for i in range(len(x)):
        count += x[i] > 0
        flag = flag or x[i] == 4
    return count + flag


ints = [np.int64, np.int32, np.uint8]
floats = [np.float64, np.float32]


@pytest.fixture
def draw(rng):
    return lambda dtype, n=12, most=10: rng.integers(0, most, n).astype(dtype)


@pytest.mark.parametrize("dtype", ints + floats)
@pytest.mark.parametrize("n", [0, 1, 2, 33])
def test_arrays_of_all_types(dtype, n, draw):
    compare(sort, draw(dtype, n))
    compare(reverse, draw(dtype, n))
    compare(search, np.sort(draw(dtype, n)), 4)
    compare(search, np.sort(draw(dtype, n)), 4.5)
    compare(has, draw(dtype, n), 4)
    compare(dot, draw(dtype, n), draw(np.float64, n + 1))
    compare(booleans, draw(dtype, n))


@pytest.mark.parametrize("dtype", ints)
def test_integers(dtype, draw):
    for n in range(20):
        compare(nested, draw(dtype, n), np.zeros(n, dtype))
        compare(first_repeated, draw(dtype, n), np.zeros(10, bool))
        compare(first_repeated, draw(dtype, n), np.zeros(10, np.uint8))
        compare(numbers_as_conditions, draw(dtype, n))


def test_floats(rng):
    for n in range(1, 20):
        compare(mixed, rng.standard_normal(n), 2)
        compare(mixed, rng.standard_normal(n), 1.5)
        compare(mixed, np.full(n, np.nan), 1.5)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 100])
def test_booleans(n):
    prime = np.zeros(n, bool)
    sieve(prime)
    assert np.flatnonzero(prime).tolist() == [p for p in range(2, n) if all(p % q for q in range(2, p))]


def test_a_bool_is_any_byte_but_zero():
    assert has(np.array([0, 2], np.uint8).view(bool), 1)


def test_scalars():
    for x in (1, 2, 27, np.int32(27), np.uint8(6)):
        assert until(x) == until.python(int(x))
    assert [compare(last, n) for n in (-1, 0, 1, 3)] == [10, 10, 100, 102]
    assert compare(guarded, np.array([1, 0]), 0) == 1
    assert compare(guarded, np.array([1, 0]), 1 << 40) == 0  # the element isn't looked at
    assert guarded(np.array([1, 0]), True) == 0


@typed
def quotient(x, y):
    return x // y


@typed
def remainder(x, y):
    return x % y


@typed
def by_constants(x):
    return x // 7 * 1000000 + x % 7 * 10000 + x // -3 * 100 + x % -3


EDGES = [0, 1, 2, 3, 7, 10, 2**31, 2**62, 2**63 - 1]


def test_division_is_floor_division():
    for x in [*EDGES, *(-e for e in EDGES), -(2**63)]:
        for y in [*EDGES[1:], *(-e for e in EDGES[1:]), -(2**63)]:
            if (x, y) != (-(2**63), -1):
                assert quotient(x, y) == x // y
            assert remainder(x, y) == x % y
        assert quotient(x, 0) == remainder(x, 0) == 0
    assert quotient(-(2**63), -1) == -(2**63)
    for x in range(-50, 50):
        compare(by_constants, x)


@typed
def found_then_counted(x, value):
    """Bools of a typed function are bools."""
    flag = has(x, value)
    return flag and has(x, value + 1)


def test_bools_are_returned(draw):
    for value in range(10):
        compare(found_then_counted, draw(np.int64), value)


@typed
def polynomial(x):
    return x * x * x - 3 * x + 1


def test_integers_wrap():
    for x in (2**40, -(2**50) + 3, 2**63 - 1):
        exact = x**3 - 3 * x + 1
        assert polynomial(x) == (exact + 2**63) % 2**64 - 2**63
    small = np.zeros(2, np.uint8)
    store(small, 257, -1)
    assert small.tolist() == [1, 255]


@typed
def store(x, first, second):
    x[0] = first
    x[1] = second


def test_stored_numbers_are_converted():
    for dtype in floats:
        x = np.zeros(2, dtype)
        store(x, 3, 0.1)
        assert x.tolist() == [3, dtype(0.1)]
    x = np.zeros(2, bool)
    store(x, 2, 0)
    assert x.tolist() == [True, False]


@typed
def conversions(x):
    return int(x) * 2 + int(x > 0)


@typed
def halves(n):
    return float(n) / 2


def test_conversions():
    for x in (2.7, -2.7, 0.0, 1e15, 3, True):
        assert conversions(x) == conversions.python(x)
    assert conversions(np.nan) == 0
    assert compare(halves, 3) == 1.5 and compare(halves, 2.5) == 1.25


def test_arrays_may_share_memory(draw):
    x = draw(np.int64, 9)
    expected = x.tolist()
    nested.python(expected, expected)
    nested(x, x)
    assert x.tolist() == expected


FUNCTIONS = 24


class Writer:
    """Random functions of an int array and two ints, in the subset."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = ["p", "q"]
        self.fresh = (f"v{i}" for i in itertools.count())

    def number(self, depth):
        pick = self.random.choice
        if depth == 0 or self.random.random() < 0.15:
            return pick(
                [pick(self.names), pick(self.names), str(self.random.randint(-9, 9)), "len(x)", "LIMIT", "x[-1]"]
            )
        a, b, c = (self.number(depth - 1) for _ in range(3))
        return pick([
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b}) % 1009", f"{a} // ({b} % 7 + 1)",
            f"{a} % -(abs({b}) % 9 + 1)",
            f"min({a}, {b}, {c})", f"max({a}, {b})", f"abs({a})", f"-{a}", f"x[{a} % len(x)]",
            f"({a} if {self.test(depth - 1)} else {b})",
        ]).join("()")  # fmt: skip

    def test(self, depth):
        a, b, c = (self.number(max(depth - 1, 0)) for _ in range(3))
        if depth <= 0:
            return f"{a} < {b}"
        first, second = self.test(depth - 1), self.test(depth - 1)
        return self.random.choice([
            f"{a} <= {b}", f"{a} != {b}", f"{a} < {b} <= {c}", f"{a} > {b} == {c}", f"(not {first})",
            f"({first} and {second})", f"({first} or {second})", f"({first} or {a})", f"(not {b} and {second})",
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
            line = f"{space}{new} = {self.number(2)}"
            self.names.append(new) if indent == 1 else None
            return [line]
        if kind == "element":
            return [
                f"{space}x[{self.number(1)} % len(x)] {self.random.choice(['=', '+=', '-='])} {self.number(2)} % 99"
            ]
        if kind == "add":
            return [f"{space}p = (p + {self.number(2)}) % 997"]
        if kind == "exit":
            exits = ["return p + q"] + ["break", "continue"] * 2 * loop
            return [f"{space}if {self.test(1)}:", f"{space}    {self.random.choice(exits)}"]
        if kind == "while":
            head = [f"{space}{new} = {self.random.randint(0, 6)}", f"{space}while {new} > 0 and {self.test(1)}:"]
            return head + [f"{space}    {new} -= 1", *self.block(depth - 1, indent + 1, True)]
        if kind == "for":
            step = self.random.choice([1, 2, 3])
            bounds = self.random.choice(
                [f"{self.number(1)} % 5", f"-2, {self.number(1)} % 6, {step}", f"9, 1, -{step}"]
            )
            return [f"{space}for q in range({bounds}):", *self.block(depth - 1, indent + 1, True)]
        lines = [f"{space}if {self.test(2)}:", *self.block(depth - 1, indent + 1, loop)]
        if kind == "else":
            lines += [f"{space}elif {self.test(1)}:", *self.block(depth - 1, indent + 1, loop)]
            lines += [f"{space}else:", *self.block(depth - 1, indent + 1, loop)]
        return lines

    def function(self, name):
        body = [line for _ in range(4) for line in self.statement(3, 1, False)]
        return "\n".join([f"def {name}(x, p, q):", *body, f"    return {self.number(2)}", ""])


def test_random_functions(tmp_path, rng):
    source = "LIMIT = 7\n" + "\n\n".join(Writer(seed).function(f"f{seed}") for seed in range(FUNCTIONS))
    path = tmp_path / "written.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("written", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for seed in range(FUNCTIONS):
        f = typed(getattr(module, f"f{seed}"))
        for _ in range(10):
            x = rng.integers(-20, 20, rng.integers(1, 9)).astype(np.int32 if seed % 2 else np.int64)
            compare(f, x, int(rng.integers(-20, 20)), int(rng.integers(-20, 20)))


# What is refused


def wrong_names():
    return nothing_like_it  # noqa: F821


def wrong_constant():
    return UNKNOWN


def wrong_read():
    x = y  # noqa: F821
    y = x
    return y


def wrong_promotion(n):
    total = 0
    for i in range(n):
        total += 0.5 * i
    return total


def wrong_bool(n):
    flag = False
    flag = n
    return flag


def wrong_list():
    return [1, 2]


def wrong_comprehension(x):
    y = [v + 1 for v in x]
    return len(y)


def wrong_tuple(n):
    n, m = 1, 2
    return n + m


def wrong_iteration(x):
    for v in x:
        return v
    return 0


def wrong_step(n):
    for i in range(0, n, n):
        return i
    return 0


def wrong_else(n):
    while n > 0:
        n -= 1
    else:
        n = 3
    return n


def wrong_slice(x):
    return x[1:]


def wrong_array_value(x):
    return x + 1


def wrong_array_assignment(x):
    x = 3
    return x


def wrong_index(x):
    return x[1.0]


def wrong_float_store(x):
    x[0] = 1.5


def wrong_attribute(x):
    return x.size


def wrong_call(x):
    return np.sum(x)


def wrong_function(x):
    return sum(x)


def wrong_object(n):
    return EDGES(n)


def wrong_keyword(x):
    return has(x, value=3)


def wrong_min(n):
    return min(n)


def wrong_returns(n):
    if n > 0:
        return 1
    return


def wrong_end(n):
    if n > 0:
        return 1


def wrong_result(n):
    if n > 0:
        return 1
    return 1.5


def wrong_and(n):
    return n and 3


def wrong_power(n):
    return n**2


def wrong_float_division(n):
    return n // 0.5


def wrong_is(n):
    return n is LIMIT


def wrong_nothing(x):
    return sort(x) + 1


def wrong_with(x):
    with x:
        pass


def wrong_lost(n):
    n + 1


def wrong_default(n=1):
    return n


def wrong_global(n):
    global LIMIT
    LIMIT = n


def wrong_big():
    return 1 << 80


X, N = (np.arange(4),), (3,)
WRONG = [
    (wrong_names, (), 1, "there is no nothing_like_it"),
    (wrong_constant, (), 1, "UNKNOWN is no number of 64 bits, but 'text'"),
    (wrong_read, (), 1, "y is read before"),
    (wrong_promotion, N, 3, "total is an int by its first assignment, and here it gets a float; write int"),
    (wrong_bool, N, 2, "flag is a bool by its first assignment, and here it gets an int"),
    (wrong_list, (), 1, r"List isn't in the subset: \[1, 2\]"),
    (wrong_comprehension, X, 1, "ListComp isn't in the subset"),
    (wrong_tuple, N, 1, "Tuple isn't in the subset"),
    (wrong_iteration, X, 1, r"`for` goes over range\(...\), not over x"),
    (wrong_step, N, 1, "the step of a range is a constant other than 0, not n"),
    (wrong_else, N, 4, "loops have no `else`"),
    (wrong_slice, X, 1, "Slice isn't in the subset: 1:"),
    (wrong_array_value, X, 1, r"x is an array; take an element or len\(x\)"),
    (wrong_array_assignment, X, 1, "x is an array; assign to its elements"),
    (wrong_index, X, 1, r"an index is an int, not a float: x\[1.0\]"),
    (wrong_float_store, X, 1, "an element of x is an int, and here it gets a float"),
    (wrong_attribute, X, 1, "Attribute isn't in the subset: x.size"),
    (wrong_call, X, 1, "only typed functions, len of an array.* not np.sum"),
    (wrong_function, X, 1, r"only typed functions.*: sum\(x\)"),
    (wrong_object, N, 1, r"only typed functions.*: EDGES\(n\)"),
    (wrong_keyword, X, 1, "arguments are positional here"),
    (wrong_min, N, 1, r".*of numbers can be called: min\(n\)"),
    (wrong_returns, N, 3, "some `return` gives a number, another gives none"),
    (wrong_end, N, 0, "it returns an int, but it can end without `return`"),
    (wrong_result, N, 3, "the first `return` gives an int, and here it gets a float"),
    (wrong_and, N, 1, "and/or are of bools, n is an int; write n != 0"),
    (wrong_power, N, 1, r"Pow of an int and an int isn't in the subset: n \*\* 2"),
    (wrong_float_division, N, 1, "FloorDiv of an int and a float"),
    (wrong_is, N, 1, "Is isn't in the subset"),
    (wrong_nothing, X, 1, r"sort\(x\) returns nothing"),
    (wrong_with, X, 1, "With isn't in the subset: with x:; a typed function has assignments"),
    (wrong_lost, N, 1, r"the value of n \+ 1 isn't used"),
    (wrong_default, N, 0, "parameters are plain names"),
    (wrong_global, N, 1, "Global isn't in the subset"),
    (wrong_big, (), 1, "LShift of an int and an int"),
    (has.function, X, 1, r"it takes 2 arguments \(x, value\), not 1"),
]


@pytest.mark.parametrize(("function", "args", "line", "message"), WRONG, ids=[w[0].__name__ for w in WRONG])
def test_refused_with_its_line(function, args, line, message):
    place = rf"typed function {function.__name__} \(test_typed_loops.py:{function.__code__.co_firstlineno + line}\): "
    with pytest.raises(ArgumentError, match=place + message):
        typed(function)(*args)


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
        ([1, 2], "argument x is list; it takes an int, a float or an array of bool, uint8, int32, int64"),
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


def test_an_int_too_large():
    with pytest.raises(ArgumentError, match=f"until: argument x is int; it takes an int of 64 bits, not {2**63}"):
        until(2**63)


def test_arrays_that_are_only_read_may_be_read_only():
    x = np.arange(5)
    x.flags.writeable = False
    assert has(x, 3)


# Compilation


def test_names_of_where_it_was_defined():
    offset = 5

    @typed
    def shifted(n):
        return n + offset + LIMIT

    assert shifted(1) == shifted.python(1) == 13


def test_the_function_keeps_its_name_and_text():
    assert sort.__name__ == "sort" and sort.__doc__.startswith("By insertion")
    assert "define" in sort.ir(np.zeros(3)) and "double" not in sort.ir(np.zeros(3, np.int32))


def test_compiled_once_per_types_by_whichever_thread(monkeypatch):
    made, compile_library = [], llvm.compile_library
    monkeypatch.setattr(llvm, "compile_library", lambda *args, **kw: made.append(1) or compile_library(*args, **kw))
    fresh = typed(search.function)
    assert not made
    barrier, answers = threading.Barrier(8), []

    def run():
        barrier.wait()
        for dtype in (np.int64, np.int32):
            answers.append(fresh(np.arange(100, dtype=dtype), 42))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [42] * 16 and len(made) == 2


@typed
def wander(n):
    x = 1
    for _ in range(n):
        x = (x * 1103515245 + 12345) % 2147483647
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
