"""Hugging Face's `tokenizer.json`, as far as it is a byte-level BPE: read into arguments of `BPE`, and written.

A file says how text is normalised, cut, merged and framed. What `BPE` doesn't do is refused, by name: a tokenizer that
ignored it would give other ids than the model was trained with.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from wonderland.nn.safetensors import replace
from wonderland.text.byte_characters import shown, unshown
from wonderland.text.faults import TokenizerError
from wonderland.text.patterns import PATTERNS
from wonderland.text.reading import Path, part, read_json, refuse

if TYPE_CHECKING:
    from wonderland.text.bpe import BPE

MODEL = {"dropout": (None, 0, 0.0), "continuing_subword_prefix": (None, ""), "end_of_word_suffix": (None, ""),
         "byte_fallback": (None, False)}  # fmt: skip
CLASS = re.compile(r"\[(?:\\.|[^\]\\])*\]")  # [...], in which $ is a character
DIFFERENT = re.compile(r"(?<!\\)\$|\{[\d,]+\}\+")  # to Oniguruma $ is also the end of a line, {1,3}+ isn't possessive
ADDED = ("single_word", "lstrip", "rstrip")


def read(path: Path) -> dict[str, Any]:
    """The arguments of a `BPE`."""
    found = read_json(path)
    model = part(path, found, "model", dict)
    kind = model.get("type", "BPE")
    if kind != "BPE":
        refuse(path, f"its model is {kind!r}; this reads 'BPE' with bytes only")
    for key, harmless in MODEL.items():
        if model.get(key) not in harmless:
            refuse(path, f"its model has {key!r} = {model[key]!r:.40}, which byte-level BPE doesn't have")
    if _steps(found, "normalizer", "normalizers"):
        refuse(path, "it normalises text before it encodes it, so that decoding can't give the text back")
    special = _special(path, part(path, found, "added_tokens", list, default=[]))
    vocabulary = _vocabulary(path, part(path, model, "vocab", dict, inside="model"), special)
    merges = _merges(path, part(path, model, "merges", list, inside="model"), vocabulary)
    bos, eos = _frame(path, part(path, found, "post_processor", dict, default={}))
    for name in (bos, eos):
        if name is not None and name not in special:
            refuse(path, f"its post_processor adds {name!r:.60}, which isn't one of its added_tokens")
    return {
        "vocabulary": vocabulary, "merges": merges, "pattern": _pattern(path, found), "special_tokens": special,
        "bos": bos, "eos": eos, "whole": part(path, model, "ignore_merges", bool, default=False, inside="model"),
    }  # fmt: skip


def _special(path: Path, added: list[Any]) -> dict[str, int]:
    special: dict[str, int] = {}
    for i, token in enumerate(added):
        inside = f"added_tokens[{i}]"
        if not isinstance(token, dict):
            refuse(path, f"{inside} isn't an object")
        name = part(path, token, "content", str, inside=inside)
        wrong = [key for key in ADDED if token.get(key)]
        if wrong:
            refuse(path, f"{inside}, {name!r}, has {wrong[0]!r}: it takes characters beside it in, which isn't done")
        if name in special:
            refuse(path, f"{inside}: the token {name!r} is there twice")
        special[name] = part(path, token, "id", int, inside=inside)
    return special


def _vocabulary(path: Path, numbers: dict[str, Any], special: dict[str, int]) -> dict[bytes, int]:
    vocabulary: dict[bytes, int] = {}
    for token, number in numbers.items():
        if special.get(token) == number:
            continue
        raw = unshown(token)
        if raw is None:
            refuse(path, f"model.vocab has {token!r:.60}, which isn't written in the characters that stand for bytes")
        vocabulary[raw] = number
    return vocabulary


def _merges(path: Path, merges: list[Any], vocabulary: dict[bytes, int]) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for i, merge in enumerate(merges):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(token, str) for token in parts):
            refuse(path, f"model.merges[{i}] is {merge!r:.60}; a merge is two tokens")
        left, right = (vocabulary.get(unshown(token) or b"") for token in parts)
        if left is None or right is None:
            refuse(path, f"model.merges[{i}] is of {parts[left is not None]!r:.60}, which isn't in model.vocab")
        pairs.append((left, right))
    return pairs


def _steps(found: dict[str, Any], key: str, inside: str) -> list[dict[str, Any]]:
    """The steps of a processor, of a sequence of them, or of none."""
    step = found.get(key)
    if step is None:
        return []
    steps = step.get(inside) if isinstance(step, dict) and step.get("type") == "Sequence" else [step]
    return steps if isinstance(steps, list) and all(isinstance(each, dict) for each in steps) else [{}]


def _pattern(path: Path, found: dict[str, Any]) -> str | None:
    """The pattern of the steps that cut: at most one, and the step that makes characters of bytes at the end."""
    steps = _steps(found, "pre_tokenizer", "pretokenizers")
    if not steps or steps[-1].get("type") != "ByteLevel":
        refuse(path, "its pre_tokenizer doesn't end with 'ByteLevel': it isn't a byte-level BPE")
    *cuts, last = steps
    if last.get("add_prefix_space"):
        refuse(path, "its pre_tokenizer adds a space before the text (add_prefix_space), which isn't done here")
    patterns = ["gpt2"] if last.get("use_regex", True) else []
    for step in cuts:
        written = step.get("pattern")
        pattern = written.get("Regex") if isinstance(written, dict) else None
        plain = step.get("behavior") == "Isolated" and not step.get("invert")
        if step.get("type") != "Split" or not plain or not isinstance(pattern, str):
            shown = json.dumps(step)[:120]
            refuse(path, f"its pre_tokenizer has the step {shown}; this reads 'Split' by a 'Regex', 'Isolated'")
        if DIFFERENT.search(CLASS.sub("", pattern)):
            refuse(path, f"its pattern {pattern!r:.80} has $ or {{...}}+, and means another thing there than here")
        patterns.append(pattern)
    if len(patterns) > 1:
        refuse(path, f"its pre_tokenizer cuts text {len(patterns)} times; one pattern is read")
    named = {pattern: name for name, pattern in PATTERNS.items()}
    return named.get(patterns[0], patterns[0]) if patterns else None


def _frame(path: Path, found: dict[str, Any]) -> tuple[str | None, str | None]:
    """The special tokens before and after a text."""
    bos = eos = None
    for step in _steps({"post_processor": found or None}, "post_processor", "processors"):
        if step.get("type") == "ByteLevel":
            continue
        if step.get("type") != "TemplateProcessing":
            refuse(path, f"its post_processor is {step.get('type')!r:.60}; this reads 'ByteLevel' and a template")
        before: list[str] = []
        after: list[str] = []
        side = before
        for each in part(path, step, "single", list, inside="post_processor"):
            if isinstance(each, dict) and "Sequence" in each:
                side = after
            elif isinstance(each, dict) and isinstance(each.get("SpecialToken"), dict):
                side.append(part(path, each["SpecialToken"], "id", str, inside="post_processor.single"))
            else:
                refuse(path, f"post_processor.single has {each!r:.60}, neither a text nor a special token")
        if len(before) > 1 or len(after) > 1:
            refuse(path, "its post_processor adds several tokens on one side of a text; one is read")
        bos, eos = (*before, None)[0], (*after, None)[0]
    return bos, eos


def write(path: Path, tokenizer: BPE) -> None:
    """Write a tokenizer."""
    names = {number: shown(token) for token, number in tokenizer.vocabulary.items()}
    special = tokenizer.special_tokens
    both = special.keys() & {*names.values()}
    if both:
        raise TokenizerError(f"{min(both)!r} is a special token and, as this file writes bytes, another one, too")
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    cut: Any = last
    if tokenizer.pattern is not None:
        pattern = PATTERNS.get(tokenizer.pattern, tokenizer.pattern)
        if DIFFERENT.search(CLASS.sub("", pattern)):
            raise TokenizerError(f"the pattern {pattern!r:.80} has $ or {{...}}+, and means another thing there")
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        cut = {"type": "Sequence", "pretokenizers": [split, last]}
    frame = None
    if tokenizer.bos is not None or tokenizer.eos is not None:
        frame = _template(special, tokenizer.bos, tokenizer.eos)
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    found = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": name, **plain} for name, number in special.items()],
        "normalizer": None,
        "pre_tokenizer": cut,
        "post_processor": frame,
        "decoder": {**last, "use_regex": True},
        "model": {
            "type": "BPE", **{key: values[0] for key, values in MODEL.items()}, "byte_fallback": False,
            "unk_token": None, "fuse_unk": False, "ignore_merges": tokenizer.whole,
            # Special tokens as well: those that aren't here would be given other ids when the file is read.
            "vocab": {name: number for number, name in sorted([*names.items(), *((i, n) for n, i in special.items())])},
            "merges": [[names[left], names[right]] for left, right in tokenizer.pairs()],
        },
    }  # fmt: skip
    replace(path, [json.dumps(found, ensure_ascii=False).encode()])


def _template(special: dict[str, int], bos: str | None, eos: str | None) -> dict[str, Any]:
    def around(sequences: list[str]) -> list[Any]:
        rows: list[Any] = []
        for i, sequence in enumerate(sequences):
            rows += [{"SpecialToken": {"id": bos, "type_id": i}}] if bos is not None else []
            rows += [{"Sequence": {"id": sequence, "type_id": i}}]
            rows += [{"SpecialToken": {"id": eos, "type_id": i}}] if eos is not None else []
        return rows

    used = {name for name in (bos, eos) if name is not None}
    tokens = {name: {"id": name, "ids": [special[name]], "tokens": [name]} for name in sorted(used)}
    return {"type": "TemplateProcessing", "single": around(["A"]), "pair": around(["A", "B"]), "special_tokens": tokens}
