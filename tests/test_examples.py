"""The notes' worked examples on derivatives and tensors, with the numbers they print, corrected where they slip.

A are the LINMA2472 notes, D the notes on machine learning, E the book of the differentiable wonderland.
"""

import warnings

import numpy as np
import pytest

import wonderland as wl

pytestmark = pytest.mark.optimised

rng = np.random.default_rng(3)


@pytest.fixture(params=["eager", "jitted"])
def run(request):
    return (lambda f: f) if request.param == "eager" else wl.jit


# A1: derivatives -----------------------------------------------------------------------------------------------------


def test_a_1_9_forward_mode_of_x_plus_x_squared(run):
    """A1.9: at x = 3 the tangents are t0 = 1, t1 = 1, t2 = 6, t3 = 7."""
    trace = lambda x: (x, x, x**2, x + x**2)
    values, tangents = run(lambda x: wl.jvp(trace, (x,), (1.0,)))(3.0)
    assert values == (3, 3, 9, 12) and tangents == (1, 1, 6, 7)


def test_a_1_10_to_1_12_reverse_mode_of_x_plus_x_squared(run):
    """A1.10-1.12: the adjoints of s1 and s2 are 1, and that of x accumulates 1 + 6 = 7."""
    assert run(wl.grad(lambda x: x + x**2))(3.0) == 7
    assert run(wl.grad(lambda s1, s2: s1 + s2, (0, 1)))(3.0, 9.0) == (1, 1)
    rows = wl.explain(lambda x: x + x**2, 3.0).rows
    assert [(r.tangent, r.adjoint) for r in rows] == [(1, 7), (1, 1), (6, 1), (7, 1)]


def test_a_1_4_the_graph_of_x_plus_x_squared():
    """A1.4.1: a graph of two operations, the second of which x reaches on two ways."""
    program = wl.trace(lambda x: x + x**2)(np.float64(3.0))
    assert [e.primitive.name for e in program.equations] == ["pow", "add"]
    assert program.inputs[0] in program.equations[0].inputs and program.inputs[0] in program.equations[1].inputs


def test_a_1_13_and_1_14_columns_and_rows(run):
    """A1.5: J has a row per output and a column per input (D2.2.2 swaps the words): JVPs are columns, VJPs rows."""

    def f(x):
        return np.stack([x[0] * x[1], np.sin(x[2]), x[0] ** 2 * x[2], x[1]])

    x = np.array([0.5, -1.5, 2.0])
    expected = [[-1.5, 0.5, 0], [0, 0, np.cos(2.0)], [2 * 0.5 * 2.0, 0, 0.25], [0, 1, 0]]
    columns = [run(lambda x, v: wl.jvp(f, (x,), (v,))[1])(x, e) for e in np.eye(3)]
    rows = [run(lambda x, v: wl.vjp(f, x)[1](v)[0])(x, e) for e in np.eye(4)]
    np.testing.assert_allclose(np.stack(columns, axis=1), expected, rtol=1e-15)
    np.testing.assert_allclose(np.stack(rows), expected, rtol=1e-15)
    for mode in ("forward", "reverse", "auto"):
        np.testing.assert_allclose(run(wl.jacobian(f, mode=mode))(x), expected, rtol=1e-15)


def inner_layer(x):
    return np.stack([np.sin(x[0]) * x[1], x[0] ** 2 + x[1] ** 3])


def outer_layer(s):
    return np.exp(0.3 * s[0]) * s[1] ** 2


X = np.array([0.4, -0.7])
U, V = np.array([0.2, 1.0]), np.array([-0.5, 0.3])


def chain_hessian():
    """H = J1' H2 J1 + sum_k (dg/ds_k) H1_k of outer(inner(x)), all of it by hand."""
    s0, s1 = inner_layer(X)
    e = np.exp(0.3 * s0)
    jacobian = np.array([[np.cos(X[0]) * X[1], np.sin(X[0])], [2 * X[0], 3 * X[1] ** 2]])
    gradient = np.array([0.3 * e * s1**2, 2 * e * s1])
    second = np.array([[0.09 * e * s1**2, 0.6 * e * s1], [0.6 * e * s1, 2 * e]])
    curvatures = [
        np.array([[-np.sin(X[0]) * X[1], np.cos(X[0])], [np.cos(X[0]), 0]]),
        np.array([[2, 0], [0, 6 * X[1]]]),
    ]
    hessian = jacobian.T @ second @ jacobian + sum(g * c for g, c in zip(gradient, curvatures))
    return jacobian.T @ gradient, hessian, jacobian, second


