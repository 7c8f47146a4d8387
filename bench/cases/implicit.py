"""What equations define, with the gradient: small systems in loops, roots, fixed points, quadratic programs.

optimistix and jaxopt (for JAX), qpth and cvxpylayers (for PyTorch) aren't among the peers that `make bench` installs:
they ask for older versions of the others. Where they are there (pip install --no-deps), they take part.
"""

from functools import partial

import numpy as np

from bench.registry import Benchmark

GROUP = "implicit functions, float64"
SYSTEMS, SIZE, STEPS = 1000, 8, 1000


def small_inputs():
    rng = np.random.default_rng(0)
    return rng.standard_normal((SYSTEMS, SIZE, SIZE)) + 4 * np.eye(SIZE), rng.standard_normal((SYSTEMS, SIZE, 1))


many_solves = Benchmark(
    "small-solves-batch", GROUP, f"{SYSTEMS} systems of {SIZE} equations at once", small_inputs, limit=0.5,
    float64=True, rtol=1e-9, atol=1e-9,
)  # fmt: skip


@many_solves.contender("wonderland")
def _(a, b):
    import wonderland as wl

    compiled = wl.jit(np.linalg.solve)
    return lambda: compiled(a, b)


@many_solves.contender("numpy")
def _(a, b):
    return lambda: np.linalg.solve(a, b)


@many_solves.contender("jax")
def _(a, b):
    import jax
    import jax.numpy as jnp

    compiled, a, b = jax.jit(jnp.linalg.solve), jnp.asarray(a), jnp.asarray(b)
    return lambda: compiled(a, b).block_until_ready()


@many_solves.contender("torch")
def _(a, b):
    import torch

    a, b = torch.from_numpy(a), torch.from_numpy(b)
    return lambda: torch.linalg.solve(a, b)


def chain_inputs():
    rng = np.random.default_rng(1)
    return rng.standard_normal((STEPS, 3, 3)) + 4 * np.eye(3), np.ones(3)


chained = Benchmark(
    "small-solves-loop", GROUP, f"{STEPS} systems of 3 equations, one after the other: x <- solve(A_k, x + 1)",
    chain_inputs, limit=0.5, float64=True, rtol=1e-9, atol=1e-9,
)  # fmt: skip


@chained.contender("wonderland")
def _(a, x):
    import wonderland as wl

    compiled = wl.jit(lambda a, x: wl.scan(lambda x, m: (np.linalg.solve(m, x + 1), None), x, a)[0])
    return lambda: compiled(a, x)


@chained.contender("numpy")
def _(a, x):
    def call():
        out = x
        for m in a:
            out = np.linalg.solve(m, out + 1)
        return out

    return call


@chained.contender("jax")
def _(a, x):
    import jax
    import jax.numpy as jnp

    compiled = jax.jit(lambda a, x: jax.lax.scan(lambda x, m: (jnp.linalg.solve(m, x + 1), None), x, a)[0])
    a, x = jnp.asarray(a), jnp.asarray(x)
    return lambda: compiled(a, x).block_until_ready()


# Roots ----------------------------------------------------------------------------------------------------------------


def two(x, a, numpy):
    """Two equations for two unknowns."""
    return numpy.stack([x[0] ** 2 + x[1] - a, numpy.sin(x[0]) - x[1]])


def optimistix_root(equations):
    """The function a -> x[0] of JAX, by optimistix's Newton method."""
    import optimistix

    solver = optimistix.Newton(rtol=1e-12, atol=1e-12)
    return lambda a, x: optimistix.root_find(lambda x, a: equations(x, a), solver, x, a, max_steps=100).value


root = Benchmark(
    "root-2", GROUP, "a root of two equations, value and gradient by the parameter",
    lambda: (np.array([0.5, 0.4]), 2.0), limit=0.5, float64=True, rtol=1e-9, atol=1e-9,
)  # fmt: skip


@root.contender("wonderland")
def _(x, a):
    import wonderland as wl

    solve = lambda a: wl.implicit.root(lambda x, a: two(x, a, np), x, a)[0]
    compiled = wl.jit(wl.value_and_grad(solve))
    return lambda: compiled(a)


@root.contender("optimistix")
def _(x, a):
    import jax
    import jax.numpy as jnp

    solve = optimistix_root(lambda x, a: two(x, a, jnp))
    compiled, x = jax.jit(jax.value_and_grad(lambda a: solve(a, x)[0])), jnp.asarray(x)
    return lambda: jax.block_until_ready(compiled(a))


