"""Optimisers and schedules against PyTorch: twenty steps from the same weights, eager and compiled."""

import copy
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train

torch = pytest.importorskip("torch")
from torch.optim import lr_scheduler, swa_utils  # noqa: E402

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

TOLERANCES = {"float32": 1e-5, "float64": 1e-10}
STEPS = 20


class Dense(nn.Module):
    def __init__(self, n, m, rng, dtype):
        self.weight = (rng.normal(size=(m, n)) / np.sqrt(n)).astype(dtype)
        self.bias = (0.1 * rng.normal(size=m)).astype(dtype)

    def __call__(self, x):
        return x @ self.weight.T + self.bias


class Network(nn.Module):
    def __init__(self, dtype):
        rng = np.random.default_rng(0)
        self.first, self.second = Dense(5, 8, rng, dtype), Dense(8, 3, rng, dtype)

    def __call__(self, x):
        return self.second(np.tanh(self.first(x)))


def loss(model, x, y):
    return np.mean((model(x) - y) ** 2)


def step(model, optimizer, x, y, clip=None):
    value, grads = wl.value_and_grad(loss)(model, x, y)
    optimizer.update(model, grads if clip is None else clip(grads))
    return value


class Theirs:
    """The same network in PyTorch."""

    def __init__(self, dtype):
        self.parameters = {n: torch.tensor(w, requires_grad=True) for n, w in Network(dtype).named_parameters()}

    def named(self, *names):
        return [self.parameters[n] for n in names]

    def loss(self, x, y):
        p = self.parameters
        hidden = torch.tanh(x @ p["first.weight"].T + p["first.bias"])
        return ((hidden @ p["second.weight"].T + p["second.bias"] - y) ** 2).mean()


WEIGHTS, BIASES = ("first.weight", "second.weight"), ("first.bias", "second.bias")
optim = torch.optim


@dataclass(frozen=True)
class Pair:
    name: str
    ours: object
    theirs: object
    options: dict = field(default_factory=dict)  # of both, by PyTorch's names
    renamed: tuple = ()
    schedule: object = None
    clip: object = None


OURS = {
    "lr": "rate", "eps": "epsilon", "lr_decay": "rate_decay", "initial_accumulator_value": "initial_sum",
    "decoupled_weight_decay": "decoupled",
}  # fmt: skip


def pair(ours, theirs, /, label="", schedule=None, clip=None, **options):
    shown = ",".join(f"{k}={v}" for k, v in options.items())
    return Pair(f"{ours.__name__}({label or shown})", ours, theirs, options, (), schedule, clip)


adam = partial(pair, train.Adam, optim.Adam)
sgd = partial(pair, train.SGD, optim.SGD)

PAIRS = [
    sgd(lr=0.1),
    sgd(lr=0.1, weight_decay=0.1),
    sgd(lr=0.05, momentum=0.9),
    sgd(lr=0.05, momentum=0.9, weight_decay=0.05),
    sgd(lr=0.05, momentum=0.9, nesterov=True),
    sgd(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.05),
    sgd(lr=0.05, momentum=0.9, dampening=0.5),
    sgd(lr=0.05, momentum=0.5, dampening=0.2, weight_decay=0.1),
    adam(lr=0.01),
    adam(lr=0.01, betas=(0.8, 0.95)),
    adam(lr=0.01, eps=1e-3),
    adam(lr=0.01, weight_decay=0.1),
    adam(lr=0.01, amsgrad=True),
    adam(lr=0.01, amsgrad=True, weight_decay=0.1),
    pair(train.AdamW, optim.AdamW, lr=0.01),
    pair(train.AdamW, optim.AdamW, lr=0.01, weight_decay=0.3),
    pair(train.AdamW, optim.AdamW, lr=0.01, amsgrad=True, betas=(0.7, 0.9)),
    pair(train.NAdam, optim.NAdam, lr=0.01),
    pair(train.NAdam, optim.NAdam, lr=0.01, weight_decay=0.1),
    pair(train.NAdam, optim.NAdam, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True),
    pair(train.NAdam, optim.NAdam, lr=0.01, momentum_decay=0.1, betas=(0.8, 0.99)),
    pair(train.RMSProp, optim.RMSprop, lr=0.01),
    pair(train.RMSProp, optim.RMSprop, lr=0.01, alpha=0.9, eps=1e-4),
    pair(train.RMSProp, optim.RMSprop, lr=0.01, momentum=0.9),
    pair(train.RMSProp, optim.RMSprop, lr=0.01, centered=True, eps=1e-3),
    pair(train.RMSProp, optim.RMSprop, lr=0.01, centered=True, momentum=0.5, weight_decay=0.1, eps=1e-3),
    pair(train.Adagrad, optim.Adagrad, lr=0.05),
    pair(train.Adagrad, optim.Adagrad, lr=0.05, lr_decay=0.1, weight_decay=0.1),
    pair(train.Adagrad, optim.Adagrad, lr=0.05, initial_accumulator_value=0.5, eps=1e-3),
    pair(train.Adadelta, optim.Adadelta, lr=1.0),
    pair(train.Adadelta, optim.Adadelta, lr=0.5, rho=0.7, eps=1e-3, weight_decay=0.1),
    sgd(
        "a schedule", lr=0.1, momentum=0.9,
        schedule=(train.cosine(0.1, steps=25), lambda o: lr_scheduler.CosineAnnealingLR(o, 25)),
    ),
    adam(
        "a schedule", lr=0.02, weight_decay=0.1,
        schedule=(train.step(0.02, 4, 0.5), lambda o: lr_scheduler.StepLR(o, 4, 0.5)),
    ),
    pair(
        train.AdamW, optim.AdamW, "a schedule", lr=0.02,
        schedule=(train.exponential(0.02, 0.9), lambda o: lr_scheduler.ExponentialLR(o, 0.9)),
    ),
    sgd(
        "clipped by norm", lr=0.1,
        clip=(lambda g: train.clip_by_norm(g, 0.05), lambda p: torch.nn.utils.clip_grad_norm_(p, 0.05)),
    ),
    adam(
        "clipped by value", lr=0.01,
        clip=(lambda g: train.clip_by_value(g, 0.02), lambda p: torch.nn.utils.clip_grad_value_(p, 0.02)),
    ),
]  # fmt: skip


