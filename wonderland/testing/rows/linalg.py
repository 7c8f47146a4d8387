"""Rows of the op table: linear algebra.

Functions of Hermitian matrices read one triangle, and get matrices that aren't Hermitian: differences are of what NumPy
computes. Phases of eigenvectors and singular vectors are the library's choice: rows of complex matrices compare what
doesn't depend on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

import wonderland.numpy.linear_algebra  # noqa: F401  (registers the functions)
from wonderland.core.level import Traced
from wonderland.core.primitive import registry
from wonderland.core.tracer import Tracer, unwrap
from wonderland.ops import decompositions, factors, linalg  # noqa: F401  (registers the primitives)
from wonderland.scipy import linalg as ours
from wonderland.testing.op_table import add, function
from wonderland.testing.samples import Case, Operand, case, reals


def _matrices(rng: np.random.Generator, shape: tuple) -> np.ndarray:
    """Well-conditioned, with eigenvalues and singular values that are far apart."""
    *_, m, n = shape
    steps = 1.0 + np.arange(min(m, n))
    base = np.zeros((m, n))
    base[: min(m, n), : min(m, n)] = np.diag(steps)
    return base + rng.uniform(-0.3, 0.3, shape)


matrices: Operand = Operand(_matrices)
definite: Operand = Operand(lambda rng, shape: np.eye(shape[-1]) + _matrices(rng, shape))  # whichever triangle is read
vectors: Operand = Operand(lambda rng, shape: rng.uniform(-1.0, 1.0, shape))
_dense = {"pattern exact": "blocks are taken to be full", "higher precision": "LAPACK computes in float64 at most"}
_SQUARE = [case((3, 3)), case((2, 3, 3)), case((1, 1)), case((0, 0)), case((0, 2, 2))]


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return np.conj(np.swapaxes(x, -1, -2))


def _primitive(name: str) -> Any:
    """A primitive as a function of tracers."""

    def call(*args: Any, **params: Any) -> Any:
        out = registry[name](*map(unwrap, args), **params)
        hold = lambda value: Tracer(value) if isinstance(value, Traced) else value
        return tuple(map(hold, out)) if registry[name].multiple else hold(out)

    return call


# Primitives -----------------------------------------------------------------------------------------------------------

_SYSTEMS = [((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 1)), ((5, 2, 2), (5, 2, 2)), ((1, 1), (1, 1)), ((0, 0), (0, 2))]
add(
    "solve", matrices, vectors, reference=np.linalg.solve, dtypes="fc", excluded=_dense,
    cases=[case(*shapes) for shapes in _SYSTEMS],
)  # fmt: skip


def _triangular(a: Any, b: Any, lower: bool, adjoint: bool, unit: bool) -> Any:
    a = np.tril(a) if lower else np.triu(a)
    n = np.arange(a.shape[-1])
    if unit:
        a[..., n, n] = 1
    return np.linalg.solve(np.conj(np.swapaxes(a, -1, -2)) if adjoint else a, b)


add(
    "triangular_solve", matrices, vectors, reference=_triangular, dtypes="fc", excluded=_dense,
    cases=[
        case(*_SYSTEMS[i % len(_SYSTEMS)], lower=bool(i & 1), adjoint=bool(i & 2), unit=bool(i & 4)) for i in range(8)
    ],
)  # fmt: skip
add(
    "lstsq", matrices, vectors, dtypes="fc", excluded=_dense,
    reference=lambda a, b, rcond: np.linalg.pinv(a, rcond) @ b,
    cases=[
        case(a, b, rcond=1e-15)
        for a, b in (*_SYSTEMS, ((4, 2), (4, 3)), ((2, 4), (2, 1)), ((2, 3, 2), (2, 3, 2)), ((0, 2), (0, 1)))
    ],
)  # fmt: skip
add(
    "cholesky", definite, reference=np.linalg.cholesky, dtypes="fc", excluded=_dense, cases=_SQUARE,
)  # fmt: skip
add(
    "cholesky_or_nan", definite, reference=np.linalg.cholesky, dtypes="fc", excluded=_dense, cases=_SQUARE,
)  # fmt: skip


def _lu_reference(a: Any) -> tuple:
    """SciPy's factors in one array, and the rows' order."""
    found: Any = scipy.linalg.lu(a, p_indices=True) if a.size else (np.zeros(a.shape[:-1], int), a, a)
    order, low, up = found
    places = np.argsort(order, axis=-1)  # a[places] = l u
    return np.tril(low, -1) + np.triu(up), places


add("lu", matrices, reference=_lu_reference, dtypes="fc", excluded=_dense, cases=_SQUARE)


def _lu_solved(both: Any, places: Any, b: Any, adjoint: bool) -> Any:
    low, up = np.tril(both, -1) + np.eye(both.shape[-1]), np.triu(both)
    a = np.take_along_axis(low @ up, np.argsort(places, axis=-1)[..., None], axis=-2)
    return np.linalg.solve(np.conj(np.swapaxes(a, -1, -2)) if adjoint else a, b)


orders: Operand = Operand(
    lambda rng, shape: np.argsort(rng.uniform(size=shape), axis=-1), dtype=np.int64, differentiable=False
)
add(
    "lu_solve", matrices, orders, vectors, reference=_lu_solved, dtypes="fc", excluded=_dense,
    cases=[case(a, a[:-1], b, adjoint=adjoint) for a, b in _SYSTEMS for adjoint in (False, True)],
)  # fmt: skip


def _exchanged(x: Any, back: bool) -> Any:
    """Row by row, by the definition."""
    out = np.empty_like(x)
    for place in np.ndindex(x.shape[:-1]):
        order = list(range(x.shape[-1]))
        for i, number in enumerate(x[place]):
            j = number if back else order.index(number)
            out[place][i] = j
            order[i], order[j] = order[j], order[i]
        out[place] = order if back else out[place]
    return out


for _back in (False, True):
    add(
        "exchanges", orders, reference=_exchanged, dtypes="i", label=f"exchanges (back={_back})",
        cases=[case(shape, back=_back) for shape in ((4,), (2, 5), (3, 1), (0,), (0, 3))],
        excluded={"derivatives": "integers"},
    )  # fmt: skip
add("slogdet", matrices, reference=lambda x: tuple(np.linalg.slogdet(x)), dtypes="fc", excluded=_dense, cases=_SQUARE)
add("det", matrices, reference=np.linalg.det, dtypes="fc", excluded=_dense, cases=_SQUARE)


def _adjugate(a: Any) -> Any:
    return np.linalg.det(a)[..., None, None] * np.linalg.inv(a)


def _adjugate_tangent(a: Any, e: Any) -> Any:
    d, x = np.linalg.det(a)[..., None, None], np.linalg.inv(a)
    return d * (np.trace(x @ e, axis1=-2, axis2=-1)[..., None, None] * x - x @ e @ x)


_PAIRS = [case(c.shapes[0], c.shapes[0]) for c in _SQUARE]
add("adjugate", matrices, reference=_adjugate, dtypes="fc", excluded=_dense, cases=_SQUARE)
add("adjugate_tangent", matrices, vectors, reference=_adjugate_tangent, dtypes="fc", excluded=_dense, cases=_PAIRS)


def _each(f: Any, *stacks: Any) -> Any:
    out = np.zeros(stacks[0].shape, stacks[0].dtype)
    for place in np.ndindex(out.shape[:-2]):
        out[place] = f(*(x[place] for x in stacks)) if out.size else 0
    return out


add("expm", vectors, reference=lambda a: _each(scipy.linalg.expm, a), dtypes="fc", excluded=_dense, cases=_SQUARE)
add(
    "expm_tangent", vectors, vectors, dtypes="fc", excluded=_dense, cases=_PAIRS,
    reference=lambda a, e: _each(lambda a, e: scipy.linalg.expm_frechet(a, e, compute_expm=False), a, e),
)  # fmt: skip


def _turned(v: Any) -> Any:
    """Columns without their phase: each times the conjugate of its first element."""
    return v * np.conj(v[..., :1, :])


def _eigen(pair: Any) -> Any:
    return pair[0] + 0, _turned(pair[1])


for _lower in (True, False):
    add(
        "eigh", matrices, dtypes="fc", excluded=_dense, label=f"eigh ({'lower' if _lower else 'upper'})",
        cases=[case(shape, lower=_lower) for shape in ((3, 3), (2, 3, 3), (1, 1), (0, 2, 2))],
        reference=lambda x, lower: _eigen(np.linalg.eigh(x, "L" if lower else "U")),
        function=lambda x, lower: _eigen(_primitive("eigh")(x, lower=lower)),
    )  # fmt: skip
for _operand, _label in ((matrices, "eig"), (vectors, "eig (complex pairs)")):
    add(
        "eig", _operand, dtypes="fc", excluded=_dense, label=_label,
        cases=[case(shape) for shape in ((3, 3), (2, 3, 3), (1, 1), (0, 2, 2))],
        reference=lambda x: _eigen(np.linalg.eig(x)), function=lambda x: _eigen(_primitive("eig")(x)),
    )  # fmt: skip


def _singular(parts: Any) -> Any:
    """What doesn't depend on phases, nor on the choice of the columns beyond the singular values."""
    u, s, vh = parts
    count = s.shape[-1]
    weights = 1.0 + np.arange(count)
    extra = [x[..., :, count:] @ adjoint(x[..., :, count:]) for x in (u, adjoint(vh))]
    first, second = u[..., :, :count], adjoint(vh)[..., :, :count]
    return s, _turned(first), _turned(second), (first * weights.astype(s.dtype)) @ adjoint(second), *extra


