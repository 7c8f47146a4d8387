"""Control flow inside control flow, differentiated, batched and compiled, against closed forms."""

import numpy as np
import pytest

import wonderland as wl


def square_root(a):
    """A data-dependent number of Newton steps."""
    return wl.while_loop(lambda s: np.abs(s * s - a) > 1e-13 * a, lambda s: 0.5 * (s + a / s), a + 1.0)


def while_in_scan(x):
    c, ys = wl.scan(lambda c, a: (square_root(c + a), c * a), x[0], x)
    return c * np.sum(ys)


def while_in_scan_plain(x):
    c, total = x[0], 0.0
    for i in range(len(x)):
        total, c = total + c * x[i], np.sqrt(c + x[i])
    return c * total


def while_in_while(x):
    state = wl.while_loop(lambda s: s[1] < 3, lambda s: (square_root(s[0]) * 1.3 + x[0] * s[0], s[1] + 1), (x[1], 0))
    return state[0] * x[2]


def while_in_while_plain(x):
    s = x[1]
    for _ in range(3):
        s = np.sqrt(s) * 1.3 + x[0] * s
    return s * x[2]


def while_in_cond(x):
    return wl.cond(x[0] > 0.5, lambda x: square_root(x[0]) * x[1], lambda x: x[2] * 2.0, x)


def scan_in_scan(x):
    def outer(c, a):
        inner, ys = wl.scan(lambda s, b: (np.sin(s) * b + a, s * b), c, x)
        return inner, np.sum(ys) * a

    c, ys = wl.scan(outer, x[0], x, reverse=True)
    return c + np.sum(ys)


def scan_in_scan_plain(x):
    c, total = x[0], 0.0
    for i in reversed(range(len(x))):
        s, ys = c, 0.0
        for j in range(len(x)):
            ys, s = ys + s * x[j], np.sin(s) * x[j] + x[i]
        total, c = total + ys * x[i], s
    return c + total


def cond_in_scan_with_jit(x):
    step = wl.jit(lambda c, a: wl.cond(a > 0.85, lambda c: c * a, lambda c: np.cos(c), c))
    c, _ = wl.scan(lambda c, a: (step(c, a), None), x[0], x)
    return c


def cond_in_scan_plain(x):
    c = x[0]
    for i in range(len(x)):
        c = c * x[i] if x[i] > 0.85 else np.cos(c)
    return c


CASES = [
    (while_in_scan, while_in_scan_plain),
    (while_in_while, while_in_while_plain),
    (while_in_cond, lambda x: np.sqrt(x[0]) * x[1]),
    (scan_in_scan, scan_in_scan_plain),
    (cond_in_scan_with_jit, cond_in_scan_plain),
]
X = np.array([0.7, 0.8, 0.9, 1.2])


@pytest.fixture(params=["eager", "jitted"])
def run(request):
    return (lambda f: f) if request.param == "eager" else wl.jit


@pytest.mark.parametrize(("f", "plain"), CASES)
def test_nested_control_flow(f, plain, run):
    value, gradient = plain(X), wl.grad(plain)(X)
    xs = np.stack([X, 1.1 * X])
    each = np.stack([gradient, wl.grad(plain)(1.1 * X)])
    np.testing.assert_allclose(run(f)(X), value, rtol=1e-10)
    np.testing.assert_allclose(run(wl.grad(f))(X), gradient, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(run(lambda x: wl.jvp(f, (x,), (x,))[1])(X), gradient @ X, rtol=1e-8)
    np.testing.assert_allclose(run(wl.vmap(wl.grad(f)))(xs), each, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(run(wl.grad(lambda x: np.sum(wl.vmap(f)(x))))(xs), each, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(run(wl.jacobian(wl.grad(f)))(X), wl.jacobian(wl.grad(plain))(X), rtol=1e-6, atol=1e-8)
    wl.verify(wl.trace(wl.grad(f))(X))


def test_captured_arrays_are_what_they_were_at_the_call(run):
    def f(x):
        b = np.ones(2)
        y = wl.jit(lambda a: a * a * b)(x)
        b *= 5
        return np.sum(y)

    np.testing.assert_array_equal(run(wl.grad(f))(np.array([1.0, 2.0])), [2.0, 4.0])


def test_updates_that_depend_on_each_other_compile():
    def f(x):
        a = x * 1.0
        a[:3] += 1
        c = a.copy()
        c[1:] *= 2
        a[0] = 9 * a[1]
        a[2] = a[0]
        c[:2] = a[1:3]
        a[:2] *= c[2:]
        return np.sum(a * c) + np.sum(a * x)

    np.testing.assert_allclose(wl.jit(wl.grad(f))(X), wl.grad(f)(X), rtol=1e-12)
    np.testing.assert_allclose(wl.jit(wl.jacobian(wl.grad(f)))(X), wl.jacobian(wl.grad(f))(X), rtol=1e-10, atol=1e-12)


def test_writing_one_element_per_step_costs_one_element():
    """Counted in the memory plan: the loop's body has no copy of an array, whatever the array's size."""

    def f(x):
        def body(i, out):
            out[i] = np.sin(x[i]) + out[i - 1]
            return out

        return np.sum(wl.fori_loop(1, 9, body, x * 0.0))

    for g in (f, wl.grad(f)):
        copied = {}
        for n in (10**3, 10**6):
            x = np.linspace(0, 1, n)
            compiled = wl.jit(g).inspect(x)
            copied[n] = [bytes for _, bytes in copies_inside_loops(compiled.plan.steps) if bytes > 64]
        assert copied == {10**3: [], 10**6: []}


def copies_inside_loops(steps, inside=False):
    """(step, bytes) of every copy in a loop's body."""
    for step in steps:
        if type(step).__name__ == "Copy" and inside:
            yield step, step.size
        for name in ("body", "condition"):
            yield from copies_inside_loops(getattr(step, name, None) or [], True)
        for body in getattr(step, "bodies", []):
            yield from copies_inside_loops(body, inside)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda: wl.scan(lambda c, x: c, 0.0, np.ones(3)), "must return a pair"),
        (lambda: wl.scan(lambda c, x: (c, x), 0.0), "give xs to loop over, or length"),
        (lambda: wl.scan(lambda c, x: (c, x), 0.0, (np.ones(3), np.ones(4))), "4 slices along axis 0, expected 3"),
        (lambda: wl.scan(lambda c, x: (np.ones(2), x), np.ones(3), np.ones(3)), r"comes in as f64\[3\] and leaves"),
        (lambda: wl.while_loop(lambda c: c, lambda c: c + 1, 0.0), "must return one bool"),
        (lambda: wl.cond(np.ones(3) > 0, np.sin, np.cos, 1.0), "np.where"),
        (lambda: wl.cond(True, lambda x: x, lambda x: (x, x), 1.0), "same structure"),
        (lambda: wl.switch(0.5, [np.sin], 1.0), "integer scalar"),
        (lambda: wl.fori_loop(0.0, 3, lambda i, c: c, 1.0), "bounds are integer scalars"),
    ],
)
def test_errors_name_what_is_wrong(f, message):
    with pytest.raises(wl.ArgumentError, match=message):
        f()
