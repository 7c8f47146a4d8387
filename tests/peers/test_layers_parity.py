"""Layers against PyTorch, whose state dicts are loaded as they are: values, gradients with respect to the input and all
parameters, second order; eager and compiled, single and double. And training from the same weights.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import ks_2samp

import wonderland as wl
from wonderland import nn, train

pytestmark = pytest.mark.peers

TOLERANCE = {"float32": 3e-5, "float64": 1e-10}
JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])


class Case(NamedTuple):
    ours: Any  # of dtype=
    theirs: Any  # of torch.nn
    shapes: tuple  # of the inputs; an integer before a shape: that many indices
    second: bool


CASES: dict[str, Case] = {}


def case(name, ours, theirs, *shapes, second=True):
    assert name not in CASES
    CASES[name] = Case(ours, theirs, shapes, second)


def same(name, *shapes, args=(), second=True, **options):
    """A layer that has the name and the arguments of PyTorch's."""
    text = f"{name}{args} {options or ''} {'x'.join(map(str, shapes[0]))}"
    make = getattr(nn, name)
    trained = name in ("Linear", "Bilinear", "PReLU") or name.startswith("Conv")
    case(
        text, lambda dtype: make(*args, **options, **({"dtype": dtype} if trained else {})),
        lambda T: getattr(T, name)(*args, **options), *shapes, second=second,
    )  # fmt: skip


same("Linear", (5, 7), args=(7, 3))
same("Linear", (7,), args=(7, 3))
same("Linear", (2, 3, 4, 7), args=(7, 5))
same("Linear", (5, 7), args=(7, 3), bias=False)
same("Linear", (1, 1), args=(1, 1))
same("Bilinear", (5, 3), (5, 4), args=(3, 4, 2))
same("Bilinear", (2, 5, 3), (2, 5, 4), args=(3, 4, 6), bias=False)

for _args, _options in (
    ((3, 4, 3), {}),
    ((3, 4, 3), {"stride": 2, "padding": 1}),
    ((3, 4, 3), {"padding": "same", "dilation": 2}),
    ((3, 4, 4), {"padding": "same"}),
    ((4, 6, 3), {"groups": 2, "bias": False}),
    ((4, 4, 3), {"groups": 4, "padding": "valid"}),
    ((3, 4, 3), {"padding": 2, "padding_mode": "circular"}),
    ((3, 4, 3), {"padding": 2, "padding_mode": "reflect"}),
    ((3, 4, 3), {"padding": 2, "padding_mode": "replicate"}),
    ((3, 4, 1), {}),
):
    same("Conv1d", (2, _args[0], 11), args=_args, **_options)
same("Conv1d", (3, 11), args=(3, 4, 3))

for _args, _options in (
    ((3, 4, 3), {}),
    ((3, 4, 3), {"padding": 1}),
    ((3, 4, (3, 2)), {"stride": (2, 1), "padding": (1, 0)}),
    ((3, 4, 3), {"padding": "same", "dilation": (2, 1)}),
    ((3, 4, 2), {"padding": "same"}),
    ((4, 6, 3), {"groups": 2, "stride": 2}),
    ((4, 8, 3), {"groups": 4, "padding": 1, "bias": False}),
    ((4, 4, 3), {"groups": 4, "padding": 1}),
    ((3, 4, 3), {"padding": 1, "padding_mode": "circular"}),
    ((3, 4, 3), {"padding": (2, 1), "padding_mode": "reflect"}),
    ((3, 4, 3), {"padding": 1, "padding_mode": "replicate", "stride": 2}),
    ((3, 5, 1), {"stride": 2}),
):
    same("Conv2d", (2, _args[0], 7, 8), args=_args, **_options)
same("Conv2d", (3, 7, 8), args=(3, 4, 3))
same("Conv3d", (2, 2, 4, 5, 6), args=(2, 3, 3))
same("Conv3d", (2, 2, 4, 5, 6), args=(2, 4, (1, 2, 3)), stride=(1, 2, 1), padding=(0, 1, 1), groups=2)
same("Conv3d", (2, 2, 4, 5, 6), args=(2, 3, 2), dilation=2, bias=False)

for _options in (
    {},
    {"stride": 2},
    {"stride": 2, "padding": 1, "output_padding": 1},
    {"stride": 3, "dilation": 2, "bias": False},
    {"groups": 2, "stride": 2},
):
    same("ConvTranspose1d", (2, 4, 5), args=(4, 6, 3), **_options)
    same("ConvTranspose2d", (2, 4, 3, 4), args=(4, 6, 3), **_options)