_SHAPES = ((3, 3), (4, 2), (2, 3), (2, 3, 2), (1, 1), (0, 2, 2))
for _full in (False, True):
    add(
        "svd", matrices, dtypes="fc", excluded=_dense, label=f"svd ({'full' if _full else 'reduced'})",
        cases=[case(shape, full=_full) for shape in _SHAPES],
        reference=lambda x, full: _singular(np.linalg.svd(x, full)),
        function=lambda x, full: _singular(_primitive("svd")(x, full=full)),
    )  # fmt: skip


def _orthogonal(pair: Any, full: bool, columns: int) -> Any:
    q, r = pair
    extra = [q[..., :, columns:] @ adjoint(q[..., :, columns:])] if full else []
    return q[..., :, :columns], r, *extra


for _full in (False, True):
    add(
        "qr", matrices, dtypes="fc", excluded=_dense, label=f"qr ({'complete' if _full else 'reduced'})",
        cases=[case(shape, full=_full) for shape in _SHAPES],
        reference=lambda x, full: _orthogonal(
            np.linalg.qr(x, "complete" if full else "reduced"), full, min(x.shape[-2:])
        ),
        function=lambda x, full: _orthogonal(_primitive("qr")(x, full=full), full, min(x.shape[-2:])),
    )  # fmt: skip


