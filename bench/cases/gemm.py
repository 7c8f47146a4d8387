"""Matrix products in the shapes that people have, against everyone's BLAS; small ones are about the cost of a call."""

from functools import partial

import numpy as np

from bench.registry import Benchmark

# Shapes of the two factors, and whether the first is given transposed.
SHAPES = {
    **{str(n): ((n, n), (n, n), False) for n in (128, 256, 512, 1024, 2048)},
    "tall": ((8192, 256), (256, 64), False),
    "wide": ((64, 256), (256, 8192), False),
    "transposed": ((1024, 1024), (1024, 1024), True),
    "batched": ((64, 128, 128), (64, 128, 128), False),
    **{f"call_{n}": ((n, n), (n, n), False) for n in (16, 64)},
}
LIMITS = {"call_16": 1.5}
SAME = "the same library's product, with more around it"


def make_inputs(left, right, dtype):
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in (left, right))


def product(x, y, transposed):
    return (x.T if transposed else x) @ y


def ours(transposed, x, y):
    import wonderland as wl

    compiled = wl.jit(lambda x, y: product(x, y, transposed))
    return lambda: compiled(x, y)


def in_numpy(transposed, x, y):
    return lambda: product(x, y, transposed)


def in_jax(transposed, x, y):
    import jax
    import jax.numpy as jnp

    compiled = jax.jit(lambda x, y: product(x, y, transposed))
    x, y = jnp.asarray(x), jnp.asarray(y)
    return lambda: compiled(x, y).block_until_ready()


def in_torch(transposed, x, y):
    import torch

    x, y = torch.from_numpy(x), torch.from_numpy(y)

    def call():
        with torch.inference_mode():
            return product(x, y, transposed)

    return call


for bits in (32, 64):
    for name, (left, right, transposed) in SHAPES.items():
        shapes = " @ ".join("x".join(map(str, shape)) for shape in (left, right))
        # Entries are sums of products of size 1: their rounding errors are absolute.
        benchmark = Benchmark(
            f"gemm_f{bits}_{name}",
            "matrix products",
            f"{shapes} float{bits}{', the first transposed' if transposed else ''}",
            partial(make_inputs, left, right, f"float{bits}"),
            limit=LIMITS.get(name, 1.1),
            left_out={"torch.compile": SAME},
            rtol=1e-4 if bits == 32 else 1e-12,
            atol=1e-3 if bits == 32 else 1e-10,
            float64=bits == 64,
        )
        benchmark.contender("wonderland")(partial(ours, transposed))
        benchmark.contender("numpy")(partial(in_numpy, transposed))
        benchmark.contender("torch")(partial(in_torch, transposed))
        benchmark.contender("jax")(partial(in_jax, transposed))
