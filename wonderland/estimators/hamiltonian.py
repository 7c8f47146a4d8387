"""Hamiltonian Monte Carlo: samples of a density that one can write down and differentiate, by several chains."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wonderland.compile.jit import jit
from wonderland.control.loops import fori_loop, scan
from wonderland.core.errors import ArgumentError
from wonderland.estimators.posterior import Posterior, Unknowns
from wonderland.random import fold_in, normal, split, uniform
from wonderland.transform.derivatives import value_and_grad
from wonderland.transform.vmap import vmap

WINDOWS = 6  # of the warm-up, each with the covariance that the one before found
MASSES = ("dense", "diagonal")


class StepSize(NamedTuple):
    """Dual averaging of the logarithm of the step size, of one window (M. Hoffman and A. Gelman 2014, 3.2)."""

    log_step: Any
    log_average: Any  # what is kept in the end
    error: Any  # running mean of target - acceptance
    anchor: Any  # what it is drawn to
    count: Any

    def after(self, acceptance: Any, target: Any) -> StepSize:
        count = self.count + 1.0
        error = self.error + (target - acceptance - self.error) / (count + 10.0)
        log_step = self.anchor - np.sqrt(count) / 0.05 * error
        weight = count**-0.75
        return StepSize(log_step, weight * log_step + (1 - weight) * self.log_average, error, self.anchor, count)


def beginning(step: float) -> StepSize:
    """Of a window that starts with this step size."""
    return StepSize(*(np.float64(v) for v in (math.log(step), math.log(step), 0.0, math.log(10 * step), 0.0)))


def hmc(
    log_density: Callable[..., Any], start: Any, key: Any, *, args: tuple[Any, ...] = (), draws: int = 1000,
    chains: int = 4, warmup: int = 600, length: float = 1.5, max_steps: int = 64, target: float = 0.8,
    mass: str = "dense", jitter: float = 1.0, covariance: Any = None,
) -> Posterior:  # fmt: skip
    """Samples (chains, draws, d) of the density: a ball on the surface -log density, given a push and followed.

        p' = p + e/2 grad log density(x),  x' = x + e p',  p'' = p' + e/2 grad log density(x')         leapfrog

    in coordinates where the samples so far have unit covariance (`mass` "dense", or "diagonal": unit variances). After
    about `length` of way, each time another one, the end is taken with probability min(1, exp(energy lost)), so the
    samples have the density exactly, whatever the step e. The `warmup` draws find e, such that `target` of the ends are
    taken, and the covariance; they are thrown away. `log_density` and `args` are those of `laplace_approximation`.

        posterior = hmc(log_density, np.zeros(3), wl.random.key(0))
        print(posterior.summary())                                          # R-hat near 1, effective sample sizes

    Chains begin at the start and noise of `jitter` around it, or with `covariance` (d, d) of that covariance, which is
    then the first guess. All steps of all chains are one compiled call for each so many draws. `details` has
    "acceptance", "step_size", "leapfrog_steps" (a draw, on average) and "divergences" (energies lost above 1000: parts
    of the density may be missing, as where it is very narrow).

    R. Neal, MCMC using Hamiltonian dynamics, 2011.
    """
    _check(draws, chains, warmup, max_steps, target, length, mass)
    unknowns = Unknowns(log_density, start, args, "hmc")
    d = len(unknowns.start)
    root = np.eye(d) if covariance is None else np.linalg.cholesky(np.asarray(covariance, np.float64))
    starting, warming, drawing = split(key, 3)
    x = _starts(unknowns, chains, jitter, root, starting)
    window = max(-(-warmup // WINDOWS), 20)
    run = _runner(unknowns.flat, window, max_steps, (chains, *unknowns.shapes))
    steps, numbers = beginning(0.1), (np.float64(length), np.float64(target))
    for i in range(WINDOWS):
        x, steps, out = run(x, steps, np.bool_(True), root, fold_in(warming, i), numbers, args)
        root = _root_of(np.asarray(out[0]), mass, root)
        steps = beginning(min(math.exp(float(steps.log_average)), 2.0) if i else 0.5)
    # One more to find the step size for the last covariance.
    x, steps, _ = run(x, steps, np.bool_(True), root, fold_in(warming, WINDOWS), numbers, args)
    step = math.exp(float(steps.log_average))
    still = beginning(step)
    parts = []
    for i in range(-(-draws // window)):
        x, _, out = run(x, still, np.bool_(False), root, fold_in(drawing, i), numbers, args)
        parts.append([np.asarray(a) for a in out])
    samples, acceptance, lost, counts = (np.concatenate(each)[:draws] for each in zip(*parts, strict=True))
    samples = np.ascontiguousarray(np.moveaxis(samples, 0, 1))
    flat = samples.reshape(-1, d)
    details = {
        "acceptance": float(np.mean(acceptance)), "step_size": step, "leapfrog_steps": float(np.mean(counts)),
        "divergences": int(np.sum(lost > 1000)),
    }  # fmt: skip
    covariance = np.cov(flat.T).reshape(d, d)
    return Posterior(samples, flat.mean(axis=0), covariance, unknowns.tree, unknowns.names, details=details)


def _check(draws: int, chains: int, warmup: int, max_steps: int, target: float, length: float, mass: str) -> None:
    if draws < 4 or chains < 1 or warmup < 1 or max_steps < 1:
        raise ArgumentError(
            f"hmc takes at least 4 draws, and one chain, warm-up draw and leapfrog step: got draws={draws}, "
            f"chains={chains}, warmup={warmup}, max_steps={max_steps}"
        )
    if not 0 < target < 1 or not length > 0:
        raise ArgumentError(f"hmc: target is between 0 and 1, length above 0: got {target} and {length}")
    if mass not in MASSES:
        raise ArgumentError(f"hmc: mass is one of {', '.join(map(repr, MASSES))}, got {mass!r}")


def _starts(unknowns: Unknowns, chains: int, jitter: float, root: np.ndarray, key: Any) -> np.ndarray:
    """(chains, d) around the start, nearer to it where the density is zero."""
    away = jitter * np.asarray(normal(key, (chains, len(root)), dtype=np.float64)) @ root.T
    for _ in range(30):
        x = unknowns.start + away
        with np.errstate(all="ignore"):
            bad = ~np.isfinite(np.asarray(vmap(unknowns.value)(x)))
        if not np.any(bad):
            return x
        away[bad] /= 2
    return np.broadcast_to(unknowns.start, away.shape).copy()


def _root_of(samples: np.ndarray, mass: str, before: np.ndarray) -> np.ndarray:
    """A root of the covariance of the later half of samples (draws, chains, d), nearer to diagonal if they are few."""
    d = samples.shape[-1]
    late = samples[len(samples) // 2 :]
    flat = (late - np.mean(late, axis=0)).reshape(-1, d)  # around each chain's own mean: they may not have met yet
    variance = np.mean(flat**2, axis=0)
    if not np.all(variance > 0) or not np.all(np.isfinite(variance)):
        return before
    if mass == "diagonal":
        return np.diag(np.sqrt(variance))
    share = len(flat) / (len(flat) + 5.0 + d)
    return np.linalg.cholesky(share * flat.T @ flat / len(flat) + (1 - share) * np.diag(variance))


@functools.lru_cache(maxsize=32)
def _runner(flat: Callable[..., Any], window: int, max_steps: int, shapes: Any) -> Callable[..., Any]:
    """The compiled `window` draws of all chains for a log density of vectors, and these shapes."""

    def run(x: Any, steps: Any, adapt: Any, root: Any, key: Any, numbers: Any, args: Any) -> Any:
        length, target = numbers
        look = vmap(lambda x: value_and_grad(lambda x: flat(x, *args))(x))

        def draw(carry: Any, index: Any) -> Any:
            x, value, slope, steps = carry
            push, pick, way = split(fold_in(key, index), 3)
            p = normal(push, x.shape, dtype=np.float64)
            size = np.exp(steps.log_step)
            goal = length * uniform(way, (), 0.5, 1.5, dtype=np.float64)
            count = np.clip(np.ceil(goal / size), 1, max_steps).astype(np.int64)

            def leap(i: Any, now: Any) -> Any:
                x, p, _, slope = now
                p = p + 0.5 * size * slope @ root
                x = x + size * p @ root.T
                value, slope = look(x)
                return x, p + 0.5 * size * slope @ root, value, slope

            new, q, value_new, slope_new = fori_loop(0, count, leap, (x, p, value, slope))
            lost = value - value_new + 0.5 * np.sum(q**2 - p**2, axis=1)
            lost = np.where(np.isnan(lost), np.inf, lost)
            chance = np.exp(-np.maximum(lost, 0.0))
            take = uniform(pick, (x.shape[0],), dtype=np.float64) < chance
            here = take[:, None]
            x, slope = np.where(here, new, x), np.where(here, slope_new, slope)
            value = np.where(take, value_new, value)
            changed = steps.after(np.mean(chance), target)
            steps = StepSize(*(np.where(adapt, a, b) for a, b in zip(changed, steps, strict=True)))
            return (x, value, slope, steps), (x, chance, lost, count)

        (x, _, _, steps), out = scan(draw, (x, *look(x), steps), np.arange(window))
        return x, steps, out

    return jit(run)
