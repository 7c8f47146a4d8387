"""`jacobian` and `hessian`: sparse derivatives by a few products, as SciPy matrices.

For arguments of new types the pattern is found and coloured, and a function compiled that pushes or pulls one seed per
colour through the derivative and reads the entries off the products. Later calls with such arguments run that function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, NoValueError, TracingError, check_function
from wonderland.core.forks import loading
from wonderland.core.functions import Call
from wonderland.core.level import Traced
from wonderland.core.tracebacks import edges, warn_user
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.transformed import ByName
from wonderland.core.types import type_of
from wonderland.sparse.coloring import Coloring
from wonderland.sparse.detect import scalar
from wonderland.sparse.graphs import canonical
from wonderland.sparse.prepared import Options, Prepared, VectorFunction
from wonderland.transform.chunks import check_chunks
from wonderland.transform.derivatives import argument_numbers, grad, named, selected

MOST_PLANS = 64  # of one derivative; the one that was made longest ago goes


def jacobian(
    f: Callable,
    argnums: int | Sequence[int] = 0,
    partition: str = "auto",
    decompression: str = "direct",
    order: Any = None,
    *,
    pattern: Any = None,
    coloring: Coloring | None = None,
    format: str = "csr",
    jit: bool = True,
    chunk_size: int | str | None = "auto",
    memory_budget: float | None = None,
) -> SparseDerivative:
    """The Jacobian of `f` as a sparse matrix, (elements of the results) x (elements of the chosen arguments).

    `wl.sparse.jacobian(f)(x)` is a `scipy.sparse` array of this `format`. The first call with arguments of some shapes
    and dtypes finds the pattern, colours it and compiles; later calls reuse that. Trees of arguments and results are
    flattened, their leaves following each other; integers have columns too, which are empty.

    `partition` says what is compressed: "column" (forward mode), "row" (reverse mode), "bidirectional" (some of each;
    good for dense rows *and* columns), "symmetric", or "auto", the least cost counted. `decompression` and `order` are
    those of `color`. A `pattern` of one's own (anything that SciPy's sparse arrays are made from), or a `coloring`, is
    taken as it is, tried with one random vector, and warned about if it turns out wrong. With jit=False nothing is
    compiled; f may then decide by values, if its pattern is given. `chunk_size` is how many seeds go through at once: a
    number, None for all, or "auto" for as many as keep a pass within `memory_budget` bytes (1 GiB).
    """
    return SparseDerivative(
        "jacobian", f, argnums, partition, decompression, order, pattern, coloring, format, jit, chunk_size,
        memory_budget,
    )  # fmt: skip


def hessian(
    f: Callable,
    argnums: int | Sequence[int] = 0,
    partition: str = "auto",
    decompression: str = "direct",
    order: Any = None,
    *,
    pattern: Any = None,
    coloring: Coloring | None = None,
    format: str = "csr",
    jit: bool = True,
    chunk_size: int | str | None = "auto",
    memory_budget: float | None = None,
) -> SparseDerivative:
    """The Hessian of a function with a scalar result as a sparse matrix, by products of it with vectors.

    Columns are coloured with regard to symmetry: with decompression "direct" by a star colouring, with "substitution"
    by an acyclic one, which needs fewer products (partition "auto" does without symmetry where that takes fewer). All
    else is as in `jacobian`.
    """
    return SparseDerivative(
        "hessian", f, argnums, partition, decompression, order, pattern, coloring, format, jit, chunk_size,
        memory_budget,
    )  # fmt: skip


@edges
class SparseDerivative(ByName):
    """What `jacobian` and `hessian` return: call it like the function.

    `values(*args)` are the stored entries alone, in the order of the format: an array, which can be traced.
    `prepare(*args)` does all that a first call does before it computes. `pattern`, `coloring`, `report()` and `plot()`
    tell of the last preparation.
    """

    name: str
    f: Callable[..., Any]
    argnums: int | Sequence[int]
    __name__: str

    def __init__(
        self, name: str, f: Callable, argnums: int | Sequence[int], partition: str, decompression: str, order: Any,
        pattern: Any, coloring: Coloring | None, format: str, jit: bool, chunk_size: Any, memory_budget: Any,
    ):  # fmt: skip
        what = f"wl.sparse.{name}"
        check_function(f, what)
        if format not in ("csr", "csc", "coo"):
            raise ArgumentError(f'{what}: format is "csr", "csc" or "coo", not {format!r}')
        if partition not in ("auto", "column", "row", "symmetric", "bidirectional"):
            raise ArgumentError(
                f'{what}: partition is "auto", "column", "row", "symmetric" or "bidirectional", not {partition!r}'
            )
        if coloring is not None and not isinstance(coloring, Coloring):
            raise ArgumentError(f"{what}: coloring is what wl.sparse.color returns, not {type(coloring).__name__}")
        if coloring is not None and pattern is not None:
            raise ArgumentError(f"{what}: a coloring brings its pattern with it; give one of the two")
        if coloring is not None and partition not in ("auto", coloring.partition):
            raise ArgumentError(f'{what}: the coloring is by "{coloring.partition}", not by "{partition}"')
        check_chunks(chunk_size, memory_budget, what)
        given = coloring if pattern is None else canonical(pattern)
        self.name, self.f, self.argnums = name, f, argnums
        self._options = Options(partition, decompression, order, given, format, jit, chunk_size, memory_budget)
        self._preparations: dict[Any, Prepared] = {}
        self._last: Prepared | None = None
        named(self, f, f"sparse.{name}")

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        prepared, leaves = self._prepared(args, kwargs)
        entries = prepared.entries(leaves)
        if isinstance(entries, Tracer):
            raise TracingError(
                f"{self.__name__} makes a SciPy matrix, which can't hold traced values. Its entries alone are an array "
                "that can: .values(...), with .pattern for their places."
            )
        return prepared.matrix(entries)

    def values(self, /, *args: Any, **kwargs: Any) -> Any:
        """The stored entries of the matrix, (nnz,), in the order of the format."""
        prepared, leaves = self._prepared(args, kwargs)
        return prepared.entries(leaves)

    def prepare(self, /, *args: Any, **kwargs: Any) -> SparseDerivative:
        """Find the pattern for arguments like these, colour it, and compile."""
        self._prepared(args, kwargs)
        return self

    def _prepared(self, args: tuple, kwargs: dict) -> tuple[Prepared, list]:
        """What was prepared for such arguments, and their leaves."""
        leaves, structure = tree.flatten_call(args, kwargs)
        try:
            key = structure, tuple([type_of(unwrap(leaf)) for leaf in leaves]), tree.orders(structure)
            call = None
        except TypeError:  # there is something that is no array, and belongs to the structure
            call = Call(self.f, args, kwargs, argument_numbers(self.argnums, len(args)))
            key, leaves = (call.structure, tuple(call.types), tree.orders(call.structure)), call.owners
        prepared = self._preparations.get(key)
        if prepared is None or not prepared.holds():
            numbers = argument_numbers(self.argnums, len(args))
            prepared = self._new_preparation(call or Call(self.f, args, kwargs, numbers), numbers)
            if len(self._preparations) >= MOST_PLANS:
                self._preparations.pop(next(iter(self._preparations)), None)
            self._preparations[key] = prepared
        self._last = prepared
        return prepared, leaves

    def _new_preparation(self, call: Call, numbers: tuple[int, ...]) -> Prepared:
        function = grad(scalar(self.f, f"wl.sparse.{self.name}"), numbers) if self.name == "hessian" else self.f
        selected(call, numbers)  # refuses integers
        traced = any(isinstance(v, Traced) for v in call.values)
        flat = VectorFunction(function, call, numbers)
        if self.name == "hessian" and flat.dtype.kind == "c":
            raise ArgumentError(
                "wl.sparse.hessian needs real arguments: with respect to complex ones the second derivatives of a real "
                "function are no complex matrix. Use wl.hvp, or the real and the imaginary part as arguments."
            )
        try:
            prepared = Prepared(self.name, flat, self._options, call.values)
            if not traced:
                prepared.compile(call.values)
        except NoValueError as error:
            advice = "Or say which entries there are and compile nothing: pattern=..., jit=False."
            error.args = (f"{error.args[0]} {advice}",)
            raise
        symmetric = (self.name, prepared.coloring.partition) == ("jacobian", "symmetric")
        assumed = self._options.given is not None or symmetric
        if assumed and not traced:
            _probe(prepared, call)
        return prepared

    @property
    def pattern(self) -> Any:
        """The pattern, a boolean CSR array."""
        return self._known().pattern

    @property
    def coloring(self) -> Coloring:
        """The colouring by which products are shared."""
        return self._known().coloring

    def _known(self) -> Prepared:
        if self._last is None:
            raise ArgumentError(f"{self.__name__} knows no arguments yet: call it, or .prepare(...), first")
        return self._last

    def report(self) -> str:
        """Sizes, density, colours and cost of the last preparation, in words."""
        with loading():
            from wonderland.sparse.report import report

        return report(self._known(), self.__name__)

    def plot(self, ax: Any = None) -> Any:
        """The pattern, each entry in the colour of the product that it is read from; returns Matplotlib's axes."""
        with loading():
            from wonderland.sparse.report import plot

        return plot(self._known().coloring, ax)

    def __getstate__(self) -> dict[Any, Any]:
        """Without what was compiled: copies prepare themselves, in another process or here."""
        return self.__dict__ | {"_preparations": {}, "_last": None}

    def __repr__(self) -> str:
        count = len(self._preparations)
        return f"<{self.__name__}, prepared for {count} kind{'s' * (count != 1)} of arguments>"


