"""Attention and blocks of transformers against PyTorch's layers, whose weights load by new names."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import wonderland as wl  # noqa: E402
from wonderland import nn  # noqa: E402

pytestmark = pytest.mark.peers

DTYPES = {"float32": 1e-4, "float64": 1e-9}
NAMES = {
    "self_attn": "attention", "multihead_attn": "cross", "in_proj_": "in_proj.", "linear1": "feed.inner",
    "linear2": "feed.outer",
}  # fmt: skip


def renamed(state, decoder=False):
    """PyTorch's names as ours; a decoder's second norm is that of its attention to the source."""
    found = {}
    for name, value in state.items():
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        if decoder:
            name = name.replace("norm2", "norm_cross").replace("norm3", "norm2")
        value = value.detach().numpy()
        if name.startswith("cross.in_proj"):
            for part, of in zip("qkv", np.split(value, 3), strict=True):
                found[name.replace("in_proj", f"{part}_proj")] = of
        else:
            found[name] = value
    return found


def shaken(module, dtype):
    """With biases and norms that aren't 0 and 1."""
    torch.manual_seed(0)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return module.to(getattr(torch, dtype)).eval()


def compare(ours, theirs, xs, limit, call, decoder=False):
    """Values, and gradients with respect to the inputs and all parameters, of the sum of sines."""
    ours.load_state(renamed(dict(theirs.named_parameters()), decoder))
    tensors = [torch.from_numpy(x).requires_grad_() for x in xs]
    wanted = call(theirs, *tensors)
    torch.sin(wanted).sum().backward()
    np.testing.assert_allclose(ours(*xs), wanted.detach().numpy(), rtol=limit, atol=limit)
    grads = wl.jit(wl.grad(lambda m, *xs: np.sum(np.sin(m(*xs))), tuple(range(len(xs) + 1))))(ours, *xs)
    for found, tensor in zip(grads[1:], tensors, strict=True):
        np.testing.assert_allclose(found, tensor.grad.numpy(), rtol=limit, atol=10 * limit)
    for name, value in renamed({n: p.grad for n, p in theirs.named_parameters()}, decoder).items():
        np.testing.assert_allclose(grads[0].state()[name], value, rtol=limit, atol=10 * limit, err_msg=name)


def inputs(dtype, *shapes):
    rng = np.random.default_rng(1)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def causal_mask(n):
    return torch.triu(torch.ones(n, n, dtype=torch.bool), 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, dtype):
    theirs = shaken(torch.nn.MultiheadAttention(16, 4, batch_first=True), dtype)
    ours = nn.MultiHeadAttention(16, 4, causal=causal, dtype=dtype)
    (x,) = inputs(dtype, (2, 7, 16))
    mask = causal_mask(7) if causal else None
    compare(ours, theirs, [x], DTYPES[dtype], lambda m, x: m(x, x, x, attn_mask=mask, need_weights=False)[0])
    with torch.no_grad():
        t = torch.from_numpy(x)
        weights = theirs(t, t, t, attn_mask=mask, average_attn_weights=False)[1].numpy()
    np.testing.assert_allclose(ours.weights(x), weights, atol=DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("order", ["pre", "post"])
def test_encoder_layer(order, activation, dtype):
    theirs = torch.nn.TransformerEncoderLayer(
        16, 4, 24, dropout=0.0, activation=activation, batch_first=True, norm_first=order == "pre"
    )
    ours = nn.TransformerBlock(16, 4, 24, activation=activation, order=order, dtype=dtype)
    compare(ours, shaken(theirs, dtype), inputs(dtype, (2, 7, 16)), DTYPES[dtype], lambda m, x: m(x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["pre", "post"])
def test_decoder_layer(order, dtype):
    theirs = torch.nn.TransformerDecoderLayer(16, 4, 24, dropout=0.0, batch_first=True, norm_first=order == "pre")
    ours = nn.TransformerBlock(
        16, 4, 24, activation="relu", order=order, cross=True, attention={"causal": True}, dtype=dtype
    )
    xs = inputs(dtype, (2, 7, 16), (2, 5, 16))
    compare(ours, shaken(theirs, dtype), xs, DTYPES[dtype], lambda m, x, c: m(x, c, tgt_mask=causal_mask(7)), True)
