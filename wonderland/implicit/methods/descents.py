"""Going down: a direction comes in, a point comes out where the objective is lower and the slope less steep.

The conditions are those of Wolfe; where the objective's digits end, the slopes alone decide (W. Hager and H. Zhang, A
new conjugate gradient method with guaranteed descent and an efficient line search, 2005), so that gradients become as
small as their own rounding lets them. The length is found by bisection (A. Lewis and M. Overton, Nonsmooth optimization
via quasi-Newton methods, 2013).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import SURE
from wonderland.implicit.tasks import Task

LESS_STEEP = 0.9  # of the slope at the beginning
DIGITS = 10.0  # units of rounding by which an objective may be wrong
TRIALS = 60


class Visited(NamedTuple):
    """x with the objective and its gradient there."""

    x: Any
    value: Any
    gradient: Any


def visited(problem: Task, x: Any) -> Visited:
    """What is known at x."""
    return Visited(x, problem.objective(x), problem.gradient(x))


class Search(NamedTuple):
    """A point that is tried, its distance, between which distances it is looked for, and is it good?"""

    there: Visited
    t: Any
    low: Any
    high: Any
    good: Any
    trials: Any


def lower(problem: Task, at: Visited, direction: Any, first: Any) -> tuple[Visited, Any]:
    """A point of the line at.x + t direction, t = `first` to begin with, and has it been found? If not, it is `at`."""
    slope = np.sum(at.gradient * direction)
    noise = DIGITS * np.finfo(at.x.dtype).eps * np.abs(at.value)

    def tried(t: Any, low: Any, high: Any, trials: Any) -> Search:
        there = visited(problem, at.x + t * direction)
        slope_there = np.sum(there.gradient * direction)
        falls = there.value <= at.value + SURE * t * slope
        turns = (there.value <= at.value + noise) & (slope_there <= (2 * SURE - 1) * slope)
        enough = (falls | turns) & np.isfinite(slope_there)
        steep = slope_there < LESS_STEEP * slope
        low, high = np.where(enough & steep, t, low), np.where(enough, high, t)
        return Search(there, t, low, high, enough & ~steep, trials + 1)

    def another(search: Search) -> Search:
        middle = search.low + (search.high - search.low) / 2
        t = np.where(np.isinf(search.high), 4 * search.t, middle)
        return tried(t, search.low, search.high, search.trials)

    zero = np.zeros((), at.x.dtype)
    start = tried(zero + first, zero, zero + np.inf, np.zeros((), np.int64))
    found = repeat(lambda search: ~search.good & (search.trials < TRIALS) & (slope < 0), another, start)
    better = (slope < 0) & (found.good | (found.there.value < at.value)) & np.isfinite(np.sum(found.there.gradient))
    return Visited(*(np.where(better, new, old) for new, old in zip(found.there, at, strict=True))), better


def first_length(x: Any, direction: Any) -> Any:
    """A tenth of the size of x (or 1, where that is 0), for a direction of no particular length."""
    whole, part = np.max(np.abs(x), initial=0.0), np.max(np.abs(direction), initial=0.0)
    return 0.1 * np.where(whole == 0, 1, whole) / np.where(part == 0, 1, part)
