"""What all of diffusion speaks of: noisy data, and a denoiser that knows the noise.

Data x0 (B, ...), noise epsilon of N(0, 1), a noise level sigma: x = x0 + sigma epsilon (variance exploding, as in the
notes). A *denoiser* is any function `epsilon(x, sigma)` of noisy data (B, ...) and a noise level, one number or one for
each sample (B,), that returns the expected noise E[epsilon | x], like x. A condition is whatever else a function closes
over. By Tweedie's formula the expected data are x - sigma epsilon(x, sigma), and the score is -epsilon(x, sigma)/sigma.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.arguments import array


def as_sigma(sigma: Any, x: Any) -> Any:
    """A noise level, one number or one for each sample (B,), as what multiplies samples x (B, ...).

    wl.generative.as_sigma(np.array([0.1, 2.0]), images).shape          # (2, 1, 1, 1)
    """
    shape = np.shape(sigma)
    if shape == ():
        return sigma
    if len(shape) != 1 or not np.ndim(x) or shape[0] not in (1, np.shape(x)[0]):
        raise ArgumentError(
            f"a noise level is one number, or one for each sample: got sigma of shape {shape} for samples of shape "
            f"{np.shape(x)}"
        )
    return array(sigma).reshape(shape[0], *(1 for _ in np.shape(x)[1:]))


def as_condition(condition: Any) -> Any:
    """A condition as an array; unsigned integers (labels of files) become signed ones, as -1 is no condition."""
    condition = array(condition)
    return condition.astype(np.int64) if condition.dtype.kind == "u" else condition
