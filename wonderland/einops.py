"""Reshaping, reducing and repeating by patterns: `rearrange(x, "b (h w) c -> b c h w", h=8)`.

An array or traced array (or a list of them, stacked along a new first axis) comes in, a new one goes out. The notation
is that of einops: names are axes, a group in parentheses is one axis made of several (the last one runs fastest), `1`
or `()` is an axis of length 1, `...` stands for any number of axes, other numbers for axes without a name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import wonderland.numpy as wnp
from wonderland.core.tracebacks import publish as _publish

__all__ = ["PatternError", "rearrange", "reduce", "repeat"]

_TOKEN = re.compile(r"\s*(\.\.\.|…|->|\(|\)|[^\s()]+?(?=\.\.\.|…|->|[\s()]|$))")
_DOTS = "..."
_REDUCTIONS: dict[str, Callable] = {
    "min": np.min, "max": np.max, "sum": np.sum, "mean": np.mean, "prod": np.prod, "any": np.any, "all": np.all,
}  # fmt: skip

Group = tuple[str, ...]  # the axes of which one axis of the array is made; `...` may be among them
_ALONE: Group = ("…",)  # an ellipsis outside of parentheses: as many axes as it stands for


class PatternError(ValueError):
    """A pattern that doesn't make sense, or that an array doesn't fit."""


class Pattern(NamedTuple):
    """Both sides of a pattern; axes that are given by a number are named `2 #1`."""

    text: str
    left: tuple[Group, ...]
    right: tuple[Group, ...]


def rearrange(x: Any, pattern: str, **lengths: int) -> Any:
    """Reorder, split and merge axes.

    `rearrange(images, "b h w c -> b c h w")` is a transpose, `rearrange(x, "b (h w) -> b h w", h=4)` splits an axis and
    `rearrange(x, "b h w -> b (h w)")` merges two.
    """
    return _apply("rearrange", x, pattern, None, lengths)


def reduce(x: Any, pattern: str, reduction: str | Callable, **lengths: int) -> Any:
    """Rearrange, and reduce the axes that are missing on the right.

    `reduction` is min, max, sum, mean, prod, any, all, or a function of an array and a tuple of axes.
    `reduce(images, "b (h 2) (w 2) c -> b h w c", "mean")` halves the size of images.
    """
    return _apply("reduce", x, pattern, reduction, lengths)


def repeat(x: Any, pattern: str, **lengths: int) -> Any:
    """Rearrange, and repeat along the axes that are new on the right.

    `repeat(image, "h w -> h w c", c=3)` makes three channels, `repeat(x, "n -> (n 2)")` doubles each element.
    """
    return _apply("repeat", x, pattern, None, lengths)


def _apply(name: str, x: Any, text: str, reduction: Any, lengths: dict[str, int]) -> Any:
    if isinstance(x, (list, tuple)):
        x = np.stack(x)
    x = wnp.asarray(x)
    shape = x.shape

    def fail(why: str) -> PatternError:
        given = "".join(f", {axis}={length}" for axis, length in lengths.items())
        return PatternError(f"{name}({text!r}{given}) of an array of shape {shape}: {why}")

    try:
        pattern = _parse(text)
    except PatternError as error:
        raise fail(str(error)) from None
    left, right = ([_DOTS if axis == "…" else axis for group in side for axis in group] for side in pattern[1:])
    _check_axes(name, left, right, fail)
    for axis, length in lengths.items():
        if axis not in (*left, *right):
            raise fail(f"the length of {axis!r} is given, but the pattern has no such axis")
        if not isinstance(length, (int, np.integer)) or length < 0:
            raise fail(f"the length of {axis!r} must be a non-negative integer, not {length!r}")

    sides = _without_dots(pattern, len(shape), fail)
    sizes = {axis: int(axis.partition(" ")[0]) for axis in (*left, *right) if axis[0].isdigit()}
    sizes |= {axis: int(length) for axis, length in lengths.items()}
    for group, extent in zip(sides[0], shape, strict=True):
        _resolve(group, extent, sizes, fail)
    left, right = ([axis for group in side for axis in group] for side in sides)
    missing = [axis for axis in right if axis not in sizes]
    if missing:
        raise fail(f"the length of the new axis {missing[0]!r} isn't known: give it as {missing[0]}=...")
    x = np.reshape(x, tuple(sizes[axis] for axis in left))
    gone = tuple(i for i, axis in enumerate(left) if axis not in right)
    if gone:
        x = _reduced(x, reduction, gone, fail)
        left = [axis for axis in left if axis in right]
    new = [axis for axis in right if axis not in left]
    x = np.transpose(x, [left.index(axis) for axis in right if axis in left])
    if new:
        x = np.reshape(x, tuple(1 if axis in new else sizes[axis] for axis in right))
        x = np.broadcast_to(x, tuple(sizes[axis] for axis in right))
    return np.reshape(x, tuple(math.prod(sizes[axis] for axis in group) for group in sides[1]))


def _check_axes(name: str, left: list[str], right: list[str], fail: Callable) -> None:
    lost = [axis for axis in left if axis not in right]
    new = [axis for axis in right if axis not in left]
    if name != "reduce" and lost:
        hint = "; an axis is removed by reduce" if name == "rearrange" else ""
        raise fail(f"{_shown(lost)} must be on both sides{hint}")
    if name != "repeat" and new:
        raise fail(f"{_shown(new)} must be on both sides; a new axis is made by repeat")
    if name == "repeat" and _DOTS in new:
        raise fail("the ellipsis must be on both sides")


def _shown(axes: list[str]) -> str:
    return ", ".join(repr(axis.partition(" ")[0]) for axis in axes)


def _reduced(x: Any, reduction: Any, axes: tuple[int, ...], fail: Callable) -> Any:
    if callable(reduction):
        return reduction(x, axes)
    if reduction not in _REDUCTIONS:
        raise fail(f"the reduction must be one of {', '.join(_REDUCTIONS)}, or a function, not {reduction!r}")
    return _REDUCTIONS[reduction](x, axis=axes)


def _without_dots(pattern: Pattern, rank: int, fail: Callable) -> list[list[Group]]:
    """Both sides, with names for the axes that the ellipsis stands for."""
    count = len(pattern.left)
    if _ALONE in pattern.left:
        if rank < count - 1:
            raise fail(f"the left side needs at least {count - 1} axes, the array has {rank}")
    elif rank != count:
        raise fail(f"the left side has {count} axes, the array has {rank}")
    names = tuple(f".{i}" for i in range(rank - count + 1)) if _ALONE in pattern.left else ()
    sides: list[list[Group]] = []
    for side in (pattern.left, pattern.right):
        groups: list[Group] = []
        for group in side:
            if group == _ALONE:
                groups += [(axis,) for axis in names]
            else:
                groups.append(tuple(n for axis in group for n in (names if axis == _DOTS else (axis,))))
        sides.append(groups)
    return sides


def _resolve(group: Group, extent: int, sizes: dict[str, int], fail: Callable) -> None:
    """The lengths of the axes of which one axis is made."""
    unknown = [axis for axis in group if axis not in sizes]
    known = math.prod(sizes[axis] for axis in group if axis in sizes)
    shown = (
        f"({' '.join(axis.partition(' ')[0] for axis in group)})"
        if len(group) > 1
        else repr(group[0].partition(" ")[0])
        if group
        else "1"
    )
    if len(unknown) > 1:
        raise fail(f"of the axes {shown} all but one must have a given length; {_shown(unknown)} have none")
    if unknown:
        if known == 0 or extent % known:
            raise fail(f"an axis of length {extent} can't be split into {shown}: {extent} isn't divisible by {known}")
        sizes[unknown[0]] = extent // known
    elif known != extent:
        raise fail(f"{shown} has length {known}, but the axis of the array has {extent}")


@lru_cache(maxsize=1024)
def _parse(text: str) -> Pattern:
    sides = text.split("->")
    if len(sides) != 2:
        raise PatternError("a pattern has two sides with one '->' between them")
    left, right = (_parse_side(side, number) for number, side in enumerate(sides))
    if any(_DOTS in group for group in left):
        raise PatternError("an ellipsis in parentheses is possible on the right side only")
    return Pattern(text, left, right)


def _parse_side(side: str, number: int) -> tuple[Group, ...]:
    groups: list[Group] = []
    open_group: list[str] | None = None
    seen: list[str] = []
    count = 0
    for token in _TOKEN.findall(side):
        if token == "(":
            if open_group is not None:
                raise PatternError("parentheses can't be nested")
            open_group = []
            continue
        if token == ")":
            if open_group is None:
                raise PatternError("a parenthesis is closed that wasn't opened")
            groups.append(tuple(open_group))
            open_group = None
            continue
        token = _DOTS if token == "…" else token
        if token.isdecimal():
            count += 1
            axis = () if int(token) == 1 else (f"{int(token)} #{number}.{count}",)
            if int(token) == 0:
                raise PatternError("an axis can't have length 0 in a pattern")
        elif token == _DOTS or (token.isidentifier() and not token.startswith("_") and not token.endswith("_")):
            axis = (token,)
        else:
            raise PatternError(f"{token!r} is no name of an axis: names are letters, digits and underscores inside")
        if axis and axis[0] in seen:
            raise PatternError(f"{token!r} occurs twice on one side")
        seen += axis
        if open_group is None:
            groups.append(_ALONE if token == _DOTS else axis)
        else:
            open_group += axis
    if open_group is not None:
        raise PatternError("a parenthesis isn't closed")
    return tuple(groups)


_publish(__name__, globals(), __all__)
