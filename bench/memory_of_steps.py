"""Peak memory of training steps: `python -m bench.memory_of_steps [STEP...] --out DIRECTORY --images DIRECTORY`.

Each contender has a fresh process: the libraries are imported and the inputs made, then five steps are run, and the
growth of the resident memory up to its peak is what counts. Weights, moments, compiled code and the pages of libraries
that are first used then are in it. Ours is measured with an empty disk cache, so LLVM is in it, and with a filled one;
beside it stands what the compiler plans: arena and results of a call, and the state that it updates. Results go to
memory_of_steps.json. Needs Linux's /proc.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import environment, registry

STEPS = ["cnn", "nanogpt", "nanogpt_384", "resnet"]
CALLS = 5
MEGABYTE = 2**20
COMPILING = "wonderland, compiling"
PEERS = ["torch", "torch.channels_last", "jax"]
COLUMNS = ["wonderland", COMPILING, *PEERS]
LIMIT = 1.0


def resident(which: str) -> int:
    """Bytes of this process that are in memory: VmRSS now, VmHWM at most since the last `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(which)).split()[1])


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def load(who: str) -> None:
    """Import what a contender's first step would."""
    if who == "wonderland":
        importlib.import_module("wonderland.compile.stages")
    elif who == "jax":
        import jax

        jax.devices()
    else:
        import torch

        torch.set_num_threads(environment.THREADS)


def child(name: str, who: str) -> dict[str, int]:
    """Measured here, in a process of its own."""
    benchmark = registry.load()[name]
    inputs = benchmark.inputs()
    load(who)
    forget_peak()
    before, library = resident("VmRSS"), resident("RssFile")
    call = benchmark.contenders[who](*inputs)
    for _ in range(CALLS):
        call()
    found = {"growth": resident("VmHWM") - before, "code": resident("RssFile") - library}
    if who == "wonderland":
        found |= planned(call)
    return found


def planned(call: Any) -> dict[str, int]:
    """What the compiler says about a jitted function and its arguments (a `partial`)."""
    import wonderland as wl

    compiled = call.func.inspect(*call.args)
    state = sum(leaf.nbytes for leaf in wl.tree_leaves(call.args[0]))
    return {"arena": compiled.arena_bytes, "results": compiled.result_bytes, "state": state}


def run(name: str, who: str, cache: str) -> dict[str, int]:
    """What a fresh process measures."""
    command = [sys.executable, "-m", "bench.memory_of_steps", "--child", name, who]
    variables = {**environment.variables(), "WONDERLAND_CACHE": cache}
    done = subprocess.run(command, cwd=environment.ROOT, env=variables, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise RuntimeError(f"{who} fails in {name}: exit status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def steps(names: list[str]) -> dict[str, Any]:
    """Growth of every contender, and our plan, by step."""
    benchmarks, found = registry.load(), {}
    for name in names:
        with tempfile.TemporaryDirectory() as cache:
            row = {COMPILING: run(name, "wonderland", cache), "wonderland": run(name, "wonderland", cache)}
            row |= {peer: run(name, peer, cache) for peer in PEERS if peer in benchmarks[name].contenders}
        found[name] = row
        print(line(name, row), flush=True)
    return found


def line(name: str, row: dict[str, Any]) -> str:
    """A row of the table, in megabytes; then ratios to PyTorch in the format that takes less."""
    growth = {who: found["growth"] for who, found in row.items()}
    data = {who: found["growth"] - found["code"] for who, found in row.items()}
    cells = [f"{growth[who] / MEGABYTE:.1f}" if who in growth else "-" for who in COLUMNS]
    cells += [f"{row['wonderland'][key] / MEGABYTE:.1f}" for key in ("arena", "state")]
    return columns(name, *cells, *(f"{value:.2f}" for value in (to_torch(growth), to_torch(data))))


def to_torch(found: dict[str, int]) -> float:
    return found["wonderland"] / min(value for who, value in found.items() if who.startswith("torch"))


def columns(name: str, *cells: str) -> str:
    return f"{name:<12}" + "".join(f"{cell:>10}" for cell in cells)


def draw(record: dict[str, Any], path: Path) -> None:
    """A group of bars per step."""
    from bench.plots import BLUE, GREEN, INK, ORANGE, origin, plt

    styles = {
        "wonderland": ("wonderland", BLUE),
        COMPILING: ("wonderland, nothing compiled before", "#7FB8DA"),
        "torch": ("PyTorch", ORANGE),
        "torch.channels_last": ("PyTorch, channels last", "#E9AE7F"),
        "jax": ("JAX", GREEN),
    }
    figure, axes = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
    rows = record["steps"]
    width = 0.8 / len(styles)
    for i, (who, (title, colour)) in enumerate(styles.items()):
        bars = [(k, row[who]["growth"] / MEGABYTE) for k, row in enumerate(rows.values()) if who in row]
        places = [k + (i - (len(styles) - 1) / 2) * width for k, _ in bars]
        drawn = axes.bar(places, [height for _, height in bars], width, color=colour, label=title)
        axes.bar_label(drawn, fmt="%.0f", fontsize=7, color=INK)
    for k, row in enumerate(rows.values()):
        height = sum(row["wonderland"][key] for key in ("arena", "results", "state")) / MEGABYTE
        label = "planned: arena, results and state" if k == 0 else None
        axes.plot([k - 0.4, k - 0.4 + width], [height, height], color=INK, linewidth=1.6, label=label)
    axes.set_xticks(range(len(rows)), [*rows])
    axes.set_ylabel(f"growth of resident memory in {CALLS} steps [MB]")
    axes.legend(frameon=False, fontsize=8)
    figure.supxlabel(origin(record), fontsize=7, color="#666666")
    figure.savefig(path)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.memory_of_steps", description="Memory of training steps.")
    parser.add_argument("names", nargs="*", metavar="STEP", help=f"any of {', '.join(STEPS)} (default: all)")
    parser.add_argument("--out", type=Path, default=Path("bench/results"), help="where memory_of_steps.json goes")
    parser.add_argument("--images", type=Path, default=Path("docs/images"), help="where the plot goes")
    parser.add_argument("--redraw", action="store_true", help="plot the last results, and measure nothing")
    parser.add_argument("--child", nargs=2, metavar=("STEP", "WHO"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(*options.child)))
        return 0
    if unknown := {*options.names} - {*STEPS}:
        parser.error(f"no step called {', '.join(unknown)}; there are {', '.join(STEPS)}")
    file = options.out / "memory_of_steps.json"
    record = json.loads(file.read_text()) if file.exists() else {}
    if not options.redraw:
        record["environment"] = environment.describe()
        print(f"MB; ratio: ours to PyTorch's in the better format, at most {LIMIT:g}; data: without libraries' code")
        print(columns("", "ours", "compiling", "torch", "ch. last", "jax", "arena", "state", "ratio", "data"))
        record["steps"] = record.get("steps", {}) | steps(options.names or STEPS)
        options.out.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=1) + "\n")
    options.images.mkdir(parents=True, exist_ok=True)
    draw(record, options.images / "memory-of-steps.png")
    print(f"wrote {options.images / 'memory-of-steps.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
