"""The figure of docs/linear-systems.md: residuals of iterative solvers, on a Poisson problem and one with a wind.

Run from the repository: python docs/plots/linear_systems.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from wonderland.implicit import CG, GMRES, LSMR, MINRES, BiCGStab, IncompleteLU, Sparse, factorize

INK, EDGE = "#222222", "#CCCCCC"
COLOURS = {"CG": "#08306B", "MINRES": "#4292C6", "BiCGStab": "#D94801", "GMRES(30)": "#238B45", "LSMR": "#807DBA"}
SOLVERS = {"CG": CG, "MINRES": MINRES, "BiCGStab": BiCGStab, "GMRES(30)": GMRES, "LSMR": LSMR}
plt.rcParams.update({"font.size": 9, "figure.dpi": 150, "axes.titlesize": 9, "text.color": INK})
M = 50


def line(lower, middle, upper):
    """A tridiagonal matrix with constant diagonals."""
    return sp.diags_array([lower, middle, upper], offsets=[-1, 0, 1], shape=(M, M))


POISSON = sp.csr_array(sp.kronsum(line(-1.0, 2.0, -1.0), line(-1.0, 2.0, -1.0)))
WIND = sp.csr_array(sp.kronsum(line(-1.3, 2.0, -0.7), line(-1.1, 2.0, -0.9)))


def history(axes, matrix, name, longest, style="-", preconditioner=None, label=None):
    """The residual of what comes back after each of some numbers of iterations."""
    b = np.ones(M * M)
    counts, residuals = [0], [1.0]
    solver = SOLVERS[name]
    kept = factorize(Sparse(matrix), solver(preconditioner=preconditioner)).kept
    for count in np.unique(np.geomspace(1, longest, 60).astype(int)):
        _, report = solver(tol=1e-10, maxiter=int(count)).run(Sparse(matrix), kept, b)
        counts.append(int(report.iterations))
        residuals.append(float(report.residual) / M)
        if report.status == 0:
            break
    axes.semilogy(counts, residuals, style, color=COLOURS[name], linewidth=1.4, label=label or name)


def main():
    """Draw both."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained", sharey=True)
    for name in SOLVERS:
        history(left, POISSON, name, 320)
    for name in ("BiCGStab", "GMRES(30)", "LSMR"):
        history(right, WIND, name, 320)
    for name in ("BiCGStab", "GMRES(30)"):
        history(right, WIND, name, 320, "--", IncompleteLU(drop_tol=1e-2, fill_factor=3), f"{name}, incomplete LU")
    left.set_title(f"Poisson's equation on {M} x {M} points")
    right.set_title("with a wind: not symmetric")
    left.set_ylabel("norm of the residual, that of b is 1")
    for axes in (left, right):
        axes.set(xlabel="iterations", xlim=(0, 320), ylim=(3e-11, 3))
        axes.grid(color=EDGE, linewidth=0.5)
        axes.legend(frameon=False, fontsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    path = Path(__file__).resolve().parent.parent / "images" / "linear-systems.png"
    figure.savefig(path)
    print(path)


if __name__ == "__main__":
    main()
