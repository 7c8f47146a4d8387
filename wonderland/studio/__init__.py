"""What a person looks at: `explain` (values, tangents and adjoints of a computation) and `to_dot` (its graph)."""

from wonderland.studio.dot import to_dot
from wonderland.studio.explain import Explanation, Row, explain

__all__ = ["Explanation", "Row", "explain", "to_dot"]