same("ConvTranspose3d", (1, 2, 3, 2, 3), args=(2, 4, 2), stride=2)
same("ConvTranspose3d", (1, 2, 3, 2, 3), args=(2, 4, 3), stride=2, padding=1, output_padding=1, groups=2)

for _rank, _shape in ((1, (2, 3, 9)), (2, (2, 3, 7, 9)), (3, (1, 2, 4, 5, 6))):
    same(f"MaxPool{_rank}d", _shape, args=(2,))
    same(f"MaxPool{_rank}d", _shape, args=(3,), stride=2, padding=1)
    same(f"MaxPool{_rank}d", _shape, args=(2,), stride=2, dilation=2, ceil_mode=True)
    same(f"AvgPool{_rank}d", _shape, args=(2,))
    same(f"AvgPool{_rank}d", _shape, args=(3,), stride=2, padding=1)
    same(f"AvgPool{_rank}d", _shape, args=(3,), stride=2, padding=1, ceil_mode=True, count_include_pad=False)
    same(f"AdaptiveAvgPool{_rank}d", _shape, args=(1,))
    same(f"AdaptiveAvgPool{_rank}d", _shape, args=(3,))
    same(f"AdaptiveMaxPool{_rank}d", _shape, args=(3,))
same("AdaptiveAvgPool2d", (2, 3, 7, 9), args=((None, 4),))
same("AdaptiveAvgPool2d", (2, 3, 7, 9), args=((5, 12),))
same("AdaptiveMaxPool2d", (2, 3, 7, 9), args=((5, 4),))
same("MaxPool2d", (3, 7, 9), args=((3, 2),), stride=(1, 2))

same("Flatten", (2, 3, 4, 5))
same("Flatten", (2, 3, 4, 5), args=(0, 1))
same("Unflatten", (2, 12, 3), args=(1, (3, -1)))
same("Identity", (2, 3))
same("Upsample", (2, 3, 4), scale_factor=2)
same("Upsample", (2, 3, 4, 5), size=(7, 3))
same("Upsample", (2, 3, 4, 5), scale_factor=2, mode="bilinear")
same("Upsample", (2, 3, 4, 5), size=(7, 9), mode="bilinear", align_corners=True)
same("Upsample", (1, 2, 3, 4, 2), scale_factor=(2, 3, 2), mode="trilinear")
case("Embedding", lambda dtype: nn.Embedding(6, 4, dtype=dtype), lambda T: T.Embedding(6, 4), (6, (3, 5)))
case("Embedding padding", lambda dtype: nn.Embedding(6, 4, 2, dtype=dtype),
     lambda T: T.Embedding(6, 4, padding_idx=2), (6, (3, 5)))  # fmt: skip
case("Embedding of a number", lambda dtype: nn.Embedding(6, 4, dtype=dtype), lambda T: T.Embedding(6, 4), (6, ()))

for _name, _options in (
    ("ReLU", {}), ("ReLU6", {}), ("LeakyReLU", {"negative_slope": 0.2}), ("ELU", {"alpha": 0.7}), ("SELU", {}),
    ("CELU", {"alpha": 1.5}), ("Softplus", {"beta": 2.0}), ("Softsign", {}), ("Sigmoid", {}), ("LogSigmoid", {}),
    ("Tanh", {}), ("Hardtanh", {"min_val": -0.5, "max_val": 0.8}), ("Hardswish", {}), ("GELU", {}),
    ("GELU", {"approximate": "tanh"}), ("SiLU", {}), ("Mish", {}),
):  # fmt: skip
    same(_name, (3, 4, 5), **_options)


def hardsigmoid(T):
    class Exact(T.Module):  # the derivative of PyTorch's own is a single 1 / 6
        def forward(self, x):
            return T.functional.relu6(x + 3) / 6

    return Exact()


case("Hardsigmoid", lambda dtype: nn.Hardsigmoid(), hardsigmoid, (3, 4))
case("Softmax 1", lambda dtype: nn.Softmax(1), lambda T: T.Softmax(1), (3, 4, 5))
case("LogSoftmax", lambda dtype: nn.LogSoftmax(), lambda T: T.LogSoftmax(-1), (3, 4, 5))
case("GLU", lambda dtype: nn.GLU(), lambda T: T.GLU(), (3, 4, 6))
case("GLU 1", lambda dtype: nn.GLU(1), lambda T: T.GLU(1), (3, 4, 6))
same("PReLU", (3, 4, 5))
same("PReLU", (3, 4, 5), args=(4,))

