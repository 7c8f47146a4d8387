"""The public names of `wonderland.implicit`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.implicit.methods.anderson import Anderson
from wonderland.implicit.methods.broyden import Broyden
from wonderland.implicit.methods.gradient_steps import ProjectedGradient, ProximalGradient
from wonderland.implicit.methods.levenberg import GaussNewton, LevenbergMarquardt
from wonderland.implicit.methods.newton import Newton
from wonderland.implicit.methods.newton_cg import NewtonCG
from wonderland.implicit.methods.picard import Picard
from wonderland.implicit.methods.quasi_newton import BFGS, LBFGS
from wonderland.implicit.methods.trust_region import TrustRegion
from wonderland.implicit.minima import least_squares, minimize
from wonderland.implicit.programs.qp_solver import Certificate
from wonderland.implicit.programs.qp_status import QPStatus
from wonderland.implicit.programs.quadratic import QPSolution, lp, qp
from wonderland.implicit.reports import Report, Status
from wonderland.implicit.roots import bisect, custom_root, fixed_point, inverse, root
from wonderland.implicit.sets.projections import (
    project_affine,
    project_ball,
    project_box,
    project_halfspace,
    project_hyperplane,
    project_l1_ball,
    project_linf_ball,
    project_nonnegative,
    project_psd,
    project_second_order_cone,
    project_simplex,
)
from wonderland.implicit.sets.proximal import (
    conjugate_prox,
    moreau_envelope,
    prox_elastic_net,
    prox_l1,
    prox_l2,
    prox_linf,
    prox_log_det,
    prox_nonnegative_l1,
    prox_nuclear,
    prox_ridge,
)
from wonderland.implicit.sets.total_variation import prox_total_variation
from wonderland.implicit.sets.transport import Transport, sinkhorn
from wonderland.implicit.systems.factorized import Factorized, factorize, solve_with_report
from wonderland.implicit.systems.functions import LinearFunction
from wonderland.implicit.systems.krylov import Krylov
from wonderland.implicit.systems.linear import linear_solve
from wonderland.implicit.systems.operators import (
    Dense,
    Diagonal,
    LowRankUpdate,
    Operator,
    PositiveDefinite,
    Symmetric,
    Triangular,
)
from wonderland.implicit.systems.operators_banded import Banded, Tridiagonal
from wonderland.implicit.systems.operators_sparse import Sparse
from wonderland.implicit.systems.preconditioners import IncompleteLU, Jacobi
from wonderland.implicit.systems.solvers_direct import LU, QR, Cholesky, LeastSquares, SparseLU
from wonderland.implicit.systems.solvers_gmres import GMRES
from wonderland.implicit.systems.solvers_krylov import CG, MINRES, BiCGStab
from wonderland.implicit.systems.solvers_lsmr import LSMR
from wonderland.implicit.systems.solvers_structured import BandedLU, Division, Substitution, Woodbury