def _probe(prepared: Prepared, call: Call) -> None:
    """Does the matrix with the user's pattern do to a random vector what the derivative does?"""
    lin = prepared.flat.linearized(call.values)
    vector = np.random.default_rng(0).standard_normal(prepared.shape[1]).astype(prepared.flat.dtype)
    expected = lin.push([vector])[0]
    matrix = prepared.matrix(prepared.entries(call.owners))
    found, scale = matrix @ vector, abs(matrix) @ abs(vector) + np.abs(expected)
    found = found if np.iscomplexobj(expected) else found.real  # of a real result: the gradient
    tolerance = np.sqrt(np.finfo(scale.dtype).eps)
    wrong = np.flatnonzero(np.abs(found - expected) > tolerance * scale)
    if len(wrong):
        i = wrong[0]
        what = f"the pattern given to wl.sparse.{prepared.name} doesn't hold"
        advice = "Without one the pattern is found."
        if prepared.options.given is None:
            what, advice = "the Jacobian isn't symmetric", 'Leave out partition="symmetric".'
        warn_user(
            f"{what}: times a random vector, the sparse matrix gives {found[i]:.6g} in row {i}, the derivative "
            f"{expected[i]:.6g} ({len(wrong)} of {len(found)} rows differ). {advice}"
        )
