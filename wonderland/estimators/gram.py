"""DataMoments of data in one pass: X and y come in, X'WX, X'Wy and the means go out, about the means and in float64.

X is read in blocks of rows that stay in the cache; none of its size is copied. Each block is shifted before it is
multiplied, so that columns far from zero lose no digits. The shift is the mean of some rows: what it misses of the
mean of all is taken off at the end, and is small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SAMPLE = 256  # rows whose mean is the shift
FAR = 100.0  # a shift whose square is so much more than the mean square about the mean, is done again


@dataclass
class DataMoments:
    """Sums over samples, about the means if there are means."""

    gram: np.ndarray  # (p, p), X'WX; (0, 0) if it wasn't asked for
    cross: np.ndarray  # (p, outputs), X'Wy
    square: np.ndarray  # (outputs,), the diagonal of y'Wy
    x_mean: np.ndarray  # (p,)
    y_mean: np.ndarray  # (outputs,)
    total: float  # the sum of weights


def moments(
    X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None, centre: bool = True, gram: bool = True
) -> DataMoments:
    """Moments of X (n, p) and Y (n, outputs) with weights (n,), about their means or, without `centre`, about zero.

    Without `gram`, means and X'Wy alone.
    """
    total = float(len(X) if weight is None else np.sum(weight, dtype=np.float64))
    x_mean, y_mean = rough_centre(X) if centre else np.zeros(X.shape[1]), mean_of(Y, weight, centre)
    C = Y - y_mean
    for _ in range(2):
        products, cross, sums = _products(X, C, weight, x_mean, gram)
        if not centre:
            break
        missed = sums / total
        cross -= total * np.outer(missed, np.average(C, axis=0, weights=weight))  # means of y are rounded
        x_mean = x_mean + missed
        if not gram:
            break
        products -= total * np.outer(missed, missed)
        if np.all(total * missed * missed <= FAR * np.diagonal(products)):
            break
    square = np.einsum("ij,ij->j", C, C if weight is None else C * weight[:, None])
    return DataMoments(products, cross, square, x_mean, y_mean, total)


def mean_of(X: np.ndarray, weight: np.ndarray | None, centre: bool) -> np.ndarray:
    """Means of the columns of X, to the last digit of those that are constant; or zeros."""
    sums = np.zeros(X.shape[1])
    if not centre:
        return sums
    rough = rough_centre(X)
    share = np.ones(len(X)) / len(X) if weight is None else weight / np.sum(weight, dtype=np.float64)
    for rows in row_blocks(*X.shape):
        sums += share[rows] @ (X[rows] - rough)
    return rough + sums


def rough_centre(X: np.ndarray) -> np.ndarray:
    """Means of some rows of X, as float64. Of a column that is constant in them it is that value, to the last digit."""
    rows = X[:: max(1, len(X) // SAMPLE)].astype(np.float64)
    first = rows[0].copy()
    rows -= first
    return first + np.ones(len(rows)) @ rows / len(rows)


def _products(
    X: np.ndarray, C: np.ndarray, weight: np.ndarray | None, shift: np.ndarray, gram: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """B'WB (of size 0 without `gram`), B'WC and B'W1 for B = X - shift."""
    n, p = X.shape
    products, cross, sums = np.zeros((p, p) if gram else (0, 0)), np.zeros((p, C.shape[1])), np.zeros(p)
    blocks = row_blocks(n, p, gram)
    by_columns = X.flags.f_contiguous and not X.flags.c_contiguous
    block = np.empty((blocks[0].stop, p), order="F" if by_columns else "C")
    # Of few columns the shift is repeated for each row of a block: one long subtraction, and no loop over short rows.
    repeated = np.tile(shift, len(block)) if p <= 64 and X.flags.c_contiguous else None
    ones = np.ones(len(block))
    for rows in blocks:
        B, c, root = block[: rows.stop - rows.start], C[rows], ones[: rows.stop - rows.start]
        if repeated is None:
            np.subtract(X[rows], shift, out=B)
        else:
            np.subtract(X[rows].reshape(-1), repeated[: B.size], out=B.reshape(-1))
        if weight is not None:
            root = np.sqrt(weight[rows], dtype=np.float64)
            B *= root[:, None]
            c = c * root[:, None]
        if gram:
            products += B.T @ B  # half of the work of a product: NumPy sees that it is symmetric
        cross += B.T @ c
        sums += root @ B
    return products, cross, sums


def row_blocks(n: int, width: int, products: bool = False) -> list[slice]:
    """Slices of n rows, so that a block of float64 fits the cache, or is worth its `products` if it is wide."""
    rows = max(1, (2**22 if products and width > 256 else 2**18) // width)
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def residual_sums(
    X: np.ndarray,
    Y: np.ndarray,
    weight: np.ndarray | None,
    coef: np.ndarray,
    x_mean: np.ndarray,
    y_mean: np.ndarray,
    far: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """X'Wr (p, outputs), about the mean, and r'Wr (outputs,) of r = (Y - y_mean) - (X - x_mean) coef, in one pass.

    If columns are `far` from zero, X coef would lose digits that (X - x_mean) coef has, and blocks are shifted.
    """
    offset = x_mean @ coef
    gradient, square = np.zeros_like(coef), np.zeros_like(y_mean)
    for rows in row_blocks(*X.shape):
        x = X[rows] - x_mean if far else X[rows].astype(np.float64, copy=False)
        r = Y[rows] - y_mean
        r -= x @ coef
        if not far:
            r += offset
        weighted = r if weight is None else r * weight[rows, None]
        gradient += x.T @ weighted
        square += np.einsum("ij,ij->j", r, weighted)
        if not far:
            gradient -= np.outer(x_mean, np.sum(weighted, axis=0))
    return gradient, square


def is_far(mean: np.ndarray, square: np.ndarray) -> bool:
    """Whether a column is far from zero, for its mean square about the mean."""
    return bool(np.any(mean * mean > 100 * square))
