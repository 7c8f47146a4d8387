"""The command line: `tour` shows what works, on the notes' own examples; `train`, `list`, `tokenize`, `version`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable

import numpy as np

import wonderland as wl
from wonderland import cli_sample, cli_train

COLORS = {"title": "1;35", "code": "36", "good": "32", "dim": "2", "bar": "33"}


def use_color() -> bool:
    """Colours on a terminal, unless NO_COLOR says otherwise; FORCE_COLOR has the last word."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def paint(text: str, style: str) -> str:
    """Text in a colour, if there are colours."""
    return f"\033[{COLORS[style]}m{text}\033[0m" if use_color() else text


def title(number: int, text: str, where: str) -> None:
    print(f"\n{paint(f'{number}. {text}', 'title')}  {paint(where, 'dim')}")


def code(text: str) -> None:
    print("\n".join("   " + paint(line, "code") for line in text.strip("\n").split("\n")))


def show(label: str, value: object, expected: object = None) -> None:
    """A result, and the value it should have."""
    tail = "" if expected is None else paint(f"   (closed form {expected})", "dim")
    print(f"   {label} = {paint(str(value), 'good')}{tail}")


def evaluation_trace() -> None:
    title(1, "The evaluation trace, and its derivative", "notes A1.9-1.12: t = 1, 1, 6, 7")
    code("f = lambda x: x + x**2\nprint(wl.trace(f)(3.0))\nwl.jvp(f, (3.0,), (1.0,)), wl.grad(f)(3.0)")

    def f(x):
        return x + x**2

    print(paint("\n".join("   " + line for line in str(wl.trace(f)(3.0)).split("\n")), "dim"))
    values, tangents = wl.jvp(lambda x: (x, x, x**2, x + x**2), (3.0,), (1.0,))
    for name, s, t in zip(("x", "x", "x**2", "x + x**2"), values, tangents, strict=True):
        print(f"   {name:>9} = {paint(f'{float(s):4}', 'good')}   tangent {paint(f'{float(t):3}', 'good')}")
    value, tangent = wl.jvp(f, (3.0,), (1.0,))
    show("value, tangent", (float(value), float(tangent)), (12.0, 7.0))
    show("adjoint", float(wl.grad(f)(3.0)), 7.0)


def plain_numpy() -> None:
    title(2, "Plain NumPy code, exact derivatives", "notes A1.5")
    code("def loss(w, x, y):\n    return np.mean((np.tanh(x @ w) - y) ** 2)\n\nwl.grad(loss)(w, x, y)")
    rng = np.random.default_rng(0)
    w, x, y = rng.normal(size=3), rng.normal(size=(20, 3)), rng.normal(size=20)

    def loss(w, x, y):
        return np.mean((np.tanh(x @ w) - y) ** 2)

    steps = 1e-6 * np.eye(3)
    differences = np.array([(loss(w + e, x, y) - loss(w - e, x, y)) / 2e-6 for e in steps])
    show("gradient          ", wl.grad(loss)(w, x, y).round(7))
    show("finite differences", differences.round(7))


def linearisation() -> None:
    title(3, "A function is nearly linear", "notes E2.2: -0.5049 against -0.5050")
    code("value, push = wl.linearize(lambda x: x**2 - 1.5 * x, 0.5)\nvalue + push(0.01)")

    def f(x):
        return x**2 - 1.5 * x

    value, push = wl.linearize(f, 0.5)
    show("f(0.51)   ", round(float(f(0.51)), 4), -0.5049)
    show("linearised", round(float(value + push(0.01)), 4), -0.505)


def heron(a):
    """Heron's square root: iterate until it is good enough."""

    def far(state):
        x, _ = state
        return np.abs(x * x - a) > 1e-13 * a

    x, _ = wl.while_loop(far, lambda s: (0.5 * (s[0] + a / s[0]), s[1] + 1), (a + 1.0, 0))
    return x


