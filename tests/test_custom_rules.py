"""Custom rules: what they capture, integers, loops and other custom functions on tangents."""

import functools
import threading

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.tracer import Tracer, unwrap

C, X = np.array([0.5, -1.5, 2.0]), np.array([1.0, 0.25, -3.0])


# f(x) = sin(c) x with c captured: in closures, as a value made from it, by a method, partial, a default, a container.


def by_closure(c):
    f = wl.custom_jvp(lambda x: np.sin(c) * x)
    f.defjvp(lambda primals, tangents: (np.sin(c) * primals[0], np.sin(c) * tangents[0]))
    return f


def by_rules(c):
    f = wl.custom_vjp(lambda x: np.sin(c) * x)
    f.defvjp(lambda x: (np.sin(c) * x, None), lambda residuals, ct: (np.sin(c) * ct,))
    return f


def by_residual(c):
    f = wl.custom_vjp(lambda x: np.sin(c) * x)
    f.defvjp(lambda x: (np.sin(c) * x, np.sin(c)), lambda residual, ct: (residual * ct,))
    return f


def by_made_value(c):
    s = np.sin(c)
    f = wl.custom_jvp(lambda x: s * x)
    f.defjvp(lambda primals, tangents: (f(*primals), s * tangents[0]))  # the rule calls the function
    return f


class Sine:
    def __init__(self, c):
        self.c = c

    def value(self, x):
        return np.sin(self.c) * x

    def rule(self, primals, tangents):
        return self.value(*primals), self.value(*tangents)


def by_method(c):
    f = wl.custom_jvp(Sine(c).value)
    f.defjvp(Sine(c).rule)
    return f


def by_partial(c):
    f = wl.custom_jvp(functools.partial(lambda c, x: np.sin(c) * x, c))
    f.defjvp(functools.partial(lambda c, primals, tangents: (np.sin(c) * primals[0], np.sin(c) * tangents[0]), c))
    return f


def by_container(c):
    held = {"parts": [c]}
    f = wl.custom_jvp(lambda x: np.sin(held["parts"][0]) * x)

    def rule(primals, tangents, c=c):
        return np.sin(c) * primals[0], np.sin(held["parts"][0]) * tangents[0]

    f.defjvp(rule)
    return f


WAYS = [by_closure, by_rules, by_residual, by_made_value, by_method, by_partial, by_container]
every_way = pytest.mark.parametrize("make", WAYS)


def batched(make):
    return lambda c, x: np.sum(wl.vmap(lambda c, x: make(c)(x))(c, x))


def shared(make):
    """x belongs to all entries of the batch, c to each."""
    return lambda c, x: np.sum(wl.vmap(lambda k: make(k)(x))(c))


def looped(make):
    return lambda c, x: np.sum(wl.scan(lambda carry, _: (make(c)(carry), None), x, length=2)[0])


def carried(make):
    """What is captured changes from step to step."""
    return lambda c, x: np.sum(wl.scan(lambda s, _: ((2 * s[0], make(s[0])(s[1])), None), (c, x), length=2)[0][1])


def decided(make):
    return lambda c, x: np.sum(wl.cond(x[0] > 0, lambda x: make(c)(x), lambda x: x, x))


# In what: the function of (c, x), and its derivative with respect to x.
PLACES = {
    "plain": (lambda make: lambda c, x: np.sum(make(c)(x)), np.sin(C)),
    "jit": (lambda make: wl.jit(lambda c, x: np.sum(make(c)(x))), np.sin(C)),
    "checkpoint": (lambda make: wl.checkpoint(lambda c, x: np.sum(make(1.0 * c)(x))), np.sin(C)),
    "vmap": (batched, np.sin(C)),
    "jit of vmap": (lambda make: wl.jit(batched(make)), np.sin(C)),
    "shared": (shared, np.full(3, np.sum(np.sin(C)))),
    "scan": (looped, np.sin(C) ** 2),
    "carry": (carried, np.sin(C) * np.sin(2 * C)),
    "cond": (decided, np.sin(C)),
}
# Each way in plain code, two of them everywhere.
pairs = pytest.mark.parametrize(
    ("make", "place"), [(m, p) for m in WAYS for p in PLACES if p == "plain" or m in (by_closure, by_rules)]
)


