"""How often something is computed, and how much memory that takes."""

import gc
import tracemalloc
from collections import Counter

import numpy as np

import wonderland as wl
from wonderland.core.primitive import Primitive, registry

MEGABYTE = 2**20
counts: Counter = Counter()


def counting(name):
    """The identity, counted each time that it is evaluated, in compiled code too."""

    def evaluate(x):
        counts[name] += 1
        return np.positive(x)

    made = Primitive(
        name,
        evaluate,
        lambda x: x,
        jvp=lambda p, t: (made(p[0]), t[0]),
        batch=lambda size, args, batched: made(args[0]),
    )
    del registry[name]  # it is of this file only
    return wl.as_function(made)


tick = counting("tick")
tock = counting("tock")


def counted(f, *args):
    """The result, and how often `tick` was evaluated."""
    counts.clear()
    out = f(*args)
    return out, counts["tick"]


def with_peak(f, *args):
    """The result, and the most memory that Python saw in use during the call, beside what was there before."""
    gc.collect()
    tracemalloc.start()
    try:
        out = f(*args)
        return out, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def peak_of(f, *args):
    """The most memory of a call that isn't the first: what is made once is there."""
    f(*args)
    return with_peak(f, *args)[1]


def same(a, b, rtol=1e-12, atol=1e-13):
    wl.tree_map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=atol), a, b)
