"""Where wonderland meets its peers: `python -m bench.worker NAME ROUNDS [PEER...]` prints a line of JSON.

A peer that isn't installed, or fails, or is too much for this machine is absent, and the others are measured; where
wonderland fails or its results differ from a peer's, the benchmark fails.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

from bench import environment, measure, registry


def prepare(benchmark: registry.Benchmark, name: str, inputs: tuple[Any, ...]) -> registry.Call:
    if name.startswith("torch"):
        import torch

        torch.set_num_threads(environment.THREADS)
    if name.startswith("jax") and benchmark.float64:
        import jax

        jax.config.update("jax_enable_x64", True)
    return benchmark.contenders[name](*inputs)


def main(name: str, rounds: int, peers: list[str]) -> dict[str, Any]:
    cpus = environment.pin()
    benchmark = registry.load()[name]
    inputs = benchmark.inputs()
    calls = {registry.OURS: prepare(benchmark, registry.OURS, inputs)}
    expected = None if benchmark.self_timed else measure.outcomes(calls[registry.OURS], benchmark.check_calls)
    absent = dict(benchmark.left_out)
    for peer in benchmark.peers:
        if peers and peer not in peers:
            absent[peer] = "not asked"
            continue
        if importlib.util.find_spec(peer.split(".")[0]) is None:
            absent[peer] = "not installed"
            continue
        try:
            call = prepare(benchmark, peer, inputs)
            found = None if expected is None else measure.outcomes(call, benchmark.check_calls)
        except Exception as error:
            absent[peer] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
            continue
        if expected is not None and found is not None:
            try:
                measure.check(expected, found, benchmark.rtol, benchmark.atol)
            except AssertionError as error:
                raise AssertionError(f"{peer} returns something else: {error}") from None
        calls[peer] = call
    measured = measure.interleaved(calls, registry.OURS, rounds, benchmark.self_timed)
    return {"cpus": cpus, "absent": absent, **measured}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])))
