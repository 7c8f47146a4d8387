"""The inner loop goes along the large arrays, however many small ones there are beside them."""

import numpy as np
import pytest

import wonderland as wl


@pytest.mark.parametrize("count", [1, 3, 4, 8])
def test_small_operands_have_no_majority(count):
    x = np.ones((8, 16, 6, 32), np.float32)
    factors = [np.arange(16, dtype=np.float32).reshape(16, 1, 1) for _ in range(count)]

    def scaled(x, *factors):
        for factor in factors:
            x = x * factor
        return x

    f = wl.jit(scaled)
    np.testing.assert_array_equal(f(x, *factors), scaled(x, *factors))
    assert "loops [8, 16, 192]" in str(f.inspect(x, *factors).kernels)