@root.contender("jaxopt")
def _(x, a):
    import jax
    import jax.numpy as jnp
    import jaxopt

    solver = jaxopt.Broyden(lambda x, a: two(x, a, jnp), tol=1e-12, maxiter=100)
    compiled, x = jax.jit(jax.value_and_grad(lambda a: solver.run(x, a).params[0])), jnp.asarray(x)
    return lambda: jax.block_until_ready(compiled(a))


batched = Benchmark(
    "root-2-batch", GROUP, "1,000 roots of two equations, values and gradients",
    lambda: (np.array([0.5, 0.4]), np.linspace(1.0, 4.0, 1000)), limit=0.5, float64=True, rtol=1e-9, atol=1e-9,
)  # fmt: skip


@batched.contender("wonderland")
def _(x, a):
    import wonderland as wl

    solve = lambda a: wl.implicit.root(lambda x, a: two(x, a, np), x, a)[0]
    compiled = wl.jit(wl.vmap(wl.value_and_grad(solve)))
    return lambda: compiled(a)


@batched.contender("optimistix")
def _(x, a):
    import jax
    import jax.numpy as jnp

    solve, x = optimistix_root(lambda x, a: two(x, a, jnp)), jnp.asarray(x)
    compiled, a = jax.jit(jax.vmap(jax.value_and_grad(lambda a: solve(a, x)[0]))), jnp.asarray(a)
    return lambda: jax.block_until_ready(compiled(a))


eager = Benchmark(
    "root-2-eager", GROUP, "a root of two equations without compiling anything",
    lambda: (np.array([0.5, 0.4]), 2.0), seconds=1e-3, targets={}, float64=True, rtol=1e-9, atol=1e-9,
)  # fmt: skip


def in_numpy(x, a):
    return np.stack([x[0] ** 2 + x[1] - a, np.sin(x[0]) - x[1]])


@eager.contender("wonderland")
def _(x, a):
    import wonderland as wl

    return lambda: wl.implicit.root(in_numpy, x, a)


@eager.contender("scipy")
def _(x, a):
    from scipy.optimize import root

    return lambda: root(in_numpy, x, (a,), tol=1e-12).x


LARGE = 300


def large_inputs():
    rng = np.random.default_rng(2)
    return rng.standard_normal((LARGE, LARGE)) / np.sqrt(LARGE) + 2 * np.eye(LARGE), rng.standard_normal(LARGE)


def bent(x, w, b, numpy):
    """As many equations as unknowns, all of them coupled."""
    return w @ x + numpy.tanh(x) - b


large = Benchmark(
    "root-300", GROUP, f"a root of {LARGE} equations, the gradient of its square by all coefficients", large_inputs,
    limit=1.0, float64=True, rtol=1e-8, atol=1e-9,
)  # fmt: skip


@large.contender("wonderland")
def _(w, b):
    import wonderland as wl

    solve = lambda w: np.sum(wl.implicit.root(lambda x, w: bent(x, w, b, np), np.zeros(LARGE), w) ** 2)
    compiled = wl.jit(wl.grad(solve))
    return lambda: compiled(w)


@large.contender("optimistix")
def _(w, b):
    import jax
    import jax.numpy as jnp

    solve = optimistix_root(lambda x, w: bent(x, w, b, jnp))
    compiled, w = jax.jit(jax.grad(lambda w: jnp.sum(solve(w, jnp.zeros(LARGE)) ** 2))), jnp.asarray(w)
    return lambda: compiled(w).block_until_ready()


# Fixed points ---------------------------------------------------------------------------------------------------------

def layer_inputs(width):
    rng = np.random.default_rng(3)
    return 0.5 * rng.standard_normal((width, width)) / np.sqrt(width), rng.standard_normal(width)


def by_wonderland(w, x):
    import wonderland as wl

    solve = lambda w: np.sum(wl.implicit.fixed_point(lambda z, w: np.tanh(w @ z + x), np.zeros(len(x)), w) ** 2)
    compiled = wl.jit(wl.grad(solve))
    return lambda: compiled(w)


def by_optimistix(w, x):
    import jax
    import jax.numpy as jnp
    import optimistix

    solver = optimistix.FixedPointIteration(rtol=1e-12, atol=1e-12)

    def solve(w):
        found = optimistix.fixed_point(lambda z, w: jnp.tanh(w @ z + x), solver, jnp.zeros(len(x)), w, max_steps=1000)
        return jnp.sum(found.value**2)

    compiled, w = jax.jit(jax.grad(solve)), jnp.asarray(w)
    return lambda: compiled(w).block_until_ready()


