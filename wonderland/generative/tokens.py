"""Whole numbers that name something, tokens, pixels or labels: any come in, int64 from 0 to below a limit go out."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.arguments import array, demand


def whole_below(values: Any, limit: int, what: str) -> Any:
    """Whole numbers from 0 to limit - 1, of any dtype, as int64. A uint8 plus 250 would begin again from 0."""
    values = array(values)
    whole = values.astype(np.int64)
    found = (whole == values) & (whole >= 0) & (whole < limit)
    demand(found, f"{what} are whole numbers from 0 to {limit - 1}, got {{}}", values)
    return whole


def labels_of(labels: Any, classes: int, count: int, name: str) -> Any:
    """A label for each of `count` samples, (count,); a model of one class needs none."""
    if labels is None:
        if classes > 1:
            raise ArgumentError(f"{name}: a model of {classes} classes needs labels, one for each of {count} samples")
        return np.zeros(count, np.int64)
    labels = whole_below(labels, classes, f"{name}: labels")
    if labels.shape != (count,):
        raise ArgumentError(f"{name}: labels are one for each of {count} samples, got shape {labels.shape}")
    return labels
