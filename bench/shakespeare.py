"""A whole training beside PyTorch: `python -m bench.shakespeare --text FILE --images DIRECTORY`.

nanoGPT's configuration for a CPU on the characters of a text (tiny Shakespeare): 2,000 steps from the same weights, on
the same batches, with the same optimiser and schedule, and the validation loss every 250 steps. Each contender has a
process of its own, they take turns, and the clock runs around all of it: compiling, steps, evaluation.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.cases.nanogpt import CONFIGS, make_parameters, torch_model
from bench.plots import BLUE, INK, ORANGE, plt

CONFIG = CONFIGS["nanogpt"]
STEPS, EVERY, BATCHES, WARMUP = 2000, 250, 20, 100  # BATCHES of validation at a time, as nanoGPT's eval_iters
RATE, LEAST, BETAS, DECAY, CLIP = 2e-3, 2e-4, (0.9, 0.99), 0.1, 1.0  # nanoGPT's rates are half of these
LINE = "shakespeare: "  # before what a contender's process says


def windows(tokens: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A batch at random places."""
    starts = rng.integers(len(tokens) - CONFIG.context, size=CONFIG.batch)
    found = tokens[starts[:, None] + np.arange(CONFIG.context + 1)]
    return found[:, :-1].copy(), found[:, 1:].copy()


def rate_at(step: int) -> float:
    """A straight line up, then half a cosine down."""
    if step < WARMUP:
        return RATE * (step + 1) / (WARMUP + 1)
    part = min(1.0, (step - WARMUP) / (STEPS - WARMUP))
    return LEAST + 0.5 * (1 + math.cos(math.pi * part)) * (RATE - LEAST)


def ours(parameters: dict[str, Any]) -> tuple[Callable, Callable]:
    """A step and an evaluation, by `wl.models.GPT`."""
    import wonderland as wl
    from wonderland import models, nn, train

    model = models.GPT(
        CONFIG.vocabulary, CONFIG.context, CONFIG.layers, CONFIG.heads, CONFIG.width, bias=False, activation="gelu"
    )
    theirs = {"tokens.weight": "tokens", "places.weight": "places", "norm.weight": "norm"}
    for i in range(CONFIG.layers):
        names = {"norm1": "norm{}a", "norm2": "norm{}b", "attention.in_proj": "qkv{}", "attention.out_proj": "out{}",
                 "feed.inner": "up{}", "feed.outer": "down{}"}  # fmt: skip
        theirs |= {f"blocks.{i}.{ours}.weight": name.format(i) for ours, name in names.items()}
    layers = lambda key: parameters[key] if key in ("tokens", "places") else parameters[key].T
    model.load_state({name: layers(key) for name, key in theirs.items()})
    schedule = train.cosine(RATE, STEPS, warmup=WARMUP, end=LEAST)
    optimizer = train.AdamW(model, schedule, betas=BETAS, weight_decay=DECAY, groups={"*norm*": {"weight_decay": 0}})

    def loss(model: Any, x: Any, y: Any) -> Any:
        return nn.cross_entropy(model(x), y)

    @wl.jit
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        value, gradient = wl.value_and_grad(loss)(model, x, y)
        optimizer.update(model, train.clip_by_norm(gradient, CLIP))
        return value

    evaluate = wl.jit(loss)
    return (lambda i, x, y: step(model, optimizer, x, y)), (lambda x, y: evaluate(model, x, y))


