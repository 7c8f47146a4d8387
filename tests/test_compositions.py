"""Compositions of transformations on realistic functions, eager and jitted, against oracles that aren't ours.

The oracles: a reference written as plainly as possible and differentiated by the complex step (exact to rounding), by
central differences of that for higher orders; closed forms; SciPy's ODE solver on the variational equations.
"""

import functools

import models
import numpy as np
import pytest
from models import ARGUMENTS, python_scan, python_while
from scipy.integrate import solve_ivp

import wonderland as wl
from wonderland.core import tree
from wonderland.core.primitive import registry
from wonderland.ops.elementwise import elementwise

# The references, for complex arguments too ---------------------------------------------------------------------------


def gaussian_process(log_scales, x, y):
    """The log-likelihood by solve and determinant, which (unlike Cholesky's factor) are analytic."""
    length, amplitude, noise = np.exp(log_scales)
    kernel = amplitude**2 * np.exp(-0.5 * ((x[:, None] - x[None, :]) / length) ** 2) + noise**2 * np.eye(len(x))
    fit = y @ np.linalg.solve(kernel, y)
    return -0.5 * fit - 0.5 * np.log(np.linalg.det(kernel)) - 0.5 * len(x) * np.log(2 * np.pi)


def fft_filter(params, signal, target):
    """The circular convolution with the filter's impulse response, a sum of cosines."""
    cutoff, delay = params
    n = len(signal)
    k = np.arange(n // 2 + 1)
    gain = 1 / (1 + (k / n / cutoff) ** 4)
    multiplicity = np.where((k == 0) | (2 * k == n), 1, 2)
    # irfft takes the real part of the last coefficient, which belongs to the highest frequency of an even n.
    lag = np.subtract.outer(np.arange(n), np.arange(n))
    angle = 2 * np.pi * lag[..., None] * k / n
    shift = 2 * np.pi * k / n * delay
    shifted = np.where(2 * k == n, np.cos(angle) * np.cos(shift), np.cos(angle - shift))
    return 0.5 * np.sum(((shifted @ (multiplicity * gain) / n) @ signal - target) ** 2)


def softmax_classifier(params, x, labels):
    weights, bias = params
    logits = x @ weights + bias
    log_sum = np.log(np.sum(np.exp(logits), axis=1))
    return np.mean(log_sum - np.sum(logits * labels, axis=1)) + 0.05 * np.sum(weights**2)


MODELS = {
    "gru": (models.gru(np, wl.scan), models.gru(np, python_scan)),
    "gaussian_process": (models.gaussian_process(np), gaussian_process),
    "fft_filter": (models.fft_filter(np), fft_filter),
    "softmax_classifier": (models.softmax_classifier(np), softmax_classifier),
    "hierarchical_rnn": (models.hierarchical_rnn(np, wl.scan), models.hierarchical_rnn(np, python_scan)),
}


class Model:
    """A function of parameters and data, and its exact derivatives with respect to the parameters."""

    def __init__(self, name):
        self.f, self.reference = MODELS[name]
        self.params, *self.data = ARGUMENTS[name]
        rng = np.random.default_rng(5)
        leaves, self.structure = tree.flatten(self.params)
        self.shapes = [np.shape(leaf) for leaf in leaves]
        self.u, self.v, self.w = (
            self.structure.unflatten([rng.uniform(-1, 1, s) for s in self.shapes]) for _ in range(3)
        )
        *inputs, targets = self.data  # labels stay labels
        self.batch = [np.stack([d, 0.9 * d, 1.1 * d]) for d in inputs]
        self.batch.append(np.stack([np.roll(targets, i, axis=0) for i in range(3)]))

    def moved(self, *steps):
        """The parameters, shifted by multiples of directions."""
        params = self.params
        for h, direction in steps:
            params = tree.tree_map(lambda p, t, h=h: p + h * t, params, direction)
        return params

    def slope(self, direction, *steps, data=None):
        """The derivative along a direction by the complex step, at shifted parameters."""
        params = self.moved(*steps, (1e-30j, direction))
        return self.reference(params, *(self.data if data is None else data)).imag / 1e-30

    def gradient(self, *steps, data=None):
        leaves = []
        for k, shape in enumerate(self.shapes):
            values = np.zeros(shape)
            for place in np.ndindex(shape):
                unit = [np.zeros(s) for s in self.shapes]
                unit[k][place] = 1.0
                values[place] = self.slope(self.structure.unflatten(unit), *steps, data=data)
            leaves.append(values)
        return self.structure.unflatten(leaves)

    def hessian_times(self, direction):
        """Central differences (with Richardson's extrapolation) of the gradient."""
        return difference(lambda h: self.gradient((h, direction)))

    def third(self):
        """The third derivative along u, v, w."""
        return difference(lambda h: difference(lambda k: self.slope(self.w, (h, self.u), (k, self.v))))


def difference(f, h=2.0**-8):
    """f'(0) to order h^6 by central differences."""
    central = [tree.tree_map(lambda p, m, s=s: (p - m) / (2 * s), f(s), f(-s)) for s in (h, h / 2, h / 4)]
    first = [tree.tree_map(lambda a, b: (4 * b - a) / 3, *pair) for pair in (central[:2], central[1:])]
    return tree.tree_map(lambda a, b: (16 * b - a) / 15, *first)


def inner(a, b):
    return sum(np.sum(x * y) for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True))


