"""Sparse derivatives: detection of the pattern of a Jacobian; results are `scipy.sparse` matrices."""

from wonderland.sparse.detect import jacobian_pattern

__all__ = ["jacobian_pattern"]
