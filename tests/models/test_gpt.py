"""GPT: published numbers of parameters, causality, training, generation with and without caches, what errors say."""

from itertools import product

import numpy as np
import pytest

import wonderland as wl
from wonderland import models, train

SIZES = {"vocab_size": 17, "context": 8, "layers": 2, "heads": 4, "width": 16}
KINDS = {
    "gpt2": {},
    "llama": {"positions": "rotary", "kv_heads": 2, "norm": "rms", "gated": True, "activation": "silu", "bias": False,
              "tied": False},
    "rotary window": {"positions": "rotary", "window": 3},
    "relative": {"positions": "relative", "layers": 1},
    "sinusoidal parallel": {"positions": "sinusoidal", "order": "parallel", "layers": 1},
    "alibi post": {"positions": "alibi", "order": "post", "layers": 1},
}  # fmt: skip


def make(name="gpt2", **options):
    """With large weights, so that logits differ."""
    model = models.GPT(**{**SIZES, **KINDS[name], **options}, key=wl.random.key(5))
    for _, p in model.named_parameters():
        if p.ndim == 2:
            p *= 10
    return model


@pytest.mark.usefixtures("undrawn")
def test_published_numbers_of_parameters():
    """GPT-2 with one of its 12 layers, each of 7,087,872."""
    assert sum(p.size for p in models.gpt2(layers=1).parameters()) == 124_439_808 - 11 * 7_087_872


def test_it_starts_as_gpt2_does():
    model = models.GPT(**{**SIZES, "width": 256, "layers": 8}, key=wl.random.key(0))
    assert model.tokens.weight.std() == pytest.approx(0.02, rel=0.05)
    assert model.blocks[0].attention.in_proj.weight.std() == pytest.approx(0.02, rel=0.05)
    assert model.blocks[7].feed.outer.weight.std() == pytest.approx(0.02 / 4, rel=0.05)
    assert not model.blocks[0].feed.inner.bias.any()
    loss = -np.mean(model.log_probability(np.arange(8)[None]))
    assert loss == pytest.approx(np.log(17), rel=0.1)


@pytest.mark.parametrize("name", KINDS)
def test_no_token_sees_what_follows(name):
    """Read off the pattern of the derivative with respect to the embedded tokens, for all values of them."""
    model = make(name, dtype=np.float64)

    def logits(x):
        for block in model.blocks:
            x = block(x)
        return model.logits(x if model.norm is None else model.norm(x))

    pattern = wl.sparse.jacobian_pattern(logits, model.tokens.weight[:8]).toarray()
    seen = pattern.reshape(8, 17, 8, 16).any(axis=(1, 3))
    i = np.arange(8)
    reach = 2 * (3 - 1) if "window" in name else 8  # through two layers
    np.testing.assert_array_equal(seen, (i[:, None] >= i) & (i[:, None] - i <= reach))


@pytest.mark.parametrize("name", KINDS)
def test_a_step_of_training(name):
    model = models.GPT(**{**SIZES, **KINDS[name], "layers": 1}, key=wl.random.key(0), dropout=0.1)
    tokens = np.tile(np.arange(8), (4, 1)) + np.arange(4)[:, None]
    optimizer = train.Adam(model, rate=1e-2)

    @wl.jit
    def step(model, optimizer):
        loss, grads = wl.value_and_grad(lambda m: -np.mean(m.log_probability(tokens)))(model)
        optimizer.update(model, grads)
        return loss

    losses = [step(model, optimizer) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]
    assert model.generate([3, 4, 5], 3, temperature=0).tolist() == [3, 4, 5, 6, 7, 8]


def test_tied_embeddings_are_one_parameter():
    tied, free = make(), make(tied=False)
    assert tied.head is None and free.head.weight.shape == (17, 16)
    assert len(free.parameters()) == len(tied.parameters()) + 1


# Generation ----------------------------------------------------------------------------------------------------------


def by_hand(model, prompt, count):
    """The most probable token, one after the other, of the latest tokens that fit."""
    text = list(prompt)
    for _ in range(count):
        latest = text if model.endless else text[-model.context :]
        text.append(int(np.argmax(model(np.array(latest))[-1])))
    return text


@pytest.mark.parametrize("name", KINDS)
def test_greedy_with_and_without_a_cache_past_the_context(name):
    model = make(name, layers=2 if name == "llama" else 1)
    for prompt in ([4], [8, 7, 6, 5, 4, 3, 2, 1]):
        wanted = by_hand(model, prompt, 12)
        assert model.generate(prompt, 12, temperature=0).tolist() == wanted
        assert model.generate(np.array(prompt), 12, temperature=0, cache=False).tolist() == wanted
    assert [*model.stream([1, 2, 3], 12, temperature=0)] == by_hand(model, [1, 2, 3], 12)[3:]
    assert model.training


