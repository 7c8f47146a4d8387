"""Where wonderland meets one peer: `python -m bench.worker NAME PEER ROUNDS` prints a line of JSON."""

from __future__ import annotations

import importlib.util
import json
import sys

from bench import environment, measure, registry


def main(name: str, peer: str, rounds: int) -> dict:
    cpus = environment.pin()
    benchmark = registry.load()[name]
    if importlib.util.find_spec(peer) is None:
        return {"skipped": f"{peer} is not installed"}
    if peer == "torch":
        import torch

        torch.set_num_threads(environment.THREADS)
        torch.set_num_interop_threads(1)
    inputs = benchmark.inputs()
    ours, theirs = (benchmark.contenders[who](*inputs) for who in (registry.OURS, peer))
    if not benchmark.self_timed:
        measure.check(ours, theirs, benchmark.check_calls, benchmark.rtol, benchmark.atol)
    return {"cpus": cpus, **measure.paired(ours, theirs, rounds, benchmark.self_timed)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
