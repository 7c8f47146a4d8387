"""Second derivatives: Hessians and their products with vectors, by four strategies.

Each is a composition of forward and reverse mode: `jvp` over `jvp` gives a number w'Hv, the three others a product Hv.
What is computed for many vectors is recorded once, as a Program of one vector (the point keeps its values, so Python's
control flow on them works), and run on batches of vectors, chunk after chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import bound_object, handles, rebound
from wonderland.core.level import Traced
from wonderland.core.program import Program, run
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, P, is_differentiable, type_of
from wonderland.ops.elementwise import add, mul
from wonderland.ops.shape import convert, zeros_like_type
from wonderland.transform.chunks import (
    batched,
    check_chunks,
    chunk_of,
    in_chunks,
    sweep,
    unit_vectors,
)
from wonderland.transform.derivatives import argument_numbers, grad, jvp, matched, named, quiet
from wonderland.transform.dual import linear_tape
from wonderland.transform.jacobian import split
from wonderland.transform.programs import pick
from wonderland.transform.residuals import keep

STRATEGIES = FF, FR, RF, RR = (
    "forward_over_forward",
    "forward_over_reverse",
    "reverse_over_forward",
    "reverse_over_reverse",
)


class Point:
    """A function and its arguments, some of which are differentiated; vectors are flat lists of their leaves."""

    name: str
    args: tuple[Any, ...]
    numbers: tuple[int, ...]
    has_aux: bool

    def __init__(
        self, name: str, f: Callable, args: Sequence[Any], numbers: Sequence[int], kwargs: dict[Any, Any] | None = None,
        has_aux: bool = False, scalar: bool = True,
    ):  # fmt: skip
        check_function(f, name)
        self.name, self.args, self.numbers, self.has_aux = name, tuple(args), tuple(numbers), has_aux
        if not 0 < len(self.numbers) == len(set(self.numbers)):
            raise ArgumentError(f"{name}: argnums name one argument or several, each once, not {self.numbers}")
        self.aux: Any = None  # what the function returned beside its value, once it has run
        owner = bound_object(f)
        if owner is not None:  # the last argument, which isn't differentiated
            self.args, f = (*self.args, owner), partial(_of_object, f)
        f = partial(f, **kwargs) if kwargs else f
        self.f: Any = partial(_checked, name, f, has_aux) if scalar else f
        parts = [tree.flatten(self.args[i]) for i in self.numbers]
        self.structures: Any = [structure for _, structure in parts]
        self.kinds: list[ArrayType] = [type_of(unwrap(leaf)) for leaves, _ in parts for leaf in leaves]
        self.trained: list[bool] = [flag for s in self.structures for flag in tree.trainable(s)]
        pairs = zip(self.kinds, self.trained, strict=True)
        self.select: list[bool] = [trained and is_differentiable(t.dtype) for t, trained in pairs]
        self.types: list[ArrayType] = [ArrayType(t.shape, t.dtype) for t in pick(self.kinds, self.select)]
        self.size: int = sum(t.size for t in self.types)
        if self.kinds and not self.types:
            raise ArgumentError(
                f"{name} can't differentiate with respect to argument {', '.join(map(str, self.numbers))}: it has "
                f"dtype {self.kinds[0].dtype}. Derivatives need floating point: pass 2.0 instead of 2, or use "
                ".astype(float)."
            )

    def vector(self, given: Sequence[Any], what: str = "vector") -> list[Any]:
        """A vector given by the user, one tree per argument."""
        flat: list = []
        for number, part, structure in zip(self.numbers, given, self.structures, strict=True):
            try:
                flat += tree.paired(structure, part)
            except ValueError as error:
                found = tree.flatten(part)[1]
                differ = f"has structure {found}, the argument {structure}"
                differ = f"differs: {error}" if found.has_mutable else differ
                raise ArgumentError(f"{self.name}: the {what} of argument {number} {differ}") from None
        checked = [
            matched(unwrap(leaf), ArrayType(t.shape, t.dtype), f"{self.name}: the {what}'s leaf {i}")
            for i, (leaf, t) in enumerate(zip(flat, self.kinds, strict=True))
        ]
        return [v for v, s in zip(checked, self.select, strict=True) if s]

    def trees(self, vector: Sequence[Any]) -> tuple[Any, ...]:
        """A vector as one tree per argument, with zeros for integers; traced values in their handles."""
        source = iter(vector)
        leaves = [
            next(source) if s else zeros_like_type(t) if trained else None
            for s, t, trained in zip(self.select, self.kinds, self.trained, strict=True)
        ]
        wrapped = iter([Tracer(v) if isinstance(v, Traced) else v for v in leaves])
        return tuple(s.unflatten([next(wrapped) for _ in range(s.leaf_count)]) for s in self.structures)

    def leaves(self, trees: Any) -> list[Any]:
        """The inverse of `trees`."""
        leaves = [leaf for s, part in zip(self.structures, trees, strict=True) for leaf in tree.paired(s, part)]
        return [unwrap(leaf) for leaf, s in zip(leaves, self.select, strict=True) if s]

    def push(self, f: Callable, args: tuple[Any, ...], vector: Sequence[Any]) -> Any:
        """The derivative of `f` along a vector: forward mode. With an aux, `(derivative, aux)`."""
        tangents = dict(zip(self.numbers, self.trees(vector), strict=True))
        out = jvp(f, args, [tangents.get(i) for i in range(len(args))], self.has_aux)
        return out[1:] if self.has_aux else out[1]

    def kept(self, out: Any) -> Any:
        """The result without its aux, which is remembered."""
        if self.has_aux:
            out, self.aux = out
        return out

    def second(self, v: Sequence[Any], w: Sequence[Any]) -> Any:
        """w'Hv: forward over forward."""
        return self.kept(self.push(lambda *args: self.push(self.f, args, v), self.args, w))

    def product(self, strategy: str, v: Sequence[Any]) -> list[Any]:
        """Hv, by a strategy with a backward pass."""
        gradient = partial(grad, argnums=self.numbers, has_aux=self.has_aux)
        if strategy == FR:
            out = self.push(gradient(self.f), self.args, v)
        elif strategy == RF:
            out = gradient(lambda *args: self.push(self.f, args, v))(*self.args)
        else:

            def along(*args: Any) -> Any:
                out = gradient(self.f)(*args)
                found, *aux = out if self.has_aux else (out,)
                number = inner(self.leaves(found), v)
                return (number, *aux) if aux else number

            out = gradient(along)(*self.args)
        return self.leaves(self.kept(out))

    def column(self, v: Sequence[Any]) -> list[Any]:
        """Hv, forward over forward: one number per pass, batched."""
        with quiet():
            program = taped(lambda *w: [unwrap(self.second(v, w))], self.types)
            return self.by_elements(program, chunk_of(program, "auto", None))

    def by_elements(self, program: Program, size: int | None) -> list[Any]:
        """The vector whose elements a Program gives for the unit vectors."""
        (found,) = sweep(lambda w: run(program, w), self.types, size)
        out = split(found, self.types, 0)
        if any(t.dtype.kind == "c" for t in self.types):  # the part along i
            (other,) = sweep(lambda w: run(program, w), self.types, size, 1j)
            along_i = split(other, self.types, 0)
            out = [
                add(a, mul(b, 1j)) if t.dtype.kind == "c" else a
                for a, b, t in zip(out, along_i, self.types, strict=True)
            ]
        return [_with_dtype(v, t) for v, t in zip(out, self.types, strict=True)]

    def result(self, vector: Sequence[Any], single: bool) -> Any:
        """What the user gets for a vector."""
        out = self.trees(handles(list(vector)))
        return out[0] if single else out

    def check_real(self, instead: str) -> None:
        if any(t.dtype.kind == "c" for t in self.types):
            raise ArgumentError(
                f"{self.name} needs real arguments: with respect to complex ones the second derivatives of a real "
                f"function are no complex matrix. Use {instead}, or the real and the imaginary part as arguments."
            )