@pairs
def test_what_a_rule_captures_is_an_operand(make, place):
    f, expected = PLACES[place][0](make), PLACES[place][1]
    np.testing.assert_allclose(f(C, X), np.sum(expected * X), rtol=1e-14)
    np.testing.assert_allclose(wl.grad(f, 1)(C, X), expected, rtol=1e-14)
    value, gradient = wl.jit(wl.value_and_grad(f, 1))(C, X)
    np.testing.assert_allclose(value, np.sum(expected * X), rtol=1e-14)
    np.testing.assert_allclose(gradient, expected, rtol=1e-14)
    rows = wl.vmap(wl.grad(f, 1), (0, None))(np.stack([C, C]), X)
    np.testing.assert_allclose(rows, np.stack([expected, expected]), rtol=1e-14)


@pairs
def test_a_derivative_with_respect_to_what_is_captured_is_refused(make, place):
    f = PLACES[place][0](make)
    for transformed in (wl.grad(f), wl.grad(f, (0, 1)), wl.jit(wl.grad(f)), wl.grad(wl.jit(f))):
        with pytest.raises(wl.ArgumentError, match=r"with respect to a value that it captures.*wl\.closure_convert"):
            transformed(C, X)


@every_way
def test_a_level_further_out_that_gets_at_a_captured_value_is_refused(make):
    inner = lambda c: np.sum(wl.grad(lambda x: np.sum(make(c)(x) ** 2))(X))
    np.testing.assert_allclose(inner(C), np.sum(2 * np.sin(C) ** 2 * X), rtol=1e-14)
    for outer in (wl.grad(inner), wl.grad(wl.jit(inner)), wl.jacobian(inner), lambda c: wl.jvp(inner, (c,), (c,))):
        with pytest.raises(wl.ArgumentError, match="with respect to a value that it captures"):
            outer(C)


@pytest.mark.parametrize("make", [by_closure, by_rules])
@pytest.mark.parametrize("inside", [False, True])
def test_captured_constants(make, inside):
    """stop_gradient makes a constant of what is captured, outside or, where the function uses it, inside."""

    def f(c, x):
        g = wl.custom_jvp(lambda x: np.sin(wl.stop_gradient(c)) * x)
        g.defjvp(lambda p, t: tuple(np.sin(wl.stop_gradient(c)) * v[0] for v in (p, t)))
        return np.sum(c * g(x) if inside else c * make(wl.stop_gradient(c))(x))

    for g in (wl.grad(f, (0, 1)), wl.jit(wl.grad(f, (0, 1))), wl.grad(wl.jit(f), (0, 1))):
        of_c, of_x = g(C, X)
        np.testing.assert_allclose(of_c, np.sin(C) * X, rtol=1e-14)
        np.testing.assert_allclose(of_x, np.sin(C) * C, rtol=1e-14)


@every_way
def test_second_derivatives_beside_captured_values(make):
    f = lambda c, x: np.sum(make(c)(x) ** 2)
    expected = np.diag(2 * np.sin(C) ** 2)
    np.testing.assert_allclose(wl.jacobian(wl.grad(f, 1), 1, mode="reverse")(C, X), expected, rtol=1e-14)
    if make not in (by_rules, by_residual):  # these have no forward mode
        _, tangent = wl.jvp(lambda x: wl.grad(f, 1)(C, x), (X,), (np.ones(3),))
        np.testing.assert_allclose(tangent, np.diag(expected), rtol=1e-14)
        np.testing.assert_allclose(wl.hessian(wl.jit(f), 1)(C, X), expected, rtol=1e-14)


