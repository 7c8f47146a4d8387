"""Convolutions and pooling: alone, and with the derivatives for a given cotangent behind them.

Arrays are channels-first, as PyTorch has them; JAX and we get them channels-last, where both are faster, and so does
PyTorch as one more contender.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.measure import Moved
from bench.registry import Benchmark

CHANNELS_LAST = {4: "channels_last", 5: "channels_last_3d"}  # PyTorch's names, by the number of axes


@dataclass(frozen=True)
class Conv:
    """Shapes of the images and the weights, and PyTorch's arguments."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: int = 1
    padding: int | str = 0
    dilation: int = 1
    groups: int = 1

    @property
    def pads(self):
        """Zeros before and after, by axis."""
        if isinstance(self.padding, str):  # "causal"
            return [((k - 1) * self.dilation, 0) for k in self.w[2:]]
        return [(self.padding, self.padding)] * len(self.w[2:])

    @property
    def result(self):
        spans = ((k - 1) * self.dilation + 1 for k in self.w[2:])
        sizes = zip(self.x[2:], self.pads, spans, strict=True)
        return (self.x[0], self.w[0], *((n + sum(pads) - span) // self.stride + 1 for n, pads, span in sizes))


IMAGES = (16, 64, 32, 32)
CONVS = {
    "conv3x3": Conv(IMAGES, (64, 64, 3, 3), padding=1),
    "conv1x1": Conv(IMAGES, (64, 64, 1, 1)),
    "conv5x5_stride2": Conv(IMAGES, (64, 64, 5, 5), stride=2, padding=2),
    "conv_depthwise": Conv(IMAGES, (64, 1, 3, 3), padding=1, groups=64),
    "conv1d_causal": Conv((16, 64, 1024), (64, 64, 3), padding="causal", dilation=4),
    "conv3d": Conv((4, 16, 16, 16, 16), (32, 16, 3, 3, 3), padding=1),
}
LIMITS = {"conv3x3": 0.9}


def normal(shape, scale=1.0):
    rng = np.random.default_rng(len(shape) + sum(shape))
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def conv_inputs(conv):
    """Images, weights that keep their size, and a cotangent."""
    return normal(conv.x), normal(conv.w, np.prod(conv.w[1:]) ** -0.5), normal(conv.result)


def pool_inputs():
    return normal(IMAGES), normal((*IMAGES[:2], IMAGES[2] // 2, IMAGES[3] // 2))


def our_functions() -> dict[str, Any]:
    import wonderland as wl

    def conv(given, x, w):
        return wl.conv(x, w, given.stride, given.padding, given.dilation, given.groups, channels="last")

    pools = {name: partial(getattr(wl, name), size=2, channels="last") for name in ("max_pool", "mean_pool")}
    return pools | {name: partial(conv, given) for name, given in CONVS.items()}


def torch_functions() -> dict[str, Any]:
    from torch.nn import functional

    operations = {3: functional.conv1d, 4: functional.conv2d, 5: functional.conv3d}

    def conv(given, x, w):
        causal = given.padding == "causal"  # padded on both sides and cut: faster than zeros put before it
        padding = given.pads[0][0] if causal else given.padding
        y = operations[x.ndim](x, w, None, given.stride, padding, given.dilation, given.groups)
        return y[..., : given.result[-1]] if causal else y

    pools = {"max_pool": lambda x: functional.max_pool2d(x, 2), "mean_pool": lambda x: functional.avg_pool2d(x, 2)}
    return pools | {name: partial(conv, given) for name, given in CONVS.items()}


def jax_functions() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    def conv(given, x, w):
        axes = "DHW"[-len(given.pads) :]
        layout = (f"N{axes}C", f"{axes}IO", f"N{axes}C")
        strides, dilation = ((n,) * len(axes) for n in (given.stride, given.dilation))
        return jax.lax.conv_general_dilated(
            x, w, strides, given.pads, None, dilation, layout, feature_group_count=given.groups
        )

    def pool(reduce, x):
        n, height, width, channels = x.shape
        return reduce(x.reshape(n, height // 2, 2, width // 2, 2, channels), axis=(2, 4))

    pools = {"max_pool": partial(pool, jnp.max), "mean_pool": partial(pool, jnp.mean)}
    return pools | {name: partial(conv, given) for name, given in CONVS.items()}


def ours(name, x, w, ct):
    import wonderland as wl

    function: Any = wl.jit(our_functions()[name])
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    return lambda: Moved(function(x, w), -1, 1)


def ours_both(name, *inputs):
    import wonderland as wl

    function = our_functions()[name]

    @wl.jit
    def both(*inputs):
        y, pullback = wl.vjp(function, *inputs[:-1])
        return y, pullback(inputs[-1])

    x, *weights, ct = inputs
    x, ct = (np.ascontiguousarray(np.moveaxis(array, 1, -1)) for array in (x, ct))

    def call():
        y, (dx, *dw) = both(x, *weights, ct)
        return Moved(y, -1, 1), [Moved(dx, -1, 1), *dw]

    return call


def torch_arrays(inputs, channels_last):
    import torch

    arrays = [torch.from_numpy(array) for array in inputs]
    if channels_last:
        arrays = [array.to(memory_format=getattr(torch, CHANNELS_LAST[array.ndim])) for array in arrays]
    return arrays


def in_torch(name, compile, x, w, ct, channels_last=False):
    import torch

    function = compile(torch_functions()[name])
    x, w = torch_arrays((x, w), channels_last)

    def call():
        with torch.inference_mode():
            return function(x, w)

    return call


def in_torch_both(name, compile, *inputs, channels_last=False):
    import torch

    function = compile(torch_functions()[name])
    *inputs, ct = torch_arrays(inputs, channels_last)
    inputs = [array.requires_grad_() for array in inputs]

    def call():
        y = function(*inputs)
        return y, torch.autograd.grad(y, inputs, ct)

    return call


def jax_inputs(x, *rest):
    """Channels-last images; the weights are the array in the middle of three."""
    import jax.numpy as jnp

    *weights, ct = rest
    weights = [jnp.asarray(np.moveaxis(w, (0, 1), (-1, -2))) for w in weights]
    return [jnp.asarray(np.moveaxis(x, 1, -1)), *weights, jnp.asarray(np.moveaxis(ct, 1, -1))]


def in_jax(name, *inputs):
    import jax

    function, (x, w, _) = jax.jit(jax_functions()[name]), jax_inputs(*inputs)
    return lambda: Moved(function(x, w).block_until_ready(), -1, 1)


def in_jax_both(name, *inputs):
    import jax

    function, inputs = jax_functions()[name], jax_inputs(*inputs)

    @jax.jit
    def both(*inputs):
        y, pullback = jax.vjp(function, *inputs[:-1])
        return y, pullback(inputs[-1])

    def call():
        y, (dx, *dw) = jax.block_until_ready(both(*inputs))
        return Moved(y, -1, 1), [Moved(dx, -1, 1), *(Moved(d, (-1, -2), (0, 1)) for d in dw)]

    return call


def add(name, function, about, inputs, limit, both=True):
    """A benchmark of everyone."""
    # Gradients of weights are sums over all pixels, some hundreds large: their rounding errors are absolute.
    benchmark = Benchmark(name, "convolution and pooling", about, inputs, limit=limit, rtol=1e-4, atol=1e-3)
    benchmark.contender("wonderland")(partial(ours_both if both else ours, function))
    prepare = partial(in_torch_both if both else in_torch, function)
    if len(CONVS[function].x if function in CONVS else IMAGES) in CHANNELS_LAST:
        benchmark.torch_in_both_formats(prepare)
    else:
        benchmark.torch(prepare)
    benchmark.contender("jax")(partial(in_jax_both if both else in_jax, function))


def described(conv):
    sizes = "x".join(map(str, conv.w[2:]))
    extras = {"stride": conv.stride, "dilation": conv.dilation, "groups": conv.groups}
    extra = "".join(f", {key} {value}" for key, value in extras.items() if value != 1)
    return f"{sizes} convolution {conv.x[1]}->{conv.w[0]}{extra}, images {'x'.join(map(str, conv.x))} float32"


for name, conv in CONVS.items():
    about, inputs = described(conv), partial(conv_inputs, conv)
    if name == "conv3x3":
        add(name, name, f"{about}, forward", inputs, 1.0, both=False)
    add(f"{name}_both", name, f"{about}, forward and backward", inputs, LIMITS.get(name, 1.0))
for kind in ("max", "mean"):
    about = f"{kind} of 2x2 windows, images {'x'.join(map(str, IMAGES))} float32, forward and backward"
    add(f"{kind}_pool_both", f"{kind}_pool", about, pool_inputs, 0.7)
