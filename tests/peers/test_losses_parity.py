"""Losses and activations against PyTorch: values, gradients, second order; eager and compiled, single and double."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train

pytestmark = pytest.mark.peers

TOLERANCE = {"float32": 3e-5, "float64": 1e-10}  # PyTorch adds 1e-12 to some denominators
JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])


class Case(NamedTuple):
    ours: Any  # of the operands and the constants
    theirs: Any  # of torch.nn.functional and the same, as tensors
    operands: tuple  # what is differentiated
    constants: tuple = ()
    second: bool = True


CASES: dict[str, Case] = {}


def case(name, ours, theirs, operands, constants=(), second=True):
    assert name not in CASES
    CASES[name] = Case(ours, theirs, tuple(operands), tuple(constants), second)


RNG = np.random.default_rng(7)


def normal(*shape):
    return RNG.standard_normal(shape) * 1.7


def inside(*shape):
    return RNG.uniform(0.05, 0.95, shape)


def simplex(*shape):
    p = np.exp(RNG.standard_normal(shape))
    return p / p.sum(-1, keepdims=True)


def integers(high, *shape):
    return RNG.integers(0, high, shape)


def signs(*shape):
    return RNG.choice([-1.0, 1.0], shape)


# Activations: each at random points, at its kinks and zero, and far away ----------------------------------------------

POINTS = np.concatenate([normal(40), [-6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0, -40.0, 40.0, -300.0, 300.0]])
linear_from = lambda x: 20 if x.element_size() == 4 else 40  # where PyTorch may leave out the rest
ACTIVATIONS = {
    "relu": (nn.relu, lambda F, x: F.relu(x)),
    "relu6": (nn.relu6, lambda F, x: F.relu6(x)),
    "leaky_relu": (nn.leaky_relu, lambda F, x: F.leaky_relu(x)),
    "leaky_relu 0.2": (lambda x: nn.leaky_relu(x, 0.2), lambda F, x: F.leaky_relu(x, 0.2)),
    "elu": (nn.elu, lambda F, x: F.elu(x)),
    "elu 0.5": (lambda x: nn.elu(x, 0.5), lambda F, x: F.elu(x, 0.5)),
    "selu": (nn.selu, lambda F, x: F.selu(x)),
    "celu": (nn.celu, lambda F, x: F.celu(x)),
    "celu 2": (lambda x: nn.celu(x, 2.0), lambda F, x: F.celu(x, 2.0)),
    "softplus": (nn.softplus, lambda F, x: F.softplus(x, threshold=linear_from(x))),
    "softplus 3": (lambda x: nn.softplus(x, 3.0), lambda F, x: F.softplus(x, 3.0, threshold=linear_from(x))),
    "sigmoid": (nn.sigmoid, lambda F, x: x.sigmoid()),
    "logsigmoid": (nn.logsigmoid, lambda F, x: F.logsigmoid(x)),
    "hardsigmoid": (nn.hardsigmoid, lambda F, x: F.relu6(x + 3) / 6),  # its own derivative is single
    "hardtanh": (nn.hardtanh, lambda F, x: F.hardtanh(x)),
    "hardtanh -3 1": (lambda x: nn.hardtanh(x, -3.0, 1.0), lambda F, x: F.hardtanh(x, -3.0, 1.0)),
    "hardswish": (nn.hardswish, lambda F, x: F.hardswish(x)),
    "tanh": (nn.tanh, lambda F, x: x.tanh()),
    "softsign": (nn.softsign, lambda F, x: F.softsign(x)),
    "gelu": (nn.gelu, lambda F, x: F.gelu(x)),
    "gelu tanh": (lambda x: nn.gelu(x, "tanh"), lambda F, x: F.gelu(x, approximate="tanh")),
    "silu": (nn.silu, lambda F, x: F.silu(x)),
    "mish": (nn.mish, lambda F, x: F.mish(x)),
}
for _name, (_ours, _theirs) in ACTIVATIONS.items():
    case(_name, _ours, _theirs, [POINTS], second=_name != "mish" and "elu" not in _name[:4])
# At 0 the second derivatives of these are taken from one side or the other; far away PyTorch's mish has NaN there.
NEAR = POINTS[(POINTS != 0) & (np.abs(POINTS) < 10)]
for _name in ("elu", "elu 0.5", "selu", "celu", "celu 2", "mish"):
    case(f"{_name}, second order", *ACTIVATIONS[_name], [NEAR])
case("prelu", nn.prelu, lambda F, x, w: F.prelu(x, w), [POINTS, np.array([0.3])], second=False)
case("prelu, second order", nn.prelu, lambda F, x, w: F.prelu(x, w), [NEAR, np.array([0.3])])
case("prelu channels", lambda x, w: nn.prelu(x, w, 1), lambda F, x, w: F.prelu(x, w), [normal(3, 4, 5), normal(4)])
case("softmax", nn.softmax, lambda F, x: F.softmax(x, -1), [normal(3, 7)])
case("softmax axis 0", lambda x: nn.softmax(x, 0), lambda F, x: F.softmax(x, 0), [normal(3, 7)])
case("softmax large", lambda x: nn.softmax(300 * x), lambda F, x: F.softmax(300 * x, -1), [normal(3, 7)])
case("log_softmax", nn.log_softmax, lambda F, x: F.log_softmax(x, -1), [normal(3, 7)])
case("log_softmax axis 1", lambda x: nn.log_softmax(x, 1), lambda F, x: F.log_softmax(x, 1), [normal(2, 3, 4)])
case("glu", nn.glu, lambda F, x: F.glu(x), [normal(3, 8)])
case("glu axis 0", lambda x: nn.glu(x, 0), lambda F, x: F.glu(x, 0), [normal(4, 3)])
case("swiglu", nn.swiglu, lambda F, x: x[..., :4] * F.silu(x[..., 4:]), [normal(3, 8)])
case("geglu", nn.geglu, lambda F, x: x[..., :4] * F.gelu(x[..., 4:]), [normal(3, 8)])
case(
    "swish", nn.swish, lambda F, x, a, b, c, d: (a * x + b).sigmoid() * (c * x + d),
    [normal(3, 4), normal(4), normal(4), normal(4), normal(4)],
)  # fmt: skip

# Numbers -------------------------------------------------------------------------------------------------------------

X, Y, W = normal(4, 5), normal(4, 5), RNG.uniform(0.1, 2, (4, 5))
for _r in ("mean", "sum", "none"):
    _keys: dict = {"mse_loss": {}, "l1_loss": {}, "huber_loss": {"delta": 0.7}, "smooth_l1_loss": {"beta": 0.6}}
    for _name, _key in _keys.items():
        case(
            f"{_name} {_r}", lambda x, y, f=_name, k=_key, r=_r: getattr(nn, f)(x, y, reduction=r, **k),
            lambda F, x, y, f=_name, k=_key, r=_r: getattr(F, f)(x, y, reduction=r, **k), [X, Y],
        )  # fmt: skip
for _r in ("mean", "sum"):
    for _name in ("mse_loss", "l1_loss", "huber_loss"):
        if (_name, _r) == ("huber_loss", "mean"):  # alone among these, PyTorch's divides by the number of elements
            continue
        case(
            f"{_name} weight {_r}", lambda x, y, w, f=_name, r=_r: getattr(nn, f)(x, y, weight=w, reduction=r),
            lambda F, x, y, w, f=_name, r=_r: getattr(F, f)(x, y, weight=w, reduction=r), [X, Y], [W],
        )  # fmt: skip
case("huber_loss 2", lambda x, y: nn.huber_loss(x, y, 2.0), lambda F, x, y: F.huber_loss(x, y, delta=2.0), [X, Y])
case("smooth_l1 0", lambda x, y: nn.smooth_l1_loss(x, y, 0), lambda F, x, y: F.smooth_l1_loss(x, y, beta=0.0), [X, Y])
case("mse equal", nn.mse_loss, lambda F, x, y: F.mse_loss(x, y), [X, X])
case("l1 equal", nn.l1_loss, lambda F, x, y: F.l1_loss(x, y), [X, X])
COUNTS = integers(6, 4, 5).astype(float)
for _full in (False, True):
    case(
        f"poisson_nll full={_full}", lambda x, y, f=_full: nn.poisson_nll_loss(x, y, full=f),
        lambda F, x, y, f=_full: F.poisson_nll_loss(x, y, full=f), [X], [COUNTS],
    )  # fmt: skip
    case(
        f"poisson_nll rate full={_full}", lambda x, y, f=_full: nn.poisson_nll_loss(x, y, log_input=False, full=f),
        lambda F, x, y, f=_full: F.poisson_nll_loss(x, y, log_input=False, full=f), [W], [COUNTS],
    )  # fmt: skip
    for _what, _variance in (("", W), (" rows", W[:, :1]), (" samples", W[:, 0])):
        case(
            f"gaussian_nll{_what} full={_full}", lambda x, y, v, f=_full: nn.gaussian_nll_loss(x, y, v, full=f),
            lambda F, x, y, v, f=_full: F.gaussian_nll_loss(x, y, v, full=f), [X, Y, _variance],
        )  # fmt: skip
case(
    "gaussian_nll eps", lambda x, y, v: nn.gaussian_nll_loss(x, y, v, eps=1.0),
    lambda F, x, y, v: F.gaussian_nll_loss(x, y, v, eps=1.0), [X, Y, W], second=False,
)  # fmt: skip
case("hinge", nn.hinge_loss, lambda F, x, y: F.relu(1 - x * y).mean(), [normal(9)], [signs(9)])
case("squared hinge", nn.squared_hinge_loss, lambda F, x, y: (F.relu(1 - x * y) ** 2).mean(), [normal(9)], [signs(9)])
for _p in (1, 1.5, 2, 3):
    case(
        f"lp {_p}", lambda x, y, p=_p: nn.lp_loss(x, y, p), lambda F, x, y, p=_p: (x - y).norm(p, dim=-1).mean(), [X, Y]
    )

# Classes -------------------------------------------------------------------------------------------------------------

LOGITS, LABELS, CLASS = normal(6, 5), integers(5, 6), RNG.uniform(0.2, 2, 5)
SOFT = simplex(6, 5)
IGNORED = np.where(np.arange(6) % 3 == 1, -100, LABELS)
for _r in ("mean", "sum", "none"):
    for _s in (0.0, 0.15):
        for _w in (None, CLASS):
            _tag = f"{_r} smoothing={_s} weight={_w is not None}"
            _constants = [] if _w is None else [_w]
            _weight = lambda c: {"weight": c[0]} if c else {}
            _ours = lambda x, y, *c, r=_r, s=_s, k=_weight: nn.cross_entropy(
                x, y, reduction=r, label_smoothing=s, **k(c)
            )
            _theirs = lambda F, x, y, *c, r=_r, s=_s, k=_weight: F.cross_entropy(
                x, y, reduction=r, label_smoothing=s, **k(c)
            )
            case(f"cross_entropy {_tag}", _ours, _theirs, [LOGITS], [LABELS, *_constants])
            case(f"cross_entropy soft {_tag}", _ours, _theirs, [LOGITS, SOFT], _constants)
            case(
                f"cross_entropy ignore {_tag}",
                lambda x, y, *c, r=_r, s=_s, k=_weight: nn.cross_entropy(
                    x, y, reduction=r, label_smoothing=s, ignore_index=-100, **k(c)
                ),
                _theirs, [LOGITS], [IGNORED, *_constants],
            )  # fmt: skip
case("cross_entropy large", nn.cross_entropy, lambda F, x, y: F.cross_entropy(x, y), [100 * LOGITS], [LABELS])
case("cross_entropy int32", nn.cross_entropy, lambda F, x, y: F.cross_entropy(x, y.long()), [LOGITS],
     [LABELS.astype(np.int32)])  # fmt: skip
case(
    "cross_entropy images", lambda x, y: nn.cross_entropy(x, y, axis=1), lambda F, x, y: F.cross_entropy(x, y),
    [normal(2, 4, 3, 5)], [integers(4, 2, 3, 5)],
)  # fmt: skip
case(
    "cross_entropy images weight", lambda x, y, w: nn.cross_entropy(x, y, axis=1, weight=w, label_smoothing=0.1),
    lambda F, x, y, w: F.cross_entropy(x, y, w, label_smoothing=0.1), [normal(2, 5, 3)], [integers(5, 2, 3), CLASS],
)  # fmt: skip
case(
    "cross_entropy tokens", nn.cross_entropy, lambda F, x, y: F.cross_entropy(x.flatten(0, 1), y.flatten()),
    [normal(2, 3, 7)], [integers(7, 2, 3)],
)  # fmt: skip
case("cross_entropy one", nn.cross_entropy, lambda F, x, y: F.cross_entropy(x, y), [normal(5)], [np.array(2)])
case(
    "cross_entropy probabilities", lambda x, y: nn.cross_entropy(x, y, from_probabilities=True),
    lambda F, x, y: F.nll_loss(x.log(), y), [SOFT], [LABELS],
)  # fmt: skip
case(
    "cross_entropy mask", lambda x, y, m: nn.cross_entropy(x, y, mask=m),
    lambda F, x, y, m: F.cross_entropy(x[m], y[m]), [LOGITS], [LABELS, LABELS > 1],
)  # fmt: skip
case(
    "cross_entropy samples", lambda x, y, w: nn.cross_entropy(x, y, sample_weight=w),
    lambda F, x, y, w: (w * F.cross_entropy(x, y, reduction="none")).sum() / w.sum(),
    [LOGITS], [LABELS, RNG.uniform(0.1, 1, 6)],
)  # fmt: skip
for _r in ("mean", "sum", "none"):
    case(
        f"nll {_r}", lambda x, y, w, r=_r: nn.nll_loss(nn.log_softmax(x), y, weight=w, reduction=r),
        lambda F, x, y, w, r=_r: F.nll_loss(F.log_softmax(x, -1), y, w, reduction=r), [LOGITS], [LABELS, CLASS],
    )  # fmt: skip
case(
    "nll ignore",
    lambda x, y: nn.nll_loss(x, y, ignore_index=-100),
    lambda F, x, y: F.nll_loss(x, y),
    [LOGITS],
    [IGNORED],
)

TARGET = inside(4, 5)
for _r in ("mean", "sum", "none"):
    case(
        f"bce logits {_r}", lambda x, y, r=_r: nn.binary_cross_entropy_with_logits(x, y, reduction=r),
        lambda F, x, y, r=_r: F.binary_cross_entropy_with_logits(x, y, reduction=r), [X, TARGET],
    )  # fmt: skip
    case(
        f"bce logits weights {_r}",
        lambda x, y, w, q, r=_r: nn.binary_cross_entropy_with_logits(x, y, weight=w, pos_weight=q, reduction=r),
        lambda F, x, y, w, q, r=_r: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=q, reduction=r),
        [X, TARGET], [W, CLASS],
    )  # fmt: skip
    case(
        f"bce {_r}", lambda x, y, r=_r: nn.binary_cross_entropy(x, y, reduction=r),
        lambda F, x, y, r=_r: F.binary_cross_entropy(x, y, reduction=r), [inside(4, 5)], [TARGET],
    )  # fmt: skip
case(
    "bce weight", lambda x, y, w: nn.binary_cross_entropy(x, y, weight=w),
    lambda F, x, y, w: F.binary_cross_entropy(x, y, w), [inside(4, 5)], [TARGET, W],
)  # fmt: skip
case(
    "bce logits large", nn.binary_cross_entropy_with_logits, lambda F, x, y: F.binary_cross_entropy_with_logits(x, y),
    [200 * X], [integers(2, 4, 5).astype(float)],
)  # fmt: skip
case(
    "focal", nn.focal_loss,
    lambda F, x, y: (-((1 - F.softmax(x, -1)) ** 2 * F.log_softmax(x, -1)).gather(1, y[:, None])).mean(),
    [LOGITS], [LABELS],
)  # fmt: skip
case(
    "focal 0.5 weight", lambda x, y, w: nn.focal_loss(x, y, 0.5, weight=w),
    lambda F, x, y, w: -(w * (1 - F.softmax(x, -1)) ** 0.5 * F.log_softmax(x, -1)).gather(1, y[:, None]).mean(),
    [LOGITS], [LABELS, CLASS],
)  # fmt: skip


def sigmoid_focal(F, x, y, alpha, gamma):  # torchvision's
    p = x.sigmoid()
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none") * (1 - (p * y + (1 - p) * (1 - y))) ** gamma
    return (loss * (alpha * y + (1 - alpha) * (1 - y))).mean()


case("sigmoid focal", nn.sigmoid_focal_loss, lambda F, x, y: sigmoid_focal(F, x, y, 0.25, 2), [X], [(Y > 0) * 1.0])
case(
    "sigmoid focal soft", lambda x, y: nn.sigmoid_focal_loss(x, y, 0.6, 1.5),
    lambda F, x, y: sigmoid_focal(F, x, y, 0.6, 1.5), [X], [TARGET],
)  # fmt: skip
case(
    "brier", lambda x, y: nn.brier_score(nn.softmax(x), y),
    lambda F, x, y: ((F.softmax(x, -1) - F.one_hot(y, 5)) ** 2).sum(-1).mean(), [LOGITS], [LABELS],
)  # fmt: skip

# Distributions and vectors -------------------------------------------------------------------------------------------

P, Q = simplex(4, 6), simplex(4, 6)
case("kl", nn.kl_divergence, lambda F, p, q: F.kl_div(q.log(), p, reduction="batchmean"), [P, Q])
case("kl sum", lambda p, q: nn.kl_divergence(p, q, reduction="sum"),
     lambda F, p, q: F.kl_div(q.log(), p, reduction="sum"), [P, Q])  # fmt: skip
case(
    "kl log", lambda p, q: nn.kl_divergence(nn.log_softmax(p), nn.log_softmax(q), log=True),
    lambda F, p, q: F.kl_div(F.log_softmax(q, -1), F.log_softmax(p, -1), log_target=True, reduction="batchmean"),
    [normal(4, 6), normal(4, 6)],
)  # fmt: skip
case(
    "jensen_shannon", nn.jensen_shannon,
    lambda F, p, q: 0.5 * sum(F.kl_div(((p + q) / 2).log(), r, reduction="batchmean") for r in (p, q)), [P, Q],
)  # fmt: skip
case("total_variation", nn.total_variation, lambda F, p, q: 0.5 * (p - q).abs().sum(-1).mean(), [P, Q])
case("cosine_similarity", nn.cosine_similarity, lambda F, a, b: F.cosine_similarity(a, b, -1), [X, Y])
case("cosine_similarity axis 0", lambda a, b: nn.cosine_similarity(a, b, 0),
     lambda F, a, b: F.cosine_similarity(a, b, 0), [X, Y])  # fmt: skip
for _margin in (0.0, 0.2):
    for _r in ("mean", "none"):
        case(
            f"cosine_embedding {_margin} {_r}",
            lambda a, b, y, m=_margin, r=_r: nn.cosine_embedding_loss(a, b, y, m, reduction=r),
            lambda F, a, b, y, m=_margin, r=_r: F.cosine_embedding_loss(a, b, y, m, reduction=r),
            [normal(8, 5), normal(8, 5)], [signs(8)],
        )  # fmt: skip
for _p in (1.0, 2.0):
    for _swap in (False, True):
        case(
            f"triplet p={_p} swap={_swap}", lambda a, b, c, p=_p, s=_swap: nn.triplet_margin_loss(a, b, c, p=p, swap=s),
            lambda F, a, b, c, p=_p, s=_swap: F.triplet_margin_loss(a, b, c, p=p, swap=s),
            [normal(8, 3), normal(8, 3), normal(8, 3)],
        )  # fmt: skip


def info_nce(F, q, k, t):
    scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT / t
    return F.cross_entropy(scores, scores.new_tensor(range(len(q))).long())


case("info_nce", lambda q, k: nn.info_nce(q, k, temperature=0.3), lambda F, q, k: info_nce(F, q, k, 0.3),
     [normal(6, 4), normal(6, 4)])  # fmt: skip
case(
    "info_nce symmetric", lambda q, k: nn.info_nce(q, k, temperature=0.3, symmetric=True),
    lambda F, q, k: (info_nce(F, q, k, 0.3) + info_nce(F, k, q, 0.3)) / 2, [normal(6, 4), normal(6, 4)],
)  # fmt: skip


def nt_xent(F, a, b, t):
    """As the PyTorch ports of SimCLR have it: the scores of a view with itself are taken out of the softmax."""
    import torch

    z, n = F.normalize(torch.cat([a, b]), dim=-1), len(a)
    scores = (z @ z.mT / t).masked_fill(torch.eye(2 * n, dtype=torch.bool), -torch.inf)
    return F.cross_entropy(scores, torch.arange(2 * n).roll(n))


case("nt_xent", lambda a, b: nn.nt_xent(a, b, 0.5), lambda F, a, b: nt_xent(F, a, b, 0.5),
     [normal(6, 4), normal(6, 4)])  # fmt: skip

# Sequences: PyTorch has no second derivative of these ----------------------------------------------------------------

FRAMES, SPELLED = normal(3, 12, 5), np.array([[1, 2, 2, 4], [3, 1, 4, 1], [2, 2, 2, 2]])
for _r in ("mean", "sum", "none"):
    case(
        f"ctc {_r}",
        lambda x, y, i, t, r=_r: nn.ctc_loss(nn.log_softmax(x), y, i, t, reduction=r),
        lambda F, x, y, i, t, r=_r: F.ctc_loss(F.log_softmax(x, -1).transpose(0, 1), y, i, t, reduction=r),
        [FRAMES], [SPELLED, np.array([12, 9, 7]), np.array([4, 3, 4])], second=False,
    )  # fmt: skip
case(
    "ctc blank", lambda x, y, i, t: nn.ctc_loss(nn.log_softmax(x), y, i, t, blank=4),
    lambda F, x, y, i, t: F.ctc_loss(F.log_softmax(x, -1).transpose(0, 1), y, i, t, blank=4),
    [FRAMES], [SPELLED % 4, np.array([12, 10, 8]), np.array([2, 0, 1])], second=False,
)  # fmt: skip
case(
    "ctc zero_infinity", lambda x, y, i, t: nn.ctc_loss(nn.log_softmax(x), y, i, t, zero_infinity=True),
    lambda F, x, y, i, t: F.ctc_loss(F.log_softmax(x, -1).transpose(0, 1), y, i, t, zero_infinity=True),
    [FRAMES], [SPELLED, np.array([12, 3, 6]), np.array([4, 4, 4])], second=False,
)  # fmt: skip


def test_there_are_many_configurations():
    assert len(CASES) >= 100


def near(found, expected, dtype):
    expected = expected.detach().numpy()
    assert found.shape == expected.shape and found.dtype == expected.dtype == dtype
    scale = max(1.0, np.max(np.abs(expected), initial=0, where=np.isfinite(expected)))
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)


@JIT
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_like_pytorch(name, dtype, jit):
    torch = pytest.importorskip("torch")
    this = CASES[name]
    as_given = lambda a: a.astype(dtype) if np.asarray(a).dtype.kind == "f" else a
    args, constants = [as_given(a) for a in this.operands], [as_given(a) for a in this.constants]
    numbers, directions = tuple(range(len(args))), tuple(np.cos(a) for a in args)
    points = [torch.tensor(a, requires_grad=True) for a in args]
    theirs = lambda: this.theirs(torch.nn.functional, *points, *map(torch.tensor, constants))
    near(np.asarray(jit(this.ours)(*args, *constants)), theirs(), dtype)

    gradient = wl.grad(lambda *a: np.sum(np.sin(this.ours(*a))), numbers)
    first = torch.autograd.grad(theirs().sin().sum(), points, create_graph=this.second)
    for x, y in zip(jit(gradient)(*args, *constants), first, strict=True):
        near(x, y, dtype)
    if this.second:
        dotted = sum((g * torch.tensor(t)).sum() for g, t in zip(first, directions, strict=True))
        second = [torch.zeros_like(p) for p in points]
        if dotted.requires_grad:
            second = torch.autograd.grad(dotted, points, allow_unused=True, materialize_grads=True)
        of = lambda *a: wl.jvp(lambda *p: gradient(*p, *a[len(args) :]), a[: len(args)], directions)[1]
        for x, y in zip(jit(of)(*args, *constants), second, strict=True):
            near(x, y, dtype)


# Training ------------------------------------------------------------------------------------------------------------

LOSSES = [name for name, this in CASES.items() if np.ndim(this.ours(*this.operands, *this.constants)) == 0]
STEPS, RATE = 20, 1e-3  # small, so that probabilities stay between 0 and 1


class Held(nn.Module):
    """The operands of a loss, as parameters."""

    def __init__(self, operands):
        self.operands = [a.copy() for a in operands]


def test_there_are_many_losses():
    assert len(LOSSES) >= 70


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", LOSSES)
def test_twenty_steps_from_the_same_operands(name, dtype):
    torch = pytest.importorskip("torch")
    this = CASES[name]
    as_given = lambda a: a.astype(dtype) if np.asarray(a).dtype.kind == "f" else a
    operands, constants = [as_given(a) for a in this.operands], [as_given(a) for a in this.constants]
    points = [torch.tensor(a, requires_grad=True) for a in operands]
    model, tensors = Held(operands), [*map(torch.tensor, constants)]
    optimizer = train.SGD(model, RATE, momentum=0.9)
    other = torch.optim.SGD(points, lr=RATE, momentum=0.9)

    @wl.jit
    def step(model, optimizer):
        loss, grads = wl.value_and_grad(lambda m: this.ours(*m.operands, *constants))(model)
        optimizer.update(model, grads)
        return loss

    for _ in range(STEPS):
        found = step(model, optimizer)
        other.zero_grad()
        expected = this.theirs(torch.nn.functional, *points, *tensors)
        expected.backward()
        other.step()
    bound = {"float32": 1e-5, "float64": 1e-10}[dtype]
    np.testing.assert_allclose(found, expected.item(), rtol=bound, atol=bound)
    for mine, point in zip(model.operands, points, strict=True):
        np.testing.assert_allclose(mine, point.detach().numpy(), rtol=bound, atol=bound)
