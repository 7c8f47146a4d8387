"""`wl.jit`: a function becomes one native call, specialised to the types of its arguments.

The first call with given types records the function (without values), compiles the Program and keeps it; later calls go
to the native entry. Inside other transformations a jitted function is one equation, and its derivative,
batched and transposed forms are jits of the transformed Programs.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.compile import donate as donation
from wonderland.compile import llvm
from wonderland.compile.access import leaf_reader
from wonderland.compile.entry import MISS
from wonderland.compile.native import Compiled, compile_program
from wonderland.compile.profile import Profile
from wonderland.compile.unrolled import Watched
from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.functions import Call
from wonderland.core.level import Traced
from wonderland.core.primitive import Linear, Primitive
from wonderland.core.program import Program, hoist
from wonderland.core.types import ArrayType
from wonderland.ops.pattern import program_pattern
from wonderland.transform.programs import (
    batch_program,
    jvp_program,
    linearize_program,
    pick,
    scatter_flags,
    transpose_program,
)

RECOMPILATIONS_BEFORE_WARNING = 5
VARIABLE_KEYWORDS = 0x08  # a flag of code objects: the function takes **kwargs
MOST_SPECIALIZATIONS = 256  # of one function; the one that was not used for longest goes


def native(program: Program, name: str = "") -> Compiled:
    """The compiled form of a closed Program, made once."""
    compiled = program.cache.get("native")
    if compiled is None:
        with llvm.lock:  # the one lock that a fork waits for
            compiled = program.cache.get("native")
            if compiled is None:
                compiled = program.cache["native"] = compile_program(program, name=name)
    return compiled


def _jvp(primals: tuple, tangents: tuple, program: Program, name: str) -> tuple[Sequence, list]:
    nonzero = tuple(t is not None for t in tangents)
    count = len(program.outputs)
    form, flags = jvp_program(program, nonzero, (False,) * count)
    outs = jit_p(*primals, *pick(tangents, nonzero), program=form, name=name)
    return outs[:count], scatter_flags(outs[count:], flags)


def _linearize(primals: tuple, tangents: tuple, program: Program, name: str) -> tuple[Sequence, list]:
    nonzero = tuple(t is not None for t in tangents)
    count = len(program.outputs)
    forward, linear, flags, _ = linearize_program(program, nonzero, (False,) * count)
    outs = jit_p(*primals, program=forward, name=name)
    tangents_out = jit_p(*outs[count:], *pick(tangents, nonzero), program=linear, name=f"{name} (linear)")
    return outs[:count], scatter_flags(tangents_out, flags)


def _transpose(cts: Sequence[Any], *operands: Any, program: Program, name: str) -> list:
    linear = tuple(isinstance(o, Linear) for o in operands)
    nonzero = tuple(ct is not None for ct in cts)
    form, flags = transpose_program(program, linear, nonzero, False)
    known = [o for o in operands if not isinstance(o, Linear)]
    outs = jit_p(*known, *pick(cts, nonzero), program=form, name=f"{name} (transposed)")
    return scatter_flags(scatter_flags(outs, flags), linear)


def _batch(size: int, args: tuple, batched: tuple, program: Program, name: str) -> tuple[Sequence, Sequence]:
    form, flags = batch_program(program, size, tuple(batched), (False,) * len(program.outputs))
    return jit_p(*args, program=form, name=name), flags


def _pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    return [[None if m is None else m.nonzero() for m in row] for row in program_pattern(params["program"])]


def _evaluate(*args: Any, program: Program, name: str) -> tuple:
    plain = [
        a.item() if v.type.weak and isinstance(a, (np.generic, np.ndarray)) else a
        for a, v in zip(args, program.inputs, strict=True)
    ]
    return native(program, name)(*plain)


jit_p = Primitive(
    "jit",
    _evaluate,
    lambda *types, program, name: program.output_types,
    jvp=_jvp,
    linearize=_linearize,
    transpose=_transpose,
    batch=_batch,
    pattern=_pattern,
    inline=lambda params: params["program"],
    multiple=True,
    impossible={"lower": "compiled code contains its Program"},
)


class Specialization:
    """A function recorded for arguments of given structure, types and static values."""

    def __init__(self, call: Call, name: str, donated: Sequence[int] = ()):
        level = Watched(f"the jitted function {name}")
        with level:
            inputs = [level.variable(t) for t in call.types]
            program = level.finish(inputs, call.run(inputs))
        self.advice = level.advice(name, len(program.equations))
        self.closes_over_tracers = any(isinstance(value, Traced) for _, value in program.constants)
        # Inside another transformation captured arrays are operands: it keeps what they were at the time of the call.
        self.open_program, self.captured = hoist(program)
        self.program = self.open_program if self.closes_over_tracers else program
        self.name = name
        self.out_structure = call.out_structure
        self.written = list(call.written)
        count = len(self.program.outputs) - len(self.written)
        mine = [] if self.closes_over_tracers else [i for i in donated if not call.mutable[i]]
        self.taken = donation.pairs(self.program, count, mine)  # outputs in the memory of donated arguments
        self._compiled: Compiled | None = None

    @property
    def compiled(self) -> Compiled:
        """Native code whose written leaves go straight into the caller's arrays."""
        if self._compiled is None:
            with llvm.lock:
                if self._compiled is None:
                    first = len(self.program.outputs) - len(self.written)
                    written = {first + k: i for k, i in enumerate(self.written)} | self.taken
                    self._compiled = compile_program(self.program, written, self.name)
        return self._compiled

    def call(self, call: Call) -> Any:
        """Run for a call of matching types: natively, or as one equation of the enclosing level."""
        call.out_structure, call.written = self.out_structure, self.written
        if any(isinstance(v, Traced) for v in (*self.captured, *call.values)):
            outs = jit_p(*self.captured, *call.values, program=self.open_program, name=self.name)
            results, new = call.split(outs)
            outs = None
            call.write_back(new)
            return call.result(results)
        call.check_written()
        args = call.plain_owners()
        donation.refuse_captured(args, self.written, self.captured, self.name)
        if self.taken:
            args = donation.prepare(args, list(self.taken.values()), self.captured, self.name)
        results = donation.merge(self.compiled(*args), args, self.taken)
        assert self.out_structure is not None
        return self.out_structure.unflatten(self._weakened(results))

    def _weakened(self, results: Sequence[Any]) -> list:
        """Python scalars where eager code gives Python scalars."""
        types = self.program.output_types
        return [r.item() if t.weak else r for r, t in zip(results, types, strict=False)]

    def fast_call(self) -> Callable:
        """The native entry; if arguments were donated, with them in their places among the results."""
        native_call, taken = self.compiled.entry.call, self.taken
        if not taken:
            return native_call
        single = len(self.compiled.entry.outputs) == 1

        def call(*leaves: Any) -> Any:
            out = native_call(*leaves)
            if out is MISS:
                return MISS
            results = donation.merge((out,) if single else out, leaves, taken)
            return results[0] if len(results) == 1 else tuple(results)

        return call

    def fast_finish(self) -> Callable | None:
        """How to turn what the native entry returns into the result; None if it is that already."""
        structure, count = self.out_structure, len(self.program.outputs) - len(self.written)
        assert structure is not None
        if count == 1:
            build = structure.unflatten
            return None if structure.kind is None else lambda out: build([out])
        if structure.kind is tree.flatten(())[1].kind and all(c.kind is None for c in structure.children):
            return None
        return structure.unflatten


