"""Jacobians, Hessians and their products with vectors, and what an order of differentiation costs."""

import time
from functools import partial

import numpy as np

from bench.cases import adam
from bench.registry import Benchmark

GROUP = "Jacobians and second order"
ROUNDS = 20e-3  # seconds that one figure of a ratio is taken over


def problem(name):
    from wonderland.testing.problems import PROBLEMS

    return PROBLEMS[name].f


def ours(transform, name, x):
    import wonderland as wl

    compiled = wl.jit(transform(wl)(problem(name)))
    return lambda: compiled(x)


def in_jax(transform, name, x):
    import jax

    f = partial(problem(name), xp=jax.numpy)
    compiled, x = jax.jit(transform(jax)(f)), jax.numpy.asarray(x)
    return lambda: compiled(x).block_until_ready()


def in_torch(transform, name, x):
    import torch

    f = partial(problem(name), xp=torch)
    function, x = transform(torch.func)(f), torch.from_numpy(x)
    return lambda: function(x)


def problem_inputs(name, n=None):
    from wonderland.testing.problems import PROBLEMS, rosenbrock_start

    return PROBLEMS[name].args if n is None else (rosenbrock_start(n),)


# By columns or rows, as counted; `elimination` has the same functions by elimination.
for name in ("robot_arm", "roe_flux"):
    benchmark = Benchmark(
        f"jacobian_{name}_auto",
        GROUP,
        f"Jacobian of the {name.replace('_', ' ')}, one batched pass, float64, per call",
        partial(problem_inputs, name),
        limit=0.3,
        rtol=1e-10,
        atol=1e-12,
        float64=True,
    )
    benchmark.contender("wonderland")(partial(ours, lambda wl: wl.jacobian, name))
    benchmark.contender("jax")(partial(in_jax, lambda jax: jax.jacrev, name))
    benchmark.contender("jax.forward")(partial(in_jax, lambda jax: jax.jacfwd, name))
    benchmark.contender("torch")(partial(in_torch, lambda func: func.jacrev, name))

hessian = Benchmark(
    "hessian_rosenbrock200",
    GROUP,
    "Hessian of Rosenbrock's function, 200 variables, float64, per call",
    partial(problem_inputs, "rosenbrock", 200),
    limit=0.5,
    rtol=1e-10,
    atol=1e-9,
    float64=True,
)
hessian.contender("wonderland")(partial(ours, lambda wl: wl.hessian, "rosenbrock"))
hessian.contender("jax")(partial(in_jax, lambda jax: jax.hessian, "rosenbrock"))
hessian.contender("torch")(partial(in_torch, lambda func: func.hessian, "rosenbrock"))


def network_inputs(sizes):
    parameters, x, y = adam.make_inputs(*sizes)
    rng = np.random.default_rng(1)
    return parameters, x, y, {k: rng.standard_normal(w.shape).astype(np.float32) for k, w in parameters.items()}


def loss(p, x, y, xp=np):
    """Cross-entropy of a network with tanh; `xp` is the library."""
    logits = xp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
    shifted = logits - xp.amax(logits, 1)[:, None]
    return xp.mean(xp.log(xp.sum(xp.exp(shifted), 1)) - xp.sum(y * shifted, 1))


def our_product(p, x, y, v):
    import wonderland as wl

    product = wl.jit(lambda p, x, y, v: wl.hvp(loss, (p, x, y), (v, None, None)))
    return lambda: product(p, x, y, v)


def product_in_jax(p, x, y, v):
    import jax

    @jax.jit
    def product(p, x, y, v):
        return jax.jvp(lambda p: jax.grad(loss)(p, x, y, jax.numpy), (p,), (v,))[1]

    p, x, y, v = jax.tree.map(jax.numpy.asarray, (p, x, y, v))
    return lambda: jax.block_until_ready(product(p, x, y, v))


def product_in_torch(p, x, y, v):
    import torch

    p, v = ({k: torch.from_numpy(w) for k, w in tree.items()} for tree in (p, v))
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    gradient = torch.func.grad(lambda p: loss(p, x, y, torch))
    return lambda: torch.func.jvp(gradient, (p,), (v,))[1]


network = Benchmark(
    "hvp_network",
    GROUP,
    "Hessian-vector product of a network 784-256-10, batch 128, float32",
    partial(network_inputs, adam.SIZES["adam"]),
    limit=0.9,
    rtol=1e-3,
    atol=1e-3,
)
network.contender("wonderland")(our_product)
network.contender("jax")(product_in_jax)
network.contender("torch")(product_in_torch)


# The price of an order: the same network's product, gradient and function, all of them ours and compiled.


def order(which, p, x, y, v):
    import wonderland as wl

    function = {
        "hvp": lambda p, v: wl.hvp(loss, (p, x, y), (v, None, None)),
        "gradient": lambda p, v: wl.grad(loss)(p, x, y),
        "function": lambda p, v: loss(p, x, y),
    }[which]
    compiled = wl.jit(function)
    compiled(p, v)

    def call():
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < ROUNDS:
            compiled(p, v)
            count += 1
        return (time.perf_counter() - start) / count

    return lambda: call()


for size, (inputs, hidden, classes, batch) in adam.SIZES.items():
    for upper, lower in (("hvp", "gradient"), ("gradient", "function")):
        ratio = Benchmark(
            f"{upper}_{lower}{size.removeprefix('adam')}",
            "what an order of differentiation costs",
            f"{upper} beside the {lower} of a network {inputs}-{hidden}-{classes}, batch {batch}, float32, all ours",
            partial(network_inputs, (inputs, hidden, classes, batch)),
            limit=4,
            self_timed=True,
        )
        ratio.contender("wonderland")(partial(order, upper))
        ratio.contender(f"wonderland.{lower}")(partial(order, lower))
