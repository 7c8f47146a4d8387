"""A chain of elementwise functions on a million numbers: fusion, vector math and threads."""

from functools import partial

import numpy as np

from bench.registry import Benchmark


def make_inputs(dtype, size=1_000_000):
    return (np.random.default_rng(0).standard_normal(size).astype(dtype),)


def chain(x, xp=np):
    """Six transcendental functions, one after the other; `xp` is the library."""
    return xp.tanh(xp.log(1 + xp.exp(xp.sin(xp.exp(xp.cos(x))))))


def ours(x):
    import wonderland as wl

    compiled = wl.jit(chain)
    return lambda: compiled(x)


def in_numpy(x):
    return lambda: chain(x)


def in_jax(x):
    import jax
    import jax.numpy as jnp

    compiled = jax.jit(partial(chain, xp=jnp))
    x = jnp.asarray(x)
    return lambda: compiled(x).block_until_ready()


def in_torch(compile, x):
    import torch

    x, function = torch.from_numpy(x), compile(partial(chain, xp=torch))

    def call():
        with torch.inference_mode():
            return function(x)

    return call


for bits in (32, 64):
    benchmark = Benchmark(
        f"elementwise_f{bits}",
        "elementwise chain of 6 functions",
        f"tanh(log(1 + exp(sin(exp(cos(x)))))) on 1M float{bits}",
        partial(make_inputs, f"float{bits}"),
        limit=0.7,
        rtol=1e-5 if bits == 32 else 1e-12,
        float64=bits == 64,
    )
    benchmark.contender("wonderland")(ours)
    benchmark.contender("numpy")(in_numpy)
    benchmark.torch(in_torch)
    benchmark.contender("jax")(in_jax)
