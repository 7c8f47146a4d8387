"""The picture of docs/second-order.md, from the code of that page: `python -m bench.newton --images DIRECTORY`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from bench import environment, plots

PAGE = Path("docs/second-order.md")
SEED, RATES = 3, (0.01, 0.03, 0.1)


def page_code() -> dict[str, Any]:
    """The names that the page's Python blocks define."""
    names: dict[str, Any] = {}
    text = (environment.ROOT / PAGE).read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", text, re.S | re.M):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.newton", description="Newton-CG beside Adam.")
    parser.add_argument("--images", default="docs/images", metavar="DIRECTORY", help="where the plot goes")
    path = Path(parser.parse_args().images) / "newton-cg.png"
    page = page_code()
    curves = [("Newton-CG", page["newton"](SEED), plots.BLUE, "-")]
    shades = zip(RATES, (plots.ORANGE, plots.GREEN, plots.PURPLE), ("--", "-.", ":"))
    curves += [(f"Adam, rate {rate}", page["adam"](SEED, rate), colour, line) for rate, colour, line in shades]
    figure, (left, right) = plots.plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    for label, rows, colour, line in curves:
        work, values, sizes = zip(*rows)
        left.semilogy(work, values, color=colour, linestyle=line, label=label)
        right.semilogy(work, sizes, color=colour, linestyle=line, label=label)
    for axes, what in ((left, "loss"), (right, "size of the gradient")):
        axes.set_xlabel("work, in gradients")
        axes.set_ylabel(what)
        axes.set_xlim(0, 1200)
    right.legend(frameon=False)
    figure.savefig(path)
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
