"""Two ranks with one thread each against one process with two: `python -m bench.ranks`.

Both train the digits' networks with `train.fit`, the same batches. They take turns; the first epochs, which compile,
aren't counted. What ranks pay for is the sum of the gradients, once a step.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from bench import environment
from bench.cases import epochs

WARM, EPOCHS, ROUNDS = 1, 4, 5


def worker(name: str) -> None:
    """Seconds of an epoch, as rank 0 has them."""
    from wonderland import data, nn, train

    x, y = epochs.images()
    model = nn.Sequential(*epochs.layers(nn, name))
    optimizer = train.Adam(model, rate=1e-3)
    loader = data.Loader((x, y), epochs.BATCH, shuffle=True)

    def loss(model, x, y):
        return nn.cross_entropy(model(x), y)

    train.fit(model, loss, optimizer, loader, epochs=WARM, progress=False)
    start = time.perf_counter()
    train.fit(model, loss, optimizer, loader, epochs=EPOCHS, progress=False)
    if train.ranks().is_first:
        print(json.dumps((time.perf_counter() - start) / EPOCHS))


def seconds(name: str, ranks: int) -> float:
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = [str(beside) if beside.exists() else shutil.which("mpiexec") or "mpiexec", "-n", str(ranks)]
    command = [*(mpiexec if ranks > 1 else []), sys.executable, "-m", "bench.ranks", name]
    variables = {**os.environ, **environment.variables(), "WONDERLAND_THREADS": str(environment.THREADS // ranks)}
    done = subprocess.run(command, cwd=environment.ROOT, env=variables, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    print(f"{environment.cpu_name()}: an epoch of {epochs.SAMPLES} digits, batch {epochs.BATCH}, {ROUNDS} rounds")
    for name in ("mlp", "cnn"):
        times = np.array([[seconds(name, ranks) for ranks in (1, 2)] for _ in range(ROUNDS)])
        one, two = np.median(times, axis=0) * 1e3
        ratio = np.median(times[:, 1] / times[:, 0])
        print(f"digits-{name}: one process {one:.1f} ms, two ranks {two:.1f} ms, ratio {ratio:.2f}")


if __name__ == "__main__":
    worker(sys.argv[1]) if len(sys.argv) > 1 else main()