def data(dtype):
    rng = np.random.default_rng(1)
    return rng.normal(size=(16, 5)).astype(dtype), rng.normal(size=(16, 3)).astype(dtype)


def torch_steps(theirs, optimizer, x, y, steps=STEPS, scheduler=None, clip=None, after=None):
    x, y = torch.tensor(x), torch.tensor(y)
    for _ in range(steps):
        optimizer.zero_grad()
        theirs.loss(x, y).backward()
        if clip is not None:
            clip([*theirs.parameters.values()])
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if after is not None:
            after()


def assert_same(model, theirs, dtype, factor=1.0):
    for name, w in model.named_parameters():
        assert w.dtype == dtype
        tolerance = factor * TOLERANCES[dtype]
        found = theirs.parameters[name].detach().numpy()
        np.testing.assert_allclose(w, found, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.fixture
def in_float64():
    """PyTorch keeps numbers such as NAdam's product of momenta in its default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("case", PAIRS, ids=lambda p: p.name)
def test_twenty_steps(case, dtype, in_float64):
    x, y = data(dtype)
    theirs = Theirs(dtype)
    other = case.theirs([*theirs.parameters.values()], **case.options)
    scheduler = case.schedule and case.schedule[1](other)
    torch_steps(theirs, other, x, y, scheduler=scheduler, clip=case.clip and case.clip[1])
    options = {OURS.get(k, k): v for k, v in case.options.items()}
    if case.schedule:
        options["rate"] = case.schedule[0]
    run = partial(step, clip=case.clip[0]) if case.clip else step
    for one in (run, wl.jit(run)):
        model = Network(dtype)
        optimizer = case.ours(model, **options)
        for _ in range(STEPS):
            one(model, optimizer, x, y)
        assert_same(model, theirs, dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_groups(dtype):
    x, y = data(dtype)
    theirs = Theirs(dtype)
    groups = [
        {"params": theirs.named("first.weight"), "lr": 0.02},
        {"params": theirs.named("second.weight")},
        {"params": theirs.named(*BIASES), "weight_decay": 0.0, "betas": (0.5, 0.9)},
    ]
    torch_steps(theirs, optim.AdamW(groups, lr=0.01, weight_decay=0.2), x, y)
    model = Network(dtype)
    own = {"first.weight": {"rate": 0.02}, "*.bias": {"weight_decay": 0, "beta1": 0.5, "beta2": 0.9}}
    optimizer = train.AdamW(model, 0.01, weight_decay=0.2, groups=own)
    compiled = wl.jit(step)
    for _ in range(STEPS):
        compiled(model, optimizer, x, y)
    assert_same(model, theirs, dtype)


def newton_schulz_in_full_precision(grad, ns_coefficients, ns_steps, eps):
    """PyTorch's, without its bfloat16."""
    a, b, c = ns_coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.size(0) > grad.size(1) else x


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    "options",
    [{}, {"nesterov": False}, {"weight_decay": 0.0, "momentum": 0.8}, {"adjust": "match_adam", "iterations": 3}],
    ids=str,
)
def test_muon(options, dtype, monkeypatch):
    monkeypatch.setattr("torch.optim._muon._zeropower_via_newtonschulz", newton_schulz_in_full_precision)
    x, y = data(dtype)
    theirs = Theirs(dtype)
    renamed = {"adjust": ("adjust_lr_fn", "match_rms_adamw"), "iterations": ("ns_steps", 3)}
    given = dict(renamed.get(k, (k, v)) for k, v in options.items())
    muon = optim.Muon(theirs.named(*WEIGHTS), lr=0.02, **given)
    decay = options.get("weight_decay", 0.1)
    other = optim.AdamW(theirs.named(*BIASES), lr=0.003, weight_decay=decay, eps=1e-7)
    torch_steps(theirs, muon, x, y, after=lambda: (other.step(), other.zero_grad()))
    model = Network(dtype)
    optimizer = train.Muon(model, 0.02, adam_rate=0.003, **options)
    compiled = wl.jit(step)
    for _ in range(STEPS):
        compiled(model, optimizer, x, y)
    assert_same(model, theirs, dtype, factor=10 if dtype == "float32" else 1)


