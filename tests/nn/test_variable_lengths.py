"""Samples of different lengths: results and derivatives are those of each sample alone, whatever the padding holds."""

import copy

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn

JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])
LENGTHS = [17, 9, 20, 12]
SIZE = 20
FILLS = [0.0, 7.0, np.nan, np.inf]
EACH_FILL = pytest.mark.parametrize("fill", FILLS)


def samples(channels, lengths=LENGTHS, last=False):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, channels) if last else (channels, n)) for n in lengths]


def batch(parts, fill, last=False, size=SIZE):
    axis = 0 if last else 1
    pads = [[(0, size - x.shape[a]) if a == axis else (0, 0) for a in (0, 1)] for x in parts]
    return np.stack([np.pad(x, pad, constant_values=fill) for x, pad in zip(parts, pads, strict=True)])


def f64(kind, *args, **options):
    return kind(*args, **options, dtype=np.float64, key=wl.random.key(1))


MODELS = {
    "conv": lambda: [f64(nn.Conv1d, 3, 4, 3)],
    "conv padded": lambda: [f64(nn.Conv1d, 3, 4, 3, padding=1), nn.tanh],
    "conv one side": lambda: [f64(nn.Conv1d, 3, 4, 4, padding=[(2, 1)], stride=3)],
    "conv same": lambda: [f64(nn.Conv1d, 3, 4, 4, padding="same", dilation=2), nn.sigmoid, f64(nn.Conv1d, 4, 2, 3)],
    "conv causal": lambda: [f64(nn.Conv1d, 3, 4, 3, padding="causal", stride=2)],
    "conv strided": lambda: [f64(nn.Conv1d, 3, 4, 5, stride=3, padding=2, dilation=2)],
    "transposed": lambda: [f64(nn.ConvTranspose1d, 3, 4, 4, stride=3, padding=1, output_padding=2), nn.tanh],
    "transposed plain": lambda: [f64(nn.ConvTranspose1d, 3, 2, 3), f64(nn.Conv1d, 2, 2, 3)],
    "max": lambda: [nn.MaxPool1d(3)],
    "max padded": lambda: [nn.MaxPool1d(3, 2, 1), f64(nn.Conv1d, 3, 4, 2)],
    "max ceil": lambda: [nn.MaxPool1d(4, 3, 1, ceil_mode=True)],
    "max dilated": lambda: [nn.MaxPool1d(2, 2, dilation=3)],
    "mean": lambda: [nn.AvgPool1d(3, 2, 1)],
    "mean of real": lambda: [nn.AvgPool1d(3, 2, 1, count_include_pad=False)],
    "sum": lambda: [nn.SumPool1d(2), nn.SumPool1d(3, 1, 1)],
    "sum ceil": lambda: [nn.SumPool1d(3, 2, ceil_mode=True)],
    "group": lambda: [nn.GroupNorm(3, 3, dtype=np.float64), f64(nn.Conv1d, 3, 4, 3)],
    "group of one": lambda: [f64(nn.Conv1d, 3, 4, 3, padding=1), nn.GroupNorm(1, 4, dtype=np.float64)],
    "instance": lambda: [nn.InstanceNorm1d(3, affine=True, dtype=np.float64)],
    "residual": lambda: [
        nn.Residual(nn.Sequential(f64(nn.Conv1d, 3, 3, 3, padding=1), nn.tanh)),
        nn.Residual(f64(nn.Conv1d, 3, 4, 3, stride=2), f64(nn.Conv1d, 3, 4, 3, stride=2), scale=0.5),
    ],
    "deep": lambda: [
        nn.Sequential(f64(nn.Conv1d, 3, 6, 3, stride=2, padding=1), nn.relu),
        nn.MaxPool1d(2), nn.GroupNorm(2, 6, dtype=np.float64), f64(nn.Conv1d, 6, 4, 2), nn.GlobalAvgPool(1),
        f64(nn.Linear, 4, 2),
    ],
    "global max": lambda: [f64(nn.Conv1d, 3, 4, 3), nn.GlobalMaxPool(1), nn.tanh],
    "global sum": lambda: [f64(nn.Conv1d, 3, 4, 3, padding=2), nn.GlobalSumPool(1)],
}  # fmt: skip


