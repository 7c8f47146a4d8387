"""`LanguageModel`: a `wl.models.GPT` and its tokenizer, so that text comes in and text goes out; both in one file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from wonderland import nn
from wonderland.core.errors import ArgumentError
from wonderland.models.gpt import GPT
from wonderland.nn.files import load, save
from wonderland.nn.safetensors import read
from wonderland.text.faults import TokenizerError
from wonderland.text.files import from_state
from wonderland.text.tokenizer import Tokenizer

FORMAT = "wonderland language model"
PIECE = 256  # tokens that are looked at together where there is no context to fill


class LanguageModel:
    """A model of tokens and the tokenizer that it was trained with.

    writer = wl.text.LanguageModel(model, tokenizer)
    writer.generate("def ", 100, temperature=0.8, top_k=20)        # text, which begins with the prompt
    for piece in writer.stream("def ", 100):                       # the same, as it is made
        print(piece, end="", flush=True)
    writer.save("writer.safetensors")
    """

    def __init__(self, model: Any, tokenizer: Tokenizer):
        if tokenizer.vocab_size > model.vocab_size:
            raise ArgumentError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the model knows {model.vocab_size}: make it with "
                "vocab_size=tokenizer.vocab_size"
            )
        self.model: Any = model
        self.tokenizer: Tokenizer = tokenizer

    def generate(self, prompt: str, count: int, **options: Any) -> str:
        """The prompt and `count` tokens more; options as of `GPT.generate`.

        Of a prompt longer than the context the model sees the end. An empty one begins with the token that begins or
        ends a text, a new line, or the first of the vocabulary.
        """
        before, start = self._start(prompt)
        found = self.model.generate(start, count, **self._stopping(options))
        return self.tokenizer.decode(np.concatenate([before, found]))

    def stream(self, prompt: str, count: int, **options: Any) -> Iterator[str]:
        """What `generate` writes after the prompt, piece by piece, each whole characters."""
        decoder, (before, start) = self.tokenizer.decoder(), self._start(prompt)
        decoder.feed(np.concatenate([before, start]))  # a character may have begun there, or a word: a space is next
        for token in self.model.stream(start, count, **self._stopping(options)):
            yield decoder.feed(token)
        yield decoder.finish()

    def log_probability(self, text: str) -> float:
        """log p of a text, all of its tokens but the first, each of those before it that fit into the context.

        A model that is `endless` sees all of them, or as many as it looks at; for others the text is cut into windows.
        """
        return float(sum(part.sum() for part in self._parts(text)))

    def perplexity(self, text: str) -> float:
        """exp of the mean of - log p over the tokens: a model that knows nothing has `vocab_size`."""
        found = np.concatenate(self._parts(text))
        return math.exp(-float(found.mean()))

    def bits_per_byte(self, text: str) -> float:
        """What a compressor needs with this model: comparable whatever the tokens are."""
        return -self.log_probability(text) / math.log(2) / len(text.encode())

    def _parts(self, text: str) -> list[np.ndarray]:
        """log p of the tokens, in windows as long as the context that follow the last token of the one before."""
        tokens, context = self.tokenizer.encode(text, disallowed_special=()), self.model.context
        if len(tokens) < 2:
            raise ArgumentError(f"a text of at least two tokens has a probability, this one has {len(tokens)}")
        with nn.evaluating(self.model):
            if self.model.endless:
                return [*self._pieces(tokens)]
            starts = range(0, len(tokens) - 1, context)
            return [np.asarray(self.model.log_probability(tokens[i : i + context + 1]), np.float64) for i in starts]

    def _pieces(self, tokens: np.ndarray) -> Iterator[np.ndarray]:
        """log p of the tokens after all before them, which caches hold, so that no piece begins anew."""
        caches = self.model.new_caches((), len(tokens))
        for i in range(0, len(tokens) - 1, PIECE):
            following = tokens[i + 1 : i + 1 + PIECE]
            logp = nn.log_softmax(self.model(tokens[i : i + len(following)], caches=caches))  # (T, V)
            yield np.take_along_axis(np.asarray(logp, np.float64), following[:, None], axis=-1)[:, 0]

    def _start(self, prompt: str) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of a prompt: those that don't fit into the context, and those that do, at least one."""
        tokens = self.tokenizer.encode(prompt, allowed_special="all")
        if not len(tokens):
            tokens = np.array([self._first()])
        cut = 0 if self.model.endless else max(len(tokens) - self.model.context, 0)
        return tokens[:cut], tokens[cut:]

    def _first(self) -> int:
        """A token that a text may begin with."""
        named = self.tokenizer.special_tokens
        for name in (self.tokenizer.bos, self.tokenizer.eos):
            if name is not None:
                return named[name]
        try:
            return int(self.tokenizer.encode("\n")[0])
        except (TokenizerError, IndexError):  # a text without new lines, words
            special = {*named.values()}
            return next((i for i in range(self.tokenizer.vocab_size) if i not in special), 0)

    def _stopping(self, options: dict[str, Any]) -> dict[str, Any]:
        """A text ends where the tokenizer says so."""
        end = self.tokenizer.eos
        return options if end is None else {"stop": self.tokenizer.special_tokens[end], **options}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights, sizes and tokenizer to one safetensors file; all or nothing."""
        if not isinstance(self.model, GPT):
            raise ArgumentError(f"only a GPT is saved with its sizes, not a {type(self.model).__name__}: use wl.save")
        for name, value in self.model.config.items():
            if callable(value):
                raise ArgumentError(f"{name} of this GPT is a function, which a file can't hold: use its name")
        described = {"format": FORMAT, "model": json.dumps(self.model.config)}
        described["tokenizer"] = json.dumps(self.tokenizer.state(), ensure_ascii=False)
        save(self.model, path, metadata=described)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LanguageModel:
        """What `save` wrote; the model is in evaluation mode."""
        arrays, described = read(path)
        if described.get("format") != FORMAT:
            raise ArgumentError(f"{os.fspath(path)} isn't a file of LanguageModel.save: wl.load reads arrays of others")
        try:
            config = json.loads(described["model"])
            rows, blocks = arrays["tokens.weight"].shape, {n.split(".")[1] for n in arrays if n.startswith("blocks.")}
            said = (config["vocab_size"], config["width"]), config["layers"]
            if said != (rows, len(blocks)):  # before memory is taken for what isn't there
                raise ValueError(f"it says sizes {said[0]} and {said[1]} layers, and has {rows} and {len(blocks)}")
            model = GPT(**config)
            tokenizer = from_state(path, json.loads(described["tokenizer"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError(f"{os.fspath(path)} isn't whole: {error!r:.200}") from error
        load(model, path)
        model.eval()
        return cls(model, tokenizer)

    def __repr__(self) -> str:
        count = sum(np.size(leaf) for leaf in self.model.parameters())
        return f"LanguageModel({type(self.model).__name__} of {count:,} parameters, {self.tokenizer})"
