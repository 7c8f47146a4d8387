"""`speculative`: text of a large model, several tokens of which a small one proposes at a time.

The draft proposes tokens one by one; the model looks at all of them in one pass, which takes little longer than a pass
of one token, keeps those that it could have written itself, and adds one of its own. Caches are rolled back to what is
kept. The loop is compiled.
"""

from __future__ import annotations

import inspect
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from wonderland import nn, random
from wonderland.compile.jit import jit
from wonderland.control.loops import scan, while_loop
from wonderland.models.generation import (
    Sampling,
    check_options,
    choose,
    fill,
    identity,
    prompts,
    restricted,
    sampling_of,
    stop_tokens,
)
from wonderland.nn.building import positive


class Speculated(NamedTuple):
    """Prompt and what follows (T + count,), or up to a stop token; of so many `proposed` tokens so many `accepted`."""

    tokens: np.ndarray
    proposed: int
    accepted: int


def speculative(
    model: Any, draft: Any, prompt: Any, count: int, *, lookahead: int = 4, temperature: float = 1.0,
    top_k: int | None = None, top_p: float | None = None, min_p: float | None = None, stop: Any = None, key: Any = None,
) -> Speculated:  # fmt: skip
    """The text of `model.generate(prompt, count, ...)`, written with fewer passes of the model, for one prompt (T,).

    In each round `draft`, a model of the same vocabulary, proposes `lookahead` tokens x_i, drawn from its q_i. With p_i
    the model's probabilities after the tokens before x_i,

        x_i is accepted with probability min(1, p_i(x_i) / q_i(x_i));
        the first that isn't is replaced by one drawn from max(p_i - q_i, 0), divided by its sum;
        after all of them one more is drawn from the p that follows.

    The text has exactly the distribution that the model's own would have, whatever the draft is; p and q are what
    `temperature`, `top_k`, `top_p` and `min_p` leave of the two, as in `generate`. With `temperature=0` it is the very
    text of `generate`. A draft that is often right saves time: the result counts how often.

    All must fit into the context of both, unless they are `endless`. Dropout is off. Leviathan et al. 2023, Fast
    inference from transformers via speculative decoding; Chen et al. 2023.
    """
    check_options(count, temperature, top_k, top_p, min_p, None)
    lookahead = positive(lookahead, "speculative: lookahead")
    rows, single, _ = prompts(model, prompt)
    if not single:
        raise ValueError(f"speculative takes one prompt (T,), got {len(rows)}")
    if draft.vocab_size != model.vocab_size:
        raise ValueError(f"speculative: the model has {model.vocab_size} tokens, the draft {draft.vocab_size}")
    n, total = len(rows[0]), len(rows[0]) + int(count)
    for one, name in ((model, "model"), (draft, "draft")):
        if "spare" not in inspect.signature(one.new_caches).parameters:
            raise TypeError(f"speculative: tokens can't be taken back from a {type(one).__name__}: use a GPT as {name}")
        if total - 1 > one.context and not one.endless:
            raise ValueError(
                f"speculative: {n} tokens and {count} more don't fit into the context of the {name}, {one.context}"
            )
    text = np.zeros(2 ** math.ceil(math.log2(total)), np.int64)  # by powers of two, so that code is used again
    text[:n] = rows[0]
    sampling, numbers = sampling_of(model, temperature, top_k, top_p, min_p, 1)
    drawn = np.zeros(2, np.uint32) if sampling.greedy else random.next_key() if key is None else key
    ends = stop_tokens(stop)
    caches, behind = (one.new_caches((1,), len(text), lookahead + 1) for one in (model, draft))
    state = text, np.int64(n), np.zeros((), bool), np.int64(0), np.int64(0)
    with nn.evaluating(model), nn.evaluating(draft):
        fill(model, text[None], caches, n - 1)
        fill(draft, text[None], behind, n - 2)
        for ahead in (lookahead, 0):  # what is left at the end, fewer tokens than a round makes, the model writes alone
            rounds = _compiled(identity(model), identity(draft))
            given = (draft, behind) if ahead else (None, None)
            state = rounds(model, caches, *given, *state, np.int64(total), drawn, numbers, ends, ahead, sampling)
    text, n, _, proposed, accepted = state
    return Speculated(text[: int(n)], int(proposed), int(accepted))


@lru_cache(maxsize=6)
def _compiled(model: int, draft: int) -> Any:
    """For each of the latest pairs by itself; others are compiled again."""
    made = jit(_rounds, static_argnames=("ahead", "sampling"))
    made.has_many_forms = True  # of lengths by powers of two, lookaheads and kinds of sampling
    return made


