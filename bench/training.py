"""What training steps share: losses, weights and a batch come in, a call that makes one step goes out, ours and JAX's.

A loss has the weights, the running statistics (an empty dict for most networks) and the batch as arguments, and returns
its value and the new statistics. PyTorch has optimisers of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

Arrays = dict[str, Any]


def normal(rng: np.random.Generator, *shape: int, fan: float = 1.0) -> np.ndarray:
    """Weights of a layer in which so many numbers are added up."""
    return (fan**-0.5 * rng.standard_normal(shape)).astype(np.float32)


def targets(rng: np.random.Generator, batch: int, classes: int) -> np.ndarray:
    """Smoothed labels, as probabilities.

    Hard ones are learnt by heart within the first rounds, and what would be timed then is arithmetic on subnormal
    numbers, which some contenders flush to zero.
    """
    labels = np.eye(classes, dtype=np.float32)[rng.integers(classes, size=batch)]
    return np.float32(0.9) * labels + np.float32(0.1 / classes)


def cross_entropy(logits: Any, y: Any) -> Any:
    """The mean over a batch, of probabilities `y`."""
    top = np.max(logits, axis=1, keepdims=True)
    logsumexp = np.log(np.sum(np.exp(logits - top), axis=1)) + top[:, 0]
    return np.mean(logsumexp - np.sum(y * logits, axis=1))


@dataclass(frozen=True)
class Adam:
    """Adam; with `decay` AdamW, for matrices only; with `clip`, gradients have at most that norm, all together."""

    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    decay: float = 0.0
    clip: float | None = None
    moments = 2

    def prepared(self, xp: Any, gradient: Arrays) -> Arrays:
        if self.clip is None:
            return gradient
        norm = xp.sqrt(sum(xp.sum(g * g) for g in gradient.values()))
        scale = xp.minimum(self.clip / (norm + 1e-6), 1.0)
        return {k: scale * g for k, g in gradient.items()}

    def __call__(self, xp: Any, w: Any, g: Any, t: Any, m: Any, v: Any) -> tuple[Any, ...]:
        """The weights after step `t` and the new moments."""
        (beta1, beta2), decay = self.betas, self.decay if w.ndim > 1 else 0.0
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        scale1, scale2 = 1 / (1 - beta1**t), 1 / (1 - beta2**t)
        return (1 - self.rate * decay) * w - self.rate * (m * scale1) / (xp.sqrt(v * scale2) + self.epsilon), m, v


@dataclass(frozen=True)
class Momentum:
    """Gradient descent with momentum."""

    rate: float = 1e-2
    momentum: float = 0.9
    moments = 1

    def prepared(self, xp: Any, gradient: Arrays) -> Arrays:
        return gradient

    def __call__(self, xp: Any, w: Any, g: Any, t: Any, m: Any) -> tuple[Any, ...]:
        m = self.momentum * m + g
        return w - self.rate * m, m


def ours(loss: Callable, optimizer: Any, parameters: Arrays, statistics: Arrays, *batch: np.ndarray) -> Any:
    """One jitted function for forward, backward and update: a `partial`, so that it can be inspected and profiled."""
    import wonderland as wl

    @wl.register_mutable
    class State:
        """Weights, moments and statistics, updated in place by the native call."""

        def __init__(self) -> None:
            self.p = {k: w.copy() for k, w in parameters.items()}
            self.moments = [{k: np.zeros_like(w) for k, w in parameters.items()} for _ in range(optimizer.moments)]
            self.statistics = {k: s.copy() for k, s in statistics.items()}
            self.t = np.zeros((), np.float32)

    @wl.jit
    def step(state: Any, *batch: np.ndarray) -> Any:
        (value, changed), g = wl.value_and_grad(loss, has_aux=True)(state.p, state.statistics, *batch)
        g = optimizer.prepared(np, g)
        state.t = state.t + 1
        for k, w in state.p.items():
            state.p[k], *moments = optimizer(np, w, g[k], state.t, *(m[k] for m in state.moments))
            for held, new in zip(state.moments, moments, strict=True):
                held[k] = new
        for k, s in changed.items():
            state.statistics[k] = s
        return value

    return partial(step, State(), *batch)


def in_jax(loss: Callable, optimizer: Any, parameters: Arrays, statistics: Arrays, *batch: np.ndarray) -> Any:
    """One jitted function whose state is donated."""
    import jax
    import jax.numpy as jnp

    @partial(jax.jit, donate_argnums=0)
    def step(state: Any, *batch: Any) -> Any:
        p, moments, statistics, t = state
        (value, statistics), g = jax.value_and_grad(loss, has_aux=True)(p, statistics, *batch)
        g, t = optimizer.prepared(jnp, g), t + 1
        new = {k: optimizer(jnp, w, g[k], t, *(m[k] for m in moments)) for k, w in p.items()}
        p, *moments = ({k: parts[i] for k, parts in new.items()} for i in range(1 + len(moments)))
        return value, (p, moments, statistics, t)

    # Donated buffers must be distinct: one set of zeros each.
    p = {k: jnp.array(w) for k, w in parameters.items()}
    moments = [{k: jnp.zeros(w.shape) for k, w in parameters.items()} for _ in range(optimizer.moments)]
    state = [(p, moments, {k: jnp.array(s) for k, s in statistics.items()}, jnp.float32(0))]
    batch = tuple(map(jnp.asarray, batch))

    def call() -> Any:
        value, state[0] = step(state[0], *batch)
        return value.block_until_ready()

    return call


def in_torch(loss: Callable, optimizer: Any, *batch: Any, clip: float | None = None) -> Any:
    """The body of everyone's training loop."""
    import torch

    weights = [w for group in optimizer.param_groups for w in group["params"]]

    def call() -> Any:
        optimizer.zero_grad()
        value = loss(*batch)
        value.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(weights, clip)
        optimizer.step()
        return value

    return call