@JIT
@pytest.mark.parametrize("name", MODELS)
def test_each_sample_is_as_if_alone(name, jit):
    model, parts = nn.Masked(*MODELS[name]()), samples(3)
    plain = nn.Sequential(*model.layers)
    assert list(plain.state()) == list(model.state())
    mask = nn.length_mask(np.array(LENGTHS), SIZE)
    alone = lambda model, x: np.sum(np.sin(model(x)))
    values = [plain(part[None])[0] for part in parts]
    grads = [wl.grad(alone, (0, 1))(plain, part[None]) for part in parts]
    of_parameters = [dict(g.named_parameters()) for g, _ in grads]
    call = jit(lambda model, x, mask: model(x, mask))
    gradient = jit(wl.grad(lambda model, x, mask: np.sum(np.sin(model(x, mask)[0])), (0, 1)))
    for fill in FILLS:
        x = batch(parts, fill)
        y, after = call(model, x, mask)
        for expected, found, real in zip(values, y, [None] * 4 if after is None else after, strict=True):
            if real is None:
                np.testing.assert_allclose(found, expected, atol=1e-12)
            else:
                assert real.sum() == expected.shape[-1] and real[: real.sum()].all()
                np.testing.assert_allclose(found[:, real], expected, atol=1e-12)
                assert not found[:, ~real].any()
        if after is not None:
            np.testing.assert_array_equal(nn.mask_after(plain, mask), after)
            np.testing.assert_array_equal(nn.mask_after(model, mask), after)

        of_model, of_x = gradient(model, x, mask)
        for i, (_, expected) in enumerate(grads):
            np.testing.assert_allclose(of_x[i][:, mask[i]], expected[0], atol=1e-12)
            assert not of_x[i][:, ~mask[i]].any()
        for parameter, found in of_model.named_parameters():
            np.testing.assert_allclose(found, sum(own[parameter] for own in of_parameters), atol=1e-11)


@EACH_FILL
def test_positions_that_layers_act_on_one_by_one(fill):
    layers = [
        f64(nn.Linear, 3, 5), nn.LayerNorm(5, dtype=np.float64), nn.gelu, f64(nn.Conv1d, 5, 4, 3, channels_last=True),
        nn.RMSNorm(4, dtype=np.float64), nn.AvgPool1d(2, channels_last=True), nn.GlobalAvgPool(1, channels_last=True),
    ]  # fmt: skip
    parts = samples(3, last=True)
    y, after = nn.Masked(*layers, channels_last=True)(batch(parts, fill, last=True), nn.length_mask(LENGTHS, SIZE))
    assert after is None
    np.testing.assert_allclose(y, [nn.Sequential(*layers)(part[None])[0] for part in parts], atol=1e-12)


def test_embedded_words():
    layers = [
        f64(nn.Embedding, 10, 4),
        f64(nn.Conv1d, 4, 3, 3, channels_last=True),
        nn.GlobalMaxPool(1, channels_last=True),
    ]
    words = [np.array([1, 5, 9, 2]), np.array([3, 3, 7, 1, 0, 2]), np.array([4, 4, 4])]
    x = np.full((3, 6), 9)
    for row, word in zip(x, words, strict=True):
        row[: len(word)] = word
    y, _ = nn.Masked(*layers, channels_last=True)(x, nn.length_mask([4, 6, 3]))
    np.testing.assert_allclose(y, [nn.Sequential(*layers)(word[None])[0] for word in words], atol=1e-12)


