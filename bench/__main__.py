"""`python -m bench NAME... --json FILE`: each pair of contenders in its own process, a table, JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from bench import environment, registry, report

ROUNDS, QUICK = 31, 7


def main() -> int:
    benchmarks = registry.load()
    parser = argparse.ArgumentParser(prog="python -m bench", description="Paired, interleaved benchmarks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (default: all)")
    parser.add_argument("--peer", action="append", help="only against this peer (may be repeated)")
    parser.add_argument("--json", metavar="FILE", help="write results and environment to FILE")
    parser.add_argument("--list", action="store_true", help="say what there is, and stop")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} rounds instead of {ROUNDS}")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in benchmarks]
    if unknown:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {', '.join(benchmarks)}")
    if options.list:
        for benchmark in benchmarks.values():
            print(f"{benchmark.name:<14}  {benchmark.about} (against {', '.join(benchmark.peers)})")
        return 0

    rounds = QUICK if options.quick else ROUNDS
    described = environment.describe()
    print(f"{described['cpu']}, {environment.THREADS} threads, {rounds} rounds")
    print("ratio = ours / peer's of each round: less than 1 is faster than the peer\n")
    if described["load"] and described["load"][0] > 0.5:
        print(f"the machine is busy (load {described['load'][0]:.1f}): don't trust these figures\n")
    print(report.row(report.HEADER))
    results = []
    for name in options.names or benchmarks:
        for peer in benchmarks[name].peers:
            if options.peer and peer not in options.peer:
                continue
            results.append(run(benchmarks[name], peer, rounds))
            print(report.line(results[-1]), flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"environment": described, "rounds": rounds, "results": results}, file, indent=1)
            file.write("\n")
    return int(not results or any(result["verdict"] == "failed" for result in results))


def run(benchmark: registry.Benchmark, peer: str, rounds: int) -> dict[str, Any]:
    """Measure one pair in a fresh process, and judge it by the benchmark's target."""
    command = [sys.executable, "-m", "bench.worker", benchmark.name, peer, str(rounds)]
    done = subprocess.run(
        command, cwd=environment.ROOT, env=environment.variables(), capture_output=True, text=True
    )
    target = benchmark.targets.get(peer)
    result: dict[str, Any] = {"benchmark": benchmark.name, "peer": peer, "target": target}
    if done.returncode:
        sys.stderr.write(done.stderr)
        why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {**result, "verdict": "failed", "why": why}
    measured = json.loads(done.stdout.splitlines()[-1])
    if "skipped" in measured:
        return {**result, "verdict": "skipped", "why": measured["skipped"]}
    verdict = "" if target is None else "PASS" if measured["ratio"]["median"] <= target else "MISS"
    return {**result, "verdict": verdict, **measured}


if __name__ == "__main__":
    sys.exit(main())
