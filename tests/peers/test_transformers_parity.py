"""GPT, Encoder and ViT against Hugging Face's models of random weights, which load: values, gradients, generation."""

import copy
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import wonderland as wl  # noqa: E402
from wonderland import models, nn  # noqa: E402
from wonderland.models.huggingface import huggingface_state  # noqa: E402

pytestmark = pytest.mark.peers

DTYPES = {"float32": 1e-4, "float64": 1e-9}
SIZES = {"vocab_size": 31, "context": 12, "layers": 2, "heads": 4, "width": 16}
LARGE = 8.0  # times the initial weights: logits that differ


def exact(model):
    """Angles and norms in the model's dtype: theirs are in single precision, whatever that is."""
    for norm in [m for m in model.modules() if type(m).__name__ == "LlamaRMSNorm"]:
        norm.forward = lambda x, n=norm: torch.nn.functional.rms_norm(x, x.shape[-1:], n.weight, n.variance_epsilon)
    inner = model.model.rotary_emb
    config = model.config.rope_parameters
    width = model.config.head_dim
    frequencies = torch.tensor(nn.Rotary(width, config["rope_theta"], scaling=config).frequencies())
    np.testing.assert_allclose(inner.inv_freq.numpy(), frequencies.numpy(), rtol=1e-6)

    def forward(x, position_ids):
        angles = position_ids[..., None].double() * frequencies
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)

    inner.forward = forward
    return model


def their_gpt2(**options):
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=31, n_positions=12, n_embd=16, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0,
            **options,
        )
    )  # fmt: skip


def their_llama(**options):
    return exact(
        transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=31, max_position_embeddings=12, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, **options,
            )
        )
    )  # fmt: skip


LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8}  # fmt: skip
OUR_LLAMA = {**SIZES, "kv_heads": 2, "hidden": 24, "eps": 1e-6}
LANGUAGE = {
    "gpt2": (their_gpt2, lambda **k: models.gpt2(**SIZES, **k)),
    "llama": (their_llama, lambda **k: models.llama(**OUR_LLAMA, **k)),
    "llama3, tied": (
        lambda: their_llama(rope_parameters=LLAMA3, tie_word_embeddings=True),
        lambda **k: models.llama(**OUR_LLAMA, rotary={"base": 100.0, "scaling": LLAMA3}, tied=True, **k),
    ),
}


def pair(theirs, ours, folder, dtype):
    """Both with the same weights, through a file."""
    torch.manual_seed(0)
    theirs = theirs()
    with torch.no_grad():
        for p in theirs.parameters():
            if p.ndim >= 2:
                p.mul_(LARGE)
            else:
                p.add_(0.1 * torch.randn_like(p))
    theirs = theirs.to(getattr(torch, dtype)).eval()
    theirs.save_pretrained(folder)
    ours = ours(dtype=dtype)
    models.load_huggingface(ours, folder)
    return theirs, ours


def check_gradients(theirs, ours, loss_of_theirs, loss, folder, limit):
    """Through a file as well, so that names are the files'."""
    value, grads = wl.jit(wl.value_and_grad(loss))(ours)
    found = loss_of_theirs(theirs)
    np.testing.assert_allclose(value, found.item(), rtol=limit)
    found.backward()
    copied = copy.deepcopy(theirs)
    for p, q in zip(copied.parameters(), theirs.parameters(), strict=True):
        p.data = torch.zeros_like(q) if q.grad is None else q.grad
    copied.save_pretrained(folder)
    wanted = huggingface_state(wl.load(Path(folder) / "model.safetensors"))
    ours = grads.state()
    assert {name for name in ours if not name.endswith("key")} <= wanted.keys()
    for name, value in ours.items():
        if value is not None:
            scale = np.abs(wanted[name]).max()
            np.testing.assert_allclose(value, wanted[name], rtol=0, atol=limit * max(scale, 1), err_msg=name)


def cross_entropy(logits, labels):
    """In the dtype of the logits: a model's own loss is in single precision."""
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), torch.from_numpy(labels).flatten())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LANGUAGE)
def test_language_models(name, dtype, tmp_path):
    theirs, ours = pair(*LANGUAGE[name], tmp_path, dtype)
    limit = DTYPES[dtype]
    tokens = np.random.default_rng(0).integers(0, 31, (3, 12))
    with torch.no_grad():
        logits = theirs(torch.from_numpy(tokens)).logits.numpy()
    np.testing.assert_allclose(ours(tokens), logits, rtol=limit, atol=limit)
    np.testing.assert_allclose(wl.jit(ours)(tokens), logits, rtol=limit, atol=limit)
    check_gradients(
        theirs, ours, lambda m: cross_entropy(m(torch.from_numpy(tokens)).logits[:, :-1], tokens[:, 1:]),
        lambda m: -np.mean(m.log_probability(tokens)), tmp_path / "grads", limit,
    )  # fmt: skip


