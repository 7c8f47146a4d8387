"""`wl.check`, `wl.print`, `wl.host_call`: what a function does besides computing, in every transformation."""

import threading
import traceback

import numpy as np
import pytest

import wonderland as wl
import wonderland.sparse
from wonderland.compile.lower import lower
from wonderland.compile.nodes import Leaf, Number, Region, Several
from wonderland.control.bodies import may_raise
from wonderland.core.types import ArrayType
from wonderland.testing import op_table
from wonderland.testing.op_samples import samples
from wonderland.testing.op_table import TABLE

op_table.load()

X = np.array([1.0, -2.0, 3.0])
EAGER_AND_JIT = pytest.mark.parametrize("compiled", [lambda f: f, wl.jit], ids=["eager", "jit"])


def checked(x):
    wl.check(x > 0, "x must be positive, got {}", x)
    return np.sum(x * x)


# -- check -------------------------------------------------------------------------------------------------------------

TRANSFORMED = {
    "value": (lambda f: f, 14.0),
    "grad": (wl.grad, 2 * abs(X)),
    "jvp": (lambda f: lambda x: wl.jvp(f, (x,), (np.ones(3),))[1], 12.0),
    "vjp": (lambda f: lambda x: wl.vjp(f, x)[1](1.0)[0], 2 * abs(X)),
    "hessian": (wl.hessian, 2 * np.eye(3)),
    "jacfwd": (wl.jacfwd, 2 * abs(X)),
    "checkpoint": (lambda f: wl.grad(wl.checkpoint(f)), 2 * abs(X)),
    "inner jit": (lambda f: wl.grad(wl.jit(f)), 2 * abs(X)),
    "jet": (lambda f: lambda x: wl.jet(f, (x,), ((x, 0 * x),))[1], np.array([28.0, 28.0])),
    "linear part": (lambda f: lambda x: wl.linearize(f, x)[1](x), 28.0),
    "budget": (lambda f: wl.grad(f, memory_budget=1000), 2 * abs(X)),
    "loop": (lambda f: wl.grad(lambda x: wl.fori_loop(0, 2, lambda i, c: c + f(x), 0.0)), 4 * abs(X)),
    "branch": (lambda f: wl.grad(lambda x: wl.cond(x[2] > 0, lambda: f(x), lambda: 0.0)), 2 * abs(X)),
}


@EAGER_AND_JIT
@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_check_stays(name, compiled):
    transform, expected = TRANSFORMED[name]
    f = compiled(transform(checked))
    np.testing.assert_allclose(f(abs(X)), expected)
    with pytest.raises(wl.CheckError, match=r"x must be positive, got \[ 1. -2.  3.\] \(at index 1\)"):
        f(X)
    np.testing.assert_allclose(f(abs(X)), expected)


@EAGER_AND_JIT
def test_a_check_nobody_depends_on_stays_in_derivatives(compiled):
    """The derivative of a linear function needs none of its values."""

    def f(x):
        wl.check(np.sum(x) < 10, "too large")
        return np.sum(x)

    g = compiled(wl.grad(f))
    np.testing.assert_array_equal(g(X), 1.0)
    with pytest.raises(wl.CheckError, match="too large"):
        g(10 * X)


@EAGER_AND_JIT
def test_check_under_vmap_names_the_element(compiled):
    rows = np.stack([abs(X), X])
    with pytest.raises(wl.CheckError, match=r"got \[ 1. -2.  3.\] \(at index 1\) \(in element 1 of the batch\)"):
        compiled(wl.vmap(checked))(rows)
    with pytest.raises(wl.CheckError, match=r"\(in element \(0, 1\) of the batch\)"):
        compiled(wl.vmap(wl.vmap(wl.grad(checked))))(rows[None])
    np.testing.assert_allclose(compiled(wl.vmap(checked))(abs(rows)), [14.0, 14.0])