def test_batches_of_different_lengths():
    model, prompts = make(), [[1, 2, 3], [4, 5, 6, 7, 8, 9], [1]]
    found = model.generate(prompts, 7, temperature=0)
    assert [row.tolist() for row in found] == [by_hand(model, prompt, 7) for prompt in prompts]
    assert model.generate([[1, 2], [3, 4]], 5, temperature=0).shape == (2, 7)


def test_stop_tokens():
    model = make("llama")
    whole = by_hand(model, [1, 2, 3], 12)
    stop = whole[6]
    end = whole.index(stop, 3) + 1
    assert model.generate([1, 2, 3], 12, temperature=0, stop=stop).tolist() == whole[:end]
    assert [*model.stream([1, 2, 3], 12, temperature=0, stop=[stop, 400])] == whole[3:end]
    found = model.generate([[1, 2, 3], [5, 6, 7]], 12, temperature=0, stop=stop)
    assert found[0].tolist() == whole[:end] + [stop] * (found.shape[1] - end)


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.2}, {"top_k": 4, "top_p": 0.8}],
    ids=str,
)
def test_samples_have_the_distribution(options):
    """Frequencies of 2 tokens in a row are those of the model's formula, within five standard deviations."""
    model = models.GPT(**{**SIZES, "vocab_size": 5, "layers": 1}, key=wl.random.key(5))
    for _, p in model.named_parameters():
        p *= 10 if p.ndim == 2 else 1
    n = 4000
    found = model.generate(np.full((n, 1), 2), 2, key=wl.random.key(1), **options)[:, 1:]
    seen = np.zeros((5, 5))
    np.add.at(seen, tuple(found.T), 1)
    first = allowed(model(np.array([2]))[-1], **options)
    wanted = np.array([first[a] * allowed(model(np.array([2, a]))[-1], **options) for a in range(5)])
    assert np.all(np.abs(seen - n * wanted) <= 5 * np.sqrt(n * wanted * (1 - wanted)) + 1e-9)
    again = model.generate(np.full((n, 1), 2), 2, key=wl.random.key(1), cache=False, **options)[:, 1:]
    np.testing.assert_array_equal(again, found)


def allowed(logits, temperature=1.0, top_k=None, top_p=None, min_p=None):
    """Probabilities of tokens, by sets."""
    p = np.exp(logits.astype(np.float64) / temperature)
    p /= p.sum()
    order = np.argsort(-p)
    keep = set(order[:top_k].tolist())
    if top_p is not None:
        rest, total = set(), 0.0
        inside = sum(p[i] for i in keep)
        for i in order[:top_k]:
            if total < top_p:
                rest.add(int(i))
            total += p[i] / inside
        keep &= rest
    if min_p is not None:
        keep &= {i for i in range(len(p)) if p[i] >= min_p * p.max()}
    p = np.array([p[i] if i in keep else 0.0 for i in range(len(p))])
    return p / p.sum()


