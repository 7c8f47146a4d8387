"""np.linalg's functions on traced arrays: solving, inverting, decomposing. Loaded when one of them meets a tracer.

Results that NumPy returns as named tuples are named tuples of tracers. Integers become float64, as in NumPy. Norms and
quantities of singular values are in `numpy/norms.py`.
"""

from __future__ import annotations

from typing import Any

from wonderland.core.tracer import FUNCTIONS, Tracer, concrete, unwrap
from wonderland.core.types import ArrayType, promote, shape_of, type_of
from wonderland.numpy.dispatch import implements, present, space_of
from wonderland.numpy.join import as_value
from wonderland.numpy.missing import np
from wonderland.ops import decompositions, determinants, linalg
from wonderland.ops import elementwise as ops
from wonderland.ops.matrices import adjoint, identity_like, of_triangle, product, real_dtype, square
from wonderland.ops.reduce import max as reduce_max
from wonderland.ops.reduce import sum as reduce_sum
from wonderland.ops.shape import broadcast, convert, reshape, transpose

# NumPy's classes of results, which it doesn't name in public.
EighResult: Any
EigResult: Any
QRResult: Any
SVDResult: Any
SlogdetResult: Any
EighResult, EigResult, QRResult, SVDResult, SlogdetResult = (
    type(f(np.eye(1))) for f in (np.linalg.eigh, np.linalg.eig, np.linalg.qr, np.linalg.svd, np.linalg.slogdet)
)


def inexact(*arrays: Any) -> list[Any]:
    """Operands in the one dtype in which LAPACK computes: float64 for integers."""
    arrays = tuple(as_value(a) for a in arrays)
    dtype = promote(*(type_of(a) for a in arrays))[0]
    dtype = np.dtype(float) if dtype.kind in "biu" else dtype
    if dtype.char not in "fdFD":
        raise TypeError(f"array type {dtype} is unsupported in linalg")
    return [a if type_of(a).dtype == dtype else convert(a, dtype=dtype) for a in arrays]


def matrix(a: Any) -> Any:
    """An operand that must be (a stack of) matrices."""
    (a,) = inexact(a)
    rank = len(shape_of(a))
    if rank < 2:
        raise np.linalg.LinAlgError(f"{rank}-dimensional array given. Array must be at least two-dimensional")
    return a


def square_matrix(a: Any) -> Any:
    """An operand that must be (a stack of) square matrices."""
    a = matrix(a)
    square(type_of(a))
    return a


def hermitian_matrix(a: Any) -> Any:
    """Hermitian matrices, of which NumPy reads the lower triangle."""
    return of_triangle(square_matrix(a), lower=True)


def stacked(*arrays: Any) -> list[Any]:
    """Stacks of matrices with their leading axes broadcast."""
    head = np.broadcast_shapes(*(shape_of(a)[:-2] for a in arrays))
    goals = [(*head, *shape_of(a)[-2:]) for a in arrays]
    return [a if shape_of(a) == goal else broadcast(a, shape=goal) for a, goal in zip(arrays, goals, strict=True)]


# Systems of equations -------------------------------------------------------------------------------------------------


