"""The public names of `wonderland`, each imported from where it is: the one list of them.

Type checkers and editors read this file as it stands. `wonderland` itself runs it without importing anything, and has
a table of names from it (`core/later.py`): a name's module is loaded when the name is first used. The compiler brings
LLVM, others SciPy or the standard library's source tools, and an import that isn't felt has no more than most programs
need. A name added here also goes into a page of `docs/reference`.
"""

# ruff: noqa: F401

from wonderland import (
    data,
    einops,
    estimators,
    generative,
    implicit,
    models,
    nn,
    random,
    recipes,
    sparse,
    testing,
    text,
    train,
)
from wonderland.compile.jit import jit
from wonderland.control.associative import associative_scan
from wonderland.control.cond import cond, switch
from wonderland.control.custom import custom_jvp, custom_vjp
from wonderland.control.effects import CheckError, check, host_call, print
from wonderland.control.linear import linear_transpose
from wonderland.control.loops import fori_loop, scan, while_loop
from wonderland.control.segments import binomial
from wonderland.core.errors import (
    ArgumentError,
    LeakedTracerError,
    LostDerivativeError,
    MutationError,
    NoValueError,
    TracingError,
)
from wonderland.core.kinds import register_mutable, register_node
from wonderland.core.primitive import Primitive
from wonderland.core.program import Program, verify
from wonderland.core.tree import tree_map
from wonderland.nn.files import load, save
from wonderland.numpy.at import at
from wonderland.numpy.attention import attention
from wonderland.numpy.broadcasting import BroadcastWarning, warn_on_broadcast
from wonderland.numpy.convolution import conv, conv_transpose
from wonderland.numpy.dispatch import as_function
from wonderland.numpy.lift import lift
from wonderland.numpy.pooling import fold, max_pool, mean_pool, resize, sum_pool, unfold
from wonderland.studio.explain import explain
from wonderland.studio.memory import memory_profile
from wonderland.studio.to_sympy import to_sympy
from wonderland.transform.checkpoint import checkpoint, checkpoint_name, checkpoint_sequential, save_names
from wonderland.transform.closures import closure_convert
from wonderland.transform.cost import cost
from wonderland.transform.curvature import gauss_newton, gnvp, hessian_diagonal, laplacian
from wonderland.transform.derivatives import grad, jvp, linearize, stop_gradient, trace, value_and_grad, vjp
from wonderland.transform.finite_difference import finite_difference, finite_difference_jvp
from wonderland.transform.jacobian import jacfwd, jacobian, jacrev
from wonderland.transform.jet import jet, nth_derivative
from wonderland.transform.second_order import hessian, hvp, hvp_at, second_directional, vhp
from wonderland.transform.surprises import LostDerivativeWarning, RandomConstantWarning, ReboundArrayWarning
from wonderland.transform.trees import tree_flatten, tree_leaves, tree_ravel, tree_structure, tree_unflatten
from wonderland.transform.vmap import vmap
