"""Sparse derivatives: detection of patterns, colouring, decompression; results are `scipy.sparse` matrices."""

from wonderland.sparse.coloring import Coloring, color, color_graph
from wonderland.sparse.detect import jacobian_pattern

__all__ = ["Coloring", "color", "color_graph", "jacobian_pattern"]