# NumPy's functions ----------------------------------------------------------------------------------------------------

_lapack = {"higher precision": "LAPACK computes in float64 at most"}

function(
    np.linalg.solve, matrices, vectors, dtypes="ifc", excluded=_lapack,
    cases=[
        case((3, 3), (3,)), case((3, 3), (3, 2)), case((2, 3, 3), (3,)), case((2, 1, 3, 3), (4, 3, 2)),
        case((0, 0), (0,)),
    ],
)  # fmt: skip
function(np.linalg.inv, matrices, dtypes="ifc", excluded=_lapack, cases=_SQUARE)
function(np.linalg.det, matrices, dtypes="ifc", excluded=_lapack, cases=_SQUARE)
function(np.linalg.slogdet, matrices, dtypes="ifc", excluded=_lapack, cases=_SQUARE)
function(np.linalg.tensorinv, matrices, excluded=_lapack, dtypes="fc",
    call=lambda x, ind: np.linalg.tensorinv(x.reshape((2, 3, 6) if ind == 2 else (6, 2, 3)), ind),
    cases=[case((6, 6), ind=2), case((6, 6), ind=1)],
)  # fmt: skip
function(np.linalg.tensorsolve, matrices, vectors, excluded=_lapack, dtypes="fc",
    call=lambda a, b, axes: np.linalg.tensorsolve(a.reshape((6, 2, 3) if axes else (2, 3, 6)), b, axes),
    cases=[case((6, 6), (2, 3), axes=None), case((6, 6), (2, 3), axes=(0,))],
)  # fmt: skip
function(
    np.linalg.pinv, matrices, dtypes="ifc", excluded=_lapack,
    cases=[case((3, 2)), case((2, 4)), case((2, 3, 3), rcond=1e-10)],
)  # fmt: skip
function(
    np.linalg.pinv, matrices, dtypes="fc", excluded=_lapack, label="np.linalg.pinv (rtol)",
    cases=[case((3, 3), rtol=None), case((3, 2), rtol=1e-3), case((0, 2)), case((3, 3), hermitian=True)],
)  # fmt: skip
function(
    np.linalg.lstsq, matrices, vectors, dtypes="ifc", excluded=_lapack,
    call=lambda a, b, **params: _without_rank(np.linalg.lstsq(a, b, **params)),
    cases=[case((4, 2), (4,)), case((4, 2), (4, 3)), case((2, 4), (2,), rcond=1e-8), case((3, 3), (3, 2))],
)  # fmt: skip