def test_a_rule_alone_may_capture_what_is_differentiated():
    """f(x) = x whose gradient is multiplied by c: the value doesn't depend on c."""

    def scaled(c):
        f = wl.custom_vjp(lambda x: x)
        f.defvjp(lambda x: (f(x), None), lambda _, ct: (c * ct,))
        return f

    for g in (wl.grad(lambda c, x: c * scaled(c)(x), (0, 1)), wl.grad(wl.jit(lambda c, x: c * scaled(c)(x)), (0, 1))):
        assert g(2.0, 3.0) == (3.0, 4.0)


def test_captured_integers_and_decisions():
    def f(c, x):
        g = wl.custom_jvp(lambda x: np.where(c > 0, 2.0, 3.0) * x)  # no derivative goes through a comparison
        g.defjvp(lambda p, t: (np.where(c > 0, 2.0, 3.0) * p[0], np.where(c > 0, 2.0, 3.0) * t[0]))
        return np.sum(g(x) * c)

    of_c, of_x = wl.grad(f, (0, 1))(C, X)
    np.testing.assert_allclose(of_c, np.where(C > 0, 2.0, 3.0) * X)
    np.testing.assert_allclose(of_x, np.where(C > 0, 2.0, 3.0) * C)


def test_the_captured_value_is_that_of_the_call():
    def f(c, x):
        c = 1.0 * c
        y = by_closure(c)(x)
        c += 10.0
        return np.sum(y)

    np.testing.assert_allclose(wl.vmap(wl.grad(f, 1))(C, X), np.sin(C))
    np.testing.assert_allclose(wl.grad(wl.jit(f), 1)(C, X), np.sin(C))


def test_a_rule_may_not_write_to_what_it_captures():
    def f(c, x):
        c = 1.0 * c
        g = wl.custom_jvp(lambda x: c * x)

        @g.defjvp
        def rule(primals, tangents):
            c[0] = 5.0
            return c * primals[0], c * tangents[0]

        return np.sum(g(x))

    with pytest.raises(wl.MutationError, match="writes to an array that it captures"):
        wl.grad(lambda x: f(wl.stop_gradient(x), x))(X)


HIDDEN = []


def hidden():
    return HIDDEN[-1]


def test_a_captured_value_out_of_sight_is_refused():
    """What a function reaches through another one's globals isn't looked for."""

    def f(c, x):
        HIDDEN.append(c)
        g = wl.custom_jvp(lambda x: hidden() * x)
        g.defjvp(lambda p, t: (hidden() * p[0], hidden() * t[0]))
        return np.sum(g(x))

    transformed = (wl.grad(f), wl.grad(f, (0, 1)), wl.vmap(f), wl.jit(f), wl.grad(wl.jit(f), 1))
    for g in (*transformed, lambda c, x: wl.grad(lambda c, x: np.sum(wl.vmap(f)(c, x)), 1)(c, x)):
        with pytest.raises(wl.TracingError, match="neither an argument nor found in what it closes over"):
            g(C, X)
    np.testing.assert_allclose(wl.grad(f, 1)(C, X), C)


def test_rules_follow_values_and_wait_until_they_are_needed():
    ran = []

    def f(c, x):
        g = wl.custom_vjp(lambda x: np.abs(c * x))
        g.defvjp(lambda x: (ran.append("forward"), (np.abs(c * x), x))[1], backward)
        g.defjvp(lambda p, t: (ran.append("jvp"), (np.abs(c * p[0]), c * t[0]))[1])

        def backward_of(x, ct):
            ran.append("backward")
            return (c * ct,) if x > 0 else (-c * ct,)  # Python's own decision

        held.append(backward_of)
        return g(x)

    held = []
    backward = lambda x, ct: held[-1](x, ct)
    assert wl.jit(f)(2.0, 3.0) == 6.0 and not ran
    np.testing.assert_allclose(wl.vmap(f)(C, C), np.abs(C * C))
    assert not ran
    value, pull = wl.vjp(lambda x: f(2.0, x), -3.0)
    assert value == 6.0 and ran == ["forward"]
    assert pull(1.0) == (-2.0,) and ran == ["forward", "backward"]
    ran.clear()
    assert wl.jvp(lambda x: f(2.0, x), (3.0,), (1.0,)) == (6.0, 2.0) and ran == ["jvp"]


