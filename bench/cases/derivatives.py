"""The tenth derivative of a function of one number: a Taylor series of it, beside ten gradients of each other."""

from bench.registry import Benchmark

ORDER = 10

tenth = Benchmark(
    "tenth-derivative",
    "derivatives of high order",
    "tenth derivative of exp(sin(x)), float64, per call",
    lambda: (0.7,),
    limit=0.1,
    rtol=1e-10,
    atol=0.0,
    float64=True,
)


@tenth.contender("wonderland")
def ours(x):
    import numpy as np

    import wonderland as wl

    derivative = wl.jit(wl.nth_derivative(lambda x: np.exp(np.sin(x)), ORDER))
    return lambda: derivative(x)


@tenth.contender("jax")
def in_jax(x):
    import jax
    import jax.numpy as jnp

    def derivative(x):
        return jnp.exp(jnp.sin(x))

    for _ in range(ORDER):
        derivative = jax.grad(derivative)
    derivative, x = jax.jit(derivative), jnp.float64(x)
    return lambda: derivative(x).block_until_ready()