def _without_rank(parts: Any) -> Any:
    return parts[0], parts[1], parts[3]  # NumPy's rank is an int, ours an int64


for _upper in (False, True):
    function(
        np.linalg.cholesky, definite, dtypes="fc", excluded=_lapack, label=f"np.linalg.cholesky (upper={_upper})",
        cases=[case(c.shapes[0], upper=_upper) for c in _SQUARE],
    )  # fmt: skip
_UPLO = [case((3, 3), UPLO="U"), case((2, 3, 3)), case((1, 1))]
function(
    np.linalg.eigh, matrices, dtypes="fc", excluded=_lapack, cases=_UPLO,
    call=lambda x, **params: _eigen(np.linalg.eigh(x, **params)),
)  # fmt: skip
function(
    np.linalg.eigvalsh, matrices, dtypes="ifc", excluded=_lapack, cases=[*_UPLO, case((0, 0))]
)  # fmt: skip
# Real eigenvalues are complex numbers here, whatever they are: their dtype can't depend on values.
function(
    np.linalg.eig, matrices, dtypes="fc", excluded=_lapack, cases=[case((3, 3)), case((2, 3, 3))],
    call=lambda x: tuple(part + 0j for part in _eigen(np.linalg.eig(x))),
)  # fmt: skip
function(
    np.linalg.eigvals, matrices, dtypes="ifc", excluded=_lapack, cases=[case((3, 3)), case((2, 3, 3)), case((0, 0))],
    call=lambda x: np.linalg.eigvals(x) + 0j,
)  # fmt: skip
function(
    np.linalg.svd, matrices, dtypes="fc", excluded=_lapack, call=lambda x, **p: _singular(np.linalg.svd(x, **p)),
    cases=[case((3, 3)), case((2, 3, 2), full_matrices=False), case((2, 4))],
)  # fmt: skip
function(
    np.linalg.svd, matrices, dtypes="ifc", excluded=_lapack, label="np.linalg.svd (compute_uv=False)",
    cases=[case((3, 3), compute_uv=False), case((2, 3, 2), compute_uv=False)],
)  # fmt: skip
function(
    np.linalg.svd, matrices, dtypes="fc", excluded=_lapack, label="np.linalg.svd (hermitian)",
    call=lambda x, **p: _singular(np.linalg.svd(x - 1.6 * np.eye(3).astype(x.dtype), **p)),
    cases=[case((3, 3), hermitian=True), case((2, 3, 3), hermitian=True)],  # with eigenvalues of both signs
)  # fmt: skip
function(
    np.linalg.svdvals, matrices, dtypes="ifc", excluded=_lapack, cases=[case(s) for s in ((3, 3), (2, 4, 2), (0, 3))]
)
function(
    np.linalg.qr, matrices, dtypes="fc", excluded=_lapack,
    cases=[case((3, 3)), case((4, 2)), case((2, 2, 3)), case((2, 3), mode="r"), case((0, 3))],
)  # fmt: skip
function(
    np.linalg.matrix_power, matrices, dtypes="ifc", excluded=_lapack,
    cases=[case((3, 3), n=n) for n in (1, 2, 3, 10)] + [case((2, 2, 2), n=5), case((0, 0), n=2)],
)  # fmt: skip
function(
    np.linalg.matrix_power, matrices, dtypes="fc", excluded=_lapack, label="np.linalg.matrix_power (negative)",
    cases=[case((3, 3), n=-1), case((2, 2, 2), n=-3)],
)  # fmt: skip
function(
    np.linalg.matrix_power, matrices, dtypes="ifc", label="np.linalg.matrix_power (0)", cases=[case((2, 3, 3), n=0)],
    excluded={**_lapack, "central differences": "it is constant"},
)  # fmt: skip
function(
    np.linalg.multi_dot, reals, reals, reals, dtypes="ifc", call=lambda *arrays: np.linalg.multi_dot(arrays),
    cases=[
        case((3, 4), (4, 2), (2, 5)), case((4,), (4, 2), (2,)), case((3, 4), (4, 2), (2,)),
        case((2, 0), (0, 3), (3, 1)),
    ],
)  # fmt: skip


