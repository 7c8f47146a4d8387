"""A masked language model: an encoder finds hidden characters of Python's documentation, beside models that count."""

from collections.abc import Iterator
from typing import Any

import numpy as np

import wonderland as wl
from wonderland import models, nn, recipes, train
from wonderland.recipes import drawing, language


def run(
    text: str = "", epochs: int = 6, batch_size: int = 48, rate: float = 5e-3, context: int = 24, layers: int = 2,
    heads: int = 4, width: int = 64, hidden: float = 0.15, seed: int = 0, **options: Any,
) -> recipes.Outcome:  # fmt: skip
    """Train on nine tenths of a text, that of a file, and return how many hidden tokens of the last are found."""
    wl.random.seed(seed)
    whole = language.read_text(text)
    tokenizer = wl.text.Characters(["·", *sorted({*whole} - {"·"})])  # what is hidden is a dot
    V, (ids, rest) = tokenizer.vocab_size, np.split(tokenizer.encode(whole), [9 * len(whole) // 10])
    windows, test = language.windows(ids, context)[0], language.windows(rest, context)[0]
    model = models.Encoder(V, context, layers, heads, width, order="pre")
    model.places.weight[...] = nn.sinusoidal(context, width) / 10  # neighbours are found sooner than from noise

    def masked(tokens: np.ndarray, key: int) -> tuple[Any, ...]:
        return (*models.mask_tokens(wl.random.key(key), tokens, V, 0, hidden), tokens)

    def batches(epoch: int) -> Iterator[Any]:  # other tokens are hidden in each epoch
        given = masked(windows[np.random.default_rng([seed, epoch]).permutation(len(windows))], epoch)
        for start in range(0, len(windows) - batch_size + 1, batch_size):
            yield tuple(part[start : start + batch_size] for part in given)

    def loss(model, seen, chosen, tokens):
        logits = model(seen)  # (B, T, V)
        right = np.sum((np.argmax(logits, -1) == tokens) & chosen) / np.sum(chosen)
        return nn.cross_entropy(logits, tokens, mask=chosen), {"accuracy": right}

    optimizer = train.AdamW(model, train.one_cycle(rate, epochs * (len(windows) // batch_size)), weight_decay=0.01)
    seen, chosen, _ = asked = masked(test, 2**31 - 1)  # the same for any number of epochs
    history = train.fit(model, loss, optimizer, batches, epochs=epochs, validation=asked, clip=1.0, **options)

    between, counts = np.unique((ids[:-2] * V + ids[2:]) * V + ids[1:-1], return_counts=True)  # those with neighbours
    around = dict(zip(*np.divmod(between[np.lexsort((-between, counts))], V)))  # of two neighbours the last one stays
    left, right = np.roll(test, 1, axis=1), np.roll(test, -1, axis=1)  # at the ends of a window something else
    said = {"most frequent": np.full_like(test, np.bincount(ids).argmax()),
            "bigram": np.argmax(models.Bigram(V).fit(ids)(left), -1),
            "both neighbours": np.vectorize(lambda pair: around.get(pair, 0), otypes=[int])(left * V + right),
            "encoder": np.argmax(train.predict(model, seen), -1)}  # fmt: skip
    inner = chosen & (np.arange(context) > 0) & (np.arange(context) < context - 1)
    found = {name: float(np.mean((guess == test)[inner])) for name, guess in said.items()}
    columns = {"hidden": seen, "found": np.where(chosen, said["encoder"], test), "true": test}
    samples = [{name: tokenizer.decode(rows[i]) for name, rows in columns.items()} for i in range(min(12, len(test)))]

    def figures():
        groups = {name: {"accuracy": value} for name, value in found.items()}
        return {"hidden tokens": drawing.grouped(groups, "hidden tokens of new text that are found", "accuracy")}

    numbers = {f"{name}: test accuracy": value for name, value in reversed(found.items())}
    return recipes.Outcome(model, history, numbers, figures, str(__doc__), {"Samples": samples})
