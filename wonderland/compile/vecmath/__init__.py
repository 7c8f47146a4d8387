"""Vector math for compiled code: names of elementary functions come in, functions for LLVM go out.

Every function is branch-free scalar code without libm calls, to be inlined into a loop that LLVM then vectorises.
Errors are below 2 ulp for all finite arguments, subnormal arguments and results included (measured: 1.7, tanh 1.96, pow
1.2), those of the special functions below 4, gammaln's 6, where they aren't differences (left of 0); infinities, NaN
and signed zeros are C's. Without FMA hardware `llvm.fma` is a call to libm: slow, and right.
"""

from wonderland.compile.vecmath import exp, inverse, log, quantile, special, trig  # noqa: F401  (they register)
from wonderland.compile.vecmath.functions import VECTOR_FUNCTIONS, function

__all__ = ["VECTOR_FUNCTIONS", "function"]
