"""A call with a large tree of small arrays that are updated in place: what the way in and out of a call costs.

The arithmetic is next to nothing (a multiply-add on 8 numbers per array) and is part of the time.
"""

import numpy as np

from bench.registry import Benchmark

ARRAYS, SIZE = 600, 8
KEEP, ADD = 0.5, 0.25  # has a fixed point: nothing becomes subnormal


def make_inputs():
    rng = np.random.default_rng(0)
    return ([rng.random(SIZE, np.float32) for _ in range(ARRAYS)],)


tree600 = Benchmark(
    "tree600",
    "cost of a call",
    f"p <- p/2 + 1/4 in place for a tree of {ARRAYS} arrays of {SIZE} float32, per call",
    make_inputs,
    seconds=30e-6,
    check_calls=3,
    left_out={"torch.compile": "takes minutes to compile, and is about as fast as eager"},
)


@tree600.contender("wonderland")
def ours(arrays):
    import wonderland as wl

    @wl.register_mutable
    class State:
        """The tree."""

        def __init__(self):
            self.arrays = [a.copy() for a in arrays]

    @wl.jit
    def step(state):
        for i, p in enumerate(state.arrays):
            state.arrays[i] = KEEP * p + ADD

    state = State()

    def call():
        step(state)
        return state.arrays

    return call


@tree600.contender("numpy")
def in_numpy(arrays):
    arrays = [a.copy() for a in arrays]

    def call():
        for p in arrays:
            p *= KEEP
            p += ADD
        return arrays

    return call


@tree600.contender("torch")
def in_torch(arrays):
    import torch

    arrays = [torch.from_numpy(a.copy()) for a in arrays]

    def call():
        with torch.inference_mode():
            torch._foreach_mul_(arrays, KEEP)  # type: ignore
            torch._foreach_add_(arrays, ADD)  # type: ignore
        return arrays

    return call


@tree600.contender("jax")
def in_jax(arrays):
    from functools import partial

    import jax

    @partial(jax.jit, donate_argnums=0)
    def step(arrays):
        return [KEEP * p + ADD for p in arrays]

    state = [[jax.numpy.array(a) for a in arrays]]

    def call():
        state[0] = jax.block_until_ready(step(state[0]))
        return state[0]

    return call
