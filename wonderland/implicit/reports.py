"""How a solve went: `Report`, and what its status means."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple


class Status(IntEnum):
    """What the number `Report.status` means: `Status(report.status).name`."""

    CONVERGED = 0
    OUT_OF_ITERATIONS = 1
    NOT_FINITE = 2  # a NaN or an infinity came in, or came up
    STAGNATED = 3  # a breakdown, or rounding: further iterations don't make the residual smaller
    NO_MINIMUM = 4  # the gradient is zero at a saddle or at a maximum


class Report(NamedTuple):
    """How a solve went: a `Status` as a number, iterations, and the norm of the residual b - A x. Arrays under vmap."""

    status: Any
    iterations: Any
    residual: Any
