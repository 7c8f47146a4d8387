"""Flow matching: a velocity that carries noise to data along straight lines, learned by regression.

At time t between 0 (data) and 1 (noise) a point is x_t = (1 - t) x0 + t epsilon, and moves with the velocity epsilon -
x0. What is learned is the expected velocity v(x, t), a function of points (B, ...) and of times, one number or (B,);
integrated from 1 to 0 it makes data of noise. As a denoiser it is one of noise levels sigma = t / (1 - t).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland import random
from wonderland.control.effects import host_call
from wonderland.control.loops import scan
from wonderland.core.errors import ArgumentError
from wonderland.core.forks import loading
from wonderland.core.tracer import Tracer
from wonderland.generative.denoising import as_sigma
from wonderland.nn.arguments import array, demand, floating
from wonderland.transform.derivatives import stop_gradient

Velocity = Callable[[Any, Any], Any]
COUPLINGS = ("independent", "optimal")


def flow_matching_loss(
    velocity: Velocity, x0: Any, key: Any, *, coupling: str = "independent", times: Any = None
) -> Any:  # fmt: skip
    """E |v(x_t, t) - (epsilon - x0)|^2 per number, over uniform times and normal noise, for data x0 (B, ...).

    `coupling` says which noise belongs to which sample: "independent", or "optimal", the pairs of the batch whose lines
    are shortest together, which cross less (Tong et al. 2023, Improving and generalizing flow-based generative models
    with minibatch optimal transport). `times` (B,) are other times.
    """
    if coupling not in COUPLINGS:
        raise ArgumentError(f"flow_matching_loss: coupling is one of {COUPLINGS}, got {coupling!r}")
    x0 = floating(x0, "flow_matching_loss: x0")
    if x0.ndim < 1:
        raise ArgumentError(f"flow_matching_loss: x0 are samples (B, ...), got shape {x0.shape}")
    for_noise, for_times = random.split(key)
    noise = random.normal(for_noise, x0.shape, dtype=x0.dtype)
    if times is None:
        t = random.uniform(for_times, x0.shape[:1], dtype=x0.dtype)
    else:
        t = floating(times, "flow_matching_loss: times").astype(x0.dtype)
        demand((t >= 0) & (t <= 1), "flow_matching_loss: times are from 0 (data) to 1 (noise), got {}", t)
    if coupling == "optimal":
        noise = noise[optimal_pairs(x0, noise)]
    at = as_sigma(t, x0)
    error = _checked(velocity)((1 - at) * x0 + at * noise, t) - (noise - x0)
    return np.mean(error**2)


def optimal_pairs(x: Any, y: Any) -> Any:
    """The permutation p (B,) with the least sum of |x_i - y_p(i)|^2, an assignment problem; without a derivative."""

    def assigned(x: Any, y: Any) -> Any:
        with loading():
            from scipy.optimize import linear_sum_assignment
            from scipy.spatial.distance import cdist

        a, b = (np.reshape(v, (len(v), -1)).astype(np.float64) for v in (x, y))
        return linear_sum_assignment(cdist(a, b, "sqeuclidean"))[1].astype(np.int64)

    x, y = stop_gradient(array(x)), stop_gradient(array(y))
    if x.ndim < 1 or x.shape != y.shape:
        raise ArgumentError(f"optimal_pairs takes x and y of one shape (B, ...), got {x.shape} and {y.shape}")
    if isinstance(x, Tracer) or isinstance(y, Tracer):
        return host_call(assigned, ((x.shape[0],), np.int64), x, y)
    return assigned(x, y)


def flow_sample(
    velocity: Velocity, shape: Any, steps: int = 50, *, key: Any = None, method: str = "heun", trajectory: bool = False
) -> Any:
    """Samples by integrating dx = v(x, t) dt from t = 1 to 0 in equal steps: noise to data.

    `shape` is that of the samples (B, ...), for noise of `key`, or the noise itself. `method` is "euler" (order 1),
    "heun", "midpoint" (2) or "rk4" (4). With `trajectory` all points on the way, (steps + 1, B, ...).
    """
    if method not in _STEPS:
        raise ArgumentError(f"flow_sample: method is one of {', '.join(_STEPS)}, got {method!r}")
    if not isinstance(steps, (int, np.integer)) or steps < 1:
        raise ArgumentError(f"flow_sample: steps is a whole number from 1 on, got {steps!r}")
    noise = hasattr(shape, "dtype")
    if not noise and key is None:
        raise ArgumentError("flow_sample begins with noise: give key=wl.random.key(0), or the noise instead of a shape")
    x = floating(shape, "flow_sample: noise") if noise else random.normal(key, shape, dtype=np.float32)
    velocity, step = _checked(velocity), _STEPS[method]
    times = np.linspace(1.0, 0.0, steps + 1).astype(x.dtype)

    def go(x: Any, span: Any) -> Any:
        x = step(velocity, x, span[0], span[1] - span[0])
        return x, x if trajectory else None

    last, passed = scan(go, x, np.stack([times[:-1], times[1:]], axis=1))
    return np.concatenate([x[None], passed]) if trajectory else last


def _checked(velocity: Velocity) -> Velocity:
    """The velocity, which raises unless it is like the points: (B,) for (B, 1) would be broadcast to (B, B)."""

    def checked(x: Any, t: Any) -> Any:
        found = velocity(x, t)
        if np.shape(found) != x.shape:
            raise ArgumentError(f"a velocity is like the points, of shape {x.shape}, got {np.shape(found)}")
        return found

    return checked


def _euler(v: Velocity, x: Any, t: Any, h: Any) -> Any:
    return x + h * v(x, t)


def _heun(v: Velocity, x: Any, t: Any, h: Any) -> Any:
    first = v(x, t)
    return x + h / 2 * (first + v(x + h * first, t + h))


def _midpoint(v: Velocity, x: Any, t: Any, h: Any) -> Any:
    return x + h * v(x + h / 2 * v(x, t), t + h / 2)


def _rk4(v: Velocity, x: Any, t: Any, h: Any) -> Any:
    a = v(x, t)
    b = v(x + h / 2 * a, t + h / 2)
    c = v(x + h / 2 * b, t + h / 2)
    return x + h / 6 * (a + 2 * b + 2 * c + v(x + h * c, t + h))


_STEPS: dict[str, Callable[..., Any]] = {"euler": _euler, "heun": _heun, "midpoint": _midpoint, "rk4": _rk4}