@EAGER_AND_JIT
def test_conditions_of_all_kinds(compiled):
    assert compiled(lambda x: wl.check(x > 0, "none"))(np.zeros((0, 3))) is None
    assert compiled(lambda n: wl.check(n > 0, "n is {}", n))(3) is None
    with pytest.raises(wl.CheckError, match=r"^n is -3$"):
        compiled(lambda n: wl.check(n > 0, "n is {}", n))(-3)
    assert compiled(lambda x: wl.check(True))(X) is None
    with pytest.raises(wl.CheckError, match=r"^a check failed$"):
        compiled(lambda x: wl.check(False))(X)
    with pytest.raises(wl.CheckError, match=r"1.235 is not \{small\} \(at index \(0, 1\)\)"):
        values = np.array([[0, 9.0]], np.float32)
        compiled(lambda a: wl.check(a < 5, "{:.3f} is not {{small}}", np.float32(1.23456)))(values)


def test_what_check_refuses():
    with pytest.raises(wl.ArgumentError, match=r"a bool or an array of bools, got f64\[3\].*Compare"):
        wl.check(X, "not compared")
    with pytest.raises(wl.ArgumentError, match="message is a string, not float"):
        wl.check(True, 1.0)
    with pytest.raises(wl.ArgumentError, match="a field without a value"):
        wl.check(True, "{} and {}", X)
    with pytest.raises(wl.ArgumentError, match="the condition: expected an array"):
        wl.check("yes", "a string")


@EAGER_AND_JIT
def test_errors_come_in_order(compiled):
    def before(x, i):
        wl.check(i < 3, "i is {}", i)
        return x[i]

    def after(x, i):
        y = x[i]
        wl.check(i < 3, "too late")
        return y

    with pytest.raises(wl.CheckError, match="i is 7"):
        compiled(before)(X, 7)
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        compiled(after)(X, 7)
    assert compiled(before)(X, 1) == -2.0 and compiled(after)(X, 1) == -2.0


def test_a_failed_check_leaves_arguments_alone():
    @wl.register_mutable
    class Counter:
        def __init__(self):
            self.n = np.zeros(3)

    def step(counter, x):
        counter.n = counter.n + x
        wl.check(counter.n < 4, "full")

    counter = Counter()
    f = wl.jit(step)
    f(counter, X)
    with pytest.raises(wl.CheckError, match="full"):
        f(counter, X)
    np.testing.assert_array_equal(counter.n, X)


# -- print -------------------------------------------------------------------------------------------------------------


def printed(x):
    wl.print("x", x, {"sum": np.sum(x)}, 3)
    y = np.tanh(x) * 2
    wl.print("then")
    return np.sum(y)


TEXT = "x [ 1. -2.  3.] {'sum': np.float64(2.0)} 3\nthen\n"
PRINTING = {
    "value": lambda f: f,
    "grad": wl.grad,
    "hessian": wl.hessian,
    "jacfwd": wl.jacfwd,
    "jvp": lambda f: lambda x: wl.jvp(f, (x,), (x,)),
    "jet": lambda f: lambda x: wl.jet(f, (x,), ((x, x),)),
    "checkpoint": lambda f: wl.grad(wl.checkpoint(f)),
    "inner jit": lambda f: wl.grad(wl.jit(f)),
    "budget": lambda f: wl.grad(f, memory_budget=1000),
    "nothing else": lambda f: lambda x: (f(x), None)[1],
    "branch": lambda f: wl.grad(lambda x: wl.cond(x[0] > 0, lambda: f(x), lambda: 0.0)),
}


@EAGER_AND_JIT
@pytest.mark.parametrize("name", PRINTING)
def test_print_once_in_order(name, compiled, capsys):
    f = compiled(PRINTING[name](printed))
    for _ in range(2):
        f(X)
        assert capsys.readouterr().out == TEXT


@EAGER_AND_JIT
def test_print_under_vmap_shows_the_batch(compiled, capsys):
    compiled(wl.vmap(wl.grad(lambda x: (wl.print(x, 1.0), np.sin(x))[1])))(X)
    assert capsys.readouterr().out == "[ 1. -2.  3.] 1.0\n"


@EAGER_AND_JIT
def test_print_options_and_other_things(compiled, capsys):
    compiled(lambda x: wl.print("a", x[0], None, "b", sep="-", end="!\n"))(X)
    compiled(lambda x: wl.print(np.array(["text"]), (x[0], [x[1]])))(X)
    out = capsys.readouterr().out
    assert out == "a-1.0-None-b!\n['text'] (np.float64(1.0), [np.float64(-2.0)])\n"


def steps(x, checkpoint=None):
    def body(c, t):
        wl.print("t", t, "x", x[0])
        return c * np.sin(c), c

    return wl.scan(body, x[0], np.arange(3.0), checkpoint=checkpoint)[0]


