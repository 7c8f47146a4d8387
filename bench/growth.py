"""How cost grows: `python -m bench.growth [size gemm equations] --out DIRECTORY --images DIRECTORY`.

`size`: time per element of an elementwise chain from 10 to 10^8 elements; `gemm`: arithmetic rate of a matrix product
from n = 8 to 4096; `equations`: time of the first call from 10 to 50,000 equations of an unrolled Python loop. Each
contender has a point per size; the smallest of a few rounds is kept. Results go to growth.json, and to one plot each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import environment, measure, registry
from bench.cases import elementwise, gemm

ROUNDS = 5
PATIENCE = 90.0  # seconds for one first call: a contender that needs more isn't asked for larger ones
SIZES = [10, 30, 100, 300, 1000, 3000, 10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6, 10**7, 10**8]
ORDERS = [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096]
EQUATIONS = [10, 100, 1000, 3000, 10_000, 20_000, 50_000]

Series = dict[str, list[tuple[float, float]]]  # by contender: x, seconds


def points(calls: dict[str, registry.Call]) -> dict[str, float]:
    """Seconds per call, by contender: the best of a few interleaved rounds."""
    timed = {name: measure.Timed(call) for name, call in calls.items()}
    sizes = {name: call.size() for name, call in timed.items()}
    best = dict.fromkeys(calls, np.inf)
    slow = max(each for _, each in sizes.values())
    for _ in range(ROUNDS if slow < 1.0 else 2):
        for name, call in timed.items():
            best[name] = min(best[name], call.turn(*sizes[name]))
    return best


def grown(xs: list[int], prepare: Callable[[int], dict[str, registry.Call]]) -> Series:
    """A point per x and contender; what `prepare` makes is let go before the next x."""
    series: Series = {}
    for x in xs:
        found = points(prepare(x))
        print(f"  {x:>10,} ", *(f"{name} {seconds:.3g} s" for name, seconds in found.items()), flush=True)
        for name, seconds in found.items():
            series.setdefault(name, []).append((x, seconds))
    return series


def by_size() -> Series:
    def prepare(size: int) -> dict[str, registry.Call]:
        inputs = elementwise.make_inputs(np.float32, size)
        return {
            "wonderland": elementwise.ours(*inputs),
            "numpy": elementwise.in_numpy(*inputs),
            "torch": elementwise.in_torch(lambda function: function, *inputs),
            "jax": elementwise.in_jax(*inputs),
        }

    return grown(SIZES, prepare)


def by_order() -> Series:
    def prepare(n: int) -> dict[str, registry.Call]:
        inputs = gemm.make_inputs((n, n), (n, n), np.float32)
        makers = {"wonderland": gemm.ours, "numpy": gemm.in_numpy, "torch": gemm.in_torch, "jax": gemm.in_jax}
        return {name: make(False, *inputs) for name, make in makers.items()}

    return grown(ORDERS, prepare)


def elementwise_loop(count: int, x: Any, xp: Any) -> Any:
    """About `count` equations on a vector."""
    for _ in range(count // 2):
        x = xp.sin(x) + 0.5
    return x


def layered_loop(count: int, x: Any, xp: Any) -> Any:
    """About `count` equations, half of them matrix products."""
    w = x
    for _ in range(count // 2):
        x = xp.tanh(x @ w)
    return x


LOOPS = {"elementwise": elementwise_loop, "layers": layered_loop}


def first_call(who: str, loop: str, count: int) -> float:
    """Seconds of the first call in this process, imports excluded."""
    x = np.random.default_rng(0).standard_normal((16, 16), np.float32)
    if who == "jax":
        import jax
        import jax.numpy as jnp

        compiled, given = jax.jit(partial(LOOPS[loop], count, xp=jnp)), jnp.asarray(x)
    else:
        import wonderland as wl
        import wonderland.compile.stages  # what the first call would import

        compiled, given = wl.jit(partial(LOOPS[loop], count, xp=np)), x
    start = time.perf_counter()
    np.asarray(compiled(given))
    return time.perf_counter() - start


def by_equations() -> Series:
    """First calls in fresh processes, each with an empty disk cache."""
    series: Series = {}
    for who in ("wonderland", "jax"):
        for loop in LOOPS:
            for count in EQUATIONS:
                code = f"from bench.growth import first_call; print(first_call({who!r}, {loop!r}, {count}))"
                with tempfile.TemporaryDirectory() as directory:
                    variables = {**os.environ, "WONDERLAND_CACHE": directory}
                    try:
                        done = subprocess.run(
                            [sys.executable, "-c", code],
                            cwd=environment.ROOT,
                            env=variables,
                            capture_output=True,
                            text=True,
                            timeout=PATIENCE,
                        )
                    except subprocess.TimeoutExpired:
                        print(f"  {who}, {loop}: more than {PATIENCE:g} s at {count:,} equations", flush=True)
                        break
                if done.returncode:
                    why = (done.stderr.strip().splitlines() or ["no message"])[-1]
                    print(f"  {who}, {loop}: fails at {count:,} equations: {why}", flush=True)
                    break
                seconds = float(done.stdout.splitlines()[-1])
                print(f"  {who}, {loop}, {count:,}: {seconds:.3g} s", flush=True)
                series.setdefault(f"{who}, {loop}", []).append((count, seconds))
    return series


STUDIES = {"size": by_size, "gemm": by_order, "equations": by_equations}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="How cost grows.")
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"any of {', '.join(STUDIES)} (default: all)")
    parser.add_argument("--out", default="bench/results", metavar="DIRECTORY", help="where growth.json goes")
    parser.add_argument("--images", default="docs/images", metavar="DIRECTORY", help="where the plots go")
    parser.add_argument("--redraw", action="store_true", help="plot what growth.json has, and measure nothing")
    options = parser.parse_args()
    if unknown := {*options.studies} - {*STUDIES}:
        parser.error(f"no study called {', '.join(unknown)}; there are {', '.join(STUDIES)}")
    from bench import plots

    file = Path(options.out) / "growth.json"
    record = json.loads(file.read_text()) if file.exists() else {}
    if not options.redraw:
        record["environment"] = environment.describe()
        environment.pin()
        limit_threads()
        for name in options.studies or STUDIES:
            print(name, flush=True)
            record[name] = STUDIES[name]()
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(record, indent=1) + "\n")
    images = Path(options.images)
    images.mkdir(parents=True, exist_ok=True)
    for name in options.studies or STUDIES:
        if name in record:
            plots.growth(name, record, images / f"growth-{name}.png")
            print(f"wrote {images / f'growth-{name}.png'}")
    table = Path(options.out) / "table.json"
    if table.exists():
        plots.table(json.loads(table.read_text()), images / "benchmarks.png")
        print(f"wrote {images / 'benchmarks.png'}")
    return 0


def limit_threads() -> None:
    import torch

    torch.set_num_threads(environment.THREADS)


if __name__ == "__main__":
    # The libraries read their number of threads when they are loaded: start again with it set.
    if os.environ.get("OMP_NUM_THREADS") != str(environment.THREADS):
        os.execve(sys.executable, [sys.executable, "-m", "bench.growth", *sys.argv[1:]], environment.variables())
    sys.exit(main())