@pytest.mark.parametrize("name", LANGUAGE)
def test_generation_token_by_token(name, tmp_path):
    theirs, ours = pair(*LANGUAGE[name], tmp_path, "float64")
    prompts = np.array([[1, 2, 3], [7, 5, 30]])
    for cache in (True, False):
        with torch.no_grad():
            wanted = theirs.generate(
                torch.from_numpy(prompts), attention_mask=torch.ones(2, 3), max_new_tokens=9, do_sample=False,
                use_cache=cache, eos_token_id=None, pad_token_id=0,
            )  # fmt: skip
        np.testing.assert_array_equal(ours.generate(prompts, 9, temperature=0, cache=cache), wanted.numpy())
    penalized = theirs.generate(
        torch.from_numpy(prompts), attention_mask=torch.ones(2, 3), max_new_tokens=9, do_sample=False,
        repetition_penalty=1.7, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    np.testing.assert_array_equal(ours.generate(prompts, 9, temperature=0, repetition_penalty=1.7), penalized.numpy())
    searched = theirs.generate(
        torch.from_numpy(prompts[:1]), attention_mask=torch.ones(1, 3), max_new_tokens=9, do_sample=False, num_beams=3,
        num_return_sequences=3, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    found = models.beam_search(ours, prompts[0], 9, beams=3)
    np.testing.assert_array_equal([beam.tokens for beam in found], searched.numpy())


def test_restrictions_of_sampling():
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    from wonderland.models.generation import Sampling, restricted

    logits = np.random.default_rng(0).normal(size=(20, 31)) * 3
    numbers = {"top_p": 0.7, "min_p": 0.1}
    for ours, theirs in [
        (Sampling(False, 5, False, False, False), [TopKLogitsWarper(5)]),
        (Sampling(False, None, True, False, False), [TopPLogitsWarper(0.7)]),
        (Sampling(False, None, False, True, False), [MinPLogitsWarper(0.1)]),
        (Sampling(False, 8, True, False, False), [TopKLogitsWarper(8), TopPLogitsWarper(0.7)]),
    ]:
        wanted = torch.from_numpy(logits.copy())
        for warper in theirs:
            wanted = warper(None, wanted)
        np.testing.assert_array_equal(restricted(logits, ours, numbers), wanted.numpy())


def their_bert(kind, **options):
    return kind(
        transformers.BertConfig(
            vocab_size=31, max_position_embeddings=12, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **options,
        )
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_language_model(dtype, tmp_path):
    theirs, ours = pair(
        lambda: their_bert(transformers.BertForMaskedLM), lambda **k: models.Encoder(**SIZES, hidden=24, **k), tmp_path,
        dtype,
    )  # fmt: skip
    limit, rng = DTYPES[dtype], np.random.default_rng(0)
    tokens = rng.integers(1, 31, (3, 12))  # theirs takes no derivative of the embedding of 0
    kinds, labels = rng.integers(0, 2, (3, 12)), rng.integers(0, 31, (3, 12))
    mask = np.arange(12) < np.array([12, 9, 5])[:, None]
    given = {"token_type_ids": torch.from_numpy(kinds), "attention_mask": torch.from_numpy(mask.astype(int))}
    with torch.no_grad():
        logits = theirs(torch.from_numpy(tokens), **given).logits.numpy()
    np.testing.assert_allclose(ours(tokens, kinds, mask=mask)[mask], logits[mask], rtol=limit, atol=limit)
    check_gradients(
        theirs, ours, lambda m: cross_entropy(m(torch.from_numpy(tokens), **given).logits, labels),
        lambda m: nn.cross_entropy(m(tokens, kinds, mask=mask).reshape(-1, 31), labels.reshape(-1)),
        tmp_path / "grads", limit,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_pooled_encoder(dtype, tmp_path):
    theirs, ours = pair(
        lambda: their_bert(transformers.BertModel),
        lambda **k: models.Encoder(**SIZES, hidden=24, head=False, pooler=True, **k), tmp_path, dtype,
    )  # fmt: skip
    tokens = np.random.default_rng(0).integers(0, 31, (3, 12))
    with torch.no_grad():
        found = theirs(torch.from_numpy(tokens))
    limit = DTYPES[dtype]
    np.testing.assert_allclose(ours(tokens), found.last_hidden_state.numpy(), rtol=limit, atol=limit)
    np.testing.assert_allclose(ours.pooled(tokens), found.pooler_output.numpy(), rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", DTYPES)
def test_vision_transformer(dtype, tmp_path):
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_labels=5,
    )  # fmt: skip
    theirs, ours = pair(
        lambda: transformers.ViTForImageClassification(config),
        lambda **k: models.ViT(8, 4, 5, 2, 4, 16, hidden=24, **k), tmp_path, dtype,
    )  # fmt: skip
    limit = DTYPES[dtype]
    x, y = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(dtype), np.array([1, 4, 0])
    with torch.no_grad():
        np.testing.assert_allclose(ours(x), theirs(torch.from_numpy(x)).logits.numpy(), rtol=limit, atol=limit)
    check_gradients(
        theirs, ours, lambda m: cross_entropy(m(torch.from_numpy(x)).logits, y),
        lambda m: nn.cross_entropy(m(x), y), tmp_path / "grads", limit,
    )  # fmt: skip