def until(x):
    def body(s):
        wl.print("t", s[0], "x", x[0])
        return s[0] + 1.0, s[1] * np.sin(s[1])

    return wl.while_loop(lambda s: s[0] < 3, body, (0.0, x[0]))[1]


LOOPS = {
    "scan": steps,
    "sqrt": lambda x: steps(x, "sqrt"),
    "slots": lambda x: steps(x, wl.binomial(1)),
    "while": until,
    "while in a branch": lambda x: wl.cond(x[0] > 0, lambda: until(x), lambda: 0.0),
    "loop in a loop": lambda x: wl.fori_loop(0, 1, lambda i, c: c + until(x), 0.0),
}


@EAGER_AND_JIT
@pytest.mark.parametrize("name", LOOPS)
def test_loops_print_each_step_once(name, compiled, capsys):
    """Also where reverse mode computes steps again."""
    text = "t 0.0 x 1.0\nt 1.0 x 1.0\nt 2.0 x 1.0\n"
    value = compiled(LOOPS[name])(X)
    assert capsys.readouterr().out == text
    gradient = compiled(wl.grad(LOOPS[name]))(X)
    assert capsys.readouterr().out == text
    h = lambda c: c * np.sin(c)
    np.testing.assert_allclose(value, h(h(h(1.0))))
    fd = (h(h(h(1 + 1e-6))) - h(h(h(1 - 1e-6)))) / 2e-6
    np.testing.assert_allclose(gradient, [fd, 0, 0], rtol=1e-6)


@EAGER_AND_JIT
def test_effects_on_plain_values_belong_to_what_is_recorded(compiled, capsys):
    """Loops, branches and jitted functions without a traced operand, too."""
    inner = wl.jit(lambda a: wl.print("inner", a))

    def f(x):
        wl.fori_loop(0, 2, lambda i, c: (wl.print("i", i), inner(2.0), c)[2], 0.0)
        wl.cond(True, lambda: wl.print("yes"), lambda: wl.print("no"))
        wl.checkpoint(lambda: wl.print("again"))()
        return np.sum(x)

    g = compiled(f)
    for _ in range(2):  # the second time the native entry of `inner` is there
        g(X)
        assert capsys.readouterr().out == "i 0\ninner 2.0\ni 1\ninner 2.0\nyes\nagain\n"


def test_print_of_a_tangent_in_a_rule(capsys):
    f = wl.custom_jvp(lambda x: x * x)
    f.defjvp(lambda p, t: (f(*p), (wl.print("rule", p[0], t[0]), 2 * p[0] * t[0])[1]))
    assert wl.jvp(f, (3.0,), (1.0,)) == (9.0, 6.0)
    assert capsys.readouterr().out == "rule 3.0 1.0\n"
    assert wl.grad(f)(3.0) == wl.jit(wl.grad(f))(3.0) == 6.0  # in reverse there are no tangents to show
    assert capsys.readouterr().out == ""


@EAGER_AND_JIT
def test_branches_print_what_is_taken(compiled, capsys):
    f = lambda p, x: wl.cond(p, lambda x: (wl.print("yes", x), x * 2)[1], lambda x: (wl.print("no", x), x * 3)[1], x)
    compiled(wl.grad(f, 1))(True, 1.5)
    assert capsys.readouterr().out == "yes 1.5\n"
    out = compiled(wl.vmap(wl.grad(f, 1)))(X > 0, X)
    assert capsys.readouterr().out == "yes 1.0\nno -2.0\nyes 3.0\n"
    np.testing.assert_array_equal(out, [2, 3, 2])
    g = lambda n, x: wl.while_loop(
        lambda s: s[0] < n, lambda s: (wl.print(s[0], s[1]), (s[0] + 1, s[1] * 2))[1], (0, x)
    )
    out = compiled(wl.vmap(g))(np.array([1, 2, 0]), X)
    assert capsys.readouterr().out == "0 1.0\n0 -2.0\n1 -4.0\n"
    np.testing.assert_array_equal(out[1], [2, -8, 3])


