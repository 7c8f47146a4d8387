"""`wl.jit`: a function becomes one native call, specialised to the types of its arguments.

The first call with given types records the function (without values), compiles the Program and keeps it; later calls go
to the native entry. Inside other transformations a jitted function is one equation, and its derivative,
batched and transposed forms are jits of the transformed Programs.
"""

from __future__ import annotations

import inspect
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from types import MethodType
from typing import Any, Generic, overload

import numpy as np

from wonderland.compile import donate as donation
from wonderland.compile import llvm
from wonderland.compile.access import leaf_reader, result_builder, telling
from wonderland.compile.arguments import Static, changes, chosen, kept, takes_any_keywords, without_axes
from wonderland.compile.captured import Places, recording
from wonderland.compile.compiled import Compiled
from wonderland.compile.entry import MISS
from wonderland.compile.noticed import Lines, nothing_drawn
from wonderland.compile.profile import Profile, count_of
from wonderland.compile.stages import compile_program
from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import Call, bound_object, rebound
from wonderland.core.level import Traced, _state, running
from wonderland.core.primitive import Primitive
from wonderland.core.program import Program, Record, hoist, run
from wonderland.core.statics import typed
from wonderland.core.tracebacks import edge, fold, warn_user
from wonderland.core.tracer import Tracer
from wonderland.core.transformed import ByName
from wonderland.core.types import P, R
from wonderland.ops.shape import inverse_permutation, transpose
from wonderland.random.large import compiler
from wonderland.transform.holding import Holding
from wonderland.transform.programs import cached, record

RECOMPILATIONS_BEFORE_WARNING = 5
MOST_SPECIALIZATIONS = 256  # of one function; the one that was looked up longest ago goes (native calls look up none)
MOST_PATHS = 8  # native entries that a call tries before it looks at its arguments

FastPath = tuple[Callable, Callable | None, Callable | None]  # native entry; leaves of the arguments; tree of results


def native(program: Program, name: str = "") -> Compiled:
    """The compiled form of a closed Program, made once."""
    compiled = program.cache.get("native")
    if compiled is None:
        with llvm.lock:  # the one lock that a fork waits for
            compiled = program.cache.get("native")
            if compiled is None:
                compiled = program.cache["native"] = compile_program(program, name=name)
    return compiled


def _evaluate(*args: Any, program: Program, name: str) -> tuple:
    plain = [
        a.item() if v.type.weak and isinstance(a, (np.generic, np.ndarray)) else a
        for a, v in zip(args, program.inputs, strict=True)
    ]
    form, into, back = _dynamic_first(program)
    if form is program:
        return native(program, name)(*plain)
    return tuple(_transposed(native(form, name)(*_transposed(plain, into)), back))


@cached
def _dynamic_first(program: Program) -> tuple[Program, list, list]:
    """The Program with dynamic extents as the first, and how axes are permuted: of inputs for it, of its outputs after.

    What a loop stacks has a leading extent that the run knows, and compiled code knows no others; a batch of it has one
    before that.
    """
    types = program.input_types
    into, out_of = [_order(t.shape) for t in types], [_order(t.shape) for t in program.output_types]
    if not any((*into, *out_of)):
        return program, into, out_of
    inverse = lambda orders: [order and inverse_permutation(order) for order in orders]
    first = [transpose.infer(t, order) if order else t for t, order in zip(types, into, strict=True)]
    f = lambda *values: _transposed(run(program, _transposed(values, inverse(into))), out_of)
    return record(f, first), into, inverse(out_of)


def _order(shape: Sequence[int | None]) -> tuple[int, ...] | None:
    if None not in shape[1:]:
        return None
    place = shape.index(None)
    return (place, *(i for i in range(len(shape)) if i != place))


def _transposed(values: Sequence[Any], orders: Sequence[tuple[int, ...] | None]) -> list:
    return [v if order is None else transpose(v, permutation=order) for v, order in zip(values, orders, strict=True)]


jit_p: Primitive = Holding("program").primitive(
    "jit",
    _evaluate,
    inline=lambda params: params["program"],
    transparent=True,
    impossible={"lower": "compiled code contains its Program"},
)


