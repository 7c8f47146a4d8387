"""Causal attention of 8 heads, 64 wide, and its derivatives for a given cotangent, from short to long sequences."""

from functools import partial

import numpy as np

from bench.measure import Moved
from bench.registry import Benchmark

HEADS, WIDTH = 8, 64
BATCHES = {64: 8, 256: 4, 1024: 2, 4096: 1}  # by length


def make_inputs(length, batch):
    """Queries, keys, values and a cotangent, as (batch, heads, time, width)."""
    rng = np.random.default_rng(length)
    return tuple(rng.standard_normal((batch, HEADS, length, WIDTH), np.float32) for _ in range(4))


def ours(*inputs):
    import wonderland as wl

    @wl.jit
    def both(q, k, v, ct):
        y, pullback = wl.vjp(lambda q, k, v: wl.attention(q, k, v, causal=True), q, k, v)
        return y, pullback(ct)

    return partial(both, *inputs)


def in_torch(compile, *inputs):
    import torch

    attend = compile(partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True))
    *inputs, ct = (torch.from_numpy(array) for array in inputs)
    inputs = [array.requires_grad_() for array in inputs]

    def call():
        y = attend(*inputs)
        return y, torch.autograd.grad(y, inputs, ct)

    return call


def in_jax(*inputs):
    import jax
    import jax.numpy as jnp

    @jax.jit
    def both(q, k, v, ct):
        y, pullback = jax.vjp(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), q, k, v)
        return y, pullback(ct)

    inputs = [jnp.asarray(np.swapaxes(array, 1, 2)) for array in inputs]

    def call():
        y, gradients = jax.block_until_ready(both(*inputs))
        return tuple(Moved(array, 1, 2) for array in (y, *gradients))  # JAX has heads after time

    return call


for length, batch in BATCHES.items():
    benchmark = Benchmark(
        f"attention_{length}",
        "attention",
        f"causal attention, {batch} x {HEADS} heads x {length} x {WIDTH} float32, forward and backward",
        partial(make_inputs, length, batch),
        limit=0.9,
        rtol=1e-4,
        atol=1e-4,
    )
    benchmark.contender("wonderland")(ours)
    benchmark.torch(in_torch)
    benchmark.contender("jax")(in_jax)