@implements(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    a, b = inexact(a, b)
    square(type_of(a))
    if len(shape_of(b)) == 1:
        out = solve(a, reshape(b, shape=(*shape_of(b), 1)))
        return reshape(out, shape=shape_of(out)[:-1])
    if not shape_of(b):
        raise np.linalg.LinAlgError("0-dimensional array given. Array must be at least one-dimensional")
    if shape_of(a)[-1] != shape_of(b)[-2]:
        raise ValueError(f"solve: a matrix of shape {shape_of(a)} and b of shape {shape_of(b)} don't fit")
    return linalg.solve(*stacked(a, b))


@implements(np.linalg.inv)
def inv(a: Any) -> Any:
    return linalg.inverse(square_matrix(a))


@implements(np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    a, b = inexact(a, b)
    rank = len(shape_of(a))
    if axes is not None:
        last = [int(i) % rank for i in axes]
        a = transpose(a, permutation=(*(i for i in range(rank) if i not in last), *last))
    rest = shape_of(a)[len(shape_of(b)) - rank :] if rank > len(shape_of(b)) else ()
    count = int(np.prod(rest))
    if type_of(a).size != count**2:
        raise np.linalg.LinAlgError(
            f"Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim]), got "
            f"{shape_of(a)} and {shape_of(b)}"
        )
    out = solve(reshape(a, shape=(count, count)), reshape(b, shape=(type_of(b).size,)))
    return reshape(out, shape=rest)


@implements(np.linalg.tensorinv)
def tensorinv(a: Any, ind: int = 2) -> Any:
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    shape = shape_of(a)
    rows, columns = shape[:ind], shape[ind:]
    out = inv(reshape(a, shape=(int(np.prod(rows)), int(np.prod(columns)))))
    return reshape(out, shape=(*columns, *rows))


@implements(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = np._NoValue) -> Any:
    a = hermitian_matrix(a) if hermitian else matrix(a)
    m, n = shape_of(a)[-2:]
    if rcond is not None and rtol is not np._NoValue:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    if rcond is None:
        rcond = 1e-15 if rtol is np._NoValue else rtol
    if rcond is None:
        rcond = max(m, n) * float(np.finfo(type_of(a).dtype).eps)
    return linalg.lstsq(
        a, np.broadcast_to(np.eye(m, dtype=type_of(a).dtype), (*shape_of(a)[:-1], m)), rcond=_number(rcond)
    )


def _number(rcond: Any) -> float:
    if np.ndim(rcond):
        raise TypeError("the cutoff of singular values (rcond, rtol) on traced arrays is one number for all matrices")
    return float(rcond)


@implements(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    a, b = inexact(a, b)
    if len(shape_of(a)) != 2:
        raise np.linalg.LinAlgError(f"{len(shape_of(a))}-dimensional array given. Array must be two-dimensional")
    (m, n), vector = shape_of(a), len(shape_of(b)) == 1
    if shape_of(b)[0] != m:
        raise np.linalg.LinAlgError("Incompatible dimensions")
    rcond = max(m, n) * float(np.finfo(type_of(a).dtype).eps) if rcond is None else _number(rcond)
    b = reshape(b, shape=(m, 1)) if vector else b
    x = linalg.lstsq(a, b, rcond=rcond)
    s = decompositions.svd(a, full=False)[1]
    rank = _rank(s, rcond)
    error = ops.sub(b, product(a, x))
    residuals = reduce_sum(ops.real(ops.mul(error, ops.conjugate(error))), axes=(0,))
    # NumPy leaves the residuals out where there are none, or the rank isn't full; in compiled code it is taken to be.
    if m <= n or (_has_value(rank) and concrete(rank, "the rank") < n):
        residuals = np.zeros(0, real_dtype(type_of(a).dtype))
    return reshape(x, shape=(n,)) if vector else x, residuals, rank, s


def _rank(s: Any, rcond: float) -> Any:
    if not shape_of(s)[0]:
        return np.int64(0)
    large = ops.gt(s, ops.mul(reduce_max(s, axes=(0,)), rcond))
    return reduce_sum(convert(large, dtype=np.dtype(np.int64)), axes=(0,))


def _has_value(value: Any) -> bool:
    while hasattr(value, "primal"):
        value = value.primal
    return isinstance(value, (np.ndarray, np.generic))


# Decompositions -------------------------------------------------------------------------------------------------------


@implements(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    a = square_matrix(a)
    return adjoint(linalg.cholesky(adjoint(a))) if upper else linalg.cholesky(a)


def _uplo(name: str) -> bool:
    if name.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return name.upper() == "L"


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> Any:
    return EighResult(*decompositions.eigh(square_matrix(a), lower=_uplo(UPLO)))


@implements(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    return decompositions.eigh(square_matrix(a), lower=_uplo(UPLO))[0]


@implements(np.linalg.eig)
def eig(a: Any) -> Any:
    return EigResult(*decompositions.eig(square_matrix(a)))


@implements(np.linalg.eigvals)
def eigvals(a: Any) -> Any:
    return decompositions.eig(square_matrix(a))[0]


@implements(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise TypeError(f"np.linalg.qr on traced arrays has the modes 'reduced', 'complete' and 'r', not {mode!r}")
    q, r = decompositions.qr(matrix(a), full=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


@implements(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    if hermitian:
        return _hermitian_svd(a, compute_uv)
    parts = decompositions.svd(matrix(a), full=bool(full_matrices and compute_uv))
    return SVDResult(*parts) if compute_uv else parts[1]


def _hermitian_svd(a: Any, compute_uv: bool) -> Any:
    """Singular values are the sizes of eigenvalues; their signs go to the right-hand vectors."""
    parts: Any = map(Tracer, decompositions.eigh(square_matrix(a), lower=True))
    w, v = parts
    order: Any = np.argsort(np.abs(w))[..., ::-1]
    w = np.take_along_axis(w, order, axis=-1)
    if not compute_uv:
        return unwrap(np.abs(w))
    u = np.take_along_axis(v, order[..., None, :], axis=-1)
    return SVDResult(*map(unwrap, (u, np.abs(w))), adjoint(unwrap(u * np.sign(w)[..., None, :])))


@implements(np.linalg.svdvals)
def svdvals(x: Any, /) -> Any:
    return decompositions.svd(matrix(x), full=False)[1]


# Determinants, powers, products ---------------------------------------------------------------------------------------


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    return SlogdetResult(*determinants.slogdet(square_matrix(a)))


@implements(np.linalg.det)
def det(a: Any) -> Any:
    return determinants.det(square_matrix(a))


@implements(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Any:
    kind: ArrayType = type_of(a)
    square(kind)
    try:
        n = n.__index__()
    except AttributeError:
        raise TypeError("exponent must be an integer") from None
    if n == 0:
        return identity_like(a)
    if n < 0:
        a, n = inv(a), -n
    result = None
    while True:
        n, bit = divmod(n, 2)
        if bit:
            result = a if result is None else product(result, a)
        if not n:
            return result
        a = product(a, a)


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Any) -> Any:
    arrays = [as_value(a) for a in arrays]
    if len(arrays) < 2:
        raise ValueError("Expecting at least two arrays.")
    first, last = shape_of(arrays[0]), shape_of(arrays[-1])
    if len(first) == 1:
        arrays[0] = reshape(arrays[0], shape=(1, *first))
    if len(last) == 1:
        arrays[-1] = reshape(arrays[-1], shape=(*last, 1))
    for a in arrays:
        if len(shape_of(a)) != 2:
            raise np.linalg.LinAlgError(f"{len(shape_of(a))}-dimensional array given. Array must be two-dimensional")
    out = _chain(arrays)
    shape = (*((shape_of(out)[0],) if len(first) == 2 else ()), *((shape_of(out)[1],) if len(last) == 2 else ()))
    return reshape(out, shape=shape) if shape != shape_of(out) else out


def _chain(arrays: list) -> Any:
    """The product of matrices in the cheapest order."""
    sizes = [shape_of(arrays[0])[0], *(shape_of(a)[1] for a in arrays)]
    best: dict[tuple[int, int], tuple] = {(i, i): (0, i) for i in range(len(arrays))}  # cost, last split
    for length in range(1, len(arrays)):
        for i in range(len(arrays) - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def multiplied(i: int, j: int) -> Any:
        split = best[i, j][1]
        return arrays[i] if i == j else product(multiplied(i, split), multiplied(split + 1, j))

    return multiplied(0, len(arrays) - 1)


# Names that np.linalg has for functions of the main namespace ---------------------------------------------------------


def _renamed(original: Any, function: Any) -> None:
    function.__name__, function.__doc__ = original.__name__, f"NumPy's `linalg.{original.__name__}`."
    for target in present([original]):
        FUNCTIONS[target] = space_of(target)[target.__name__] = function


def _outer(x1: Any, x2: Any, /) -> Any:
    if np.ndim(x1) != 1 or np.ndim(x2) != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are {np.ndim(x1)=} and {np.ndim(x2)=}.")
    return np.outer(x1, x2)


def _cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    if np.shape(x1)[axis] != 3 or np.shape(x2)[axis] != 3:
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they are "
            f"{np.shape(x1)[axis]} and {np.shape(x2)[axis]} dimensional instead."
        )
    return np.cross(x1, x2, axis=axis)


def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return np.vecdot(np.moveaxis(x1, axis, -1), np.moveaxis(x2, axis, -1))


_renamed(np.linalg.outer, _outer)
_renamed(np.linalg.cross, _cross)
_renamed(np.linalg.matmul, lambda x1, x2, /: np.matmul(x1, x2))
_renamed(np.linalg.tensordot, lambda x1, x2, /, *, axes=2: np.tensordot(x1, x2, axes=axes))
_renamed(np.linalg.vecdot, _vecdot)
_renamed(np.linalg.matrix_transpose, lambda x, /: np.swapaxes(x, -1, -2))
_renamed(np.linalg.diagonal, lambda x, /, *, offset=0: np.diagonal(x, offset, axis1=-2, axis2=-1))
_renamed(np.linalg.trace, lambda x, /, *, offset=0, dtype=None: np.trace(x, offset, axis1=-2, axis2=-1, dtype=dtype))

from wonderland.numpy import norms as _norms  # noqa: E402, F401  (the rest of the namespace)
