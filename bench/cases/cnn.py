"""A training step of a small convolutional network on images of 28 x 28, with Adam."""

from functools import partial

import numpy as np

from bench import training
from bench.registry import Benchmark

BATCH, SIZE, CLASSES = 64, 28, 10
CHANNELS = 1, 32, 64
LEFT = SIZE // 4  # pixels a side after two poolings
ADAM = training.Adam()


def make_inputs():
    """Parameters, images, and their targets as probabilities."""
    rng = np.random.default_rng(0)
    normal = partial(training.normal, rng)
    one, two, three = CHANNELS
    inner = three * LEFT * LEFT
    parameters = {
        "w1": normal(two, one, 3, 3, fan=9 * one),
        "b1": np.zeros(two, np.float32),
        "w2": normal(three, two, 3, 3, fan=9 * two),
        "b2": np.zeros(three, np.float32),
        "w3": normal(inner, CLASSES, fan=inner),
        "b3": np.zeros(CLASSES, np.float32),
    }
    return parameters, normal(BATCH, one, SIZE, SIZE), training.targets(rng, BATCH, CLASSES)


def ours(parameters, x, y):
    import wonderland as wl

    def layer(x, w, b):
        return wl.max_pool(np.maximum(wl.conv(x, w, padding=1) + b[:, None, None], 0), 2)

    def loss(p, statistics, x, y):
        x = layer(layer(x, p["w1"], p["b1"]), p["w2"], p["b2"])
        logits = x.reshape(len(x), -1) @ p["w3"] + p["b3"]
        return training.cross_entropy(logits, y), statistics

    return training.ours(loss, ADAM, parameters, {}, x, y)


def in_torch(compile, parameters, x, y, channels_last=False):
    import torch
    from torch import nn

    one, two, three = CHANNELS
    layers = nn.Conv2d(one, two, 3, padding=1), nn.Conv2d(two, three, 3, padding=1), nn.Linear(three * LEFT**2, CLASSES)
    with torch.no_grad():
        for name, layer in zip("123", layers, strict=True):
            w = parameters["w" + name]
            layer.weight.copy_(torch.from_numpy(w.T if w.ndim == 2 else w))
            layer.bias.copy_(torch.from_numpy(parameters["b" + name]))
    first, second, last = layers
    model = nn.Sequential(first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), last)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    if channels_last:
        model, x = (each.to(memory_format=torch.channels_last) for each in (model, x))
    optimizer = torch.optim.Adam(model.parameters(), ADAM.rate, ADAM.betas, ADAM.epsilon, fused=True)
    loss = compile(lambda x, y: nn.functional.cross_entropy(model(x), y))
    return training.in_torch(loss, optimizer, x, y)


def in_jax(parameters, x, y):
    """Channels last: images (n, height, width, channels), weights (height, width, in, out)."""
    import jax
    import jax.numpy as jnp

    def layer(x, w, b):
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        n, height, width, channels = x.shape
        return jnp.max(jax.nn.relu(x + b).reshape(n, height // 2, 2, width // 2, 2, channels), axis=(2, 4))

    def loss(p, statistics, x, y):
        x = layer(layer(x, p["w1"], p["b1"]), p["w2"], p["b2"])
        logits = x.reshape(len(x), -1) @ p["w3"] + p["b3"]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - jnp.sum(y * logits, axis=1)), statistics

    last = parameters["w3"].reshape(CHANNELS[-1], LEFT, LEFT, CLASSES)
    parameters = parameters | {name: np.moveaxis(parameters[name], (0, 1), (3, 2)) for name in ("w1", "w2")}
    parameters["w3"] = np.moveaxis(last, 0, 2).reshape(-1, CLASSES)
    return training.in_jax(loss, ADAM, parameters, {}, np.moveaxis(x, 1, 3), y)


benchmark = Benchmark(
    "cnn",
    "training steps of networks",
    f"convolutions 1->32->64, pooling, linear; images {BATCH}x1x{SIZE}x{SIZE}; Adam; float32",
    make_inputs,
    limit=0.6,
    rtol=1e-3,
    check_calls=10,
)
benchmark.contender("wonderland")(ours)
benchmark.torch_in_both_formats(in_torch)
benchmark.contender("jax")(in_jax)
