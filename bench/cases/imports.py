"""What `import wonderland` costs in a fresh interpreter, NumPy's own import included."""

import subprocess
import sys

from bench.environment import ROOT
from bench.registry import Benchmark

imports = Benchmark(
    "import", "import in a fresh interpreter", targets={"numpy": 1.5}, self_timed=True
)


def fresh_import(name):
    """A call that starts an interpreter and returns the seconds that it measured for the import alone."""
    code = f"import time; start = time.perf_counter(); import {name}; print(time.perf_counter() - start)"

    def call():
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
        )
        return float(done.stdout)

    call()  # writes the byte code, and fills the disk cache
    return call


@imports.contender("wonderland")
def ours():
    return fresh_import("wonderland")


@imports.contender("numpy")
def in_numpy():
    return fresh_import("numpy")
