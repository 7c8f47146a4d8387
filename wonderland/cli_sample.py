"""`wonderland sample RUN`: what a trained language model writes, as it writes it."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import wonderland as wl
from wonderland.recipes.language import FILE

EXAMPLES = """\
examples:
  wonderland sample runs/gpt                               what came of `wonderland train gpt`
  wonderland sample runs/gpt --prompt "The function " --count 500 --temperature 0.7 --top-k 20
"""


def add_command(commands: Any) -> None:
    """The parser of `sample`."""
    parser = commands.add_parser(
        "sample", help="let a trained language model write", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("model", nargs="?", default="runs/gpt", help="a run's folder, or a model's file (runs/gpt)")
    parser.add_argument("--prompt", metavar="TEXT", default="", help="how the text begins")
    parser.add_argument("--count", metavar="N", type=int, default=300, help="how many tokens (300)")
    parser.add_argument("--temperature", metavar="T", type=float, default=0.8, help="0 takes the most probable (0.8)")
    parser.add_argument("--top-k", metavar="K", type=int, help="only the K most probable tokens")
    parser.add_argument("--top-p", metavar="P", type=float, help="only the fewest that have this probability together")
    parser.add_argument("--min-p", metavar="P", type=float, help="only those with this part of the largest probability")
    parser.add_argument("--repetition-penalty", metavar="R", type=float, default=1.0, help="tokens that were there (1)")
    parser.add_argument("--seed", metavar="N", type=int, help="for the same text again")


def run(chosen: argparse.Namespace) -> int:
    """The command `wonderland sample`; returns the exit code."""
    path = Path(chosen.model)
    path = path / FILE if path.is_dir() else path
    options = {name: getattr(chosen, name) for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")}
    try:
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}: `wonderland train gpt` makes runs/gpt")
        writer = wl.text.LanguageModel.load(path)
        if chosen.seed is not None:
            wl.random.seed(chosen.seed)
        print(f"{writer!r}", file=sys.stderr)
        pieces = writer.stream(chosen.prompt, chosen.count, **options)
        first = next(pieces, "")  # a prompt that can't be encoded is refused before it is shown
        print(chosen.prompt.lstrip("\n") + first, end="", flush=True)
        began = time.perf_counter()  # the first token waits for the compiler
        for piece in pieces:
            print(piece, end="", flush=True)
    except (OSError, ImportError, ValueError, TypeError, wl.ArgumentError) as error:
        print(f"wonderland: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
        return 130
    seconds = time.perf_counter() - began
    print(f"\n{max(chosen.count - 1, 0) / max(seconds, 1e-9):,.0f} tokens/s", file=sys.stderr)
    return 0