def test_rules_follow_values_beside_captured_tracers():
    def f(c, x):
        g = wl.custom_jvp(lambda x: c * x)

        @g.defjvp
        def rule(primals, tangents):
            slope = c if primals[0] > 0 and c > 0 else 7.0
            return c * primals[0], slope * tangents[0]

        return g(x)

    slope = wl.grad(lambda x, sign: f(wl.stop_gradient(x), sign * x))
    assert slope(2.0, 1.0) == 2.0 and slope(2.0, -1.0) == -7.0


def test_threads_run_rules_on_their_own_captured_values():
    program = wl.trace(lambda c, x: by_closure(c)(x))(2.0, 3.0)
    found = []

    def work(number):
        for _ in range(30):
            f = lambda x: Tracer(program(float(number), unwrap(x))[0])
            found.append((number, wl.jvp(f, (3.0,), (1.0,))[1]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(number, np.sin(number)) for number in range(4) for _ in range(30)]


def test_patterns_see_the_rule_beside_captured_values():
    f = lambda x: by_closure(wl.stop_gradient(x[::-1]))(x)
    np.testing.assert_array_equal(wl.sparse.jacobian_pattern(f, X).toarray(), np.eye(3, dtype=bool))
    g = lambda x: by_rules(wl.stop_gradient(x[::-1]))(x)
    np.testing.assert_array_equal(wl.sparse.jacobian_pattern(g, X).toarray(), np.eye(3, dtype=bool))


# Integers -------------------------------------------------------------------------------------------------------------


@wl.custom_jvp
def squared_and_place(x):
    return x * x, np.argmax(x)


squared_and_place.defjvp(lambda p, t: (squared_and_place(*p), (2.0 * p[0] * t[0], 0)))


@wl.custom_vjp
def times(x, n):
    return x * n


times.defvjp(lambda x, n: (x * n, n), lambda n, ct: (ct * n, None))


@wl.custom_vjp
def doubled_and_place(x):
    return 2.0 * x, np.argmax(x)


doubled_and_place.defvjp(lambda x: (doubled_and_place(x), None), lambda _, ct: (2.0 * ct[0],))


def test_integers_under_a_batched_gradient():
    rows, counts = np.arange(6.0).reshape(2, 3), np.arange(3)
    for jit in (wl.jit, lambda f: f):
        f = jit(wl.grad(lambda x: np.sum(wl.vmap(lambda row: squared_and_place(row)[0])(x))))
        np.testing.assert_allclose(f(rows), 2.0 * rows)
        f = jit(wl.grad(lambda x: np.sum(wl.vmap(lambda row: doubled_and_place(row)[0])(x))))
        np.testing.assert_allclose(f(rows), np.full((2, 3), 2.0))
        np.testing.assert_allclose(jit(wl.grad(lambda x: np.sum(wl.vmap(times)(x, counts))))(X), counts)
        np.testing.assert_allclose(jit(wl.grad(lambda x: np.sum(wl.vmap(lambda x: times(x, 4))(x))))(X), np.full(3, 4))
        assert jit(wl.grad(lambda x: np.sum(wl.vmap(lambda n: times(x, n))(counts))))(1.5) == 3.0
    hessian = wl.hessian(lambda x: np.sum(wl.vmap(lambda row: squared_and_place(row)[0])(x)))(rows)
    np.testing.assert_allclose(hessian.reshape(6, 6), 2.0 * np.eye(6))


# On tangents ----------------------------------------------------------------------------------------------------------


def with_rule(value, tangent):
    f = wl.custom_jvp(value)
    f.defjvp(lambda primals, tangents: (value(*primals), tangent(primals[0], tangents[0])))
    return f


triple = with_rule(lambda x: 3.0 * x, lambda x, t: 3.0 * t)
triple_reverse = wl.custom_vjp(lambda x: 3.0 * x)
triple_reverse.defvjp(lambda x: (3.0 * x, None), lambda _, ct: (3.0 * ct,))


def captures(p):
    return with_rule(lambda t: p * t, lambda _, t: p * t)


def power_by_while(x, t):
    """3 x^2 t: a counter and a primal are carried beside the tangent."""
    return wl.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1], s[2] * s[1]), (0, x, 3.0 * t))[2]


