"""Normalisation against PyTorch: in training and evaluation mode, buffers after several steps, gradients of all
parameters and the input, second order; eager and compiled, single and double; and training from the same weights.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train

pytestmark = pytest.mark.peers

TOLERANCE = {"float32": 2e-5, "float64": 1e-10}
STEPS = {"float32": 1e-5, "float64": 1e-10}  # after twenty of training
JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])


class Case(NamedTuple):
    kind: str
    args: tuple
    options: dict
    shape: tuple
    last: bool = False


CASES: dict[str, Case] = {}


def case(kind, args, shape, last=False, **options):
    shown = ", ".join([*map(str, args), *(f"{k}={v}" for k, v in options.items()), *(["last"] if last else [])])
    name = f"{kind}({shown}) {'x'.join(map(str, shape))}"
    assert name not in CASES
    CASES[name] = Case(kind, args, options, shape, last)


SPATIAL = {"1d": (7,), "2d": (4, 5), "3d": (2, 3, 4)}
for _d, _s in SPATIAL.items():
    for _momentum in (0.1, 0.7, None):
        for _affine in (True, False):
            case(f"BatchNorm{_d}", (3,), (4, 3, *_s), momentum=_momentum, affine=_affine)
    case(f"BatchNorm{_d}", (3,), (4, 3, *_s), track_running_stats=False)
    case(f"BatchNorm{_d}", (3,), (4, 3, *_s), eps=0.1)
    case(f"BatchNorm{_d}", (3,), (4, 3, *_s), last=True)
    for _track in (False, True):
        for _affine in (False, True):
            case(f"InstanceNorm{_d}", (3,), (4, 3, *_s), affine=_affine, track_running_stats=_track)
    case(f"InstanceNorm{_d}", (3,), (4, 3, *_s), affine=True, track_running_stats=True, momentum=0.5, eps=0.01)
    case(f"InstanceNorm{_d}", (3,), (3, *_s))
    case(f"InstanceNorm{_d}", (3,), (4, 3, *_s), last=True, affine=True)
for _momentum in (0.1, None):
    case("BatchNorm1d", (5,), (6, 5), momentum=_momentum)
    case("BatchNorm1d", (5,), (2, 5), momentum=_momentum, affine=False)
for _shape, _x in (((6,), (4, 6)), ((6,), (2, 3, 6)), ((5, 6), (3, 5, 6)), ((2, 4, 3), (3, 2, 4, 3))):
    for _affine, _bias in ((True, True), (True, False), (False, False)):
        case("LayerNorm", (_shape,), _x, elementwise_affine=_affine, bias=_bias)
    case("LayerNorm", (_shape,), _x, eps=0.1)
    case("RMSNorm", (_shape,), _x)
    case("RMSNorm", (_shape,), _x, eps=1e-3, elementwise_affine=False)
    case("RMSNorm", (_shape,), _x, eps=0.5)
for _groups, _channels, _x in ((1, 4, (3, 4, 5)), (2, 4, (3, 4, 5, 2)), (4, 4, (3, 4, 2, 3, 2)), (3, 6, (5, 6))):
    case("GroupNorm", (_groups, _channels), _x)
    case("GroupNorm", (_groups, _channels), _x, affine=False, eps=0.01)
case("GroupNorm", (2, 4), (3, 4, 5, 2), last=True)


def test_there_are_many_configurations():
    assert len(CASES) >= 60


def pair_of(torch, this, dtype):
    """Our layer and PyTorch's, with the same random weights."""
    theirs = getattr(torch.nn, this.kind)(*this.args, **this.options, dtype=getattr(torch, dtype))
    more = {"channels_last": True} if this.last else {}
    ours = getattr(nn, this.kind)(*this.args, **this.options, **more, dtype=dtype)
    assert list(ours.state()) == list(theirs.state_dict())
    rng = np.random.default_rng(5)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            value = rng.uniform(0.5, 1.5, parameter.shape).astype(dtype)
            parameter.copy_(torch.tensor(value))
            ours.state()[name][...] = value
    return ours, theirs


def inputs(this, dtype, count):
    rng = np.random.default_rng(9)
    return [(rng.standard_normal(this.shape) * 1.7 + 0.6).astype(dtype) for _ in range(count)]


def near(found, expected, dtype, tolerance=TOLERANCE):
    found, expected = np.asarray(found), expected.detach().numpy()
    assert found.shape == expected.shape and found.dtype == expected.dtype
    scale = max(1.0, np.max(np.abs(expected), initial=0))
    np.testing.assert_allclose(found, expected, rtol=tolerance[dtype], atol=tolerance[dtype] * scale)


