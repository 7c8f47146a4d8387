"""Convolution, pooling, patches and resizing against PyTorch: a table of configurations, the odd ones among them.

Each is compared in value, in the gradients of all operands and in a Hessian-vector product, eager and compiled.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

import wonderland as wl

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:Using padding='same'")]

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
BATCH, EXTENTS = 2, {1: (9,), 2: (7, 6), 3: (5, 4, 6)}
DTYPES = {"f": ("float32", "float64"), "c": ("complex64", "complex128")}
PRECISIONS = {"single": 2e-5, "double": 1e-11}


@dataclass(frozen=True)
class Configuration:
    """Two functions of the same arrays."""

    name: str
    shapes: tuple
    ours: Callable
    theirs: Callable
    kind: str = "f"

    def arrays(self, precision, seed):
        rng = np.random.default_rng(seed)
        arrays = [rng.normal(size=s) + (1j * rng.normal(size=s) if self.kind == "c" else 0) for s in self.shapes]
        return tuple(a.astype(DTYPES[self.kind][precision]) for a in arrays)


CONFIGURATIONS: list[Configuration] = []


def configure(name, shapes, ours, theirs, **rest):
    CONFIGURATIONS.append(Configuration(name, shapes, ours, theirs, **rest))


# Convolutions --------------------------------------------------------------------------------------------------------


def convolution(name, x, w, *, kind="f", **params):
    """`conv` with a bias, with PyTorch's arguments."""
    theirs = CONVOLUTIONS[len(w) - 3]
    configure(
        f"conv {name} {x} {w}", (x, w, w[:1]), lambda x, w, b: wl.conv(x, w, bias=b, **params),
        lambda x, w, b: theirs(x, w, b, **params), kind=kind,
    )  # fmt: skip


def each(rank, number):
    return (number,) * rank


