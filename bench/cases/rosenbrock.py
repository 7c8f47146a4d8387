"""The gradient of Rosenbrock's function of ten variables: almost no arithmetic, so what a call costs."""

import numpy as np

from bench.registry import Benchmark


def make_inputs():
    return (np.random.default_rng(0).standard_normal(10).astype(np.float32),)


def rosenbrock(x):
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


rosenbrock10 = Benchmark(
    "rosenbrock10",
    "gradient of Rosenbrock's function",
    "gradient of Rosenbrock's function, 10 variables, float32, per call",
    make_inputs,
    limit=0.4,
    rtol=1e-4,
    atol=1e-3,
)


@rosenbrock10.contender("wonderland")
def ours(x):
    import wonderland as wl

    gradient = wl.jit(wl.grad(rosenbrock))
    return lambda: gradient(x)


@rosenbrock10.contender("numpy")
def in_numpy(x):
    def call():
        inner = x[1:] - x[:-1] ** 2
        gradient = np.zeros_like(x)
        gradient[:-1] = -400 * x[:-1] * inner - 2 * (1 - x[:-1])
        gradient[1:] += 200 * inner
        return gradient

    return call


@rosenbrock10.torch
def in_torch(compile, x):
    import torch

    function, x = compile(rosenbrock), torch.from_numpy(x).requires_grad_()
    return lambda: torch.autograd.grad(function(x), x)[0]


@rosenbrock10.contender("jax")
def in_jax(x):
    import jax

    gradient = jax.jit(jax.grad(rosenbrock))
    x = jax.numpy.asarray(x)
    return lambda: gradient(x).block_until_ready()
