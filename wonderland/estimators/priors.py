"""Priors of coefficients w (features,): their log densities, and where these have kinks.

A prior is an object with `log_density(w)`, a number, as NumPy code. If it has -rate |w - centre| in it, whose kink
derivatives don't see, it says so: `l1(features)` returns (rate, centre), numbers or (features,).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

from wonderland.core.tracer import Tracer
from wonderland.estimators.base import positive_number


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """w_i ~ N(mean_i, scale_i^2), each a number for all or (features,). As a penalty: ridge."""

    scale: Any = 1.0
    mean: Any = 0.0

    def __post_init__(self) -> None:
        _as_numbers(self)

    def log_density(self, w: Any) -> Any:
        """-1/2 sum ((w - mean) / scale)^2 + log 2 pi scale^2."""
        return -0.5 * np.sum(((w - self.mean) / self.scale) ** 2 + 2 * np.log(self.scale) + math.log(2 * math.pi))


@dataclass(frozen=True, eq=False)
class LaplacePrior:
    """w_i ~ Laplace(mean_i, scale_i), each a number for all or (features,). As a penalty: lasso."""

    scale: Any = 1.0
    mean: Any = 0.0

    def __post_init__(self) -> None:
        _as_numbers(self)

    def log_density(self, w: Any) -> Any:
        """-sum |w - mean| / scale + log 2 scale."""
        return -np.sum(np.abs(w - self.mean) / self.scale + np.log(2 * self.scale))

    def l1(self, features: int) -> tuple[Any, Any]:
        """The slope 1 / scale on both sides of the mean."""
        return 1 / self.scale, self.mean


@dataclass(frozen=True, eq=False)
class StudentPrior:
    """(w_i - mean_i) / scale_i ~ Student-t with `df` degrees of freedom: large coefficients are shrunk less.

    The posterior may have several modes.
    """

    df: float = 3.0
    scale: Any = 1.0
    mean: Any = 0.0

    def __post_init__(self) -> None:
        _as_numbers(self)
        positive_number(self.df, "df")

    def log_density(self, w: Any) -> Any:
        """-(df + 1) / 2 sum log(1 + ((w - mean) / scale)^2 / df), and the normaliser."""
        return -np.sum(student(w - self.mean, self.scale, self.df))


def student(away: Any, scale: Any, df: float) -> Any:
    """-log of Student's density at `away` from its centre."""
    normaliser = float(scipy.special.betaln(0.5, df / 2)) + 0.5 * math.log(df)
    return 0.5 * (df + 1) * np.log1p((away / scale) ** 2 / df) + np.log(scale) + normaliser


def _as_numbers(prior: Any) -> None:
    """Lists as arrays; traced values stay."""
    for name in ("scale", "mean"):
        value = getattr(prior, name)
        if not isinstance(value, Tracer):
            value = np.asarray(value, np.float64)
            if not np.all(np.isfinite(value)) or (name == "scale" and not np.all(value > 0)):
                raise ValueError(f"{type(prior).__name__}: a scale is above 0, a mean finite, got {name}={value}")
            object.__setattr__(prior, name, value[()])
