"""`check_grads`: are the derivatives of a function right, in both modes, to any order?

A function and the point at which to test it come in; an AssertionError that says which mode, order and argument is
wrong, and by how much, goes out. Forward mode is compared with central differences along random directions, reverse
mode with forward mode (or, if asked for alone, with central differences), by the identity <cotangent, jvp(t)> =
<vjp(cotangent), t> under the real inner product Re(conj(a) b). Higher orders do the same to the derivative functions.

Where a step crosses a kink (of relu, abs, max, ...) differences are no derivative: steps become smaller until it is not
crossed. Where the point itself is on a kink, the slopes on either side differ however small the step, and that is said.
Nor are they one where a step leaves the domain (log near 0): steps become still smaller, until it doesn't.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import wonderland as wl
from wonderland.core import tree
from wonderland.core.types import is_python_scalar

# (step of the central differences, tolerance against them, tolerance between the two modes), by precision. With one
# step of Richardson's extrapolation the truncation error is O(h^4), so the best step is near eps^(1/5).
PRECISION = {
    "float16": (2.0**-3, 1e-1, 1e-1),
    "float32": (2.0**-5, 5e-3, 1e-4),
    "float64": (2.0**-10, 1e-6, 1e-10),
    "longdouble": (2.0**-10, 1e-6, 1e-10),
}
SHRINK, SHRINKS = 16, 4  # how much smaller the next step is, and how often one is tried
OUTSIDE = 12  # how often at most, if steps lead out of the domain at first


def is_inexact(leaf: Any) -> bool:
    """Is a leaf something that has a derivative?"""
    return np.result_type(leaf).kind in "fc"


def precision_of(leaves: Sequence[Any]) -> str:
    """The coarsest precision among the floating-point leaves: a key of `PRECISION`."""
    bits = [np.finfo(np.result_type(leaf)).bits for leaf in leaves if is_inexact(leaf)]
    return {16: "float16", 32: "float32", 64: "float64"}.get(min(bits, default=64), "longdouble")


def inner(a: Any, b: Any) -> float:
    """The real inner product of two trees, Re(conj(a) b), over the leaves that have derivatives."""
    total = 0.0
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        if is_inexact(x) and is_inexact(y):
            total += float(np.sum(np.real(np.conj(_wide(x)) * _wide(y))))
    return total


def _wide(x: Any) -> Any:
    return np.asarray(x, np.complex128 if np.result_type(x).kind == "c" else np.float64)


def random_like(value: Any, rng: np.random.Generator) -> Any:
    """A random direction for a tree: between -1 and 1 in each (real and imaginary) part; zeros for integers.

    Leaves keep their dtype, and Python scalars are answered with Python scalars: those are weak.
    """

    def leaf(x: Any) -> Any:
        dtype, shape = np.result_type(x), np.shape(x)
        if dtype.kind not in "fc":
            return np.zeros(shape, dtype)[()]
        out = rng.uniform(-1, 1, shape)
        if dtype.kind == "c":
            out = out + 1j * rng.uniform(-1, 1, shape)
        out = np.asarray(out, dtype)[()]
        return out.item() if is_python_scalar(x) else out

    return tree.tree_map(leaf, value)


def numeric_jvp(f: Callable, args: Sequence[Any], tangents: Sequence[Any], eps: float | None = None) -> Any:
    """The directional derivative of `f` by central differences and one step of Richardson's extrapolation."""
    step = PRECISION[precision_of(tree.leaves(tuple(args)))][0] if eps is None else eps
    fine, coarse = (wl.finite_difference_jvp(f, args, tangents, step=h) for h in (step / 2, step))
    return tree.tree_map(lambda a, b: (4 * a - b) / 3 if is_inexact(a) else a, fine, coarse)


