"""The gradient of Rosenbrock's function of ten variables: almost no arithmetic, so what a call costs."""

import numpy as np

from bench.registry import Benchmark


def make_inputs():
    return (np.random.default_rng(0).standard_normal(10).astype(np.float32),)


rosenbrock10 = Benchmark(
    "rosenbrock10",
    "gradient of Rosenbrock's function, 10 variables, float32, per call",
    make_inputs,
    targets={"jax": 0.5},
    rtol=1e-4,
    atol=1e-3,
)


@rosenbrock10.contender("wonderland")
def ours(x):
    import wonderland as wl

    def rosenbrock(x):
        return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

    gradient = wl.jit(wl.grad(rosenbrock))
    return lambda: gradient(x)


@rosenbrock10.contender("jax")
def in_jax(x):
    import jax
    import jax.numpy as jnp

    def rosenbrock(x):
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

    gradient = jax.jit(jax.grad(rosenbrock))
    x = jnp.asarray(x)
    return lambda: gradient(x).block_until_ready()


@rosenbrock10.contender("torch")
def in_torch(x):
    import torch

    x = torch.from_numpy(x).requires_grad_()

    def call():
        value = torch.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)
        return torch.autograd.grad(value, x)[0]

    return call
