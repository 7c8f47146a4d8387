"""Text that is written for a source: what encoder-decoders have in common. A source comes in, its text goes out."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland import nn
from wonderland.models.generation import Generates
from wonderland.nn.attention import Context
from wonderland.nn.masks import of_keys


class Translates(nn.Module):
    """A model with `encode(source, source_mask=)`, `embedded(target, start)`, `logits(x)` and blocks `decoder`."""

    vocab_size: int
    context: int
    decoder: list[Any]
    decoder_norm: Any
    encode: Any
    embedded: Any
    logits: Any

    def __call__(self, source: Any, target: Any, *, source_mask: Any = None) -> Any:
        """Logits (..., T, vocab_size); `source_mask` (..., S) is False where the source has nothing."""
        memory = self.encode(source, source_mask=source_mask)
        return self.logits(self.decode(target, memory, source_mask=source_mask))

    def decode(self, target: Any, memory: Any, *, source_mask: Any = None, caches: Any = None) -> Any:
        """The vectors of the target, (..., T, width); memory is what `encode` or `contexts` gave."""
        contexts = memory if isinstance(memory, list) else [memory] * len(self.decoder)
        x = self.embedded(target, 0 if caches is None else caches[0].position)
        for i, block in enumerate(self.decoder):
            cache = None if caches is None else caches[i]
            x = block(x, contexts[i], context_mask=of_keys(source_mask), cache=cache)  # (B, T, C)
        return x if self.decoder_norm is None else self.decoder_norm(x)

    def contexts(self, memory: Any) -> list[Context]:
        """The keys and values of a source that was read, for each block: made once, looked at by every token."""
        return [block.cross.context(memory) for block in self.decoder]

    def given(self, source: Any, *, source_mask: Any = None) -> Conditional:
        """The model of targets for these sources, which generates; `beam_search` takes it, too, for one source."""
        with nn.evaluating(self):
            contexts = self.contexts(self.encode(np.asarray(source), source_mask=source_mask))
        return Conditional(self, contexts, source_mask)

    def generate(self, source: Any, start: Any, count: int, *, source_mask: Any = None, **options: Any) -> Any:
        """Targets (..., T + count) for sources, each after `start` (T,); options as of `GPT.generate`."""
        model = self.given(source, source_mask=source_mask)
        start = np.broadcast_to(np.atleast_1d(start), (*model.batch, np.size(start)))
        return model.generate(start, count, **options)


class Conditional(Generates):
    """The decoder of an encoder-decoder for sources that were read, as a model of the target."""

    endless = False

    def __init__(self, model: Translates, contexts: list[Context], source_mask: Any):
        self.model: Any = model
        self.keys: Any = nn.Buffer(np.stack([context.keys for context in contexts]))  # (layers, ..., H, S, D)
        self.values: Any = nn.Buffer(np.stack([context.values for context in contexts]))
        self.source_mask: Any = None if source_mask is None else nn.Buffer(np.asarray(source_mask))
        self.vocab_size, self.context = model.vocab_size, model.context

    @property
    def batch(self) -> tuple[int, ...]:
        """How many sources there are: () for one without an axis."""
        return self.keys.shape[1:-3]

    def __call__(self, tokens: Any) -> Any:
        """Logits of what follows each token, (..., T, vocab_size)."""
        return self.logits(self.hidden(tokens))

    def hidden(self, tokens: Any, *, caches: Any = None) -> Any:
        """(..., T) to (..., T, width)."""
        contexts = [Context(self.keys[i], self.values[i]) for i in range(self.keys.shape[0])]
        return self.model.decode(tokens, contexts, source_mask=self.source_mask, caches=caches)

    def logits(self, x: Any) -> Any:
        """(..., width) to (..., vocab_size)."""
        return self.model.logits(x)

    def new_caches(self, batch: tuple[int, ...], length: int, spare: int = 0) -> list[Any]:
        """Of the attention of the target to itself."""
        return [block.attention.new_cache(length, batch, spare) for block in self.model.decoder]
