"""Sparse Jacobians: ours, SciPy's finite differences in groups of columns, JAX's dense ones.

Each call returns the entries by rows; SciPy and JAX are given the pattern, and SciPy its groups of columns, beforehand.
"""

from functools import partial
from typing import Any

import numpy as np

from bench.registry import Benchmark

GROUP = "sparse Jacobians"
TOO_LARGE = {"jax": "dense: {:.0f} GB", "jax.reverse": "dense: {:.0f} GB"}


def flat_brusselator(x, *, xp=np):
    from wonderland.testing.sparse_problems import brusselator

    n = int((x.shape[0] // 2) ** 0.5)
    return xp.ravel(brusselator(x.reshape(2, n, n), 10.0, xp=xp))


def broyden_banded(x, *, xp=np):
    from wonderland.testing import sparse_problems

    return sparse_problems.broyden_banded(x, xp=xp)


def brusselator_inputs(n):
    from wonderland.testing.sparse_problems import brusselator_start

    return (brusselator_start(n).ravel() + 1.0,)


def banded_inputs(n):
    return (np.sin(np.arange(float(n))),)


def ours(f, x):
    import wonderland as wl

    jacobian = wl.sparse.jacobian(f)
    return lambda: jacobian(x).data


def in_scipy(f, x):
    from scipy.optimize._numdiff import approx_derivative, group_columns

    import wonderland as wl

    pattern = wl.sparse.jacobian_pattern(f, x)
    sparsity = pattern, group_columns(pattern)

    differences: Any = partial(approx_derivative, f, x, method="2-point", sparsity=sparsity)
    return lambda: differences().data


def in_jax(transform, f, x):
    import jax

    import wonderland as wl

    rows, columns = map(jax.numpy.asarray, wl.sparse.jacobian_pattern(f, x).nonzero())
    derivative = getattr(jax, transform)(partial(f, xp=jax.numpy))
    compiled, x = jax.jit(lambda x: derivative(x)[rows, columns]), jax.numpy.asarray(x)
    return lambda: compiled(x).block_until_ready()


for name, f, inputs, sizes, dense in (
    ("brusselator", flat_brusselator, brusselator_inputs, (16, 32, 128), 64),
    ("banded", broyden_banded, banded_inputs, (1_000, 100_000), 10_000),
):
    for n in sizes:
        about = f"on a {n} x {n} grid" if name == "brusselator" else f"{n:,} variables, 7 entries a row"
        elements = 2 * n * n if name == "brusselator" else n
        benchmark = Benchmark(
            f"sparse_{name}_{n}",
            GROUP,
            f"Jacobian of the {name} function, {about}, float64, per call",
            partial(inputs, n),
            targets={"scipy": 0.33},
            rtol=1e-4,
            atol=1e-2,  # differences: their error is of this size, with a Laplacian of 1e5
            float64=True,
            left_out={} if n < dense else {p: t.format(elements**2 * 8e-9) for p, t in TOO_LARGE.items()},
        )
        benchmark.contender("wonderland")(partial(ours, f))
        benchmark.contender("scipy")(partial(in_scipy, f))
        if n < dense:
            benchmark.contender("jax")(partial(in_jax, "jacfwd", f))
            benchmark.contender("jax.reverse")(partial(in_jax, "jacrev", f))
