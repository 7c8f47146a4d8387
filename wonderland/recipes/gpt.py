"""A GPT that learns to write: Python's documentation, or a text of your own, by characters or byte pairs."""

from typing import Any

import wonderland as wl
from wonderland import data, models, nn, recipes, train
from wonderland.recipes import language

CONFIGS = {  # layers, heads, width, context; batch, tokens (0: characters), rate
    "tiny": (4, 4, 128, 64, 12, 0, 2e-3),  # nanoGPT's for a CPU
    "small": (6, 6, 384, 256, 16, 2048, 1e-3),  # its smallest for a GPU
    "gpt2": (12, 12, 768, 1024, 4, 50257, 6e-4),  # 124 million parameters
}


def run(
    text: str = "",  # the path of a file; without one, Python's documentation
    config: str = "tiny",
    epochs: int = 20,
    steps: int = 100,  # in an epoch
    batch_size: int = 0,  # that of the config
    vocab_size: int = -1,  # that of the config; 0 is a token for each character
    rate: float = 0.0,  # that of the config
    dropout: float = 0.0,
    seed: int = 0,
    **options: Any,
) -> recipes.Outcome:
    """Train on nine tenths of the text, and return how well the last tenth is predicted."""
    if config not in CONFIGS:
        raise recipes.RecipeError(f"gpt: config is {', '.join(CONFIGS)}, not {config!r}")
    wl.random.seed(seed)
    layers, heads, width, context, batch, size, peak = CONFIGS[config]
    batch_size, vocab_size, rate = batch_size or batch, size if vocab_size < 0 else vocab_size, rate or peak
    whole = language.read_text(text)
    known, held_out = whole[: 9 * len(whole) // 10], whole[9 * len(whole) // 10 :]
    tokenizer = wl.text.BPE.train(known, vocab_size) if vocab_size else wl.text.Characters.train(whole)
    loader = data.token_windows(tokenizer.encode(known), context, batch_size, steps, seed)
    validation = language.windows(tokenizer.encode(held_out), context, most=20 * batch_size)

    model = models.GPT(tokenizer.vocab_size, context, layers, heads, width, bias=False, dropout=dropout)

    def loss(model, inputs, targets):
        return nn.cross_entropy(model(inputs), targets)

    schedule = train.cosine(rate, epochs * steps, warmup=min(100, epochs * steps // 10), end=rate / 10)
    groups = {"*norm*": {"weight_decay": 0}}
    optimizer = train.AdamW(model, schedule, betas=(0.9, 0.99), weight_decay=0.1, groups=groups)
    shown = language.ShowSamples(wl.text.LanguageModel(model, tokenizer), options.get("checkpoint"))
    if options.get("progress") is True:
        options["progress"] = train.Progress(epochs, steps, counted=(batch_size * context, "tokens"))
    history = train.fit(
        model, loss, optimizer, loader, epochs=epochs, validation=validation, clip=1.0, callbacks=[shown], **options
    )
    return language.language(shown.writer, history, held_out, shown)