def close(actual, expected, rtol=1e-11):
    """Every leaf agrees, relative to its largest number; and is an array or number of float64."""
    found, wanted = tree.leaves(actual), tree.leaves(expected)
    assert tree.flatten(actual)[1] == tree.flatten(expected)[1]
    for a, b in zip(found, wanted, strict=True):
        assert np.result_type(a) == np.float64 and np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(np.max(np.abs(b)), 1e-2))


@pytest.fixture(params=MODELS)
def model(request):
    return functools.cache(Model)(request.param)


@pytest.fixture(params=["eager", "jitted"])
def run(request):
    return (lambda f: f) if request.param == "eager" else wl.jit


def nestings(f, direction):
    """Hessian times direction by every nesting that gives it as a tree."""
    along = lambda p, *data: wl.jvp(lambda q: f(q, *data), (p,), (direction,))[1]
    dotted = lambda p, *data: inner(wl.grad(f)(p, *data), direction)
    return {
        "jvp(grad)": lambda p, *data: wl.jvp(lambda q: wl.grad(f)(q, *data), (p,), (direction,))[1],
        "grad(jvp)": wl.grad(along),
        "grad(grad)": wl.grad(dotted),
    }


# All of them ---------------------------------------------------------------------------------------------------------


def test_gradient(model, run):
    value, gradient = run(wl.value_and_grad(model.f))(model.params, *model.data)
    np.testing.assert_allclose(value, model.reference(model.params, *model.data), rtol=1e-12)
    close(gradient, model.gradient())


@pytest.mark.parametrize("nesting", ["jvp(grad)", "grad(jvp)", "grad(grad)"])
def test_second_order(model, nesting):
    hessian_times = nestings(model.f, model.v)[nesting]
    close(hessian_times(model.params, *model.data), model.hessian_times(model.v), 1e-9)


def test_second_order_jitted(model):
    found = wl.jit(nestings(model.f, model.v)["jvp(grad)"])(model.params, *model.data)
    close(found, model.hessian_times(model.v), 1e-9)


