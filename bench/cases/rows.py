"""What is done row by row: softmax, layer normalisation, cross-entropy; alone, and with the derivative behind it.

Backwards means: with a given cotangent (softmax, layer normalisation), or of the mean loss (cross-entropy).
NumPy's backward passes are the ones people write by hand.
"""

from functools import partial

import numpy as np

from bench.registry import Benchmark

ROWS, COLUMNS = 4096, 1024
EPSILON = 1e-5


def make_inputs(*kinds):
    """Matrices, vectors of one entry per column, labels of one per row."""
    rng = np.random.default_rng(0)
    makers = {
        "matrix": lambda: rng.standard_normal((ROWS, COLUMNS), np.float32),
        "vector": lambda: rng.standard_normal(COLUMNS, np.float32),
        "labels": lambda: rng.integers(COLUMNS, size=ROWS),
    }
    return tuple(makers[kind]() for kind in kinds)


def softmax(x):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def layer_norm(x, scale, shift):
    centred = x - np.mean(x, axis=1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + EPSILON) * scale + shift


def cross_entropy(x, labels):
    top = np.max(x, axis=1, keepdims=True)
    logsumexp = np.log(np.sum(np.exp(x - top), axis=1)) + top[:, 0]
    return np.mean(logsumexp - x[np.arange(len(labels)), labels])


def softmax_both(x, ct):
    y = softmax(x)
    return y, (y * (ct - np.sum(ct * y, axis=1, keepdims=True)),)


def layer_norm_both(x, scale, shift, ct):
    centred = x - np.mean(x, axis=1, keepdims=True)
    rate = 1 / np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + EPSILON)
    normal = centred * rate
    d = ct * scale
    across = np.mean(d, axis=1, keepdims=True) + normal * np.mean(d * normal, axis=1, keepdims=True)
    return normal * scale + shift, ((d - across) * rate, np.sum(ct * normal, axis=0), np.sum(ct, axis=0))


def cross_entropy_both(x, labels):
    rows, e = np.arange(len(labels)), np.exp(x - np.max(x, axis=1, keepdims=True))
    p = e / np.sum(e, axis=1, keepdims=True)
    value = -np.mean(np.log(p[rows, labels]))
    p[rows, labels] -= 1
    return value, (p / np.float32(len(labels)),)


def jax_functions():
    import jax
    import jax.numpy as jnp

    def layer_norm(x, scale, shift):
        centred = x - jnp.mean(x, axis=1, keepdims=True)
        return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=1, keepdims=True) + EPSILON) * scale + shift

    def cross_entropy(x, labels):
        picked = jnp.take_along_axis(x, labels[:, None], axis=1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(x, axis=1) - picked)

    return {"softmax": partial(jax.nn.softmax, axis=1), "layer_norm": layer_norm, "cross_entropy": cross_entropy}


def torch_functions():
    from torch.nn import functional

    return {
        "softmax": lambda x: functional.softmax(x, 1),
        "layer_norm": lambda x, scale, shift: functional.layer_norm(x, (COLUMNS,), scale, shift, EPSILON),
        "cross_entropy": functional.cross_entropy,
    }


FORWARD = {"softmax": softmax, "layer_norm": layer_norm, "cross_entropy": cross_entropy}
BOTH = {"softmax": softmax_both, "layer_norm": layer_norm_both, "cross_entropy": cross_entropy_both}
INPUTS = {
    "softmax": ("matrix",),
    "layer_norm": ("matrix", "vector", "vector"),
    "cross_entropy": ("matrix", "labels"),
}


def ours(name, *inputs):
    import wonderland as wl

    compiled = wl.jit(FORWARD[name])
    return lambda: compiled(*inputs)


def ours_both(name, *inputs):
    import wonderland as wl

    function = FORWARD[name]
    if name == "cross_entropy":
        compiled = wl.jit(wl.value_and_grad(function))
        return lambda: compiled(*inputs)

    @wl.jit
    def both(*inputs):
        y, pullback = wl.vjp(function, *inputs[:-1])
        return y, pullback(inputs[-1])

    return lambda: both(*inputs)


def in_numpy(name, *inputs):
    return lambda: FORWARD[name](*inputs)


def in_numpy_both(name, *inputs):
    return lambda: BOTH[name](*inputs)


def in_jax(name, *inputs):
    import jax

    compiled = jax.jit(jax_functions()[name])
    inputs = [jax.numpy.asarray(a) for a in inputs]
    return lambda: jax.block_until_ready(compiled(*inputs))


def in_jax_both(name, *inputs):
    import jax

    function = jax_functions()[name]

    def both(*inputs):
        y, pullback = jax.vjp(function, *inputs[:-1])
        return y, pullback(inputs[-1])

    compiled = jax.jit(jax.value_and_grad(function) if name == "cross_entropy" else both)
    inputs = [jax.numpy.asarray(a) for a in inputs]
    return lambda: jax.block_until_ready(compiled(*inputs))


def in_torch(name, compile, *inputs):
    import torch

    function, inputs = compile(torch_functions()[name]), [torch.from_numpy(a) for a in inputs]

    def call():
        with torch.inference_mode():
            return function(*inputs)

    return call


def in_torch_both(name, compile, *inputs):
    import torch

    function, tensors = compile(torch_functions()[name]), [torch.from_numpy(a) for a in inputs]
    if name == "cross_entropy":
        wanted, given, ct = tensors[:1], tensors, None
    else:
        wanted, given, ct = tensors[:-1], tensors[:-1], tensors[-1]
    for tensor in wanted:
        tensor.requires_grad_()

    def call():
        y = function(*given)
        return y, torch.autograd.grad(y, wanted, ct)

    return call


for name, kinds in INPUTS.items():
    for both in (False, True):
        benchmark = Benchmark(
            name + ("_backward" if both else ""),
            "row by row, 4096x1024 float32",
            f"{name} of 4096x1024 float32, forward{' and backward' if both else ''}",
            partial(make_inputs, *kinds, *(["matrix"] if both and name != "cross_entropy" else [])),
            limit=0.8,
            rtol=1e-3,
            atol=1e-4 if name == "layer_norm" else 1e-6,
        )
        benchmark.contender("wonderland")(partial(ours_both if both else ours, name))
        benchmark.contender("numpy")(partial(in_numpy_both if both else in_numpy, name))
        benchmark.torch(partial(in_torch_both if both else in_torch, name))
        benchmark.contender("jax")(partial(in_jax_both if both else in_jax, name))