class Specialization:
    """A function recorded for arguments of given structure, types and static values."""

    open_program: Program
    captured: list[Any]

    def __init__(self, call: Call, name: str, donated: Sequence[int] = ()):
        lines = Lines()
        level = Record(f"the jitted function {name}", first=lines.look)
        writes = _state.writes
        with level, nothing_drawn(call.f, name), recording(level) as seen:
            inputs = [level.variable(t) for t in call.types]
            program = level.finish(inputs, call.run(inputs))
        self.writes: bool = _state.writes != writes
        self.advice: str | None = lines.advice(name, len(program.equations))
        self.closes_over_tracers: bool = any(isinstance(value, Traced) for _, value in program.constants)
        # Inside another transformation captured arrays are operands: it keeps what they were at the time of the call.
        self.open_program, self.captured = hoist(program)
        self.program: Program = self.open_program if self.closes_over_tracers else program
        self.name = name
        self.out_structure: Any = call.out_structure
        self.refers: bool = tree.refers(self.out_structure)  # to objects among the arguments
        self.written: list[int] = list(call.written)
        self.count: int = len(self.program.outputs) - len(self.written)  # of results
        mine = [] if self.closes_over_tracers else [i for i in donated if not call.mutable[i]]
        # Outputs in the memory of donated arguments.
        self.taken: dict[int, int] = donation.pairs(self.program, self.count, mine)
        self.groups: list[int] = [] if self.closes_over_tracers else _groups(call)
        self.places: Places = Places(call.f, () if self.closes_over_tracers else self.captured, name, seen)
        self._compiled: Compiled | None = None

    @property
    def compiled(self) -> Compiled:
        """Native code whose written leaves go straight into the caller's arrays."""
        if self._compiled is None:
            with llvm.lock:
                if self._compiled is None:
                    written = {self.count + k: i for k, i in enumerate(self.written)} | self.taken
                    self._compiled = compile_program(self.program, written, self.name, self.taken, groups=self.groups)
        return self._compiled

    def call(self, call: Call) -> Any:
        """Run for a call of matching types: natively, or as one equation of the enclosing level."""
        self.places.check()
        call.out_structure, call.written = self.out_structure, self.written
        recorded = self.program.effects and running()  # they belong to what is being recorded
        if recorded or any(isinstance(v, Traced) for v in (*self.captured, *call.values)):
            results, new = call.split(jit_p(*self.captured, *call.values, program=self.open_program, name=self.name))
            call.write_back(new)
            return call.result(results)
        call.check_written()
        args = donation.prepare(call.plain_owners(), [*self.taken.values()], self.written, self.captured, self.name)
        # Python scalars where eager code gives Python scalars.
        pairs = zip(self.compiled(*args), self.program.output_types, strict=False)
        leaves = [result.item() if type.weak else result for result, type in pairs]
        return self.out_structure.unflatten(leaves, call.objects())

    @cached_property
    def fast_call(self) -> Callable:
        """The native entry; not for effects inside a transformation: they may belong to what is being recorded."""
        native_call = self.compiled.entry.call
        if self.refers:
            return self._returning(native_call)
        outside = lambda *leaves: MISS if running() else native_call(*leaves)
        return outside if self.program.effects else native_call

    def _returning(self, native_call: Callable) -> Callable:
        """The native entry for leaves and objects: the result has some of these."""
        weak = [t.weak for t in self.program.output_types[: self.count]]

        def call(leaves: Sequence[Any], objects: Sequence[Any]) -> Any:
            out: Any = MISS if self.program.effects and running() else native_call(*leaves)
            if out is MISS:
                return out
            found: Any = (out,) if self.count == 1 else out
            built = [value.item() if w else value for value, w in zip(found, weak, strict=True)]
            return self.out_structure.unflatten(built, objects)

        return call

    def fast_finish(self) -> Callable | None:
        """How to turn what the native entry returns into the result; None if it is that already."""
        if self.refers:
            return self.places.watching(None)
        weak = [t.weak for t in self.program.output_types[: self.count]]
        return self.places.watching(result_builder(self.out_structure, weak))


def _groups(call: Call) -> list[int]:
    """Of each leaf: the number of the argument, if that holds several arrays of mutable objects; otherwise 0."""
    numbers = [number for number, part in enumerate(call.parts(), 1) for _ in range(part.leaf_count)]
    found = [number if mutable else 0 for number, mutable in zip(numbers, call.mutable, strict=True)]
    several = Counter(found)
    return [number if several[number] > 1 else 0 for number in found]