def _norms(shape: tuple, orders: tuple, **params: Any) -> list[Case]:
    return [case(shape, ord=order, **params) for order in orders]


_chosen = {**_lapack, "pattern exact": "which element is largest depends on values"}
_VECTOR_ORDERS = (None, 1, 2, 3, 0.5, 2.5, np.inf, -np.inf, -2)
_MATRIX_ORDERS = ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
function(
    np.linalg.norm, reals, dtypes="ifc", excluded=_chosen,
    cases=[
        *_norms((5,), _VECTOR_ORDERS), *_norms((3, 4), (None, 3, np.inf), axis=1), case((2, 3, 2)), case((0,)),
        case(()),
        case((3, 4), axis=0, keepdims=True), case((2, 3), keepdims=True),
    ],
)  # fmt: skip
function(
    np.linalg.norm, matrices, dtypes="ifc", excluded=_chosen, label="np.linalg.norm of matrices",
    cases=_norms((3, 3), _MATRIX_ORDERS),
)  # fmt: skip
function(
    np.linalg.norm, reals, dtypes="ifc", excluded=_chosen, label="np.linalg.norm along two axes",
    cases=_norms((2, 4, 3), _MATRIX_ORDERS, axis=(2, 0), keepdims=True),
)  # fmt: skip
function(
    np.linalg.norm, reals, dtypes="ifc", label="np.linalg.norm (number of elements)", cases=[case((5,), ord=0)],
    excluded={**_lapack, "central differences": "it is a staircase"},
)  # fmt: skip
function(
    np.linalg.vector_norm, reals, dtypes="ifc", excluded=_chosen,
    cases=[*_norms((5,), _VECTOR_ORDERS[1:]), case((3, 4)), case((2, 3, 2), axis=(0, 2), keepdims=True, ord=1)],
)  # fmt: skip
function(
    np.linalg.matrix_norm, matrices, dtypes="ifc", excluded=_chosen,
    cases=[*_norms((3, 2), _MATRIX_ORDERS), case((2, 3, 3), keepdims=True)],
)  # fmt: skip
function(
    np.linalg.cond, matrices, dtypes="ifc", excluded=_chosen,
    call=lambda x, **p: np.real(np.linalg.cond(x, **p)),  # NumPy 2.2 has zeros for imaginary parts
    cases=[case((3, 3)), *(case((2, 3, 3), p=p) for p in (-2, 1, np.inf, "fro")), case((4, 2), p=2)],
)  # fmt: skip
function(
    np.linalg.matrix_rank, matrices, dtypes="ifc", excluded={"derivatives": "it is an integer", **_lapack},
    cases=[case((3, 3)), case((2, 4, 2)), case((2, 3, 3), tol=1.5), case((3, 2), rtol=1e-3)],
)  # fmt: skip
function(
    np.linalg.matrix_rank, reals, dtypes="ifc", excluded={"derivatives": "it is an integer", **_lapack},
    cases=[case((3,)), case(())], label="np.linalg.matrix_rank of vectors",
    call=lambda x: np.linalg.matrix_rank(x) + np.int64(0),  # NumPy's is an int
)  # fmt: skip
_PAIRED = [case((3,), (3,)), case((2, 3), (3,)), case((3, 2), (3, 2), axis=0)]
function(np.linalg.outer, reals, reals, cases=[case((3,), (2,)), case((0,), (2,))], dtypes="ifc")
function(np.linalg.cross, reals, reals, dtypes="ifc", cases=_PAIRED)
function(np.linalg.vecdot, reals, reals, dtypes="ifc", cases=_PAIRED)
function(np.linalg.matmul, reals, reals, cases=[case((2, 3), (3, 2)), case((2, 2, 3), (3,))], dtypes="ifc")
function(
    np.linalg.tensordot, reals, reals, dtypes="ifc",
    cases=[case((2, 3, 4), (3, 4, 2)), case((2, 3), (3, 2), axes=1), case((2, 3), (3, 2), axes=((0,), (1,)))],
)  # fmt: skip
_BANDS = [case((3, 4)), case((2, 3, 3), offset=1), case((3, 2), offset=-1)]
function(np.linalg.matrix_transpose, reals, cases=[case((2, 3)), case((2, 3, 4)), case((0, 3))])
function(np.linalg.diagonal, reals, cases=_BANDS)
function(np.linalg.trace, reals, dtypes="ifc", cases=_BANDS)

