"""Initialisers: a key and the shape of a weight come in, an array goes out.

    w = nn.init.he_normal(key, (256, 784))
    nn.Linear(784, 256, init=partial(nn.init.he_uniform, mode="fan_out"))

All have the signature `init(key, shape, dtype=np.float32, **options)`; without a key (None) they draw from the stream
that `wl.random.seed(n)` starts. Shapes are PyTorch's: a dense weight is (out, in), a convolution's (out, in / groups,
*kernel), so that `fans` are (in * kernel, out * kernel).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland import random

__all__ = [
    "constant", "dirac", "fan_in_uniform", "fans", "gain", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform",
    "identity", "lecun_normal", "lecun_uniform", "normal", "ones", "orthogonal", "sparse", "truncated_normal",
    "uniform", "variance_scaling", "zeros",
]  # fmt: skip

Shape = Sequence[int] | int

_GAINS = {
    "linear": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75,
    "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0,
}  # fmt: skip
_MODES = {
    "fan_in": lambda fan_in, fan_out: fan_in,
    "fan_out": lambda fan_in, fan_out: fan_out,
    "fan_avg": lambda fan_in, fan_out: (fan_in + fan_out) / 2,
}


def fans(shape: Shape) -> tuple[int, int]:
    """How many numbers one output of a weight adds up, and in how many outputs one input appears: (fan in, fan out).

    Of (out, in, *kernel): in * kernel and out * kernel, as PyTorch counts them (strides and groups aside).
    """
    shape = _shape(shape)
    if len(shape) < 2:
        raise ValueError(
            f"a weight of shape {shape} has no fans: it needs two axes at least, (out, in, *kernel). For a bias use "
            "nn.init.zeros, constant, uniform, or fan_in_uniform with fan_in="
        )
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def gain(nonlinearity: str, slope: float = 0.01) -> float:
    """By how much a weight is scaled up so that variance goes through an activation unchanged.

    1 for linear and sigmoid, 5/3 for tanh, sqrt(2) for ReLU, sqrt(2 / (1 + slope^2)) for leaky ReLU, 3/4 for SELU:
    the numbers of PyTorch's `calculate_gain`.
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + slope * slope))
    if nonlinearity not in _GAINS:
        raise ValueError(f"no gain is known for {nonlinearity!r}: one of {', '.join([*_GAINS, 'leaky_relu'])}")
    return _GAINS[nonlinearity]


# Fixed values --------------------------------------------------------------------------------------------------------


def zeros(key: Any, shape: Shape, dtype: Any = np.float32) -> Any:
    """All 0."""
    return np.zeros(_shape(shape), dtype)


def ones(key: Any, shape: Shape, dtype: Any = np.float32) -> Any:
    """All 1."""
    return np.ones(_shape(shape), dtype)


def constant(key: Any, shape: Shape, dtype: Any = np.float32, *, value: complex = 0.0) -> Any:
    """All `value`."""
    return np.full(_shape(shape), value, dtype)


def identity(key: Any, shape: Shape, dtype: Any = np.float32, *, gain: float = 1.0) -> Any:
    """`gain` on the diagonal of a matrix, which need not be square: a dense layer that hands its inputs on."""
    shape = _shape(shape)
    if len(shape) != 2:
        raise ValueError(f"identity makes a matrix, not an array of shape {shape}: for a convolution use dirac")
    return (gain * np.eye(*shape)).astype(dtype)


