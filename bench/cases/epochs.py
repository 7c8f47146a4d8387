"""Epochs of training on the digits, from the data to the history: the loader, the steps and the loop's own cost.

Each contender trains as its users do: we with `train.fit` and a `Loader`, PyTorch with a `DataLoader` and a loop, JAX
with a hand-written one around a jitted step. All shuffle, and keep the last, smaller batch. Nobody validates. What is
timed is a call of a few epochs. The orders of the samples differ, so that results aren't compared.
"""

from functools import partial

import numpy as np

from bench.registry import Benchmark

EPOCHS, BATCH, RATE, DROPOUT = 3, 64, 1e-3, 0.2
SAMPLES, CLASSES = 1437, 10  # four fifths of the digits


def images():
    """As large as scikit-learn's digits; what they show is nothing to the time."""
    rng = np.random.default_rng(0)
    return rng.random((SAMPLES, 1, 8, 8), np.float32), rng.integers(CLASSES, size=SAMPLES)


def layers(nn, name):
    """The layers of a recipe, in a library's own words."""
    if name == "mlp":
        sizes = (64, 128), (128, 64), (64, CLASSES)
        first, second, last = (nn.Linear(*size) for size in sizes)
        return [nn.Flatten(), first, nn.ReLU(), nn.Dropout(DROPOUT), second, nn.ReLU(), nn.Dropout(DROPOUT), last]
    blocks = []
    for inputs, outputs, pooled in ((1, 32, False), (32, 32, True), (32, 64, True)):
        blocks += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        blocks += [nn.MaxPool2d(2)] if pooled else []
    return [*blocks, nn.Flatten(), nn.Dropout(DROPOUT), nn.Linear(256, CLASSES)]


def ours(name, x, y):
    from wonderland import data, nn, train

    model = nn.Sequential(*layers(nn, name))
    optimizer = train.Adam(model, rate=RATE)
    loader = data.Loader((x, y), BATCH, shuffle=True)

    def loss(model, x, y):
        return nn.cross_entropy(model(x), y)

    def call():
        train.fit(model, loss, optimizer, loader, epochs=EPOCHS, progress=False)
        return ()

    return call


def in_torch(name, x, y):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Sequential(*layers(torch.nn, name))
    optimizer = torch.optim.Adam(model.parameters(), RATE, fused=True)
    loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), BATCH, shuffle=True)

    def call():
        for _ in range(EPOCHS):
            for images, labels in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
        return ()

    return call


def in_jax(name, x, y):
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)

    def dense(inputs, outputs):
        return jnp.asarray(rng.normal(0, inputs**-0.5, (outputs, inputs)), jnp.float32), jnp.zeros(outputs)

    def dropped(x, key):
        return jnp.where(jax.random.bernoulli(key, 1 - DROPOUT, x.shape), x / (1 - DROPOUT), 0)

    def mlp(weights, x, key):
        x = x.reshape(len(x), -1)
        for i, (w, b) in enumerate(weights):
            x = x @ w.T + b
            x = dropped(jax.nn.relu(x), jax.random.fold_in(key, i)) if i < 2 else x
        return x

    def cnn(weights, x, key):
        for i, (w, b, scale, shift) in enumerate(weights[:-1]):
            x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME") + b[:, None, None]
            mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
            x = scale[:, None, None] * (x - mean) / jnp.sqrt(variance + 1e-5) + shift[:, None, None]
            x = jax.nn.relu(x)
            if i:
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        w, b = weights[-1]
        return dropped(x.reshape(len(x), -1), key) @ w.T + b

    if name == "mlp":
        forward, weights = mlp, [dense(64, 128), dense(128, 64), dense(64, CLASSES)]
    else:
        shapes = (32, 1, 3, 3), (32, 32, 3, 3), (64, 32, 3, 3)
        weights = [
            (jnp.asarray(rng.normal(0, 0.1, s), jnp.float32), jnp.zeros(s[0]), jnp.ones(s[0]), jnp.zeros(s[0]))
            for s in shapes
        ]
        forward, weights = cnn, [*weights, dense(256, CLASSES)]

    def loss(weights, x, y, key):
        logits = forward(weights, x, key)
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - jnp.take_along_axis(logits, y[:, None], 1)[:, 0])

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(weights, m, v, t, x, y):
        value, g = jax.value_and_grad(loss)(weights, x, y, jax.random.fold_in(jax.random.PRNGKey(0), t))
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, g)
        scale = RATE * jnp.sqrt(1 - 0.999 ** (t + 1.0)) / (1 - 0.9 ** (t + 1.0))
        weights = jax.tree.map(lambda w, m, v: w - scale * m / (jnp.sqrt(v) + 1e-8), weights, m, v)
        return weights, m, v, value

    state = [weights, jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights)]
    done = [0]

    def call():
        for _ in range(EPOCHS):
            order = rng.permutation(SAMPLES)
            for start in range(0, SAMPLES, BATCH):
                chosen = order[start : start + BATCH]
                weights, m, v, value = step(state[0], state[1], state[2], done[0], x[chosen], y[chosen])
                state[:] = weights, m, v
                done[0] += 1
        value.block_until_ready()
        return ()

    return call


for name, limit in (("mlp", 0.3), ("cnn", 0.7)):
    benchmark = Benchmark(
        f"epochs_digits_{name}", "epochs of training, with loading", f"{EPOCHS} epochs of digits-{name}, batch {BATCH}",
        images, limit=limit,
    )  # fmt: skip
    for who, prepare in (("wonderland", ours), ("torch", in_torch), ("jax", in_jax)):
        benchmark.contender(who)(partial(prepare, name))
