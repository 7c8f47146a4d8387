"""Noise levels of samples."""

import numpy as np
import pytest

from wonderland.core.errors import ArgumentError
from wonderland.generative import as_sigma


def test_one_level_for_each_sample():
    x = np.ones((2, 3, 4))
    assert as_sigma(0.5, x) == 0.5
    assert as_sigma(np.array([1.0, 2.0]), x).shape == (2, 1, 1)
    with pytest.raises(ArgumentError, match=r"sigma of shape \(3,\) for samples of shape \(2, 3, 4\)"):
        as_sigma(np.ones(3), x)
