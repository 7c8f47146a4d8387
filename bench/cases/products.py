"""Matrix products with something around them: many small ones in a row, and a layer with its derivative."""

from functools import partial

import numpy as np

from bench.registry import Benchmark

LENGTH = 20


def chain_inputs(n):
    """A matrix, and an orthogonal one to multiply it with: the products neither grow nor shrink."""
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return rng.standard_normal((n, n), np.float32), rotation.astype(np.float32)


def chain(x, w):
    for _ in range(LENGTH):
        x = x @ w
    return x


def chain_ours(x, w):
    import wonderland as wl

    compiled = wl.jit(chain)
    return lambda: compiled(x, w)


def chain_numpy(x, w):
    return lambda: chain(x, w)


def chain_jax(x, w):
    import jax
    import jax.numpy as jnp

    compiled, x, w = jax.jit(chain), jnp.asarray(x), jnp.asarray(w)
    return lambda: compiled(x, w).block_until_ready()


def chain_torch(compile, x, w):
    import torch

    function, x, w = compile(chain), torch.from_numpy(x), torch.from_numpy(w)

    def call():
        with torch.inference_mode():
            return function(x, w)

    return call


for n in (16, 32):
    benchmark = Benchmark(
        f"chain_{n}",
        "chain of 20 products in one call",
        f"20 products of {n}x{n} float32, one after the other, in one compiled call",
        partial(chain_inputs, n),
        limit=0.3,
        rtol=1e-3,
        atol=1e-4,
    )
    benchmark.contender("wonderland")(chain_ours)
    benchmark.contender("numpy")(chain_numpy)
    benchmark.torch(chain_torch)
    benchmark.contender("jax")(chain_jax)


def layer_inputs():
    rng = np.random.default_rng(0)
    x, w, ct = (rng.standard_normal((512, 512), np.float32) for _ in range(3))
    return x, w, rng.standard_normal(512, np.float32), ct


relu_layer = Benchmark(
    "relu_layer",
    "layer, forward and backward",
    "relu(x @ w + b), 512x512x512 float32, with the derivatives by x, w and b",
    layer_inputs,
    limit=0.9,
    rtol=1e-3,
    atol=1e-2,
)


@relu_layer.contender("wonderland")
def layer_ours(x, w, b, ct):
    import wonderland as wl

    @wl.jit
    def both(x, w, b, ct):
        y, pullback = wl.vjp(lambda x, w, b: np.maximum(x @ w + b, 0), x, w, b)
        return y, pullback(ct)

    return lambda: both(x, w, b, ct)


@relu_layer.contender("numpy")
def layer_numpy(x, w, b, ct):
    def call():
        y = np.maximum(x @ w + b, 0)
        d = ct * (y > 0)
        return y, (d @ w.T, x.T @ d, np.sum(d, axis=0))

    return call


@relu_layer.torch
def layer_torch(compile, x, w, b, ct):
    import torch

    function = compile(lambda x, w, b: torch.relu(torch.addmm(b, x, w)))
    x, w, b = (torch.from_numpy(a).requires_grad_() for a in (x, w, b))
    ct = torch.from_numpy(ct)

    def call():
        y = function(x, w, b)
        return y, torch.autograd.grad(y, (x, w, b), ct)

    return call


@relu_layer.contender("jax")
def layer_jax(x, w, b, ct):
    import jax
    import jax.numpy as jnp

    @jax.jit
    def both(x, w, b, ct):
        y, pullback = jax.vjp(lambda x, w, b: jax.nn.relu(x @ w + b), x, w, b)
        return y, pullback(ct)

    inputs = [jnp.asarray(a) for a in (x, w, b, ct)]
    return lambda: jax.block_until_ready(both(*inputs))
