"""When a solver has arrived: steps and unknowns come in, a relative error goes out.

Every solver that has a step s towards the solution, one that would reach it if its model of F were exact, measures it
against x. Where a root is zero, no step is ever small beside it; so the steps that are small beside the x of earlier
steps, and no smaller part of x than the step before, are counted, and a few of them are enough.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

PATIENCE = 5  # steps, small beside the x that there has been, that don't come nearer to the present x
NEARER = 0.9
SURE = 1e-4  # of the decrease that a model promises, so much has to come


def size(v: Any) -> Any:
    """The largest number of a vector, by absolute value; 0 of an empty one."""
    return np.abs(v).max(initial=0.0)


def relative(part: Any, whole: Any) -> Any:
    """The part of the whole; 0 if it is 0."""
    return np.where(part == 0, part, part / np.where(whole == 0, 1, whole))


def share(step: Any, x: Any) -> Any:
    """The largest |s_j| / max(|x_j|, |x_j + s_j|): each number of x by its own size."""
    return relative(np.abs(step), np.maximum(np.abs(x), np.abs(x + step))).max(initial=0.0)


def square(v: Any) -> Any:
    """v'v."""
    return (v * v).sum()


class Course(NamedTuple):
    """How far a solver is.

    Fields: the relative error; the largest |x| so far; how many of the last steps were small beside that alone; the
    number of steps; and whether another one can be of use.
    """

    error: Any
    scale: Any
    small: Any
    count: Any
    going: Any

    def after(self, x: Any, step: Any, tol: float, *, other: Any = np.inf, going: Any = np.True_) -> Course:
        """With one more step, found at x. `other` is the error by another measure: the smaller one counts."""
        scale = np.maximum(self.scale, size(x))
        beside = relative(size(step), np.maximum(scale, tol * size(step)))
        error = np.minimum(share(step, x), other)
        small = np.where(beside <= tol, self.small + ~(error <= NEARER * self.error), 0)
        patient = (small > PATIENCE) | (~going & (beside <= tol))
        error = np.where(patient & ~(error <= tol), beside, error)
        return Course(error, scale, small, self.count + 1, going & ~np.isnan(error))

    def unfinished(self, tol: float, maxiter: int) -> Any:
        """Is another step to be taken? A NaN has never converged, and never will."""
        return ~(self.error <= tol) & (self.count < maxiter) & self.going


def beginning(x: Any) -> Course:
    """Before the first step, at x."""
    zero, count = np.zeros((), x.dtype), np.zeros((), np.int64)
    return Course(zero + np.inf, size(x) + zero, count, count, np.bool_(True))
