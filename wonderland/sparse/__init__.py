"""Sparse derivatives: patterns found, coloured, and read off a few products; results are `scipy.sparse` arrays."""

from wonderland.core.tracebacks import publish as _publish
from wonderland.sparse.coloring import Coloring, color, color_graph
from wonderland.sparse.derivatives import SparseDerivative, hessian, jacobian
from wonderland.sparse.detect import hessian_pattern, jacobian_pattern

__all__ = [
    "Coloring", "SparseDerivative", "color", "color_graph", "hessian", "hessian_pattern", "jacobian",
    "jacobian_pattern",
]  # fmt: skip

_publish(__name__, globals(), __all__)
