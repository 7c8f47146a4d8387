"""Long loops of small steps, with the gradient: what an iteration costs beyond its arithmetic.

`recurrence` is h <- tanh(a h + x_k), elementwise on a vector; `lorenz` integrates three equations by RK4 with a step
count that the loop's condition decides. NumPy's gradients are written by hand: the reversed loop, and the variational
equations.
"""

import numpy as np

from bench.registry import Benchmark

STEPS, WIDTH = 10_000, 64
UNROLLED = "would unroll 10,000 steps, which takes far too long to compile"
TIME_STEP = 1e-3


def recurrence_inputs():
    rng = np.random.default_rng(0)
    a = rng.uniform(0.5, 0.9, WIDTH).astype(np.float32)
    h = rng.standard_normal(WIDTH, np.float32)
    return a, h, rng.standard_normal((STEPS, WIDTH), np.float32)


recurrence = Benchmark(
    "recurrence",
    "loops of 10,000 steps, value and gradient",
    "scan of h <- tanh(a h + x), 10,000 steps on 64 numbers, float32, mean square and its gradient by a and h",
    recurrence_inputs,
    limit=0.3,
    rtol=1e-3,
    left_out={"torch.compile": UNROLLED},
)


def recurrence_loss(weights, xs, scan, tanh):
    a, h = weights

    def step(h, x):
        h = tanh(a * h + x)
        return h, h

    return (scan(step, h, xs)[1] ** 2).mean()


@recurrence.contender("wonderland")
def recurrence_ours(a, h, xs):
    import wonderland as wl

    def loss(weights, xs):
        return recurrence_loss(weights, xs, wl.scan, np.tanh)

    compiled = wl.jit(wl.value_and_grad(loss))
    return lambda: compiled((a, h), xs)


@recurrence.contender("numpy")
def recurrence_numpy(a, h, xs):
    def call():
        hs = np.empty((STEPS + 1, WIDTH), np.float32)
        hs[0] = h
        for k in range(STEPS):
            np.tanh(a * hs[k] + xs[k], out=hs[k + 1])
        slopes = 1 - hs[1:] ** 2
        direct = hs[1:] * np.float32(2 / (STEPS * WIDTH))
        d, ds = np.zeros(WIDTH, np.float32), np.empty_like(xs)
        for k in reversed(range(STEPS)):
            ds[k] = (d + direct[k]) * slopes[k]
            d = ds[k] * a
        return np.mean(hs[1:] ** 2), (np.sum(ds * hs[:-1], axis=0), d)

    return call


@recurrence.contender("torch")
def recurrence_torch(a, h, xs):
    import torch

    a, h = (torch.from_numpy(v).requires_grad_() for v in (a, h))
    xs = torch.from_numpy(xs)

    def call():
        hs, last = [], h
        for x in xs:
            last = torch.tanh(torch.addcmul(x, a, last))
            hs.append(last)
        value = torch.mean(torch.stack(hs) ** 2)
        return value, torch.autograd.grad(value, (a, h))

    return call


@recurrence.contender("jax")
def recurrence_jax(a, h, xs):
    import jax
    import jax.numpy as jnp

    @jax.jit
    @jax.value_and_grad
    def compiled(weights, xs):
        return recurrence_loss(weights, xs, jax.lax.scan, jnp.tanh)

    weights, xs = (jnp.asarray(a), jnp.asarray(h)), jnp.asarray(xs)
    return lambda: jax.block_until_ready(compiled(weights, xs))


def lorenz_inputs():
    """The state, and the three parameters. The time is short enough for the chaos to leave digits to compare."""
    return np.array([1.0, 2.0, 20.0]), np.array([10.0, 28.0, 8 / 3])


lorenz = Benchmark(
    "lorenz",
    "loops of 10,000 steps, value and gradient",
    "Lorenz-63 by RK4, while_loop of 10,000 steps, float64, the last state's square and its gradient by state and "
    "parameters",
    lorenz_inputs,
    limit=0.3,
    rtol=1e-5,
    float64=True,
    left_out={"torch.compile": UNROLLED},
)


def derivative(state, parameters):
    (x, y, z), (sigma, rho, beta) = state, parameters
    return sigma * (y - x), x * (rho - z) - y, x * y - beta * z


def rk4(state, parameters):
    def moved(slope, by):
        return tuple(s + by * d for s, d in zip(state, slope))

    k1 = derivative(state, parameters)
    k2 = derivative(moved(k1, TIME_STEP / 2), parameters)
    k3 = derivative(moved(k2, TIME_STEP / 2), parameters)
    k4 = derivative(moved(k3, TIME_STEP), parameters)
    return tuple(s + TIME_STEP / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in zip(state, k1, k2, k3, k4))


