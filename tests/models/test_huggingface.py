"""Weights by Hugging Face's names: what is tied, what is missing, which files of a folder are read."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import models
from wonderland.models.huggingface import huggingface_state


def encoder():
    return models.Encoder(5, 4, 1, 1, 2, hidden=3, key=wl.random.key(0))


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def test_a_second_name_of_what_is_tied_has_the_same_numbers():
    table = normal(5, 2)
    given = {"bert.embeddings.word_embeddings.weight": table, "cls.predictions.bias": table[:, 0]}
    tied = {"cls.predictions.decoder.weight": table, "cls.predictions.decoder.bias": table[:, 0]}
    model = encoder()
    assert not models.load_huggingface(model, given | tied, strict=False).unexpected
    np.testing.assert_array_equal(model.tokens.weight, table)
    for name, value in tied.items():
        with pytest.raises(wl.ArgumentError, match=r"head\.decoder\.\w+ isn't .* as it is in this Encoder$"):
            models.load_huggingface(encoder(), given | tied | {name: value + 1}, strict=False)


def test_a_second_name_alone_will_do():
    whisper = models.Whisper(5, 2, 4, 3, 1, 1, 2, key=wl.random.key(0))
    given = {"model.decoder.embed_positions.weight": normal(3, 2), "proj_out.weight": normal(5, 2)}
    models.load_huggingface(whisper, given, strict=False)
    np.testing.assert_array_equal(whisper.tokens.weight, given["proj_out.weight"])


def test_queries_without_keys_are_said_to_be_that():
    given = {f"model.layers.0.self_attn.{part}_proj.weight": normal(2, 2) for part in "qv"}
    given["model.embed_tokens.weight"] = normal(5, 2)
    found = huggingface_state(given)
    assert {"layers.0.self_attn.q_proj.weight", "layers.0.self_attn.v_proj.weight"} < {*found}
    model = models.llama(vocab_size=5, context=4, layers=1, heads=1, width=2)
    with pytest.raises(wl.ArgumentError, match=r"lacks .*in_proj\.weight.* has .*q_proj\.weight"):
        models.load_huggingface(model, given)


def test_weight_norm_in_half_precision():
    v = np.full((1, 8, 3), 1e-4, np.float16)  # its squares are 0
    names = {f"wav2vec2.encoder.pos_conv_embed.conv.weight_{part}": x for part, x in (("g", v[:, :1] + 1), ("v", v))}
    found = huggingface_state({"wav2vec2.feature_projection.projection.weight": normal(2, 2), **names})
    np.testing.assert_allclose(found["places.weight"], 1 / np.sqrt(8), rtol=1e-3)


def test_images_by_the_names_in_memory():
    prefix = "vit.layers.0."
    given = {f"{prefix}attention.{part}_proj.weight": normal(2, 2) for part in "qkvo"}
    given |= {f"{prefix}{name}.weight": normal(2, 2) for name in ("mlp.fc1", "mlp.fc2")}
    given |= {f"{prefix}{name}.weight": normal(2) for name in ("layernorm_before", "layernorm_after")}
    found = huggingface_state({"vit.embeddings.patch_embeddings.projection.weight": normal(2, 3, 4, 4), **given})
    assert {*found} < {*models.ViT(8, 4, 2, 1, 1, 2).state()}


def test_which_files_of_a_folder(tmp_path):
    """Formats of others may lie beside the model's own files."""
    kept = {"wte.weight": normal(5, 2), "wpe.weight": normal(4, 2)}
    wl.save({"tok_embeddings.weight": normal(5, 2)}, tmp_path / "consolidated.safetensors")
    for number, name in enumerate(kept, 1):
        wl.save({name: kept[name]}, tmp_path / f"model-0000{number}-of-00002.safetensors")
    model = models.gpt2(vocab_size=5, context=4, layers=1, heads=1, width=2)
    assert not models.load_huggingface(model, tmp_path, strict=False).unexpected
    np.testing.assert_array_equal(model.places.weight, kept["wpe.weight"])


def test_arrays_that_numpy_lacks():
    class Half:
        def __array__(self, *_args, **_options):
            raise TypeError("Got unsupported ScalarType BFloat16")

    with pytest.raises(wl.ArgumentError, match=r"wte\.weight isn't an array .* Write value\.float\(\)"):
        huggingface_state({"wte.weight": Half()})
