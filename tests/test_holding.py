"""A primitive that holds Programs is one statement: its rules are calls of it with the transformed Programs."""

import importlib.util
import sys

import numpy as np
import pytest

import wonderland as wl
from wonderland.core import tree
from wonderland.core.primitive import registry

MODULE = '''
"""`call` holds one Program; `choose` holds two, in parameters of their own, and a first operand chooses."""
from wonderland.core.program import run
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import type_of
from wonderland.transform.holding import Holding
from wonderland.transform.programs import record

runs = []


def evaluate(*args, program):
    runs.append(program)
    return run(program, args)


call_p = Holding("program").primitive("call", evaluate, lower=lambda b, *nodes, program: b.program(program, nodes))
choose_p = Holding("left", "right", own=1).primitive(
    "choose",
    lambda index, *args, left, right: run(right if index else left, args),
    lower=lambda b, index, *nodes, left, right: b.branch(index, (left, right), nodes),
)


def program(f, args):
    return record(lambda *v: [unwrap(f(*map(Tracer, v)))], [type_of(unwrap(a)) for a in args])


def call(f, *args):
    return Tracer(call_p(*map(unwrap, args), program=program(f, args))[0])


def choose(index, left, right, *args):
    return Tracer(choose_p(unwrap(index), *map(unwrap, args), left=program(left, args), right=program(right, args))[0])
'''

X, Y, V = np.linspace(0.3, 1.2, 4), np.linspace(1.0, 2.0, 4), np.array([1.0, -2.0, 0.5, 3.0])


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """The module, for as long as these tests run."""
    path = tmp_path_factory.mktemp("holding") / "held.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("held", path)
    module = sys.modules["held"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["held"], registry["call"], registry["choose"]


def f(x, y):
    return np.sin(x) * y[::-1] + x[0]


def g(x, y):  # it reads less, and needs other residuals
    return np.exp(x) + x**2


FORMS = {
    "one": (lambda held, x, y: held.call(f, x, y), f),
    "left": (lambda held, x, y: held.choose(x[0] > 5, f, g, x, y), f),
    "right": (lambda held, x, y: held.choose(x[0] < 5, f, g, x, y), g),
    "nested": (lambda held, x, y: held.call(lambda x, y: held.choose(x[0] < 5, f, g, x, y), x, y), g),
    "loop": (lambda held, x, y: wl.fori_loop(0, 2, lambda i, c: held.call(f, c, y), x), lambda x, y: f(f(x, y), y)),
}
STACK = np.stack([X, Y, X * Y])
RULES = {
    "eager": lambda h, x: h(x, Y),
    "jvp": lambda h, x: wl.jvp(lambda x: h(x, Y), (x,), (V,)),
    "vjp": lambda h, x: wl.vjp(h, x, Y)[1](V),
    "forward over reverse": lambda h, x: wl.jvp(wl.grad(lambda x: V @ h(x, Y)), (x,), (V,)),
    "reverse over reverse": lambda h, x: wl.grad(lambda x: V @ wl.grad(lambda x: V @ h(x, Y))(x))(x),
    "third order": lambda h, x: wl.jvp(wl.jacobian(wl.grad(lambda x: V @ h(x, Y))), (x,), (V,)),
    "taylor": lambda h, x: wl.jet(lambda x: h(x, Y), (x,), ([V, V * V, V],)),
    "checkpoint": lambda h, x: wl.grad(lambda x: V @ wl.checkpoint(h)(x, Y))(x),
}


def assert_close(found, expected):
    found, expected = tree.leaves(found), tree.leaves(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("form", FORMS)
def test_rules(held, form, rule, compiled):
    ours, plain = FORMS[form]

    def derivative(x):
        return RULES[rule](lambda x, y: ours(held, x, y), x)

    assert_close((wl.jit(derivative) if compiled else derivative)(X), RULES[rule](plain, X))


@pytest.mark.parametrize("rule", ["eager", "jvp", "vjp", "forward over reverse"])
@pytest.mark.parametrize("form", ["one", "two"])
def test_batch(held, form, rule):
    def ours(x, y):
        return held.call(f, x, y) if form == "one" else held.choose(np.True_, g, f, x, y)

    found = tree.leaves(wl.vmap(lambda x: RULES[rule](ours, x))(STACK))
    for i, x in enumerate(STACK):
        assert_close([leaf[i] for leaf in found], RULES[rule](f, x))


def test_a_batch_of_choices_is_refused(held):
    with pytest.raises(TypeError, match="choose can't be batched: what chooses its Program differs along the batch"):
        wl.vmap(lambda x: held.choose(x[0] > 0, f, g, x, Y))(STACK)


def test_pattern(held):
    def pattern(h):
        return wl.sparse.jacobian_pattern(lambda x: h(x, Y), X).toarray()

    assert np.array_equal(pattern(lambda x, y: held.call(f, x, y)), pattern(f))
    assert np.array_equal(pattern(lambda x, y: held.choose(x[0] > 0, g, f, x, y)), pattern(f) | pattern(g))


def test_a_gradient_runs_it_twice(held):
    held.runs.clear()
    wl.grad(lambda x: V @ held.call(f, x, Y))(X)
    assert len(held.runs) == 2  # with its residuals, and back


def test_linear(held):
    """It is linear in what its Programs are linear in."""
    A = np.arange(16.0).reshape(4, 4)
    for h in (
        lambda x: held.call(lambda x: A @ x, x),
        lambda x: held.choose(np.True_, lambda x: -x, lambda x: A @ x, x),
    ):
        np.testing.assert_allclose(wl.linear_transpose(h, X)(V)[0], A.T @ V)
    for h, why in (
        (lambda x: held.call(np.sin, x), "uses sin"),
        (lambda x: held.choose(np.True_, lambda x: x, lambda x: x * x, x), "multiplies two values"),
        (lambda x: held.choose(x[0], lambda x: x, lambda x: -x, x), r"decides by a value .*\(choose\)"),
    ):
        with pytest.raises(wl.ArgumentError, match=why):
            wl.linear_transpose(h, X)


def test_effects(held, capsys):
    """They happen once in a derivative, and stay in compiled code though nobody uses a result."""

    def h(x):
        held.call(lambda x: (wl.print("seen"), x)[1], x)
        return np.sum(x**2)

    for run in (wl.grad(h), wl.jit(h), wl.jit(wl.grad(h))):
        run(X)
        assert capsys.readouterr().out == "seen\n"