def test_log_probability_and_perplexity():
    model = models.GPT(**{**SIZES, "vocab_size": 3, "layers": 1}, dtype=np.float64, key=wl.random.key(2))
    for _, p in model.named_parameters():
        p *= 10 if p.ndim == 2 else 1
    texts = np.array([(0, *rest) for rest in product(range(3), repeat=4)])
    found = model.log_probability(texts)
    assert found.shape == (81, 4)
    np.testing.assert_allclose(np.exp(found.sum(-1)).sum(), 1)  # of all texts that start so
    np.testing.assert_allclose(model.perplexity(texts[7]), np.exp(-found[7].mean()))
    model.tokens.weight[...] = 0
    np.testing.assert_allclose(model.perplexity(texts), 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.generate(np.arange(9), 3), r"the prompt has 9 tokens, the context is 8: keep .* prompt\[-8:\]"),
        (lambda m: m.generate([1, 17], 3), "the token 17, the vocabulary 0 to 16"),
        (lambda m: m.generate([[1, 2], [-1, 2]], 3), "the token -1"),
        (lambda m: m.generate([], 3), "at least one token"),
        (lambda m: m.generate(np.zeros((1, 1, 1), int), 3), r"got shape \(1, 1, 1\)"),
        (lambda m: m.generate([1], -1), "count is a number of tokens, got -1"),
        (lambda m: m.generate([1], 3, temperature=-1.0), "temperature is 0 .* got -1.0"),
        (lambda m: m.generate([1], 3, top_k=0), "top_k is .* got 0"),
        (lambda m: m.generate([1], 3, top_p=1.5), "top_p is .* got 1.5"),
        (lambda m: [*m.stream([[1], [2]], 3)], "stream takes one prompt"),
        (lambda m: m(np.arange(9)), r"T at most context=8, got \(9,\)"),
        (lambda m: m(np.array([3, 17])), r"tokens \(Embedding\): its table has rows 0 to 16, .* index 17"),
        (lambda m: m.log_probability(np.array([3, 17])), "vocabulary is 0 to 16, the last token is 17"),
        (lambda m: m.perplexity([[3, 4], [3, -1]]), "the last token is -1"),
        (lambda m: m.log_probability(np.array([3])), r"T at least 2, got \(1,\)"),
        (lambda m: models.GPT(**SIZES, positions="absolute"), "positions is one of"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(models.GPT(**SIZES))


def test_a_wrong_last_token_in_compiled_code():
    with pytest.raises(wl.CheckError, match="the last token is 17"):
        wl.jit(lambda m, tokens: m.log_probability(tokens))(models.GPT(**SIZES), np.array([3, 17]))


def test_prompts_are_integers():
    with pytest.raises(TypeError, match="a prompt has integers"):
        models.GPT(**SIZES).generate([1.0, 2.0], 3)


# Hugging Face's names; values are compared in peers/ ------------------------------------------------------------------


def test_names_of_hugging_face(tmp_path):
    model = models.gpt2(**SIZES)
    theirs = {}
    for name, value in model.state().items():
        for ours, other in (("tokens", "wte"), ("places", "wpe"), ("blocks", "h"), ("norm1", "ln_1"), ("norm2", "ln_2"),
                            ("attention.in_proj", "attn.c_attn"), ("attention.out_proj", "attn.c_proj"),
                            ("feed.inner", "mlp.c_fc"), ("feed.outer", "mlp.c_proj"), ("norm.", "ln_f.")):  # fmt: skip
            name = name.replace(ours, other)
        matrix = value.ndim == 2 and name not in ("wte.weight", "wpe.weight")
        theirs[f"transformer.{name}"] = np.ascontiguousarray(value.T) if matrix else value
    theirs["lm_head.weight"] = theirs["transformer.wte.weight"].copy()
    theirs["transformer.h.0.attn.bias"] = np.tril(np.ones((8, 8)))  # a mask, in old files
    wl.save(theirs, tmp_path / "model.safetensors")
    for source in (theirs, tmp_path / "model.safetensors", tmp_path):
        other = models.gpt2(**SIZES)
        models.load_huggingface(other, source)
        for name, value in model.state().items():
            np.testing.assert_array_equal(other.state()[name], value, err_msg=name)
    untied = {**theirs, "lm_head.weight": theirs["lm_head.weight"] + 1}
    with pytest.raises(wl.ArgumentError, match="make the model tied=False"):
        models.load_huggingface(models.gpt2(**SIZES), untied)
    models.load_huggingface(models.gpt2(**SIZES, tied=False), untied)
    with pytest.raises(wl.ArgumentError, match=r"these aren't weights of .*, but fc\.weight"):
        models.load_huggingface(model, {"fc.weight": np.zeros(3)})
    del theirs["transformer.h.1.ln_2.bias"]
    with pytest.raises(wl.ArgumentError, match=r"lacks blocks\.1\.norm2\.bias"):
        models.load_huggingface(model, theirs)


def test_options_that_are_no_options():
    """What came, and what there is; a stop token is never rounded."""
    model = make()
    for options, said in (
        ({"count": "5"}, "count is a number of tokens, got '5'"),
        ({"count": 2, "temperature": "1"}, "temperature is 0 .greedy. or a positive number, got '1'"),
        ({"count": 2, "stop": 1.5}, "stop is the number of a token, or several, got 1.5"),
        ({"count": 2, "temprature": 0}, "no option 'temprature'; it has temperature, top_k"),
    ):
        with pytest.raises(TypeError, match=said):
            model.generate([1, 2], **options)
    with pytest.raises(ValueError, match="single tokens beside them"):
        model.generate([[1], 2], 3)
    with pytest.raises(TypeError, match=r"call it outside of wl\.jit"):
        wl.jit(lambda prompt: model.generate(prompt, 2))(np.array([1, 2]))
    whole = model.generate([1, 2], 3, temperature=0)
    np.testing.assert_array_equal(model.generate([1, 2], 3, top_k=1.0, key=wl.random.key(0)), whole)
    np.testing.assert_array_equal(model.generate([1, 2], 3, temperature=0, stop={400, 401}), whole)


def test_texts_of_many_lengths_are_no_reason_for_a_warning(recwarn):
    """Each is compiled for a power of two, which isn't the user's to change."""
    model = models.Bigram(5)
    for count in (1, 2, 4, 8, 16, 32, 64):
        model.generate([1], count, temperature=0)
    assert not [str(warning.message) for warning in recwarn]
