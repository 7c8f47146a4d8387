"""What a person looks at: `explain` (values, tangents and adjoints of a computation), `to_dot` (its graph), `to_sympy`
(its formulas)."""

from wonderland.studio.dot import to_dot
from wonderland.studio.explain import Explanation, Row, explain
from wonderland.studio.to_sympy import to_sympy

__all__ = ["Explanation", "Row", "explain", "to_dot", "to_sympy"]
