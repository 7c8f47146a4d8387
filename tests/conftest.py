"""What every test shares: quiet thread pools, a cache of its own, repeatable random numbers, and real peers."""

import atexit
import gc
import importlib.util
import os
import shutil
import signal
import sys
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

# A shell starts what runs in the background with Ctrl-C ignored, and tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The user's cache of object code is neither read nor filled. All processes of one run share a fresh one.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["WONDERLAND_CACHE"] = tempfile.mkdtemp(prefix="wonderland-cache-")
    atexit.register(shutil.rmtree, os.environ["WONDERLAND_CACHE"], ignore_errors=True)

import hypothesis
import numpy as np
import pytest

# Records and traces are many small objects, few of which are in cycles: the collector may look for those less often.
gc.set_threshold(100_000, 20, 50)

# No deadline: the first example of a jitted test compiles. Derandomised: a run tells about the change alone.
hypothesis.settings.register_profile("wonderland", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("wonderland")


class Pipeline:
    """Chooses the pipeline of LLVM for each test, before its fixtures compile anything.

    Most tests ask what compiled code means, and get it soon; those marked `optimised`, and all of the slow run, get
    what users get: kernels, vector code, rounding to the bit. WONDERLAND_CHEAP=0 is that for all of them, 1 for none.
    """

    given = os.environ.get("WONDERLAND_CHEAP")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        optimised = any(item.get_closest_marker(name) for name in ("optimised", "slow"))
        cheap = ("0" if optimised else "1") if self.given is None else self.given
        if os.environ.get("WONDERLAND_CHEAP") != cheap:
            os.environ["WONDERLAND_CHEAP"] = cheap
            if build := sys.modules.get("wonderland.compile.build"):
                build._libraries.clear()  # they are found by their text, which is the same in both


def pytest_configure(config: pytest.Config) -> None:
    """Refuse `-m peers` without the peers: skipping all of those tests would look like a pass."""
    config.pluginmanager.register(Pipeline())  # not as hooks of this file, which the tests of bench/ wouldn't see
    if config.option.markexpr != "peers":
        return
    missing = [name for name in ("torch", "jax") if importlib.util.find_spec(name) is None]
    if missing:
        raise pytest.UsageError(f"the peers tests need {' and '.join(missing)}: run `make test-peers`")


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(0)
