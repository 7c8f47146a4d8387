"""Sequences and images of different lengths in one batch: which positions are real, and what layers make of that.

A mask has the axes of the data without the channels, (batch, *spatial), and is True where there is something; what is
padded comes at the end of each axis. `Masked` carries it through layers: padded positions are 0 before each, they
count neither in statistics nor in pooling, and results and derivatives are those of each sample by itself.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np

from wonderland.nn.arguments import array
from wonderland.nn.containers import Residual, Sequential, _callables
from wonderland.nn.convolutions import _Convolution, _Filter, _TransposedConvolution
from wonderland.nn.kan import KAN
from wonderland.nn.linear import Linear
from wonderland.nn.local import _LocallyConnected
from wonderland.nn.module import Module
from wonderland.nn.norms import TrailingNorm
from wonderland.nn.placing import place_of, wrong_shape
from wonderland.nn.pools import GlobalAvgPool, GlobalMaxPool, GlobalSumPool, _AdaptivePool, _AvgPool, _MaxPool, _Pool
from wonderland.nn.shapes import Flatten, Unflatten, Upsample
from wonderland.nn.trained import Maxout, SwiGLU
from wonderland.numpy.pooling import sum_pool


def length_mask(lengths: Any, size: int | None = None) -> Any:
    """True for the first `lengths[i]` of `size` positions of sample i: (n,) lengths become a mask (n, size).

    Without a size it is the largest length.
    """
    lengths = array(lengths)
    if lengths.dtype.kind not in "iu":
        raise TypeError(f"length_mask: lengths are integers, got dtype {lengths.dtype}")
    size = int(np.max(lengths, initial=0)) if size is None else size
    return np.arange(size) < lengths[..., None]


def real_places(layer: Any, mask: Any, shape: tuple[int, ...]) -> Any:
    """A model's mask of tokens, views or samples, False where there is none, in full: bools of this shape, (..., T)."""
    if mask is None:
        return None
    mask = array(mask)
    if mask.dtype != bool:
        raise TypeError(
            f"{place_of(layer)}: a mask is an array of bools, False where there is nothing, got dtype {mask.dtype}: "
            "write mask.astype(bool)"
        )
    if mask.ndim > len(shape) or any(n not in (1, m) for n, m in zip(mask.shape[::-1], shape[::-1], strict=False)):
        raise wrong_shape(layer, f"{shape}", mask.shape, "a mask")
    return np.broadcast_to(mask, shape)


def of_keys(mask: Any) -> Any:
    """A mask of tokens (..., T) as one of attention's keys, for all heads and queries."""
    return None if mask is None else array(mask)[..., None, None, :]


# Pooling of all real positions ---------------------------------------------------------------------------------------


def masked_sum(x: Any, mask: Any, *, rank: int | None = None, channels_last: bool = False) -> Any:
    """The sum over the positions that a mask marks: x (n, c, *spatial) and mask (n, *spatial) make (n, c).

    `channels_last`: x is (n, *spatial, c). `rank` is the number of spatial axes, without it all but the first of mask.
    """
    x, inside, axes = _positions(x, mask, rank, channels_last, "masked_sum")
    return np.sum(np.where(inside, x, 0), axis=axes)


def masked_mean(x: Any, mask: Any, *, rank: int | None = None, channels_last: bool = False) -> Any:
    """The mean over the positions that a mask marks, 0 where there are none; arguments as of `masked_sum`."""
    x, inside, axes = _positions(x, mask, rank, channels_last, "masked_mean")
    count = np.sum(inside, axis=axes).astype(x.dtype if x.dtype.kind in "fc" else np.float64)
    return np.sum(np.where(inside, x, 0), axis=axes) / np.maximum(count, 1)


def masked_max(x: Any, mask: Any, *, rank: int | None = None, channels_last: bool = False) -> Any:
    """The maximum over the positions that a mask marks, 0 where there are none; arguments as of `masked_sum`."""
    x, inside, axes = _positions(x, mask, rank, channels_last, "masked_max")
    found = np.max(np.where(inside, x, _lowest(x.dtype)), axis=axes)
    return np.where(np.any(inside, axis=axes), found, 0)


def _positions(x: Any, mask: Any, rank: int | None, last: bool, name: str) -> tuple[Any, Any, tuple[int, ...]]:
    x, mask = array(x), array(mask)
    if mask.dtype != bool:
        raise TypeError(f"{name}: a mask is an array of bools, True for what counts, got dtype {mask.dtype}")
    rank = int(mask.ndim - 1) if rank is None else rank
    end = x.ndim - last
    axes = tuple(range(end - rank, end))
    if rank < 1 or mask.ndim != x.ndim - 1:
        raise ValueError(f"{name}: a mask has the axes of x without the channels; they have {mask.shape} and {x.shape}")
    return x, _beside(mask, x, rank, last, name), axes


