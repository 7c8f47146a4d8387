"""Large eager draws are made by compiled code, and are what NumPy's evaluation gives; small ones don't load LLVM."""

import subprocess
import sys

import numpy as np
import pytest

import wonderland as wl
import wonderland.random as random
from wonderland.random import large

KEY = random.key(7)
SHAPE = (4, 8193)  # just above the limit, and odd in the last block
EXACT = {
    "bits": lambda k, shape: random.bits(k, shape),
    "bits of bytes": lambda k, shape: random.bits(k, shape, dtype=np.uint8),
    "wide bits": lambda k, shape: random.bits(k, shape, dtype=np.uint64),
    "uniform": lambda k, shape: random.uniform(k, shape),
    "uniform float32": lambda k, shape: random.uniform(k, shape, dtype=np.float32),
    "uniform between": lambda k, shape: random.uniform(k, shape, -1.0, np.linspace(1, 2, shape[-1])),
    "bernoulli": lambda k, shape: random.bernoulli(k, shape, 0.3),
    "rademacher": lambda k, shape: random.rademacher(k, shape),
    "randint": lambda k, shape: random.randint(k, shape, -5, 10),
    "randint by rows": lambda k, shape: random.randint(k, shape, np.arange(4)[:, None], 10),
    "choice": lambda k, shape: random.choice(k, 7, shape),
    "poisson": lambda k, shape: random.poisson(k, shape, np.linspace(0.0, 40.0, shape[-1])),
    "permutation": lambda k, shape: random.permutation(k, shape[0] * shape[1]),
}
CLOSE = {
    "normal": lambda k, shape: random.normal(k, shape),
    "normal float32": lambda k, shape: random.normal(k, shape, 1.0, dtype=np.float32),
    "exponential": lambda k, shape: random.exponential(k, shape, 2.0),
    "gumbel": lambda k, shape: random.gumbel(k, shape),
    "laplace": lambda k, shape: random.laplace(k, shape),
    "logistic": lambda k, shape: random.logistic(k, shape),
    "cauchy": lambda k, shape: random.cauchy(k, shape),
    "gamma": lambda k, shape: random.gamma(k, shape, np.geomspace(0.1, 100, shape[-1])),
    "dirichlet": lambda k, shape: random.dirichlet(k, (8200,), [0.3, 1.0, 2.0, 5.0]),
}


@pytest.fixture
def compiled(monkeypatch):
    """The functions that are compiled for large draws."""
    found = []
    monkeypatch.setattr(large, "compiler", lambda f: found.append(f) or wl.jit(f))
    large._kernel.cache_clear()
    yield found
    large._kernel.cache_clear()


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_compiled_code_gives_what_numpy_gives(name, compiled, monkeypatch):
    f = (EXACT | CLOSE)[name]
    got = f(KEY, SHAPE)
    assert len(compiled) == 1
    monkeypatch.setattr(large, "LARGE", 1 << 60)
    expected = f(KEY, SHAPE)
    assert len(compiled) == 1 and got.flags.writeable and got.flags.c_contiguous
    if name in EXACT:
        np.testing.assert_array_equal(got, expected, strict=True)
    else:
        eps = np.finfo(expected.dtype).eps
        np.testing.assert_allclose(got, expected, rtol=100 * eps, atol=20 * eps, strict=True)


def test_the_size_alone_decides(compiled):
    below = random.normal(KEY, large.LARGE - 1)
    assert not compiled
    first = random.normal(KEY, large.LARGE)
    assert len(compiled) == 1
    assert np.array_equal(random.normal(KEY, large.LARGE - 1), below) and len(compiled) == 1
    assert np.array_equal(random.normal(KEY, (large.LARGE // 4, 4)).ravel(), first) and len(compiled) == 1
    np.testing.assert_allclose(first[:-1], below, rtol=5e-16)
    assert np.array_equal(wl.jit(lambda k: random.normal(k, large.LARGE))(KEY), first)


def test_inside_other_transformations(compiled):
    n = large.LARGE
    z = random.normal(KEY, n)
    f = lambda scale: np.sum(random.normal(KEY, n, 1.0, scale))
    assert np.isclose(wl.grad(f)(2.0), np.sum(z)) and np.isclose(wl.jit(wl.grad(f))(2.0), np.sum(z))
    assert np.array_equal(wl.vmap(lambda s: random.normal(KEY, n) * s)(np.array([1.0, 2.0]))[1], 2 * z)
    assert wl.grad(lambda a: np.mean(random.gamma(KEY, n, a)))(2.0) == pytest.approx(1.0, abs=0.02)
    both = wl.vmap(lambda k: random.uniform(k, n))(random.split(KEY))
    assert np.array_equal(both[1], random.uniform(random.split(KEY)[1], n))


def test_errors_are_those_of_small_draws():
    lam = np.ones(large.LARGE)
    lam[7] = -1.0
    with pytest.raises(ValueError, match="lam must be between 0"):
        random.poisson(KEY, lam=lam)
    with pytest.raises(ValueError, match="the range from 3 to 3 is empty"):
        random.randint(KEY, large.LARGE, 3, 3)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_without_llvm_numpy_evaluates():
    code = "import sys; sys.modules['llvmlite'] = None; import wonderland.random as r; import numpy as np; "
    code += "print(np.sum(r.bits(r.key(7), 40_000, dtype=np.uint64) >> 20))"
    assert run(code) == [str(np.sum(random.bits(KEY, 40_000, dtype=np.uint64) >> 20))]


def test_small_draws_dont_load_llvm():
    code = "import sys, wonderland.random as r; r.normal(r.key(0), 1000); print('llvmlite' in sys.modules); "
    code += "r.normal(r.key(0), 40_000); print('llvmlite' in sys.modules)"
    assert run(code) == ["False", "True"]