def by_jaxopt(w, x):
    import jax
    import jax.numpy as jnp
    import jaxopt

    exact = jaxopt.linear_solve.solve_lu  # its default is off by 5e-4
    solver = jaxopt.AndersonAcceleration(
        lambda z, w: jnp.tanh(w @ z + x), tol=1e-12, maxiter=1000, implicit_diff_solve=exact
    )
    compiled = jax.jit(jax.grad(lambda w: jnp.sum(solver.run(jnp.zeros(len(x)), w).params ** 2)))
    w = jnp.asarray(w)
    return lambda: compiled(w).block_until_ready()


for width, limit in ((8, 0.5), (100, 1.0)):
    equilibrium = Benchmark(
        f"fixed-point-{width}", GROUP, f"z = tanh(W z + x) of width {width}, the gradient by W",
        partial(layer_inputs, width), limit=limit, float64=True, rtol=1e-7, atol=1e-9,
    )  # fmt: skip
    equilibrium.contender("wonderland")(by_wonderland)
    equilibrium.contender("optimistix")(by_optimistix)
    equilibrium.contender("jaxopt")(by_jaxopt)

# Quadratic programs ---------------------------------------------------------------------------------------------------

PROGRAMS, UNKNOWNS, EQUALITIES, INEQUALITIES = 64, 50, 10, 30


def program_inputs():
    rng = np.random.default_rng(4)
    factor = rng.standard_normal((PROGRAMS, UNKNOWNS, UNKNOWNS)) / np.sqrt(UNKNOWNS)
    Q = factor @ factor.transpose(0, 2, 1) + 0.1 * np.eye(UNKNOWNS)
    c = rng.standard_normal((PROGRAMS, UNKNOWNS))
    A = rng.standard_normal((PROGRAMS, EQUALITIES, UNKNOWNS))
    G = rng.standard_normal((PROGRAMS, INEQUALITIES, UNKNOWNS))
    inside = rng.standard_normal((PROGRAMS, UNKNOWNS))
    b = np.einsum("kij,kj->ki", A, inside)
    h = np.einsum("kij,kj->ki", G, inside) + rng.uniform(0.1, 1.0, (PROGRAMS, INEQUALITIES))
    return Q, c, A, b, G, h


programs = Benchmark(
    "qp-batch", GROUP,
    f"{PROGRAMS} quadratic programs of {UNKNOWNS} unknowns, {EQUALITIES} equalities and {INEQUALITIES} inequalities: "
    "the sum of squares of the solutions, its gradient by all of Q, c, A, b, G, h",
    program_inputs, limit=0.5, float64=True, rtol=1e-4, atol=1e-4,
)  # fmt: skip


@programs.contender("wonderland")
def _(*problem):
    import wonderland as wl

    solve = lambda *problem: np.sum(wl.vmap(lambda *p: wl.implicit.qp(*p).x)(*problem) ** 2)
    compiled = wl.jit(wl.grad(solve, tuple(range(6))))
    return lambda: compiled(*problem)


@programs.contender("qpth")
def _(*problem):
    import torch
    from qpth.qp import QPFunction

    leaves = [torch.from_numpy(x).requires_grad_() for x in problem]

    def call():
        Q, c, A, b, G, h = leaves
        x = QPFunction(verbose=-1, eps=1e-10, maxIter=30)(Q, c, G, h, A, b)
        return torch.autograd.grad((x**2).sum(), leaves)

    return call


@programs.contender("cvxpylayers")
def _(*problem):
    import cvxpy as cp
    import torch
    from cvxpylayers.torch import CvxpyLayer

    # A program with parameters must be written with a factor of Q: Q = R'R.
    x, R, c = cp.Variable(UNKNOWNS), cp.Parameter((UNKNOWNS, UNKNOWNS)), cp.Parameter(UNKNOWNS)
    A, b = cp.Parameter((EQUALITIES, UNKNOWNS)), cp.Parameter(EQUALITIES)
    G, h = cp.Parameter((INEQUALITIES, UNKNOWNS)), cp.Parameter(INEQUALITIES)
    objective = cp.Minimize(0.5 * cp.sum_squares(R @ x) + c @ x)
    layer = CvxpyLayer(cp.Problem(objective, [A @ x == b, G @ x <= h]), [R, c, A, b, G, h], [x])
    leaves = [torch.from_numpy(part).requires_grad_() for part in problem]

    def call():
        Q, *rest = leaves
        root = torch.linalg.cholesky(Q).transpose(1, 2)
        (x,) = layer(root, *rest, solver_args={"eps": 1e-9, "mode": "dense"})  # its default, lsqr, is off by 10 %
        return torch.autograd.grad((x**2).sum(), leaves)

    return call
