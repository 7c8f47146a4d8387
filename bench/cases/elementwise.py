"""A chain of elementwise functions on a million numbers: fusion, vector math and threads."""

import numpy as np

from bench.registry import Benchmark


def make_inputs():
    return (np.random.default_rng(0).standard_normal(1_000_000).astype(np.float32),)


elementwise = Benchmark(
    "elementwise",
    "tanh(x)*exp(-x*x)+sqrt(abs(x)+1) on 1M float32",
    make_inputs,
    targets={"jax": 0.9},
)


def chain(x):
    return np.tanh(x) * np.exp(-x * x) + np.sqrt(np.abs(x) + 1)


@elementwise.contender("wonderland")
def ours(x):
    import wonderland as wl

    compiled = wl.jit(chain)
    return lambda: compiled(x)


@elementwise.contender("numpy")
def in_numpy(x):
    return lambda: chain(x)


@elementwise.contender("jax")
def in_jax(x):
    import jax
    import jax.numpy as jnp

    compiled = jax.jit(lambda x: jnp.tanh(x) * jnp.exp(-x * x) + jnp.sqrt(jnp.abs(x) + 1))
    x = jnp.asarray(x)
    return lambda: compiled(x).block_until_ready()


@elementwise.contender("torch")
def in_torch(x):
    import torch

    x = torch.from_numpy(x)

    def call():
        with torch.inference_mode():
            return torch.tanh(x) * torch.exp(-x * x) + torch.sqrt(torch.abs(x) + 1)

    return call