def _beside(mask: Any, x: Any, rank: int, last: bool, name: str) -> Any:
    """A mask, to broadcast with x along the batch and the channels; positions are counted, so all of them are there."""
    end, wide = x.ndim - last, mask
    if x.ndim > mask.ndim:
        wide = np.expand_dims(mask, -1 if last else mask.ndim - rank)
    sizes = zip(wide.shape, x.shape, strict=False)
    fits = [n == m or (n == 1 and not end - rank <= i < end) for i, (n, m) in enumerate(sizes)]
    if not all(fits) or wide.ndim != x.ndim:
        raise ValueError(
            f"{name}: x has shape {x.shape}, with {rank} spatial axes and channels "
            f"{'last' if last else 'before these'}, and the mask {mask.shape}: they don't fit"
        )
    return wide


def _lowest(dtype: Any) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


# Positions after a layer ---------------------------------------------------------------------------------------------


def mask_after(layer: Any, mask: Any) -> Any:
    """Which positions of a layer's result are real, of a mask (n, *spatial) of its input's: (n, *spatial').

    As many as if each sample went through the layer alone: of a convolution or pooling,
    (length + padding - dilation (kernel - 1) - 1) // stride + 1. Of layers that keep positions it is the mask itself. A
    Module of your own that changes them says how by a method `mask_after(mask)`.
    """
    mask = array(mask)
    if mask.dtype != bool:
        raise TypeError(f"mask_after: a mask is an array of bools, True for what is real, got dtype {mask.dtype}")
    if hasattr(layer, "mask_after"):
        return layer.mask_after(mask)
    if isinstance(layer, Sequential):
        for inner in layer:
            mask = mask_after(inner, mask)
        return mask
    if isinstance(layer, Residual):
        return mask_after(layer.inner, mask)
    if not isinstance(layer, (_Filter, _Pool)):
        _check_keeps(layer)
        return mask
    for i in range(layer.rank):
        axis = mask.ndim - layer.rank + i
        places = _sources(layer, i, mask.shape[axis])
        mask = np.take(mask, np.clip(places, 0, mask.shape[axis] - 1), axis=axis)
    return mask


