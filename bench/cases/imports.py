"""What `import wonderland` costs in a fresh interpreter, NumPy's own import included."""

import compileall
import subprocess
import sys

from bench.environment import ROOT
from bench.registry import Benchmark

imports = Benchmark("import", "import", "import in a fresh interpreter", targets={"numpy": 1.5}, self_timed=True)


def fresh_import(name):
    """A call that starts an interpreter and returns the seconds that it measured for the import alone."""
    code = f"import time; start = time.perf_counter(); import {name}; print(time.perf_counter() - start)"

    def call():
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
        return float(done.stdout)

    call()  # fills the disk cache
    return call


@imports.contender("wonderland")
def ours():
    # An installed package, as NumPy is, has its byte code beside it; a checkout may not, nor be allowed to write it.
    compileall.compile_dir(ROOT / "wonderland", quiet=1)
    return fresh_import("wonderland")


@imports.contender("numpy")
def in_numpy():
    return fresh_import("numpy")
