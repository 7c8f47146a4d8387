"""Fits of estimators at all sizes: `python -m bench.estimators [linear lasso] --out DIRECTORY --images DIRECTORY`.

Runs the rows of `bench.cases.estimators`, says the geometric mean of our time over scikit-learn's and the worst row,
and draws how the time of a fit grows. Results go to estimators.json; with `--redraw` nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench import environment, registry
from bench.__main__ import QUICK, run
from bench.cases.estimators import MODELS, SIZES


def measured(kinds: list[str]) -> list[dict[str, Any]]:
    benchmarks, results = registry.load(), []
    for kind in kinds:
        for n, p in SIZES:
            result = run(benchmarks[f"fit-{kind}-{n}x{p}"], [], QUICK) | {"kind": kind, "n": n, "p": p}
            results.append(result)
            if result["verdict"] == "failed":
                print(f"{kind:<10}{n:>9,} x {p:<5} failed: {result['why']}", flush=True)
                continue
            times = {name: found["median"] for name, found in result["times"].items()}
            ratio = result["ratios"]["sklearn"]["median"]
            print(f"{kind:<10}{n:>9,} x {p:<5}" + "".join(f" {name} {1e3 * t:9.2f} ms" for name, t in times.items())
                  + f"  ratio {ratio:.2f}", flush=True)  # fmt: skip
    return results


def ratios(results: list[dict[str, Any]]) -> dict[str, float]:
    return {r["benchmark"]: r["ratios"]["sklearn"]["median"] for r in results if r["verdict"] != "failed"}


def said(results: list[dict[str, Any]]) -> str:
    """The geometric mean, and the worst row, of all models and of each."""
    lines = []
    for kind in ["all", *MODELS]:
        found = ratios([r for r in results if kind in ("all", r["kind"])])
        if found:
            worst = max(found, key=lambda name: found[name])
            mean = np.exp(np.mean(np.log([*found.values()])))
            lines.append(f"{kind}: geometric mean {mean:.2f} of {len(found)}, worst {found[worst]:.2f} ({worst})")
    return "\n".join(lines)


def draw(record: dict[str, Any], path: Path) -> None:
    """A panel for each model: seconds against samples, a line for each number of features, both sides."""
    from bench import plots

    kinds = [kind for kind in MODELS if any(r["kind"] == kind for r in record["results"])]
    figure, axes = plots.plt.subplots(1, len(kinds), figsize=(2.9 * len(kinds), 3.6), sharey=True, squeeze=False)
    widths = sorted({p for _, p in SIZES})
    for ax, kind in zip(axes[0], kinds):
        rows = [r for r in record["results"] if r["kind"] == kind and r["verdict"] != "failed"]
        for p, marker in zip(widths, "os^"):
            for name, color, line in (("sklearn", plots.ORANGE, "--"), ("wonderland", plots.BLUE, "-")):
                points = sorted((r["n"], r["times"][name]["median"]) for r in rows if r["p"] == p)
                label = f"{'scikit-learn' if name == 'sklearn' else name}, {p}"
                ax.plot(*zip(*points), color=color, linestyle=line, marker=marker, markersize=4, label=label)
        found = [*ratios(rows).values()]
        ax.set(xscale="log", yscale="log", xlabel="samples")
        ax.set_title(f"{kind}: {np.exp(np.mean(np.log(found))):.2f}", fontsize=10)
        ax.grid(color="#dddddd", linewidth=0.6)
    axes[0, 0].set_ylabel("seconds of a fit")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="lower center", ncols=6, fontsize=8, frameon=False)
    figure.suptitle("fits, and the geometric mean of our time over scikit-learn's", fontsize=10)
    figure.text(0.99, 0.005, plots.origin(record), ha="right", fontsize=6, color=plots.GREY)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=130)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.estimators", description="Fits against scikit-learn.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"any of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--out", default="bench/results", metavar="DIRECTORY", help="where estimators.json goes")
    parser.add_argument("--images", default="docs/images", metavar="DIRECTORY", help="where the plot goes")
    parser.add_argument("--redraw", action="store_true", help="plot what estimators.json has, and measure nothing")
    options = parser.parse_args()
    if unknown := {*options.models} - {*MODELS}:
        parser.error(f"no model called {', '.join(unknown)}; there are {', '.join(MODELS)}")
    file = Path(options.out) / "estimators.json"
    record = json.loads(file.read_text()) if file.exists() else {"results": []}
    if not options.redraw:
        kinds = options.models or [*MODELS]
        kept = [r for r in record["results"] if r["kind"] not in kinds]
        record = {"environment": environment.describe(), "results": kept + measured(kinds)}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=1) + "\n")
    print(said(record["results"]))
    image = Path(options.images) / "estimators-cost.png"
    draw(record, image)
    print(f"wrote {image}")
    return int(any(r["verdict"] == "failed" for r in record["results"]))


if __name__ == "__main__":
    sys.exit(main())
