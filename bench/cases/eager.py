"""Gradients without a compiler: what the bookkeeping of eager derivatives costs, beside NumPy's own work."""

from functools import partial
from itertools import pairwise

import numpy as np

from bench.registry import Benchmark

GROUP = "gradients without a compiler"
TARGETS = {"autograd": 0.9, "torch": 1.3}


def rosenbrock(x, sum):
    return sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


eager_rosenbrock10 = Benchmark(
    "eager_rosenbrock10",
    GROUP,
    "gradient of Rosenbrock's function, 10 variables, float64, not compiled, per call",
    lambda: (np.random.default_rng(0).standard_normal(10),),
    targets=TARGETS,
    rtol=1e-9,
)


@eager_rosenbrock10.contender("wonderland")
def rosenbrock_ours(x):
    import wonderland as wl

    gradient = wl.grad(lambda x: rosenbrock(x, np.sum))
    return lambda: gradient(x)


@eager_rosenbrock10.contender("autograd")
def rosenbrock_autograd(x):
    import autograd
    import autograd.numpy as anp

    gradient = autograd.grad(lambda x: rosenbrock(x, anp.sum))  # type: ignore
    return lambda: gradient(x)  # type: ignore


@eager_rosenbrock10.contender("torch")
def rosenbrock_torch(x):
    import torch

    x = torch.from_numpy(x).requires_grad_()
    return lambda: torch.autograd.grad(rosenbrock(x, torch.sum), x)[0]


def mlp_inputs(sizes, batch):
    rng = np.random.default_rng(0)
    params = [rng.standard_normal((m, n)) / np.sqrt(m) for m, n in pairwise(sizes)]
    biases = [np.zeros(n) for n in sizes[1:]]
    x = rng.standard_normal((batch, sizes[0]), np.float32)
    labels = np.eye(sizes[-1], dtype=np.float32)[rng.integers(0, sizes[-1], batch)]
    return [[a.astype(np.float32) for a in group] for group in (params, biases)], x, labels


def loss(params, x, labels, xp):
    """Cross-entropy of a network with tanh between its layers: `xp` is the library."""
    h, last = x, len(params[0]) - 1
    for i, (w, b) in enumerate(zip(*params, strict=True)):
        h = h @ w + b
        if i < last:
            h = xp.tanh(h)
    z = h - xp.max(h, 1, keepdims=True)
    return -xp.mean(xp.sum(labels * (z - xp.log(xp.sum(xp.exp(z), 1, keepdims=True))), 1))


def mlp_ours(params, x, labels):
    import wonderland as wl

    gradient = wl.grad(lambda params: loss(params, x, labels, np))
    return lambda: [g for group in gradient(params) for g in group]


def mlp_autograd(params, x, labels):
    import autograd
    import autograd.numpy as anp

    gradient = autograd.grad(lambda params: loss(params, x, labels, anp))  # type: ignore
    return lambda: [g for group in gradient(params) for g in group]  # type: ignore


def mlp_torch(params, x, labels):
    import torch

    class Torch:
        """PyTorch's names for the functions of `loss`."""

        tanh, mean, sum, log, exp = torch.tanh, torch.mean, torch.sum, torch.log, torch.exp

        @staticmethod
        def max(h, axis, keepdims):
            return torch.amax(h, axis, keepdim=keepdims)

    params = [[torch.from_numpy(a).requires_grad_() for a in group] for group in params]
    x, labels = torch.from_numpy(x), torch.from_numpy(labels)
    flat = [p for group in params for p in group]
    return lambda: list(torch.autograd.grad(loss(params, x, labels, Torch), flat))


# In the small one most of the time is bookkeeping, in the large one matrix products.
for name, sizes, batch in (("eager_mlp3_small", (784, 128, 64, 10), 64), ("eager_mlp3", (784, 512, 256, 10), 128)):
    mlp = Benchmark(
        name,
        GROUP,
        f"gradient of a network {'-'.join(map(str, sizes))} with tanh and cross-entropy, batch {batch}, float32, "
        "not compiled, per call",
        partial(mlp_inputs, sizes, batch),
        targets=TARGETS,
        rtol=1e-3,
        atol=1e-5,
    )
    mlp.contender("wonderland")(mlp_ours)
    mlp.contender("autograd")(mlp_autograd)
    mlp.contender("torch")(mlp_torch)