def composed(x):
    return outer_layer(inner_layer(x))


def test_a_1_17_the_second_layer_needs_the_derivative_of_the_first_ones_output():
    """A1.17-1.18 corrected: H_kj is the derivative of J_k along ds_{k-1}/dx_j, not along J_{k-1}."""
    _, _, jacobian, second = chain_hessian()
    for j in range(2):
        s, ds = wl.jvp(inner_layer, (X,), (np.eye(2)[j],))
        np.testing.assert_allclose(ds, jacobian[:, j], rtol=1e-14)
        found = wl.jvp(wl.grad(outer_layer), (s,), (ds,))[1]
        np.testing.assert_allclose(found, second @ jacobian[:, j], rtol=1e-13)


def test_a_1_22_dual_numbers_of_dual_numbers(run):
    """A1.22-1.23: forward on forward carries value, both first derivatives and the mixed second one."""
    gradient, hessian, _, _ = chain_hessian()
    dual = lambda x: wl.jvp(composed, (x,), (V,))
    (value, along_v), (along_u, mixed) = run(lambda x: wl.jvp(dual, (x,), (U,)))(X)
    expected = [composed(X), gradient @ V, gradient @ U, U @ hessian @ V]
    np.testing.assert_allclose([value, along_v, along_u, mixed], expected, rtol=1e-13)


def test_a_1_30_forward_on_reverse_gives_the_gradient_and_its_tangent(run):
    """A1.30 corrected: of the dual adjoint, the first component is the gradient, the second carries the second order.

    A1.36-1.41, called reverse on reverse there, is this as well.
    """
    gradient, hessian, _, _ = chain_hessian()
    first, second = run(lambda x: wl.jvp(wl.grad(composed), (x,), (V,)))(X)
    np.testing.assert_allclose(first, gradient, rtol=1e-13)
    np.testing.assert_allclose(second, hessian @ V, rtol=1e-13)


def test_b_1_26_reverse_on_reverse_and_reverse_on_forward(run):
    _, hessian, _, _ = chain_hessian()
    np.testing.assert_allclose(run(wl.grad(lambda x: wl.grad(composed)(x) @ V))(X), hessian @ V, rtol=1e-13)
    np.testing.assert_allclose(run(wl.grad(lambda x: wl.jvp(composed, (x,), (V,))[1]))(X), hessian @ V, rtol=1e-13)
    np.testing.assert_allclose(run(wl.jacobian(wl.grad(composed)))(X), hessian, rtol=1e-13)


@pytest.mark.parametrize(
    "strategy", ["forward_over_forward", "forward_over_reverse", "reverse_over_forward", "reverse_over_reverse"]
)
def test_a_1_7_the_strategies_by_name(run, strategy):
    """A1.16, 1.22, 1.24, 1.27, 1.32 and B1.26: the Hessian of the chain by each strategy; tables 1.1 and 1.3."""
    _, hessian, _, _ = chain_hessian()
    np.testing.assert_allclose(run(wl.hessian(composed, strategy=strategy))(X), hessian, rtol=1e-13)
    np.testing.assert_allclose(run(lambda x: wl.hvp(composed, (x,), (V,), strategy))(X), hessian @ V, rtol=1e-13)
    np.testing.assert_allclose(run(lambda x: wl.vhp(composed, (x,), (U,), strategy))(X), U @ hessian, rtol=1e-13)
    mixed = run(lambda x: wl.second_directional(composed, x, V, U, strategy))(X)
    np.testing.assert_allclose(mixed, U @ hessian @ V, rtol=1e-13)


# E2: tensors and gradients -------------------------------------------------------------------------------------------


def test_e_2_1_inner_product(run):
    """E2.1: <(.1, 0, -.3), (-4, .05, .1)> = -0.43; its derivative with respect to one argument is the other."""
    x, y = np.array([0.1, 0.0, -0.3]), np.array([-4.0, 0.05, 0.1])
    for product in (np.dot, np.inner, np.vdot, lambda x, y: np.sum(x * y), lambda x, y: np.einsum("i,i->", x, y)):
        np.testing.assert_allclose(run(product)(x, y), -0.43, rtol=1e-15)
        np.testing.assert_array_equal(run(wl.grad(product))(x, y), y)


