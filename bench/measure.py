"""Calls come in; how long each takes, measured in turns, goes out, and the ratios turn by turn.

Whatever else the machine does meanwhile hits all contenders of a round alike, so the ratio within a round is
steadier than the times. After its turn everyone rests until its process uses no CPU any more: a thread pool that
still spins after its last call (OpenBLAS's for about 110 ms) would take a core from the next one's.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[], Any]
TURN = 30e-3  # seconds of work in one turn, at least: long beside waking up after a rest, which interpreters feel
REST = 5e-3  # seconds of a look at whether the process is quiet
LONGEST_REST = 400e-3
LONG = 150e-3  # seconds from which a call needs no other before it to be awake
BUDGET = 8.0  # seconds for all rounds of a benchmark: slow ones have fewer
FEWEST = 5
HOPELESS = 1.0, 20.0  # a peer slower than so many seconds, and so many times slower than we are, is timed once


def outcomes(call: Call, calls: int) -> list[list[np.ndarray]]:
    """The results of the first `calls` calls, as copies: the next call may write to what this one returned."""
    return [[np.array(leaf) for leaf in leaves(call())] for _ in range(calls)]


def check(ours: list[list[np.ndarray]], peers: list[list[np.ndarray]], rtol: float, atol: float) -> None:
    """Raise unless the two returned the same numbers, call after call."""
    for call, (got, expected) in enumerate(zip(ours, peers), 1):
        if len(got) != len(expected):
            raise AssertionError(f"call {call} returns {len(got)} arrays, the peer's {len(expected)}")
        for one, other in zip(got, expected):
            if one.shape != other.shape or one.dtype != other.dtype:
                kinds = [f"{array.dtype}{list(array.shape)}" for array in (one, other)]
                raise AssertionError(f"call {call} returns {kinds[0]}, the peer's {kinds[1]}")
            np.testing.assert_allclose(one, other, rtol, atol, err_msg=f"call {call}")


def leaves(tree: Any) -> list[np.ndarray]:
    """The arrays of a result, as NumPy's; dicts in the order of their keys."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, (tuple, list)):
        return [leaf for part in tree for leaf in leaves(part)]
    return [np.asarray(tree.detach() if hasattr(tree, "detach") else tree)]


class Moved:
    """An array of a peer that has its axes in another order: they move when it is compared, not while it is timed."""

    def __init__(self, array: Any, source: Any, destination: Any):
        self.array, self.source, self.destination = array, source, destination

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.moveaxis(np.asarray(self.array, dtype), self.source, self.destination)


def repetitions(call: Call) -> tuple[int, float]:
    """How many calls fill a turn, and the seconds of one; also warms the call up."""
    seconds = timed(call, 1)
    if seconds >= LONG:
        return 1, seconds
    count = 1
    while True:
        seconds = min(timed(call, count) for _ in range(3))  # one hiccup must not make all turns short
        if seconds >= TURN:
            return max(1, round(count * TURN / seconds)), seconds / count
        count = max(2 * count, min(10 * count, int(count * TURN / max(seconds, 1e-9))))


def timed(call: Call, count: int) -> float:
    """Seconds for `count` calls."""
    turns = range(count)
    start = time.perf_counter()
    for _ in turns:
        call()
    return time.perf_counter() - start


def rest() -> None:
    """Wait until the process is quiet: two looks in a row at which its threads did almost nothing."""
    quiet = 0
    for _ in range(round(LONGEST_REST / REST) if REST else 0):
        used = time.process_time()
        time.sleep(REST)
        quiet = quiet + 1 if time.process_time() - used < 0.1 * REST else 0
        if quiet == 2:
            return


class Timed:
    """A call of this process. One that is `self_timed` returns the seconds it took."""

    def __init__(self, call: Call, self_timed: bool = False):
        self.call, self.self_timed = call, self_timed

    def size(self) -> tuple[int, float]:
        """How many calls fill a turn, and the seconds of one."""
        size = (1, timed(self.call, 1)) if self.self_timed else repetitions(self.call)
        rest()
        return size

    def turn(self, count: int, seconds: float) -> float:
        """Seconds per call in one turn: wake up, measure, rest. `seconds` is how long a call takes, about."""
        enabled = gc.isenabled()
        gc.disable()
        try:
            if self.self_timed:
                return self.call()
            if seconds < LONG:
                timed(self.call, 1 + count // 2)
            return timed(self.call, count) / count
        finally:
            if enabled:
                gc.enable()
            rest()

    def best(self, rounds: int) -> float:
        """Seconds per call in the best of so many turns."""
        size = self.size()
        return min(self.turn(*size) for _ in range(rounds))


def interleaved(calls: dict[str, Any], ours: str, rounds: int) -> dict[str, Any]:
    """Time everyone in each round, taking turns at being first; times by contender, ratios by peer.

    Calls have the methods `size` and `turn` of `Timed`; they may be in other processes.
    """
    sizes = {name: call.size() for name, call in calls.items()}
    least, factor = HOPELESS
    slow = {name for name, (_, each) in sizes.items() if each > max(least, factor * sizes[ours][1])} - {ours}
    names = [name for name in calls if name not in slow]
    work = (sizes[name] for name in names)
    one_round = sum(each * (count if each >= LONG else 1 + 1.5 * count) for count, each in work)
    rounds = max(min(rounds, FEWEST), min(rounds, int(BUDGET / max(one_round, 1e-9))))
    times = {name: np.zeros(rounds) for name in names}
    for k in range(rounds):
        first = k % len(names)
        for name in names[first:] + names[:first]:
            times[name][k] = calls[name].turn(*sizes[name])
    times |= {name: np.array([sizes[name][1]]) for name in slow}
    ratios = {name: times[ours] / times[name] for name in calls if name != ours}
    return {
        "rounds": rounds,
        "times": {name: {**quartiles(times[name]), "calls_per_round": sizes[name][0]} for name in calls},
        "ratios": {name: {**quartiles(ratio), "all": ratio.tolist()} for name, ratio in ratios.items()},
        "timed_once": sorted(slow),
    }


def quartiles(values: np.ndarray) -> dict[str, float]:
    lower, median, upper = np.percentile(values, [25, 50, 75]).tolist()
    return {"median": median, "lower": lower, "upper": upper}
