"""Memory of a training step of a GPT against its context: `python -m bench.context_memory --images DIRECTORY`.

Forward, backward and Adam's update, for one text. Each figure is from a fresh process: the growth of its resident
memory up to its peak in two steps, once the model is made and compiled and a step of a small one has loaded what
libraries load. PyTorch's model is the same, by `scaled_dot_product_attention`, which has the online softmax on a CPU,
too, and by the formula. Results go to context_memory.json. Needs Linux's /proc.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench import environment
from bench.memory_of_steps import MEGABYTE, forget_peak, resident

CONTEXTS = [512, 1024, 2048, 4096]
SIZES = {"vocab_size": 64, "layers": 2, "heads": 4, "width": 64}
WHO = {
    "wonderland": {}, "wonderland, ALiBi": {"positions": "alibi"}, "wonderland, T5's bias": {"positions": "relative"},
    "wonderland, attention dropout": {"dropout": 0.1}, "PyTorch": {}, "PyTorch, formula": {"formula": True},
}  # fmt: skip


def ours(context: int, options: dict[str, Any]) -> Any:
    """A step, as a function without arguments."""
    import wonderland as wl
    from wonderland import models, train

    model = models.GPT(**SIZES, context=context, **options)
    optimizer = train.Adam(model, rate=1e-3)
    tokens = np.zeros((1, context + 1), np.int64)

    @wl.jit
    def step(model: Any, optimizer: Any, tokens: Any) -> Any:
        loss, grads = wl.value_and_grad(lambda model: -np.mean(model.log_probability(tokens)))(model)
        optimizer.update(model, grads)
        return loss

    step.inspect(model, optimizer, tokens)  # compiles, and doesn't run
    return lambda: step(model, optimizer, tokens)


def theirs(context: int, options: dict[str, Any]) -> Any:
    """The same of PyTorch."""
    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_num_threads(environment.THREADS)
    width, heads = SIZES["width"], SIZES["heads"]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.inside, self.outside = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.feed = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
            )

        def forward(self, x: Any) -> Any:
            parts = self.inside(self.norm1(x)).split(width, -1)
            q, k, v = (part.unflatten(-1, (heads, width // heads)).transpose(-3, -2) for part in parts)
            if options.get("formula"):
                scores = q @ k.mT / (width // heads) ** 0.5
                later = torch.ones(context, context, dtype=torch.bool).triu(1)
                y = scores.masked_fill(later, -torch.inf).softmax(-1) @ v
            else:
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.outside(y.transpose(-3, -2).flatten(-2))
            return x + self.feed(self.norm2(x))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(SIZES["vocab_size"], width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(SIZES["layers"])))
            self.norm = nn.LayerNorm(width)

        def forward(self, tokens: Any) -> Any:
            x = self.blocks(self.tokens(tokens) + self.places.weight)
            return self.norm(x) @ self.tokens.weight.T

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    tokens = torch.zeros((1, context + 1), dtype=torch.int64)

    def step() -> None:
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step


def child(who: str, context: int) -> int:
    """Bytes, measured here, in a process of its own."""
    make = theirs if who.startswith("PyTorch") else ours
    make(64, WHO[who])()
    step = make(context, WHO[who])
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what compiling took and gave back isn't there to be used again
    forget_peak()
    before = resident("VmRSS")
    step()
    step()
    return resident("VmHWM") - before


def run(who: str, context: int) -> int:
    command = [sys.executable, "-m", "bench.context_memory", "--child", who, str(context)]
    done = subprocess.run(command, cwd=environment.ROOT, env=environment.variables(), capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise RuntimeError(f"{who} fails at context {context}: exit status {done.returncode}")
    return int(done.stdout.splitlines()[-1])


def draw(record: dict[str, Any], path: Path) -> None:
    from bench.plots import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, name_lines, origin, plt

    styles = dict(zip(WHO, [(BLUE, "o"), (GREEN, "s"), (PURPLE, "D"), (GREY, "v"), (ORANGE, "^"), ("#E9AE7F", "P")]))
    figure, axes = plt.subplots(figsize=(7.6, 4.6), layout="constrained")
    for who, row in record["steps"].items():
        colour, marker = styles[who]
        axes.loglog(CONTEXTS, [row[str(n)] / MEGABYTE for n in CONTEXTS], marker=marker, color=colour)
    axes.set_xticks(CONTEXTS, [str(n) for n in CONTEXTS])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.grid(color="#E4E4E4", linewidth=0.8)
    axes.set_xlabel("context")
    axes.set_ylabel("growth of resident memory in two steps [MB]")
    sizes = f"{SIZES['layers']} layers, {SIZES['heads']} heads, width {SIZES['width']}"
    axes.set_title(f"Training step of a GPT with {sizes}, one text, float32", fontsize=10, loc="left", color=INK)
    ends = [(who, row[str(CONTEXTS[-1])] / MEGABYTE) for who, row in record["steps"].items()]
    name_lines(axes, [(CONTEXTS[-1], y, who, styles[who][0]) for who, y in ends])
    figure.supxlabel(origin(record), fontsize=7, color="#666666")
    figure.savefig(path)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.context_memory", description="Memory against the context.")
    parser.add_argument("--out", type=Path, default=Path("bench/results"), help="where context_memory.json goes")
    parser.add_argument("--images", type=Path, default=Path("docs/images"), help="where the plot goes")
    parser.add_argument("--redraw", action="store_true", help="plot the last results, and measure nothing")
    parser.add_argument("--child", nargs=2, metavar=("WHO", "CONTEXT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(child(options.child[0], int(options.child[1])))
        return 0
    file = options.out / "context_memory.json"
    if options.redraw:
        record = json.loads(file.read_text())
    else:
        record = {"environment": environment.describe(), "steps": {}}
        for who in WHO:
            record["steps"][who] = {str(n): run(who, n) for n in CONTEXTS}
            print(f"{who:<32}", *(f"{n / MEGABYTE:9.1f}" for n in record["steps"][who].values()), flush=True)
        options.out.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=1) + "\n")
    options.images.mkdir(parents=True, exist_ok=True)
    draw(record, options.images / "context-memory.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