def _of_object(f: Callable, *args: Any, **kwargs: Any) -> Any:
    return rebound(f, args[-1])(*args[:-1], **kwargs)


def _checked(name: str, f: Callable, has_aux: bool, *args: Any) -> Any:
    out = f(*args)
    if has_aux and not (isinstance(out, tuple) and len(out) == 2):
        raise ArgumentError(f"{name}: with has_aux=True the function must return a pair (value, aux)")
    leaves, structure = tree.flatten(out[0] if has_aux else out)
    kind = type_of(unwrap(leaves[0])) if structure.kind is None else None
    if kind is None or kind.shape != () or kind.dtype.kind != "f":
        raise ArgumentError(
            f"{name} needs a function with a single real scalar result, this one returned {kind or structure}. Reduce "
            "it (np.sum); of a function with many results, take wl.jacobian(wl.jacobian(f)) or one result at a time."
        )
    return out


def taped(f: Callable[..., Sequence[Any]], types: Sequence[ArrayType]) -> Program:
    """The Program of a function of vectors. What doesn't depend on them is computed here, and runs once."""
    tape = linear_tape()
    with tape:
        vectors = [tape.variable(t) for t in types]
        return tape.finish(vectors, f(*vectors))


def inner(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """The real inner product Re(conj(a) b) of two vectors."""
    terms = [np.sum(np.real(np.conj(Tracer(x)) * Tracer(y))) for x, y in zip(a, b, strict=True)]
    return sum(terms[1:], terms[0])


def chosen_strategy(name: str, strategy: Any, auto: str = FR) -> str:
    """What "auto" means; what is no strategy is refused."""
    if strategy != "auto" and strategy not in STRATEGIES:
        names = ", ".join(map('"{}"'.format, STRATEGIES))
        raise ArgumentError(f'{name}: strategy is "auto" or one of {names}, not {strategy!r}')
    return auto if strategy == "auto" else strategy


def hvp(f: Callable, primals: Sequence[Any], tangents: Sequence[Any], strategy: str = "auto") -> Any:
    """The product Hv of the Hessian of a scalar function with a vector, without the Hessian.

    `primals` and `tangents` are tuples with one tree per argument, as in `jvp`; arguments whose tangent is None are
    held fixed. The result is a tree like the argument that has a tangent, or a tuple of them if several have.

    Strategies: "forward_over_reverse" (also "auto") pushes a tangent through the gradient, "reverse_over_forward" takes
    the gradient of a directional derivative, "reverse_over_reverse" that of a product with the gradient;
    "forward_over_forward" has no backward pass, but one element of Hv per pass.
    """
    return _hvp("hvp", f, primals, tangents, strategy)


def vhp(f: Callable, primals: Sequence[Any], cotangents: Sequence[Any], strategy: str = "auto") -> Any:
    """The product w'H; since H is symmetric, what `hvp` has for w."""
    return _hvp("vhp", f, primals, cotangents, strategy)


def _hvp(name: str, f: Callable, primals: Sequence[Any], tangents: Sequence[Any], strategy: str) -> Any:
    strategy = chosen_strategy(name, strategy)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(f"{name} takes a tuple of arguments and a tuple of vectors: {name}(f, (x,), (v,))")
    if len(primals) != len(tangents):
        raise ArgumentError(f"{name} got {len(primals)} arguments and {len(tangents)} vectors")
    numbers = [i for i, t in enumerate(tangents) if t is not None]
    if not numbers:
        raise ArgumentError(f"{name}: every vector is None; give one for each argument that isn't held fixed")
    point = Point(name, f, primals, numbers)
    v = point.vector([tangents[i] for i in numbers])
    product = point.column(v) if strategy == FF else point.product(strategy, v)
    return point.result(product, len(numbers) == 1)


def hvp_at(f: Callable, *primals: Any, argnums: int | Sequence[int] = 0, strategy: str = "auto") -> Callable:
    """The Hessian at a point as a function v -> Hv: prepared once, applied to many vectors.

    What depends on the point alone is computed here; a product costs the linear part only.
    `product = wl.hvp_at(loss, params, x, y)` and then `product(v)`; with several `argnums`, a vector for each.
    """
    strategy = chosen_strategy("hvp_at", strategy)
    if strategy == FF:
        raise ArgumentError(
            f'hvp_at: strategy "{FF}" gives one number w\'Hv per pass, which wl.second_directional computes; a product '
            f'needs a backward pass: "{FR}", "{RF}" or "{RR}"'
        )
    numbers = argument_numbers(argnums, len(primals))
    point = Point("hvp_at", f, primals, numbers)
    with quiet():
        program = keep(taped(lambda *v: point.product(strategy, v), point.types))

    def product(*vectors: Any) -> Any:
        if len(vectors) != len(numbers):
            raise ArgumentError(
                f"hvp_at: the product takes {len(numbers)} vectors (argnums={argnums!r}), not {len(vectors)}"
            )
        with quiet():
            return point.result(run(program, point.vector(vectors)), isinstance(argnums, (int, np.integer)))

    return named(product, f, "hvp_at")


def second_directional(f: Callable, x: Any, v: Any, w: Any, strategy: str = "auto") -> Any:
    """The number w'Hv of a scalar function of one tree: how its derivative along v changes along w.

    "auto" is "forward_over_forward": one pass, and no memory of the run is kept.
    """
    strategy = chosen_strategy("second_directional", strategy, FF)
    point = Point("second_directional", f, (x,), (0,))
    first, second = point.vector([v], "vector v"), point.vector([w], "vector w")
    if strategy == FF:
        return point.second(first, second)
    out = unwrap(inner(second, point.product(strategy, first)))
    return handles([out])[0]


def hessian(
    f: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    strategy: str = "auto",
    *,
    has_aux: bool = False,
    chunk_size: int | str | None = "auto",
    memory_budget: float | None = None,
) -> Callable[P, Any]:
    """The Hessian of a scalar function: for each pair of argument leaves an array of shape `a.shape + b.shape`.

    It is laid out as `jacobian(grad(f))` is, and made of n products with unit vectors that go through in batches; what
    depends on the point alone is computed once. Strategies are those of `hvp`, and "forward_over_forward" has a pass
    for each of the n (n + 1) / 2 elements that symmetry leaves. `chunk_size`, `memory_budget` and `has_aux` are
    `jacobian`'s.
    """
    strategy = chosen_strategy("hessian", strategy)
    check_chunks(chunk_size, memory_budget, "hessian")
    single = isinstance(argnums, (int, np.integer))

    def compute(*args: Any, **kwargs: Any) -> Any:
        point = Point("hessian", f, args, argument_numbers(argnums, len(args)), kwargs, has_aux)
        point.check_real("wl.hvp")
        with quiet():
            blocks = (
                _by_pairs(point, chunk_size, memory_budget)
                if strategy == FF
                else by_products(point, lambda *v: point.product(strategy, v), chunk_size, memory_budget)
            )
        result = matrix(point, blocks, single)
        return (result, point.aux) if has_aux else result

    options = {"has_aux": has_aux, "chunk_size": chunk_size, "memory_budget": memory_budget}
    return named(compute, f, "hessian", hessian, argnums, strategy, **options)


def by_products(
    point: Point, product: Callable[..., list[Any]], chunk_size: Any, memory_budget: float | None
) -> list[list[Any]]:
    """Blocks of a symmetric matrix from its products with unit vectors: its columns, which are its rows."""
    types = point.types
    program = taped(product, types)
    found = sweep(partial(run, program), types, chunk_of(program, chunk_size, memory_budget))
    return [list(row) for row in zip(*(split(out, types, 0) for out in found), strict=True)]


def _by_pairs(point: Point, chunk_size: Any, memory_budget: float | None) -> list[list]:
    """Blocks of the Hessian from its lower triangle, element by element."""
    types, n = point.types, point.size
    program = taped(lambda *vw: [unwrap(point.second(vw[: len(types)], vw[len(types) :]))], [*types, *types])
    rows, columns = np.tril_indices(n)

    def chunk(numbers: Any) -> list:
        i, j = (Tracer(places)[Tracer(numbers)]._get() for places in (rows, columns))
        return batched(lambda vw: run(program, vw), unit_vectors(i, types) + unit_vectors(j, types))

    (found,) = in_chunks(chunk, len(rows), chunk_of(program, chunk_size, memory_budget))
    place = np.zeros((n, n), int)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    whole = Tracer(found)[place]._get()
    return [split(row, types, -1) for row in split(whole, types, 0)]


def _with_dtype(value: Any, kind: ArrayType) -> Any:
    return value if type_of(value).dtype == kind.dtype else convert(value, dtype=kind.dtype)


def matrix(point: Point, blocks: list[list[Any]], single: bool) -> Any:
    """What the user gets for a matrix: trees of trees, rows with their leaf's dtype, zeros where an integer is."""
    found = iter(blocks)
    rows = []
    for kind, flag in zip(point.kinds, point.select, strict=True):
        row = iter(next(found) if flag else ())
        zeros = [
            zeros_like_type(ArrayType((*kind.shape, *t.shape), kind.dtype)) if trained else None
            for t, trained in zip(point.kinds, point.trained, strict=True)
        ]
        both = zip(point.select, zeros, strict=True)
        leaves = iter(handles([_with_dtype(next(row), kind) if flag and s else zero for s, zero in both]))
        trees = tuple(s.unflatten([next(leaves) for _ in range(s.leaf_count)]) for s in point.structures)
        rows.append((trees[0] if single else trees) if point.trained[len(rows)] else None)
    source = iter(rows)
    whole = tuple(s.unflatten([next(source) for _ in range(s.leaf_count)]) for s in point.structures)
    return whole[0] if single else whole
