"""Bisection: an interval at whose ends F has different signs is halved, for each element by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.functions import handles
from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import relative, size
from wonderland.implicit.tasks import Task


@dataclass(frozen=True, eq=False)
class Bisection:
    """From x to another end, until each interval is below `tol` of the larger of its ends, or can't be halved.

    The other end (n,) is value number `place` of theta. Where the root is zero no interval is ever small beside its
    ends: one around zero, after all halvings, is measured by the rounding of the first ends, or by 1.
    """

    place: int

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The solution, the number of halvings, and the widest interval, relative; NaN where no sign changes.

        NaN is also where F is larger at the end than it was at both ends at first: that is a pole.
        """
        low, high = x, handles([problem.theta[self.place]])[0].astype(x.dtype)
        least = np.minimum(np.finfo(x.dtype).eps * np.maximum(np.abs(low), np.abs(high)), 1)
        at_low, at_high = problem.residual(low), problem.residual(high)
        rising = at_low <= at_high
        brackets = np.sign(at_low) * np.sign(at_high) <= 0
        low, high = np.where(at_high == 0, high, low), np.where(at_low == 0, low, high)

        def halve(state: Any) -> Any:
            low, high, count = state
            middle = between(low, high)
            value = problem.residual(middle)
            below = np.where(rising, value < 0, value > 0)
            return np.where(below | (value == 0), middle, low), np.where(below, high, middle), count + 1

        def error(low: Any, high: Any, least: Any = 0) -> Any:
            middle = between(low, high)
            widths = relative(np.abs(high - low), np.maximum(np.maximum(np.abs(low), np.abs(high)), least))
            widths = np.where((middle == low) | (middle == high), 0, widths)
            return size(np.where(brackets, widths, np.nan))

        def unfinished(state: Any) -> Any:
            low, high, count = state
            left = error(low, high)
            return ~(left <= tol) & (count < maxiter) & ~np.isnan(left)

        low, high, count = repeat(unfinished, halve, (low, high, np.zeros((), np.int64)))
        x = between(low, high)
        pole = np.abs(problem.residual(x)) > np.maximum(np.abs(at_low), np.abs(at_high))
        around_zero = np.sign(low) * np.sign(high) <= 0
        return x, count, np.where(np.any(pole), np.nan, error(low, high, np.where(around_zero, least, 0)))


def between(low: Any, high: Any) -> Any:
    """The middle; the difference of the ends could overflow."""
    return low + (high / 2 - low / 2)
