"""Dense against sparse derivatives, measured: `python -m bench.sparse --out DIRECTORY --images DIRECTORY`.

The Jacobian of the Brusselator on N x N grids: the right-hand side, one prepared sparse Jacobian, its preparation, the
dense Jacobian, SciPy's grouped differences; Hessians with 2,000 variables, dense and sparse; and what a million
variables take. Times are the best of a few rounds, all compiled; results go to sparse.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import wonderland as wl
from bench import environment, measure
from bench.cases.sparse import brusselator_inputs, flat_brusselator, in_scipy
from wonderland.testing import sparse_problems as problems

GRIDS = [6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512]
LARGEST_DENSE = 64
LARGEST_DIFFERENCES = 256
HESSIANS = {
    "extended Rosenbrock": (problems.extended_rosenbrock, (2_000,)),
    "minimal surface": (problems.minimal_surface, (40, 50)),
    "banded least squares": (problems.banded_least_squares, (2_000,)),
    "log barrier of a plan over 1,000 periods": (lambda x: barrier(x, periods(x.shape[0] // 2)), (2_000,)),
    "log barrier of a random LP": (lambda x: barrier(x, scattered(x.shape[0])), (2_000,)),
}
ROUNDS = 5


def barrier(x: Any, A: Any) -> Any:
    return problems.log_barrier(x, np.ones(A.shape[1]), A, np.full(A.shape[0], 50.0))


def periods(count: int) -> Any:
    """How much is made and kept in each period: what is made and what was kept is kept or sold, within a limit."""
    from scipy import sparse

    t = np.arange(count)
    rows, columns = np.concatenate([t, t, t[1:]]), np.concatenate([2 * t, 2 * t + 1, 2 * t[1:] - 1])
    signs = np.repeat([1.0, -1.0, 1.0], [count, count, count - 1])
    return sparse.csr_array((signs, (rows, columns)), shape=(count, 2 * count))


def scattered(n: int) -> Any:
    """4 entries a row, anywhere."""
    from scipy import sparse

    return sparse.random_array((n // 2, n), density=4 / n, rng=np.random.default_rng(0), format="csr")


def best(f: Callable, *args: Any) -> float:
    return measure.Timed(partial(f, *args)).best(ROUNDS)


def once(f: Callable, *args: Any) -> float:
    start = time.perf_counter()
    f(*args)
    return time.perf_counter() - start


def grids(largest: int) -> list[dict[str, Any]]:
    """The Brusselator's Jacobian against the size of the grid."""
    rows = []
    for n in [n for n in GRIDS if n <= largest]:
        (x,) = brusselator_inputs(n)
        f, jacobian = wl.jit(flat_brusselator), wl.sparse.jacobian(flat_brusselator)
        f(x)
        first = once(jacobian, x)
        row = {"N": n, "first": first, "function": best(f, x), "sparse": best(jacobian, x)}
        row |= {"colors": jacobian.coloring.num_colors, "nnz": jacobian.pattern.nnz}
        if n <= LARGEST_DIFFERENCES:
            row["differences"] = best(in_scipy(flat_brusselator, x))
        if n <= LARGEST_DENSE:
            dense = wl.jit(wl.jacobian(flat_brusselator, mode="forward"))
            row["dense first"] = once(dense, x)
            row["dense"] = best(dense, x)
            row["dense eager"] = once(wl.jacobian(flat_brusselator, mode="forward"), x)
        rows.append(row)
        print("  ".join(f"{key} {value:.3g}" for key, value in row.items()), file=sys.stderr, flush=True)
    return rows


def hessians() -> list[dict[str, Any]]:
    """Hessians with 2,000 variables."""
    rows = []
    for name, (f, shape) in HESSIANS.items():
        x = np.random.default_rng(1).random(shape) + 0.5
        dense, sparse = wl.jit(wl.hessian(f)), wl.sparse.hessian(f)
        expected = dense(x).reshape(x.size, x.size)
        error = abs(sparse(x) - expected).max() / abs(expected).max()
        calls = {"sparse": measure.Timed(partial(sparse, x)), "dense": measure.Timed(partial(dense, x))}
        found = measure.interleaved(calls, "sparse", 4 * ROUNDS)
        faster = {key: 1 / found["ratios"]["dense"][end] for key, end in
                  (("ratio", "median"), ("from", "upper"), ("to", "lower"))}  # fmt: skip
        row = {"function": name, "products": sparse.coloring.num_colors, "error": error, **faster}
        row |= {key: found["times"][key]["median"] for key in calls}
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), file=sys.stderr, flush=True)
    return rows


def million() -> dict[str, float]:
    """A tridiagonal Jacobian of 10^6 variables: the first, the next, and the memory of it all."""
    x = np.random.default_rng(2).random(10**6)
    jacobian = wl.sparse.jacobian(problems.broyden_tridiagonal)
    first = once(jacobian, x)
    found = {"first": first, "next": best(jacobian, x)}
    return found | {"gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib.pyplot as plt

    from bench.plots import BLUE, GREEN, GREY, INK, ORANGE, PURPLE

    curves = {
        "dense": ("dense Jacobian", ORANGE, "^"),
        "differences": ("SciPy, differences of grouped columns", PURPLE, "D"),
        "first": ("sparse: pattern, colours, compilation and the first one", GREEN, "s"),
        "sparse": ("sparse, prepared", BLUE, "o"),
        "function": ("the function itself", GREY, "."),
    }
    figure, ax = plt.subplots(figsize=(7, 4.8))
    for key, (label, colour, marker) in curves.items():
        points = [(2 * row["N"] ** 2, row[key]) for row in rows if key in row]
        ax.loglog(*zip(*points, strict=True), color=colour, marker=marker, label=label, linewidth=1.4, markersize=4)
    ax.set_xlabel("variables (2 N x N)")
    ax.set_ylabel("seconds")
    ax.set_title("Jacobian of the Brusselator, 6 entries a row", fontsize=10, color=INK)
    ax.grid(color="0.92")
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    parser.add_argument("--images", type=Path, default=Path("docs/images"))
    parser.add_argument("--redraw", action="store_true", help="draw the last results")
    parser.add_argument("--largest", type=int, default=GRIDS[-1], help="the largest N")
    options = parser.parse_args()
    path = options.out / "sparse.json"
    if options.redraw:
        record = json.loads(path.read_text())
    else:
        environment.pin()
        large = million()  # first: the peak of memory is its own
        record = {"million": large, "grids": grids(options.largest), "hessians": hessians()}
        options.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1))
    plot(record["grids"], options.images / "sparse-growth.png")
    print(json.dumps({key: record[key] for key in ("million", "hessians")}, indent=1))


if __name__ == "__main__":
    main()