def test_d_2_1_2_the_hadamard_product_is_linear_in_each_argument(run):
    x, y, v = rng.normal(size=(3, 4))
    for argument in (0, 1):
        moved = (x, v) if argument else (v, y)
        pushed = run(lambda x, y, v, a=argument: wl.jvp(np.multiply, (x, y), (v, None) if a == 0 else (None, v))[1])
        np.testing.assert_array_equal(pushed(x, y, v), np.multiply(*moved))


def test_e_2_1_broadcasting_trap(run):
    """E2.1, D4.1.4: (4, 1) + (4,) has shape (4, 4), where a vector was meant; we warn if asked to."""
    column, vector = rng.normal(size=(4, 1)), rng.normal(size=4)
    assert (column + vector).shape == (4, 4)
    loss = lambda predictions, labels: np.mean((predictions - labels) ** 2)
    with (
        wl.warn_on_broadcast(),
        pytest.warns(wl.BroadcastWarning, match=r"\(4, 1\) and \(4,\).*test_examples\.py.*\(4, 4\)"),
    ):
        assert run(wl.grad(loss))(column, vector).shape == (4, 1)
    with wl.warn_on_broadcast(), warnings.catch_warnings():
        warnings.simplefilter("error")
        right = run(wl.grad(loss))(column[:, 0], vector)
    np.testing.assert_allclose(right, (column[:, 0] - vector) / 2, rtol=1e-14)


def test_e_2_4_einsum(run):
    """Boxes C.2.4 and C.2.5: a batched product, a generalised dot product, and a product with transposed axes."""
    a, b, c = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4, 5)), rng.normal(size=(2, 5, 4))
    np.testing.assert_allclose(run(lambda a, b: np.einsum("ijz,izk->ijk", a, b))(a, b), a @ b, rtol=1e-13)
    np.testing.assert_allclose(run(lambda a: np.einsum("ijk,ijk->", a, a))(a), np.sum(a * a), rtol=1e-13)
    transposed = np.matmul(a, np.swapaxes(c, 1, 2))
    np.testing.assert_allclose(run(lambda a, c: np.einsum("ijz,ikz->ijk", a, c))(a, c), transposed, rtol=1e-13)
    np.testing.assert_allclose(run(wl.grad(lambda a: np.einsum("ijk,ijk->", a, a)))(a), 2 * a, rtol=1e-13)


def test_e_2_2_first_order_approximation(run):
    """Box C.2.6: x^2 - 1.5 x at 0.5, one step of 0.01: -0.5049 against -0.5050."""
    f = lambda x: x**2 - 1.5 * x
    value, push = wl.linearize(f, 0.5)
    assert round(float(run(f)(0.51)), 4) == -0.5049
    assert round(float(value + push(0.01)), 4) == -0.5050
    assert run(wl.grad(f))(0.5) == -0.5
    assert np.isclose(f(0.51) - (value + push(0.01)), 0.01**2, rtol=1e-10)


def landscape(x):
    """E2's exercise, on [0, 10]^2."""
    return np.sin(x[0]) * np.cos(x[1]) + np.sin(0.5 * x[0]) * np.cos(0.5 * x[1])


def landscape_gradient(x):
    a, b = x[..., 0], x[..., 1]
    return np.stack([
        np.cos(a) * np.cos(b) + 0.5 * np.cos(0.5 * a) * np.cos(0.5 * b),
        -np.sin(a) * np.sin(b) - 0.5 * np.sin(0.5 * a) * np.sin(0.5 * b),
    ], axis=-1)  # fmt: skip


STARTS = np.stack(np.meshgrid(np.linspace(0.5, 9.5, 5), np.linspace(0.5, 9.5, 5)), axis=-1).reshape(-1, 2)


