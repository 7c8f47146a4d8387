"""`beam_search`: the most probable text among those whose beginnings were among the most probable, too."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from wonderland import nn
from wonderland.compile.jit import jit
from wonderland.models.generation import identity, prompts, stop_tokens
from wonderland.nn.building import positive


class Beam(NamedTuple):
    """A text, of prompt and what follows, and its score: log p(what follows) / length^penalty."""

    tokens: np.ndarray
    score: float


def beam_search(
    model: Any, prompt: Any, count: int, beams: int = 4, length_penalty: float = 1.0, stop: Any = None
) -> list[Beam]:
    """The best texts of up to `count` new tokens after one prompt (T,), the best first, at most `beams`.

    In each step every beam is continued by all tokens, and the `beams` best continuations are kept. A text that ends
    with a token of `stop` is finished, and stays as long as its score is among the best. Scores are divided by the
    number of new tokens to the power `length_penalty`: 0 prefers short texts, larger numbers longer ones.

    All must fit into the context. Graves 2012; Wu et al. 2016, Google's neural machine translation system.
    """
    beams, count = positive(beams, "beam_search: beams"), positive(count, "beam_search: count")
    rows, single, _ = prompts(model, prompt)
    if not single:
        raise ValueError(f"beam_search takes one prompt (T,), got {len(rows)}")
    start = len(rows[0])
    if start + count - 1 > model.context and not model.endless:
        raise ValueError(f"beam_search: {start} tokens and {count} more don't fit into the context, {model.context}")
    stops = {*stop_tokens(stop).tolist()}
    text = np.tile(np.asarray(rows[0]), (beams, 1))  # (K, T)
    logp = np.where(np.arange(beams) == 0, 0.0, -np.inf)  # all are the same text: one of them is continued
    finished: list[Beam] = []
    caches = model.new_caches((beams,), start + count)
    advance = _compiled(identity(model))
    with nn.evaluating(model):
        found = advance(model, text, caches, np.arange(beams))
        for new in range(1, count + 1):
            total = logp[:, None] + np.asarray(found, np.float64)  # (K, V)
            order = np.argsort(-total, axis=None, kind="stable")[: (1 + len(stops)) * beams]  # enough that don't stop
            kept: list[tuple[int, int]] = []
            for parent, token in zip(*np.unravel_index(order, total.shape), strict=True):
                if not np.isfinite(total[parent, token]) or len(kept) == beams:
                    break
                if int(token) in stops:
                    score = float(total[parent, token]) / new**length_penalty
                    finished.append(Beam(np.append(text[parent], token), score))
                else:
                    kept.append((int(parent), int(token)))
            finished = _best(finished, beams)
            if not kept:
                return finished
            filled = kept + kept[:1] * (beams - len(kept))  # copies that are never chosen
            parents, tokens = (np.array(column) for column in zip(*filled, strict=True))
            logp = np.where(np.arange(beams) < len(kept), total[parents, tokens], -np.inf)
            text = np.concatenate([text[parents], tokens[:, None]], axis=1)
            if new < count:
                found = advance(model, tokens[:, None], caches, parents)
    going = [Beam(row, float(p) / count**length_penalty) for row, p in zip(text, logp, strict=True) if np.isfinite(p)]
    return _best(finished + going, beams)


@lru_cache(maxsize=6)
def _compiled(model: int) -> Any:
    """For each of the latest models by itself."""
    made = jit(_next)
    made.has_many_forms = True  # of lengths of the prompt, counts and numbers of beams
    return made


def _next(model: Any, tokens: Any, caches: Any, parents: Any) -> Any:
    """log p of the token after each row, (K, V), where row k goes on from what was row parents[k]."""
    for cache in caches:
        cache.take(parents)
    return nn.log_softmax(model.logits(model.hidden(tokens, caches=caches)[:, -1]))


def _best(found: list[Beam], most: int) -> list[Beam]:
    return sorted(found, key=lambda beam: -beam.score)[:most]
