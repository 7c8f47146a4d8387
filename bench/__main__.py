"""`python -m bench WORD... --out DIRECTORY`: each benchmark in its own process, a table, JSON and a chart."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Any

from bench import environment, registry, report

ROUNDS, QUICK = 11, 5
PATIENCE = 1200  # seconds for one benchmark, compiling included


def main() -> int:
    benchmarks = registry.load()
    parser = argparse.ArgumentParser(prog="python -m bench", description="Paired, interleaved benchmarks.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="run those with WORD in their name or group")
    parser.add_argument("--peer", action="append", default=[], help="only against this peer (may be repeated)")
    parser.add_argument("--out", metavar="DIRECTORY", help="write table.json and table.png there")
    parser.add_argument("--list", action="store_true", help="say what there is, and stop")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} rounds instead of {ROUNDS}")
    options = parser.parse_args()
    try:
        chosen = registry.select(benchmarks, options.words)
    except KeyError as error:
        parser.error(f"no benchmark has {error} in its name or group; --list shows them")
    if options.list:
        for group, members in groupby(chosen, lambda b: b.group):
            print(group)
            for benchmark in members:
                print(f"  {benchmark.name:<{report.NAME}} {benchmark.about}")
        return 0

    rounds = QUICK if options.quick else ROUNDS
    described = environment.describe()
    print(f"{described['cpu']}, {environment.THREADS} threads, up to {rounds} rounds, interleaved")
    print("ratio = our time / that of the peer with the star (the best one), round by round: less than 1 is faster")
    if described["load"] and described["load"][0] > 0.5:
        print(f"the machine is busy (load {described['load'][0]:.1f}): don't trust these figures")
    results, start = [], time.perf_counter()
    for group, members in groupby(chosen, lambda b: b.group):
        members = list(members)
        peers = report.peers_of(members)
        print(report.heading(group, peers))
        for benchmark in members:
            results.append(run(benchmark, options.peer, rounds))
            print(report.line(results[-1], peers), flush=True)
    minutes = (time.perf_counter() - start) / 60
    print("\n" + "\n".join([*report.notes(results), report.summary(results), f"{minutes:.1f} minutes"]))
    if options.out:
        write(Path(options.out), {"environment": described, "rounds": rounds, "results": results})
    return int(any(result["verdict"] == "failed" for result in results))


def run(benchmark: registry.Benchmark, peers: list[str], rounds: int) -> dict[str, Any]:
    """Measure one benchmark in a fresh process, and judge it."""
    result: dict[str, Any] = {
        "benchmark": benchmark.name,
        "group": benchmark.group,
        "about": benchmark.about,
        "seconds": benchmark.seconds,
    }
    command = [sys.executable, "-m", "bench.worker", benchmark.name, str(rounds), *peers]
    try:
        done = subprocess.run(
            command,
            cwd=environment.ROOT,
            env=environment.variables(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return {**result, "verdict": "failed", "why": f"took longer than {PATIENCE} s"}
    if done.returncode:
        sys.stderr.write(done.stderr)
        lines = [text for text in done.stderr.splitlines() if text.strip()]
        why = next((text for text in reversed(lines) if "Error" in text), f"exit status {done.returncode}")
        return {**result, "verdict": "failed", "why": why}
    measured = json.loads(done.stdout.splitlines()[-1])
    return {**result, **measured, **report.judge(benchmark, measured)}


def write(directory: Path, record: dict[str, Any]) -> None:
    """table.json; and table.png where matplotlib is installed."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "table.json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"wrote {directory / 'table.json'}")
    try:
        from bench import plots
    except ModuleNotFoundError as error:
        print(f"no chart: {error.name} is not installed")
        return
    plots.table(record, directory / "table.png")
    print(f"wrote {directory / 'table.png'}")


if __name__ == "__main__":
    sys.exit(main())