def test_e_2_exercise_vectorised_function_and_gradient(run):
    """Items 1 and 2: vmap of the function of one point, and its gradient, which the exercise writes by hand."""
    by_hand = np.sin(STARTS[:, 0]) * np.cos(STARTS[:, 1]) + np.sin(STARTS[:, 0] / 2) * np.cos(STARTS[:, 1] / 2)
    np.testing.assert_allclose(run(wl.vmap(landscape))(STARTS), by_hand, rtol=0, atol=1e-15)
    found = run(wl.vmap(wl.grad(landscape)))(STARTS)
    np.testing.assert_allclose(found, landscape_gradient(STARTS), rtol=0, atol=2e-15)


@pytest.mark.parametrize("damping", [0.0, 0.6])
def test_e_2_exercise_descent_paths(damping, run):
    """Items 3 and 4: paths from many starts, with and without momentum; the norms of the gradients go to zero."""
    step = 0.3

    def path(start):
        def descend(state, _):
            x, g = state
            g = -step * wl.grad(landscape)(x) + damping * g
            return (x + g, g), x

        return wl.scan(descend, (start, np.zeros_like(start)), length=200)[1]

    paths = run(wl.vmap(path))(STARTS)
    assert paths.shape == (25, 200, 2)
    x, g = STARTS, np.zeros_like(STARTS)  # the same by hand
    for t in range(30):
        np.testing.assert_allclose(paths[:, t], x, rtol=0, atol=1e-9)
        g = -step * landscape_gradient(x) + damping * g
        x = x + g
    norms = np.linalg.norm(landscape_gradient(paths), axis=-1)
    assert np.all(norms[:, -1] < 1e-6)
    values = wl.vmap(landscape)(paths[:, -1])
    assert np.all(values <= wl.vmap(landscape)(STARTS))
    if damping == 0.0:  # every step descends: it is shorter than 2 over the largest curvature
        assert np.all(np.diff(wl.vmap(wl.vmap(landscape))(paths), axis=1) <= 1e-15)
    hessians = wl.vmap(wl.jacobian(wl.grad(landscape)))(paths[:, -1])
    assert np.all(np.linalg.eigvalsh(hessians) > -1e-6)  # minima


# E4 and E6: the sigmoid, layers, kinks -------------------------------------------------------------------------------


def sigmoid(s):
    return 1 / (1 + np.exp(-s))


def test_e_4_2_the_sigmoid_at_zero(run):
    """E4.2: sigma(0) = 1/2. E5 corrected: tanh(s) = 2 sigma(2s) - 1."""
    assert run(sigmoid)(0.0) == 0.5
    s = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(run(lambda s: 2 * sigmoid(2 * s) - 1)(s), np.tanh(s), rtol=0, atol=1e-15)


def test_e_6_1_against_symbolic_differentiation(run):
    """Box C.6.1: SymPy's derivative of a sin x + b x sin x is a cos x + b x cos x + b sin x."""
    f = lambda x, a, b: a * np.sin(x) + b * x * np.sin(x)
    x, a, b = np.linspace(-4, 4, 9), 1.3, -0.7
    found = run(wl.vmap(wl.grad(f), (0, None, None)))(x, a, b)
    np.testing.assert_allclose(found, a * np.cos(x) + b * x * np.cos(x) + b * np.sin(x), rtol=1e-13, atol=1e-14)
    sines = wl.trace(wl.value_and_grad(f))(1.0, a, b)
    assert sum(e.primitive.name == "sin" for e in wl.jit(wl.grad(f)).inspect(1.0, a, b).program.equations) == 1
    assert sum(e.primitive.name == "cos" for e in sines.equations) <= 2


