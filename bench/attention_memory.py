"""Memory of attention against the length: `python -m bench.attention_memory --images DIRECTORY`.

Causal attention with its gradients, compiled: by `wl.attention`, and by the formula, which has all scores in memory at
once. Memory is what the compiler's plan says (`inspect(...).peak_bytes`); nothing runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import wonderland as wl
from bench.cases.attention import HEADS, WIDTH
from bench.plots import BLUE, GREY, INK, ORANGE, name_lines, plt

LENGTHS = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
MEGABYTE = 2**20


def attention(q: Any, k: Any, v: Any) -> Any:
    return wl.attention(q, k, v, causal=True)


def formula(q: Any, k: Any, v: Any) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) / np.float32(WIDTH**0.5)
    places = np.arange(scores.shape[-1])
    scores = np.where(places <= places[:, None], scores, np.float32(-np.inf))
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return weights / np.sum(weights, axis=-1, keepdims=True) @ v


def peak(function: Any, length: int) -> float:
    """Megabytes of a call."""

    @wl.jit
    def both(q: Any, k: Any, v: Any, ct: Any) -> Any:
        y, pullback = wl.vjp(function, q, k, v)
        return y, pullback(ct)

    array = np.zeros((1, HEADS, length, WIDTH), np.float32)
    return both.inspect(array, array, array, array).peak_bytes / MEGABYTE


def draw(path: Path) -> None:
    results = [4 * HEADS * WIDTH * length * 4 / MEGABYTE for length in LENGTHS]  # four arrays of float32
    curves = [
        ("wl.attention", [peak(attention, length) for length in LENGTHS], BLUE, "o"),
        ("the formula", [peak(formula, length) for length in LENGTHS], ORANGE, "^"),
        ("the results alone", results, GREY, "."),
    ]
    for i, length in enumerate(LENGTHS):
        print(f"{length:>5} tokens ", *(f"{name} {ys[i]:.1f} MB " for name, ys, _, _ in curves))
    figure, axes = plt.subplots(figsize=(7.0, 4.2), layout="constrained")
    for _, ys, colour, marker in curves:
        axes.loglog(LENGTHS, ys, marker=marker, color=colour)
    axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.grid(color="#E4E4E4", linewidth=0.8)
    axes.set_xlabel("length of the sequence")
    axes.set_ylabel("memory of a call [MB]")
    title = f"Causal attention with its gradients, {HEADS} heads x {WIDTH}, float32, compiled"
    axes.set_title(title, fontsize=10, loc="left", color=INK)
    name_lines(axes, [(LENGTHS[-1], ys[-1], name, colour) for name, ys, colour, _ in curves])
    figure.savefig(path)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Memory of attention against the length.")
    parser.add_argument("--images", type=Path, default=Path("docs/images"))
    draw(parser.parse_args().images / "attention-memory.png")
