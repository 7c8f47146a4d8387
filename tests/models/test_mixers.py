"""Models in which something else than attention mixes tokens: loops, published sizes, polynomials, training.

Values of whole models are compared with PyTorch and Hugging Face in peers/.
"""

from functools import partial

import numpy as np
import pytest
from fitting import count, fit

import wonderland as wl
from wonderland import models, nn
from wonderland.einops import rearrange

KEY = wl.random.key(0)


def normal(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def grown(make, layers):
    """Parameters of so many layers, from those of one and of two."""
    one, two = count(make(layers=1)), count(make(layers=2))
    return one + (layers - 1) * (two - one)


# Patches -------------------------------------------------------------------------------------------------------------


def test_patches_are_blocks_of_pixels():
    x = normal(32, 3, 64, 64, dtype=np.float32)
    patches = rearrange(x, "b c (h ph) (w pw) -> b (h w) (ph pw c)", ph=8, pw=8)
    assert patches.shape == (32, 64, 192)
    np.testing.assert_array_equal(patches[5, 8 * 2 + 3].reshape(8, 8, 3), np.moveaxis(x[5, :, 16:24, 24:32], 0, -1))
    layer = models.PatchEmbedding(64, 8, 5, key=KEY)
    weight = layer.projection.weight.transpose(0, 2, 3, 1).reshape(5, 192)
    np.testing.assert_allclose(layer(x), patches @ weight.T + layer.projection.bias, atol=1e-5)


def test_patches_of_oblong_images():
    x = normal(2, 1, 4, 6)
    tokens = models.PatchEmbedding((4, 6), (2, 3), 5, 1, key=KEY, dtype=np.float64)
    picture = models.PatchEmbedding((4, 6), (2, 3), 5, 1, flat=False, key=KEY, dtype=np.float64)
    assert tokens(x).shape == (2, 4, 5) and picture(x).shape == (2, 2, 2, 5)
    np.testing.assert_array_equal(picture(x).reshape(2, 4, 5), tokens(x))
    assert [*tokens.state()] == ["weight", "bias"]


# Token mixers against loops ------------------------------------------------------------------------------------------


def test_pooling_is_the_mean_of_neighbours_without_the_token():
    x = normal(2, 4, 5, 3)
    wanted = np.empty_like(x)
    for i in range(4):
        for j in range(5):
            window = x[:, max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2]
            wanted[:, i, j] = window.mean(axis=(1, 2)) - x[:, i, j]
    np.testing.assert_allclose(models.PoolMixer()(x), wanted, atol=1e-14)


def test_fourier_is_the_real_part_of_two_matrix_products():
    x = normal(2, 5, 6)
    matrix = lambda n: np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    mixer = models.FourierMixer()
    np.testing.assert_allclose(mixer(x), (matrix(5) @ x @ matrix(6)).real, atol=1e-12)
    assert mixer(x.astype(np.float32)).dtype == np.float32
    tangent, other = normal(2, 5, 6, seed=1), normal(2, 5, 6, seed=2)
    _, pull = wl.vjp(mixer, x)
    np.testing.assert_allclose(np.sum(pull(other)[0] * tangent), np.sum(other * mixer(tangent)))  # it is linear


def test_shift_moves_quarters_of_the_channels():
    x = normal(2, 3, 4, 9)
    found = models.spatial_shift(x)
    for i in range(3):
        for j in range(4):
            for c in range(9):
                step = [(-1, 0), (1, 0), (0, -1), (0, 1)][min(c // 2, 3)]
                source = min(max(i + step[0], 0), 2), min(max(j + step[1], 0), 3)
                np.testing.assert_array_equal(found[:, i, j, c], x[:, source[0], source[1], c])
    np.testing.assert_array_equal(wl.vmap(models.spatial_shift)(x), found)


def seen_by(layer, x):
    """Which of 16 tokens (columns) each token (row) of the result depends on."""
    pattern = wl.sparse.jacobian_pattern(lambda x: layer(x), x).toarray()
    return pattern.reshape(16, 8, 16, 8).any(axis=(1, 3))


def test_the_pattern_of_a_mixer_says_who_sees_whom():
    """Read off the derivative: a shift and pooling see neighbours, a token MLP sees everything."""
    x = normal(4, 4, 8)
    layers = {
        "pool": (models.PoolMixer(), 3 * 3),
        "shift": (models.ShiftMixer(8, dtype=np.float64), 4),
        "convolution": (models.ConvolutionMixer(8, dtype=np.float64), 9),
    }
    for name, (layer, seen) in layers.items():
        assert seen_by(layer, x)[5].sum() == seen, name  # (1, 1), inside
    assert seen_by(models.TokenMLP(16, 4, dtype=np.float64), x.reshape(16, 8)).all()


def test_spatial_gating_is_a_gate_linear_in_tokens():
    layer = models.SpatialGating(5, 6, key=KEY, dtype=np.float64)
    x = normal(2, 5, 6)
    np.testing.assert_allclose(layer(x), x[..., :3], rtol=1e-4)  # before training
    layer.mix.weight[...], layer.mix.bias[...] = normal(5, 5, seed=1), normal(5, seed=2)
    v = x[..., 3:]
    v = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-6)
    gate = np.einsum("nm,bmc->bnc", layer.mix.weight, v) + layer.mix.bias[:, None]
    np.testing.assert_allclose(layer(x), x[..., :3] * gate, atol=1e-12)


def gated_attention(unit, x, causal):
    """Token by token and pair by pair."""
    h = np.asarray(unit.norm(x))
    uvz = h @ unit.inner.weight.T + unit.inner.bias
    uvz = uvz / (1 + np.exp(-uvz))
    u, v, z = uvz[:, : unit.hidden], uvz[:, unit.hidden : 2 * unit.hidden], uvz[:, 2 * unit.hidden :]
    y = x.copy()
    for i in range(len(x)):
        keys = range(i + 1 if causal else len(x))
        total = np.zeros(unit.hidden)
        for j in keys:
            q, k = z[i] * unit.gains[0] + unit.offsets[0], z[j] * unit.gains[1] + unit.offsets[1]
            total += max(q @ k / len(keys), 0) ** 2 * v[j]
        y[i] += unit.outer.weight @ (u[i] * total) + unit.outer.bias
    return y


@pytest.mark.parametrize("causal", [False, True])
def test_gated_attention_unit(causal):
    unit = models.GAU(6, 8, 4, causal=causal, key=KEY, dtype=np.float64)
    unit.gains[...], unit.offsets[...] = normal(2, 4, seed=1), normal(2, 4, seed=2)
    x = normal(2, 5, 6, seed=3)
    found = wl.jit(unit)(x)
    np.testing.assert_allclose(found, [gated_attention(unit, row, causal) for row in x], atol=1e-12)
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    np.testing.assert_allclose(unit(x, mask=mask)[1, :3], unit(x[1, :3]), atol=1e-12)
    if causal:
        np.testing.assert_allclose(found[:, :3], unit(x[:, :3]), atol=1e-12)
    else:
        order = [3, 0, 4, 1, 2]
        np.testing.assert_allclose(unit(x[:, order]), found[:, order], atol=1e-12)


def test_gated_attention_with_positions():
    rotary, bias = nn.Rotary(4), nn.RelativeBias(1, 4, 8, key=KEY, dtype=np.float64)
    unit = models.GAU(6, 8, 4, rotary=rotary, position_bias=bias, key=KEY, dtype=np.float64)
    x, order = normal(5, 6), [3, 0, 4, 1, 2]
    assert np.abs(unit(x[order]) - unit(x)[order]).max() > 1e-3
    with pytest.raises(ValueError, match="1 heads, its position_bias 2"):
        models.GAU(6, position_bias=nn.RelativeBias(2))


def test_a_mu_layer_is_a_polynomial_of_degree_two():
    layer = models.MuLayer(4, 6, 2, shift=True, key=KEY, dtype=np.float64)
    x, v = normal(3, 3, 4), normal(3, 3, 4, seed=1)
    at = [np.asarray(layer(x + t * v)) for t in (-1, 0, 1, 2)]
    np.testing.assert_allclose(at[3] - 3 * at[2] + 3 * at[1] - at[0], 0, atol=1e-12)  # the third difference
    assert np.abs(at[2] - 2 * at[1] + at[0]).max() > 1e-2  # the second
    plain = models.MuLayer(4, 6, 2, key=KEY, dtype=np.float64)
    a = x @ plain.a.weight.T + plain.a.bias
    low = (x @ plain.d.weight.T + plain.d.bias) @ plain.b.weight.T + plain.b.bias
    np.testing.assert_allclose(plain(x), (a * low + a) @ plain.c.weight.T + plain.c.bias, atol=1e-12)


# Whole models --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("undrawn")
def test_published_numbers_of_parameters():
    """Mixer-B/16, gMLP-S and PoolFormer-S12."""
    assert grown(models.Mixer, 12) == 59_880_472
    assert grown(models.GMLP, 30) == 19_422_656
    assert count(models.MetaFormer()) == 11_915_176


SMALL = {
    "mixer": partial(models.Mixer, 8, 4, 3, 2, 16, channels=1, drop=0.1),
    "s2mlp": partial(models.S2MLP, 8, 2, 3, 2, 16, channels=1),
    "gmlp": partial(models.GMLP, 8, 4, 3, 2, 8, channels=1),
    "monet": partial(models.MONet, 8, 2, 3, 2, 8, channels=1),
    "mixed stages": partial(
        models.MetaFormer, ((8, 1),) * 5, ["pool", "fourier", "convolution", "shift", "attention"], 3, channels=1,
        patch=(3, 1, 1), smaller=(1, 1, 0), scale=None,
    ),
    "poolformer": partial(models.MetaFormer, ((8, 1), (16, 1)), classes=3, channels=1, scale=0.1, patch=(3, 2, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_a_model_learns(name):
    """Eager and jitted alike, one image as in a batch, and the loss of one batch falls."""
    model = SMALL[name](key=KEY)
    x, y = normal(6, 1, 8, 8, dtype=np.float32), np.arange(6) % 3
    with nn.evaluating(model):
        logits = model(x)
        assert logits.shape == (6, 3) and logits.dtype == np.float32
        np.testing.assert_allclose(model(x.reshape(2, 3, 1, 8, 8)).reshape(6, 3), logits, atol=1e-5)
        np.testing.assert_allclose(model(x[0]), logits[0], atol=1e-5)
    losses = fit(model, lambda m: nn.cross_entropy(m(x), y), 40)
    if name != "mixer":  # which drops branches
        np.testing.assert_allclose(losses[0], nn.cross_entropy(logits, y), rtol=1e-4)
    assert np.mean(losses[-3:]) < 0.5 * losses[0]


def test_attention_in_a_metaformer_is_a_transformer_block():
    """The same weights in `nn.TransformerBlock`, on the tokens of the picture."""
    model = models.MetaFormer(((64, 1),), "attention", 3, norm="layer", scale=None, key=KEY, dtype=np.float64)
    block = nn.TransformerBlock(64, 2, dtype=np.float64)
    ours = model.stages[0][0]
    block.load_state({name.replace("mixer", "attention"): value for name, value in ours.state().items()})
    x = normal(2, 3, 2, 64)
    np.testing.assert_allclose(ours(x), block(x.reshape(2, 6, 64)).reshape(x.shape), atol=1e-12)


def test_a_model_without_weights_of_places_takes_any_size():
    model = models.MetaFormer(((8, 1), (16, 1)), classes=3, channels=1, key=KEY)
    assert model(normal(2, 1, 16, 24, dtype=np.float32)).shape == (2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.PatchEmbedding(8, 3, 4), "size=8 isn't a multiple of patch=3"),
        (lambda: models.Mixer(8, 4, 3, 1, 8)(np.zeros((3, 8, 9))), r"patches \(PatchEmbedding\): .*\(..., 3, 8, 8\)"),
        (lambda: models.TokenMLP(4, 8)(np.zeros((5, 8))), r"with 4 tokens, got \(5, 8\)"),
        (lambda: models.SpatialGating(4, 8)(np.zeros((5, 8))), r"with 4 tokens, got \(5, 8\)"),
        (lambda: models.SpatialGating(4, 7), "width=7 has no halves"),
        (lambda: models.PoolMixer(2), "kernel is odd"),
        (lambda: models.spatial_shift(np.zeros((4, 8))), r"\(..., H, W, C\), got shape \(4, 8\)"),
        (lambda: models.MetaFormer(mixer="pooling"), "one of .*'pool', .*got 'pooling'"),
        (lambda: models.MetaFormer(mixer=["pool"]), "1 mixers for 4 stages"),
        (lambda: models.MetaFormerBlock(8, nn.Identity(), order="parallel"), "order is"),
        (lambda: models.MetaFormer(((8, 1),))(np.zeros((1, 8, 8))), r"\(..., 3, height, width\), got \(1, 8, 8\)"),
        (lambda: models.GAU(8)(np.zeros((3, 7))), r"\(..., T, 8\), got \(3, 7\)"),
        (lambda: models.FourierMixer()(np.zeros(3)), r"\(..., T, width\), got \(3,\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("mixer", ["pool", "fourier", "convolution", "shift", "attention"])
def test_a_batch_of_none_and_lists(mixer):
    model = models.MetaFormer([(8, 1)], mixer, 3, channels=1, patch=(2, 2, 0), key=wl.random.key(0))
    assert model(np.zeros((0, 1, 4, 4), np.float32)).shape == (0, 3)
    np.testing.assert_allclose(model([[[1.0] * 4] * 4]), model(np.ones((1, 4, 4))))
