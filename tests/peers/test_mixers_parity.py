"""Mixers against PyTorch's layers and Hugging Face's PoolFormer, FNet and Perceiver, with weights drawn there."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers.models.perceiver.modeling_perceiver import generate_fourier_features  # noqa: E402

import wonderland as wl  # noqa: E402
from wonderland import models  # noqa: E402

pytestmark = pytest.mark.peers

DTYPES = {"float32": 1e-4, "float64": 1e-9}
functional = torch.nn.functional


def draw(model, dtype):
    """Weights that matter, and none that is 0 or 1."""
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape) + (1.0 if p.ndim == 1 else 0.0))
    return model.to(getattr(torch, dtype)).eval()


def named(theirs, table):
    """Their arrays by our names: `table` has parts of theirs, and what they are here."""
    state = {}
    for name, value in theirs.items():
        for old, new in table:
            name = name.replace(old, new)
        state[name] = value.detach().numpy()
    return state


def load(ours, state):
    """A convolution 1 x 1 is a matrix."""
    shapes = {name: value.shape for name, value in ours.state().items()}
    ours.load_state({name: value.reshape(shapes.get(name, value.shape)) for name, value in state.items()})
    return ours


def agree(ours, theirs, state_of, x, limit):
    """Values, eager and jitted, and gradients of all parameters, of a sum of squares."""
    given = torch.from_numpy(x)
    wanted = theirs(given)
    np.testing.assert_allclose(ours(x), wanted.detach().numpy(), rtol=limit, atol=limit)
    np.testing.assert_allclose(wl.jit(ours)(x), wanted.detach().numpy(), rtol=limit, atol=limit)
    (wanted**2).mean().backward()
    grads = wl.jit(wl.grad(lambda m: np.mean(m(x) ** 2)))(ours).state()
    for name, value in state_of({name: p.grad for name, p in theirs.named_parameters()}).items():
        scale = max(np.abs(value).max(), 1)
        np.testing.assert_allclose(grads[name], value.reshape(grads[name].shape), atol=limit * scale, err_msg=name)


class TheirMixer(torch.nn.Module):
    """As in the paper's appendix, with PyTorch's layers."""

    def __init__(self, tokens, width, token_hidden, hidden, layers):
        super().__init__()
        linear, norm = torch.nn.Linear, lambda: torch.nn.LayerNorm(width, eps=1e-6)
        self.stem = torch.nn.Conv2d(2, width, 4, stride=4)
        block = lambda: torch.nn.ModuleDict(
            {
                "norm1": norm(), "t1": linear(tokens, token_hidden), "t2": linear(token_hidden, tokens),
                "norm2": norm(), "c1": linear(width, hidden), "c2": linear(hidden, width),
            }
        )  # fmt: skip
        self.blocks = torch.nn.ModuleList([block() for _ in range(layers)])
        self.norm, self.head = norm(), linear(width, 5)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        for b in self.blocks:
            x = x + b["t2"](functional.gelu(b["t1"](b["norm1"](x).transpose(1, 2)))).transpose(1, 2)
            x = x + b["c2"](functional.gelu(b["c1"](b["norm2"](x))))
        return self.head(self.norm(x).mean(1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_mixer(dtype):
    theirs = draw(TheirMixer(6, 8, 5, 12, 2), dtype)
    table = [("stem", "patches"), ("t1", "mixer.feed.inner"), ("t2", "mixer.feed.outer"), ("c1", "feed.inner"),
             ("c2", "feed.outer")]  # fmt: skip
    ours = models.Mixer((8, 12), 4, 5, 2, 8, token_hidden=5, hidden=12, channels=2, dtype=dtype)
    ours.load_state(named(theirs.state_dict(), table))
    x = np.random.default_rng(0).normal(size=(3, 2, 8, 12)).astype(dtype)
    agree(ours, theirs, lambda state: named(state, table), x, DTYPES[dtype])


class TheirGMLP(torch.nn.Module):
    """One block, with a convolution over the tokens, as the authors wrote the gate."""

    def __init__(self, tokens, width, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width, eps=1e-6)
        self.inner, self.outer = torch.nn.Linear(width, hidden), torch.nn.Linear(hidden // 2, width)
        self.gate_norm, self.gate = torch.nn.LayerNorm(hidden // 2, eps=1e-6), torch.nn.Conv1d(tokens, tokens, 1)

    def forward(self, x):
        u, v = functional.gelu(self.inner(self.norm(x))).chunk(2, dim=-1)
        return x + self.outer(u * self.gate(self.gate_norm(v)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gmlp_block(dtype):
    theirs = draw(TheirGMLP(5, 6, 8), dtype)
    table = [("gate_norm", "gating.norm"), ("gate.", "gating.mix.")]
    ours = load(models.GMLPBlock(5, 6, 8, dtype=dtype), named(theirs.state_dict(), table))
    x = np.random.default_rng(0).normal(size=(3, 5, 6)).astype(dtype)
    agree(ours, theirs, lambda state: named(state, table), x, DTYPES[dtype])


POOLFORMER = [
    ("poolformer.encoder.patch_embeddings", "embeddings"), (".projection", ""), ("poolformer.encoder.block", "stages"),
    ("before_norm", "norm1"), ("after_norm", "norm2"), ("output.conv1", "feed.inner"), ("output.conv2", "feed.outer"),
    ("layer_scale_1", "scale1"), ("layer_scale_2", "scale2"), ("classifier", "head"),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_poolformer(dtype):
    config = transformers.PoolFormerConfig(
        num_channels=2, depths=[1, 2], hidden_sizes=[6, 8], mlp_ratio=2.0, patch_sizes=[7, 3], strides=[4, 2],
        padding=[2, 1], num_encoder_blocks=2, num_labels=3, drop_path_rate=0.0,
    )  # fmt: skip
    theirs = draw(transformers.PoolFormerForImageClassification(config), dtype)
    ours = models.MetaFormer(((6, 1), (8, 2)), "pool", 3, channels=2, expansion=2, dtype=dtype)
    load(ours, named(theirs.state_dict(), POOLFORMER))
    x = np.random.default_rng(0).normal(size=(3, 2, 16, 24)).astype(dtype)

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.named_parameters = theirs.named_parameters

        def forward(self, x):
            return theirs(x).logits

    agree(ours, Logits(), lambda state: named(state, POOLFORMER), x, DTYPES[dtype])


def test_poolformer_s12_has_as_many_parameters():
    with torch.device("meta"):
        theirs = transformers.PoolFormerForImageClassification(transformers.PoolFormerConfig(num_labels=1000))
    assert sum(p.numel() for p in theirs.parameters()) == sum(p.size for p in models.MetaFormer().parameters())


def test_fnet_layer():
    config = transformers.FNetConfig(hidden_size=8, intermediate_size=12, hidden_act="gelu")
    layer = draw(transformers.models.fnet.modeling_fnet.FNetLayer(config), "float64")
    table = [("fourier.output.LayerNorm", "norm1"), ("output.LayerNorm", "norm2"), ("intermediate.dense", "feed.inner"),
             ("output.dense", "feed.outer")]  # fmt: skip
    mixer, eps = models.FourierMixer(), config.layer_norm_eps
    ours = models.MetaFormerBlock(8, mixer, 12, eps=eps, order="post", dtype=np.float64)
    ours.load_state(named(layer.state_dict(), table))
    x = np.random.default_rng(0).normal(size=(2, 5, 8))
    with torch.no_grad():
        np.testing.assert_allclose(ours(x), layer(torch.from_numpy(x))[0].numpy(), atol=1e-10)


def their_block(state, prefix, cross):
    """One of the Perceiver's layers by our names; q, k and v are one matrix in self-attention."""
    part = lambda name: state[f"{prefix}.{name}"].numpy()
    found = {}
    for kind in ("weight", "bias"):
        q, k, v = (part(f"attention.self.{name}.{kind}") for name in ("query", "key", "value"))
        if cross:
            found |= {f"attention.{name}_proj.{kind}": value for name, value in zip("qkv", (q, k, v), strict=True)}
            found[f"norm_context.{kind}"] = part(f"attention.self.layernorm2.{kind}")
        else:
            found[f"attention.in_proj.{kind}"] = np.concatenate([q, k, v])
        found[f"norm1.{kind}"] = part(f"attention.self.layernorm1.{kind}")
        found[f"norm2.{kind}"] = part(f"layernorm.{kind}")
        found[f"attention.out_proj.{kind}"] = part(f"attention.output.dense.{kind}")
        found[f"feed.inner.{kind}"] = part(f"mlp.dense1.{kind}")
        found[f"feed.outer.{kind}"] = part(f"mlp.dense2.{kind}")
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_perceiver(dtype):
    config = transformers.PerceiverConfig(
        num_latents=4, d_latents=8, d_model=6, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=2,
        num_cross_attention_heads=1, qk_channels=8, v_channels=8, cross_attention_widening_factor=2,
        self_attention_widening_factor=2,
    )  # fmt: skip
    theirs = draw(transformers.PerceiverModel(config), dtype)
    ours = models.Perceiver(6, 4, 8, 3, 2, 2, hidden=16, dtype=dtype)
    state = theirs.state_dict()
    ours.latents[...] = state["embeddings.latents"].numpy()
    ours.crosses[0].load_state(their_block(state, "encoder.cross_attention", True))
    for i, block in enumerate(ours.blocks[0]):
        block.load_state(their_block(state, f"encoder.self_attends.{i}", False))
    x = np.random.default_rng(0).normal(size=(2, 7, 6)).astype(dtype)
    mask = np.array([[True] * 7, [True] * 4 + [False] * 3])
    for given in (None, mask):
        with torch.no_grad():
            there = None if given is None else torch.from_numpy(given.astype(np.float32))
            wanted = theirs(torch.from_numpy(x), attention_mask=there).last_hidden_state.numpy()
        np.testing.assert_allclose(ours.hidden(x, mask=given), wanted, rtol=DTYPES[dtype], atol=DTYPES[dtype])


