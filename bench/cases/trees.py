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


donate1000 = Benchmark(
    "donate1000",
    "cost of a call",
    f"p <- p/2 + w for a list of 1000 donated arrays of {SIZE} float32 and a captured w, per call",
    lambda: ([np.full(SIZE, 0.5, np.float32) for _ in range(1000)], np.full(SIZE, ADD, np.float32)),
    seconds=100e-6,
    check_calls=3,
)


@donate1000.contender("wonderland")
def ours_donated(arrays, w):
    import wonderland as wl

    step = wl.jit(lambda arrays: [KEEP * p + w for p in arrays], donate=0)
    state = [[a.copy() for a in arrays]]

    def call():
        state[0] = step(state[0])
        return state[0]

    return call


@donate1000.contender("numpy")
def numpy_in_place(arrays, w):
    arrays = [a.copy() for a in arrays]

    def call():
        for p in arrays:
            p *= KEEP
            p += w
        return arrays

    return call


twomodels = Benchmark(
    "twomodels",
    "cost of a call",
    "a step on two equal models of 100 layers in turn, against two steps on one of them",
    limit=1.2,
    check_calls=2,
)


def equal_models():
    """A jitted step, and two models whose static attributes are equal, but not the same objects."""
    import wonderland as wl

    @wl.register_mutable
    class Layer:
        """One layer."""

        def __init__(self, i):
            self.weight = np.full((SIZE, SIZE), 0.5, np.float32)
            self.bias = np.full(SIZE, 0.5, np.float32)
            self.rate, self.name, self.size, self.slope = float(f"{ADD}"), f"layer {i}", (SIZE, 1000 + i), np.tanh

    @wl.register_mutable
    class Model:
        """Many layers."""

        def __init__(self):
            self.layers = [Layer(i) for i in range(100)]

    @wl.jit
    def step(model):
        for layer in model.layers:
            layer.weight = KEEP * layer.weight + layer.rate
            layer.bias = KEEP * layer.bias + layer.rate

    return step, Model(), Model()


def steps(step, first, second):
    def call():
        step(first)
        step(second)
        return [layer.weight for layer in first.layers]

    return call


@twomodels.contender("wonderland")
def in_turn():
    return steps(*equal_models())


@twomodels.contender("wonderland.one")
def one_alone():
    step, model, _ = equal_models()
    return steps(step, model, model)