def data_dependent_loop() -> None:
    title(4, "Reverse mode through a loop whose length depends on the data", "notes A1.42: Heron")
    code("x = wl.while_loop(lambda x: abs(x*x - a) > tol, lambda x: (x + a/x) / 2, a + 1)\nwl.jit(wl.grad(heron))(2.0)")
    show("square root      ", float(wl.jit(heron)(2.0)), np.sqrt(2.0))
    show("derivative       ", float(wl.jit(wl.grad(heron))(2.0)), 0.5 / np.sqrt(2.0))
    show("second derivative", float(wl.jit(wl.grad(wl.grad(heron)))(2.0)), -0.25 * 2.0**-1.5)


def branches() -> None:
    title(5, "A branch that wasn't taken contributes exactly zero", "no 0 * inf")
    code("wl.grad(lambda x: np.sum(np.where(x > 0, x * np.log(x), 0)))(np.array([0.0, 1.0]))")

    def entropy(x):
        return np.sum(np.where(x > 0, x * np.log(x), 0.0))

    show("gradient", wl.grad(entropy)(np.array([0.0, 1.0])), "[0. 1.]")


def stencil(x):
    """A second difference, written in place, as people do."""
    out = np.zeros(len(x))
    out[1:-1] = x[2:] - 2 * x[1:-1] + x[:-2]
    out[0], out[-1] = x[0], x[-1]
    return out * out


def in_place() -> None:
    title(6, "Code that writes in place; its sparsity", "notes A1.9")
    code(
        "@wl.lift\ndef stencil(x):\n    out = np.zeros(len(x))\n"
        "    out[1:-1] = x[2:] - 2 * x[1:-1] + x[:-2]\n    ...\nwl.sparse.jacobian_pattern(stencil, x)"
    )
    x = np.linspace(0, 1, 9) ** 2
    pattern = wl.sparse.jacobian_pattern(wl.lift(stencil), x).toarray()
    dense = wl.jacobian(wl.lift(stencil))(x)
    for row, numbers in zip(pattern, dense, strict=True):
        drawn = "".join(paint(" ●", "good") if entry else " ·" for entry in row)
        print(f"   {drawn}   {paint(' '.join(f'{n:6.3f}' for n in numbers), 'dim')}")


class Network(wl.nn.Module):
    """Two layers."""

    def __init__(self, rng: np.random.Generator):
        self.w1, self.b1 = rng.normal(size=(2, 16)), np.zeros(16)
        self.w2, self.b2 = rng.normal(size=16) / 4, np.array(0.0)

    def __call__(self, x):
        return np.tanh(x @ self.w1 + self.b1) @ self.w2 + self.b2


def xor_loss(model, x, y):
    """Logistic loss, y in {-1, 1}: log(1 + exp(-y f)), without overflow."""
    s = -y * model(x)
    return np.mean(np.maximum(s, 0.0) + np.log(1.0 + np.exp(-np.abs(s))))


def training() -> None:
    title(7, "Forward, backward and Adam: one native call, weights updated in place", "notes E5: XOR")
    code(
        "@wl.jit\ndef step(model, adam, x, y):\n    loss, gradient = wl.value_and_grad(xor_loss)(model, x, y)\n"
        "    adam.update(model, gradient)\n    return loss"
    )

    @wl.jit
    def step(model, adam, x, y):
        loss, gradient = wl.value_and_grad(xor_loss)(model, x, y)
        adam.update(model, gradient)
        return loss

    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, size=(256, 2))
    y = np.sign(x[:, 0] * x[:, 1])
    model = Network(rng)
    adam = wl.train.Adam(model, 0.02)
    start = time.perf_counter()
    losses = [float(step(model, adam, x, y))]
    compiled = time.perf_counter() - start
    start, steps = time.perf_counter(), 1500
    for i in range(steps):
        losses.append(float(step(model, adam, x, y)))
        if use_color() and i % 50 == 0:
            print(f"\r   training {'█' * (30 * i // steps):<30} {losses[-1]:.4f}", end="", flush=True)
    elapsed = time.perf_counter() - start
    if use_color():
        print("\r" + " " * 60 + "\r", end="")
    show("compiled in", f"{1000 * compiled:.0f} ms, then {1e6 * elapsed / steps:.0f} µs a step")
    show("loss       ", f"{losses[0]:.3f} {sparkline(losses)} {losses[-1]:.3f}")
    show("accuracy   ", f"{np.mean(np.sign(model(x)) == y):.1%}")
    grid = np.linspace(-1, 1, 23)
    for a in grid[::-2]:
        row = model(np.stack([grid, np.full_like(grid, a)], axis=1))
        print("   " + "".join(paint("██", "bar") if value > 0 else paint("░░", "dim") for value in row))