# Models of them: PyTorch's names of parameters ------------------------------------------------------------------------

case(
    "Sequential", lambda dtype: nn.Sequential(nn.Linear(4, 8, dtype=dtype), nn.tanh, nn.Linear(8, 3, dtype=dtype)),
    lambda T: T.Sequential(T.Linear(4, 8), T.Tanh(), T.Linear(8, 3)), (5, 4),
)  # fmt: skip
case(
    "Sequential of Sequentials",
    lambda dtype: nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 3, 3, dtype=dtype), nn.ReLU(), nn.MaxPool2d(2)), nn.Flatten(),
        nn.Sequential(nn.Linear(27, 3, dtype=dtype)),
    ),
    lambda T: T.Sequential(
        T.Sequential(T.Conv2d(1, 3, 3), T.ReLU(), T.MaxPool2d(2)), T.Flatten(), T.Sequential(T.Linear(27, 3))
    ), (2, 1, 8, 8),
)  # fmt: skip
case(
    "Sequential with Embedding",
    lambda dtype: nn.Sequential(nn.Embedding(5, 4, dtype=dtype), nn.Linear(4, 3, dtype=dtype)),
    lambda T: T.Sequential(T.Embedding(5, 4), T.Linear(4, 3)), (5, (2, 6)),
)  # fmt: skip


def channels_last(name, rank, *args, **options):
    """PyTorch has no layers for it: its own, between two transpositions."""

    def theirs(T):
        class Between(getattr(T, name)):
            def forward(self, x):
                return super().forward(x.movedim(-1, 1)).movedim(1, -1)

        return Between(*args, **options)

    trained = name.startswith("Conv")
    shape = (2, *(5, 6, 7)[:rank], args[0] if trained else 3)
    case(
        f"{name} channels_last {args} {options or ''}",
        lambda dtype: getattr(nn, name)(*args, **options, channels_last=True, **({"dtype": dtype} if trained else {})),
        theirs, shape,
    )  # fmt: skip


channels_last("Conv1d", 1, 3, 4, 3)
channels_last("Conv2d", 2, 4, 6, 3, stride=2, padding=1, groups=2)
channels_last("Conv3d", 3, 2, 3, 2)
channels_last("ConvTranspose2d", 2, 3, 4, 3, stride=2)
channels_last("MaxPool2d", 2, 2)
channels_last("AvgPool2d", 2, 3, stride=2, padding=1)
channels_last("AdaptiveAvgPool2d", 2, (3, 4))


def test_there_are_many_configurations():
    assert len(CASES) >= 120


def inputs(shapes, dtype, rng):
    """Arrays of different numbers, so that no maximum is taken twice; away from kinks of the second derivative."""
    out = []
    for shape in shapes:
        if shape and isinstance(shape[-1], tuple):
            out.append(rng.integers(0, shape[0], shape[1]))
        else:
            x = rng.standard_normal(shape)
            out.append((x + 0.03 * np.sign(x)).astype(dtype))
    return out


def loaded(this, torch, dtype, rng):
    """Both models, with the same weights: PyTorch's state dict, as it is."""
    theirs = this.theirs(torch.nn).to(getattr(torch, dtype))
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.tensor(rng.standard_normal(p.shape) * 0.5))
    ours = this.ours(np.dtype(dtype).type)
    ours.load_state({name: value.numpy() for name, value in theirs.state_dict().items()})
    assert [*ours.state()] == [*theirs.state_dict()]
    return ours, theirs


def near(found, expected, dtype, times=1.0):
    expected = expected.detach().numpy()
    found = np.asarray(found)
    assert found.shape == expected.shape and found.dtype == expected.dtype == dtype
    scale = max(1.0, np.max(np.abs(expected), initial=0))
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype] * times, atol=TOLERANCE[dtype] * times * scale)


