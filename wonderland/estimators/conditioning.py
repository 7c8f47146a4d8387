"""What the condition of X does to least squares: singular values come in, digits and near-collinear columns go out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

INFLATED = 10.0  # the usual limit of variance inflation


@dataclass
class Conditioning:
    """Condition numbers of X, about its means, and what they cost. Printed, it says what to do.

    `condition` is the largest over the smallest singular value of X, `scaled_condition` that of X with columns of unit
    length, which is what the solvers meet: they rescale. `inflation` (features,) are the variance inflation factors
    1 / (1 - R^2), R^2 of each column regressed on the others; near-collinear columns have more than 10.
    """

    condition: float
    scaled_condition: float
    inflation: np.ndarray = field(repr=False)
    names: list[str] = field(repr=False)
    digits: float  # of X's dtype
    rank: int

    @property
    def normal_condition(self) -> float:
        """That of X'X: the square."""
        return self.condition**2

    @property
    def digits_qr(self) -> float:
        """Decimal digits of the coefficients that QR may lose."""
        return min(float(np.log10(self.scaled_condition)), self.digits)

    @property
    def digits_normal(self) -> float:
        """Decimal digits that the normal equations may lose: twice as many."""
        return min(2 * float(np.log10(self.scaled_condition)), self.digits)

    @property
    def collinear(self) -> list[str]:
        """Names of columns that are nearly combinations of others, the worst first."""
        worst = np.argsort(-self.inflation, kind="stable")
        return [self.names[j] for j in worst if self.inflation[j] > INFLATED]

    def advice(self) -> str:
        """What to do about it, in a sentence."""
        if self.rank < len(self.names):
            return (
                f"X has rank {self.rank} of {len(self.names)}: coefficients aren't unique, and those of minimum norm "
                "are shown. Leave columns out, or use Ridge."
            )
        if self.digits_qr > self.digits - 4:
            return "Few digits of the coefficients are sure. Centre and rescale what X is made of, or use Ridge."
        if self.collinear:
            return (
                "The solution is exact enough, but the columns above say nearly the same: what each of them adds is "
                "uncertain. Leave some out, or use Ridge."
            )
        if self.digits_normal > self.digits / 2:
            return "Use QR (solver='auto' does), rather than plain normal equations."
        return "Well conditioned: any solver will do."

    def __str__(self) -> str:
        lines = [
            f"condition number of X    {self.condition:10.3g}   (columns of unit length: {self.scaled_condition:.3g})",
            f"condition number of X'X  {self.normal_condition:10.3g}",
            f"digits lost by QR {self.digits_qr:.1f}, by normal equations {self.digits_normal:.1f}, "
            f"of {self.digits:.0f}",
        ]
        by_name = dict(zip(self.names, self.inflation, strict=True))
        shown = self.collinear[:8]
        if shown:
            lines.append("near-collinear columns (variance inflation)")
            lines += [f"    {name}  {by_name[name]:.3g}" for name in shown]
            if len(self.collinear) > len(shown):
                lines.append(f"    and {len(self.collinear) - len(shown)} more")
        return "\n".join([*lines, self.advice()])


def conditioning_of(
    root: np.ndarray, names: list[str], rank: int, dtype: np.dtype, resolution: float
) -> Conditioning:
    """Of X with F'F = X'WX, F = `root` (k, p), which tells singular values down to `resolution` of the largest."""
    lengths = np.linalg.norm(root, axis=0)
    scaled = root / np.where(lengths > 0, lengths, 1)
    s = np.linalg.svd(root, compute_uv=False)
    _, t, Vt = np.linalg.svd(scaled)
    rank = min(rank, int(np.sum(t > resolution * t[0])))
    full = rank == len(names)
    t = np.concatenate([t, np.zeros(len(names) - len(t))])
    t[rank:] = 0
    shares = Vt * Vt  # (directions, columns); what a column has of a direction without spread is infinite
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(shares > 1e-12, shares / (t * t)[:, None], 0)
    inflation = np.where(lengths > 0, np.sum(parts, axis=0), np.inf)
    ratio = lambda s: float(s[0] / s[-1]) if full and s[-1] > 0 else np.inf
    digits = -float(np.log10(np.finfo(dtype).eps))
    return Conditioning(ratio(s), ratio(t), inflation, names, digits, rank)