def test_sparse_detection_runs_no_effects(capsys):
    def f(x):
        wl.check(x[0] > 0, "positive")
        return wl.scan(lambda c, t: (wl.print("t", t), (c, t * t))[1], 0.0, x)[1]

    out = wl.sparse.jacobian(f)(X)
    np.testing.assert_array_equal(out.toarray(), np.diag(2 * X))
    assert capsys.readouterr().out == "t 1.0\nt -2.0\nt 3.0\n"
    counted = lambda x: wl.fori_loop(0, 2, lambda i, c: (wl.print("step", i), c * x)[1], x)  # i is known beforehand
    np.testing.assert_array_equal(wl.sparse.jacobian(counted)(X).toarray(), np.diag(3 * X**2))
    assert capsys.readouterr().out == "step 0\nstep 1\n"


# -- host_call ---------------------------------------------------------------------------------------------------------


@EAGER_AND_JIT
def test_a_message_that_does_not_fit_hides_no_failure(compiled):
    with pytest.raises(wl.CheckError, match=r"\{:d\} items 1\.5$"):
        compiled(lambda x: wl.check(x < 0, "{:d} items", x))(1.5)
    with pytest.raises(wl.CheckError, match=r"in \{0, 1\}$"):
        compiled(lambda x: wl.check(x < 0, "in {{0, 1}}"))(1.5)


@EAGER_AND_JIT
def test_host_call(compiled):
    with pytest.raises(wl.ArgumentError, match=r"result_types has a leaf <class 'numpy.float64'>"):
        compiled(lambda x: wl.host_call(np.sum, np.float64, x))(X)
    sort = lambda x: wl.host_call(np.sort, x, x)
    np.testing.assert_array_equal(compiled(sort)(X), np.sort(X))
    rows = np.stack([X, -X])
    np.testing.assert_array_equal(compiled(wl.vmap(sort))(rows), np.sort(rows, axis=1))
    f = lambda x: np.sum(sort(wl.stop_gradient(x)) * x)
    np.testing.assert_array_equal(compiled(wl.grad(f))(X), np.sort(X))
    scan = lambda x: wl.scan(lambda c, t: (wl.host_call(np.sort, c, c * t), t), x, np.array([1.0, -1.0]))[0]
    np.testing.assert_array_equal(compiled(scan)(X), np.sort(-np.sort(X)))


@EAGER_AND_JIT
def test_host_call_of_trees(compiled):
    types = {"n": ((), np.int64), "top": 0.0, "all": (((3,), "float32"), X)}

    def f(given, k):
        assert isinstance(given["x"], np.ndarray) and isinstance(k, np.ndarray)
        given["x"] *= k  # its own
        return {"n": given["x"].size, "top": given["x"].max(), "all": (np.float32(given["x"]), given["x"])}

    out = compiled(lambda x: wl.host_call(f, types, {"x": x}, 2))(X)
    assert out["n"] == 3 and out["top"] == 6.0 and out["n"].dtype == np.int64
    np.testing.assert_array_equal(out["all"][0], 2 * X)
    assert out["all"][0].dtype == np.float32 and out["all"][1].dtype == np.float64
    kept = np.array(X)
    result = compiled(lambda x: wl.host_call(lambda a: kept, x, x))(X)
    result[0] = 9.0
    kept[0] = 5.0  # neither frozen nor shared
    assert result[0] == 9.0


@EAGER_AND_JIT
def test_host_call_stays_and_runs_where_it_is_taken(compiled, capsys):
    tell = lambda x: wl.host_call(lambda a: (print("ran", a), a)[1], x, x)
    f = compiled(lambda x: (tell(x), x)[1])
    f(1.0), f(2.0)
    assert capsys.readouterr().out == "ran 1.0\nran 2.0\n"
    g = compiled(lambda p, x: wl.cond(p, lambda: tell(x), lambda: x))
    g(True, 1.0), g(False, 2.0)
    assert capsys.readouterr().out == "ran 1.0\n"
    compiled(lambda x: wl.host_call(lambda: print("no arguments"), ()))(1.0)
    assert capsys.readouterr().out == "no arguments\n"


@EAGER_AND_JIT
def test_exceptions_are_kept(compiled):
    class Mine(Exception):
        pass

    error = Mine("boom")

    def bad(a):
        raise error

    with pytest.raises(Mine) as caught:
        compiled(lambda x: wl.host_call(bad, x, x) + 1)(X)
    assert caught.value is error
    assert traceback.extract_tb(error.__traceback__)[-1].name == "bad"

    def interrupted(a):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compiled(lambda x: wl.host_call(interrupted, x, x) + 1)(X)