def lorenz_loss(state, parameters, while_loop):
    """`while_loop(test, body, carry)` on the step count and three numbers."""
    state, parameters = tuple(state[i] for i in range(3)), tuple(parameters[i] for i in range(3))
    _, state = while_loop(lambda c: c[0] < STEPS, lambda c: (c[0] + 1, rk4(c[1], parameters)), (0, state))
    return state[0] ** 2 + state[1] ** 2 + state[2] ** 2


@lorenz.contender("wonderland")
def lorenz_ours(state, parameters):
    import wonderland as wl

    compiled = wl.jit(wl.value_and_grad(lambda given: lorenz_loss(given[0], given[1], wl.while_loop)))
    return lambda: compiled((state, parameters))


@lorenz.contender("numpy")
def lorenz_numpy(state, parameters):
    """The variational equations: the state and its derivatives by the six numbers, a 3 x 7 matrix, by RK4."""
    sigma, rho, beta = parameters.tolist()
    start = np.concatenate([state[:, None], np.eye(3), np.zeros((3, 3))], axis=1)

    def slope(m):
        x, y, z = m[:, 0].tolist()
        jacobian = np.array([[-sigma, sigma, 0.0], [rho - z, -1.0, -x], [y, x, -beta]])
        out = jacobian @ m
        out[:, 0] = sigma * (y - x), x * (rho - z) - y, x * y - beta * z
        out[0, 4] += y - x
        out[1, 5] += x
        out[2, 6] -= z
        return out

    def call():
        m = start
        for _ in range(STEPS):
            k1 = slope(m)
            k2 = slope(m + TIME_STEP / 2 * k1)
            k3 = slope(m + TIME_STEP / 2 * k2)
            k4 = slope(m + TIME_STEP * k3)
            m = m + TIME_STEP / 6 * (k1 + 2 * (k2 + k3) + k4)
        last = m[:, 0]
        gradient = 2 * last @ m[:, 1:]
        return np.sum(last**2), (gradient[:3], gradient[3:])

    return call


@lorenz.contender("torch")
def lorenz_torch(state, parameters):
    """In few operations: the derivative of s = (x, y, z) is (linear + x turn) s."""
    import torch

    state, parameters = (torch.from_numpy(v).requires_grad_() for v in (state, parameters))
    turn = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    zero, one = torch.tensor([[0.0], [1.0]], dtype=torch.float64).unbind()

    def call():
        sigma, rho, beta = parameters.split(1)
        linear = torch.cat([-sigma, sigma, zero, rho, -one, zero, zero, zero, -beta]).reshape(3, 3)

        def slope(s):
            return torch.addcmul(linear, s[0], turn) @ s

        last = state
        for _ in range(STEPS):
            k1 = slope(last)
            k2 = slope(torch.add(last, k1, alpha=TIME_STEP / 2))
            k3 = slope(torch.add(last, k2, alpha=TIME_STEP / 2))
            k4 = slope(torch.add(last, k3, alpha=TIME_STEP))
            last = torch.add(last, k1 + k4 + torch.add(k2, k3) * 2, alpha=TIME_STEP / 6)
        value = torch.sum(last**2)
        return value, torch.autograd.grad(value, (state, parameters))

    return call


@lorenz.contender("jax")
def lorenz_jax(state, parameters):
    """JAX has no reverse mode of a while loop: a loop of fixed length, which it has."""
    import jax

    def fixed(test, body, carry):
        return jax.lax.fori_loop(0, STEPS, lambda i, c: body(c), carry)

    compiled = jax.jit(jax.value_and_grad(lambda given: lorenz_loss(given[0], given[1], fixed)))
    given = tuple(jax.numpy.asarray(v) for v in (state, parameters))
    return lambda: jax.block_until_ready(compiled(given))


@lorenz.contender("jax.forward")
def lorenz_jax_forward(state, parameters):
    """Six tangents pushed through the while loop at once: with so few variables it's the faster way for JAX."""
    import jax
    import jax.numpy as jnp

    def loss(given):
        return lorenz_loss(given[:3], given[3:], jax.lax.while_loop)

    @jax.jit
    def compiled(given):
        push = jax.vmap(lambda tangent: jax.jvp(loss, (given,), (tangent,)), out_axes=(None, 0))
        value, gradient = push(jnp.eye(6))
        return value, (gradient[:3], gradient[3:])

    given = jnp.concatenate([jnp.asarray(state), jnp.asarray(parameters)])
    return lambda: jax.block_until_ready(compiled(given))