def sparkline(values: list[float], width: int = 32) -> str:
    """A curve in one line."""
    picked = np.array(values)[np.linspace(0, len(values) - 1, width).astype(int)]
    low, high = picked.min(), picked.max()
    levels = "▁▂▃▄▅▆▇█"
    return "".join(levels[int(7.999 * (v - low) / (high - low or 1.0))] for v in picked)


def inside() -> None:
    title(8, "Look inside", "from NumPy code to machine code")
    code("wl.jit(f).inspect(x)")

    def softmax(x):
        e = np.exp(x - np.max(x, axis=1, keepdims=True))
        return e / np.sum(e, axis=1, keepdims=True)

    found = wl.jit(softmax).inspect(np.ones((64, 32), np.float32))
    print(paint("\n".join("   " + line for line in str(found.program).split("\n")), "dim"))
    show("kernels", f"{len(found.kernels)}: the whole softmax runs row by row")
    print(paint("   WONDERLAND_DEBUG=1..5 shows every stage of the compiler.", "dim"))


TOUR: list[Callable[[], None]] = [
    evaluation_trace,
    plain_numpy,
    linearisation,
    data_dependent_loop,
    branches,
    in_place,
    training,
    inside,
]


def tour() -> None:
    """A short tour of what works."""
    print(paint("wonderland", "title") + ": write NumPy, get exact derivatives, compile to one native call.")
    for stop in TOUR:
        stop()
    print(f"\n{paint('That was the tour.', 'title')} The documentation starts at docs/index.md.")


def tokenize(chosen: argparse.Namespace) -> int:
    """The tokens of a text file, in colours, and how many there are."""
    try:
        with open(chosen.text, "rb") as file:
            raw = file.read()
        if chosen.tokenizer:
            tokenizer = wl.text.load(chosen.tokenizer)
        else:
            tokenizer = wl.text.BPE.train(raw, chosen.vocab_size)
        ids = tokenizer.encode(raw, disallowed_special=())
        if chosen.save:
            tokenizer.save(chosen.save)
    except (OSError, ImportError, ValueError, wl.ArgumentError) as error:
        print(f"wonderland: {error}", file=sys.stderr)
        return 2
    print(wl.text.TokenView(ids[: chosen.show], tokenizer.pieces(ids[: chosen.show])))
    share = f", {len(raw) / len(ids):.2f} bytes each" if len(ids) else ""
    print(f"{len(ids)} tokens of {len(raw)} bytes{share}, by {tokenizer}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """The `wonderland` command."""
    parser = argparse.ArgumentParser(prog="wonderland", description="Differentiable programming for NumPy.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tour", help="a short tour of what works")
    cli_train.add_commands(commands)
    parts = commands.add_parser("tokenize", help="the tokens of a text file, in colours")
    parts.add_argument("text", help="the path of a text")
    parts.add_argument("--tokenizer", metavar="FILE", help="one that was saved, or a tokenizer.json")
    parts.add_argument("--vocab-size", metavar="N", type=int, default=1024, help="train byte pairs on the text (1024)")
    parts.add_argument("--save", metavar="FILE", help="keep the tokenizer")
    parts.add_argument("--show", metavar="N", type=int, default=200, help="how many tokens are shown (200)")
    cli_sample.add_command(commands)
    commands.add_parser("version", help="versions, for bug reports")
    chosen = cli_train.with_settings(parser, arguments)
    if chosen.command == "train":
        return cli_train.run(chosen)
    if chosen.command == "list":
        return cli_train.show_list()
    if chosen.command == "tokenize":
        return tokenize(chosen)
    if chosen.command == "sample":
        return cli_sample.run(chosen)
    if chosen.command == "version":
        print(f"wonderland {wl.__version__}, NumPy {np.__version__}, Python {platform.python_version()}")
    else:
        tour()
    return 0


if __name__ == "__main__":
    sys.exit(main())