def check_grads(
    f: Callable,
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] = ("forward", "reverse"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Check the derivatives of `f` at `args` (a tuple, one tree per argument) up to `order`, in the given modes.

    `atol` and `rtol` replace the tolerances, `eps` the step of the central differences, all of which otherwise follow
    from the precision of arguments and results. Where `f` has a kink (np.maximum(x, 0) at 0) there is no derivative to
    compare with, and the AssertionError says so, with the slopes on either side; a kink nearby does no harm. The same
    holds for the edge of the domain (np.sqrt(x) at 0).
    """
    unknown = set(modes) - {"forward", "reverse"}
    if unknown:
        raise ValueError(f'modes are "forward" and "reverse", not {", ".join(map(repr, sorted(unknown)))}')
    if not isinstance(args, (tuple, list)):
        raise TypeError("check_grads takes a tuple of arguments: check_grads(f, (x,))")
    if not any(is_inexact(leaf) for leaf in tree.leaves(tuple(args))):
        raise TypeError("check_grads: no argument has a floating-point dtype")
    parts = [_trained(argument) for argument in args]
    g = lambda *values: f(*(rebuild(value) for (_, rebuild), value in zip(parts, values, strict=True)))
    _Check(modes, atol, rtol, eps).run(g, tuple(value for value, _ in parts), order, ())


def _trained(argument: Any) -> tuple[Any, Callable[[Any], Any]]:
    """What is differentiated of an argument, the trainable parameters of Modules, and how it is put together again."""
    leaves, structure = tree.flatten(argument)
    flags = tree.trainable(structure)
    if all(flags):
        return argument, lambda value: value

    def rebuild(trained: list) -> Any:
        given = iter(trained)
        return structure.unflatten([next(given) if f else leaf.copy() for leaf, f in zip(leaves, flags, strict=True)])

    return [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag], rebuild


@dataclass(frozen=True)
class _Fault:
    """What differs; with a `kink`, the derivative isn't to blame."""

    text: str
    kink: bool = False


class _Slopes:
    """Difference quotients of a function along tangents, by step, as leaves; `read` is applied to each result."""

    def __init__(self, f: Callable, args: tuple, tangents: tuple, read: Callable[[Any], list] = tree.leaves):
        self.f, self.args, self.tangents, self.read = f, args, tangents, read

    @functools.cached_property
    def backward(self) -> tuple:
        return tree.tree_map(lambda t: -t if is_inexact(t) else t, self.tangents)

    def central(self, step: float) -> list:
        return self.read(numeric_jvp(self.f, self.args, self.tangents, step))

    def sides(self, step: float) -> tuple[list, list]:
        """The slopes before and after the point."""
        ways = (self.backward, self.tangents)
        left, right = (self.read(wl.finite_difference_jvp(self.f, self.args, t, "forward", step)) for t in ways)
        return [-slope if is_inexact(slope) else slope for slope in left], right


class _Check:
    def __init__(self, modes: Sequence[str], atol: float | None, rtol: float | None, eps: float | None):
        self.modes, self.atol, self.rtol, self.eps = modes, atol, rtol, eps
        self.rng = np.random.default_rng(0)

    def run(self, f: Callable, args: tuple, order: int, path: tuple[str, ...]) -> None:
        if order == 0:
            return
        tangents = random_like(args, self.rng)
        out, pushed = wl.jvp(f, args, tangents) if "forward" in self.modes else (f(*args), None)
        cotangent = random_like(out, self.rng)
        if "forward" in self.modes:
            fault = self.forward_fault(f, args, tangents, out, pushed)
            if fault:
                again = lambda t: self.forward_fault(f, args, t, *wl.jvp(f, args, t))
                self.fail(path + ("forward",), fault, args, tangents, again)
            self.run(lambda *a: wl.jvp(f, a, tangents)[1], args, order - 1, (*path, "forward"))
        if "reverse" in self.modes:
            fault = self.reverse_fault(f, args, tangents, cotangent, out, pushed)
            if fault:
                push = lambda t: wl.jvp(f, args, t)[1] if "forward" in self.modes else None
                again = lambda t: self.reverse_fault(f, args, t, cotangent, out, push(t))
                self.fail(path + ("reverse",), fault, args, tangents, again)
            self.run(lambda *a: wl.vjp(f, *a)[1](cotangent), args, order - 1, (*path, "reverse"))

    def forward_fault(self, f: Callable, args: tuple, tangents: tuple, out: Any, pushed: Any) -> _Fault | None:
        """What is wrong with the jvp along these tangents; None if nothing is."""
        slopes = _Slopes(f, args, tangents)
        for i, (value, a) in enumerate(zip(tree.leaves(out), tree.leaves(pushed), strict=True)):
            if is_inexact(a) and np.size(a):
                fault = self.differences_fault(f"output leaf {i}: jvp", np.asarray(a), _finite_max(value), slopes, i)
                if fault:
                    return fault
        return None

    def differences_fault(
        self, name: str, a: np.ndarray, size: float, slopes: _Slopes, i: int, scale: float = 0.0
    ) -> _Fault | None:
        """Where the derivative `a` of leaf `i` is far from difference quotients; `size` is that of the leaf's values.

        Errors are relative to the largest derivative, or to `scale`.
        """
        args = [x for x in tree.leaves(slopes.args) if is_inexact(x) and np.size(x)]
        step, rtol, _ = PRECISION[precision_of([*tree.leaves(slopes.args), a])]
        step, rtol = self.eps or step, rtol if self.rtol is None else self.rtol
        noise = lambda h: 16 * np.finfo(a.dtype).eps * size / h  # rounding of f itself is divided by the step

        def allowed(h: float, b: Any) -> float:
            return (noise(h) if self.atol is None else self.atol) + rtol * max(scale, _finite_max(b))

        first = b = np.asarray(slopes.central(step)[i])
        if a.shape != b.shape:
            return _Fault(f"{name} has shape {a.shape}, central differences {b.shape}")
        tolerance = limit = allowed(step, b)
        apart = ~(np.abs(a - b) <= limit)
        if not np.any(apart):
            return None
        # Smaller steps, as long as rounding (of f, and of the step as it is added to an argument) doesn't blur them.
        largest = max(scale, _finite_max(a), _finite_max(b))
        most = max(noise(step), self.atol or 0.0, rtol * largest)
        lost = max(np.finfo(np.result_type(x)).eps * np.max(np.abs(x)) for x in args) * largest
        h = step
        tries = SHRINKS
        for finer in (step / SHRINK**k for k in range(1, OUTSIDE + 1)):
            if max(noise(finer), lost / finer) > most or not tries:
                break
            h, b = finer, np.asarray(slopes.central(finer)[i])
            limit = allowed(h, b)
            apart &= ~(np.abs(a - b) <= limit)
            if not np.any(apart):
                return None
            tries = tries - 1 if np.all(np.isfinite(b[apart])) else SHRINKS
        # Of a smooth function the slopes on either side approach each other as steps shrink; those on a kink don't, and
        # those on a jump grow. Between the slopes of a kink every derivative is as good.
        left, right = (np.asarray(leaves[i]) for leaves in slopes.sides(h))
        far_left, far_right = (np.asarray(leaves[i]) for leaves in slopes.sides(4 * h))
        gap, wider = np.abs(right - left), np.abs(far_right - far_left)
        steep, less = np.maximum(np.abs(left), np.abs(right)), np.maximum(np.abs(far_left), np.abs(far_right))
        blur = max(limit, noise(h))
        between = np.abs(a - left) + np.abs(a - right) <= gap + 2 * blur
        jump = (steep > blur) & (steep > 2 * less)
        edge = ~np.isfinite(left + right + far_left + far_right)
        wrong = apart & ~edge & ~jump & ~(between & (gap > blur) & (gap > wider / 2))
        if np.any(wrong):
            first = np.where(np.isfinite(first), first, b)
            difference = np.where(wrong, np.abs(a - first), -1.0)
            worst = np.unravel_index(np.argmax(difference), a.shape)
            return _Fault(
                f"{name}{_at(worst)} gives {a[worst]}, central differences {first[worst]}; they differ by "
                f"{difference[worst]:.3g}, allowed is {tolerance:.3g}"
            )
        worst = np.unravel_index(np.argmax(np.where(apart, np.where(edge, np.inf, steep), -1.0)), a.shape)
        kind = "the edge of the domain" if edge[worst] else "a jump" if jump[worst] else "a kink"
        return _Fault(
            f"{kind}? {name}{_at(worst)} gives {a[worst]}, and the slopes on either side are {left[worst]} and "
            f"{right[worst]} (steps of {h:.3g}). There is no derivative to compare with: check at another point",
            kink=True,
        )

    def reverse_fault(
        self, f: Callable, args: tuple, tangents: tuple, cotangent: Any, out: Any, pushed: Any
    ) -> _Fault | None:
        """What is wrong with the vjp, seen along these tangents; None if nothing is.

        Without forward mode, which `f` may not have, `pushed` is None, and differences tell.
        """
        pulled = wl.vjp(f, *args)[1](cotangent)
        _, structure = tree.flatten(pulled)
        if structure != tree.flatten(args)[1]:
            return _Fault(f"vjp gives a tree {structure} for arguments {tree.flatten(args)[1]}")
        for i, (a, x) in enumerate(zip(tree.leaves(pulled), tree.leaves(args), strict=True)):
            if np.shape(a) != np.shape(x) or (is_inexact(x) and np.result_type(a) != np.result_type(x)):
                return _Fault(
                    f"the cotangent of argument leaf {i} has shape {np.shape(a)} and dtype {np.result_type(a)}, the "
                    f"argument {np.shape(x)} and {np.result_type(x)}"
                )
        absolute = lambda value: tree.tree_map(np.abs, value)
        reverse, scale = inner(pulled, tangents), inner(absolute(pulled), absolute(tangents))
        if pushed is None:
            slopes = _Slopes(f, args, tangents, lambda value: [inner(cotangent, value)])
            size = inner(absolute(cotangent), absolute(out))
            name = "<vjp(cotangent), tangent>"
            narrow = np.dtype(precision_of([*tree.leaves(args), *tree.leaves(out)]))
            return self.differences_fault(name, np.asarray(reverse, narrow), size, slopes, 0, scale)
        forward, scale = inner(cotangent, pushed), scale + inner(absolute(cotangent), absolute(pushed))
        default = PRECISION[precision_of([*tree.leaves(args), *tree.leaves(pushed)])][2]
        tolerance = (self.atol or 0.0) + (default if self.rtol is None else self.rtol) * scale
        if not abs(forward - reverse) <= tolerance:
            return _Fault(
                f"<cotangent, jvp(tangent)> = {forward}, but <vjp(cotangent), tangent> = {reverse}; they differ by "
                f"{abs(forward - reverse):.3g}, allowed is {tolerance:.3g}"
            )
        return None

    def fail(self, path: tuple, fault: _Fault, args: tuple, tangents: tuple, again: Callable) -> None:
        """Raise, naming the arguments whose derivative alone is wrong."""
        leaves, structure = tree.flatten(tangents)
        numbers = [n for n, arg in enumerate(args) for _ in tree.leaves(arg)]
        guilty = []
        for i, leaf in enumerate(leaves):
            if is_inexact(leaf):
                alone = [t if i == j else np.zeros_like(t) for j, t in enumerate(leaves)]
                if again(structure.unflatten(alone)):
                    guilty.append(f"{numbers[i]} (shape {np.shape(leaf)}, dtype {np.result_type(leaf)})")
        where = f"argument {', '.join(guilty)}" if guilty else "the arguments together"
        how = " over ".join(reversed(path))
        verdict = "can't be checked" if fault.kink else "is wrong"
        raise AssertionError(f"{path[-1]} mode {verdict}, order {len(path)} ({how}), in {where}: {fault.text}")


def _finite_max(values: Any) -> float:
    return np.max(np.abs(values), initial=0.0, where=np.isfinite(values))


def _at(index: tuple) -> str:
    return f" at index {tuple(map(int, index))}" if index else ""
