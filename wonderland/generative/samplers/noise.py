"""Noise of a sample that is its own: it depends on the key, the number of the sample and the step, and on no batch.

In: a key and a shape (B, ...), or the keys of samples and the number of a step. Out: keys (B, 2); normal numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.random import fold_in, normal, split
from wonderland.transform.vmap import vmap


def sample_noise(key: Any, step: Any, shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    """Standard normal noise (B, ...) for one step of samplers; step 0 is the start. Row i depends on (key, i, step)."""
    return noise_of(split(key, shape[0]), step, shape[1:], dtype)


def noise_of(keys: Any, step: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The same, by the keys of the samples (B, 2) and the shape of one."""
    return vmap(lambda key: normal(fold_in(key, step), shape, dtype=dtype))(keys)
