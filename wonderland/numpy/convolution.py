"""`conv` and `conv_transpose`: products of windows with weights, and sums of products into windows. PyTorch's meaning.

There is no operator of convolution: `conv` is a padding, `windows` (a view) and a `dot`, and `conv_transpose` a `dot`
and a `fold`, so every derivative is one of these. Long kernels along one axis are applied in the frequency domain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from wonderland.core.functions import handles
from wonderland.core.types import promote, shape_of, type_of
from wonderland.numpy.join import as_value
from wonderland.numpy.products import pairwise
from wonderland.numpy.shape import reshape_value, transpose_value
from wonderland.numpy.spatial import Pairs, Windows, padded, padded_by, padding_pairs, per_axis, spatial_axes
from wonderland.ops.elementwise import add, conjugate
from wonderland.ops.fft import fft, irfft, rfft
from wonderland.ops.index import slice as part
from wonderland.ops.shape import convert
from wonderland.ops.windows import window_count, window_extent

Labels = list[str]


def conv(
    x: Any, w: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, *, bias: Any = None,
    input_dilation: Any = 1, padding_mode: str = "zeros", channels: str = "first", method: str = "auto",
) -> Any:  # fmt: skip
    """Convolution along any number of axes, as the functions `conv1d`, `conv2d`, `conv3d` of PyTorch mean it.

    `w` has shape (out, in / groups, *kernel), and `x` shape (batch, in, *spatial) or (in, *spatial); more leading axes
    are batch axes, too. With `channels="last"`, `x` is (batch, *spatial, in) and the result (batch, *spatial, out).
    `stride`, `dilation` and `input_dilation` (zeros between the elements of x) are one integer, or one for each axis.
    `padding` may also have a pair (before, after) for an axis, or be "same" (the result has the extents of the input;
    the stride is 1), "valid" (none) or "causal" (all before). `padding_mode` is "zeros", "circular", "reflect" or
    "replicate". `bias` has one number for each channel of the result.

    Kernels along one axis that are so long that fast Fourier transforms take far fewer operations are applied by them;
    `method="direct"` never does it, `method="fft"` always.
    """
    x, w = as_value(x), as_value(w)
    image = _Image(x, w, channels, groups)
    rank, sizes = image.rank, shape_of(w)[2:]
    image.check(shape_of(w)[1] * image.groups, "w.shape[1] * groups")
    if shape_of(w)[0] % image.groups:
        raise ValueError(f"groups={groups} must divide the number of output channels: w has shape {shape_of(w)}")
    strides, dilations = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    pairs = _paddings(padding, sizes, strides, dilations)
    none = ((0, 0),) * rank
    x = padded(x, image.axes, none, 0, per_axis(input_dilation, rank, "input_dilation"))
    if padding_mode != "zeros":
        x, pairs = padded_by(padding_mode, x, image.axes, pairs), none
    weights, labels = image.weights(w, "oc")
    if method not in ("auto", "direct", "fft"):
        raise ValueError(f"method is 'auto', 'direct' or 'fft', not {method!r}")
    plain = rank == 1 and dilations == (1,) and promote(type_of(x), type_of(w))[0].kind in "fc"
    if method == "fft" and not plain:
        raise ValueError("method='fft' is for numbers with a fraction, along one axis, without dilation")
    if method == "fft" or (method == "auto" and plain and _is_long(x, w, image, strides, pairs)):
        out, order = _by_transforms(image, padded(x, image.axes, pairs), weights, labels, strides)
    else:
        axes = tuple(map(image.labels().index, _spatial(rank)))
        out, order = _by_windows(image, x, weights, labels, Windows(axes, sizes, strides, dilations, pairs))
    out = image.finished(transpose_value(out, tuple(map(order.index, image.result(order)))), bias)
    return handles([out])[0]


def conv_transpose(
    x: Any, w: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1, *,
    bias: Any = None, channels: str = "first",
) -> Any:  # fmt: skip
    """Transposed convolution, as `conv_transpose1d`, `conv_transpose2d`, `conv_transpose3d` of PyTorch mean it.

    `w` has shape (in, out / groups, *kernel). Along each axis the result has
    (n - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1 elements. Apart from that the arguments are
    those of `conv`, of which this is the transpose (and so its derivative) with the same numbers.
    """
    x, w = as_value(x), as_value(w)
    image = _Image(x, w, channels, groups)
    rank, sizes = image.rank, shape_of(w)[2:]
    image.check(shape_of(w)[0], "w.shape[0]")
    strides, dilations = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    more, pairs = per_axis(output_padding, rank, "output_padding", 0), padding_pairs(padding, rank)
    if any(m >= max(s, d) for m, s, d in zip(more, strides, dilations, strict=True)):
        raise ValueError(f"output_padding={output_padding!r} must be smaller than the stride or the dilation")
    weights, labels = image.weights(w, "co")
    out, order = image.product(image.grouped(x), image.labels(), weights, labels)
    order, goal = list(order), [*image.result(order), *_kernel(rank)]
    out = transpose_value(out, tuple(map(order.index, goal)))
    axes = tuple(map(goal.index, _spatial(rank)))
    shape, pads, zeros = list(shape_of(out)[:-rank]), list(pairs), [(0, 0)] * rank
    for i, (a, (before, after)) in enumerate(zip(axes, pairs, strict=True)):
        whole = (shape[a] - 1) * strides[i] + window_extent(sizes[i], dilations[i])
        if not shape[a] or whole + more[i] <= before + after:
            raise ValueError(f"padding {before, after} leaves nothing of {max(whole, 0)} elements along axis {a} of x")
        pads[i], beyond = (before, max(after - more[i], 0)), max(more[i] - after, 0)
        if beyond >= strides[i]:  # as a part of the array, they would make a window more
            zeros[i], beyond = (0, beyond), 0
        shape[a] = whole + beyond - sum(pads[i])
    out = padded(Windows(axes, sizes, strides, dilations, tuple(pads)).folded(out, tuple(shape)), axes, tuple(zeros))
    return handles([image.finished(out, bias)])[0]


def _spatial(rank: int) -> Labels:
    return [f"s{i}" for i in range(rank)]


def _kernel(rank: int) -> Labels:
    return [f"k{i}" for i in range(rank)]


class _Image:
    """The axes of x and w, by labels: batch axes, g for groups, c and o for the channels in and out of a group.

    A single group, and a single channel of a group, have no axis: the product isn't to sum over it.
    """

    def __init__(self, x: Any, w: Any, channels: str, groups: int):
        self.shape: tuple[int, ...] = shape_of(x)
        self.rank: int = len(shape_of(w)) - 2
        if self.rank < 1:
            raise ValueError(f"w has shape {shape_of(w)}; expected two axes for channels, and one or more of a kernel")
        if 0 in shape_of(w)[2:]:
            raise ValueError(f"w has shape {shape_of(w)}: its kernel has no elements")
        self.last: bool = channels == "last"
        self.axes, self.channel = spatial_axes(len(self.shape), self.rank, channels, f"x of shape {self.shape}")
        if self.channel < 0:
            raise ValueError(f"x has shape {self.shape}; expected an axis for channels beside {self.rank} spatial ones")
        (self.groups,) = per_axis(groups, 1, "groups")
        self.lead: Labels = [f"b{i}" for i in range(len(self.shape) - self.rank - 1)]

    def check(self, expected: int, what: str) -> None:
        """Do the channels of x fit the weights?"""
        n = self.shape[self.channel]
        if n != expected:
            raise ValueError(f"x of shape {self.shape} has {n} channels (axis {self.channel}); {what} is {expected}")
        if n % self.groups:
            raise ValueError(f"groups={self.groups} must divide the {n} channels of x, of shape {self.shape}")

    def _split(self, count: int, name: str) -> tuple[list[int], Labels]:
        """Extents and labels of `count` channels in groups."""
        if self.groups == 1:
            return [count], [name]
        each = count // self.groups
        return ([self.groups], ["g"]) if each == 1 else ([self.groups, each], ["g", name])

    def labels(self) -> Labels:
        """The labels of x when its channels are in groups."""
        inner = self._split(self.shape[self.channel], "c")[1]
        spatial = _spatial(self.rank)
        return [*self.lead, *spatial, *inner] if self.last else [*self.lead, *inner, *spatial]

    def grouped(self, x: Any) -> Any:
        """x with its channels in groups: an axis that is split, which moves nothing."""
        shape, c = shape_of(x), self.channel
        return reshape_value(x, (*shape[:c], *self._split(shape[c], "c")[0], *shape[c + 1 :]))

    def weights(self, w: Any, order: str) -> tuple[Any, Labels]:
        """w with its first axis in groups, and its labels; `order` says which channels come first."""
        first, second = order
        extents, labels = self._split(shape_of(w)[0], first)
        if shape_of(w)[1] != 1 or self.groups == 1:
            extents, labels = [*extents, shape_of(w)[1]], [*labels, second]
        return reshape_value(w, (*extents, *shape_of(w)[2:])), [*labels, *_kernel(self.rank)]

    def product(self, x: Any, x_labels: Labels, w: Any, w_labels: Labels) -> tuple[Any, Labels]:
        """Sum over what both have and the result hasn't. Images come first if their channels are last."""
        kept = [a for a in (*x_labels, *w_labels) if a[0] in "bgsof" or a not in x_labels]
        operands = (x, x_labels, w, w_labels) if self.last else (w, w_labels, x, x_labels)
        return pairwise(*operands, kept)

    def result(self, order: Labels) -> Labels:
        """The order of axes that the result has, of those that there are."""
        inner, spatial = [a for a in "go" if a in order], _spatial(self.rank)
        return [*self.lead, *spatial, *inner] if self.last else [*self.lead, *inner, *spatial]

    def finished(self, out: Any, bias: Any) -> Any:
        """The groups' channels in one axis, and the bias added."""
        shape, n, lead = shape_of(out), len(self.lead), self.rank if self.last else 0
        inner = len(shape) - n - self.rank
        count = math.prod(shape[n + lead : n + lead + inner])
        out = reshape_value(out, (*shape[: n + lead], count, *shape[n + lead + inner :]))
        if bias is None:
            return out
        bias = as_value(bias)
        if shape_of(bias) != (count,):
            raise ValueError(f"bias has shape {shape_of(bias)}; expected ({count},), a number for each output channel")
        return add(out, bias if self.last else reshape_value(bias, (count, *(1,) * self.rank)))


def _paddings(padding: Any, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Pairs:
    if not isinstance(padding, str):
        return padding_pairs(padding, len(sizes))
    more = [max(window_extent(k, d) - 1, 0) for k, d in zip(sizes, dilations, strict=True)]
    if padding == "valid":
        return tuple((0, 0) for _ in more)
    if padding == "causal":
        return tuple((n, 0) for n in more)
    if padding != "same":
        raise ValueError(f"padding is 'same', 'valid', 'causal' or numbers, not {padding!r}")
    if any(s != 1 for s in strides):
        raise ValueError(
            f"padding='same' needs stride=1, not {tuple(strides)}: with other strides there are several ways to divide "
            "the padding; give it as numbers"
        )
    return tuple((n // 2, n - n // 2) for n in more)


def _by_windows(image: _Image, x: Any, w: Any, w_labels: Labels, windows: Windows) -> tuple[Any, Labels]:
    rank, labels, x = image.rank, image.labels(), image.grouped(x)
    if all(k == 1 for k in windows.sizes):  # a matrix for each element, and no windows
        x = padded(x, windows.axes, windows.padding)
        if any(s != 1 for s in windows.strides):
            steps = dict(zip(windows.axes, windows.strides, strict=True))
            x = part(x, index=tuple(slice(0, n, steps.get(i, 1)) for i, n in enumerate(shape_of(x))))
        w, w_labels = reshape_value(w, shape_of(w)[:-rank]), w_labels[:-rank]
        return image.product(x, labels, w, w_labels)
    if _is_narrow(image, w, w_labels, windows):
        return _by_taps(image, x, w, w_labels, windows)
    x, labels = windows.of(x), [*labels, *_kernel(rank)]
    if image.last:  # the channels, which are neighbours in memory, behind the window
        goal = [*image.lead, *_spatial(rank), *_kernel(rank), *(a for a in labels if a in "gc")]
        x, labels = transpose_value(x, tuple(map(labels.index, goal))), goal
    return image.product(x, labels, w, w_labels)


# The channels out are so few, those in so many: a product of windows would fill a register for each of the former.
_FEW, _MANY, _MOST_TAPS = 2, 8, 32


def _is_narrow(image: _Image, w: Any, w_labels: Labels, windows: Windows) -> bool:
    out, inner = (shape_of(w)[w_labels.index(a)] if a in w_labels else 0 for a in "oc")
    plain = image.groups == 1 and all(s == 1 for s in windows.strides) and math.prod(windows.sizes) <= _MOST_TAPS
    return plain and 0 < out <= _FEW and inner >= _MANY and math.prod(image.shape) > 0


def _by_taps(image: _Image, x: Any, w: Any, w_labels: Labels, windows: Windows) -> tuple[Any, Labels]:
    """The product of each element with the weights of all taps; then each result takes its taps of its neighbours."""
    windows.of(x)  # says whether they fit
    x = padded(x, windows.axes, windows.padding)
    products, order = image.product(x, image.labels(), w, w_labels)
    order, total = list(order), None
    for tap in itertools.product(*map(range, windows.sizes)):
        index: list[Any] = [slice(0, n, 1) for n in shape_of(products)]
        for i, (place, dilation, axis) in enumerate(zip(tap, windows.dilations, windows.axes, strict=True)):
            first = place * dilation
            count = window_count(shape_of(x)[axis], windows.sizes[i], 1, dilation)
            index[order.index(f"s{i}")], index[order.index(f"k{i}")] = slice(first, first + count, 1), place
        one = part(products, index=tuple(index))
        total = one if total is None else add(total, one)
    return total, [a for a in order if a[0] != "k"]


# In the frequency domain ---------------------------------------------------------------------------------------------

# How much slower a multiplication of NumPy's transforms is than one of compiled products: measured 6 to 27.
_SLOWER = 16


def fewer_by_transforms(length: int, transforms: int, direct: int, products: int) -> bool:
    """Are `direct` multiplications far more than those of so many transforms and products of spectra of a length?"""
    return direct > _SLOWER * length * (2 * transforms * math.log2(max(length, 2)) + 2 * products)


def fast_length(n: int) -> int:
    """The next product of small primes."""
    while True:
        rest = n
        for p in (2, 3, 5):
            while rest % p == 0:
                rest //= p
        if rest == 1:
            return n
        n += 1


def _is_long(x: Any, w: Any, image: _Image, strides: tuple, pairs: Pairs) -> bool:
    """Do transforms take far fewer multiplications than the product of windows, those in the padding included?"""
    n, (out, inner, size) = shape_of(x)[image.axes[0]], shape_of(w)
    images = type_of(x).size // max(n * inner * image.groups, 1)
    n += sum(pairs[0])
    transforms = images * inner * image.groups + out * inner + images * out
    direct = images * out * inner * size * window_count(n, size, strides[0])
    return fewer_by_transforms(n, transforms, direct, images * out * inner)


def _by_transforms(image: _Image, x: Any, w: Any, w_labels: Labels, strides: tuple) -> tuple[Any, Labels]:
    """The correlation theorem: the spectrum of x times that of w with frequencies reversed."""
    dtype = promote(type_of(x), type_of(w))[0]
    x, w = (a if type_of(a).dtype == dtype else convert(a, dtype=dtype) for a in (image.grouped(x), w))
    labels, real = image.labels(), dtype.kind == "f"
    at, last, size = labels.index("s0"), len(shape_of(w)) - 1, shape_of(w)[-1]
    n = shape_of(x)[at]
    places = window_count(n, size)
    if not places:
        Windows((at,), (size,), (1,), (1,), ((0, 0),)).of(x)  # says so
    length = fast_length(n)
    x, w = padded(x, (at,), ((0, length - n),)), padded(w, (last,), ((0, length - size),))
    if real:
        x, w = rfft(x, axis=at, norm="backward"), conjugate(rfft(w, axis=last, norm="backward"))
    else:
        x = fft(x, axes=(at,), inverse=False, norm="backward")
        w = fft(w, axes=(last,), inverse=True, norm="forward")
    renamed = ["f" if a == "s0" else a for a in labels], ["f" if a == "k0" else a for a in w_labels]
    out, order = image.product(x, renamed[0], w, renamed[1])
    order = ["s0" if a == "f" else a for a in order]
    at = order.index("s0")
    if real:
        out = irfft(out, axis=at, n=length, norm="backward")
    else:
        out = fft(out, axes=(at,), inverse=True, norm="backward")
    index = tuple(slice(0, places, strides[0]) if i == at else slice(0, m, 1) for i, m in enumerate(shape_of(out)))
    return part(out, index=index), order
