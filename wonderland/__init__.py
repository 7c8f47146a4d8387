"""Differentiable programming for NumPy: write NumPy, get exact derivatives, compile to one native call."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

import wonderland.numpy  # noqa: F401  (fills the tables through which NumPy's functions reach us)
from wonderland.core.errors import (
    ArgumentError,
    LeakedTracerError,
    LostDerivativeError,
    MutationError,
    NoValueError,
    TracingError,
)
from wonderland.core.primitive import Primitive
from wonderland.core.program import Program, verify
from wonderland.core.tracebacks import publish as _publish
from wonderland.core.tree import register_mutable, register_node, tree_map
from wonderland.numpy.dispatch import as_function
from wonderland.ops import large as _large
from wonderland.transform import chunks as _chunks
from wonderland.transform import jacobian as _jacobian
from wonderland.transform.derivatives import grad, jvp, linearize, stop_gradient, trace, value_and_grad, vjp
from wonderland.transform.jacobian import jacfwd, jacobian, jacrev
from wonderland.transform.vmap import vmap

if TYPE_CHECKING:
    from wonderland import einops, random, sparse, testing
    from wonderland.compile.jit import jit
    from wonderland.control.associative import associative_scan
    from wonderland.control.cond import cond, switch
    from wonderland.control.custom import custom_jvp, custom_vjp
    from wonderland.control.effects import CheckError, check, host_call, print
    from wonderland.control.linear import linear_transpose
    from wonderland.control.loops import fori_loop, scan, while_loop
    from wonderland.control.segments import binomial
    from wonderland.numpy.at import at
    from wonderland.numpy.broadcasting import BroadcastWarning, warn_on_broadcast
    from wonderland.numpy.lift import lift
    from wonderland.studio.explain import explain
    from wonderland.studio.memory import memory_profile
    from wonderland.studio.to_sympy import to_sympy
    from wonderland.transform.checkpoint import checkpoint, checkpoint_name, checkpoint_sequential, save_names
    from wonderland.transform.closures import closure_convert
    from wonderland.transform.cost import cost
    from wonderland.transform.curvature import gauss_newton, gnvp, hessian_diagonal, laplacian
    from wonderland.transform.finite_difference import finite_difference, finite_difference_jvp
    from wonderland.transform.jet import jet, nth_derivative
    from wonderland.transform.second_order import hessian, hvp, hvp_at, second_directional, vhp
    from wonderland.transform.surprises import LostDerivativeWarning, RandomConstantWarning, ReboundArrayWarning
    from wonderland.transform.trees import tree_flatten, tree_leaves, tree_ravel, tree_structure, tree_unflatten

__version__ = "0.1.0"
__all__ = [
    "ArgumentError", "BroadcastWarning", "CheckError", "LeakedTracerError", "LostDerivativeError",
    "LostDerivativeWarning", "MutationError", "NoValueError", "Primitive", "Program", "RandomConstantWarning",
    "ReboundArrayWarning", "TracingError", "as_function", "associative_scan", "at", "binomial", "check", "checkpoint",
    "checkpoint_name", "checkpoint_sequential", "closure_convert", "cond", "cost", "custom_jvp", "custom_vjp", "einops",
    "explain", "finite_difference", "finite_difference_jvp", "fori_loop", "gauss_newton", "gnvp", "grad", "hessian",
    "hessian_diagonal", "host_call", "hvp", "hvp_at", "jacfwd", "jacobian", "jacrev", "jet", "jit", "jvp", "laplacian",
    "lift", "linear_transpose", "linearize", "memory_profile", "nth_derivative", "print", "random", "register_mutable",
    "register_node", "save_names", "scan", "second_directional", "sparse", "stop_gradient", "switch", "testing",
    "to_sympy", "trace", "tree_flatten", "tree_leaves", "tree_map", "tree_ravel", "tree_structure", "tree_unflatten",
    "value_and_grad", "verify", "vhp", "vjp", "vmap", "warn_on_broadcast", "while_loop",
]  # fmt: skip

# Loaded on first use: the compiler brings LLVM, others SciPy or the standard library's source tools, and an import that
# isn't felt has no more than most programs need.
_LAZY = {
    "BroadcastWarning": ("wonderland.numpy.broadcasting", "BroadcastWarning"),
    "CheckError": ("wonderland.control.effects", "CheckError"),
    "LostDerivativeWarning": ("wonderland.transform.surprises", "LostDerivativeWarning"),
    "RandomConstantWarning": ("wonderland.transform.surprises", "RandomConstantWarning"),
    "ReboundArrayWarning": ("wonderland.transform.surprises", "ReboundArrayWarning"),
    "associative_scan": ("wonderland.control.associative", "associative_scan"),
    "at": ("wonderland.numpy.at", "at"),
    "binomial": ("wonderland.control.segments", "binomial"),
    "check": ("wonderland.control.effects", "check"),
    "checkpoint": ("wonderland.transform.checkpoint", "checkpoint"),
    "checkpoint_name": ("wonderland.transform.checkpoint", "checkpoint_name"),
    "checkpoint_sequential": ("wonderland.transform.checkpoint", "checkpoint_sequential"),
    "closure_convert": ("wonderland.transform.closures", "closure_convert"),
    "cond": ("wonderland.control.cond", "cond"),
    "cost": ("wonderland.transform.cost", "cost"),
    "custom_jvp": ("wonderland.control.custom", "custom_jvp"),
    "custom_vjp": ("wonderland.control.custom", "custom_vjp"),
    "einops": ("wonderland.einops", None),
    "explain": ("wonderland.studio.explain", "explain"),
    "finite_difference": ("wonderland.transform.finite_difference", "finite_difference"),
    "finite_difference_jvp": ("wonderland.transform.finite_difference", "finite_difference_jvp"),
    "fori_loop": ("wonderland.control.loops", "fori_loop"),
    "gauss_newton": ("wonderland.transform.curvature", "gauss_newton"),
    "gnvp": ("wonderland.transform.curvature", "gnvp"),
    "hessian": ("wonderland.transform.second_order", "hessian"),
    "hessian_diagonal": ("wonderland.transform.curvature", "hessian_diagonal"),
    "host_call": ("wonderland.control.effects", "host_call"),
    "hvp": ("wonderland.transform.second_order", "hvp"),
    "hvp_at": ("wonderland.transform.second_order", "hvp_at"),
    "jet": ("wonderland.transform.jet", "jet"),
    "jit": ("wonderland.compile.jit", "jit"),
    "laplacian": ("wonderland.transform.curvature", "laplacian"),
    "lift": ("wonderland.numpy.lift", "lift"),
    "linear_transpose": ("wonderland.control.linear", "linear_transpose"),
    "memory_profile": ("wonderland.studio.memory", "memory_profile"),
    "nth_derivative": ("wonderland.transform.jet", "nth_derivative"),
    "print": ("wonderland.control.effects", "print"),
    "random": ("wonderland.random", None),
    "save_names": ("wonderland.transform.checkpoint", "save_names"),
    "scan": ("wonderland.control.loops", "scan"),
    "second_directional": ("wonderland.transform.second_order", "second_directional"),
    "sparse": ("wonderland.sparse", None),
    "switch": ("wonderland.control.cond", "switch"),
    "testing": ("wonderland.testing", None),
    "to_sympy": ("wonderland.studio.to_sympy", "to_sympy"),
    "tree_flatten": ("wonderland.transform.trees", "tree_flatten"),
    "tree_leaves": ("wonderland.transform.trees", "tree_leaves"),
    "tree_ravel": ("wonderland.transform.trees", "tree_ravel"),
    "tree_structure": ("wonderland.transform.trees", "tree_structure"),
    "tree_unflatten": ("wonderland.transform.trees", "tree_unflatten"),
    "vhp": ("wonderland.transform.second_order", "vhp"),
    "warn_on_broadcast": ("wonderland.numpy.broadcasting", "warn_on_broadcast"),
    "while_loop": ("wonderland.control.loops", "while_loop"),
}


def _to_dot(program: Program, name: str = "program") -> str:
    """The computational graph in Graphviz's language: inputs, equations and outputs as nodes."""
    from wonderland.studio.dot import to_dot

    return to_dot(program, name)


def _loop() -> Primitive:
    """The primitive that recorded code has for a loop."""
    from wonderland.control.scan import scan_p

    return scan_p


def _compressed(*args: Any) -> Any:
    """The blocks of a Jacobian by compressed products."""
    from wonderland.sparse.compression import dense_blocks

    return dense_blocks(*args)


def _compiled(f: Any) -> Any:
    """A function compiled."""
    from wonderland.compile.jit import jit

    return jit(f)


Program.to_dot = _to_dot  # type: ignore[attr-defined]  (what people look at is loaded when they look)
_large.compiler = _compiled
_chunks.loop = _loop  # what comes after the transformations is loaded when it is needed
_jacobian.compressed = _compressed  # type: ignore[attr-defined]
_publish(__name__, globals(), __all__)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'wonderland' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    found = _import_module(module)
    value = found if attribute is None else getattr(found, attribute)
    globals()[name] = value
    _publish(__name__, globals(), [name])
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
