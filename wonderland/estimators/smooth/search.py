"""How far to go along a direction: a `LossPoint` and a direction come in, the next `LossPoint` goes out."""

from __future__ import annotations

import math

import numpy as np

from wonderland.estimators.smooth.problem import LossPoint, SmoothProblem

ENOUGH = 1e-4  # the decrease that is asked for, in parts of what the slope promises
ROUNDING = 16 * float(np.finfo(np.float64).eps)
TRIALS = 40


def search(problem: SmoothProblem, start: LossPoint, direction: np.ndarray, flatter: float) -> LossPoint | None:
    """The point at w + t direction where the objective is lower and its slope `flatter` times as steep, or less.

    t = 1 is tried first, with a reading of X that gives the gradient as well; other t need predictors only. None where
    rounding leaves nothing to gain.
    """
    end = problem.at(start.w + direction)
    for _ in range(TRIALS):
        if np.isfinite(end.value):
            break
        direction = direction / 8
        end = problem.at(start.w + direction)
    slope = float(np.vdot(start.gradient, direction))
    slack = ROUNDING * abs(start.value)

    def lower(t: float, value: float) -> bool:
        return value <= start.value + ENOUGH * t * slope + slack

    t, value, there, slopes = 1.0, end.value, float(np.vdot(end.gradient, direction)), None
    if lower(1.0, value) and abs(there) <= -flatter * slope:
        return end
    along = problem.along(start, end)
    low, low_slope, high, high_slope = 0.0, slope, math.inf, math.nan
    best = None
    for _ in range(TRIALS):
        # The minimum lies before a rise, and before the slope has changed its sign.
        if there > 0 or not lower(t, value):
            high, high_slope = t, there
        else:
            low, low_slope = t, there
        if lower(t, value) and (best is None or value < best[1]):
            best = t, value, slopes
        t = _between(low, low_slope, high, high_slope) if high < math.inf else _beyond(slope, low, low_slope)
        if high - low <= 1e-10 * high:
            break
        value, there, slopes = along(t)
        if lower(t, value) and abs(there) <= -flatter * slope:
            return problem.between(start, end, t, value, slopes)
    if best is None:
        return None
    t, value, slopes = best
    return end if slopes is None else problem.between(start, end, t, value, slopes)


def _between(low: float, low_slope: float, high: float, high_slope: float) -> float:
    """Where the slope's secant is zero, or the middle where it says nothing."""
    if not high_slope > 0:
        return (low + high) / 2
    margin = 0.05 * (high - low)
    return min(max(low - low_slope * (high - low) / (high_slope - low_slope), low + margin), high - margin)


def _beyond(slope: float, t: float, there: float) -> float:
    """Further than t, where the secant from 0 is zero, within bounds."""
    guess = slope * t / (slope - there) if there > slope else math.inf
    return min(max(guess, 1.5 * t), 10 * t)