# SciPy's functions ----------------------------------------------------------------------------------------------------

for _trans in (0, "T", "C"):
    function(
        scipy.linalg.solve_triangular, matrices, vectors, dtypes="ifc", excluded=_lapack,
        call=ours.solve_triangular, label=f"scipy.linalg.solve_triangular (trans={_trans})",
        cases=[
            case((3, 3), (3,), trans=_trans), case((3, 3), (3, 2), trans=_trans, lower=True),
            case((2, 2), (2, 2), trans=_trans, lower=True, unit_diagonal=True),
        ],
    )  # fmt: skip
for _lower in (False, True):
    function(
        scipy.linalg.cholesky, definite, dtypes="fc", excluded=_lapack, call=ours.cholesky,
        cases=[case((3, 3), lower=_lower), case((1, 1), lower=_lower)],
        label=f"scipy.linalg.cholesky (lower={_lower})",
    )  # fmt: skip
    function(
        scipy.linalg.cho_solve, definite, vectors, dtypes="fc", excluded=_lapack,
        call=lambda a, b, lower: ours.cho_solve(ours.cho_factor(a, lower), b),
        cases=[case((3, 3), (3,), lower=_lower), case((3, 3), (3, 2), lower=_lower)],
        label=f"scipy.linalg.cho_solve (lower={_lower})",
    )  # fmt: skip
