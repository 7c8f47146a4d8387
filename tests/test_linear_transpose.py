"""`linear_transpose` and `closure_convert`."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg

import wonderland as wl

RNG = np.random.default_rng(5)
A = RNG.standard_normal((3, 4))
S = RNG.standard_normal((4, 4)) + 4.0 * np.eye(4)
MASK = np.array([True, False, True, True])


def matrix_of(f, size, dtype=float):
    """The matrix of a linear function of a vector, column by column."""
    return np.stack([np.ravel(f(e)) for e in np.eye(size, dtype=dtype)], axis=1)


def filled(x):
    out = wl.numpy.zeros(6)
    out[1:5] = x
    out[0] += x[2]
    return out


def powers(x):
    return wl.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, S @ s[1]), (0, x))[1]


LINEAR = {
    "product": lambda x: A @ x,
    "sum and parts": lambda x: np.stack([np.sum(x), x[1] - 2.0 * x[3], np.mean(x[::2])]),
    "zeros": lambda x: np.concatenate([x, np.zeros(2), np.where(MASK, x, 0.0)]),
    "written": filled,
    "cumsum": lambda x: np.cumsum(x[::-1]),
    "solve": lambda x: np.linalg.solve(S, x),
    "triangle": wl.lift(lambda x: scipy.linalg.solve_triangular(S, x)),
    "gather": lambda x: x[np.array([3, 0, 0])],
    "convolution": lambda x: np.convolve(x, np.array([1.0, -2.0, 0.5])),
    "jit": wl.jit(lambda x: A @ x),
    "vmap": lambda x: wl.vmap(lambda row: row @ np.reshape(x, (2, 2)))(np.arange(6.0).reshape(3, 2)),
    "checkpoint": wl.checkpoint(lambda x: S @ (S @ x)),
    "cond": lambda x: wl.cond(A[0, 0] > 9.0, lambda x: x, lambda x: -2.0 * x, x),
    "scan": lambda x: wl.scan(lambda c, m: (c * m, np.sum(c)), x, np.arange(1.0, 4.0))[1],
    "fori_loop": lambda x: wl.fori_loop(0, 3, lambda i, c: S @ c * i + c, x),
    "while_loop": powers,
    "functions of zeros": lambda x: wl.fori_loop(
        0, 3, lambda i, c: (c[0] + x + np.hypot(np.tanh(c[1]), c[1]), c[1]), (np.zeros(4), np.zeros(4))
    )[0],
    "from zero": lambda x: wl.fori_loop(0, 3, lambda i, c: c + x * i, np.zeros(4)),
    "a tangent's": lambda t: wl.jvp(np.tanh, (np.arange(4.0),), (t,))[1],
    "a cotangent's": lambda ct: wl.vjp(lambda x: np.tanh(x), np.arange(4.0))[1](ct)[0],
    "nothing": lambda x: 0.0 * x,
}


@pytest.mark.parametrize("name", LINEAR)
def test_the_matrix_of_the_transpose_is_the_transposed_matrix(name):
    f = LINEAR[name]
    x = np.zeros(4)
    forward = matrix_of(f, 4)
    backward = wl.linear_transpose(f, x)
    out = np.asarray(f(x))
    back = matrix_of(lambda e: backward(e.reshape(out.shape))[0], out.size)
    np.testing.assert_allclose(back, forward.T, rtol=1e-12, atol=1e-12)
    ct = RNG.standard_normal(out.shape)
    np.testing.assert_allclose(wl.vmap(backward)(np.stack([ct, 2 * ct]))[0][1], 2 * backward(ct)[0], rtol=1e-12)


def test_under_jit_and_as_a_function_of_what_it_captures():
    ct = np.array([1.0, -2.0, 0.5])

    def f(matrix):
        (back,) = wl.linear_transpose(lambda x: matrix @ x, np.zeros(4))(ct)
        return np.sum(back**2)

    expected = 2.0 * np.outer(ct, A.T @ ct)
    np.testing.assert_allclose(wl.grad(f)(A), expected, rtol=1e-12)
    np.testing.assert_allclose(wl.jit(wl.grad(f))(A), expected, rtol=1e-12)
    np.testing.assert_allclose(wl.vmap(f)(np.stack([A, 2.0 * A])), [f(A), 4.0 * f(A)], rtol=1e-12)
    twice = wl.linear_transpose(lambda c: wl.linear_transpose(lambda x: A @ x, np.zeros(4))(c)[0], ct)
    np.testing.assert_allclose(twice(np.arange(4.0))[0], A @ np.arange(4.0), rtol=1e-12)


def test_trees_types_and_dtypes():
    def f(parts, z):
        return {"a": 2.0 * parts["a"], "b": np.sum(parts["b"]) + z[1]}

    types = {"a": np.zeros((2, 0)), "b": SimpleNamespace(shape=(3,), dtype=np.float32)}, np.zeros(2)
    parts, z = wl.linear_transpose(f, *types)({"a": np.zeros((2, 0)), "b": 3.0})
    assert parts["a"].shape == (2, 0) and parts["b"].dtype == np.float32
    np.testing.assert_array_equal(parts["b"], np.full(3, 3.0))
    np.testing.assert_array_equal(z, [0.0, 3.0])
    assert wl.linear_transpose(lambda x: 3.0 * x, 1.0)(2.0) == (6.0,)


def test_complex_numbers_have_the_real_inner_product():
    """<w, A z> = <A^T w, z> with Re(conj(a) b): of a holomorphic function, the conjugate transpose."""
    m = A + 1j * RNG.standard_normal(A.shape)
    w, z = m @ np.ones(4), RNG.standard_normal(4) + 1j * RNG.standard_normal(4)
    for f in (lambda z: m @ z, lambda z: np.conj(m @ z), lambda z: (m @ z).real + 0j, lambda z: np.fft.fft(z)[:3]):
        (back,) = wl.linear_transpose(f, z)(w)
        np.testing.assert_allclose(np.sum(np.conj(w) * f(z)).real, np.sum(np.conj(back) * z).real, rtol=1e-12)
    np.testing.assert_allclose(wl.linear_transpose(lambda z: m @ z, z)(w)[0], m.conj().T @ w, rtol=1e-12)


@pytest.mark.parametrize("writeable", [True, False])
def test_what_it_captures_has_the_value_of_that_time(writeable):
    matrix = A.copy()
    view = matrix[:]
    view.flags.writeable = writeable
    backward = wl.linear_transpose(lambda x: view @ x, np.zeros(4))
    matrix *= 10.0
    np.testing.assert_allclose(backward(np.ones(3))[0], A.T @ np.ones(3))


NOT_LINEAR = {
    "it uses sin": np.sin,
    "it uses gt": lambda x: np.where(x > 0, x, 0.0),
    "it uses div": lambda x: 1.0 / x,
    r"it adds or joins a value that isn't zero \(add\)": lambda x: wl.fori_loop(0, 3, lambda i, c: c + x, np.ones(4)),
    r"it adds or joins a value that isn't zero \(sub\)": lambda x: x - 1.0,
    r"it adds or joins a value that isn't zero \(scatter_slice\)": lambda x: np.concatenate([x, np.ones(2)]),
    r"it adds or joins a value that isn't zero \(where\)": lambda x: np.where(MASK, x, 1.0),
    r"it adds or joins a value that isn't zero \(cond\)": lambda x: wl.cond(
        A[0, 0] > 0, lambda x: x, lambda x: np.ones(4), x
    ),
    "it adds or joins a value that isn't zero .add.": lambda x: wl.fori_loop(
        0, 3, lambda i, c: (c[0] + np.maximum(c[1], 1.0), c[1]), (x, np.zeros(4))
    )[0],
    r"it multiplies two values that depend on the input \(mul\)": lambda x: x * x,
    r"it multiplies two values that depend on the input \(dot\)": lambda x: x @ x,
    r"it makes integers \(convert\)": lambda x: x.astype(int),
    r"it ends a loop by a value that depends on the input": lambda x: wl.while_loop(
        lambda c: np.sum(c) < 3.0, lambda c: 2.0 * c, x
    ),
    "it uses tanh": lambda x: wl.jit(np.tanh)(wl.checkpoint(lambda x: 2.0 * x)(x)),
    r"a result, f64\[2\], is constant": lambda x: (x, np.ones(2)),
}


@pytest.mark.parametrize("why", NOT_LINEAR)
def test_what_is_not_linear_is_refused(why):
    with pytest.raises(wl.ArgumentError, match=f"isn't linear in its argument: {why}"):
        wl.linear_transpose(NOT_LINEAR[why], np.ones(4))


def test_wrong_arguments():
    backward = wl.linear_transpose(lambda x: A @ x, np.zeros(4))
    for call, why in (
        (lambda: backward(np.ones(4)), r"has shape \(4,\), expected \(3,\)"),
        (lambda: backward((np.ones(3),)), r"structure \(array,\)"),
        (lambda: wl.linear_transpose(lambda x: A @ x, np.zeros(4, int)), r"i64\[4\]: a function of integers"),
        (lambda: wl.linear_transpose(lambda x: A @ x, "a vector"), "got str"),
        (lambda: wl.linear_transpose(A, np.zeros(4)), "linear_transpose takes a function, not ndarray"),
    ):
        with pytest.raises(wl.ArgumentError, match=why):
            call()


# closure_convert ------------------------------------------------------------------------------------------------------


def root(f, guess):
    """The root of f, by the implicit function theorem also with respect to what f closes over."""
    g, captured = wl.closure_convert(f, guess)

    def newton(guess, *captured):
        h = lambda x: g(x, *captured)
        return wl.fori_loop(0, 30, lambda _, x: x - h(x) / wl.grad(h)(x), guess)

    solve = wl.custom_vjp(newton)

    def backward(residuals, ct):
        x, captured = residuals
        _, pull = wl.vjp(g, x, *captured)
        slope = pull(1.0)[0]
        return (None, *pull(-ct / slope)[1:])

    def forward(*args):
        x = solve(*args)
        return x, (x, args[1:])

    solve.defvjp(forward, backward)
    return solve(guess, *captured)


def test_a_solver_differentiates_what_the_equation_closes_over():
    def f(a, b):
        return root(lambda x: x * x * a - b, 1.0)  # sqrt(b / a)

    value, slopes = wl.value_and_grad(f, (0, 1))(2.0, 5.0)
    x = np.sqrt(2.5)
    np.testing.assert_allclose(value, x, rtol=1e-12)
    np.testing.assert_allclose(slopes, [-x / 4.0, x / 10.0], rtol=1e-12)
    np.testing.assert_allclose(wl.jit(wl.grad(f, (0, 1)))(2.0, 5.0), slopes, rtol=1e-12)
    np.testing.assert_allclose(wl.grad(wl.jit(f), 1)(2.0, 5.0), slopes[1], rtol=1e-12)
    rows = wl.vmap(wl.grad(f, (0, 1)))(np.array([2.0, 1.0]), np.array([5.0, 2.5]))
    np.testing.assert_allclose(rows[1], [x / 10.0, x / 5.0], rtol=1e-12)
    np.testing.assert_allclose(wl.grad(wl.grad(f, 1), 1)(2.0, 5.0), -x / 100.0, rtol=1e-11)


def test_only_traced_values_become_arguments():
    def f(c):
        g, captured = wl.closure_convert(lambda x, y: {"s": np.sum(A) * x * c + y}, 1.0, np.ones(2))
        assert len(captured) == 1
        return np.sum(g(3.0, np.ones(2), *captured)["s"] + g(3.0, np.ones(2), 2.0 * captured[0])["s"])

    np.testing.assert_allclose(wl.grad(f)(0.5), 2 * 9.0 * np.sum(A), rtol=1e-12)
    g, captured = wl.closure_convert(np.sin, 1.0)
    assert captured == [] and g(2.0) == np.sin(2.0)


def test_wrong_uses_of_closure_convert():
    @wl.register_mutable
    class Counter:
        def __init__(self):
            self.n = np.zeros(())

    def counted(counter, x):
        counter.n = counter.n + 1.0
        return x

    g, _ = wl.closure_convert(np.sin, np.zeros(3))
    for call, error, why in (
        (lambda: g(np.zeros(2)), wl.ArgumentError, r"converted for f64\[3\] as argument leaf 0, got f64\[2\]"),
        (lambda: g(np.zeros(3, np.float32)), wl.ArgumentError, r"got f32\[3\]"),
        (lambda: g(np.zeros(3), 1.0), wl.ArgumentError, "takes 1 arguments and the 0 captured values, got 2"),
        (lambda: g((np.zeros(3),)), wl.ArgumentError, r"got \(\(array,\),\)"),
        (lambda: wl.closure_convert(2.0), wl.ArgumentError, "closure_convert takes a function, not float"),
        (lambda: wl.closure_convert(counted, Counter(), 1.0), wl.MutationError, "counted writes to an argument"),
    ):
        with pytest.raises(error, match=why):
            call()
