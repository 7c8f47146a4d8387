"""Weights of Hugging Face's models: arrays by its names come in, those of our models are filled.

A table has, for each kind of model, its names and ours; `*` is the number of a layer. Queries, keys and values, which
it has one by one, are parts of one matrix; GPT-2's matrices are (in, out), and transposed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.nn.names import LoadReport
from wonderland.nn.safetensors import read

QKV = ("q", "k", "v")
Table = dict[str, str]


def _parts(theirs: str, ours: str) -> Table:
    """Three layers that are one: their name has {} for what is q, k and v there."""
    return {theirs.format(part): f"{ours}/{number}" for number, part in enumerate(QKV)}


def _named(table: Table, names: Mapping[str, str]) -> Table:
    """With other words for q, k and v."""
    pattern = re.compile(r"\b([qkv])\b")
    return {pattern.sub(lambda m: names[m[1]], theirs): ours for theirs, ours in table.items()}


def _listener(theirs: str, ours: str) -> Table:
    """A block of Whisper, but for its attention to the source."""
    return {
        **_parts(f"{theirs}.self_attn.{{}}_proj", f"{ours}.attention.in_proj"),
        f"{theirs}.self_attn.out_proj": f"{ours}.attention.out_proj", f"{theirs}.fc1": f"{ours}.feed.inner",
        f"{theirs}.fc2": f"{ours}.feed.outer", f"{theirs}.self_attn_layer_norm": f"{ours}.norm1",
        f"{theirs}.final_layer_norm": f"{ours}.norm2",
    }  # fmt: skip


LONG = {"q": "query", "k": "key", "v": "value"}
BERT_LAYER = {
    "attention.output.dense": "attention.out_proj", "intermediate.dense": "feed.inner", "output.dense": "feed.outer",
}  # fmt: skip
TABLES: dict[str, Table] = {
    "gpt2": {
        "wte": "tokens", "wpe": "places", "ln_f": "norm", "lm_head": "head",
        "h.*.ln_1": "blocks.*.norm1", "h.*.ln_2": "blocks.*.norm2",
        "h.*.attn.c_attn": "blocks.*.attention.in_proj.T", "h.*.attn.c_proj": "blocks.*.attention.out_proj.T",
        "h.*.mlp.c_fc": "blocks.*.feed.inner.T", "h.*.mlp.c_proj": "blocks.*.feed.outer.T",
    },
    "llama": {
        "embed_tokens": "tokens", "norm": "norm", "lm_head": "head",
        "layers.*.input_layernorm": "blocks.*.norm1", "layers.*.post_attention_layernorm": "blocks.*.norm2",
        **_parts("layers.*.self_attn.{}_proj", "blocks.*.attention.in_proj"),
        "layers.*.self_attn.o_proj": "blocks.*.attention.out_proj",
        "layers.*.mlp.gate_proj": "blocks.*.feed.gate", "layers.*.mlp.up_proj": "blocks.*.feed.inner",
        "layers.*.mlp.down_proj": "blocks.*.feed.outer",
    },
    "bert": {
        "embeddings.word_embeddings": "tokens", "embeddings.position_embeddings": "places",
        "embeddings.token_type_embeddings": "kinds", "embeddings.LayerNorm": "norm", "pooler.dense": "pooler",
        **_named(_parts("encoder.layer.*.attention.self.{}", "blocks.*.attention.in_proj"), LONG),
        **{f"encoder.layer.*.{theirs}": f"blocks.*.{ours}" for theirs, ours in BERT_LAYER.items()},
        "encoder.layer.*.attention.output.LayerNorm": "blocks.*.norm1",
        "encoder.layer.*.output.LayerNorm": "blocks.*.norm2",
        "cls.predictions.transform.dense": "head.inner", "cls.predictions.transform.LayerNorm": "head.norm",
        "cls.predictions": "head", "cls.predictions.decoder": "head.decoder",
    },
    "vit": {
        "embeddings": "", "embeddings.patch_embeddings.projection": "patches", "layernorm": "norm",
        "classifier": "head",
        **_named(_parts("encoder.layer.*.attention.attention.{}", "blocks.*.attention.in_proj"), LONG),
        **{f"encoder.layer.*.{theirs}": f"blocks.*.{ours}" for theirs, ours in BERT_LAYER.items()},
        "encoder.layer.*.layernorm_before": "blocks.*.norm1", "encoder.layer.*.layernorm_after": "blocks.*.norm2",
        # names of transformers 5, which has them in memory only
        **_parts("layers.*.attention.{}_proj", "blocks.*.attention.in_proj"),
        "layers.*.attention.o_proj": "blocks.*.attention.out_proj", "layers.*.mlp.fc1": "blocks.*.feed.inner",
        "layers.*.mlp.fc2": "blocks.*.feed.outer", "layers.*.layernorm_before": "blocks.*.norm1",
        "layers.*.layernorm_after": "blocks.*.norm2",
    },
    "whisper": {
        "encoder.conv1": "conv1", "encoder.conv2": "conv2", "encoder.embed_positions": "source_places",
        "encoder.layer_norm": "encoder_norm", "decoder.embed_tokens": "tokens", "decoder.embed_positions": "places",
        "decoder.layer_norm": "decoder_norm", "proj_out": "head",
        **_listener("encoder.layers.*", "encoder.*"), **_listener("decoder.layers.*", "decoder.*"),
        "decoder.layers.*.encoder_attn_layer_norm": "decoder.*.norm_cross",
        **{f"decoder.layers.*.encoder_attn.{p}_proj": f"decoder.*.cross.{p}_proj" for p in (*QKV, "out")},
    },
    "wav2vec2": {
        "feature_extractor.conv_layers.*.conv": "convolutions.*",
        "feature_extractor.conv_layers.*.layer_norm": "norms.*", "feature_projection.layer_norm": "norm_in",
        "feature_projection.projection": "projection", "encoder.pos_conv_embed.conv": "places",
        "encoder.layer_norm": "norm", "lm_head": "head",
        **_parts("encoder.layers.*.attention.{}_proj", "blocks.*.attention.in_proj"),
        "encoder.layers.*.attention.out_proj": "blocks.*.attention.out_proj",
        "encoder.layers.*.layer_norm": "blocks.*.norm1", "encoder.layers.*.final_layer_norm": "blocks.*.norm2",
        "encoder.layers.*.feed_forward.intermediate_dense": "blocks.*.feed.inner",
        "encoder.layers.*.feed_forward.output_dense": "blocks.*.feed.outer",
    },
}  # fmt: skip
MARKS = {"gpt2": "wte.weight", "llama": "embed_tokens.weight", "bert": "embeddings.word_embeddings.weight",
         "vit": "embeddings.patch_embeddings.projection.weight", "whisper": "decoder.embed_positions.weight",
         "wav2vec2": "feature_projection.projection.weight"}  # fmt: skip
PREFIXES = ("transformer.", "model.", "bert.", "vit.", "wav2vec2.")
# Masks and frequencies that old files have, BERT's second sentence, and what wav2vec puts into hidden places before it
# is trained.
NEEDLESS = re.compile(r"(\.attn\.(masked_)?bias|inv_freq|position_ids|cls\.seq_relationship\.\w+|masked_spec_embed)$")
SECOND = {"head.weight": "tokens.weight", "head.decoder.weight": "tokens.weight", "head.decoder.bias": "head.bias"}


def load_huggingface(model: Any, source: Any, strict: bool = True) -> LoadReport:
    """Copy Hugging Face's weights into a model of the same sizes: GPT-2's and LLaMA's into a `GPT`, BERT's into an
    `Encoder`, and those of ViT, Whisper and wav2vec 2.0 into a `ViT`, `Whisper` or `Wav2Vec`.

    `source` is a safetensors file, a folder of them, or a dict of arrays by name. Returns what was missing or
    unexpected, which with `strict` is an error.
    """
    arrays = dict(source) if isinstance(source, Mapping) else _read(source)
    state = huggingface_state(arrays)
    known = model.state()
    for second, first in SECOND.items():  # of what is tied here
        if second in state and second not in known:
            value = state.pop(second)
            if not np.array_equal(value, state.setdefault(first, value)):
                untied = ": make the model tied=False" if getattr(model, "head", True) is None else ""
                raise ArgumentError(
                    f"{second} isn't {first} in these weights (the matrix of the logits isn't that of the embedding), "
                    f"as it is in this {type(model).__name__}{untied}"
                )
    return model.load_state(state, strict)


def huggingface_state(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by Hugging Face's names as those by ours."""
    arrays = {_bare(name): _array(name, value) for name, value in arrays.items() if not NEEDLESS.search(name)}
    arrays = _without_key_bias(_without_weight_norm(arrays))
    kind = next((kind for kind, mark in MARKS.items() if mark in arrays), None)
    if kind is None:
        raise ArgumentError(
            f"these aren't weights of {', '.join(MARKS)}: none of {', '.join(MARKS.values())} is there, but "
            + ", ".join([*arrays][:5])
        )
    state: dict[str, Any] = {}
    parts: dict[str, dict[int, tuple[str, Any]]] = {}
    for name, value in arrays.items():
        layer, _, last = name.rpartition(".")
        number = re.search(r"\.(\d+)\.", layer + ".")
        ours = TABLES[kind].get(re.sub(r"\.\d+(?=\.|$)", ".*", layer))
        if ours is None:
            state[name] = value  # load_state says that it is unexpected
            continue
        ours = ours.replace("*", number[1]) if number else ours
        ours, transposed = ours.removesuffix(".T"), ours.endswith(".T")
        ours, _, part = ours.partition("/")
        full = f"{ours}.{last}" if ours else last
        value = value.T if transposed and value.ndim == 2 else value
        if part:
            parts.setdefault(full, {})[int(part)] = name, value
        else:
            state[full] = value
    for full, found in parts.items():
        if len(found) == len(QKV):
            state[full] = np.concatenate([found[i][1] for i in sorted(found)])
        else:
            state.update(found.values())  # load_state says that they are unexpected, and what is missing
    return state