class Jitted:
    """What `wl.jit` returns: call it like the function.

    `inspect` shows what it was compiled to, `profile` where the time of a call goes. The compiled forms for the last
    256 signatures are kept.
    """

    def __init__(
        self,
        f: Callable,
        static_argnums: tuple[int, ...],
        static_argnames: tuple[str, ...],
        donate: tuple[int | str, ...] = (),
    ):
        self.f = f
        self.__name__ = getattr(f, "__name__", type(f).__name__)
        self.__doc__ = getattr(f, "__doc__", None)
        self.__wrapped__ = f
        names = getattr(getattr(f, "__code__", None), "co_varnames", ())
        by_name = {names.index(n) for n in static_argnames if n in names}
        self._static_numbers = tuple(sorted({*static_argnums, *by_name}))
        positional = {names[i] for i in static_argnums if 0 <= i < len(names)}
        self._static_names = frozenset({*static_argnames, *positional})
        self._donate = donate
        self._donated_numbers, self._donated_names = self._check_donated()
        self._specializations: OrderedDict[Any, Specialization] = OrderedDict()
        self._advised = False  # about a long Program
        self._fast: tuple[Callable, Callable | None, Callable | None] | None = None  # read at once: calls race

    def _check_donated(self) -> tuple[frozenset[int], frozenset[str]]:
        """Positions and names of donated arguments; each is known by both, where the function has a signature."""
        numbers = {d for d in self._donate if isinstance(d, int)}
        given = {d for d in self._donate if isinstance(d, str)}
        code = getattr(self.f, "__code__", None)
        if code is not None:
            positional = code.co_varnames[: code.co_argcount]
            unknown = sorted(given - set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]))
            if unknown and not code.co_flags & VARIABLE_KEYWORDS:
                raise ArgumentError(f"donate names {', '.join(unknown)}, which {self.__name__} doesn't take")
            numbers |= {positional.index(name) for name in given if name in positional}
            given |= {positional[i] for i in numbers if 0 <= i < len(positional)}
        static = sorted(numbers & set(self._static_numbers)) + sorted(given & self._static_names)
        if static:
            raise ArgumentError(f"arguments of {self.__name__} can't be both static and donated: {static}")
        return frozenset(numbers), frozenset(given)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fast = self._fast
        if fast is not None and not kwargs:
            native_call, read, finish = fast
            if read is None:
                out = native_call(*args)
            else:
                leaves = read(args)
                out = MISS if leaves is None else native_call(*leaves)
            if out is not MISS:
                return out if finish is None else finish(out)
        return self._slow(args, kwargs)

    def _slow(self, args: tuple, kwargs: dict) -> Any:
        call, key, donated = self._prepare(args, kwargs)
        spec = self._specialization(call, key, donated)
        result = spec.call(call)
        if not kwargs and not self._static_numbers and not spec.closes_over_tracers:
            self._remember(spec, call, args)
        return result

    def _prepare(self, args: tuple, kwargs: dict) -> tuple[Call, Any, list[int]]:
        count = len(args)
        static = {i % count: args[i] for i in self._static_numbers if -count <= i < count}
        static_kw = {k: v for k, v in kwargs.items() if k in self._static_names}
        f = self.f
        if static or static_kw:
            f = _with_static(f, count, static, static_kw)
            args = tuple(a for i, a in enumerate(args) if i not in static)
            kwargs = {k: v for k, v in kwargs.items() if k not in static_kw}
        call = Call(f, args, kwargs)
        key = (
            call.structure,
            tuple(call.types),
            tree.typed(tuple(static.items())),
            tree.typed(tuple(sorted(static_kw.items()))),
        )
        try:
            hash(key)
        except TypeError as e:
            raise ArgumentError(
                f"static arguments of {self.__name__} must be hashable ({e}): they are part of what is compiled. "
                "Pass a tuple instead of a list, or make the argument dynamic."
            ) from None
        if not self._donate:
            return call, key, []
        positions = {i % count for i in self._donated_numbers if -count <= i < count}
        places = [k for k, i in enumerate(i for i in range(count) if i not in static) if i in positions]
        return call, key, donation.donated_leaves(call.structure, places, tuple(self._donated_names))

    def _specialization(self, call: Call, key: Any, donated: Sequence[int]) -> Specialization:
        spec = self._specializations.get(key)
        if spec is None:
            spec = Specialization(call, self.__name__, donated)
            if spec.advice is not None and not self._advised:
                self._advised = True
                warnings.warn(spec.advice, stacklevel=4)
            if spec.closes_over_tracers:
                return spec  # valid for this call only
            self._warn_if_often(key)
            self._specializations[key] = spec
            if len(self._specializations) > MOST_SPECIALIZATIONS:
                self._forget_oldest()
        else:
            try:
                self._specializations.move_to_end(key)
            except KeyError:  # another thread's new one took its place
                pass
        return spec

    def _forget_oldest(self) -> None:
        try:
            self._specializations.popitem(last=False)
        except KeyError:  # another thread was faster
            pass

    def _warn_if_often(self, key: Any) -> None:
        if len(self._specializations) != RECOMPILATIONS_BEFORE_WARNING:
            return
        last = next(reversed(self._specializations))
        changes = [
            f"argument leaf {i} was {old}, now {new}"
            for i, (old, new) in enumerate(zip(last[1], key[1], strict=False))
            if old != new
        ] or ["the structure or a static value changed"]
        warnings.warn(
            f"{self.__name__} is compiled for the {RECOMPILATIONS_BEFORE_WARNING + 1}th time: "
            f"{'; '.join(changes[:3])}. Pad arguments to a few fixed shapes to avoid this.",
            stacklevel=5,
        )

    def _remember(self, spec: Specialization, call: Call, args: tuple) -> None:
        """Make the next call with these types take the native path."""
        positional = call.structure.children[0]
        flat = all(child.kind is None for child in positional.children)
        read = None if flat else leaf_reader(positional, args)
        unreadable = not flat and read is None
        weak = any(t.weak for t in spec.program.output_types)
        unchecked = bool(spec.taken and spec.captured)  # the native entry compares arguments with each other alone
        self._fast = None if weak or unreadable or unchecked else (spec.fast_call(), read, spec.fast_finish())

    def inspect(self, *args: Any, **kwargs: Any) -> Compiled:
        """What this function compiles to for such arguments: Programs, kernels, memory plan, IR, assembly.

        Nothing is run. `print` shows a summary; the attributes are those of `Compiled`.
        """
        return self._specialization(*self._prepare(args, kwargs)).compiled

    def profile(self, *args: Any, **kwargs: Any) -> Profile:
        """Time per kernel, product, loop and fallback of a call with these arguments, as a table to print.

        Runs the function, many times if it is short, as code of its own with clocks in it; the arguments stay as they
        are.
        """
        call, key, donated = self._prepare(args, kwargs)
        return self._specialization(call, key, donated).compiled.profile(*call.plain_owners())

    def __repr__(self) -> str:
        return f"<jitted {self.__name__}, compiled for {len(self._specializations)} signatures>"

    def __reduce__(self) -> tuple:
        return Jitted, (self.f, self._static_numbers, tuple(self._static_names), self._donate)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return functools.partial(self, instance)