def dirac(key: Any, shape: Shape, dtype: Any = np.float32, *, groups: int = 1) -> Any:
    """A convolution that hands its channels on: 1 in the middle of the kernel where out = in, in each group."""
    shape = _shape(shape)
    if not 3 <= len(shape) <= 5:
        raise ValueError(f"dirac makes the weight (out, in / groups, *kernel) of a convolution, not one of {shape}")
    if shape[0] % groups:
        raise ValueError(f"dirac: {shape[0]} outputs can't be divided into {groups} groups")
    out = np.zeros(shape, dtype)
    per_group = shape[0] // groups
    middle = tuple(n // 2 for n in shape[2:])
    for group in range(groups):
        for channel in range(min(per_group, shape[1])):
            out[(group * per_group + channel, channel, *middle)] = 1
    return out


# By a scale ----------------------------------------------------------------------------------------------------------


def uniform(key: Any, shape: Shape, dtype: Any = np.float32, *, low: float = 0.0, high: float = 1.0) -> Any:
    """Uniform in [low, high); of complex numbers, both parts."""
    if np.dtype(dtype).kind == "c":
        part = np.zeros((), dtype).real.dtype
        real, imaginary = random.split(random.next_key() if key is None else key)
        return uniform(real, shape, part, low=low, high=high) + 1j * uniform(imaginary, shape, part, low=low, high=high)
    return _drawn(lambda drawn: random.uniform(key, _shape(shape), low, high, dtype=drawn), dtype)


def normal(key: Any, shape: Shape, dtype: Any = np.float32, *, mean: float = 0.0, std: float = 1.0) -> Any:
    """Normal with this mean and standard deviation."""
    return _drawn(lambda drawn: random.normal(key, _shape(shape), mean, std, dtype=drawn), dtype)


def truncated_normal(
    key: Any,
    shape: Shape,
    dtype: Any = np.float32,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    lower: float = -2.0,
    upper: float = 2.0,
    corrected: bool = True,
) -> Any:
    """A normal of which what lies outside of [lower, upper], in standard deviations, was drawn again.

    Cutting its tails makes a law narrower (0.88 at two standard deviations). `corrected`: it is widened again, so that
    `std` is the standard deviation of what is returned (and, if the bounds are symmetric, `mean` its mean). Without it
    `std` is that of the normal before, as in PyTorch's `trunc_normal_(mean, std, a=mean + lower * std, ...)`.
    """
    if not lower < upper:
        raise ValueError(f"truncated_normal: lower {lower} is not below upper {upper}")
    scale = std / _truncated_std(lower, upper) if corrected else std

    def draw(drawn: Any) -> Any:
        return mean + scale * random.truncated_normal(key, _shape(shape), lower, upper, dtype=drawn)

    return _drawn(draw, dtype)


def _truncated_std(lower: float, upper: float) -> float:
    """The standard deviation of a standard normal between two bounds (Johnson, Kotz, Balakrishnan, 13.10.1)."""
    density = lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi) if math.isfinite(x) else 0.0
    moment = lambda x: x * density(x) if math.isfinite(x) else 0.0
    mass = (math.erf(upper / math.sqrt(2)) - math.erf(lower / math.sqrt(2))) / 2
    shift = (density(lower) - density(upper)) / mass
    return math.sqrt(1 + (moment(lower) - moment(upper)) / mass - shift * shift)


# By the fans ---------------------------------------------------------------------------------------------------------


def variance_scaling(
    key: Any,
    shape: Shape,
    dtype: Any = np.float32,
    *,
    scale: float = 1.0,
    mode: str = "fan_in",
    distribution: str = "normal",
) -> Any:
    """Mean 0 and variance `scale` / fan: what Glorot's, He's and LeCun's are made of.

    `mode` says which fan: "fan_in", "fan_out" or their mean, "fan_avg"; `distribution` is "normal", "uniform" or
    "truncated_normal" (at two standard deviations, widened to the same variance).
    """
    if mode not in _MODES:
        raise ValueError(f"mode is one of {', '.join(map(repr, _MODES))}, not {mode!r}")
    if distribution not in ("normal", "uniform", "truncated_normal"):
        raise ValueError(f'distribution is "normal", "uniform" or "truncated_normal", not {distribution!r}')
    std = math.sqrt(scale / max(_MODES[mode](*fans(shape)), 1))
    if distribution == "uniform":
        bound = math.sqrt(3.0) * std * _per_part(dtype)
        return uniform(key, shape, dtype, low=-bound, high=bound)
    return (normal if distribution == "normal" else truncated_normal)(key, shape, dtype, std=std)


def glorot_uniform(key: Any, shape: Shape, dtype: Any = np.float32, *, gain: float = 1.0) -> Any:
    """Uniform, variance gain^2 * 2 / (fan in + fan out): for tanh and sigmoid.

    X. Glorot and Y. Bengio, Understanding the difficulty of training deep feedforward neural networks, 2010.
    """
    return variance_scaling(key, shape, dtype, scale=gain**2, mode="fan_avg", distribution="uniform")


def glorot_normal(key: Any, shape: Shape, dtype: Any = np.float32, *, gain: float = 1.0) -> Any:
    """Normal, variance gain^2 * 2 / (fan in + fan out)."""
    return variance_scaling(key, shape, dtype, scale=gain**2, mode="fan_avg")


def he_uniform(
    key: Any,
    shape: Shape,
    dtype: Any = np.float32,
    *,
    mode: str = "fan_in",
    nonlinearity: str = "relu",
    slope: float = 0.0,
) -> Any:
    """Uniform, variance gain(nonlinearity)^2 / fan: for ReLU and its relatives (PyTorch's `kaiming_uniform_`).

    K. He, X. Zhang, S. Ren and J. Sun, Delving deep into rectifiers, 2015.
    """
    scale = gain(nonlinearity, slope) ** 2
    return variance_scaling(key, shape, dtype, scale=scale, mode=mode, distribution="uniform")