def test_muon_is_near_pytorchs_in_bfloat16():
    x, y = data("float32")
    theirs = Theirs("float32")
    torch_steps(theirs, optim.Muon(theirs.named(*WEIGHTS), lr=0.02), x, y, steps=3)
    model = Network("float32")
    optimizer = train.Muon(model, 0.02, adam_rate=0.0)
    for _ in range(3):
        step(model, optimizer, x, y)
    for name in WEIGHTS:
        np.testing.assert_allclose(
            dict(model.named_parameters())[name], theirs.parameters[name].detach().numpy(), atol=2e-3
        )


@pytest.mark.parametrize("history", [1, 3, 30])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_lbfgs(dtype, history):
    x, y = data(dtype)
    theirs = Theirs(dtype)
    other = optim.LBFGS(
        theirs.parameters.values(), lr=0.3, max_iter=1, history_size=history, tolerance_grad=0, tolerance_change=0
    )
    tx, ty = torch.tensor(x), torch.tensor(y)

    def closure():
        other.zero_grad()
        value = theirs.loss(tx, ty)
        value.backward()
        return value

    for _ in range(STEPS):
        other.step(closure)
    for one in (step, wl.jit(step)):
        model = Network(dtype)
        optimizer = train.LBFGS(model, 0.3, history=history)
        for _ in range(STEPS):
            one(model, optimizer, x, y)
        assert_same(model, theirs, dtype, factor=100 if dtype == "float32" else 1)  # rounding grows in the history


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_accumulated_gradients(dtype):
    x, y = data(dtype)
    theirs = Theirs(dtype)
    other = optim.Adam([*theirs.parameters.values()], lr=0.01)
    for i in range(STEPS):
        if i % 4 == 0:
            other.zero_grad()
        (theirs.loss(torch.tensor(x) * (i + 1) / 10, torch.tensor(y)) / 4).backward()
        if i % 4 == 3:
            other.step()
    for one in (step, wl.jit(step)):
        model = Network(dtype)
        optimizer = train.Accumulate(train.Adam(model, 0.01), 4)
        for i in range(STEPS):
            one(model, optimizer, (x * (i + 1) / 10).astype(dtype), y)
        assert_same(model, theirs, dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("kind", ["ema", "swa"])
def test_averages(kind, dtype):
    x, y = data(dtype)
    theirs = Theirs(dtype)
    held = torch.nn.ParameterDict({n.replace(".", "_"): p for n, p in theirs.parameters.items()})
    rule = {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.8)} if kind == "ema" else {}
    averaged = swa_utils.AveragedModel(held, **rule)
    other = optim.SGD([*held.values()], lr=0.1)
    theirs.parameters = {n: held[n.replace(".", "_")] for n in theirs.parameters}
    torch_steps(theirs, other, x, y, after=lambda: averaged.update_parameters(held))
    model = Network(dtype)
    optimizer, average = train.SGD(model, 0.1), train.Average(model, 0.8 if kind == "ema" else train.running_mean())

    @wl.jit
    def both(model, optimizer, average, x, y):
        step(model, optimizer, x, y)
        average.update(model)

    for _ in range(STEPS):
        both(model, optimizer, average, x, y)
    for name, w in average.model.named_parameters():
        found = averaged.module[name.replace(".", "_")].detach().numpy()
        np.testing.assert_allclose(w, found, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])
        assert not np.shares_memory(w, dict(model.named_parameters())[name])