class Jitted(ByName, Generic[P, R]):
    """What `wl.jit` returns: call it like the function.

    `inspect` shows what it was compiled to, `profile` where the time of a call goes. The compiled forms for the last
    256 signatures are kept.
    """

    only_wraps = True

    def __init__(
        self, f: Callable[P, R], static_argnums: tuple[int, ...], static_argnames: tuple[str, ...],
        donate: tuple[int | str, ...] = (),
    ):  # fmt: skip
        self.f = f
        self.__name__: Any | str = getattr(f, "__name__", type(f).__name__)
        self.__doc__ = getattr(f, "__doc__", None)
        self.__wrapped__ = f
        self._options = static_argnums, static_argnames, donate
        numbers, by_name = chosen(f, "static_argnums", static_argnums, ())
        more, names = chosen(f, "static_argnames", (), static_argnames)
        self._static_numbers = tuple(sorted(numbers | more))
        self._static_names = frozenset(by_name | names)
        positions = [d for d in donate if not isinstance(d, str)]
        named = [d for d in donate if isinstance(d, str)]
        self._donated_numbers, self._donated_names = chosen(f, "donate", positions, named)
        both = (numbers | more) & self._donated_numbers or (by_name | names) & self._donated_names
        if both:
            raise ArgumentError(f"arguments of {self.__name__} can't be both static and donated: {sorted(both)}")
        self._specializations: OrderedDict[Any, Specialization] = OrderedDict()
        self._sees_keywords = takes_any_keywords(f)
        self._advised = False  # about a long Program
        self.has_many_forms: bool = False  # is it meant to be compiled for many signatures, without a warning?
        # By count, keywords and static values. Each tuple is replaced as a whole: calls race.
        self._fast: dict[Any, tuple[FastPath, ...]] = {}

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            special = kwargs or self._static_numbers
            form = (len(args), tuple(kwargs), self._static_values(args, kwargs)) if special else len(args)
            paths = self._fast.get(form, ())
            for path in paths:
                native_call, read, finish = path
                leaves = args if read is None else read(args, kwargs)
                if leaves is not None:
                    out = native_call(*leaves)
                    if out is not MISS:
                        if path is not paths[0]:  # the next call is likely to be like this one
                            self._fast[form] = (path, *(other for other in paths if other is not path))
                        return out if finish is None else finish(out)
            call, key, donated = self._prepare(args, kwargs)
            spec = self._specialization(call, key, donated)
            result = spec.call(call)
            self._remember(form, spec, call, args, kwargs)
            return result
        except BaseException as error:  # an edge, without the cost of one more call
            fold(error)
            raise

    def _static_values(self, args: tuple, kwargs: dict) -> Any:
        if not self._static_names and not self._static_numbers:
            return ()
        count = len(args)
        values = [args[i] for i in self._static_numbers if -count <= i < count]
        values += [kwargs[name] for name in self._static_names if name in kwargs]
        found = typed(values)
        try:
            hash(found)
        except TypeError as e:
            advice = "Pass a tuple instead of a list, or make the argument dynamic."
            if any(isinstance(value, Tracer) for value in values):
                advice = "A traced value can't be static: make it static in the function around this one, too."
            what = f"static arguments of {self.__name__} must be hashable ({e}): they are part of what is compiled."
            raise ArgumentError(f"{what} {advice}") from None
        return found

    def _prepare(self, args: tuple, kwargs: dict) -> tuple[Call, Any, list[int]]:
        count = len(args)
        values = self._static_values(args, kwargs)
        static = {i % count for i in self._static_numbers if -count <= i < count}
        if static:
            args = tuple([Static(a) if i in static else a for i, a in enumerate(args)])
        if not self._static_names.isdisjoint(kwargs):
            kwargs = {k: Static(v) if k in self._static_names else v for k, v in kwargs.items()}
        try:
            call = Call(self.f, args, kwargs)
        except TypeError as error:
            error.add_note("what isn't an array can be a static argument: static_argnums, static_argnames of wl.jit")
            raise
        order = tuple(kwargs) if self._sees_keywords else ()
        key = call.structure, tuple(call.types), values, order, tuple(map(tree.orders, call.parts()))
        if not self._donated_numbers and not self._donated_names:
            return call, key, []
        positions = [i % count for i in self._donated_numbers if -count <= i < count]
        return call, key, donation.donated_leaves(call.structure, positions, tuple(self._donated_names))

    def _specialization(self, call: Call, key: Any, donated: Sequence[int]) -> Specialization:
        telling_key = *key, without_axes(call.owners, call.types)  # of code that writes in place
        spec = self._specializations.get(key) or self._specializations.get(telling_key)
        if spec is None:
            spec = Specialization(call, self.__name__, donated)
            key = telling_key if spec.writes else key
            if spec.advice is not None and not self._advised:
                self._advised = True
                warn_user(spec.advice)
            if spec.closes_over_tracers:
                return spec  # valid for this call only
            self._warn_if_often(key)
            self._specializations[kept(key[0]), *key[1:]] = spec
            if len(self._specializations) > MOST_SPECIALIZATIONS:
                self._fast = {}
                with suppress(KeyError):  # another thread was faster
                    self._specializations.popitem(last=False)
        else:
            with suppress(KeyError):  # another thread's new one took its place
                self._specializations.move_to_end(telling_key if spec.writes else key)
        return spec

    def _warn_if_often(self, key: Any) -> None:
        if len(self._specializations) == RECOMPILATIONS_BEFORE_WARNING and not self.has_many_forms:
            last = next(reversed(self._specializations))
            found, advice = changes(self.f, last[:2], key[:2])
            what = f"{self.__name__} is compiled for the {RECOMPILATIONS_BEFORE_WARNING + 1}th time"
            warn_user(f"{what}: {'; '.join(found[:3])}. {advice}")

    def _remember(self, form: Any, spec: Specialization, call: Call, args: tuple, kwargs: dict) -> None:
        """Make the next call like this one take the native path; one on traced values compiled nothing."""
        if spec._compiled is None or spec.closes_over_tracers or len(self._fast) > MOST_SPECIALIZATIONS:
            return
        others, fast_call = self._fast.get(form, ()), spec.fast_call
        if any(native_call is fast_call for native_call, _, _ in others):
            return  # it was there, but arguments had to be converted
        plain = not kwargs and all(child.kind is None for child in call.structure.children[0].children)
        objects = call.objects() if spec.refers else ()
        read = None if plain else leaf_reader(call.structure, args, kwargs, objects)
        arrays = without_axes(call.owners, call.types) if spec.writes else ()
        read = telling(read, arrays, bool(objects)) if arrays else read
        self._fast[form] = ((fast_call, read, spec.fast_finish()), *others[: MOST_PATHS - 1])

    @edge
    def inspect(self, /, *args: Any, **kwargs: Any) -> Compiled:
        """What this function compiles to for such arguments: Programs, kernels, memory plan, IR, assembly.

        Nothing is run. `print` shows a summary; the attributes are those of `Compiled`.
        """
        return self._specialization(*self._prepare(args, kwargs)).compiled

    @edge
    def profile(self, /, *args: Any, **kwargs: Any) -> Profile:
        """Time per kernel, product, loop and fallback of a call with these arguments, as a table to print.

        Runs the function, many times if it is short, as code of its own with clocks; the arguments stay as they are.
        """
        call, key, donated = self._prepare(args, kwargs)
        return self._specialization(call, key, donated).compiled.profile(*call.plain_owners())

    def __repr__(self) -> str:
        return f"<jitted {self.__name__}, compiled for {count_of(len(self._specializations), 'signature')}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Jitted, (self.f, *self._options)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else BoundJitted(self, instance)