SMALL = [  # kernel, stride, padding, dilation, groups
    (3, 1, 0, 1, 1), (3, 1, 1, 1, 1), (3, 2, 1, 1, 1), (2, 1, 0, 1, 1), (2, 2, 0, 1, 1), (1, 1, 0, 1, 1),
    (1, 2, 0, 1, 1), (1, 1, 1, 1, 1), (3, 1, 2, 2, 1), (2, 1, 1, 3, 1), (3, 3, 4, 2, 1), (3, 1, 1, 1, 2),
    (2, 2, 1, 1, 4), (3, 1, 1, 1, 4), (3, 2, 2, 2, 4), (1, 1, 0, 1, 2), (2, 3, 0, 1, 1), (2, 4, 1, 1, 2),
    (4, 1, 3, 1, 1), (3, 1, "same", 1, 1), (2, 1, "same", 1, 2), (3, 1, "same", 2, 1), (2, 1, "valid", 1, 1),
]  # fmt: skip
for rank, (k, stride, padding, dilation, groups) in product((1, 2, 3), SMALL):
    convolution(
        f"k{k} s{stride} p{padding} d{dilation} g{groups}",
        (BATCH, 4, *EXTENTS[rank]), (8, 4 // groups, *each(rank, k)),
        stride=stride, padding=padding, dilation=dilation, groups=groups,
    )  # fmt: skip
for name, x, w, params in [
    ("kernel larger than the input", (2, 3, 2), (4, 3, 5), {"padding": 2}),
    ("kernel larger than the input", (1, 2, 2, 3), (3, 2, 5, 4), {"padding": (3, 2)}),
    ("kernel as large as the input", (2, 3, 4, 5), (2, 3, 4, 5), {}),
    ("stride larger than the kernel", (2, 3, 11), (4, 3, 2), {"stride": 5}),
    ("stride with many phases", (2, 3, 90), (4, 3, 45), {"stride": 20, "padding": 3}),
    ("patches", (2, 3, 20, 15), (4, 3, 5, 5), {"stride": 5}),
    ("stride larger than the input", (2, 3, 4, 4), (4, 3, 2, 2), {"stride": 9, "padding": 1}),
    ("empty batch", (0, 3, 6), (4, 3, 3), {"padding": 1}),
    ("empty batch", (0, 3, 6, 5), (4, 3, 3, 2), {}),
    ("one pixel", (2, 3, 1, 1), (4, 3, 3, 3), {"padding": 1}),
    ("one pixel", (2, 3, 1), (4, 3, 1), {}),
    ("one pixel", (1, 1, 1, 1, 1), (1, 1, 1, 1, 1), {}),
    ("unbatched", (3, 8), (4, 3, 3), {"padding": 1, "stride": 2}),
    ("unbatched", (4, 6, 5), (6, 2, 3, 2), {"groups": 2, "dilation": (1, 2)}),
    ("unbatched", (2, 3, 4, 5), (3, 2, 2, 2, 3), {"padding": (1, 0, 2)}),
    ("each axis its own", (2, 3, 9, 8), (4, 3, 3, 2), {"stride": (2, 1), "padding": (0, 3), "dilation": (3, 2)}),
    ("each axis its own", (1, 2, 5, 6, 7), (2, 2, 1, 3, 2), {"stride": (1, 2, 3), "padding": (1, 0, 2)}),
    ("depthwise", (2, 6, 8, 8), (6, 1, 3, 3), {"groups": 6, "padding": 1}),
    ("depthwise with a multiplier", (2, 3, 8, 8), (6, 1, 3, 3), {"groups": 3, "stride": 2}),
    ("depthwise with a multiplier", (2, 3, 9), (9, 1, 4), {"groups": 3, "padding": 2}),
    ("one channel", (3, 1, 8, 7), (5, 1, 3, 3), {"padding": 1}),
    ("one filter", (3, 5, 8, 7), (1, 5, 3, 3), {"stride": 2}),
    ("many channels", (2, 17, 5, 5), (33, 17, 3, 3), {"padding": 1}),
    ("a column", (2, 3, 8, 7), (4, 3, 3, 1), {"padding": (1, 0)}),
    ("a row", (2, 3, 8, 7), (4, 3, 1, 3), {"stride": (2, 1)}),
]:
    convolution(name, x, w, **params)
for rank in (1, 2):
    convolution(
        "complex", (BATCH, 4, *EXTENTS[rank]), (2, 2, *each(rank, 3)), kind="c", groups=2, padding=1, stride=2
    )  # fmt: skip


def around(x, rank, pair, mode="constant"):
    return F.pad(x, pair * rank, mode=mode)


for rank, mode in product((1, 2, 3), ("circular", "reflect", "replicate")):
    configure(
        f"conv {mode} {rank}D", ((BATCH, 3, *EXTENTS[rank]), (4, 3, *each(rank, 3))),
        lambda x, w, mode=mode: wl.conv(x, w, 2, 2, padding_mode=mode),
        lambda x, w, mode=mode, rank=rank: CONVOLUTIONS[rank - 1](around(x, rank, (2, 2), mode), w, stride=2),
    )  # fmt: skip
for rank, pair in product((1, 2, 3), ((2, 0), (0, 1))):
    configure(
        f"conv padded by {pair} {rank}D", ((BATCH, 3, *EXTENTS[rank]), (4, 3, *each(rank, 2))),
        lambda x, w, pair=pair, rank=rank: wl.conv(x, w, padding=(pair,) * rank),
        lambda x, w, pair=pair, rank=rank: CONVOLUTIONS[rank - 1](around(x, rank, pair), w),
    )  # fmt: skip
for rank, dilation in product((1, 2), (1, 2)):
    configure(
        f"conv causal d{dilation} {rank}D", ((BATCH, 3, *EXTENTS[rank]), (4, 3, *each(rank, 3))),
        lambda x, w, d=dilation: wl.conv(x, w, padding="causal", dilation=d),
        lambda x, w, d=dilation, rank=rank: CONVOLUTIONS[rank - 1](around(x, rank, (2 * d, 0)), w, dilation=d),
    )  # fmt: skip


def with_zeros_between(x, step):
    out = torch.zeros(*x.shape[:2], *((n - 1) * step + 1 for n in x.shape[2:]), dtype=x.dtype)
    out[(..., *[slice(None, None, step)] * (x.ndim - 2))] = x
    return out


for rank, (step, padding) in product((1, 2), ((2, 1), (3, 0))):
    configure(
        f"conv input dilation {step} p{padding} {rank}D", ((BATCH, 3, *EXTENTS[rank]), (4, 3, *each(rank, 3))),
        lambda x, w, s=step, p=padding: wl.conv(x, w, 2, p, input_dilation=s),
        lambda x, w, s=step, p=padding, rank=rank: CONVOLUTIONS[rank - 1](with_zeros_between(x, s), w, None, 2, p),
    )  # fmt: skip
for rank, groups in product((1, 2, 3), (1, 2, 4)):
    configure(
        f"conv channels last g{groups} {rank}D", ((BATCH, *EXTENTS[rank], 4), (8, 4 // groups, *each(rank, 3)), (8,)),
        lambda x, w, b, g=groups: wl.conv(x, w, 2, 1, groups=g, bias=b, channels="last"),
        lambda x, w, b, g=groups, rank=rank:
            CONVOLUTIONS[rank - 1](x.movedim(-1, 1), w, b, 2, 1, groups=g).movedim(1, -1),
    )  # fmt: skip
for x, w, stride in (((2, 3, 150), (4, 3, 70), 1), ((2, 4, 133), (4, 1, 100), 3), ((200,), (1, 1, 64), 1)):
    configure(
        f"conv by transforms {x} {w}", (x if len(x) > 1 else (1, *x), w),
        lambda x, w, s=stride: wl.conv(x, w, s, 2, groups=x.shape[-2] // w.shape[1], method="fft"),
        lambda x, w, s=stride: F.conv1d(x, w, stride=s, padding=2, groups=x.shape[-2] // w.shape[1]),
    )  # fmt: skip

# Transposed convolutions ---------------------------------------------------------------------------------------------

ENLARGED = [  # kernel, stride, padding, output padding, dilation, groups
    (3, 1, 0, 0, 1, 1), (3, 2, 1, 1, 1, 1), (2, 2, 0, 0, 1, 1), (1, 1, 0, 0, 1, 1), (1, 3, 0, 2, 1, 1),
    (4, 2, 1, 0, 1, 1), (3, 1, 2, 0, 2, 1), (2, 2, 1, 1, 3, 1), (2, 1, 1, 2, 3, 1), (3, 2, 1, 1, 1, 2),
    (3, 3, 0, 1, 1, 4), (2, 5, 0, 4, 2, 2),
]  # fmt: skip
for rank, (k, stride, padding, more, dilation, groups) in product((1, 2, 3), ENLARGED):
    arguments = (stride, padding, more, groups, dilation)
    configure(
        f"transposed conv k{k} s{stride} p{padding} o{more} d{dilation} g{groups} {rank}D",
        ((BATCH, 4, *(n - 2 for n in EXTENTS[rank])), (4, 4 // groups, *each(rank, k)), (4,)),
        lambda x, w, b, a=arguments: wl.conv_transpose(x, w, *a, bias=b),
        lambda x, w, b, a=arguments, rank=rank: TRANSPOSED[rank - 1](x, w, b, *a),
    )  # fmt: skip
for groups in (1, 2):
    configure(
        f"transposed conv channels last g{groups}", ((BATCH, 4, 3, 4), (4, 4 // groups, 3, 2)),
        lambda x, w, g=groups: wl.conv_transpose(x, w, 2, 1, 1, g, channels="last"),
        lambda x, w, g=groups: F.conv_transpose2d(x.movedim(-1, 1), w, None, 2, 1, 1, g).movedim(1, -1),
    )  # fmt: skip
for x, w in (((4, 5), (4, 3, 2)), ((0, 2, 3, 4), (2, 3, 2, 2)), ((2, 3, 1, 1), (3, 2, 3, 3))):
    configure(
        f"transposed conv {x} {w}", (x, w), lambda x, w: wl.conv_transpose(x, w, 2),
        lambda x, w: TRANSPOSED[w.ndim - 3](x, w, stride=2),
    )  # fmt: skip

# Pooling -------------------------------------------------------------------------------------------------------------

POOLS = [  # size, stride, padding, dilation, ceil_mode
    (2, None, 0, 1, False), (2, None, 0, 1, True), (3, 2, 1, 1, False), (3, 2, 1, 1, True), (3, 1, 1, 1, False),
    (2, 3, 1, 1, True), (1, 2, 0, 1, False), (2, 1, 0, 2, False), (2, 2, 1, 3, True), (4, 3, 2, 1, True),
]  # fmt: skip
for rank, (size, stride, padding, dilation, ceil) in product((1, 2, 3), POOLS):
    name = f"k{size} s{stride} p{padding} d{dilation}{' ceil' if ceil else ''} {rank}D"
    shape = (BATCH, 3, *EXTENTS[rank])
    configure(
        f"max_pool {name}", (shape,),
        lambda x, a=(size, stride, padding, dilation), c=ceil: wl.max_pool(x, *a, ceil_mode=c),
        lambda x, a=(size, stride, padding, dilation), c=ceil, rank=rank:
            (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1](x, *a, ceil_mode=c),
    )  # fmt: skip
    for inside in (True, False) if dilation == 1 else ():
        configure(
            f"mean_pool {name}{'' if inside else ' of elements'}", (shape,),
            lambda x, a=(size, stride, padding), c=ceil, i=inside:
                wl.mean_pool(x, *a, ceil_mode=c, count_include_pad=i),
            lambda x, a=(size, stride, padding), c=ceil, i=inside, rank=rank:
                (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1](x, *a, c, i),
        )  # fmt: skip
for shape, size in (((3, 7, 6), (2, 3)), ((0, 3, 6, 6), (2, 2)), ((2, 3, 1, 1), (1, 1)), ((3, 9), (4,))):
    rank = len(size)
    configure(
        f"max_pool {shape} {size}", (shape,), lambda x, k=size: wl.max_pool(x, k),
        lambda x, k=size, rank=rank: (F.max_pool1d, F.max_pool2d)[rank - 1](x, k),
    )  # fmt: skip
    configure(
        f"sum_pool {shape} {size}", (shape,), lambda x, k=size: wl.sum_pool(x, k),
        lambda x, k=size, rank=rank: (F.avg_pool1d, F.avg_pool2d)[rank - 1](x, k) * np.prod(k).item(),
    )  # fmt: skip
configure("max_pool of all", ((2, 3, 4, 5),), wl.max_pool, lambda x: F.adaptive_max_pool2d(x, 1))
configure("mean_pool of all", ((2, 3, 4, 5),), wl.mean_pool, lambda x: F.adaptive_avg_pool2d(x, 1))
for ours, theirs in ((wl.max_pool, F.max_pool2d), (wl.mean_pool, F.avg_pool2d)):
    configure(
        f"{ours.__name__} channels last", ((2, 7, 6, 3),),
        lambda x, ours=ours: ours(x, 3, 2, 1, channels="last"),
        lambda x, theirs=theirs: theirs(x.movedim(-1, 1), 3, 2, 1).movedim(1, -1),
    )  # fmt: skip

# Patches and resizing ------------------------------------------------------------------------------------------------

for shape, arguments in (
    ((2, 3, 7, 6), (3,)), ((2, 3, 7, 6), ((3, 2), 1, 1, 2)), ((2, 3, 7, 6), ((2, 3), (2, 1), (1, 0), (1, 2))),
    ((3, 7, 6), ((2, 2), 1, 0, 3)), ((2, 1, 1, 1), (3, 1, 1, 1)), ((0, 2, 4, 4), (2,)),
):  # fmt: skip
    configure(
        f"unfold {shape} {arguments}", (shape,), lambda x, a=arguments: wl.unfold(x, *a),
        lambda x, a=arguments: F.unfold(x, *a),
    )  # fmt: skip
    if 0 not in shape:
        configure(
            f"fold {shape} {arguments}", (F.unfold(torch.zeros(shape), *arguments).shape,),
            lambda x, a=arguments, s=shape[-2:]: wl.fold(x, s, *a),
            lambda x, a=arguments, s=shape[-2:]: F.fold(x, s, *a),
        )  # fmt: skip
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
for goal in ((18,), (4,), (9,), (1,), (14, 12), (3, 8), (1, 1), (10, 8, 12), (3, 4, 7)):
    rank = len(goal)
    shape = (BATCH, 2, *EXTENTS[rank])
    configure(
        f"resize nearest {goal}", (shape,), lambda x, goal=goal: wl.resize(x, goal),
        lambda x, goal=goal: F.interpolate(x, goal),
    )  # fmt: skip
    for corners in (False, True):
        configure(
            f"resize linear {goal}{' corners' if corners else ''}", (shape,),
            lambda x, goal=goal, c=corners: wl.resize(x, goal, "linear", c),
            lambda x, goal=goal, c=corners, m=LINEAR[rank]: F.interpolate(x, goal, mode=m, align_corners=c),
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------


def theirs(configuration, arrays, directions):
    """The value, the gradients of half the sum of its squares, and their derivative in a direction; in double."""
    points = [torch.tensor(a.astype(DTYPES[configuration.kind][1]), requires_grad=True) for a in arrays]
    value = configuration.theirs(*points)
    gradients = torch.autograd.grad((value.abs() ** 2).sum() / 2, points, create_graph=True)
    along = sum((torch.conj(g) * torch.tensor(t)).real.sum() for g, t in zip(gradients, directions, strict=True))
    return value, *gradients, *torch.autograd.grad(along, points, allow_unused=True, materialize_grads=True)


def ours(configuration):
    """The same."""

    def loss(*args):
        value = configuration.ours(*args)
        return np.sum(np.abs(value) ** 2) / 2, value

    def everything(arrays, directions):
        gradient = wl.value_and_grad(loss, argnums=tuple(range(len(arrays))), has_aux=True)
        ((_, value), gradients), (_, second) = wl.jvp(gradient, arrays, directions)
        return value, *gradients, *second

    return everything


def check(configuration, precision, transform):
    single = precision == "single"
    arrays, directions = (configuration.arrays(not single, seed) for seed in (0, 1))
    found, expected = transform(ours(configuration))(arrays, directions), theirs(configuration, arrays, directions)
    for mine, other in zip(found, expected, strict=True):
        other = other.detach().resolve_conj().numpy()
        assert mine.dtype == arrays[0].dtype and mine.shape == other.shape
        bound = PRECISIONS[precision]
        np.testing.assert_allclose(mine, other, rtol=bound, atol=bound * np.max(np.abs(other), initial=1.0))


def test_the_table_is_large():
    assert len(CONFIGURATIONS) >= 200 and len({c.name for c in CONFIGURATIONS}) == len(CONFIGURATIONS)


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: c.name)
def test_values_and_derivatives_like_pytorch(configuration, precision, transform):
    check(configuration, precision, transform)


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("arguments", [(2,), (3, 2, 1), (3, 1, 1), (9, 9)])
def test_the_first_of_several_maxima_has_the_derivative(arguments, transform, rng):
    """As in PyTorch; windows of 81 elements aren't read element by element."""
    x, ct = rng.integers(0, 3, (2, 2, 9, 9)).astype(float), rng.normal(size=(2, 2, 9, 9))
    point = torch.tensor(x, requires_grad=True)
    value = F.max_pool2d(point, *arguments)
    ct = ct[..., : value.shape[-2], : value.shape[-1]]
    (expected,) = torch.autograd.grad(value, point, torch.tensor(ct))
    found = transform(wl.grad(lambda x: np.sum(wl.max_pool(x, *arguments) * ct)))(x)
    np.testing.assert_array_equal(found != 0, expected.numpy() != 0)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit], ids=["eager", "compiled"])
def test_a_maximum_of_nan_is_nan(transform, rng):
    x = np.where(rng.uniform(size=(2, 2, 9, 9)) < 0.1, np.nan, rng.normal(size=(2, 2, 9, 9)))
    np.testing.assert_array_equal(
        transform(lambda x: wl.max_pool(x, 3, 2, 1))(x), F.max_pool2d(torch.tensor(x), 3, 2, 1).numpy()
    )
