"""A whole training step of a small network: forward, backward and Adam, one step after the other.

The targets are smoothed labels: with hard ones the network learns them by heart within the first rounds, and
what would be timed then is arithmetic on subnormal numbers, which some contenders flush to zero.
"""

from functools import partial

import numpy as np

from bench.registry import Benchmark

RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8
SIZES = {"adam_small": (16, 32, 10, 32), "adam": (784, 256, 10, 128)}  # inputs, hidden, classes, batch
LIMITS = {"adam_small": 0.35, "adam": 0.9}


def make_inputs(inputs, hidden, classes, batch):
    """Parameters, a batch, and its targets as probabilities."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    parameters = {
        "w1": normal(inputs, hidden) / np.float32(inputs**0.5),
        "b1": np.zeros(hidden, np.float32),
        "w2": normal(hidden, classes) / np.float32(hidden**0.5),
        "b2": np.zeros(classes, np.float32),
    }
    labels = np.eye(classes, dtype=np.float32)[rng.integers(classes, size=batch)]
    return parameters, normal(batch, inputs), np.float32(0.9) * labels + np.float32(0.1 / classes)


def ours(parameters, x, y):
    import wonderland as wl

    @wl.register_mutable
    class State:
        """Weights and Adam's moments, updated in place by the native call."""

        def __init__(self):
            self.p = {k: w.copy() for k, w in parameters.items()}
            self.m = {k: np.zeros_like(w) for k, w in parameters.items()}
            self.v = {k: np.zeros_like(w) for k, w in parameters.items()}
            self.t = np.zeros((), np.float32)

    def loss(p, x, y):
        hidden = np.tanh(x @ p["w1"] + p["b1"])
        logits = hidden @ p["w2"] + p["b2"]
        top = np.max(logits, axis=1, keepdims=True)
        logsumexp = np.log(np.sum(np.exp(logits - top), axis=1)) + top[:, 0]
        return np.mean(logsumexp - np.sum(y * logits, axis=1))

    @wl.jit
    def step(state, x, y):
        value, g = wl.value_and_grad(loss)(state.p, x, y)
        state.t = state.t + 1
        scale1, scale2 = 1 / (1 - BETA1**state.t), 1 / (1 - BETA2**state.t)
        for k, w in state.p.items():
            state.m[k] = BETA1 * state.m[k] + (1 - BETA1) * g[k]
            state.v[k] = BETA2 * state.v[k] + (1 - BETA2) * g[k] ** 2
            state.p[k] = w - RATE * (state.m[k] * scale1) / (np.sqrt(state.v[k] * scale2) + EPSILON)
        return value

    state = State()
    return lambda: step(state, x, y)


def in_numpy(parameters, x, y):
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
        scale1, scale2 = 1 / (1 - BETA1**t), 1 / (1 - BETA2**t)
        for k, g in gradients.items():
            m[k] *= BETA1
            m[k] += (1 - BETA1) * g
            v[k] *= BETA2
            v[k] += (1 - BETA2) * (g * g)
            p[k] -= RATE * scale1 * m[k] / (np.sqrt(scale2 * v[k]) + EPSILON)
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
    optimizer = torch.optim.Adam(model.parameters(), RATE, (BETA1, BETA2), EPSILON, fused=True)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    loss = compile(lambda x, y: torch.nn.functional.cross_entropy(model(x), y))

    def call():
        optimizer.zero_grad()
        value = loss(x, y)
        value.backward()
        optimizer.step()
        return value

    return call


def in_jax(parameters, x, y):
    import jax
    import jax.numpy as jnp

    def loss(p, x, y):
        logits = jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - jnp.sum(y * logits, axis=1))

    @partial(jax.jit, donate_argnums=0)
    def step(state, x, y):
        p, m, v, t = state
        value, g = jax.value_and_grad(loss)(p, x, y)
        t = t + 1
        scale1, scale2 = 1 / (1 - BETA1**t), 1 / (1 - BETA2**t)
        m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, m, g)
        v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g**2, v, g)
        p = jax.tree.map(lambda p, m, v: p - RATE * (m * scale1) / (jnp.sqrt(v * scale2) + EPSILON), p, m, v)
        return value, (p, m, v, t)

    # Donated buffers must be distinct: one set of zeros each.
    p = {k: jnp.array(w) for k, w in parameters.items()}
    m, v = ({k: jnp.zeros(w.shape) for k, w in parameters.items()} for _ in range(2))
    state = [(p, m, v, jnp.float32(0))]
    x, y = jnp.asarray(x), jnp.asarray(y)

    def call():
        value, state[0] = step(state[0], x, y)
        return value.block_until_ready()

    return call


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