def _without_weight_norm(arrays: dict[str, Any]) -> dict[str, Any]:
    """Weights g v / |v|, which files have as g and v, as what they are; the norm is over all axes that g hasn't."""
    arrays = {re.sub(r"weight_([gv])$", lambda m: f"parametrizations.weight.original{'gv'.index(m[1])}", name): value
              for name, value in arrays.items()}  # fmt: skip
    for name in [name for name in arrays if name.endswith(".parametrizations.weight.original0")]:
        g, v = arrays.pop(name), arrays.pop(name[:-1] + "1")
        axes = tuple(axis for axis, size in enumerate(g.shape) if size == 1)
        name = name.replace("parametrizations.weight.original0", "weight")
        v = v.astype(np.result_type(v, np.float32))  # squares of float16 would be too small for it
        arrays[name] = g * v / np.sqrt(np.sum(v**2, axis=axes, keepdims=True))
    return arrays


def _without_key_bias(arrays: dict[str, Any]) -> dict[str, Any]:
    """With zeros for biases of keys that Whisper hasn't: adding a number to all logits of a query changes nothing."""
    lacking = [name for name in arrays if name.endswith("_attn.k_proj.weight")]
    added = {name.replace("weight", "bias"): np.zeros_like(arrays[name][:, 0]) for name in lacking
             if name.replace("k_proj.weight", "q_proj.bias") in arrays}  # fmt: skip
    return added | arrays


def _array(name: str, value: Any) -> Any:
    try:
        return np.asarray(value)
    except TypeError as error:
        raise ArgumentError(f"{name} isn't an array of numbers that NumPy has: {error}. Write value.float()") from None


def _bare(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)


def _read(source: Any) -> dict[str, Any]:
    if not isinstance(source, (str, os.PathLike)):
        raise ArgumentError(f"weights are a file, a folder, or a dict of arrays, got {type(source).__name__}")
    path = Path(source)
    files = _weights(path) if path.is_dir() else [path]
    if not files:
        raise ArgumentError(f"{path} has no *.safetensors files")
    return {name: array for file in files for name, array in read(file)[0].items()}


def _weights(folder: Path) -> list[Path]:
    """The files of a model: as transformers names them, or all there are. Others beside them are of other formats."""
    patterns = ("model.safetensors", "model-*-of-*.safetensors", "*.safetensors")
    return next(filter(None, (sorted(folder.glob(pattern)) for pattern in patterns)), [])
