"""The notes' tables 1.1 to 1.3, measured: `python -m bench.strategies --out DIRECTORY --images DIRECTORY`.

Four strategies for second derivatives of f(x) = sum of a chain of K maps of R^n: what one run computes, its passes, its
operations (counted on its Program), its time (compiled) and the memory it holds at most (eager, traced);
then what a whole Hessian takes, against n. Times are the best of a few rounds; results go to strategies.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import wonderland as wl
from bench import environment, measure
from wonderland.testing.problems import deep_chain
from wonderland.transform.second_order import STRATEGIES

DEPTH = 20
SIZE = 100_000  # of the runs whose memory is measured
SIZES = [1, 2, 5, 10, 20, 50, 100, 200]
ROUNDS = 5
GIVES = ("w'Hv", "Hv", "Hv", "Hv")
PASSES = ("1 ->", "1 -> 1 <-", "1 -> 1 <-", "1 -> 2 <-")


def function(x: Any) -> Any:
    return np.sum(np.cos(deep_chain(x, depth=DEPTH)))


def one_run(strategy: str, x: np.ndarray) -> Callable:
    """What a strategy gives in one run: a number of the Hessian, or a product with it."""
    v = np.cos(x)
    if strategy == "forward_over_forward":
        return lambda x: wl.second_directional(function, x, v, v, strategy)
    return lambda x: wl.hvp(function, (x,), (v,), strategy)


def best(call: Callable) -> float:
    return measure.Timed(call).best(ROUNDS)


def peak(call: Callable) -> int:
    """Bytes that a call holds at most, beyond those before it."""
    call()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    call()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found - before


def runs() -> list[dict[str, Any]]:
    """Tables 1.1 and 1.2: one run of each strategy, in units of the function."""
    x = np.linspace(0.1, 1.0, SIZE)
    compiled = wl.jit(function)
    base = {
        "operations": wl.cost(function, x).operations,
        "seconds": best(lambda: compiled(x)),
        "bytes": peak(lambda: function(x)),
    }
    rows = [{"strategy": "the function", "gives": "f", "passes": "1 ->", **base}]
    for strategy, gives, passes in zip(STRATEGIES, GIVES, PASSES):
        run = one_run(strategy, x)
        jitted = wl.jit(run)
        rows.append(
            {
                "strategy": strategy,
                "gives": gives,
                "passes": passes,
                "operations": wl.cost(run, x).operations,
                "seconds": best(lambda jitted=jitted: jitted(x)),
                "bytes": peak(lambda run=run: run(x)),
            }
        )
    return rows


def hessians() -> list[dict[str, Any]]:
    """Table 1.3: the whole Hessian, by each strategy, against n."""
    rows = []
    for n in SIZES:
        x = np.linspace(0.1, 1.0, n)
        for strategy in STRATEGIES:
            hessian = wl.hessian(function, strategy=strategy)
            jitted = wl.jit(hessian)
            seconds = best(lambda jitted=jitted, x=x: jitted(x))
            operations = wl.cost(hessian, x).operations
            rows.append({"n": n, "strategy": strategy, "operations": operations, "seconds": seconds})
            print(f"  n = {n:>4}  {strategy:<22} {seconds:.3g} s", flush=True)
    return rows


def tables(record: dict[str, Any]) -> str:
    """Both tables in Markdown, as the docs have them."""
    base = record["runs"][0]
    lines = [
        "| strategy | one run gives | passes | operations | time | memory |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["runs"]:
        cells = [short(row["strategy"]), row["gives"], row["passes"]]
        cells += [f"{row[key] / base[key]:.1f}" for key in ("operations", "seconds")]
        lines.append(f"| {' | '.join(cells)} | {row['bytes'] / (8 * SIZE):.0f} vectors |")
    lines += ["", f"| n | {' | '.join(map(short, STRATEGIES))} |", "|---|" + "---|" * len(STRATEGIES)]
    for n in SIZES:
        cells = [f"{row['operations'] / n:,.0f}" for row in record["hessians"] if row["n"] == n]
        lines.append(f"| {n} | {' | '.join(cells)} |")
    return "\n".join(lines)


def short(strategy: str) -> str:
    return strategy.replace("_over_", " over ")


def plot(record: dict[str, Any], path: Path) -> None:
    from bench import plots

    figure, axes = plots.plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    styles = zip(STRATEGIES, (plots.ORANGE, plots.BLUE, plots.GREEN, plots.PURPLE), "^oDs")
    for strategy, colour, marker in styles:
        rows = [row for row in record["hessians"] if row["strategy"] == strategy]
        axes.loglog(
            [r["n"] for r in rows], [r["operations"] for r in rows], marker=marker, color=colour, label=short(strategy)
        )
    axes.set_xlabel("n, the number of variables")
    axes.set_ylabel("operations, whole Hessian")
    axes.legend(frameon=False)
    figure.savefig(path)
    plots.plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.strategies", description="Second-order strategies, measured."
    )
    parser.add_argument("--out", default="bench/results", metavar="DIRECTORY", help="where strategies.json goes")
    parser.add_argument("--images", default="docs/images", metavar="DIRECTORY", help="where the plot goes")
    parser.add_argument("--redraw", action="store_true", help="show what strategies.json has, and measure nothing")
    options = parser.parse_args()
    file = Path(options.out) / "strategies.json"
    if options.redraw:
        record = json.loads(file.read_text())
    else:
        environment.pin()
        record = {"environment": environment.describe(), "runs": runs(), "hessians": hessians()}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=1) + "\n")
    print(tables(record))
    image = Path(options.images) / "hessian-strategies.png"
    image.parent.mkdir(parents=True, exist_ok=True)
    plot(record, image)
    print(f"wrote {image}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