# Schedules -----------------------------------------------------------------------------------------------------------

R = 0.1
SCHEDULES = [
    (train.constant(R), lambda o: lr_scheduler.LambdaLR(o, lambda t: 1.0)),
    (train.constant(R, 0.3, 7), lambda o: lr_scheduler.ConstantLR(o, 0.3, 7)),
    (train.linear(R, 12, 0.25, 1.0), lambda o: lr_scheduler.LinearLR(o, 0.25, 1.0, 12)),
    (train.linear(R, 30, 1.0, 0.1), lambda o: lr_scheduler.LinearLR(o, 1.0, 0.1, 30)),
    (train.step(R, 6), lambda o: lr_scheduler.StepLR(o, 6)),
    (train.step(R, 6, 0.7), lambda o: lr_scheduler.StepLR(o, 6, 0.7)),
    (train.multi_step(R, [3, 11, 12, 25]), lambda o: lr_scheduler.MultiStepLR(o, [3, 11, 12, 25])),
    (train.multi_step(R, [], 0.5), lambda o: lr_scheduler.MultiStepLR(o, [], 0.5)),
    (train.exponential(R, 0.93), lambda o: lr_scheduler.ExponentialLR(o, 0.93)),
    (train.polynomial(R, 20), lambda o: lr_scheduler.PolynomialLR(o, 20)),
    (train.polynomial(R, 20, 2.5), lambda o: lr_scheduler.PolynomialLR(o, 20, 2.5)),
    (train.cosine(R, 50), lambda o: lr_scheduler.CosineAnnealingLR(o, 50)),
    (train.cosine(R, 50, end=0.02), lambda o: lr_scheduler.CosineAnnealingLR(o, 50, 0.02)),
    (train.cosine_restarts(R, 7), lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7)),
    (train.cosine_restarts(R, 3, 2, 0.01), lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2, 0.01)),
    (train.one_cycle(R, 50), lambda o: lr_scheduler.OneCycleLR(o, R, 50)),
    (
        train.one_cycle(R, 50, 0.2, 10.0, 100.0, "linear"),
        lambda o: lr_scheduler.OneCycleLR(
            o, R, 50, pct_start=0.2, anneal_strategy="linear", div_factor=10.0, final_div_factor=100.0
        ),
    ),
    (
        train.one_cycle(R, 50, three_phase=True),
        lambda o: lr_scheduler.OneCycleLR(o, R, 50, three_phase=True),
    ),
    (train.cyclic(0.01, R, 5), lambda o: lr_scheduler.CyclicLR(o, 0.01, R, 5)),
    (
        train.cyclic(0.01, R, 5, 8, 0.97),
        lambda o: lr_scheduler.CyclicLR(o, 0.01, R, 5, 8, mode="exp_range", gamma=0.97),
    ),
    (
        train.warmup(train.exponential(R, 0.9), 8, start=0.25),
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.25, 1.0, 8), lr_scheduler.ExponentialLR(o, 0.9)], [8]
        ),
    ),
    (
        train.inverse_sqrt(R, 10),
        lambda o: lr_scheduler.LambdaLR(o, lambda t: min((t + 1) / 10, (10 / (t + 1)) ** 0.5)),
    ),
    (
        train.cosine(R, 50, warmup=10),
        lambda o: lr_scheduler.LambdaLR(
            o, lambda t: (t + 1) / 11 if t < 10 else 0.5 * (1 + np.cos(np.pi * (t - 10) / 40))
        ),
    ),
    (
        train.piecewise([5, 20], [R, R / 2, R / 10]),
        lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 if t < 5 else 0.5 if t < 20 else 0.1),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), SCHEDULES, ids=[repr(s) for s, _ in SCHEDULES])
def test_schedules(ours, theirs):
    optimizer = optim.SGD([torch.zeros(1)], lr=R, momentum=0.5)
    scheduler = theirs(optimizer)
    rates = []
    for _ in range(50):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    steps = np.arange(50)
    np.testing.assert_allclose(ours(steps), rates, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose([ours(int(t)) for t in steps], rates, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(wl.jit(wl.vmap(ours))(steps), rates, rtol=1e-10, atol=1e-12)
    assert copy.deepcopy(ours) == ours