@JIT
@EACH_FILL
def test_images_of_different_sizes(fill, jit):
    rng = np.random.default_rng(0)
    sizes = [(9, 12), (12, 7), (8, 8)]
    images = [rng.standard_normal((2, *size)) for size in sizes]
    x = np.full((3, 2, 12, 12), fill)
    mask = np.zeros((3, 12, 12), bool)
    for i, (h, w) in enumerate(sizes):
        x[i, :, :h, :w], mask[i, :h, :w] = images[i], True
    layers = [
        f64(nn.Conv2d, 2, 4, 3, stride=(2, 1), padding=1), nn.relu, nn.MaxPool2d(2),
        nn.GroupNorm(2, 4, dtype=np.float64), nn.AvgPool2d(2, 1, 1, count_include_pad=False), nn.GlobalAvgPool(),
    ]  # fmt: skip
    y, _ = jit(lambda m, x, mask: m(x, mask))(nn.Masked(*layers), x, mask)
    np.testing.assert_allclose(y, [nn.Sequential(*layers)(image[None])[0] for image in images], atol=1e-12)


@JIT
@EACH_FILL
def test_batch_norm_counts_real_positions(fill, jit):
    parts = samples(3)
    model = nn.Masked(nn.BatchNorm1d(3, dtype=np.float64), f64(nn.Conv1d, 3, 2, 3), nn.BatchNorm1d(2, dtype=np.float64))
    other, plain = copy.deepcopy(model), copy.deepcopy(model)
    mask = nn.length_mask(LENGTHS, SIZE)
    loss = lambda model, x, mask: np.sum(np.cos(model(x, mask)[0]) * model(x, mask)[1][:, None])
    y, after = jit(lambda m, x, mask: m(x, mask))(model, batch(parts, fill), mask)

    joined = plain.layers[0](np.concatenate(parts, 1).T).T  # all positions as one batch
    inner = [plain.layers[1](part[None])[0] for part in np.split(joined, np.cumsum(LENGTHS)[:-1], axis=1)]
    expected = plain.layers[2](np.concatenate(inner, 1).T).T
    np.testing.assert_allclose(
        np.concatenate([a[:, m] for a, m in zip(y, after, strict=True)], 1), expected, atol=1e-12
    )
    for name, value in plain.state().items():
        np.testing.assert_allclose(model.state()[name], value, err_msg=name)
    of_fill = wl.grad(loss, 1)(copy.deepcopy(other), batch(parts, fill), mask)
    np.testing.assert_allclose(of_fill, wl.grad(loss, 1)(copy.deepcopy(other), batch(parts, 0.0), mask), atol=1e-12)
    assert not np.moveaxis(of_fill, 1, -1)[~mask].any()
    model.eval()
    y, after = model(batch(parts, fill), mask)
    alone = nn.Sequential(*model.layers)
    for part, found, real in zip(parts, y, after, strict=True):
        np.testing.assert_allclose(found[:, real], alone(part[None])[0], atol=1e-12)


# Pooling of positions ------------------------------------------------------------------------------------------------


@JIT
@EACH_FILL
def test_masked_pooling(fill, jit):
    parts, mask = samples(3), nn.length_mask(LENGTHS, SIZE)
    x = batch(parts, fill)
    for pool, plain in ((nn.masked_mean, np.mean), (nn.masked_max, np.max), (nn.masked_sum, np.sum)):
        expected = np.stack([plain(part, 1) for part in parts])
        np.testing.assert_allclose(jit(pool)(x, mask), expected)
        last = jit(lambda x, mask, pool=pool: pool(x, mask, channels_last=True))
        np.testing.assert_allclose(last(np.moveaxis(x, 1, -1), mask), expected)
        grads = jit(wl.grad(lambda x, pool=pool: np.sum(np.sin(pool(x, mask)))))(x)
        assert np.isfinite(grads).all() and not np.moveaxis(grads, 1, -1)[~mask].any()
        wl.testing.check_grads(lambda x, pool=pool: pool(x, mask), (batch(parts, 0.3),), order=2)


