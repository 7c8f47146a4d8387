"""`check_grads`: are the derivatives of a function right, in both modes, to any order?

A function and the point at which to test it come in; an AssertionError that says which mode, order and argument is
wrong, and by how much, goes out. Forward mode is compared with central differences along random directions, reverse
mode with forward mode (or, if asked for alone, with central differences), by the identity <cotangent, jvp(t)> =
<vjp(cotangent), t> under the real inner product Re(conj(a) b). Higher orders do the same to the derivative functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    `f` must be smooth near the point. `atol` and `rtol` replace the tolerances, `eps` the step of the central
    differences, all of which otherwise follow from the precision of arguments and results.
    """
    unknown = set(modes) - {"forward", "reverse"}
    if unknown:
        raise ValueError(f'modes are "forward" and "reverse", not {", ".join(map(repr, sorted(unknown)))}')
    if not isinstance(args, (tuple, list)):
        raise TypeError("check_grads takes a tuple of arguments: check_grads(f, (x,))")
    if not any(is_inexact(leaf) for leaf in tree.leaves(tuple(args))):
        raise TypeError("check_grads: no argument has a floating-point dtype")
    _Check(modes, atol, rtol, eps).run(f, tuple(args), order, ())


class _Check:
    def __init__(self, modes: Sequence[str], atol: float | None, rtol: float | None, eps: float | None):
        self.modes, self.atol, self.rtol, self.eps = modes, atol, rtol, eps
        self.rng = np.random.default_rng(0)

    def run(self, f: Callable, args: tuple, order: int, path: tuple[str, ...]) -> None:
        if order == 0:
            return
        tangents = random_like(args, self.rng)
        out, pushed = self.pushed(f, args, tangents)
        cotangent = random_like(out, self.rng)
        if "forward" in self.modes:
            fault = self.forward_fault(f, args, tangents, out, pushed)
            if fault:
                self.fail(path + ("forward",), fault, args, tangents, lambda t: self.forward_fault(f, args, t))
            self.run(lambda *a: wl.jvp(f, a, tangents)[1], args, order - 1, (*path, "forward"))
        if "reverse" in self.modes:
            fault = self.reverse_fault(f, args, tangents, cotangent, pushed)
            if fault:
                again = lambda t: self.reverse_fault(f, args, t, cotangent, self.pushed(f, args, t)[1])
                self.fail(path + ("reverse",), fault, args, tangents, again)
            self.run(lambda *a: wl.vjp(f, *a)[1](cotangent), args, order - 1, (*path, "reverse"))

    def pushed(self, f: Callable, args: tuple, tangents: tuple) -> tuple[Any, Any]:
        """The value and the directional derivative; without forward mode, which `f` may not have, by differences."""
        if "forward" in self.modes:
            return wl.jvp(f, args, tangents)
        return f(*args), numeric_jvp(f, args, tangents, self.eps)

    def forward_fault(self, f: Callable, args: tuple, tangents: tuple, out: Any = None, pushed: Any = None) -> str:
        """What is wrong with the jvp along these tangents; "" if nothing is."""
        if pushed is None:
            out, pushed = wl.jvp(f, args, tangents)
        expected = numeric_jvp(f, args, tangents, self.eps)
        leaves = tree.leaves(pushed)
        step, rtol, _ = PRECISION[precision_of([*tree.leaves(args), *leaves])]
        rtol = rtol if self.rtol is None else self.rtol
        for i, (value, a, b) in enumerate(zip(tree.leaves(out), leaves, tree.leaves(expected), strict=True)):
            if not is_inexact(a) or not np.size(a):
                continue
            # Rounding of f itself is divided by the step.
            noise = 16 * np.finfo(np.result_type(a)).eps * np.max(np.abs(value)) / (self.eps or step)
            tolerance = (noise if self.atol is None else self.atol) + rtol * np.max(np.abs(b))
            difference = np.abs(np.asarray(a) - b)
            if np.shape(a) != np.shape(b) or not np.all(difference <= tolerance):
                worst = np.unravel_index(np.argmax(difference), difference.shape)
                return (
                    f"output leaf {i}, at index {tuple(map(int, worst))}: jvp gives {np.asarray(a)[worst]}, central "
                    f"differences {np.asarray(b)[worst]}; they differ by {difference[worst]:.3g}, allowed is "
                    f"{tolerance:.3g}"
                )
        return ""

    def reverse_fault(self, f: Callable, args: tuple, tangents: tuple, cotangent: Any, pushed: Any) -> str:
        """What is wrong with the vjp, seen along these tangents; "" if nothing is."""
        pulled = wl.vjp(f, *args)[1](cotangent)
        _, structure = tree.flatten(pulled)
        if structure != tree.flatten(args)[1]:
            return f"vjp gives a tree {structure} for arguments {tree.flatten(args)[1]}"
        for i, (a, x) in enumerate(zip(tree.leaves(pulled), tree.leaves(args), strict=True)):
            if np.shape(a) != np.shape(x) or (is_inexact(x) and np.result_type(a) != np.result_type(x)):
                return (
                    f"the cotangent of argument leaf {i} has shape {np.shape(a)} and dtype {np.result_type(a)}, the "
                    f"argument {np.shape(x)} and {np.result_type(x)}"
                )
        forward, reverse = inner(cotangent, pushed), inner(pulled, tangents)
        absolute = lambda value: tree.tree_map(np.abs, value)
        scale = inner(absolute(cotangent), absolute(pushed)) + inner(absolute(pulled), absolute(tangents))
        exactness = PRECISION[precision_of([*tree.leaves(args), *tree.leaves(pushed)])]
        source, default = ("jvp", exactness[2]) if "forward" in self.modes else ("differences", exactness[1])
        tolerance = (self.atol or 0.0) + (default if self.rtol is None else self.rtol) * scale
        if not abs(forward - reverse) <= tolerance:
            return (
                f"<cotangent, {source}(tangent)> = {forward}, but <vjp(cotangent), tangent> = {reverse}; they differ "
                f"by {abs(forward - reverse):.3g}, allowed is {tolerance:.3g}"
            )
        return ""

    def fail(self, path: tuple, fault: str, args: tuple, tangents: tuple, again: Callable) -> None:
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
        raise AssertionError(f"{path[-1]} mode is wrong, order {len(path)} ({how}), in {where}: {fault}")
