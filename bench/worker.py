"""Where wonderland meets its peers: `python -m bench.worker NAME ROUNDS [PEER...]` prints a line of JSON.

Each contender has a process of its own, and only one of them works at a time: thread pools of several libraries in one
process disturb each other by more than what is to be measured.

A peer that isn't installed, or fails, or is too much for this machine is absent, and the others are measured; where
wonderland fails or its results differ from a peer's, the benchmark fails.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from bench import environment, measure, registry


class Absent(Exception):
    """A contender that can't take part, and why."""


class Contender:
    """A contender in a process of its own: what `measure.Timed` is in this one."""

    def __init__(self, benchmark: str, name: str):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_contend, args=(theirs, benchmark, name), daemon=True)
        self._process.start()
        theirs.close()
        self.outcomes: list[list[np.ndarray]] | None = self._answer()

    def _answer(self) -> Any:
        try:
            answer = self._pipe.recv()
        except EOFError:
            self._process.join()
            raise Absent(f"its process ended with exit code {self._process.exitcode}") from None
        if isinstance(answer, Absent):
            raise answer
        return answer

    def _ask(self, *question: Any) -> Any:
        self._pipe.send(question)
        return self._answer()

    def size(self) -> tuple[int, float]:
        return self._ask("size")

    def turn(self, count: int, seconds: float) -> float:
        return self._ask("turn", count, seconds)


def _contend(pipe: Connection, benchmark_name: str, name: str) -> None:
    """Send the first results, then answer questions."""
    environment.pin()
    benchmark = registry.load()[benchmark_name]
    try:
        timed = measure.Timed(prepare(benchmark, name), benchmark.self_timed)
        pipe.send(None if benchmark.self_timed else measure.outcomes(timed.call, benchmark.check_calls))
    except Exception as error:
        pipe.send(Absent(f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"))
        return
    gc.collect()
    measure.rest()
    while True:
        try:
            method, *arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(timed, method)(*arguments))


def prepare(benchmark: registry.Benchmark, name: str) -> registry.Call:
    inputs = benchmark.inputs()
    if name.startswith("torch"):
        import torch

        torch.set_num_threads(environment.THREADS)
    if benchmark.float64:
        os.environ["JAX_ENABLE_X64"] = "1"  # of JAX, and of what stands on it
    return benchmark.contenders[name](*inputs)


def main(name: str, rounds: int, peers: list[str]) -> dict[str, Any]:
    cpus = environment.pin()
    benchmark = registry.load()[name]
    ours = Contender(name, registry.OURS)
    calls, absent = {registry.OURS: ours}, dict(benchmark.left_out)
    for peer in benchmark.peers:
        if peers and peer not in peers:
            absent[peer] = "not asked"
            continue
        if importlib.util.find_spec(peer.split(".")[0]) is None:
            absent[peer] = "not installed"
            continue
        try:
            calls[peer] = theirs = Contender(name, peer)
        except Absent as error:
            absent[peer] = str(error)
            continue
        if ours.outcomes is not None and theirs.outcomes is not None:
            try:
                measure.check(ours.outcomes, theirs.outcomes, benchmark.rtol, benchmark.atol)
            except AssertionError as error:
                raise AssertionError(f"{peer} returns something else: {error}") from None
    measured = measure.interleaved(calls, registry.OURS, rounds)
    return {"cpus": cpus, "absent": absent, **measured}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])))
