"""Sparsity detection: which elements of the input each element of the output can depend on.

A function and example arguments come in; a boolean CSR array goes out. By default only the arguments' types matter: the
function is recorded without values, so the pattern is *global*, it holds at every point. `np.where`, `wl.cond` and
loops count every branch; Python control flow on values has nothing to go by and raises. With `local=True` the function
runs on the arguments, and the pattern is that of its derivative there: without branches not taken and factors of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, NoValueError, check_function
from wonderland.core.functions import Call
from wonderland.core.tracer import unwrap
from wonderland.core.types import type_of
from wonderland.ops.pattern import program_reads
from wonderland.ops.work import count
from wonderland.sparse.graphs import canonical
from wonderland.transform.derivatives import Linearized, grad, named, quiet
from wonderland.transform.programs import pick, record


def jacobian_pattern(f: Callable, *args: Any, local: bool = False, **kwargs: Any) -> sparse.csr_array:
    """The pattern of the Jacobian of `f` as a boolean array, (elements of the output) x (elements of the arguments).

    Arguments and results may be trees: their leaves are flattened and follow each other, in order. Integer arguments
    have columns too, which are empty; keyword arguments are constants. The pattern holds for all values of the
    arguments; with `local`, at these values only.
    """
    return _pattern("jacobian_pattern", f, args, kwargs, local)


def hessian_pattern(f: Callable, *args: Any, local: bool = False, **kwargs: Any) -> sparse.csr_array:
    """The pattern of the Hessian of a scalar `f` as a boolean array, symmetric, over the elements of all arguments.

    It is that of the gradient's Jacobian: first derivatives that are constant leave nothing in it.
    """
    _checked("hessian_pattern", f, args)
    gradient = grad(scalar(f, "hessian_pattern"), tuple(range(len(args))))
    found = _pattern("hessian_pattern", gradient, args, kwargs, local)
    return canonical(found + found.T)


def scalar(f: Callable, name: str) -> Callable:
    """`f`, whose result must be one number for what has this `name`."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        out = f(*args, **kwargs)
        leaves, structure = tree.flatten(out)
        if structure.kind is not None or type_of(unwrap(leaves[0])).shape != ():
            what = structure if structure.kind is not None else f"an array of shape {type_of(unwrap(leaves[0])).shape}"
            raise ArgumentError(
                f"{name} needs a function with a single scalar result, this one returned {what}. Reduce it (np.sum), "
                f"or use {name.replace('hessian', 'jacobian')}."
            )
        return out

    return named(checked, f, name)


def _checked(name: str, f: Any, args: tuple) -> None:
    check_function(f, name)
    if not args:
        raise ArgumentError(
            f"{name}(f, *args): arguments of f are needed (their shapes and dtypes; the values only with local=True): "
            f"{name}(f, np.zeros(3))"
        )


def _pattern(name: str, f: Callable, args: tuple, kwargs: dict, local: bool) -> sparse.csr_array:
    _checked(name, f, args)
    leaves, structure = tree.flatten(args)
    call = Call(partial(f, **kwargs) if kwargs else f, structure.unflatten(leaves), {})  # its own mutable objects
    if local:
        return _local(call)
    try:
        program = record(lambda *values: call.split(call.run(values))[0], call.types)
    except NoValueError as error:
        advice = f"Or give {name} local=True: the pattern at these arguments alone, which may be another elsewhere."
        error.args = (f"{error.args[0]} {advice}",)
        raise
    return canonical(program_reads(program))


def _local(call: Call) -> sparse.csr_array:
    call.owners = [np.array(x) if isinstance(x, np.ndarray) else x for x in call.owners]  # what f writes stays here
    with quiet():
        lin = Linearized(call, [True] * len(call.values))
    found = program_reads(lin.program).tocoo()
    rows, columns = _places(lin.types, lin.has_tangent), _places(call.types, lin.select)
    shape = sum(map(count, lin.types)), sum(map(count, call.types))
    pairs = rows[found.row], columns[found.col]
    return canonical(sparse.csr_array((np.ones(found.nnz, bool), pairs), shape=shape))


def _places(types: Sequence[Any], flags: Sequence[bool]) -> np.ndarray:
    """Among the elements of all values the numbers of those of the flagged ones."""
    ends = np.cumsum([0, *map(count, types)])
    chosen = [np.arange(a, b) for a, b in pick(list(pairwise(ends)), flags)]
    return np.concatenate([np.arange(0), *chosen])