RULES = {
    "while_loop": (lambda x: x**3, power_by_while),
    "fori_loop": (lambda x: x**3, lambda x, t: wl.fori_loop(0, 2, lambda i, s: s * x, 3.0 * t)),
    "traced bounds": (lambda x: 4.0 * x, lambda x, t: wl.fori_loop(0, np.argmax(x) * 0 + 2, lambda i, s: 2.0 * s, t)),
    "scan": (lambda x: 8.0 * x, lambda x, t: wl.scan(lambda c, a: (c + a * t, None), 0.0 * x, np.array([3.0, 5.0]))[0]),
    "cond": (lambda x: 2.0 * x, lambda x, t: wl.cond(np.sum(x) > 99, lambda t: t, lambda t: 2.0 * t, t)),
    "jit": (lambda x: np.sin(x), lambda x, t: wl.jit(lambda x, t: np.cos(x) * t)(x, t)),
    "custom_jvp": (lambda x: 3.0 * x, lambda x, t: triple(t)),
    "custom_vjp": (lambda x: 3.0 * x, lambda x, t: triple_reverse(t)),
    "custom in while": (
        lambda x: 9.0 * x,
        lambda x, t: wl.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, triple(s[1])), (0, t))[1],
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_loops_and_custom_functions_on_tangents(name):
    value, tangent = RULES[name]
    f = with_rule(value, tangent)
    slope = wl.grad(lambda x: np.sum(value(x)))(X)
    bend = wl.jvp(wl.grad(lambda x: np.sum(value(x))), (X,), (np.ones(3),))[1]
    g = lambda x: np.sum(f(x))
    for gradient in (wl.grad(g), wl.jit(wl.grad(g)), wl.grad(wl.checkpoint(g))):
        np.testing.assert_allclose(gradient(X), slope, rtol=1e-14)
    np.testing.assert_allclose(wl.grad(lambda x: np.sum(wl.vmap(f)(x)))(X[:, None]), slope[:, None], rtol=1e-14)
    np.testing.assert_allclose(wl.vmap(wl.grad(g))(np.stack([X, X]))[1], slope, rtol=1e-14)
    np.testing.assert_allclose(wl.jvp(f, (X,), (np.ones(3),))[1], slope, rtol=1e-14)
    np.testing.assert_allclose(wl.grad(lambda x: np.sum(wl.grad(g)(x)))(X), bend, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(wl.jvp(wl.grad(g), (X,), (np.ones(3),))[1], bend, rtol=1e-14, atol=1e-14)


def test_a_custom_function_of_tangents_that_captures_a_primal():
    f = with_rule(lambda x: x * x, lambda x, t: captures(2.0 * x)(t))
    for gradient in (wl.grad(f), wl.jit(wl.grad(f)), wl.grad(wl.jit(f))):
        assert gradient(3.0) == 6.0
    with pytest.raises(wl.ArgumentError, match="with respect to a value that it captures"):
        wl.grad(wl.grad(f))(3.0)


WRONG = {
    "uses sin": lambda x, t: np.sin(t),
    r"uses exp": lambda x, t: triple(t) + with_rule(np.exp, lambda x, t: t)(t),
    r"multiplies two values that depend on the input \(mul\)": lambda x, t: t * t,
    r"adds or joins a value that isn't zero \(add\)": lambda x, t: t + 1.0,
    r"ends a loop by a value that depends on the input \(while_loop\)": (
        lambda x, t: wl.while_loop(lambda s: np.sum(s) < 9.0, lambda s: 2.0 * s, t)
    ),
    "uses gt": lambda x, t: wl.cond(np.sum(t) > 0.0, lambda t: t, lambda t: 2.0 * t, t),
    "uses cos": lambda x, t: wl.scan(lambda c, _: (np.cos(c), None), t, length=2)[0],
}


@pytest.mark.parametrize("why", WRONG)
def test_reverse_mode_names_the_rule_that_is_not_linear(why):
    def wave(x):
        return 3.0 * x

    f = with_rule(wave, WRONG[why])
    expected = rf"the jvp rule of wave isn't linear in its tangents: it {why} \(test_custom_rules\.py:\d+\).*custom_vjp"
    for gradient in (wl.grad(f), wl.jit(wl.grad(f)), wl.grad(wl.jit(f))):
        with pytest.raises(wl.ArgumentError, match=expected):
            gradient(2.0)


def test_rules_return_what_the_function_returns():
    """Compiled code has the function's types: a rule that returns something else is named."""
    square = wl.custom_jvp(lambda x: x * x)
    square.defjvp(lambda primals, tangents: ((primals[0], primals[0]), (tangents[0], tangents[0])))
    with pytest.raises(wl.ArgumentError, match=r"the jvp rule of <lambda> .* has structure \(array, array\)"):
        wl.grad(wl.jit(square))(3.0)
    square.defjvp(lambda primals, tangents: (primals[0] * np.ones(2), tangents[0] * np.ones(2)))
    with pytest.raises(wl.ArgumentError, match=r"the jvp rule of <lambda> .* has shape \(2,\), expected \(\)"):
        wl.jvp(wl.jit(square), (3.0,), (1.0,))
    square = wl.custom_vjp(lambda x: x * x)
    square.defvjp(lambda x: ((x * x, x), x), lambda x, ct: (2 * x * ct,))
    with pytest.raises(wl.ArgumentError, match=r"the forward rule of <lambda> .* has structure \(array, array\)"):
        wl.vmap(wl.grad(wl.jit(square)))(np.ones(3))


def test_what_the_forward_rule_keeps_is_arrays():
    f = wl.custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: (x * x, (x, "name")), lambda kept, ct: (2 * kept[0] * ct,))
    with pytest.raises(wl.ArgumentError, match=r"residual that the forward rule of <lambda> keeps: .* got str"):
        wl.grad(f)(3.0)


