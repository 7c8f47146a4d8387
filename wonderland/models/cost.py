"""What a transformer costs: a GPT, or the numbers of one, comes in; floating-point operations of its parts go out.

A matrix product of (m, k) and (k, n) is m k n multiplications and as many additions, 2 m k n operations. What else
there is (norms, activations, softmax, biases) isn't in the formula, but in what is counted: the `cost` of the Program.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wonderland.compile.jit import jit
from wonderland.core.program import Program, subprograms
from wonderland.models.gpt import GPT
from wonderland.nn.building import positive
from wonderland.ops.attention import attention, attention_cotangent, pairs_seen
from wonderland.ops.dot import dot
from wonderland.transform.cost import Cost, cost, equation_cost
from wonderland.transform.derivatives import trace, value_and_grad

PRODUCTS = (dot, attention, attention_cotangent)  # the operators that are matrix products
SECONDS, CALLS = 0.1, 5  # of measuring, at least


class Sizes(NamedTuple):
    """The numbers of the notes: N, heads, groups of heads with the same keys, d_k = d_v, d_emb, d_ff, n_voc."""

    layers: int
    heads: int
    groups: int
    head_width: int
    width: int
    hidden: int
    gated: bool
    vocab_size: int
    window: int | None


@dataclass(frozen=True, repr=False)
class TransformerCost:
    """Operations of a pass over `batch` texts of `context` tokens: of each part, forward and for a gradient with it.

    `counted` and `products` are those of the Program, all and of matrix products alone, if they were asked for, and
    `seconds` what compiled code took; each is a pair, of the forward pass and of the loss with its gradient.
    """

    context: int
    batch: int
    parts: dict[str, tuple[int, int]]
    counted: tuple[Cost, Cost] | None = None
    products: tuple[Cost, Cost] | None = None
    seconds: tuple[float, float] | None = None

    @property
    def forward(self) -> int:
        """Of the logits of all tokens."""
        return sum(forward for forward, _ in self.parts.values())

    @property
    def training(self) -> int:
        """Of the loss and its gradient."""
        return sum(training for _, training in self.parts.values())

    def __repr__(self) -> str:
        rows = [("", "forward", "training")]
        rows += [(name, *(f"{n:,}" for n in pair)) for name, pair in self.parts.items()]
        rows.append(("operations", f"{self.forward:,}", f"{self.training:,}"))
        if self.counted is not None:
            rows.append(("counted, all", *(f"{found.operations:,}" for found in self.counted)))
        if self.seconds is not None:
            rows.append(("measured [ms]", *(f"{1e3 * s:.3g}" for s in self.seconds)))
            rates = zip((self.forward, self.training), self.seconds, strict=True)
            rows.append(("operations / ns", *(f"{n / s / 1e9:.3g}" for n, s in rates)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows)


def transformer_cost(
    config: GPT | Mapping[str, Any], *, context: int | None = None, batch: int = 1, count: bool = False,
    measure: bool = False,
) -> TransformerCost:  # fmt: skip
    """Floating-point operations of a GPT, or of options of `GPT`, for `batch` texts of `context` tokens (its own).

    For one text of n tokens, with P pairs of a token and one that it sees (n (n + 1) / 2), each layer has

        projections     2 n d_emb (h d_k + g d_k + g d_v + h d_v)     queries, keys, values; and the result's
        scores          2 h d_k P                                     q k^T
        mixing          2 h d_v P                                     weights times values
        feed-forward    2 n 2 d_emb d_ff                              3 instead of 2, if gated

    and the logits have 2 n d_emb n_voc. A gradient takes twice as much again, one product for the input and one for the
    weights; of attention one more, as scores are computed anew instead of kept: 4 times the scores, 3 times the mixing.

    `count`: also by `wl.cost` of the Program. `measure`: also the time of compiled code, the best of several calls.
    Both make a model, if only options were given, which otherwise may be of any size.
    """
    given = _sizes(config)
    longest = config.context if isinstance(config, GPT) else config.get("context")
    n = positive(longest if context is None else context, "transformer_cost: context")
    batch = positive(batch, "transformer_cost: batch")
    found = TransformerCost(n, batch, _formula(given, n, batch))
    if not count and not measure:
        return found
    model = config if isinstance(config, GPT) else GPT(**{**config, "context": max(n, longest or n)})
    tokens = np.zeros((batch, n + 1), np.int64)
    forward = lambda model, tokens: model(tokens[:, :-1])
    training = value_and_grad(lambda model, tokens: -np.mean(model.log_probability(tokens)))
    counted = products = seconds = None
    if count:
        programs = [trace(f)(model, tokens) for f in (forward, training)]
        counted = cost(programs[0]), cost(programs[1])
        products = _of_products(programs[0]), _of_products(programs[1])
    if measure:
        seconds = _measured(forward, model, tokens), _measured(training, model, tokens)
    return TransformerCost(n, batch, found.parts, counted, products, seconds)


def _sizes(config: GPT | Mapping[str, Any]) -> Sizes:
    if isinstance(config, GPT):
        block = config.blocks[0]
        a, feed = block.attention, block.feed
        hidden, gated = feed.inner.weight.shape[0], feed.gate is not None
        return Sizes(
            len(config.blocks), a.heads, a.kv_heads, a.head_width, a.width, hidden, gated, config.vocab_size, a.window
        )
    if not isinstance(config, Mapping):
        raise TypeError(f"transformer_cost takes a GPT, or a dict of its options, got a {type(config).__name__}")
    try:
        options = inspect.signature(GPT).bind_partial(**config).arguments
    except TypeError as error:
        raise TypeError(f"transformer_cost takes the options of a GPT: {error}") from None
    missing = [name for name in ("layers", "heads", "width", "vocab_size") if name not in options]
    if missing:
        raise ValueError(f"transformer_cost: the options of a GPT lack {', '.join(missing)}")
    given = {name: value for name, value in options.items() if value is not None}
    size = lambda name, default=None: positive(given.get(name, default), f"transformer_cost: {name}")
    heads, width = size("heads"), size("width")
    if "head_width" not in given and width % heads:
        raise ValueError(f"transformer_cost: width={width} isn't a multiple of heads={heads}: give head_width=")
    groups, window = size("kv_heads", heads), size("window") if "window" in given else None
    if heads % groups:
        raise ValueError(f"transformer_cost: heads={heads} isn't a multiple of kv_heads={groups}")
    return Sizes(
        size("layers"), heads, groups, size("head_width", width // heads), width, size("hidden", 4 * width),
        given.get("gated", False), size("vocab_size"), window,
    )  # fmt: skip


def _formula(s: Sizes, n: int, batch: int) -> dict[str, tuple[int, int]]:
    pairs = pairs_seen(n, n, (None if s.window is None else 1 - s.window, 0))
    tokens, each = batch * n, batch * s.layers * s.heads * s.head_width * pairs
    per_token = s.width * s.head_width * 2 * (s.heads + s.groups)
    products = {  # multiplications, and by how many times as many the gradient has
        "projections": (s.layers * tokens * per_token, 3),
        "scores": (each, 4),
        "mixing": (each, 3),
        "feed-forward": (s.layers * tokens * s.width * s.hidden * (3 if s.gated else 2), 3),
        "logits": (tokens * s.width * s.vocab_size, 3),
    }
    return {name: (2 * count, 2 * times * count) for name, (count, times) in products.items()}


def _of_products(program: Program) -> Cost:
    """What matrix products have of the cost of a Program."""
    found = Cost()
    for equation in program.equations:
        if equation.primitive in PRODUCTS:
            found += equation_cost(equation)
        for inner in subprograms(equation):
            found += _of_products(inner)
    return found


def _measured(f: Any, model: Any, tokens: Any) -> float:
    """Seconds of a call of compiled code, the best of several."""
    found: list[float] = []
    compiled: Any = jit(f)
    compiled(model, tokens)
    while len(found) < CALLS or sum(found) < SECONDS:
        start = time.perf_counter()
        compiled(model, tokens)
        found.append(time.perf_counter() - start)
    return min(found)
