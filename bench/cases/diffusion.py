"""Diffusion: training steps by score matching and sampling with 50 steps of DDIM, of the perceptron and the U-Net.

Noise and noise levels are inputs, the same for everyone: what is timed is the network, its derivatives and Adam, and
the loop of the sampler, which is inside one compiled function here and Python's in PyTorch.
"""

from functools import partial
from typing import Any

import numpy as np

from bench import training
from bench.registry import Benchmark

ADAM = training.Adam()
SPREAD, HIGH, LOW, STEPS = 0.5, 20.0, 0.02, 50  # of the data; noise levels; steps of sampling
HIDDEN = 128  # of three layers of the perceptron
WIDTH, CLASSES = 32, 10  # of the U-Net


def sigmas():
    return np.append(np.geomspace(HIGH, LOW, STEPS), 0).astype(np.float32)


# -- inputs: weights by name, data, noise, noise levels, classes --------------------------------------


def weights_of(model):
    """Drawn anew: layers that begin as zeros would hide what others compute."""
    rng = np.random.default_rng(1)
    drawn = {}
    for name, w in model.state().items():
        fixed = w.ndim == 1 and not name.endswith("bias")  # frequencies, scales of norms
        fan = np.prod(w.shape[1:]) if w.ndim > 1 else 100.0
        drawn[name] = np.array(w) if fixed else training.normal(rng, *w.shape, fan=fan)
    return drawn


def inputs(make, *shape):
    rng = np.random.default_rng(0)
    levels = np.exp(rng.uniform(np.log(LOW), np.log(HIGH), shape[0])).astype(np.float32)
    classes = rng.integers(CLASSES, size=shape[0])
    return weights_of(make()), SPREAD * training.normal(rng, *shape), training.normal(rng, *shape), levels, classes


# -- ours ---------------------------------------------------------------------------------------------


def our_mlp():
    from wonderland import generative

    return generative.TimeMLP(2, (HIDDEN,) * 3, sigma_data=SPREAD)


def our_unet(multiples=(1, 2)):
    from wonderland import generative

    return generative.UNet(1, WIDTH, multiples, classes=CLASSES, sigma_data=SPREAD)


def loaded(make, weights):
    model = make()
    model.load_state(weights)
    return model


def given(model, classes):
    """What a network gets besides x and sigma."""
    return (classes,) if hasattr(model, "enter") else ()


def our_step(make, weights, x0, noise, levels, classes):
    import wonderland as wl
    from wonderland import train

    model = loaded(make, weights)
    optimizer = train.Adam(model, rate=ADAM.rate, betas=ADAM.betas, epsilon=ADAM.epsilon)

    @wl.jit
    def step(model, optimizer, x0, noise, levels, *condition):
        sigma = levels.reshape(-1, *(1 for _ in x0.shape[1:]))

        def loss(model):
            error = model(x0 + sigma * noise, levels, *condition) - noise
            return np.mean((1 + (sigma / SPREAD) ** 2) * error**2)

        value, grads = wl.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    return partial(step, model, optimizer, x0, noise, levels, *given(model, classes))


def our_samples(make, weights, x0, noise, levels, classes):
    import wonderland as wl
    from wonderland import generative

    @wl.jit
    def sample(model, x, *condition):
        return generative.sample(lambda x, sigma: model(x, sigma, *condition), x, sigmas())

    model = loaded(make, weights)
    return partial(sample, model, np.float32(HIGH) * noise, *given(model, classes))


# -- PyTorch's ----------------------------------------------------------------------------------------