class BoundJitted(partial[Any]):
    """A jitted method of an object."""

    func: Any
    binds = True  # for `core.functions.bound_object`

    @property
    def __name__(self) -> str:
        return self.func.__name__

    @property
    def __wrapped__(self) -> Any:
        return MethodType(self.func.f, self.args[0])

    def inspect(self, /, *args: Any, **kwargs: Any) -> Compiled:
        """`Jitted.inspect`, of the method."""
        return self.func.inspect(*self.args, *args, **self.keywords, **kwargs)

    def profile(self, /, *args: Any, **kwargs: Any) -> Profile:
        """`Jitted.profile`, of the method."""
        return self.func.profile(*self.args, *args, **self.keywords, **kwargs)


@overload
def jit(
    f: Callable[P, R], static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = (),
    donate: int | str | Sequence[int | str] = (),
) -> Jitted[P, R]: ...  # fmt: skip
@overload
def jit(
    f: None = None, static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = (),
    donate: int | str | Sequence[int | str] = (),
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...  # fmt: skip
def jit(
    f: Any = None, static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = (),
    donate: int | str | Sequence[int | str] = (),
) -> Any:  # fmt: skip
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
    check_function(f, "jit")
    owner = bound_object(f)
    if owner is None:
        return Jitted(f, _several(static_argnums), _several(static_argnames), _several(donate))
    after: Any = lambda given: tuple([n if isinstance(n, str) or n < 0 else n + 1 for n in _several(given)])
    return BoundJitted(Jitted(_Unbound(f), after(static_argnums), _several(static_argnames), after(donate)), owner)


class _Unbound:
    """A function that is a mutable object, or belongs to one, as a function that takes that object first."""

    def __init__(self, f: Callable):
        self.f = f
        self.__name__: str = getattr(f, "__name__", type(f).__name__)
        self.__doc__ = getattr(f, "__doc__", None)
        with suppress(TypeError, ValueError):
            found = inspect.signature(f)
            first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
            self.__signature__ = found.replace(parameters=[first, *found.parameters.values()])

    def __call__(self, owner: Any, /, *args: Any, **kwargs: Any) -> Any:
        return rebound(self.f, owner)(*args, **kwargs)


def _several(given: Any) -> tuple:
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


compiler.fill(jit)
