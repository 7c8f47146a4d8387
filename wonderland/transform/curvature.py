"""Curvature without the whole Hessian: Gauss-Newton products, the Hessian's diagonal, and Laplacians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import Call, handles
from wonderland.core.level import Traced
from wonderland.core.program import Program, run
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, P, type_of
from wonderland.ops.elementwise import div, mul
from wonderland.ops.random import random_bits
from wonderland.ops.reduce import sum as reduce_sum
from wonderland.ops.shape import convert
from wonderland.transform.chunks import batched, check_chunks, chunk_of, in_chunks, sweep
from wonderland.transform.derivatives import Linearized, argument_numbers, named, quiet
from wonderland.transform.jacobian import split
from wonderland.transform.programs import pick
from wonderland.transform.second_order import FR, Point, by_products, hvp, matrix, taped

METHODS = ("exact", "hutchinson")


def gnvp(residual: Callable, loss: Callable, x: Any, v: Any) -> Any:
    """The Gauss-Newton product J' H_loss J v of loss(residual(x)): a tree like x.

    J is the Jacobian of `residual` (a tree to a tree) and H_loss the Hessian of `loss` (a tree to a scalar) at
    residual(x). It leaves out the curvature of the residual, and where the loss is convex so is what remains.
    """
    check_function(loss, "gnvp")
    point = Point("gnvp", residual, (x,), (0,), scalar=False)
    vector = point.vector([v])
    with quiet():
        return point.result(_gauss_newton_product(point, residual, loss)(*vector), True)


def gauss_newton(
    residual: Callable,
    loss: Callable,
    *,
    chunk_size: int | str | None = "auto",
    memory_budget: float | None = None,
) -> Callable:
    """The Gauss-Newton matrix J' H_loss J of loss(residual(x)) as a function of x, laid out as `hessian` is."""
    check_function(loss, "gauss_newton")
    check_chunks(chunk_size, memory_budget, "gauss_newton")

    def compute(x: Any) -> Any:
        point = Point("gauss_newton", residual, (x,), (0,), scalar=False)
        point.check_real("wl.gnvp")
        with quiet():
            blocks = by_products(point, _gauss_newton_product(point, residual, loss), chunk_size, memory_budget)
        return matrix(point, blocks, True)

    options = {"chunk_size": chunk_size, "memory_budget": memory_budget}
    return named(compute, residual, "gauss_newton", gauss_newton, loss, **options)


def _gauss_newton_product(point: Point, residual: Callable, loss: Callable) -> Callable[..., list]:
    """Push through the residual, through the gradient of the loss, and pull back; the residual runs once."""
    call = Call(residual, point.args, {}, (0,))
    lin = Linearized(call, [True] * len(call.values))
    outs = list(lin.values)

    def trees(values: Sequence[Any]) -> Any:
        assert call.out_structure is not None
        return call.out_structure.unflatten([Tracer(v) if isinstance(v, Traced) else v for v in values])

    def product(*v: Any) -> list:
        bent = hvp(loss, (trees(outs),), (trees(lin.push(v)),), strategy=FR)
        return pick(lin.pull([unwrap(leaf) for leaf in tree.leaves(bent)]), lin.select)

    return product


def hessian_diagonal(
    f: Callable,
    x: Any,
    method: str = "exact",
    *,
    key: Any = None,
    samples: int = 32,
    chunk_size: int | str | None = "auto",
    memory_budget: float | None = None,
) -> Any:
    """The diagonal of the Hessian of a scalar function of one tree: a tree like x.

    "exact" takes e'He for each unit vector e, forward over forward: n passes, and no n x n matrix. "hutchinson" is the
    mean of z * Hz over `samples` vectors of random signs made from `key`, forward over reverse: its expectation is the
    diagonal, and the variance of an element is the sum of squares of the rest of its row, divided by `samples`.
    """
    _check_method("hessian_diagonal", method, key, samples)
    check_chunks(chunk_size, memory_budget, "hessian_diagonal")
    point = Point("hessian_diagonal", f, (x,), (0,))
    point.check_real("wl.hvp")
    with quiet():
        if method == "exact":
            program, _ = _square(point)
            return point.result(point.by_elements(program, chunk_of(program, chunk_size, memory_budget)), True)
        program = taped(lambda *z: [mul(a, b) for a, b in zip(z, point.product(FR, z), strict=True)], point.types)
        return point.result(_mean(point, program, key, samples, chunk_of(program, chunk_size, memory_budget)), True)


def laplacian(
    f: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    method: str = "exact",
    *,
    key: Any = None,
    samples: int = 32,
    chunk_size: int | str | None = "auto",
    memory_budget: float | None = None,
) -> Callable[P, Any]:
    """The sum of the second derivatives of `f` with respect to each element of an argument: a result like f's.

    Forward over forward, so f may have many results: "exact" sums over the unit vectors, "hutchinson" takes the mean of
    z'Hz over `samples` vectors of random signs made from `key`.
    """
    _check_method("laplacian", method, key, samples)
    check_chunks(chunk_size, memory_budget, "laplacian")

    def compute(*args: Any, **kwargs: Any) -> Any:
        point = Point("laplacian", f, args, argument_numbers(argnums, len(args)), kwargs, scalar=False)
        point.check_real("the real and the imaginary part of f")
        with quiet():
            program, structure = _square(point)
            size = chunk_of(program, chunk_size, memory_budget)
            if method == "exact":
                outs = [reduce_sum(out, axes=(0,)) for out in sweep(partial(run, program), point.types, size)]
            else:
                outs = _mean(point, program, key, samples, size)
        return structure.unflatten(handles(outs))

    options = {"key": key, "samples": samples, "chunk_size": chunk_size, "memory_budget": memory_budget}
    return named(compute, f, "laplacian", laplacian, argnums, method, **options)


def _square(point: Point) -> tuple[Program, tree.Structure]:
    """The Program v -> v'Hv, and the structure of its result."""
    structures = []

    def square(*v: Any) -> list:
        leaves, structure = tree.flatten(point.second(v, v))
        structures.append(structure)
        return [unwrap(leaf) for leaf in leaves]

    return taped(square, point.types), structures[0]


def _mean(point: Point, program: Program, key: Any, samples: int, size: int | None) -> list:
    """The mean of a Program over vectors of random signs: those of `wl.random.rademacher(key, (samples, n))`."""
    bits = random_bits(unwrap(key), shape=(samples, point.size), width=1)

    def chunk(numbers: Any) -> list:
        signs = Tracer(bits)[Tracer(numbers)].astype(np.int64) * 2 - 1
        parts = split(unwrap(signs), point.types, -1)
        return batched(
            partial(run, program), [convert(s, dtype=t.dtype) for s, t in zip(parts, point.types, strict=True)]
        )

    found = in_chunks(chunk, samples, size)
    return [div(reduce_sum(out, axes=(0,)), type_of(out).dtype.type(samples)) for out in found]


def _check_method(name: str, method: Any, key: Any, samples: Any) -> None:
    if method not in METHODS:
        raise ArgumentError(f'{name}: method is "exact" or "hutchinson", not {method!r}')
    if method == "exact":
        return
    kind = None if key is None else type_of(unwrap(key))
    if kind != ArrayType((2,), np.uint32):
        raise ArgumentError(f'{name}: method "hutchinson" needs key=wl.random.key(0) for its signs, got {kind or key}')
    if not isinstance(samples, (int, np.integer)) or isinstance(samples, bool) or samples < 1:
        raise ArgumentError(f"{name}: samples is a positive integer, not {samples!r}")