def test_forward_over_forward_over_reverse(model):
    """Third derivatives: jvp(jvp(grad)) and grad(jvp(jvp)), against differences of differences of the complex step."""

    def second(p):
        first = lambda q: wl.jvp(lambda r: model.f(r, *model.data), (q,), (model.u,))[1]
        return wl.jvp(first, (p,), (model.v,))[1]

    def curvature(p):
        gradient = lambda q: wl.grad(model.f)(q, *model.data)
        return wl.jvp(gradient, (p,), (model.u,))[1]

    expected = model.third()
    close(inner(wl.grad(second)(model.params), model.w), expected, 1e-7)
    close(inner(wl.jvp(curvature, (model.params,), (model.v,))[1], model.w), expected, 1e-7)


def test_vmap_of_grad_and_grad_of_vmap(model, run):
    axes = (None, *[0] * len(model.data))
    rows = [model.gradient(data=[d[i] for d in model.batch]) for i in range(3)]
    expected = tree.tree_map(lambda *leaves: np.stack(leaves), *rows)
    close(run(wl.vmap(wl.grad(model.f), axes))(model.params, *model.batch), expected)
    total = lambda p, *data: np.sum(wl.vmap(model.f, axes)(p, *data))
    close(run(wl.grad(total))(model.params, *model.batch), tree.tree_map(lambda a: np.sum(a, axis=0), expected))


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_jacobian_of_vmap(model, mode):
    losses = wl.vmap(model.f, (None, *[0] * len(model.data)))
    rows = [model.gradient(data=[d[i] for d in model.batch]) for i in range(3)]
    expected = tree.tree_map(lambda *leaves: np.stack(leaves), *rows)
    close(wl.jacobian(losses, mode=mode)(model.params, *model.batch), expected)


def test_vmap_of_second_derivatives(model):
    axes = (None, *[0] * len(model.data))
    found = wl.vmap(nestings(model.f, model.v)["jvp(grad)"], axes)(model.params, *model.batch)
    for i in range(3):
        one = Model.__new__(Model)
        vars(one).update(vars(model), data=[d[i] for d in model.batch])
        close(tree.tree_map(lambda a, i=i: a[i], found), one.hessian_times(model.v), 1e-9)


# Closed forms --------------------------------------------------------------------------------------------------------


def test_gaussian_process_gradient_is_the_trace_formula(run):
    """d/dt log N(y | 0, K(t)) = tr((a a' - K^-1) dK/dt) / 2 with a = K^-1 y (Rasmussen and Williams, 5.9)."""
    log_scales, x, y = ARGUMENTS["gaussian_process"]
    length, amplitude, noise = np.exp(log_scales)
    squares = (x[:, None] - x[None, :]) ** 2
    smooth = amplitude**2 * np.exp(-0.5 * squares / length**2)
    inverse = np.linalg.inv(smooth + noise**2 * np.eye(len(x)))
    weights = inverse @ y
    changes = [smooth * squares / length**2, 2 * smooth, 2 * noise**2 * np.eye(len(x))]
    expected = [0.5 * np.trace((np.outer(weights, weights) - inverse) @ change) for change in changes]
    close(run(wl.grad(models.gaussian_process(np)))(log_scales, x, y), np.array(expected))