for _trans in (0, 1, 2):
    function(
        scipy.linalg.lu_solve, matrices, vectors, dtypes="ifc", excluded=_lapack,
        call=lambda a, b, trans: ours.lu_solve(ours.lu_factor(a), b, trans),
        cases=[case((3, 3), (3,), trans=_trans), case((3, 3), (3, 2), trans=_trans)],
        label=f"scipy.linalg.lu_solve (trans={_trans})",
    )  # fmt: skip
function(
    scipy.linalg.lu_factor, matrices, dtypes="ifc", excluded=_lapack, call=lambda x: ours.lu_factor(x)[0],
    cases=[case((3, 3)), case((1, 1))],
)  # fmt: skip
function(
    scipy.linalg.cho_factor, definite, dtypes="fc", excluded=_lapack,
    call=lambda x: np.triu(ours.cho_factor(x)[0]), cases=[case((3, 3)), case((1, 1))],
)  # fmt: skip
function(
    scipy.linalg.solve, matrices, vectors, dtypes="ifc", excluded=_lapack, call=ours.solve,
    cases=[
        case((3, 3), (3,)), case((3, 3), (3, 2), assume_a="gen"), case((3, 3), (3,), assume_a="lower triangular"),
    ],
)  # fmt: skip
for _structure in ("sym", "her", "pos", "diagonal", "tridiagonal"):
    function(
        scipy.linalg.solve, definite, vectors, dtypes="ifc", excluded=_lapack, call=ours.solve,
        cases=[case((3, 3), (3,), assume_a=_structure), case((3, 3), (3, 2), assume_a=_structure, lower=True)],
        label=f"scipy.linalg.solve ({_structure})",
    )  # fmt: skip
function(
    scipy.linalg.solve, matrices, vectors, dtypes="if", excluded=_lapack, call=ours.solve,
    cases=[case((3, 3), (3,), transposed=True)], label="scipy.linalg.solve (transposed)",
)  # fmt: skip
function(scipy.linalg.inv, matrices, dtypes="ifc", excluded=_lapack, call=ours.inv, cases=[case((3, 3)), case((1, 1))])
function(scipy.linalg.det, matrices, dtypes="ifc", excluded=_lapack, call=ours.det, cases=_SQUARE[:3])
function(scipy.linalg.expm, vectors, dtypes="fc", excluded=_lapack, call=ours.expm, cases=_SQUARE[:3])
function(
    scipy.linalg.eigh, matrices, dtypes="fc", excluded=_lapack, cases=[case((3, 3)), case((2, 2), lower=False)],
    call=lambda x, **params: _eigen(ours.eigh(x, **params)),
)  # fmt: skip
function(
    scipy.linalg.eigvalsh, matrices, definite, dtypes="fc", excluded=_lapack, call=ours.eigvalsh,
    cases=[case((3, 3), (3, 3)), case((2, 2), (2, 2), lower=False)],
)  # fmt: skip
function(
    scipy.linalg.eigh, matrices, definite, dtypes="fc", excluded=_lapack, label="scipy.linalg.eigh of pairs",
    cases=[case((3, 3), (3, 3)), case((2, 2), (2, 2), lower=False)],
    call=lambda a, b, **params: _eigen(ours.eigh(a, b, **params)),
)  # fmt: skip
function(
    scipy.linalg.block_diag, reals, reals, dtypes="ifc", call=ours.block_diag,
    cases=[case((2, 3), (1, 2)), case((3,), (2, 2)), case((), (2, 2)), case((2, 2), (0, 1))],
)  # fmt: skip
function(
    scipy.linalg.toeplitz, reals, reals, dtypes="ifc", call=ours.toeplitz, cases=[case((3,), (4,)), case((2,), (2,))]
)
function(
    scipy.linalg.toeplitz, reals, dtypes="ifc", call=ours.toeplitz, cases=[case((3,)), case((1,))],
    label="scipy.linalg.toeplitz (symmetric)",
)  # fmt: skip
