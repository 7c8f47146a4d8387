"""A training step of nanoGPT (https://github.com/karpathy/nanoGPT): on characters, without biases and dropout, AdamW.

`nanogpt` is the configuration that its README gives for a CPU, `nanogpt_384` its smallest one for a GPU with a batch
that a CPU can do, and `nanogpt_256` one between. The embedding is also the last layer's weights; gradients are clipped
to norm 1, as in its train.py.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from bench import training
from bench.registry import Benchmark

EPSILON = 1e-5  # layer normalisation's
ADAMW = training.Adam(1e-3, (0.9, 0.99), decay=0.1, clip=1.0)


@dataclass(frozen=True)
class Config:
    """Sizes of a model, and how many sequences are in a batch."""

    layers: int
    heads: int
    width: int
    context: int
    batch: int
    vocabulary: int = 65


CONFIGS = {
    "nanogpt": Config(4, 4, 128, 64, 12),
    "nanogpt_256": Config(4, 8, 256, 128, 8),
    "nanogpt_384": Config(6, 6, 384, 256, 4),
}
LIMIT = 0.75


def make_parameters(config):
    """Initial weights, as nanoGPT draws them; matrices are (in, out)."""
    rng = np.random.default_rng(0)
    d = config.width

    def normal(*shape, scale=0.02):
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    last = 0.02 * (2 * config.layers) ** -0.5  # of what is added to the residual stream
    p = {"tokens": normal(config.vocabulary, d), "places": normal(config.context, d), "norm": np.ones(d, np.float32)}
    for i in range(config.layers):
        p[f"norm{i}a"], p[f"norm{i}b"] = np.ones(d, np.float32), np.ones(d, np.float32)
        p[f"qkv{i}"], p[f"out{i}"] = normal(d, 3 * d), normal(d, d, scale=last)
        p[f"up{i}"], p[f"down{i}"] = normal(d, 4 * d), normal(4 * d, d, scale=last)
    return p


def make_inputs(config):
    """Parameters, tokens, and the tokens that follow them."""
    text = np.random.default_rng(1).integers(config.vocabulary, size=(config.batch, config.context + 1))
    return make_parameters(config), text[:, :-1].copy(), text[:, 1:].copy()


def layer_norm(x, scale):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + EPSILON) * scale


def gelu(x):
    from scipy.special import erf

    return 0.5 * x * (1 + erf(x * 0.5**0.5))


def ours(config, parameters, tokens, following):
    import wonderland as wl

    def attention(x, qkv, out):
        b, t, d = x.shape
        q, k, v = np.moveaxis((x @ qkv).reshape(b, t, 3, config.heads, -1), (2, 3), (0, 2))  # (B, H, T, D) each
        return np.moveaxis(wl.attention(q, k, v, causal=True), 1, 2).reshape(b, t, d) @ out

    def loss(p, statistics, tokens, following):
        x = p["tokens"][tokens] + p["places"]
        for i in range(config.layers):
            x = x + attention(layer_norm(x, p[f"norm{i}a"]), p[f"qkv{i}"], p[f"out{i}"])
            x = x + gelu(layer_norm(x, p[f"norm{i}b"]) @ p[f"up{i}"]) @ p[f"down{i}"]
        logits = layer_norm(x, p["norm"]) @ p["tokens"].T
        top = np.max(logits, axis=-1, keepdims=True)
        logsumexp = np.log(np.sum(np.exp(logits - top), axis=-1)) + top[..., 0]
        picked = np.take_along_axis(logits, following[..., None], axis=-1)[..., 0]
        return np.mean(logsumexp - picked), statistics

    return training.ours(loss, ADAMW, parameters, {}, tokens, following)


def torch_model(config, parameters):
    """Karpathy's modules, with our weights."""
    import torch
    from torch import nn
    from torch.nn import functional

    class LayerNorm(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x):
            return functional.layer_norm(x, self.weight.shape, self.weight, None, EPSILON)

    class Attention(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.c_attn, self.c_proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)

        def forward(self, x):
            b, t, d = x.shape
            parts = (y.view(b, t, config.heads, -1).transpose(1, 2) for y in self.c_attn(x).split(d, dim=2))
            y = functional.scaled_dot_product_attention(*parts, is_causal=True)
            return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, d))

    class Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.ln_1, self.attn, self.ln_2 = LayerNorm(d), Attention(d), LayerNorm(d)
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d, bias=False), nn.GELU(), nn.Linear(4 * d, d, bias=False))

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(config.vocabulary, d), nn.Embedding(config.context, d)
            self.h = nn.ModuleList([Block(d) for _ in range(config.layers)])
            self.ln_f, self.lm_head = LayerNorm(d), nn.Linear(d, config.vocabulary, bias=False)
            self.wte.weight = self.lm_head.weight

        def forward(self, tokens, following):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
            for block in self.h:
                x = block(x)
            logits = self.lm_head(self.ln_f(x))
            return functional.cross_entropy(logits.view(-1, config.vocabulary), following.view(-1))

    model = GPT(config.width)
    p = {k: torch.from_numpy(w) for k, w in parameters.items()}
    with torch.no_grad():
        model.wte.weight.copy_(p["tokens"])
        model.wpe.weight.copy_(p["places"])
        for i, block in enumerate(model.h):
            layers = {"qkv": block.attn.c_attn, "out": block.attn.c_proj, "up": block.mlp[0], "down": block.mlp[2]}
            for name, layer in layers.items():
                layer.weight.copy_(p[f"{name}{i}"].T)
    return model


