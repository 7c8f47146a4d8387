"""Every error that wonderland raises on purpose: its class, and what its message says came, is expected, is to be done.

The sections are those of docs/errors.md, which shows each with the code to write instead.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.errors import ArgumentError, LeakedTracerError, LostDerivativeError, NoValueError, TracingError

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"
HERE = r"\(test_errors\.py:\d+\)"
V = np.array([1.0, 2.0, 3.0])
M = np.arange(6.0).reshape(2, 3)


def table(*rows):
    """Cases of a test: name, call, class, and what the message and its notes say, each."""
    return pytest.mark.parametrize(("call", "kind", "says"), [pytest.param(*r[1:3], r[3:], id=r[0]) for r in rows])


def check(call, kind, says):
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    for pattern in says:
        assert re.search(pattern, text), f"no {pattern!r} in: {text}"
    return caught.value


# No value where one is needed ----------------------------------------------------------------------------------------


def size(x):
    return x if x > 0 else -x


def count_up(n):
    total = 0.0
    for i in range(n):
        total = total + i
    return total


WAYS = r"wl\.cond, wl\.while_loop or np\.where"


@table(
    ("if in jit", lambda: wl.jit(size)(1.0), NoValueError, HERE, "a decision", "the jitted function size", WAYS),
    ("if in vmap", lambda: wl.vmap(size)(V), NoValueError, HERE, r"bool\[\]", r"batched function \(vmap\)", WAYS),
    ("if in trace", lambda: wl.trace(size)(1.0), NoValueError, HERE, "recorded function", WAYS),
    ("if in scan", lambda: wl.scan(lambda c, x: (size(c), x), 1.0, V), NoValueError, HERE, "the body of scan", WAYS),
    ("range in jit", lambda: wl.jit(count_up)(3), NoValueError, HERE, r"i64\*\[\]", "a range", "static_argnums"),
    ("[x] * n in jit", lambda: wl.jit(lambda x, n: [x] * n)(1.0, 3), NoValueError, HERE, "repetition", "static"),
    ("n * [x] in vmap", lambda: wl.vmap(lambda n: n * [n])(np.arange(2)), NoValueError, HERE, "repetition"),
    ("float in jit", lambda: wl.jit(float)(3.0), NoValueError, r"float\(\)", "keep it an array"),
    ("asarray in jit", lambda: wl.jit(lambda x: np.asarray(x))(V), NoValueError, "np.asarray", HERE, "wl.lift"),
    ("mask in jit", lambda: wl.jit(lambda x: x[x > 1])(V), NoValueError, "mask", r"np\.where\(mask", HERE),
    ("nonzero in jit", lambda: wl.jit(np.nonzero)(V), NoValueError, "np.nonzero", "shape depends on values"),
    ("unique in vmap", lambda: wl.vmap(np.unique)(M), NoValueError, "np.unique", "shape depends on values"),
    ("table[i] in jit", lambda: wl.jit(lambda i: V[i])(1), NoValueError, r"wonderland\.numpy\.take", HERE),
)  # fmt: skip
def test_no_value(call, kind, says):
    check(call, kind, says)


def test_with_a_value_the_same_code_works():
    assert wl.grad(size)(-2.0) == -1.0
    np.testing.assert_array_equal(wl.grad(lambda x: np.sum(x[x > 1] ** 2))(V), [0, 4, 6])
    assert wl.jit(count_up, static_argnums=0)(4) == 6
    assert wl.jit(lambda x, n: [x] * n, static_argnums=1)(1.0, 2) == [1.0, 1.0]
    np.testing.assert_array_equal(wl.jit(lambda x: [1, 2] * x)(np.array(3.0)), [3, 6])  # NumPy's way with arrays


def test_the_truth_of_an_array_is_numpys_error():
    check(lambda: wl.grad(lambda x: np.sum(x) if x > 0 else 0.0)(V), ValueError, ["truth value of an array"])


# A derivative would be lost ------------------------------------------------------------------------------------------


def fill(x):
    out = np.zeros(3)
    for i in range(3):
        out[i] = x[i] ** 2
    return np.sum(out)


def accumulate(x):
    total = np.zeros(3)
    total += x
    return np.sum(total)


@table(
    ("float", lambda: wl.grad(lambda x: float(x) ** 2)(1.0), LostDerivativeError, r"float\(\)", HERE, "stop_gradient"),
    ("complex", lambda: wl.grad(lambda z: abs(complex(z)))(1j), LostDerivativeError, r"complex\(\)", HERE),
    ("item", lambda: wl.grad(lambda x: x.item())(1.0), LostDerivativeError, r"\.item\(\)", HERE, "wl.lift"),
    ("tolist", lambda: wl.grad(lambda x: sum(x.tolist()))(V), LostDerivativeError, r"\.tolist\(\)", HERE),
    ("asarray", lambda: wl.grad(lambda x: np.sum(np.asarray(x)))(V), LostDerivativeError, "np.asarray", HERE),
    ("array of a list", lambda: wl.grad(lambda x: np.sum(np.array([x, x])))(1.0), LostDerivativeError, HERE, "wl.lift"),
    ("augmented", lambda: wl.grad(accumulate)(V), LostDerivativeError, HERE, r"a = a \+ b", r"shape \(3,\)", "wl.lift"),
    ("out=", lambda: wl.grad(lambda x: np.sum(np.add(x, 1, out=np.zeros(3))))(V), LostDerivativeError,
     r"np\.add.*out="),
)  # fmt: skip
def test_lost_derivative(call, kind, says):
    check(call, kind, says)


def test_writing_into_a_plain_array_says_why():
    check(lambda: wl.grad(fill)(V), LostDerivativeError, [HERE, "into a part of a plain array", "wl.lift"])
    np.testing.assert_array_equal(wl.grad(wl.lift(fill))(V), 2 * V)


def write_element(out, x):
    out[0] = x


def write_all(out, x):
    out[:] = x


def write_part(out, x):
    out[1:3] = x


def write_chosen(out, x):
    out[[0, 2]] = x


@pytest.mark.parametrize("write", [write_element, write_all, write_part, write_chosen])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_what_a_write_into_a_plain_array_says(write, dtype, shape):
    """NumPy converts what it writes, and hides an error of that behind its own for an element of real numbers."""

    def f(x):
        out = np.zeros(3, dtype)
        write(out, x)
        return np.sum(abs(out)) * 1.0

    says = [HERE, "writing a traced value into a part of a plain array", "wl.lift", "wonderland.numpy"]
    x = np.ones(shape)
    looped = lambda x: wl.fori_loop(0, 2, lambda i, y: f(y), x)
    calls = [lambda: wl.jit(f)(x), lambda: wl.vmap(f)(x[None]), lambda: wl.trace(f)(x), lambda: looped(x)]
    for call in calls:
        assert check(call, NoValueError, says).__cause__ is None
    if dtype is np.int64 and write is write_element:
        assert wl.grad(f)(1.0) == 0.0  # an integer has no derivative to lose
    else:
        assert check(lambda: wl.grad(f)(x), LostDerivativeError, says).__cause__ is None
    assert check(lambda: wl.grad(lambda x: x + np.sum(np.array([x, x], dtype)))(x), LostDerivativeError, [HERE])


def test_an_error_of_the_users_keeps_its_cause():
    def f(x):
        try:
            return float(x)
        except LostDerivativeError as cause:
            raise ValueError("setting the scene") from cause

    assert isinstance(check(lambda: wl.grad(f)(1.0), ValueError, ["the scene"]).__cause__, LostDerivativeError)


def test_nothing_is_lost_of_integers_and_constants():
    assert wl.grad(lambda x: x * int(x))(2.5) == 2.0
    assert wl.grad(lambda x: x * float(wl.stop_gradient(x)))(2.5) == 2.5


# Leaked tracers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", [wl.grad, wl.jit, lambda f: lambda x: wl.vmap(f)(np.array([x])), wl.trace])
@pytest.mark.parametrize(
    "use", [lambda x: x + 1, np.sin, lambda x: wl.grad(lambda y: x * y)(1.0), lambda x: np.stack([x])]
)
def test_leaked_tracer(transform, use):
    kept = []

    def f(x):
        kept.append(x)
        return x * x

    transform(f)(2.0)
    check(lambda: use(kept[0]), LeakedTracerError, [HERE, "has ended", "return it from the function"])


# Arguments of transformations ----------------------------------------------------------------------------------------


@table(
    ("array", lambda: wl.grad(lambda x: 2 * x)(V), ArgumentError, r"\(3,\)", "np.sum", "wl.jacobian or wl.vjp"),
    ("tuple", lambda: wl.grad(lambda x: (x, x))(1.0), ArgumentError, r"\(array, array\)", "has_aux=True"),
    ("no pair for has_aux", lambda: wl.grad(np.sin, has_aux=True)(1.0), ArgumentError, r"pair \(out, aux\)"),
    ("complex", lambda: wl.grad(lambda z: z * z)(1j), ArgumentError,
     "complex128", "real or imaginary part", r"wl\.vjp"),
    ("bool", lambda: wl.grad(lambda x: x > 0)(1.0), ArgumentError, "real result", "bool"),
    ("integer", lambda: wl.grad(np.argmax)(V), ArgumentError, "real result", "int64"),
)  # fmt: skip
def test_results_that_have_no_gradient(call, kind, says):
    check(call, kind, says)


@table(
    ("grad of an int", lambda: wl.grad(lambda x: x * x)(3), ArgumentError, "argument 0", "int64", r"2\.0 instead of 2"),
    ("grad of ints", lambda: wl.grad(np.sum)(np.arange(3)), ArgumentError, "int64", r"\.astype\(float\)"),
    ("grad of bools", lambda: wl.grad(np.sum)(V > 1), ArgumentError, "bool"),
    ("value_and_grad", lambda: wl.value_and_grad(lambda x, k: x * k, 1)(1.0, 2), ArgumentError, "argument 1"),
    ("jacobian", lambda: wl.jacobian(np.square)(np.arange(3)), ArgumentError, r"2\.0 instead of 2"),
    ("jvp", lambda: wl.jvp(np.square, (3,), (1.0,)), ArgumentError, "leaf 0", "int64", "no derivative"),
    ("argnums", lambda: wl.grad(np.sin, 1)(1.0), ArgumentError, "argnums=1", "1 positional arguments"),
    ("by keyword", lambda: wl.grad(lambda x: x)(x=1.0), ArgumentError, "0 positional arguments", "by position"),
    ("argnums by name", lambda: wl.grad(lambda x: x, "x")(1.0), ArgumentError, "argnums='x'", "positions from 0"),
    ("mode", lambda: wl.jacobian(np.sin, mode="fwd"), ArgumentError, '"forward", "reverse"', "'fwd'"),
)  # fmt: skip
def test_arguments_to_differentiate(call, kind, says):
    check(call, kind, says)


# What each transformation says when it gets something that isn't a function: at once, not when the result is called.
NO_FUNCTION = {
    name: getattr(wl, name)
    for name in (
        "grad value_and_grad jacobian jacfwd jacrev hessian laplacian vmap jit trace checkpoint lift custom_jvp "
        "custom_vjp finite_difference linearize vjp explain memory_profile"
    ).split()
} | {
    "jvp": lambda f: wl.jvp(f, (V,), (V,)),
    "hvp": lambda f: wl.hvp(f, (V,), (V,)),
    "vhp": lambda f: wl.vhp(f, (V,), (V,)),
    "hvp_at": lambda f: wl.hvp_at(f, V),
    "second_directional": lambda f: wl.second_directional(f, V, V, V),
    "hessian_diagonal": lambda f: wl.hessian_diagonal(f, V),
    "gnvp": lambda f: wl.gnvp(f, np.sum, V, V),
    "gauss_newton": lambda f: wl.gauss_newton(np.sin, f),
    "jet": lambda f: wl.jet(f, (1.0,), ([1.0],)),
    "nth_derivative": lambda f: wl.nth_derivative(f, 2),
    "finite_difference_jvp": lambda f: wl.finite_difference_jvp(f, (V,), (V,)),
    "linear_transpose": lambda f: wl.linear_transpose(f, V),
    "closure_convert": lambda f: wl.closure_convert(f, V),
    "sparse.jacobian": lambda f: wl.sparse.jacobian(f),
    "sparse.hessian": lambda f: wl.sparse.hessian(f),
    "jacobian_pattern": lambda f: wl.sparse.jacobian_pattern(f, V),
    "cond": lambda f: wl.cond(True, np.sin, f, V),
    "scan": lambda f: wl.scan(f, V, length=2),
    "while_loop": lambda f: wl.while_loop(lambda x: True, f, V),
    "while_loop's condition": lambda f: wl.while_loop(f, np.sin, V),
    "fori_loop": lambda f: wl.fori_loop(0, 2, f, V),
    "associative_scan": lambda f: wl.associative_scan(f, V),
    "double.defjvp": lambda f: wl.custom_jvp(double).defjvp(f),
    "double.defvjp": lambda f: wl.custom_vjp(double).defvjp(np.sin, f),
}


@pytest.mark.parametrize("name", NO_FUNCTION)
def test_what_is_no_function_is_refused_at_once(name):
    for given, kind in ((3.0, "float"), (np.sin(V), "ndarray")):
        says = [rf"{name}(\(2\))? takes a function, not {kind}", "pass the function itself"]
        check(lambda given=given: NO_FUNCTION[name](given), ArgumentError, says)


def test_integer_leaves_beside_floats_get_zeros():
    gradient = wl.grad(lambda p: p["w"] * p["n"])({"w": 2.0, "n": 3})
    assert gradient == {"w": 3.0, "n": 0}


@table(
    ("string", lambda: wl.grad(lambda p: p["w"])({"w": 1.0, "name": "a"}), TypeError, "got str: 'a'", "tuples, lists"),
    ("object", lambda: wl.jit(lambda p: 1.0)(object()), TypeError, "got object", "wl.register_mutable"),
    ("set", lambda: wl.grad(lambda p: 1.0)({1.0}), TypeError, "got set"),
    ("array of objects", lambda: wl.grad(np.sum)(np.array([1, None])), TypeError, "dtype object", r"\.astype\(float\)"),
    ("array of strings", lambda: wl.vmap(lambda x: x)(np.array(["a"])), TypeError, "dtype <U1"),
    ("matrix", lambda: wl.grad(np.sum)(np.ones((1, 1)).view(np.matrix)), TypeError, "own arithmetic", r"np\.asarray"),
    ("masked array", lambda: wl.grad(np.sum)(np.ma.array([1.0])), TypeError, "MaskedArray", r"np\.asarray\(x\)"),
    ("returned string", lambda: wl.grad(lambda x: "a")(1.0), ArgumentError, "returned str 'a'", "returns arrays"),
    ("returned object", lambda: wl.jit(lambda x: [x, object()])(1.0), ArgumentError,
     "returned object", r"\[array, array\]"),
    ("nothing returned", lambda: wl.grad(lambda x: None)(1.0), ArgumentError, "returned None", "scalar result"),
    ("carry", lambda: wl.scan(lambda c, x: (c, x), "a", V), ArgumentError, "scan: leaf 0", "got str"),
)  # fmt: skip
def test_leaves_that_are_no_arrays(call, kind, says):
    check(call, kind, says)


def test_none_is_an_empty_tree():
    assert wl.grad(lambda p: p["w"] * 2)({"w": 1.0, "b": None}) == {"w": 2.0, "b": None}
    assert wl.jit(lambda x: None)(1.0) is None


@table(
    ("not tuples", lambda: wl.jvp(np.sin, 1.0, 1.0), ArgumentError, r"jvp\(f, \(x,\), \(t,\)\)"),
    ("number", lambda: wl.jvp(np.sin, (1.0,), (1.0, 1.0)), ArgumentError, "1 primals and 2 tangents"),
    ("shape", lambda: wl.jvp(np.sin, (V,), (np.ones(2),)), ArgumentError, r"shape \(2,\), expected \(3,\)"),
    ("structure", lambda: wl.jvp(lambda p: p["a"], ({"a": 1.0},), ([1.0],)), ArgumentError, "argument 0", r"\[array\]"),
    ("complex", lambda: wl.jvp(np.sin, (V,), (V * 1j,)), ArgumentError, "complex128", "float64"),
    ("of an integer", lambda: wl.jvp(np.multiply, (2.0, 3), (1.0, 1.0)), ArgumentError,
     "leaf 1", "None as its tangent"),
    ("linearize, number", lambda: wl.linearize(np.sin, 1.0)[1](1.0, 1.0), ArgumentError, "expected 1 tangents, got 2"),
    ("linearize, shape", lambda: wl.linearize(np.sin, V)[1](1.0), ArgumentError, r"shape \(\), expected \(3,\)"),
    ("vjp, structure", lambda: wl.vjp(lambda x: (x, x), 1.0)[1](1.0), ArgumentError,
     r"array, the output \(array, array\)"),
    ("vjp, shape", lambda: wl.vjp(np.sin, V)[1](1.0), ArgumentError, r"shape \(\), expected \(3,\)"),
    ("vjp, complex", lambda: wl.vjp(np.sin, V)[1](V * 1j), ArgumentError, "complex128", "float64"),
)  # fmt: skip
def test_mismatched_tangents(call, kind, says):
    check(call, kind, says)


@table(
    ("no axis", lambda: wl.vmap(np.sin)(1.0), ArgumentError,
     "axis 0 of argument leaf 0", r"shape \(\)", "in_axes=None"),
    ("axis too large", lambda: wl.vmap(np.sin, in_axes=1)(V), ArgumentError, r"axis 1.*shape \(3,\)"),
    ("sizes", lambda: wl.vmap(np.add)(V, np.ones(4)), ArgumentError, "different batch sizes: 3 .*, 4 "),
    ("nothing batched", lambda: wl.vmap(np.sin, in_axes=None)(V), ArgumentError, "every in_axes entry is None"),
    ("number of axes", lambda: wl.vmap(np.add, in_axes=(0,))(V, V), ArgumentError, "1 entries", "2 arguments"),
    ("in_axes tree", lambda: wl.vmap(lambda p: p["a"], ({"b": 0},))({"a": V}), ValueError, "'b': 0", "'a': array"),
    ("out_axes=None", lambda: wl.vmap(np.sin, out_axes=None)(V), ArgumentError, "depends on the batch"),
)  # fmt: skip
def test_vmap(call, kind, says):
    check(call, kind, says)


# Shapes and axes, in NumPy's words -----------------------------------------------------------------------------------

NOTE = r"in {}\(.*\) " + HERE


@table(
    ("broadcast", lambda: wl.grad(lambda x: np.sum(x + np.ones(4)))(V), ValueError,
     r"could not be broadcast together with shapes \(3,\) \(4,\)", NOTE.format("__add__"), r"f64\[3\], float64\[4\]"),
    ("ufunc", lambda: wl.grad(lambda x: np.sum(np.hypot(x, M.T)))(M), ValueError,
     "broadcast", NOTE.format(r"np\.hypot")),
    ("axis", lambda: wl.grad(lambda x: np.sum(x, axis=2))(V), np.exceptions.AxisError,
     "axis 2 is out of bounds for array of dimension 1", NOTE.format(r"np\.sum")),
    ("axis of a method", lambda: wl.grad(lambda x: x.mean(axis=1))(V), np.exceptions.AxisError, NOTE.format("mean")),
    ("reshape", lambda: wl.grad(lambda x: np.sum(x.reshape(2, 2)))(V), ValueError,
     r"cannot reshape array of size 3 into shape \(2,2\)", NOTE.format("reshape")),
    ("matmul", lambda: wl.grad(lambda x: np.sum(x @ np.ones((4, 2))))(V), ValueError, r"\(3,\) and \(4, 2\)",
     NOTE.format("__matmul__")),
    ("concatenate", lambda: wl.grad(lambda x: np.sum(np.concatenate([x, M])))(V), ValueError,
     "must have same number of dimensions", NOTE.format(r"np\.concatenate")),
    ("stack", lambda: wl.grad(lambda x: np.sum(np.stack([x, x[:2]])))(V), ValueError,
     "same shape", r"\[f64\[3\], f64\[2\]\]"),
    ("index", lambda: wl.grad(lambda x: x[5])(V), IndexError, "index 5 is out of bounds for axis 0 with size 3",
     NOTE.format("reading a part")),
    ("indices", lambda: wl.grad(lambda x: x[0, 0])(V), IndexError,
     "too many indices for array: array is 1-dimensional"),
    ("kind of index", lambda: wl.grad(lambda x: x[1.0])(V), IndexError, "only integers, slices"),
    ("einsum", lambda: wl.grad(lambda x: np.einsum("ij,j->", x, x))(V), ValueError, "'ij,j->'", r"shape \(3,\)"),
    ("empty maximum", lambda: wl.grad(np.max)(np.ones(0)), ValueError,
     "zero-size array to reduction operation maximum"),
    ("not definite", lambda: wl.grad(lambda a: np.sum(np.linalg.cholesky(a)))(-np.eye(2)), np.linalg.LinAlgError,
     "not positive definite"),
    ("not square", lambda: wl.grad(lambda a: np.linalg.det(a))(M), np.linalg.LinAlgError, "square", HERE),
    ("in jit", lambda: wl.jit(lambda x: x + np.ones(4))(V), ValueError, r"\(3,\)", r"\(4,\)", NOTE.format("__add__")),
    ("in vmap", lambda: wl.vmap(lambda x: x + np.ones(4))(M), ValueError, r"f64\[3\], float64\[4\]", HERE),
    ("in a loop", lambda: wl.scan(lambda c, x: (c, x[0]), 0.0, V), IndexError, "too many indices", HERE),
)  # fmt: skip
def test_shapes_and_axes(call, kind, says):
    check(call, kind, says)


def test_an_index_out_of_range_in_compiled_code():
    check(lambda: wl.jit(lambda x, i: x[i])(V, 7), IndexError, ["index 7 is out of bounds for axis 0 with size 3"])


def write(f):
    def g(x):
        f(x)
        return np.sum(x)

    return g


def assigned(index, value):
    def f(x):
        x[index] = value

    return write(f)


@table(
    ("shape", lambda: wl.grad(assigned(slice(0, 2), np.ones(3)))(V), ValueError,
     r"from shape \(3,\) into shape \(2,\)", NOTE.format("writing a part")),
    ("complex", lambda: wl.grad(assigned(0, 1j))(V), TypeError, "complex128", "float64"),
    ("augmented shape", lambda: wl.grad(write(lambda x: x.__iadd__(M)))(V), ValueError, "non-broadcastable output"),
    ("augmented dtype", lambda: wl.jit(lambda k: k.__itruediv__(2))(np.arange(3)), TypeError,
     "float64", "int64", "in place"),
)  # fmt: skip
def test_writing(call, kind, says):
    check(call, kind, says)


# What can't be written to --------------------------------------------------------------------------------------------


def scale_in_place(x, scale):
    scale *= 2
    return np.sum(x * scale)


def scale_first(x, scale):
    scale[0] = 2
    return np.sum(x * scale)


@pytest.mark.parametrize("f", [scale_in_place, scale_first])
def test_arguments_are_read_only(f):
    scale = np.ones(3)
    check(lambda: wl.grad(f)(V, scale), ValueError, ["read-only"])
    np.testing.assert_array_equal(scale, 1)


@wl.register_mutable
class Counter:
    def __init__(self):
        self.count, self.calls = np.zeros(3), 0


def changed(change):
    def f(counter, x=1.0):
        change(counter, x)
        return np.sum(counter.count) * x

    return f


def count_call(counter, x):
    counter.calls += 1


def add(counter, x):
    counter.count = counter.count + x


def grow(counter, x):
    counter.count = np.ones(4) * x


def turn(counter, x):
    counter.count = counter.count * 1j


def in_loop(counter, x):
    def body(i, s):
        add(counter, 1.0)
        return s

    return wl.fori_loop(0, 3, body, x)


def read_only_counter():
    counter = Counter()
    counter.count.flags.writeable = False
    return counter


def twice():
    counter = Counter()
    return wl.jit(lambda a, b: changed(add)(a))(counter, counter)


@table(
    ("attribute", lambda: wl.jit(changed(count_call))(Counter()), wl.MutationError,
     r"Counter\.calls", r"np\.array\(0\)"),
    ("shape", lambda: wl.jit(changed(grow))(Counter()), wl.MutationError, r"f64\[3\] and became f64\[4\]", "must stay"),
    ("dtype", lambda: wl.jit(changed(turn))(Counter()), wl.MutationError, r"c128\[3\]", "Convert"),
    ("read-only", lambda: wl.jit(changed(add))(read_only_counter()), wl.MutationError, "writable array: np.array"),
    ("twice", twice, wl.MutationError, "two places", "Pass it once"),
    ("batch", lambda: wl.vmap(changed(add), (None, 0))(Counter(), V), wl.MutationError, "along the batch", "Return it"),
    ("loop body", lambda: wl.jit(in_loop)(Counter(), 1.0), wl.MutationError,
     "the body of fori_loop", "Carry the arrays"),
)  # fmt: skip
def test_mutation(call, kind, says):
    check(call, kind, says)


# Functions without a rule --------------------------------------------------------------------------------------------


@table(
    ("function", lambda: wl.grad(lambda x: np.sum(np.packbits(x)))(V), TypeError, r"np\.packbits", HERE, "custom_jvp"),
    ("in jit", lambda: wl.jit(lambda x: np.roots(x))(V), TypeError, r"np\.roots", HERE, r"dir\(wonderland\.numpy\)"),
    ("method", lambda: wl.grad(lambda x: x.tobytes())(V), AttributeError, r"\.tobytes", HERE, "reshape"),
    ("no attribute", lambda: wl.grad(lambda x: x.nonsense)(V), AttributeError, "'nonsense'"),
    ("where=", lambda: wl.grad(lambda x: np.sum(np.sin(x, where=x > 0)))(V), TypeError, "where=", r"np\.where\(mask"),
    ("hash", lambda: wl.grad(lambda x: {x: 1})(1.0), TypeError, "not hashable"),
)  # fmt: skip
def test_not_supported(call, kind, says):
    check(call, kind, says)


# Rules of one's own --------------------------------------------------------------------------------------------------


def double(x):
    return 2 * x


def with_jvp(rule):
    f = wl.custom_jvp(double)
    f.defjvp(rule)
    return lambda: wl.jvp(f, (V,), (V,))


def with_vjp(forward, backward):
    f = wl.custom_vjp(double)
    f.defvjp(forward, backward)
    return lambda: wl.grad(lambda x: np.sum(f(x)))(V)


def fine(x):
    return 2 * x, None


BACK = "the backward rule of double"


@table(
    ("no rule", lambda: wl.custom_jvp(double)(V), ArgumentError, "double has no rule yet", r"\.defjvp", r"\.defvjp"),
    ("by keyword", lambda: wl.custom_jvp(double)(x=V), ArgumentError, "pass x by position"),
    ("jvp: no pair", with_jvp(lambda p, t: 2 * t[0]), ArgumentError, "double", r"\(out, tangent_out\)", "a ndarray"),
    ("jvp: shape", with_jvp(lambda p, t: (2 * p[0], np.sum(t[0]))), ArgumentError, r"shape \(\), expected \(3,\)"),
    ("jvp: dtype", with_jvp(lambda p, t: (2 * p[0], t[0] * 1j)), ArgumentError, "complex128, expected float64"),
    ("jvp: structure", with_jvp(lambda p, t: (2 * p[0], (t[0],))), ArgumentError,
     r"structure \(array,\), its output array"),
    ("jvp: None", with_jvp(lambda p, t: (2 * p[0], None)), ArgumentError, "structure None", "np.zeros_like"),
    ("jvp: string", with_jvp(lambda p, t: (2 * p[0], "t")), ArgumentError, "jvp rule of double", "got str"),
    ("forward: no pair", with_vjp(double, lambda r, ct: (ct,)), ArgumentError, r"\(out, residuals\)", "a ndarray"),
    ("backward: no tuple", with_vjp(fine, lambda r, ct: ct), ArgumentError,
     BACK, r"one entry per argument \(1;", "a ndarray"),
    ("backward: number", with_vjp(fine, lambda r, ct: (ct, ct)), ArgumentError, BACK, "not a tuple of 2"),
    ("backward: shape", with_vjp(fine, lambda r, ct: (np.sum(ct),)), ArgumentError,
     BACK, r"shape \(\), expected \(3,\)"),
    ("backward: dtype", with_vjp(fine, lambda r, ct: (ct * 1j,)), ArgumentError, BACK, "complex128, expected float64"),
    ("backward: structure", with_vjp(fine, lambda r, ct: ([ct],)), ArgumentError,
     BACK, r"\[array\], the argument array"),
    ("backward: string", with_vjp(fine, lambda r, ct: ("ct",)), ArgumentError, BACK, "got str"),
)  # fmt: skip
def test_custom_rules(call, kind, says):
    check(call, kind, says)


def test_forward_mode_of_a_custom_vjp():
    f = wl.custom_vjp(double)
    f.defvjp(fine, lambda r, ct: (2 * ct,))
    for call in (lambda: wl.jvp(f, (V,), (V,)), lambda: wl.jacobian(f, mode="forward")(V)):
        check(call, TypeError, ["double has a custom vjp only", r"\.defjvp"])


# Control flow --------------------------------------------------------------------------------------------------------


@table(
    ("cond: array", lambda: wl.cond(V > 0, np.sin, np.cos, V), ArgumentError, r"bool\[3\]", "np.where"),
    ("cond: branches", lambda: wl.cond(True, lambda x: (x, x), np.sin, 1.0), ArgumentError,
     "same structure", r"\(array, array\)"),
    ("switch", lambda: wl.switch(1.5, [np.sin], 1.0), ArgumentError, "integer scalar", "f64"),
    ("while: condition", lambda: wl.while_loop(lambda s: s, lambda s: s, 1.0), ArgumentError, "one bool", "comparison"),
    ("while: shape", lambda: wl.while_loop(lambda s: s[0] < 3, lambda s: s[:2], V), ArgumentError,
     r"f64\[3\] and leaves the body as f64\[2\]"),
    ("scan: pair", lambda: wl.scan(lambda c, x: c, 1.0, V), ArgumentError, r"pair \(carry, y\)"),
    ("scan: dtype", lambda: wl.scan(lambda c, x: (c * 0.5, x), np.int64(1), V), ArgumentError,
     "i64", "f64", r"\.astype"),
    ("scan: lengths", lambda: wl.scan(lambda c, x: (c, None), 1.0, (V, M)), ArgumentError, "2 slices", "expected 3"),
    ("scan: nothing", lambda: wl.scan(lambda c, x: (c, None), 1.0), ArgumentError, "length="),
    ("scan: scalar", lambda: wl.scan(lambda c, x: (c, None), 1.0, 3.0), ArgumentError, "leading axis"),
    ("fori_loop", lambda: wl.fori_loop(0, 2.5, lambda i, s: s, 1.0), ArgumentError, "integer scalars", "f64"),
)  # fmt: skip
def test_control_flow(call, kind, says):
    check(call, kind, says)


# The classes ---------------------------------------------------------------------------------------------------------


def test_the_classes():
    """One can catch all errors about tracing, or about arguments, and both are TypeErrors."""
    for kind in (NoValueError, LostDerivativeError, LeakedTracerError, wl.MutationError):
        assert issubclass(kind, TracingError) and issubclass(kind, TypeError)
    assert issubclass(ArgumentError, TypeError)


def test_the_page_has_every_class():
    page = PAGE.read_text(encoding="utf-8")
    classes = [name for name in wl.__all__ if name.endswith("Error")]
    assert len(classes) == 7
    for name in classes:
        assert f"`{name}`" in page, f"docs/errors.md says nothing of {name}"