def test_fourier_features():
    grid = torch.meshgrid(torch.linspace(-1, 1, 3), torch.linspace(-1, 1, 5), indexing="ij")
    wanted = generate_fourier_features(torch.stack(grid, -1).reshape(1, 15, 2), 4, max_resolution=(3, 5))[0]
    np.testing.assert_allclose(models.fourier_features((3, 5), 4), wanted.numpy(), atol=1e-5)


def test_pooling_and_separable_convolution():
    x = np.random.default_rng(0).normal(size=(2, 5, 6, 4))
    image = torch.from_numpy(x).permute(0, 3, 1, 2)
    pooled = functional.avg_pool2d(image, 3, 1, 1, count_include_pad=False) - image
    np.testing.assert_allclose(models.PoolMixer()(x), pooled.permute(0, 2, 3, 1).numpy(), atol=1e-12)
    layer = models.ConvolutionMixer(4, 5, dtype=np.float64)
    depthwise, pointwise = layer.depthwise, layer.pointwise
    weights = [torch.from_numpy(np.array(p)) for p in (depthwise.weight, depthwise.bias, pointwise.weight)]
    wanted = functional.conv2d(image, weights[0], weights[1], padding=2, groups=4)
    wanted = functional.conv2d(wanted, weights[2][:, :, None, None], torch.from_numpy(np.array(pointwise.bias)))
    np.testing.assert_allclose(layer(x), wanted.permute(0, 2, 3, 1).numpy(), atol=1e-12)
