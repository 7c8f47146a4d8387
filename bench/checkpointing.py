"""Memory against recomputation: `python -m bench.checkpointing --images DIRECTORY`.

The gradient of a loop of 1,000 steps on a state of 1 MB, compiled in each way of checkpointing. Memory is what the
compiler's plan says (`inspect(...).peak_bytes`), work the number of evaluations of a step, which is counted on a small
state. Neither needs a quiet machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import wonderland as wl
from bench.plots import BLUE, GREEN, GREY, INK, ORANGE, plt
from wonderland.control.revolve import forward_steps
from wonderland.core.primitive import Primitive

STEPS, MEGABYTE = 1000, 2**20
SLOTS = (2, 3, 4, 5, 7, 10, 15, 20, 30, 44, 70, 120, 250, 500)
SEGMENTS = (2, 4, 8, 16)  # longer ones than sqrt(STEPS) take as much again


def loss(checkpoint: Any, step: Any = lambda h: h) -> Any:
    """The sum of squares of what the loop leaves."""

    def f(h: np.ndarray) -> Any:
        h, _ = wl.scan(lambda h, _: (np.sin(step(h)) * 1.001 + 0.01, None), h, length=STEPS, checkpoint=checkpoint)
        return np.sum(h * h)

    return f


class Counter:
    """The identity, that counts its evaluations."""

    def __init__(self) -> None:
        self.count = 0
        counted = Primitive("count", self.evaluate, lambda x: x, jvp=lambda p, t: (counted(p[0]), t[0]))
        self.function = wl.as_function(counted)

    def evaluate(self, x: Any) -> Any:
        self.count += 1
        return np.positive(x)


def point(checkpoint: Any) -> tuple[float, float]:
    """Megabytes, and evaluations of each step."""
    h = np.linspace(0.0, 1.0, MEGABYTE // 8)
    peak = wl.jit(wl.value_and_grad(loss(checkpoint))).inspect(h).peak_bytes
    counter = Counter()
    wl.value_and_grad(loss(checkpoint, counter.function))(np.ones(2))
    print(f"{checkpoint!s:24} {peak / MEGABYTE:8.1f} MB {counter.count / STEPS:6.2f} evaluations", flush=True)
    if isinstance(checkpoint, wl.binomial):
        assert counter.count == forward_steps(STEPS, checkpoint.slots) + 1 + STEPS
    return peak / MEGABYTE, counter.count / STEPS


def draw(path: Path) -> None:
    """One curve for Revolve, one for segments, and the ends."""
    _, axes = plt.subplots(figsize=(7.2, 4.0))
    revolve = [point(wl.binomial(s)) for s in SLOTS]
    segments = [point(k) for k in SEGMENTS]
    axes.plot(*zip(*revolve, strict=True), color=BLUE, marker="o", ms=4, label="binomial (Revolve), by slots")
    axes.plot(*zip(*segments, strict=True), color=ORANGE, marker="^", ms=5, ls="none", label="segments of k steps")
    axes.plot(*point("sqrt"), color=GREEN, marker="s", ms=7, ls="none", label='"sqrt"')
    axes.plot(*point(None), color=GREY, marker="D", ms=6, ls="none", label="everything kept")
    for slots, (x, y) in zip(SLOTS, revolve, strict=True):
        if slots in (3, 5, 10, 20, 44, 120, 500):
            axes.annotate(f"{slots}", (x, y), (4, 4), textcoords="offset points", fontsize=8, color=BLUE)
    for k, (x, y) in zip(SEGMENTS, segments, strict=True):
        axes.annotate(f"k = {k}", (x, y), (0, -13), textcoords="offset points", fontsize=8, color=ORANGE, ha="center")
    axes.set(xscale="log", yscale="log", ylabel="evaluations of each step")
    axes.set_xlabel("peak memory of the compiled gradient [MB]")
    axes.set_xticks([5, 10, 20, 50, 100, 200, 500, 1000], ["5", "10", "20", "50", "100", "200", "500", "1000"])
    axes.set_yticks([1, 2, 3, 5, 10, 20, 30], ["1", "2", "3", "5", "10", "20", "30"])
    axes.minorticks_off()
    axes.set_title("1,000 steps on a state of 1 MB", loc="left", fontsize=10, color=INK)
    axes.legend(frameon=False, fontsize=9)
    plt.savefig(path, bbox_inches="tight")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Memory against recomputation.")
    parser.add_argument("--images", type=Path, default=Path("docs/images"))
    draw(parser.parse_args().images / "checkpointing.png")