@JIT
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_like_pytorch(name, dtype, jit):
    torch = pytest.importorskip("torch")
    this, rng = CASES[name], np.random.default_rng(3)
    ours, theirs = loaded(this, torch, dtype, rng)
    xs = inputs(this.shapes, dtype, rng)
    real = [i for i, x in enumerate(xs) if x.dtype.kind == "f"]
    points = [torch.tensor(x, requires_grad=i in real) for i, x in enumerate(xs)]
    value = theirs(*points)
    variables = [*theirs.parameters(), *(points[i] for i in real)]
    near(jit(lambda m, *a: m(*a))(ours, *xs), value, dtype)
    if not variables:
        return
    leaf = lambda grads: [*grads[0].parameters(), *grads[1:]] if ours.parameters() else list(grads)
    numbers = tuple([0] if ours.parameters() else []) + tuple(i + 1 for i in real)
    gradient = wl.grad(lambda m, *a: np.sum(np.sin(m(*a))), numbers)
    first = torch.autograd.grad(value.sin().sum(), variables, create_graph=this.second)
    for found, expected in zip(leaf(jit(gradient)(ours, *xs)), first, strict=True):
        near(found, expected, dtype)
    if this.second:
        directions = [np.cos(v.detach().numpy()) for v in variables]
        dotted = sum((g * torch.tensor(t)).sum() for g, t in zip(first, directions, strict=True))
        second = torch.autograd.grad(dotted, variables, allow_unused=True, materialize_grads=True)
        along = lambda m, *a: sum(np.sum(g * t) for g, t in zip(leaf(gradient(m, *a)), directions, strict=True))
        for found, expected in zip(leaf(jit(wl.grad(along, numbers))(ours, *xs)), second, strict=True):
            near(found, expected, dtype, 3)


# Training ------------------------------------------------------------------------------------------------------------

TRAINED = [
    "Sequential", "Sequential of Sequentials", "Sequential with Embedding", "Embedding padding",
    *(next(name for name in CASES if name.startswith(begin)) for begin in (
        "Linear(7, 3)", "Bilinear(3, 4, 2)", "Conv1d(3, 4, 3) {'stride'", "Conv1d(3, 4, 3) {'padding': 2",
        "Conv2d(3, 4, 3) {'padding': 1}", "Conv2d(4, 6, 3) {'groups'", "Conv3d(2, 3, 3)",
        "ConvTranspose1d(4, 6, 3) {'stride'",
        "ConvTranspose2d(4, 6, 3) {'stride'", "ConvTranspose3d", "Conv2d channels_last", "PReLU(4,)",
    )),
]  # fmt: skip


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", TRAINED)
def test_twenty_steps_from_the_same_weights(name, dtype):
    torch = pytest.importorskip("torch")
    this, rng = CASES[name], np.random.default_rng(4)
    ours, theirs = loaded(this, torch, dtype, rng)
    xs = inputs(this.shapes, dtype, rng)
    goal = rng.standard_normal(ours(*xs).shape).astype(dtype)
    optimizer = train.SGD(ours, rate=0.02, momentum=0.9)
    step = torch.optim.SGD(theirs.parameters(), lr=0.02, momentum=0.9)

    @wl.jit
    def update(model, optimizer):
        loss, grads = wl.value_and_grad(lambda m: nn.mse_loss(m(*xs), goal))(model)
        optimizer.update(model, grads)
        return loss

    for _ in range(20):
        found = update(ours, optimizer)
        step.zero_grad()
        loss = torch.nn.functional.mse_loss(theirs(*map(torch.tensor, xs)), torch.tensor(goal))
        loss.backward()
        step.step()
        assert abs(found - loss.item()) <= {"float32": 1e-5, "float64": 1e-10}[dtype] * max(1, abs(loss.item()))
    assert loss.item() > 0
    for (key, found), expected in zip(ours.state().items(), theirs.state_dict().values(), strict=True):
        bound = {"float32": 1e-5, "float64": 1e-10}[dtype]
        np.testing.assert_allclose(found, expected.numpy(), rtol=bound, atol=bound, err_msg=key)


def test_initialisation_has_the_laws_of_pytorch():
    """Samples of many layers of each: by the test of Kolmogorov and Smirnov, and by their extremes."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    wl.random.seed(0)
    for name, args in {
        "Linear": (40, 50), "Bilinear": (20, 3, 40), "Conv1d": (8, 60, 5), "Conv2d": (6, 80, 3), "Conv3d": (4, 70, 2),
        "ConvTranspose2d": (60, 20, 3), "Embedding": (30, 50),
    }.items():  # fmt: skip
        ours = [getattr(nn, name)(*args).state() for _ in range(30)]
        theirs = [getattr(torch.nn, name)(*args).state_dict() for _ in range(30)]
        for key in theirs[0]:
            mine, other = (np.stack([np.asarray(state[key]) for state in states]) for states in (ours, theirs))
            assert mine.shape == other.shape and mine.dtype == other.dtype
            assert ks_2samp(mine.ravel(), other.ravel()).pvalue > 0.01
            if name != "Embedding":
                assert np.abs(mine).max() == pytest.approx(np.abs(other).max(), rel=0.01)
