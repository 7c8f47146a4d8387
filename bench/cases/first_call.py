"""The first call of a training step in a fresh process: tracing, compiling and running once, without the imports.

`cold` starts from an empty directory of compiled code, `cached` from one that another process has filled. JAX compiles
anew each time, as `jax.jit` does unless told otherwise.
"""

import os
import subprocess
import sys
import tempfile
from functools import partial

from bench import environment
from bench.registry import Benchmark

CHILD = """
import sys, time
from bench import registry
benchmarks = registry.load()
name, who = sys.argv[1:]
if who == "wonderland":
    import wonderland.compile.stages  # what the first call would import
benchmark = benchmarks[name]
call = benchmark.contenders[who](*benchmark.inputs())
start = time.perf_counter()
call()
print(time.perf_counter() - start)
"""


def first_call(name, who, cache=None):
    """The seconds that a fresh process measured for its first call."""
    variables = {**os.environ, **({} if cache is None else {"WONDERLAND_CACHE": cache})}
    variables.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-c", CHILD, name, who]
    done = subprocess.run(command, cwd=environment.ROOT, env=variables, check=True, capture_output=True, text=True)
    return float(done.stdout.splitlines()[-1])


def cold(name):
    def call():
        with tempfile.TemporaryDirectory() as directory:
            return first_call(name, "wonderland", directory)

    return call


def cached(name):
    directory = tempfile.TemporaryDirectory()
    first_call(name, "wonderland", directory.name)
    return lambda: first_call(name, "wonderland", directory.name)


def in_jax(name):
    return lambda: first_call(name, "jax")


COLD = ["adam_small", "adam", "mlp_deep", "cnn", "nanogpt", "nanogpt_384", "resnet"]
for way, prepare, limit, names in (("cold", cold, 0.5, COLD), ("cached", cached, 0.25, COLD[:2])):
    for name in names:
        benchmark = Benchmark(
            f"compile_{name}_{way}",
            "compile time: first call in a fresh process",
            f"first call of {name}'s step, imports excluded, {'empty' if way == 'cold' else 'filled'} disk cache",
            limit=limit,
            self_timed=True,
        )
        benchmark.contender("wonderland")(partial(prepare, name))
        benchmark.contender("jax")(partial(in_jax, name))
