"""Sums, means, variances and maxima of a large matrix: how much of the memory's bandwidth is used."""

from functools import partial

import numpy as np

from bench.registry import Benchmark

AXES = {"rows": 1, "columns": 0, "all": None}


def make_inputs():
    return (np.random.default_rng(0).random((4096, 4096), np.float32),)


def ours(name, axis, x):
    import wonderland as wl

    reduce = wl.jit(lambda x: getattr(np, name)(x, axis))
    return lambda: reduce(x)


def in_numpy(name, axis, x):
    reduce = getattr(np, name)
    return lambda: reduce(x, axis)


def in_jax(name, axis, x):
    import jax
    import jax.numpy as jnp

    reduce = jax.jit(lambda x: getattr(jnp, name)(x, axis))
    x = jnp.asarray(x)
    return lambda: reduce(x).block_until_ready()


def in_torch(name, axis, compile, x):
    import torch

    reduce = {
        "sum": lambda x: torch.sum(x, axis),
        "mean": lambda x: torch.mean(x, axis),
        "var": lambda x: torch.var(x, axis, correction=0),
        "max": lambda x: torch.amax(x, () if axis is None else axis),
    }[name]
    x, reduce = torch.from_numpy(x), compile(reduce)

    def call():
        with torch.inference_mode():
            return reduce(x)

    return call


for name in ("sum", "mean", "var", "max"):
    for over, axis in AXES.items():
        benchmark = Benchmark(
            f"{name}_{over}",
            "reductions, 4096x4096 float32",
            f"{name} over {over}, 4096x4096 float32",
            make_inputs,
            limit=1.0,
            rtol=1e-4,
        )
        benchmark.contender("wonderland")(partial(ours, name, axis))
        benchmark.contender("numpy")(partial(in_numpy, name, axis))
        benchmark.torch(partial(in_torch, name, axis))
        benchmark.contender("jax")(partial(in_jax, name, axis))