def in_torch(parameters: dict[str, Any]) -> tuple[Callable, Callable]:
    """The same by PyTorch, without its compiler, as nanoGPT's README has it for a CPU."""
    import torch

    model = torch_model(CONFIG, parameters)
    weights = [*model.parameters()]
    groups = [
        {"params": [w for w in weights if w.ndim > 1], "weight_decay": DECAY},
        {"params": [w for w in weights if w.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, RATE, BETAS, fused=True)

    def step(i: int, x: Any, y: Any) -> Any:
        for group in optimizer.param_groups:
            group["lr"] = rate_at(i)
        value = model(torch.from_numpy(x), torch.from_numpy(y))
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        optimizer.step()
        return value.item()

    @torch.no_grad()
    def evaluate(x: Any, y: Any) -> Any:
        return model(torch.from_numpy(x), torch.from_numpy(y)).item()

    return step, evaluate


CONTENDERS = {"wonderland": ours, "PyTorch": in_torch}


def run(name: str, path: Path, steps: int) -> dict[str, Any]:
    """Train, in this process: the curve of validation losses with their times, and the loss of all held-out text."""
    text = path.read_text(encoding="utf-8")
    letters = sorted({*text})
    if len(letters) != CONFIG.vocabulary:
        raise SystemExit(f"{path} has {len(letters)} different characters, Shakespeare's {CONFIG.vocabulary}")
    tokens = np.searchsorted(letters, [*text])
    known, held_out = tokens[: int(0.9 * len(tokens))], tokens[int(0.9 * len(tokens)) :]
    drawn, rng = np.random.default_rng(1), np.random.default_rng(0)
    validation = [windows(held_out, drawn) for _ in range(BATCHES)]
    parameters = make_parameters(CONFIG)
    began = time.perf_counter()
    step, evaluate = CONTENDERS[name](parameters)
    curve = []
    for i in range(steps + 1):
        if i % EVERY == 0:
            loss = float(np.mean([float(evaluate(*batch)) for batch in validation]))
            curve.append([i, time.perf_counter() - began, loss])
        if i < steps:
            step(i, *windows(known, rng))
    seconds = time.perf_counter() - began
    count = (len(held_out) - 1) // CONFIG.context
    whole = [held_out[k : k + count * CONFIG.context].reshape(count, -1) for k in (0, 1)]
    pieces = range(0, count - count % CONFIG.batch, CONFIG.batch)
    final = float(np.mean([float(evaluate(*(part[k : k + CONFIG.batch] for part in whole))) for k in pieces]))
    return {"seconds": seconds, "curve": curve, "validation": final}


def measure(path: Path, rounds: int, steps: int) -> dict[str, list[Any]]:
    """Contenders in turn, each in a process of its own."""
    found: dict[str, list[Any]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name in CONTENDERS:
            command = ["-m", "bench.shakespeare", "--text", str(path), "--only", name, "--steps", str(steps)]
            said = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True).stdout
            line = next(line for line in said.splitlines() if line.startswith(LINE))
            result = json.loads(line.removeprefix(LINE))
            found[name].append(result)
            print(f"{name:<12}{result['seconds']:7.1f} s   validation loss {result['validation']:.4f}", flush=True)
    return found


def draw(found: dict[str, list[Any]], path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.6), layout="constrained", sharey=True)
    for (name, runs), colour, marker in zip(found.items(), (BLUE, ORANGE), "o^", strict=True):
        best = min(runs, key=lambda run: run["seconds"])
        steps, seconds, losses = np.array(best["curve"]).T
        for ax, x in zip(axes, (seconds, steps), strict=True):
            ax.plot(x, losses, marker=marker, color=colour, label=name)
    for ax, said in zip(axes, ("seconds", "steps"), strict=True):
        ax.set_xlabel(said)
        ax.grid(color="#E4E4E4", linewidth=0.8)
    axes[0].set_ylabel("validation loss")
    axes[0].legend(frameon=False)
    axes[0].set_title("nanoGPT for a CPU on tiny Shakespeare", fontsize=10, loc="left", color=INK)
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="nanoGPT on Shakespeare, ours and PyTorch's.")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--only", choices=[*CONTENDERS], help="one, in this process")
    chosen = parser.parse_args()
    if chosen.only:
        print(LINE + json.dumps(run(chosen.only, chosen.text, chosen.steps)))
        return
    found = measure(chosen.text, chosen.rounds, chosen.steps)
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(*found.values(), strict=True)]
    print(f"ratio of times: {np.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in ratios)})")
    if chosen.images:
        draw(found, chosen.images / "shakespeare.png")


if __name__ == "__main__":
    main()