def _with_static(f: Callable, count: int, static: dict[int, Any], static_kw: dict[str, Any]) -> Callable:
    def g(*args: Any, **kwargs: Any) -> Any:
        rest = iter(args)
        full = [static[i] if i in static else next(rest) for i in range(count)]
        return f(*full, **kwargs, **static_kw)

    return g


def jit(
    f: Callable | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate: int | str | Sequence[int | str] = (),
) -> Any:
    """Compile `f` to native code, once per types of its arguments; also a decorator, `@wl.jit(static_argnums=1)`.

    Arguments may be arrays, scalars, trees of them and mutable objects (which are updated in place). Static arguments
    are compared by value and may be used in Python control flow.

    `donate` names arguments, by position or name, whose memory may be used for results: `wl.jit(step, donate=0)` in
    `state = step(state, x)` updates the arrays of `state` in place. A donated array is spent: a result of its shape and
    dtype, if there is one, is that array with new contents (results take donated arrays in order). It must be writable
    and share no memory with other arguments or with arrays that `f` captures.
    """
    if f is None:
        return lambda f: jit(f, static_argnums, static_argnames, donate)
    if not callable(f):
        raise ArgumentError(f"jit takes a function, got {type(f).__name__}")
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    donated = (donate,) if isinstance(donate, (int, str)) else tuple(donate)
    return Jitted(f, numbers, names, donated)
