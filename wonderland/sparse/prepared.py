"""How a sparse derivative is computed for arguments of given types: its pattern, its colouring, its products."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.forks import loading
from wonderland.core.functions import Call, apply
from wonderland.core.level import Traced
from wonderland.core.program import Program
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, is_differentiable
from wonderland.ops.index import gather
from wonderland.ops.pattern import program_reads
from wonderland.ops.shape import zeros_like_type
from wonderland.sparse.choice import choose, choose_symmetric
from wonderland.sparse.coloring import Coloring, color
from wonderland.sparse.compression import products
from wonderland.sparse.graphs import canonical
from wonderland.transform.chunks import chunk_of
from wonderland.transform.derivatives import Linearized, quiet
from wonderland.transform.jacobian import pass_costs
from wonderland.transform.programs import record

BUDGET = 2**30  # bytes of a batched pass: all products are kept anyway, and fewer, larger passes are faster


@dataclass(frozen=True)
class Options:
    """What the user said of how a derivative is to be computed."""

    partition: str
    decompression: str
    order: Any
    given: Any  # a pattern or a colouring of the user's, or None
    format: str
    jit: bool
    chunk_size: int | str | None
    memory_budget: float | None


class VectorFunction:
    """A function of trees as a function from vector to vector, for arguments of given types.

    The vector holds the leaves of the chosen arguments one after another; integers among them have their places, too.
    """

    f: Callable[..., Any]
    structure: Any
    types: list[ArrayType]
    numbers: Sequence[int]

    def __init__(self, f: Callable, call: Call, numbers: Sequence[int]):
        self.f, self.structure, self.types, self.numbers = f, call.structure, call.types, numbers
        starts = np.cumsum([0, *(child.leaf_count for child in call.structure.children[0].children)])
        leaves = [k for i in numbers for k in range(starts[i], starts[i + 1])]
        self.chosen: list[int] = [k for k in leaves if call.trainable[k]]
        chosen = [self.types[k] for k in self.chosen]
        self.size: int = sum(t.size for t in chosen)
        dtypes = [t.dtype for t in chosen if is_differentiable(t.dtype)]
        if not dtypes or len(set(numbers)) < len(numbers):
            raise ArgumentError(
                f"argnums={tuple(numbers)}: sparse derivatives need arguments with floating-point numbers, each "
                "named once"
            )
        self.dtype: np.dtype = np.result_type(*dtypes)
        self._check_alike("chosen arguments", dtypes)

    def vector(self, leaves: Sequence[Any]) -> Any:
        """The chosen leaves' elements."""
        parts = [np.ravel(leaves[k]).astype(self.dtype) for k in self.chosen]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def at(self, leaves: Sequence[Any]) -> Callable:
        """The function of the vector, the other leaves being given."""

        def function(vector: Any) -> Any:
            filled, start = list(leaves), 0
            for k in self.chosen:
                t = self.types[k]
                if is_differentiable(t.dtype):
                    filled[k] = vector[start : start + t.size].reshape(t.shape).astype(t.dtype)
                start += t.size
            args, kwargs = self.structure.unflatten(filled)
            parts = [np.ravel(leaf) for leaf in tree.leaves(apply(self.f, args, kwargs))]
            self._check_alike("results", [v.dtype for v in parts if is_differentiable(v.dtype)])
            if not parts:
                raise ArgumentError("a function without a result has no derivative. Is there a `return` in it?")
            return parts[0] if len(parts) == 1 else np.concatenate(parts)

        return function

    def _check_alike(self, what: str, dtypes: Sequence[np.dtype]) -> None:
        if self.dtype.kind == "c" and len({dtype.kind for dtype in dtypes}) > 1:
            raise ArgumentError(
                f"a sparse derivative by complex numbers can't have both real and complex {what}: derivatives are "
                "of different kinds. Take one at a time, or use wl.jacobian."
            )

    def one_way(self, result: np.dtype) -> str | None:
        """What alone can be compressed: "column" for complex of real, "row" for real of complex. Others say half."""
        return {"fc": "column", "cf": "row"}.get(self.dtype.kind + result.kind)

    def linearized(self, leaves: Sequence[Any]) -> Linearized:
        """The derivative at these leaves, a linear Program of the vector."""
        leaves = [_handle(v) for v in leaves]
        with quiet():
            return Linearized(Call(self.at(leaves), (self.vector(leaves),), {}), [True])