def _rounds(
    model: Any, caches: Any, draft: Any, behind: Any, text: Any, n: Any, done: Any, proposed: Any, accepted: Any,
    total: Any, key: Any, numbers: Any, stop: Any, ahead: int, sampling: Sampling,
) -> Any:  # fmt: skip
    """Rounds of `ahead` proposals, as long as what one makes, up to ahead + 1 tokens, is wanted."""

    def turn(carry: Any) -> Any:
        model, caches, draft, behind, text, n, done, proposed, accepted = carry
        own = random.fold_in(key, n)
        guesses = np.zeros(0, np.int64), np.zeros((0, model.vocab_size))
        if ahead:
            draft, behind, *guesses = propose(draft, behind, text, n, random.fold_in(own, 0), numbers, ahead, sampling)
        x, q = guesses  # (K,), (K, V)
        _rewind(caches, n - 1)
        looked = np.concatenate([text[n - 1][None], x])  # (K + 1,)
        p = probabilities(model.logits(model.hidden(looked[None], caches=caches)[0]), sampling, numbers)  # (K + 1, V)
        count, left = verdict(p, q, x, random.uniform(random.fold_in(own, 1), (ahead,)))
        last = random.categorical(random.fold_in(own, 2), logits=np.log(left))
        places = np.arange(ahead + 1)
        new = np.where(places < count, np.concatenate([x, x[:1] if ahead else last[None]]), last)  # (K + 1,)
        text[n + places] = new
        made = count + 1
        if stop.shape[0]:
            ends = (places < made) & np.any(new[:, None] == stop, axis=-1)
            done = np.any(ends)
            made = np.where(done, np.argmax(ends) + 1, made)
        return model, caches, draft, behind, text, n + made, done, proposed + ahead, accepted + np.minimum(count, made)

    going = lambda carry: (carry[5] + ahead < total) & ~carry[6]
    return while_loop(going, turn, (model, caches, draft, behind, text, n, done, proposed, accepted))[4:]


def propose(
    draft: Any, caches: Any, text: Any, n: Any, key: Any, numbers: Any, count: int, sampling: Sampling
) -> tuple[Any, Any, Any, Any]:
    """The draft and its caches, `count` tokens that it puts after the first n, (K,), and its probabilities, (K, V)."""
    start = np.maximum(n - 2, 0)  # the last token of a round that went through, and the model's own, are new to it
    _rewind(caches, start)
    x = draft.hidden(text[start + np.arange(2)][None], caches=caches)[0, n - 1 - start]  # (C,)
    _rewind(caches, n)

    def chosen(x: Any, i: Any) -> tuple[Any, Any]:
        logits = draft.logits(x)  # (V,)
        token = choose(logits[None], random.fold_in(key, i), sampling, numbers)[0]
        return token, probabilities(logits, sampling, numbers)

    first, q = chosen(x, 0)

    def step(carry: Any, i: Any) -> tuple[Any, Any]:
        draft, caches, token = carry
        token, q = chosen(draft.hidden(token[None, None], caches=caches)[0, 0], i)
        return (draft, caches, token), (token, q)

    (draft, caches, _), (tokens, qs) = scan(step, (draft, caches, first), np.arange(1, count))
    return draft, caches, np.concatenate([first[None], tokens]), np.concatenate([q[None], qs])


def verdict(p: Any, q: Any, x: Any, u: Any) -> tuple[Any, Any]:
    """How many of K proposals x (K,) are accepted, and the probabilities (V,) of the token that follows them.

    p (K + 1, V) are the model's, q (K, V) the draft's, u (K,) uniform in [0, 1).
    """
    places = np.arange(x.shape[0])
    right = u * q[places, x] < p[places, x]
    count = np.sum(np.cumprod(right.astype(np.int64)))
    q = np.concatenate([q, np.zeros((1, q.shape[1]))])  # after all of them, nothing is taken off
    left = np.maximum(p - q, 0)[count]
    whole = np.sum(left)  # 0 if p and q are the same but for their rounding
    return count, np.where(whole > 0, left / np.where(whole > 0, whole, 1), p[count])


def probabilities(logits: Any, sampling: Sampling, numbers: Any) -> Any:
    """What tokens are drawn from, (..., V), float64; a single 1 if nothing is drawn."""
    if sampling.greedy:
        best = np.argmax(logits, axis=-1)
        return (np.arange(logits.shape[-1]) == best[..., None]).astype(np.float64)
    return nn.softmax(restricted(logits / numbers["temperature"], sampling, numbers))


def _rewind(caches: Any, position: Any) -> None:
    """Tokens from `position` on are forgotten."""
    for cache in caches:
        cache.position = position
