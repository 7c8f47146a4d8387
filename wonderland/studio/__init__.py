"""What a person looks at: `explain` (values, tangents and adjoints of a computation), `to_dot` (its graph),
`to_sympy` (its formulas) and `memory_profile` (the memory of its derivatives).
"""

from wonderland.studio.dot import to_dot
from wonderland.studio.explain import Explanation, TraceRow, explain
from wonderland.studio.memory import MemoryProfile, memory_profile
from wonderland.studio.to_sympy import to_sympy

__all__ = ["Explanation", "MemoryProfile", "TraceRow", "explain", "memory_profile", "to_dot", "to_sympy"]
