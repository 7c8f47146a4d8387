"""To which package of Python's standard library a docstring belongs: convolutions over words, and naive Bayes."""

import dataclasses
from typing import Any

import numpy as np

import wonderland as wl
from wonderland import data, models, nn, recipes, text, train
from wonderland.data.sets_files import package_docstrings


class Reader(models.TextCNN):
    """For texts that are filled up with zeros."""

    def __call__(self, tokens: Any) -> Any:
        return super().__call__(tokens, mask=tokens > 0)


def naive_bayes(tokens: np.ndarray, labels: np.ndarray, new: np.ndarray, vocab_size: int) -> np.ndarray:
    """argmax_k log p(k) + sum_t log p(token_t | k), with one more of each than was counted."""
    counts = np.ones((labels.max() + 1, vocab_size))
    np.add.at(counts, (labels[:, None], tokens), 1)
    log_p = np.log(counts / counts.sum(1, keepdims=True)) * (np.arange(vocab_size) > 0)
    return np.argmax(np.log(np.bincount(labels)) + log_p[:, new].sum(-1).T, axis=1)


def run(
    packages: tuple[str, ...] = ("asyncio", "email", "importlib", "logging", "multiprocessing", "xml"),
    epochs: int = 30, batch_size: int = 32, rate: float = 4e-3, words: int = 60, vocab_size: int = 3000,
    width: int = 48, filters: int = 48, dropout: float = 0.5, seed: int = 0, **options: Any,
) -> recipes.Outcome:  # fmt: skip
    """Train on the first words of docstrings, and return how many of others are put where they belong."""
    wl.random.seed(seed)
    texts: dict[str, int] = {}  # each once, so that none is in both parts
    for label, package in enumerate(packages):
        texts |= {found: label for found in package_docstrings(package) if found not in texts}
    tokenizer = text.Words.train(texts, vocab_size, lower=True, special_tokens=["<none>", "<unk>"], bos=None, eos=None)
    rows = [np.resize(np.r_[ids[:words], np.zeros(words, int)], words) for ids in tokenizer.encode_batch(texts)]
    everything = data.Arrays(np.stack(rows), np.array([*texts.values()]), classes=packages)
    training, validation, test = data.split(everything, [0.7, 0.1, 0.2], seed=seed, stratify=True)
    model = Reader(tokenizer.vocab_size, len(packages), width, (1, 2, 3), filters, dropout=dropout)

    loss = lambda model, tokens, labels: nn.cross_entropy(model(tokens), labels)
    loader = data.Loader(training, batch_size, shuffle=True, seed=seed)
    optimizer = train.AdamW(model, train.one_cycle(rate, epochs * len(loader)), weight_decay=0.01)
    history = train.fit(model, loss, optimizer, loader, epochs=epochs, validation=validation,
                        metrics={"accuracy": train.metrics.Accuracy()}, **options)  # fmt: skip
    (tokens, labels), (new, right) = training[:], test[:]
    numbers = {"naive Bayes: accuracy": float(np.mean(naive_bayes(tokens, labels, new, tokenizer.vocab_size) == right)),
               "largest package: accuracy": float(np.mean(right == np.bincount(labels).argmax()))}  # fmt: skip
    rows = [{"docstring": tokenizer.decode(ids[ids > 0])[:90], "said": packages[said], "is": packages[label]}
            for ids, said, label in zip(new[:12], np.argmax(train.predict(model, new[:12]), 1), right)]  # fmt: skip
    outcome = recipes.classification(model, history, test, numbers=numbers)
    return dataclasses.replace(outcome, tables={"Samples": rows})