def in_torch(config, compile, parameters, tokens, following):
    import torch

    model = torch_model(config, parameters)
    weights = [*model.parameters()]
    groups = [
        {"params": [w for w in weights if w.ndim > 1], "weight_decay": ADAMW.decay},
        {"params": [w for w in weights if w.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, ADAMW.rate, ADAMW.betas, ADAMW.epsilon, fused=True)
    batch = torch.from_numpy(tokens), torch.from_numpy(following)
    return training.in_torch(compile(model), optimizer, *batch, clip=ADAMW.clip)


def in_jax(config, parameters, tokens, following):
    import jax
    import jax.numpy as jnp

    def layer_norm(x, scale):
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + EPSILON) * scale

    def attention(x, qkv, out):
        b, t, d = x.shape
        parts = (y.reshape(b, t, config.heads, -1) for y in jnp.split(x @ qkv, 3, axis=-1))
        return jax.nn.dot_product_attention(*parts, is_causal=True).reshape(b, t, d) @ out

    def loss(p, statistics, tokens, following):
        x = p["tokens"][tokens] + p["places"]
        for i in range(config.layers):
            x = x + attention(layer_norm(x, p[f"norm{i}a"]), p[f"qkv{i}"], p[f"out{i}"])
            up = layer_norm(x, p[f"norm{i}b"]) @ p[f"up{i}"]
            x = x + jax.nn.gelu(up, approximate=False) @ p[f"down{i}"]
        logits = layer_norm(x, p["norm"]) @ p["tokens"].T
        picked = jnp.take_along_axis(logits, following[..., None], axis=-1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked), statistics

    return training.in_jax(loss, ADAMW, parameters, {}, tokens.astype(np.int32), following.astype(np.int32))


for name, config in CONFIGS.items():
    sizes = f"{config.layers} layers, {config.heads} heads, {config.width} wide, context {config.context}"
    benchmark = Benchmark(
        name,
        "training steps of networks",
        f"nanoGPT, {sizes}, batch {config.batch}; AdamW; float32",
        partial(make_inputs, config),
        limit=LIMIT,
        rtol=1e-3,
        check_calls=5,
    )
    benchmark.contender("wonderland")(partial(ours, config))
    benchmark.torch(partial(in_torch, config))
    benchmark.contender("jax")(partial(in_jax, config))
