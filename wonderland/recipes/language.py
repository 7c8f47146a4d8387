"""What recipes of language models share: the text, the callback that writes while it learns, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data, nn, text, train
from wonderland.recipes.catalog import RecipeError
from wonderland.recipes.outcomes import Figures, Outcome

FILE = "model.safetensors"


def read_text(path: str) -> str:
    """The text of a file; Python's own documentation if there is no path."""
    if not path:
        return data.python_docs()
    try:
        found = Path(path).read_text(encoding="utf-8-sig")  # without the mark of UTF-8 files of Windows
    except OSError as error:
        raise RecipeError(f"text={path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"text={path} isn't UTF-8 (byte {error.start})") from error
    if not found.strip():
        raise RecipeError(f"text={path} is empty")
    return found


def windows(tokens: np.ndarray, length: int, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A text in windows one after the other, and the tokens that follow: (n, length) each; `most`, evenly chosen."""
    if length < 1:
        raise RecipeError(f"the context is a number of tokens, at least 1, not {length}")
    count = (len(tokens) - 1) // length
    if count < 1:
        part = f"a part of the text (nine tenths are for training, one for validation) has {len(tokens)} tokens"
        raise RecipeError(f"{part}, and a context of {length} takes {length + 1}: give a longer text")
    inputs, targets = (tokens[i : i + count * length].reshape(count, length) for i in (0, 1))
    chosen = slice(None) if most is None or count <= most else np.linspace(0, count - 1, most).astype(int)
    return inputs[chosen], targets[chosen]


class ShowSamples(train.Callback):
    """After each epoch a sample is shown, and the model kept: `wonderland sample` reads it while training goes on."""

    def __init__(self, writer: text.LanguageModel, checkpoint: Any, prompt: str = "", count: int = 120):
        self.writer, self.prompt, self.count = writer, prompt, count
        folder = getattr(checkpoint, "folder", checkpoint)
        self.path = None if folder is None else Path(folder).parent / FILE
        self.samples: list[tuple[int, str]] = []

    def after_epoch(self, run: train.Run) -> None:
        """Write a little."""
        sample = self.writer.generate(self.prompt, self.count, temperature=0.8, key=wl.random.key(run.epoch))
        self.samples.append((run.step, sample.strip()))
        if run.progress is not None:
            run.progress.message("    " + sample.strip().replace("\n", "\n    "))
        if self.path is not None and run.ranks.is_first:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.writer.save(self.path)

    def state(self) -> Any:
        """The samples so far."""
        return {"samples": [[step, sample] for step, sample in self.samples]}

    def load_state(self, state: Any) -> None:
        """Those of the run before."""
        self.samples = [(int(step), str(sample)) for step, sample in state["samples"]]


def language(writer: text.LanguageModel, history: train.History, held_out: str, shown: ShowSamples) -> Outcome:
    """The outcome of a language model on a text that it was not trained on, with maps of attention and the tokens."""
    model, tokenizer = writer.model, writer.tokenizer
    tokens = tokenizer.encode(held_out, disallowed_special=())
    found = train.evaluate(model, windows(tokens, model.context), loss=lambda m, x, y: nn.cross_entropy(m(x), y))
    loss = float(found["loss"])
    numbers = {
        "validation loss": loss,
        "perplexity": float(np.exp(loss)),
        "bits per byte": loss * len(tokens) / np.log(2) / len(held_out.encode()),
        "tokens": tokenizer.vocab_size,
    }

    def figures() -> Figures:
        read = tokens[: min(model.context, 32)]
        texts = [piece.decode(errors="replace") for piece in tokenizer.pieces(read)]
        maps = nn.attention_maps(model, read)
        stacked = np.stack([maps[f"blocks.{i}.attention"] for i in range(len(model.blocks))])
        # Of byte pairs the latest are the longest: those that occur most say more.
        often = np.argsort(-np.bincount(tokens, minlength=model.vocab_size), kind="stable")[:120]
        names = [piece.decode(errors="replace") for piece in tokenizer.pieces(often)]
        return {
            "attention of the first layer": train.pictures.attention(stacked[:1], texts),
            "attention of the last layer": train.pictures.attention(stacked[-1:], texts),
            "attention of all layers": train.pictures.attention(stacked),
            "embedding": train.pictures.embedding(np.asarray(model.tokens.weight)[often], names),
        }

    samples = [{"steps": step, "what it wrote": sample} for step, sample in shown.samples]
    return Outcome(model, history, numbers, figures, "", {"Samples": samples[:: max(1, len(samples) // 5)]})