def test_nothing_to_pool_is_zero():
    x, mask = np.full((2, 3, 4), np.nan), np.zeros((2, 4), bool)
    for pool in (nn.masked_mean, nn.masked_max, nn.masked_sum):
        assert not pool(x, mask).any()
        assert not wl.grad(lambda x, pool=pool: np.sum(pool(x, mask)))(x).any()
    assert nn.masked_max(np.array([[[3, 1, 2]]]), np.array([[False, True, True]])) == 2


@JIT
def test_length_mask(jit):
    expected = [[True, True, False, False], [False] * 4, [True] * 4]
    assert np.array_equal(jit(lambda n: nn.length_mask(n, 4))(np.array([2, 0, 4])), expected)
    assert np.array_equal(nn.length_mask([2, 0, 4]), expected)


# What is wrong -------------------------------------------------------------------------------------------------------


class Mixing(nn.Module):
    def __init__(self):
        self.conv = nn.Conv1d(3, 3, 3)

    def __call__(self, x):
        return self.conv(x)


class Every(nn.Module):
    """Takes every second position, and says so."""

    def __call__(self, x):
        return x[..., ::2]

    def mask_after(self, mask):
        return mask[:, ::2]


def test_layers_of_your_own():
    parts, mask = samples(3), nn.length_mask(LENGTHS, SIZE)
    y, after = nn.Masked(Every(), f64(nn.Conv1d, 3, 2, 3))(batch(parts, np.nan), mask)
    plain = nn.Sequential(Every(), f64(nn.Conv1d, 3, 2, 3))
    for part, found, real in zip(parts, y, after, strict=True):
        np.testing.assert_allclose(found[:, real], plain(part[None])[0], atol=1e-12)
    with pytest.raises(TypeError, match=r"Mixing.*, which holds a Conv1d, doesn't say"):
        nn.Masked(Mixing())(batch(parts, 0.0), mask)


def test_bad_arguments():
    x, mask = np.zeros((2, 3, 8)), np.ones((2, 8), bool)
    for layer in (nn.Flatten(), nn.AdaptiveAvgPool1d(2), nn.Upsample(4)):
        with pytest.raises(TypeError, match="doesn't say what becomes of a mask"):
            nn.Masked(layer)(x, mask)
    with pytest.raises(ValueError, match="repeats elements at the end"):
        nn.Masked(nn.Conv1d(3, 3, 3, padding=1, padding_mode="circular", dtype=np.float64))(x, mask)
    with pytest.raises(ValueError, match="channels_last=True"):
        nn.Masked(nn.Linear(8, 2, dtype=np.float64))(x, mask)
    with pytest.raises(ValueError, match="channels_last=True"):
        nn.Masked(nn.LayerNorm(8, dtype=np.float64))(x, mask)
    with pytest.raises(ValueError, match="ceil_mode"):
        nn.Masked(nn.AvgPool1d(3, ceil_mode=True))(x, mask)
    with pytest.raises(ValueError, match="don't fit"):
        nn.Masked(nn.relu)(x, np.ones((2, 7), bool))
    for pool in (nn.GlobalAvgPool, nn.GlobalMaxPool, nn.GlobalSumPool):
        with pytest.raises(ValueError, match=r"\(Global.*1 spatial axes .* expected.*this layer has 2"):
            nn.Masked(pool())(x, mask)  # images by default: the channels would be positions
    with pytest.raises(ValueError, match="don't fit"):
        nn.masked_mean(x, np.ones((2, 1), bool))  # one position, which would be counted once for eight
    with pytest.raises(TypeError, match="bools"):
        nn.masked_mean(x, np.ones((2, 8)))
    with pytest.raises(TypeError, match="bools"):
        nn.mask_after(nn.relu, np.ones((2, 8)))
    with pytest.raises(ValueError, match="without the channels"):
        nn.masked_mean(x, np.ones((2, 3, 8), bool))
    with pytest.raises(ValueError, match=r"mask has shape \(2, 8\), not \(2, 7\)"):
        nn.BatchNorm1d(3, dtype=np.float64)(x, np.ones((2, 7), bool))
    with pytest.raises(TypeError, match="integers"):
        nn.length_mask(np.array([1.5]))
