"""Two calls come in; how long each takes, measured in turns, and the ratio turn by turn go out.

Whatever else the machine does meanwhile hits both contenders of a round alike, so the ratio within a round is
steadier than the times. Between turns both rest: a thread pool that still spins after its last call would
take a core from the other's.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[], Any]
TURN = 30e-3  # seconds of work in one turn, at least: long beside waking up after a rest, which interpreters feel
REST = 150e-3  # seconds between turns: OpenBLAS's workers were seen to spin for about 110 ms


def check(ours: Call, peer: Call, calls: int, rtol: float, atol: float) -> None:
    """Raise unless the two return the same numbers, call after call."""
    for call in range(calls):
        got, expected = leaves(ours()), leaves(peer())
        if len(got) != len(expected):
            raise AssertionError(f"call {call + 1} returns {len(got)} arrays, the peer's {len(expected)}")
        for one, other in zip(got, expected):
            np.testing.assert_allclose(one, other, rtol, atol, err_msg=f"call {call + 1}")


def leaves(tree: Any) -> list[np.ndarray]:
    """The arrays of a result, as NumPy's; dicts in the order of their keys."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, (tuple, list)):
        return [leaf for part in tree for leaf in leaves(part)]
    return [np.asarray(tree.detach() if hasattr(tree, "detach") else tree)]


def repetitions(call: Call) -> int:
    """How many calls fill a turn; also warms the call up."""
    call()
    count = 1
    while True:
        seconds = min(timed(call, count) for _ in range(3))  # one hiccup must not make all turns short
        if seconds >= TURN:
            return max(1, round(count * TURN / seconds))
        count = max(2 * count, min(10 * count, int(count * TURN / max(seconds, 1e-9))))


def timed(call: Call, count: int) -> float:
    """Seconds for `count` calls."""
    turns = range(count)
    start = time.perf_counter()
    for _ in turns:
        call()
    return time.perf_counter() - start


def turn(call: Call, count: int, self_timed: bool) -> float:
    """Seconds per call in one turn: rest, wake up again, measure."""
    time.sleep(REST)
    if self_timed:
        return call()
    timed(call, 1 + count // 2)
    return timed(call, count) / count


def paired(ours: Call, peer: Call, rounds: int, self_timed: bool = False) -> dict[str, Any]:
    """Time both in each of `rounds` rounds, taking turns at being first."""
    counts = [1, 1] if self_timed else [repetitions(ours), repetitions(peer)]
    calls = [ours, peer]
    times = np.zeros((rounds, 2))
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for k in range(rounds):
            for i in (0, 1) if k % 2 == 0 else (1, 0):
                times[k, i] = turn(calls[i], counts[i], self_timed)
    finally:
        if enabled:
            gc.enable()
    ratios = times[:, 0] / times[:, 1]
    return {
        "ratio": quartiles(ratios),
        "ours": {**quartiles(times[:, 0]), "calls_per_round": counts[0]},
        "theirs": {**quartiles(times[:, 1]), "calls_per_round": counts[1]},
        "ratios": ratios.tolist(),
    }


def quartiles(values: np.ndarray) -> dict[str, float]:
    lower, median, upper = np.percentile(values, [25, 50, 75]).tolist()
    return {"median": median, "lower": lower, "upper": upper}
