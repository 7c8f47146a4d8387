"""`lift`: run NumPy code whose constructors NumPy gives us no hook into.

A function comes in; a callable goes out that runs it with `np.zeros`, `np.array` and the like replaced by constructors
that can hold tracers, in that function and in every function of the user's that it calls. Each call site `g(a)` is
rewritten from source to `__lift__(g)(a)`; `__lift__` is a variable of the enclosing scope of the rewritten code, so
neither NumPy's module nor the user's is touched, and the call still happens in the user's own frame. What a call of
NumPy's, SciPy's or `math`'s becomes is in `wonderland.numpy.lifted`.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import copy
import functools
import itertools
import linecache
import os
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import handles
from wonderland.core.level import running
from wonderland.core.tracebacks import fold
from wonderland.core.tracer import Tracer
from wonderland.core.transformed import Transformed, transformed
from wonderland.core.types import P, R
from wonderland.numpy.construct import LIFTED
from wonderland.numpy.lifted import lasts, replacement, vectorized

_NAME = "__lift__"
_STANDARD = os.path.dirname(os.__file__) + os.sep
_ASYNC = 0x80 | 0x200  # the flags of coroutines and of asynchronous generators
_MANAGER = contextlib.contextmanager(len).__code__  # of every function with that decorator  # type: ignore[arg-type]
# Builtins that call the functions they are given.
_CALLERS = (map, filter, sorted, max, min, functools.reduce, itertools.accumulate, itertools.starmap)


def lift(f: Callable[P, R]) -> Callable[P, R]:
    """`f`, with NumPy's constructors able to hold traced values: `wl.grad(wl.lift(f))`.

    NumPy code that makes an array and fills it (`out = np.zeros(n); out[i] = ...`), that builds one from numbers
    (`np.array([a, b])`, `np.sum([a, b])`), that converts its arguments (`np.asarray(x, dtype=float)`) or that calls
    functions without a hook (`scipy.special.logsumexp`, `math.sin`) runs unchanged: in f, and in the Python functions,
    methods and constructors it calls, except those of NumPy, SciPy, wonderland and the standard library. `lift` goes
    inside: `wl.grad(wl.lift(f))`. Without a transformation around it, it is `f` itself.

    Source code is needed; a function without it (made by `exec`, say) is refused, or, when f calls it, runs as it is.
    So does what isn't called by name: operators and properties of your own classes, `np.r_[...]`, functions handed
    to SciPy or cached by `functools`. Inside, arrays are traced ones: `isinstance(x, np.ndarray)` is false.
    """
    f = _inside(f)
    check_function(f, "lift")
    _check_source(f)

    @functools.wraps(f)
    def lifted(*args: Any, **kwargs: Any) -> Any:
        if not running() and not any(isinstance(leaf, Tracer) for leaf in tree.leaves((args, kwargs))):
            return f(*args, **kwargs)
        run = Lifting(f)
        try:
            out = run.form(f)(*args, **kwargs)
        except BaseException as error:
            fold(error)
            raise
        finally:
            run.active = False
        return out if running() else _plain(out)

    return functools.update_wrapper(transformed(lifted, lift, f), f, updated=())


def _inside(f: Any) -> Any:
    """What a lifted function lifts, others as they are."""
    return f.made[1] if isinstance(f, Transformed) and f.made[0] is lift else f


def _plain(out: Any) -> Any:
    """A result outside of every transformation: arrays of the caller's own."""
    leaves, structure = tree.flatten(out)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tracer):
            leaves[i : i + 1] = handles([leaf._get()])
    return structure.unflatten(leaves)


def _check_source(f: Any) -> None:
    """Refuse a function of the user's that can't be rewritten."""
    while isinstance(f, (functools.partial, types.MethodType)):
        f = f.func if isinstance(f, functools.partial) else f.__func__
    if type(f) is not types.FunctionType:
        f = f.__init__ if isinstance(f, type) else getattr(type(f), "__call__", None)  # noqa: B004
    if type(f) is types.FunctionType and _is_users(f) and _rewritten(f) is None:
        raise ArgumentError(
            f"lift needs the source code of {f.__name__}, and there is none at {f.__code__.co_filename}:"
            f"{f.__code__.co_firstlineno} (it was made by exec or at a prompt, or the file has changed). Put it "
            "into a file, or write it with wonderland.numpy (import wonderland.numpy as np), which needs no lift."
        )