def test_both_rules_and_a_linear_function():
    f = wl.custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: (x * x, x), lambda x, ct: (20.0 * x * ct,))
    f.defjvp(lambda primals, tangents: (f(*primals), 2.0 * primals[0] * tangents[0]))
    assert wl.grad(f)(3.0) == 60.0 and wl.jvp(f, (3.0,), (1.0,))[1] == 6.0
    with pytest.raises(TypeError, match=r"comes from its custom vjp.* wl\.jvp uses"):
        wl.jacfwd(f)(3.0)


def test_methods():
    @wl.register_mutable
    class Scale:
        def __init__(self):
            self.k = np.array([3.0])

        @wl.custom_jvp
        def times(self, x):
            return np.sum(self.k * x)

        @times.defjvp
        def rule(primals, tangents):
            (self, x), (moved, dx) = primals, tangents
            return self.times(x), np.sum(moved.k * x) + np.sum(10.0 * self.k * dx)

    scale = Scale()
    assert scale.times(2.0) == 6.0
    for derivative in (wl.grad(scale.times), wl.jit(wl.grad(scale.times)), wl.grad(wl.jit(scale.times))):
        assert derivative(2.0) == 30.0
    assert wl.grad(lambda s: s.times(2.0))(scale).k == 2.0


def test_stop_gradient_of_a_decision():
    """Booleans and integers have no derivative to stop."""
    f = lambda x: np.sum(np.where(wl.stop_gradient(x > 0), x, 0.0))
    assert np.array_equal(wl.grad(f)(np.array([1.0, -1.0])), [1, 0])
    assert np.array_equal(wl.jit(wl.grad(f))(np.array([1.0, -1.0])), [1, 0])
