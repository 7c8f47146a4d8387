"""Greedy generation of text by a small GPT with a cache of keys and values: one token after the other, batch 1.

A call fills the context from its first token on, so that the time of a token is the time of the call through 256. Ours
is a loop inside one compiled function; JAX has that as well, beside a compiled step that a Python loop calls.
"""

from functools import partial

import numpy as np

from bench.cases.nanogpt import EPSILON, Config, gelu, layer_norm, make_parameters
from bench.registry import Benchmark

CONFIG = Config(layers=4, heads=4, width=128, context=256, batch=1)
LARGE = 10.0  # times the initial weights: logits that differ, so that rounding doesn't decide what comes next


def make_inputs():
    """Weights, and the first token."""
    return {k: w if w.ndim == 1 else LARGE * w for k, w in make_parameters(CONFIG).items()}, np.array(0)


def empty_cache(xp):
    """Keys or values, (heads, time, width) for each layer."""
    shape = CONFIG.heads, CONFIG.context, CONFIG.width // CONFIG.heads
    return [xp.zeros(shape, xp.float32) for _ in range(CONFIG.layers)]


def ours(parameters, first):
    import wonderland as wl

    def attention(x, t, qkv, out, keys, values):
        """Row t of the cache is written, then all rows up to it are read."""
        q, keys[:, t], values[:, t] = (x @ qkv).reshape(3, CONFIG.heads, -1)
        mask = np.arange(CONFIG.context) <= t
        return wl.attention(q[:, None], keys, values, mask=mask).reshape(-1) @ out

    def step(p, t, token, cache):
        x = p["tokens"][token] + p["places"][t]
        for i, held in enumerate(cache):
            x = x + attention(layer_norm(x, p[f"norm{i}a"]), t, p[f"qkv{i}"], p[f"out{i}"], *held)
            x = x + gelu(layer_norm(x, p[f"norm{i}b"]) @ p[f"up{i}"]) @ p[f"down{i}"]
        return np.argmax(layer_norm(x, p["norm"]) @ p["tokens"].T), cache

    @wl.jit
    def generate(p, token):
        def turn(carry, t):
            token, cache = step(p, t, *carry)
            return (token, cache), token

        cache = [*zip(empty_cache(np), empty_cache(np), strict=True)]
        _, text = wl.scan(turn, (token, cache), np.arange(CONFIG.context))
        return text

    return partial(generate, parameters, first)


def in_torch(compile, parameters, first):
    """A preallocated cache, as in gpt-fast: a step has fixed shapes, so that it is compiled once."""
    import torch
    from torch.nn import functional

    as_they_are = "tokens", "places"  # the matrices that aren't a layer's (in, out)
    p = {k: w.T.copy() if w.ndim == 2 and k not in as_they_are else w for k, w in parameters.items()}
    p = {k: torch.from_numpy(w) for k, w in p.items()}
    caches = [[torch.from_numpy(a) for a in pair] for pair in zip(empty_cache(np), empty_cache(np), strict=True)]
    masks = torch.tril(torch.ones(CONFIG.context, CONFIG.context, dtype=torch.bool))
    places = torch.arange(CONFIG.context)

    def norm(x, scale):
        return functional.layer_norm(x, (CONFIG.width,), scale, None, EPSILON)

    def attention(x, t, qkv, out, keys, values):
        q, k, v = functional.linear(x, qkv).view(3, CONFIG.heads, 1, -1)
        keys[:, t], values[:, t] = k, v
        y = functional.scaled_dot_product_attention(q[None], keys[None], values[None], attn_mask=masks[t])
        return functional.linear(y.view(1, -1), out)

    @compile
    def step(token, t):
        x = functional.embedding(token, p["tokens"]) + p["places"][t]
        for i, cache in enumerate(caches):
            x = x + attention(norm(x, p[f"norm{i}a"]), t, p[f"qkv{i}"], p[f"out{i}"], *cache)
            up = functional.gelu(functional.linear(norm(x, p[f"norm{i}b"]), p[f"up{i}"]))
            x = x + functional.linear(up, p[f"down{i}"])
        return torch.argmax(functional.linear(norm(x, p["norm"]), p["tokens"]), dim=-1)

    def call():
        text = torch.empty(CONFIG.context, dtype=torch.int64)
        token = torch.from_numpy(first[None])
        with torch.inference_mode():
            for t in range(CONFIG.context):
                token = step(token, places[t : t + 1])
                text[t] = token
        return text

    return call


def jax_step():
    import jax
    import jax.numpy as jnp

    def norm(x, scale):
        centred = x - jnp.mean(x)
        return centred * jax.lax.rsqrt(jnp.mean(centred**2) + EPSILON) * scale

    def step(p, t, token, caches):
        x, new = p["tokens"][token] + p["places"][t], []
        for i, (keys, values) in enumerate(caches):
            q, k, v = (norm(x, p[f"norm{i}a"]) @ p[f"qkv{i}"]).reshape(3, CONFIG.heads, -1)
            keys, values = keys.at[:, t].set(k), values.at[:, t].set(v)
            new.append((keys, values))
            scores = jnp.einsum("hd,htd->ht", q, keys) * q.shape[-1] ** -0.5
            weights = jax.nn.softmax(jnp.where(jnp.arange(CONFIG.context) <= t, scores, -jnp.inf))
            x = x + jnp.einsum("ht,htd->hd", weights, values).reshape(-1) @ p[f"out{i}"]
            x = x + jax.nn.gelu(norm(x, p[f"norm{i}b"]) @ p[f"up{i}"], approximate=False) @ p[f"down{i}"]
        token = jnp.argmax(norm(x, p["norm"]) @ p["tokens"].T)
        return token, new

    return step


def jax_start(parameters, first):
    import jax.numpy as jnp

    caches = [*zip(empty_cache(jnp), empty_cache(jnp), strict=True)]
    return {k: jnp.asarray(w) for k, w in parameters.items()}, jnp.int32(first), caches


def in_jax(parameters, first):
    """One compiled step, whose cache is donated."""
    import jax

    step = jax.jit(jax_step(), donate_argnums=3)
    p, start, caches = jax_start(parameters, first)

    def call():
        nonlocal caches
        token, text = start, []
        for t in range(CONFIG.context):
            token, caches = step(p, t, token, caches)
            text.append(token)
        return np.array(text, np.int64)

    return call


def in_jax_loop(parameters, first):
    """The loop inside the compiled function."""
    import jax
    import jax.numpy as jnp

    step = jax_step()

    @jax.jit
    def generate(p, token, caches):
        def turn(carry, t):
            carry = step(p, t, *carry)
            return carry, carry[0]

        return jax.lax.scan(turn, (token, caches), jnp.arange(CONFIG.context))[1]

    inputs = jax_start(parameters, first)
    return lambda: np.asarray(generate(*inputs)).astype(np.int64)


benchmark = Benchmark(
    "generation",
    "generation of text",
    f"{CONFIG.context} tokens, greedy, cache of keys and values, {CONFIG.layers} layers, {CONFIG.width} wide, float32",
    make_inputs,
    # Each token reads all weights, 3 MB: at what a core reads from L3 that is the time, for JAX's whole loop as for
    # ours.
    limit=0.25,
)
benchmark.contender("wonderland")(ours)
benchmark.torch(in_torch)
benchmark.contender("jax")(in_jax)
benchmark.contender("jax.loop")(in_jax_loop)
