"""Text from a model that gives the logits of the next token: a prompt comes in, tokens go out.

The loop over tokens is compiled. With a cache it looks at one token a step, until the context is full; from there on,
or without a cache, the latest tokens that fit are looked at anew: their positions change with each step.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from wonderland import nn, random
from wonderland.compile.jit import jit
from wonderland.control.loops import while_loop
from wonderland.core.tracer import Tracer
from wonderland.nn.arguments import demand
from wonderland.nn.module import all_evaluating
from wonderland.nn.placing import indices


class Sampling(NamedTuple):
    """How the next token is chosen: what decides which code there is. Numbers are given to the code."""

    greedy: bool
    top_k: int | None
    top_p: bool
    min_p: bool
    penalty: bool


class Generates(nn.Module):
    """A model with `hidden(tokens, caches=)`, `logits(x)`, `new_caches`, `context`, `vocab_size` and `endless`."""

    vocab_size: int
    context: int

    def generate(self, prompt: Any, count: int, **options: Any) -> Any:
        """The prompt and `count` tokens that follow it, an array of integers (..., T + count).

        `prompt` is (T,), (B, T), or a list of prompts of different lengths; then the result is a list. Options:

        - `temperature=1.0`: logits are divided by it; 0 takes the most probable token.
        - `top_k`: only the k most probable; `top_p`: only the fewest that have this probability together;
          `min_p`: only those with this part of the largest probability.
        - `repetition_penalty=1.0`: logits of tokens that are there are divided by it, or multiplied if negative.
        - `stop`: a token or several that end the text. Others of the batch go on, the row repeats its stop token.
        - `cache=True`: keys and values are kept. Without, all is computed anew for each token, with the same result.
        - `key`: of `wl.random.key`; without one, the next of the stream that `wl.random.seed` starts.

        Dropout is off. Past the context, the latest tokens that fit are looked at; with a window and positions that
        count distances there is no such end.
        """
        rows, single, ragged = prompts(self, prompt)
        writing = _Writing(self, rows, count, **known(options))
        for _ in writing.advance(writing.total):
            pass
        text = writing.text[:, : writing.n]
        if ragged:
            return [writing.cut(i, len(row)) for i, row in enumerate(rows)]
        return text[0] if single else text

    def stream(self, prompt: Any, count: int, **options: Any) -> Iterator[int]:
        """The tokens of `generate` one after the other, for one prompt (T,); ends after a stop token."""
        rows, single, _ = prompts(self, prompt)
        if not single:
            raise ValueError(f"stream takes one prompt (T,), got {len(rows)}: use generate for a batch")
        writing = _Writing(self, rows, count, **known(options))
        for n in writing.advance(1):
            yield int(writing.text[0, n])

    def log_probability(self, tokens: Any) -> Any:
        """log p(token | those before), (..., T) to (..., T - 1): the first token has none before it."""
        tokens = indices(self, tokens)
        if not tokens.ndim or tokens.shape[-1] < 2:
            raise ValueError(f"log_probability takes (..., T) with T at least 2, got {tokens.shape}")
        last = tokens[..., -1]  # the others are looked up, which checks them
        what = f"log_probability: the vocabulary is 0 to {self.vocab_size - 1}, the last token is {{}}"
        demand((last >= 0) & (last < self.vocab_size), what, last)
        logits = self(tokens[..., :-1])  # (..., T - 1, V)
        found = np.take_along_axis(nn.log_softmax(logits), tokens[..., 1:, None], axis=-1)
        return found[..., 0]

    def perplexity(self, tokens: Any) -> float:
        """exp(- mean log p(token | those before)): a model that knows nothing has `vocab_size`."""
        with nn.evaluating(self):
            return math.exp(-float(np.mean(self.log_probability(np.asarray(tokens)))))


class _Writing:
    """A generation under way: the text so far, the caches, and how far both are."""

    def __init__(
        self, model: Any, rows: list[np.ndarray], count: int, temperature: float = 1.0, top_k: int | None = None,
        top_p: float | None = None, min_p: float | None = None, repetition_penalty: float = 1.0, stop: Any = None,
        cache: bool = True, key: Any = None,
    ):  # fmt: skip
        check_options(count, temperature, top_k, top_p, min_p, repetition_penalty)
        self.stop: np.ndarray = stop_tokens(stop)
        lengths = np.array([len(row) for row in rows])
        self.model, self.count, self.lengths = model, int(count), lengths
        self.modules = [module for _, module in model.named_modules()]
        self.total: int = int(lengths.max()) + self.count
        # Powers of two, so that texts of many lengths are written by the same code.
        self.text = np.zeros((len(rows), 2 ** math.ceil(math.log2(self.total))), np.int64)
        for i, row in enumerate(rows):
            self.text[i, : len(row)] = row
        self.n = int(lengths.min())
        self.done = np.zeros(len(rows), bool)
        self.sampling, self.numbers = sampling_of(model, temperature, top_k, top_p, min_p, repetition_penalty)
        self.seen = np.zeros((len(rows), model.vocab_size if self.sampling.penalty else 0), bool)
        if self.sampling.penalty:
            for i, row in enumerate(rows):
                self.seen[i, row] = True
        self.key = None if self.sampling.greedy else random.next_key() if key is None else key
        self.last_cached = 0 if not cache else self.total if model.endless else min(self.total, model.context + 1)
        self.caches = None
        if self.n < self.last_cached:
            self.caches = model.new_caches((len(rows),), _room(model, self.text))
            with all_evaluating(self.modules):
                fill(model, self.text, self.caches, self.n - 1)

    def advance(self, step: int) -> Iterator[int]:
        """Make tokens, `step` at a time; yields the number of the first new one."""
        key = np.zeros(2, np.uint32) if self.key is None else self.key
        while self.n < self.total and not self.done.all():
            cached = self.n < self.last_cached
            last = min(self.n + step, self.last_cached if cached else self.total)
            first = self.n
            with all_evaluating(self.modules):
                found = _compiled("cached" if cached else "whole", identity(self.model))(
                    self.model, self.caches if cached else None, self.text, self.seen, self.done, self.lengths,
                    np.int64(first), np.int64(last), key, self.numbers, self.stop, sampling=self.sampling,
                )  # fmt: skip
            self.text, self.seen, self.done, n = found
            self.n = int(n)
            yield first

    def cut(self, i: int, length: int) -> np.ndarray:
        """Row i with `count` new tokens, or up to its first stop token."""
        row = self.text[i, : min(length + self.count, self.n)]
        ends = np.flatnonzero(np.isin(row[length:], self.stop))
        return row[: length + int(ends[0]) + 1] if len(ends) else row


def identity(model: Any) -> int:
    """Whose code it is: models of different sources, of one encoder-decoder, have the same."""
    return id(getattr(model, "model", model))


@lru_cache(maxsize=12)
def _compiled(which: str, model: int) -> Any:
    """One of the functions below, compiled for each of the latest models by itself; others are compiled again."""
    made = jit(_prefill) if which == "prefill" else jit(_loop, static_argnames="sampling")
    made.has_many_forms = True  # of lengths by powers of two, batches and kinds of sampling
    return made


def _room(model: Any, text: Any) -> int:
    """How many tokens of a text are looked at, at most."""
    return text.shape[1] if model.endless else min(text.shape[1], model.context)


def fill(model: Any, text: Any, caches: Any, count: int) -> None:
    """The first `count` tokens of a text go into the caches, in pieces of as few sizes as there can be."""
    first = 0
    while first < count:
        size = 2 ** int(math.log2(count - first))
        _compiled("prefill", identity(model))(model, text[:, first : first + size], caches)
        first += size


def _prefill(model: Any, tokens: Any, caches: Any) -> None:
    model.hidden(tokens, caches=caches)


def _loop(
    model: Any, caches: Any, text: Any, seen: Any, done: Any, lengths: Any, first: Any, last: Any, key: Any,
    numbers: Any, stop: Any, *, sampling: Sampling,
) -> Any:  # fmt: skip
    """Tokens number first to last - 1 of text (B, total), each from those before it."""
    most = _room(model, text)

    def next_logits(model: Any, caches: Any, text: Any, n: Any) -> Any:
        if caches is not None:
            x = model.hidden(text[:, n - 1][:, None], caches=caches)[:, 0]  # (B, C)
        else:
            start = np.maximum(n - most, 0)
            x = model.hidden(text[:, start + np.arange(most)])[:, n - 1 - start]  # what is behind n isn't seen
        return model.logits(x)  # (B, V)

    def turn(carry: Any) -> Any:
        model, caches, text, seen, done, n = carry
        logits = next_logits(model, caches, text, n)
        if sampling.penalty:
            weight = np.where(logits > 0, 1 / numbers["penalty"], numbers["penalty"])
            logits = np.where(seen, logits * weight, logits)
        token = choose(logits, None if sampling.greedy else random.fold_in(key, n), sampling, numbers)  # (B,)
        token = np.where(done, text[:, n - 1], token)
        token = np.where(n < lengths, text[:, n], token)  # prompts that are longer than others
        text[:, n] = token
        if sampling.penalty:
            seen = seen | (np.arange(seen.shape[1]) == token[:, None])
        if stop.shape[0]:
            done = done | ((n >= lengths) & np.any(token[:, None] == stop, axis=-1))
        return model, caches, text, seen, done, n + 1

    going = lambda carry: (carry[-1] < last) & ~np.all(carry[-2])
    return while_loop(going, turn, (model, caches, text, seen, done, first))[2:]


def sampling_of(
    model: Any, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None, penalty: float
) -> tuple[Sampling, dict[str, Any]]:
    """What is compiled, and the numbers that are given to it."""
    greedy = temperature == 0
    top_k = None if greedy or top_k is None else min(int(top_k), model.vocab_size)
    sampling = Sampling(greedy, top_k, not greedy and top_p is not None, not greedy and min_p is not None, penalty != 1)
    numbers = {"temperature": temperature or 1, "top_p": top_p or 1, "min_p": min_p or 1, "penalty": penalty}
    return sampling, {name: np.float64(number) for name, number in numbers.items()}


def choose(logits: Any, key: Any, sampling: Sampling, numbers: Any) -> Any:
    """A token (B,) for each row of logits (B, V)."""
    if sampling.greedy:
        return np.argmax(logits, axis=-1)
    return random.categorical(key, logits=restricted(logits / numbers["temperature"], sampling, numbers))


def restricted(logits: Any, sampling: Sampling, numbers: Any) -> Any:
    """Logits that are -inf for tokens that are too improbable."""
    least = -np.inf
    if sampling.top_k is not None or sampling.top_p:
        falling = np.sort(logits, axis=-1)[..., ::-1]
        if sampling.top_k is not None:
            least = falling[..., sampling.top_k - 1, None]
        if sampling.top_p:
            falling = np.where(falling >= least, falling, -np.inf)
            p = nn.softmax(falling)
            before = np.cumsum(p, axis=-1) - p  # of all that are more probable
            least = np.min(np.where(before < numbers["top_p"], falling, np.inf), axis=-1, keepdims=True)
    if sampling.min_p:
        least = np.maximum(least, np.max(logits, axis=-1, keepdims=True) + np.log(numbers["min_p"]))
    return np.where(logits >= least, logits, -np.inf)


def prompts(model: Any, prompt: Any) -> tuple[list[np.ndarray], bool, bool]:
    """Prompts, each (T,); was there one only, and are they a list of different lengths?"""
    if any(isinstance(leaf, Tracer) for leaf in (prompt, *(prompt if isinstance(prompt, (list, tuple)) else ()))):
        raise TypeError(
            "generate compiles its loop itself, and takes the numbers of tokens, not a traced prompt: call it outside "
            "of wl.jit, wl.grad and wl.vmap; for many prompts give it (B, T)"
        )
    nested = isinstance(prompt, Sequence) and len(prompt) > 0 and all(np.ndim(row) == 1 for row in prompt)
    ragged = nested and len({len(row) for row in prompt}) > 1
    if isinstance(prompt, (list, tuple)) and not nested and any(map(np.ndim, prompt)) and not all(map(np.ndim, prompt)):
        raise ValueError("a list of prompts has one (T,) for each text, and this one has single tokens beside them")
    rows = [np.asarray(row) for row in prompt] if ragged else list(np.atleast_2d(np.asarray(prompt)))
    if not ragged and (np.ndim(prompt) not in (1, 2) or not len(rows)):
        raise ValueError(f"a prompt is (T,), (B, T) or a list of prompts, got shape {np.shape(prompt)}")
    sources: tuple[int, ...] = getattr(model, "batch", ())
    if sources and sources[0] not in (1, len(rows)):
        raise ValueError(f"the model was given {sources[0]} sources and {len(rows)} prompts: it takes one for each")
    for row in rows:
        if not len(row):
            raise ValueError("a prompt has at least one token: start with the one that begins a text")
        if row.dtype.kind not in "iu":
            raise TypeError(f"a prompt has integers, the numbers of tokens, got dtype {row.dtype}")
        if len(row) > model.context and not model.endless:
            raise ValueError(
                f"the prompt has {len(row)} tokens, the context is {model.context}: keep the latest, "
                f"prompt[-{model.context}:]"
            )
        wrong = row[(row < 0) | (row >= model.vocab_size)]
        if len(wrong):
            raise ValueError(f"the prompt has the token {wrong[0]}, the vocabulary 0 to {model.vocab_size - 1}")
    return rows, not ragged and np.ndim(prompt) == 1, ragged


def stop_tokens(stop: Any) -> np.ndarray:
    """The tokens that end a text (n,), of one of them, several, or None."""
    found = np.asarray([*stop] if isinstance(stop, (set, frozenset)) else [] if stop is None else stop)
    if found.size and found.dtype.kind not in "iu":
        raise TypeError(f"stop is the number of a token, or several, got {stop!r}")
    return found.astype(np.int64).reshape(-1)


def known(options: dict[str, Any]) -> dict[str, Any]:
    """Options, none of which is unknown."""
    names = [*inspect.signature(_Writing.__init__).parameters][4:]
    wrong = next((name for name in options if name not in names), None)
    if wrong is not None:
        raise TypeError(f"generate has no option {wrong!r}; it has {', '.join(names)}")
    return options


def check_options(count: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any, penalty: Any) -> None:
    """Refuse numbers that make no sense."""
    for name, value, fits, what in (
        ("count", count, lambda n: n >= 0 and int(n) == n, "a number of tokens"),
        ("temperature", temperature, lambda t: 0 <= t < math.inf, "0 (greedy) or a positive number"),
        ("top_k", top_k, lambda k: k >= 1 and int(k) == k, "a number of tokens, at least 1"),
        ("top_p", top_p, lambda p: 0 < p <= 1, "a probability in (0, 1]"),
        ("min_p", min_p, lambda p: 0 < p <= 1, "a part of the largest probability, in (0, 1]"),
        ("repetition_penalty", penalty, lambda r: 0 < r < math.inf, "a positive number, 1 for none"),
    ):
        if value is None and name != "count":
            continue
        try:
            right = fits(value)
        except TypeError:
            raise TypeError(f"generate: {name} is {what}, got {value!r}") from None
        if not right:
            raise ValueError(f"generate: {name} is {what}, got {value!r}")