def test_filter_gradient_with_respect_to_the_signal_is_the_adjoint_filter(run):
    """The adjoint of a filter with response H is the filter with response conj(H)."""
    params, signal, target = ARGUMENTS["fft_filter"]
    n, frequencies = len(signal), np.arange(len(signal) // 2 + 1) / len(signal)
    response = np.exp(-2j * np.pi * frequencies * params[1]) / (1 + (frequencies / params[0]) ** 4)
    response[-1] = response[-1].real  # irfft ignores the imaginary part of the highest frequency of an even n
    residual = np.fft.irfft(response * np.fft.rfft(signal), n) - target
    expected = np.fft.irfft(np.conj(response) * np.fft.rfft(residual), n)
    f = models.fft_filter(np)
    close(run(wl.grad(f, 1))(params, signal, target), expected)
    close(run(wl.grad(f, 2))(params, signal, target), -residual)


def test_softmax_gradient_and_hessian_are_the_closed_forms(run):
    """Gradient X'(P - Y)/n and Hessian sum_i x_i x_i' (x) (diag p_i - p_i p_i') / n, and the penalty's."""
    (weights, bias), x, labels = ARGUMENTS["softmax_classifier"]
    f = models.softmax_classifier(np)
    scores = np.exp(x @ weights + bias)
    p = scores / scores.sum(axis=1, keepdims=True)
    n, c = len(x), len(bias)
    gradient = (x.T @ (p - labels) / n + 0.1 * weights, np.sum(p - labels, axis=0) / n)
    close(run(wl.grad(f))((weights, bias), x, labels), gradient)
    spread = p[:, :, None] * np.eye(c) - p[:, :, None] * p[:, None, :]  # (n, c, c)
    hessian = np.einsum("ni,nj,nab->iajb", x, x, spread) / n
    hessian += 0.1 * np.einsum("ij,ab->iajb", np.eye(x.shape[1]), np.eye(c))
    of_weights = lambda w: f((w, bias), x, labels)
    close(run(wl.jacobian(wl.grad(of_weights)))(weights), hessian)


def test_nested_scans_of_a_polynomial(run):
    """grad of a scan in a scan, to third order: derivatives of sum_ij c_ij a^i b^j are polynomials again."""
    a, b, c = ARGUMENTS["horner"]
    f = models.horner(np, wl.scan)
    value = lambda i, j: np.polyval(
        np.polyder([np.polyval(np.polyder(row, j) if j else row, b) for row in c], i) if i else
        [np.polyval(np.polyder(row, j) if j else row, b) for row in c], a,
    )  # fmt: skip
    close(run(f)(a, b, c), value(0, 0))
    close(run(wl.grad(f, (0, 1)))(a, b, c), (value(1, 0), value(0, 1)))
    powers = np.outer(a ** np.arange(3, -1, -1), b ** np.arange(2, -1, -1))
    close(run(wl.grad(f, 2))(a, b, c), powers)
    close(run(wl.grad(wl.grad(f, 0), 1))(a, b, c), value(1, 1))
    close(run(wl.grad(wl.grad(f, 1), 1))(a, b, c), value(0, 2))
    close(run(wl.grad(wl.grad(wl.grad(f))))(a, b, c), value(3, 0))
    close(run(wl.grad(wl.grad(wl.grad(f, 0), 0), 1))(a, b, c), value(2, 1))
    points = np.linspace(-1, 1, 5)
    close(run(wl.vmap(wl.grad(f), (0, None, None)))(points, b, c), np.array([
        np.polyval(np.polyder([np.polyval(row, b) for row in c]), s) for s in points
    ]))  # fmt: skip


# An ODE solver with adaptive steps, in a while_loop ------------------------------------------------------------------


def variational(field, jacobians, theta, y0, t_end):
    """SciPy's solution with dy/dtheta and dy/dy0, by the variational equations S' = (df/dy) S + df/dtheta."""
    n, m = len(y0), np.size(theta) + len(y0)

    def extended(t, state):
        y, s = state[:n], state[n:].reshape(n, m)
        by_y, by_theta = jacobians(y, theta)
        source = np.concatenate([by_theta, np.zeros((n, n))], axis=1)
        return np.concatenate([field(np, y, theta), (by_y @ s + source).ravel()])

    start = np.concatenate([np.zeros((n, m - n)), np.eye(n)], axis=1)
    solved = solve_ivp(extended, (0, t_end), [*y0, *start.ravel()], method="DOP853", rtol=1e-12, atol=1e-13)
    final = solved.y[:, -1]
    return final[:n], final[n:].reshape(n, m)


def lotka_volterra_jacobians(y, theta):
    growth, hunting, feeding, death = theta
    prey, predator = y
    by_y = [[growth - hunting * predator, -hunting * prey], [feeding * predator, feeding * prey - death]]
    by_theta = [[prey, -prey * predator, 0, 0], [0, 0, prey * predator, -predator]]
    return np.array(by_y), np.array(by_theta)


def van_der_pol_jacobians(y, mu):
    by_y = [[0, 1], [-2 * mu * y[0] * y[1] - 1, mu * (1 - y[0] ** 2)]]
    return np.array(by_y), np.array([[0], [(1 - y[0] ** 2) * y[1]]])


# Field, its Jacobians, method, and what its solution differs from the exact one by, relative to its size.
ODES = {
    "lotka_volterra": (models.lotka_volterra, lotka_volterra_jacobians, models.DORMAND_PRINCE, 1e-8, 1e-6),
    "van_der_pol": (models.van_der_pol, van_der_pol_jacobians, models.BOGACKI_SHAMPINE, 1e-5, 1e-3),
}


@pytest.mark.parametrize("name", ODES)
def test_jacobians_of_an_ode_solver(name, run):
    field, jacobians, pair, tolerance, error = ODES[name]
    arguments = theta, y0, t_end = ARGUMENTS[name]
    solve = models.adaptive_solution(np, wl.while_loop, field, pair, tolerance)
    expected, sensitivity = variational(field, jacobians, theta, y0, t_end)
    plain = models.adaptive_solution(np, python_while, field, pair, tolerance)(*arguments)
    close(plain, expected, error)
    both = lambda *args: (solve(*args), wl.jacobian(solve, (0, 1, 2), mode="reverse")(*args))
    value, (by_theta, by_y0, by_time) = run(both)(*arguments)
    close(value, plain, 1e-10)
    count = np.size(theta)
    close(np.reshape(by_theta, (2, count)), sensitivity[:, :count], error)
    close(by_y0, sensitivity[:, count:], error)
    close(by_time, field(np, expected, theta), error)
    forward = wl.jacobian(solve, (0, 1, 2), mode="forward")(*arguments)
    close(forward, (by_theta, by_y0, by_time), 1e-9)


@pytest.mark.parametrize("nesting", ["jvp(grad)", "grad(jvp)", "grad(grad)"])
def test_second_derivatives_of_an_ode_solver(nesting):
    """Hessian times a direction of a loss, against differences of SciPy's sensitivities."""
    theta, y0, t_end = ARGUMENTS["lotka_volterra"]
    solve = models.adaptive_solution(np, wl.while_loop, models.lotka_volterra)
    loss = lambda theta, y0, t_end: 0.5 * np.sum(solve(theta, y0, t_end) ** 2)
    direction = np.array([0.3, -0.2, 0.05, 0.4])

    def gradient(h):
        y, s = variational(models.lotka_volterra, lotka_volterra_jacobians, theta + h * direction, y0, t_end)
        return y @ s[:, :4]

    found = nestings(loss, direction)[nesting](theta, y0, t_end)
    close(found, difference(gradient, 2.0**-6), 1e-5)


def test_vmap_of_an_ode_solver(run):
    """Each element takes its own number of steps; values, gradients, and the gradient of the batch."""
    theta, _, t_end = ARGUMENTS["van_der_pol"]
    method = models.van_der_pol, models.BOGACKI_SHAMPINE, 1e-4
    starts = np.array([[1.0, 0.5], [-2.0, 0.1], [0.1, 3.0]])
    solve, plain = (models.adaptive_solution(np, loop, *method) for loop in (wl.while_loop, python_while))
    loss = lambda theta, y0, t_end: np.sum(solve(theta, y0, t_end) ** 2)
    batched = wl.vmap(wl.value_and_grad(loss), (None, 0, None))
    values, gradients = run(batched)(theta, starts, t_end)
    close(values, np.array([np.sum(plain(theta, s, t_end) ** 2) for s in starts]), 1e-9)
    for s, g in zip(starts, gradients):
        close(wl.grad(loss)(theta, s, t_end), g, 1e-9)
        y, sensitivity = variational(models.van_der_pol, van_der_pol_jacobians, theta, s, t_end)
        close(g, 2 * y @ sensitivity[:, 0], 1e-2)
    total = lambda theta: np.sum(wl.vmap(solve, (None, 0, None))(theta, starts, t_end) ** 2)
    close(run(wl.grad(total))(theta), np.sum(gradients), 1e-9)


def test_a_while_loop_to_third_order(run):
    """Newton's cube root, whose derivatives are known: grad, grad(grad), grad(grad(grad)), vmap and jvp of them."""

    def cube_root(a):
        def step(state):  # derivatives converge later than the value: three more steps when that is near
            x, more = state
            near = np.abs(x**3 - a) < 1e-3 * a
            return x - (x**3 - a) / (3 * x**2), np.where(near, more - 1, 3)

        return wl.while_loop(lambda state: state[1] > 0, step, (a * 0 + 2.0, 3))[0]

    points = np.array([0.5, 3.0, 20.0, 700.0])
    derivatives = [np.cbrt(points), points ** (-2 / 3) / 3, -2 / 9 * points ** (-5 / 3), 10 / 27 * points ** (-8 / 3)]
    for order, expected in enumerate(derivatives):
        g = cube_root
        for _ in range(order):
            g = wl.grad(g)
        np.testing.assert_allclose(run(g)(points[2]), expected[2], rtol=1e-9)
        if order < 3:  # compiling the batch of a third derivative takes long
            np.testing.assert_allclose(run(wl.vmap(g))(points), expected, rtol=1e-9)
    np.testing.assert_allclose(wl.vmap(g)(points), expected, rtol=1e-9)
    mixed = lambda a: wl.jvp(wl.grad(lambda b: wl.jvp(cube_root, (b,), (1.0,))[1]), (a,), (1.0,))[1]
    np.testing.assert_allclose(run(mixed)(20.0), derivatives[3][2], rtol=1e-9)


class TestFoundByRandomPrograms:
    def test_a_scatter_whose_update_reads_its_target(self):
        i = np.array([2, 0, 1])
        gradient = wl.grad(lambda x: np.sum((x + x[i]) ** 2))
        x = np.array([1.0, 2.0, 3.0])
        np.testing.assert_array_equal(gradient(x), [14.0, 16.0, 18.0])
        np.testing.assert_array_equal(wl.jit(gradient)(x), [14.0, 16.0, 18.0])

    def test_control_flow_leaves_the_callers_array_writable(self):
        v = np.ones(3)
        same = lambda x: x
        wl.cond(True, same, same, v)
        wl.cond(True, lambda: v, lambda: v)
        wl.while_loop(lambda c: False, same, v)
        wl.fori_loop(0, 0, lambda i, c: c, v)
        out, _ = wl.scan(lambda c, x: (c, x), v, np.ones(2))
        assert v.flags.writeable and out.flags.writeable
        out += 1.0
        assert v.tolist() == [1.0, 1.0, 1.0]

    def test_axes_of_vmap_that_are_not_there(self):
        with pytest.raises(wl.ArgumentError, match="axis 3 of a result"):
            wl.vmap(np.sin, out_axes=3)(np.ones(3))
        with pytest.raises(wl.ArgumentError, match="in_axes are integers"):
            wl.vmap(np.sin, in_axes="a")(np.ones(3))

    def test_an_operator_that_returns_its_operand_leaves_it_writable(self):
        names = set(registry)
        try:
            same = wl.as_function(elementwise("same", lambda x: x, (lambda out, x: 1.0,)))
            v = np.ones(3)
            out = same(v)
            np.testing.assert_array_equal(wl.grad(lambda x: np.sum(same(x) * same(v)))(v), v)
        finally:
            for name in set(registry) - names:
                del registry[name]
        out += 1.0
        assert v.flags.writeable and v.tolist() == [1.0, 1.0, 1.0]
