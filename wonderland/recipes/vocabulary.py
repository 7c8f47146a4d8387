"""How many tokens a text has, for vocabularies of byte pairs from 256 tokens to thousands. Nothing is trained."""

from typing import Any

import wonderland as wl
from wonderland import recipes, train
from wonderland.recipes import drawing, language


def run(
    text: str = "",  # the path of a file; without one, Python's documentation
    sizes: tuple[int, ...] = (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144),
    pattern: str = "gpt4",
    seed: int = 0,  # of nothing: the same text has the same tokens
    **options: Any,
) -> recipes.Outcome:
    """Learn byte pairs of nine tenths of a text, and count the tokens of both parts for each size."""
    if not sizes or min(sizes) < 256:
        raise recipes.RecipeError(f"vocabulary: sizes are 256, one for each byte, or more, not {sizes}")
    whole = language.read_text(text)
    known, new = whole[: 9 * len(whole) // 10], whole[9 * len(whole) // 10 :]
    learnt = wl.text.BPE.train(known, max(sizes), pattern=pattern)
    rows: list[dict[str, Any]] = []

    def count(name: str, tokenizer: wl.text.Tokenizer) -> None:
        tokens, others = len(tokenizer.encode(known)), len(tokenizer.encode(new))
        rows.append({"tokenizer": name, "vocabulary": tokenizer.vocab_size, "tokens": tokens,
                     "characters a token": len(known) / tokens, "of new text": len(new) / others,
                     "pairs of tokens, of those of bytes": (tokens / len(known.encode())) ** 2})  # fmt: skip

    for size in sorted({*sizes}):  # what is learnt for a small vocabulary begins that of a larger one
        tokens = {token: number for token, number in learnt.vocabulary.items() if number < size}
        count("byte pairs", wl.text.BPE(tokens, learnt.pairs()[: size - 256], pattern=pattern))
    pairs = [*rows]
    count("characters", wl.text.Characters.train(whole))
    count("words", wl.text.Words.train(known))
    numbers = {f"tokens of {row['vocabulary']}": row["tokens"] for row in pairs}

    def figures():
        x = [row["vocabulary"] for row in pairs]
        names = {"the text itself": "characters a token", "new text": "of new text"}
        curves = {label: [row[name] for row in pairs] for label, name in names.items()}
        counts = {"byte pairs": [row["tokens"] for row in pairs]}
        counts |= {row["tokenizer"]: [row["tokens"]] * len(x) for row in rows[len(pairs) :]}
        tokens = drawing.lines(x, counts, "tokens of the text", ("vocabulary", ""), log=True)
        lengths = drawing.lines(x, curves, "characters in a token", ("vocabulary", ""), log=True)
        return {"tokens against the vocabulary": tokens, "characters in a token": lengths}

    return recipes.Outcome(None, train.History(), numbers, figures, str(__doc__), {"Tokenizers": rows})
