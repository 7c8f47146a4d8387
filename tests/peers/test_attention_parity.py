"""Attention against PyTorch: values, gradients of everything, second order; eager and compiled, single and double."""

import numpy as np
import pytest

import wonderland as wl

pytestmark = pytest.mark.peers

# queries, keys, values; options of ours; those of PyTorch's
CASES = {
    "plain": ((2, 3, 17, 8), (2, 3, 17, 8), (2, 3, 17, 8), {}, {}),
    "causal": ((2, 3, 70, 8), (2, 3, 70, 8), (2, 3, 70, 8), {"causal": True}, {"is_causal": True}),
    "long": ((1, 2, 300, 64), (1, 2, 300, 64), (1, 2, 300, 64), {"causal": True}, {"is_causal": True}),
    "other widths": ((1, 2, 9, 5), (1, 2, 9, 5), (1, 2, 9, 11), {}, {}),
    "scale": ((1, 2, 9, 5), (1, 2, 9, 5), (1, 2, 9, 5), {"scale": 1.0}, {"scale": 1.0}),
    "more keys": ((1, 2, 9, 6), (1, 2, 21, 6), (1, 2, 21, 6), {}, {}),
    "aligned at the start": (
        (1, 2, 9, 6), (1, 2, 21, 6), (1, 2, 21, 6), {"causal": True, "align": "start"}, {"is_causal": True},
    ),
    "fewer keys": ((1, 1, 30, 4), (1, 1, 7, 4), (1, 1, 7, 4), {}, {}),
    "groups": ((2, 6, 12, 4), (2, 2, 12, 4), (2, 2, 12, 4), {"causal": True}, {"is_causal": True, "enable_gqa": True}),
    "one query": ((2, 2, 1, 4), (2, 2, 40, 4), (2, 2, 40, 4), {}, {}),
    "one key": ((2, 2, 10, 4), (2, 2, 1, 4), (2, 2, 1, 4), {}, {}),
    "one of each": ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), {}, {}),
    "three axes": ((3, 12, 4), (3, 12, 4), (3, 12, 4), {"causal": True}, {"is_causal": True}),
    "empty batch": ((0, 2, 5, 4), (0, 2, 5, 4), (0, 2, 5, 4), {}, {}),
}  # fmt: skip
TOLERANCE = {"float32": 3e-5, "float64": 1e-12}
JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])


def operands(*shapes, dtype):
    rng = np.random.default_rng(5)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def attend(torch, q, k, v, **options):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)


def assert_near(found, expected, dtype):
    for x, y in zip(found, expected, strict=True):
        y = y.detach().numpy()
        assert x.shape == y.shape and x.dtype == y.dtype == dtype
        assert np.max(np.abs(x - y), initial=0) <= TOLERANCE[dtype] * max(1.0, np.max(np.abs(y), initial=0))


def compare(f, theirs, args, dtype, jit):
    """Value, gradients and Hessian-vector products of a loss that isn't linear in the result."""
    torch = pytest.importorskip("torch")
    directions = [np.cos(a) for a in args]
    loss = lambda *a: np.sum(np.sin(f(*a)))
    numbers = tuple(range(len(args)))
    gradient = wl.grad(loss, numbers)
    points = [torch.tensor(a, requires_grad=True) for a in args]
    out = theirs(torch, *points)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the others have no second derivative
        first = torch.autograd.grad(theirs(torch, *points).sin().sum(), points, create_graph=True)
        dotted = sum((g * torch.tensor(t)).sum() for g, t in zip(first, directions, strict=True))
        second = torch.autograd.grad(dotted, points)
    assert_near([jit(f)(*args)], [out], dtype)
    assert_near(jit(gradient)(*args), first, dtype)
    assert_near(jit(lambda *a: wl.jvp(gradient, a, tuple(directions))[1])(*args), second, dtype)


@JIT
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_like_pytorch(name, dtype, jit):
    *shapes, ours, theirs = CASES[name]
    args = operands(*shapes, dtype=dtype)
    f = lambda q, k, v: wl.attention(q, k, v, **ours)
    compare(f, lambda torch, *a: attend(torch, *a, **theirs), args, dtype, jit)


@JIT
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(10, 14), (1, 1, 10, 14), (2, 1, 1, 14), (2, 3, 10, 14)])
def test_masks_like_pytorch(shape, dtype, jit, rng):
    args = operands((2, 3, 10, 4), (2, 3, 14, 4), (2, 3, 14, 4), dtype=dtype)
    seen = rng.random(shape) < 0.7
    seen[..., 0] = True
    spread = np.broadcast_to(seen, (2, 3, 10, 14))
    f = lambda q, k, v: wl.attention(q, k, v, mask=seen)
    compare(f, lambda torch, *a: attend(torch, *a, attn_mask=torch.tensor(spread)), args, dtype, jit)
    bias = rng.standard_normal(shape).astype(dtype)
    whole = lambda torch, b: b.expand(2, 3, 10, 14)
    f = lambda q, k, v, b: wl.attention(q, k, v, bias=b)
    compare(f, lambda torch, q, k, v, b: attend(torch, q, k, v, attn_mask=whole(torch, b)), [*args, bias], dtype, jit)


@JIT
def test_windows_and_what_sees_nothing_like_pytorch(jit):
    args = operands((1, 2, 40, 4), (1, 2, 40, 4), (1, 2, 40, 4), dtype="float64")
    place = np.arange(40) - np.arange(40)[:, None]
    for window, seen in ((5, (place <= 0) & (place > -5)), ((3, 2), (place >= -3) & (place <= 2))):
        f = lambda q, k, v, w=window: wl.attention(q, k, v, window=w)
        compare(f, lambda torch, *a, s=seen: attend(torch, *a, attn_mask=torch.tensor(s)), args, "float64", jit)
    hidden = place < 100
    hidden[7] = False
    torch = pytest.importorskip("torch")
    points = [torch.tensor(a, requires_grad=True) for a in args]
    out = attend(torch, *points, attn_mask=torch.tensor(hidden))
    gradients = torch.autograd.grad(out.sin().sum(), points)
    assert not torch.any(out[0, :, 7])
    f = lambda q, k, v: wl.attention(q, k, v, mask=hidden)
    assert_near([jit(f)(*args)], [out], "float64")
    assert_near(jit(wl.grad(lambda *a: np.sum(np.sin(f(*a))), (0, 1, 2)))(*args), gradients, "float64")
