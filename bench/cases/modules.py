"""Training steps of networks that are `nn.Module`s, with an optimiser of `wl.train`.

A residual MLP of 100 layers, a wide MLP, and ResNet-18 on small images. The whole step is one compiled call; the Python
around it is part of the time.
"""

from functools import partial
from itertools import pairwise

import numpy as np

from bench import training
from bench.registry import Benchmark

ADAM = training.Adam()
DEPTH, WIDTH, CLASSES = 100, 64, 10
SIZES = (784, 1024, 1024, CLASSES)


def trained(model, weights, x, y):
    """One jitted step of a Module, from these weights (PyTorch's names and layouts)."""
    import wonderland as wl
    from wonderland import nn, train

    model.load_state(weights, strict=False)
    optimizer = train.Adam(model, rate=ADAM.rate, betas=ADAM.betas, epsilon=ADAM.epsilon)

    @wl.jit
    def step(model, optimizer, x, y):
        loss, grads = wl.value_and_grad(lambda m: nn.cross_entropy(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    return partial(step, model, optimizer, x, y)


def trained_in_torch(compile, model, weights, x, y, channels_last=False):
    import torch

    model.load_state_dict({k: torch.from_numpy(w) for k, w in weights.items()}, strict=False)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    if channels_last:
        model, x = (each.to(memory_format=torch.channels_last) for each in (model, x))
    optimizer = torch.optim.Adam(model.parameters(), ADAM.rate, ADAM.betas, ADAM.epsilon, fused=True)
    loss = compile(lambda x, y: torch.nn.functional.cross_entropy(model(x), y))
    return training.in_torch(loss, optimizer, x, y)


def dense(rng, name, inputs, outputs):
    """Weights of a layer, (out, in)."""
    return {
        f"{name}.weight": training.normal(rng, outputs, inputs, fan=inputs),
        f"{name}.bias": np.zeros(outputs, np.float32),
    }


def batch(rng, *shape):
    return training.normal(rng, *shape), training.targets(rng, shape[0], CLASSES)


# -- 100 residual layers ------------------------------------------------------------------------------


def deep_inputs():
    rng = np.random.default_rng(0)
    weights = {}
    for i in range(DEPTH):
        weights |= dense(rng, f"layers.{i}", WIDTH, WIDTH)
        weights[f"layers.{i}.weight"] *= np.float32(DEPTH**-0.5)
    return weights | dense(rng, "head", WIDTH, CLASSES), *batch(rng, 64, WIDTH)


def deep(weights, x, y):
    from wonderland import nn

    class Deep(nn.Module):
        def __init__(self):
            self.layers = [nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)]
            self.head = nn.Linear(WIDTH, CLASSES)

        def __call__(self, x):
            for layer in self.layers:
                x = x + nn.relu(layer(x))
            return self.head(x)

    return trained(Deep(), weights, x, y)


def deep_in_torch(compile, weights, x, y):
    from torch import nn

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            for layer in self.layers:
                x = x + nn.functional.relu(layer(x))
            return self.head(x)

    return trained_in_torch(compile, Deep(), weights, x, y)


def deep_in_jax(weights, x, y):
    import jax

    def loss(p, statistics, x, y):
        for i in range(DEPTH):
            x = x + jax.nn.relu(x @ p[f"layers.{i}.weight"].T + p[f"layers.{i}.bias"])
        logits = x @ p["head.weight"].T + p["head.bias"]
        return jax.numpy.mean(jax.nn.logsumexp(logits, axis=1) - jax.numpy.sum(y * logits, axis=1)), statistics

    return training.in_jax(loss, ADAM, weights, {}, x, y)


# -- a wide MLP ---------------------------------------------------------------------------------------


def wide_inputs():
    rng = np.random.default_rng(0)
    weights = {}
    for i, (inputs, outputs) in enumerate(pairwise(SIZES)):
        weights |= dense(rng, f"{2 * i}", inputs, outputs)
    return weights, *batch(rng, 128, SIZES[0])


def wide(weights, x, y):
    from wonderland import nn

    first, second, last = (nn.Linear(*pair) for pair in pairwise(SIZES))
    return trained(nn.Sequential(first, nn.relu, second, nn.relu, last), weights, x, y)


def wide_in_torch(compile, weights, x, y):
    from torch import nn

    first, second, last = (nn.Linear(*pair) for pair in pairwise(SIZES))
    return trained_in_torch(compile, nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last), weights, x, y)


