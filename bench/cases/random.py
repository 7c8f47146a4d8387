"""Random numbers without a compiler: what `wl.random` takes for a draw, beside NumPy's generator."""

from functools import partial

import numpy as np

from bench.registry import Benchmark

GROUP = "random numbers, eager"
LAWS = {"normal": "standard_normal", "uniform": "random", "exponential": "standard_exponential"}
SIZE = 1_000_000


def described(x):
    """What the numbers of two generators have in common."""
    return np.array([x.size, x.itemsize])


def ours(law, dtype):
    import wonderland as wl

    draw, key = getattr(wl.random, law), wl.random.key(0)
    return lambda: described(draw(key, (SIZE,), dtype=dtype))


def in_numpy(law, dtype):
    draw = getattr(np.random.default_rng(0), LAWS[law])
    return lambda: described(draw(SIZE, dtype=dtype))


for law in LAWS:
    for dtype in ("float64", "float32"):
        about = f"{law}, 10^6 numbers, {dtype}, not compiled"
        benchmark = Benchmark(f"random_{law}_f{dtype[-2:]}", GROUP, about, limit=2.0, rtol=0, atol=0)
        benchmark.contender("wonderland")(partial(ours, law, dtype))
        benchmark.contender("numpy")(partial(in_numpy, law, dtype))