class Prepared:
    """The entries of a derivative by compressed products: found, coloured and compiled once."""

    name: str
    flat: VectorFunction
    options: Options
    coloring: Coloring
    shape: tuple[int, int]
    pattern: Any

    def __init__(self, name: str, flat: VectorFunction, options: Options, values: Sequence[Any]):
        self.name, self.flat, self.options, self._values = name, flat, options, values
        self.seconds: dict[str, float] = {}
        self.recorded: Program | None = None  # what the pattern was found from
        self.closed_over: list[tuple[np.ndarray, bytes]] = []  # writable arrays in it, and what they were
        self.costs: tuple[float, float] = (1, 1)  # of a product with a column and with a row, relative to each other
        pattern = coloring = options.given
        if not isinstance(coloring, Coloring):
            start = time.perf_counter()
            if pattern is None:
                pattern = self._found()
                self.seconds["pattern"] = time.perf_counter() - start
            self._check(pattern.shape)
            start = time.perf_counter()
            coloring = self._colored(pattern)
            self.seconds["colouring"] = time.perf_counter() - start
        self._check(coloring.shape)
        self.coloring, self.shape, self.pattern = coloring, coloring.shape, coloring.pattern
        self._lay_out()
        del self._values
        self.products: Callable = self._products
        if options.jit:
            with loading():  # not before: patterns and colours need no LLVM
                from wonderland.compile.jit import jit

            self.products = jit(self._products)

    def _check(self, shape: Any) -> None:
        if shape[1] != self.flat.size:
            raise ArgumentError(
                f"wl.sparse.{self.name}: the given pattern is {shape[0]} x {shape[1]}, but the chosen arguments have "
                f"{self.flat.size} elements: it needs so many columns, one row for each element of the result"
            )

    def _found(self) -> sparse.csr_array:
        """The pattern, from the types alone."""
        args, kwargs = self.flat.structure.unflatten(map(_handle, self._values))  # with mutable objects of its own
        call = Call(self.flat.f, args, kwargs, self.flat.numbers)
        self.recorded = record(lambda *leaves: call.split(call.run(leaves))[0], call.types)
        return self._read()

    def _read(self) -> sparse.csr_array:
        assert self.recorded is not None
        arrays = [v for _, v in self.recorded.constants if isinstance(v, np.ndarray) and v.flags.writeable]
        self.closed_over = [(v, v.tobytes()) for v in arrays]
        found = program_reads(self.recorded, self.flat.chosen)
        return canonical(found + found.T) if self.name == "hessian" else found

    def holds(self) -> bool:
        """Is the pattern still right? The function may close over arrays that were written to since it was found."""
        if all(v.tobytes() == before for v, before in self.closed_over):
            return True
        assert self.recorded is not None
        self.recorded.cache.clear()
        found = self._read()
        return found.multiply(self.pattern).nnz == found.nnz

    def _colored(self, pattern: sparse.csr_array) -> Coloring:
        partition, decompression, order = self.options.partition, self.options.decompression, self.options.order
        if partition != "auto":
            return color(pattern, partition, decompression, order, postprocess=partition == "bidirectional")
        if self.name == "hessian":  # products with rows are products with columns
            return choose_symmetric(pattern, decompression, order)
        self._count_costs()
        return choose(pattern, decompression, order, *self.costs)

    def _count_costs(self) -> None:
        def count(*leaves: Any) -> list:
            lin = self.flat.linearized(leaves)
            self.costs = pass_costs(lin.program, lin.types) if lin.has_tangent[0] else (1, 1)
            way = self.flat.one_way(lin.types[0].dtype)
            if way is not None:
                self.costs = (1, math.inf) if way == "column" else (math.inf, 1)
            return []

        record(count, self.flat.types) if self.options.jit else count(*self._values)

    def compile(self, leaves: Sequence[Any]) -> None:
        """Compile the products for leaves like these, if anything is compiled."""
        if self.options.jit:
            start = time.perf_counter()
            self.products.inspect(*leaves)  # type: ignore[attr-defined]
            self.seconds["compilation"] = time.perf_counter() - start

    def _lay_out(self) -> None:
        """Where the entries, which come by rows, belong in the format that was asked for."""
        pattern, format = self.pattern, self.options.format
        index_dtype = sparse.get_index_dtype(maxval=max(pattern.nnz, *pattern.shape))
        places = pattern.indices.astype(index_dtype), pattern.indptr.astype(index_dtype)
        numbered: Any = sparse.csr_array((np.arange(pattern.nnz), *places), shape=pattern.shape)
        self.template: Any = numbered.asformat(format)
        self.order: Any = self.template.data if format == "csc" else None
        self.template.has_canonical_format = True

    def matrix(self, entries: np.ndarray) -> Any:
        """The matrix with these entries; all its arrays are its own.

        It is put together without SciPy's constructors, whose checks take 10 times as long as a small derivative.
        """
        made = object.__new__(type(self.template))
        made.__dict__.update(self.template.__dict__)
        made.data = entries
        if self.options.format == "coo":
            made.coords = tuple(part.copy() for part in self.template.coords)
        else:
            made.indices, made.indptr = self.template.indices.copy(), self.template.indptr.copy()
        return made

    def entries(self, leaves: Sequence[Any]) -> Any:
        """The stored entries, in the order of the format."""
        found = self.products(*leaves)
        if self.coloring.sources is None:
            if isinstance(found, Tracer):
                return self._direct.entries(leaves)
            found = self.coloring.values(found)
            found = found if self.order is None else found[self.order]
        return found

    @cached_property
    def _direct(self) -> Prepared:
        """The same without substitution, which is a loop over plain arrays: for values that are traced."""
        coloring = color(self.pattern, self.coloring.partition)
        return Prepared(self.name, self.flat, replace(self.options, given=coloring), ())

    def _products(self, *leaves: Any) -> Any:
        """What the seeds give, one product after another; the entries themselves if they can be read off."""
        lin = self.flat.linearized([unwrap(v) for v in leaves])
        m = self.shape[0]
        result = lin.types[0]
        if result.size != m:
            raise ArgumentError(
                f"wl.sparse.{self.name}: the given pattern has {m} rows, but the result has {result.size} elements"
            )
        coloring, size = self.coloring, self.options.chunk_size
        way = self.flat.one_way(result.dtype)
        if way is not None and (coloring.num_row_colors if way == "column" else coloring.num_column_colors):
            raise ArgumentError(
                f"wl.sparse.{self.name}: of {result.dtype} results by {self.flat.dtype} arguments only products with "
                f'{way}s can be taken: partition="{way}" or "auto", not "{coloring.partition}"'
            )
        if lin.has_tangent[0] and coloring.nnz:
            with quiet():
                size = chunk_of(lin.program, size, self.options.memory_budget or BUDGET)
                found = products(lin.program, coloring, size)
        else:
            count = coloring.num_column_colors * m + coloring.num_row_colors * self.shape[1]
            dtype = result.dtype if is_differentiable(result.dtype) else self.flat.dtype
            found = zeros_like_type(ArrayType((count,), dtype), real=True)
        if coloring.sources is None:
            return _handle(found)
        sources = coloring.sources if self.order is None else coloring.sources[self.order]
        return _handle(gather(found, sources, axes=(0,)))


def _handle(value: Any) -> Any:
    return Tracer(value) if isinstance(value, Traced) else value
