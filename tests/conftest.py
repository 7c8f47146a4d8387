"""What every test shares: quiet thread pools, a cache of its own, repeatable random numbers, and real peers."""

import atexit
import importlib.util
import os
import shutil
import tempfile

# Read by the libraries when they are first imported, which is after this. Several test processes share the
# cores, so the BLAS of NumPy keeps to one thread; JAX gets the double precision that NumPy has, and compiles what
# runs once without optimising it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# What compiled code has to write holds NaN before: an element that it leaves out shows.
os.environ.setdefault("WONDERLAND_POISON", "1")

# Who reads a failing test wants to see our frames as well.
os.environ.setdefault("WONDERLAND_TRACEBACK", "full")

# The user's cache of object code is neither read nor filled. All processes of one run share a fresh one.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["WONDERLAND_CACHE"] = tempfile.mkdtemp(prefix="wonderland-cache-")
    atexit.register(shutil.rmtree, os.environ["WONDERLAND_CACHE"], ignore_errors=True)

import hypothesis
import numpy as np
import pytest

# No deadline: the first example of a jitted test compiles. Derandomised: a run tells about the change alone.
hypothesis.settings.register_profile("wonderland", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("wonderland")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse `-m peers` without the peers: skipping all of those tests would look like a pass."""
    if config.option.markexpr != "peers":
        return
    missing = [name for name in ("torch", "jax") if importlib.util.find_spec(name) is None]
    if missing:
        raise pytest.UsageError(f"the peers tests need {' and '.join(missing)}: run `make test-peers`")


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(0)