def torch_networks():
    """Classes of the same networks, with our names of weights."""
    import torch
    from torch import nn
    from torch.nn import functional

    class NoiseEmbedding(nn.Module):
        def __init__(self, width, classes=None, bands=8):
            super().__init__()
            self.register_buffer("frequencies", torch.zeros(bands))
            self.inner, self.outer = nn.Linear(2 * bands + 1, width), nn.Linear(width, width)
            self.table: Any = None if classes is None else nn.Embedding(classes + 1, width)

        def forward(self, sigma, condition=None):
            u = torch.log(sigma)[:, None]
            angles = u * self.frequencies
            waves = torch.cat([u / 4, torch.sin(angles), torch.cos(angles)], -1)
            e = self.outer(functional.silu(self.inner(waves)))
            return e if condition is None else e + self.table(condition)

    class Preconditioned(nn.Module):
        def forward(self, x, sigma, *condition):
            level = sigma.view(-1, *(1 for _ in x.shape[1:]))
            c_in = torch.rsqrt(level**2 + SPREAD**2)
            return c_in * (level * c_in * x - SPREAD * self.function(c_in * x, sigma, *condition))

    class TimeMLP(Preconditioned):
        def __init__(self):
            super().__init__()
            self.embedding = NoiseEmbedding(HIDDEN)
            self.layers = nn.ModuleList([nn.Linear(2, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)])
            self.levels = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(3))
            self.head = nn.Linear(HIDDEN, 2)

        def function(self, h, sigma):
            e = functional.silu(self.embedding(sigma))
            for layer, level in zip(self.layers, self.levels, strict=True):
                h = functional.silu(layer(h) + level(e))
            return self.head(h)

    def conv(i, o, stride=1):
        return nn.Conv2d(i, o, 3, stride, padding=1)

    def norm(channels):
        return nn.GroupNorm(channels // 8, channels)

    class Block(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.norm1, self.conv1, self.level = norm(i), conv(i, o), nn.Linear(4 * WIDTH, o)
            self.norm2, self.conv2 = norm(o), conv(o, o)
            self.shortcut = None if i == o else nn.Conv2d(i, o, 1)

        def forward(self, x, e):
            h = self.conv1(functional.silu(self.norm1(x))) + self.level(e)[:, :, None, None]
            h = self.conv2(functional.silu(self.norm2(h)))
            return h + (x if self.shortcut is None else self.shortcut(x))

    class Attention(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.norm, self.attention = norm(channels), nn.Module()
            self.attention.in_proj = nn.Linear(channels, 3 * channels)
            self.attention.out_proj = nn.Linear(channels, channels)

        def forward(self, x):
            B, C, H, W = x.shape
            t = self.norm(x).view(B, C, H * W).transpose(1, 2)
            q, k, v = self.attention.in_proj(t).view(B, H * W, 3, 4, C // 4).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, H * W, C)
            return x + self.attention.out_proj(y).transpose(1, 2).reshape(B, C, H, W)

    class UNet(Preconditioned):
        def __init__(self, multiples=(1, 2)):
            super().__init__()
            widths = [WIDTH * m for m in multiples]
            self.embedding, self.enter = NoiseEmbedding(4 * WIDTH, CLASSES), conv(1, WIDTH)
            self.down, self.halve, self.up, self.doubled = (nn.ModuleList() for _ in range(4))
            kept, c = [WIDTH], WIDTH
            for level, wide in enumerate(widths):
                self.down.append(nn.ModuleList([Block(c, wide)]))
                kept.append(c := wide)
                if level < len(widths) - 1:
                    self.halve.append(conv(c, c, 2))
                    kept.append(c)
            self.middle = nn.ModuleList([Block(c, c), Attention(c), Block(c, c)])
            for level, wide in reversed([*enumerate(widths)]):
                for _ in range(2):
                    self.up.append(nn.ModuleList([Block(c + kept.pop(), wide)]))
                    c = wide
                if level:
                    self.doubled.append(conv(c, c))
            self.norm, self.leave = norm(c), conv(c, 1)

        def function(self, h, sigma, condition):
            e = functional.silu(self.embedding(sigma, condition))
            h = self.enter(h)
            kept = [h]
            for level, (block,) in enumerate(self.down):
                h = block(h, e)
                kept.append(h)
                if level < len(self.halve):
                    h = self.halve[level](h)
                    kept.append(h)
            first, attend, second = self.middle
            h = second(attend(first(h, e)), e)
            for i, (block,) in enumerate(self.up):
                h = block(torch.cat([h, kept.pop()], 1), e)
                if i % 2 and i // 2 < len(self.doubled):
                    h = self.doubled[i // 2](functional.interpolate(h, kept[-1].shape[2:]))
            return self.leave(functional.silu(self.norm(h)))

    return TimeMLP, UNet


def torch_model(make, weights, channels_last):
    import torch

    model = make(*torch_networks())
    renamed = {k.replace("double.", "doubled."): w for k, w in weights.items()}  # every torch Module has a `double`
    model.load_state_dict({k: torch.from_numpy(w) for k, w in renamed.items()})
    return model.to(memory_format=torch.channels_last) if channels_last else model


def torch_step(make, compile, weights, x0, noise, levels, classes, channels_last=False):
    import torch

    model = torch_model(make, weights, channels_last)
    x0, noise, levels, classes = map(torch.from_numpy, (x0, noise, levels, classes))
    sigma = levels.view(-1, *(1 for _ in x0.shape[1:]))
    optimizer = torch.optim.Adam(model.parameters(), ADAM.rate, ADAM.betas, ADAM.epsilon, fused=True)

    @compile
    def loss(x0, noise, levels, *condition):
        error = model(x0 + sigma * noise, levels, *condition) - noise
        return ((1 + (sigma / SPREAD) ** 2) * error**2).mean()

    return training.in_torch(loss, optimizer, x0, noise, levels, *given(model, classes))


def torch_samples(make, compile, weights, x0, noise, levels, classes, channels_last=False):
    import torch

    model = torch_model(make, weights, channels_last)
    start, classes, schedule = HIGH * torch.from_numpy(noise), torch.from_numpy(classes), torch.from_numpy(sigmas())

    @compile
    def step(x, sigma, after, *condition):
        return x + (after - sigma) * model(x, sigma, *condition)

    def call():
        x = start
        with torch.inference_mode():
            for i in range(STEPS):
                x = step(x, schedule[i : i + 1], schedule[i + 1 : i + 2], *given(model, classes))
        return x

    return call


# -- the benchmarks -----------------------------------------------------------------------------------

LARGE = (1, 2, 2)
NETWORKS = {
    "mlp": (our_mlp, lambda mlp, unet: mlp(), (256, 2), f"perceptron 3 x {HIDDEN}, 256 points"),
    "unet": (our_unet, lambda mlp, unet: unet(), (64, 1, 8, 8), f"U-Net {WIDTH} wide, 64 digits 8x8"),
    "unet28": (
        partial(our_unet, LARGE), lambda mlp, unet: unet(LARGE), (16, 1, 28, 28), f"U-Net {WIDTH} wide, 16 images 28x28"
    ),
}  # fmt: skip
PARTS = {
    "step": (our_step, torch_step, "Adam", {"check_calls": 3, "rtol": 2e-3}),
    "sample": (our_samples, torch_samples, f"{STEPS} steps of DDIM", {"rtol": 2e-3, "atol": 2e-3}),
}
for network, (make, torch_make, shape, what) in NETWORKS.items():
    for part, (ours, in_torch, how, tolerances) in PARTS.items():
        benchmark = Benchmark(
            f"diffusion_{network}_{part}", "diffusion", f"{what}; {how}; float32", partial(inputs, make, *shape),
            limit=0.7, **tolerances,
        )  # fmt: skip
        benchmark.contender("wonderland")(partial(ours, make))
        if network == "mlp":
            benchmark.torch(partial(in_torch, torch_make))
        else:
            benchmark.torch_in_both_formats(partial(in_torch, torch_make))