def wide_in_jax(weights, x, y):
    import jax

    def loss(p, statistics, x, y):
        for i in range(3):
            x = x @ p[f"{2 * i}.weight"].T + p[f"{2 * i}.bias"]
            x = jax.nn.relu(x) if i < 2 else x
        return jax.numpy.mean(jax.nn.logsumexp(x, axis=1) - jax.numpy.sum(y * x, axis=1)), statistics

    return training.in_jax(loss, ADAM, weights, {}, x, y)


# -- ResNet-18 ----------------------------------------------------------------------------------------


def resnet_inputs():
    """The weights of our own initialisation."""
    import wonderland as wl

    wl.random.seed(0)
    model = wl.models.resnet18(classes=CLASSES, stem="small")
    weights = {k: np.array(w) for k, w in model.state().items()}
    return weights, *batch(np.random.default_rng(0), 32, 3, 32, 32)


def resnet18(weights, x, y):
    import wonderland as wl

    return trained(wl.models.resnet18(classes=CLASSES, stem="small"), weights, x, y)


def resnet18_in_torch(compile, weights, x, y, channels_last=False):
    from torch import nn

    def conv(channels, out, kernel, stride=1):
        return nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)

    class Block(nn.Module):
        def __init__(self, channels, out, stride):
            super().__init__()
            self.conv1, self.bn1 = conv(channels, out, 3, stride), nn.BatchNorm2d(out)
            self.conv2, self.bn2 = conv(out, out, 3), nn.BatchNorm2d(out)
            same = stride == 1 and channels == out
            self.downsample = None if same else nn.Sequential(conv(channels, out, 1, stride), nn.BatchNorm2d(out))

        def forward(self, x):
            h = self.bn2(self.conv2(nn.functional.relu(self.bn1(self.conv1(x)))))
            return nn.functional.relu(h + (x if self.downsample is None else self.downsample(x)))

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = conv(3, 64, 3), nn.BatchNorm2d(64)
            widths = (64, 64, 128, 256, 512)
            for i in range(1, 5):
                first = Block(widths[i - 1], widths[i], 1 if i == 1 else 2)
                setattr(self, f"layer{i}", nn.Sequential(first, Block(widths[i], widths[i], 1)))
            self.fc = nn.Linear(512, CLASSES)

        def forward(self, x):
            x = nn.functional.relu(self.bn1(self.conv1(x)))
            for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
                x = layer(x)
            return self.fc(x.mean((2, 3)))

    return trained_in_torch(compile, ResNet(), weights, x, y, channels_last)


CASES = {
    "mlp_deep": (deep_inputs, deep, deep_in_torch, deep_in_jax, f"{DEPTH} residual layers {WIDTH}, batch 64", 0.6),
    "mlp_wide": (wide_inputs, wide, wide_in_torch, wide_in_jax, f"{SIZES}, batch 128", 0.85),
    "resnet18": (resnet_inputs, resnet18, resnet18_in_torch, None, "ResNet-18, images 32x3x32x32", 0.9),
}
for name, (inputs, ours, in_torch, in_jax, what, limit) in CASES.items():
    benchmark = Benchmark(
        name, "training steps of Modules", f"{what}; Adam; float32", inputs, limit=limit, rtol=2e-3, check_calls=3
    )
    benchmark.contender("wonderland")(ours)
    if in_jax is None:
        benchmark.torch_in_both_formats(in_torch)
    else:
        benchmark.torch(in_torch)
        benchmark.contender("jax")(in_jax)
