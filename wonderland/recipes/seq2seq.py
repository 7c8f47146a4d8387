"""Dates as people write them to 1984-09-28: an encoder-decoder, and a GPT on source and target in a row."""

from typing import Any

import numpy as np

import wonderland as wl
from wonderland import models, nn, recipes, text, train
from wonderland.recipes import drawing
from wonderland.recipes.dates import dates


class Both(nn.Module):
    """Two models that are trained beside each other, and know nothing of each other."""

    def __init__(self, vocab_size: int, source: int, target: int, layers: int, heads: int, width: int):
        self.pair = models.EncoderDecoder(vocab_size, source, layers, heads, width, order="pre")
        self.single = models.GPT(vocab_size, source + target, 2 * layers, heads, width)

    def __call__(self, source: Any, target: Any) -> dict[str, Any]:
        """Logits of what follows each token of the target, (B, T, vocab_size)."""
        row = self.single(np.concatenate([source, target], axis=-1))[:, source.shape[1] :]
        return {"encoder-decoder": self.pair(source, target, source_mask=source > 0), "decoder-only": row}


def loss(model: Both, source: Any, target: Any) -> Any:
    """The sum, in which each has its own gradient; a date is right if each of its characters is."""
    numbers, right = {}, target[:, 1:]
    for name, logits in model(source, target[:, :-1]).items():
        numbers[name] = nn.cross_entropy(logits, right)
        numbers[f"{name} accuracy"] = np.mean(np.all(np.argmax(logits, -1) == right, axis=-1))
    return numbers["encoder-decoder"] + numbers["decoder-only"], numbers


def run(epochs: int = 10, batch_size: int = 64, rate: float = 4e-3, samples: int = 4096, layers: int = 1,
        heads: int = 4, width: int = 48, seed: int = 0, **options: Any) -> recipes.Outcome:  # fmt: skip
    """Train both on dates, and return how many of 1000 others each writes without a mistake."""
    wl.random.seed(seed)
    written, iso = dates(samples + 1000, seed)
    tokenizer = text.Characters(["_", "=", *sorted({*"".join(written + iso)})])
    source = np.stack([tokenizer.encode(line.ljust(max(map(len, written)), "_")) for line in written])  # (N, S)
    target = np.stack([tokenizer.encode("=" + line) for line in iso])  # (N, 11)
    known, (new, right) = (source[:samples], target[:samples]), (source[samples:], target[samples:])
    model = Both(tokenizer.vocab_size, source.shape[1], target.shape[1], layers, heads, width)
    optimizer = train.Adam(model, train.one_cycle(rate, epochs * -(-samples // batch_size)))
    history = train.fit(model, loss, optimizer, known, epochs=epochs, batch_size=batch_size, seed=seed,
                        validation=(new, right), **options)  # fmt: skip
    said = {"encoder-decoder": model.pair.generate(new, [1], 10, source_mask=new > 0, temperature=0),
            "decoder-only": model.single.generate(np.c_[new, right[:, :1]], 10, temperature=0)[:, -11:]}  # fmt: skip
    numbers = {f"{name}: test accuracy": float(np.mean(np.all(found == right, 1))) for name, found in said.items()}
    lines = [f"{written[samples + i]} → {', '.join(tokenizer.decode(said[k][i, 1:]) for k in said)}" for i in range(6)]

    def figures():
        maps = nn.attention_maps(model.pair, new[0, new[0] > 0], right[0, :-1])
        curves = {name: history[f"validation_{name} accuracy"] for name in said}
        return {"dates without a mistake": drawing.lines(history["epoch"], curves, "dates that are new", ("epoch", "")),
                "where the decoder looks": train.pictures.attention(
                    maps[f"decoder.{layers - 1}.cross"], iso[samples], written[samples])}  # fmt: skip

    return recipes.Outcome(model, history, numbers, figures, "\n\n".join([str(__doc__), *lines]))