@EAGER_AND_JIT
@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda a: a[:2], r"result 0 of <lambda> has shape \(2,\) and dtype float64, and .* shape \(3,\)"),
        (np.float32, "result 0 of float32 has shape .* dtype float32, and .* dtype float64"),
        (lambda a: (a, a), "returned .array, array., and result_types has array"),
        (lambda a: None, "returned None, and result_types has array"),
    ],
)
def test_results_are_checked(f, message, compiled):
    with pytest.raises(wl.ArgumentError, match=message):
        compiled(lambda x: wl.host_call(f, x, x))(X)


def test_what_host_call_refuses():
    with pytest.raises(wl.ArgumentError, match=r"host_call takes a function, not float \(1\.0\)"):
        wl.host_call(1.0, X, X)
    with pytest.raises(wl.ArgumentError, match=r"result_types has a leaf 'f8'"):
        wl.host_call(np.sort, "f8", X)
    with pytest.raises(wl.ArgumentError, match="host_call: leaf 0: expected an array"):
        wl.host_call(np.sort, X, "x")
    for transform in (wl.grad, wl.hessian, wl.jacfwd, lambda f: lambda x: wl.jet(f, (x,), ((x,),))):
        for compiled in (lambda f: f, wl.jit):
            with pytest.raises(wl.LostDerivativeError, match=r"wl.custom_jvp or wl.custom_vjp"):
                compiled(transform(lambda x: np.sum(wl.host_call(np.sort, x, x))))(X)


@EAGER_AND_JIT
def test_rules_for_host_calls(compiled):
    by_vjp = wl.custom_vjp(lambda x: wl.host_call(np.exp, x, x))
    by_vjp.defvjp(lambda x: (by_vjp(x), x), lambda x, ct: (ct * np.exp(x),))
    by_jvp = wl.custom_jvp(lambda x: wl.host_call(np.exp, x, x))
    by_jvp.defjvp(lambda p, t: (lambda y: (y, y * t[0]))(by_jvp(*p)))
    for f in (by_vjp, by_jvp):
        np.testing.assert_allclose(compiled(wl.grad(lambda x, f=f: np.sum(f(x))))(X), np.exp(X))
        np.testing.assert_allclose(compiled(wl.vmap(wl.grad(f)))(X), np.exp(X))
    np.testing.assert_allclose(compiled(wl.hessian(lambda x: np.sum(by_jvp(x))))(X), np.diag(np.exp(X)))


