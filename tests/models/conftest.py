"""What tests of models share: models whose weights nobody looks at."""

import numpy as np
import pytest

import wonderland as wl


@pytest.fixture
def undrawn(monkeypatch):
    """Large models are made of zeros, which takes no time: their parameters are only counted."""

    def zeros(key, shape=(), *args, dtype=np.float32, **options):
        return np.zeros(shape, dtype)

    for name in ("normal", "truncated_normal", "uniform"):
        monkeypatch.setattr(wl.random, name, zeros)
