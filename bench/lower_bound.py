"""Training steps against their arithmetic: `python -m bench.lower_bound [STEP...] --out DIRECTORY --images DIRECTORY`.

The products of a step (matrix products, convolutions, attention) take a known number of operations; at the rate of our
largest matrix products they would take the time that is the lower bound. Beside it: the time of the step, and by a
profile of the compiled code where the rest goes. Results go to lower_bound.json, and to a plot.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench import environment, measure, registry
from bench.cases import cnn, gemm, nanogpt, resnet

ORDERS = [768, 1024, 1536, 2048]
ROUNDS = 5
SHOWN = 8  # steps of a profile
FORWARD, BOTH = 2, 3  # products where only the weights have a gradient, and where the input has one, too
PRODUCTS = re.compile(r"(\d+ )?(product|convolution|attention)")  # how the descriptions of such steps begin
AT_PEAK, REST, CALL = "products, at peak rate", "products, the rest", "call, clock, signals"
KINDS = {"kernel": "other kernels", "copy": "copies", "a": CALL}  # other steps, by the first word: "a look at signals"


def cnn_products() -> Iterator[float]:
    """Operations of the products of a step, forward and backward; a multiplication and an addition are two."""
    one, two, three = cnn.CHANNELS
    yield FORWARD * 2 * cnn.BATCH * cnn.SIZE**2 * 9 * one * two
    yield BOTH * 2 * cnn.BATCH * (cnn.SIZE // 2) ** 2 * 9 * two * three
    yield BOTH * 2 * cnn.BATCH * three * cnn.LEFT**2 * cnn.CLASSES


def nanogpt_products(config: nanogpt.Config) -> Iterator[float]:
    tokens, width = config.batch * config.context, config.width
    yield BOTH * 2 * tokens * config.layers * 12 * width**2  # qkv 3, out 1, up and down 4 each
    yield BOTH * 2 * tokens * width * config.vocabulary
    # Two products forward and four backward, of which half is below the diagonal.
    yield 6 * 2 * config.layers * config.batch * config.context**2 * width / 2


def resnet_products() -> Iterator[float]:
    each = 2 * resnet.PIXELS * 9 * resnet.CHANNELS**2
    yield FORWARD * each
    yield BOTH * each * (len(resnet.LAYERS) - 1)
    yield BOTH * 2 * resnet.BATCH * resnet.CHANNELS * resnet.CLASSES


STEPS = {
    "cnn": cnn_products,
    **{name: lambda config=config: nanogpt_products(config) for name, config in nanogpt.CONFIGS.items()},
    "resnet": resnet_products,
}


def best(call: registry.Call) -> float:
    """Seconds per call."""
    return measure.Timed(call).best(ROUNDS)


def rates() -> dict[str, float]:
    """Operations per second of our products of n x n matrices."""
    found = {}
    for n in ORDERS:
        found[str(n)] = 2 * n**3 / best(gemm.ours(False, *gemm.make_inputs((n, n), (n, n), np.float32)))
        print(f"product of {n} x {n}: {found[str(n)] / 1e9:.0f} GFLOP/s", flush=True)
    return found


def kind(description: str) -> str:
    """What a step of compiled code belongs to."""
    first = "kernel" if re.match(r"\d+ kernels|\d+ taps", description) else description.split()[0]
    return REST if PRODUCTS.match(description) else KINDS.get(first, first)


def parts(profile: Any, bound: float) -> dict[str, float]:
    """Seconds by kind of work; they add up to the call."""
    outer = [(kind(description), seconds) for depth, description, _, seconds in profile.steps if depth == 0]
    found = {AT_PEAK: bound, REST: -bound}
    for name, seconds in [*outer, (CALL, profile.seconds - sum(seconds for _, seconds in outer))]:
        found[name] = found.get(name, 0.0) + seconds
    return found


def measured(name: str, peak: float) -> dict[str, Any]:
    """One training step, and its profile."""
    benchmark = registry.load()[name]
    call: Any = benchmark.contenders[registry.OURS](*benchmark.inputs())
    operations = sum(STEPS[name]())
    bound, seconds = operations / peak, best(call)
    profile = call.func.profile(*call.args)
    slowest = sorted((step for step in profile.steps if step[0] == 0), key=lambda step: -step[3])[:SHOWN]
    print(f"\n{name}: {operations / 1e9:.2f} GFLOP, at least {1e3 * bound:.2f} ms; takes {1e3 * seconds:.2f} ms,"
          f" {seconds / bound:.2f} times as long; profiled {1e3 * profile.seconds:.2f} ms:")  # fmt: skip
    shares = parts(profile, bound)
    for part, taken in shares.items():
        print(f"  {1e3 * taken:>8.2f} ms {100 * taken / profile.seconds:>5.1f}%  {part}")
    print("  the slowest steps:")
    for _, description, _, taken in slowest:
        print(f"  {1e3 * taken:>8.2f} ms {100 * taken / profile.seconds:>5.1f}%  {description.splitlines()[0]}")
    return {
        "operations": operations,
        "bound": bound,
        "seconds": seconds,
        "profiled": profile.seconds,
        "parts": shares,
        "slowest": [(description, taken) for _, description, _, taken in slowest],
    }


def draw(record: dict[str, Any], path: Path) -> None:
    """A stacked bar per step, in units of its lower bound."""
    from bench.plots import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, origin, plt

    named = {AT_PEAK: BLUE, REST: "#7FB8DA", KINDS["kernel"]: ORANGE, KINDS["copy"]: PURPLE, CALL: GREY}
    spare = iter([GREEN, "#E69F00", "#56B4E9", "#F0E442"])
    rows = record["steps"]
    kinds = dict.fromkeys([*named, *(part for row in rows.values() for part in row["parts"])])
    figure, axes = plt.subplots(figsize=(7.6, 0.62 * len(rows) + 1.7), layout="constrained")
    starts = np.zeros(len(rows))
    for part in kinds:
        lengths = np.array([max(row["parts"].get(part, 0.0), 0.0) / row["bound"] for row in rows.values()])
        if lengths.any():
            colour = named.get(part) or next(spare)
            axes.barh(range(len(rows)), lengths, 0.6, starts, color=colour, label=part)
            starts += lengths
    for y, (row, end) in enumerate(zip(rows.values(), starts)):
        text = f"{1e3 * row['seconds']:.3g} ms of {1e3 * row['bound']:.3g}"
        axes.annotate(text, (end, y), (5, 0), textcoords="offset points", va="center", fontsize=8, color=INK)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [*rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(starts))
    peak = max(record["rates"].values()) / 1e9
    axes.set_xlabel(f"time of a training step / its products at {peak:.0f} GFLOP/s")
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    figure.supxlabel(origin(record), fontsize=7, color="#666666")
    figure.savefig(path)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lower_bound", description="Steps against their arithmetic.")
    parser.add_argument("names", nargs="*", metavar="STEP", help=f"any of {', '.join(STEPS)} (default: all)")
    parser.add_argument("--out", type=Path, default=Path("bench/results"), help="where lower_bound.json goes")
    parser.add_argument("--images", type=Path, default=Path("docs/images"), help="where the plot goes")
    parser.add_argument("--redraw", action="store_true", help="plot the last results, and measure nothing")
    options = parser.parse_args()
    if unknown := {*options.names} - {*STEPS}:
        parser.error(f"no step called {', '.join(unknown)}; there are {', '.join(STEPS)}")
    file = options.out / "lower_bound.json"
    if options.redraw:
        record = json.loads(file.read_text())
    else:
        record: dict[str, Any] = {"environment": environment.describe()}
        environment.pin()
        record["rates"] = rates()
        peak = max(record["rates"].values())
        record["steps"] = {name: measured(name, peak) for name in options.names or STEPS}
        options.out.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=1) + "\n")
    options.images.mkdir(parents=True, exist_ok=True)
    draw(record, options.images / "steps-lower-bound.png")
    print(f"wrote {options.images / 'steps-lower-bound.png'}")
    return 0


if __name__ == "__main__":
    # The number of threads is read when the library is loaded: start again with it set.
    if os.environ.get("WONDERLAND_THREADS") != str(environment.THREADS):
        os.execve(sys.executable, [sys.executable, "-m", "bench.lower_bound", *sys.argv[1:]], environment.variables())
    sys.exit(main())
