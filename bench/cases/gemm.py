"""One square matrix product, against the BLAS that NumPy brings."""

import numpy as np

from bench.registry import Benchmark


def make_inputs():
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal((1024, 1024)).astype(np.float32) for _ in range(2))


# Entries are sums of 1024 products of size 1: their rounding errors are absolute.
gemm1024 = Benchmark(
    "gemm1024", "x @ y, 1024 x 1024 float32", make_inputs, targets={"numpy": 1.3}, rtol=1e-4, atol=1e-3
)


@gemm1024.contender("wonderland")
def ours(x, y):
    import wonderland as wl

    product = wl.jit(lambda x, y: x @ y)
    return lambda: product(x, y)


@gemm1024.contender("numpy")
def in_numpy(x, y):
    return lambda: x @ y