def _sources(layer: Any, i: int, extent: int) -> Any:
    """For each position of the result along an axis, the input's that has to be real for it to be there."""
    reach = layer.dilation[i] * (layer.kernel_size[i] - 1)
    step = layer.stride[i]
    if isinstance(layer, _TransposedConvolution):
        more = reach + layer.output_padding[i] - sum(layer.padding[i])
        return -((more - np.arange((extent - 1) * step + more + 1)) // step)
    if isinstance(layer.padding, str):
        before, after = (0, 0) if layer.padding == "valid" else (reach, 0)
    else:
        before, after = layer.padding[i]
    if getattr(layer, "padding_mode", "zeros") != "zeros" and before + after:
        raise ValueError(
            f"{place_of(layer)}: padding_mode={layer.padding_mode!r} repeats elements at the end of an axis, which is "
            "at another place in each sample: use 'zeros'"
        )
    room = extent + before + after - reach - 1
    if not getattr(layer, "ceil_mode", False):
        return np.arange(room // step + 1) * step + reach - before - after
    count = -(-room // step) + 1
    count -= (count - 1) * step >= extent + before  # a window begins in the array or in the padding before it
    starts = np.arange(count) * step
    return np.maximum(starts - before, starts - step + 1 + reach - before - after)


GLOBAL = (GlobalAvgPool, GlobalMaxPool, GlobalSumPool)
_MIXING = (_Filter, _Pool, _AdaptivePool, _LocallyConnected, Flatten, Unflatten, Upsample)
_OF_LAST_AXIS = (Linear, TrailingNorm, KAN, Maxout, SwiGLU)


def _check_keeps(layer: Any) -> None:
    """Refuse layers of which it isn't known which positions they keep."""
    parts = [module for _, module in layer.named_modules()] if isinstance(layer, Module) else []
    wrong = next((part for part in parts if isinstance(part, _MIXING)), None)
    if wrong is not None and not takes_mask(layer):
        within = "" if wrong is layer else f", which holds a {type(wrong).__name__},"
        raise TypeError(
            f"{place_of(layer)}{within} doesn't say what becomes of a mask: write it with `nn.Masked`, or with an "
            "argument mask= of __call__ and, if positions change, a method mask_after(mask)"
        )


def takes_mask(layer: Any) -> bool:
    """Does a Module have an argument `mask`?"""
    return isinstance(layer, Module) and _has_mask(type(layer))


@functools.cache
def _has_mask(kind: type) -> bool:
    return "mask" in inspect.signature(kind.__call__).parameters


class Masked(Module):
    """Layers and functions, one after the other, for samples of different lengths: `y, mask = model(x, mask)`.

        x (n, c, *spatial), mask (n, *spatial)  ->  y (n, c', *spatial'), mask (n, *spatial')

    The result at a real position, and its derivatives, are what they are for the sample alone; at others it is 0.
    After a global pooling, which takes real positions only, the mask is None. `channels_last`: x is (n, *spatial, c);
    then Linear and LayerNorm act on each position. A Module that has an argument `mask` (as batch, group and instance
    norm have) gets it; one without it has to act on each position alone. Names of parameters are those of
    `Sequential`, whose layers this takes, too: `nn.Masked(*sequential)`.
    """

    _unprefixed = ("layers",)

    def __init__(self, *layers: Any, channels_last: bool = False):
        self.layers: list[Any] = _callables("Masked", layers)
        self.channels_last: bool = bool(channels_last)

    def __call__(self, x: Any, mask: Any) -> tuple[Any, Any]:
        """x (n, c, *spatial) and its mask (n, *spatial) to the same of the result."""
        x, mask = array(x), None if mask is None else array(mask)
        x = self._cleared(x, mask)
        for layer in self.layers:
            x, mask = self._through(layer, x, mask)
        return x, mask

    def mask_after(self, mask: Any) -> Any:
        """The mask of the result."""
        for layer in self.layers:
            mask = mask_after(layer, mask)
        return mask

    def _cleared(self, x: Any, mask: Any, value: Any = 0) -> Any:
        if mask is None:
            return x
        return np.where(_beside(mask, x, mask.ndim - 1, self.channels_last, place_of(self)), x, value)

    def _through(self, layer: Any, x: Any, mask: Any) -> tuple[Any, Any]:
        if mask is None:
            return layer(x), None
        if isinstance(layer, Masked):
            return layer(x, mask)
        if isinstance(layer, Sequential):
            for inner in layer:
                x, mask = self._through(inner, x, mask)
            return x, mask
        if isinstance(layer, Residual):
            return self._around(layer, x, mask)
        self._check(layer, x, mask)
        if isinstance(layer, GLOBAL):
            return self._pooled(layer, x, mask), None
        after = mask_after(layer, mask)
        if isinstance(layer, _MaxPool):
            y = layer(self._cleared(x, mask, _lowest(x.dtype)))
        elif isinstance(layer, _AvgPool) and not layer.count_include_pad:
            y = self._mean(layer, x, mask)
        else:
            given: dict[str, Any] = {"mask": mask} if takes_mask(layer) else {}
            y = layer(x, **given)
        return self._cleared(y, after), after

    def _around(self, layer: Any, x: Any, mask: Any) -> tuple[Any, Any]:
        change, after = self._through(layer.inner, x, mask)
        around = x if layer.shortcut is None else self._through(layer.shortcut, x, mask)[0]
        if around.shape != change.shape:
            raise ValueError(f"{place_of(layer)}: inner made {change.shape}, and the shortcut has {around.shape}")
        return around + (change if layer.scale is None else layer.scale * change), after

    def _pooled(self, layer: Any, x: Any, mask: Any) -> Any:
        pool = {GlobalAvgPool: masked_mean, GlobalMaxPool: masked_max, GlobalSumPool: masked_sum}[type(layer)]
        return pool(x, mask, rank=layer.rank, channels_last=layer.channels_last)

    def _mean(self, layer: Any, x: Any, mask: Any) -> Any:
        """The mean of the real elements of each window."""
        sizes = layer.kernel_size, layer.stride, layer.padding
        channels = "last" if self.channels_last else "first"
        inside = _beside(mask, x, layer.rank, self.channels_last, place_of(layer)).astype(x.dtype)
        count = sum_pool(inside, *sizes, channels=channels)
        return sum_pool(x, *sizes, channels=channels) / np.maximum(count, 1)

    def _check(self, layer: Any, x: Any, mask: Any) -> None:
        """Refuse layers whose axes aren't those of the mask."""
        spatial = mask.ndim - 1
        where = lambda: f"{place_of(layer)}: with a mask of shape {mask.shape} and x of shape {x.shape}"
        if isinstance(layer, (_Convolution, _TransposedConvolution, _Pool, *GLOBAL)):
            if layer.rank != spatial or layer.channels_last != self.channels_last:
                raise ValueError(
                    f"{where()}, {spatial} spatial axes and channels {'last' if self.channels_last else 'first'} are "
                    f"expected, as the Masked around it says; this layer has {layer.rank} and channels "
                    f"{'last' if layer.channels_last else 'first'}"
                )
            if isinstance(layer, _AvgPool) and layer.ceil_mode:
                raise ValueError(f"{where()}, means of incomplete windows aren't known: leave out ceil_mode")
        mixes = isinstance(layer, TrailingNorm) and len(layer.normalized_shape or (0,)) > 1
        if (not self.channels_last and isinstance(layer, _OF_LAST_AXIS)) or mixes:
            raise ValueError(f"{where()}, the last axis has positions, which it would mix: use channels_last=True")