class Lifting:
    """One call of a lifted function. Code that outlives it (a closure that was returned) is ordinary code again."""

    __slots__ = ("active", "asked", "cell", "lifted")

    def __init__(self, asked: Any) -> None:
        self.active: bool = True
        self.asked: Any = asked  # the function that is to be lifted, wherever it is from
        self.cell: Any = types.CellType(self.form)
        self.lifted: dict[int, Any] = {
            id(original): ours for original, ours in LIFTED.items()
        }  # by id: callables needn't hash

    def form(self, g: Any) -> Any:
        """What to call in the place of `g`."""
        if not self.active:
            return g
        g = _inside(g)
        ours = self.lifted.get(id(g))
        if ours is not None:
            return ours
        kind = type(g)
        if kind is types.FunctionType and (_is_users(g) or g is self.asked or _package(g) == "wonderland"):
            return self._function(g)
        library = replacement(g)
        if library is not None:
            return self._keep(g, self._caller(library)) if lasts(g) else library
        if kind is types.FunctionType:
            return contextlib.contextmanager(self.form(g.__wrapped__)) if g.__code__ is _MANAGER else g
        if kind is types.MethodType:
            return types.MethodType(self.form(g.__func__), g.__self__)
        if any(g is caller for caller in _CALLERS):
            return self._caller(g)
        if kind is np.vectorize:
            return vectorized(g, self.form(g.pyfunc))
        if isinstance(g, functools.partial):
            return functools.partial(self.form(g.func), *g.args, **g.keywords)
        if isinstance(g, type):
            return self._class(g)
        call = getattr(kind, "__call__", None)  # noqa: B004  (of the type, as Python looks it up)
        return types.MethodType(self.form(call), g) if type(call) is types.FunctionType else g

    def _keep(self, g: Any, ours: Callable) -> Callable:
        """Remember a form by the id of what it stands for, which it keeps alive."""
        ours.__wrapped__ = g  # type: ignore[attr-defined]
        self.lifted[id(g)] = ours
        return ours

    def _function(self, g: types.FunctionType) -> Any:
        if not _is_users(g) and g is not self.asked:
            return self._caller(g)
        found = _rewritten(g)
        if found is None:
            return g
        code, places = found
        cells = tuple(self.cell if i is None else g.__closure__[i] for i in places)  # type: ignore[index]
        new = types.FunctionType(code, g.__globals__, g.__name__, g.__defaults__, cells)
        new.__kwdefaults__ = g.__kwdefaults__
        if g.__closure__:
            return new
        return self._keep(g, functools.update_wrapper(new, g))

    def _caller(self, g: Callable) -> Callable:
        """A function that calls the user's functions among its arguments: `wl.grad(loss)`, `map(f, xs)`."""

        def argument(a: Any) -> Any:
            return self.form(a) if isinstance(a, (types.FunctionType, types.MethodType)) else a

        return lambda *args, **kwargs: g(*map(argument, args), **{k: argument(a) for k, a in kwargs.items()})

    def _class(self, cls: type) -> Any:
        """Instances of the user's classes are made with a lifted `__init__`."""
        init = cls.__init__
        if type(cls).__call__ is not type.__call__ or type(init) is not types.FunctionType or not _is_users(init):
            return cls

        def make(*args: Any, **kwargs: Any) -> Any:
            made: Any = cls.__new__(cls, *args, **kwargs)
            if isinstance(made, cls):
                # A dataclass's __init__ has no source, but calls the user's __post_init__: it finds the lifted one.
                after = getattr(cls, "__post_init__", None) if hasattr(made, "__dict__") else None
                if after is not None:
                    vars(made)["__post_init__"] = types.MethodType(self.form(after), made)
                self.form(type(made).__init__)(made, *args, **kwargs)
                if after is not None:
                    del vars(made)["__post_init__"]
            return made

        return make


def _package(g: Any) -> str:
    return str(g.__globals__.get("__name__")).partition(".")[0]


