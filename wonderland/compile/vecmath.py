"""Vector math for compiled code: names of elementary functions come in, LLVM definitions go out.

Every function is branch-free scalar code without libm calls, to be inlined into a loop that LLVM then
vectorises. Errors are below 2 ulp for all finite arguments, subnormal arguments and results included
(measured: 1.7, tanh 1.96, pow 1.2), those of the special functions below 4, gammaln's 6, where
they aren't differences (left of 0); infinities, NaN and signed zeros are C's. Without FMA hardware `llvm.fma` is a call
to libm: slow, and right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from wonderland.compile import (
    vecmath_exp,
    vecmath_inverse,
    vecmath_log,
    vecmath_quantile,
    vecmath_special,
    vecmath_trig,
)
from wonderland.compile.vecmath_emit import FLOATS, Block, Value

_BODIES: dict[str, tuple[int, Callable[..., Value]]] = {
    "exp": (1, vecmath_exp.exp),
    "exp2": (1, vecmath_exp.exp2),
    "expm1": (1, vecmath_exp.expm1),
    "sigmoid": (1, vecmath_exp.sigmoid),
    "tanh": (1, vecmath_exp.tanh),
    "sinh": (1, vecmath_exp.sinh),
    "cosh": (1, vecmath_exp.cosh),
    "erf": (1, vecmath_exp.erf),
    "erfcinv": (1, vecmath_quantile.erfcinv),
    "normal_quantile": (1, vecmath_quantile.normal_quantile),
    "log": (1, vecmath_log.log),
    "log2": (1, vecmath_log.log2),
    "log10": (1, vecmath_log.log10),
    "log1p": (1, vecmath_log.log1p),
    "pow": (2, vecmath_log.power),
    "sin": (1, vecmath_trig.sin),
    "cos": (1, vecmath_trig.cos),
    "tan": (1, vecmath_trig.tan),
    "arctan": (1, vecmath_inverse.arctan),
    "arctan2": (2, vecmath_inverse.arctan2),
    "arcsin": (1, vecmath_inverse.arcsin),
    "arccos": (1, vecmath_inverse.arccos),
    "arcsinh": (1, vecmath_inverse.arcsinh),
    "arccosh": (1, vecmath_inverse.arccosh),
    "arctanh": (1, vecmath_inverse.arctanh),
    "cbrt": (1, vecmath_inverse.cbrt),
    "hypot": (2, vecmath_inverse.hypot),
    "erfc": (1, vecmath_special.erfc),
    "erfcx": (1, vecmath_special.erfcx),
    "gammaln": (1, vecmath_special.gammaln),
    "digamma": (1, vecmath_special.digamma),
}
FUNCTIONS: dict[str, int] = {name: arguments for name, (arguments, _) in _BODIES.items()}


@cache
def _build(name: str, dtype: str) -> tuple[str, Block]:
    count, body = _BODIES[name]
    kind = FLOATS[dtype]
    block = Block()
    names = ["%x", "%y"][:count]
    result = body(*[Value(block, kind, argument) for argument in names])
    arguments = ", ".join(f"{kind} {argument}" for argument in names)
    lines = [f"define internal {kind} @wl_{name}_{dtype}({arguments}) alwaysinline {{"]
    lines += [*block.lines, f"  ret {kind} {result.text}", "}"]
    return "\n".join(lines), block


def definition(name: str, dtype: str) -> str:
    """The definition of `@wl_<name>_<dtype>` for dtype f32 or f64; `module_text` adds the tables it reads."""
    return _build(name, dtype)[0]


def intrinsics(needed: Iterable[tuple[str, str]]) -> set[str]:
    """The `declare` lines that the definitions of these (name, dtype) pairs need."""
    return set().union(*(_build(name, dtype)[1].intrinsics for name, dtype in set(needed)))


def module_text(needed: Iterable[tuple[str, str]]) -> str:
    """Definitions of these (name, dtype) pairs and all they use, each once, for the top of a module."""
    pairs = sorted(set(needed))
    tables: dict[str, str] = {}
    for name, dtype in pairs:
        tables.update(_build(name, dtype)[1].globals)
    return "\n\n".join([tables[name] for name in sorted(tables)] + [definition(*pair) for pair in pairs]) + "\n"