def he_normal(
    key: Any,
    shape: Shape,
    dtype: Any = np.float32,
    *,
    mode: str = "fan_in",
    nonlinearity: str = "relu",
    slope: float = 0.0,
) -> Any:
    """Normal, variance gain(nonlinearity)^2 / fan (PyTorch's `kaiming_normal_`)."""
    return variance_scaling(key, shape, dtype, scale=gain(nonlinearity, slope) ** 2, mode=mode)


def lecun_uniform(key: Any, shape: Shape, dtype: Any = np.float32) -> Any:
    """Uniform, variance 1 / fan in: for SELU and linear layers. Y. LeCun et al., Efficient BackProp, 1998."""
    return variance_scaling(key, shape, dtype, distribution="uniform")


def lecun_normal(key: Any, shape: Shape, dtype: Any = np.float32) -> Any:
    """Normal, variance 1 / fan in."""
    return variance_scaling(key, shape, dtype)


def fan_in_uniform(key: Any, shape: Shape, dtype: Any = np.float32, *, fan_in: int | None = None) -> Any:
    """Uniform in +-1 / sqrt(fan in): what PyTorch's layers do by themselves, for weights and for biases.

    A bias has no fan of its own: `fan_in` is that of its weight.
    """
    bound = _per_part(dtype) / math.sqrt(max(fans(shape)[0] if fan_in is None else fan_in, 1))
    return uniform(key, shape, dtype, low=-bound, high=bound)


# By structure --------------------------------------------------------------------------------------------------------


def orthogonal(key: Any, shape: Shape, dtype: Any = np.float32, *, gain: float = 1.0) -> Any:
    """`gain` times a matrix with orthonormal rows or columns, uniformly; (out, in, *kernel) is (out, in * kernel).

    A. Saxe, J. McClelland and S. Ganguli, Exact solutions to the nonlinear dynamics of learning, 2014.
    """
    shape = _shape(shape)
    if len(shape) < 2:
        raise ValueError(f"orthogonal makes a matrix (out, in, *kernel), not an array of shape {shape}")
    rows, columns = shape[0], math.prod(shape[1:])
    if rows * columns == 0:
        return np.zeros(shape, dtype)
    z = random.normal(key, (max(rows, columns), min(rows, columns)), dtype=np.float64)
    q, r = np.linalg.qr(z)
    q = q * np.sign(np.diagonal(r))  # QR leaves the signs to the algorithm: with these it is uniform
    return (gain * (q if rows >= columns else q.T)).reshape(shape).astype(dtype)


def sparse(key: Any, shape: Shape, dtype: Any = np.float32, *, sparsity: float = 0.9, std: float = 0.01) -> Any:
    """Normal, and in each column (the weights of one input) this fraction of zeros, at random places.

    J. Martens, Deep learning via Hessian-free optimization, 2010.
    """
    shape = _shape(shape)
    if len(shape) != 2:
        raise ValueError(f"sparse makes a matrix, not an array of shape {shape}")
    if not 0 <= sparsity <= 1:
        raise ValueError(f"sparsity is the fraction of zeros, between 0 and 1, not {sparsity}")
    of_values, of_places = random.split(random.next_key() if key is None else key)
    values = random.normal(of_values, shape, 0.0, std, dtype=np.float64)
    ranks = np.argsort(np.argsort(random.uniform(of_places, shape, dtype=np.float64), axis=0), axis=0)
    return np.where(ranks < math.ceil(sparsity * shape[0]), 0.0, values).astype(dtype)


def _shape(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)


def _per_part(dtype: Any) -> float:
    """By how much a bound is smaller for each part of a complex number, so that the variance is the same."""
    return math.sqrt(0.5) if np.dtype(dtype).kind == "c" else 1.0


def _drawn(draw: Any, dtype: Any) -> Any:
    """What is drawn in float32 or float64, in the dtype asked for: both, float16 (rounded), and complex numbers."""
    wanted = np.dtype(dtype)
    if wanted.kind not in "fc":
        raise TypeError(f"weights are drawn as floating-point or complex numbers, not {wanted}")
    drawn = draw(np.float32 if wanted.itemsize < 4 else wanted)
    return drawn if drawn.dtype == wanted else drawn.astype(wanted)
