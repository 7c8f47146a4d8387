"""Sparse derivatives: detection of the patterns of Jacobians and Hessians; results are `scipy.sparse` arrays."""

from wonderland.sparse.detect import hessian_pattern, jacobian_pattern

__all__ = ["hessian_pattern", "jacobian_pattern"]
