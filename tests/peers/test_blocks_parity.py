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
    "linear2": "feed.outer", "bias_k": "memory_keys", "bias_v": "memory_values", "q_proj_weight": "q_proj.weight",
    "k_proj_weight": "k_proj.weight", "v_proj_weight": "v_proj.weight",
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
        if value.ndim == 4:  # convolutions of single places
            value = value[..., 0, 0]
        if name.startswith("memory_"):  # (1, 1, H D)
            value = value.reshape(-1, 1, 4)
        if name.startswith("cross.in_proj") or (name == "in_proj.bias" and "q_proj_weight" in state):
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_with_keys_and_values_of_its_own(dtype):
    """`add_bias_kv`, in self-attention and in attention to a context of another width (`kdim`, `vdim`)."""
    theirs = shaken(torch.nn.MultiheadAttention(16, 4, add_bias_kv=True, batch_first=True), dtype)
    ours = nn.MultiHeadAttention(16, 4, memory=1, dtype=dtype)
    compare(ours, theirs, inputs(dtype, (2, 7, 16)), DTYPES[dtype], lambda m, x: m(x, x, x, need_weights=False)[0])
    options = {"add_bias_kv": True, "batch_first": True, "kdim": 6, "vdim": 6}
    theirs = shaken(torch.nn.MultiheadAttention(16, 4, **options), dtype)
    ours = nn.MultiHeadAttention(16, 4, memory=1, context_width=6, dtype=dtype)
    xs = inputs(dtype, (2, 7, 16), (2, 5, 6))
    compare(ours, theirs, xs, DTYPES[dtype], lambda m, x, c: m(x, c, c, need_weights=False)[0])


class TheirHead(torch.nn.Module):
    """One head of PyTorch's function, with values of another width and from another source."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (torch.nn.Linear(i, o) for i, o in ((6, 4), (5, 4), (3, 7)))

    def forward(self, x, context, content):
        q, k, v = self.q_proj(x), self.k_proj(context), self.v_proj(content)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


class TheirNonLocal(torch.nn.Module):
    """Wang et al. 2018, by convolutions with kernels of one place."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.g, self.out = torch.nn.Conv2d(4, 3, 1), torch.nn.Conv2d(3, 4, 1)
        if kind != "gaussian":
            self.theta, self.phi = torch.nn.Conv2d(4, 3, 1), torch.nn.Conv2d(4, 3, 1)

    def forward(self, x):
        q, k = (x, x) if self.kind == "gaussian" else (self.theta(x), self.phi(x))
        f = q.flatten(2).transpose(1, 2) @ k.flatten(2)  # (B, N, N)
        f = f / f.shape[-1] if self.kind == "dot" else torch.softmax(f, dim=-1)
        y = (f @ self.g(x).flatten(2).transpose(1, 2)).transpose(1, 2)
        return x + self.out(y.reshape(*y.shape[:2], *x.shape[2:]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_head(dtype):
    ours = nn.Attention(6, 4, 7, context_width=5, content_width=3, bias=True, dtype=dtype)
    xs = inputs(dtype, (2, 5, 6), (2, 8, 5), (2, 8, 3))
    compare(ours, shaken(TheirHead(), dtype), xs, DTYPES[dtype], lambda m, *xs: m(*xs))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["gaussian", "embedded", "dot"])
def test_non_local_layer(kind, dtype):
    ours = nn.NonLocal(4, 3, kind, dtype=dtype)
    compare(ours, shaken(TheirNonLocal(kind), dtype), inputs(dtype, (2, 4, 3, 5)), DTYPES[dtype], lambda m, x: m(x))


def test_long_convolution():
    """A causal one of `torch.nn.functional.conv1d`, and one that sees both sides."""
    (x,) = inputs("float64", (2, 9, 4))
    for causal, sides in ((True, (8, 0)), (False, (8, 8))):
        m = nn.LongConv(4, 9, causal, method="fft", dtype=np.float64)
        w = torch.from_numpy(m.weight[::-1].T.copy())[:, None]
        padded = torch.nn.functional.pad(torch.from_numpy(x).transpose(1, 2), sides)
        theirs = torch.nn.functional.conv1d(padded, w, torch.from_numpy(m.bias), groups=4).transpose(1, 2)
        np.testing.assert_allclose(m(x), theirs, atol=1e-13)


@pytest.mark.parametrize("hard", [False, True])
def test_gumbel_softmax(hard):
    """The same law: frequencies of categories, and the mean of the largest weight."""
    logits = np.log(np.array([0.1, 0.2, 0.7]))
    torch.manual_seed(0)
    spread = np.broadcast_to(logits, (30000, 3))
    theirs = torch.nn.functional.gumbel_softmax(torch.from_numpy(spread.copy()), 0.7, hard).numpy()
    ours = nn.gumbel_softmax(wl.random.key(0), spread, 0.7, hard)
    np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=0.012)
    np.testing.assert_allclose(np.sort(ours).mean(0), np.sort(theirs).mean(0), atol=0.008)