def test_e_6_1_jacobians_of_a_batched_layer(run):
    """E6.1: X (n, c), W (c, c'): the input Jacobian is (n, c', n, c), the weight Jacobian (n, c', c, c')."""
    n, c, c_out = 4, 3, 2
    x, w, b = rng.normal(size=(n, c)), rng.normal(size=(c, c_out)), rng.normal(size=c_out)
    layer = lambda x, w, b: np.tanh(x @ w + b)
    slope = 1 - np.tanh(x @ w + b) ** 2  # (n, c')
    by_x, by_w, by_b = run(wl.jacobian(layer, (0, 1, 2)))(x, w, b)
    assert by_x.shape == (n, c_out, n, c) and by_w.shape == (n, c_out, c, c_out)
    np.testing.assert_allclose(by_x, np.einsum("ij,ik,lj->ijkl", slope, np.eye(n), w), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(by_w, np.einsum("ij,ik,jl->ijkl", slope, x, np.eye(c_out)), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(by_b, np.einsum("ij,jk->ijk", slope, np.eye(c_out)), rtol=1e-13, atol=1e-15)
    assert w.size + b.size == (c + 1) * c_out  # E5 corrected


def test_e_6_9_vjps_of_a_layer(run):
    """E.6.9 corrected: v'W = [W'v]'; and E.6.10: the weights' VJP is the outer product v x'."""
    w, x, v = rng.normal(size=(3, 2)), rng.normal(size=2), rng.normal(size=3)
    by_w, by_x = run(lambda w, x, v: wl.vjp(lambda w, x: w @ x, w, x)[1](v))(w, x, v)
    np.testing.assert_allclose(by_x, w.T @ v, rtol=1e-14)
    np.testing.assert_allclose(by_w, np.outer(v, x), rtol=1e-14)


def test_e_6_4_2_a_primitive_of_ones_own():
    """E6.4.2 (the call is jax.vjp): rules of one's own agree with the derived ones, to second order."""

    @wl.custom_jvp
    def softplus(s):
        return np.logaddexp(s, 0.0)

    @softplus.defjvp
    def rule(primals, tangents):
        (s,), (t,) = primals, tangents
        return softplus(s), t * sigmoid(s)

    @wl.custom_vjp
    def layer(w, x):
        return w @ x

    layer.defvjp(lambda w, x: (w @ x, (w, x)), lambda kept, v: (np.outer(v, kept[1]), kept[0].T @ v))
    w, x = rng.normal(size=(3, 2)), rng.normal(size=2)
    wl.testing.check_grads(lambda s: np.sum(softplus(s) ** 2), (x,), order=2)
    wl.testing.check_grads(lambda w, x: np.sum(np.sin(layer(w, x))), (w, x), order=1, modes=("reverse",))


def test_e_6_4_3_the_slope_of_the_sigmoid(run):
    """E6.4.3: sigma' = sigma (1 - sigma) is at most 0.25, and is that at 0."""
    s = np.linspace(-30, 30, 1001)
    slopes = run(wl.vmap(wl.grad(sigmoid)))(s)
    np.testing.assert_allclose(slopes, sigmoid(s) * sigmoid(-s), rtol=1e-9)
    assert np.max(slopes) == 0.25 == run(wl.grad(sigmoid))(0.0)


def test_e_6_4_4_three_relus(run):
    """E6.4.4, the footnote: equal functions, whose derivatives at 0 are 0, 1 and 0.5."""

    def relu(s):
        return np.where(s > 0, s, 0.0)

    def relu2(s):
        return relu(-s) + s

    def relu3(s):
        return 0.5 * (relu(s) + relu2(s))

    s = np.array([-1.5, 0.0, 2.0])
    for f, at_zero in ((relu, 0.0), (relu2, 1.0), (relu3, 0.5)):
        np.testing.assert_array_equal(run(f)(s), [0, 0, 2])
        np.testing.assert_array_equal(run(wl.vmap(wl.grad(f)))(s), [0, at_zero, 1])
        assert run(lambda s, f=f: wl.jvp(f, (s,), (1.0,))[1])(0.0) == at_zero


def test_e_6_4_4_subgradients_of_abs_max_and_maximum(run):
    """Any value between the one-sided derivatives is a subgradient; ours are in the middle, and ties share."""
    assert run(wl.grad(np.abs))(0.0) == 0
    assert run(wl.grad(lambda s: np.maximum(s, 0.0)))(0.0) == 0.5
    np.testing.assert_array_equal(run(wl.grad(np.max))(np.array([1.0, 3.0, 3.0])), [0, 0.5, 0.5])
    # Subgradient descent on |x| + |y - 1|, with steps 1/t: it stays within the last step of the minimum.
    f = lambda x: np.sum(np.abs(x - np.array([0.0, 1.0])))
    descend = lambda t, x: x - wl.grad(f)(x) / (t + 1.0)
    final = run(lambda x: wl.fori_loop(0, 200, descend, x))(np.array([2.0, -1.0]))
    np.testing.assert_allclose(final, [0, 1], atol=0.02)
