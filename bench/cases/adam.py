"""A whole training step of a small network: forward, backward and Adam, one step after the other."""

from functools import partial

import numpy as np

from bench import training
from bench.registry import Benchmark

ADAM = training.Adam()
SIZES = {"adam_small": (16, 32, 10, 32), "adam": (784, 256, 10, 128)}  # inputs, hidden, classes, batch
LIMITS = {"adam_small": 0.35, "adam": 0.9}


def make_inputs(inputs, hidden, classes, batch):
    """Parameters, a batch, and its targets as probabilities."""
    rng = np.random.default_rng(0)
    parameters = {
        "w1": training.normal(rng, inputs, hidden, fan=inputs),
        "b1": np.zeros(hidden, np.float32),
        "w2": training.normal(rng, hidden, classes, fan=hidden),
        "b2": np.zeros(classes, np.float32),
    }
    return parameters, training.normal(rng, batch, inputs), training.targets(rng, batch, classes)


def ours(parameters, x, y):
    def loss(p, statistics, x, y):
        hidden = np.tanh(x @ p["w1"] + p["b1"])
        return training.cross_entropy(hidden @ p["w2"] + p["b2"], y), statistics

    return training.ours(loss, ADAM, parameters, {}, x, y)


def in_numpy(parameters, x, y):
    (beta1, beta2), rate, epsilon = ADAM.betas, ADAM.rate, ADAM.epsilon
    p = {k: w.copy() for k, w in parameters.items()}
    m, v = ({k: np.zeros_like(w) for k, w in parameters.items()} for _ in range(2))
    t = 0

    def call():
        nonlocal t
        t += 1
        hidden = np.tanh(x @ p["w1"] + p["b1"])
        logits = hidden @ p["w2"] + p["b2"]
        logits -= np.max(logits, axis=1, keepdims=True)
        e = np.exp(logits)
        total = np.sum(e, axis=1, keepdims=True)
        value = np.mean(np.log(total[:, 0]) - np.sum(y * logits, axis=1))
        d2 = (e / total - y) / np.float32(len(x))
        d1 = (d2 @ p["w2"].T) * (1 - hidden * hidden)
        gradients = {"w1": x.T @ d1, "b1": d1.sum(0), "w2": hidden.T @ d2, "b2": d2.sum(0)}
        scale1, scale2 = 1 / (1 - beta1**t), 1 / (1 - beta2**t)
        for k, g in gradients.items():
            m[k] *= beta1
            m[k] += (1 - beta1) * g
            v[k] *= beta2
            v[k] += (1 - beta2) * (g * g)
            p[k] -= rate * scale1 * m[k] / (np.sqrt(scale2 * v[k]) + epsilon)
        return value

    return call


def in_torch(compile, parameters, x, y):
    import torch

    inputs, hidden = parameters["w1"].shape
    first, second = torch.nn.Linear(inputs, hidden), torch.nn.Linear(hidden, parameters["w2"].shape[1])
    with torch.no_grad():
        for name, layer in (("1", first), ("2", second)):
            layer.weight.copy_(torch.from_numpy(parameters["w" + name].T))
            layer.bias.copy_(torch.from_numpy(parameters["b" + name]))
    model = torch.nn.Sequential(first, torch.nn.Tanh(), second)
    optimizer = torch.optim.Adam(model.parameters(), ADAM.rate, ADAM.betas, ADAM.epsilon, fused=True)
    loss = compile(lambda x, y: torch.nn.functional.cross_entropy(model(x), y))
    return training.in_torch(loss, optimizer, torch.from_numpy(x), torch.from_numpy(y))


def in_jax(parameters, x, y):
    import jax
    import jax.numpy as jnp

    def loss(p, statistics, x, y):
        logits = jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - jnp.sum(y * logits, axis=1)), statistics

    return training.in_jax(loss, ADAM, parameters, {}, x, y)


for name, (inputs, hidden, classes, batch) in SIZES.items():
    benchmark = Benchmark(
        name,
        "training step with Adam",
        f"forward, backward and Adam, network {inputs}-{hidden}-{classes}, batch {batch}, float32",
        partial(make_inputs, inputs, hidden, classes, batch),
        limit=LIMITS[name],
        rtol=1e-3,
        check_calls=20,
    )
    benchmark.contender("wonderland")(ours)
    benchmark.contender("numpy")(in_numpy)
    benchmark.torch(in_torch)
    benchmark.contender("jax")(in_jax)
