"""A training step of four residual blocks with batch normalisation and its running statistics, with momentum."""

from functools import partial

import numpy as np

from bench import training
from bench.registry import Benchmark

BATCH, CHANNELS, SIZE, CLASSES = 16, 64, 32, 10
BLOCKS = 4
EPSILON, KEPT = 1e-5, 0.9  # PyTorch's: a running statistic keeps 0.9 of itself
PIXELS = BATCH * SIZE * SIZE
MOMENTUM = training.Momentum(1e-2)
LAYERS = [f"{block}{half}" for block in range(BLOCKS) for half in "ab"]


def make_inputs():
    """Parameters, running statistics, images of 64 channels, and their targets as probabilities."""
    rng = np.random.default_rng(0)
    normal = partial(training.normal, rng)
    parameters, statistics = {}, {}
    for layer in LAYERS:
        parameters[f"w{layer}"] = normal(CHANNELS, CHANNELS, 3, 3, fan=4.5 * CHANNELS)
        parameters[f"scale{layer}"], parameters[f"shift{layer}"] = np.ones(CHANNELS, np.float32), normal(CHANNELS) / 10
        statistics[f"mean{layer}"] = np.zeros(CHANNELS, np.float32)
        statistics[f"var{layer}"] = np.ones(CHANNELS, np.float32)
    parameters["w"] = normal(CHANNELS, CLASSES, fan=CHANNELS)
    parameters["b"] = np.zeros(CLASSES, np.float32)
    images = normal(BATCH, CHANNELS, SIZE, SIZE)
    return parameters, statistics, images, training.targets(rng, BATCH, CLASSES)


def running(kept, mean, var):
    """Statistics after a batch; those of the variance have n - 1 in the denominator, as PyTorch's."""
    return KEPT * kept[0] + (1 - KEPT) * mean, KEPT * kept[1] + (1 - KEPT) * PIXELS / (PIXELS - 1) * var


def ours(parameters, statistics, x, y):
    import wonderland as wl

    def norm(x, scale, shift, kept):
        mean, var = (f(x, axis=(0, 2, 3), keepdims=True) for f in (np.mean, np.var))
        x = (x - mean) / np.sqrt(var + EPSILON) * scale[:, None, None] + shift[:, None, None]
        return x, running(kept, np.ravel(mean), np.ravel(var))

    def loss(p, s, x, y):
        new = {}

        def half(x, layer):
            kept = s[f"mean{layer}"], s[f"var{layer}"]
            x = wl.conv(x, p[f"w{layer}"], padding=1)
            x, (new[f"mean{layer}"], new[f"var{layer}"]) = norm(x, p[f"scale{layer}"], p[f"shift{layer}"], kept)
            return x

        for block in range(BLOCKS):
            x = np.maximum(x + half(np.maximum(half(x, f"{block}a"), 0), f"{block}b"), 0)
        logits = np.mean(x, axis=(2, 3)) @ p["w"] + p["b"]
        return training.cross_entropy(logits, y), new

    return training.ours(loss, MOMENTUM, parameters, statistics, x, y)


def in_torch(compile, parameters, statistics, x, y, channels_last=False):
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
            self.norm1 = nn.BatchNorm2d(CHANNELS)
            self.conv2 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
            self.norm2 = nn.BatchNorm2d(CHANNELS)

        def forward(self, x):
            inner = nn.functional.relu(self.norm1(self.conv1(x)))
            return nn.functional.relu(x + self.norm2(self.conv2(inner)))

    blocks, last = [Block() for _ in range(BLOCKS)], nn.Linear(CHANNELS, CLASSES)
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)
    with torch.no_grad():
        last.weight.copy_(torch.from_numpy(parameters["w"].T))
        last.bias.copy_(torch.from_numpy(parameters["b"]))
        halves = [half for b in blocks for half in ((b.conv1, b.norm1), (b.conv2, b.norm2))]
        for layer, (conv, norm) in zip(LAYERS, halves, strict=True):
            conv.weight.copy_(torch.from_numpy(parameters[f"w{layer}"]))
            norm.weight.copy_(torch.from_numpy(parameters[f"scale{layer}"]))
            norm.bias.copy_(torch.from_numpy(parameters[f"shift{layer}"]))
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    if channels_last:
        model, x = (each.to(memory_format=torch.channels_last) for each in (model, x))
    optimizer = torch.optim.SGD(model.parameters(), MOMENTUM.rate, MOMENTUM.momentum, fused=True)
    loss = compile(lambda x, y: nn.functional.cross_entropy(model(x), y))
    return training.in_torch(loss, optimizer, x, y)


def in_jax(parameters, statistics, x, y):
    """Channels last: images (n, height, width, channels), weights (height, width, in, out)."""
    import jax
    import jax.numpy as jnp

    def norm(x, scale, shift, kept):
        mean, var = jnp.mean(x, axis=(0, 1, 2)), jnp.var(x, axis=(0, 1, 2))
        return (x - mean) * (scale * jax.lax.rsqrt(var + EPSILON)) + shift, running(kept, mean, var)

    def loss(p, s, x, y):
        new = {}

        def half(x, layer):
            kept = s[f"mean{layer}"], s[f"var{layer}"]
            layout = ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(x, p[f"w{layer}"], (1, 1), "SAME", dimension_numbers=layout)
            x, (new[f"mean{layer}"], new[f"var{layer}"]) = norm(x, p[f"scale{layer}"], p[f"shift{layer}"], kept)
            return x

        for block in range(BLOCKS):
            x = jax.nn.relu(x + half(jax.nn.relu(half(x, f"{block}a")), f"{block}b"))
        logits = jnp.mean(x, axis=(1, 2)) @ p["w"] + p["b"]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - jnp.sum(y * logits, axis=1)), new

    moved = {k: np.moveaxis(w, (0, 1), (3, 2)) if w.ndim == 4 else w for k, w in parameters.items()}
    return training.in_jax(loss, MOMENTUM, moved, statistics, np.moveaxis(x, 1, 3), y)


benchmark = Benchmark(
    "resnet",
    "training steps of networks",
    f"{BLOCKS} residual blocks with batch norm, images {BATCH}x{CHANNELS}x{SIZE}x{SIZE}; momentum; float32",
    make_inputs,
    limit=0.8,
    rtol=1e-3,
    check_calls=5,
)
benchmark.contender("wonderland")(ours)
benchmark.torch_in_both_formats(in_torch)
benchmark.contender("jax")(in_jax)