def same_buffers(ours, theirs, dtype):
    for name, buffer in theirs.named_buffers():
        near(ours.state()[name], buffer, dtype)


@JIT
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_like_pytorch(name, dtype, jit):
    torch = pytest.importorskip("torch")
    this = CASES[name]
    ours, theirs = pair_of(torch, this, dtype)
    to = lambda a: np.moveaxis(a, 1, -1) if this.last else a
    back = lambda a: np.moveaxis(a, -1, 1) if this.last else a
    run = jit(lambda model, x: model(x))
    for x in inputs(this, dtype, 3):
        near(back(run(ours, to(x))), theirs(torch.tensor(x)), dtype)
        same_buffers(ours, theirs, dtype)
    (x,) = inputs(this, dtype, 1)
    loss = lambda model, x: np.sum(np.sin(model(x)))
    for training in (True, False):
        ours.train(training)
        theirs.train(training)
        point = torch.tensor(x, requires_grad=True)
        near(back(run(ours, to(x))), theirs(point), dtype)
        weights = dict(theirs.named_parameters())
        first = torch.autograd.grad(theirs(point).sin().sum(), [point, *weights.values()], create_graph=True)
        of_weights, of_x = jit(wl.grad(loss, (0, 1)))(ours, to(x))
        near(back(of_x), first[0], dtype)
        for key, expected in zip(weights, first[1:], strict=True):
            near(getattr(of_weights, key), expected, dtype)
        same_buffers(ours, theirs, dtype)
        second = torch.autograd.grad((first[0] * torch.tensor(np.cos(x))).sum(), [point, *weights.values()])
        along = lambda model, x: np.sum(wl.grad(loss, 1)(model, x) * wl.stop_gradient(np.cos(x)))
        of_weights, of_x = jit(wl.grad(along, (0, 1)))(ours, to(x))
        near(back(of_x), second[0], dtype)
        for key, expected in zip(weights, second[1:], strict=True):
            near(getattr(of_weights, key), expected, dtype)
        ours.load_state({key: value.numpy() for key, value in theirs.state_dict().items()})


NORMS: dict[str, tuple[Any, Any]] = {
    "batch": (lambda d: nn.BatchNorm2d(6, dtype=d), lambda t: t.nn.BatchNorm2d(6)),
    "cumulative": (
        lambda d: nn.BatchNorm2d(6, momentum=None, dtype=d),
        lambda t: t.nn.BatchNorm2d(6, momentum=None),
    ),
    "instance": (lambda d: nn.InstanceNorm2d(6, affine=True, dtype=d), lambda t: t.nn.InstanceNorm2d(6, affine=True)),
    "group": (lambda d: nn.GroupNorm(2, 6, dtype=d), lambda t: t.nn.GroupNorm(2, 6)),
    "layer": (lambda d: nn.LayerNorm((6, 4, 4), dtype=d), lambda t: t.nn.LayerNorm((6, 4, 4))),
    "rms": (lambda d: nn.RMSNorm((6, 4, 4), dtype=d), lambda t: t.nn.RMSNorm((6, 4, 4))),
}


@JIT
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", NORMS)
def test_twenty_steps_of_training(name, dtype, jit):
    torch = pytest.importorskip("torch")
    mine, other = NORMS[name]
    ours = nn.Sequential(
        nn.Conv2d(2, 6, 3, dtype=dtype), mine(dtype), nn.tanh, nn.GlobalAvgPool(), nn.Linear(6, 3, dtype=dtype)
    )
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(2, 6, 3), other(torch), torch.nn.Tanh(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(6, 3),
    ).to(getattr(torch, dtype))  # fmt: skip
    state = {key.replace("5.", "4."): value.numpy().copy() for key, value in theirs.state_dict().items()}
    ours.load_state(state)
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((20, 8, 2, 6, 6)).astype(dtype), rng.standard_normal((8, 3)).astype(dtype)
    optimizer = train.SGD(ours, rate=0.05, momentum=0.9)
    stepper = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9)

    def step(model, optimizer, x):
        loss, grads = wl.value_and_grad(lambda m: nn.mse_loss(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    step = jit(step)
    for i in range(20):
        loss = step(ours, optimizer, x[i])
        stepper.zero_grad()
        expected = torch.nn.functional.mse_loss(theirs(torch.tensor(x[i])), torch.tensor(y))
        expected.backward()
        stepper.step()
        near(loss, expected, dtype, STEPS)
    for key, value in theirs.state_dict().items():
        near(ours.state()[key.replace("5.", "4.")], value, dtype, STEPS)
    ours.eval()
    theirs.eval()
    near(ours(x[0]), theirs(torch.tensor(x[0])), dtype, STEPS)
