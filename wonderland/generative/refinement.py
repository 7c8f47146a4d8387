"""Restoring images by a denoiser: what is known of an image comes in (some pixels, a blurred copy), images come out.

At each noise level the expected data is made to agree with what was observed, y = A x: by

    x0 + A^+ (y - A x0),

which changes only what y knows about. Each step down to less noise is undone and done again some times, so
that what is made up comes to fit what is known (iterated refinement).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland import random
from wonderland.control.loops import scan
from wonderland.core.errors import ArgumentError
from wonderland.generative.samplers.solver import like_x
from wonderland.generative.schedules import check_sigmas
from wonderland.nn.arguments import array, floating

Denoiser = Callable[[Any, Any], Any]
Projection = Callable[[Any], Any]


def agreeing_pixels(observed: Any, mask: Any) -> Projection:
    """Images x0 (B, ...) with what was observed where the mask is True (it broadcasts): inpainting."""
    mask = array(mask)
    if mask.dtype != bool:
        raise ArgumentError(f"a mask is an array of bools, True where pixels are known, not {mask.dtype}")
    observed = floating(observed, "agreeing_pixels: observed")
    return lambda x0: np.where(mask, observed.astype(x0.dtype), x0)


def agreeing_linear(observed: Any, operator: Any, rcond: float = 1e-3) -> Projection:
    """Images x0 (B, ...) with A x0 = y as far as A says anything: deblurring, enlarging, any linear measurement.

    `operator` is the matrix A (m, n) of images of n numbers, `observed` y is (B, m) or (m,). Singular values below
    `rcond` times the largest are taken for 0: dividing by them would enlarge noise.
    """
    A = np.asarray(operator, np.float64)
    if A.ndim != 2:
        raise ArgumentError(f"the operator is a matrix (m, n), not an array of shape {A.shape}")
    y = floating(observed, "agreeing_linear: observed")
    if y.shape[-1:] != A.shape[:1]:
        raise ArgumentError(f"the operator is {A.shape}, so observed is (B, {len(A)}) or ({len(A)},): got {y.shape}")
    inverse = np.linalg.pinv(A, rcond=rcond)

    def project(x0: Any) -> Any:
        flat = x0.reshape(x0.shape[0], -1)
        if flat.shape[1] != A.shape[1]:
            raise ArgumentError(f"the operator is {A.shape}, and an image has {flat.shape[1]} numbers")
        missing = y.astype(flat.dtype) - flat @ A.T.astype(flat.dtype)
        return (flat + missing @ inverse.T.astype(flat.dtype)).reshape(x0.shape)

    return project


def restore(
    denoiser: Denoiser, project: Projection, shape: tuple[int, ...], sigmas: Any, key: Any, *, repeats: int = 5
) -> Any:
    """Samples (B, ...) of the data that agree with what is known: `project` is `agreeing_pixels` or `agreeing_linear`.

        x = restore(denoiser, agreeing_pixels(image, known), (16, 1, 8, 8), sigmas, wl.random.key(0))

    For each two levels sigma > sigma' of the schedule, as often as `repeats` says: x0 = project(x - sigma epsilon),
    then a step down, x' = x0 + r (x - x0) + sigma' sqrt(1 - r) w with r = (sigma'/sigma)^2, and, but for the last time,
    up again, x = x' + sqrt(sigma^2 - sigma'^2) w. More repeats cost as much more, and samples are nearer to those of
    the data given what is known. Lugmayr et al. 2022 (RePaint); Wang et al. 2023 (DDNM).
    """
    sigmas = check_sigmas(sigmas)
    denoiser, project = like_x(denoiser), like_x(project, "a projection of x0 returns images")
    if repeats < 1:
        raise ArgumentError(f"repeats is a number, at least 1, not {repeats!r}")
    first, rest = random.split(key)
    draw = lambda key: random.normal(key, shape, dtype=sigmas.dtype)
    now, then = np.repeat(sigmas[:-1], repeats), np.repeat(sigmas[1:], repeats)
    again = np.arange(now.shape[0]) % repeats < repeats - 1

    def step(x: Any, given: Any) -> tuple[Any, None]:
        key, sigma, lower, again = given
        down, up = random.split(key)
        x0 = project(x - sigma * denoiser(x, sigma))
        kept = (lower / sigma) ** 2
        x = x0 + kept * (x - x0) + lower * np.sqrt(1 - kept) * draw(down)
        return x + np.where(again, np.sqrt(sigma**2 - lower**2), 0) * draw(up), None

    x, _ = scan(step, sigmas[0] * draw(first), (random.split(rest, now.shape[0]), now, then, again))
    return x