def test_threads():
    f = wl.jit(lambda x: wl.host_call(np.sort, x, x) * 2)
    found = []
    check = lambda k: found.append(np.array_equal(f(X * k), 2 * np.sort(X * k)))
    threads = [threading.Thread(target=check, args=(k,)) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 16


def test_programs_with_effects_print_and_verify():
    def f(x):
        wl.check(x > 0, "positive")
        wl.print("x", x)
        return np.sum(x * x)

    program = wl.verify(wl.trace(wl.grad(f))(X))
    assert [e.primitive.name for e in program.equations].count("host_call") == 1
    assert "check[message=positive" in str(program) and "host_call[call=print]" in str(program)
    assert program.effects and not wl.trace(np.sin)(X).effects
    compiled = wl.jit(f).inspect(X)
    assert compiled.program.effects and not compiled.fallbacks


# -- what may raise ----------------------------------------------------------------------------------------------------


def _native_failures(region):
    for node in region.nodes:
        if isinstance(node, Several):  # calls of NumPy, which may all fail, aside
            for part in node.regions:
                yield from _native_failures(part)
        elif node.can_fail:
            yield node


@pytest.mark.parametrize("name", sorted({row.name for row in TABLE}))
def test_what_can_fail_says_so(name):
    """A primitive whose compiled form can set the error word declares that it raises."""
    tried = 0
    for row in [row for row in TABLE if row.name == name]:
        for sample in samples(row, row.dtype_names()[-1:], ("contiguous",)):
            program = wl.trace(sample.function)(*sample.args())
            types = [ArrayType(t.shape, t.dtype) for t in program.input_types]
            nodes = [Number(t, 0) if 0 in t.shape else Leaf(t) for t in types]
            failing = [*_native_failures(lower(program, nodes, Region()))]
            assert not failing or may_raise(program), failing
            tried += 1
    assert tried


class Counter:
    """Python that returns something else each time."""

    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1
        return np.float64(self.count)


def product_of_two(x, draw):
    """Both draws are factors of the result, and of its derivative."""
    return wl.scan(lambda c, _: (np.sin(c) * draw(), None), x, length=2)[0]


@EAGER_AND_JIT
@pytest.mark.parametrize(
    "f",
    [
        product_of_two,
        wl.checkpoint(product_of_two),
        lambda x, draw: wl.checkpoint(lambda x: np.sin(np.sin(x) * draw()) * draw())(x),
        lambda x, draw: wl.scan(wl.checkpoint(lambda c, _: (np.sin(c) * draw(), None)), x, length=2)[0],
        lambda x, draw: wl.scan(lambda c, _: (np.sin(c) * draw(), None), x, length=2, checkpoint=1)[0],
        lambda x, draw: wl.scan(lambda c, _: (np.sin(c) * draw(), None), x, length=2, checkpoint="binomial")[0],
        lambda x, draw: wl.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, np.sin(s[1]) * draw()), (0, x))[1],
        lambda x, draw: wl.checkpoint(lambda x: wl.cond(x > 0, lambda: product_of_two(x, draw), lambda: x))(x),
    ],
)
def test_derivatives_use_what_python_returned(compiled, f):
    """In the forward pass, once: a derivative doesn't call it again."""
    python, x = Counter(), 0.7
    slope = compiled(wl.grad(lambda x: f(x, lambda: wl.host_call(python, 1.0))))(x)
    assert python.count == 2
    np.testing.assert_allclose(slope, 2.0 * np.cos(1.0 * np.sin(x)) * np.cos(x), rtol=1e-12)


def test_a_derivative_that_would_call_python_again_raises():
    python = Counter()
    loop = lambda x: wl.while_loop(lambda s: s < 3.0, lambda s: s * (1.0 + wl.host_call(python, 1.0)), x)
    assert wl.scan(lambda c, _: (loop(c), None), 1.0, length=1)[0] == 6.0
    with pytest.raises(wl.LostDerivativeError, match="call Python again"):
        wl.grad(lambda x: wl.scan(lambda c, _: (loop(c), None), x, length=1)[0])(1.0)


@EAGER_AND_JIT
def test_python_in_custom_functions_of_constants(compiled):
    """Results of Python are traced values while a function is recorded, which a custom function may have."""
    double = lambda v: wl.host_call(lambda a: np.float64(2.0 * a), 1.0, v)
    custom = wl.custom_vjp(double)
    custom.defvjp(lambda x: (double(x), double(0.5)), lambda one, ct: (2.0 * one * double(0.5) * ct,))
    assert compiled(lambda x: x * custom(3.0))(2.0) == 12.0
    assert compiled(lambda x: wl.cond(x > 0, lambda: x * custom(3.0), lambda: x))(2.0) == 12.0
    for f in (wl.grad(custom), wl.grad(wl.jit(custom)), wl.grad(lambda x: custom(x) * custom(0.5))):
        assert compiled(f)(3.0) == 2.0
    nested = wl.custom_jvp(lambda x: custom(2.0) * x)
    nested.defjvp(lambda primals, tangents: (nested(*primals), custom(2.0) * tangents[0]))
    assert compiled(nested)(3.0) == 12.0 and compiled(wl.grad(nested))(3.0) == 4.0


@EAGER_AND_JIT
def test_python_in_a_custom_function_of_values_from_outside_a_loop(compiled):
    """It belongs to the loop's body, though its operands don't: each step calls it."""
    python = Counter()
    scaled = wl.custom_jvp(lambda x: wl.host_call(python, 1.0) * x)
    scaled.defjvp(lambda primals, tangents: (scaled(*primals), 10.0 * tangents[0]))
    f = lambda x: wl.scan(lambda c, _: (c + scaled(x), None), 0.0, length=2)[0]
    assert compiled(wl.grad(f))(2.0) == 20.0 and python.count == 2
    np.testing.assert_array_equal(compiled(wl.vmap(f))(np.array([2.0, 1.0])), [14.0, 7.0])