def _is_users(g: Any) -> bool:
    """Is it code to rewrite: not of a library that we know, not the standard library's, not asynchronous?"""
    name = g.__code__.co_filename
    standard = name.startswith(_STANDARD) and f"{os.sep}site-packages{os.sep}" not in name
    return not (standard or g.__code__.co_flags & _ASYNC or _package(g) in ("numpy", "scipy", "wonderland"))


# id of a code object -> (it, kept alive so that the id stays its own; its rewritten form, None without source)
_codes: dict[int, tuple[types.CodeType, Any]] = {}


def _rewritten(g: types.FunctionType) -> tuple[types.CodeType, tuple] | None:
    """The rewritten code of a function, and for each of its free variables the place in g's closure (None: ours)."""
    code = g.__code__
    known = _codes.get(id(code))
    if known is None:
        names = code.co_freevars
        new = _rewrite(code, g.__globals__)
        places = tuple(None if n == _NAME else names.index(n) for n in new.co_freevars) if new else ()
        _codes[id(code)] = known = (code, new and (new, places))
    return known[1]


def _rewrite(code: types.CodeType, module: dict) -> types.CodeType | None:
    node = _find(code, module)
    if node is None:
        return None

    class Calls(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.Call:
            self.generic_visit(node)
            name = ast.copy_location(ast.Name(_NAME, ast.Load()), node.func)
            node.func = ast.copy_location(ast.Call(name, [node.func], []), node.func)
            return node

    node.args.defaults, node.args.kw_defaults = [], [None] * len(node.args.kwonlyargs)  # g has them already
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    node.decorator_list, node.type_params, node.returns = [], [], None
    node = Calls().visit(node)
    # Around it a class, which hides the function's own name from it and gives private names (self.__x) their prefix,
    # and a function, whose arguments become its free variables.
    outer = ast.parse(f"def scope({', '.join({_NAME, *code.co_freevars})}):\n class {_private_prefix(code)}: _ = 0")
    body = outer.body[0].body[0].body  # type: ignore[attr-defined]
    if isinstance(node, ast.Lambda):
        body[0].value = node
    else:
        body[0] = node
    flags = code.co_flags & __future__.annotations.compiler_flag
    new: Any = compile(ast.fix_missing_locations(outer), code.co_filename, "exec", flags, True)
    for _ in range(3):
        new = next(c for c in new.co_consts if isinstance(c, types.CodeType))
    return new.replace(co_qualname=code.co_qualname)


def _private_prefix(code: types.CodeType) -> str:
    """A name of no meaning that mangles like the class around the code; underscores alone don't mangle."""
    parts = code.co_qualname.split(".")[:-1]
    while parts and parts[-1] == "<locals>":
        del parts[-2:]
    return "_________" + (parts[-1].lstrip("_") if parts else "")


def _find(code: types.CodeType, module: dict) -> Any:
    """A fresh syntax tree of the function with this code, positions as in its file; None if there is no source."""
    lines = linecache.getlines(code.co_filename, module)
    if len(lines) < code.co_firstlineno:
        return None
    names = [*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
    places = [p for p in code.co_positions() if None not in p and p[3]] if code.co_name == "<lambda>" else []
    found = []
    for node in _functions("".join(lines)):
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        if first != code.co_firstlineno or getattr(node, "name", "<lambda>") != code.co_name:
            continue
        arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if arguments == names and _covers(node.body, places):
            found.append(node)
    if not found or (len(found) > 1 and not places):  # several in a line, and python -X no_debug_ranges
        return None
    return copy.deepcopy(found[-1])  # of nested lambdas that fit, the innermost


@functools.lru_cache(maxsize=16)
def _functions(source: str) -> list:
    """All functions and lambdas in a file, from the outside inwards."""
    try:
        return [n for n in ast.walk(ast.parse(source)) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
    except SyntaxError:
        return []


def _covers(body: Any, places: list) -> bool:
    """Do all instructions of a lambda lie in this expression?"""
    return all(
        (body.lineno, body.col_offset) <= (line, column) and (end, end_column) <= (body.end_lineno, body.end_col_offset)
        for line, end, column, end_column in places
    )
