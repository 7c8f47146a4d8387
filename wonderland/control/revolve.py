"""Reverse mode of a loop in few slots: Griewank and Walther's Revolve (ACM TOMS 26, 2000, algorithm 799).

A slot holds what the loop carries at the beginning of a step. To take step t back, its state is needed: restore the
last slot before it, go forward from there, and leave states on the way in the slots that are free. `schedule` says
where, so that the number of forward steps is the smallest that there is for this many slots. With C(s + r, s) =
binomial(s + r, s), n steps and s slots need

    t(n, s) = r n - C(s + 1 + r - 1, s + 1),  r the smallest with n <= C(s + r, s)

of them, and every step is taken back once, which evaluates it again, with its derivative. The first n - 1 of the t are
those of the forward pass itself, which ends with one more, the last step: its result is wanted first.

Here are the numbers; `control.reversal` does it.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from math import comb
from typing import NamedTuple


def reach(slots: int, repeats: int) -> int:
    """The most steps that can be taken back with so many slots, none of them run forward more than `repeats` times."""
    return comb(slots + repeats, slots) if repeats >= 0 else 0


def repeats(steps: int, slots: int) -> int:
    """How often a step runs forward at most."""
    r = 0
    while reach(slots, r) < steps:
        r += 1
    return r


def forward_steps(steps: int, slots: int) -> int:
    """t(n, s): the smallest number of forward steps with which n steps are taken back in s slots."""
    r = repeats(steps, slots)
    return r * steps - reach(slots + 1, r - 1)


def _stride(steps: int, slots: int) -> int:
    """How far to go from a stored state to the next one that is stored; `slots` are free with that of the first."""
    r = repeats(steps, slots)
    return min(reach(slots, r - 1), steps - reach(slots - 1, r - 1))


class Turn(NamedTuple):
    """How to get to the state of one step: go `runs[0]` steps from slot `slot`, store in the next slot, and so on."""

    slot: int
    runs: tuple[int, ...]


@cache
def schedule(steps: int, slots: int) -> tuple[tuple[int, ...], tuple[Turn, ...]]:
    """(the steps whose states the forward pass stores, how to get to each step, last one first).

    The forward pass also leaves the state of the last step: its turn is empty.
    """
    turns: list[Turn] = []
    stored = [0]  # the step of each slot's state
    restored, runs, last = 0, [], steps - 1  # the slot that was restored, runs since then, and the step to take back
    while stored:
        slot, low = len(stored) - 1, stored[-1]
        if last > low and slot < slots - 1:
            runs.append(_stride(last + 1 - low, slots - slot))
            stored.append(low + runs[-1])
            continue
        if last > low:
            runs.append(last - low)
        else:
            stored.pop()
        turns.append(Turn(restored, tuple(runs)))
        restored, runs, last = len(stored) - 1, [], last - 1
    first = turns[0].runs
    at_first = tuple(accumulate(first if len(first) < slots else first[:-1], initial=0))
    turns[0] = Turn(len(at_first) - 1, ())
    return at_first, tuple(turns)
